"""Fundamental diagrams: the flow q(k) of traffic of density k, the flux of the Lighthill-Whitham-Richards
law.

All diagrams are concave on the densities they admit. Any consistent units work: with densities in veh/km,
speeds in km/h and positions in km the flow is in veh/h and time in h; with jam density 1 everything is
normalised.

| diagram | flow q(k) |
|---|---|
| `Greenshields` | v k (1 - k/kⱼ) |
| `Triangular` | min(v k, w (kⱼ - k)) |
| `NewellDaganzo` | min(v k, Q, w (kⱼ - k)) |
| `Trapezoidal` | straight pieces (0, 0), (k₁, q₁), (k₂, q₂), (kⱼ, 0) |
| `Greenberg` | c k ln(kⱼ/k) |
| `Underwood` | v k exp(-k/k_c) |
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from sciml.fv.law import AbstractLaw, Curvature, check_increasing, scalar_field
from sciml.typing import Scalar


class AbstractFundamentalDiagram(AbstractLaw):
    """A concave flow q(k) on densities 0 ≤ k ≤ jam density, with the words of traffic flow."""

    critical_density: eqx.AbstractVar[Scalar]
    jam_density: eqx.AbstractVar[Scalar]
    free_flow_speed: eqx.AbstractVar[Scalar]

    @property
    def lower(self) -> Scalar:
        return jnp.zeros_like(self.jam_density)

    @property
    def upper(self) -> Scalar:
        return self.jam_density

    @property
    def capacity(self) -> Scalar:
        """Largest flow q(k_c)."""
        return self.flux(self.critical_density)

    @property
    def stationary_points(self) -> tuple[Scalar, ...]:
        return (self.critical_density,)

    def speed(self, density: Float[Array, "..."]) -> Float[Array, "..."]:
        """Speed of the vehicles q(k)/k, elementwise; the free-flow speed at k = 0."""
        safe = jnp.where(density > 0, density, 1)
        return jnp.where(density > 0, self.flux(safe) / safe, self.free_flow_speed)

    def demand(self, density: Float[Array, "..."]) -> Float[Array, "..."]:
        """Flow that a cell can send: q(min(k, k_c)), elementwise."""
        return self.flux(jnp.minimum(density, self.critical_density))

    def supply(self, density: Float[Array, "..."]) -> Float[Array, "..."]:
        """Flow that a cell can receive: q(max(k, k_c)), elementwise."""
        return self.flux(jnp.maximum(density, self.critical_density))


def _positive(diagram: eqx.Module, *names: str) -> None:
    for name in names:
        value = getattr(diagram, name)
        if not isinstance(value, Tracer) and not np.all(np.asarray(value) > 0):
            raise ValueError(f"{type(diagram).__name__}.{name} is {value}: give a positive number")


class Greenshields(AbstractFundamentalDiagram):
    """q = v k (1 - k/kⱼ). Reference: B. D. Greenshields, Highway Research Board Proc. 14, 448 (1935)."""

    free_flow_speed: Scalar = scalar_field("v, speed on an empty road [length/time]", 1.0)
    jam_density: Scalar = scalar_field("kⱼ, density of standing traffic [vehicles/length]", 1.0)
    curvature: ClassVar[Curvature] = "concave"

    def __check_init__(self):
        _positive(self, "free_flow_speed", "jam_density")

    def flux(self, u):
        return self.free_flow_speed * u * (1 - u / self.jam_density)

    def wave_speed(self, u):
        return self.free_flow_speed * (1 - 2 * u / self.jam_density)

    @property
    def critical_density(self):
        return 0.5 * self.jam_density

    @property
    def quadratic(self):
        return True

    def legendre_state(self, speed, lower, upper):
        return jnp.clip(0.5 * self.jam_density * (1 - speed / self.free_flow_speed), lower, upper)


class _Pieces(eqx.Module):
    """Concave straight pieces through `densities` and `flows` (kinks and slopes of decreasing size)."""

    densities: tuple[Scalar, ...]  # kinks only
    flows: tuple[Scalar, ...]
    slopes: tuple[Scalar, ...]  # one more than kinks

    def flux(self, u):
        flow = self.flows[0] + self.slopes[0] * (u - self.densities[0])
        for density, value, slope in zip(self.densities, self.flows, self.slopes[1:], strict=True):
            flow = jnp.minimum(flow, value + slope * (u - density))
        return flow

    def wave_speed(self, u):
        speed = self.slopes[0] * jnp.ones_like(u)
        for density, slope in zip(self.densities, self.slopes[1:], strict=True):
            speed = jnp.where(u > density, slope, speed)
        return speed

    def legendre_state(self, speed, lower, upper):
        state = lower
        for density, slope in zip(self.densities, self.slopes[:-1], strict=True):
            state = jnp.where(slope > speed, density, state)
        return jnp.clip(jnp.where(self.slopes[-1] > speed, upper, state), lower, upper)


class Triangular(AbstractFundamentalDiagram):
    """q = min(v k, w (kⱼ - k)). Reference: G. F. Newell, Transp. Res. B 27, 281 (1993)."""

    free_flow_speed: Scalar = scalar_field("v, speed of free traffic [length/time]", 1.0)
    congestion_speed: Scalar = scalar_field("w > 0, speed at which jams travel upstream [length/time]", 1.0)
    jam_density: Scalar = scalar_field("kⱼ, density of standing traffic [vehicles/length]", 1.0)
    curvature: ClassVar[Curvature] = "concave"

    def __check_init__(self):
        _positive(self, "free_flow_speed", "congestion_speed", "jam_density")

    @property
    def critical_density(self):
        return self.congestion_speed * self.jam_density / (self.free_flow_speed + self.congestion_speed)

    @property
    def _pieces(self):
        density = self.critical_density
        return _Pieces(
            (density,), (self.free_flow_speed * density,), (self.free_flow_speed, -self.congestion_speed)
        )

    def flux(self, u):
        return jnp.minimum(self.free_flow_speed * u, self.congestion_speed * (self.jam_density - u))

    def wave_speed(self, u):
        return self._pieces.wave_speed(u)

    def legendre_state(self, speed, lower, upper):
        return self._pieces.legendre_state(speed, lower, upper)

    @property
    def kinks(self):
        return (self.critical_density,)

    @property
    def piecewise_linear(self):
        return True


class Trapezoidal(AbstractFundamentalDiagram):
    """Three straight pieces through (0, 0), (k₁, q₁), (k₂, q₂) and (kⱼ, 0), with decreasing slopes."""

    first_density: Scalar = scalar_field("k₁, density at the first kink [vehicles/length]", 0.2)
    first_flow: Scalar = scalar_field("q₁, flow at the first kink [vehicles/time]", 0.2)
    second_density: Scalar = scalar_field("k₂, density at the second kink [vehicles/length]", 0.8)
    second_flow: Scalar = scalar_field("q₂, flow at the second kink [vehicles/time]", 0.3)
    jam_density: Scalar = scalar_field("kⱼ, density of standing traffic [vehicles/length]", 1.0)
    curvature: ClassVar[Curvature] = "concave"

    def __check_init__(self):
        _positive(self, "first_density", "first_flow", "second_density", "second_flow", "jam_density")
        check_increasing(
            "Trapezoidal", self.first_density, self.second_density, ("first_density", "second_density")
        )
        check_increasing(
            "Trapezoidal", self.second_density, self.jam_density, ("second_density", "jam_density")
        )
        slopes = self._slopes
        check_increasing("Trapezoidal", slopes[1], slopes[0], ("middle slope", "first slope"))
        check_increasing("Trapezoidal", slopes[2], slopes[1], ("last slope", "middle slope"))

    @property
    def free_flow_speed(self):
        return self.first_flow / self.first_density

    @property
    def _slopes(self):
        middle = (self.second_flow - self.first_flow) / (self.second_density - self.first_density)
        return (self.free_flow_speed, middle, -self.second_flow / (self.jam_density - self.second_density))

    @property
    def critical_density(self):
        return jnp.where(self.second_flow > self.first_flow, self.second_density, self.first_density)

    @property
    def _pieces(self):
        return _Pieces(
            (self.first_density, self.second_density), (self.first_flow, self.second_flow), self._slopes
        )

    def flux(self, u):
        return self._pieces.flux(u)

    def wave_speed(self, u):
        return self._pieces.wave_speed(u)

    def legendre_state(self, speed, lower, upper):
        return self._pieces.legendre_state(speed, lower, upper)

    @property
    def kinks(self):
        return (self.first_density, self.second_density)

    @property
    def piecewise_linear(self):
        return True


class NewellDaganzo(AbstractFundamentalDiagram):
    """q = min(v k, Q, w (kⱼ - k)): the triangle cut off at a capacity Q.

    Reference: C. F. Daganzo, Transp. Res. B 28, 269 (1994).
    """

    free_flow_speed: Scalar = scalar_field("v, speed of free traffic [length/time]", 1.0)
    maximum_flow: Scalar = scalar_field("Q, capacity of the road [vehicles/time]", 0.4)
    congestion_speed: Scalar = scalar_field("w > 0, speed at which jams travel upstream [length/time]", 1.0)
    jam_density: Scalar = scalar_field("kⱼ, density of standing traffic [vehicles/length]", 1.0)
    curvature: ClassVar[Curvature] = "concave"

    def __check_init__(self):
        _positive(self, "free_flow_speed", "maximum_flow", "congestion_speed", "jam_density")
        first, second = self.kinks
        check_increasing(
            "NewellDaganzo (maximum_flow is at or above the apex of the triangle: lower it or use"
            " Triangular)",
            first,
            second,
            ("maximum_flow / free_flow_speed", "jam_density - maximum_flow / congestion_speed"),
        )

    @property
    def kinks(self):
        return (
            self.maximum_flow / self.free_flow_speed,
            self.jam_density - self.maximum_flow / self.congestion_speed,
        )

    @property
    def critical_density(self):
        return self.kinks[0]

    @property
    def _pieces(self):
        flow = self.maximum_flow
        return _Pieces(self.kinks, (flow, flow), (self.free_flow_speed, 0 * flow, -self.congestion_speed))

    def flux(self, u):
        rising, falling = self.free_flow_speed * u, self.congestion_speed * (self.jam_density - u)
        return jnp.minimum(jnp.minimum(rising, falling), self.maximum_flow)

    def wave_speed(self, u):
        return self._pieces.wave_speed(u)

    def legendre_state(self, speed, lower, upper):
        return self._pieces.legendre_state(speed, lower, upper)

    @property
    def piecewise_linear(self):
        return True


class Greenberg(AbstractFundamentalDiagram):
    """q = c k ln(kⱼ/k). Reference: H. Greenberg, Operations Research 7, 79 (1959).

    The speed grows without bound on an empty road; below `floor`·kⱼ it is frozen at its value there.
    """

    critical_speed: Scalar = scalar_field("c, speed at capacity [length/time]", 1.0)
    jam_density: Scalar = scalar_field("kⱼ, density of standing traffic [vehicles/length]", 1.0)
    floor: Scalar = scalar_field("density below which the speed is frozen, as a fraction of kⱼ", 1e-7)
    curvature: ClassVar[Curvature] = "concave"

    def __check_init__(self):
        _positive(self, "critical_speed", "jam_density", "floor")

    def _log(self, u):
        return jnp.log(self.jam_density / jnp.maximum(u, self.floor * self.jam_density))

    def flux(self, u):
        return self.critical_speed * u * self._log(u)

    def wave_speed(self, u):
        falling = jnp.where(
            u > self.floor * self.jam_density, 1, 0
        )  # below the floor the flux is a straight line
        return self.critical_speed * (self._log(u) - falling)

    @property
    def free_flow_speed(self):
        return -self.critical_speed * jnp.log(self.floor)

    @property
    def critical_density(self):
        return self.jam_density * np.exp(-1.0)

    def legendre_state(self, speed, lower, upper):
        # Clipped before the exponential: s → -∞ must give `upper`, not an overflow.
        exponent = jnp.clip(-speed / self.critical_speed - 1, -40, 1)
        density = jnp.maximum(self.jam_density * jnp.exp(exponent), self.floor * self.jam_density)
        return jnp.clip(jnp.where(speed < self.free_flow_speed, density, 0), lower, upper)


class Underwood(AbstractFundamentalDiagram):
    """q = v k exp(-k/k_c). Reference: R. T. Underwood, Bureau of Highway Traffic, Yale, 141 (1961).

    The flow never returns to zero; the diagram is used up to `jam_density`, at most 2 k_c where it stops
    being concave.
    """

    free_flow_speed: Scalar = scalar_field("v, speed on an empty road [length/time]", 1.0)
    critical_density: Scalar = scalar_field("k_c, density at capacity [vehicles/length]", 1.0)
    jam_density: Scalar = scalar_field("largest density admitted, at most 2 k_c [vehicles/length]", 1.0)
    curvature: ClassVar[Curvature] = "concave"

    def __check_init__(self):
        _positive(self, "free_flow_speed", "critical_density", "jam_density")
        limit = 2 * self.critical_density * (1 + 1e-6)
        check_increasing("Underwood", self.jam_density, limit, ("jam_density", "2 critical_density"))

    def flux(self, u):
        return self.free_flow_speed * u * jnp.exp(-u / self.critical_density)

    def wave_speed(self, u):
        x = u / self.critical_density
        return self.free_flow_speed * (1 - x) * jnp.exp(-x)

    @property
    def stationary_points(self):
        return (jnp.minimum(self.critical_density, self.jam_density),)

    def legendre_state(self, speed, lower, upper):
        # (1-x) e^{-x} = σ on 0 ≤ x ≤ 2. Newton's tangents of a convex falling function stay on its left side,
        # so the iteration rises monotonically from x = 0; at x = 2 the tangent is flat, hence a start close
        # to that end too.
        ratio = jnp.clip(speed / self.free_flow_speed, -np.exp(-2.0), 1.0)
        depth = ratio + np.exp(-2.0)
        x = jnp.where(depth < 0.2, 2 - jnp.sqrt(2 * jnp.maximum(depth, 0) * np.exp(2.0)), 0.0)
        for _ in range(7):
            decay = jnp.exp(-x)
            slope = jnp.maximum((2 - x) * decay, 1e-9)
            x = jnp.clip(x + ((1 - x) * decay - ratio) / slope, 0.0, 2.0)
        return jnp.clip(self.critical_density * x, lower, upper)
