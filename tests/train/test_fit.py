import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.train import (
    Checkpoints,
    Optimiser,
    Run,
    Shuffled,
    Stage,
    Training,
    TrainState,
    fit,
    make_mesh,
    replicate,
    shard_batch,
)
from sciml.train.fit import _best

from . import small_run

LINE = Training(Optimiser((Stage(300, 0.1),), clip_norm=None), log_every=50, checkpoint_every=0)


def line_loss(model, batch, key):
    x, y = batch
    return jnp.mean((model["a"] * x + model["b"] - y) ** 2), {}


def line(training=LINE, dtype=jnp.float32):
    model = {"a": jnp.zeros((), dtype), "b": jnp.zeros((), dtype), "name": "line", "table": jnp.arange(3)}
    return TrainState.create(model, training.optimiser.build(), key=jax.random.key(0))


def line_batch(step, dtype=np.float32):
    x = np.random.default_rng(step).uniform(-1, 1, 8).astype(dtype)
    return x, 2 * x - 1


def test_a_line_is_found_and_the_start_is_left_alone(dtype):
    state = line(dtype=dtype)
    fitted = fit(state, line_loss, lambda step: line_batch(step, dtype), LINE)
    assert fitted.reason == "finished" and int(fitted.state.step) == 300
    assert float(fitted.model["a"]) == pytest.approx(2, abs=1e-3) and fitted.model["a"].dtype == dtype
    assert float(fitted.model["b"]) == pytest.approx(-1, abs=1e-3)
    assert float(state.model["a"]) == 0 and int(state.step) == 0  # not donated away
    np.testing.assert_array_equal(fitted.model["table"], np.arange(3))


def test_weights_are_averaged_with_a_start_that_fades():
    training = dataclasses.replace(LINE, average_decay=0.9, log_every=1)
    state = TrainState.create(line().model, training.optimiser.build(), key=jax.random.key(0), average=True)
    weights, want = [], 0.0
    for updates in (1, 2, 3, 20):
        short = dataclasses.replace(
            training, optimiser=Optimiser((Stage(updates, 0.1, "constant"),), clip_norm=None)
        )
        weights.append((updates, fit(state, line_loss, line_batch, short)))
    path = []
    fit(
        state,
        line_loss,
        line_batch,
        dataclasses.replace(short, validate_every=1),
        validate=lambda model: path.append(float(model["a"])) or {"loss": 0.0},
    )
    last = weights[-1][1]
    assert path[-1] == pytest.approx(float(last.state.averaged["a"])) and path[-1] != float(
        last.state.model["a"]
    )
    for step, (_, fitted) in enumerate(weights[:3]):
        keep = min(0.9, (1 + step) / (10 + step))
        want = keep * want + (1 - keep) * float(fitted.state.model["a"])
        assert (
            float(fitted.model["a"]) == pytest.approx(want, rel=1e-5) == pytest.approx(path[step], rel=1e-5)
        )


def test_one_trace_for_all_updates():
    traces = []

    def loss(model, batch, key):
        traces.append(1)
        return line_loss(model, batch, key)

    fit(line(), loss, line_batch, LINE)
    assert len(traces) == 1


def test_only_what_is_trainable_changes():
    trainable = {"a": True, "b": False, "name": False, "table": False}
    state = TrainState.create(
        line().model, LINE.optimiser.build(), trainable=trainable, key=jax.random.key(0)
    )
    fitted = fit(state, line_loss, line_batch, LINE, trainable=trainable)
    assert float(fitted.model["b"]) == 0 and float(fitted.model["a"]) != 0


def test_records_hold_metrics_stage_and_rate(tmp_path):
    seen = []
    fitted = small_run.train(tmp_path / "a", log=seen.append)
    lines = Run.create(tmp_path / "a", "", resume=True).logged()
    assert lines == [dict(record) for record in seen]
    assert [record["stage"] for record in lines] == [0] * 20 + [1] * 20
    assert all(record["learning_rate"] > 0 and record["largest"] > 0 for record in lines)
    assert lines[-1]["loss"] < lines[0]["loss"] / 5
    assert "validation/loss" in lines[4] and "validation/loss" not in lines[3]
    best = min(record["validation/loss"] for record in lines if "validation/loss" in record)
    assert float(small_run.validate(fitted.model)["loss"]) == pytest.approx(best, rel=1e-5)


def test_a_finished_run_is_not_trained_again(tmp_path):
    first = small_run.train(tmp_path / "a")
    again = small_run.train(tmp_path / "a", log=lambda record: pytest.fail("trained again"))
    assert bool(eqx.tree_equal(first.state, again.state)) and bool(eqx.tree_equal(first.model, again.model))


def test_early_stop_keeps_the_best_model_and_survives_a_resume(tmp_path):
    training = dataclasses.replace(LINE, validate_every=50, patience=2)
    values = iter([3.0, 1.0, 2.0, 1.5, 0.5, 0.1])
    models = []

    def validate(model):
        models.append(float(model["a"]))
        return {"loss": next(values)}

    with Run.create(tmp_path / "a", "") as run:
        fitted = fit(line(), line_loss, line_batch, training, run=run, validate=validate)
    assert fitted.reason == "early stop" and int(fitted.state.step) == 200
    assert float(fitted.model["a"]) == models[1]
    with Run.create(tmp_path / "a", "", resume=True) as run:
        again = fit(line(), line_loss, line_batch, training, run=run, validate=validate)
    assert again.reason == "early stop" and float(again.model["a"]) == models[1] and len(models) == 4


def test_an_update_that_is_not_finite_is_not_applied(tmp_path):
    def batches(step):
        x, y = line_batch(step)
        return (x, np.where(step == 123, np.nan, y).astype(np.float32))

    run = Run.create(tmp_path / "a", "")
    with pytest.raises(FloatingPointError, match="not finite at update 123") as error:
        fit(line(), line_loss, batches, LINE, run=run)
    assert "failed_batch.npz" in str(error.value) and "learning rate" in str(error.value)
    with np.load(run.path / "failed_batch.npz") as saved:
        np.testing.assert_array_equal(saved["[0]"], batches(123)[0])
        assert np.all(np.isnan(saved["[1]"]))
    with Run.create(tmp_path / "b", "") as other:
        every = dataclasses.replace(LINE, log_every=1, checkpoint_every=41, keep=10)
        fit(line(), line_loss, line_batch, every, run=other)
    with Checkpoints(run.checkpoints) as failed, Checkpoints(other.checkpoints, keep=10) as whole:
        assert failed.latest() == 123  # the last good state is that of a run in which nothing went wrong
        like = (line(), _best(None, 0.0, 0, 0))
        assert bool(eqx.tree_equal(failed.restore(like), whole.restore(like, 123)))
    with pytest.raises(FloatingPointError, match="update 123"):  # without a run, nothing is written
        fit(line(), line_loss, batches, LINE)


def test_sharded_is_unsharded(tmp_path):
    mesh = make_mesh()
    assert mesh.size == 4
    alone = small_run.train(tmp_path / "one")
    spread = small_run.train(tmp_path / "four", mesh=mesh)
    assert len(jax.tree.leaves(spread.state.opt_state)[0].devices()) == 4
    weights = [jax.tree.leaves(eqx.filter(each.model, eqx.is_array)) for each in (alone, spread)]
    for a, b in zip(*weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4)


def test_placing_on_a_mesh():
    mesh = make_mesh()
    tree = replicate({"x": jnp.ones(3), "text": "static"}, mesh)
    assert tree["text"] == "static" and len(tree["x"].devices()) == 4
    batch = shard_batch({"x": np.arange(8.0)}, mesh)
    assert [shard.data.shape for shard in batch["x"].addressable_shards] == [(2,)] * 4
    np.testing.assert_array_equal(batch["x"], np.arange(8.0))
    with pytest.raises(ValueError, match="multiple of 4"):
        shard_batch(np.arange(6.0), mesh)


def test_batches_cover_the_data_once_per_epoch_in_a_new_order():
    batches = Shuffled({"x": np.arange(10), "y": -np.arange(10)}, 3, seed=7)
    assert batches.steps_per_epoch == 3
    epochs = [np.concatenate([batches(3 * epoch + step)["x"] for step in range(3)]) for epoch in range(3)]
    assert all(len(set(epoch)) == 9 for epoch in epochs) and len({tuple(epoch) for epoch in epochs}) == 3
    again = Shuffled({"x": np.arange(10), "y": -np.arange(10)}, 3, seed=7)
    np.testing.assert_array_equal(again(7)["x"], batches(7)["x"])  # out of order, the same
    np.testing.assert_array_equal(batches(7)["y"], -batches(7)["x"])
    with pytest.raises(ValueError, match="11 cannot be drawn from 10"):
        Shuffled(np.arange(10), 11)
    with pytest.raises(ValueError, match="different numbers"):
        Shuffled((np.arange(10), np.arange(9)), 2)


@pytest.mark.parametrize(
    "values, word",
    [
        ({"log_every": 0}, "log_every"),
        ({"log_every": 7, "checkpoint_every": 10}, "checkpoint_every is 10; it must be a multiple"),
        ({"log_every": 10, "validate_every": 15}, "validate_every"),
        ({"patience": 3}, "set validate_every"),
    ],
)
def test_intervals_must_fit(values, word):
    with pytest.raises(ValueError, match=word):
        Training(**values)


def test_monitor_must_be_among_the_validation_metrics():
    training = dataclasses.replace(LINE, validate_every=50, monitor="l1")
    with pytest.raises(ValueError, match="monitor is 'l1'; the validation gives mse"):
        fit(line(), line_loss, line_batch, training, validate=lambda model: {"mse": 1.0})
    with pytest.raises(ValueError, match="no validate function"):
        fit(line(), line_loss, line_batch, training)
