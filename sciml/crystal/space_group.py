"""`SpaceGroup`: a hashable descriptor with exact Seitz operators, and the search for the group of a
structure.

    SpaceGroup.from_number(227)              ITA standard setting (unique axis b, origin choice 2, hexagonal
    axes) SpaceGroup.from_hall_number(525)         any of the 530 tabulated settings
    SpaceGroup.from_hall_symbol("F 4d 2 3 -1d"), SpaceGroup.from_symbol("Fd-3m:1")
    SpaceGroup.from_operations(["x,y,z", "-x,-y,-z"])
    find_symmetry(lattice, fractional, species)      -> which setting, and how the cell maps to it

Conventions: x' = R x + t on columns of fractional coordinates; translations in 24ths. This is the only module
that calls spglib or moyopy. References: International Tables for Crystallography A (2016); A. Togo et al.,
STAM-M 4, 2384822 (2024).
"""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

import numpy as np

from sciml.crystal import seitz

Backend = Literal["spglib", "moyopy"]

HALL_NUMBERS = range(1, 531)

# Primitive basis vectors as rows, in sixths of the conventional ones; determinant > 0 (ITA A, table 1.5.1.1).
_PRIMITIVE_SIXTHS = {
    "P": [[6, 0, 0], [0, 6, 0], [0, 0, 6]],
    "A": [[6, 0, 0], [0, 3, -3], [0, 3, 3]],
    "B": [[3, 0, -3], [0, 6, 0], [3, 0, 3]],
    "C": [[3, -3, 0], [3, 3, 0], [0, 0, 6]],
    "I": [[-3, 3, 3], [3, -3, 3], [3, 3, -3]],
    "F": [[0, 3, 3], [3, 0, 3], [3, 3, 0]],
    "R": [[4, 2, 2], [-2, 2, 2], [-2, -4, 2]],
}
_LAUE_CLASS = {
    **dict.fromkeys(["1", "-1"], "-1"),
    **dict.fromkeys(["2", "m", "2/m"], "2/m"),
    **dict.fromkeys(["222", "mm2", "mmm"], "mmm"),
    **dict.fromkeys(["4", "-4", "4/m"], "4/m"),
    **dict.fromkeys(["422", "4mm", "-42m", "4/mmm"], "4/mmm"),
    **dict.fromkeys(["3", "-3"], "-3"),
    **dict.fromkeys(["32", "3m", "-3m"], "-3m"),
    **dict.fromkeys(["6", "-6", "6/m"], "6/m"),
    **dict.fromkeys(["622", "6mm", "-62m", "6/mmm"], "6/mmm"),
    **dict.fromkeys(["23", "m-3"], "m-3"),
    **dict.fromkeys(["432", "-43m", "m-3m"], "m-3m"),
}
_CRYSTAL_SYSTEM = {
    "-1": "triclinic",
    "2/m": "monoclinic",
    "mmm": "orthorhombic",
    "4/m": "tetragonal",
    "4/mmm": "tetragonal",
    "-3": "trigonal",
    "-3m": "trigonal",
    "6/m": "hexagonal",
    "6/mmm": "hexagonal",
    "m-3": "cubic",
    "m-3m": "cubic",
}


@dataclass(frozen=True, eq=False)
class SpaceGroup:
    """A space group in one setting: hashable, exact, usable as a static argument of `jax.jit`.

    **Attributes:**

    - `rotations`: integers (G, 3, 3), R in x' = R x + t; the identity comes first.
    - `translations`: integers (G, 3), t in units of 1/24.
    - `number`: space-group type 1..230.
    - `hall_number`: tabulated setting 1..530, or None for operations in another cell (a primitive cell, say).

    Two groups are equal when their operators are.
    """

    rotations: np.ndarray
    translations: np.ndarray
    number: int
    hall_number: int | None = None

    def __post_init__(self) -> None:
        rotations, translations = seitz.in_canonical_order(
            np.asarray(self.rotations), np.asarray(self.translations)
        )
        rotations.setflags(write=False)
        translations.setflags(write=False)
        object.__setattr__(self, "rotations", rotations)
        object.__setattr__(self, "translations", translations)
        object.__setattr__(self, "_key", (rotations.tobytes(), translations.tobytes()))
        object.__setattr__(self, "_hash", hash(self._key))  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SpaceGroup) and self._key == other._key  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        setting = f"hall_number={self.hall_number}" if self.hall_number else f"{self.order} operations"
        return f"SpaceGroup({self.symbol!r}, number={self.number}, {setting})"

    # --- construction ---------------------------------------------------------------------------------------

    @classmethod
    def from_hall_number(cls, hall_number: int) -> SpaceGroup:
        """One of the 530 settings of the Hall-symbol table (the numbering of spglib and of S. R. Hall)."""
        if not 1 <= hall_number <= 530:
            raise ValueError(f"hall_number must be in 1..530, got {hall_number}")
        return _from_table(int(hall_number))

    @classmethod
    def from_number(cls, number: int, choice: str | None = None) -> SpaceGroup:
        """The space group `number` (1..230) in the ITA standard setting, or in the setting named by `choice`.

        Standard: unique axis b, cell choice 1, origin choice 2, hexagonal axes. `choice` is the table's own
        word: "1" or "2" (origin), "H" or "R" (axes), "b1", "c1", "cab", ...
        """
        if not 1 <= number <= 230:
            raise ValueError(f"space-group number must be in 1..230, got {number}")
        settings = _settings_of_number()[number]
        if choice is None:
            return _from_table(_standard(settings))
        for hall_number in settings:
            if _entry(hall_number).choice == choice:
                return _from_table(hall_number)
        choices = [_entry(h).choice for h in settings]
        raise ValueError(f"space group {number} has no setting {choice!r}; it has {choices}")

    @classmethod
    def from_hall_symbol(cls, symbol: str) -> SpaceGroup:
        """The setting whose Hall symbol is `symbol`, such as ``-P 2ybc``; case does not matter."""
        wanted = symbol.lower().replace("_", " ").split()
        for hall_number in HALL_NUMBERS:
            if _entry(hall_number).hall_symbol.lower().split() == wanted:
                return _from_table(hall_number)
        raise ValueError(f"no tabulated setting has the Hall symbol {symbol!r}")

    @classmethod
    def from_symbol(cls, symbol: str) -> SpaceGroup:
        """The setting with a Hermann-Mauguin symbol, short or full, with or without spaces: ``P2_1/c``, ``P 1
        21/c 1``.

        A setting may follow a colon (``Fd-3m:1``, ``R 3 m :R``); without one the standard setting is meant.
        Symbols from before 1935 that leave out the bar (``F d 3 m``, ``P m 3``) are understood when they are
        unambiguous.
        """
        return _from_table(_standard(settings_of_symbol(symbol)))

    @classmethod
    def from_operations(cls, operations: Iterable[str | np.ndarray]) -> SpaceGroup:
        """The group of CIF operations (``"x,y,z"``) or of (rotations, translations in 24ths).

        The list must be complete: `ValueError` when it is not closed under multiplication.
        """
        operations = list(operations)
        if len(operations) == 2 and not isinstance(operations[0], str):
            rotations, translations = (np.asarray(part, int) for part in operations)
        else:
            parsed = [seitz.parse_operation(str(text)) for text in operations]
            if not parsed:
                raise ValueError(
                    "no symmetry operations given; a structure without symmetry has the one operation 'x,y,z'"
                )
            rotations = np.stack([rotation for rotation, _ in parsed])
            translations = np.stack([translation for _, translation in parsed])
        rotations, translations = seitz.in_canonical_order(rotations, translations)
        closed, _ = seitz.generate(rotations, translations)
        if len(closed) != len(rotations):
            raise ValueError(
                f"the {len(rotations)} symmetry operations are not a group (products give {len(closed)}): "
                "one is missing or mistyped"
            )
        for hall_number in _settings_by_order().get(len(rotations), ()):
            group = _from_table(hall_number)
            if np.array_equal(group.rotations, rotations) and np.array_equal(
                group.translations, translations
            ):
                return group
        return cls(rotations, translations, _identify(rotations, translations))

    def primitive(self) -> SpaceGroup:
        """The same group with operators in the primitive basis of `primitive_basis`; exact, at most 48
        operators.
        """
        if self.centring == "P":
            return self
        return _primitive(self)

    # --- descriptions ---------------------------------------------------------------------------------------

    @property
    def order(self) -> int:
        """Number of operators modulo integer translations of this cell, centring included."""
        return len(self.rotations)

    @cached_property
    def centring_translations(self) -> np.ndarray:
        """Pure translations (C, 3) in 24ths, the zero one included."""
        return self.translations[(self.rotations == np.eye(3, dtype=int)).all((1, 2))]

    @cached_property
    def centring(self) -> str:
        """Centring letter P, A, B, C, I, F or R of this cell."""
        ours = {tuple(row) for row in self.centring_translations.tolist()}
        for letter, sixths in _PRIMITIVE_SIXTHS.items():
            inverse = _primitive_inverse(letter)
            volume = round(1 / np.linalg.det(np.array(sixths) / 6))
            if len(ours) == volume and all(
                (inverse @ np.array(u) % seitz.DENOMINATOR == 0).all() for u in ours
            ):
                return letter
        raise ValueError(
            f"unusual centring, translations {sorted(ours)} (24ths): reduce the cell to its primitive cell"
        )

    @property
    def primitive_basis(self) -> np.ndarray:
        """Primitive basis vectors as *columns* P in the basis of this cell: x_cell = P x_primitive."""
        return np.array(_PRIMITIVE_SIXTHS[self.centring]).T / 6

    @property
    def primitive_coordinates(self) -> np.ndarray:
        """Integer matrix P^-1: x_primitive = P^-1 x_cell."""
        return _primitive_inverse(self.centring)

    @cached_property
    def symbol(self) -> str:
        """Short Hermann-Mauguin symbol of the space-group type (of the setting, where one is tabulated)."""
        return _entry(self.hall_number or _settings_of_number()[self.number][0]).international_short

    @property
    def hall_symbol(self) -> str | None:
        """Hall symbol of the setting."""
        return _entry(self.hall_number).hall_symbol if self.hall_number else None

    @property
    def choice(self) -> str | None:
        """Origin, axis or cell choice of the setting: "1", "2", "H", "R", "b1", ... or ""."""
        return _entry(self.hall_number).choice if self.hall_number else None

    @property
    def point_group(self) -> str:
        """Point group, such as ``m-3m``."""
        symbol = _entry(_settings_of_number()[self.number][0]).pointgroup_international
        return "-62m" if symbol == "-6m2" else symbol

    @property
    def laue_class(self) -> str:
        """Laue class: the point group with an inversion added."""
        return _LAUE_CLASS[self.point_group]

    @property
    def crystal_system(self) -> str:
        """One of triclinic, monoclinic, orthorhombic, tetragonal, trigonal, hexagonal, cubic."""
        return _CRYSTAL_SYSTEM[self.laue_class]

    @cached_property
    def point_group_order(self) -> int:
        """Number of distinct rotation parts."""
        return self.order // len(self.centring_translations)

    @cached_property
    def is_centrosymmetric(self) -> bool:
        """Whether an operator inverts every direction, R = -1 (anywhere, not only at the origin)."""
        return bool((self.rotations == -np.eye(3, dtype=int)).all((1, 2)).any())

    @cached_property
    def is_polar(self) -> bool:
        """Whether some direction is left unchanged by every rotation part (the origin is then free
        along it).
        """
        return bool(self.rotations.sum(0).any())

    def operations(self) -> list[str]:
        """The operators in CIF form."""
        return [seitz.format_operation(r, t) for r, t in zip(self.rotations, self.translations, strict=True)]


# --- the table of 530 settings ------------------------------------------------------------


@cache
def _entry(hall_number: int):
    import spglib

    with _exceptions(spglib):
        entry = spglib.get_spacegroup_type(hall_number)
    assert entry is not None
    return entry


@cache
def _from_table(hall_number: int) -> SpaceGroup:
    import spglib

    with _exceptions(spglib):
        table = spglib.get_symmetry_from_database(hall_number)
    assert table is not None
    translations = np.rint(table["translations"] * seitz.DENOMINATOR).astype(int)
    return SpaceGroup(table["rotations"].astype(int), translations, _entry(hall_number).number, hall_number)


@cache
def _settings_of_number() -> dict[int, tuple[int, ...]]:
    settings: dict[int, tuple[int, ...]] = {}
    for hall_number in HALL_NUMBERS:
        number = _entry(hall_number).number
        settings[number] = (*settings.get(number, ()), hall_number)
    return settings


@cache
def _settings_by_order() -> dict[int, tuple[int, ...]]:
    settings: dict[int, tuple[int, ...]] = {}
    for hall_number in HALL_NUMBERS:
        order = _from_table(hall_number).order
        settings[order] = (*settings.get(order, ()), hall_number)
    return settings


def _standard(settings: Sequence[int]) -> int:
    """Origin choice 2 where there is one, else the first (unique axis b, cell choice 1, hexagonal axes)."""
    return next((h for h in settings if _entry(h).choice == "2"), settings[0])


def settings_of_symbol(symbol: str) -> tuple[int, ...]:
    """Hall numbers of the settings that a Hermann-Mauguin symbol may mean; see `SpaceGroup.from_symbol`."""
    name, _, choice = symbol.partition(":")
    name, choice = _squeeze(name), choice.strip()
    found = [h for h in HALL_NUMBERS if name in _names(h)]
    if not found:
        found = [h for h in HALL_NUMBERS if name in {n.replace("-", "") for n in _names(h)}]
    if choice:
        found = [h for h in found if _entry(h).choice.lower() == choice.lower()]
    numbers = {_entry(h).number for h in found}
    if not found:
        raise ValueError(
            f"unknown space-group symbol {symbol!r}; write it as in 'P2_1/c', 'P 1 21/c 1' or 'Fd-3m:2'"
        )
    if len(numbers) > 1:
        raise ValueError(f"space-group symbol {symbol!r} is ambiguous between numbers {sorted(numbers)}")
    return tuple(found)


@cache
def _names(hall_number: int) -> frozenset[str]:
    entry = _entry(hall_number)
    parts = [entry.international_short, entry.international_full, *entry.international.split("=")]
    if 3 <= entry.number <= 15:  # 'P 1 2_1/n 1' is mostly written P2_1/n
        parts.append("".join(word for word in entry.international_full.split() if word != "1"))
    return frozenset(_squeeze(part) for part in parts)


def _squeeze(symbol: str) -> str:
    return re.sub(r"[\s_]", "", symbol).lower()


def _identify(rotations: np.ndarray, translations: np.ndarray) -> int:
    import spglib

    # any lattice metric that the rotations preserve will do
    metric = np.einsum("gji,gjk->ik", rotations, rotations) / len(rotations)
    lattice = np.linalg.cholesky(metric)
    with _exceptions(spglib):
        found = spglib.get_spacegroup_type_from_symmetry(
            rotations.astype(np.intc), translations / seitz.DENOMINATOR, lattice=lattice, symprec=1e-5
        )
    if found is None:
        raise ValueError("the symmetry operations form no space group in three dimensions")
    return found.number


@cache
def _primitive_inverse(letter: str) -> np.ndarray:
    return np.rint(np.linalg.inv(np.array(_PRIMITIVE_SIXTHS[letter]).T / 6)).astype(int)


@cache
def _primitive(group: SpaceGroup) -> SpaceGroup:
    inverse = group.primitive_coordinates
    sixths = np.array(_PRIMITIVE_SIXTHS[group.centring]).T
    rotations = np.einsum("ij,gjk,kl->gil", inverse, group.rotations, sixths)
    assert (rotations % 6 == 0).all()
    return SpaceGroup(rotations // 6, group.translations @ inverse.T, group.number)


# --- detection ------------------------------------------------------------


@dataclass(frozen=True)
class FoundSymmetry:
    """What a symmetry search returns: the setting, and the map x_setting = T x + o from the given cell.

    `primitive_labels` (N,) are equal for atoms that a translation of the primitive lattice maps onto each
    other; `orbits` (N,) are the library's labels of crystallographic orbits.
    """

    hall_number: int
    transformation: np.ndarray
    origin: np.ndarray
    primitive_labels: np.ndarray
    orbits: np.ndarray

    @property
    def number(self) -> int:
        """Space-group type 1..230."""
        return _entry(self.hall_number).number

    @property
    def primitive_atoms(self) -> int:
        """Number of atoms in the primitive cell."""
        return len(set(self.primitive_labels.tolist()))

    @property
    def classes(self) -> tuple[np.ndarray, np.ndarray]:
        """The first atom of every class of atoms that translations of the primitive lattice make one, in
        rising order, and for every atom the number of its class, (n,) and (N,).
        """
        first: dict[int, int] = {}
        atom_of = [first.setdefault(label, len(first)) for label in self.primitive_labels.tolist()]
        return np.unique(atom_of, return_index=True)[1], np.array(atom_of)

    @property
    def representative(self) -> np.ndarray:
        """For every atom the first one that a translation of the primitive lattice maps it to, (N,)."""
        chosen, atom_of = self.classes
        return chosen[atom_of]


class SymmetryNotFoundError(ValueError):
    """The symmetry library returned nothing for a structure that passed validation."""


def find_symmetry(
    lattice: np.ndarray,
    fractional: np.ndarray,
    species: np.ndarray,
    *,
    symprec: float = 0.01,
    backend: Backend = "spglib",
) -> FoundSymmetry:
    """Search the space group of a *validated* structure (a NaN lattice crashes spglib; see
    `sciml.crystal.structure.Cell`).

    **Arguments:**

    - `lattice`: rows a, b, c in Å (3, 3).
    - `fractional`: fractional coordinates (N, 3).
    - `species`: atomic numbers (N,).
    - `symprec`: distance tolerance in Å.
    - `backend`: "spglib" (reference) or "moyopy" (about six times faster).

    Raises `SymmetryNotFoundError` when the library gives up.
    """
    if backend == "spglib":
        import spglib

        with _exceptions(spglib):
            try:
                found = spglib.get_symmetry_dataset(
                    (lattice, fractional, species),  # pyright: ignore[reportArgumentType]
                    symprec=symprec,
                )
            except spglib.SpglibError as error:
                raise SymmetryNotFoundError(
                    f"spglib found no symmetry at symprec {symprec} Å: {error}"
                ) from None
        if found is None:
            raise SymmetryNotFoundError(
                f"spglib found no symmetry at symprec {symprec} Å; try a smaller symprec"
            )
        return FoundSymmetry(
            found.hall_number,
            found.transformation_matrix,
            found.origin_shift,
            found.mapping_to_primitive,
            found.crystallographic_orbits,
        )
    if backend == "moyopy":
        import moyopy

        cell = moyopy.Cell(lattice.tolist(), fractional.tolist(), np.asarray(species).tolist())
        try:
            with _quiet("moyo"):  # it warns that a supercell lacks operators; the primitive cell has them
                found = moyopy.MoyoDataset(cell, symprec=symprec, setting=moyopy.Setting.spglib())
        except (ValueError, RuntimeError) as error:
            raise SymmetryNotFoundError(f"moyopy found no symmetry at symprec {symprec} Å: {error}") from None
        # moyo: (a_std) = (a) P and x_std = P^-1 (x - p)
        inverse = np.linalg.inv(np.array(found.std_linear))
        origin = -inverse @ np.array(found.std_origin_shift)
        return FoundSymmetry(
            found.hall_number,
            inverse,
            origin,
            np.array(found.mapping_std_prim),
            np.array(found.orbits),
        )
    raise ValueError(f"unknown symmetry backend {backend!r}; choose 'spglib' or 'moyopy'")


@contextlib.contextmanager
def _exceptions(spglib) -> Iterator[None]:
    """Let spglib raise instead of returning None, for the duration of one call only."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        before = getattr(spglib.error, "OLD_ERROR_HANDLING", None)
        if before is not None:
            spglib.error.OLD_ERROR_HANDLING = False
        try:
            yield
        finally:
            if before is not None:
                spglib.error.OLD_ERROR_HANDLING = before


@contextlib.contextmanager
def _quiet(name: str) -> Iterator[None]:
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
