"""Sources that enter the balance u_t + f(u)_x = s: ramps of a highway, or any function of time, place and
state.
"""

import abc
from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sciml.fv.boundary import _check_cover, _check_series, _interpolate
from sciml.fv.grid import UniformGrid
from sciml.fv.law import AbstractLaw
from sciml.typing import Scalar


class AbstractSource(eqx.Module):
    """Something that adds to or takes from the conserved quantity."""

    @abc.abstractmethod
    def __call__(
        self, law: AbstractLaw, grid: UniformGrid, t: Scalar, u: Float[Array, " cells"]
    ) -> Float[Array, " cells"]:
        """s, the rate of change of every cell average [state/time]."""

    def check(self, grid: UniformGrid) -> None:
        """Raise a `ValueError` when the source lies outside of the grid."""

    def check_times(self, t0: float, t1: float) -> None:
        """Raise a `ValueError` when the source is not known on the whole interval [t0, t1]."""


def _cell_of(grid: UniformGrid, position: float) -> int:
    return min(int((position - grid.lower) / grid.dx), grid.cells - 1)


def _check_inside(owner: str, grid: UniformGrid, position: float) -> None:
    if not grid.lower <= position <= grid.upper:
        raise ValueError(f"{owner}.position is {position}: outside of the grid [{grid.lower}, {grid.upper}]")


class OnRamp(AbstractSource):
    """Vehicles that join at one place: s = flow(t)/Δx in the cell there (a negative flow leaves).

    Args:
        position: place of the ramp [length].
        times: increasing times of the series [time].
        flow: flow of the ramp [vehicles/time], one per time, linear in between.
    """

    position: float = eqx.field(static=True)
    times: Float[Array, " times"]
    flow: Float[Array, " times"]

    def __init__(self, position, times, flow):
        self.position, self.times, self.flow = float(position), jnp.asarray(times), jnp.asarray(flow)
        _check_series("OnRamp", times, flow=self.flow)

    def __call__(self, law, grid, t, u):
        rate = (_interpolate(self.times, self.flow, t) / grid.dx).astype(u.dtype)
        return jnp.zeros_like(u).at[_cell_of(grid, self.position)].set(rate)

    def check(self, grid):
        _check_inside("OnRamp", grid, self.position)

    def check_times(self, t0, t1):
        _check_cover("OnRamp", self.times, t0, t1)


class OffRamp(AbstractSource):
    """A constant share of the passing traffic leaves: s = -fraction·f(u)/Δx in the cell of the ramp."""

    position: float = eqx.field(static=True)
    fraction: Scalar

    def __init__(self, position, fraction):
        self.position, self.fraction = float(position), jnp.asarray(fraction)
        if not np.all((np.asarray(fraction) >= 0) & (np.asarray(fraction) <= 1)):
            raise ValueError(f"OffRamp.fraction is {fraction}: give a share between 0 and 1")

    def __call__(self, law, grid, t, u):
        cell = _cell_of(grid, self.position)
        return jnp.zeros_like(u).at[cell].set(-self.fraction.astype(u.dtype) * law.flux(u[cell]) / grid.dx)

    def check(self, grid):
        _check_inside("OffRamp", grid, self.position)


class SourceFunction(AbstractSource):
    """Any source s(t, x, u), given as a function of the time, the cell centres and the cell averages."""

    function: Callable = eqx.field(static=True)

    def __call__(self, law, grid, t, u):
        return jnp.asarray(self.function(t, jnp.asarray(grid.centres, u.dtype), u), u.dtype)


class Sources(AbstractSource):
    """The sum of several sources."""

    parts: tuple[AbstractSource, ...]

    def __call__(self, law, grid, t, u):
        return sum((part(law, grid, t, u) for part in self.parts), jnp.zeros_like(u))

    def check(self, grid):
        for part in self.parts:
            part.check(grid)

    def check_times(self, t0, t1):
        for part in self.parts:
            part.check_times(t0, t1)
