"""`sciml data list | get | verify`: which data sets there are, fetch them, check them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from sciml import data


def list_sets(argv: list[str]) -> int:
    """Shows all data sets, or the files, terms and citation of one."""
    parser = argparse.ArgumentParser("sciml data list", description="Data sets, or the files of one.")
    parser.add_argument("name", nargs="?", help="a data set")
    name = parser.parse_args(argv).name
    if name is None:
        rows = [
            (
                each.name,
                str(len(each.files)),
                _size(each.files),
                _place(each.files),
                each.about.partition(";")[0],
            )
            for each in data.DATASETS
        ]
        print(_columns(("NAME", "FILES", "SIZE", "WHERE", "WHAT"), rows))
        print("\nsciml data list NAME shows the files, the licence and the citation of a set.")
        return 0
    chosen = data.dataset(name)
    print(f"{chosen.name}: {chosen.about}")
    print(f"licence:  {chosen.licence}\ncite:     {chosen.citation}\nsource:   {chosen.source}\n")
    rows = [(file.path, _size([file]), _place([file]), file.sha256[:12]) for file in chosen.files]
    print(_columns(("FILE", "SIZE", "WHERE", "SHA-256"), rows))
    return 0


def get(argv: list[str]) -> int:
    """Fetches data sets or single files and prints their paths."""
    parser = argparse.ArgumentParser("sciml data get", description="Fetch data and print the paths.")
    parser.add_argument("name", nargs="+", help="a data set, or the path of a file below the data folder")
    failures = 0
    for name in parser.parse_args(argv).name:
        names = [file.path for file in data.dataset(name).files] if _is_set(name) else [name]
        for path in names:
            try:
                print(data.fetch(path, progress=sys.stderr.isatty()))
            except FileNotFoundError as error:
                failures += 1
                print(f"error: {error}", file=sys.stderr)
    return 2 if failures else 0


def verify(argv: list[str]) -> int:
    """Checks the SHA-256 sums of all files that are here, or of all files of one set."""
    parser = argparse.ArgumentParser(
        "sciml data verify",
        description="Check sums: status 1 when a file is wrong, or one of NAME is absent.",
    )
    parser.add_argument("name", nargs="?", help="a data set; default all")
    name = parser.parse_args(argv).name
    rows, wrong, absent = [], 0, 0
    for each in data.DATASETS if name is None else (data.dataset(name),):
        for file in each.files:
            place, path = data.find(file)
            if path is None:
                absent += 1
                state = "absent"
            else:
                good = data.sha256(path) == file.sha256
                wrong += not good
                state = "right" if good else "WRONG"
            if name is not None or state == "WRONG":
                rows.append((file.path, place, state))
        if name is None:
            here = [file for file in each.files if data.find(file)[1] is not None]
            rows.append((each.name, f"{len(here)} of {len(each.files)} files", "checked"))
    print(_columns(("FILE" if name else "SET", "WHERE", "STATE"), rows))
    print(f"\n{wrong} wrong, {absent} absent")
    return 1 if wrong or (absent and name is not None) else 0


def _is_set(name: str) -> bool:
    return any(each.name == name for each in data.DATASETS)


def _size(files: Sequence[data.DataFile]) -> str:
    if any(file.size is None for file in files) and len(files) == 1:
        return "?"
    total = sum(file.size or 0 for file in files)
    return f"{total / 1e6:.1f} MB" if total >= 1e5 else f"{total / 1e3:.1f} kB"


def _place(files: Sequence[data.DataFile]) -> str:
    """Where the files are, and how the absent ones can be had."""
    count: dict[str, int] = {}
    for file in files:
        place = data.find(file)[0]
        if place == "absent":
            place = "download" if file.url else "by hand"
        count[place] = count.get(place, 0) + 1
    if len(count) == 1:
        return next(iter(count))
    return ", ".join(f"{number} {place}" for place, number in count.items())


def _columns(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    table = [head, *rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in table]
    return "\n".join(line.rstrip() for line in lines)
