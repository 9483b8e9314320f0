"""Neural fluxes learned from one measured day, in the place of a calibrated fundamental diagram.

The network maps densities around a face, at one or more time steps, to the flow through it, and is trained so
that open-loop simulations from random frames of the training day stay close to the measurement. It may first
imitate the diagram that was calibrated on that day, on its simulations of the day and of thinner traffic, so
that it knows free flow which one congested day hardly shows. The last part of the day is kept for validation
and chooses among the weights; no other day is seen. Simulation, edges and scores are those of every other
model.
"""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from sciml.fv.catalogue import SCHEMES, SchemeEntry
from sciml.fv.fundamental_diagram import AbstractFundamentalDiagram
from sciml.fv.neural_flux import Activation, NeuralFlux
from sciml.fv.neural_training import stage_at
from sciml.fv.runge_kutta import ForwardEuler
from sciml.fv.traffic import Day, residual, simulate_day, substeps
from sciml.typing import Scalar, documented


@dataclasses.dataclass(frozen=True)
class DayStage:
    """One stage of training on simulations of a given length."""

    frames: int = documented("frames of a simulation", 30)
    updates: int = documented("number of updates", 1000)
    learning_rate: float = documented("peak learning rate", 1e-3)
    batch: int = documented("simulations per update", 16)

    def __post_init__(self):
        for name in ("frames", "updates", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: give at least 1")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate is {self.learning_rate}: give a positive number")


@dataclasses.dataclass(frozen=True)
class NeuralModel:
    """A neural flux for a measured highway and its training."""

    name: str = documented("name in tables and files", "nfv-10x11")
    stencil: int = documented("cells seen by a face, an even number", 10)
    levels: int = documented("time steps seen by a face", 11)
    width: int = documented("hidden channels", 16)
    depth: int = documented("hidden layers", 6)
    activation: Activation = documented("elu, relu or tanh", "elu")
    steps_per_frame: int = documented("time steps between two frames", 1)
    interval: tuple[float, float] = documented("densities mapped to [-1, 1] [veh/km/lane]", (0.0, 140.0))
    stages: tuple[DayStage, ...] = documented(
        "stages", (DayStage(10, 1000, 2e-3), DayStage(40, 1500, 1e-3), DayStage(120, 600, 5e-4, 8))
    )
    imitation: tuple[DayStage, ...] = documented(
        "stages before, on simulations by the calibrated diagram", ()
    )
    scales: tuple[float, ...] = documented(
        "the edges and starts of those simulations are the measured ones times these", (0.25, 0.5, 0.75, 1.0)
    )
    share: float = documented("share of such simulations in the later batches, if there are any", 0.5)
    clamps: bool = documented(
        "move fluxes and densities into their ranges, as published; breaks conservation", True
    )
    validation: float = documented("share of the training day kept for validation, at its end", 0.2)
    weight_decay: float = documented("decoupled decay of weights", 1e-4)
    seed: int = documented("of weights and simulations", 0)

    def __post_init__(self):
        if not self.stages:
            raise ValueError("stages is empty: give at least one stage")
        if not 0 <= self.share < 1:
            raise ValueError(f"share is {self.share}: give a share from 0 to below 1")
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


def new_flux(model: NeuralModel, diagram: AbstractFundamentalDiagram, key: Array) -> NeuralFlux:
    """An untrained flux; the diagram sets the unit of flow and is no part of it."""
    return NeuralFlux(
        model.stencil,
        model.levels,
        model.width,
        model.depth,
        model.activation,
        law=diagram,
        interval=model.interval,
        flux_clamp=model.clamps,
        state_clamp=model.clamps,
        key=key,
    )


class DayObjective:
    """Loss, batches and validation of a neural flux on one measured day.

    Args:
        model: network and stages.
        day: the training day.
        diagram: a diagram calibrated on the same day, to bound the speed of waves.

    Raises:
        ValueError: when a stage is longer than the training part of the day.
    """

    def __init__(self, model: NeuralModel, day: Day, diagram: AbstractFundamentalDiagram):
        frames = day.density.shape[0] - 1
        self.model, self.day, self.diagram = model, day, diagram
        self.stages = model.imitation + model.stages
        densities = [day.density]
        if model.imitation:
            godunov = SCHEMES["godunov"]
            fastest = float(diagram.max_wave_speed(diagram.lower, diagram.upper))
            steps = substeps(day, fastest, godunov, diagram)
            for scale in model.scales:
                thin = eqx.tree_at(lambda d: d.density, day, scale * day.density)
                densities.append(eqx.filter_jit(simulate_day)(diagram, thin, godunov, steps)[0])
        self.densities = jnp.stack(densities)
        self.last = int((1 - model.validation) * frames)
        longest = max(stage.frames for stage in self.stages)
        if longest >= self.last:
            raise ValueError(
                f"{model.name}: a stage of {longest} frames is longer than the {self.last} frames to train on"
            )
        held_out = _part(day, self.last, frames - self.last)
        self._validate = eqx.filter_jit(lambda flux: self.error(flux, held_out))

    def error(self, flux: NeuralFlux, part: Day) -> Scalar:
        """Mean square error of an open-loop simulation of some frames, over what is scored."""
        found, _ = simulate_day(self.diagram, part, self.model.entry(flux), self.model.steps_per_frame)
        return jnp.sum(residual(found, part) ** 2) / jnp.maximum(jnp.sum(part.scored), 1)

    def loss(self, flux: NeuralFlux, batch, key):
        """For `sciml.train.fit`; a batch is days, first frames and an array as long as the simulations."""
        days, starts, length = batch

        def one(of):
            day = eqx.tree_at(lambda d: d.density, self.day, self.densities[of[0]])
            return self.error(flux, _part(day, of[1], length.shape[0]))

        return jnp.mean(jax.lax.map(one, (days, starts), batch_size=16)), {}

    def batch(self, update: int):
        """The batch of an update number; day 0 is the measured one."""
        number = stage_at([each.updates for each in self.stages], update)
        stage = self.stages[number]
        rng = np.random.default_rng([self.model.seed, update])
        starts = rng.integers(0, self.last - stage.frames + 1, stage.batch)
        days = np.zeros(stage.batch, np.int32)
        if self.model.imitation:
            first = number < len(self.model.imitation)
            simulated = stage.batch if first else round(self.model.share * stage.batch)
            days[:simulated] = rng.integers(1, len(self.densities), simulated)
        return days, starts.astype(np.int32), np.zeros(stage.frames, np.int8)

    def validate(self, flux: NeuralFlux) -> dict[str, Scalar]:
        """Error on the part of the day that is not trained on."""
        return {"mse": self._validate(flux)}
