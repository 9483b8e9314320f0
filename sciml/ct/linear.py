"""Two linear maps that are each other's transposes, with their derivatives: `differentiable_pair`."""

import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array


def differentiable_pair(
    project: Callable[[Any, Array, Any], Array],
    backproject: Callable[[Any, Array, Any], Array],
    shapes: Callable[[Any, Any], tuple[tuple[int, ...], tuple[int, ...]]],
) -> tuple[Callable[[Any, Array, Any], Array], Callable[[Any, Array, Any], Array]]:
    """The same maps, differentiable (forward and reverse mode, any order) in argument and scanner.

    A derivative with respect to the argument costs one call of either map. That with respect to the scanner
    is what JAX derives from the code of the map.

    Args:
        project: A, called with (scanner, image, sizes); sizes are static.
        backproject: its transpose, called with (scanner, sinogram, sizes).
        shapes: of image and sinogram, from (scanner, sizes).
    """

    def wrapped(function, transpose, which):
        @eqx.filter_custom_jvp
        def call(scanner, argument, sizes):
            return _with_transpose(
                lambda argument: function(scanner, argument, sizes),
                lambda result: transpose(scanner, result, sizes),
                argument,
                shapes(scanner, sizes)[which],
            )

        @call.def_jvp
        def call_jvp(primals, tangents):
            scanner, argument, sizes = primals
            value = call(scanner, argument, sizes)
            tangent = jnp.zeros_like(value)
            if tangents[1] is not None:
                tangent += call(scanner, tangents[1], sizes)
            tangent += _along(lambda scanner: function(scanner, argument, sizes), scanner, tangents[0], value)
            return value, tangent

        return call

    return wrapped(project, backproject, 1), wrapped(backproject, project, 0)


def _with_transpose(function, transpose, argument: Array, shape: tuple[int, ...]) -> Array:
    """`function(argument)`, a linear map, with a transpose that JAX takes instead of deriving its own.

    JAX knows user-given transposes that batch only for square "solves"; the map becomes one on vectors that
    hold argument and result: (x, y) -> (0, A x), with the transpose (x, y) -> (Aᵀ y, 0).
    """
    size, results = argument.size, math.prod(shape)

    def solve(_, vector):
        return jnp.pad(function(vector[:size].reshape(argument.shape)).ravel(), (size, 0))

    def transpose_solve(_, vector):
        return jnp.pad(transpose(vector[size:].reshape(shape)).ravel(), (0, results))

    vector = jnp.pad(argument.ravel(), (0, results))
    return jax.lax.custom_linear_solve(lambda v: v, vector, solve, transpose_solve)[size:].reshape(shape)


def _along(function, scanner: Any, tangent: Any, value: Array) -> Array:
    """The derivative in the direction of a tangent of the scanner; 0 when it has none."""
    leaves, structure = jax.tree.flatten(scanner)
    directions = structure.flatten_up_to(tangent) if tangent is not None else [None] * len(leaves)
    if all(direction is None for direction in directions):
        return jnp.zeros_like(value)
    filled = [
        jnp.zeros_like(leaf) if direction is None else direction
        for leaf, direction in zip(leaves, directions, strict=True)
    ]
    return jax.jvp(function, (scanner,), (jax.tree.unflatten(structure, filled),))[1]
