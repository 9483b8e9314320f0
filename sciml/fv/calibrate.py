"""Fundamental diagrams fitted to one measured day, through the simulation of that day, with standard errors.

The parameters p minimise the mean square E(p) of the normalised residual between the open-loop simulation and
the measurement, both edges prescribed. A whole day takes milliseconds and the loss is kinked (flows are minima, shocks
hop over cells), so the search is by samples: evenly over the box of admissible parameters, then from normal
distributions fitted to the best samples so far (the cross-entropy method).

Standard errors and correlations are those of the distribution ∝ exp(-n_eff E(p) / (2 E_min)) on the box, the normal
likelihood of n_eff independent residuals, by importance sampling. Where E is quadratic this is the textbook
covariance 2 E_min/n_eff (∂²E)⁻¹; unlike that it feels kinks, skewness and the bounds. Residuals of neighbouring
cells and frames are far from independent: n_eff = n / (τ_t τ_x), where τ = 1 + 2 Σ ρ_k is their integrated
autocorrelation along time and along the road. The errors say how sharply this day determines the parameters of this
model in this scheme, not how parameters differ from day to day.

Reference: R. Y. Rubinstein, D. P. Kroese, The Cross-Entropy Method, 2004.
"""

import dataclasses
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np


from sciml.fv.catalogue import SchemeEntry, lookup
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
    "jam_density": ("veh/km/lane", 70.0, 250.0),
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
    rounds: int = 8,
    source: AbstractSource | None = None,
    cfl: float = 0.95,
    seed: int = 0,
) -> Calibration:
    """Fits a fundamental diagram to a measured day.

    Args:
        name: a key of `FAMILIES`.
        day: the day to fit.
        scheme: an entry of `sciml.fv.catalogue.SCHEMES`; it belongs to the model, since its numerical viscosity is
            fitted along.
        bounds: admissible intervals that replace those of `BOUNDS`, by parameter.
        samples: parameters tried in every round.
        rounds: rounds of the search after the first; two more follow for the standard errors.
        source: ramps, in veh/h/lane and km.
        cfl: share of the CFL limit used at the largest admissible speed; it fixes the steps per frame.
        seed: seed of the samples.

    Raises:
        ValueError: for an unknown name or empty bounds, or when no admissible parameters give a finite simulation.
    """
    family = lookup("fundamental diagram", FAMILIES, name)
    lower, upper = _box(family, bounds or {})
    speeds = [high for key, high in zip(family.parameters, upper, strict=True) if key.endswith("speed")]
    limit = (bounds or {}).get("free_flow_speed", BOUNDS["free_flow_speed"][1:])[1]
    middle = family.build(limit, *(0.5 * (lower + upper)))
    steps = substeps(day, max(limit, *speeds), scheme, middle, cfl)

    @jax.jit
    def compare(parameters):
        simulated, result = simulate_day(family.build(limit, *parameters), day, scheme, steps, source)
        return residual(simulated, day), result

    @jax.jit
    def squares(points):
        square = lambda p: jnp.mean(compare(p)[0] ** 2) * day.scored.size / jnp.sum(day.scored)  # noqa: E731
        found = jax.lax.map(square, points, batch_size=16)
        return jnp.where(jnp.isfinite(found), found, jnp.inf)

    def evaluate(unit):
        return np.asarray(squares(jnp.asarray(lower + (upper - lower) * unit)), dtype=np.float64)

    rng = np.random.default_rng(seed)
    unit, values = _search(evaluate, rng, lower.size, samples, rounds)
    best = lower + (upper - lower) * unit[0]
    if not np.isfinite(values[0]):
        check_result(int(compare(jnp.asarray(best))[1]), f"calibration of {name}", steps)
        raise ValueError(
            f"calibration of {name}: no admissible parameters give a finite simulation; change bounds"
        )
    scored = np.asarray(day.scored)
    error = np.asarray(compare(jnp.asarray(best))[0], np.float64)
    n = int(scored.sum())
    effective = n / np.prod([autocorrelation_time(error, scored, axis) for axis in (0, 1)])
    draws, weights = _likelihood(evaluate, rng, unit, values, float(effective), samples)
    draws = lower + (upper - lower) * draws

    diagram = jax.vmap(lambda p: family.build(limit, *p))(jnp.asarray(draws))
    derived = {
        "capacity": np.asarray(diagram.capacity),
        "critical_density": np.asarray(diagram.critical_density),
    }
    made = family.build(limit, *(float(value) for value in best))
    at_bound = (unit[0] < 0.01) | (unit[0] > 0.99)
    return Calibration(
        diagram=made,
        steps_per_frame=steps,
        estimates={
            key: Estimate(float(best[i]), _deviation(draws[:, i], weights), BOUNDS[key][0], bool(at_bound[i]))
            for i, key in enumerate(family.parameters)
        },
        derived={
            key: Estimate(float(getattr(made, key)), _deviation(values, weights), units)
            for (key, values), units in zip(derived.items(), ("veh/h/lane", "veh/km/lane"), strict=True)
            if key not in family.parameters
        },
        correlation=_correlation(draws, weights),
        mse=float(values[0]),
        residuals=n,
        effective=float(effective),
    )


def _box(family: Family, bounds: Mapping[str, tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
    for parameter, (low, high) in bounds.items():
        if parameter not in BOUNDS:
            raise ValueError(f"bounds.{parameter}: unknown parameter; known: {', '.join(BOUNDS)}")
        if not 0 < low < high:
            raise ValueError(f"bounds.{parameter}: [{low}, {high}] is not a positive interval")
        if parameter.endswith("fraction") and high >= 1:
            raise ValueError(f"bounds.{parameter}: a fraction stays below 1")
    box = np.array([bounds.get(key, BOUNDS[key][1:]) for key in family.parameters])
    return box[:, 0], box[:, 1]


def _search(evaluate, rng, dimension: int, samples: int, rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """All points of the unit cube that were tried and their losses, best first."""
    points = _spread(samples, dimension)
    values = evaluate(points)
    for _ in range(rounds):
        elite = points[np.argsort(values)[: max(samples // 12, 2 * dimension)]]
        fresh = _normal(rng, elite.mean(axis=0), 1.5 * np.cov(elite.T).reshape(dimension, -1), samples)
        points, values = np.concatenate([points, fresh]), np.concatenate([values, evaluate(fresh)])
    order = np.argsort(values)
    return points[order], values[order]


def _spread(count: int, dimension: int) -> np.ndarray:
    """Evenly spread points of the unit cube: multiples of the powers of 1/φ modulo 1, φ^{d+1} = φ + 1 (Kronecker)."""
    phi = 2.0
    for _ in range(50):
        phi = (1 + phi) ** (1 / (dimension + 1))
    return (0.5 + np.outer(np.arange(1, count + 1), phi ** -np.arange(1.0, dimension + 1))) % 1


def _normal(rng, mean: np.ndarray, covariance: np.ndarray, count: int) -> np.ndarray:
    """Normal samples inside the unit cube; points outside are drawn again, at last moved to its face."""
    root = np.linalg.cholesky(covariance + 1e-12 * np.eye(mean.size))
    points = mean + rng.standard_normal((count, mean.size)) @ root.T
    for _ in range(20):
        outside = ((points < 0) | (points > 1)).any(axis=1)
        points[outside] = mean + rng.standard_normal((int(outside.sum()), mean.size)) @ root.T
    return np.clip(points, 0, 1)


def _likelihood(
    evaluate, rng, points, values, effective: float, samples: int
) -> tuple[np.ndarray, np.ndarray]:
    """Weighted samples of exp(-n_eff E/(2 E_min)) on the unit cube, from two rounds of importance sampling."""
    dimension, lowest = points.shape[1], values[0]

    def log_density(found):
        return -0.5 * effective * (found / lowest - 1)

    # A first idea of the width: the points tried so far, at twice the temperature.
    weights = np.exp(0.5 * log_density(values))
    for _ in range(2):
        weights = weights / weights.sum()
        mean = weights @ points
        covariance = 1.5 * (points - mean).T @ (weights[:, None] * (points - mean)) + 1e-8 * np.eye(dimension)
        points = _normal(rng, mean, covariance, 2 * samples)
        offset = points - mean
        proposal = -0.5 * np.einsum("ij,jk,ik->i", offset, np.linalg.inv(covariance), offset)
        logs = log_density(evaluate(points)) - proposal
        weights = np.exp(logs - logs.max())
    return points, weights / weights.sum()


def _deviation(values: np.ndarray, weights: np.ndarray) -> float:
    mean = weights @ values
    return float(np.sqrt(weights @ (values - mean) ** 2))


def _correlation(points: np.ndarray, weights: np.ndarray) -> np.ndarray:
    offset = points - weights @ points
    covariance = offset.T @ (weights[:, None] * offset)
    deviation = np.sqrt(np.diag(covariance))
    return covariance / np.outer(deviation, deviation)


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
