"""The method of characteristics: smooth data before the first shock, for any flux.

Along x = y + t f′(u₀(y)) the state keeps its initial value u₀(y). `characteristics` solves for the foot y,
`characteristic_cell_averages` integrates exactly, and `shock_time` says how long this holds.
"""

import math
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from sciml.fv.grid import UniformGrid
from sciml.fv.law import AbstractLaw, as_dtype

_SAMPLES = 4097


@eqx.filter_jit
def _speed_and_slope(law, u0, y):
    """c(y) = f′(u₀(y)) and c′(y)."""
    law = as_dtype(law, y.dtype)
    return jax.jvp(lambda y: law.wave_speed(u0(y)), (y,), (jnp.ones_like(y),))


@eqx.filter_jit
def _feet(law, u0, x, t):
    """The y with y + t f′(u₀(y)) = x: brackets by doubling, then Newton kept inside by bisection."""
    law = as_dtype(law, x.dtype)
    speed = lambda y: law.wave_speed(u0(y))  # noqa: E731
    arrival = lambda y: y + t * speed(y)  # noqa: E731
    width = 1e-9 * (1 + jnp.abs(x)) + t * jnp.abs(speed(x))

    def widen(carry):
        low, high, width, _ = carry
        low = jnp.where(arrival(low) > x, low - width, low)
        high = jnp.where(arrival(high) < x, high + width, high)
        return low, high, 2 * width, ((arrival(low) > x) | (arrival(high) < x)).any()

    low, high, *_ = jax.lax.while_loop(
        lambda c: c[3], widen, (x - width, x + width, width, jnp.asarray(True))
    )

    def narrow(i, carry):
        low, high, y = carry
        c, slope = jax.jvp(speed, (y,), (jnp.ones_like(y),))
        error = y + t * c - x
        low, high = jnp.where(error <= 0, y, low), jnp.where(error >= 0, y, high)
        newton = y - error / (1 + t * slope)
        good = (newton >= low) & (newton <= high) & (i % 3 != 2)
        return low, high, jnp.where(good, newton, 0.5 * (low + high))

    return jax.lax.fori_loop(0, 3 * 55 + 2, narrow, (low, high, 0.5 * (low + high)))[2]


def shock_time(law: AbstractLaw, u0: Callable, lower: float, upper: float) -> float:
    """The time t* = -1 / min_y d/dy f′(u₀(y)) at which the first shock forms out of data on [lower, upper].

    Args:
        law: conservation law with flux f of any shape.
        u0: initial profile u₀(x), elementwise and written with `jax.numpy`.
        lower: left end of the interval from which characteristics start [length].
        upper: right end.

    Returns:
        t*, infinite when characteristics only spread, and 0 when u₀ crosses a kink of f where f′ drops. The
        interval is sampled at 4097 points: features of u₀ narrower than that can be missed.
    """
    length, smooth, jump = upper - lower, np.inf, np.inf
    with jax.enable_x64(True):
        for level in range(4):  # zoom in on the steepest fall of the speed
            y = jnp.linspace(lower, upper, _SAMPLES, dtype=jnp.float64)
            speed, slope = (np.asarray(a) for a in _speed_and_slope(law, u0, y))
            spacing = (upper - lower) / (_SAMPLES - 1)
            steps = np.diff(speed) / spacing
            smooth = min(smooth, float(slope.min()))
            if (
                level == 2
            ):  # spacing 1e-10 of the interval: a jump of the speed is steeper than any slope there
                jump = float(steps.min())
            steepest = float(y[int(np.argmin(steps if level < 2 else slope))])
            lower, upper = max(lower, steepest - spacing), min(upper, steepest + 2 * spacing)
    if jump < 2 * min(smooth, 0.0) - 1e3 * float(np.abs(speed).max()) / length:
        return 0.0
    return -1 / smooth if smooth < 0 else math.inf


def _checked_feet(law: AbstractLaw, u0: Callable, x: np.ndarray, t: float) -> np.ndarray:
    if not 0 <= t < math.inf:
        raise ValueError(f"characteristics: t is {t}; give a finite time that is at least 0")
    lower, upper = float(x.min()), float(x.max())
    for _ in range(3):  # the interval on which the solution at x depends
        margin = 1e-9 * (1 + abs(upper) + abs(lower))
        y = jnp.linspace(lower - margin, upper + margin, _SAMPLES, dtype=jnp.float64)
        speed = np.asarray(_speed_and_slope(law, u0, y)[0])
        if not np.isfinite(speed).all():
            raise ValueError("characteristics: f′(u₀(x)) is not finite on the interval that x depends on")
        lower = min(lower, float(x.min() - t * speed.max()))
        upper = max(upper, float(x.max() - t * speed.min()))
    if t > 0 and upper > lower:
        first = shock_time(law, u0, lower, upper)
        if t >= first:
            raise ValueError(
                f"t = {t:.6g} is past the first shock, which forms at t = {first:.6g}: characteristics "
                "cross there; stop earlier, or take lax_hopf_cell_averages with piecewise-constant data"
            )
    return np.asarray(_feet(law, u0, jnp.asarray(x), jnp.asarray(t, jnp.float64)))


def characteristics(law: AbstractLaw, u0: Callable, x: ArrayLike, t: float) -> Float[np.ndarray, "..."]:
    """The solution u(x, t) = u₀(y) of smooth data before the first shock, with x = y + t f′(u₀(y)).

    Args:
        law: conservation law with flux f of any shape.
        u0: initial profile u₀(x) on the whole line, elementwise and written with `jax.numpy`.
        x: positions, any shape [length].
        t: time, at least 0 and before the first shock.

    Returns:
        u(x, t) in float64, of the shape of `x`.

    Raises:
        ValueError: when t is negative, or past the first shock anywhere on the interval that `x` depends on.
    """
    x = np.asarray(x, dtype=np.float64)
    with jax.enable_x64(True):
        return np.asarray(u0(jnp.asarray(_checked_feet(law, u0, x, t))))


@eqx.filter_jit
def _potential_differences(law, u0, x, t, y, nodes, weights):
    """N(x, t) = U₀(y) - t f(u) + (x - y) u with u = u₀(y), differenced between neighbouring x."""
    law = as_dtype(law, x.dtype)
    half = 0.5 * jnp.diff(y)
    inside = 0.5 * (y[1:] + y[:-1])[:, None] + half[:, None] * nodes
    u = u0(y)
    return half * jnp.sum(u0(inside) * weights, axis=-1) + jnp.diff((x - y) * u - t * law.flux(u))


def characteristic_cell_averages(
    law: AbstractLaw, u0: Callable, grid: UniformGrid, t: float, points: int = 16
) -> Float[np.ndarray, " cells"]:
    """Exact cell averages of smooth data before the first shock, by the potential carried along
    characteristics.

    Only u₀ is integrated numerically, between the feet of the characteristics through the faces, so that a
    front that is about to break costs no accuracy.

    Args:
        law: conservation law with flux f of any shape.
        u0: initial profile u₀(x) on the whole line, elementwise and written with `jax.numpy`.
        grid: the cells.
        t: time, at least 0 and before the first shock.
        points: Gauss-Legendre points per cell for ∫ u₀ dy.

    Raises:
        ValueError: as for `characteristics`.
    """
    faces = grid.faces
    nodes, weights = np.polynomial.legendre.leggauss(points)
    with jax.enable_x64(True):
        feet = _checked_feet(law, u0, faces, t)
        mass = _potential_differences(law, u0, faces, jnp.asarray(t, jnp.float64), feet, nodes, weights)
        return np.asarray(mass) / np.diff(faces)
