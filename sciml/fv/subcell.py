"""Sub-cell reconstruction with exact evolution: a cell holds two pieces, and a face integrates their exact
waves.

Inside a cell the profile is either a jump between the two neighbouring states, placed so that the cell
average is kept, or a limited slope. The flux through a face, averaged over the step, is the Lax-Hopf formula
of the two adjacent cells (f concave, CFL ≤ 1)

    F = min over y of  R((x_f - y)/Δt) + (1/Δt) ∫_y^{x_f} u dx ,    R(s) = sup_u f(u) - s u ,

a maximum with the infimum for convex f. On a piece of constant state k the minimum is at the foot y = x_f -
Δt f′(k) of its characteristic or at an end of the piece; on a slope the foot solves y + Δt f′(u(y)) = x_f.
Exact evolution and averaging of a profile within the range of its neighbours is consistent, conservative,
entropic and in bounds. One constant piece per cell gives Godunov's scheme.
"""

from collections.abc import Callable
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

from sciml.fv.limiter import superbee
from sciml.fv.numerical_flux import AbstractCellwiseFlux


class SubCell(AbstractCellwiseFlux):
    """Jump where waves steepen, limited slope where they spread; for any concave or convex flux.

    In a monotone cell whose waves run together (every monotone cell for a piecewise-linear flux) the profile
    is a jump between the neighbouring averages; where a piecewise-linear flux spreads waves, a neighbour's
    state is replaced by the nearest kink of f on the way to it, since that is the state that travels next to
    the cell. Elsewhere the profile is linear with a limited slope.

    Args:
        limiter: slope limiter of the linear profile.
        newton_steps: iterations for the foot of a characteristic on a slope; one is exact for a quadratic
            flux.

    Reference: A. Harten, J. Comput. Phys. 83, 148 (1989) for sub-cell resolution; E. Hopf, Commun. Pure Appl.
    Math. 3, 201 (1950) and P. D. Lax, ibid. 10, 537 (1957) for the exact evolution.
    """

    limiter: Callable = eqx.field(static=True, default=superbee)
    newton_steps: int = eqx.field(static=True, default=4)
    stencil: ClassVar[int] = 4
    fully_discrete: ClassVar[bool] = True
    cfl_limit: ClassVar[float] = 1.0

    def check(self, law):
        if law.curvature == "neither":
            raise ValueError(
                f"subcell: {type(law).__name__} is neither concave nor convex, so the Lax-Hopf formula does"
                " not hold; use"
                " muscl-minmod or weno5-z"
            )

    def cell(self, law, averages, dt_dx):
        before, middle, after = averages
        lower = jnp.minimum(jnp.minimum(before, middle), after)
        upper = jnp.maximum(jnp.maximum(before, middle), after)
        if law.curvature != "linear":
            # All admissible states, and those that round-off moved outside: below the infimum taken over
            # admissible states alone, a state of -1e-18 would be amplified in every step. A linear law needs
            # its own states only.
            lower, upper = jnp.minimum(lower, law.lower), jnp.maximum(upper, law.upper)
        pick = jnp.maximum if law.curvature == "convex" else jnp.minimum
        pieces = self._pieces(law, before, middle, after)
        candidates = [
            [self._candidate(law, dt_dx, lower, upper, p, face) for p in pieces] for face in (0.0, 1.0)
        ]
        return tuple(pick(*pair) for pair in candidates)

    def face(self, law, left, right, dt_dx):
        if law.curvature == "linear":
            return jnp.where(law.wave_speed(left[1]) >= 0, left[1], right[0])
        return jnp.maximum(left[1], right[0]) if law.curvature == "convex" else jnp.minimum(left[1], right[0])

    def _pieces(self, law, before, middle, after):
        """Two pieces (start, end, state extrapolated to y = 0, slope, mean of the other piece), y = 0..1
        across the cell.
        """
        backward, forward = middle - before, after - middle
        monotone = backward * forward > 0
        steepening = forward < 0 if law.curvature == "convex" else forward > 0
        a, b = before, after
        if law.piecewise_linear:
            jump = monotone
            for kink in law.kinks:
                a = jnp.where(~steepening & ((kink - middle) * (a - kink) >= 0), kink, a)
                b = jnp.where(~steepening & ((kink - middle) * (b - kink) >= 0), kink, b)
        else:
            jump = monotone & steepening
        jump = jump & (a != b)  # a cell whose average is a kink is constant
        width = jnp.where(jump, a - b, 1)
        theta = jnp.where(jump, jnp.clip((middle - b) / width, 0, 1), 1)
        slope = (
            jnp.where(jump, 0, self.limiter(backward, forward))
            if not law.piecewise_linear
            else jnp.zeros_like(middle)
        )
        first = jnp.where(jump, a, middle - 0.5 * slope)
        second = jnp.where(jump, b, middle)
        flat, one = jnp.zeros_like(middle), jnp.ones_like(middle)
        return (flat, theta, first, slope, second), (theta, one, second, flat, jnp.where(jump, a, middle))

    def _candidate(self, law, dt_dx, lower, upper, piece, face):
        """Time-averaged flux of the best characteristic that starts on one piece of a cell."""
        start, end, state, slope, other = piece
        foot = jnp.clip(face - dt_dx * law.wave_speed(state + slope * face), start, end)
        if not law.piecewise_linear:
            foot = self._foot(law, dt_dx, foot, start, end, state, slope, face)
        # By the envelope theorem a foot inside the piece counts as fixed; one at its end moves with the end.
        foot = jnp.where(foot <= start, start, jnp.where(foot >= end, end, jax.lax.stop_gradient(foot)))
        best = law.legendre_state((face - foot) / dt_dx, lower, upper)
        # ∫ (u - best) from the foot to the face, over this piece and the other one if it lies in between.
        value = state + slope * foot
        if face == 1.0:
            own = (end - foot) * (0.5 * (value + state + slope * end) - best)
            beyond = (1 - end) * (other - best)
            return law.flux(best) + (own + beyond) / dt_dx
        own = (foot - start) * (0.5 * (value + state + slope * start) - best)
        beyond = start * (other - best)
        return law.flux(best) - (own + beyond) / dt_dx

    def _foot(self, law, dt_dx, foot, start, end, state, slope, face):
        for _ in range(1 if law.quadratic else self.newton_steps):
            speed, bend = jax.jvp(
                lambda y: law.wave_speed(state + slope * y), (foot,), (jnp.ones_like(foot),)
            )
            step = (foot + dt_dx * speed - face) / jnp.maximum(1 + dt_dx * bend, 0.1)
            foot = jnp.clip(foot - step, start, end)
        return foot
