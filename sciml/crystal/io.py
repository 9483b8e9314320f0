"""Structures from files: CIF, POSCAR, extended XYZ, JSON, and tables (CSV, JSON) of them.

    read_cell("NaCl.cif")                 one file -> one validated Cell
    read_cells(["table.csv", "folder"])   many, lazily: (Source, Cell or the error that it raised)

A `Source` is a structure that has not been parsed yet: cheap to make, so that worker processes do the
parsing. Every error is a `ValueError` that begins with the name of the source and says what to do.

pymatgen supplies the CIF tokeniser and reads POSCAR; `sciml.crystal.cif` turns CIF tags into a crystal.
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

from sciml.crystal.cell import Cell, atomic_number, ordered_species
from sciml.crystal.cif import cell_of_blocks, element_of

STRUCTURE_COLUMNS = ("structure", "cif", "poscar")
ID_COLUMNS = ("material_id", "id", "name", "idx")

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
    occupants = [[(element_of(s["element"]), float(s["occu"])) for s in site["species"]] for site in sites]
    return Cell(lattice, fractional, ordered_species(occupants, name), name)


def _cell_of_poscar(text: str, name: str) -> Cell:
    from pymatgen.io.vasp import Poscar

    try:
        structure = Poscar.from_str(text).structure
    except Exception as error:
        if "at least 1 site" in str(error):
            raise ValueError("the structure has no atoms") from None
        raise ValueError(
            f"not a readable POSCAR ({error}); for another format give the file its usual suffix"
        ) from None
    numbers = np.array([atomic_number(site.specie.symbol) for site in structure], int)
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


def _cell_of_cif(text: str, name: str) -> Cell:
    from pymatgen.io.cif import CifFile

    return cell_of_blocks((block.data for block in CifFile.from_str(text).data.values()), name)
