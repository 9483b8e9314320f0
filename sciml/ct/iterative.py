"""Iterative reconstruction of ‖A f - p‖ → min without a prior: SIRT, ordered subsets (SART), CGLS.

All take any projector with `project` and `backproject`, run a fixed number of iterations under one
`jax.jit`, and give the image with its misfits. Early iterations are smooth, late ones fit the noise: the
number of iterations is the regularisation. For few views prefer `total_variation`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sciml.ct.projector import AbstractProjector, JosephProjector
from sciml.ct.volume_projector import VolumeProjector
from sciml.typing import ScalarLike


class Reconstruction(NamedTuple):
    """An image and how it came about."""

    image: Float[Array, "*slices rows columns"]
    """attenuation [1/length]"""
    misfit: Float[Array, " iterations"]
    """‖A f - p‖ before every iteration"""


def inverse(sums: Array) -> Array:
    """1/sums where something was summed, 0 where a ray misses the image or no ray hits a pixel."""
    relevant = sums > 1e-6 * sums.max()
    return jnp.where(relevant, 1 / jnp.where(relevant, sums, 1), 0)


def sirt(
    projector: AbstractProjector,
    sinogram: Float[Array, "views *panel"],
    *,
    iterations: int = 100,
    relaxation: ScalarLike = 1.0,
    nonnegative: bool = True,
    start: Float[Array, "*slices rows columns"] | None = None,
) -> Reconstruction:
    """Simultaneous iterative reconstruction: f ← f + ρ C Aᵀ R (p - A f), R and C the inverse row and column
    sums.

    Converges to the least squares solution in the norm of R. Reference: J. Gregor and T. Benson, IEEE
    Trans. Med. Imaging 27, 918 (2008).

    Args:
        projector: projector A.
        sinogram: line integrals p.
        iterations: number of iterations.
        relaxation: ρ, between 0 and 2.
        nonnegative: set negative attenuation to zero after every step.
        start: first image; default 0.
    """
    one_image = jax.eval_shape(projector.backproject, sinogram)
    rows = inverse(projector.project(jnp.ones(one_image.shape, sinogram.dtype)))
    columns = inverse(projector.backproject(jnp.ones_like(sinogram)))

    def step(image, _):
        rest = sinogram - projector.project(image)
        image = image + relaxation * columns * projector.backproject(rows * rest)
        return jnp.maximum(image, 0) if nonnegative else image, jnp.linalg.norm(rest)

    first = jnp.zeros(one_image.shape, sinogram.dtype) if start is None else start
    return Reconstruction(*jax.lax.scan(step, first, length=iterations))


def sart(
    projector: JosephProjector | VolumeProjector,
    sinogram: Float[Array, "views *panel"],
    *,
    subsets: int | None = None,
    iterations: int = 10,
    relaxation: ScalarLike = 1.0,
    decay: ScalarLike = 0.99,
    nonnegative: bool = True,
    start: Float[Array, "*slices rows columns"] | None = None,
) -> Reconstruction:
    """SIRT steps on one subset of the views after the other (ordered subsets, OS-SART).

    The subsets are interleaved and follow one another in an order that puts distant views together. With
    noise the iterates circle around a solution unless the relaxation decays. Reference: A. H. Andersen and
    A. C. Kak, Ultrasonic Imaging 6, 81 (1984).

    Args:
        projector: projector A.
        sinogram: line integrals p.
        subsets: number of subsets; default one per view (SART).
        iterations: number of passes over all views.
        relaxation: ρ of the first pass.
        decay: what multiplies ρ after every pass.
        nonnegative: set negative attenuation to zero after every step.
        start: first image; default 0.

    Raises:
        ValueError: when there are more subsets than views.
    """
    views = sinogram.shape[0]
    subsets = views if subsets is None else subsets
    if not 1 <= subsets <= views:
        raise ValueError(f"subsets is {subsets}: choose between 1 and the number of views, {views}")
    order = np.argsort(np.arange(subsets) * (np.sqrt(5) - 1) / 2 % 1)  # golden ratio
    index = np.arange(-(-views // subsets) * subsets).reshape(-1, subsets).T[order]
    present = (index < views).reshape(*index.shape, *[1] * (sinogram.ndim - 1))
    index = np.where(index < views, index, 0)
    dtype = sinogram.dtype
    ones = jnp.ones(projector.grid.shape, dtype)
    rows = inverse(projector.project(ones))

    def one_subset(state, each):
        image, rho = state
        index, present = each
        part = projector.subset(index)
        rest = present * (sinogram[index] - part.project(image))
        columns = inverse(part.backproject(jnp.broadcast_to(present, rest.shape).astype(dtype)))
        image = image + rho * columns * part.backproject(rows[index] * rest)
        return (jnp.maximum(image, 0) if nonnegative else image, rho), jnp.sum(rest**2)

    def one_pass(state, _):
        (image, rho), squares = jax.lax.scan(
            one_subset, state, (jnp.asarray(index), jnp.asarray(present, dtype))
        )
        return (image, rho * decay), jnp.sqrt(squares.sum())

    first = jnp.zeros(ones.shape, dtype) if start is None else start
    (image, _), misfit = jax.lax.scan(one_pass, (first, jnp.asarray(relaxation, dtype)), length=iterations)
    return Reconstruction(image, misfit)


def cgls(
    projector: AbstractProjector,
    sinogram: Float[Array, "views *panel"],
    *,
    iterations: int = 20,
    start: Float[Array, "*slices rows columns"] | None = None,
) -> Reconstruction:
    """Conjugate gradients on AᵀA f = Aᵀp: after k steps the best image in the Krylov space of k dimensions.

    Reference: M. R. Hestenes and E. Stiefel, J. Res. Natl. Bur. Stand. 49, 409 (1952).

    Args:
        projector: projector A.
        sinogram: line integrals p.
        iterations: number of iterations; with noise 10 to 30.
        start: first image; default 0.
    """
    first = jnp.zeros(jax.eval_shape(projector.backproject, sinogram).shape, sinogram.dtype)
    first = first if start is None else start
    rest = sinogram - projector.project(first)
    gradient = projector.backproject(rest)
    tiny = jnp.finfo(sinogram.dtype).tiny

    def step(state, _):
        image, rest, direction, norm = state
        projected = projector.project(direction)
        length = norm / jnp.maximum(jnp.vdot(projected, projected), tiny)
        image, remaining = image + length * direction, rest - length * projected
        gradient = projector.backproject(remaining)
        next_norm = jnp.vdot(gradient, gradient)
        direction = gradient + next_norm / jnp.maximum(norm, tiny) * direction
        return (image, remaining, direction, next_norm), jnp.linalg.norm(rest)

    state = first, rest, gradient, jnp.vdot(gradient, gradient)
    (image, *_), misfit = jax.lax.scan(step, state, length=iterations)
    return Reconstruction(image, misfit)
