# pyright: reportCallIssue=false, reportArgumentType=false
"""Sources: ramps put what they say into the cell where they are."""

import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv.fundamental_diagram import Greenshields
from sciml.fv.grid import UniformGrid
from sciml.fv.law import as_dtype
from sciml.fv.source import OffRamp, OnRamp, SourceFunction, Sources

pytestmark = pytest.mark.usefixtures("x64")
GRID = UniformGrid(10, 2.0, 4.0)
U = np.linspace(0.1, 0.8, 10)


@pytest.fixture
def law():
    return as_dtype(Greenshields(), jnp.float64)


def test_on_ramp_brings_its_flow(law):
    ramp = OnRamp(2.7, [0.0, 2.0], [0.0, 1.0])
    rate = np.asarray(ramp(law, GRID, jnp.asarray(0.5), U))
    np.testing.assert_allclose(rate.sum() * GRID.dx, 0.25)
    assert np.flatnonzero(rate).tolist() == [3]


def test_ramp_at_the_end_of_the_road_is_in_the_last_cell(law):
    rate = OnRamp(4.0, [0.0, 2.0], [1.0, 1.0])(law, GRID, jnp.asarray(0.5), U)
    assert np.flatnonzero(rate).tolist() == [9]


def test_off_ramp_takes_its_share(law):
    rate = np.asarray(OffRamp(2.0, 0.25)(law, GRID, jnp.asarray(0.0), U))
    np.testing.assert_allclose(rate[0] * GRID.dx, -0.25 * law.flux(U[0]))
    assert (rate[1:] == 0).all()


def test_functions_and_sums(law):
    square = SourceFunction(lambda t, x, u: t * x + u)
    both = Sources((square, OffRamp(3.0, 0.1)))
    t = jnp.asarray(2.0)
    np.testing.assert_allclose(square(law, GRID, t, U), 2 * GRID.centres + U)
    np.testing.assert_allclose(
        both(law, GRID, t, U), square(law, GRID, t, U) + OffRamp(3.0, 0.1)(law, GRID, t, U)
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OnRamp(9.0, [0.0, 1.0], [1.0, 1.0]).check(GRID), "outside of the grid"),
        (lambda: Sources((OffRamp(-1.0, 0.1),)).check(GRID), "OffRamp.position is -1.0"),
        (lambda: OnRamp(3.0, [1.0, 0.0], [1.0, 1.0]), "does not increase"),
        (lambda: OnRamp(3.0, [0.0, 1.0], [1.0]), "1 rows for 2 times"),
        (lambda: OffRamp(3.0, 1.5), "between 0 and 1"),
        (lambda: Sources((OnRamp(3.0, [0.0, 1.0], [1.0, 1.0]),)).check_times(0.0, 2.0), "too short"),
    ],
)
def test_bad_sources_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
