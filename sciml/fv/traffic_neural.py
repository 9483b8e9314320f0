"""Neural fluxes learned from one measured day, in the place of a calibrated fundamental diagram.

No diagram is assumed: the network maps densities around a face, at one or more time steps, to the flow
through it, and is trained so that open-loop simulations from random frames of the training day stay close to
the measurement. The last part of that day is kept for validation and chooses among the weights; no other day
is seen. Simulation, edges and scores are those of every other model.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sciml.fv.catalogue import SchemeEntry
from sciml.fv.fundamental_diagram import AbstractFundamentalDiagram
from sciml.fv.integrate import ForwardEuler
from sciml.fv.neural_flux import Activation, NeuralFlux
from sciml.fv.traffic import Day, residual, simulate_day


def _doc(default: Any, doc: str) -> Any:
    return dataclasses.field(default=default, metadata={"doc": doc})


@dataclasses.dataclass(frozen=True)
class DayStage:
    """One stage of training on simulations of a given length."""

    frames: int = _doc(30, "frames of a simulation")
    updates: int = _doc(1000, "number of updates")
    learning_rate: float = _doc(1e-3, "peak learning rate")
    batch: int = _doc(16, "simulations per update")

    def __post_init__(self):
        for name in ("frames", "updates", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: give at least 1")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate is {self.learning_rate}: give a positive number")


@dataclasses.dataclass(frozen=True)
class NeuralModel:
    """A neural flux for a measured highway and its training."""

    name: str = _doc("nfv-10x11", "name in tables and files")
    stencil: int = _doc(10, "cells seen by a face, an even number")
    levels: int = _doc(11, "time steps seen by a face")
    width: int = _doc(16, "hidden channels")
    depth: int = _doc(6, "hidden layers")
    activation: Activation = _doc("elu", "elu, relu or tanh")
    steps_per_frame: int = _doc(1, "time steps between two frames")
    interval: tuple[float, float] = _doc((0.0, 140.0), "densities mapped to [-1, 1] [veh/km/lane]")
    stages: tuple[DayStage, ...] = _doc(
        (DayStage(10, 1000, 2e-3), DayStage(40, 1500, 1e-3), DayStage(120, 600, 5e-4, 8)), "stages"
    )
    validation: float = _doc(0.2, "share of the training day kept for validation, at its end")
    weight_decay: float = _doc(1e-4, "decoupled decay of weights")
    seed: int = _doc(0, "of weights and simulations")

    def __post_init__(self):
        if not self.stages:
            raise ValueError("stages is empty: give at least one stage")
        if not 0 < self.validation < 0.9:
            raise ValueError(f"validation is {self.validation}: give a share between 0 and 0.9")
        if self.steps_per_frame < 1:
            raise ValueError(f"steps_per_frame is {self.steps_per_frame}: give at least 1")

    def entry(self, flux: NeuralFlux) -> SchemeEntry:
        """The flux as a scheme of the traffic simulation."""
        return SchemeEntry(self.name, lambda: flux, ForwardEuler(), 1, False)


def _part(day: Day, start, frames: int) -> Day:
    """`frames` + 1 frames of a day from a frame on."""

    def cut(x):
        return jax.lax.dynamic_slice_in_dim(x, start, frames + 1)

    scored = cut(day.scored).at[0].set(False)
    return eqx.tree_at(lambda d: (d.density, d.scored), day, (cut(day.density), scored))


def train_on_day(
    model: NeuralModel,
    day: Day,
    diagram: AbstractFundamentalDiagram,
    *,
    log: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[NeuralFlux, dict[str, Any]]:
    """Trains a flux on one measured day.

    Args:
        model: network and stages.
        day: the training day.
        diagram: a diagram calibrated on the same day; it only sets the unit of flow and bounds the speed of
            waves, and is no part of the flux.
        log: called with every line of metrics.

    Returns:
        The flux with the smallest error on the validation part, and numbers about the training.
    """
    from sciml.train.fit import Training, fit
    from sciml.train.optimiser import Optimiser, Stage
    from sciml.train.state import TrainState

    frames = day.density.shape[0] - 1
    last = int((1 - model.validation) * frames)
    longest = max(stage.frames for stage in model.stages)
    if longest >= last:
        raise ValueError(
            f"{model.name}: a stage of {longest} frames is longer than the {last} frames to train on"
        )
    weights_key, train_key = jax.random.split(jax.random.key(model.seed))
    flux = NeuralFlux(
        model.stencil,
        model.levels,
        model.width,
        model.depth,
        model.activation,
        law=diagram,
        interval=model.interval,
        key=weights_key,
    )
    training = Training(
        optimiser=Optimiser(
            tuple(
                Stage(s.updates, s.learning_rate, "cosine", warmup=min(50, s.updates // 10), final=0.1)
                for s in model.stages
            ),
            weight_decay=model.weight_decay,
        ),
        log_every=50,
        validate_every=50,
        monitor="mse",
        checkpoint_every=0,
        seed=model.seed,
    )

    def run(flux, part: Day):
        found, _ = simulate_day(diagram, part, model.entry(flux), model.steps_per_frame)
        return jnp.sum(residual(found, part) ** 2) / jnp.maximum(jnp.sum(part.scored), 1)

    def loss(flux, batch, key):
        starts, length = batch
        error = jax.lax.map(lambda s: run(flux, _part(day, s, length.shape[0])), starts, batch_size=16)
        return jnp.mean(error), {}

    ends = np.cumsum([stage.updates for stage in model.stages])

    def batches(update: int):
        stage = model.stages[int(np.searchsorted(ends, update, side="right"))]
        rng = np.random.default_rng([model.seed, update])
        starts = rng.integers(0, last - stage.frames + 1, stage.batch)
        return starts.astype(np.int32), np.zeros(stage.frames, np.int8)  # the length is part of the shape

    validate = eqx.filter_jit(functools.partial(run, part=_part(day, last, frames - last)))
    trainable = eqx.tree_at(
        lambda f: (f.weights, f.biases),
        jax.tree.map(lambda _: False, flux),
        jax.tree.map(lambda _: True, (flux.weights, flux.biases)),
    )
    state = TrainState.create(flux, training.optimiser.build(), trainable=trainable, key=train_key)
    fitted = fit(
        state,
        loss,
        batches,
        training,
        validate=lambda flux: {"mse": validate(flux)},
        trainable=trainable,
        log=log,
    )
    return fitted.model, {
        "parameters": flux.parameters,
        "steps_per_frame": model.steps_per_frame,
        "updates": training.optimiser.steps,
        "validation_mse": float(validate(fitted.model)),
    }
