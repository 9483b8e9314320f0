"""`fit`: stages of updates on batches, with metrics, validation, early stopping, checkpoints, exact resume.

What makes a resumed run bit-identical: a batch is a function of the update number, the key of an update is
derived from its number, and a checkpoint holds all else that changes. An update whose loss or gradient is not
finite is not applied: training stops there with the last good state.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh
from jaxtyping import PyTree

from sciml.train.checkpoint import Checkpoints
from sciml.train.mesh import replicate, shard_batch
from sciml.train.optimiser import Optimiser
from sciml.train.progress import progress_bar
from sciml.train.run import Run
from sciml.train.state import TrainState
from sciml.typing import documented

Loss = Callable[[Any, Any, Any], tuple[Any, dict[str, Any]]]


@dataclass(frozen=True)
class Training:
    """How a model is trained.

    **Raises:** `ValueError` for intervals that do not fit together.
    """

    optimiser: Optimiser = documented("stages and optimiser", Optimiser())
    log_every: int = documented("updates between two lines of metrics", 100)
    validate_every: int = documented("updates between two validations; 0: none", 0)
    monitor: str = documented("validation metric that should fall", "loss")
    patience: int = documented("validations without a better value before stopping; 0: never stop", 0)
    checkpoint_every: int = documented("updates between two checkpoints; 0: only the last state", 1000)
    keep: int = documented("number of checkpoints kept", 2)
    seed: int = documented("of weights, keys and the order of batches", 0)
    average_decay: float = documented(
        "share of the average of weights that an update keeps, if the state has one; it is what is validated",
        0.99,
    )

    def __post_init__(self) -> None:
        if self.log_every < 1:
            raise ValueError(f"log_every is {self.log_every}; it must be at least 1")
        for name in ("validate_every", "checkpoint_every"):
            every = getattr(self, name)
            if every < 0 or every % self.log_every:
                raise ValueError(
                    f"{name} is {every}; it must be a multiple of log_every = {self.log_every}, or 0"
                )
        if not 0 <= self.average_decay < 1:
            raise ValueError(f"average_decay is {self.average_decay}; give a share from 0 to below 1")
        if self.patience and not self.validate_every:
            raise ValueError("patience needs validations; set validate_every")


class Fitted(NamedTuple):
    """The last state, the model with the best validation (else the last), averaged if the state holds an
    average, and why training ended."""

    state: TrainState
    model: Any
    reason: Literal["finished", "early stop"]


class _Best(eqx.Module):
    """The best validation so far; it is part of the checkpoint."""

    model: PyTree
    value: Any
    step: Any
    stale: Any  # validations since then


def fit(
    state: TrainState,
    loss: Loss,
    batches: Callable[[int], Any],
    training: Training,
    *,
    run: Run | None = None,
    validate: Callable[[Any], dict[str, Any]] | None = None,
    trainable: PyTree | Callable[[Any], bool] = eqx.is_inexact_array,
    mesh: Mesh | None = None,
    log: Callable[[dict[str, Any]], None] | None = None,
) -> Fitted:
    """Trains a model.

    **Arguments:**

    - `state`: made by `TrainState.create(model, training.optimiser.build(), key=key)`; it is not changed.
    - `loss`: `loss(model, batch, key) -> (scalar, metrics)`; metrics are scalars by name.
    - `batches`: the batch of an update number; it must not depend on anything else.
    - `training`: stages, intervals, patience.
    - `run`: folder for metrics and checkpoints; a resumed run goes on from its newest checkpoint.
    - `validate`: `validate(model) -> metrics`, called every `training.validate_every` updates.
    - `trainable`: the same as for `TrainState.create`.
    - `mesh`: spread every batch over its devices.
    - `log`: called with every record that goes to `metrics.jsonl`.

    **Raises:** `FloatingPointError` when a loss or gradient is not finite; the run holds the state before
    it as a checkpoint and the batch as `failed_batch.npz`.
    """
    if training.validate_every and validate is None:
        raise ValueError("validate_every is set but there is no validate function")
    update = _make_update(loss, training, trainable)
    best = _best(None if validate is None else state.averaged, np.inf, 0, 0)
    place = (lambda tree: tree) if mesh is None else lambda tree: replicate(tree, mesh)
    state = place(jax.tree.map(lambda leaf: jnp.copy(leaf) if eqx.is_array(leaf) else leaf, state))
    total = training.optimiser.steps
    with ExitStack() as stack:
        checkpoints = None
        if run is not None:
            checkpoints = stack.enter_context(Checkpoints(run.checkpoints, keep=training.keep))
            if run.resumed:
                if checkpoints.latest() is not None:
                    state, best = checkpoints.restore((state, best))
                run.forget_after(int(state.step))
        bar = stack.enter_context(progress_bar(total))
        step, reason = int(state.step), "finished"
        failed = place(jnp.asarray(-1, jnp.int32))
        losses: list[Any] = []
        started, first = time.perf_counter(), step
        while step < total:
            if training.patience and int(best.stale) >= training.patience:
                reason = "early stop"
                break
            batch = batches(step) if mesh is None else shard_batch(batches(step), mesh)
            state, failed, metrics = update(batch, state, failed)
            losses.append(metrics["loss"])
            step += 1
            if step % training.log_every and step < total:
                continue
            if int(failed) >= 0:
                _give_up(int(failed), batches, state, best, run, checkpoints)
            record = {
                "step": step,
                "stage": training.optimiser.stage_at(step - 1),
                **{name: float(value) for name, value in metrics.items()},
                "loss": float(np.mean(jax.device_get(losses))),
                "updates_per_second": round((step - first) / (time.perf_counter() - started), 3),
            }
            losses = []
            if validate is not None and training.validate_every and step % training.validate_every == 0:
                found = {name: float(value) for name, value in validate(state.averaged).items()}
                record |= {f"validation/{name}": value for name, value in found.items()}
                best = _better(best, state, found, training.monitor)
            for sink in (log, run and run.log):
                if sink:
                    sink(record)
            bar(step, record)
            due = training.checkpoint_every and step % training.checkpoint_every == 0
            if checkpoints is not None and (due or step == total):
                checkpoints.save(step, (state, best))
        if checkpoints is not None and reason == "early stop":
            checkpoints.save(step, (state, best))
    validated = np.isfinite(float(best.value))
    return Fitted(state, best.model if validated else state.averaged, reason)  # pyright: ignore[reportArgumentType]


def _make_update(loss: Loss, training: Training, trainable: Any) -> Callable[..., Any]:
    optimiser = training.optimiser
    transformation = optimiser.build()

    @eqx.filter_jit(donate="all-except-first")
    def update(batch: Any, state: TrainState, failed: Any) -> tuple[TrainState, Any, dict[str, Any]]:
        parameters, rest = eqx.partition(state.model, trainable)

        def objective(parameters: Any) -> tuple[Any, dict[str, Any]]:
            return loss(eqx.combine(parameters, rest), batch, state.key)

        (value, metrics), gradient = eqx.filter_value_and_grad(objective, has_aux=True)(parameters)
        norm = optax.tree.norm(gradient)
        changes, opt_state = transformation.update(gradient, state.opt_state, parameters)
        parameters = eqx.apply_updates(parameters, changes)
        model = eqx.combine(parameters, rest)
        average = state.average
        if average is not None:  # the first weights fade faster
            keep = jnp.minimum(training.average_decay, (1 + state.step) / (10 + state.step))
            average = jax.tree.map(
                lambda old, new: (keep * old + (1 - keep) * new).astype(new.dtype), average, parameters
            )
        rate = optimiser.rate(state.step)
        changed = TrainState(model, opt_state, state.step + 1, state.key_data, average)
        finite = jnp.isfinite(value) & jnp.isfinite(norm)
        failed = jnp.where((failed < 0) & ~finite, state.step, failed)
        good = failed < 0
        state = jax.tree.map(
            lambda new, old: jnp.where(good, new, old) if eqx.is_array(new) else new, changed, state
        )
        return state, failed, {**metrics, "loss": value, "gradient_norm": norm, "learning_rate": rate}

    return update


def _better(best: _Best, state: TrainState, found: dict[str, float], monitor: str) -> _Best:
    if monitor not in found:
        raise ValueError(f"monitor is {monitor!r}; the validation gives {', '.join(found)}")
    if found[monitor] < float(best.value):
        model = jax.tree.map(lambda leaf: jnp.copy(leaf) if eqx.is_array(leaf) else leaf, state.averaged)
        return _best(model, found[monitor], int(state.step), 0)
    return _Best(best.model, best.value, best.step, best.stale + 1)


def _best(model: Any, value: float, step: int, stale: int) -> _Best:
    """The numbers are arrays, since only arrays are kept in a checkpoint."""
    return _Best(
        model, jnp.asarray(value, float), jnp.asarray(step, jnp.int32), jnp.asarray(stale, jnp.int32)
    )


def _give_up(
    failed: int,
    batches: Any,
    state: TrainState,
    best: _Best,
    run: Run | None,
    checkpoints: Checkpoints | None,
) -> None:
    message = f"the loss or its gradient is not finite at update {failed}"
    if run is not None and checkpoints is not None:
        from sciml.files import replacing

        checkpoints.save(failed, (state, best))
        checkpoints.wait()
        leaves = jax.tree_util.tree_leaves_with_path(batches(failed))
        named = {jax.tree_util.keystr(path) or "batch": np.asarray(leaf) for path, leaf in leaves}
        with replacing(run.path / "failed_batch.npz") as temporary, open(temporary, "wb") as file:
            np.savez(file, **named)  # pyright: ignore[reportArgumentType]
        message += (
            f"; the state before it is in {run.checkpoints}, its batch in {run.path / 'failed_batch.npz'}"
        )
    raise FloatingPointError(message + "; lower the learning rate or the clip norm")
