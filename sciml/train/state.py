"""All that changes during training, as one pytree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PyTree, UInt32

from sciml.typing import Key


class TrainState(eqx.Module):
    """Model, optimiser state, number of updates done, raw bits of the random key, and averaged weights."""

    model: PyTree
    opt_state: PyTree
    step: Int[Array, ""]
    key_data: UInt32[Array, " words"]
    average: PyTree = None

    @classmethod
    def create(
        cls,
        model: PyTree,
        transformation: optax.GradientTransformation,
        *,
        trainable: PyTree | Callable[[Any], bool] = eqx.is_inexact_array,
        key: Key,
        average: bool = False,
    ) -> TrainState:
        """The state before the first update.

        **Arguments:**

        - `model`: any pytree.
        - `transformation`: an optax transformation, e.g. `Optimiser(...).build()`.
        - `trainable`: which leaves are trained: a predicate, or a pytree of `bool` of the model's shape;
          default all arrays of floating numbers.
        - `key`: random key from which the key of every update is derived.
        - `average`: keep a running average of the trained weights, see `Training.average_decay`.
        """
        trained = eqx.filter(model, trainable)
        return cls(
            model,
            transformation.init(trained),
            jnp.zeros((), jnp.int32),
            jax.random.key_data(key),
            trained if average else None,
        )

    @property
    def averaged(self) -> PyTree:
        """The model with the averaged weights; the model itself when no average is kept."""
        return self.model if self.average is None else eqx.combine(self.average, self.model)

    @property
    def key(self) -> Key:
        """The key of the next update."""
        return jax.random.fold_in(jax.random.wrap_key_data(self.key_data), self.step)
