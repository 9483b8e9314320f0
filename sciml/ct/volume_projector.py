"""Joseph's projector in space and its exact transpose, for any source and panel positions.

Every ray is driven along the axis in which it advances most; in each plane of voxels across that axis it
reads the volume by bilinear interpolation:

    (A f)(ray) = h |d| / |d_a| · Σ_planes f(plane, crossing),     crossing = X + (p - X_a) / d_a · d .

`backproject` is Aᵀ with the same weights (1 - |Δ₁|)(1 - |Δ₂|): a voxel looks up which pixels of the panel can
see it and evaluates their crossings. Nothing is scattered and views follow one another, so memory is a few
volumes and one view (`memory_estimate`). Derivatives as for the projector in the plane.
"""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sciml.ct.grid import VolumeGrid
from sciml.ct.linear import differentiable_pair
from sciml.ct.projector import AbstractProjector, pairs_of
from sciml.ct.volume_geometry import PanelView, VolumeGeometry


class VolumeProjector(AbstractProjector):
    """Joseph's projector in space and its exact transpose.

    Args:
        geometry: scan geometry; its vectors must be concrete here (see `with_geometry`).
        grid: voxels of the volume, in the unit of the geometry.

    Raises:
        ValueError: when the volume reaches the source.
    """

    geometry: VolumeGeometry
    grid: VolumeGrid = eqx.field(static=True)
    taps: tuple[int, int] = eqx.field(static=True)

    def __init__(self, geometry: VolumeGeometry, grid: VolumeGrid):
        self.geometry, self.grid, self.taps = geometry, grid, geometry.taps(grid)

    def project(self, image: Float[Array, "slices rows columns"]) -> Float[Array, "views rows bins"]:
        """Line integrals A f of a volume [attenuation x length].

        Args:
            image: attenuation f [1/length], shape `grid.shape`.
        """
        if image.shape != self.grid.shape:
            raise ValueError(f"the volume has shape {image.shape}, the grid {self.grid.shape}")
        return _project(self._scanner(image.dtype), image, self._sizes())

    def backproject(self, sinogram: Float[Array, "views rows bins"]) -> Float[Array, "slices rows columns"]:
        """The transpose Aᵀ p: Σ_ray p(ray)·A(ray, voxel), in the plain inner products of both spaces.

        Args:
            sinogram: values p, shape `geometry.shape`.
        """
        if sinogram.shape != self.geometry.shape:
            raise ValueError(
                f"the projections have shape {sinogram.shape}, the geometry (views, rows, bins) ="
                f" {self.geometry.shape}"
            )
        return _backproject(self._scanner(sinogram.dtype), sinogram, self._sizes())

    def with_geometry(self, geometry: VolumeGeometry) -> Self:
        """The projector of a geometry that differs slightly, for derivatives and fits of the geometry."""
        return eqx.tree_at(lambda projector: projector.geometry, self, geometry)

    def subset(self, index: Any) -> Self:
        """The projector of some of the views, for ordered subsets."""
        return self.with_geometry(self.geometry.subset(index))

    def memory_estimate(self, dtype: Any = np.float32) -> int:
        """Bytes that a projection and its transpose hold at once, volume and projections included."""
        volume = int(np.prod(self.grid.shape))
        return (6 * volume + 3 * int(np.prod(self.geometry.shape))) * np.dtype(dtype).itemsize

    def _sizes(self):
        return self.grid, (self.geometry.rows, self.geometry.bins), self.taps

    def _scanner(self, dtype: Any) -> PanelView:
        return jax.tree.map(lambda leaf: leaf.astype(dtype), self.geometry.scanner())


# ---- the three driving axes as one case: volumes are turned so that the planes come first
# axis of a position (x, y, z) -> axes of the turned volume as positions, and the transposition that does it
_ORDER = (
    (0, 2, 1),
    (1, 2, 0),
    (2, 1, 0),
)  # driven x: planes over x, then z, y; driven y: y, z, x; z: z, y, x
_TURN = ((2, 0, 1), (1, 0, 2), (0, 1, 2))  # of an array (slices, rows, columns) = (z, y, x)
_BACK = ((1, 2, 0), (1, 0, 2), (0, 1, 2))


def _axis(grid: VolumeGrid, component: int) -> tuple[float, float, int]:
    """First position, step and number along x, y or z."""
    positions = (grid.x, grid.y, grid.z)[component]
    return float(positions[0]), grid.pixel if component == 0 else -grid.pixel, len(positions)


def _rays(view: PanelView, row: Array, bin: Array, grid: VolumeGrid, axis: int):
    """Crossings of both other axes with plane k as start + slope·k in voxels, and the weight of the ray."""
    point, direction = view.ray(row, bin)
    size = [abs(each) for each in direction]
    largest = jnp.maximum(jnp.maximum(size[0], size[1]), size[2])
    first = [size[axis] >= size[k] if axis < k else size[axis] > size[k] for k in range(3) if k != axis]
    driven = first[0] & first[1]
    pace = 1 / jnp.where(driven, direction[axis], 1)
    origin, step, _ = _axis(grid, axis)
    crossings = []
    for component in _ORDER[axis][1:]:
        begin, across, _ = _axis(grid, component)
        slope = direction[component] * pace
        start = (point[component] + (origin - point[axis]) * slope - begin) / across
        crossings.append((start, slope * step / across))
    length = jnp.sqrt(sum((each / largest) ** 2 for each in direction))
    return crossings, jnp.where(driven, grid.pixel * length, 0), driven


def _project_view(
    view: PanelView, pairs: Array, grid: VolumeGrid, panel: tuple[int, int], axis: int
) -> Array:
    """Integrals of the rays of one driving axis; `pairs` of the turned volume, zeros around its planes."""
    dtype = pairs.real.dtype
    row, bin = jnp.arange(panel[0], dtype=dtype)[:, None], jnp.arange(panel[1], dtype=dtype)
    ((b0, bk), (c0, ck)), weight, _ = _rays(view, row, bin, grid, axis)
    planes, rows, columns = pairs.shape
    flat = pairs.reshape(planes, -1)

    def add(total, each):
        values, k = each
        b = jnp.clip(b0 + bk * k, -1, rows - 3)
        c = jnp.clip(c0 + ck * k, -1, columns - 2)
        left_b, left_c = jnp.floor(b), jnp.floor(c)
        index = (left_b.astype(jnp.int32) + 1) * columns + left_c.astype(jnp.int32) + 1
        # look-ups keep a loop from being vectorised: arithmetic is done before them
        index, t, s = jax.lax.optimization_barrier((index, c - left_c, b - left_b))
        above, below = (values.at[index + shift].get(mode="promise_in_bounds") for shift in (0, columns))
        upper, lower = above.real + t * above.imag, below.real + t * below.imag
        return total + upper + s * (lower - upper), None

    numbers = jnp.arange(planes, dtype=dtype)
    return weight * jax.lax.scan(add, jnp.zeros(panel, dtype) + 0 * weight, (flat, numbers))[0]


def _backproject_view(
    view: PanelView, values: Array, grid: VolumeGrid, taps: tuple[int, int], axis: int
) -> Array:
    """The transpose of `_project_view`, turned like its volume.

    A ray along d through X crosses the plane of the voxel x at the distance C / d_a from it, where C are two
    components of d x (X - x), linear in row and bin: only the value of a pixel is looked up.
    """
    dtype, h, panel = values.dtype, grid.pixel, values.shape
    order, camera, source = _ORDER[axis], view.camera(), view.source
    row, bin = jnp.arange(panel[0], dtype=dtype)[:, None], jnp.arange(panel[1], dtype=dtype)
    _, weight, _ = _rays(view, row, bin, grid, axis)
    steep = [source[3] * view.corner[axis] - source[axis], *(source[3] * each[axis] for each in _steps(view))]
    along = abs(steep[0] + row * steep[1] + bin * steep[2])
    weighted = jnp.pad(values * weight / (h * jnp.where(weight > 0, along, 1)) ** 2, 1).ravel()
    (a0, da, planes), (b0, db, rows), (c0, dc, columns) = (_axis(grid, component) for component in order)
    b, c = jnp.arange(rows, dtype=dtype)[:, None], jnp.arange(columns, dtype=dtype)
    edge_b, edge_c = jnp.arange(-1, rows + 1, dtype=dtype)[:, None], jnp.arange(-1, columns + 1, dtype=dtype)

    def one_plane(k):
        place = {order[0]: a0 + da * k, order[1]: b0 + db * edge_b, order[2]: c0 + dc * edge_c}
        seen = [sum(camera[i, j] * place[j] for j in range(3)) + camera[i, 3] for i in range(3)]
        u, v = seen[0] / seen[2], seen[1] / seen[2]

        def lowest(each, taps, size):
            over_b = jnp.minimum(each[:-2], each[2:])
            first = jnp.ceil(jnp.minimum(over_b[:, :-2], over_b[:, 2:]))
            return jnp.clip(first, -taps, size)

        first_v, first_u = lowest(v, taps[0], panel[0]), lowest(u, taps[1], panel[1])
        at = {order[0]: a0 + da * k, order[1]: b0 + db * b, order[2]: c0 + dc * c}
        toward = [source[i] - source[3] * at[i] for i in range(3)]

        def moment(vector, other, component):
            """A component of vector x other, for the coordinate `component` seen from the driving axis."""
            return vector[axis] * other[component] - vector[component] * other[axis]

        lines = []  # C at pixel (0, 0), per row and per bin, for both coordinates
        for component in order[1:]:
            start = moment(view.corner, toward, component) + moment(source, at, component)
            lines.append((start, *(moment(step, toward, component) for step in _steps(view))))

        def add(total, tap):
            i, j = first_v + tap // taps[1], first_u + tap % taps[1]
            reach = h * abs(steep[0] + i * steep[1] + j * steep[2])
            off = [abs(start + i * down + j * across) for start, down, across in lines]
            hat = jnp.maximum(0, reach - off[0]) * jnp.maximum(0, reach - off[1])
            row, bin = jnp.clip(i, -1, panel[0]), jnp.clip(j, -1, panel[1])
            index = (row.astype(jnp.int32) + 1) * (panel[1] + 2) + bin.astype(jnp.int32) + 1
            # look-ups keep a loop from being vectorised: arithmetic is done before them
            index, hat = jax.lax.optimization_barrier((index, hat))
            return total + hat * weighted.at[index].get(mode="promise_in_bounds"), None

        number = jnp.arange(taps[0] * taps[1], dtype=jnp.int32)  # a loop, since it compiles ten times faster
        return jax.lax.scan(add, jnp.zeros((rows, columns), dtype), number)[0]

    return jax.lax.map(one_plane, jnp.arange(planes, dtype=dtype))


def _steps(view: PanelView) -> tuple[Array, Array]:
    return view.v_step, view.u_step


def _drives(view: PanelView, panel: tuple[int, int], grid: VolumeGrid, dtype: Any) -> list[Array]:
    """Whether a view has rays of each driving axis."""
    row, bin = jnp.arange(panel[0], dtype=dtype)[:, None], jnp.arange(panel[1], dtype=dtype)
    return [_rays(view, row, bin, grid, axis)[2].any() for axis in range(3)]


def _plain_project(scanner: PanelView, volume: Array, sizes) -> Array:
    grid, panel, _ = sizes
    padding = ((0, 0), (1, 2), (1, 2))
    turned = [pairs_of(jnp.pad(volume.transpose(_TURN[axis]), padding)) for axis in range(3)]
    nothing = jnp.zeros(panel, volume.dtype)

    @jax.checkpoint
    def one(view):
        drives = _drives(view, panel, grid, volume.dtype)
        return sum(
            jax.lax.cond(
                drives[axis],
                lambda axis=axis: _project_view(view, turned[axis], grid, panel, axis),
                lambda: nothing,
            )
            for axis in range(3)
        )

    return jax.lax.map(one, scanner)


def _plain_backproject(scanner: PanelView, projections: Array, sizes) -> Array:
    grid, panel, taps = sizes

    @jax.checkpoint
    def add(totals, each):
        view, values = each
        drives = _drives(view, panel, grid, values.dtype)
        return tuple(
            jax.lax.cond(
                drives[axis],
                lambda axis=axis: totals[axis] + _backproject_view(view, values, grid, taps, axis),
                lambda axis=axis: totals[axis],
            )
            for axis in range(3)
        ), None

    zeros = jnp.zeros(grid.shape, projections.dtype)
    start = tuple(zeros.transpose(_TURN[axis]) for axis in range(3))
    totals, _ = jax.lax.scan(add, start, (scanner, projections))
    x, y, z = (totals[axis].transpose(_BACK[axis]) for axis in range(3))
    return x + y + z


def _shapes(scanner: PanelView, sizes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    grid, panel, _ = sizes
    return grid.shape, (scanner.source.shape[0], *panel)


_project, _backproject = differentiable_pair(_plain_project, _plain_backproject, _shapes)
