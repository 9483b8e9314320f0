# pyright: reportCallIssue=false, reportArgumentType=false
"""Laws of u_t + f(u)_x = 0: f, f′, special states and Legendre transforms must fit each other."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv.catalogue import LAW_TYPES
from sciml.fv.law import BuckleyLeverett, Burgers, FluxFunction, LinearAdvection, as_dtype

pytestmark = pytest.mark.usefixtures("x64")

USER = {
    "cubic": lambda: FluxFunction(lambda u: u**3 - 0.5 * u, -1.0, 1.0),
    "exponential": lambda: FluxFunction(jnp.exp, -1.0, 1.0),
    "kinked": lambda: FluxFunction(lambda u: jnp.minimum(u, 0.5 * (1 - u)), 0.0, 1.0),
    "sine": lambda: FluxFunction(lambda u: jnp.sin(6 * u), 0.0, 2.0),
}
MAKE = {**{name: (lambda kind=kind: kind()) for name, kind in LAW_TYPES.items()}, **USER}


def states(law, count=401):
    lower, upper = (float(np.clip(x, -1.5, 1.5)) for x in (law.lower, law.upper))
    return jnp.linspace(lower, upper, count)


@functools.cache  # analysing a user's flux compiles it
def build(name):
    return as_dtype(MAKE[name](), jnp.float64)


@pytest.fixture(params=MAKE)
def law(request):
    return build(request.param)


def test_wave_speed_is_the_derivative_of_the_flux(law):
    u = states(law)[1:-1]
    for kink in law.kinks:
        u = u[jnp.abs(u - kink) > 1e-3]
    np.testing.assert_allclose(law.wave_speed(u), jax.vmap(jax.grad(law.flux))(u), rtol=1e-9, atol=1e-9)


def test_curvature_is_as_stated(law):
    slope = np.diff(np.asarray(law.wave_speed(states(law))))
    rises, falls = bool((slope > 1e-9).any()), bool((slope < -1e-9).any())
    stated = {
        "convex": (True, False),
        "concave": (False, True),
        "linear": (False, False),
        "neither": (True, True),
    }
    assert stated[law.curvature] == (rises, falls)


def test_wave_speed_keeps_its_sign_between_stationary_points(law):
    u = np.asarray(states(law, 2001))
    points = np.array([float(x) for x in law.stationary_points])
    speed = np.asarray(law.wave_speed(jnp.asarray(u)))
    for k in range(len(points) + 1):
        low = points[k - 1] if k else -np.inf
        high = points[k] if k < len(points) else np.inf
        inside = speed[(u > low + 1e-6) & (u < high - 1e-6)]
        assert (inside >= -1e-9).all() or (inside <= 1e-9).all()


def test_second_derivative_keeps_its_sign_between_inflection_points(law):
    if law.curvature != "neither":
        assert law.inflection_points == ()
        return
    u = np.asarray(states(law, 2001))
    bends = np.array([float(x) for x in law.inflection_points])
    assert len(bends) > 0
    speed = np.asarray(law.wave_speed(jnp.asarray(u)))
    for k in range(len(bends) + 1):
        inside = (u > (bends[k - 1] if k else -np.inf)) & (u < (bends[k] if k < len(bends) else np.inf))
        steps = np.diff(speed[inside])
        assert (steps >= -1e-9).all() or (steps <= 1e-9).all()


def test_largest_wave_speed_between_two_states_is_not_missed(law):
    u = states(law, 101)
    speed = np.abs(np.asarray(law.wave_speed(u)))
    for low, high in ((0, 100), (10, 90), (30, 60), (50, 51)):
        assert float(law.max_wave_speed(u[low], u[high])) >= speed[low : high + 1].max() - 1e-9


def test_legendre_transform_is_the_extremum_over_all_states(law):
    u = states(law, 20001)
    lower, upper = u[0], u[-1]
    if law.curvature == "neither":
        with pytest.raises(ValueError, match="neither concave nor convex"):
            law.legendre(jnp.asarray(0.0), lower, upper)
        return
    speeds = jnp.linspace(-1.8, 1.8, 37)
    values = np.asarray(law.flux(u) - speeds[:, None] * u)
    best = values.min(axis=1) if law.curvature == "convex" else values.max(axis=1)
    got = np.asarray(law.legendre(speeds, lower, upper))
    np.testing.assert_allclose(got, best, atol=1e-4)  # the grid may miss a kink
    sign = -1 if law.curvature == "convex" else 1
    assert (sign * (got - best) >= -1e-9).all()
    slope = np.asarray(jax.vmap(jax.grad(lambda s: law.legendre(s, lower, upper)))(speeds))
    np.testing.assert_array_equal(slope, -np.asarray(law.legendre_state(speeds, lower, upper)))


def test_float32_stays_float32(law):
    single = as_dtype(law, jnp.float32)
    u = states(law).astype(jnp.float32)
    assert single.flux(u).dtype == single.wave_speed(u).dtype == single.clip(u).dtype == jnp.float32


def test_clip_moves_outsiders_to_the_ends_and_keeps_the_derivative_there():
    law = Burgers(0.0, 1.0)
    u = jnp.array([-1.0, 0.0, 0.3, 1.0, 2.0])
    np.testing.assert_array_equal(law.clip(u), [0, 0, 0.3, 1, 1])
    np.testing.assert_array_equal(jax.vmap(jax.grad(law.clip))(u), [0, 1, 1, 1, 0])


@pytest.mark.parametrize("ratio", [0.1, 0.5, 1.0, 3.0])
def test_inflection_of_buckley_leverett_is_where_the_second_derivative_vanishes(ratio):
    law = as_dtype(BuckleyLeverett(ratio), jnp.float64)
    (bend,) = law.inflection_points
    assert 0 < float(bend) < 1
    assert abs(float(jax.grad(jax.grad(law.flux))(bend))) < 1e-9


def test_flux_function_finds_what_burgers_states():
    law = FluxFunction(lambda u: 0.5 * u * u, -1.0, 1.0)
    assert law.curvature == "convex"
    np.testing.assert_allclose(law.stationary, [0.0], atol=1e-12)
    assert law.inflections == ()


def test_flux_function_finds_kinks_of_a_flux_that_is_neither():
    law = FluxFunction(lambda u: jnp.abs(u) - 1.5 * jnp.abs(u - 0.5), -1.0, 1.0)
    assert law.curvature == "neither"
    np.testing.assert_allclose(law.stationary, [0.5], atol=1e-6)  # at 0 the flux only rises faster
    np.testing.assert_allclose(law.inflections, [0.0], atol=1e-6)


def test_parameters_do_not_retrace():
    count = 0

    @eqx.filter_jit
    def flux(law, u):
        nonlocal count
        count += 1
        return law.flux(u)

    for speed in (0.5, 1.0, 2.5):
        flux(LinearAdvection(speed), jnp.ones(3))
    assert count == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Burgers(1.0, -1.0), "need lower < upper"),
        (lambda: BuckleyLeverett(-1.0), "need 0 < mobility_ratio"),
        (lambda: FluxFunction(jnp.sin, 1.0, 0.0), "need lower < upper"),
        (lambda: FluxFunction(jnp.sin, -jnp.inf, 0.0), "must be finite"),
        (lambda: FluxFunction(jnp.log, -1.0, 1.0), "not finite at u = -1"),
    ],
)
def test_bad_parameters_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
