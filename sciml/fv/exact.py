"""Exact entropy solutions of u_t + f(u)_x = 0, the references that every scheme is measured against.

| data | flux | function |
|---|---|---|
| one jump | any | `riemann`, `riemann_waves`, `riemann_cell_averages` |
| piecewise constant | concave, convex, linear | `lax_hopf_cell_averages`; inside jit `lax_hopf_potential` |
| smooth, before the first shock | any | `characteristics`, `characteristic_cell_averages`, `shock_time` |
| piecewise constant | piecewise linear, any shape | `sciml.fv.wave_front.WaveFronts` |

Cell averages come from a potential N with N_x = u: the average over a cell is the difference of N at its
two faces divided by the width, so no quadrature in space is needed and jumps inside a cell cost no
accuracy. Everything is float64, whatever the precision of the caller. Reference: L. C. Evans, Partial
Differential Equations, 2010, section 3.4.
"""

import dataclasses
import math
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from sciml.fv.law import AbstractLaw, as_dtype
from sciml.fv.lax_hopf import check_states
from sciml.fv.lax_hopf import lax_hopf_cell_averages as lax_hopf_cell_averages
from sciml.fv.lax_hopf import lax_hopf_potential as lax_hopf_potential
from sciml.fv.method_of_characteristics import characteristic_cell_averages as characteristic_cell_averages
from sciml.fv.method_of_characteristics import characteristics as characteristics
from sciml.fv.method_of_characteristics import shock_time as shock_time
from sciml.typing import ScalarLike


@dataclasses.dataclass(frozen=True)
class Wave:
    """One elementary wave of a Riemann problem: `left` and `right` state, `slowest` and `fastest` speed."""

    left: float
    right: float
    slowest: float
    fastest: float

    @property
    def kind(self) -> Literal["shock", "rarefaction"]:
        """A jump (or the contact of a straight piece of f) has one speed, a rarefaction an interval."""
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
        return jnp.where(low == lower, lower, high)
    low, high = jnp.minimum(sign * lower, sign * upper), jnp.maximum(sign * lower, sign * upper)
    state = sign * law.legendre_state(speed, low, high)
    state = jnp.where(speed <= slope(lower), lower, state)
    return jnp.where(speed >= slope(upper), upper, state)


class _Hull:
    """The convex hull below h(v) = s·f(s·v) between v = s·left and v = s·right, with s = ±1 such that v
    increases.

    Its parts are points and arcs of the graph, `parts[j]` = (lower, upper), joined by chords of slope
    `speeds[j]`. By the envelope theorem part j wins min_v h(v) - ξ·v exactly for speeds[j-1] < ξ <
    speeds[j], which is the solution at x/t = ξ: arcs are rarefactions and chords are shocks. Two parts
    change places once, so a stack builds the hull.
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
                self.parts.pop()
                self.speeds.pop()
            if self.parts:
                self.speeds.append(speed)
            self.parts.append(part)

    def _candidates(self) -> list[tuple[float, float]]:
        law, lower, upper = self.law, self.lower, self.upper
        if law.curvature == ("convex" if self.sign > 0 else "concave") and not law.piecewise_linear:
            return [(lower, upper)]
        points, apart = [lower], 1e-9 * (upper - lower)  # closer cuts are one cut and round-off
        for cut in sorted(self.sign * float(u) for u in (*law.kinks, *law.inflection_points)):
            if points[-1] + apart < cut < upper - apart:
                points.append(cut)
        points.append(upper)
        if law.curvature != "neither" or law.piecewise_linear:
            return [(v, v) for v in points]
        spans = list(zip(points, points[1:], strict=False))
        slopes = self.slope(np.array([[p + 1e-6 * (q - p), q - 1e-6 * (q - p)] for p, q in spans]))
        arcs = [span for span, (first, last) in zip(spans, slopes, strict=True) if last > first]  # convex h
        ends = {v for arc in arcs for v in arc}
        return sorted(arcs + [(v, v) for v in points if v not in ends])

    def value(self, v: ArrayLike) -> np.ndarray:
        return self.sign * np.asarray(_flux(self.law, self.sign * jnp.asarray(v, jnp.float64)))

    def slope(self, v: ArrayLike) -> np.ndarray:
        return np.asarray(_wave_speed(self.law, self.sign * jnp.asarray(v, jnp.float64)))

    def edge_slopes(self, lower: float, upper: float) -> np.ndarray:
        """Slopes at both ends of an arc, taken just inside where an end is a kink."""
        nudge = 1e-9 * (upper - lower)
        at, inside = self.slope(np.array([[lower, upper], [lower + nudge, upper - nudge]]))
        return np.where(np.abs(at - inside) <= 1e-6 * np.abs(inside).max(), at, inside)

    def state(self, part: tuple[float, float], speed: ArrayLike) -> np.ndarray:
        """The point v of one part where h(v) - speed·v is smallest."""
        speed = jnp.asarray(speed, jnp.float64)
        if part[0] == part[1]:
            return np.full(speed.shape, part[0])
        return np.asarray(_arc_state(self.law, self.sign, speed, *map(jnp.float64, part)))

    def _chord(self, first: tuple[float, float], second: tuple[float, float]) -> float:
        """The speed at which two parts are equally good: Newton for the common tangent, with bisection."""
        ends = np.array([*first, *second])
        values = self.value(ends)
        pairs = [(i, j) for i in (0, 1) for j in (2, 3) if ends[j] > ends[i]]
        chords = [(values[j] - values[i]) / (ends[j] - ends[i]) for i, j in pairs]
        if first[0] == first[1] and second[0] == second[1]:
            return float(chords[0])
        bounds = [*chords, *self.slope(ends), *self.edge_slopes(*first), *self.edge_slopes(*second)]
        low, high = float(min(bounds)), float(max(bounds))
        speed = 0.5 * (low + high)
        for _ in range(200):
            pair = np.array([self.state(first, speed), self.state(second, speed)])
            gap = pair[1] - pair[0]
            if gap <= 1e-12 * (self.upper - self.lower):  # a shared end, to which this speed belongs
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
        waves, edges, least = [], [-np.inf, *self.speeds, np.inf], 1e-12 * (self.upper - self.lower)
        before = self.lower
        for j, part in enumerate(self.parts):
            first, last = (float(v) for v in self.state(part, np.array(edges[j : j + 2])))
            if first - before > least:
                waves.append(Wave(self.sign * before, self.sign * first, edges[j], edges[j]))
            if last - first > least:
                slow, fast = (float(s) for s in self.edge_slopes(first, last))
                waves.append(Wave(self.sign * first, self.sign * last, slow, max(slow, fast)))
            before = last
        return waves


def _hull(law: AbstractLaw, left: ScalarLike, right: ScalarLike) -> tuple[float, _Hull | None]:
    states = check_states(law, np.asarray([left, right], np.float64), "riemann")
    law = as_dtype(law, jnp.float64)  # before anything is derived from its numbers
    return float(states[0]), None if states[0] == states[1] else _Hull(law, *map(float, states))


def riemann(
    law: AbstractLaw, left: ScalarLike, right: ScalarLike, speed: ArrayLike
) -> Float[np.ndarray, "..."]:
    """The entropy solution u(x/t) of a Riemann problem for any flux; on a shock itself the state to its left.

    u(ξ) = argmin f(u) - ξ·u over [left, right] if left ≤ right, argmax over [right, left] otherwise, which
    walks along the convex (concave) hull of f between the two states.

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
    """The shocks and rarefactions of a Riemann problem, slowest first; none for equal states.

    Where a user's flux has a kink that the law does not declare, a rarefaction may contain waves and rests.

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
    faces: ArrayLike,
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
        faces: increasing positions [cells+1] of the faces [length].
        t: time, at least 0.
        position: place of the jump at t = 0 [length].
    """
    if not 0 <= t < math.inf:
        raise ValueError(f"riemann_cell_averages: t is {t}; give a finite time that is at least 0")
    x = np.asarray(faces, dtype=np.float64) - position
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        speed = np.where(x == 0, 0.0, x / t) if t > 0 else np.where(x == 0, 0.0, np.inf * x)
    u = riemann(law, left, right, speed)
    with jax.enable_x64(True):
        potential = x * u - t * np.asarray(_flux(law, jnp.asarray(u)))
    return np.diff(potential) / np.diff(x)
