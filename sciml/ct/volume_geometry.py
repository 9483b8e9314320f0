"""Scan geometries in space: a flat panel and a source for every view, free to move, tilt and wobble.

`VolumeGeometry` holds vectors, one set per view: the source (a point, or a direction for a parallel beam),
the middle of the panel, and the steps from bin to bin and from row to row. `VolumeGeometry.cone` and
`VolumeGeometry.parallel` make those of a circular orbit about the z-axis from angles and distances.

The axes are those of the plane with z upwards: e_u = (cos θ, sin θ, 0), e_r = (-sin θ, cos θ, 0), e_z. Rows
of the panel are counted downwards, as the slices of a volume are, so the first row is on top. The middle
row of a cone beam is a `FanBeam` of the same lengths. All lengths have one unit; angles are radians.
"""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from sciml.ct.geometry import checked_angles, checked_count, checked_lengths, concrete
from sciml.ct.grid import VolumeGrid
from sciml.typing import ScalarLike


class PanelView(eqx.Module):
    """One view, or all of them along a leading axis.

    Args:
        source: (s, 1) for a source at the point s, (d, 0) for rays that come from the direction d far away;
            shape (4,).
        corner: position of the first bin of the first row, shape (3,).
        u_step: step to the next bin, shape (3,).
        v_step: step to the next row, shape (3,).
    """

    source: Float[Array, "*views 4"]
    corner: Float[Array, "*views 3"]
    u_step: Float[Array, "*views 3"]
    v_step: Float[Array, "*views 3"]

    def ray(self, row: Array, bin: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """A point of the ray of a pixel, and its direction (not normalised), component by component."""
        point = tuple(self.corner[k] + row * self.v_step[k] + bin * self.u_step[k] for k in range(3))
        return point, tuple(self.source[3] * point[k] - self.source[k] for k in range(3))

    def camera(self) -> Float[Array, "3 4"]:
        """The matrix M with (w·bin, w·row, w) = M (x, y, z, 1); w is the depth behind the source along the
        normal of the panel, in units of the panel's distance from the source, or 1 for a parallel beam.
        """
        normal = jnp.cross(self.u_step, self.v_step)
        along_u = jnp.cross(self.v_step, normal)
        along_v = jnp.cross(normal, self.u_step)
        toward = self.source[:3] - self.source[3] * self.corner  # from the corner to the source
        depth = normal @ toward

        def line(dual):
            dual = dual - (dual @ toward) / depth * normal
            return jnp.append(dual, -dual @ self.corner)

        square = normal @ normal
        last = -self.source[3] * normal / depth
        bottom = jnp.append(last, 1 - last @ self.corner)
        return jnp.stack([line(along_u) / square, line(along_v) / square, bottom])


class VolumeGeometry(eqx.Module):
    """Views of a flat panel in space; see `PanelView` for the vectors.

    Args:
        source: sources (s, 1), or directions (d, 0) towards a source far away, shape (views, 4).
        middle: positions of the middle of the panel, shape (views, 3).
        u_step: steps from bin to bin, shape (views, 3).
        v_step: steps from row to row, shape (views, 3).
        rows: number of rows of the panel.
        bins: number of bins of a row.

    Raises:
        ValueError: for shapes that do not fit or vectors that are not finite.
    """

    source: Float[Array, "views 4"]
    middle: Float[Array, "views 3"]
    u_step: Float[Array, "views 3"]
    v_step: Float[Array, "views 3"]
    rows: int = eqx.field(static=True)
    bins: int = eqx.field(static=True)

    def __init__(self, source: Any, middle: Any, u_step: Any, v_step: Any, *, rows: int, bins: int):
        source, middle, u_step, v_step = (
            np.asarray(each) if isinstance(each, list | tuple) else each
            for each in (source, middle, u_step, v_step)
        )
        dtype = jax.dtypes.canonicalize_dtype(jnp.result_type(source, np.float32))
        self.source, self.middle, self.u_step, self.v_step = (
            jnp.asarray(each, dtype) for each in (source, middle, u_step, v_step)
        )
        views = self.source.shape[0] if self.source.ndim else 0
        for name, size in (("source", 4), ("middle", 3), ("u_step", 3), ("v_step", 3)):
            array = getattr(self, name)
            if array.shape != (views, size) or not views:
                raise ValueError(
                    f"geometry.{name} has shape {array.shape}: give ({views or 'views'}, {size})"
                )
            if not isinstance(array, Tracer) and not np.isfinite(array).all():
                raise ValueError(f"geometry.{name}: not all components are finite numbers")
        self.rows, self.bins = checked_count("rows", rows), checked_count("bins", bins)

    @classmethod
    def cone(
        cls,
        angles: Float[Array | np.ndarray, " views"],
        rows: int,
        bins: int,
        spacing: ScalarLike | tuple[ScalarLike, ScalarLike],
        *,
        source_to_axis: ScalarLike | Array,
        source_to_detector: ScalarLike | Array,
        detector_offset: ScalarLike | Array = 0.0,
        vertical_offset: ScalarLike | Array = 0.0,
        axis_shift: ScalarLike | Array = 0.0,
    ) -> Self:
        """A point source on a circle about the z-axis, and a panel opposite to it.

        Args:
            angles: view angles θ [rad].
            rows: number of rows of the panel.
            bins: number of bins of a row.
            spacing: distance of bins and rows [length], or (rows, bins) apart.
            source_to_axis: distance SOD from the source to the rotation axis [length], one or per view.
            source_to_detector: distance SDD from the source to the panel [length], one or per view.
            detector_offset: position of the middle of the panel along e_u [length]; default 0.
            vertical_offset: position of the middle of the panel along z [length]; default 0.
            axis_shift: position of the rotation axis along e_u from the perpendicular [length]; default 0.
        """
        angles = checked_angles(angles)
        distance, panel = checked_lengths(
            angles, source_to_axis=source_to_axis, source_to_detector=source_to_detector
        )
        offset, vertical, shift = checked_lengths(
            angles, detector_offset=detector_offset, vertical_offset=vertical_offset, axis_shift=axis_shift
        )
        e_u, e_r, e_z = _axes(angles)
        if not any(isinstance(each, Tracer) for each in (distance, panel)) and np.any(
            np.asarray(distance) > np.asarray(panel)
        ):
            raise ValueError(
                f"geometry.source_to_detector is {np.min(panel):g}, less than source_to_axis ="
                f" {np.max(distance):g}: the detector lies behind the object; are the two swapped?"
            )
        distance, panel, offset, vertical, shift = (
            jnp.broadcast_to(each, angles.shape)[:, None]
            for each in (distance, panel, offset, vertical, shift)
        )
        source = -distance * e_r - shift * e_u
        middle = source + panel * e_r + offset * e_u + vertical * e_z
        down, across = _spacings(spacing, angles)
        homogeneous = jnp.concatenate([source, jnp.ones_like(distance)], 1)
        return cls(homogeneous, middle, across * e_u, -down * e_z, rows=rows, bins=bins)

    @classmethod
    def parallel(
        cls,
        angles: Float[Array | np.ndarray, " views"],
        rows: int,
        bins: int,
        spacing: ScalarLike | tuple[ScalarLike, ScalarLike] = 1.0,
        *,
        detector_offset: ScalarLike | Array = 0.0,
        vertical_offset: ScalarLike | Array = 0.0,
        axis_shift: ScalarLike | Array = 0.0,
    ) -> Self:
        """Parallel rays along e_r; arguments as in `cone`."""
        angles = checked_angles(angles)
        offset, vertical, shift = checked_lengths(
            angles, detector_offset=detector_offset, vertical_offset=vertical_offset, axis_shift=axis_shift
        )
        e_u, e_r, e_z = _axes(angles)
        offset, vertical, shift = (
            jnp.broadcast_to(each, angles.shape)[:, None] for each in (offset, vertical, shift)
        )
        down, across = _spacings(spacing, angles)
        middle = (offset - shift) * e_u + vertical * e_z
        homogeneous = jnp.concatenate([-e_r, jnp.zeros_like(offset)], 1)
        return cls(homogeneous, middle, across * e_u, -down * e_z, rows=rows, bins=bins)

    @property
    def views(self) -> int:
        """Number of views."""
        return self.source.shape[0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """(views, rows, bins), the shape of the projections."""
        return self.views, self.rows, self.bins

    @property
    def is_parallel(self) -> bool:
        """Whether all rays of a view are parallel."""
        return not concrete(self.source, "source")[:, 3].any()

    @property
    def angles(self) -> Float[Array, " views"]:
        """View angles θ, told by the direction in which bins are counted [rad]."""
        return jnp.arctan2(self.u_step[:, 1], self.u_step[:, 0])

    def subset(self, index: Any) -> Self:
        """The geometry of some of the views, in the order of `index` (integers, a slice or a mask)."""
        return jax.tree.map(lambda leaf: leaf[index], self)

    def scanner(self) -> PanelView:
        """All views along a leading axis."""
        corner = self.middle - (self.rows - 1) / 2 * self.v_step - (self.bins - 1) / 2 * self.u_step
        return PanelView(self.source, corner, self.u_step, self.v_step)

    def turned(self, rotation: Float[Array, "views 3 3"]) -> Self:
        """Source and panel of every view turned about the origin, as if the object were turned back."""

        def turn(vectors):
            return jnp.einsum("vij,vj->vi", rotation, vectors)

        source = jnp.concatenate([turn(self.source[:, :3]), self.source[:, 3:]], 1)
        return type(self)(
            source, turn(self.middle), turn(self.u_step), turn(self.v_step), rows=self.rows, bins=self.bins
        )

    def taps(self, grid: VolumeGrid) -> tuple[int, int]:
        """At most how many rows and bins see a cube of two voxels, for concrete geometries.

        Raises:
            ValueError: when the volume reaches the source.
        """
        scanner = jax.tree.map(lambda leaf: np.asarray(concrete(leaf, "source"), np.float64), self.scanner())
        ends = np.array([(axis[0], axis[-1]) for axis in (grid.x, grid.y, grid.z)])
        places = np.stack(np.meshgrid(*ends, indexing="ij"), -1).reshape(-1, 3)
        square = np.array([(-1, -1), (-1, 1), (1, -1), (1, 1)]) * grid.pixel
        largest = np.zeros(2)
        for view in range(self.views):
            one = jax.tree.map(lambda leaf, view=view: leaf[view], scanner)
            camera = np.asarray(one.camera(), np.float64)
            depth = places @ camera[2, :3] + camera[2, 3]
            if depth.min() <= 1e-3 * abs(depth).max():
                raise ValueError(
                    "the volume reaches the source: the object must lie between source and detector; are"
                    " voxel and distances in the same unit?"
                )
            direction = abs(one.source[3] * places - one.source[:3])
            for axis in range(3):  # a square of two voxels in a plane that rays are driven through
                steep = direction[:, axis] >= 0.6 * direction.max(1)
                moves = np.insert(square, axis, 0, axis=1)
                corners = places[steep, None] + moves
                projected = corners @ camera[:, :3].T + camera[:, 3]
                if steep.any():
                    seen = projected[..., :2] / projected[..., 2:]
                    largest = np.maximum(largest, np.ptp(seen, axis=1).max(0)[::-1])
        return int(np.ceil(largest[0] * 1.02)), int(np.ceil(largest[1] * 1.02))


def _axes(angles: Array) -> tuple[Array, Array, Array]:
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    zero, one = jnp.zeros_like(cos), jnp.ones_like(cos)
    return jnp.stack([cos, sin, zero], 1), jnp.stack([-sin, cos, zero], 1), jnp.stack([zero, zero, one], 1)


def _spacings(spacing: Any, angles: Array) -> tuple[Array, Array]:
    down, across = spacing if isinstance(spacing, tuple) else (spacing, spacing)
    down, across = checked_lengths(angles, row_spacing=down, spacing=across)
    return (
        jnp.broadcast_to(down, angles.shape)[:, None],
        jnp.broadcast_to(across, angles.shape)[:, None],
    )
