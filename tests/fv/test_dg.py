# pyright: reportCallIssue=false, reportArgumentType=false
"""Discontinuous Galerkin: projection, tendency against quadrature, limiters, refused options."""

import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv.boundary import Outflow, Periodic
from sciml.fv.dg import DiscontinuousGalerkin
from sciml.fv.fundamental_diagram import Greenshields
from sciml.fv.grid import UniformGrid
from sciml.fv.law import Burgers, as_dtype

pytestmark = pytest.mark.usefixtures("x64")
GRID = UniformGrid(8, -1.0, 1.0)
RANDOM = np.random.default_rng(0)


@pytest.fixture
def law():
    return as_dtype(Burgers(-1.0, 1.0), jnp.float64)


@pytest.mark.parametrize("degree", [1, 2])
def test_projection_is_exact_for_its_own_polynomials(law, degree):
    scheme = DiscontinuousGalerkin(law, GRID, Periodic(), degree=degree)
    state = scheme.project(lambda x: 0.3 - 0.4 * x**degree)
    nodes = np.array([-1.0, -0.2, 0.7, 1.0])
    x = GRID.centres[:, None] + 0.5 * GRID.dx * nodes
    np.testing.assert_allclose(
        np.polynomial.legendre.legval(nodes, state.T), 0.3 - 0.4 * x**degree, atol=1e-14
    )
    np.testing.assert_allclose(
        scheme.averages(state), GRID.cell_average(lambda x: 0.3 - 0.4 * x**degree), atol=1e-14
    )


@pytest.mark.parametrize("degree", [1, 2])
def test_tendency_is_the_weak_form(law, degree):
    scheme = DiscontinuousGalerkin(law, GRID, Periodic(), degree=degree)
    state = 0.2 * RANDOM.normal(size=(8, degree + 1))
    rate, total = scheme.tendency(jnp.zeros(()), jnp.asarray(state), None)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    left, right = (np.polynomial.legendre.legval(x, state.T) for x in (-1.0, 1.0))
    a, b = np.roll(right, 1), left  # states at the left face of every cell
    f = lambda u: 0.5 * u * u  # noqa: E731
    flux = np.maximum(f(np.maximum(a, 0)), f(np.minimum(b, 0)))
    for k in range(degree + 1):
        slope = np.polynomial.legendre.Legendre.basis(k).deriv()(nodes)
        volume = f(np.polynomial.legendre.legval(nodes, state.T)) @ (weights * slope)
        want = (2 * k + 1) / GRID.dx * (volume - np.roll(flux, -1) + (-1) ** k * flux)
        np.testing.assert_allclose(rate[:, k], want, atol=1e-13)
    assert abs(float(total)) < 1e-15


@pytest.mark.parametrize("degree", [1, 2])
@pytest.mark.parametrize("limiter", ["bounds", "moment"])
def test_limited_polynomials_are_admissible_and_keep_their_mean(degree, limiter):
    scheme = DiscontinuousGalerkin(Greenshields(), GRID, Outflow(), degree=degree, limiter=limiter)
    state = RANDOM.uniform(-1, 1, (8, degree + 1))
    state[:, 0] = np.abs(state[:, 0])
    state[0, 0], state[1, 0] = 0.0, 1.0
    limited = np.asarray(scheme.limit(jnp.asarray(state)))
    np.testing.assert_array_equal(limited[:, 0], state[:, 0])
    for x in (-1.0, 0.0, 1.0):
        values = np.polynomial.legendre.legval(x, limited.T)
        assert (values >= -1e-12).all() and (values <= 1 + 1e-12).all()


def test_limiters_leave_smooth_data_alone():
    for limiter in ("bounds", "moment"):
        grid = UniformGrid(40)
        scheme = DiscontinuousGalerkin(Greenshields(), grid, Periodic(), degree=2, limiter=limiter)
        state = scheme.project(lambda x: 0.5 + 0.2 * np.sin(2 * np.pi * x))
        np.testing.assert_allclose(
            scheme.limit(jnp.asarray(state)), state, atol=1e-4
        )  # the parabola is small where it bends over


def test_a_trend_is_kept_up_to_the_ends():
    scheme = DiscontinuousGalerkin(Greenshields(), GRID, Outflow(), degree=2, limiter="moment")
    state = scheme.project(lambda x: 0.5 + 0.3 * x)
    np.testing.assert_allclose(scheme.limit(jnp.asarray(state)), state, atol=1e-14)


def test_start_from_averages_recovers_a_parabola():
    scheme = DiscontinuousGalerkin(Greenshields(), GRID, Outflow(), degree=2)
    parabola = lambda x: 0.5 + 0.1 * (x + 3) ** 2 / 16  # noqa: E731
    start = scheme.start(jnp.asarray(GRID.cell_average(parabola)))
    np.testing.assert_allclose(start[1:-1], scheme.project(parabola)[1:-1], atol=1e-12)


def test_unknown_options_are_refused():
    with pytest.raises(ValueError, match="degree is 3: choose 1 or 2"):
        DiscontinuousGalerkin(Burgers(), GRID, Periodic(), degree=3)
    with pytest.raises(ValueError, match='limiter is .tvb.: choose "bounds" or "moment"'):
        DiscontinuousGalerkin(Burgers(), GRID, Periodic(), limiter="tvb")
