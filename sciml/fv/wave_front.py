"""Wave-front tracking: the exact solution of piecewise-constant data when the flux is piecewise linear.

Every Riemann problem then breaks up into jumps between kinks of f, so the solution stays piecewise
constant: straight fronts that meet, merge and part again. The events are found one after the other; nothing
    is discretised. Unlike the
Lax-Hopf formula it also serves piecewise-linear fluxes that are neither concave nor convex.
Reference: C. M. Dafermos, J. Math. Anal. Appl. 38, 33 (1972).
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from sciml.fv.law import AbstractLaw, as_dtype
from sciml.fv.lax_hopf import check_states


@dataclasses.dataclass(frozen=True)
class _Snapshot:
    """Fronts between two events: positions and speeds [fronts], states [fronts+1], all as of `time`."""

    time: float
    positions: np.ndarray
    speeds: np.ndarray
    states: np.ndarray


class _PiecewiseLinearFlux:
    """f as a polygon: Riemann problems are the convex or concave hull of a few vertices."""

    def __init__(self, law: AbstractLaw, states: np.ndarray):
        with jax.enable_x64(True):
            law = as_dtype(law, jnp.float64)
            kinks = np.array([float(k) for k in law.kinks])
            self.nodes = np.unique(np.concatenate([[states.min(), states.max()], kinks]))
            self.flux = np.asarray(law.flux(jnp.asarray(self.nodes)))

    def __call__(self, u: np.ndarray) -> np.ndarray:
        return np.interp(u, self.nodes, self.flux)

    def fan(self, left: float, right: float) -> tuple[list[float], list[float]]:
        """States from left to right and the increasing speeds of the jumps between them."""
        lower, upper = min(left, right), max(left, right)
        apart = 1e-12 * (upper - lower)
        inner = self.nodes[(self.nodes > lower + apart) & (self.nodes < upper - apart)]
        vertices = [left, *(inner if left < right else inner[::-1]), right]
        states, speeds = [float(vertices[0])], []
        flux = dict(zip(vertices, self(np.array(vertices)), strict=True))
        for vertex in vertices[1:]:
            while True:
                speed = float((flux[vertex] - flux[states[-1]]) / (vertex - states[-1]))
                if not (speeds and speed <= speeds[-1]):
                    break
                states.pop()
                speeds.pop()
            states.append(float(vertex))
            speeds.append(speed)
        return states, speeds


class WaveFronts:
    """All fronts of one initial profile from t = 0 to `final_time`; evaluate it at points or average it
    over cells.

    Args:
        law: conservation law with a piecewise-linear flux (`law.piecewise_linear`), of any shape.
        breakpoints: increasing ends of the pieces [pieces+1]; the outer pieces extend to infinity [length].
        states: state of every piece [pieces].
        final_time: time up to which fronts are followed; infinite is allowed, for the number of events is
            finite.

    Attributes:
        times: times of the events, starting with 0.

    Raises:
        ValueError: when f is not piecewise linear, or the data do not fit, do not increase or are not
            admitted.
    """

    def __init__(
        self, law: AbstractLaw, breakpoints: ArrayLike, states: ArrayLike, final_time: float = math.inf
    ):
        if not law.piecewise_linear:
            raise ValueError(
                f"wave-front tracking needs a piecewise-linear flux and that of {type(law).__name__} is not: "
                "use lax_hopf_cell_averages for a concave or convex flux"
            )
        values = check_states(law, np.asarray(states, dtype=np.float64), "WaveFronts")
        positions = np.asarray(breakpoints, dtype=np.float64)
        if values.ndim != 1 or positions.shape != (values.size + 1,) or not (np.diff(positions) > 0).all():
            raise ValueError(
                f"WaveFronts: states {values.shape} need one more breakpoint than pieces, increasing; "
                f"got {positions.shape}"
            )
        self.final_time = float(final_time)
        self._flux = _PiecewiseLinearFlux(law, values)
        self._snapshots = [self._break_up(0.0, positions[1:-1], np.zeros(values.size - 1), values, None)]
        while True:
            event = self._next_event(self._snapshots[-1])
            if event is None:
                break
            self._snapshots.append(event)
        self.times = np.array([s.time for s in self._snapshots])

    def _break_up(self, time, positions, speeds, states, meets) -> _Snapshot:
        """Solve Riemann problems where fronts meet (`meets[i]`: i and i+1), or everywhere for None."""
        fronts: list[tuple[float, float, float]] = []  # position, speed, state on the right
        left = states[0]
        i = 0
        while i < len(positions):
            j = i
            while meets is not None and j < len(meets) and meets[j]:
                j += 1
            right = states[j + 1]
            if meets is not None and j == i:
                fronts.append((positions[i], speeds[i], right))
            elif left != right:
                fan_states, fan_speeds = self._flux.fan(left, right)
                place = float(np.mean(positions[i : j + 1]))
                fronts += [(place, s, u) for s, u in zip(fan_speeds, fan_states[1:], strict=True)]
            left, i = right, j + 1
        columns = np.array(fronts).reshape(-1, 3)
        return _Snapshot(time, columns[:, 0], columns[:, 1], np.concatenate([states[:1], columns[:, 2]]))

    def _next_event(self, now: _Snapshot) -> _Snapshot | None:
        closing = now.speeds[:-1] - now.speeds[1:]
        gap = np.diff(now.positions)
        wait = np.divide(gap, closing, out=np.full(gap.shape, np.inf), where=closing > 0)
        first = wait.min(initial=np.inf)
        if not (np.isfinite(first) and now.time + first <= self.final_time):
            return None
        first = max(first, 0.0)
        time = now.time + first
        meets = wait <= first + 1e-13 * time
        return self._break_up(time, now.positions + first * now.speeds, now.speeds, now.states, meets)

    def fronts(self, t: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Positions and speeds of the fronts at time t, from left to right, and the states between them."""
        if not 0 <= t <= self.final_time:
            raise ValueError(f"WaveFronts: t is {t}, outside [0, {self.final_time}]; raise final_time")
        now = self._snapshots[int(np.searchsorted(self.times, t, side="right")) - 1]
        return now.positions + (t - now.time) * now.speeds, now.speeds, now.states

    def __call__(self, x: ArrayLike, t: float) -> Float[np.ndarray, "..."]:
        """u(x, t) at points of any shape; on a front the state to its left."""
        positions, _, states = self.fronts(t)
        return states[np.searchsorted(positions, np.asarray(x, dtype=np.float64), side="left")]

    def cell_averages(self, faces: ArrayLike, t: float) -> Float[np.ndarray, " cells"]:
        """Exact averages between increasing faces at time t: overlap lengths times states."""
        faces = np.asarray(faces, dtype=np.float64)
        positions, _, states = self.fronts(t)
        edges = np.concatenate([[-np.inf], np.maximum.accumulate(positions), [np.inf]])
        overlap = np.minimum(faces[1:, None], edges[1:]) - np.maximum(faces[:-1, None], edges[:-1])
        return np.maximum(overlap, 0.0) @ states / np.diff(faces)
