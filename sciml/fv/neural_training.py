"""Training of neural fluxes: supervised on exact cell averages, or unsupervised on the weak form.

A stage fixes the length of the rollouts, the number of cells around the initial jump and Δt/Δx; stages go
from short to long rollouts. Every update rolls a batch of random states out through the scheme itself and
takes

- supervised: the mean square of cell averages against the exact entropy solution (Lax-Hopf), or
- weak form: the mean square of the weak residual of the rollout, plus the entropy residual times its weight;
  no solution enters, only initial states and the law.

Everything random follows from the seed and the number of the update, so a training resumes bit for bit.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sciml.fv.boundary import AbstractBoundary, Outflow, Prescribed
from sciml.fv.finite_volume import FiniteVolume
from sciml.fv.grid import UniformGrid
from sciml.fv.initial import random_piecewise_constant
from sciml.fv.law import AbstractLaw
from sciml.fv.lax_hopf import lax_hopf_cell_averages
from sciml.fv.neural_flux import Activation, NeuralFlux
from sciml.fv.problem import LAW_CONFIGS, LawConfig
from sciml.fv.runge_kutta import ForwardEuler
from sciml.fv.weak_form import (
    TestFunctions,
    bumps,
    entropy_residual,
    random_polynomials,
    time_windows,
    weak_residual,
)
from sciml.typing import ScalarLike, documented


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Sizes of a `NeuralFlux`."""

    stencil: int = documented("cells seen by a face, an even number", 2)
    levels: int = documented("time levels seen by a face", 1)
    width: int = documented("hidden channels", 15)
    depth: int = documented("hidden layers", 6)
    activation: Activation = documented("elu, relu or tanh", "elu")
    flux_clamp: bool = documented("move fluxes into the range of the law's flux", False)
    state_clamp: bool = documented("move states into the law's interval; breaks conservation", False)

    def build(self, law: AbstractLaw, key: Array) -> NeuralFlux:
        return NeuralFlux(**dataclasses.asdict(self), law=law, key=key)


@dataclasses.dataclass(frozen=True)
class RolloutStage:
    """One stage of training: rollouts of a given length."""

    rollout: int = documented("time steps of a rollout", 20)
    cells: int = documented("computed cells of a rollout", 30)
    dt_dx: float = documented("Δt/Δx", 0.5)
    updates: int = documented("number of updates", 1000)
    learning_rate: float = documented("peak learning rate, falling to a twentieth over the stage", 1e-3)
    batch: int = documented("random states per update", 16)
    pieces: int = documented("pieces of a random initial state; 2 are Riemann problems", 2)

    def __post_init__(self):
        for name in ("rollout", "cells", "updates", "batch", "pieces"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: give at least 1")
        for name in ("dt_dx", "learning_rate"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} is {getattr(self, name)}: give a positive number")


@dataclasses.dataclass(frozen=True)
class WeakFormConfig:
    """What the unsupervised objective tests with."""

    tests: Literal["bumps", "polynomials"] = documented("compact bumps, or random polynomials", "bumps")
    width: float = documented("support of a bump [cells]", 16.0)
    duration: float = documented("length of the windows in time [Δx per unit speed]; 0: single steps", 8.0)
    jumps: bool = documented("let cells where waves meet hold a jump instead of a constant", True)
    count: int = documented("number of polynomials", 250)
    degree: int = documented("degree of the polynomials", 50)
    entropy: float = documented("weight of the entropy residual; 0 leaves it out", 1.0)
    bounds: float = documented("weight of the maximum principle relative to `entropy`", 1.0)
    constants: int = documented("number of Kruzkov constants, equally spaced in the law's interval", 8)
    entropy_width: float = documented("support of the bumps of the entropy residual [cells]", 8.0)

    def windows(self, steps: int, dt_dx: float) -> Float[np.ndarray, "windows steps"]:
        """Windows in time for a rollout."""
        return time_windows(steps, round(self.duration / dt_dx))

    def functions(self, cells: int, seed: int) -> TestFunctions:
        if self.tests == "bumps":
            return bumps(cells, self.width)
        return random_polynomials(cells, self.count, self.degree, seed)


@dataclasses.dataclass(frozen=True)
class NeuralTraining:
    """Law, network, objective and stages of one training."""

    law: LawConfig = dataclasses.field(  # pyright: ignore[reportInvalidTypeForm]
        default=LAW_CONFIGS["greenshields"](), metadata={"doc": "conservation law"}
    )
    network: NetworkConfig = documented("the flux network", NetworkConfig())
    objective: Literal["supervised", "weak-form"] = documented("what is minimised", "supervised")
    weak_form: WeakFormConfig = documented("test functions of the weak-form objective", WeakFormConfig())
    stages: tuple[RolloutStage, ...] = documented("stages, from short to long rollouts", (RolloutStage(),))
    states: int = documented("random states drawn for each stage", 256)
    seed: int = documented("of weights, states and batches", 0)
    average_decay: float = documented(
        "share of the average of weights that an update keeps, the average being the result; 0: none", 0.99
    )
    clip_norm: float = documented("largest global norm of a gradient", 1.0)
    validation_states: int = documented("random states of 10 pieces for validation, 0 for none", 16)
    validation_steps: int = documented("time steps of a validation, at the Δt/Δx of the last stage", 1000)
    validate_every: int = documented("updates between two validations", 400)
    log_every: int = documented("updates between two lines of metrics", 100)
    start: str | None = documented("scheme name or weights file to start from; default fresh weights", None)
    name: str = documented("name of the trained flux", "neural")

    def __post_init__(self):
        if not self.stages:
            raise ValueError("stages is empty: give at least one stage")
        for name, least in (("states", 1), ("validation_states", 0), ("validation_steps", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}: give at least {least}")
        law = self.law.build()
        if law.curvature == "neither" and self.objective == "supervised":
            raise ValueError(
                "supervised training needs the closed-form solution of a concave or convex flux;"
                ' use objective = "weak-form" for this law'
            )

    @property
    def updates(self) -> int:
        return sum(stage.updates for stage in self.stages)

    def stage_of(self, update: int) -> tuple[int, RolloutStage]:
        """Number and settings of the stage that an update belongs to."""
        number = stage_at([stage.updates for stage in self.stages], update)
        return number, self.stages[number]


def stage_at(updates: Sequence[int], update: int) -> int:
    """Index of the stage that an update belongs to, from the numbers of updates of the stages."""
    return min(int(np.searchsorted(np.cumsum(updates), update, side="right")), len(updates) - 1)


def states_interval(law: AbstractLaw, dt_dx: float, limit: float) -> tuple[float, float]:
    """The admissible states whose waves stay within a CFL number at Δt/Δx, for laws of unbounded speed."""
    lower, upper = float(law.lower), float(law.upper)
    u = np.linspace(lower, upper, 20001)
    stable = u[np.abs(np.asarray(law.wave_speed(jnp.asarray(u)), float)) * dt_dx <= limit]
    if not stable.size:
        raise ValueError(
            f"dt_dx = {dt_dx}: every wave of {type(law).__name__} is too fast; take a smaller one"
        )
    return float(stable.min()), float(stable.max())


def random_states(
    law: AbstractLaw, stage: RolloutStage, *, states: int, cells: int, seed: int, limit: float
) -> tuple[Float[np.ndarray, "states pieces+1"], Float[np.ndarray, "states pieces"]]:
    """Breakpoints and values of random piecewise-constant states on [0, cells].

    The jump of a Riemann problem lies in the middle quarter, inner jumps of more pieces anywhere.
    """
    rng = np.random.default_rng(seed)
    lower, upper = states_interval(law, stage.dt_dx, limit)
    values = rng.uniform(lower, upper, (states, stage.pieces))
    if stage.pieces == 2:
        inner = cells / 2 + rng.uniform(-cells / 8, cells / 8, (states, 1))
    else:
        inner = np.sort(rng.uniform(0, cells, (states, stage.pieces - 1)), axis=1)
    return np.concatenate([np.zeros((states, 1)), inner, np.full((states, 1), cells)], axis=1), values


def initial_averages(places, values, cells: int) -> Float[np.ndarray, "states cells"]:
    """Cell averages of piecewise-constant states on unit cells from 0 on."""
    amount = np.concatenate([np.zeros((len(values), 1)), np.cumsum(values * np.diff(places), axis=1)], axis=1)
    faces = np.arange(cells + 1.0)
    return np.stack([np.diff(np.interp(faces, x, total)) for x, total in zip(places, amount, strict=True)])


def _run(flux, law, start: Float[Array, " cells"], boundary: AbstractBoundary, dt_dx: ScalarLike, steps: int):
    """States of the scheme on unit cells, CFL limit or not: a flux in training must be able to come back."""
    grid = UniformGrid(start.shape[0], 0.0, float(start.shape[0]))
    scheme = FiniteVolume(law, grid, boundary, numerical_flux=flux)
    dt = jnp.asarray(dt_dx, start.dtype)

    def step(y, number):
        y, _ = ForwardEuler().advance(scheme, number.astype(dt.dtype) * dt, y, dt)
        return y, scheme.averages(y[0])

    first = (scheme.start(start), jnp.zeros((), start.dtype))
    return jnp.concatenate([start[None], jax.lax.scan(step, first, jnp.arange(steps))[1]])


def roll_out(
    flux: NeuralFlux, law: AbstractLaw, truth: Float[Array, "steps+1 cells"], dt_dx: ScalarLike, reach: int
) -> Float[Array, "steps+1 inner"]:
    """States of the scheme from the first row of `truth` on, its edge cells prescribed; Δx = 1."""
    steps = truth.shape[0] - 1
    times = dt_dx * jnp.arange(steps + 1, dtype=truth.dtype)
    boundary = Prescribed(times, truth[:, :reach], truth[:, -reach:])
    return _run(flux, law, truth[0, reach:-reach], boundary, dt_dx, steps)


def make_loss(config: NeuralTraining, law: AbstractLaw) -> Callable:
    """`loss(flux, batch, key)` for `sciml.train.fit`; a batch is what `make_batches` gives."""
    reach = config.network.stencil // 2
    scale = 0.5 * (float(law.upper) - float(law.lower))

    def supervised(flux, truth, dt_dx, windows):
        error = (roll_out(flux, law, truth, dt_dx, reach) - truth[:, reach:-reach])[1:] / scale
        return {"error": jnp.mean(error**2)}

    jumps = config.weak_form.jumps

    def weak(flux, start, dt_dx, windows):
        u = _run(flux, law, start, Outflow(), dt_dx, windows.shape[0])
        tests = config.weak_form.functions(u.shape[1], config.seed)
        positive, windows = bumps(u.shape[1], config.weak_form.entropy_width), windows.T
        speed = (flux.flux_range[1] - flux.flux_range[0]).astype(u.dtype)
        parts = {"weak": jnp.mean((weak_residual(law, u, dt_dx, tests, windows, jumps=jumps) / speed) ** 2)}
        if config.weak_form.entropy:
            count = config.weak_form.constants
            levels = jnp.linspace(law.lower, law.upper, count + 2)[1:-1].astype(u.dtype)
            found = entropy_residual(law, u, levels, dt_dx, positive, windows, jumps=jumps) / speed
            parts["entropy"] = config.weak_form.entropy * jnp.mean(found**2)
            # The inequality for constants at the extremes of the data: no state beyond them.
            outside = jnp.maximum(jnp.maximum(u - jnp.max(start), jnp.min(start) - u), 0) / scale
            parts["bounds"] = config.weak_form.entropy * config.weak_form.bounds * jnp.mean(outside**2)
        return parts

    one = supervised if config.objective == "supervised" else weak

    def loss(flux, batch, key):
        states, dt_dx, windows = batch
        # In chunks that stay in the cache; the backward pass recomputes the layers of the network.
        parts = jax.lax.map(lambda rows: one(flux, rows, dt_dx, windows), states, batch_size=16)
        parts = {name: jnp.mean(value) for name, value in parts.items()}
        return sum(parts.values()), parts

    return loss


def make_batches(config: NeuralTraining, law: AbstractLaw) -> Callable[[int], Any]:
    """The batch of an update number: states, Δt/Δx and the windows in time, one row per step.

    The states are exact averages over time with edge cells for supervised training, which has no windows, and
    the initial averages alone for the weak form.
    """
    reach, limit = config.network.stencil // 2, 0.95 * config.network.stencil / 2

    @functools.lru_cache(maxsize=2)
    def pool(number: int):
        stage = config.stages[number]
        cells = stage.cells + (2 * reach if config.objective == "supervised" else 0)
        settings = {"states": config.states, "cells": cells, "limit": limit}
        places, values = random_states(law, stage, **settings, seed=config.seed * 1000 + number)
        if config.objective == "weak-form":
            return np.asarray(initial_averages(places, values, cells), np.float32)
        times = stage.dt_dx * np.arange(stage.rollout + 1)
        return lax_hopf_cell_averages(law, places, values, np.arange(cells + 1.0), times).astype(np.float32)

    def batch(update: int):
        number, stage = config.stage_of(update)
        rows = np.random.default_rng([config.seed, update]).integers(0, config.states, stage.batch)
        windows = np.zeros(stage.rollout, np.int8)
        if config.objective == "weak-form":
            windows = config.weak_form.windows(stage.rollout, stage.dt_dx).T.astype(np.float32)
        return pool(number)[rows], np.float32(stage.dt_dx), windows

    return batch


def make_validation(config: NeuralTraining, law: AbstractLaw) -> Callable | None:
    """`validate(flux)`: mean square error on random states of 10 pieces over long rollouts."""
    if not config.validation_states or law.curvature == "neither":
        return None
    reach, steps, dt_dx = (
        max(3, config.network.stencil // 2),
        config.validation_steps,
        config.stages[-1].dt_dx,
    )
    cells = 194 + 2 * reach
    limit = 0.95 * config.network.stencil / 2
    lower, upper = states_interval(law, dt_dx, limit)
    data = random_piecewise_constant(
        10_007 + config.seed, config.validation_states, 10, lower, upper, domain=(0.0, float(cells))
    )
    truth = lax_hopf_cell_averages(
        law, data.breakpoints, data.values, np.arange(cells + 1.0), dt_dx * np.arange(steps + 1)
    )
    truth = jnp.asarray(truth, jnp.float32)

    @eqx.filter_jit
    def errors(flux):
        def one(rows):
            error = roll_out(flux, law, rows, jnp.asarray(dt_dx, rows.dtype), reach) - rows[:, reach:-reach]
            return jnp.mean(error[1:] ** 2)

        return jnp.mean(jax.lax.map(one, truth, batch_size=8))

    return lambda flux: {"mse": errors(flux)}
