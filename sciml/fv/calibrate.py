"""Fundamental diagrams fitted to one measured day, through the simulation of that day, with standard errors.

The parameters p minimise the mean square E(p) of the normalised residual between the open-loop simulation and
the measurement, both edges prescribed. A whole day takes milliseconds and the loss is kinked (flows are
minima, shocks hop over cells), so the search is by samples: evenly over the box of admissible parameters,
then by evolution with an adapted covariance matrix (CMA-ES) from the best of them.

Standard errors and correlations are those of the distribution ∝ exp(-n_eff E(p) / (2 E_min)) on the box,
the normal likelihood of n_eff independent residuals, sampled by an ensemble of walkers. Where E is quadratic
this is the textbook covariance 2 E_min/n_eff (∂²E)⁻¹; unlike that it feels kinks, skewness and the bounds.
Residuals of neighbouring cells and frames are far from independent: n_eff = n / (τ_t τ_x), where τ = 1 + 2
Σ ρ_k is their integrated autocorrelation along time and along the road. The errors say how sharply this day
determines the parameters of this model in this scheme, not how parameters differ from day to day.

Reference: N. Hansen, The CMA evolution strategy: a tutorial, arXiv:1604.00772.
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
from sciml.fv.integrate import ensemble
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
    """A diagram with free parameters; `build(limit, *parameters)` gets the speed limit and the parameters
    in order.
    """

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
    "greenshields": Family(("free_flow_speed", "jam_density"), lambda limit, v, k: Greenshields(v, k)),  # pyright: ignore
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
        ("critical_speed", "jam_density"),
        lambda limit, c, k: Greenberg(c, k, jnp.exp(-limit / c)),  # pyright: ignore
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
    [veh/km/lane] that follow; `correlation` is that of the fitted parameters in order; `mse` is the loss on
    the training day, `residuals` and `effective` the number of residuals and of independent ones.
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
    rounds: int = 30,
    source: AbstractSource | None = None,
    cfl: float = 0.95,
    seed: int = 0,
) -> Calibration:
    """Fits a fundamental diagram to a measured day.

    Args:
        name: a key of `FAMILIES`.
        day: the day to fit.
        scheme: an entry of `sciml.fv.catalogue.SCHEMES`; it belongs to the model, since its numerical
            viscosity is fitted along.
        bounds: admissible intervals that replace those of `BOUNDS`, by parameter.
        samples: parameters tried all over the box; a quarter as many in every round of the search that
            follows.
        rounds: largest number of rounds of the search.
        source: ramps, in veh/h/lane and km.
        cfl: share of the CFL limit used at the largest admissible speed; it fixes the steps per frame.
        seed: seed of the samples.

    Raises:
        ValueError: for an unknown name or empty bounds, or when no admissible parameters give a finite
            simulation.
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
        found = ensemble(square, points)
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
    draws = _likelihood(evaluate, rng, unit, values, float(effective), samples)
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
            key: Estimate(
                float(best[i]),
                float(np.std(draws[:, i])),
                BOUNDS[key][0],
                bool(at_bound[i]),
            )
            for i, key in enumerate(family.parameters)
        },
        derived={
            key: Estimate(float(getattr(made, key)), float(np.std(values)), units)
            for (key, values), units in zip(derived.items(), ("veh/h/lane", "veh/km/lane"), strict=True)
            if key not in family.parameters
        },
        correlation=np.corrcoef(draws.T),
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
    """All points of the unit cube that were tried and their losses, best first: an even sample, then CMA-ES.

    CMA-ES with the default constants of N. Hansen, arXiv:1604.00772, table 1, positive weights only.
    """
    n, count = dimension, max(samples // 4, 8)
    points = _spread(samples, n)
    values = evaluate(points)
    parents = count // 2
    weights = np.log(parents + 0.5) - np.log(np.arange(1, parents + 1))
    weights /= weights.sum()
    mass = 1 / np.sum(weights**2)
    c_sigma = (mass + 2) / (n + mass + 5)
    damping = 1 + 2 * max(0.0, np.sqrt((mass - 1) / (n + 1)) - 1) + c_sigma
    c_path = (4 + mass / n) / (n + 4 + 2 * mass / n)
    c_one = 2 / ((n + 1.3) ** 2 + mass)
    c_rank = min(1 - c_one, 2 * (mass - 2 + 1 / mass) / ((n + 2) ** 2 + mass))
    length = np.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))  # of a standard normal vector

    mean, sigma, covariance = points[np.argmin(values)], 0.2, np.eye(n)
    path_sigma, path = np.zeros(n), np.zeros(n)
    for generation in range(1, rounds + 1):
        fresh = _normal(rng, mean, sigma**2 * covariance, count)
        found = evaluate(fresh)
        points, values = np.concatenate([points, fresh]), np.concatenate([values, found])
        steps = (fresh[np.argsort(found)[:parents]] - mean) / sigma
        step = weights @ steps
        mean = mean + sigma * step
        spectrum, axes = np.linalg.eigh(covariance)
        whitened = axes @ ((axes.T @ step) / np.sqrt(np.maximum(spectrum, 1e-20)))
        path_sigma = (1 - c_sigma) * path_sigma + np.sqrt(c_sigma * (2 - c_sigma) * mass) * whitened
        size = np.linalg.norm(path_sigma)
        going = size / np.sqrt(1 - (1 - c_sigma) ** (2 * generation)) < (1.4 + 2 / (n + 1)) * length
        path = (1 - c_path) * path + going * np.sqrt(c_path * (2 - c_path) * mass) * step
        covariance = (
            (1 - c_one - c_rank) * covariance
            + c_one * np.outer(path, path)
            + c_rank * steps.T @ (weights[:, None] * steps)
        )
        sigma = min(sigma * np.exp(c_sigma / damping * (size / length - 1)), 1.0)
        # One standard error changes the loss by 1/n_eff, hundredths: a thousandth of that is converged.
        ranked = np.sort(found)[:parents]
        if ranked[-1] - ranked[0] < 1e-5 * ranked[0] or sigma * np.sqrt(covariance.diagonal().max()) < 1e-5:
            break
    order = np.argsort(values)
    return points[order], values[order]


def _spread(count: int, dimension: int) -> np.ndarray:
    """Evenly spread points of the unit cube: multiples of the powers of 1/φ modulo 1, φ^{d+1} = φ + 1
    (Kronecker).
    """
    phi = 2.0
    for _ in range(50):
        phi = (1 + phi) ** (1 / (dimension + 1))
    return (0.5 + np.outer(np.arange(1, count + 1), phi ** -np.arange(1.0, dimension + 1))) % 1


def _normal(rng, mean: np.ndarray, covariance: np.ndarray, count: int) -> np.ndarray:
    """Normal samples inside the unit cube; those outside are drawn again or pulled towards the mean."""
    root = np.linalg.cholesky(covariance + 1e-12 * np.eye(mean.size))
    points = mean + rng.standard_normal((count, mean.size)) @ root.T
    for _ in range(20):
        outside = ((points < 0) | (points > 1)).any(axis=1)
        points[outside] = mean + rng.standard_normal((int(outside.sum()), mean.size)) @ root.T
    offset = points - mean
    with np.errstate(divide="ignore", invalid="ignore"):
        room = np.where(offset > 0, (1 - mean) / offset, np.where(offset < 0, -mean / offset, np.inf))
    return np.clip(mean + np.minimum(room.min(axis=1, keepdims=True), 1) * offset, 0, 1)


def _likelihood(evaluate, rng, points, values, effective: float, samples: int, steps: int = 36) -> np.ndarray:
    """Samples of exp(-n_eff E/(2 E_min)) on the unit cube by an ensemble of walkers, (draws, parameters).

    The affine-invariant stretch move: every walker of one half proposes a point on the line through a
    walker of the other half. Narrow, curved and bounded distributions need no tuning. The first third of
    the steps is dropped.

    Reference: J. Goodman, J. Weare, Commun. Appl. Math. Comput. Sci. 5, 65 (2010).
    """
    n = points.shape[1]
    half = min(max(samples // 8, 2 * n), len(points) // 2)
    lowest = max(float(values[0]), 1e-30)
    exponent = np.minimum(0.5 * effective * (values / lowest - 1), 1e30)
    near = max(int((exponent < 0.5 * n + 4).sum()), 2 * half)
    chosen = rng.choice(near, 2 * half, replace=False)
    walkers, level = points[chosen].copy(), exponent[chosen].copy()
    draws = []
    for step in range(steps):
        for mine, others in ((slice(half), slice(half, None)), (slice(half, None), slice(half))):
            stretch = (1 + rng.random(half)) ** 2 / 2  # density 1/√z on [½, 2]
            partner = walkers[others][rng.integers(half, size=half)]
            proposal = partner + stretch[:, None] * (walkers[mine] - partner)
            inside = ((proposal >= 0) & (proposal <= 1)).all(axis=1)
            proposal = np.where(inside[:, None], proposal, walkers[mine])
            found = np.minimum(0.5 * effective * (evaluate(proposal) / lowest - 1), 1e30)
            gain = (n - 1) * np.log(stretch) - found + level[mine]
            accept = inside & (np.log(rng.random(half)) < gain)
            walkers[mine] = np.where(accept[:, None], proposal, walkers[mine])
            level[mine] = np.where(accept, found, level[mine])
        if step >= steps // 3:
            draws.append(walkers.copy())
    return np.concatenate(draws)


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
