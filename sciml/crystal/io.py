"""Structures from files: CIF, POSCAR, extended XYZ, JSON, and tables (CSV, JSON) of them.

    read_cell("NaCl.cif")                 one file -> one validated Cell
    read_cells(["table.csv", "folder"])   many, lazily: (Source, Cell or the error that it raised)

A `Source` is a structure that has not been parsed yet: cheap to make, so that worker processes do the
parsing. Every error is a `ValueError` that begins with the name of the source and says what to do.

CIF is read here because its pitfalls are symmetry: operations that are missing or no group, symbols without
the choice of origin or axes, coordinates rounded to four digits (images closer than 0.2 Å are one atom),
partial occupancy. pymatgen supplies the tokeniser, and reads POSCAR.
"""

from __future__ import annotations

import ast
import csv
import gzip
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from sciml.crystal.cell import SYMBOLS, Cell, atomic_number, ordered_species
from sciml.crystal.lattice import lattice_from_parameters, metric_of, symmetrise_metric
from sciml.crystal.seitz import DENOMINATOR
from sciml.crystal.space_group import SpaceGroup, settings_of_symbol

STRUCTURE_COLUMNS = ("structure", "cif", "poscar")
ID_COLUMNS = ("material_id", "id", "name", "idx")
MERGE_DISTANCE = 0.2  # Å: images of one site closer than this are the site on a special position

_TABLES = (".csv", ".json")
_FORMATS = {".cif": "cif", ".vasp": "poscar", ".poscar": "poscar", ".xyz": "xyz", ".extxyz": "xyz"}


@dataclass(frozen=True)
class Source:
    """A structure not parsed yet.

    - `name`: file name, or table:identifier.
    - `kind`: "file", "cif", "poscar", "xyz", "dict" or "text" (of unknown format).
    - `payload`: path, text or dictionary.
    - `targets`: numbers that stand in the same row of a table.
    """

    name: str
    kind: str
    payload: Any
    targets: dict[str, float] = field(default_factory=dict)


def read_cell(path: str | Path) -> Cell:
    """Read one structure file; the format follows from the name (.cif, .vasp, POSCAR, CONTCAR, .xyz, .extxyz,
    .json).

    Raises `ValueError` for anything that is no complete ordered crystal, `FileNotFoundError` for a missing
    file.
    """
    path = Path(path)
    if _suffix(path) == ".json":
        sources = list(find_sources([path]))
        if len(sources) != 1:
            raise ValueError(f"{path}: holds {len(sources)} structures, expected one; use read_cells")
        return parse(sources[0])
    return parse(Source(str(path), "file", str(path)))


def read_cells(paths: Iterable[str | Path], **options: Any) -> Iterator[tuple[Source, Cell | Exception]]:
    """Parse everything that `find_sources` finds; an unreadable structure comes back as its error."""
    for source in find_sources(paths, **options):
        try:
            yield source, parse(source)
        except Exception as error:
            yield source, error


# --- finding ------------------------------------------------------------------------------------------------


def find_sources(
    paths: Iterable[str | Path], *, structure_column: str | None = None, id_column: str | None = None
) -> Iterator[Source]:
    """Structures in files, folders (searched recursively) and tables, in a fixed order.

    **Arguments:**

    - `structure_column`: column or key that holds the structure; default the first of structure, cif, poscar.
    - `id_column`: column or key with an identifier; default the first of material_id, id, name, idx.

    Raises `ValueError` for a table without such a column, `FileNotFoundError` for a missing path.
    """
    for path in map(Path, paths):
        if path.is_dir():
            files = sorted(p for p in path.rglob("*") if p.is_file() and _is_structure_file(p))
            if not files:
                raise ValueError(
                    f"{path}: no structure file in this folder (.cif, .vasp, POSCAR*, CONTCAR*, .xyz)"
                )
            yield from (Source(str(p), "file", str(p)) for p in files)
        elif not path.exists():
            raise FileNotFoundError(f"{path}: no such file or folder")
        elif _suffix(path) == ".csv":
            yield from _csv_sources(path, structure_column, id_column)
        elif _suffix(path) == ".json":
            yield from _json_sources(path, structure_column, id_column)
        else:
            yield Source(str(path), "file", str(path))


def _suffix(path: Path) -> str:
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _is_structure_file(path: Path) -> bool:
    return _suffix(path) in _FORMATS or path.name.upper().startswith(("POSCAR", "CONTCAR"))


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        raw = gzip.decompress(raw) if path.suffix == ".gz" else raw
        text = raw.decode("utf-8-sig")
    except (UnicodeDecodeError, gzip.BadGzipFile):
        raise ValueError(f"{path}: not a text file; expected CIF, POSCAR, XYZ, CSV or JSON") from None
    if "\0" in text:
        raise ValueError(f"{path}: not a text file; expected CIF, POSCAR, XYZ, CSV or JSON")
    if not text.strip():
        raise ValueError(f"{path}: the file is empty")
    return text


def _choose(names: Iterable[str], wanted: str | None, known: tuple[str, ...]) -> str | None:
    names = list(names)
    if wanted is not None:
        return wanted if wanted in names else None
    return next((name for name in known if name in names), None)


def _csv_sources(path: Path, structure_column: str | None, id_column: str | None) -> Iterator[Source]:
    lines = _read_text(path).splitlines(keepends=True)
    while lines and lines[0].startswith("#"):
        lines.pop(0)
    limit = csv.field_size_limit(1 << 30)
    try:
        reader = csv.reader(lines)
        header = next(reader, [])
        column = _choose(header, structure_column, STRUCTURE_COLUMNS)
        if column is None:
            wanted = structure_column or " or ".join(STRUCTURE_COLUMNS)
            raise ValueError(f"{path}: no column {wanted}; it has {', '.join(header)}")
        identifier = _choose(header, id_column, ID_COLUMNS)
        for number, row in enumerate(reader, 1):
            if len(row) == len(header) + 1:  # an unnamed index column, as pandas writes it
                row = row[1:]
            record = dict(zip(header, row, strict=False))
            name = f"{path.name}:{record.get(identifier, number) if identifier else number}"
            if not record.get(column):
                yield Source(name, "text", "", _numbers(record))
                continue
            yield Source(name, "text", record[column], _numbers(record))
    finally:
        csv.field_size_limit(limit)


def _json_sources(path: Path, structure_column: str | None, id_column: str | None) -> Iterator[Source]:
    try:
        data = json.loads(_read_text(path))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: not valid JSON: {error}") from None
    if isinstance(data, dict) and {"columns", "data"} <= data.keys():  # pandas, orient="split"
        index = data.get("index", range(len(data["data"])))
        records = [
            {"id": i, **dict(zip(data["columns"], row, strict=True))}
            for i, row in zip(index, data["data"], strict=True)
        ]
    elif (
        isinstance(data, dict)
        and "sites" not in data
        and all(isinstance(v, (dict, str)) for v in data.values())
    ):
        records = [{"id": key, "structure": value} for key, value in data.items()]
    else:
        records = data if isinstance(data, list) else [data]
    for number, record in enumerate(records, 1):
        name = f"{path.name}:{number}"
        if isinstance(record, dict):
            column = _choose(record, structure_column, STRUCTURE_COLUMNS)
            identifier = _choose(record, id_column, ID_COLUMNS)
            name = f"{path.name}:{record.get(identifier, number) if identifier else number}"
            value = record[column] if column else record.get("snl", record)
            kind = "dict" if isinstance(value, dict) else "text"
            yield Source(name, kind, value, _numbers(record))
        else:
            yield Source(name, "text", record if isinstance(record, str) else "", {})


def _numbers(record: dict[str, Any]) -> dict[str, float]:
    numbers = {}
    for key, value in record.items():
        if isinstance(value, (bool, dict, list)) or value is None or len(str(value)) > 40:
            continue
        try:
            numbers[key] = float(value)
        except ValueError:
            continue
    return numbers


# --- parsing ------------------------------------------------------------------------------------------------


def parse(source: Source) -> Cell:
    """Turn a `Source` into a `Cell`; every failure is a `ValueError` that names the source."""
    try:
        kind, payload = source.kind, source.payload
        if kind == "file":
            path = Path(payload)
            payload = _read_text(path)
            kind = _FORMATS.get(_suffix(path), "poscar" if _is_structure_file(path) else "text")
        if kind == "text":
            kind, payload = _recognise(payload)
        return {"cif": _cell_of_cif, "poscar": _cell_of_poscar, "xyz": _cell_of_xyz, "dict": _cell_of_dict}[
            kind
        ](payload, source.name)
    except FileNotFoundError:
        raise
    except Exception as error:
        text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise ValueError(text if text.startswith(source.name) else f"{source.name}: {text}") from None


def _recognise(text: str) -> tuple[str, Any]:
    start = text.lstrip()
    if not start:
        raise ValueError("no structure in this row")
    if start[0] == "{":
        try:
            return "dict", json.loads(start)
        except json.JSONDecodeError:
            pass
        try:  # the text form of a Python dictionary: mostly JSON in other quotes
            return "dict", json.loads(start.replace("'", '"'))
        except json.JSONDecodeError:
            return "dict", ast.literal_eval(start)
    if re.search(r"^\s*data_|^\s*_cell_", text, re.MULTILINE):
        return "cif", text
    if re.match(r"\s*\d+\s*\n", text):
        return "xyz", text
    return "poscar", text


def _cell_of_dict(data: dict[str, Any], name: str) -> Cell:
    for key in ("structure", "snl"):
        if "sites" not in data and isinstance(data.get(key), dict):
            data = data[key]
    for key in ("lattice", "sites"):
        if key not in data:
            raise ValueError(f"the dictionary has no field {key!r}; expected pymatgen's Structure.as_dict()")
    lattice = np.array(data["lattice"]["matrix"], float)
    sites = data["sites"]
    if not sites:
        raise ValueError("the structure has no atoms")
    if "abc" in sites[0]:
        fractional = np.array([site["abc"] for site in sites], float)
    else:
        fractional = np.array([site["xyz"] for site in sites], float) @ np.linalg.inv(lattice)
    occupants = [[(_element(s["element"]), float(s["occu"])) for s in site["species"]] for site in sites]
    return Cell(lattice, fractional, ordered_species(occupants, name), name)


def _cell_of_poscar(text: str, name: str) -> Cell:
    from pymatgen.io.vasp import Poscar

    try:
        structure = Poscar.from_str(text).structure
    except Exception as error:
        raise ValueError(
            f"not a readable POSCAR ({error}); for another format give the file its usual suffix"
        ) from None
    numbers = np.array([site.specie.Z for site in structure], int)
    return Cell(structure.lattice.matrix, structure.frac_coords, numbers, name)


def _cell_of_xyz(text: str, name: str) -> Cell:
    lines = text.splitlines()
    lattice_text = re.search(r'Lattice\s*=\s*"([^"]*)"', lines[1] if len(lines) > 1 else "", re.IGNORECASE)
    if lattice_text is None:
        raise ValueError(
            "an XYZ file without a lattice is a molecule, not a crystal; put it in a box, "
            'Lattice="20 0 0 0 20 0 0 0 20"'
        )
    lattice = np.array(lattice_text[1].split(), float).reshape(3, 3)
    properties = re.search(r"Properties\s*=\s*(\S+)", lines[1], re.IGNORECASE)
    if properties and not properties[1].lower().startswith("species:s:1:pos:r:3"):
        raise ValueError(f"Properties={properties[1]}: expected species:S:1:pos:R:3 first")
    count = int(lines[0])
    rows = [line.split() for line in lines[2 : 2 + count]]
    if len(rows) < count:
        raise ValueError(f"{count} atoms are announced and {len(rows)} listed")
    numbers = np.array([int(row[0]) if row[0].isdigit() else atomic_number(row[0]) for row in rows], int)
    cartesian = np.array([row[1:4] for row in rows], float).reshape(-1, 3)
    return Cell(lattice, cartesian @ np.linalg.inv(lattice), numbers, name)


def from_pymatgen(structure: Any, name: str = "structure") -> Cell:
    """The `Cell` of a pymatgen `Structure`; `ValueError` when it is disordered."""
    return _cell_of_dict(structure.as_dict(), name)


# --- CIF ----------------------------------------------------------------------------------------------------


def _cell_of_cif(text: str, name: str) -> Cell:
    from pymatgen.io.cif import CifFile

    blocks = [block.data for block in CifFile.from_str(text).data.values()]
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


def _element(text: str) -> str:
    """Element of a type symbol or label: ``Na1+``, ``NA``, ``O12``, ``Fe_a``; `ValueError` for no element."""
    match = re.match(r"([A-Za-z])([a-z]?)(?![a-z])", text.strip())
    if match is None:
        raise ValueError(f"unknown element symbol {text!r}")
    for symbol in (match[0].capitalize(), text.strip()[:2].capitalize()):
        if symbol in SYMBOLS[1:] or symbol in ("D", "T"):
            return symbol
    raise ValueError(f"unknown element symbol {text!r}")


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
            occupants.append([(_element(symbols[i]), occupancy)])
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
        if group.order == 1 and not says_p1 and not _lists_whole_cell(block, species):
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
    """Atomic numbers and counts of a formula such as ``Nb8 Co2 Si2``; empty when it is not one."""
    counts: dict[int, float] = {}
    for symbol, count in re.findall(r"([A-Z][a-z]?)\s*([\d.]*)", text if isinstance(text, str) else ""):
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
