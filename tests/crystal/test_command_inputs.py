"""Awkward files through the command line: each gives the right group or one clear line, and none stops the
others.
"""

import csv

import numpy as np
import pytest

from sciml.cli import main
from sciml.crystal.prepare import PreparedSet
from sciml.crystal.space_group import SpaceGroup


def cif(sites, cell, symmetry):
    tags = ("length_a", "length_b", "length_c", "angle_alpha", "angle_beta", "angle_gamma")
    lines = ["data_test", *(f"_cell_{tag} {value}" for tag, value in zip(tags, cell, strict=True)), symmetry]
    columns = ("label", "type_symbol", "fract_x", "fract_y", "fract_z", "occupancy")
    return "\n".join([*lines, "loop_", *(f"_atom_site_{column}" for column in columns), *sites, ""])


def poscar(lattice, symbols, counts, fractional):
    rows = [" ".join(map(str, row)) for row in (*lattice, symbols, counts)]
    sites = [" ".join(map(str, row)) for row in fractional]
    return "\n".join(["test", "1.0", *rows, "direct", *sites, ""])


def operations(number, choice=None):
    lines = SpaceGroup.from_number(number, choice).operations()
    return "\n".join(["loop_", "_space_group_symop_operation_xyz", *(f"'{line}'" for line in lines)])


P1 = "_space_group_name_H-M_alt 'P 1'"
CUBE = (5.0, 5.0, 5.0, 90, 90, 90)
EDGE = np.sqrt(4.546**2 / 3 + 11.862**2 / 9)
ANGLE = np.degrees(2 * np.arcsin(4.546 / 2 / EDGE))
ROCK_SALT = np.indices((4, 4, 4)).reshape(3, -1).T
QUARTZ = SpaceGroup.from_number(152)
OXYGEN = (QUARTZ.rotations @ [0.41, 0.27, 0.12] + QUARTZ.translations / 24) % 1
THIRDS = ("0 0 0.25", "0 0 0.75", "0.3333 0.6667 0.25", "0.6667 0.3333 0.75")

# name of the file -> content, and the group of the structure or the words that must stand in the reason
CASES = {
    "nan-lattice.cif": (cif(["Na1 Na 0 0 0 1"], (np.nan, 5, 5, 90, 90, 90), P1), "must be finite"),
    "nan-lattice.vasp": (poscar(np.diag([4, 4, np.nan]), ["Na"], [1], [[0, 0, 0]]), "not finite"),
    "zero-atoms.cif": (cif([], CUBE, P1).split("loop_")[0], "lists no atoms"),
    "zero-atoms.xyz": ('0\nLattice="4 0 0 0 4 0 0 0 4"\n', "no atoms"),
    "overlap.cif": (cif(["Na1 Na 0 0 0 1", "Cl1 Cl 0.01 0 0 1"], CUBE, P1), "Na1 and Cl2 overlap"),
    "partial.cif": (cif(["Fe1 Fe 0 0 0 0.5"], CUBE, P1), "make an ordered model first"),
    "left-handed.vasp": (
        poscar([[2.273, -3.937, 0], [2.273, 3.937, 0], [0, 0, -5.4]], ["O"], [6], OXYGEN),
        154,
    ),
    "right-handed.vasp": (
        poscar([[2.273, -3.937, 0], [2.273, 3.937, 0], [0, 0, 5.4]], ["O"], [6], OXYGEN),
        152,
    ),
    "no-operations.cif": (cif(["Na1 Na 0 0 0 1"], CUBE, ""), "no symmetry operations"),
    "operations-by-symbol.cif": (
        cif(["Na1 Na 0 0 0 1", "Cl1 Cl 0.5 0.5 0.5 1"], CUBE, "_symmetry_space_group_name_H-M 'F m -3 m'"),
        225,
    ),
    "thirds.cif": (
        cif([f"C{i} C {site} 1" for i, site in enumerate(THIRDS)], (2.461, 2.461, 6.708, 90, 90, 120), P1),
        194,
    ),
    "hexagonal-axes.cif": (
        cif(["Bi1 Bi 0 0 0.234 1"], (4.546, 4.546, 11.862, 90, 90, 120), operations(166, "H")),
        166,
    ),
    "rhombohedral-axes.cif": (
        cif(["Bi1 Bi 0.234 0.234 0.234 1"], (EDGE,) * 3 + (ANGLE,) * 3, operations(166, "R")),
        166,
    ),
    "origin-1.cif": (cif(["C1 C 0 0 0 1"], (3.567,) * 3 + (90,) * 3, operations(227, "1")), 227),
    "origin-2.cif": (
        cif(["C1 C 0.125 0.125 0.125 1"], (3.567,) * 3 + (90,) * 3, operations(227, "2")),
        227,
    ),
    "molecule.xyz": (
        '3\nLattice="12 0 0 0 12 0 0 0 12"\nO 6 6 6\nH 6.757 6.586 6\nH 5.243 6.586 6\n',
        25,
    ),
    "molecule-without-box.xyz": ("3\nwater\nO 0 0 0\nH 0.757 0.586 0\nH -0.757 0.586 0\n", "put it in a box"),
    "512-atoms.vasp": (
        poscar(
            np.eye(3) * 22.56,
            ["Na", "Cl"],
            [256, 256],
            np.concatenate(
                [
                    (ROCK_SALT[:, None] + site).reshape(-1, 3) / 4
                    for site in (
                        [[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]],
                        [[0.5, 0, 0], [0, 0.5, 0], [0, 0, 0.5], [0.5, 0.5, 0.5]],
                    )
                ]
            ),
        ),
        225,
    ),
    "unknown-element.cif": (cif(["Qq1 Qq 0 0 0 1"], CUBE, P1), "unknown element symbol 'Qq'"),
    "unknown-element.vasp": (
        "x\n1\n4 0 0\n0 4 0\n0 0 4\nQq\n1\nDirect\n0 0 0\n",
        "unknown element symbol 'Qq'",
    ),
    "no-atoms.vasp": ("x\n1\n4 0 0\n0 4 0\n0 0 4\nNa\n0\nDirect\n", "the structure has no atoms"),
    "empty.cif": ("", "the file is empty"),
    "binary.cif": ("\x00\x01\x02\xff", "not a text file"),
}
GROUPS = {name: answer for name, (_, answer) in CASES.items() if isinstance(answer, int)}
REASONS = {name: answer for name, (_, answer) in CASES.items() if isinstance(answer, str)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("structures")
    for name, (content, _) in CASES.items():
        (path / name).write_bytes(content.encode("latin-1"))
    return path


@pytest.mark.parametrize("backend", ["spglib", "moyopy"])
def test_prepare_keeps_the_good_and_lists_the_bad(folder, tmp_path, capsys, backend):
    out = tmp_path / "set.npz"
    status = main(["crystal", "prepare", str(folder), "--out", str(out), "--backend", backend])
    printed = capsys.readouterr().out
    assert status == 0 and f"{len(REASONS)} rejected, listed in {tmp_path / 'rejected.csv'}" in printed
    prepared = PreparedSet.load(out)
    found = {name.rsplit("/", 1)[1]: one for name, one in zip(prepared.names, prepared.found, strict=True)}
    assert {name: one.number for name, one in found.items()} == GROUPS
    with open(tmp_path / "rejected.csv") as file:
        reasons = {row["structure"].rsplit("/", 1)[1]: row["reason"] for row in csv.DictReader(file)}
    assert reasons.keys() == REASONS.keys()
    for name, words in REASONS.items():
        assert words in reasons[name], (name, reasons[name])
    # the same crystal in two descriptions ends as the same cell
    for one, other in (("hexagonal-axes", "rhombohedral-axes"), ("origin-1", "origin-2")):
        a, b = found[f"{one}.cif"], found[f"{other}.cif"]
        assert np.allclose(a.lattice, b.lattice, atol=1e-6) and len(a.species) == len(b.species)
    assert len(found["512-atoms.vasp"].species) == 2


def test_symmetry_prints_every_answer(folder, capsys):
    options = ["--stars", "0", "--cutoff", "0.3"]
    status = main(["crystal", "symmetry", *(str(folder / name) for name in CASES), *options])
    out, err = capsys.readouterr()
    assert status == 2
    blocks = {block.splitlines()[0].rsplit("/", 1)[1]: block for block in out.strip().split("\n\n")}
    assert blocks.keys() == GROUPS.keys()
    for name, number in GROUPS.items():
        assert f"({number})" in blocks[name] and "residual" in blocks[name]
    lines = err.splitlines()
    assert len(lines) == len(REASONS)  # one line each
    for (name, words), line in zip(REASONS.items(), lines, strict=True):
        assert line.startswith("error: ") and name in line and words in line
