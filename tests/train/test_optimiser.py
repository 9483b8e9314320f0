from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.train import Optimiser, Stage


@pytest.mark.parametrize("schedule", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 1, 10])
def test_rate_starts_positive_peaks_after_the_warmup_and_ends_at_its_fraction(schedule, warmup):
    stage = Stage(100, 2.0, schedule, warmup, final=0.25)
    rates = np.asarray(jax.vmap(stage.rate)(jnp.arange(101)))
    assert rates[0] > 0 and np.all(rates > 0)
    assert np.all(np.diff(rates[:warmup]) > 0) and np.all(np.diff(rates[max(warmup, 1) :]) <= 1e-7)
    assert rates[warmup] == pytest.approx(2.0)
    if warmup:
        assert rates[0] == pytest.approx(2.0 / warmup) and rates[warmup - 1] == pytest.approx(2.0)
    assert rates[100] == pytest.approx(2.0 if schedule == "constant" else 0.5)


def test_middle_of_the_shapes():
    assert float(Stage(100, 1.0, "linear").rate(50)) == pytest.approx(0.5)
    assert float(Stage(100, 1.0, "cosine").rate(50)) == pytest.approx(0.5)
    assert float(Stage(100, 1.0, "constant").rate(50)) == pytest.approx(1.0)
    assert float(Stage(100, 1.0, "cosine").rate(25)) == pytest.approx((1 + np.cos(np.pi / 4)) / 2)


def test_stages_follow_one_another():
    optimiser = Optimiser((Stage(10, 1.0, "constant"), Stage(5, 0.5, "constant"), Stage(5, 0.1, "linear")))
    assert optimiser.steps == 20
    assert [optimiser.stage_at(step) for step in (0, 9, 10, 14, 15, 19)] == [0, 0, 1, 1, 2, 2]
    found = [float(optimiser.rate(step)) for step in (0, 9, 10, 14, 15, 16)]
    np.testing.assert_allclose(found, [1, 1, 0.5, 0.5, 0.1, 0.08], rtol=1e-6)


@pytest.mark.parametrize("algorithm", ["adam", "sgd", "lion"])
def test_first_update_moves_against_the_gradient_and_is_not_zero(algorithm):
    transformation: Any = Optimiser((Stage(100, 0.1, warmup=10),), algorithm).build()
    parameters = {"w": jnp.ones((3, 2)), "b": jnp.ones(2)}
    gradient = {"w": jnp.full((3, 2), 1e-2), "b": jnp.full(2, -1e-2)}
    changes, _ = transformation.update(gradient, transformation.init(parameters), parameters)
    assert np.all(np.asarray(changes["w"]) < 0) and np.all(np.asarray(changes["b"]) > 0)


def test_clip_bounds_the_step_and_decay_touches_weights_only():
    zero = {"w": jnp.zeros((2, 2)), "b": jnp.zeros(2)}
    one = jax.tree.map(jnp.ones_like, zero)
    clipped: Any = Optimiser((Stage(10, 1.0, "constant"),), "sgd", clip_norm=0.5, b1=0.0).build()
    changes, _ = clipped.update(jax.tree.map(lambda leaf: 1e3 * leaf, one), clipped.init(zero), zero)
    norm = np.sqrt(sum(np.sum(np.asarray(leaf) ** 2) for leaf in jax.tree.leaves(changes)))
    assert norm == pytest.approx(0.5, rel=1e-5)
    decayed: Any = Optimiser((Stage(10, 1.0, "constant"),), "adam", weight_decay=0.1).build()
    changes, _ = decayed.update(zero, decayed.init(one), one)
    np.testing.assert_allclose(changes["w"], -0.1, rtol=1e-6)
    np.testing.assert_allclose(changes["b"], 0.0)


@pytest.mark.parametrize(
    "make, word",
    [
        (lambda: Stage(steps=0), "steps"),
        (lambda: Stage(learning_rate=0.0), "learning_rate"),
        (lambda: Stage(learning_rate=float("nan")), "learning_rate"),
        (lambda: Stage(steps=5, warmup=6), "warmup"),
        (lambda: Stage(final=2.0), "final"),
        (lambda: Optimiser(()), "stages"),
        (lambda: Optimiser(weight_decay=-1.0), "weight_decay"),
        (lambda: Optimiser(clip_norm=0.0), "clip_norm"),
    ],
)
def test_impossible_values_are_refused(make, word):
    with pytest.raises(ValueError, match=word):
        make()
