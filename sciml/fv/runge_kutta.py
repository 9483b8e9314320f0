"""Strong-stability-preserving Runge-Kutta methods and CFL control, as a solver and a controller of diffrax.

A step returns what rounding took from it, so that the next one can give it back (compensated sums): in
float32 mass would drift otherwise.
"""

from collections.abc import Callable
from typing import ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from sciml.fv.finite_volume import AbstractScheme, State
from sciml.typing import Scalar


def _plus(y, added):
    return jax.tree.map(jnp.add, y, added)


def nothing_lost(y):
    """Zeros where sums need compensation; None in float64, whose rounding is far below every error."""
    wide = all(x.dtype.itemsize >= 8 for x in jax.tree.leaves(y))
    return None if wide else jax.tree.map(jnp.zeros_like, y)


class AbstractSSPRK(diffrax.AbstractSolver):
    """Shu-Osher form: u⁽ⁱ⁾ = αᵢ uⁿ + (1-αᵢ)(u⁽ⁱ⁻¹⁾ + Δt L(u⁽ⁱ⁻¹⁾, t + cᵢΔt)), a convex mix of Euler steps.

    Reference: C.-W. Shu, S. Osher, J. Comput. Phys. 77, 439 (1988); S. Gottlieb, C.-W. Shu, E. Tadmor, SIAM
    Review 43, 89 (2001).
    """

    weights: eqx.AbstractClassVar[tuple[float, ...]]
    nodes: eqx.AbstractClassVar[tuple[float, ...]]

    term_structure: ClassVar = diffrax.AbstractTerm
    interpolation_cls: ClassVar[Callable[..., diffrax.LocalLinearInterpolation]] = (
        diffrax.LocalLinearInterpolation
    )

    def order(self, terms):
        return len(self.weights)

    def init(self, terms, t0, t1, y0, args):
        return nothing_lost(y0)

    def advance(
        self,
        scheme: AbstractScheme,
        t: Scalar,
        y: tuple[State, Scalar],
        dt: Scalar,
        lost: tuple[State, Scalar] | None = None,
    ) -> tuple[tuple[State, Scalar], tuple[State, Scalar] | None]:
        """One step of the pair (state, total brought in by boundary and sources), and what rounding took.

        Handed back as `lost`, that is given to the next step. Without these compensated sums (None) mass
        drifts in float32, by 2e-5 of itself in 1000 steps.
        """
        stage, added, new, whole = y, jax.tree.map(jnp.zeros_like, y), y, y
        for alpha, node in zip(self.weights, self.nodes, strict=True):
            rate = scheme.tendency(t + node * dt, stage[0], dt)
            added = jax.tree.map(
                lambda d, slope, a=alpha: (1 - a) * (d + dt * slope) if a else dt * slope, added, rate
            )
            whole = added if lost is None else _plus(added, lost)
            new = _plus(y, whole)
            stage = (scheme.limit(new[0]), new[1])
            if stage[0] is not new[0]:
                change = jax.tree.map(jnp.subtract, stage[0], new[0])
                added = (jax.tree.map(jnp.add, added[0], change), added[1])
        if lost is not None:
            lost = jax.lax.stop_gradient(jax.tree.map(lambda d, new, old: d - (new - old), whole, new, y))
        return stage, lost

    def step(self, terms, t0, t1, y0, args, solver_state, made_jump):
        y1, lost = self.advance(args[0], jnp.asarray(t0), y0, jnp.asarray(t1 - t0), solver_state)
        return y1, None, dict(y0=y0, y1=y1), lost, diffrax.RESULTS.successful

    def func(self, terms, t0, y0, args):
        return terms.vf(t0, y0, args)


class ForwardEuler(AbstractSSPRK):
    """u^{n+1} = uⁿ + Δt L(uⁿ); the integrator of fully discrete fluxes."""

    weights: ClassVar[tuple[float, ...]] = (0.0,)
    nodes: ClassVar[tuple[float, ...]] = (0.0,)


class SSPRK2(AbstractSSPRK):
    """Heun's method, second order, two stages."""

    weights: ClassVar[tuple[float, ...]] = (0.0, 1 / 2)
    nodes: ClassVar[tuple[float, ...]] = (0.0, 1.0)


class SSPRK3(AbstractSSPRK):
    """Third order, three stages."""

    weights: ClassVar[tuple[float, ...]] = (0.0, 3 / 4, 1 / 3)
    nodes: ClassVar[tuple[float, ...]] = (0.0, 1.0, 1 / 2)


class CFLController(diffrax.AbstractStepSizeController):
    """Steps of a given CFL number; a step that exceeded the scheme's limit or gave a non-finite state is
    rejected.

    The speed of the new state chooses the next step, shortened where it would pass one of the times in
    `stops`; when the wave speed grew within the step beyond the limit, or the state is not finite, the step
    is taken again at half its length.
    """

    cfl: Scalar
    stops: Float[Array, " stops"]

    def wrap(self, direction):
        return self

    def init(self, terms, t0, t1, y0, dt0, args, func, error_order):
        return self._clip(t0, self._step(args[0], t0, y0)), jnp.zeros_like(self.cfl)

    def _step(self, scheme, t, y):
        speed = scheme.max_speed(t, y[0])
        # A state at rest has no wave speed: any step is stable, so a step as long as wished ends at the final
        # time.
        return jnp.where(speed > 0, self.cfl * scheme.grid.dx / jnp.where(speed > 0, speed, 1), 1e30).astype(
            self.cfl.dtype
        )

    def _clip(self, start, step):
        ahead = jnp.where(self.stops > start, self.stops, jnp.inf)
        return jnp.minimum(start + step, jnp.min(ahead))

    def adapt_step_size(self, t0, t1, y0, y1_candidate, args, y_error, error_order, controller_state):
        scheme = args[0]
        dt = t1 - t0
        speed = jnp.maximum(scheme.max_speed(t0, y0[0]), scheme.max_speed(t1, y1_candidate[0]))
        number = dt * speed / scheme.grid.dx
        finite = jnp.all(jnp.isfinite(scheme.averages(y1_candidate[0])))
        keep = finite & (number <= scheme.cfl_limit * (1 + 1e-5))
        next_dt = jnp.where(keep, self._step(scheme, t1, y1_candidate), 0.5 * dt)
        start = jnp.where(keep, t1, t0)
        seen = jnp.where(keep, jnp.maximum(controller_state, number), controller_state).astype(
            controller_state.dtype
        )
        stuck = ~keep & (
            start + 0.5 * dt <= start + 4 * jnp.finfo(self.cfl.dtype).eps * jnp.abs(start) + 1e-30
        )
        result = diffrax.RESULTS.where(stuck, diffrax.RESULTS.dt_min_reached, diffrax.RESULTS.successful)
        return keep, start, self._clip(start, next_dt), False, seen, result


def vector_field(t, y, args):
    scheme, dt = args
    return scheme.tendency(t, y[0], dt)
