"""Scan geometries in the plane: along which line does every detector bin look in every view?

| geometry | source | detector |
|---|---|---|
| `ParallelBeam` | at infinity | straight |
| `FanBeam` | a point on a circle | straight, equally spaced bins (flat) |
| `CurvedFanBeam` | a point on a circle | arc around the source, equal angles |

In view θ the axes of the scanner are e_u = (cos θ, sin θ), along which the bins are counted, and
e_r = (-sin θ, cos θ), from the source to the detector; θ grows counter-clockwise. The object stays, the
scanner turns about the origin. Bin k lies at u_k = (k - (bins - 1)/2)·spacing + detector_offset, measured
from the foot of the perpendicular from the source (along the arc when curved). `axis_shift` τ says that the
rotation axis lies at +τ along e_u from that perpendicular. All lengths have one unit, which the user chooses;
attenuation is then per that unit. Angles are radians.

A geometry is a pytree: `jax.grad` with respect to angles, offsets and distances works through the projector.
Lengths may be given once or per view. `scanner()` gives what the projector needs: for one view, the line of
a bin and the bin of a point.
"""

import abc
import warnings
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from sciml.ct.grid import ImageGrid
from sciml.typing import ScalarLike

Line = tuple[Array, Array, Array]


class AbstractView(eqx.Module):
    """One view, or all of them along a leading axis: lines l₀x + l₁y + l₂ = 0 with l₀² + l₁² = 1."""

    @abc.abstractmethod
    def unscaled_line(self, bin: Float[Array, "..."]) -> Line:
        """Coefficients of the line that a bin looks along, up to a factor."""

    def line(self, bin: Float[Array, "..."]) -> Line:
        """Coefficients of the line that a bin looks along; fractions of bins are meant literally."""
        l0, l1, l2 = self.unscaled_line(bin)
        scale = jax.lax.rsqrt(l0 * l0 + l1 * l1)
        return l0 * scale, l1 * scale, l2 * scale

    @abc.abstractmethod
    def bin_of(self, x: Float[Array, "..."], y: Float[Array, "..."]) -> Float[Array, "..."]:
        """The bin, with its fraction, in which a point is seen."""

    @abc.abstractmethod
    def depth(self, x: Float[Array, "..."], y: Float[Array, "..."]) -> Float[Array, "..."]:
        """Distance that the filtered backprojection divides by twice: along e_r from the source for a flat
        detector, along the ray for a curved one, 1 for a parallel beam.
        """


class FlatView(AbstractView):
    """A straight detector: bin = (p·X) / (q·X) with X = (x, y, 1), a camera of one dimension.

    Args:
        p: numerator coefficients, shape (3,).
        q: denominator coefficients, shape (3,); (0, 0, 1) for a parallel beam.
    """

    p: Float[Array, "*views 3"]
    q: Float[Array, "*views 3"]

    def unscaled_line(self, bin):
        l0, l1, l2 = (self.p[i] - bin * self.q[i] for i in range(3))
        return l0, l1, l2

    def bin_of(self, x, y):
        p, q = self.p, self.q
        return (p[0] * x + p[1] * y + p[2]) / (q[0] * x + q[1] * y + q[2])

    def depth(self, x, y):
        return self.q[0] * x + self.q[1] * y + self.q[2]


class ArcView(AbstractView):
    """An arc around the source.

    Args:
        e_u: unit vector along which bins are counted, shape (2,).
        source: position of the source in the axes (e_u, e_r), shape (2,).
        first: fan angle of bin 0 [rad].
        step: fan angle from bin to bin [rad].
    """

    e_u: Float[Array, "*views 2"]
    source: Float[Array, "*views 2"]
    first: Float[Array, "*views"]
    step: Float[Array, "*views"]

    def unscaled_line(self, bin):
        gamma = self.first + bin * self.step
        cos, sin = jnp.cos(gamma), jnp.sin(gamma)
        l0 = cos * self.e_u[0] + sin * self.e_u[1]
        l1 = cos * self.e_u[1] - sin * self.e_u[0]
        return l0, l1, sin * self.source[1] - cos * self.source[0]

    def _from_source(self, x, y):
        across = x * self.e_u[0] + y * self.e_u[1] - self.source[0]
        along = y * self.e_u[0] - x * self.e_u[1] - self.source[1]
        return across, along

    def bin_of(self, x, y):
        return (jnp.arctan2(*self._from_source(x, y)) - self.first) / self.step

    def depth(self, x, y):
        return jnp.hypot(*self._from_source(x, y))


class AbstractGeometry(eqx.Module):
    """What all scan geometries in the plane have; see the module for the meaning of the fields."""

    angles: eqx.AbstractVar[Float[Array, " views"]]
    bins: eqx.AbstractVar[int]
    spacing: eqx.AbstractVar[Array]
    detector_offset: eqx.AbstractVar[Array]
    axis_shift: eqx.AbstractVar[Array]

    @abc.abstractmethod
    def scanner(self) -> AbstractView:
        """All views along a leading axis."""

    @abc.abstractmethod
    def narrowest_spacing(self, grid: ImageGrid) -> float:
        """A lower bound, for all angles, of the distance between neighbouring rays within an image."""

    @property
    def views(self) -> int:
        """Number of views."""
        return self.angles.shape[0]

    @property
    def shape(self) -> tuple[int, int]:
        """(views, bins), the shape of a sinogram."""
        return self.views, self.bins

    def bin_positions(self) -> Float[Array, "*views bins"]:
        """Positions u_k of the bins on the detector [length]."""
        k = jnp.arange(self.bins) - (self.bins - 1) / 2
        return k * self.spacing[..., None] + self.detector_offset[..., None]

    def subset(self, index: Any) -> Self:
        """The geometry of some of the views, in the order of `index` (integers, a slice or a mask)."""
        return jax.tree.map(lambda leaf: leaf[index] if leaf.ndim else leaf, self)


class ParallelBeam(AbstractGeometry):
    """Parallel rays: bin k looks along x cos θ + y sin θ = u_k - axis_shift.

    Args:
        angles: view angles θ [rad].
        bins: number of detector bins.
        spacing: distance of the bins [length]; default 1.
        detector_offset: position of the middle of the detector along e_u [length], one or per view; default
            0.
        axis_shift: position of the rotation axis along e_u [length], one or per view; default 0. In a
            parallel
            beam it is the same as a detector offset of the other sign.

    Raises:
        ValueError: for sizes that do not fit, or lengths that are not positive where they must be.
    """

    angles: Float[Array, " views"]
    bins: int = eqx.field(static=True)
    spacing: Array
    detector_offset: Array
    axis_shift: Array

    def __init__(
        self,
        angles: Float[Array | np.ndarray, " views"],
        bins: int,
        spacing: ScalarLike = 1.0,
        *,
        detector_offset: ScalarLike | Array = 0.0,
        axis_shift: ScalarLike | Array = 0.0,
    ):
        self.angles = checked_angles(angles)
        self.bins = checked_count("bins", bins)
        self.spacing, self.detector_offset, self.axis_shift = checked_lengths(
            self.angles, spacing=spacing, detector_offset=detector_offset, axis_shift=axis_shift
        )

    def scanner(self) -> FlatView:
        cos, sin = jnp.cos(self.angles), jnp.sin(self.angles)
        zero, one = jnp.zeros_like(cos), jnp.ones_like(cos)
        middle = (self.axis_shift - self.detector_offset) / self.spacing + (self.bins - 1) / 2
        p = jnp.stack([cos / self.spacing, sin / self.spacing, zero + middle], -1)
        return FlatView(p, jnp.stack([zero, zero, one], -1))

    def narrowest_spacing(self, grid: ImageGrid) -> float:
        return float(np.min(concrete(self.spacing, "spacing")))


class FanBeam(AbstractGeometry):
    """A point source and a flat detector; the source is at -source_to_axis·e_r - axis_shift·e_u.

    Args:
        angles: view angles θ [rad].
        bins: number of detector bins.
        spacing: distance of the bins on the detector [length].
        source_to_axis: distance from the source to the rotation axis along e_r (SOD) [length].
        source_to_detector: distance from the source to the detector along e_r (SDD) [length].
        detector_offset: position of the middle of the detector relative to the foot of the perpendicular from
            the source [length], one or per view; default 0.
        axis_shift: position of the rotation axis relative to that perpendicular [length]; default 0.

    Raises:
        ValueError: for sizes that do not fit, lengths that are not positive, a detector before the axis.
    """

    angles: Float[Array, " views"]
    bins: int = eqx.field(static=True)
    spacing: Array
    source_to_axis: Array
    source_to_detector: Array
    detector_offset: Array
    axis_shift: Array

    def __init__(
        self,
        angles: Float[Array | np.ndarray, " views"],
        bins: int,
        spacing: ScalarLike,
        *,
        source_to_axis: ScalarLike | Array,
        source_to_detector: ScalarLike | Array,
        detector_offset: ScalarLike | Array = 0.0,
        axis_shift: ScalarLike | Array = 0.0,
    ):
        self.angles = checked_angles(angles)
        self.bins = checked_count("bins", bins)
        self.spacing, self.detector_offset, self.axis_shift = checked_lengths(
            self.angles, spacing=spacing, detector_offset=detector_offset, axis_shift=axis_shift
        )
        self.source_to_axis, self.source_to_detector = _distances(
            self.angles, source_to_axis, source_to_detector
        )

    def scanner(self) -> FlatView:
        cos, sin = jnp.cos(self.angles), jnp.sin(self.angles)
        one = jnp.ones_like(cos)
        q = jnp.stack([-sin, cos, one * self.source_to_axis], -1)
        across = jnp.stack([cos, sin, one * self.axis_shift], -1)
        magnified = (one * self.source_to_detector / self.spacing)[:, None]
        middle = (self.bins - 1) / 2 - self.detector_offset / self.spacing
        return FlatView(magnified * across + (one * middle)[:, None] * q, q)

    def narrowest_spacing(self, grid: ImageGrid) -> float:
        source, detector, gamma, distance = _nearest_points(self, grid)
        spacing = float(np.min(concrete(self.spacing, "spacing")))
        slack = 1 + 4 * grid.pixel / distance.min()  # rays are looked for a little beyond a pixel
        return float((distance * np.cos(gamma) ** 2).min() * spacing / detector / slack)


class CurvedFanBeam(AbstractGeometry):
    """A point source and a detector on an arc around it; bin k looks at the fan angle u_k /
    source_to_detector.

    Args:
        angles: view angles θ [rad].
        bins: number of detector bins.
        spacing: distance of the bins along the arc [length].
        source_to_axis: distance from the source to the rotation axis along e_r (SOD) [length].
        source_to_detector: radius of the arc (SDD) [length].
        detector_offset: position of the middle of the detector along the arc [length]; default 0.
        axis_shift: position of the rotation axis across the central ray [length]; default 0.

    Raises:
        ValueError: for sizes that do not fit, lengths that are not positive, a detector before the axis.
    """

    angles: Float[Array, " views"]
    bins: int = eqx.field(static=True)
    spacing: Array
    source_to_axis: Array
    source_to_detector: Array
    detector_offset: Array
    axis_shift: Array

    def __init__(
        self,
        angles: Float[Array | np.ndarray, " views"],
        bins: int,
        spacing: ScalarLike,
        *,
        source_to_axis: ScalarLike | Array,
        source_to_detector: ScalarLike | Array,
        detector_offset: ScalarLike | Array = 0.0,
        axis_shift: ScalarLike | Array = 0.0,
    ):
        self.angles = checked_angles(angles)
        self.bins = checked_count("bins", bins)
        self.spacing, self.detector_offset, self.axis_shift = checked_lengths(
            self.angles, spacing=spacing, detector_offset=detector_offset, axis_shift=axis_shift
        )
        self.source_to_axis, self.source_to_detector = _distances(
            self.angles, source_to_axis, source_to_detector
        )

    def scanner(self) -> ArcView:
        cos, sin = jnp.cos(self.angles), jnp.sin(self.angles)
        one = jnp.ones_like(cos)
        step = one * self.spacing / self.source_to_detector
        first = self.detector_offset / self.source_to_detector - (self.bins - 1) / 2 * step
        source = jnp.stack([-one * self.axis_shift, -one * self.source_to_axis], -1)
        return ArcView(jnp.stack([cos, sin], -1), source, first, step)

    def narrowest_spacing(self, grid: ImageGrid) -> float:
        source, detector, *_ = _nearest_points(self, grid)
        edge = np.abs(np.asarray(self.bin_positions())).max() / detector
        if edge >= np.pi / 2:
            raise ValueError(
                f"geometry: the fan opens to {np.degrees(edge):.0f} degrees from the central ray; less than"
                " 90 are needed: check spacing, bins and source_to_detector"
            )
        spacing = float(np.min(concrete(self.spacing, "spacing")))
        return float((source - grid.radius) * spacing / detector)


def bin_of_axis(geometry: AbstractGeometry) -> Float[Array, " views"]:
    """The bin, with its fraction, in which every view sees the rotation axis ("centre of rotation")."""
    zero = jnp.zeros((), geometry.angles.dtype)
    return jax.vmap(lambda view: view.bin_of(zero, zero))(geometry.scanner())


# ------------------------------------------------------------------------------------------ checks


def _is_traced(value: Any) -> bool:
    return isinstance(value, Tracer)


def concrete(value: Any, name: str) -> np.ndarray:
    if _is_traced(value):
        raise ValueError(
            f"geometry.{name} is traced: build the projector outside jax.jit and jax.grad, and exchange its"
            " geometry inside with projector.with_geometry(geometry)"
        )
    return np.asarray(value)


def checked_angles(angles: Any) -> Float[Array, " views"]:
    made = angles if _is_traced(angles) else np.asarray(angles)
    if made.ndim != 1 or made.shape[0] == 0:
        raise ValueError(f"geometry.angles has shape {made.shape}: give one angle per view, at least one")
    if not _is_traced(made):
        if not np.isfinite(made).all():
            raise ValueError("geometry.angles: not all angles are finite numbers")
        if np.abs(made).max() > 4 * np.pi:
            warnings.warn(
                f"geometry.angles reaches {np.abs(made).max():g} radians: if these are degrees, convert them"
                " with numpy.deg2rad",
                stacklevel=3,
            )
    return jnp.asarray(made, jax.dtypes.canonicalize_dtype(np.promote_types(made.dtype, np.float32)))


def checked_count(name: str, count: Any) -> int:
    if int(count) != count or count < 1:
        raise ValueError(f"geometry.{name} is {count}: give the number of detector {name}, at least 1")
    return int(count)


def checked_lengths(angles: Array, **lengths: Any) -> tuple[Array, ...]:
    made = []
    for name, value in lengths.items():
        array = jnp.asarray(value, angles.dtype)
        if array.shape not in ((), angles.shape):
            raise ValueError(
                f"geometry.{name} has shape {array.shape}: give one length, or one for each of the"
                f" {angles.shape[0]} views"
            )
        if not _is_traced(array):
            if not np.isfinite(array).all():
                raise ValueError(f"geometry.{name}: not a finite length")
            if not name.endswith(("_offset", "_shift")) and not (np.asarray(array) > 0).all():
                raise ValueError(f"geometry.{name} is {np.asarray(array).min():g}: give a positive length")
        made.append(array)
    return tuple(made)


def _distances(angles: Array, source_to_axis: Any, source_to_detector: Any) -> tuple[Array, ...]:
    axis, detector = checked_lengths(
        angles, source_to_axis=source_to_axis, source_to_detector=source_to_detector
    )
    if not (_is_traced(axis) or _is_traced(detector)) and (np.asarray(axis) > np.asarray(detector)).any():
        raise ValueError(
            f"geometry.source_to_detector is {np.asarray(detector).min():g}, less than source_to_axis ="
            f" {np.asarray(axis).max():g}: the detector lies behind the object; are the two swapped?"
        )
    return axis, detector


def _nearest_points(
    geometry: FanBeam | CurvedFanBeam, grid: ImageGrid
) -> tuple[float, float, np.ndarray, np.ndarray]:
    """Distances of axis and detector from the source; fan angles, and how near the image comes along each."""
    source = float(np.min(concrete(geometry.source_to_axis, "source_to_axis")))
    detector = float(np.max(concrete(geometry.source_to_detector, "source_to_detector")))
    if grid.radius >= source:
        raise ValueError(
            f"the image reaches {grid.radius:g} from the rotation axis, the source is at {source:g}: the"
            " object must lie between source and detector; are pixel and distances in the same unit?"
        )
    shift = float(np.max(np.abs(concrete(geometry.axis_shift, "axis_shift"))))
    radius = min(grid.radius + shift, 0.999 * source)
    gamma = np.linspace(0, np.arcsin(radius / source), 257)
    half_chord = np.sqrt(np.maximum(radius**2 - (source * np.sin(gamma)) ** 2, 0))
    return source, detector, gamma, source * np.cos(gamma) - half_chord
