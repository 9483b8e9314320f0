"""Riemann solvers: from the states on both sides of a face to the flux through it.

Godunov is exact for every scalar flux; Engquist-Osher splits the flux into its rising and falling parts;
Rusanov (local Lax-Friedrichs) and Lax-Friedrichs add viscosity; upwind follows a wave speed of one sign.
"""

import abc

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Float

from sciml.fv.law import AbstractLaw
from sciml.typing import Scalar


class AbstractRiemannSolver(eqx.Module):
    """Flux through a face between two states; consistent, F(u, u) = f(u)."""

    @abc.abstractmethod
    def __call__(
        self, law: AbstractLaw, left: Float[Array, "..."], right: Float[Array, "..."], dt_dx: Scalar | None
    ) -> Float[Array, "..."]:
        """F(left, right), elementwise; `dt_dx` is Δt/Δx where the solver needs it."""

    def check(self, law: AbstractLaw) -> None:
        """Raise a `ValueError` when the solver does not apply to the law."""


def _at_equal_states(law: AbstractLaw, left, right, flux):
    """The flux; upwind where both states are equal, for only that form has the right derivatives there."""
    upwind = jnp.where(law.wave_speed(left) >= 0, law.flux(left), law.flux(right))
    return jnp.where(left == right, upwind, flux)


class Godunov(AbstractRiemannSolver):
    """The flux of the entropy solution: min f over [left, right] when left ≤ right, max f over [right, left]
    otherwise.

    Exact for any scalar flux, transonic rarefactions included: between stationary points f is monotone, so
    the extremum is at an end or at a stationary point. For concave f this is min(demand(left),
    supply(right)). Reference: S. K. Godunov, Mat. Sb. 47, 271 (1959); S. Osher, SIAM J. Numer. Anal. 21, 217
    (1984).
    """

    def __call__(self, law, left, right, dt_dx):
        points = law.stationary_points
        if law.curvature == "concave" and len(points) == 1:
            (top,) = points
            return jnp.minimum(law.flux(jnp.minimum(left, top)), law.flux(jnp.maximum(right, top)))
        if law.curvature == "convex" and len(points) == 1:
            (bottom,) = points
            return jnp.maximum(law.flux(jnp.maximum(left, bottom)), law.flux(jnp.minimum(right, bottom)))
        low, high = jnp.minimum(left, right), jnp.maximum(left, right)
        values = [law.flux(low), law.flux(high)]
        values += [law.flux(jnp.clip(point, low, high)) for point in points]
        smallest, largest = values[0], values[0]
        for value in values[1:]:
            smallest, largest = jnp.minimum(smallest, value), jnp.maximum(largest, value)
        return _at_equal_states(law, left, right, jnp.where(left <= right, smallest, largest))


class EngquistOsher(AbstractRiemannSolver):
    """F = ½(f(left) + f(right)) - ½ ∫ |f′| du from left to right.

    Reference: B. Engquist, S. Osher, Math. Comp. 36, 321 (1981).
    """

    def __call__(self, law, left, right, dt_dx):
        points = law.stationary_points
        if law.curvature == "concave" and len(points) == 1:
            (top,) = points
            return law.flux(jnp.minimum(left, top)) + law.flux(jnp.maximum(right, top)) - law.flux(top)
        if law.curvature == "convex" and len(points) == 1:
            (bottom,) = points
            return (
                law.flux(jnp.maximum(left, bottom)) + law.flux(jnp.minimum(right, bottom)) - law.flux(bottom)
            )
        low, high = jnp.minimum(left, right), jnp.maximum(left, right)
        nodes = [low, *(jnp.clip(point, low, high) for point in points), high]
        values = [law.flux(node) for node in nodes]
        variation = sum(jnp.abs(b - a) for a, b in zip(values[:-1], values[1:], strict=True))
        flux = 0.5 * (values[0] + values[-1]) - 0.5 * jnp.sign(right - left) * variation
        return _at_equal_states(law, left, right, flux)


class Rusanov(AbstractRiemannSolver):
    """F = ½(f(left) + f(right)) - ½ max|f′|·(right - left), the maximum taken between the two states."""

    def __call__(self, law, left, right, dt_dx):
        speed = law.max_wave_speed(jnp.minimum(left, right), jnp.maximum(left, right))
        return 0.5 * (law.flux(left) + law.flux(right)) - 0.5 * speed * (right - left)


class LaxFriedrichs(AbstractRiemannSolver):
    """F = ½(f(left) + f(right)) - ½ (Δx/Δt)(right - left): the viscosity grows as the time step shrinks."""

    def __call__(self, law, left, right, dt_dx):
        if dt_dx is None:
            raise ValueError(
                "Lax-Friedrichs contains the time step: integrate it with ForwardEuler, SSPRK2 or SSPRK3,"
                " not with a"
                " general Runge-Kutta method; Rusanov is the form without the time step"
            )
        return 0.5 * (law.flux(left) + law.flux(right)) - 0.5 * (right - left) / dt_dx


class Upwind(AbstractRiemannSolver):
    """F = f(left) where all waves travel right, f(right) where all travel left; for laws whose f′ keeps its
    sign.
    """

    def __call__(self, law, left, right, dt_dx):
        flux_left, flux_right = law.flux(left), law.flux(right)
        # All three have one sign; the secant decides where f′ vanishes at both states.
        slope = (
            law.wave_speed(left) + law.wave_speed(right) + jnp.sign(right - left) * (flux_right - flux_left)
        )
        return jnp.where(slope >= 0, flux_left, flux_right)

    def check(self, law):
        lower, upper = law.lower, law.upper
        if any(isinstance(x, Tracer) for x in jax.tree.leaves(law)) or law.curvature == "linear":
            return
        inside = [float(x) for x in law.stationary_points if float(lower) < float(x) < float(upper)]
        if inside:
            raise ValueError(
                f"upwind: waves of {type(law).__name__} change direction at u = {inside[0]:g}; use Godunov,"
                " which is"
                " upwinding made right for both directions"
            )


RIEMANN_SOLVERS: dict[str, AbstractRiemannSolver] = {
    "godunov": Godunov(),
    "engquist-osher": EngquistOsher(),
    "rusanov": Rusanov(),
    "lax-friedrichs": LaxFriedrichs(),
    "upwind": Upwind(),
}
