"""Schemes: what turns a law, a grid, a boundary and a numerical flux into the rate of change of the state.

A scheme is a semi-discretisation du_i/dt = -(F_{i+½} - F_{i-½})/Δx + s_i. Besides the rate of the state it
returns the rate at which the boundary fluxes and sources change the total, so that every run closes its own
balance.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from sciml.fv.boundary import AbstractBoundary
from sciml.fv.grid import UniformGrid
from sciml.fv.law import AbstractLaw, as_dtype
from sciml.fv.numerical_flux import AbstractNumericalFlux
from sciml.fv.source import AbstractSource
from sciml.typing import Scalar

State = PyTree[Float[Array, "cells ..."]]


class AbstractScheme(eqx.Module):
    """A semi-discretisation of one law on one grid; finite volumes and discontinuous Galerkin share the
    drivers.
    """

    law: eqx.AbstractVar[AbstractLaw]
    grid: eqx.AbstractVar[UniformGrid]
    boundary: eqx.AbstractVar[AbstractBoundary]
    source: eqx.AbstractVar[AbstractSource | None]

    @property
    @abc.abstractmethod
    def cfl_limit(self) -> float:
        """Largest CFL number max|f′|Δt/Δx at which the scheme may run."""

    @property
    @abc.abstractmethod
    def fully_discrete(self) -> bool:
        """True when the flux is averaged over the time step and only forward Euler fits."""

    @abc.abstractmethod
    def tendency(self, t: Scalar, state: State, dt: Scalar | None) -> tuple[State, Scalar]:
        """Rate of the state and rate of the total (Σ Δx u) through boundary and sources, at time t of a step
        dt.
        """

    @abc.abstractmethod
    def start(self, averages: Float[Array, " cells"]) -> State:
        """The state whose cell averages are given."""

    @abc.abstractmethod
    def averages(self, state: State) -> Float[Array, " cells"]:
        """The cell averages of a state."""

    def limit(self, state: State) -> State:
        """The state after the limiter that follows every stage; the state itself when there is none."""
        return state

    def prepare(self, state: State) -> "AbstractScheme":
        """The scheme for a run from this state, asked for once by the drivers; most need to know nothing."""
        return self

    @property
    def speeds_from_data(self) -> bool:
        """True when the start and the boundary bound all wave speeds: no new extremes arise inside, or they
        are no waves.
        """
        return False

    @abc.abstractmethod
    def cell_speeds(self, t: Scalar, state: State) -> Float[Array, " speeds"]:
        """|f′| between every pair of neighbouring states, cell by cell."""

    @abc.abstractmethod
    def boundary_speeds(self, t: Scalar, state: State) -> Float[Array, " speeds"]:
        """|f′| of the ghost cells at time t."""

    def max_speed(self, t: Scalar, state: State) -> Scalar:
        """max |f′| over all states between the extremes of the cells and ghost cells at time t."""
        return jnp.maximum(jnp.max(self.cell_speeds(t, state)), jnp.max(self.boundary_speeds(t, state)))


class FiniteVolume(AbstractScheme):
    """Cell averages changed by the fluxes through their faces.

    Args:
        law: the conservation law.
        grid: the cells.
        boundary: what lies beyond both ends.
        numerical_flux: flux through a face from the cells around it.
        source: optional sources, ramps among them.

    Raises:
        ValueError: when flux, boundary or source do not fit the law or the grid.
    """

    law: AbstractLaw
    grid: UniformGrid = eqx.field(static=True)
    boundary: AbstractBoundary
    numerical_flux: AbstractNumericalFlux
    source: AbstractSource | None = None

    def __check_init__(self):
        if self.numerical_flux.stencil % 2:
            raise ValueError(
                f"numerical_flux.stencil is {self.numerical_flux.stencil}: a face needs an even number of"
                " cells"
            )
        if self.grid.cells < self.numerical_flux.stencil // 2:
            raise ValueError(
                f"grid.cells = {self.grid.cells} is below the reach of the flux,"
                f" {self.numerical_flux.stencil // 2}; refine the grid"
            )
        self.numerical_flux.check(self.law)
        self.boundary.check(self.law, self.grid.cells, self.ghost)
        if self.source is not None:
            self.source.check(self.grid)

    @property
    def ghost(self) -> int:
        """Ghost cells per side: half of the stencil."""
        return self.numerical_flux.stencil // 2

    @property
    def cfl_limit(self):
        return self.numerical_flux.cfl_limit

    @property
    def fully_discrete(self):
        return self.numerical_flux.fully_discrete

    def face_fluxes(self, t: Scalar, state: State, dt: Scalar | None = None) -> Float[Array, " cells+1"]:
        """Numerical fluxes F_{i+½} through all faces at time t; dt is the step of a fully discrete flux."""
        u = self.averages(state)
        law = as_dtype(self.law, u.dtype)
        if self.numerical_flux.levels > 1:
            assert dt is not None
            earlier = (jnp.maximum(t - k * dt, self.boundary.first_time) for k in range(state.shape[1]))
            lines = [self.boundary.pad(s, state[:, k], self.ghost) for k, s in enumerate(earlier)]
            padded = jnp.stack(lines).astype(u.dtype)
        else:
            padded = self.boundary.pad(t, u, self.ghost).astype(u.dtype)
        if self.numerical_flux.stencil > 2:
            padded = jax.lax.optimization_barrier(padded)
        dt_dx = None if dt is None else jnp.asarray(dt, u.dtype) / self.grid.dx
        flux = self.numerical_flux.along(law, padded, dt_dx)
        # Each flux has two readers; without the barrier XLA computes it once for each of them.
        flux = jax.lax.optimization_barrier(flux.astype(u.dtype))
        return self.boundary.end_fluxes(law, t, u, flux)

    def tendency(self, t, state, dt):
        flux = self.face_fluxes(t, state, dt)
        rate = -(flux[1:] - flux[:-1]) / self.grid.dx
        total = flux[0] - flux[-1]
        if self.source is not None:
            u = self.averages(state)
            source = self.source(as_dtype(self.law, u.dtype), self.grid, t, u)
            rate, total = rate + source, total + jnp.sum(source) * self.grid.dx
        if self.numerical_flux.levels > 1:
            # Earlier levels move on by one place per step.
            rate = jnp.concatenate([rate[:, None], (state[:, :-1] - state[:, 1:]) / dt], axis=1)
        return rate, total

    def __call__(self, t: Scalar, u: Float[Array, " cells"], args=None) -> Float[Array, " cells"]:
        """du/dt, in the form of a diffrax vector field."""
        return self.tendency(t, u, None)[0]

    def start(self, averages):
        levels = self.numerical_flux.levels
        return jnp.repeat(averages[:, None], levels, axis=1) if levels > 1 else averages

    def averages(self, state):
        return state[:, 0] if self.numerical_flux.levels > 1 else state

    def limit(self, state):
        return as_dtype(self.law, state.dtype).clip(state) if self.numerical_flux.clamped else state

    @property
    def speeds_from_data(self):
        flux = self.numerical_flux
        return self.source is None and (flux.learned or (flux.stencil == 2 and flux.monotone))

    def cell_speeds(self, t, state):
        state = self.averages(state)
        law = as_dtype(self.law, state.dtype)
        if law.curvature == "neither":
            return law.max_wave_speed(jnp.minimum(state[1:], state[:-1]), jnp.maximum(state[1:], state[:-1]))
        return jnp.abs(law.wave_speed(state))

    def boundary_speeds(self, t, state):
        state = self.averages(state)
        law = as_dtype(self.law, state.dtype)
        left, right = (
            jnp.asarray(side, state.dtype) for side in self.boundary.ghost_cells(t, state, self.ghost)
        )
        ends = jnp.concatenate([left, state[:1], state[-1:], right])
        if law.curvature == "neither":
            return law.max_wave_speed(jnp.minimum(ends[1:], ends[:-1]), jnp.maximum(ends[1:], ends[:-1]))
        return jnp.abs(law.wave_speed(ends))
