# pyright: reportCallIssue=false, reportArgumentType=false
"""Boundaries: ghost values, interpolation in time, end fluxes, refused series."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv.boundary import DemandSupply, Outflow, Periodic, Prescribed, PrescribedFunction, Sides
from sciml.fv.finite_volume import FiniteVolume
from sciml.fv.fundamental_diagram import Triangular
from sciml.fv.grid import UniformGrid
from sciml.fv.law import Burgers, as_dtype
from sciml.fv.numerical_flux import ReconstructedFlux
from sciml.fv.reconstruction import WENO5, PiecewiseConstant

pytestmark = pytest.mark.usefixtures("x64")
U = jnp.arange(6.0)
TIMES = np.array([0.0, 1.0, 3.0])


def test_periodic_and_outflow_ghosts():
    np.testing.assert_array_equal(Periodic().pad(0.0, U, 2), [4, 5, 0, 1, 2, 3, 4, 5, 0, 1])
    np.testing.assert_array_equal(Outflow().pad(0.0, U, 2), [0, 0, 0, 1, 2, 3, 4, 5, 5, 5])


def test_prescribed_is_linear_in_time_and_keeps_the_order_of_its_columns():
    left = np.array([[1, 2, 3], [2, 3, 4], [6, 7, 8]], float)
    boundary = Prescribed(TIMES, left, -left)
    ghosts = boundary.ghost_cells(jnp.asarray(2.0), U, 2)
    np.testing.assert_array_equal(ghosts[0], [5, 6])  # the last column touches the domain
    np.testing.assert_array_equal(ghosts[1], [-4, -5])  # the first column touches it
    one = Prescribed(TIMES, left[:, 0], left[:, 0])
    np.testing.assert_array_equal(one.ghost_cells(jnp.asarray(0.5), U, 3)[0], [1.5, 1.5, 1.5])


def test_prescribed_outside_of_its_times_is_nan_but_forgives_round_off():
    boundary = Prescribed(TIMES, np.ones(3), np.ones(3))
    for t, finite in ((-1e-6, True), (3 + 1e-6, True), (-0.1, False), (3.1, False)):
        assert bool(np.isfinite(boundary.ghost_cells(jnp.asarray(t), U, 1)[0]).all()) == finite


def test_prescribed_function_of_time():
    boundary = PrescribedFunction(lambda t: 2 * t, lambda t: t + jnp.arange(2.0))
    left, right = boundary.ghost_cells(jnp.asarray(3.0), U, 2)
    np.testing.assert_array_equal(left, [6, 6])
    np.testing.assert_array_equal(right, [3, 4])


def test_demand_and_supply_limit_each_other():
    law = as_dtype(Triangular(1.0, 1.0, 1.0), jnp.float64)
    boundary = DemandSupply(TIMES, np.array([0.4, 0.4, 0.4]), np.array([0.1, np.inf, np.inf]))
    fluxes = jnp.full(7, 9.0)
    free, jammed = jnp.full(6, 0.2), jnp.full(6, 0.9)
    for t, u, enter, leave in ((0.0, free, 0.4, 0.1), (2.0, free, 0.4, 0.2), (2.0, jammed, 0.1, 0.5)):
        ends = boundary.end_fluxes(law, jnp.asarray(t), u, fluxes)
        np.testing.assert_allclose([ends[0], ends[-1]], [enter, leave])
        np.testing.assert_array_equal(ends[1:-1], fluxes[1:-1])


def test_sides_take_each_end_from_its_own_boundary():
    law = as_dtype(Triangular(), jnp.float64)
    both = Sides(DemandSupply(TIMES, np.full(3, 0.3), np.zeros(3)), Outflow())
    ends = both.end_fluxes(law, jnp.asarray(0.5), jnp.full(6, 0.2), jnp.full(7, 9.0))
    np.testing.assert_allclose(ends, [0.3, *[9.0] * 6])
    np.testing.assert_array_equal(both.ghost_cells(0.0, U, 1)[1], [5])


def test_boundary_values_can_be_differentiated():
    def inflow(values):
        return Prescribed(TIMES, values, values).ghost_cells(jnp.asarray(2.0), U, 1)[0].sum()

    np.testing.assert_allclose(jax.grad(inflow)(jnp.ones(3)), [0, 0.5, 0.5])


SERIES = (TIMES, np.ones(3), np.ones(3))


def scheme(boundary, law=None, cells=10, reconstruction=None):
    reconstruction = reconstruction or PiecewiseConstant()
    return FiniteVolume(law or Burgers(), UniformGrid(cells), boundary, ReconstructedFlux(reconstruction))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Prescribed([0.0, 2.0, 1.0], *SERIES[1:]), "does not increase: entry 2 is 1.0 after 2.0"),
        (lambda: Prescribed([0.0, 1.0, 1.0], *SERIES[1:]), "does not increase"),
        (lambda: Prescribed(TIMES, np.ones(2), np.ones(3)), "2 rows for 3 times"),
        (lambda: Prescribed(TIMES[:1], np.ones(1), np.ones(1)), "at least 2 times"),
        (lambda: DemandSupply(TIMES, np.ones(2), np.ones(3)), "DemandSupply.demand"),
        (lambda: scheme(DemandSupply(*SERIES)), "needs a fundamental diagram, not Burgers"),
        (lambda: scheme(Sides(Periodic(), Outflow())), "use Periodic.. alone"),
        (
            lambda: scheme(Prescribed(TIMES, np.ones((3, 2)), np.ones((3, 2))), reconstruction=WENO5()),
            "has 2 columns but the scheme needs 3 ghost cells",
        ),
        (lambda: scheme(Periodic(), cells=2, reconstruction=WENO5()), "below the reach of the flux"),
        (lambda: Prescribed(*SERIES).check_times(0.0, 4.0), r"too short: it covers \[0, 3\].*needs \[0, 4\]"),
        (lambda: DemandSupply(*SERIES).check_times(-1.0, 2.0), "too short"),
        (lambda: Sides(Outflow(), Prescribed(*SERIES)).check_times(0.0, 9.0), "too short"),
    ],
)
def test_bad_boundaries_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
