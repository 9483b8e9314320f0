"""Projection along the lines of a geometry and its exact transpose, by Joseph's method.

Along a line that runs more up than sideways (|l₀| ≥ |l₁|) the image is read once per row, by linear
interpolation between two columns; along the others once per column. With h the pixel and φ the angle between
line and driving direction

    (A f)(line) = h / |cos φ| · Σ_rows f(row, crossing),     crossing = -(l₁ y + l₂) / l₀ .

`backproject` is Aᵀ, not an approximation of it: a pixel collects exactly the rays that cross within one pixel
of it, with the same weights max(0, 1 - |crossing - column|). Both directions gather, nothing is scattered;
views follow one another, so that the memory is that of one view. Reference: P. M. Joseph, IEEE Trans. Med.
Imaging 1, 192 (1982).

Both are linear in image and sinogram, and differentiable (forward and reverse mode, any order) in these as
well as in the geometry. Derivatives with respect to image and sinogram cost one projection or backprojection;
those with respect to the geometry are those of the interpolation weights, and hold where no crossing hits a
pixel centre and no line changes its driving direction.
"""

import abc
import math
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sciml.ct.geometry import AbstractGeometry, AbstractView
from sciml.ct.grid import ImageGrid
from sciml.ct.linear import differentiable_pair


class AbstractProjector(eqx.Module):
    """A linear map from images to sinograms and its transpose."""

    @abc.abstractmethod
    def project(self, image: Float[Array, "rows columns"]) -> Float[Array, "views bins"]:
        """Line integrals A f of an image."""

    @abc.abstractmethod
    def backproject(self, sinogram: Float[Array, "views bins"]) -> Float[Array, "rows columns"]:
        """The transpose Aᵀ of `project`."""


class JosephProjector(AbstractProjector):
    """Joseph's projector and its exact transpose.

    Args:
        geometry: scan geometry; its lengths must be concrete here (see `with_geometry`).
        grid: pixels of the image, in the unit of the geometry.

    Raises:
        ValueError: when the image reaches the source.
    """

    geometry: AbstractGeometry
    grid: ImageGrid = eqx.field(static=True)
    taps: int = eqx.field(static=True)

    def __init__(self, geometry: AbstractGeometry, grid: ImageGrid):
        self.geometry = geometry
        self.grid = grid
        # no more rays than this lie within one pixel to both sides; those at the very ends have no weight
        ratio = 2 * grid.pixel / geometry.narrowest_spacing(grid)
        self.taps = math.ceil(ratio * (1 - 8 * float(jnp.finfo(geometry.angles.dtype).eps)))

    def project(self, image: Float[Array, "rows columns"]) -> Float[Array, "views bins"]:
        """Line integrals A f of an image [attenuation x length].

        Args:
            image: attenuation f [1/length], shape `grid.shape`.
        """
        if image.shape != self.grid.shape:
            raise ValueError(f"the image has shape {image.shape}, the grid {self.grid.shape}")
        return _project(self._scanner(image.dtype), image, self._sizes())

    def backproject(self, sinogram: Float[Array, "views bins"]) -> Float[Array, "rows columns"]:
        """The transpose Aᵀ p: Σ_ray p(ray)·A(ray, pixel), in the plain inner products of both spaces.

        Args:
            sinogram: values p, shape `geometry.shape`.
        """
        if sinogram.shape != self.geometry.shape:
            swapped = " (are views and bins swapped?)" if sinogram.shape == self.geometry.shape[::-1] else ""
            raise ValueError(
                f"the sinogram has shape {sinogram.shape}, the geometry (views, bins) ="
                f" {self.geometry.shape}{swapped}"
            )
        return _backproject(self._scanner(sinogram.dtype), sinogram, self._sizes())

    def with_geometry(self, geometry: AbstractGeometry) -> Self:
        """The projector of a geometry that differs slightly, for derivatives and fits of the geometry."""
        return eqx.tree_at(lambda projector: projector.geometry, self, geometry)

    def subset(self, index: Any) -> Self:
        """The projector of some of the views, for ordered subsets."""
        return self.with_geometry(self.geometry.subset(index))

    def _sizes(self):
        return self.grid, self.geometry.bins, self.taps

    def _scanner(self, dtype: Any) -> AbstractView:
        return jax.tree.map(lambda leaf: leaf.astype(dtype), self.geometry.scanner())


# -------------------------------------------------------------------- rows and columns as one case


def _turned(grid: ImageGrid, sideways: bool) -> tuple[float, float, float, int, int]:
    """First position and step across, first position along the driving direction, and both sizes.

    Sideways, the image is transposed: its columns become the rows. Positions are those of `_across`.
    """
    x, y = grid.x, grid.y
    if sideways:
        return float(-y[0]), float(x[0]), 1.0, len(y), len(x)
    return float(x[0]), float(y[0]), -1.0, len(x), len(y)


def _crossings(view: AbstractView, bins: Array, grid: ImageGrid, sideways: bool):
    """For every bin: crossing = start + slope·(row number) in pixels, and the weight (0 for other lines)."""
    across, along, sign, _, _ = _turned(grid, sideways)
    l0, l1, l2 = view.line(bins)
    driven = abs(l0) >= abs(l1)
    if sideways:  # the coordinate across is -y
        l0, l1, driven = -l1, l0, ~driven
    l0 = jnp.where(driven, l0, 1)
    start = (-(l1 * along + l2) / l0 - across) / grid.pixel
    return start, -sign * l1 / l0, jnp.where(driven, grid.pixel / abs(l0), 0)


def _project_view(view: AbstractView, padded: Array, grid: ImageGrid, bins: int, sideways: bool) -> Array:
    """Integrals along the lines of one driving direction; `padded` has one zero column before, two behind."""
    _, _, _, columns, rows = _turned(grid, sideways)
    start, slope, weight = _crossings(view, jnp.arange(bins, dtype=padded.dtype), grid, sideways)

    def read(values, row):
        crossing = jnp.clip(start + slope * row, -1, columns)
        left = jnp.floor(crossing)
        index = left.astype(jnp.int32) + 1
        here = values.at[index].get(mode="promise_in_bounds")
        there = values.at[index + 1].get(mode="promise_in_bounds")
        return here + (crossing - left) * (there - here)

    def one_after_another(padded, numbers):  # three times as fast on a CPU, whose caches hold a row
        return jax.lax.scan(lambda sum, each: (sum + read(*each), None), 0 * start, (padded, numbers))[0]

    def all_at_once(padded, numbers):
        return jax.vmap(read)(padded, numbers).sum(0)

    numbers = jnp.arange(rows, dtype=padded.dtype)
    return weight * jax.lax.platform_dependent(padded, numbers, cpu=one_after_another, default=all_at_once)


def _backproject_view(
    view: AbstractView, values: Array, grid: ImageGrid, bins: int, taps: int, sideways: bool
) -> Array:
    """The transpose of `_project_view`, transposed like its image."""
    across, along, sign, columns, rows = _turned(grid, sideways)
    dtype, h = values.dtype, grid.pixel
    start, slope, weight = _crossings(view, jnp.arange(bins, dtype=dtype), grid, sideways)
    start, slope, weighted = (jnp.pad(each, 1) for each in (start, slope, weight * values))
    column = jnp.arange(columns, dtype=dtype)
    row = jnp.arange(rows, dtype=dtype)[:, None]
    edges, position = across + h * jnp.arange(-1, columns + 1, dtype=dtype), along + sign * h * row
    seen = view.bin_of(position, -edges) if sideways else view.bin_of(edges, position)
    first = jnp.ceil(jnp.minimum(seen[:, :-2], seen[:, 2:]))
    first = jnp.clip(first, -taps, bins).astype(jnp.int32) + 1
    total = jnp.zeros((rows, columns), dtype)
    for tap in range(taps):
        index = jnp.clip(first + tap, 0, bins + 1)
        a, b, p = (each.at[index].get(mode="promise_in_bounds") for each in (start, slope, weighted))
        total += jnp.maximum(0, 1 - abs(a + b * row - column)) * p
    return total


def _driven(view: AbstractView, bins: int, dtype: Any) -> tuple[Array, Array]:
    """Whether a view has lines of each driving direction."""
    l0, l1, _ = view.line(jnp.arange(bins, dtype=dtype))
    upright = abs(l0) >= abs(l1)
    return upright.any(), ~upright.all()


def _plain_project(scanner: AbstractView, image: Array, sizes) -> Array:
    grid, bins, _ = sizes
    padding = ((0, 0), (1, 2))
    upright, sideways = jnp.pad(image, padding), jnp.pad(image.T, padding)
    nothing = jnp.zeros(bins, image.dtype)

    @jax.checkpoint
    def one(view):
        has_upright, has_sideways = _driven(view, bins, image.dtype)
        a = jax.lax.cond(
            has_upright, lambda: _project_view(view, upright, grid, bins, False), lambda: nothing
        )
        b = jax.lax.cond(
            has_sideways, lambda: _project_view(view, sideways, grid, bins, True), lambda: nothing
        )
        return a + b

    return jax.lax.map(one, scanner)


def _plain_backproject(scanner: AbstractView, sinogram: Array, sizes) -> Array:
    grid, bins, taps = sizes
    rows, columns = grid.shape

    @jax.checkpoint
    def add(total, each):
        view, values = each
        has_upright, has_sideways = _driven(view, bins, values.dtype)
        upright = jax.lax.cond(
            has_upright,
            lambda: total[0] + _backproject_view(view, values, grid, bins, taps, False),
            lambda: total[0],
        )
        sideways = jax.lax.cond(
            has_sideways,
            lambda: total[1] + _backproject_view(view, values, grid, bins, taps, True),
            lambda: total[1],
        )
        return (upright, sideways), None

    zeros = jnp.zeros((rows, columns), sinogram.dtype), jnp.zeros((columns, rows), sinogram.dtype)
    (upright, sideways), _ = jax.lax.scan(add, zeros, (scanner, sinogram))
    return upright + sideways.T


def _shapes(scanner: AbstractView, sizes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    grid, bins, _ = sizes
    return grid.shape, (jax.tree.leaves(scanner)[0].shape[0], bins)


_project, _backproject = differentiable_pair(_plain_project, _plain_backproject, _shapes)
