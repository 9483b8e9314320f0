# pyright: reportCallIssue=false, reportArgumentType=false
"""Calibration: known parameters come back, errors are those of theory, the box is respected."""

import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv.calibrate import BOUNDS, FAMILIES, autocorrelation_time, calibrate
from sciml.fv.catalogue import SCHEMES
from sciml.fv.density_field import density_field
from sciml.fv.fundamental_diagram import AbstractFundamentalDiagram
from sciml.fv.traffic import as_day, simulate

TRUE = {
    "greenshields": (100.0, 150.0),
    "triangular": (80.0, 18.0, 150.0),
    "trapezoidal": (80.0, 20.0, 140.0, 0.7, 0.2),
    "newell-daganzo": (80.0, 18.0, 150.0, 0.8),
    "greenberg": (30.0, 150.0),
    "underwood": (90.0, 75.0),
}


def day_of(diagram: AbstractFundamentalDiagram, noise=0.0, seed=0):
    """A day that the diagram itself has made, free and congested, with white noise [veh/km/lane]."""
    rng = np.random.default_rng(seed)
    frames, cells = 120, 16
    times = np.arange(frames)
    density = np.full((frames, cells), 12.0)
    density[:, 0] = 12 + 8 * (times > 15) + 4 * np.sin(times / 4)
    density[:, -1] = np.where((times > 20) & (times < 80), 70 + 20 * np.sin(times / 5), 10)
    made = lambda values: density_field(  # noqa: E731
        values, 10.0 * times, 100.0 * np.arange(cells), density_units="veh/km/lane", time_units="s",
        x_units="m", name="made", find_copies=False,
    )  # fmt: skip
    # As many steps per frame as the calibration takes for speeds up to 130 km/h.
    clean = simulate(made(density), diagram, steps_per_frame=4).values
    clean[1:, 1:-1] += noise * rng.standard_normal((frames - 1, cells - 2))
    return as_day(made(np.maximum(clean, 0)))


@pytest.mark.parametrize("name", FAMILIES)
def test_the_diagram_that_made_the_day_is_found(name):
    diagram = FAMILIES[name].build(130.0, *TRUE[name])
    found = calibrate(name, day_of(diagram), SCHEMES["godunov"], samples=256)
    assert found.steps_per_frame == 4
    assert found.mse < 5e-5
    k = jnp.linspace(5, 90, 50)
    error = np.abs(np.asarray(found.diagram.flux(k)) - np.asarray(diagram.flux(k)))
    assert error.max() < 0.05 * float(diagram.capacity)
    assert list(found.estimates) == list(FAMILIES[name].parameters)
    for key, estimate in found.estimates.items():
        unit, lower, upper = BOUNDS[key]
        assert estimate.units == unit and lower <= estimate.value <= upper
    assert "capacity" in found.derived


def test_standard_errors_cover_the_truth():
    """White noise: about two thirds of the errors lie within one standard error, and n_eff is n."""
    diagram = FAMILIES["triangular"].build(130.0, *TRUE["triangular"])
    ratios = []
    for seed in range(3):
        found = calibrate(
            "triangular", day_of(diagram, noise=4.0, seed=seed), SCHEMES["godunov"], samples=256, seed=seed
        )
        assert found.effective > 0.4 * found.residuals
        ratios += [
            (estimate.value - true) / estimate.standard_error
            for estimate, true in zip(found.estimates.values(), TRUE["triangular"], strict=True)
        ]
    spread = float(np.sqrt(np.mean(np.square(ratios))))
    assert 0.2 < spread < 1.8, ratios
    np.testing.assert_allclose(np.diag(found.correlation), 1)
    np.testing.assert_allclose(found.correlation, found.correlation.T)


def test_bounds_are_kept_and_said():
    diagram = FAMILIES["greenshields"].build(130.0, *TRUE["greenshields"])
    found = calibrate(
        "greenshields",
        day_of(diagram),
        SCHEMES["godunov"],
        samples=64,
        bounds={"free_flow_speed": (40.0, 80.0)},
    )
    assert found.estimates["free_flow_speed"].at_bound and found.estimates["free_flow_speed"].value <= 80
    assert found.steps_per_frame == 3


@pytest.mark.parametrize(
    "name, bounds, message",
    [
        ("triangel", {}, "did you mean 'triangular'"),
        ("triangular", {"speed": (1.0, 2.0)}, "bounds.speed: unknown parameter"),
        ("triangular", {"jam_density": (200.0, 100.0)}, "not a positive interval"),
        ("newell-daganzo", {"capacity_fraction": (0.5, 1.0)}, "below 1"),
    ],
)
def test_bad_input(name, bounds, message):
    day = day_of(FAMILIES["triangular"].build(130.0, *TRUE["triangular"]))
    with pytest.raises(ValueError) as error:
        calibrate(name, day, SCHEMES["godunov"], bounds=bounds)
    assert message in str(error.value)


@pytest.mark.parametrize("memory", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("axis", [0, 1])
def test_autocorrelation_time_of_an_autoregression(memory, axis):
    """r_{t+1} = a r_t + noise has τ = (1 + a)/(1 - a)."""
    rng = np.random.default_rng(0)
    series = np.zeros((4000, 20))
    for t in range(1, 4000):
        series[t] = memory * series[t - 1] + rng.standard_normal(20)
    found = autocorrelation_time(
        series if axis == 0 else series.T, np.ones_like(series if axis == 0 else series.T, bool), axis
    )
    assert found == pytest.approx((1 + memory) / (1 - memory), rel=0.1)
