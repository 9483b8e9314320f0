"""Metrics: values by hand, norms' laws, numpy and JAX alike, and refusal of unpaired samples."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv import metrics

U = np.array([[0.0, 1.0, 1.0, 0.5], [0.2, 0.2, 0.2, 0.2]])
V = np.array([[0.0, 0.5, 1.0, 1.0], [0.2, 0.2, 0.6, 0.2]])


def test_values_by_hand():
    assert metrics.l1(U, V) == pytest.approx([0.25, 0.1])
    assert metrics.mean_square(U, V) == pytest.approx([0.125, 0.04])
    assert metrics.relative(U, V) == pytest.approx([(0.5 / 0.5 + 0.5 / 1) / 4, (0.4 / 0.6) / 4])
    assert metrics.linf(U, V) == pytest.approx([0.5, 0.4])
    assert metrics.total_variation(U) == pytest.approx([1.5, 0.0])
    assert metrics.total_variation(U, periodic=True) == pytest.approx([2.0, 0.0])
    assert metrics.mass_defect(U, V, 0.1, np.array([0.0, 0.04])) == pytest.approx([0.0, 0.0])
    assert metrics.bound_violation(U, 0.1, 0.8) == pytest.approx([0.2, 0.0])


def test_the_floor_of_the_relative_error_is_in_units_of_the_state():
    assert metrics.relative(np.array([0.02]), np.array([0.001])) == pytest.approx(0.019 / 0.01)
    assert metrics.relative(np.array([-2.0]), np.array([-1.0])) == pytest.approx(
        1.0
    )  # Burgers states are signed
    assert metrics.relative(np.array([2.0]), np.array([0.0]), floor=4.0) == pytest.approx(0.5)


ERRORS = [metrics.l1, metrics.mean_square, metrics.relative, metrics.linf]


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_batched_vanish_on_equals_and_agree_between_numpy_and_jax(error):
    random = np.random.default_rng(0)
    u, v = random.random((2, 3, 5, 16))
    value = error(u, v)
    assert isinstance(value, np.ndarray) and value.shape == (3, 5) and value.dtype == np.float64
    loop = [[error(u[i, j], v[i, j]) for j in range(5)] for i in range(3)]
    assert value == pytest.approx(np.array(loop), abs=1e-15)
    assert (error(u, u) == 0).all() and (value > 0).all()
    single = jax.jit(error)(jnp.asarray(u, jnp.float32), jnp.asarray(v, jnp.float32))
    assert single.dtype == jnp.float32 and np.asarray(single) == pytest.approx(value, rel=1e-5)
    assert error(2 * u, 2 * v, **({"floor": 0.02} if error is metrics.relative else {})) == pytest.approx(
        value * {metrics.mean_square: 4, metrics.relative: 1}.get(error, 2)
    )


def test_norms_are_ordered():
    random = np.random.default_rng(1)
    u, v = random.random((2, 50, 16))
    l1, square, linf = (m(u, v) for m in (metrics.l1, metrics.mean_square, metrics.linf))
    assert (l1 <= np.sqrt(square) + 1e-15).all() and (np.sqrt(square) <= linf + 1e-15).all()


def test_jax_arrays_give_jax_arrays_for_variation_mass_and_bounds():
    u, v = jnp.asarray(U, jnp.float32), jnp.asarray(V, jnp.float32)
    for ours, theirs in (
        (jax.jit(metrics.total_variation)(u), metrics.total_variation(U)),
        (jax.jit(metrics.mass_defect)(u, v, 0.1, 0.02), metrics.mass_defect(U, V, 0.1, 0.02)),
        (jax.jit(metrics.bound_violation)(u, 0.1, 0.8), metrics.bound_violation(U, 0.1, 0.8)),
    ):
        assert isinstance(ours, jax.Array) and np.asarray(ours) == pytest.approx(theirs, abs=1e-6)


def test_nan_is_never_hidden():
    bad = np.array([0.1, np.nan, 0.3])
    for value in (metrics.l1(bad, bad), metrics.linf(bad, bad), metrics.bound_violation(bad, 0.0, 1.0)):
        assert np.isnan(value)


@pytest.mark.parametrize("order", [0.5, 1.0, 3.0])
def test_observed_order_is_the_exponent(order):
    dx = np.array([0.1, 0.05, 0.02, 0.01])
    errors = np.stack([3.0 * dx**order, 1e-4 * dx**order])
    assert metrics.observed_order(dx, errors) == pytest.approx([order, order], abs=1e-12)
    noisy = errors[0] * np.array([1.01, 0.99, 0.99, 1.01])
    assert metrics.observed_order(dx, noisy) == pytest.approx(order, abs=0.02)


def test_observed_order_refuses_what_has_none():
    with pytest.raises(ValueError, match="two or more"):
        metrics.observed_order([0.1], [0.2])
    with pytest.raises(ValueError, match="positive"):
        metrics.observed_order([0.1, 0.05], [0.2, 0.0])


def test_win_rate_is_paired():
    assert metrics.win_rate([1, 2, 3, 4], [2, 1, 4, 4]) == pytest.approx((1 + 0 + 1 + 0.5) / 4)
    assert metrics.win_rate([np.nan, 1.0], [1.0, np.nan]) == 0.5
    a, b = np.random.default_rng(0).random((2, 101))
    assert metrics.win_rate(a, b) + metrics.win_rate(b, a) == pytest.approx(1.0)
    with pytest.raises(ValueError, match="same samples"):
        metrics.win_rate([1.0], [1.0, 2.0])


def test_cost_counts_every_cell_of_every_step_of_every_sample():
    cost = metrics.Cost(seconds=2.0, cells=200, steps=1000, samples=256)
    assert cost.cell_updates == 51_200_000
    assert cost.cell_updates_per_second == 25_600_000
