"""`Cell`: a crystal as it was given, validated before any symmetry library sees it.

A NaN lattice ends spglib's process, and overlapping or partly occupied sites make it return nothing; so a
`Cell` is finite, has volume, has whole atoms and no two of them in one place, or it is not made at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SMALLEST_DISTANCE = 0.3  # Å; the shortest bond, H-H, is 0.74 Å

_ELEMENTS = (
    "X H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr "
    "Rb Sr Y Zr Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb "
    "Lu Hf Ta W Re Os Ir Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf "
    "Db Sg Bh Hs Mt Ds Rg Cn Nh Fl Mc Lv Ts Og"
)
SYMBOLS = tuple(_ELEMENTS.split())
ATOMIC_NUMBER = {symbol: z for z, symbol in enumerate(SYMBOLS) if z} | {"D": 1, "T": 1}


def atomic_number(symbol: str) -> int:
    """Atomic number of an element symbol; deuterium and tritium count as hydrogen.

    Raises `ValueError` for anything that is no element.
    """
    try:
        return ATOMIC_NUMBER[symbol]
    except KeyError:
        raise ValueError(f"unknown element symbol {symbol!r}") from None


@dataclass(frozen=True, eq=False)
class Cell:
    """A periodic structure with one whole atom per site.

    **Arguments:**

    - `lattice`: rows a, b, c in Å (3, 3). A left-handed lattice is replaced, with the coordinates, by its
      negative: the same crystal in right-handed axes.
    - `fractional`: coordinates (N, 3) in the lattice basis.
    - `species`: atomic numbers (N,).
    - `name`: used in messages.

    Raises `ValueError` when a number is not finite, the lattice has no volume, there is no atom, an atomic
    number is not in 1..118, or two atoms are closer than 0.3 Å.
    """

    lattice: np.ndarray
    fractional: np.ndarray
    species: np.ndarray
    name: str = "structure"

    def __post_init__(self) -> None:
        lattice = np.array(self.lattice, float)
        fractional = np.array(self.fractional, float)
        species = np.array(self.species)
        if lattice.shape != (3, 3):
            raise ValueError(
                f"{self.name}: the lattice has shape {lattice.shape}, expected (3, 3): rows a, b, c in Å"
            )
        if len(species) == 0:
            raise ValueError(f"{self.name}: the structure has no atoms")
        if fractional.shape != (len(species), 3):
            raise ValueError(
                f"{self.name}: coordinates have shape {fractional.shape} for {len(species)} atoms"
            )
        if not np.isfinite(lattice).all():
            raise ValueError(f"{self.name}: the lattice has entries that are not finite: {lattice.tolist()}")
        if not np.isfinite(fractional).all():
            bad = int(np.flatnonzero(~np.isfinite(fractional).all(1))[0])
            raise ValueError(
                f"{self.name}: coordinates of atom {bad + 1} are not finite: {fractional[bad].tolist()}"
            )
        if species.dtype.kind not in "iu" or species.min() < 1 or species.max() > 118:
            raise ValueError(
                f"{self.name}: atomic numbers must be integers in 1..118, got {species.tolist()[:10]}"
            )
        volume = np.linalg.det(lattice)
        edges = np.sqrt((lattice**2).sum(1))
        if abs(volume) <= 1e-4 * edges.prod() or edges.min() < SMALLEST_DISTANCE:
            raise ValueError(
                f"{self.name}: the lattice has no volume: {volume:.3g} Å³, edges {edges.round(4).tolist()} Å"
            )
        if volume < 0:
            lattice, fractional = -lattice, -fractional
        object.__setattr__(self, "lattice", lattice)
        object.__setattr__(self, "fractional", fractional)
        object.__setattr__(self, "species", species.astype(np.intc))
        self._check_distances()

    def __len__(self) -> int:
        return len(self.species)

    def _check_distances(self) -> None:
        # rounding finds vectors shorter than half the plane spacing along each axis; thin cells look further
        spacing = 1 / np.sqrt((np.linalg.inv(self.lattice) ** 2).sum(0))
        reach = np.ceil(SMALLEST_DISTANCE / spacing - 0.5).clip(0).astype(int)
        offsets = np.indices(tuple(2 * reach + 1)).reshape(3, -1).T - reach
        metric = self.lattice @ self.lattice.T
        rows = max(1, 200_000 // len(self))
        for start in range(0, len(self) - 1, rows):
            difference = self.fractional[start : start + rows, None] - self.fractional[None]
            difference -= np.rint(difference)
            for offset in offsets:
                shifted = difference + offset
                squared = ((shifted @ metric) * shifted).sum(-1)
                close = squared < SMALLEST_DISTANCE**2
                if np.count_nonzero(close) > (len(close) if not offset.any() else 0):
                    squared[np.arange(len(close)), start + np.arange(len(close))] = np.inf
                    i, j = np.unravel_index(int(squared.argmin()), squared.shape)
                    first, second = sorted((start + int(i), int(j)))
                    names = [f"{SYMBOLS[self.species[k]]}{k + 1}" for k in (first, second)]
                    raise ValueError(
                        f"{self.name}: atoms {names[0]} and {names[1]} overlap, "
                        f"{np.sqrt(squared[i, j]):.3f} Å apart; remove the duplicate, "
                        "or choose one of the alternative positions of a disordered site"
                    )


def ordered_species(sites: Sequence[Sequence[tuple[str, float]]], name: str) -> np.ndarray:
    """Atomic numbers of sites given as lists of (element, occupancy).

    Raises `ValueError` for a partly occupied or mixed site, saying how to order it.
    """
    numbers = []
    for index, site in enumerate(sites):
        if len(site) != 1 or abs(site[0][1] - 1) > 1e-3:
            text = ", ".join(f"{element} {occupancy:g}" for element, occupancy in site) or "vacant"
            raise ValueError(
                f"{name}: site {index + 1} is disordered ({text}); make an ordered model first, for example "
                "with pymatgen's OrderDisorderedStructureTransformation, or write occupancy 1 if it is noise"
            )
        try:
            numbers.append(atomic_number(site[0][0]))
        except ValueError as error:
            raise ValueError(f"{name}: site {index + 1}: {error}") from None
    return np.array(numbers, int)
