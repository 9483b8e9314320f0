"""CIF: from the tags of a data block to a `Cell`.

The pitfalls of CIF are symmetry, so they are met here: operations that are missing or no group, symbols
without the choice of origin or axes, coordinates rounded to four digits (images closer than 0.2 Å are one
atom), partial occupancy.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np

from sciml.crystal.cell import SYMBOLS, Cell, atomic_number, ordered_species
from sciml.crystal.lattice import lattice_from_parameters, metric_of, symmetrise_metric
from sciml.crystal.seitz import DENOMINATOR
from sciml.crystal.space_group import SpaceGroup, settings_of_symbol

MERGE_DISTANCE = 0.2  # Å: images of one site closer than this are the site on a special position


def cell_of_blocks(blocks: Iterable[dict[str, Any]], name: str) -> Cell:
    """The one crystal in the data blocks of a CIF, given as dictionaries from tag to text or list of texts.

    Raises `ValueError` that names the field or site that is missing or wrong.
    """
    blocks = [{key.lower().replace(".", "_"): value for key, value in block.items()} for block in blocks]
    blocks = [block for block in blocks if "_atom_site_fract_x" in block or "_cell_length_a" in block]
    if not blocks:
        raise ValueError("no crystal in this CIF: no _cell_length_a and no _atom_site_fract_x")
    if len(blocks) > 1:
        raise ValueError(f"this CIF holds {len(blocks)} structures; split it into one file each")
    block = blocks[0]
    lattice = lattice_from_parameters(
        *(_number(block, f"_cell_{key}") for key in ("length_a", "length_b", "length_c")),
        *(_number(block, f"_cell_angle_{key}") for key in ("alpha", "beta", "gamma")),
    )
    fractional, species, labels = _sites(block, name)
    failures = []
    accepted = []
    for group in _cif_groups(block, lattice, species):
        try:
            expanded, sources = _expand(group, lattice, fractional)
            cell = Cell(lattice, expanded, species[sources], name)
            _check_formula(block, cell)
            accepted.append((group, cell))
        except ValueError as error:
            failures.append(error)
    if not accepted:
        raise failures[0]
    if len(accepted) > 1 and len({len(cell) for _, cell in accepted}) == 1:
        choices = " or ".join(f"{group.symbol}:{group.choice}" for group, _ in accepted)
        raise ValueError(
            f"the file names the space group without operations, and {choices} both fit; "
            "add the loop _space_group_symop_operation_xyz, or the choice to _space_group_name_H-M_alt"
        )
    return accepted[0][1]


def _field(block: dict[str, Any], *tags: str) -> Any:
    for tag in tags:
        value = block.get(tag)
        if value not in (None, "", "?", "."):
            return value
    return None


def _number(block: dict[str, Any], tag: str, value: Any = None) -> float:
    value = block.get(tag) if value is None else value
    if value is None:
        raise ValueError(f"the field {tag} is missing")
    try:
        return float(re.sub(r"\(\d*\)", "", str(value)))
    except ValueError:
        raise ValueError(f"the field {tag} is not a number: {value!r}") from None


def _column(block: dict[str, Any], tag: str) -> list[Any] | None:
    value = block.get(tag)
    return None if value is None else value if isinstance(value, list) else [value]


@cache
def element_of(text: str) -> str:
    """Element of a type symbol or label: ``Na1+``, ``NA``, ``O12``, ``Fe_a``; `ValueError` for no element."""
    text = text.strip()
    match = re.match(r"([A-Za-z][a-z]?)(?![a-z])", text)
    if re.fullmatch(r"[A-Z]{2}(\d*[+-])?", text) and text[:2].capitalize() in SYMBOLS:
        return text[:2].capitalize()
    if match is None or match[0].capitalize() not in (*SYMBOLS[1:], "D", "T"):
        raise ValueError(f"unknown element symbol {text!r}")
    return match[0].capitalize()


def _sites(block: dict[str, Any], name: str) -> tuple[np.ndarray, np.ndarray, list[str]]:
    columns = [_column(block, f"_atom_site_fract_{axis}") for axis in "xyz"]
    if any(column is None for column in columns):
        raise ValueError("the CIF lists no atoms: _atom_site_fract_x, _y, _z are missing")
    labels = _column(block, "_atom_site_label") or _column(block, "_atom_site_type_symbol")
    if labels is None:
        raise ValueError("the field _atom_site_label is missing")
    symbols = _column(block, "_atom_site_type_symbol") or labels
    occupancies = _column(block, "_atom_site_occupancy") or ["1"] * len(labels)
    flags = _column(block, "_atom_site_calc_flag") or ["."] * len(labels)
    keep = [i for i, flag in enumerate(flags) if flag != "dum"]
    fractional = np.empty((len(keep), 3))
    for row, i in enumerate(keep):
        for axis in range(3):
            text = columns[axis][i]  # type: ignore[index]
            if text in ("?", "."):
                raise ValueError(f"site {labels[i]} has no coordinates; remove it or give them")
            fractional[row, axis] = _number(
                block, f"_atom_site_fract_{'xyz'[axis]} of site {labels[i]}", text
            )
    occupants = []
    for i in keep:
        occupancy = (
            1.0 if occupancies[i] in ("?", ".") else _number(block, "_atom_site_occupancy", occupancies[i])
        )
        try:
            occupants.append([(element_of(symbols[i]), occupancy)])
        except ValueError as error:
            raise ValueError(f"site {labels[i]}: {error}") from None
    return fractional, ordered_species(occupants, name), [labels[i] for i in keep]


def _cif_groups(block: dict[str, Any], lattice: np.ndarray, species: np.ndarray) -> list[SpaceGroup]:
    """The groups that the file may mean: one when it lists operations, else those of its symbol that
    fit the lattice.
    """
    operations = _field(block, "_space_group_symop_operation_xyz", "_symmetry_equiv_pos_as_xyz")
    hall = _field(block, "_space_group_name_hall", "_symmetry_space_group_name_hall")
    symbol = _field(
        block, "_space_group_name_h-m_alt", "_symmetry_space_group_name_h-m", "_space_group_name_h-m"
    )
    number = _field(block, "_space_group_it_number", "_symmetry_int_tables_number")
    if operations is not None:
        group = SpaceGroup.from_operations(operations if isinstance(operations, list) else [operations])
        named = [str(value) for value in (symbol, number) if value is not None]
        says_p1 = not named or {"P1", "1"} & {value.replace(" ", "") for value in named}
        if (
            group.order == 1
            and not says_p1
            and not (_lists_whole_cell(block, species) or not _fits_lattice(symbol or number, lattice))
        ):
            raise ValueError(
                f"the only operation is 'x,y,z', but the file says space group {' '.join(named)}: "
                "list all operations, or name the group 'P 1' if all atoms are listed"
            )
        symmetrise_metric(group, metric_of(lattice))
        return [group]
    if hall is not None:
        candidates = [SpaceGroup.from_hall_symbol(hall).hall_number]
    elif symbol is not None:
        candidates = list(settings_of_symbol(symbol))
    elif number is not None:
        candidates = list(settings_of_symbol(SpaceGroup.from_number(int(_number(block, "", number))).symbol))
    else:
        raise ValueError(
            "no symmetry operations and no space-group symbol; if all atoms are listed, "
            "add _space_group_name_H-M_alt 'P 1'"
        )
    groups = [SpaceGroup.from_hall_number(h) for h in candidates if h is not None]
    standard = SpaceGroup.from_number(groups[0].number)
    if standard in groups:
        groups = [standard] + [g for g in groups if g != standard and g.choice in ("1", "2", "H", "R")]
    fitting, failures = [], []
    for group in groups:
        try:
            symmetrise_metric(group, metric_of(lattice), tolerance=0.01)
            fitting.append(group)
        except ValueError as error:
            failures.append(error)
    if not fitting:
        raise failures[0]
    return fitting


def _expand(group: SpaceGroup, lattice: np.ndarray, fractional: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All atoms of the cell, and the site each comes from; images of a site that nearly coincide are
    averaged.
    """
    metric = metric_of(lattice)
    atoms, sources = [], []
    for index, site in enumerate(fractional):
        images = group.rotations @ site + group.translations / DENOMINATOR
        images -= np.floor(images)
        while len(images):
            difference = images - images[0]
            difference -= np.rint(difference)
            near = np.einsum("ni,ij,nj->n", difference, metric, difference) < MERGE_DISTANCE**2
            atoms.append(images[0] + difference[near].mean(0))
            sources.append(index)
            images = images[~near]
    return np.array(atoms), np.array(sources, int)


def _formula(text: Any) -> dict[int, float]:
    """Atomic numbers and counts of a formula such as ``Nb8 Co2 Si2`` or ``Ca(AlZn)2``; empty when it is
    not one.
    """
    counts: dict[int, float] = {}
    text = text if isinstance(text, str) else ""
    while (bracket := re.search(r"\(([^()]*)\)(\d*)", text)) is not None:
        text = text[: bracket.start()] + bracket[1] * int(bracket[2] or 1) + text[bracket.end() :]
    for symbol, count in re.findall(r"([A-Z][a-z]?)\s*([\d.]*)", text):
        if symbol not in SYMBOLS and symbol not in ("D", "T"):
            return {}
        number = atomic_number(symbol)
        counts[number] = counts.get(number, 0) + float(count or 1)
    return counts


def _lists_whole_cell(block: dict[str, Any], species: np.ndarray) -> bool:
    """Whether the sites are as many atoms of each element as formula and number of formula units say."""
    units = _field(block, "_cell_formula_units_z")
    if units is None:
        return False
    listed = dict(zip(*np.unique(species, return_counts=True), strict=True))
    formulas = (_formula(_field(block, f"_chemical_formula_{kind}")) for kind in ("sum", "structural"))
    return any(
        formula
        and listed == {z: n * _number(block, "_cell_formula_units_Z", units) for z, n in formula.items()}
        for formula in formulas
    )


def _fits_lattice(symbol: Any, lattice: np.ndarray) -> bool:
    """Whether some setting of a symbol or number has the lattice's symmetry; if none has, the symbol is
    a mere label.
    """
    text = str(symbol)
    try:
        settings = settings_of_symbol(SpaceGroup.from_number(int(text)).symbol if text.isdigit() else text)
    except ValueError:
        return True
    for hall_number in settings:
        try:
            symmetrise_metric(SpaceGroup.from_hall_number(hall_number), metric_of(lattice), tolerance=0.01)
            return True
        except ValueError:
            continue
    return False


def _check_formula(block: dict[str, Any], cell: Cell) -> None:
    """Compare with _chemical_formula_sum: the same elements in the same ratio."""
    counts = _formula(_field(block, "_chemical_formula_sum"))
    found = dict(zip(*np.unique(cell.species, return_counts=True), strict=True))
    if not counts or counts.keys() != found.keys():
        return  # formulas that leave elements out (H, often) are too common to refuse
    ratios = [found[z] / counts[z] for z in counts]
    if max(ratios) > 1.02 * min(ratios):
        listed = " ".join(f"{SYMBOLS[z]}{n}" for z, n in sorted(found.items()))
        raise ValueError(
            f"the operations and sites give {listed} per cell, which is not a multiple of "
            f"{_field(block, '_chemical_formula_sum')!r}; an operation or a site is wrong"
        )
