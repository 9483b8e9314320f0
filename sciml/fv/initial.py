"""Initial data u₀(x): piecewise constant with random states or one jump, traffic queues, and smooth profiles.

Data are values, not arrays on one grid: `cell_averages(grid)` gives the exact averages on any grid in
float64, and the same description goes to the exact solution. Random data are drawn by seed (numpy, to agree
with published protocols) or by key (JAX).
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from sciml.fv.grid import UniformGrid
from sciml.typing import Key


def _float64(values: ArrayLike) -> np.ndarray:
    return np.asarray(values, dtype=np.float64)


class PiecewiseConstant(eqx.Module):
    """A function that takes `values[..., i]` between `breakpoints[..., i]` and `breakpoints[..., i+1]`.

    The outer pieces extend to infinity. Leading axes are samples.

    Args:
        breakpoints: increasing ends of the pieces, float64 [length].
        values: state of every piece, float64.

    Raises:
        ValueError: when the breakpoints do not increase or there is not one more of them than of values.
    """

    breakpoints: Float[np.ndarray, "... pieces+1"] = eqx.field(converter=_float64)
    values: Float[np.ndarray, "... pieces"] = eqx.field(converter=_float64)

    def __check_init__(self):
        pieces = self.values.shape[-1:]
        if pieces in ((), (0,)) or self.breakpoints.shape[-1:] != (pieces[0] + 1,):
            raise ValueError(
                f"PiecewiseConstant: values {self.values.shape} and breakpoints {self.breakpoints.shape} "
                "do not fit; n values need n+1 breakpoints"
            )
        if not (np.diff(self.breakpoints) > 0).all():
            raise ValueError("PiecewiseConstant: breakpoints must increase")

    def __call__(self, x: ArrayLike) -> Float[np.ndarray, "... points"]:
        """u₀(x) at points; at a breakpoint the state to its left."""
        piece = (_float64(x)[:, None] > self.breakpoints[..., None, 1:-1]).sum(axis=-1)
        batch = np.broadcast_shapes(piece.shape[:-1], self.values.shape[:-1])
        values = np.broadcast_to(self.values, (*batch, self.values.shape[-1]))
        return np.take_along_axis(values, np.broadcast_to(piece, (*batch, piece.shape[-1])), axis=-1)

    def cell_averages(self, grid: UniformGrid) -> Float[np.ndarray, "... cells"]:
        """Exact averages ū_i = Σ_j |cell i ∩ piece j| u_j / Δx, breakpoints on faces or not."""
        return self.face_averages(grid.faces)

    def face_averages(self, faces: ArrayLike) -> Float[np.ndarray, "... cells"]:
        """Exact averages between neighbouring faces at any increasing positions."""
        faces = _float64(faces)
        left, right = self.breakpoints[..., :-1].copy(), self.breakpoints[..., 1:].copy()
        left[..., 0], right[..., -1] = -np.inf, np.inf
        overlap = np.minimum(faces[1:, None], right[..., None, :]) - np.maximum(
            faces[:-1, None], left[..., None, :]
        )
        overlap = np.maximum(overlap, 0.0)
        weights = overlap / overlap.sum(axis=-1, keepdims=True)
        return (weights @ self.values[..., None])[..., 0]


def random_piecewise_constant(
    seed: int,
    states: int,
    pieces: int = 10,
    lower: float = 0.0,
    upper: float = 1.0,
    *,
    domain: tuple[float, float] = (0.0, 0.2),
) -> PiecewiseConstant:
    """Random profiles of equal pieces, the published evaluation protocol of neural finite volumes with seed
    42.

    The states are lower + (upper - lower)·r with r from `numpy.random.RandomState(seed).rand(states,
    pieces)`; upper may be the smaller one: Burgers data that mirror traffic data k are u = 1 - 2k, that is
    lower = 1 and upper = -1.

    Args:
        seed: seed of numpy's legacy generator, whose stream never changes.
        states: number of profiles.
        pieces: number of equal pieces.
        lower: state for r = 0.
        upper: state for r = 1.
        domain: ends of the interval that is cut into pieces [length].
    """
    values = lower + (upper - lower) * np.random.RandomState(seed).rand(states, pieces)
    return PiecewiseConstant(np.linspace(*domain, pieces + 1), values)


def riemann_problems(
    seed: int,
    count: int,
    lower: float = 0.0,
    upper: float = 1.0,
    *,
    domain: tuple[float, float] = (0.0, 0.2),
    shift: float = 0.0,
) -> PiecewiseConstant:
    """Riemann problems with both states uniform in [lower, upper] and the jump at or near the middle of the
    domain.

    Args:
        seed: seed of numpy's legacy generator.
        count: number of problems.
        lower: smallest state.
        upper: largest state.
        domain: ends of the interval [length].
        shift: largest displacement of the jump, as a fraction of half the domain, 0 ≤ shift < 1.

    Raises:
        ValueError: when shift could move the jump out of the domain.
    """
    if not 0 <= shift < 1:
        raise ValueError(f"riemann_problems: shift is {shift}; need 0 <= shift < 1")
    random = np.random.RandomState(seed)
    values = lower + (upper - lower) * random.rand(count, 2)
    left, right = domain
    jump = 0.5 * (left + right) + 0.5 * (right - left) * shift * (2 * random.rand(count) - 1)
    return PiecewiseConstant(np.stack([np.full(count, left), jump, np.full(count, right)], axis=-1), values)


def jump(
    left: float, right: float, *, domain: tuple[float, float], position: float | None = None
) -> PiecewiseConstant:
    """One jump from `left` to `right`, in the middle of the domain unless `position` says where [length]."""
    position = 0.5 * (domain[0] + domain[1]) if position is None else position
    return PiecewiseConstant([domain[0], position, domain[1]], [left, right])


def back_of_queue(
    free: float, queued: float, *, domain: tuple[float, float], position: float | None = None
) -> PiecewiseConstant:
    """Traffic of density `free` runs into a queue of density `queued`: a shock if f is concave."""
    _check_queue(free, queued)
    return jump(free, queued, domain=domain, position=position)


def queue_discharge(
    free: float, queued: float, *, domain: tuple[float, float], position: float | None = None
) -> PiecewiseConstant:
    """A queue of density `queued` dissolves into density `free`: a rarefaction (green light)."""
    _check_queue(free, queued)
    return jump(queued, free, domain=domain, position=position)


def congestion(
    free: float, queued: float, *, domain: tuple[float, float], start: float, end: float
) -> PiecewiseConstant:
    """A queue of density `queued` from `start` to `end` in density `free`: shock, then rarefaction."""
    _check_queue(free, queued)
    return PiecewiseConstant([domain[0], start, end, domain[1]], [free, queued, free])


def _check_queue(free: float, queued: float) -> None:
    if not 0 <= free < queued:
        raise ValueError(
            f"a queue is denser than free traffic: need 0 <= free < queued, got {free} and {queued}"
        )


class AbstractProfile(eqx.Module):
    """A smooth profile u₀(x) on the line; its numbers are kept in float64, used in the dtype of x."""

    @abc.abstractmethod
    def evaluate(self, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """u₀(x), elementwise, in the dtype of the profile's numbers."""

    def __call__(self, x: ArrayLike) -> Float[Array, "..."]:
        """u₀(x), elementwise, in the dtype of x."""
        x = jnp.asarray(x)
        return jax.tree.map(lambda a: jnp.asarray(a, x.dtype), self).evaluate(x)

    def cell_averages(self, grid: UniformGrid, points: int = 16) -> Float[np.ndarray, " cells"]:
        """Averages over every cell by Gauss-Legendre quadrature with `points` points, float64."""
        with jax.enable_x64(True):
            return grid.cell_average(self, points)


class Sine(AbstractProfile):
    """u₀ = mean + amplitude·sin(2π (x - shift)/wavelength)."""

    mean: np.ndarray = eqx.field(converter=_float64, default=0.5)
    amplitude: np.ndarray = eqx.field(converter=_float64, default=0.25)
    wavelength: np.ndarray = eqx.field(converter=_float64, default=1.0)
    shift: np.ndarray = eqx.field(converter=_float64, default=0.0)

    def evaluate(self, x):
        return self.mean + self.amplitude * jnp.sin(2 * jnp.pi * (x - self.shift) / self.wavelength)


class GaussianBump(AbstractProfile):
    """u₀ = mean + amplitude·exp(-(x - centre)²/(2 width²))."""

    mean: np.ndarray = eqx.field(converter=_float64, default=0.2)
    amplitude: np.ndarray = eqx.field(converter=_float64, default=0.5)
    centre: np.ndarray = eqx.field(converter=_float64, default=0.5)
    width: np.ndarray = eqx.field(converter=_float64, default=0.1)

    def evaluate(self, x):
        return self.mean + self.amplitude * jnp.exp(-0.5 * ((x - self.centre) / self.width) ** 2)


class FourierSeries(AbstractProfile):
    """u₀ = mean + Σ_m a_m cos(2πm x/λ) + b_m sin(2πm x/λ), a = `cosines`, b = `sines`, m ≥ 1."""

    mean: np.ndarray = eqx.field(converter=_float64)
    cosines: Float[np.ndarray, " modes"] = eqx.field(converter=_float64)
    sines: Float[np.ndarray, " modes"] = eqx.field(converter=_float64)
    wavelength: np.ndarray = eqx.field(converter=_float64, default=1.0)

    def evaluate(self, x):
        modes = jnp.arange(1, self.sines.shape[-1] + 1)
        phase = 2 * jnp.pi * modes * x[..., None] / self.wavelength
        return self.mean + jnp.sum(self.cosines * jnp.cos(phase) + self.sines * jnp.sin(phase), axis=-1)


def random_fourier_series(
    mean: float = 0.5, amplitude: float = 0.4, modes: int = 4, wavelength: float = 1.0, *, key: Key
) -> FourierSeries:
    """A random smooth periodic profile that stays within `amplitude` of `mean`.

    Coefficients are normal with deviation 1/m² for mode m, scaled so that Σ_m (a_m² + b_m²)^½ = amplitude.

    Args:
        mean: average of the profile.
        amplitude: bound on |u₀ - mean|.
        modes: number of harmonics.
        wavelength: period [length].
        key: JAX random key.
    """
    draws = _float64(jax.random.normal(key, (2, modes))) / np.arange(1, modes + 1) ** 2
    draws *= amplitude / np.hypot(*draws).sum()
    return FourierSeries(mean, draws[0], draws[1], wavelength)
