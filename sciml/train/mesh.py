"""Spreading a batch over devices: the model on every device, an equal share of the batch on each.

jit inserts the sums over devices by itself once the arrays are placed, so no code changes with their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import PyTree


def make_mesh(devices: Sequence[Any] | None = None) -> Mesh:
    """A mesh with the one axis `data`.

    **Arguments:**

    - `devices`: default all devices of all processes.
    """
    devices = jax.devices() if devices is None else devices
    return jax.make_mesh((len(devices),), ("data",), axis_types=(AxisType.Auto,), devices=devices)


def replicate(tree: PyTree, mesh: Mesh) -> PyTree:
    """The whole of every array on every device; what is not an array stays as it is."""
    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.device_put(arrays, NamedSharding(mesh, PartitionSpec())), rest)


def shard_batch(batch: PyTree, mesh: Mesh) -> PyTree:
    """The leading axis of every array cut into equal shares, one per device.

    **Raises:** `ValueError` when the leading axis cannot be cut into equal shares.
    """
    for leaf in jax.tree.leaves(batch):
        if leaf.ndim == 0 or leaf.shape[0] % mesh.size:
            raise ValueError(
                f"a batch of shape {leaf.shape} cannot be shared equally by {mesh.size} devices; "
                f"choose a batch size that is a multiple of {mesh.size}"
            )
    return jax.device_put(batch, NamedSharding(mesh, PartitionSpec("data")))
