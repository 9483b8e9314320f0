"""Scalar conservation laws u_t + f(u)_x = 0 and what the numerics need to know about their flux f.

A law states its flux f, its wave speed f′, the interval of admissible states and the curvature of f there.
From these everything else follows: exact Godunov fluxes need the stationary points of f, Rusanov fluxes and
CFL numbers the largest |f′|, and exact evolution the Legendre transform R(s) = sup_u f(u) - s·u. Traffic laws
(Lighthill, Whitham, Richards) are fundamental diagrams: see `sciml.fv.fundamental_diagram`.
"""

import abc
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from sciml.typing import Scalar, ScalarLike

Curvature = Literal["concave", "convex", "linear", "neither"]


def scalar(value: ScalarLike) -> Scalar:
    """A physical number as a weakly typed array, so that the dtype of the state decides and no value
    retraces.
    """
    return jnp.asarray(float(value)) if isinstance(value, (int, float, np.number)) else jnp.asarray(value)


def scalar_field(doc: str, default: float | None = None):
    """A dataclass field that holds one physical number; `default=None` makes it mandatory."""
    options: dict[str, Any] = {} if default is None else {"default": default}
    return eqx.field(converter=scalar, metadata={"doc": doc}, **options)


def as_dtype(tree, dtype):
    """The same law or boundary with its numbers in `dtype`, so that the state's dtype is kept."""

    def cast(leaf):
        return jnp.asarray(leaf, dtype) if isinstance(leaf, float) or eqx.is_inexact_array(leaf) else leaf

    return jax.tree.map(cast, tree)


class AbstractLaw(eqx.Module):
    """A scalar law u_t + f(u)_x = 0; concrete laws give `flux`, `wave_speed` and the facts below.

    `lower` and `upper` bound the admissible states (infinite where the law has no bound); `curvature` states
    the sign of f″ on that interval; `kinks` are the states where f′ jumps (piecewise-linear flux), in
    increasing order.
    """

    curvature: eqx.AbstractVar[Curvature]
    lower: eqx.AbstractVar[Scalar]
    upper: eqx.AbstractVar[Scalar]

    @abc.abstractmethod
    def flux(self, u: Float[Array, "..."]) -> Float[Array, "..."]:
        """f(u), elementwise."""

    @abc.abstractmethod
    def wave_speed(self, u: Float[Array, "..."]) -> Float[Array, "..."]:
        """f′(u), elementwise; at a kink the slope of the left branch."""

    @property
    @abc.abstractmethod
    def stationary_points(self) -> tuple[Scalar, ...]:
        """States inside the admissible interval where f changes between rising and falling, increasing."""

    @property
    def inflection_points(self) -> tuple[Scalar, ...]:
        """States where f″ changes sign, increasing; empty for a concave, convex or linear flux."""
        return ()

    @property
    def kinks(self) -> tuple[Scalar, ...]:
        """States where f′ jumps, increasing; empty for a smooth flux."""
        return ()

    @property
    def piecewise_linear(self) -> bool:
        """True when f consists of straight pieces between `kinks`, so that waves are jumps only."""
        return self.curvature == "linear"

    @property
    def quadratic(self) -> bool:
        """True when f″ is constant."""
        return False

    @abc.abstractmethod
    def legendre_state(
        self, speed: Float[Array, "..."], lower: Float[Array, "..."], upper: Float[Array, "..."]
    ) -> Float[Array, "..."]:
        """The state u in [lower, upper] where f(u) - speed·u is largest (f concave) or smallest (convex)."""

    def legendre(
        self, speed: Float[Array, "..."], lower: Float[Array, "..."], upper: Float[Array, "..."]
    ) -> Float[Array, "..."]:
        """R(s) = sup f(u) - s·u over [lower, upper] for concave f, the infimum for convex f, elementwise.

        Its derivative is R′(s) = -u*(s) by the envelope theorem, which is also how it is differentiated.
        """
        state = jax.lax.stop_gradient(self.legendre_state(speed, lower, upper))
        return self.flux(state) - speed * state

    def max_wave_speed(self, lower: Float[Array, "..."], upper: Float[Array, "..."]) -> Float[Array, "..."]:
        """max |f′| over the interval [lower, upper] of states, elementwise."""
        speed = jnp.maximum(jnp.abs(self.wave_speed(lower)), jnp.abs(self.wave_speed(upper)))
        for point in self.inflection_points:
            speed = jnp.maximum(speed, jnp.abs(self.wave_speed(jnp.clip(point, lower, upper))))
        return speed

    def clip(self, u: Float[Array, "..."]) -> Float[Array, "..."]:
        """u moved into the admissible interval, elementwise; at the ends of it the derivative is 1 still."""
        return jnp.where(u < self.lower, self.lower, jnp.where(u > self.upper, self.upper, u))


def check_increasing(
    owner: str, lower: ScalarLike, upper: ScalarLike, names: tuple[str, str] = ("lower", "upper")
):
    """Raise a `ValueError` when two concrete numbers are not increasing; traced values are left alone."""
    if isinstance(lower, Tracer) or isinstance(upper, Tracer):
        return
    if not np.all(np.asarray(lower) < np.asarray(upper)):
        raise ValueError(f"{owner}: need {names[0]} < {names[1]}, got {lower} and {upper}")


class LinearAdvection(AbstractLaw):
    """u_t + a u_x = 0: every profile moves unchanged with speed a."""

    speed: Scalar = scalar_field("advection speed a [length/time]", 1.0)
    lower: Scalar = scalar_field("smallest admissible state", -np.inf)
    upper: Scalar = scalar_field("largest admissible state", np.inf)
    curvature: ClassVar[Curvature] = "linear"

    def __check_init__(self):
        check_increasing("LinearAdvection", self.lower, self.upper)

    def flux(self, u):
        return self.speed * u

    def wave_speed(self, u):
        return self.speed * jnp.ones_like(u)

    @property
    def stationary_points(self):
        return ()

    def legendre_state(self, speed, lower, upper):
        return jnp.where(speed < self.speed, upper, lower)


class Burgers(AbstractLaw):
    """u_t + (u²/2)_x = 0, the convex model of gas dynamics without pressure."""

    lower: Scalar = scalar_field("smallest admissible state", -np.inf)
    upper: Scalar = scalar_field("largest admissible state", np.inf)
    curvature: ClassVar[Curvature] = "convex"

    def __check_init__(self):
        check_increasing("Burgers", self.lower, self.upper)

    def flux(self, u):
        return 0.5 * u * u

    def wave_speed(self, u):
        return u

    @property
    def stationary_points(self):
        return (jnp.clip(jnp.zeros_like(self.lower), self.lower, self.upper),)

    @property
    def quadratic(self):
        return True

    def legendre_state(self, speed, lower, upper):
        return jnp.clip(speed, lower, upper)


class BuckleyLeverett(AbstractLaw):
    """Two-phase flow in porous rock: f(u) = u²/(u² + M(1-u)²) on [0, 1], neither concave nor convex.

    Reference: R. J. LeVeque, Finite Volume Methods for Hyperbolic Problems, 2002, section 16.1.
    """

    mobility_ratio: Scalar = scalar_field("M, mobility of oil over mobility of water [-]", 0.5)
    lower: Scalar = scalar_field("smallest water saturation", 0.0)
    upper: Scalar = scalar_field("largest water saturation", 1.0)
    curvature: ClassVar[Curvature] = "neither"

    def __check_init__(self):
        check_increasing("BuckleyLeverett", 0.0, self.mobility_ratio, ("0", "mobility_ratio"))
        check_increasing("BuckleyLeverett", self.lower, self.upper)

    def flux(self, u):
        water = u * u
        return water / (water + self.mobility_ratio * (1 - u) ** 2)

    def wave_speed(self, u):
        total = u * u + self.mobility_ratio * (1 - u) ** 2
        return 2 * self.mobility_ratio * u * (1 - u) / total**2

    @property
    def stationary_points(self):
        return ()

    @property
    def inflection_points(self):
        # f″ ∝ M + (1+M)(2u³ - 3u²); with u = ½ + cos φ this is 4cos³φ - 3cos φ = cos 3φ = 1 - 2M/(1+M).
        angle = jnp.arccos(1 - 2 * self.mobility_ratio / (1 + self.mobility_ratio))
        return (0.5 + jnp.cos((angle + 4 * np.pi) / 3),)

    def legendre_state(self, speed, lower, upper):
        raise ValueError(
            "BuckleyLeverett is neither concave nor convex: its exact solution comes from exact.riemann"
        )


class FluxFunction(AbstractLaw):
    """A law given by any flux function; its curvature, stationary and inflection points are found when it is
    built.

    Args:
        function: f(u), elementwise, written with `jax.numpy` so that f′ follows by differentiation.
        lower: smallest admissible state (finite).
        upper: largest admissible state (finite).
        samples: grid points on which sign changes of f′ and f″ are looked for; a bump narrower than
            (upper - lower)/samples can be missed.

    Raises:
        ValueError: when the interval is empty or f or f′ is not finite on it.
    """

    function: Callable = eqx.field(static=True)
    lower: Scalar
    upper: Scalar
    curvature: Curvature = eqx.field(static=True)
    stationary: tuple[float, ...] = eqx.field(static=True)
    inflections: tuple[float, ...] = eqx.field(static=True)

    def __init__(self, function: Callable, lower: float, upper: float, *, samples: int = 2048):
        check_increasing("FluxFunction", lower, upper)
        if not (np.isfinite(lower) and np.isfinite(upper)):
            raise ValueError(f"FluxFunction: lower and upper must be finite, got {lower} and {upper}")
        self.function = function
        self.lower, self.upper = scalar(lower), scalar(upper)
        with jax.enable_x64(True):
            slope = jax.jit(jax.vmap(jax.grad(function)))
            u = np.linspace(lower, upper, samples + 1)
            flux, speed = np.asarray(jax.vmap(function)(jnp.asarray(u))), np.asarray(slope(jnp.asarray(u)))
            bad = ~(np.isfinite(flux) & np.isfinite(speed))
            if bad.any():
                raise ValueError(
                    f"FluxFunction: f or f′ is not finite at u = {u[bad][0]:.6g}; choose lower and upper"
                    " inside its domain"
                )
            self.curvature = _curvature(speed)
            roots = _sign_changes(lambda x: np.asarray(slope(jnp.asarray(x))), u, speed)
            bends: list[float] = []
            if self.curvature == "neither":
                bend = jax.jit(jax.vmap(jax.grad(jax.grad(function))))
                bends = _sign_changes(
                    lambda x: np.asarray(bend(jnp.asarray(x))), u, np.asarray(bend(jnp.asarray(u)))
                )
                smooth = np.asarray(bends)
                for turn in _turning_points(lambda x: np.asarray(slope(jnp.asarray(x))), u, speed):
                    if not (np.abs(smooth - turn) < 2 * (u[1] - u[0])).any():  # a kink: f″ says nothing there
                        bends.append(turn)
                bends.sort()
        self.stationary, self.inflections = tuple(roots), tuple(bends)

    def flux(self, u):
        return self.function(u)

    def wave_speed(self, u):
        slope = jax.grad(self.function)
        return jnp.vectorize(slope)(u)

    @property
    def stationary_points(self):
        return tuple(scalar(u) for u in self.stationary)

    @property
    def inflection_points(self):
        return tuple(scalar(u) for u in self.inflections)

    def legendre_state(self, speed, lower, upper):
        if self.curvature == "neither":
            raise ValueError(
                "this flux is neither concave nor convex: its Legendre transform does not give the solution"
            )
        speed, lower, upper = jnp.broadcast_arrays(speed, lower, upper)
        sign = -1.0 if self.curvature == "convex" else 1.0

        def halve(_, interval):
            low, high = interval
            middle = 0.5 * (low + high)
            right = sign * (self.wave_speed(middle) - speed) > 0
            return jnp.where(right, middle, low), jnp.where(right, high, middle)

        steps = 48 if jnp.result_type(speed) == jnp.float64 else 24
        low, high = jax.lax.fori_loop(0, steps, halve, (lower, upper))
        return 0.5 * (low + high)


def _curvature(speed: np.ndarray) -> Curvature:
    change = np.diff(speed)
    tolerance = 1e-12 * max(1.0, float(np.max(np.abs(speed))))
    rises, falls = bool((change > tolerance).any()), bool((change < -tolerance).any())
    return "neither" if rises and falls else "convex" if rises else "concave" if falls else "linear"


def _turning_points(function: Callable, u: np.ndarray, values: np.ndarray) -> list[float]:
    """Where a sampled function turns between rising and falling, by golden sections; it may jump there."""
    steps = np.diff(values)
    moving = np.flatnonzero(np.abs(steps) > 1e-12 * max(1.0, float(np.max(np.abs(values)))))
    pairs = [(i, j) for i, j in zip(moving[:-1], moving[1:], strict=True) if steps[i] * steps[j] < 0]
    points = []
    for i, j in pairs:
        low, high, sign, ratio = u[i], u[j + 1], np.sign(steps[i]), 0.5 * (np.sqrt(5) - 1)
        for _ in range(80):
            inner = np.array([high - ratio * (high - low), low + ratio * (high - low)])
            first, second = sign * function(inner)
            low, high = (inner[0], high) if first < second else (low, inner[1])
        points.append(float(0.5 * (low + high)))
    return points


def _sign_changes(function: Callable, u: np.ndarray, values: np.ndarray) -> list[float]:
    """Interior zeros of a sampled function where its sign changes, refined by bisection."""
    nonzero = np.flatnonzero(values)
    pairs = [(i, j) for i, j in zip(nonzero[:-1], nonzero[1:], strict=True) if values[i] * values[j] < 0]
    if not pairs:
        return []
    low, high = u[[i for i, _ in pairs]], u[[j for _, j in pairs]]
    sign = np.sign(values[[i for i, _ in pairs]])
    for _ in range(60):
        middle = 0.5 * (low + high)
        same = np.sign(function(middle)) == sign
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    return [float(x) for x in 0.5 * (low + high)]
