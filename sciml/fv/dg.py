"""Discontinuous Galerkin: a polynomial per cell, the same Riemann solvers at the faces, limiters after every
stage.

The state of a cell is its Legendre coefficients c_k, u(ξ) = Σ c_k P_k(ξ) for -1 ≤ ξ ≤ 1, so that c_0 is the
cell average and

    dc_k/dt = (2k+1)/Δx [ ∫ f(u) P_k′(ξ) dξ - F_{i+½} + (-1)^k F_{i-½} ] .
"""

import dataclasses
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sciml.fv.boundary import AbstractBoundary, Periodic
from sciml.fv.finite_volume import AbstractScheme
from sciml.fv.grid import UniformGrid
from sciml.fv.law import AbstractLaw, as_dtype
from sciml.fv.limiter import minmod, monotonized_central
from sciml.fv.riemann import AbstractRiemannSolver, Godunov
from sciml.fv.source import AbstractSource
from sciml.typing import Scalar

Coefficients = Float[Array, "cells degree+1"]


class DiscontinuousGalerkin(AbstractScheme):
    """Modal discontinuous Galerkin of degree 1 or 2; integrate with SSPRK2 and SSPRK3.

    After every stage the polynomials are scaled towards their mean until they stay within the range of the
    initial and boundary data (Zhang and Shu), or within the law's admissible interval where sources or
    boundaries can leave that range; with `limiter="moment"` coefficients are first compared with the
    differences of the next lower ones of the neighbours (Krivodonova), from the highest downwards until one
    need not change.

    Args:
        law: the conservation law.
        grid: the cells.
        boundary: what lies beyond both ends.
        degree: 1 or 2.
        riemann_solver: flux between the traces at a face.
        limiter: "bounds" or "moment" (which includes the bounds).
        source: optional sources.
        data_range: smallest and largest state of the data; the drivers find it, see `prepare`.

    Raises:
        ValueError: for another degree or limiter, or when the boundary or source do not fit.

    Reference: B. Cockburn, C.-W. Shu, J. Sci. Comput. 16, 173 (2001); X. Zhang, C.-W. Shu, J. Comput. Phys.
    229, 3091 (2010); L. Krivodonova, J. Comput. Phys. 226, 879 (2007).
    """

    law: AbstractLaw
    grid: UniformGrid = eqx.field(static=True)
    boundary: AbstractBoundary
    degree: Literal[1, 2] = eqx.field(static=True, default=1)
    riemann_solver: AbstractRiemannSolver = Godunov()
    limiter: Literal["bounds", "moment"] = eqx.field(static=True, default="bounds")
    source: AbstractSource | None = None
    data_range: tuple[Scalar, Scalar] | None = None
    fully_discrete: ClassVar[bool] = False

    def __check_init__(self):
        if self.degree not in (1, 2):
            raise ValueError(f"DiscontinuousGalerkin.degree is {self.degree}: choose 1 or 2")
        if self.limiter not in ("bounds", "moment"):
            raise ValueError(
                f'DiscontinuousGalerkin.limiter is {self.limiter!r}: choose "bounds" or "moment"'
            )
        self.riemann_solver.check(self.law)
        self.boundary.check(self.law, self.grid.cells, self.ghost)
        if self.source is not None:
            self.source.check(self.grid)

    ghost: ClassVar[int] = 2

    @property
    def cfl_limit(self):
        """Linear stability of degree 1 with SSPRK2 is 1/3; the bounds of degree 2 hold up to 1/6."""
        return 1 / 3 if self.degree == 1 else 1 / 6

    def _values(self, state: Coefficients, points: np.ndarray) -> Float[Array, "cells points"]:
        basis = jnp.asarray(_legendre(points, self.degree), state.dtype)
        return jnp.matmul(state, basis, precision=jax.lax.Precision.HIGHEST)

    def _padded(self, t: Scalar, state: Coefficients) -> Coefficients:
        """The state with one ghost cell per side."""
        if isinstance(self.boundary, Periodic):
            return self.boundary.pad(t, state, 1)
        averages = state[:, 0]
        left, right = (jnp.asarray(x, state.dtype) for x in self.boundary.ghost_cells(t, averages, 2))
        slopes = (
            0.5 * monotonized_central(left[1] - left[0], averages[0] - left[1]),
            0.5 * monotonized_central(right[0] - averages[-1], right[1] - right[0]),
        )
        ghosts = [
            jnp.zeros((1, self.degree + 1), state.dtype).at[0, 0].set(mean).at[0, 1].set(slope)
            for mean, slope in zip((left[1], right[0]), slopes, strict=True)
        ]
        return jnp.concatenate([ghosts[0], state, ghosts[1]])

    def tendency(self, t, state, dt):
        law = as_dtype(self.law, state.dtype)
        dx = self.grid.dx
        ends = self._values(self._padded(t, state), np.array([-1.0, 1.0]))
        dt_dx = None if dt is None else jnp.asarray(dt, state.dtype) / dx
        flux = self.riemann_solver(law, ends[:-1, 1], ends[1:, 0], dt_dx)
        flux = jax.lax.optimization_barrier(self.boundary.end_fluxes(law, t, state[:, 0], flux))
        points, weights = np.polynomial.legendre.leggauss(self.degree + 2)
        inside = law.flux(self._values(state, points))
        weighted = jnp.asarray(weights[:, None] * _slopes(points, self.degree).T, state.dtype)
        volume = jnp.matmul(inside, weighted, precision=jax.lax.Precision.HIGHEST)
        orders = np.arange(self.degree + 1)
        signs, factors = jnp.asarray((-1.0) ** orders, state.dtype), jnp.asarray(2 * orders + 1, state.dtype)
        rate = factors / dx * (volume - flux[1:, None] + signs * flux[:-1, None])
        total = flux[0] - flux[-1]
        if self.source is not None:
            source = self.source(law, self.grid, t, state[:, 0])
            rate, total = rate.at[:, 0].add(source), total + jnp.sum(source) * dx
        return rate, total

    def prepare(self, state):
        entering = self.boundary.state_range()
        if entering is None or self.source is not None:
            return self
        values = self._values(state, self._limited_points)
        ends = jnp.minimum(jnp.min(values), entering[0]), jnp.maximum(jnp.max(values), entering[1])
        return dataclasses.replace(self, data_range=tuple(jnp.asarray(x, state.dtype) for x in ends))

    @property
    def _limited_points(self) -> np.ndarray:
        return np.concatenate([[-1.0, 0.0, 1.0], np.polynomial.legendre.leggauss(self.degree + 2)[0]])

    def limit(self, state):
        if self.limiter == "moment":
            state = self._moment(state)
        law = as_dtype(self.law, state.dtype)
        lower, upper = (law.lower, law.upper) if self.data_range is None else self.data_range
        mean = state[:, :1]
        values = self._values(state, self._limited_points) - mean
        highest, lowest = jnp.max(values, axis=1, keepdims=True), jnp.min(values, axis=1, keepdims=True)
        room = jnp.maximum(upper - mean, 0), jnp.minimum(lower - mean, 0)
        above, below = highest > room[0], lowest < room[1]
        least = float(jnp.finfo(state.dtype).tiny) ** 0.4  # its square must not underflow in derivatives
        scale = jnp.minimum(
            jnp.where(above, room[0] / jnp.where(above, jnp.maximum(highest, least), 1), 1),
            jnp.where(below, room[1] / jnp.where(below, jnp.minimum(lowest, -least), 1), 1),
        )
        return jnp.concatenate([mean, scale * state[:, 1:]], axis=1)

    def _moment(self, state: Coefficients) -> Coefficients:
        if isinstance(self.boundary, Periodic):
            padded = self.boundary.pad(jnp.zeros((), state.dtype), state, 1)
        else:
            # Beyond an end the trend goes on, so that only the difference towards the inside counts there.
            padded = jnp.concatenate([2 * state[:1] - state[1:2], state, 2 * state[-1:] - state[-2:-1]])
        forward, backward = padded[2:] - state, state - padded[:-2]
        columns = [state[:, k] for k in range(self.degree + 1)]
        changing = jnp.ones(state.shape[0], bool)
        for k in range(self.degree, 0, -1):
            limited = minmod(columns[k], minmod(forward[:, k - 1], backward[:, k - 1]))
            kept = jnp.abs(limited - columns[k]) <= 1e-6 * jnp.abs(columns[k])
            columns[k] = jnp.where(changing, limited, columns[k])
            changing = changing & ~kept
        return jnp.stack(columns, axis=1)

    def start(self, averages):
        """Coefficients from averages: limited central slopes, parabolas where no limiting was needed."""
        periodic = isinstance(self.boundary, Periodic)
        before = averages[-1:] if periodic else averages[:1]
        after = averages[:1] if periodic else averages[-1:]
        padded = jnp.concatenate([before, averages, after])
        backward, forward = averages - padded[:-2], padded[2:] - averages
        slope = monotonized_central(backward, forward)
        smooth = (slope != 0) & (jnp.abs(slope - 0.5 * (backward + forward)) <= 1e-6 * jnp.abs(slope))
        columns = [averages, 0.5 * slope, jnp.where(smooth, (forward - backward) / 12, 0)]
        return self.limit(jnp.stack(columns[: self.degree + 1], axis=1))

    def project(self, function, points: int = 8) -> Float[np.ndarray, "cells degree+1"]:
        """L² projection of u(x) onto the polynomials of every cell, a state for the drivers (float64)."""
        nodes, weights = np.polynomial.legendre.leggauss(points)
        x = self.grid.centres[:, None] + 0.5 * self.grid.dx * nodes
        basis = _legendre(nodes, self.degree) * (2 * np.arange(self.degree + 1)[:, None] + 1) / 2
        return np.asarray(function(x), np.float64) @ (weights * basis).T

    def averages(self, state):
        return state[..., 0]

    def cell_speeds(self, t, state):
        law = as_dtype(self.law, state.dtype)
        values = jnp.concatenate([self._values(state, np.array([-1.0, 1.0])), state[:, :1]], axis=1)
        return law.max_wave_speed(jnp.min(values, axis=1), jnp.max(values, axis=1))

    def boundary_speeds(self, t, state):
        law = as_dtype(self.law, state.dtype)
        left, right = (
            jnp.asarray(x, state.dtype) for x in self.boundary.ghost_cells(t, state[:, 0], self.ghost)
        )
        ends = jnp.concatenate([left, state[:1, 0], state[-1:, 0], right])
        return law.max_wave_speed(jnp.minimum(ends[1:], ends[:-1]), jnp.maximum(ends[1:], ends[:-1]))


def _legendre(points: np.ndarray, degree: int) -> np.ndarray:
    """P_k at points, rows k."""
    return np.stack([np.ones_like(points), points, 0.5 * (3 * points**2 - 1)])[: degree + 1]


def _slopes(points: np.ndarray, degree: int) -> np.ndarray:
    """P_k′ at points, rows k."""
    return np.stack([np.zeros_like(points), np.ones_like(points), 3 * points])[: degree + 1]
