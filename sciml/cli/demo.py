"""`sciml demo`: every part of the package at work in minutes, on one page, without a download."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sciml.cli.arguments import RunOptions, open_run, parse_arguments
from sciml.config import unknown_name

if TYPE_CHECKING:
    from sciml.report import Report
    from sciml.train.run import Run


@dataclasses.dataclass(frozen=True)
class DemoConfig:
    """Which parts are shown."""

    only: tuple[str, ...] = dataclasses.field(default=(), metadata={"doc": "parts by name; default all"})

    def __post_init__(self):
        for name in self.only:
            if name not in PARTS:
                raise ValueError(f"only: {unknown_name('part', name, PARTS)}")


def demo(argv: list[str]) -> int:
    """Runs the parts one after the other and writes the report."""
    config, options, _ = parse_arguments(
        argv,
        DemoConfig,
        RunOptions,
        command="demo",
        about="A tour in minutes: figures and tables on one page.",
    )
    if options.out is None:  # a demo may be repeated without a thought for its folder
        options = dataclasses.replace(options, overwrite=True)
    from sciml.cli.fv import use_precision
    from sciml.report import Report

    use_precision("float64")
    begun = time.perf_counter()
    with open_run(options, config, "demo") as run:
        page = Report(
            "sciml", "networks with the structure of the problem built in, beside strong classical methods"
        )
        metrics = {}
        for name in config.only or tuple(PARTS):
            print(f"{name}: ", end="", flush=True)
            started = time.perf_counter()
            metrics[name] = PARTS[name](page, run)
            print(f"{time.perf_counter() - started:.0f} s", flush=True)
        run.write_metrics(metrics)
        page.heading("Where to go on")
        for command in (
            "sciml fv solve experiments/fv/buckley_leverett.toml --out runs/buckley-leverett",
            "sciml fv evaluate experiments/fv/piecewise_constant.toml --states 50 --out runs/fifty-states",
            "sciml fv traffic experiments/fv/i24.toml --train 11-29 --test 11-23,11-30 --out runs/i24",
            "sciml ct evaluate experiments/ct/hollow_cube.toml --turns 0,23 --out runs/hollow-cube",
        ):
            page.command(command)
        page.write(run.report)
    print(f"{time.perf_counter() - begun:.0f} s, report: {run.report.resolve()}")
    return 0


def _conservation_laws(page: Report, run: Run) -> dict:
    from sciml import plot
    from sciml.cli.fv import add_solution, scheme_rows, solve_problem
    from sciml.fv.catalogue import SCHEMES
    from sciml.fv.evaluate import Protocol, evaluate_law, exact_example
    from sciml.fv.problem import (
        LAW_CONFIGS,
        DemandSupplyConfig,
        GridConfig,
        OnRampConfig,
        PiecewiseData,
        Problem,
        UnitsConfig,
    )

    protocol = Protocol(laws=("greenshields",), states=8, cells=100, dt=2e-4, steps=500)
    results = evaluate_law("greenshields", protocol, clock=False)
    summary = {name: result.summary(results["godunov"]) for name, result in results.items()}
    order = sorted(summary, key=lambda name: summary[name]["mse"])
    page.heading("Traffic on a road: every classical scheme beside the exact solution")
    page.text(
        "Eight random states of a road with Greenshields' diagram q = v k (1 - k/kⱼ), 100 cells. All schemes "
        "take the same steps; the truth is the exact cell average from the Lax-Hopf formula. Judging a "
        "scheme against Godunov alone says little: textbook schemes are ten times better."
    )
    exact = exact_example("greenshields", protocol)
    best = order[0]
    panels = {"exact": exact, "godunov": results["godunov"].example, best: results[best].example}
    diagram = plot.space_time_panels(
        panels,
        protocol.inner_grid.centres,
        protocol.times[:: protocol.stride],
        label="density k/kⱼ",
        difference={"godunov - exact": results["godunov"].example - exact},
    )
    chart = plot.bars(
        {name: row["mse"] for name, row in summary.items()}, label="mean square error", highlight=[best]
    )
    for key, figure, caption, alt in (
        (
            "road",
            diagram,
            "Density over place and time: jams are bright, their edges travel.",
            "Space-time diagrams of density.",
        ),
        (
            "schemes",
            chart,
            "Mean square error of all schemes on the same states.",
            "Bar chart of errors by scheme.",
        ),
    ):
        page.figure(run.figure(key, figure), caption, alt)
    page.table(
        [
            {"scheme": name, "what it is": SCHEMES[name].doc, **row}
            for name, row in scheme_rows(summary, order)
        ],
        highlight={"l1": "min", "mse": "min"},
    )
    neural = _neural_flux(page, run)
    problem = Problem(
        law=LAW_CONFIGS["triangular"](90.0, 20.0, 140.0),
        grid=GridConfig(240, 0.0, 6.0),
        boundary=DemandSupplyConfig((0.0, 1.0), (1500.0, 1500.0), (3000.0, 3000.0)),
        initial=PiecewiseData((20.0, 140.0, 5.0), (2.0, 3.0)),
        ramps=(OnRampConfig(4.0, (0.0, 1.0), (300.0, 300.0)),),
        schemes=("godunov", "muscl-van-leer", "subcell"),
        end_time=0.08,
        units=UnitsConfig("veh/km", "km", "h"),
    )
    page.heading("A queue dissolves behind a green light, and a ramp joins")
    outcome = solve_problem(problem)
    add_solution(page, outcome, run, name="queue")
    return {"greenshields": summary, "neural flux": neural, "queue": outcome.metrics}


def _neural_flux(page: Report, run: Run) -> dict:
    """A flux network trained from scratch beside Godunov, MUSCL and the released networks."""
    from sciml import plot
    from sciml.cli.fv import scheme_rows
    from sciml.cli.neural import card, flux_surfaces, train_flux
    from sciml.fv.evaluate import Protocol, evaluate_law
    from sciml.fv.neural_training import NeuralTraining, RolloutStage
    from sciml.fv.released import save_flux

    stages = (
        RolloutStage(10, 20, updates=700, learning_rate=3e-3, batch=32),
        RolloutStage(20, 30, updates=900, learning_rate=2e-3, batch=32),
        RolloutStage(50, 60, updates=250, learning_rate=1e-3, batch=16),
    )
    config = NeuralTraining(stages=stages, validation_states=0, name="trained here")
    flux, training = train_flux(config)
    weights = save_flux(run.path / "neural_flux.npz", flux, card(config, training))
    names = ("godunov", "muscl-superbee", "nfv-2x1", "unfv-2x1", str(weights))
    protocol = Protocol(("greenshields",), names, states=8, seed=1)
    results = evaluate_law("greenshields", protocol, clock=False)
    label = {str(weights): f"trained here, {training['seconds']:.0f} s"}
    summary = {label.get(name, name): found.summary(results["godunov"]) for name, found in results.items()}
    order = sorted(summary, key=lambda name: summary[name]["mse"])
    page.heading("A numerical flux learned from scratch")
    page.text(
        f"A network of {training['parameters']} numbers maps the two densities at a face to the flow"
        " through it."
        " It has just been trained on exact solutions of single jumps and is judged on eight roads with ten"
        " jumps, beside the two released networks (`nfv-2x1` trained longer, `unfv-2x1` without any"
        " solution)."
        " Learned two-cell fluxes beat Godunov's method; textbook second order beats them."
    )
    page.table(
        [{"scheme": name, **row} for name, row in scheme_rows(summary, order)],
        highlight={"l1": "min", "mse": "min"},
    )
    surface = flux_surfaces(flux, config.law.build())
    times = protocol.times[1 :: protocol.stride]
    curves = plot.profiles(
        times,
        {label.get(name, name): found.curve[:: protocol.stride] for name, found in results.items()},
        x_label="t",
        y_label="mean square error",
        title="error over time",
    )
    curves.axes[0].set_yscale("log")
    curves.axes[0].set_ylim(bottom=1e-6)  # the first steps are nearly exact
    for key, figure, caption, alt in (
        ("learned-flux", surface, "The learned flux, Godunov's and their difference.", "Maps of two fluxes."),
        ("learned-error", curves, "Mean square error over time.", "Error over time of five schemes."),
    ):
        page.figure(run.figure(key, figure), caption, alt)
    return {"training": training, "greenshields": summary}


def _crystals(page: Report, run: Run) -> dict:
    page.heading("Functions on crystals that no symmetry operation changes")
    try:
        from sciml.cli.crystal import demo_part

        figures, rows = demo_part()
    except ImportError as error:
        page.text(f"Left out: {error.name} is not installed. `pip install 'sciml[crystal]'` brings it.")
        return {"left_out": str(error)}
    for key, figure in figures.items():
        page.figure(
            run.figure(key, figure),
            f"{key.replace('-', ' ').capitalize()}.",
            f"Figure of {key.replace('-', ' ')}.",
        )
    page.table(rows)
    return {"rows": rows}


def _tomography(page: Report, run: Run) -> dict:
    from sciml.cli import ct_figures
    from sciml.ct.evaluate import Protocol, evaluate, means

    protocol = Protocol(
        phantoms=("bored-block",),
        views=(16,),
        noise=(0.01,),
        methods=("fbp", "sirt", "cgls", "tv"),
        rows=96,
        bins=144,
    )
    cases = evaluate(protocol)
    rows = means(cases)
    page.heading("A part scanned from 16 directions")
    page.text(
        "A slanted block with bores, 1 % noise; the line integrals are closed forms, so the data know nothing"
        " of the pixels. Filtered backprojection alone is a weak opponent: total variation, its weight found"
        " without the truth, is what a new method has to beat."
    )
    page.figure(
        run.figure("part", ct_figures.comparison(protocol.grid, cases[0])),
        "Truth, images on one scale, the sinogram, and profiles along the middle row.",
        "Reconstructions from 16 views beside the truth.",
    )
    page.table(
        [{"method": name, **{key: row.get(key, "") for key in rows["tv"]}} for name, row in rows.items()],
        highlight={"psnr": "max", "ssim": "max"},
    )
    return rows


PARTS: dict[str, Callable[[Report, Run], dict]] = {
    "fv": _conservation_laws,
    "crystal": _crystals,
    "ct": _tomography,
}
