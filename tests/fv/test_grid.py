"""Uniform grids."""

import numpy as np
import pytest

from sciml.fv.grid import UniformGrid


def test_faces_centres_and_width():
    grid = UniformGrid(4, -1.0, 1.0)
    assert grid.dx == 0.5
    np.testing.assert_array_equal(grid.faces, [-1, -0.5, 0, 0.5, 1])
    np.testing.assert_array_equal(grid.centres, [-0.75, -0.25, 0.25, 0.75])


@pytest.mark.parametrize("points", [1, 3, 5])
def test_cell_averages_are_exact_for_polynomials_up_to_twice_the_points(points):
    grid, degree = UniformGrid(7, -0.3, 1.1), 2 * points - 1
    exact = np.diff(grid.faces ** (degree + 1)) / (degree + 1) / grid.dx
    np.testing.assert_allclose(grid.cell_average(lambda x: x**degree, points), exact, atol=1e-14)


def test_grids_are_values():
    assert UniformGrid(10, 0, 1) == UniformGrid(10, 0.0, 1.0)
    assert hash(UniformGrid(10, 0, 1)) == hash(UniformGrid(10, 0.0, 1.0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1,), "at least 2 cells"),
        ((2.5,), "at least 2 cells"),
        ((10, 1.0, 0.0), "lower < upper"),
        ((10, 0.0, float("inf")), "finite ends"),
        ((10, float("nan"), 1.0), "finite ends"),
    ],
)
def test_bad_grids_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        UniformGrid(*arguments)
