"""`sciml fv solve` and `sciml fv evaluate`: one problem by several schemes, and paired comparisons."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sciml.cli.arguments import RunOptions, open_run, parse_arguments
from sciml.config import dump_toml

if TYPE_CHECKING:
    import numpy as np

    from sciml.fv.evaluate import Protocol, SchemeResult
    from sciml.fv.problem import Problem


def solve(argv: list[str]) -> int:
    """Solves one problem by every scheme that its configuration names."""
    from sciml.fv.problem import Problem

    config, options, path = parse_arguments(
        argv,
        Problem,
        RunOptions,
        command="fv solve",
        about="Solve one problem by several schemes, beside the exact solution.",
    )
    use_precision(config.precision)
    config.check()  # before the run folder exists
    with open_run(options, config, f"fv-solve-{path.stem}" if path else "fv-solve") as run:
        outcome = solve_problem(config)
        outcome.dataset.attrs["config"] = dump_toml(config)
        write_netcdf(outcome.dataset, run.path / "result.nc")
        run.write_metrics(outcome.metrics)
        from sciml.report import Report

        page = Report("Conservation law", _title(config))
        page.command(_command("fv solve", path, argv))
        add_solution(page, outcome, run)
        page.write(run.report)
    print(_text_table([{"scheme": name, **row} for name, row in outcome.metrics["schemes"].items()]))
    print(f"reference: {outcome.metrics['reference']}")
    print(f"report: {run.report}")
    return 0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What `solve_problem` found: fields as a dataset and numbers for `metrics.json`."""

    problem: Problem
    dataset: Any
    metrics: dict[str, Any]


def solve_problem(problem: Problem) -> Outcome:
    """Runs every scheme and compares with the reference."""
    import numpy as np

    from sciml.fv.fields import to_dataset
    from sciml.fv.metrics import l1, linf, mean_square, relative, total_variation

    grid = problem.grid.build()
    fields, rows = {}, {}
    reference = problem.reference()
    for name in problem.schemes:
        begun = time.perf_counter()
        solution = problem.run(name)
        states = np.asarray(solution.states, np.float64)
        row: dict[str, Any] = {}
        if reference is not None:
            u, v = states[:, -1], reference[1][:, -1]
            row = {"l1": float(l1(u, v).mean()), "mse": float(mean_square(u, v).mean())}
            row |= {"relative": float(relative(u, v).mean()), "linf": float(linf(u, v).max())}
        growth = total_variation(states) - total_variation(states[:, :1])
        row |= {
            "mass_defect": float(np.max(solution.mass_defect)),
            "variation_growth": float(growth.max()),
            "cfl": float(np.max(solution.cfl)),
            "steps": int(np.max(solution.steps)),
            "rejected": int(np.max(solution.rejected)),
            "failed": int((np.asarray(solution.result) != 0).sum()),
            "seconds_with_compilation": round(time.perf_counter() - begun, 3),
        }
        fields[name], rows[name] = states, row
    metrics = {"reference": reference[0] if reference else "none", "schemes": rows}
    if reference is not None:
        fields["reference"] = reference[1]
    units = dataclasses.asdict(problem.units)
    return Outcome(problem, to_dataset(fields, grid, problem.times, units=units), metrics)


def add_solution(page: Any, outcome: Outcome, run: Any = None, *, name: str = "solution") -> None:
    """Adds the table and figures of a solved problem to a report, and to a run folder if there is one."""
    from sciml import plot

    problem, data = outcome.problem, outcome.dataset
    x, t = data["x"].values, data["time"].values
    fields = {key: data[key].values[0] for key in problem.schemes}
    exact = data["reference"].values[0] if "reference" in data else None
    known = outcome.metrics["reference"]
    label = _with_unit("u", problem.units.state)
    axes: dict[str, Any] = {
        "x_label": _with_unit("x", problem.units.length),
        "t_label": _with_unit("t", problem.units.time),
    }
    rows = [{"scheme": key, **row} for key, row in outcome.metrics["schemes"].items()]
    best = {"l1": "min", "mse": "min"} if exact is not None else {}
    page.table(rows, caption=f"At the final time; reference: {known}.", highlight=best)
    lines = plot.profiles(
        x,
        {key: field[-1] for key, field in fields.items()},
        reference=(known, exact[-1]) if exact is not None else None,
        x_label=axes["x_label"],
        y_label=label,
        title=f"t = {t[-1]:g}",
    )
    shown = dict(list(fields.items())[:3])
    panels = {known: exact, **shown} if exact is not None else shown
    differences = (
        {f"{key} - reference": field - exact for key, field in list(shown.items())[-1:]}
        if exact is not None
        else {}
    )
    diagram = plot.space_time_panels(panels, x, t, label=label, difference=differences, **axes)
    for key, figure, caption, alt in (
        (
            "profiles",
            lines,
            "Cell averages at the final time.",
            "Profiles of all schemes over x beside the reference.",
        ),
        (
            "space-time",
            diagram,
            "Space-time diagrams, time upwards.",
            "Space-time diagrams of the reference and the schemes.",
        ),
    ):
        page.figure(figure, caption, alt)
        if run is not None:
            run.figure(f"{name}-{key}", figure)


def evaluate(argv: list[str]) -> int:
    """Compares schemes on random states with exact cell averages."""
    from sciml.fv.evaluate import Protocol

    config, options, path = parse_arguments(
        argv,
        Protocol,
        RunOptions,
        command="fv evaluate",
        about="Compare schemes on the same random states, against exact cell averages.",
    )
    use_precision(config.precision)
    config.check()  # before the run folder exists
    name = f"fv-evaluate-{path.stem}" if path else "fv-evaluate"
    with open_run(options, config, name) as run:
        results = {}
        for law in config.laws:
            results[law] = _evaluate_law(law, config)
            summary = _summary(results[law], config)
            run.log({"law": law, "schemes": summary})
            print(
                _text_table(_rows(summary), title=f"{law}, {config.states} states, seed {config.seed}"),
                flush=True,
            )
        metrics = {law: _summary(found, config) for law, found in results.items()}
        run.write_metrics(metrics)
        write_netcdf(_curves(config, results), run.path / "result.nc")
        page = _evaluation_report(config, metrics, results, run)
        page.command(_command("fv evaluate", path, argv))
        page.write(run.report)
    print(f"report: {run.report}")
    return 0


def _summary(found: dict[str, SchemeResult], config: Protocol) -> dict[str, dict[str, float]]:
    return {key: found[key].summary(found["godunov"]) for key in config.schemes}


def _evaluate_law(law: str, config: Protocol) -> dict[str, SchemeResult]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from sciml.fv.evaluate import evaluate_law

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(law, total=config.states * len({*config.schemes, "godunov"}))
        finished: dict[str, int] = {}

        def report(scheme: str, done: int, total: int) -> None:
            finished[scheme] = done
            bar.update(task, completed=sum(finished.values()), description=f"{law}: {scheme}")

        return evaluate_law(law, config, progress=report)


_COLUMNS = (
    "l1",
    "mse",
    "relative",
    "mass_defect",
    "win_rate_vs_godunov",
    "cell_updates_per_s",
    "failed_states",
)


def _rows(summary: dict[str, dict[str, float]]) -> list[dict[str, Any]]:
    return [{"scheme": key, **{name: row[name] for name in _COLUMNS}} for key, row in summary.items()]


def scheme_rows(summary: dict[str, dict[str, float]], order: list[str]) -> list[tuple[str, dict[str, float]]]:
    """Name and errors of every scheme in a given order, for a table."""
    columns = ("l1", "mse", "relative", "mass_defect")
    return [(name, {column: summary[name][column] for column in columns}) for name in order]


def _curves(config: Protocol, results: dict[str, dict[str, SchemeResult]]) -> Any:
    """Mean square error over time and one example per law and scheme, as a dataset."""
    import numpy as np
    import xarray as xr

    from sciml.fv.evaluate import exact_example

    laws, schemes = list(results), list(config.schemes)
    curve = np.array([[results[law][s].curve for s in schemes] for law in laws])
    error = np.array([[results[law][s].mse for s in schemes] for law in laws])
    absolute = np.array([[results[law][s].l1 for s in schemes] for law in laws])
    example = np.array([[results[law][s].example for s in schemes] for law in laws], np.float32)
    exact = np.array([exact_example(law, config) for law in laws], np.float32)
    return xr.Dataset(
        {
            "mse_over_time": (("law", "scheme", "step"), curve, {"units": "1"}),
            "mse": (("law", "scheme", "sample"), error, {"units": "1"}),
            "l1": (("law", "scheme", "sample"), absolute, {"units": "1"}),
            "u": (("law", "scheme", "time", "x"), example, {"units": "1", "long_name": "first state"}),
            "u_exact": (("law", "time", "x"), exact, {"units": "1", "long_name": "first state, exact"}),
        },
        {
            "law": laws,
            "scheme": schemes,
            "step": np.arange(1, config.steps + 1),
            "time": ("time", config.times[:: config.stride], {"units": "1"}),
            "x": ("x", config.inner_grid.centres, {"units": "1"}),
        },
        {"config": dump_toml(config)},
    )


def _evaluation_report(config: Protocol, metrics: Any, results: Any, run: Any) -> Any:

    from sciml import plot
    from sciml.fv.evaluate import exact_example
    from sciml.report import Report

    page = Report(
        "Schemes on random states",
        f"{config.states} states of {config.pieces} pieces, seed {config.seed}, {config.cells} cells, "
        f"{config.steps} steps of {config.dt:g}, exact cell averages, {config.precision}",
    )
    page.text(
        "Every scheme starts from the same averages, the same prescribed edge cells and the same steps. "
        "`mse` is the mean square error and `l1` the mean absolute error over all scored cells and times; "
        "`mass_defect` is the largest unexplained relative change of the total."
    )
    for law, summary in metrics.items():
        page.heading(law)
        page.table(_rows(summary), highlight={"l1": "min", "mse": "min", "relative": "min"})
        best = min(summary, key=lambda key: summary[key]["mse"])
        chart = plot.bars(
            {key: row["mse"] for key, row in summary.items()},
            label="mean square error",
            highlight=[best],
            title=law,
        )
        found, shown = results[law], sorted(summary, key=lambda key: summary[key]["mse"])
        shown = list(
            dict.fromkeys([*shown[:4], *(key for key in ("muscl-superbee", "godunov") if key in summary)])
        )
        times = config.times[1:]
        over_time = plot.profiles(
            times[:: max(1, config.steps // 200)],
            {key: found[key].curve[:: max(1, config.steps // 200)] for key in shown},
            x_label="t",
            y_label="mean square error",
            title=f"{law}: error over time",
        )
        over_time.axes[0].set_yscale("log")
        exact = exact_example(law, config)
        panels: dict[str, np.ndarray] = {"exact": exact}
        for key in dict.fromkeys([key for key in ("godunov",) if key in found] + [best]):
            panels[key] = found[key].example
        difference = {f"{best} - exact": panels[best] - exact}
        diagram = plot.space_time_panels(
            panels,
            config.inner_grid.centres,
            config.times[:: config.stride],
            label="u",
            difference=difference,
        )
        costs = {key: (1e9 / row["cell_updates_per_s"], row["l1"]) for key, row in summary.items()}
        front = plot.pareto(costs, cost_label="ns per cell and step", error_label="L1 error", title=law)
        for key, figure, caption, alt in (
            ("errors", chart, "Mean square error, mean over states.", f"Bar chart of the errors on {law}."),
            ("time", over_time, "Mean square error over time.", f"Error over time on {law}."),
            (
                "example",
                diagram,
                "First state: exact, Godunov and the best scheme.",
                f"Space-time diagrams on {law}.",
            ),
            ("cost", front, "Cost against error at this resolution.", f"Cost against error on {law}."),
        ):
            page.figure(run.figure(f"{law}-{key}", figure), caption, alt)
    return page


def use_precision(precision: str) -> None:
    """Switches JAX to float64 when a configuration asks for it; only commands do this."""
    if precision == "float64":
        import jax

        jax.config.update("jax_enable_x64", True)


def write_netcdf(data: Any, path: Path) -> None:
    """Writes a dataset as NetCDF, whole or not at all."""
    from sciml.files import replacing

    with replacing(path) as temporary:
        data.to_netcdf(temporary, engine="h5netcdf")


def _title(problem: Problem) -> str:
    return f"{problem.law.kind}, {problem.grid.cells} cells, to t = {problem.end_time:g}"


def _with_unit(symbol: str, unit: str) -> str:
    return symbol if unit in ("", "1") else f"{symbol} [{unit}]"


def _command(verb: str, path: Path | None, argv: list[str]) -> str:
    import shlex

    return f"sciml {verb} {shlex.join(argv)}".strip()


def _text_table(rows: list[dict[str, Any]], title: str = "") -> str:
    """A table for the terminal."""
    from sciml.report import number

    heads = list(rows[0])
    cells = [
        [value if isinstance(value := row[head], str) else number(value) for head in heads] for row in rows
    ]
    widths = [max(len(head), *(len(row[i]) for row in cells)) for i, head in enumerate(heads)]
    lines = [
        "  ".join(
            head.ljust(w) if i == 0 else head.rjust(w)
            for i, (head, w) in enumerate(zip(heads, widths, strict=True))
        )
    ]
    for row in cells:
        lines.append(
            "  ".join(
                v.ljust(w) if i == 0 else v.rjust(w) for i, (v, w) in enumerate(zip(row, widths, strict=True))
            )
        )
    return "\n".join(([title] if title else []) + lines)
