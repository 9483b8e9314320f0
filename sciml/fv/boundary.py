"""What lies beyond the two ends of the road: ghost cells, or the fluxes through the end faces themselves.

A boundary is asked at the time of every Runge-Kutta stage, and the number of ghost cells follows from the
scheme.
"""

import abc
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from sciml.fv.fundamental_diagram import AbstractFundamentalDiagram
from sciml.fv.law import AbstractLaw
from sciml.typing import Scalar, ScalarLike


class AbstractBoundary(eqx.Module):
    """Both ends of the domain."""

    @abc.abstractmethod
    def ghost_cells(
        self, t: Scalar, u: Float[Array, "cells ..."], ghost: int
    ) -> tuple[Float[Array, "ghost ..."], Float[Array, "ghost ..."]]:
        """The `ghost` values left of the first cell and right of the last one at time t, both in order of
        rising x.
        """

    def state_range(self) -> tuple[ScalarLike, ScalarLike] | None:
        """Smallest and largest state that can enter; (inf, -inf) if none can, None if that is unknown."""
        return None

    @property
    def first_time(self) -> ScalarLike:
        """The earliest time that the boundary knows; schemes that look back hold its values before then."""
        return -np.inf

    def end_fluxes(
        self, law: AbstractLaw, t: Scalar, u: Float[Array, " cells"], fluxes: Float[Array, " faces"]
    ) -> Float[Array, " faces"]:
        """The face fluxes, with those through the two ends replaced where the boundary prescribes them."""
        return fluxes

    def check(self, law: AbstractLaw, cells: int, ghost: int) -> None:
        """Raise a `ValueError` when the boundary does not fit the law, the grid or the scheme's reach."""

    def check_times(self, t0: float, t1: float) -> None:
        """Raise a `ValueError` when the boundary is not known on the whole interval [t0, t1]."""

    def pad(self, t: Scalar, u: Float[Array, " cells"], ghost: int) -> Float[Array, " cells+2*ghost"]:
        """The state with its ghost cells."""
        left, right = self.ghost_cells(t, u, ghost)
        return jnp.concatenate([left, u, right])


class Periodic(AbstractBoundary):
    """What leaves at one end enters at the other."""

    def state_range(self):
        return np.inf, -np.inf

    def ghost_cells(self, t, u, ghost):
        return u[u.shape[0] - ghost :], u[:ghost]

    def check(self, law, cells, ghost):
        if ghost > cells:
            raise ValueError(
                f"Periodic: {cells} cells are fewer than the {ghost} ghost cells of the scheme; refine the"
                " grid"
            )


class Outflow(AbstractBoundary):
    """Zero gradient: the last cell continues outside, so that waves leave without reflection."""

    def state_range(self):
        return np.inf, -np.inf

    def ghost_cells(self, t, u, ghost):
        return jnp.repeat(u[:1], ghost, axis=0), jnp.repeat(u[-1:], ghost, axis=0)


def _check_series(owner: str, times, **series) -> None:
    if isinstance(times, Tracer):
        return
    times = np.asarray(times)
    if times.ndim != 1 or times.shape[0] < 2:
        raise ValueError(
            f"{owner}.times has shape {times.shape}: give a one-dimensional series of at least 2 times"
        )
    steps = np.diff(times)
    if not (steps > 0).all():
        where = int(np.argmin(steps > 0))
        raise ValueError(
            f"{owner}.times does not increase: entry {where + 1} is {times[where + 1]} after"
            f" {times[where]}; sort the series"
        )
    for name, values in series.items():
        if values.shape[0] != times.shape[0]:
            raise ValueError(
                f"{owner}.{name} is too short or too long: {values.shape[0]} rows for {times.shape[0]}"
                " times; give one row per time"
            )


def _check_cover(owner: str, times, t0: float, t1: float) -> None:
    if any(isinstance(x, Tracer) for x in (times, t0, t1)):
        return
    slack = 1e-5 * max(abs(float(t1)), abs(float(t1) - float(t0)))
    first, last = float(times[0]), float(times[-1])
    if first > float(t0) + slack or last < float(t1) - slack:
        raise ValueError(
            f"{owner}: boundary series too short: it covers [{first:g}, {last:g}] but the run needs"
            f" [{float(t0):g}, {float(t1):g}]; extend the series or shorten the run"
        )


def _interpolate(times, values, t):
    """Piecewise-linear value of a series at time t; NaN outside of it, so that a gap is never silent.

    A time that round-off carried beyond an end, as `_check_cover` tolerates, takes the value there.
    """
    index = jnp.clip(jnp.searchsorted(times, t, side="right") - 1, 0, times.shape[0] - 2)
    start, stop = times[index], times[index + 1]
    weight = jnp.clip((t - start) / (stop - start), 0, 1)
    slack = 2e-5 * jnp.maximum(jnp.abs(times[-1]), times[-1] - times[0])
    covered = (t >= times[0] - slack) & (t <= times[-1] + slack)
    return jnp.where(covered, (1 - weight) * values[index] + weight * values[index + 1], jnp.nan)


class Prescribed(AbstractBoundary):
    """Ghost cells given as time series, linear in between; a single column stands for all ghost cells.

    Args:
        times: increasing times of the series [time].
        left: values left of the domain, one row per time; columns in order of rising x, so the last one
            touches it.
        right: values right of the domain; the first column touches it.

    Raises:
        ValueError: when the times do not increase, a series has another length, or it has more than one
            column but fewer than the scheme needs.
    """

    times: Float[Array, " times"]
    left: Float[Array, "times width"]
    right: Float[Array, "times width"]

    def __init__(self, times, left, right):
        self.times = jnp.asarray(times)
        self.left, self.right = (
            jnp.asarray(x)[:, None] if jnp.ndim(x) == 1 else jnp.asarray(x) for x in (left, right)
        )
        _check_series("Prescribed", times, left=self.left, right=self.right)

    def state_range(self):
        lower = jnp.minimum(jnp.min(self.left), jnp.min(self.right))
        return lower, jnp.maximum(jnp.max(self.left), jnp.max(self.right))

    @property
    def first_time(self):
        return self.times[0]

    def ghost_cells(self, t, u, ghost):
        left, right = (_interpolate(self.times, side, t) for side in (self.left, self.right))
        width = left.shape[0]
        if width == 1:
            return jnp.repeat(left, ghost), jnp.repeat(right, ghost)
        return left[width - ghost :], right[:ghost]

    def check(self, law, cells, ghost):
        for name, side in (("left", self.left), ("right", self.right)):
            if 1 < side.shape[-1] < ghost:
                raise ValueError(
                    f"Prescribed.{name} has {side.shape[-1]} columns but the scheme needs {ghost} ghost"
                    f" cells; give {ghost} or 1"
                )

    def check_times(self, t0, t1):
        _check_cover("Prescribed", self.times, t0, t1)


class PrescribedFunction(AbstractBoundary):
    """Ghost cells given as functions of time, evaluated at the time of every Runge-Kutta stage.

    Args:
        left: t -> value of all left ghost cells, or one value per ghost cell in order of rising x.
        right: the same for the right end.
    """

    left: Callable = eqx.field(static=True)
    right: Callable = eqx.field(static=True)

    def ghost_cells(self, t, u, ghost):
        values = (jnp.asarray(side(t), u.dtype) for side in (self.left, self.right))
        left, right = (jnp.broadcast_to(value, (ghost,)) for value in values)
        return left, right


class DemandSupply(AbstractBoundary):
    """Traffic enters as far as there is room and leaves as far as the road beyond accepts it.

    The flux through the upstream end is min(demand(t), supply of the first cell), through the downstream end
    min(demand of the last cell, supply(t)), as in the cell transmission model.

    Args:
        times: increasing times of the series [time].
        demand: flow that wants to enter [vehicles/time], one per time.
        supply: flow that can leave [vehicles/time], one per time; infinite for a free exit.

    Reference: C. F. Daganzo, Transp. Res. B 28, 269 (1994); J.-P. Lebacque, ISTTT 13 (1996).
    """

    times: Float[Array, " times"]
    demand: Float[Array, " times"]
    supply: Float[Array, " times"]

    def __init__(self, times, demand, supply):
        self.times, self.demand = jnp.asarray(times), jnp.asarray(demand)
        # Far above any flow but finite, because an infinity cannot be interpolated.
        self.supply = jnp.minimum(jnp.asarray(supply), 1e12)
        _check_series("DemandSupply", times, demand=self.demand, supply=self.supply)

    def ghost_cells(self, t, u, ghost):
        return jnp.repeat(u[:1], ghost, axis=0), jnp.repeat(u[-1:], ghost, axis=0)

    def end_fluxes(self, law, t, u, fluxes):
        assert isinstance(law, AbstractFundamentalDiagram)
        enter = jnp.minimum(_interpolate(self.times, self.demand, t), law.supply(u[0]))
        leave = jnp.minimum(law.demand(u[-1]), _interpolate(self.times, self.supply, t))
        return fluxes.at[0].set(enter.astype(fluxes.dtype)).at[-1].set(leave.astype(fluxes.dtype))

    def check(self, law, cells, ghost):
        if not isinstance(law, AbstractFundamentalDiagram):
            raise ValueError(
                f"DemandSupply needs a fundamental diagram, not {type(law).__name__}; use Prescribed or"
                " Outflow for other laws"
            )

    def check_times(self, t0, t1):
        _check_cover("DemandSupply", self.times, t0, t1)


class Sides(AbstractBoundary):
    """One kind of boundary at the left end and another at the right one."""

    left: AbstractBoundary
    right: AbstractBoundary

    def state_range(self):
        ranges = [side.state_range() for side in (self.left, self.right)]
        if ranges[0] is None or ranges[1] is None:
            return None
        return jnp.minimum(ranges[0][0], ranges[1][0]), jnp.maximum(ranges[0][1], ranges[1][1])

    @property
    def first_time(self):
        return jnp.maximum(self.left.first_time, self.right.first_time)

    def ghost_cells(self, t, u, ghost):
        return self.left.ghost_cells(t, u, ghost)[0], self.right.ghost_cells(t, u, ghost)[1]

    def end_fluxes(self, law, t, u, fluxes):
        left = self.left.end_fluxes(law, t, u, fluxes)
        right = self.right.end_fluxes(law, t, u, fluxes)
        return fluxes.at[0].set(left[0]).at[-1].set(right[-1])

    def check(self, law, cells, ghost):
        if isinstance(self.left, Periodic) or isinstance(self.right, Periodic):
            raise ValueError(
                "Sides: Periodic joins both ends and cannot stand at one of them; use Periodic() alone"
            )
        self.left.check(law, cells, ghost)
        self.right.check(law, cells, ghost)

    def check_times(self, t0, t1):
        self.left.check_times(t0, t1)
        self.right.check_times(t0, t1)
