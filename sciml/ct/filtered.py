"""Filtered backprojection for parallel and fan beams, full and short scans, any offset of axis or detector.

The inversion formula f(X) = ½ ∫ dφ ∫ ds p(φ, s) h(X·n - s), h the ramp filter, in the coordinates of the
scan: a line of fan angle γ has s = SOD sin γ - τ cos γ, so that |∂s/∂γ| = SOD cos γ + τ sin γ, and

    flat detector    f = ½ ∫ dθ SDD / w² ∫ du p · (SOD cos γ + τ sin γ) · h(u_X - u)
    curved detector  f = ½ ∫ dθ SDD / L² ∫ du p · (SOD cos γ + τ sin γ) · (γ' / sin γ')² h(u_X - u)

with w the depth of X behind the source along e_r, L its distance, γ' = γ_X - γ. The displaced axis τ is
exact, not an approximation. References: A. C. Kak and M. Slaney, Principles of Computerized Tomographic
Imaging (1988), chapter 3; D. L. Parker, Med. Phys. 9, 254 (1982) and M. D. Silver, Med. Phys. 27, 773
(2000) for short scans.
"""

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sciml.ct.geometry import AbstractGeometry, CurvedFanBeam, FanBeam
from sciml.ct.grid import ImageGrid

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
    sinogram: Float[Array, "views bins"],
    geometry: AbstractGeometry,
    grid: ImageGrid,
    *,
    filter: Filter = "ram-lak",
) -> Float[Array, "rows columns"]:
    """The attenuation of a scan by filtered backprojection, in the unit 1/length of the geometry.

    Views need not be equally spaced: each stands for half of the way to its neighbours. Parallel views
    count by their angle modulo π. A fan scan of less than a full turn gets the weights of Parker and
    Silver, and needs π plus the opening angle; below that the angles that are missing are missing from the
    image.

    Args:
        sinogram: line integrals, shape `geometry.shape`.
        geometry: scan geometry.
        grid: pixels of the image.
        filter: window of the ramp: "ram-lak" (none, sharpest), "shepp-logan", "cosine", "hamming", "hann"
            (smoothest).

    Raises:
        ValueError: for an unknown filter or a sinogram of another shape.
    """
    if filter not in WINDOWS:
        raise ValueError(f"filter is {filter!r}: choose one of {', '.join(WINDOWS)}")
    if sinogram.shape != geometry.shape:
        raise ValueError(f"the sinogram has shape {sinogram.shape}, the geometry {geometry.shape}")
    dtype = sinogram.dtype
    weights, step = _weights(geometry)
    filtered = _convolve((sinogram * weights).astype(dtype), geometry, filter)
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


def _convolve(values: Array, geometry: AbstractGeometry, filter: str) -> Array:
    """Ramp-filtered rows, with enough zeros behind them that the ends do not meet."""
    bins = geometry.bins
    size = 2 ** math.ceil(math.log2(max(2 * bins, 4)))
    distance = np.minimum(np.arange(size), size - np.arange(size))  # in bins, both ways round
    ramp = np.where(distance % 2 == 1, -1 / (np.pi * np.maximum(distance, 1)) ** 2, 0.0)
    ramp[0] = 0.25
    spacing = jnp.broadcast_to(geometry.spacing, geometry.angles.shape).astype(values.dtype)[:, None]
    kernel = jnp.asarray(ramp, values.dtype) / spacing  # the sum over bins times their width
    if isinstance(geometry, CurvedFanBeam):
        gamma = spacing / geometry.source_to_detector * jnp.asarray(np.minimum(distance, bins), values.dtype)
        kernel = kernel / jnp.sinc(gamma / math.pi) ** 2
    window = WINDOWS[filter](np.arange(size // 2 + 1) / (size // 2))
    response = jnp.fft.rfft(kernel).real * jnp.asarray(window, values.dtype)
    spectrum = jnp.fft.rfft(values, size) * response
    return jnp.fft.irfft(spectrum, size)[:, :bins].astype(values.dtype)
