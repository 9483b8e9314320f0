# pyright: reportCallIssue=false, reportArgumentType=false
"""A day simulated open loop: exact where the answer is known, in bounds, and the whole command on a user's
files.
"""

import dataclasses
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from sciml.cli import main
from sciml.cli.neural import train_on_day
from sciml.fv.catalogue import SCHEMES
from sciml.fv.density_field import density_field
from sciml.fv.fundamental_diagram import Greenshields, Triangular
from sciml.fv.source import OnRamp
from sciml.fv.traffic import as_day, interpolation, persistence, residual, scores, simulate, simulate_day
from sciml.fv.traffic_neural import DayObjective, DayStage, NeuralModel, _part
from sciml.fv.traffic_study import model_name, study

TRIANGLE = Triangular(90.0, 18.0, 150.0)  # km/h, km/h, veh/km/lane; critical density 25


def field(density, frame=10.0, width=100.0, name="made", **options):
    frames, cells = density.shape
    return density_field(
        density, frame * np.arange(frames), width * (np.arange(cells) + 0.5),
        density_units="veh/km/lane", time_units="s", x_units="m", name=name, find_copies=False, **options,
    )  # fmt: skip


def edges_only(left, right, cells=24, start=None):
    """A field whose interior is only known at the start, and whose edges are given series."""
    density = np.full((len(left), cells), np.nan)
    density[0] = left[0] if start is None else start
    density[:, 0], density[:, -1] = left, right
    return np.where(np.isnan(density), density[0], density)


def made_day(seed=0, frames=150, cells=22, diagram=TRIANGLE, name="made"):
    """A "measured" day: a road of three times as many cells and more steps, with noise-free averages of
    three cells.
    """
    rng = np.random.default_rng(seed)
    times = np.arange(frames)
    inflow = 15 + 5 * np.sin(2 * np.pi * times / 60 + seed)
    outflow = np.where((times > 30) & (times < 100), 60 + 20 * np.sin(2 * np.pi * times / 25), 15.0)
    wide = edges_only(inflow, outflow, 3 * cells)
    wide[0] += 2 * rng.random(3 * cells)
    fine = simulate(field(wide, width=100 / 3), diagram).values
    return field(fine.reshape(frames, cells, 3).mean(axis=2), name=name)


@pytest.mark.parametrize("scheme", ["godunov", "muscl-van-leer", "subcell", "dg1"])
@pytest.mark.parametrize("level", [10.0, 25.0, 80.0])
def test_steady_traffic_stays(scheme, level):
    density = np.full((20, 24), level)
    found = simulate(field(density), TRIANGLE, SCHEMES[scheme])
    np.testing.assert_allclose(found, density, rtol=2e-6)
    assert found.attrs["units"] == "veh/km/lane"


def test_queue_front_travels_with_the_rankine_hugoniot_speed(x64):
    """Flow 900 at density 10 meets a queue of density 100 and flow 900·: s = (q₂ - q₁)/(k₂ - k₁)."""
    left, right = np.full(61, 10.0), np.full(61, 90.0)
    density = edges_only(left, right, 60)
    found = simulate(field(density), TRIANGLE).values
    shock = (18.0 * (150 - 90) - 90.0 * 10) / (90 - 10)  # +2.25 km/h: outflow of the queue exceeds the inflow
    assert shock > 0 and found[-1, -2] == pytest.approx(10)  # the front cannot enter the road
    left = np.full(61, 20.0)
    found = simulate(field(edges_only(left, right, 60)), TRIANGLE).values
    shock = (18.0 * (150 - 90) - 90.0 * 20) / (90 - 20)
    queued = 0.1 * ((found[:, 1:-1] - 20) / 70).sum(axis=1)  # km of queue, whatever the smearing
    expected = -shock * 10 / 3600 * np.arange(61)
    np.testing.assert_allclose(queued, expected, atol=1e-9)


def test_free_traffic_is_carried_through_at_cfl_one(x64):
    """v Δt = 2.5 Δx: with the CFL number at 1 Godunov's method moves a profile without any error."""
    rng = np.random.default_rng(1)
    day = field(edges_only(5 + 15 * rng.random(40), np.full(40, 5.0), 30), frame=10.0, width=250.0)
    found = simulate(day, TRIANGLE, steps_per_frame=1).values
    left = day["density"].values[:, 0]
    for n in range(32, 39):
        np.testing.assert_allclose(found[n, 1:10], left[n - np.arange(1, 10)], rtol=1e-12)


def test_ramp_adds_its_flow(x64):
    """Free traffic of 10 veh/km/lane and a ramp of 450 veh/h/lane: 5 veh/km/lane more downstream at 90
    km/h.
    """
    ramp = OnRamp(1.25, [0.0, 10.0], [450.0, 450.0])
    density = np.full((60, 24), 10.0)
    found = simulate(field(density), TRIANGLE, source=ramp).values
    np.testing.assert_allclose(found[-1, 1:12], 10, rtol=1e-12)
    np.testing.assert_allclose(found[-1, 13:-1], 15, rtol=1e-9)


def test_violated_cfl_and_density_above_jam():
    density = np.full((5, 10), 20.0)
    with pytest.raises(ValueError, match="made: the CFL limit is violated with 1 steps per frame"):
        simulate(field(density), TRIANGLE, steps_per_frame=1)
    full = np.full((5, 10), 200.0)  # above the jam density of the diagram: enters as the jam density
    np.testing.assert_allclose(simulate(field(full), TRIANGLE).values[:, 1:-1], 150)


def test_masked_ends_are_cut_off():
    density = np.random.default_rng(0).uniform(5, 20, (12, 20))
    day = field(density, masked_cells="0-4,9,19")
    found = simulate(day, TRIANGLE)
    assert found[:, :5].isnull().all() and found[:, 19].isnull().all()
    np.testing.assert_allclose(found[:, [5, 18]], density[:, [5, 18]], rtol=1e-6)
    scored = np.asarray(as_day(day).scored)
    assert scored.shape == (12, 14) and scored.sum() == 11 * 11 and not scored[:, [0, 4, 13]].any()
    with pytest.raises(ValueError, match="fewer than 4 cells"):
        as_day(field(density, masked_cells="3-19"))


def test_scores_and_baselines_against_loops():
    density = np.random.default_rng(2).uniform(0, 160, (6, 7))
    density[3, 3] = 0.0
    day = as_day(field(density, masked_cells="4", saturation=140.0))
    guess = interpolation(day)
    inner = density[:, :1] + (density[:, -1:] - density[:, :1]) * np.arange(7) / 6
    np.testing.assert_allclose(guess, inner, rtol=1e-5)
    held = np.asarray(persistence(day))
    np.testing.assert_allclose(held[:, 1:-1], np.tile(density[:1, 1:-1], (6, 1)), rtol=1e-6)
    np.testing.assert_allclose(held[:, [0, -1]], density[:, [0, -1]], rtol=1e-6)
    errors, relative = [], []
    for t in range(1, 6):
        for x in (1, 2, 3, 5):
            errors.append((min(inner[t, x], 140) - density[t, x]) / 140)
            relative.append(abs(errors[-1]) / max(density[t, x] / 140, 0.01))
    found = scores(guess, day)
    assert found["mse"] == pytest.approx(np.mean(np.square(errors)), rel=1e-4)
    assert found["l1"] == pytest.approx(np.mean(np.abs(errors)), rel=1e-4)
    assert found["relative"] == pytest.approx(np.mean(relative), rel=1e-4)
    assert np.count_nonzero(residual(guess, day)) <= 20


def test_a_batch_of_days_equals_the_days_and_traces_once():
    days = [as_day(made_day(seed)) for seed in range(3)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *days)
    run = eqx.filter_jit(
        eqx.debug.assert_max_traces(
            lambda diagram, many: jax.vmap(lambda day: simulate_day(diagram, day, SCHEMES["godunov"], 3)[0])(
                many
            ),
            max_traces=1,
        )
    )
    together = run(TRIANGLE, stacked)
    run(Triangular(80.0, 20.0, 140.0), stacked)
    for day, found in zip(days, together, strict=True):
        alone = simulate_day(TRIANGLE, day, SCHEMES["godunov"], 3)[0]
        np.testing.assert_allclose(found, alone, rtol=1e-5)


def test_gradient_through_the_day_is_finite():
    day = as_day(made_day())

    def loss(speed):
        return jnp.sum(
            residual(simulate_day(Greenshields(speed, 150.0), day, SCHEMES["godunov"], 4)[0], day) ** 2
        )

    assert np.isfinite(jax.grad(loss)(jnp.asarray(80.0)))


def test_study_recovers_its_own_model_and_beats_the_baselines():
    fields = {f"day {seed}": made_day(seed, name=f"day {seed}") for seed in range(3)}
    progress: list[str] = []
    found = study(("day 0", fields["day 0"]), fields, ["triangular"], ["godunov", "subcell"],
                  samples=256, rounds=20, progress=progress.append)  # fmt: skip
    models = found.metrics["models"]
    assert set(models) == {"triangular", "triangular/subcell", "interpolation", "persistence"}
    assert model_name("triangular", "godunov") == "triangular"
    assert found.metrics["test"] == ["day 1", "day 2"] and len(progress) == 5
    mse = {name: model["mean"]["mse"] for name, model in models.items()}
    assert mse["triangular"] < 0.2 * min(mse["interpolation"], mse["persistence"])
    mean = np.mean([models["triangular"]["days"][day]["l1"] for day in ("day 1", "day 2")])
    assert models["triangular"]["mean"]["l1"] == pytest.approx(mean)
    wave = models["triangular"]["parameters"]["congestion_speed"]
    assert abs(wave["value"] - 18) < 1.5 and wave["units"] == "km/h"
    assert found.fields["triangular"].dims == ("day", "time", "x")
    assert {"measured", "mask", "interpolation", "persistence", "triangular_subcell"} <= set(found.fields)


def write_csv(path, data: xr.Dataset):
    header = ",".join(["density [veh/km/lane] time [s] x [m]", *(f"{x:g}" for x in data["x"].values)])
    rows = [
        ",".join(f"{value:.4f}" for value in [t, *row])
        for t, row in zip(data["time"].values, data["density"].values, strict=True)
    ]
    path.write_text("\n".join([header, *rows]))


CONFIG = """
train = "monday"
diagrams = ["triangular"]
[data]
kind = "files"
lanes = 2.0
files = { monday = "monday.csv", tuesday = "tuesday.csv" }
[mask]
tuesday = "5-6"
[calibration]
samples = 32
rounds = 2
"""


@pytest.fixture
def users_folder(tmp_path):
    for seed, name in enumerate(("monday", "tuesday")):
        write_csv(tmp_path / f"{name}.csv", made_day(seed))
    (tmp_path / "mine.toml").write_text(CONFIG)
    return tmp_path


def test_command_on_a_users_csv(users_folder, capsys):
    out = users_folder / "run"
    command = ["fv", "traffic", str(users_folder / "mine.toml"), "--out", str(out), "--schemes", "godunov"]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "calibrated on monday" in printed and "triangular" in printed and str(out) in printed
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["train"] == "monday" and metrics["missing"] == {}
    assert set(metrics["models"]) == {"triangular", "interpolation", "persistence"}
    assert set(metrics["models"]["triangular"]["days"]["tuesday"]) >= {
        "mse",
        "l1",
        "relative",
        "jam_wave_speed",
    }
    assert metrics["measured"]["tuesday"]["masked_cells"] == [5, 6]
    with xr.open_dataset(out / "result.nc", engine="h5netcdf") as fields:
        assert fields["triangular"].attrs["units"] == "veh/km/lane" and fields["x"].attrs["units"] == "m"
        assert fields["measured"].dims == ("day", "time", "x")
    assert (out / "figures/space_time_tuesday.png").stat().st_size > 10_000
    page = (out / "report.html").read_text()
    assert "monday" in page and "veh/km/lane" in page and "sciml fv traffic" in page
    assert main(command) == 2 and "earlier run" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--train", "mondy"], "did you mean 'monday'"),
        (["--train", ""], "train is missing"),
        (["--test", "monday"], "no day is left"),
        (["--test", "sunday"], "unknown day 'sunday'"),
        (["--diagrams", "triangle"], "did you mean 'triangular'"),
        (["--schemes", "godunof"], "did you mean 'godunov'"),
        (["--cfl", "1.5"], "cfl is 1.5"),
        (["--data.units.speed", "km/h"], "units.speed"),
        (["--trian", "monday"], "train"),
    ],
)
def test_command_errors_are_one_line(users_folder, capsys, arguments, message):
    assert (
        main(
            ["fv", "traffic", str(users_folder / "mine.toml"), "--out", str(users_folder / "run"), *arguments]
        )
        == 2
    )
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_missing_day_is_reported_and_the_others_run(users_folder, capsys):
    text = CONFIG.replace('tuesday = "tuesday.csv" }', 'tuesday = "tuesday.csv", friday = "friday.csv" }')
    (users_folder / "mine.toml").write_text("figures = false\n" + text)
    out = users_folder / "run"
    assert main(["fv", "traffic", str(users_folder / "mine.toml"), "--out", str(out)]) == 0
    assert "missing: friday" in capsys.readouterr().out
    metrics = json.loads((out / "metrics.json").read_text())
    assert list(metrics["missing"]) == ["friday"] and metrics["test"] == ["tuesday"]


@pytest.mark.data
def test_triangular_godunov_on_i24(data_folder):
    """v = 22 m/s, w = 6 m/s, kⱼ = 182 veh/km/lane, 4 steps per frame: figures of an independent
    implementation.
    """
    from sciml.fv.traffic_io import read_i24

    known = {"11-22": 0.0189, "11-23": 0.0134, "11-28": 0.0215, "11-30": 0.0201}
    for day, mse in known.items():
        measured = read_i24(data_folder / f"traffic/i24/{day}-2022_post_TX.pt")
        found = simulate(measured, Triangular(79.2, 21.6, 182.0), steps_per_frame=4)
        assert scores(jnp.asarray(found.values), as_day(measured))["mse"] == pytest.approx(mse, abs=6e-5)


SMALL = NeuralModel(
    "nfv-2x1",
    stencil=2,
    levels=1,
    width=8,
    depth=2,
    steps_per_frame=4,
    stages=(DayStage(5, 100, 5e-3, 8), DayStage(20, 50, 2e-3, 8)),
)


@pytest.mark.parametrize("shape", [(2, 1, 4), (6, 3, 1)], ids=str)
def test_training_lowers_the_error_on_the_part_that_it_does_not_see(shape):
    stencil, levels, steps = shape
    model = dataclasses.replace(SMALL, stencil=stencil, levels=levels, steps_per_frame=steps)
    day = as_day(made_day())
    flux, numbers = train_on_day(model, day, TRIANGLE)
    first, _ = train_on_day(dataclasses.replace(model, stages=(DayStage(5, 1, 1e-9, 1),)), day, TRIANGLE)
    errors = []
    for candidate in (flux, first):
        part = _part(day, 119, 30)
        found, code = simulate_day(TRIANGLE, part, model.entry(candidate), steps)
        assert int(code) == 0
        errors.append(float(jnp.mean(residual(found, part) ** 2)))
    assert errors[0] < 0.7 * errors[1]
    assert numbers["parameters"] == flux.parameters and np.isfinite(numbers["validation_mse"])


def test_imitation_follows_the_diagram_on_thinner_days():
    model = dataclasses.replace(
        SMALL, imitation=(DayStage(5, 100, 1e-2, 8),), stages=(DayStage(5, 1, 1e-9, 4),), scales=(0.5, 1.0)
    )
    day = as_day(made_day())
    objective = DayObjective(model, day, TRIANGLE)
    assert objective.densities.shape == (3, *day.density.shape)
    np.testing.assert_array_equal(objective.densities[0], day.density)
    edges = objective.densities[1][:, jnp.array([0, -1])]
    np.testing.assert_allclose(edges, 0.5 * day.density[:, jnp.array([0, -1])], rtol=1e-6)
    assert set(objective.batch(0)[0]) <= {1, 2}
    assert sorted(objective.batch(100)[0] > 0) == [False, False, True, True]
    thin, errors = eqx.tree_at(lambda d: d.density, day, objective.densities[1]), []
    for trained in (model, dataclasses.replace(model, imitation=())):
        flux, _ = train_on_day(trained, day, TRIANGLE)
        found, _ = simulate_day(TRIANGLE, thin, model.entry(flux), model.steps_per_frame)
        errors.append(float(jnp.mean(residual(found, thin) ** 2)))
    assert errors[0] < 0.01 * errors[1]


def test_parts_of_a_day_are_its_frames():
    day = as_day(made_day())
    part = _part(day, 30, 12)
    np.testing.assert_array_equal(part.density, day.density[30:43])
    assert not part.scored[0].any() and part.scored[1:, 1:-1].all()
    assert part.times.shape == (13,)


def test_the_study_sets_it_beside_the_calibrated_models():
    lines = []
    found = study(
        ("made", made_day()),
        {"other": made_day(seed=1, name="other")},
        ["triangular"],
        samples=32,
        rounds=3,
        trainer=train_on_day,
        neural=(dataclasses.replace(SMALL, stages=(DayStage(5, 60, 5e-3, 8),)),),
        log=lines.append,
    )
    models = found.metrics["models"]
    assert set(models) == {"triangular", "nfv-2x1", "interpolation", "persistence"}
    assert models["nfv-2x1"]["training"]["steps_per_frame"] == 4
    assert np.isfinite(models["nfv-2x1"]["days"]["other"]["mse"])
    assert "experienced_travel_time" in models["nfv-2x1"]["days"]["other"]
    assert "nfv-2x1" in found.fields and lines and all(line["model"] == "nfv-2x1" for line in lines)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"stages": ()}, "stages is empty"),
        ({"validation": 0.0}, "validation is 0"),
        ({"steps_per_frame": 0}, "at least 1"),
        ({"share": 1.0}, "share is 1"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **options)


def test_a_day_too_short_is_named():
    model = dataclasses.replace(SMALL, stages=(DayStage(500, 1, 1e-3, 1),))
    with pytest.raises(ValueError, match="500 frames"):
        train_on_day(model, as_day(made_day()), TRIANGLE)
