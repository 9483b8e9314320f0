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

from sciml.ct.geometry import AbstractGeometry, AbstractView, FlatView
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


def pairs_of(padded: Array) -> Array:
    """Every value with the step to its right neighbour, as one complex number: one look-up instead of two."""
    return jax.lax.complex(padded[..., :-1], jnp.diff(padded))


def _project_view(view: AbstractView, pairs: Array, grid: ImageGrid, bins: int, sideways: bool) -> Array:
    """Integrals along the lines of one driving direction; `pairs` of the image with zeros around its rows."""
    _, _, _, columns, rows = _turned(grid, sideways)
    dtype = pairs.real.dtype
    start, slope, weight = _crossings(view, jnp.arange(bins, dtype=dtype), grid, sideways)

    def read(values, number):
        crossing = jnp.clip(start + slope * number, -1, columns)
        left = jnp.floor(crossing)
        # look-ups keep a loop from being vectorised: arithmetic is done before them
        index, fraction = jax.lax.optimization_barrier((left.astype(jnp.int32) + 1, crossing - left))
        pair = values.at[index].get(mode="promise_in_bounds")
        return pair.real + fraction * pair.imag

    def one_after_another(pairs, numbers):  # twice as fast on a CPU, whose nearest cache holds a row
        return jax.lax.scan(lambda sum, each: (sum + read(*each), None), 0 * start, (pairs, numbers))[0]

    def all_at_once(pairs, numbers):
        return jax.vmap(read)(pairs, numbers).sum(0)

    numbers = jnp.arange(rows, dtype=dtype)
    return weight * jax.lax.platform_dependent(pairs, numbers, cpu=one_after_another, default=all_at_once)


def _backproject_view(view: AbstractView, values: Array, grid: ImageGrid, taps: int) -> Array:
    """The transpose of both driving directions at once.

    A line l₀x + l₁y + l₂ = 0 crosses its row or column within max(0, 1 - |l·X| / (h m)) of the pixel X, with
    m = max(|l₀|, |l₁|): whichever is larger says the direction. On a flat detector l is linear in the bin, so
    that only the value is looked up.
    """
    dtype, h, bins = values.dtype, grid.pixel, values.shape[0]
    x, y = jnp.asarray(grid.x, dtype), jnp.asarray(grid.y, dtype)[:, None]
    lines = view.unscaled_line(jnp.arange(bins, dtype=dtype))
    steepest = jnp.maximum(abs(lines[0]), abs(lines[1]))
    # h |l| / m is the length of the line in a row; 1 / (h m) turns the distance into a weight
    scaled = values * jnp.hypot(lines[0], lines[1]) / steepest**2
    weighted = jnp.pad(jnp.broadcast_to(scaled, values.shape), 1)
    if isinstance(view, FlatView):
        p, q = view.p, view.q
        along, depth = (c[0] * x + c[1] * y + c[2] for c in (p, q))
        inverse = 1 / depth
        middle = along * inverse
        slack = h * jnp.hypot(q[0], q[1]) * inverse  # of the depth, from one side of the pixel to the other
        reach = jnp.maximum(abs(p[0] - middle * q[0]), abs(p[1] - middle * q[1])) * h * inverse
        first = jnp.ceil(middle - reach * (1 + 2 * slack))

        def hat(bin):
            steep = jnp.maximum(abs(p[0] - bin * q[0]), abs(p[1] - bin * q[1]))
            return jnp.maximum(0, h * steep - abs(along - bin * depth))

    else:
        seen = [view.bin_of(*place) for place in ((x - h, y), (x + h, y), (x, y - h), (x, y + h))]
        first = jnp.ceil(jnp.minimum(jnp.minimum(seen[0], seen[1]), jnp.minimum(seen[2], seen[3])))
        table = [jnp.pad(jnp.broadcast_to(line, values.shape), 1) for line in lines]

        def hat(bin):
            index = jnp.clip(bin.astype(jnp.int32) + 1, 0, bins + 1)
            l0, l1, l2 = (line.at[index].get(mode="promise_in_bounds") for line in table)
            return jnp.maximum(0, h * jnp.maximum(abs(l0), abs(l1)) - abs(l0 * x + l1 * y + l2))

    first = jnp.clip(first, -taps, bins)
    hats = [hat(first + tap) for tap in range(taps)]
    # look-ups keep a loop from being vectorised: arithmetic is done before them
    first, *hats = jax.lax.optimization_barrier((first.astype(jnp.int32) + 1, *hats))
    total = jnp.zeros(grid.shape, dtype)
    for tap in range(taps):
        index = jnp.clip(first + tap, 0, bins + 1)
        total += hats[tap] * weighted.at[index].get(mode="promise_in_bounds")
    return total


def _driven(view: AbstractView, bins: int, dtype: Any) -> tuple[Array, Array]:
    """Whether a view has lines of each driving direction."""
    l0, l1, _ = view.line(jnp.arange(bins, dtype=dtype))
    upright = abs(l0) >= abs(l1)
    return upright.any(), ~upright.all()


def _plain_project(scanner: AbstractView, image: Array, sizes) -> Array:
    grid, bins, _ = sizes
    padding = ((0, 0), (1, 2))
    upright, sideways = pairs_of(jnp.pad(image, padding)), pairs_of(jnp.pad(image.T, padding))
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
    grid, _, taps = sizes

    @jax.checkpoint
    def add(total, each):
        view, values = each
        return total + _backproject_view(view, values, grid, taps), None

    return jax.lax.scan(add, jnp.zeros(grid.shape, sinogram.dtype), (scanner, sinogram))[0]


def _shapes(scanner: AbstractView, sizes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    grid, bins, _ = sizes
    return grid.shape, (jax.tree.leaves(scanner)[0].shape[0], bins)


_project, _backproject = differentiable_pair(_plain_project, _plain_backproject, _shapes)
