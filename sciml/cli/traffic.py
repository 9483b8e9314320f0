"""`sciml fv traffic`: measured days of a highway, simulated by every classical model and compared in one
table.
"""

from __future__ import annotations

import shlex
import sys
import time
from pathlib import Path
from typing import Any

import xarray as xr

from sciml.cli.arguments import open_run, parse_arguments
from sciml.cli.neural import train_on_day
from sciml.config import ConfigError, unknown_name
from sciml.fv.traffic_config import FileData, TrafficConfig
from sciml.fv.traffic_io import read_density, write_netcdf
from sciml.fv.traffic_study import MEASURES, Study, study

_ABOUT = (
    "Calibrates fundamental diagrams on one day, simulates the others open loop, compares with baselines."
)


def traffic(argv: list[str]) -> int:
    """Runs the study and writes metrics, fields, figures and the report into a run folder."""
    config, options, path = parse_arguments(argv, TrafficConfig, command="fv traffic", about=_ABOUT)
    started = time.perf_counter()
    folder = path.parent if path is not None else Path()
    train, tests, missing = _fields(config, folder)
    run = open_run(options, config, f"fv-traffic-{path.stem if path is not None else config.data.kind}")
    with run:
        settings = config.calibration
        total = 2 * (len(config.diagrams) * len(config.schemes) + len(config.neural)) + 1
        with _Progress(total) as progress:
            result = study(
                (config.train, train),
                tests,
                config.diagrams,
                config.schemes,
                bounds=settings.bounds,
                samples=settings.samples,
                rounds=settings.rounds,
                cfl=config.cfl,
                seed=settings.seed,
                source=config.source(train.attrs.get("lanes")),
                neural=config.neural,
                trainer=train_on_day,
                log=run.log,
                progress=progress,
            )
        metrics = {**result.metrics, "missing": missing}
        run.write_metrics(metrics)
        write_netcdf(result.fields, run.path / "result.nc")
        drawn = _figures(run, result) if config.figures else {}
        command = shlex.join(["sciml", "fv", "traffic", *argv])
        _report(result, metrics, drawn, command).write(run.report)
    _print(metrics, run.path, time.perf_counter() - started)
    return 0


def _fields(config: TrafficConfig, folder: Path) -> tuple[xr.Dataset, dict[str, xr.Dataset], dict[str, str]]:
    """Training field, test fields, and the test days that are not here with the reason."""
    if not config.train:
        raise ConfigError(
            f"train is missing: name the day of calibration; known: {', '.join(config.data.days())}"
        )
    days = config.test_days()
    if not days:
        raise ConfigError("test: no day is left beside the training day; name other days")
    for key, names in (("train", (config.train,)), ("test", days), ("mask", tuple(config.mask))):
        for day in names:
            if day not in config.data.days():
                raise ConfigError(f"{key}: {unknown_name('day', day, config.data.days())}")
    tests: dict[str, xr.Dataset] = {}
    missing: dict[str, str] = {}
    for day in days:
        try:
            tests[day] = _field(config, day, folder)
        except FileNotFoundError as error:
            missing[day] = str(error)
    train = _field(config, config.train, folder)
    if not tests:
        raise ConfigError(f"test: no day is here: {next(iter(missing.values()))}")
    return train, tests, missing


def _field(config: TrafficConfig, day: str, folder: Path) -> xr.Dataset:
    data = config.data
    name, options = data.locate(day)
    if isinstance(data, FileData):
        places = [Path(name), folder / name]
    elif data.folder is not None:
        file = Path(name).name
        places = [data.folder / file, folder / data.folder / file]
    else:
        from sciml.data import fetch

        places = [fetch(name, progress=sys.stderr.isatty())]
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        raise FileNotFoundError(
            f"{places[0]}: no such file for day {day}; put it there or correct the configuration"
        )
    return read_density(found, **options, **config.reader_options(day))


class _Progress:
    """A bar on a terminal, nothing elsewhere."""

    def __init__(self, total: int):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = (BarColumn(20), TimeElapsedColumn(), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=console, disable=not console.is_terminal, transient=True)
        self._task = self._bar.add_task("", total=total + 1, completed=-1)

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._bar.stop()

    def __call__(self, message: str) -> None:
        self._bar.update(self._task, advance=1, description=message)


def _best(result: Study) -> str:
    """The calibrated model with the smallest error on the training day."""
    models = result.metrics["models"]
    return min(result.calibrations, key=lambda name: models[name]["train"]["mse"])


def _shown(result: Study) -> list[str]:
    """The models in the figures: the best calibrated one, and the best neural flux if there is one; both by
    the training day.
    """
    models = result.metrics["models"]
    neural = [name for name in models if "training" in models[name]]
    order = sorted(neural, key=lambda name: models[name]["training"]["validation_mse"])
    return [_best(result), *order[:1]]


def _figures(run: Any, result: Study) -> dict[str, bytes]:
    """One space-time figure per test day and one of the travel times; title to PNG."""
    from sciml.plot import figure, png, space_time_panels, style

    shown = _shown(result)
    drawn: dict[str, bytes] = {}
    label = "density [veh/km/lane]"
    for day in result.metrics["test"]:
        fields = result.fields.sel(day=day)
        keep = fields["measured"].notnull()
        fields = fields.isel(time=keep.any("x").values, x=keep.any("time").values)
        measured = fields["measured"].where(fields["mask"] == 0)
        simulated = {name: fields[name.replace("/", "_")] for name in shown}
        top = float(measured.max())
        made = space_time_panels(
            {f"{day} measured": measured, **simulated},
            fields["x"] / 1000,
            fields["time"] / 3600,
            label=label,
            difference={f"{shown[-1]} - measured": (simulated[shown[-1]] - measured).values},
            x_label="x [km], traffic →",
            t_label="time [h]",
            limits=(0.0, top),
        )
        drawn[f"space_time_{day}"] = png(made)
    days = result.metrics["test"]
    with style():
        made, axes = figure(
            1, len(days), width=min(2.2 * len(days) + 1.0, 13.0), height=2.8, sharey=True, squeeze=False
        )
        for ax, day in zip(axes[0], days, strict=True):
            series = result.fields["travel_time_experienced"].sel(day=day)
            for name in ("measured", *shown):
                colour = {"color": "black", "alpha": 0.6} if name == "measured" else {}
                ax.plot(series["time"] / 3600, series.sel(model=name.replace("/", "_")), label=name, **colour)
            ax.set(title=day, xlabel="departure [h]", ylim=(0, None))
        axes[0, 0].set_ylabel("experienced travel time [min]")
        axes[0, 0].legend()
        drawn["travel_time"] = png(made)
    for name, content in drawn.items():
        run.figure(name, content)
    return drawn


def _rows(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per model, the best on the test days first."""
    models = metrics["models"]
    order = sorted(models, key=lambda name: models[name]["mean"]["mse"])
    return [
        {
            "model": name,
            **{measure: models[name]["mean"][measure] for measure in MEASURES},
            f"{metrics['train']} (train)": models[name]["train"]["mse"],
            **{day: models[name]["days"][day]["mse"] for day in metrics["test"]},
        }
        for name in order
    ]


def _parameter_rows(metrics: dict[str, Any]) -> list[dict[str, str]]:
    rows = []
    for name, model in metrics["models"].items():
        for key, value in {**model.get("parameters", {}), **model.get("derived", {})}.items():
            note = "at the bound" if value["at_bound"] else "" if key in model["parameters"] else "follows"
            shown = f"{value['value']:.4g} ± {value['standard_error']:.2g}"
            rows.append({"model": name, "parameter": key, "value": shown, "units": value["units"], "": note})
    return rows


def _travel_rows(metrics: dict[str, Any], model: str) -> list[dict[str, Any]]:
    rows = []
    for day in metrics["test"]:
        for name, seen in (
            ("measured", metrics["measured"][day]),
            (model, metrics["models"][model]["days"][day]),
        ):
            wave = seen["jam_wave_speed"]
            rows.append(
                {
                    "day": day,
                    "density": name,
                    "travel time [min]": seen["experienced_travel_time"]["value"],
                    "instantaneous [min]": seen["instantaneous_travel_time"]["value"],
                    "queue [km]": seen["queue_length"]["value"],
                    "longest queue [km]": seen["queue_length"]["largest"],
                    "flow [veh/h/lane]": seen["flow"]["value"],
                    "jam wave [m/s]": wave["value"] / 3.6,
                    "± [m/s]": wave["standard_error"] / 3.6,
                    **(
                        {"speed rmse [km/h]": seen.get("speed_rmse", {}).get("value")}
                        if "speed_rmse" in _any(metrics)
                        else {}
                    ),
                }
            )
    return rows


def _any(metrics: dict[str, Any]) -> dict[str, Any]:
    model = next(model for model in metrics["models"].values() if "parameters" in model)
    return next(iter(model["days"].values()))


def _report(result: Study, metrics: dict[str, Any], drawn: dict[str, bytes], command: str):
    from sciml.report import Report

    best = _best(result)
    source = result.fields.attrs
    masks = {day: seen["masked_cells"] for day, seen in metrics["measured"].items() if seen["masked_cells"]}
    report = Report("Highway traffic: measured and simulated", f"calibrated on {metrics['train']} only")
    report.text(
        "Every model gets the first frame and the measured density of the two edge cells, interpolated in"
        " time, and"
        " simulates the whole day from there. Scores are taken over the cells in between, without the"
        " first frame and"
        f" without masked cells, on density divided by {metrics['normalisation']['value']:g} veh/km/lane."
        " `interpolation` is the straight line between the two edges, `persistence` the first frame for ever."
    )
    if source.get("source"):
        report.text(
            f"Data: {source['source']}. {source.get('licence', '')}. Cite: {source.get('citation', '')}."
        )
    for day, cells in masks.items():
        report.text(f"Masked on {day}: cells {cells[0]} to {cells[-1]} ({len(cells)}).")
    for day, reason in metrics["missing"].items():
        report.text(f"**Missing: {day}.** {reason}")
    rows = _rows(metrics)
    report.table(
        rows,
        caption=f"Mean over the test days of the mean square (mse), absolute (l1) and relative error;"
        f" then mse by day. Training day: {metrics['train']}.",
        highlight=dict.fromkeys(("mse", "l1", "relative", *metrics["test"]), "min"),
    )
    for day in metrics["test"]:
        if name := drawn.get(f"space_time_{day}"):
            mse = metrics["models"][best]["days"][day]["mse"]
            report.figure(
                name,
                f"{day}: measured density, simulated by {' and '.join(f'`{m}`' for m in _shown(result))},"
                f" and the difference of the last one; mse of `{best}` {mse:.4f}."
                " Time runs upwards,"
                " traffic to the right, jams to the left; white cells are masked.",
                f"Three space-time diagrams of density on {day}",
            )
    training = [
        {"model": name, **model["training"]}
        for name, model in metrics["models"].items()
        if "training" in model
    ]
    if training:
        report.table(
            training,
            caption="Neural fluxes: trained on simulations within the first part of the training day; the"
            " weights with the smallest error on its last part are used.",
        )
    report.heading("Parameters")
    report.table(_parameter_rows(metrics), caption="Calibrated on the training day, with standard errors.")
    report.text(
        "Standard errors use an effective number of independent residuals (those of neighbouring cells"
        " and frames are"
        " correlated); they say how well this day determines the parameters, not how they differ from day"
        " to day."
    )
    report.heading("Travel times, queues and waves")
    threshold = metrics["congestion_threshold"]["value"]
    report.table(
        _travel_rows(metrics, best),
        caption=f"Means over the day; speeds are q(k)/k of the diagram, or measured where the data have them;"
        f" queue: road above {threshold:.3g} veh/km/lane.",
    )
    if "travel_time" in drawn:
        report.figure(
            drawn["travel_time"],
            "Travel time of a vehicle by the time at which it enters the road, until the last one that"
            " leaves it within"
            " the record.",
            "Travel time against departure time for every test day",
        )
    return report.heading("Command").command(command)


def _print(metrics: dict[str, Any], folder: Path, seconds: float) -> None:
    from rich.console import Console
    from rich.table import Table

    from sciml.report import number

    console = Console(width=None if sys.stdout.isatty() else 160)
    rows = _rows(metrics)
    table = Table(
        title=f"calibrated on {metrics['train']}; mean over {len(metrics['test'])} test days, then mse by day"
    )
    for key in rows[0]:
        table.add_column(key, justify="left" if key == "model" else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(f"{v:.4f}" if isinstance(v, float) and v < 100 else number(v) for v in row.values()))
    console.print(table)
    for row in _parameter_rows(metrics):
        console.print(" ".join(filter(None, row.values())), highlight=False)
    for day, reason in metrics["missing"].items():
        console.print(f"missing: {day} ({reason})", highlight=False, soft_wrap=True)
    console.print(f"{folder / 'report.html'}  ({seconds:.0f} s)", highlight=False, soft_wrap=True)
