"""The geometry of a scan from the scan itself: axis, detector offset, angles, source positions.

`centre_of_rotation` needs no image: in a parallel beam the centre of mass of every view lies at
(axis) + x cos θ + y sin θ in the detector's coordinates (the first Helgason-Ludwig condition). `calibrate`
works for every geometry: image and lengths x are fitted together to the line integrals by Gauss-Newton steps,

    min over df, dx of ‖A(x) f + A(x) df + ∂/∂x (A(x) f) dx - p‖² ,

each solved by conjugate gradients on image and lengths at once; angles follow view by view. The derivatives
are those of the projector.
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sciml.ct.geometry import AbstractGeometry, ParallelBeam
from sciml.ct.grid import ImageGrid
from sciml.ct.iterative import cgls
from sciml.ct.projector import JosephProjector

_USUAL_ERROR = 0.01
"""Angles are taken to be off by about this much [rad]."""


class Calibration(NamedTuple):
    """A geometry that fits the line integrals better, and the image that was fitted with it."""

    geometry: AbstractGeometry
    image: Float[Array, "rows columns"]
    """attenuation [1/length]"""
    misfit: Float[Array, " rounds"]
    """‖A f - p‖ after every round"""


def centre_of_rotation(sinogram: Float[np.ndarray, "views bins"], geometry: ParallelBeam) -> float:
    """Axis shift of a parallel scan from the centres of mass of its views [length].

    The object must lie within every view and the background be zero; views need not cover half a turn, but
    at least a third of one. Views are fitted with a robust loss, so some bad ones do no harm.

    Args:
        sinogram: line integrals.
        geometry: scan geometry; its own axis shift does not matter.

    Raises:
        ValueError: for fewer than three views, or views without attenuation.
    """
    from scipy.optimize import least_squares

    values = np.asarray(sinogram, np.float64)
    mass = values.sum(1)
    if len(values) < 3 or not (mass > 0).all():
        raise ValueError(
            "sinogram: the centre of rotation needs at least three views of positive attenuation"
        )
    centre = (values * np.asarray(geometry.bin_positions(), np.float64)).sum(1) / mass
    angles = np.asarray(geometry.angles, np.float64)
    design = np.stack([np.ones_like(angles), np.cos(angles), np.sin(angles)], 1)
    first = np.linalg.lstsq(design, centre, rcond=None)[0]
    scale = max(1.5 * float(np.median(abs(design @ first - centre))), 1e-12)
    fitted = least_squares(lambda x: (design @ x - centre) / scale, first, loss="soft_l1").x
    return float(fitted[0])


def coarser(
    sinogram: Float[Array, "views bins"], geometry: AbstractGeometry, grid: ImageGrid, factor: int
) -> tuple[Float[Array, "views bins"], AbstractGeometry, ImageGrid]:
    """Means of `factor` neighbouring bins with their geometry, and pixels `factor` times as large."""
    bins = geometry.bins // factor
    lost = geometry.bins - bins * factor  # bins at the far end
    means = sinogram[:, : bins * factor].reshape(-1, bins, factor).mean(-1)
    offset = geometry.detector_offset - lost / 2 * geometry.spacing
    spacing = factor * geometry.spacing
    wider = dataclasses.replace(geometry, bins=bins, spacing=spacing, detector_offset=offset)
    rows, columns = (-(-size // factor) for size in grid.shape)
    return means, wider, ImageGrid(rows, columns, factor * grid.pixel, grid.centre)


def calibrate(
    sinogram: Float[Array, "views bins"],
    geometry: AbstractGeometry,
    grid: ImageGrid,
    *,
    free: Sequence[str] = ("axis_shift",),
    rounds: int = 8,
    iterations: int = 20,
    factors: Sequence[int] = (4, 2, 1),
) -> Calibration:
    """Fit parts of the geometry to the line integrals, from coarse to fine.

    Lengths that are one number for all views stay one number; angles are fitted one by one, and keep their
    mean, since turning all of them turns only the image. In a parallel beam axis shift and detector offset
    are the same thing: free one of them. The steps are a fraction of the object's details, so a start that
    is off by many bins needs coarse factors.

    Args:
        sinogram: line integrals.
        geometry: scan geometry to begin with.
        grid: pixels of the image; it must cover the object.
        free: names of the geometry's fields that are fitted.
        rounds: Gauss-Newton steps on every level.
        iterations: conjugate gradients in every step.
        factors: how many bins and pixels are joined on every level.

    Raises:
        ValueError: for a field that the geometry lacks or that cannot be fitted.
    """
    fields = [name for name in vars(geometry) if name != "bins"]
    for name in free:
        if name not in fields:
            raise ValueError(f"free: {name!r} is no field of this geometry: {', '.join(fields)}")
    data, image, misfit = jnp.asarray(sinogram, geometry.angles.dtype), None, jnp.zeros(0)
    for factor in factors:
        if geometry.bins // factor < 8:
            continue
        now_free = [name for name in free if name != "angles" or factor == min(factors)]
        means, wider, pixels = coarser(data, geometry, grid, factor)
        projector = JosephProjector(wider, pixels)
        wider, image, misfit = _calibrate_level(projector, means, tuple(now_free), rounds, iterations)
        fitted = {name: getattr(wider, name) for name in now_free}
        if "detector_offset" in fitted:
            lost = geometry.bins - wider.bins * factor
            fitted["detector_offset"] += lost / 2 * geometry.spacing
        geometry = dataclasses.replace(geometry, **fitted)
    if image is None:
        raise ValueError(f"sinogram: {geometry.bins} bins are too few to calibrate with, or no factor given")
    return Calibration(geometry, image, misfit)


@eqx.filter_jit
def _calibrate_level(
    projector: JosephProjector, data: Array, free: tuple[str, ...], rounds: int, iterations: int
) -> tuple[AbstractGeometry, Array, Array]:
    lengths = tuple(name for name in free if name != "angles")

    def replaced(geometry, names, values):
        return eqx.tree_at(lambda g: [getattr(g, name) for name in names], geometry, list(values))

    def moved_lengths(geometry, image):
        """A Gauss-Newton step for lengths and image together; the image is found anew afterwards."""
        values = [getattr(geometry, name) for name in lengths]

        def predicted(image, values):
            return projector.with_geometry(replaced(geometry, lengths, values)).project(image)

        now, tangent = jax.linearize(predicted, image, values)
        usual = jnp.linalg.norm(now) / jnp.linalg.norm(image)
        scales = [  # one unit of a length moves the line integrals as much as that of a pixel does
            usual * jnp.sqrt(value.size) / jnp.maximum(jnp.linalg.norm(effect), 1e-30)
            for value, effect in zip(values, _effects(tangent, image, values), strict=True)
        ]

        def forward(image, changes):
            return tangent(image, [s * c for s, c in zip(scales, changes, strict=True)])

        changes = _cgls(forward, data - now, image, values, iterations)[1]
        return replaced(
            geometry, lengths, [v + s * c for v, s, c in zip(values, scales, changes, strict=True)]
        )

    def moved_angles(geometry, image):
        """The angle of every view that fits it best to the image; nearly none where the view does not say."""

        def predicted(angles):
            return projector.with_geometry(replaced(geometry, ("angles",), [angles])).project(image)

        now, slope = jax.jvp(predicted, (geometry.angles,), (jnp.ones_like(geometry.angles),))
        rest = data - now
        doubt = jnp.mean(rest**2) / _USUAL_ERROR**2
        change = (slope * rest).sum(1) / ((slope**2).sum(1) + doubt)
        return replaced(geometry, ("angles",), [geometry.angles + change - change.mean()])

    def one_round(state, _):
        geometry, image = state
        if lengths:
            geometry = moved_lengths(geometry, image)
            image = cgls(projector.with_geometry(geometry), data, iterations=iterations).image
        if "angles" in free:
            geometry = moved_angles(geometry, image)
            image = cgls(projector.with_geometry(geometry), data, iterations=iterations).image
        rest = projector.with_geometry(geometry).project(image) - data
        return (geometry, image), jnp.linalg.norm(rest)

    image = cgls(projector, data, iterations=iterations).image
    (geometry, image), misfit = jax.lax.scan(one_round, (projector.geometry, image), length=rounds)
    return geometry, image, misfit


def _effects(tangent, image: Array, values: list[Array]) -> list[Array]:
    """How the line integrals change when all entries of one field change by 1."""
    none = [jnp.zeros_like(value) for value in values]
    return [
        tangent(jnp.zeros_like(image), [*none[:k], jnp.ones_like(value), *none[k + 1 :]])
        for k, value in enumerate(values)
    ]


def _cgls(forward, data, image: Array, values: list[Array], iterations: int):
    """Least squares for an image and changes of the values together, from zero."""
    transpose = jax.linear_transpose(forward, image, values)

    def square(tree):
        return sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(tree))

    tiny = jnp.finfo(image.dtype).tiny

    def step(state, _):
        z, rest, direction, norm = state
        moved = forward(*direction)
        length = norm / jnp.maximum(square(moved), tiny)
        z = jax.tree.map(lambda a, b: a + length * b, z, direction)
        rest = jax.tree.map(lambda a, b: a - length * b, rest, moved)
        gradient = transpose(rest)
        following = square(gradient)
        ratio = following / jnp.maximum(norm, tiny)
        direction = jax.tree.map(lambda a, b: a + ratio * b, gradient, direction)
        return (z, rest, direction, following), None

    gradient = transpose(data)
    zero = jax.tree.map(jnp.zeros_like, gradient)
    return jax.lax.scan(step, (zero, data, gradient, square(gradient)), length=iterations)[0][0]
