"""What a road user and a road operator read from a density field: travel times, queues, the speed of jam
waves.

Fields are arrays of shape (frames, cells) on a uniform grid; speeds km/h, lengths km, times h.
"""

import numpy as np
from jaxtyping import Bool, Float

SLOWEST = 1.0  # km/h, a standing vehicle creeps on so that travel times stay finite


def instantaneous_travel_time(
    speed: Float[np.ndarray, "frames cells"], width: float
) -> Float[np.ndarray, " frames"]:
    """Time along the road if the speeds of one frame stayed as they are, Σ Δx/v [h].

    Args:
        speed: speed of the vehicles [km/h].
        width: cell width Δx [km].
    """
    return (width / np.maximum(speed, SLOWEST)).sum(axis=1)


def experienced_travel_time(
    speed: Float[np.ndarray, "frames cells"], frame: float, width: float
) -> Float[np.ndarray, " frames"]:
    """Time along the road of a vehicle that enters at a frame and meets the speeds as they come [h].

    The trajectory dx/dt = v(x, t) is exact for speeds constant within a cell and linear between frames. NaN
    when the vehicle has not left by the end of the record.

    Args:
        speed: speed of the vehicles [km/h].
        frame: time between frames Δt [h].
        width: cell width Δx [km].
    """
    speed = np.maximum(speed, SLOWEST)
    times = frame * np.arange(speed.shape[0])
    at = times.copy()
    for cell in speed.T:
        way = np.concatenate(
            [[0.0], np.cumsum(0.5 * frame * (cell[1:] + cell[:-1]))]
        )  # distance driven by each frame
        at = np.interp(np.interp(at, times, way) + width, way, times, right=np.nan)
    return at - times


def queue_length(
    density: Float[np.ndarray, "frames cells"], threshold: float, width: float
) -> Float[np.ndarray, " frames"]:
    """Length of road whose density is above a threshold [km].

    Args:
        density: density [veh/km/lane].
        threshold: density above which traffic is congested, usually the critical density [veh/km/lane].
        width: cell width Δx [km].
    """
    return width * (density > threshold).sum(axis=1)


def jam_wave_speed(
    density: Float[np.ndarray, "frames cells"],
    frame: float,
    width: float,
    *,
    slowest: float = 8.0,
    fastest: float = 40.0,
    period: float = 1 / 6,
    reach: float = 2.0,
    blocks: int = 8,
) -> tuple[float, float]:
    """Speed at which stop-and-go waves and queue fronts travel upstream, and its standard error [km/h],
    negative.

    The density without its running mean over `period` is correlated with itself, C(ξ, τ) = ⟨k(x, t) k(x -
    ξ, t + τ)⟩; the speed is where the mean of C along the line τ = ξ/w over all distances ξ ≤ `reach` is
    largest (a slant stack). The standard error is a jackknife over blocks of time. NaN when the largest
    mean lies at an end of the interval of speeds: then no such wave is seen.

    Args:
        density: density, any unit.
        frame: time between frames [h].
        width: cell width [km].
        slowest: smallest speed looked for [km/h].
        fastest: largest speed looked for [km/h].
        period: length of the running mean that is subtracted [h].
        reach: largest distance ξ [km].
        blocks: blocks of the jackknife.
    """
    frames, cells = density.shape
    window = min(max(int(round(period / frame)), 3), frames)
    kernel = np.ones(window)
    ones = np.convolve(np.ones(frames), kernel, "same")
    smooth = np.stack([np.convolve(cell, kernel, "same") for cell in density.T], axis=1) / ones[:, None]
    wave = density - smooth
    distances = np.arange(1, max(2, min(int(reach / width), cells - 2)) + 1)
    lags = int(np.ceil(distances[-1] * width / slowest / frame)) + 2
    pieces = [piece for piece in np.array_split(wave, blocks) if piece.shape[0] > 4]
    correlations = np.stack([_correlation(piece, distances, min(lags, frames)) for piece in pieces])
    slowness = np.linspace(1 / fastest, 1 / slowest, 400)

    def speed(total: np.ndarray) -> float:
        stack = np.zeros_like(slowness)
        for row, distance in zip(total, distances, strict=True):
            stack += np.interp(slowness * distance * width / frame, np.arange(row.size), row)
        peak = int(np.argmax(stack))
        if not 0 < peak < slowness.size - 1 or stack[peak] <= 0:
            return float("nan")
        left, top, right = stack[peak - 1 : peak + 2]
        shift = 0.5 * (left - right) / (left - 2 * top + right) if left - 2 * top + right < 0 else 0.0
        return float(-1 / (slowness[peak] + shift * (slowness[1] - slowness[0])))

    total = correlations.sum(axis=0)
    without = np.array([speed(total - part) for part in correlations])
    n = without.size
    error = np.sqrt((n - 1) / n * np.sum((without - without.mean()) ** 2)) if n > 1 else np.nan
    return speed(total), float(error)


def _correlation(wave: np.ndarray, distances: np.ndarray, lags: int) -> np.ndarray:
    """Σ k(x, t) k(x - ξ, t + τ) per pair of cells, shape (distances, lags); zero beyond the block."""
    size = 2 * wave.shape[0]
    spectrum = np.fft.rfft(wave, size, axis=0)
    rows = []
    for distance in distances:
        product = (np.conj(spectrum[:, distance:]) * spectrum[:, :-distance]).mean(axis=1)
        row = np.fft.irfft(product, size)[: min(lags, wave.shape[0])]
        rows.append(np.pad(row, (0, lags - row.size)))
    return np.stack(rows)


def vehicle_totals(
    density: Float[np.ndarray, "frames cells"],
    speed: Float[np.ndarray, "frames cells"],
    valid: Bool[np.ndarray, "frames cells"],
    frame: float,
    width: float,
) -> tuple[float, float]:
    """Time spent Σ k Δx Δt [veh·h/lane] and distance driven Σ k v Δx Δt [veh·km/lane] on the valid cells."""
    weight = np.where(valid, density, 0) * frame * width
    return float(weight.sum()), float((weight * np.where(valid, speed, 0)).sum())
