"""Stages of learning rates and an optimiser, as configuration, into optax.

The rate of the update number c (from 0) in a stage of n updates with peak rate η and w updates of warm-up is

    η (c + 1) / w                                 c < w      (the first update is never zero)
    η (φ + (1 − φ) s((c − w) / (n − w)))          otherwise

with s(x) = 1 (`constant`), 1 − x (`linear`) or (1 + cos πx) / 2 (`cosine`), and φ the final fraction.
The moments of the optimiser go on from stage to stage.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from sciml.typing import documented


@dataclass(frozen=True)
class Stage:
    """A number of updates at one peak learning rate.

    **Raises:** `ValueError` for a stage without updates, a rate that is not positive, or a warm-up that is
    longer than the stage.
    """

    steps: int = documented("number of updates", 1000)
    learning_rate: float = documented("peak learning rate", 1e-3)
    schedule: Literal["constant", "linear", "cosine"] = documented("shape after the warm-up", "cosine")
    warmup: int = documented("updates of linear warm-up", 0)
    final: float = documented("learning rate at the end, as a fraction of the peak", 0.0)

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps is {self.steps}; a stage has at least one update")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate is {self.learning_rate}; it must be positive")
        if not 0 <= self.warmup <= self.steps:
            raise ValueError(f"warmup is {self.warmup}; it must be between 0 and steps = {self.steps}")
        if not 0 <= self.final <= 1:
            raise ValueError(f"final is {self.final}; it must be between 0 and 1")

    def rate(self, count: Any) -> jax.Array:
        """The learning rate of the update number `count` of this stage, counted from 0."""
        rising = self.learning_rate * (count + 1) / max(self.warmup, 1)
        x = jnp.clip((count - self.warmup) / max(self.steps - self.warmup, 1), 0.0, 1.0)
        shapes = {"constant": jnp.ones_like(x), "linear": 1 - x, "cosine": (1 + jnp.cos(jnp.pi * x)) / 2}
        shape = shapes[self.schedule]
        falling = self.learning_rate * (self.final + (1 - self.final) * shape)
        return jnp.where(count < self.warmup, rising, falling)


@dataclass(frozen=True)
class Optimiser:
    """An optimiser with its stages; `build` makes the optax transformation.

    **Raises:** `ValueError` for no stage, a negative weight decay or a clip norm that is not positive.
    """

    stages: tuple[Stage, ...] = field(default=(Stage(),), metadata={"doc": "one after the other"})
    algorithm: Literal["adam", "sgd", "lion"] = documented("how a gradient becomes an update", "adam")
    weight_decay: float = documented("decoupled decay of weights (not of biases and other vectors)", 0.0)
    clip_norm: float | None = documented("largest global norm of a gradient", 1.0)
    b1: float = documented("decay of the first moment (momentum)", 0.9)
    b2: float = documented("decay of the second moment", 0.999)

    def __post_init__(self) -> None:
        if not self.stages:
            raise ValueError("stages is empty; at least one is needed")
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay is {self.weight_decay}; it must not be negative")
        if self.clip_norm is not None and not self.clip_norm > 0:
            raise ValueError(f"clip_norm is {self.clip_norm}; it must be positive, or none")

    @property
    def steps(self) -> int:
        """The number of updates of all stages."""
        return sum(stage.steps for stage in self.stages)

    def stage_at(self, step: int) -> int:
        """The index of the stage to which an update belongs."""
        end = 0
        for index, stage in enumerate(self.stages):
            end += stage.steps
            if step < end:
                return index
        return len(self.stages) - 1

    def rate(self, step: Any) -> jax.Array:
        """The learning rate of the update number `step`, counted from 0 over all stages."""
        rate, start = self.stages[0].rate(step), self.stages[0].steps
        for stage in self.stages[1:]:
            rate = jnp.where(step >= start, stage.rate(step - start), rate)
            start += stage.steps
        return rate

    def build(self) -> optax.GradientTransformation:
        """Clip, direction, decay, rate: the optax chain."""
        directions = {
            "adam": lambda: optax.scale_by_adam(self.b1, self.b2),
            "sgd": lambda: optax.trace(self.b1),
            "lion": lambda: optax.scale_by_lion(self.b1, self.b2),
        }
        clip = [optax.clip_by_global_norm(self.clip_norm)] if self.clip_norm is not None else []
        decay = [optax.add_decayed_weights(self.weight_decay, _is_weight)] if self.weight_decay else []
        return optax.chain(
            *clip, directions[self.algorithm](), *decay, optax.scale_by_learning_rate(self.rate)
        )


def _is_weight(parameters: Any) -> Any:
    return jax.tree.map(lambda leaf: eqx.is_array(leaf) and leaf.ndim >= 2, parameters)
