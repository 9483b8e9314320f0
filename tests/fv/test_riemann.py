# pyright: reportCallIssue=false, reportArgumentType=false
"""Riemann solvers against their definitions: extrema, integrals of |f′|, consistency, signs, derivatives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv.catalogue import LAW_TYPES
from sciml.fv.fundamental_diagram import Underwood
from sciml.fv.law import BuckleyLeverett, Burgers, FluxFunction, LinearAdvection, as_dtype
from sciml.fv.riemann import RIEMANN_SOLVERS, EngquistOsher, Godunov, LaxFriedrichs, Rusanov, Upwind

pytestmark = pytest.mark.usefixtures("x64")
MAKE = {
    **{name: (lambda kind=kind: kind()) for name, kind in LAW_TYPES.items()},
    "cubic": lambda: FluxFunction(lambda u: u**3 - 0.5 * u, -1.0, 1.0),
    "sine": lambda: FluxFunction(lambda u: jnp.sin(6 * u), 0.0, 2.0),
    "falling": lambda: FluxFunction(lambda u: -(u**2) * (3 - 2 * u), 0.0, 1.0),
}
ONE_WAY = {
    "linear-advection": lambda: LinearAdvection(-2.0),
    "underwood": lambda: Underwood(1.0, 1.0, 1.0),
    "burgers": lambda: Burgers(-2.0, 0.0),
    "buckley-leverett": BuckleyLeverett,
    "falling": MAKE["falling"],
}


@functools.cache  # analysing a user's flux compiles it
def build(name):
    return as_dtype(MAKE[name](), jnp.float64)


@pytest.fixture(params=MAKE)
def law(request):
    return build(request.param)


def pairs(law, count=41):
    lower, upper = (float(np.clip(x, -1.5, 1.5)) for x in (law.lower, law.upper))
    u = jnp.linspace(lower, upper, count)
    return (x.ravel() for x in jnp.meshgrid(u, u, indexing="ij"))


def fine_path(law, left, right, count=4001):
    return np.asarray(law.flux(left + (right - left) * jnp.linspace(0, 1, count)[:, None]))


def test_godunov_is_the_extremum_of_the_flux_between_the_states(law):
    left, right = pairs(law)
    between = fine_path(law, left, right)
    want = np.where(left <= right, between.min(axis=0), between.max(axis=0))
    np.testing.assert_allclose(Godunov()(law, left, right, None), want, atol=2e-3 if law.kinks else 2e-6)


def test_engquist_osher_is_the_integral_of_the_absolute_wave_speed(law):
    left, right = pairs(law)
    variation = np.abs(np.diff(fine_path(law, left, right), axis=0)).sum(axis=0)
    want = 0.5 * (law.flux(left) + law.flux(right)) - 0.5 * np.sign(right - left) * variation
    np.testing.assert_allclose(
        EngquistOsher()(law, left, right, None), want, atol=2e-3 if law.kinks else 2e-6
    )


def test_viscosities_of_rusanov_and_lax_friedrichs(law):
    left, right = pairs(law)
    mean = 0.5 * (law.flux(left) + law.flux(right))
    viscous = Rusanov()(law, left, right, None)
    fastest = law.max_wave_speed(jnp.minimum(left, right), jnp.maximum(left, right))
    np.testing.assert_allclose(viscous, mean - 0.5 * fastest * (right - left), atol=1e-14)
    np.testing.assert_allclose(
        LaxFriedrichs()(law, left, right, jnp.asarray(0.25)), mean - 2 * (right - left), atol=1e-14
    )


@pytest.mark.parametrize("name", [name for name in RIEMANN_SOLVERS if name != "upwind"])
def test_consistent_and_monotone(law, name):
    solver = RIEMANN_SOLVERS[name]
    left, right = pairs(law)
    dt_dx = 1 / law.max_wave_speed(left[0], left[-1])
    flux = np.asarray(solver(law, left, right, dt_dx)).reshape(41, 41)
    scale = np.abs(flux).max()
    np.testing.assert_allclose(np.diag(flux), law.flux(right[:41]), atol=1e-13 * scale)
    assert (np.diff(flux, axis=0) >= -1e-12 * scale).all()  # rises with the left state
    assert (np.diff(flux, axis=1) <= 1e-12 * scale).all()  # falls with the right state


@pytest.mark.parametrize("name", ["godunov", "engquist-osher"])
def test_derivatives_at_equal_states_are_upwind(law, name):
    solver = RIEMANN_SOLVERS[name]
    u = next(iter(pairs(law, 38)))[::38]
    speed = np.asarray(law.wave_speed(u))
    keep = np.abs(speed) > 1e-2
    by_left, by_right = (
        np.asarray(jax.vmap(jax.grad(lambda a, b: solver(law, a, b, None), k))(u, u)) for k in (0, 1)
    )
    np.testing.assert_allclose(by_left[keep], np.maximum(speed, 0)[keep], atol=1e-9)
    np.testing.assert_allclose(by_right[keep], np.minimum(speed, 0)[keep], atol=1e-9)


@pytest.mark.parametrize("name", ONE_WAY)
def test_upwind_is_godunov_where_waves_go_one_way(name):
    law = as_dtype(ONE_WAY[name](), jnp.float64)
    Upwind().check(law)
    left, right = pairs(law)
    np.testing.assert_allclose(
        Upwind()(law, left, right, None), Godunov()(law, left, right, None), atol=1e-14
    )


def test_upwind_refuses_two_directions_and_lax_friedrichs_needs_a_step():
    with pytest.raises(ValueError, match=r"change direction at u = 0; use Godunov"):
        Upwind().check(Burgers(-1.0, 1.0))
    with pytest.raises(ValueError, match="contains the time step"):
        LaxFriedrichs()(Burgers(), jnp.zeros(()), jnp.ones(()), None)
