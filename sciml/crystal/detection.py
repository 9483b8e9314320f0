"""From a `Cell` as given to a crystal in exact symmetry: `detect`.

    cell -> space group (spglib or moyopy) -> standard setting -> primitive cell -> metric and positions
    averaged over the group

The symmetry library says which of the 530 settings it is and how the cell maps to it. The operators are then
the *tabulated* ones, exact; positions become exact by x <- mean_g of the images that fall on it (largest
move: `displacement`), the metric by its mean over the point group. Supercells end in the same primitive cell
as everything else, so no operator is lost.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from sciml.crystal.cell import SYMBOLS, Cell
from sciml.crystal.lattice import lattice_of, symmetrise_metric
from sciml.crystal.seitz import DENOMINATOR
from sciml.crystal.space_group import Backend, FoundSymmetry, SpaceGroup, SymmetryNotFoundError, find_symmetry

if TYPE_CHECKING:
    from sciml.crystal.structure import Crystal


@dataclass(frozen=True, eq=False)
class Detection:
    """A structure in the primitive cell of its space group's tabulated setting, symmetric to round-off.

    **Attributes:**

    - `hall_number`: the setting, 1..530.
    - `lattice`: rows of the primitive cell in Å, a along x and b in the xy plane.
    - `fractional`, `species`: atoms of the primitive cell, (n, 3) and (n,).
    - `orbit`: (n,) label of the crystallographic orbit, the index of its first atom.
    - `atom_of`: (N,) the atom of the primitive cell that each atom of the given cell is.
    - `displacement`: largest distance in Å that an atom moved to make the symmetry exact, apart from a shift
      common to all.
    - `symprec`: tolerance of the search in Å.
    - `number_at_loose`: space-group number at `loose_symprec`, 0 when the search failed there, None when not
      asked for.
    """

    hall_number: int
    lattice: np.ndarray
    fractional: np.ndarray
    species: np.ndarray
    orbit: np.ndarray
    atom_of: np.ndarray
    displacement: float
    symprec: float
    loose_symprec: float | None = None
    number_at_loose: int | None = None
    name: str = "structure"

    @property
    def setting(self) -> SpaceGroup:
        """The tabulated setting (conventional cell)."""
        return SpaceGroup.from_hall_number(self.hall_number)

    @property
    def space_group(self) -> SpaceGroup:
        """Operators in the primitive cell that `lattice` and `fractional` use."""
        return self.setting.primitive()

    @property
    def number(self) -> int:
        """Space-group type 1..230."""
        return self.setting.number

    @property
    def formula(self) -> str:
        """Atoms of the primitive cell, such as ``Na1 Cl1``."""
        numbers, counts = np.unique(self.species, return_counts=True)
        return " ".join(f"{SYMBOLS[z]}{n}" for z, n in zip(numbers, counts, strict=True))

    @property
    def warning(self) -> str | None:
        """A sentence when the group depends on the tolerance, else None."""
        if self.number_at_loose is None or self.number_at_loose == self.number:
            return None
        other = f"{self.number_at_loose}" if self.number_at_loose else "none found"
        return (
            f"{self.name}: the space group depends on the tolerance: {self.number} at symprec "
            f"{self.symprec:g} Å, {other} at {self.loose_symprec:g} Å"
        )

    def crystal(self, pad_atoms: int | None = None) -> Crystal:
        """The structure as a JAX pytree, padded to `pad_atoms` atoms."""
        from sciml.crystal.structure import Crystal

        return Crystal.from_detection(self, pad_atoms=pad_atoms)


def detect(
    cell: Cell, *, symprec: float = 0.01, loose_symprec: float | None = 0.1, backend: Backend = "spglib"
) -> Detection:
    """Find the space group of a structure and describe it with that symmetry exact.

    **Arguments:**

    - `symprec`: distance in Å up to which atoms count as symmetric. 0.01 fits relaxed structures and 4-digit
      coordinates.
    - `loose_symprec`: second tolerance in Å; None skips it and takes the library's answer at `symprec`.
    - `backend`: "spglib" or "moyopy".

    Raises `SymmetryNotFoundError` (a `ValueError`) when the library finds nothing or its answer does not fit
    the structure. Some inputs keep the library busy for many seconds: `detect_with_time_limit`.

    What the library finds near a tolerance depends on the cell and on the atom that it starts from. The group
    is therefore the largest one that it finds between the two tolerances whose exact symmetry moves no atom,
    and strains no cell, by more than `symprec`: a measure that no description changes.
    """
    found = _search(cell, symprec, backend)
    best, number_at_loose = _exact(cell, found), None
    if loose_symprec is not None:
        number_at_loose, larger = _between(cell, found, symprec, loose_symprec, backend)
        if larger is not None and larger.symmetry > best.symmetry:
            best = larger
        tolerance = symprec
        while best.distortion > symprec:  # the library's measure is another one: look for a subgroup
            tolerance /= 2
            best = _exact(cell, _search(cell, tolerance, backend))
    return Detection(
        best.hall_number,
        lattice_of(best.metric),
        best.fractional,
        best.species,
        best.orbit,
        best.atom_of,
        best.displacement,
        symprec,
        loose_symprec,
        number_at_loose,
        cell.name,
    )


def _between(
    cell: Cell, found: FoundSymmetry, symprec: float, loose_symprec: float, backend: Backend
) -> tuple[int, _Exact | None]:
    """The number at the loose tolerance (0 for none), and the first group from there towards `symprec` that
    is within reach; None when there is none but `found`.
    """
    number_at_loose, tolerance = 0, loose_symprec
    while tolerance > symprec:
        with contextlib.suppress(SymmetryNotFoundError):
            other = _search(cell, tolerance, backend)
            if tolerance == loose_symprec:
                number_at_loose = other.number
            if other.number == found.number and other.primitive_atoms == found.primitive_atoms:
                break
            candidate = _exact(cell, other)
            if candidate.distortion <= symprec:
                return number_at_loose, candidate
        tolerance /= 2
    return number_at_loose, None


@dataclass(frozen=True, eq=False)
class _Exact:
    """A structure made exactly symmetric under one proposed group.

    `distortion` is the largest move in Å, of an atom or, as principal strain times the cube root of the
    primitive volume, of the lattice. `symmetry` counts operators for every atom of the primitive cell.
    """

    hall_number: int
    metric: np.ndarray
    fractional: np.ndarray
    species: np.ndarray
    orbit: np.ndarray
    atom_of: np.ndarray
    displacement: float
    distortion: float
    symmetry: float


def _search(cell: Cell, symprec: float, backend: Backend) -> FoundSymmetry:
    try:
        return find_symmetry(cell.lattice, cell.fractional, cell.species, symprec=symprec, backend=backend)
    except SymmetryNotFoundError as error:
        raise SymmetryNotFoundError(f"{cell.name}: {error}") from None


def _exact(cell: Cell, found: FoundSymmetry) -> _Exact:
    setting = SpaceGroup.from_hall_number(found.hall_number)
    group = setting.primitive()
    to_primitive = setting.primitive_coordinates @ found.transformation
    chosen, atom_of = found.classes
    species = cell.species[chosen]
    given_positions = cell.fractional @ to_primitive.T + setting.primitive_coordinates @ found.origin
    fractional = _class_means(given_positions, chosen, atom_of)
    basis = np.linalg.inv(to_primitive).T @ cell.lattice
    given = basis @ basis.T
    try:
        metric = symmetrise_metric(group, given)
    except ValueError as error:
        raise SymmetryNotFoundError(f"{cell.name}: {error}") from None
    fractional, orbit = snap(group, metric, fractional, species, name=cell.name)
    displacement = _largest_move(given_positions, fractional[atom_of], metric)
    volumes = abs(np.linalg.det(basis)), abs(np.linalg.det(cell.lattice))
    if abs(len(cell) * volumes[0] - len(chosen) * volumes[1]) > 1e-3 * len(chosen) * volumes[1]:
        raise SymmetryNotFoundError(
            f"{cell.name}: the symmetry library lost atoms; try another symprec or backend"
        )
    strain = np.abs(np.linalg.eigvals(np.linalg.solve(given, metric)).real - 1).max() / 2
    return _Exact(
        found.hall_number,
        metric,
        fractional,
        species,
        orbit,
        atom_of,
        displacement,
        max(displacement, float(strain * volumes[0] ** (1 / 3))),
        group.order / len(chosen),
    )


def _class_means(positions: np.ndarray, chosen: np.ndarray, atom_of: np.ndarray) -> np.ndarray:
    """Mean position of the atoms that lattice translations of the primitive cell make one; (n, 3)."""
    moves = positions - positions[chosen[atom_of]]
    moves -= np.rint(moves)
    total = np.zeros((len(chosen), 3))
    np.add.at(total, atom_of, moves)
    return positions[chosen] + total / np.bincount(atom_of)[:, None]


def _largest_move(given: np.ndarray, exact: np.ndarray, metric: np.ndarray) -> float:
    """Largest distance between two sets of positions apart from a common shift, which is the choice of
    origin, no distortion.
    """
    moves = exact - given
    moves -= np.rint(moves)
    moves -= moves.mean(0)
    return float(np.sqrt(((moves @ metric) * moves).sum(-1).max()))


def snap(
    group: SpaceGroup,
    metric: np.ndarray,
    fractional: np.ndarray,
    species: np.ndarray,
    *,
    name: str = "structure",
) -> tuple[np.ndarray, np.ndarray]:
    """Average positions over a group that they obey nearly, so that they obey it to round-off.

    Every operator permutes the atoms; x_j becomes the mean over operators of the image that falls on atom j.
    Which atom that is, is looked up for generators of the group and composed for the other operators.
    Returns the coordinates in [0, 1) and the orbit label of every atom.

    Raises `SymmetryNotFoundError` when an operator does not permute the atoms.
    """
    count, order = len(fractional), group.order
    if order == 1:
        return fractional % 1.0, np.arange(count)
    generators, words = _words(group)
    shifts = group.translations / DENOMINATOR
    images = fractional @ np.swapaxes(group.rotations, 1, 2) + shifts[:, None]  # (g, i, 3)
    permutation = np.empty((order, count), int)
    permutation[0] = np.arange(count)
    other = species[:, None] != species
    factor = np.linalg.cholesky(metric)
    at_once = max(1, 100_000 // count**2)
    for begin in range(0, len(generators), at_once):
        some = generators[begin : begin + at_once]
        difference = images[some][:, :, None] - fractional  # (g, i, j, 3)
        difference -= np.rint(difference)
        squared = np.square(difference @ factor).sum(-1)
        squared[:, other] = np.inf
        permutation[some] = nearest = squared.argmin(2)
        if (np.sort(nearest, 1) != permutation[0]).any():
            raise SymmetryNotFoundError(
                f"{name}: an operator of {group!r} does not map the atoms onto themselves"
            )
    for product, first, second in words:
        permutation[product] = permutation[first][permutation[second]]
    moves = images - fractional[permutation]
    moves -= np.rint(moves)
    correction = np.zeros((count, 3))
    np.add.at(correction, permutation, moves)
    correction /= order
    return (fractional + correction) % 1.0, permutation.min(0)


@cache
def _words(group: SpaceGroup) -> tuple[list[int], list[tuple[int, int, int]]]:
    """Generators of a group, and (product, first, second) for every other operator in an order in which both
    factors are known; the operator 0 is the identity.
    """
    rotations, translations = group.rotations, group.translations
    weights = 24 ** np.arange(3), 9 ** np.arange(9) * 24**3
    codes = translations @ weights[0] + rotations.reshape(-1, 9) @ weights[1]
    products = (rotations[:, None] @ rotations).reshape(-1, 9) @ weights[1]
    shifts = (np.einsum("aij,bj->abi", rotations, translations) + translations[:, None]) % DENOMINATOR
    place = np.argsort(codes)
    table = place[np.searchsorted(codes[place], products.reshape(group.order, -1) + shifts @ weights[0])]
    known, generators, words = [0], [], []
    for operator in range(1, group.order):
        if operator in known:
            continue
        generators.append(operator)
        known.append(operator)
        for first in known:  # grows on the way
            for second in generators:
                product = int(table[first, second])
                if product not in known:
                    known.append(product)
                    words.append((product, first, second))
    return generators, words


def detect_with_time_limit(
    cell: Cell,
    seconds: float,
    *,
    symprec: float = 0.01,
    loose_symprec: float | None = 0.1,
    backend: Backend = "spglib",
) -> Detection:
    """`detect` in a process of its own that is ended after `seconds`; a crash of the library is an error
    here, not the end.

    Raises `TimeoutError`, or what `detect` raises.
    """
    from sciml.crystal.worker import run_all

    options = {"symprec": symprec, "loose_symprec": loose_symprec, "backend": backend}
    for _, result in run_all(_detect_task, [(cell, options)], processes=1, time_limit=seconds):
        if isinstance(result, Exception):
            raise result
        return result
    raise AssertionError("one task gives one result")


def _detect_task(task: tuple[Cell, dict]) -> Detection:
    cell, options = task
    return detect(cell, **options)
