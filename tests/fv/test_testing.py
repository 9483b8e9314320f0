# pyright: reportCallIssue=false, reportArgumentType=false
"""The public assertions fail on what they should, and say by how much."""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv import testing
from sciml.fv.boundary import Outflow, Periodic, Prescribed
from sciml.fv.finite_volume import AbstractScheme, FiniteVolume
from sciml.fv.grid import UniformGrid
from sciml.fv.law import Burgers, as_dtype
from sciml.fv.numerical_flux import AbstractNumericalFlux
from sciml.fv.runge_kutta import ForwardEuler
from sciml.fv.source import SourceFunction

pytestmark = pytest.mark.usefixtures("x64")
GRID = UniformGrid(20)
JUMP = np.where(np.arange(20) < 10, 0.8, 0.1)


class Central(AbstractNumericalFlux):
    """The unstable mean of both fluxes, shifted and tilted on demand."""

    shift: float = 0.0
    tilt: float = 0.0
    stencil: ClassVar[int] = 2
    fully_discrete: ClassVar[bool] = False
    cfl_limit: ClassVar[float] = 1.0

    def __call__(self, law, window, dt_dx):
        mean = 0.5 * (law.flux(window[0]) + law.flux(window[1]))
        return mean + self.shift + self.tilt * window[0] * (window[1] - window[0])


class Undifferentiable(AbstractNumericalFlux):
    stencil: ClassVar[int] = 2
    fully_discrete: ClassVar[bool] = False
    cfl_limit: ClassVar[float] = 1.0

    def __call__(self, law, window, dt_dx):
        return law.flux(window[0]) + jnp.sqrt((window[1] - window[0]) ** 2)


@pytest.fixture
def law():
    return as_dtype(Burgers(0.0, 1.0), jnp.float64)


def test_inconsistency_is_measured(law):
    testing.assert_consistent(Central(), law)
    with pytest.raises(AssertionError, match=r"Central is not consistent with Burgers.*relative error 0\.02"):
        testing.assert_consistent(Central(shift=0.01), law)


def test_wrong_signs_are_named(law):
    with pytest.raises(AssertionError, match=r"not monotone for Burgers at CFL 1: raising cell i[+-]1"):
        testing.assert_monotone(Central(), law)


def test_a_tilt_is_seen_in_the_mirror(law):
    testing.assert_mirror_equivariant(Central(), law)
    with pytest.raises(AssertionError, match="not mirror equivariant"):
        testing.assert_mirror_equivariant(Central(tilt=0.3), law)


def test_unstable_fluxes_oscillate(law):
    scheme = FiniteVolume(law, GRID, Outflow(), Central())
    with pytest.raises(AssertionError, match=r"variation grew by"):
        testing.assert_tvd(scheme, JUMP, integrator=ForwardEuler())
    with pytest.raises(AssertionError, match=r"leaves the range \[0.1, 0.8\].*cell \d+ is"):
        testing.assert_bounded(scheme, JUMP, integrator=ForwardEuler())


def test_what_is_not_accounted_for_is_a_defect(law):
    class Leaky(AbstractScheme):  # a scheme of one's own that forgets what leaves
        law: Burgers
        grid: UniformGrid
        boundary: Periodic
        source: None = None
        cfl_limit: ClassVar[float] = 1.0
        fully_discrete: ClassVar[bool] = False

        def tendency(self, t, state, dt):
            return -0.1 * state, jnp.zeros((), state.dtype)

        def start(self, averages):
            return averages

        def averages(self, state):
            return state

        def cell_speeds(self, t, state):
            return jnp.abs(state)

        def boundary_speeds(self, t, state):
            return jnp.abs(state)

    with pytest.raises(AssertionError, match=r"not conservative: after \d+ steps the total is off by"):
        testing.assert_conservative(Leaky(law, GRID, Periodic()), JUMP)


def test_missing_derivatives_are_located(law):
    scheme = FiniteVolume(law, GRID, Outflow(), Undifferentiable())
    with pytest.raises(AssertionError, match=r"derivative by .*not finite at a constant state"):
        testing.assert_finite_gradients(scheme)


def test_open_ends_and_sources_have_no_bounds(law):
    ends = Prescribed([0.0, 1.0], np.ones(2), np.ones(2))
    with pytest.raises(ValueError, match="nothing new may enter"):
        testing.assert_tvd(FiniteVolume(law, GRID, ends, Central()), JUMP)
    source = SourceFunction(lambda t, x, u: u)
    with pytest.raises(ValueError, match="nothing new may enter"):
        testing.assert_bounded(FiniteVolume(law, GRID, Outflow(), Central(), source), JUMP)
