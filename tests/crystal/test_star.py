"""Stars: absences, epsilon factors and centric flags against gemmi; counts against the trace formula;
exact closure.
"""

import numpy as np
import pytest

from sciml.crystal.lattice import lattice_of, miller_ball, random_metric, reciprocal_metric
from sciml.crystal.space_group import HALL_NUMBERS, SpaceGroup
from sciml.crystal.star import build_stars, classify, count_stars, first_stars, index_ball, stars_within


def settings():
    rng = np.random.default_rng(1)
    for hall_number in HALL_NUMBERS:
        group = SpaceGroup.from_hall_number(hall_number)
        yield group, random_metric(group, rng)


def test_reflection_flags_equal_gemmi():
    gemmi = pytest.importorskip("gemmi")
    miller = np.indices((11,) * 3).reshape(3, -1).T - 5
    listed = miller.tolist()
    for hall_number in HALL_NUMBERS:
        group = SpaceGroup.from_hall_number(hall_number)
        theirs = gemmi.symops_from_hall(group.hall_symbol)
        ours = classify(group, miller)
        assert ours.epsilon.tolist() == [theirs.epsilon_factor(k) for k in listed]
        assert ours.absent.tolist() == [theirs.is_systematically_absent(k) for k in listed]
        assert ours.centric.tolist() == [theirs.is_reflection_centric(k) for k in listed]


def test_counts_equal_the_trace_formula():
    for group, metric in settings():
        table = stars_within(group, lattice_of(metric), 0.7)
        assert table.functions == count_stars(group, miller_ball(reciprocal_metric(metric), 0.7))


def test_rows_hold_whole_stars():
    for group, metric in settings():
        table = stars_within(group, lattice_of(metric), 0.6)
        flags = classify(group, table.miller[:, 0])
        assert not flags.absent.any()
        assert (flags.epsilon == table.epsilon).all() and (flags.centric == table.centric).all()
        assert (table.multiplicity * table.epsilon == group.order).all()
        reciprocal = reciprocal_metric(metric)
        squared = np.einsum("swi,ij,swj->sw", table.miller, reciprocal, table.miller)
        used = np.arange(table.miller.shape[1]) < table.members[:, None]
        assert np.allclose(np.sqrt(squared)[used], np.repeat(table.frequency(reciprocal), table.members))


def test_every_index_is_in_a_star_or_absent():
    for number in (1, 2, 14, 62, 146, 166, 194, 205, 225, 227, 230):
        group = SpaceGroup.from_number(number)
        miller = miller_ball(reciprocal_metric(random_metric(group, np.random.default_rng(0))), 0.6)
        table = build_stars(group, miller)
        assert table.modes + classify(group, miller).absent.sum() == len(miller)


def test_fixed_number_of_stars_takes_whole_shells():
    for group, metric in settings():
        lattice = lattice_of(metric)
        table = first_stars(group, lattice, 20)
        assert 1 <= len(table) <= 20
        wider = stars_within(group, lattice, table.frequency(reciprocal_metric(metric))[-1])
        assert len(wider) == len(table)


def test_published_grid_has_514_modes():
    assert len(index_ball(5)) == 514
    independent = {
        n: build_stars(SpaceGroup.from_number(n), index_ball(5)).functions for n in (1, 2, 221, 225)
    }
    assert independent == {1: 514, 2: 257, 221: 26, 225: 9}


def test_cut_star_is_an_error():
    miller = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0]])
    with pytest.raises(ValueError, match="not closed"):
        build_stars(SpaceGroup.from_number(221), miller)


def test_half_a_friedel_pair_is_an_error():
    with pytest.raises(ValueError, match="not closed"):
        build_stars(SpaceGroup.from_number(1), np.array([[1, 0, 0]]))


def test_lattice_of_another_setting_is_an_error():
    hexagonal = lattice_of(random_metric(SpaceGroup.from_number(166), np.random.default_rng(0)))
    with pytest.raises(ValueError, match="give the setting"):
        stars_within(SpaceGroup.from_number(166, "R"), hexagonal, 0.5)
