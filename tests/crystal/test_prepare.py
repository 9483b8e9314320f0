"""From files to prepared sets: exact crystals, seven descriptions, backends, resuming, rejected
structures, the command line.
"""

import csv
import importlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.cli import main
from sciml.crystal.cell import Cell
from sciml.crystal.detection import detect
from sciml.crystal.fourier import FourierBasis
from sciml.crystal.io import find_sources, parse, read_cell
from sciml.crystal.lattice import lattice_of, random_metric
from sciml.crystal.prepare import PreparedSet, Settings, prepare
from sciml.crystal.redescribe import WAYS, check_descriptions, redescribe
from sciml.crystal.space_group import SpaceGroup
from sciml.crystal.structure import Crystal
from sciml.crystal.testing import orbit_of
from sciml.crystal.worker import run_all

NUMBERS = (1, 2, 9, 15, 43, 61, 88, 122, 146, 155, 167, 180, 193, 199, 206, 216, 227, 230)


def cell_of(number, seed=0, noise=0.0):
    """Three elements on general positions, so that no symmetry hides beside the group's; atoms moved by
    `noise` Å.
    """
    rng = np.random.default_rng(seed)
    group = SpaceGroup.from_number(number)
    lattice = lattice_of(random_metric(group, rng, edge=11.0))
    species = np.repeat([6, 14, 32], group.order)
    while True:
        fractional = np.concatenate([orbit_of(group, rng.uniform(size=(1, 3)))[:, 0] for _ in range(3)])
        fractional = fractional + rng.normal(size=fractional.shape) * noise / 11.0
        try:
            return Cell(lattice, fractional, species, f"group-{number}")
        except ValueError:  # atoms overlap: draw again
            continue


@pytest.mark.parametrize("backend", ["spglib", "moyopy"])
@pytest.mark.parametrize("number", NUMBERS)
def test_detected_crystals_are_exact(number, backend):
    found = detect(cell_of(number, noise=3e-4), symprec=0.02, loose_symprec=None, backend=backend)
    assert found.number == number and (found.displacement > 1e-6 or number == 1)
    group = found.space_group
    images = orbit_of(group, found.fractional)
    difference = images[:, :, None] - found.fractional
    difference -= np.rint(difference)
    assert np.abs(difference).max(-1).min(-1).max() < 1e-14
    assert len(np.unique(found.orbit)) == 3 and len(found.species) == 3 * group.order
    with jax.enable_x64(True):
        basis = FourierBasis(group, found.lattice, stars=12, pad_stars=12, pad_members=24)
        values = np.asarray(jax.jit(jax.vmap(basis))(jnp.asarray(found.fractional)))
    assert np.abs(values - values[found.orbit]).max() < 1e-12


@pytest.mark.parametrize("number", [1, 15, 43, 146, 155])
def test_seven_descriptions_are_one_crystal(number):
    check = check_descriptions(cell_of(number))
    assert check.ways == ("as given", *WAYS) and set(check.numbers) == {number}
    assert max(check.inequality) < 1e-5 and max(check.dependence) < 1e-4


def test_real_structures_in_seven_descriptions(data_folder):
    """Every hundredth structure of the measured sets; experiments/crystal/exactness.py takes all."""
    tables = (
        "elastic_tensor.csv.gz",
        "dielectric_constant.csv.gz",
        "flla_2015.csv.gz",
        "aflow_prototypes.json.gz",
    )
    for table in tables:
        sources = list(find_sources([data_folder / "materials" / table]))
        for source in sources[:: 100 if len(sources) < 2000 else 400]:
            check = check_descriptions(parse(source))
            assert max(check.inequality) < 1e-5, check
            assert len(set(check.numbers)) == 1 and max(check.dependence) < 1e-3, check


@pytest.mark.parametrize("backend", ["spglib", "moyopy"])
@pytest.mark.parametrize(
    ("table", "name", "number"),
    [
        ("elastic_tensor.csv.gz", "mp-569794", 136),
        ("piezoelectric_tensor.csv.gz", "mp-779948", 161),
        ("flla_2015.csv.gz", "mp-560374", 63),
        ("flla_2015.csv.gz", "mp-643794", 19),
        ("flla_2015.csv.gz", "mp-559435", 150),
    ],
)
def test_group_near_the_tolerance_is_the_same_in_every_description(data_folder, table, name, number, backend):
    """Structures for which the library's own answer changes when coordinates are rounded to six digits."""
    source = next(s for s in find_sources([data_folder / "materials" / table]) if s.name.endswith(name))
    cell, rng = parse(source), np.random.default_rng(0)
    moves = []
    for way in WAYS:
        described, _ = redescribe(cell, way, rng, backend=backend)
        found = detect(described, backend=backend)
        assert found.number == number, (way, found.number)
        moves.append(found.displacement)
    assert np.ptp(moves) < 1e-4 and max(moves) <= 0.01


def test_largest_group_within_the_tolerance_is_taken():
    """Moves of 0.02 Å: the group of 62 is found at 0.05 Å and 0.2 Å, and not taken below what it costs."""
    cell = cell_of(62, noise=0.006)
    wide = detect(cell, symprec=0.05, loose_symprec=0.2)
    assert wide.number == 62 and 0.005 < wide.displacement < 0.04
    just = detect(cell, symprec=1.05 * wide.displacement, loose_symprec=0.2)
    assert just.number == 62 and just.warning is None
    below = detect(cell, symprec=0.95 * wide.displacement, loose_symprec=0.2)
    assert below.number != 62 and below.warning is not None


@pytest.mark.parametrize("number", [14, 62, 166, 225])
def test_atoms_of_a_supercell_count_alike(number):
    """Translations that hold only nearly: the order of the atoms does not choose the positions."""
    cell, rng = cell_of(number), np.random.default_rng(number)
    repeated = np.concatenate([cell.fractional + [k, 0, 0] for k in range(3)]) / [3, 1, 1]
    lattice, species = np.diag([3, 1, 1]) @ cell.lattice, np.tile(cell.species, 3)
    moved = repeated + rng.normal(size=repeated.shape) * 0.004 @ np.linalg.inv(lattice)
    found = []
    for _ in range(4):
        order = rng.permutation(len(moved))
        found.append(detect(Cell(lattice, moved[order], species[order]), symprec=0.05, loose_symprec=0.2))
        assert found[-1].number == number and len(found[-1].species) <= len(cell)
    moves = [each.displacement for each in found]
    assert np.ptp(moves) < 1e-9 and max(moves) > 0.004
    edges = [np.sort(np.linalg.norm(each.lattice, axis=1)) for each in found]
    np.testing.assert_allclose(edges, edges[:1] * 4, atol=1e-6)


def test_tricky_files(data_folder):
    expected = {
        "Fd3": (208, 203),
        "I4_132": (48, 214),
        "JVASP-28565": (18, 156),
        "JVASP-36885": (5, 221),
        "P3_112": (24, 151),
        "Pm3": (11, 200),
        "R-3": (30, 148),
        "R32": (5, 155),
    }
    for name, (atoms, number) in expected.items():
        cell = read_cell(data_folder / "materials" / "tricky" / f"{name}.cif")
        assert (name, len(cell), detect(cell).number) == (name, atoms, number)


def test_group_that_depends_on_the_tolerance_is_reported():
    cell = cell_of(62, noise=0.02)
    found = detect(cell, symprec=0.001, loose_symprec=0.3)
    assert found.number == 1 and found.number_at_loose == 62
    assert (
        found.warning is not None
        and "depends on the tolerance: 1 at symprec 0.001 Å, 62 at 0.3 Å" in found.warning
    )


def test_crystals_of_different_groups_stack():
    found = [detect(cell_of(n)) for n in (2, 227)]
    crystals = Crystal.stack(found)
    assert crystals.fractional.shape == (2, 144, 3)
    assert crystals.mask.sum(-1).tolist() == [6, 144]
    assert crystals.multiplicity[0, 4:8].tolist() == [2, 2, 0, 0]
    assert crystals.representative.sum(-1).tolist() == [3, 3]
    with pytest.raises(ValueError, match="does not fit pad_atoms"):
        found[1].crystal(pad_atoms=10)


ODD_TASKS = """
import os, re, time

def double(task):
    if task == "crash":
        os._exit(7)
    if task == "hang":
        time.sleep(60)
    if task == "spin":  # C code that keeps the interpreter's lock for years
        re.match("(a+)+b", "a" * 64)
    if task == "raise":
        raise ValueError("no")
    return task * 2
"""


@pytest.fixture
def table(tmp_path):
    good = [cell_of(n) for n in (2, 62, 194)]
    rows = [
        {
            "material_id": cell.name,
            "gap": float(i),
            "structure": {
                "lattice": {"matrix": cell.lattice.tolist()},
                "sites": [
                    {"abc": x.tolist(), "species": [{"element": "Si", "occu": 1}]} for x in cell.fractional
                ],
            },
        }
        for i, cell in enumerate(good)
    ]
    rows.insert(
        1,
        {"material_id": "bad", "gap": 9.0, "structure": {"lattice": {"matrix": [[0] * 3] * 3}, "sites": []}},
    )
    path = tmp_path / "table.json"
    path.write_text(json.dumps(rows))
    return path


def test_prepared_set_is_one_file_resumed_and_reused(table, tmp_path):
    out = tmp_path / "set.npz"
    calls = []
    prepared = prepare([table], out, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (4, 4) and [one.number for one in prepared.found] == [2, 62, 194]
    assert prepared.target("gap").tolist() == [0.0, 1.0, 2.0]
    with open(tmp_path / "rejected.csv") as file:
        assert list(csv.reader(file)) == [
            ["structure", "reason"],
            ["table.json:bad", "the structure has no atoms"],
        ]
    again = PreparedSet.load(out)
    for one, other in zip(prepared.found, again.found, strict=True):
        assert np.array_equal(one.fractional, other.fractional) and np.array_equal(one.atom_of, other.atom_of)
        assert one.name == other.name and one.space_group == other.space_group
    # reused: nothing is computed
    stamp = out.stat().st_mtime_ns
    assert len(prepare([table], out)) == 3 and out.stat().st_mtime_ns == stamp
    # resumed: what an interrupted call left is kept
    part = PreparedSet.load(out)
    part.complete = False
    del (
        part.names[1:],
        part.found[1:],
        part.targets[1:],
        part.keys[1:],
        part.rejected[:],
        part.rejected_keys[:],
    )
    part.save(out)
    calls.clear()
    assert len(prepare([table], out, progress=lambda *c: calls.append(c))) == 3 and calls[0] == (2, 4)
    with pytest.raises(ValueError, match="overwrite"):
        prepare([table], out, settings=Settings(symprec=0.1))
    with pytest.raises(ValueError, match="no column 'nothing'; there are gap"):
        prepared.target("nothing")
    out.write_bytes(b"not a zip")
    with pytest.raises(ValueError, match="not a prepared set"):
        prepare([table], out)


def test_workers_survive_crashes_hangs_and_errors(tmp_path, monkeypatch):
    # workers import their function by name: give it a module
    (tmp_path / "odd_tasks.py").write_text(ODD_TASKS)
    monkeypatch.syspath_prepend(tmp_path)
    double = importlib.import_module("odd_tasks").double
    tasks = [1, "crash", 2, "hang", 3, "raise", 4, "spin", *range(40)]
    results = dict(run_all(double, tasks, processes=2, time_limit=3.0))
    assert sorted(results) == list(range(len(tasks)))
    assert [results[i] for i in (0, 2, 4, 6)] == [2, 4, 6, 8] and results[47] == 78
    assert isinstance(results[1], RuntimeError) and "code 7" in str(results[1])
    assert isinstance(results[3], TimeoutError) and isinstance(results[7], TimeoutError)
    assert isinstance(results[5], ValueError)


def _command(argv, capsys):
    status = main(argv)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_command_prepare(table, tmp_path, capsys):
    status, out, _ = _command(["crystal", "prepare", str(table), "--out", str(tmp_path / "s.npz")], capsys)
    assert status == 0 and "3 structures in 3 space groups" in out and "table.json:bad" in out
    status, _, err = _command(
        ["crystal", "prepare", str(tmp_path / "none"), "--out", str(tmp_path / "t.npz")], capsys
    )
    assert status == 2 and "no such file" in err


def test_command_symmetry(tmp_path, capsys):
    path = tmp_path / "POSCAR"
    path.write_text(
        "NaCl\n1.0\n0 2.82 2.82\n2.82 0 2.82\n2.82 2.82 0\nNa Cl\n1 1\ndirect\n0 0 0\n0.5 0.5 0.5\n"
    )
    figures = tmp_path / "figures"
    status, out, _ = _command(["crystal", "symmetry", str(path), "--figures", str(figures)], capsys)
    assert status == 0 and "Fm-3m (225)" in out and "Hall number 523" in out
    assert len(list(figures.glob("*.png"))) == 1
    (tmp_path / "POSCAR").write_text("nonsense")
    status, _, err = _command(["crystal", "symmetry", str(path)], capsys)
    assert status == 2 and "POSCAR" in err


def test_demo_part_runs():
    from sciml.cli.crystal import demo_part

    figures, rows = demo_part()
    assert figures and len(rows) == 5
    assert all(row["difference of equivalent points, built in"] < 1e-4 for row in rows)
    assert all(row["difference of equivalent points, plain"] > 1e-2 for row in rows)
