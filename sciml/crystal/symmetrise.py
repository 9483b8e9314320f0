"""Projection onto invariant functions: of values on a grid, and of Fourier coefficients.

Both are the Reynolds operator f <- |G|⁻¹ Σ_g f(g x). On a grid it permutes points, so the grid must be one
that the operators map onto itself; `compatible_shape` gives the next one.
"""

from functools import lru_cache

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from sciml.crystal.seitz import DENOMINATOR
from sciml.crystal.space_group import SpaceGroup


def compatible_shape(space_group: SpaceGroup, shape: tuple[int, int, int]) -> tuple[int, int, int]:
    """The smallest grid, at least as fine along each axis, whose points every operator maps to points."""
    steps = np.gcd.reduce(np.concatenate([space_group.translations, np.full((1, 3), DENOMINATOR)]), axis=0)
    multiples = DENOMINATOR // steps
    linked = (space_group.rotations != 0).any(0)
    linked = linked | linked.T
    linked = linked | (linked.astype(int) @ linked.astype(int) > 0)
    sizes = []
    for axis in range(3):
        others = np.flatnonzero(linked[axis])
        factor = int(np.lcm.reduce(multiples[others]))
        sizes.append(-(-max(shape[other] for other in others) // factor) * factor)
    return sizes[0], sizes[1], sizes[2]


@lru_cache(maxsize=64)
def _grid_images(space_group: SpaceGroup, shape: tuple[int, int, int]) -> np.ndarray:
    """Flat index of the image of every grid point under every operator, (G, points)."""
    size = np.array(shape)
    scaled = space_group.rotations * size[:, None]  # n_i R_ij j / n_j must be an integer
    shifted = space_group.translations * size
    if (scaled % size).any() or (shifted % DENOMINATOR).any():
        raise ValueError(
            f"a grid of {shape} points is not mapped onto itself by {space_group!r}; "
            f"use {compatible_shape(space_group, shape)}"
        )
    points = np.indices(shape).reshape(3, -1)
    images = (scaled // size) @ points + (shifted // DENOMINATOR)[:, :, None]
    return np.asarray(np.ravel_multi_index(tuple(np.moveaxis(images % size[:, None], 1, 0)), shape))


def symmetrise_grid(
    space_group: SpaceGroup, values: Float[Array, "n1 n2 n3 *channels"]
) -> Float[Array, "n1 n2 n3 *channels"]:
    """Mean of a periodic field over the group; point (i, j, k) lies at (i/n1, j/n2, k/n3).

    Raises `ValueError` naming a grid that fits when this one is not mapped onto itself.
    """
    n1, n2, n3 = values.shape[:3]
    images = _grid_images(space_group, (n1, n2, n3))
    flat = values.reshape(-1, *values.shape[3:])
    return jnp.mean(flat[images], axis=0).reshape(values.shape)


def symmetrise_coefficients(
    space_group: SpaceGroup, miller: np.ndarray, coefficients: Complex[Array, "modes *channels"]
) -> Complex[Array, "modes *channels"]:
    """Projection of Fourier coefficients of f(x) = Σ c_k exp(2πi k·x) onto invariant functions.

        (P c)_m = |G|⁻¹ Σ_g exp(2πi k·t) c_k   with Rᵀk = m.

    `miller` (M, 3) must be a set that the group maps to itself (`ValueError` otherwise).
    """
    miller = np.asarray(miller, np.int64)
    images = miller[None] @ space_group.rotations  # (G, M, 3)
    bound = int(np.abs(images).max(initial=0)) + 1
    weights = np.array([(2 * bound + 1) ** 2, 2 * bound + 1, 1])
    codes, targets = miller @ weights, images @ weights
    order = np.argsort(codes)
    position = np.searchsorted(codes, targets, sorter=order).clip(max=max(len(codes) - 1, 0))
    index = order[position]
    if not (codes[index] == targets).all():
        raise ValueError("the set of Miller indices is not closed under the group; choose them by |k|")
    turns = (miller @ space_group.translations.T % DENOMINATOR).T / DENOMINATOR
    phases = jnp.asarray(np.exp(2j * np.pi * turns), coefficients.dtype)
    phases = phases.reshape(phases.shape + (1,) * (coefficients.ndim - 1))
    total = jnp.zeros_like(coefficients)
    return total.at[index].add(phases * coefficients) / space_group.order


def grid_points(shape: tuple[int, int, int]) -> np.ndarray:
    """Fractional coordinates (n1, n2, n3, 3) of a grid."""
    return np.stack(np.meshgrid(*(np.arange(n) / n for n in shape), indexing="ij"), axis=-1)


def asymmetric_points(space_group: SpaceGroup, shape: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """One point of every orbit of a grid, (Q, 3), and the share of the cell that it stands for, (Q,).

    The mean over the cell of an invariant function is Σ_q weight_q f(x_q). Raises `ValueError` when the grid
    does not fit.
    """
    first = _grid_images(space_group, shape).min(0)
    chosen, counts = np.unique(first, return_counts=True)
    return grid_points(shape).reshape(-1, 3)[chosen], counts / first.size
