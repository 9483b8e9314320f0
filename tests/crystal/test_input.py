"""Structures from files: every awkward input gives the right crystal or one clear error."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest

from sciml.crystal.cell import Cell
from sciml.crystal.detection import detect, detect_with_time_limit
from sciml.crystal.io import find_sources, from_pymatgen, parse, read_cell, read_cells
from sciml.crystal.lattice import lattice_from_parameters
from sciml.crystal.space_group import SpaceGroup
from sciml.crystal.star import first_stars

CIF = """data_test
_cell_length_a {a}
_cell_length_b {b}
_cell_length_c {c}
_cell_angle_alpha {alpha}
_cell_angle_beta {beta}
_cell_angle_gamma {gamma}
{symmetry}
loop_
_atom_site_label
_atom_site_type_symbol
_atom_site_fract_x
_atom_site_fract_y
_atom_site_fract_z
_atom_site_occupancy
{sites}
"""


def cif(tmp_path, symmetry, sites, cell=(5.0, 5.0, 5.0, 90, 90, 90)):
    keys = ("a", "b", "c", "alpha", "beta", "gamma")
    path = tmp_path / "test.cif"
    path.write_text(CIF.format(symmetry=symmetry, sites=sites, **dict(zip(keys, cell, strict=True))))
    return path


def operations(group):
    return "loop_\n_space_group_symop_operation_xyz\n" + "\n".join(f"'{op}'" for op in group.operations())


P1 = "_space_group_name_H-M_alt 'P 1'"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lattice": np.full((3, 3), np.nan)}, "not finite"),
        ({"lattice": np.diag([4.0, 4.0, np.inf])}, "not finite"),
        ({"lattice": np.diag([4.0, 4.0, 0.0])}, "no volume"),
        ({"lattice": np.eye(2)}, r"shape \(2, 2\)"),
        ({"fractional": np.zeros((0, 3)), "species": np.zeros(0, int)}, "no atoms"),
        ({"fractional": np.array([[0, 0, 0], [0.5, np.nan, 0]])}, "atom 2 are not finite"),
        ({"fractional": np.array([[0, 0, 0], [0.999, 0.01, 0]])}, "Na1 and Cl2 overlap"),
        ({"fractional": np.zeros((3, 3))}, r"\(3, 3\) for 2 atoms"),
        ({"species": np.array([11, 0])}, "atomic numbers"),
        ({"species": np.array([11.0, 17.0])}, "atomic numbers"),
        ({"species": np.array([11, 300])}, "atomic numbers"),
    ],
)
def test_impossible_cells(change, message):
    good = {
        "lattice": np.eye(3) * 4.0,
        "fractional": np.array([[0, 0, 0], [0.5, 0.5, 0.5]]),
        "species": np.array([11, 17]),
    }
    Cell(**good)
    with pytest.raises(ValueError, match=message):
        Cell(**(good | change))


def test_overlap_in_a_skewed_cell():
    lattice = np.array([[3.0, 0, 0], [0, 3.0, 0], [30.0, 30.0, 0.8]])  # plane spacings well below 1 Å
    Cell(lattice, np.zeros((1, 3)), np.array([6]))
    near = np.array([[0.0, 0, 0], (np.array([0.1, 0.1, 0.1]) @ np.linalg.inv(lattice))])
    with pytest.raises(ValueError, match="overlap"):
        Cell(lattice, near, np.array([6, 6]))


def test_left_handed_cell_is_the_same_crystal():
    lattice = lattice_from_parameters(4.9, 4.9, 5.4, 90, 90, 120)
    group = SpaceGroup.from_number(152)
    site = np.array([0.41, 0.27, 0.12])
    fractional = (group.rotations @ site + group.translations / 24) % 1
    right = detect(Cell(lattice, fractional, np.full(6, 8)))
    left = detect(Cell(-lattice, -fractional, np.full(6, 8)))
    mirrored = detect(Cell(lattice * [1, 1, -1], fractional, np.full(6, 8)))
    assert (right.number, left.number, mirrored.number) == (152, 152, 154)


def test_partial_occupancy_says_how_to_order(tmp_path):
    with pytest.raises(ValueError, match=r"test.cif: site 1 is disordered \(Fe 0.5\).*ordered model"):
        read_cell(cif(tmp_path, P1, "Fe1 Fe 0 0 0 0.5"))


def test_unknown_element(tmp_path):
    with pytest.raises(ValueError, match="site Qq1: unknown element symbol 'Qq'"):
        read_cell(cif(tmp_path, P1, "Qq1 Qq 0 0 0 1"))


@pytest.mark.parametrize(("symbol", "number"), [("Na1+", 11), ("CL", 17), ("O2-", 8), ("D", 1), ("Fe", 26)])
def test_decorated_elements(tmp_path, symbol, number):
    assert read_cell(cif(tmp_path, P1, f"X1 {symbol} 0 0 0 1")).species.tolist() == [number]


def test_missing_operations_and_symbol(tmp_path):
    with pytest.raises(ValueError, match="no symmetry operations and no space-group symbol"):
        read_cell(cif(tmp_path, "", "Na1 Na 0 0 0 1"))


def test_missing_operations_are_found_by_symbol(tmp_path):
    sites = "Na1 Na 0 0 0 1\nCl1 Cl 0.5 0.5 0.5 1"
    cell = read_cell(cif(tmp_path, "_symmetry_space_group_name_H-M 'F m -3 m'", sites))
    assert len(cell) == 8 and detect(cell).number == 225


def test_only_the_identity_under_another_name(tmp_path):
    symmetry = "_symmetry_space_group_name_H-M 'F m -3 m'\nloop_\n_symmetry_equiv_pos_as_xyz\nx,y,z"
    with pytest.raises(ValueError, match="the only operation is 'x,y,z'"):
        read_cell(cif(tmp_path, symmetry, "Na1 Na 0 0 0 1\nCl1 Cl 0.5 0.5 0.5 1"))


def test_operations_that_are_no_group(tmp_path):
    with pytest.raises(ValueError, match="missing or mistyped"):
        read_cell(cif(tmp_path, "loop_\n_symmetry_equiv_pos_as_xyz\nx,y,z\n'-y,x,z'", "Na1 Na 0.1 0.2 0 1"))


def test_operations_of_other_axes(tmp_path):
    group = SpaceGroup.from_number(166, "H")
    with pytest.raises(ValueError, match="give the setting"):
        read_cell(cif(tmp_path, operations(group), "Bi1 Bi 0 0 0.2 1", (4.7, 4.7, 4.7, 57, 57, 57)))


def test_four_digit_thirds(tmp_path):
    group = SpaceGroup.from_number(194)
    cell = read_cell(
        cif(tmp_path, operations(group), "Mg1 Mg 0.3333 0.6667 0.25 1", (3.21, 3.21, 5.21, 90, 90, 120))
    )
    found = detect(cell)
    assert len(cell) == 2 and found.number == 194
    # graphite listed in P1
    sites = "\n".join(
        f"C{i} C {x} {y} {z} 1"
        for i, (x, y, z) in enumerate(
            [(0, 0, 0.25), (0, 0, 0.75), (0.3333, 0.6667, 0.25), (0.6667, 0.3333, 0.75)]
        )
    )
    graphite = detect(read_cell(cif(tmp_path, P1, sites, (2.461, 2.461, 6.708, 90, 90, 120))))
    assert graphite.number == 194 and graphite.displacement > 1e-6
    assert np.abs(graphite.fractional * 12 - np.rint(graphite.fractional * 12)).max() < 1e-12


def test_rhombohedral_and_hexagonal_axes_are_one_crystal(tmp_path):
    hexagonal = read_cell(
        cif(
            tmp_path,
            operations(SpaceGroup.from_number(166, "H")),
            "Bi1 Bi 0 0 0.234 1",
            (4.546, 4.546, 11.862, 90, 90, 120),
        )
    )
    edge = np.sqrt(4.546**2 / 3 + 11.862**2 / 9)
    angle = np.degrees(2 * np.arcsin(4.546 / 2 / edge))
    rhombohedral = read_cell(
        cif(
            tmp_path,
            operations(SpaceGroup.from_number(166, "R")),
            "Bi1 Bi 0.234 0.234 0.234 1",
            (edge, edge, edge, angle, angle, angle),
        )
    )
    one, other = detect(hexagonal), detect(rhombohedral)
    assert (len(hexagonal), len(rhombohedral)) == (6, 2) and one.number == other.number == 166
    assert np.allclose(one.lattice, other.lattice, atol=1e-6)
    # without operations the axes follow from the cell
    by_symbol = read_cell(
        cif(
            tmp_path,
            "_space_group_name_H-M_alt 'R -3 m'",
            "Bi1 Bi 0.234 0.234 0.234 1",
            (edge,) * 3 + (angle,) * 3,
        )
    )
    assert len(by_symbol) == 2


def test_origin_choices_are_one_crystal(tmp_path):
    cells = {}
    for choice, site in (("1", "0 0 0"), ("2", "0.125 0.125 0.125")):
        symmetry = operations(SpaceGroup.from_number(227, choice))
        cells[choice] = detect(read_cell(cif(tmp_path, symmetry, f"C1 C {site} 1", (3.567,) * 3 + (90,) * 3)))
    assert {len(c.atom_of) for c in cells.values()} == {8} and {c.number for c in cells.values()} == {227}
    named = read_cell(cif(tmp_path, "_space_group_name_H-M_alt 'F d -3 m :2'", "C1 C 0.125 0.125 0.125 1"))
    assert len(named) == 8
    # a site in general position fits both choices equally
    with pytest.raises(ValueError, match="both fit"):
        read_cell(cif(tmp_path, "_space_group_name_H-M_alt 'F d -3 m'", "C1 C 0.07 0.18 0.31 1"))


def test_molecule_in_a_box(tmp_path):
    path = tmp_path / "water.xyz"
    path.write_text(
        '3\nLattice="12 0 0 0 12 0 0 0 12" Properties=species:S:1:pos:R:3 pbc="T T T"\n'
        "O 6 6 6\nH 6.757 6.586 6\nH 5.243 6.586 6\n"
    )
    assert detect(read_cell(path)).number == 25  # Pmm2
    path.write_text("3\nwater\nO 0 0 0\nH 0.757 0.586 0\nH -0.757 0.586 0\n")
    with pytest.raises(ValueError, match="put it in a box"):
        read_cell(path)


def test_more_than_200_atoms():
    base = np.array([[0, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]])
    shifts = np.indices((4, 4, 4)).reshape(3, -1).T
    fractional = (np.concatenate([base, base + [0.5, 0, 0]])[None] + shifts[:, None]).reshape(-1, 3) / 4
    species = np.tile([11] * 4 + [17] * 4, 64)
    found = detect(Cell(np.eye(3) * 4 * 5.64, fractional, species))
    assert len(species) == 512 and found.number == 225 and len(found.species) == 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.cif", b"", "empty"),
        ("blank.cif", b"  \n\n", "empty"),
        ("binary.cif", b"\x00\x01\x02\xff\xfe", "not a text file"),
        ("picture.vasp", b"\x89PNG\r\n\x1a\n\x00", "not a text file"),
        ("text.cif", b"hello world\n", "text.cif"),
        ("POSCAR", b"hello world\n", "not a readable POSCAR"),
        ("broken.json", b"{", "not valid JSON"),
        ("table.csv", b"a,b\n1,2\n", "no column structure or cif or poscar"),
        ("zipped.cif.gz", b"not gzip", "not a text file"),
        (
            "no_cell.cif",
            b"data_x\nloop_\n_atom_site_label\n_atom_site_fract_x\nNa 0\n",
            "_cell_length_a is missing",
        ),
    ],
)
def test_files_that_are_no_structures(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        list(read_cells([path])) if name.endswith("csv") else read_cell(path)
    assert name in str(error.value)


def test_site_without_coordinates(tmp_path):
    with pytest.raises(ValueError, match="site H1 has no coordinates"):
        read_cell(cif(tmp_path, P1, "H1 H ? ? ? 1"))


def test_angles_that_enclose_no_volume(tmp_path):
    with pytest.raises(ValueError, match="enclose no volume"):
        read_cell(cif(tmp_path, P1, "Na1 Na 0 0 0 1", (5, 5, 5, 10, 10, 120)))


def test_formula_that_contradicts_the_operations(tmp_path):
    symmetry = operations(SpaceGroup.from_number(225)) + "\n_chemical_formula_sum 'Ca F2'"
    with pytest.raises(ValueError, match="not a multiple of"):
        read_cell(cif(tmp_path, symmetry, "Ca1 Ca 0 0 0 1\nF1 F 0.5 0.5 0.5 1"))


def test_tables_and_pymatgen(tmp_path):
    from pymatgen.core import Lattice, Structure

    structure = Structure(Lattice.cubic(4.2), ["Cs", "Cl"], [[0, 0, 0], [0.5, 0.5, 0.5]])
    assert detect(from_pymatgen(structure)).number == 221
    (tmp_path / "one.json").write_text(json.dumps(structure.as_dict()))
    assert len(read_cell(tmp_path / "one.json")) == 2
    (tmp_path / "many.json").write_text(
        json.dumps(
            [{"material_id": "a", "structure": structure.as_dict(), "gap": 1.5}, {"structure": {}, "gap": 2}]
        )
    )
    (good, cell), (bad, error) = read_cells([tmp_path / "many.json"])
    assert good.name == "many.json:a" and good.targets == {"gap": 1.5} and isinstance(cell, Cell)
    assert isinstance(error, ValueError) and "no field 'lattice'" in str(error) and bad.name in str(error)
    (tmp_path / "table.csv").write_text(
        '# a comment\nid,cif,energy\nx,"' + structure.to(fmt="cif") + '",-3.5\n', encoding="utf-8"
    )
    (source,) = find_sources([tmp_path / "table.csv"])
    assert source.name == "table.csv:x" and source.targets == {"energy": -3.5}
    assert len(parse(source)) == 2


def test_a_search_that_does_not_return_is_ended():
    """1728 atoms, noisy beside a loose tolerance: spglib stays in C code for minutes."""
    rng = np.random.default_rng(0)
    fractional = np.indices((12, 12, 12)).reshape(3, -1).T / 12 + rng.normal(size=(1728, 3)) * 0.03 / 36
    cell = Cell(np.eye(3) * 36, fractional, np.full(1728, 6), "noise")
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="no result within 4 s"):
        detect_with_time_limit(cell, 4, symprec=0.1, loose_symprec=None)
    assert time.monotonic() - begun < 120
    small = Cell(np.eye(3) * 4, np.zeros((1, 3)), np.array([6]))
    assert detect_with_time_limit(small, 60).number == 221


def test_unvalidated_nan_lattice_ends_only_the_worker():
    """The crash that validation prevents: the worker dies, the caller gets an error."""
    cell = Cell(np.eye(3) * 4, np.zeros((1, 3)), np.array([6]))
    object.__setattr__(cell, "lattice", np.full((3, 3), np.nan))
    with pytest.raises((RuntimeError, ValueError)):
        detect_with_time_limit(cell, 60)


def test_importing_the_symmetry_part_needs_no_jax():
    code = (
        "import sys; import sciml.crystal; from sciml.crystal import SpaceGroup, detect, prepare, Cell; "
        "assert 'jax' not in sys.modules and 'pymatgen' not in sys.modules, sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_fixed_number_of_stars_is_found_for_large_and_small_cells():
    for edge in (2.5, 40.0):
        assert len(first_stars(SpaceGroup.from_number(225).primitive(), _fcc(edge), 30)) > 20


def _fcc(edge):
    return edge * np.array([[0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]])
