"""Slope limiters: symmetric, homogeneous, second order, within Sweby's region, finite derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv.limiter import LIMITERS

PAIRS = np.random.default_rng(0).normal(size=(2, 500)).astype(np.float32)


@pytest.fixture(params=LIMITERS)
def limiter(request):
    return LIMITERS[request.param]


def test_symmetric_homogeneous_and_zero_at_extrema(limiter):
    a, b = PAIRS
    slope = np.asarray(limiter(a, b))
    np.testing.assert_allclose(slope, limiter(b, a), rtol=1e-6)
    np.testing.assert_allclose(-3 * slope, limiter(-3 * a, -3 * b), rtol=1e-5)
    assert (slope[a * b <= 0] == 0).all()


def test_within_the_region_that_diminishes_total_variation(limiter):
    a, b = PAIRS
    slope = np.asarray(limiter(a, b))
    assert (np.abs(slope) <= 2 * np.minimum(np.abs(a), np.abs(b)) * (1 + 1e-6)).all()
    assert (slope * a >= 0).all()
    between = slope[a * b > 0] * np.sign(a[a * b > 0])
    assert (between >= np.minimum(np.abs(a), np.abs(b))[a * b > 0] * (1 - 1e-6)).all()  # never below minmod


def test_equal_differences_are_kept(limiter):
    np.testing.assert_allclose(limiter(jnp.float32(0.7), jnp.float32(0.7)), 0.7, rtol=1e-6)


def test_derivatives_are_finite_everywhere(limiter):
    special = np.array([0.0, 1e-30, -1e-30, 1e-6, 1.0, -1.0, 1e10], np.float32)
    a, b = (jnp.asarray(x.ravel()) for x in np.meshgrid(special, special))
    for argument in (0, 1):
        assert np.isfinite(jax.vmap(jax.grad(limiter, argument))(a, b)).all()
