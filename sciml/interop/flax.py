"""Flax and Equinox in one model.

    LinenCallable(module, x, key=key)     a Linen module with its variables as an Equinox callable
    NNXCallable(module)                   an NNX module likewise
    EquinoxInLinen(make)                  an Equinox module, made by `make(key)`, inside a Linen model
    EquinoxInNNX(module)                  an Equinox module inside an NNX model

Parameters are ordinary pytree leaves on both sides, so one optimiser step trains everything. Needs the
package flax.
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import linen, nnx

M = TypeVar("M", bound=eqx.Module)


class LinenCallable(eqx.Module):
    """A Flax Linen module as an Equinox callable: a numerical flux, an encoder, an attenuation field.

    **Arguments:**

    - `module`: the Linen module.
    - `args`: example arguments, used to create the variables.
    - `key`: for the initial parameters.

    The collection `params` is trained; other collections (batch statistics) are kept as they are.
    """

    params: Any
    state: Any
    module: linen.Module = eqx.field(static=True)

    def __init__(self, module: linen.Module, *args: Any, key: jax.Array):
        variables = dict(module.init(key, *args))
        self.params = variables.pop("params", {})
        self.state = variables
        self.module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the module to arguments."""
        state = jax.lax.stop_gradient(self.state)
        return self.module.apply({"params": self.params, **state}, *args, **kwargs)


class NNXCallable(eqx.Module):
    """A Flax NNX module as an Equinox callable; what a call changes in the module (statistics) is dropped.

    **Arguments:**

    - `module`: the NNX module; it is split, not kept.
    """

    params: Any
    rest: Any
    graph: Any = eqx.field(static=True)

    def __init__(self, module: nnx.Module):
        self.graph, params, rest = nnx.split(module, nnx.Param, ...)
        self.params = nnx.to_pure_dict(params)
        self.rest = nnx.to_pure_dict(rest)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the module to arguments."""
        state = nnx.State(_merged(self.params, jax.lax.stop_gradient(self.rest)))
        return nnx.merge(self.graph, state)(*args, **kwargs)

    def module(self) -> Any:
        """The NNX module with the present parameters."""
        return nnx.merge(self.graph, nnx.State(_merged(self.params, self.rest)))


class EquinoxInLinen(linen.Module, Generic[M]):
    """An Equinox module inside a Linen model; its inexact arrays are Linen parameters.

    **Arguments:**

    - `make`: builds the module from a key; called once when the model is initialised.
    """

    make: Callable[[jax.Array], Any]

    @linen.compact
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the Equinox module."""
        skeleton = jax.eval_shape(self.make, jax.random.key(0))
        floats, _ = eqx.partition(skeleton, _is_float)
        names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(floats)[0]]
        made = self.make(self.make_rng("params") if self.is_initializing() else jax.random.key(0))
        floats, rest = eqx.partition(made, eqx.is_inexact_array)
        leaves, structure = jax.tree_util.tree_flatten(floats)
        params = [
            self.param(name, lambda _, leaf=leaf: leaf) for name, leaf in zip(names, leaves, strict=True)
        ]
        return eqx.combine(jax.tree_util.tree_unflatten(structure, params), rest)(*args, **kwargs)


class EquinoxInNNX(nnx.Module):
    """An Equinox module inside an NNX model; its inexact arrays are `nnx.Param`.

    **Arguments:**

    - `module`: the Equinox module.
    """

    def __init__(self, module: eqx.Module):
        floats, rest = eqx.partition(module, eqx.is_inexact_array)
        leaves, self.structure = jax.tree_util.tree_flatten(floats)
        self.params = nnx.List([nnx.Param(leaf) for leaf in leaves])
        arrays, self.static = eqx.partition(rest, eqx.is_array)
        tables, self.table_structure = jax.tree_util.tree_flatten(arrays)
        self.tables = nnx.List([nnx.Variable(table) for table in tables])

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the Equinox module."""
        floats = jax.tree_util.tree_unflatten(self.structure, [param[...] for param in self.params])
        arrays = jax.tree_util.tree_unflatten(self.table_structure, [table[...] for table in self.tables])
        return eqx.combine(floats, arrays, self.static)(*args, **kwargs)


def _is_float(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _merged(one: Any, other: Any) -> Any:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return one
    return {key: _merged(one[key], other.get(key)) if key in one else other[key] for key in {**other, **one}}
