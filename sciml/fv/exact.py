"""Exact entropy solutions of u_t + f(u)_x = 0, the references that every scheme is measured against.

| data | flux | function |
|---|---|---|
| one jump | any | `riemann`, `riemann_waves`, `riemann_cell_averages` |
| piecewise constant | concave, convex or linear | `lax_hopf_cell_averages`; `lax_hopf_potential` inside jitted code |
| smooth, before the first shock | any | `characteristics`, `characteristic_cell_averages`, `shock_time` |
| piecewise constant | piecewise linear, any shape | `sciml.fv.wave_front.WaveFronts` |

Cell averages come from a potential N with N_x = u: the average over a cell is the difference of N at its two faces
divided by the width, so no quadrature in space is needed and jumps inside a cell cost no accuracy. Everything is
float64, whatever the precision of the caller. Reference: L. C. Evans, Partial Differential Equations, 2010, section 3.4.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float

from sciml.fv.grid import UniformGrid
from sciml.fv.law import AbstractLaw, as_dtype
from sciml.typing import ScalarLike

# ---------------------------------------------------------------------------------------------- Riemann problems


@dataclasses.dataclass(frozen=True)
class Wave:
    """One elementary wave of a Riemann problem: `left` and `right` state, `slowest` and `fastest` speed."""

    left: float
    right: float
    slowest: float
    fastest: float

    @property
    def kind(self) -> Literal["shock", "rarefaction"]:
        """A jump (also the contact of a straight piece of f) has one speed, a rarefaction an interval of them."""
        return "shock" if self.slowest == self.fastest else "rarefaction"


@eqx.filter_jit
def _flux(law, u):
    return as_dtype(law, u.dtype).flux(u)


@eqx.filter_jit
def _wave_speed(law, u):
    return as_dtype(law, u.dtype).wave_speed(u)


@eqx.filter_jit
def _arc_state(law, sign, speed, lower, upper):
    """argmin over v in [lower, upper] of h(v) - speed·v for h(v) = sign·f(sign·v), which is convex there."""
    law = as_dtype(law, speed.dtype)
    slope = lambda v: law.wave_speed(sign * v)  # noqa: E731

    if law.curvature == "neither":

        def halve(_, interval):
            low, high = interval
            middle = 0.5 * (low + high)
            right = slope(middle) < speed
            return jnp.where(right, middle, low), jnp.where(right, high, middle)

        ends = jnp.full_like(speed, lower), jnp.full_like(speed, upper)
        low, high = jax.lax.fori_loop(0, 60, halve, ends)
        state = 0.5 * (low + high)
    else:
        low, high = jnp.minimum(sign * lower, sign * upper), jnp.maximum(sign * lower, sign * upper)
        state = sign * law.legendre_state(speed, low, high)
    state = jnp.where(speed <= slope(lower), lower, state)
    return jnp.where(speed >= slope(upper), upper, state)


class _Hull:
    """The convex hull below h(v) = s·f(s·v) between v = s·left and v = s·right, with s = ±1 such that v increases.

    Its parts are points and arcs of the graph, `parts[j]` = (lower, upper), joined by chords of slope `speeds[j]`. By the
    envelope theorem part j wins min_v h(v) - ξ·v exactly for speeds[j-1] < ξ < speeds[j], which is the solution at
    x/t = ξ: arcs are rarefactions and chords are shocks. Two parts change places once, so a stack builds the hull.
    """

    def __init__(self, law: AbstractLaw, left: float, right: float):
        self.law, self.sign = law, 1.0 if left < right else -1.0
        self.lower, self.upper = self.sign * left, self.sign * right
        self.parts: list[tuple[float, float]] = []
        self.speeds: list[float] = []
        for part in self._candidates():
            speed = math.nan
            while self.parts:
                speed = self._chord(self.parts[-1], part)
                if not (self.speeds and speed <= self.speeds[-1]):
                    break
                self.parts.pop(), self.speeds.pop()
            if self.parts:
                self.speeds.append(speed)
            self.parts.append(part)

    def _candidates(self) -> list[tuple[float, float]]:
        law, lower, upper = self.law, self.lower, self.upper
        if law.curvature == ("convex" if self.sign > 0 else "concave") and not law.piecewise_linear:
            return [(lower, upper)]
        cuts = sorted(self.sign * float(u) for u in (*law.kinks, *law.inflection_points))
        points = [lower, *(v for v in cuts if lower < v < upper), upper]
        if law.curvature != "neither" or law.piecewise_linear:
            return [(v, v) for v in points]
        thirds = np.array(
            [[0.75 * p + 0.25 * q, 0.25 * p + 0.75 * q] for p, q in zip(points, points[1:], strict=False)]
        )
        slopes = self.slope(thirds)
        arcs = [
            (p, q) for p, q, (s, r) in zip(points, points[1:], slopes, strict=False) if r > s
        ]  # h is convex between p and q
        ends = {v for arc in arcs for v in arc}
        return sorted(arcs + [(v, v) for v in points if v not in ends])

    def value(self, v: ArrayLike) -> np.ndarray:
        return self.sign * np.asarray(_flux(self.law, self.sign * jnp.asarray(v, jnp.float64)))

    def slope(self, v: ArrayLike) -> np.ndarray:
        return np.asarray(_wave_speed(self.law, self.sign * jnp.asarray(v, jnp.float64)))

    def state(self, part: tuple[float, float], speed: ArrayLike) -> np.ndarray:
        """The point v of one part where h(v) - speed·v is smallest."""
        speed = jnp.asarray(speed, jnp.float64)
        if part[0] == part[1]:
            return np.full(speed.shape, part[0])
        return np.asarray(_arc_state(self.law, self.sign, speed, *map(jnp.float64, part)))

    def _chord(self, first: tuple[float, float], second: tuple[float, float]) -> float:
        """The speed at which two parts are equally good: Newton's iteration for the common tangent, with bisection."""
        ends = np.array([*first, *second])
        values = self.value(ends)
        pairs = [(i, j) for i in (0, 1) for j in (2, 3) if ends[j] > ends[i]]
        chords = [(values[j] - values[i]) / (ends[j] - ends[i]) for i, j in pairs]
        if first[0] == first[1] and second[0] == second[1]:
            return float(chords[0])
        bounds = [*chords, *self.slope(ends)]
        low, high = float(min(bounds)), float(max(bounds))
        speed = 0.5 * (low + high)
        for _ in range(200):
            pair = np.array([self.state(first, speed), self.state(second, speed)])
            gap = pair[1] - pair[0]
            if gap <= 0:  # the parts share an end, and this speed belongs to it
                return speed
            value = self.value(pair)
            excess = (value[0] - speed * pair[0]) - (value[1] - speed * pair[1])
            low, high = (speed, high) if excess < 0 else (low, speed)
            newton = float((value[1] - value[0]) / gap)
            if abs(newton - speed) <= 4e-16 * max(abs(low), abs(high)):
                return newton
            speed = newton if low < newton < high else 0.5 * (low + high)
        return speed

    def __call__(self, speed: np.ndarray) -> np.ndarray:
        index = np.searchsorted(self.speeds, speed, side="left")
        v = np.empty(speed.shape)
        for j, part in enumerate(self.parts):
            v = np.where(index == j, self.state(part, speed), v)
        return self.sign * v

    def waves(self) -> list[Wave]:
        waves, edges = [], [-np.inf, *self.speeds, np.inf]
        before = self.lower
        for j, part in enumerate(self.parts):
            first, last = (float(v) for v in self.state(part, np.array(edges[j : j + 2])))
            if j > 0 and first > before:
                waves.append(Wave(self.sign * before, self.sign * first, edges[j], edges[j]))
            if last > first:
                inside = [
                    np.nextafter(first, last),
                    np.nextafter(last, first),
                ]  # the slopes of this arc at its ends
                slow, fast = (float(s) for s in self.slope(inside))
                waves.append(Wave(self.sign * first, self.sign * last, slow, max(slow, fast)))
            before = last
        return waves


def _check_states(law: AbstractLaw, states: ArrayLike, owner: str) -> np.ndarray:
    states = np.asarray(states, dtype=np.float64)
    if not np.isfinite(states).all():
        raise ValueError(f"{owner}: a state is not finite; remove NaN and infinity from the initial data")
    lower, upper = float(law.lower), float(law.upper)
    slack = 1e-6 * max((abs(v) for v in (lower, upper) if np.isfinite(v)), default=0.0)
    if states.size and (states.min() < lower - slack or states.max() > upper + slack):
        raise ValueError(
            f"{owner}: states in [{states.min():.6g}, {states.max():.6g}] leave the interval [{lower:.6g}, {upper:.6g}] "
            f"that {type(law).__name__} admits; clip the data or widen the law"
        )
    return states


def _hull(law: AbstractLaw, left: ScalarLike, right: ScalarLike) -> tuple[float, _Hull | None]:
    states = _check_states(law, [left, right], "riemann")
    law = as_dtype(law, jnp.float64)  # before anything is derived from its numbers
    return float(states[0]), None if states[0] == states[1] else _Hull(law, *map(float, states))


def riemann(
    law: AbstractLaw, left: ScalarLike, right: ScalarLike, speed: Float[ArrayLike, "..."]
) -> Float[np.ndarray, "..."]:
    """The entropy solution u(x/t) of a Riemann problem for any flux; on a shock itself the state to its left.

    u(ξ) = argmin f(u) - ξ·u over [left, right] if left ≤ right, argmax over [right, left] otherwise, which walks along
    the convex (concave) hull of f between the two states.

    Args:
        law: conservation law with flux f of any shape.
        left: state u_L for x < 0.
        right: state u_R for x > 0.
        speed: similarity variable ξ = x/t, any shape [length/time].

    Returns:
        u(ξ) in float64, of the shape of `speed`.

    Raises:
        ValueError: when a state is not finite or not admitted by the law.

    Reference: S. Osher, SIAM J. Numer. Anal. 21, 217 (1984).
    """
    speed = np.asarray(speed, dtype=np.float64)
    with jax.enable_x64(True):
        state, hull = _hull(law, left, right)
        return np.full(speed.shape, state) if hull is None else hull(speed)


def riemann_waves(law: AbstractLaw, left: ScalarLike, right: ScalarLike) -> list[Wave]:
    """The shocks and rarefactions of a Riemann problem from the slowest to the fastest; none for equal states.

    Args:
        law: conservation law with flux f of any shape.
        left: state u_L for x < 0.
        right: state u_R for x > 0.

    Raises:
        ValueError: when a state is not finite or not admitted by the law.
    """
    with jax.enable_x64(True):
        _, hull = _hull(law, left, right)
        return [] if hull is None else hull.waves()


def riemann_cell_averages(
    law: AbstractLaw,
    left: ScalarLike,
    right: ScalarLike,
    faces: Float[ArrayLike, " cells+1"],
    t: float,
    position: float = 0.0,
) -> Float[np.ndarray, " cells"]:
    """Exact cell averages of a Riemann solution for any flux, from the potential N = x·u(x/t) - t·f(u(x/t)).

    N_x = u in constant states and rarefactions (where f′(u) = x/t), and N is continuous across shocks by
    Rankine-Hugoniot.

    Args:
        law: conservation law with flux f of any shape.
        left: state u_L to the left of `position`.
        right: state u_R to the right of it.
        faces: increasing positions of the faces [length].
        t: time, at least 0.
        position: place of the jump at t = 0 [length].
    """
    if not t >= 0:
        raise ValueError(f"riemann_cell_averages: t is {t}; an entropy solution exists for t >= 0 only")
    x = np.asarray(faces, dtype=np.float64) - position
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        speed = np.where(x == 0, 0.0, x / t) if t > 0 else np.where(x == 0, 0.0, np.inf * x)
    u = riemann(law, left, right, speed)
    with jax.enable_x64(True):
        potential = x * u - t * np.asarray(_flux(law, jnp.asarray(u)))
    return np.diff(potential) / np.diff(x)


# ---------------------------------------------------------------------------------------------- Lax-Hopf formula


def lax_hopf_potential(
    law: AbstractLaw,
    breakpoints: Float[Array, " pieces+1"],
    states: Float[Array, " pieces"],
    x: Float[Array, "..."],
    t: Float[ArrayLike, ""],
) -> Float[Array, "..."]:
    """The potential N(x, t) with N_x = u of piecewise-constant data; pure, for use inside jit, vmap and scan.

    N(x, t) = max over y of U₀(y) - t R((x - y)/t) for concave f, min for convex f, with U₀(y) = ∫ u₀ from breakpoints[0]
    to y and the Legendre transform R(s) = sup_u f(u) - s·u (inf for convex f). On a piece of state k the best y is
    x - t f′(k) when that lies on the piece and one of its ends otherwise; first and last piece extend to infinity.
    The derivative of the result with respect to every argument is right almost everywhere (envelope theorem).

    Args:
        law: conservation law with concave, convex or linear flux f.
        breakpoints: increasing positions of the jumps between pieces, and the two outer ends [length].
        states: state k of every piece.
        x: positions, any shape [length].
        t: time, at least 0; t = 0 gives U₀(x).

    Returns:
        N of the shape and dtype of `x`; use float64 where differences of N are divided by a small cell width.

    Raises:
        ValueError: when f is neither concave nor convex.

    Reference: P. D. Lax, Comm. Pure Appl. Math. 10, 537 (1957).
    """
    if law.curvature == "neither":
        raise ValueError(
            f"the Lax-Hopf formula needs a concave or convex flux and that of {type(law).__name__} is neither: "
            "use riemann_cell_averages for one jump or a fine-grid Godunov solution"
        )
    dtype = jnp.result_type(x, states)
    law, sign = as_dtype(law, dtype), -1.0 if law.curvature == "convex" else 1.0
    t = jnp.maximum(jnp.asarray(t, dtype), jnp.finfo(dtype).tiny)
    lowest, highest = jnp.min(states), jnp.max(states)  # bounds of the solution for all times: enough for R
    start = jnp.concatenate([jnp.zeros_like(states[:1]), jnp.cumsum(states * jnp.diff(breakpoints))[:-1]])
    pieces = {
        "left": breakpoints[:-1].at[0].set(-jnp.inf),
        "right": breakpoints[1:].at[-1].set(jnp.inf),
        "origin": breakpoints[:-1],
        "start": start,
        "state": states,
        "flux": law.flux(states),
        "speed": law.wave_speed(states),
        "opens": jnp.concatenate([states[:1], sign * (states[:-1] - states[1:])])
        > 0,  # a rarefaction starts here
    }

    def from_inside(best, piece):
        foot = x - t * piece["speed"]
        value = piece["start"] + piece["state"] * (x - piece["origin"]) - t * piece["flux"]
        inside = (foot >= piece["left"]) & (foot <= piece["right"])
        return jnp.maximum(best, jnp.where(inside, sign * value, -jnp.inf))

    def from_breakpoint(best, piece):
        distance = x - piece["origin"]
        state = jax.lax.stop_gradient(law.legendre_state(distance / t, lowest, highest))
        return jnp.maximum(best, sign * (piece["start"] + distance * state - t * law.flux(state)))

    def step(best, piece):
        # Only where characteristics part can a breakpoint win: elsewhere its neighbours are better.
        best = jax.lax.cond(piece["opens"], from_breakpoint, lambda best, _: best, best, piece)
        return from_inside(best, piece), None

    nothing = jnp.full(jnp.shape(x), -jnp.inf, dtype)
    best = from_inside(nothing, jax.tree.map(lambda a: a[0], pieces))
    best, _ = jax.lax.scan(step, best, jax.tree.map(lambda a: a[1:], pieces))
    return sign * best


@eqx.filter_jit
def _lax_hopf_averages(law, breakpoints, states, faces, times, rows):
    count = times.shape[0]
    padded = jnp.concatenate([times, jnp.broadcast_to(times[-1:], (-count % rows,))])

    def one_profile(profile):
        potential = lambda t: lax_hopf_potential(law, *profile, faces, t)  # noqa: E731
        averages = lambda t: jnp.diff(potential(t)) / jnp.diff(faces)  # noqa: E731
        return jax.lax.map(averages, padded, batch_size=rows)[:count]

    return jax.lax.map(one_profile, (breakpoints, states))


def lax_hopf_cell_averages(
    law: AbstractLaw,
    breakpoints: Float[ArrayLike, "... pieces+1"],
    states: Float[ArrayLike, "... pieces"],
    faces: Float[ArrayLike, " cells+1"],
    times: Float[ArrayLike, " times"],
) -> Float[np.ndarray, "... times cells"]:
    """Exact cell averages of the entropy solution of piecewise-constant data, by differences of the potential N.

    ū_i(t) = (N(x_{i+½}, t) - N(x_{i-½}, t)) / (x_{i+½} - x_{i-½}); see `lax_hopf_potential`. One compilation serves all
    laws of a class, all data and all times of the same shape. Besides the result, memory holds a few thousand faces.

    Args:
        law: conservation law with concave, convex or linear flux.
        breakpoints: increasing ends of the pieces [length]; the outer pieces extend to infinity. Leading axes broadcast
            against those of `states`.
        states: state of every piece.
        faces: increasing positions of the faces, uniform or not [length].
        times: times, at least 0, in any order.

    Returns:
        Averages in float64, whatever the precision that JAX is set to.

    Raises:
        ValueError: for a flux that is neither concave nor convex, states outside the law's interval, negative times,
            breakpoints or faces that do not increase, or shapes that do not fit.
    """
    states = _check_states(law, states, "lax_hopf_cell_averages")
    breakpoints, faces = np.asarray(breakpoints, dtype=np.float64), np.asarray(faces, dtype=np.float64)
    times = np.asarray(times, dtype=np.float64)
    pieces = states.shape[-1] if states.ndim else 0
    if pieces < 1 or breakpoints.shape[-1:] != (pieces + 1,):
        raise ValueError(
            f"lax_hopf_cell_averages: {pieces} pieces need {pieces + 1} breakpoints, got shape {breakpoints.shape}"
        )
    for name, values in (("breakpoints", breakpoints), ("faces", faces)):
        if not (np.diff(values) > 0).all():
            raise ValueError(f"lax_hopf_cell_averages: {name} must increase along their last axis")
    if times.ndim != 1 or faces.ndim != 1 or faces.size < 2:
        raise ValueError(
            f"lax_hopf_cell_averages: times {times.shape} and faces {faces.shape} must have one axis each"
        )
    if not (np.isfinite(times) & (times >= 0)).all():
        raise ValueError("lax_hopf_cell_averages: times must be finite and at least 0")
    batch = np.broadcast_shapes(states.shape[:-1], breakpoints.shape[:-1])
    states = np.broadcast_to(states, (*batch, pieces)).reshape(-1, pieces)
    breakpoints = np.broadcast_to(breakpoints, (*batch, pieces + 1)).reshape(-1, pieces + 1)

    # Rows of a few thousand faces stay in the cache of a processor; an accelerator wants more work at a time.
    budget = 2**14 if jax.default_backend() == "cpu" else 2**22
    blocks = -(-times.size * faces.size // budget)
    rows = max(1, -(-times.size // max(blocks, 1)))
    result = np.empty((len(states), times.size, faces.size - 1))
    chunk = min(len(states), max(1, 2**24 // max(1, result[:1].size)))
    if result.size:
        with jax.enable_x64(True):
            for start in range(0, len(states), chunk):
                index = np.minimum(
                    np.arange(start, start + chunk), len(states) - 1
                )  # the last chunk has the same shape
                averages = _lax_hopf_averages(law, breakpoints[index], states[index], faces, times, rows)
                result[start : start + chunk] = np.asarray(averages)[: len(states) - start]
    return result.reshape(*batch, times.size, faces.size - 1)


# ---------------------------------------------------------------------------------------------- characteristics

_SAMPLES = 4097


@eqx.filter_jit
def _speed_and_slope(law, u0, y):
    """c(y) = f′(u₀(y)) and c′(y)."""
    law = as_dtype(law, y.dtype)
    return jax.jvp(lambda y: law.wave_speed(u0(y)), (y,), (jnp.ones_like(y),))


@eqx.filter_jit
def _feet(law, u0, x, t):
    """The y with y + t f′(u₀(y)) = x: brackets by doubling, then Newton's iteration kept inside by bisection."""
    law = as_dtype(law, x.dtype)
    speed = lambda y: law.wave_speed(u0(y))  # noqa: E731
    arrival = lambda y: y + t * speed(y)  # noqa: E731
    width = 1e-9 * (1 + jnp.abs(x)) + t * jnp.abs(speed(x))

    def widen(carry):
        low, high, width, _ = carry
        low = jnp.where(arrival(low) > x, low - width, low)
        high = jnp.where(arrival(high) < x, high + width, high)
        return low, high, 2 * width, ~((arrival(low) <= x) & (arrival(high) >= x)).all()

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
        t*, infinite when characteristics only spread, and 0 when u₀ crosses a kink of f where f′ drops. The interval is
        sampled at 4097 points: features of u₀ narrower than that can be missed.
    """
    with jax.enable_x64(True):
        smooth, jump = np.inf, np.inf
        for level in range(4):
            y = jnp.linspace(lower, upper, _SAMPLES, dtype=jnp.float64)
            speed, slope = (np.asarray(a) for a in _speed_and_slope(law, u0, y))
            smooth = min(smooth, float(slope.min()))
            spacing = (upper - lower) / (_SAMPLES - 1)
            steps = np.diff(speed) / spacing
            if level == 2:
                jump = float(steps.min())
            best = float(y[int(np.argmin(steps))]) if level < 2 else float(y[int(np.argmin(slope))])
            lower, upper = max(lower, best - spacing), min(upper, best + 2 * spacing)
    scale = np.abs(speed).max() + 1e-300
    if jump < 2 * min(smooth, 0.0) - 1e-6 * scale / spacing / _SAMPLES:
        return 0.0
    return -1 / smooth if smooth < 0 else math.inf


def _checked_feet(law: AbstractLaw, u0: Callable, x: np.ndarray, t: float) -> np.ndarray:
    if not t >= 0:
        raise ValueError(f"characteristics: t is {t}; an entropy solution exists for t >= 0 only")
    lower, upper = float(x.min()), float(x.max())
    for _ in range(3):  # the interval on which the solution at x depends
        margin = 1e-9 * (1 + abs(upper) + abs(lower))
        y = jnp.linspace(lower - margin, upper + margin, _SAMPLES, dtype=jnp.float64)
        speed = np.asarray(_speed_and_slope(law, u0, y)[0])
        lower = min(lower, float(x.min() - t * speed.max()))
        upper = max(upper, float(x.max() - t * speed.min()))
    if t > 0 and upper > lower:
        first = shock_time(law, u0, lower, upper)
        if t >= first:
            raise ValueError(
                f"t = {t:.6g} is past the first shock, which forms at t = {first:.6g}: characteristics cross there; "
                "stop earlier, or take lax_hopf_cell_averages with piecewise-constant data"
            )
    return np.asarray(_feet(law, u0, jnp.asarray(x), jnp.asarray(t, jnp.float64)))


def characteristics(
    law: AbstractLaw, u0: Callable, x: Float[ArrayLike, "..."], t: float
) -> Float[np.ndarray, "..."]:
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
    """Exact cell averages of smooth data before the first shock, by the potential carried along characteristics.

    Only u₀ is integrated numerically, between the feet of the characteristics through the faces, so that a front that
    is about to break costs no accuracy.

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
