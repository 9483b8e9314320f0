"""Filtered backprojection for parallel, fan and cone beams, full and short scans, any offset of axis or
detector.

The inversion formula f(X) = ½ ∫ dφ ∫ ds p(φ, s) h(X·n - s), h the ramp filter, in the coordinates of the
scan: a line of fan angle γ has s = SOD sin γ - τ cos γ, so that |∂s/∂γ| = SOD cos γ + τ sin γ, and

    flat detector    f = ½ ∫ dθ SDD / w² ∫ du p · (SOD cos γ + τ sin γ) · h(u_X - u)
    curved detector  f = ½ ∫ dθ SDD / L² ∫ du p · (SOD cos γ + τ sin γ) · (γ' / sin γ')² h(u_X - u)

with w the depth of X behind the source along e_r, L its distance, γ' = γ_X - γ. The displaced axis τ is
exact, not an approximation.

A flat panel is filtered row by row with the weight of the fan times the cosine of the cone angle (Feldkamp,
Davis and Kress): exact in the plane of the source, and for what does not change along z. Panels that move or
tilt from view to view are backprojected where they were; their rows are filtered as if they had not moved.

References: A. C. Kak and M. Slaney, Principles of Computerized Tomographic Imaging (1988), chapter 3; L. A.
Feldkamp, L. C. Davis and J. W. Kress, J. Opt. Soc. Am. A 1, 612 (1984); D. L. Parker, Med. Phys. 9, 254
(1982) and M. D. Silver, Med. Phys. 27, 773 (2000) for short scans.
"""

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sciml.ct.geometry import AbstractGeometry, CurvedFanBeam, FanBeam
from sciml.ct.grid import ImageGrid, VolumeGrid
from sciml.ct.volume_geometry import PanelView, VolumeGeometry

Filter = Literal["ram-lak", "shepp-logan", "cosine", "hamming", "hann"]

# what multiplies the ramp, as a function of the frequency relative to the highest one (0 to 1)
WINDOWS: dict[str, Any] = {
    "ram-lak": np.ones_like,
    "shepp-logan": lambda f: np.sinc(f / 2),
    "cosine": lambda f: np.cos(np.pi / 2 * f),
    "hamming": lambda f: 0.54 + 0.46 * np.cos(np.pi * f),
    "hann": lambda f: 0.5 + 0.5 * np.cos(np.pi * f),
}


def filtered_backprojection(
    sinogram: Float[Array, "views *panel"],
    geometry: AbstractGeometry | VolumeGeometry,
    grid: ImageGrid | VolumeGrid,
    *,
    filter: Filter = "ram-lak",
) -> Float[Array, "*slices rows columns"]:
    """The attenuation of a scan by filtered backprojection, in the unit 1/length of the geometry.

    Views need not be equally spaced: each stands for half of the way to its neighbours. Parallel views
    count by their angle modulo π. A fan scan of less than a full turn gets the weights of Parker and
    Silver, and needs π plus the opening angle; below that the angles that are missing are missing from the
    image.

    Args:
        sinogram: line integrals, shape `geometry.shape`.
        geometry: scan geometry, in the plane or in space (then this is the method of Feldkamp, "FDK").
        grid: pixels of the image, or voxels.
        filter: window of the ramp: "ram-lak" (none, sharpest), "shepp-logan", "cosine", "hamming", "hann"
            (smoothest).

    Raises:
        ValueError: for an unknown filter or a sinogram of another shape.
    """
    if filter not in WINDOWS:
        raise ValueError(f"filter is {filter!r}: choose one of {', '.join(WINDOWS)}")
    if sinogram.shape != geometry.shape:
        raise ValueError(f"the sinogram has shape {sinogram.shape}, the geometry {geometry.shape}")
    if isinstance(geometry, VolumeGeometry):
        if not isinstance(grid, VolumeGrid):
            raise ValueError("a scan in space needs a VolumeGrid")
        return _feldkamp(sinogram, geometry, grid, filter)
    if not isinstance(grid, ImageGrid):
        raise ValueError("a scan in the plane needs an ImageGrid")
    dtype = sinogram.dtype
    weights, step = _weights(geometry)
    spacing = jnp.broadcast_to(geometry.spacing, geometry.angles.shape).astype(dtype)
    turn = spacing / geometry.source_to_detector if isinstance(geometry, CurvedFanBeam) else None
    filtered = _convolve((sinogram * weights).astype(dtype), spacing, filter, turn)
    scanner = jax.tree.map(lambda leaf: leaf.astype(dtype), geometry.scanner())
    x, y = jnp.asarray(grid.x, dtype), jnp.asarray(grid.y, dtype)[:, None]

    def add(total, each):
        view, values, step = each
        position = jnp.clip(view.bin_of(x, y), -1, geometry.bins)
        left = jnp.floor(position)
        index = left.astype(jnp.int32) + 1
        padded = jnp.pad(values, (1, 2))
        here = padded.at[index].get(mode="promise_in_bounds")
        there = padded.at[index + 1].get(mode="promise_in_bounds")
        return total + step * (here + (position - left) * (there - here)) / view.depth(x, y) ** 2, None

    start = jnp.zeros(grid.shape, dtype)
    return jax.lax.scan(add, start, (scanner, filtered, step.astype(dtype)))[0]


def _weights(geometry: AbstractGeometry) -> tuple[Array, Array]:
    """What multiplies line integrals before filtering, and the angle that every view stands for."""
    if not isinstance(geometry, FanBeam | CurvedFanBeam):
        steps, _, _, _ = _arc(geometry.angles, math.pi)
        return jnp.ones((1, geometry.bins), steps.dtype), steps
    distance, tau, source = (
        jnp.broadcast_to(each, geometry.angles.shape)[:, None]
        for each in (geometry.source_to_detector, geometry.axis_shift, geometry.source_to_axis)
    )
    ratio = geometry.bin_positions() / distance
    gamma = jnp.arctan(ratio) if isinstance(geometry, FanBeam) else ratio
    jacobian = distance * (source * jnp.cos(gamma) + tau * jnp.sin(gamma))
    steps, along, arc, full = _arc(geometry.angles, 2 * math.pi)
    parker = short_scan_weights(along[:, None], jnp.arctan2(tau, source) - gamma, arc)
    return jacobian * jnp.where(full, 0.5, parker), steps


def short_scan_weights(
    along: Float[Array, "views 1"], gamma: Float[Array, "views bins"], arc: Float[Array, ""]
) -> Float[Array, "views bins"]:
    """Weights that share every line between the views that measure it, smoothly; the two shares sum to 1.

    The line (β, γ) is measured again at (β + π + 2γ, -γ).

    Args:
        along: angles β since the first view [rad].
        gamma: angle of the ray from the one through the axis, counted against the direction of rotation
            [rad].
        arc: angle from the first to the last view, at least π plus twice the largest |γ| [rad].
    """
    spare = jnp.maximum((arc - math.pi) / 2, abs(gamma).max() * (1 + 1e-5) + 1e-6)
    rise, fall = 2 * (spare - gamma), 2 * (spare + gamma)
    beginning = jnp.sin(math.pi / 2 * jnp.clip(along / rise, 0, 1)) ** 2
    end = jnp.sin(math.pi / 2 * jnp.clip((math.pi + 2 * spare - along) / fall, 0, 1)) ** 2
    return beginning * end


def _arc(angles: Array, period: float) -> tuple[Array, Array, Array, Array]:
    """The angle that each view stands for, its angle since the first one, the last one's, whether all is
    seen.

    Angles count modulo the period. A gap of more than three times the mean of the others is taken for the
    part that was not scanned.
    """
    views = angles.shape[0]
    turned = jnp.mod(angles, period)
    order = jnp.argsort(turned)
    ordered = turned[order]
    gaps = jnp.diff(ordered, append=ordered[:1] + period)
    widest = jnp.argmax(gaps)
    arc = period - gaps[widest]
    usual = arc / max(views - 1, 1)
    full = gaps[widest] <= 3 * usual if views > 1 else jnp.asarray(True)
    gaps = jnp.where(full | (jnp.arange(views) != widest), gaps, usual)
    steps = jnp.zeros_like(gaps).at[order].set((gaps + jnp.roll(gaps, 1)) / 2)
    along = jnp.mod(turned - ordered[(widest + 1) % views], period)
    return steps, along, arc, full


def _convolve(values: Array, spacing: Array, filter: str, turn: Array | None = None) -> Array:
    """Ramp-filtered rows, with enough zeros behind them that the ends do not meet.

    `spacing` is one length for every view; `turn` the angle from bin to bin of a curved detector.
    """
    bins = values.shape[-1]
    size = 2 ** math.ceil(math.log2(max(2 * bins, 4)))
    distance = np.minimum(np.arange(size), size - np.arange(size))  # in bins, both ways round
    ramp = np.where(distance % 2 == 1, -1 / (np.pi * np.maximum(distance, 1)) ** 2, 0.0)
    ramp[0] = 0.25
    kernel = jnp.asarray(ramp, values.dtype) / spacing[..., None]  # the sum over bins times their width
    if turn is not None:
        gamma = turn[..., None] * jnp.asarray(np.minimum(distance, bins), values.dtype)
        kernel = kernel / jnp.sinc(gamma / math.pi) ** 2
    window = WINDOWS[filter](np.arange(size // 2 + 1) / (size // 2))
    response = jnp.fft.rfft(kernel).real * jnp.asarray(window, values.dtype)
    spectrum = jnp.fft.rfft(values, size) * response
    return jnp.fft.irfft(spectrum, size)[..., :bins].astype(values.dtype)


# ------------------------------------------------------------------------------------------ in space


def _feldkamp(projections: Array, geometry: VolumeGeometry, grid: VolumeGrid, filter: str) -> Array:
    dtype = projections.dtype
    scanner = jax.tree.map(lambda leaf: leaf.astype(dtype), geometry.scanner())
    fans = jax.vmap(lambda view: _fan(view, jnp.arange(geometry.bins, dtype=dtype)))(scanner)
    share, step = _shares(geometry, fans)
    x, y, z = jnp.asarray(grid.x, dtype), jnp.asarray(grid.y, dtype)[:, None], jnp.asarray(grid.z, dtype)
    z = z[:, None, None]
    columns = geometry.bins + 3
    row = jnp.arange(geometry.rows, dtype=dtype)

    def add(total, each):
        view, values, share, step = each
        weighted = values * share * _feldkamp_weight(view, row, jnp.arange(geometry.bins, dtype=dtype))
        filtered = _convolve(weighted, jnp.linalg.norm(view.u_step), filter)
        padded = jnp.pad(filtered, ((1, 2), (1, 3)))
        flat = jax.lax.complex(padded[:, :-1], jnp.diff(padded)).ravel()
        camera = view.camera()
        depth = 1 / (camera[2, 0] * x + camera[2, 1] * y + camera[2, 2] * z + camera[2, 3])
        u = (camera[0, 0] * x + camera[0, 1] * y + camera[0, 2] * z + camera[0, 3]) * depth
        v = (camera[1, 0] * x + camera[1, 1] * y + camera[1, 2] * z + camera[1, 3]) * depth
        u, v = jnp.clip(u, -1, geometry.bins), jnp.clip(v, -1, geometry.rows)
        left, top = jnp.floor(u), jnp.floor(v)
        index = (top.astype(jnp.int32) + 1) * columns + left.astype(jnp.int32) + 1
        # look-ups keep a loop from being vectorised: arithmetic is done before them
        index, right, down, scale = jax.lax.optimization_barrier((index, u - left, v - top, step * depth**2))
        above, below = (flat.at[index + shift].get(mode="promise_in_bounds") for shift in (0, columns))
        upper, lower = above.real + right * above.imag, below.real + right * below.imag
        return total + scale * (upper + down * (lower - upper)), None

    start = jnp.zeros(grid.shape, dtype)
    return jax.lax.scan(add, start, (scanner, projections, share, step.astype(dtype)))[0]


def _panel(view: PanelView) -> tuple[Array, Array, Array, Array]:
    """Unit vectors of a panel along its bins and rows, and from the source to it; distance of the source."""
    along = view.u_step / jnp.linalg.norm(view.u_step)
    normal = jnp.cross(along, view.v_step)
    normal = normal / jnp.linalg.norm(normal)
    distance = normal @ (view.corner - view.source[:3])
    normal, distance = jnp.where(distance < 0, -normal, normal), abs(distance)
    return along, jnp.cross(normal, along), normal, distance


def _fan(view: PanelView, bin: Array) -> Array:
    """Fan angles of the bins of a row, counted from the ray through the rotation axis [rad]."""
    along, _, normal, distance = _panel(view)
    u = (view.corner - view.source[:3]) @ along + bin * jnp.linalg.norm(view.u_step)
    axis = jnp.arctan2(-view.source[:3] @ along, -view.source[:3] @ normal)
    return jnp.where(view.source[3] > 0, axis - jnp.arctan(u / distance), 0)


def _shares(geometry: VolumeGeometry, fans: Array) -> tuple[Array, Array]:
    """What short scans multiply rows with, (views, 1, bins), and the angle that every view stands for."""
    parallel_steps = _arc(geometry.angles, math.pi)[0]
    steps, along, arc, full = _arc(geometry.angles, 2 * math.pi)
    weights = jnp.where(full, 0.5, short_scan_weights(along[:, None], fans, arc))
    from_point = geometry.source[:, 3] > 0
    share = jnp.where(from_point[:, None], weights, 1)[:, None].astype(fans.dtype)
    return share, jnp.where(from_point, steps, parallel_steps)


def _feldkamp_weight(view: PanelView, row: Array, bin: Array) -> Array:
    """(SOD + τ u / SDD) / √(SDD² + u² + v²): for a parallel beam 1."""
    along, across, normal, distance = _panel(view)
    to_corner = view.corner - view.source[:3]
    u = to_corner @ along + bin * jnp.linalg.norm(view.u_step)
    v = (to_corner @ across + row * (view.v_step @ across))[:, None]
    axis = -view.source[:3] @ normal - (view.source[:3] @ along) * u / distance
    return jnp.where(view.source[3] > 0, axis / jnp.sqrt(distance**2 + u**2 + v**2), 1)
