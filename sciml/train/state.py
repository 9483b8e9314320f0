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
    """Model, optimiser state, number of updates done, and the raw bits of the random key."""

    model: PyTree
    opt_state: PyTree
    step: Int[Array, ""]
    key_data: UInt32[Array, " words"]

    @classmethod
    def create(
        cls,
        model: PyTree,
        transformation: optax.GradientTransformation,
        *,
        trainable: PyTree | Callable[[Any], bool] = eqx.is_inexact_array,
        key: Key,
    ) -> TrainState:
        """The state before the first update.

        **Arguments:**

        - `model`: any pytree.
        - `transformation`: an optax transformation, e.g. `Optimiser(...).build()`.
        - `trainable`: which leaves are trained: a predicate, or a pytree of `bool` of the model's shape;
          default all arrays of floating numbers.
        - `key`: random key from which the key of every update is derived.
        """
        opt_state = transformation.init(eqx.filter(model, trainable))
        return cls(model, opt_state, jnp.zeros((), jnp.int32), jax.random.key_data(key))

    @property
    def key(self) -> Key:
        """The key of the next update."""
        return jax.random.fold_in(jax.random.wrap_key_data(self.key_data), self.step)
