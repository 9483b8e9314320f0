"""Space groups: all 530 settings against an independent library, and every way to name a group."""

import numpy as np
import pytest

from sciml.crystal import seitz
from sciml.crystal.space_group import HALL_NUMBERS, SpaceGroup, settings_of_symbol


@pytest.fixture(scope="module")
def groups():
    return [SpaceGroup.from_hall_number(h) for h in HALL_NUMBERS]


def test_operators_equal_gemmi(groups):
    gemmi = pytest.importorskip("gemmi")
    for group in groups:
        theirs = [op.triplet() for op in gemmi.symops_from_hall(group.hall_symbol)]
        assert {text for text in group.operations()} == {
            seitz.format_operation(*seitz.parse_operation(text)) for text in theirs
        }


def test_operators_form_a_group(groups):
    assert all(seitz.is_closed(group.rotations, group.translations) for group in groups)
    assert all(
        (group.rotations[0] == np.eye(3)).all() and not group.translations[0].any() for group in groups
    )


def test_every_way_to_name_a_setting(groups):
    for group in groups:
        assert SpaceGroup.from_operations(group.operations()) == group
        assert SpaceGroup.from_hall_symbol(group.hall_symbol) == group
        assert SpaceGroup.from_symbol(group.symbol).number == group.number


def test_primitive_cell_keeps_the_type(groups):
    for group in groups:
        primitive = group.primitive()
        assert primitive.centring == "P"
        assert primitive.order * len(group.centring_translations) == group.order
        assert (
            SpaceGroup.from_operations([primitive.rotations, primitive.translations]).number == group.number
        )
        round_trip = group.primitive_coordinates @ group.primitive_basis
        assert np.allclose(round_trip, np.eye(3)) and np.linalg.det(group.primitive_basis) > 0


def test_hashable_and_equal_by_operators():
    one, other = SpaceGroup.from_number(225), SpaceGroup.from_symbol("F m -3 m")
    assert one == other and hash(one) == hash(other)
    assert SpaceGroup.from_number(227) != SpaceGroup.from_number(227, "1")


def test_class_predicates_equal_gemmi(groups):
    gemmi = pytest.importorskip("gemmi")
    for group in groups:
        theirs = gemmi.find_spacegroup_by_ops(gemmi.symops_from_hall(group.hall_symbol))
        assert theirs.number == group.number
        assert group.is_centrosymmetric == theirs.is_centrosymmetric()
        assert group.laue_class == theirs.laue_str()
        assert group.point_group == theirs.point_group_hm()
        assert group.centring == theirs.centring_type() or group.choice == "R"
        assert group.crystal_system == theirs.crystal_system_str()


def test_number_of_polar_types():
    polar = {n for n in range(1, 231) if SpaceGroup.from_number(n).is_polar}
    # ITA: the polar classes 1, 2, m, mm2, 4, 4mm, 3, 3m, 6, 6mm hold 68 types
    assert len(polar) == 68


@pytest.mark.parametrize(
    ("symbol", "hall_number"),
    [
        ("P2_1/c", 81),
        ("P 1 21/c 1", 81),
        ("P21/n", 82),
        ("Fd-3m", 526),
        ("F d -3 m :1", 525),
        ("F d 3 m", 526),
        ("Pm3", 494),
        ("R 3 m:R", 451),
        ("R3m", 450),
        ("I 41/a m d:1", 426),
    ],
)
def test_hermann_mauguin_symbols(symbol, hall_number):
    assert SpaceGroup.from_symbol(symbol).hall_number == hall_number


def test_symbol_without_choice_lists_all_settings():
    assert set(settings_of_symbol("R 3 m")) == {450, 451}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SpaceGroup.from_number(231), "1..230"),
        (lambda: SpaceGroup.from_hall_number(0), "1..530"),
        (lambda: SpaceGroup.from_number(225, "2"), "no setting"),
        (lambda: SpaceGroup.from_symbol("Pq3"), "unknown space-group symbol"),
        (lambda: SpaceGroup.from_hall_symbol("X 1"), "Hall symbol"),
        (lambda: SpaceGroup.from_operations(["x,y,z", "-y,x-y,z"]), "missing or mistyped"),
        (lambda: SpaceGroup.from_operations([]), "no symmetry operations"),
        (lambda: SpaceGroup.from_operations(["x,y"]), "three comma-separated"),
        (lambda: SpaceGroup.from_operations(["x,y,q"]), "cannot read"),
        (lambda: SpaceGroup.from_operations(["x,y,z+1/7"]), "multiple of 1/24"),
        (lambda: SpaceGroup.from_operations(["x,x,z"]), "determinant"),
    ],
)
def test_bad_input_is_one_clear_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("text", ["x,y,z", "-x+1/2,y-x,z+0.3333", " 'X-Y, X , Z+5/6' ", "1/2+z,-y,3/4-x"])
def test_operations_round_trip(text):
    rotation, translation = seitz.parse_operation(text)
    again = seitz.parse_operation(seitz.format_operation(rotation, translation))
    assert (again[0] == rotation).all() and (again[1] == translation).all()


def test_generators_are_completed():
    rotations, translations = zip(
        *(seitz.parse_operation(t) for t in ["-y,x-y,z", "-x,-y,z+1/2"]), strict=True
    )
    closed, _ = seitz.generate(np.stack(rotations), np.stack(translations))
    assert len(closed) == 6
