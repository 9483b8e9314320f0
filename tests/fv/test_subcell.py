# pyright: reportCallIssue=false, reportArgumentType=false
"""Sub-cell reconstruction: exact where it should be, stable at the ends of the interval."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv import exact
from sciml.fv.boundary import Outflow
from sciml.fv.finite_volume import FiniteVolume
from sciml.fv.fundamental_diagram import Greenberg, Greenshields, Trapezoidal, Triangular, Underwood
from sciml.fv.grid import UniformGrid
from sciml.fv.integrate import rollout
from sciml.fv.law import Burgers, LinearAdvection, as_dtype
from sciml.fv.subcell import SubCell

pytestmark = pytest.mark.usefixtures("x64")
GRID = UniformGrid(60)


def advance(law, u0, dt, steps):
    scheme = FiniteVolume(law, GRID, Outflow(), SubCell())
    return np.asarray(rollout(scheme, jnp.asarray(u0), dt, steps, save_every=steps).states[-1])


@pytest.mark.parametrize(
    ("law", "left", "right"),
    [
        (Burgers(-1.0, 1.0), 0.9, 0.1),
        (Burgers(-1.0, 1.0), 0.3, -0.8),
        (Greenshields(), 0.2, 0.7),
        (Greenberg(), 0.2, 0.9),
        (Underwood(), 0.1, 0.9),
        (Triangular(), 0.1, 0.8),
        (Triangular(), 0.4, 0.1),
        (LinearAdvection(0.7), 0.3, 0.6),
        (LinearAdvection(-0.7), 0.3, 0.6),
    ],
)
def test_a_single_jump_moves_exactly(law, left, right):
    law = as_dtype(law, jnp.float64)
    breakpoints, states = np.array([0.0, 0.4123, 1.0]), np.array([left, right])
    want = exact.lax_hopf_cell_averages(law, breakpoints, states, GRID.faces, np.array([0.0, 0.1]))
    start = exact.riemann_cell_averages(law, left, right, GRID.faces, 0.0, 0.4123)
    speed = float(law.max_wave_speed(*(jnp.asarray(f(left, right)) for f in (min, max))))
    steps = int(np.ceil(0.1 * speed / (0.6 * GRID.dx)))
    np.testing.assert_allclose(advance(law, start, 0.1 / steps, steps), want[-1], atol=1e-11)


@pytest.mark.parametrize(
    "law", [Triangular(), Trapezoidal(), Greenshields(), Underwood(1.0, 0.5, 1.0), Burgers(-1.0, 1.0)]
)
def test_round_off_beyond_the_ends_of_the_interval_does_not_grow(law):
    lower, upper = float(law.lower), float(law.upper)
    noise = 1e-17 * np.random.default_rng(0).normal(size=60)
    speed = float(law.max_wave_speed(law.lower, law.upper))
    for level in (lower, upper):
        got = advance(law, level + noise, 0.2 * GRID.dx / speed, 200)
        np.testing.assert_allclose(got, level, atol=1e-14)


@pytest.mark.parametrize(
    "law", [Triangular(), Trapezoidal(), Greenshields(), Greenberg(), Burgers(-1.0, 1.0)]
)
def test_derivatives_are_those_of_finite_differences(law):
    law, flux = as_dtype(law, jnp.float64), SubCell()
    lower = max(float(law.lower), -1.0)
    windows = jnp.asarray(np.random.default_rng(3).uniform(lower + 0.05, 0.95, (100, 4)))
    dt_dx = 0.3 / law.max_wave_speed(jnp.asarray(lower + 0.05), jnp.asarray(0.95))
    f = jax.jit(jax.vmap(lambda w: flux(law, w, dt_dx)))
    gradient = jax.jit(jax.vmap(jax.grad(lambda w: flux(law, w, dt_dx))))(windows)
    h = 1e-6
    for k in range(4):
        step = h * np.eye(4)[k]
        forward, backward = (f(windows + step) - f(windows)) / h, (f(windows) - f(windows - step)) / h
        smooth = np.abs(forward - backward) < 1e-3  # away from the corners of the flux
        assert smooth.mean() > 0.9
        np.testing.assert_allclose(gradient[:, k][smooth], (0.5 * (forward + backward))[smooth], atol=2e-3)
