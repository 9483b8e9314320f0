"""Fundamental diagrams fitted to one measured day, through the simulation of that day, with standard errors.

The parameters minimise the mean square of the normalised residual between the open-loop simulation and the
measurement, both edges prescribed. Coarse first: the loss at a low-discrepancy sample of the box of admissible
parameters. Then Levenberg-Marquardt from the best of them, with the Jacobian J carried forward through the rollout,
in coordinates that cannot leave the box. Standard errors are those of nonlinear least squares,

    cov p = s² (JᵀJ)⁻¹ n/n_eff ,   s² = Σ r² / (n - p·n/n_eff) ,   n_eff = n / (τ_t τ_x) ,

where τ = 1 + 2 Σ ρ_k is the integrated autocorrelation of the residuals r along time and along the road: residuals of
neighbouring cells and frames are far from independent. They say how sharply this day determines the parameters under
this model and this scheme, not how the parameters differ from day to day.
"""

import dataclasses
from collections.abc import Callable, Mapping

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix
from jaxtyping import Array, Float

from sciml.fv.catalogue import SchemeEntry
from sciml.fv.fundamental_diagram import (
    AbstractFundamentalDiagram,
    Greenberg,
    Greenshields,
    NewellDaganzo,
    Trapezoidal,
    Triangular,
    Underwood,
)
from sciml.fv.source import AbstractSource
from sciml.fv.traffic import Day, check_result, residual, simulate_day, substeps

# parameter -> units, smallest and largest admissible value
BOUNDS: dict[str, tuple[str, float, float]] = {
    "free_flow_speed": ("km/h", 20.0, 130.0),
    "congestion_speed": ("km/h", 5.0, 40.0),
    "critical_speed": ("km/h", 5.0, 100.0),
    "jam_density": ("veh/km/lane", 100.0, 250.0),
    "critical_density": ("veh/km/lane", 15.0, 125.0),
    "capacity_fraction": ("-", 0.4, 0.99),
    "first_fraction": ("-", 0.2, 0.98),
    "second_fraction": ("-", 0.02, 0.8),
}


@dataclasses.dataclass(frozen=True)
class Family:
    """A diagram with free parameters; `build(limit, *parameters)` gets the speed limit and the parameters in order."""

    parameters: tuple[str, ...]
    build: Callable[..., AbstractFundamentalDiagram]


def _newell_daganzo(limit, speed, wave, jam, fraction):
    return NewellDaganzo(speed, fraction * speed * wave * jam / (speed + wave), wave, jam)


def _trapezoidal(limit, speed, wave, jam, first, second):
    critical = wave * jam / (speed + wave)
    k1, k2 = first * critical, critical + second * (jam - critical)
    return Trapezoidal(k1, speed * k1, k2, wave * (jam - k2), jam)


# The kinks of the trapezium lie on both sides of the triangle with the same ends, at these fractions of them.
FAMILIES: dict[str, Family] = {
    "greenshields": Family(("free_flow_speed", "jam_density"), lambda limit, v, k: Greenshields(v, k)),
    "triangular": Family(
        ("free_flow_speed", "congestion_speed", "jam_density"), lambda limit, v, w, k: Triangular(v, w, k)
    ),
    "trapezoidal": Family(
        ("free_flow_speed", "congestion_speed", "jam_density", "first_fraction", "second_fraction"),
        _trapezoidal,
    ),
    "newell-daganzo": Family(
        ("free_flow_speed", "congestion_speed", "jam_density", "capacity_fraction"), _newell_daganzo
    ),
    # The speed of Greenberg's diagram has no bound on an empty road: it is frozen at the speed limit.
    "greenberg": Family(
        ("critical_speed", "jam_density"), lambda limit, c, k: Greenberg(c, k, jnp.exp(-limit / c))
    ),
    "underwood": Family(("free_flow_speed", "critical_density"), lambda limit, v, k: Underwood(v, k, 2 * k)),
}


@dataclasses.dataclass(frozen=True)
class Estimate:
    """One number of a calibrated diagram; `at_bound` when the fit ended at the edge of the admissible box."""

    value: float
    standard_error: float
    units: str
    at_bound: bool = False


@dataclasses.dataclass(frozen=True)
class Calibration:
    """A calibrated diagram with what is known about its parameters.

    `estimates` holds the fitted parameters, `derived` the capacity [veh/h/lane] and the critical density
    [veh/km/lane] that follow; `correlation` is that of the fitted parameters in order; `mse` is the loss on the training
    day, `residuals` and `effective` the number of residuals and of independent ones.
    """

    diagram: AbstractFundamentalDiagram
    steps_per_frame: int
    estimates: dict[str, Estimate]
    derived: dict[str, Estimate]
    correlation: np.ndarray
    mse: float
    residuals: int
    effective: float


def calibrate(
    name: str,
    day: Day,
    scheme: SchemeEntry,
    *,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    samples: int = 256,
    starts: int = 2,
    source: AbstractSource | None = None,
    cfl: float = 0.95,
    seed: int = 0,
) -> Calibration:
    """Fits a fundamental diagram to a measured day.

    Args:
        name: a key of `FAMILIES`.
        day: the day to fit.
        scheme: an entry of `sciml.fv.catalogue.SCHEMES`; it belongs to the model, since its numerical viscosity is fitted along.
        bounds: admissible intervals that replace those of `BOUNDS`, by parameter.
        samples: points of the coarse search.
        starts: best points from which Levenberg-Marquardt starts.
        source: ramps, in veh/h/lane and km.
        cfl: share of the CFL limit used at the largest admissible speed; it fixes the steps per frame.
        seed: seed of the low-discrepancy sample.

    Raises:
        ValueError: for an unknown name or empty bounds, or when no admissible parameters give a finite simulation.
    """
    if name not in FAMILIES:
        raise ValueError(f"unknown fundamental diagram {name!r}; known: {', '.join(FAMILIES)}")
    family = FAMILIES[name]
    lower, upper = _box(family, bounds or {})
    limit = dict(zip(family.parameters, upper, strict=True)).get(
        "free_flow_speed", _bound("free_flow_speed", bounds)[1]
    )
    steps = substeps(
        day, max(limit, *_speeds(family, upper)), scheme, family.build(limit, *(0.5 * (lower + upper))), cfl
    )

    def compare(parameters):
        simulated, result = simulate_day(family.build(limit, *parameters), day, scheme, steps, source)
        return residual(simulated, day), result

    def loss(parameters):
        square = jnp.sum(compare(parameters)[0] ** 2) / jnp.sum(day.scored)
        return jnp.where(jnp.isfinite(square), square, jnp.inf)

    points = jnp.asarray(lower + (upper - lower) * _sample(len(lower), samples, seed))
    losses = np.asarray(jax.jit(lambda p: jax.lax.map(loss, p, batch_size=16))(points))
    best = np.argsort(losses)[:starts]
    if not np.isfinite(losses[best[0]]):
        check_result(int(compare(points[best[0]])[1]), f"calibration of {name}", steps)
        raise ValueError(
            f"calibration of {name}: no admissible parameters give a finite simulation; change the bounds"
        )
    refined = _refine(compare, points[best], jnp.asarray(lower), jnp.asarray(upper))
    candidates = jnp.concatenate([points[best[:1]], refined])
    final = np.asarray(jax.jit(lambda p: jax.lax.map(loss, p))(candidates))
    parameters = candidates[int(np.nanargmin(final))]
    return _summary(name, family, limit, parameters, compare, (lower, upper), day, steps)


def _bound(parameter: str, bounds: Mapping[str, tuple[float, float]] | None) -> tuple[float, float]:
    return (bounds or {}).get(parameter, BOUNDS[parameter][1:])


def _box(family: Family, bounds: Mapping[str, tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    for parameter, (low, high) in bounds.items():
        if parameter not in BOUNDS:
            raise ValueError(f"bounds.{parameter}: unknown parameter; known: {', '.join(BOUNDS)}")
        if not 0 < low < high:
            raise ValueError(f"bounds.{parameter}: [{low}, {high}] is not a positive interval")
        if parameter.endswith("fraction") and high >= 1:
            raise ValueError(f"bounds.{parameter}: a fraction stays below 1")
    box = np.array([_bound(parameter, bounds) for parameter in family.parameters])
    return box[:, 0], box[:, 1]


def _speeds(family: Family, upper: np.ndarray) -> list[float]:
    return [high for key, high in zip(family.parameters, upper, strict=True) if key.endswith("speed")]


def _sample(dimension: int, count: int, seed: int) -> np.ndarray:
    from scipy.stats import qmc

    exponent = max(int(np.ceil(np.log2(max(count, 2)))), 1)
    return qmc.Sobol(dimension, rng=np.random.default_rng(seed)).random_base2(exponent)[:count]


def _refine(compare, starts: Float[Array, "starts p"], lower, upper) -> Float[Array, "starts p"]:
    """Levenberg-Marquardt from every start, in z with p = lower + (upper - lower)/(1 + e^{-z})."""
    place = lambda z: lower + (upper - lower) * jax.nn.sigmoid(z)  # noqa: E731
    solver = optimistix.LevenbergMarquardt(rtol=1e-3, atol=1e-4)

    def one(start):
        inside = jnp.clip((start - lower) / (upper - lower), 0.01, 0.99)
        found = optimistix.least_squares(
            lambda z, args: compare(place(z))[0],
            solver,
            jnp.log(inside / (1 - inside)),
            options={"jac": "fwd"},
            max_steps=40,
            throw=False,
        )
        return place(found.value)

    return jax.jit(lambda points: jax.lax.map(one, points))(starts)


def _summary(name, family: Family, limit, parameters, compare, box, day: Day, steps: int) -> Calibration:
    error = np.asarray(compare(parameters)[0], np.float64)
    jacobian = np.asarray(jax.jit(jax.jacfwd(lambda p: compare(p)[0]))(parameters), np.float64)
    scored = np.asarray(day.scored)
    n, p = int(scored.sum()), len(family.parameters)
    inflation = autocorrelation_time(error, scored, axis=0) * autocorrelation_time(error, scored, axis=1)
    effective = n / inflation
    values = np.asarray(parameters, np.float64)
    scale = values  # relative parameters make JᵀJ well conditioned
    columns = jacobian[scored] * scale
    variance = (error**2).sum() / max(n - p * inflation, 1.0)
    covariance = variance * inflation * np.linalg.pinv(columns.T @ columns) * np.outer(scale, scale)
    deviation = np.sqrt(np.maximum(np.diag(covariance), 0))
    safe = np.where(deviation > 0, deviation, 1)
    lower, upper = box
    edge = 0.005 * (upper - lower)
    at_bound = (values < lower + edge) | (values > upper - edge)
    estimates = {
        key: Estimate(float(values[i]), float(deviation[i]), BOUNDS[key][0], bool(at_bound[i]))
        for i, key in enumerate(family.parameters)
    }

    def consequences(q):
        diagram = family.build(limit, *q)
        return jnp.stack([diagram.capacity, jnp.asarray(diagram.critical_density, q.dtype)])

    gradient = np.asarray(jax.jacfwd(consequences)(parameters), np.float64)
    spread = np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", gradient, covariance, gradient), 0))
    follow = np.asarray(consequences(parameters), np.float64)
    derived = {
        "capacity": Estimate(float(follow[0]), float(spread[0]), "veh/h/lane"),
        "critical_density": Estimate(float(follow[1]), float(spread[1]), "veh/km/lane"),
    }
    derived = {key: value for key, value in derived.items() if key not in estimates}
    diagram = family.build(limit, *(float(value) for value in values))
    return Calibration(
        diagram,
        steps,
        estimates,
        derived,
        covariance / np.outer(safe, safe),
        float((error**2).sum() / n),
        n,
        effective,
    )


def autocorrelation_time(error: np.ndarray, scored: np.ndarray, axis: int) -> float:
    """τ = 1 + 2 Σ_k ρ_k along an axis, summed until the lag exceeds 5 τ (Sokal's window); at least 1.

    Args:
        error: residuals, shape (frames, cells), 0 where not scored.
        scored: where residuals exist.
        axis: 0 along time, 1 along the road.

    Reference: A. Sokal, in Functional Integration, NATO ASI B 361, 131 (1997).
    """
    r = np.moveaxis(np.where(scored, error, 0.0), axis, 0)
    weight = np.moveaxis(scored.astype(float), axis, 0)
    variance = (r**2).sum() / weight.sum()
    tau = 1.0
    for lag in range(1, r.shape[0]):
        pairs = (weight[lag:] * weight[:-lag]).sum()
        if pairs == 0 or variance == 0:
            break
        tau += 2 * (r[lag:] * r[:-lag]).sum() / pairs / variance
        if lag >= 5 * tau:
            break
    return max(tau, 1.0)
