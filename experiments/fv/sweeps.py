"""How the error depends on the grid and on the CFL number, at the same final time and on the same states.

    python experiments/fv/sweeps.py experiments/fv/sweeps.toml --out runs/sweeps

Fluxes learned at one Δt/Δx are taken to the others (transferred), beside ones trained there, whose weights
are named like any other scheme: `--schemes godunov,nfv-2x1,runs/nfv-large-steps/weights.npz`.
"""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

from sciml import plot
from sciml.cli.arguments import open_run, parse_arguments
from sciml.cli.fv import use_precision
from sciml.fv.evaluate import Protocol, evaluate_law
from sciml.report import Report


@dataclasses.dataclass(frozen=True)
class Sweeps:
    """What is varied; all else is the evaluation protocol."""

    law: str = "greenshields"
    schemes: tuple[str, ...] = ("godunov", "muscl-superbee", "subcell", "nfv-2x1", "unfv-2x1", "nfv-4x5")
    cells: tuple[int, ...] = dataclasses.field(
        default=(50, 100, 200, 400), metadata={"doc": "grids, at Δt/Δx = 0.1"}
    )
    dt_dx: tuple[float, ...] = dataclasses.field(
        default=(0.1, 0.2, 0.5, 0.9), metadata={"doc": "Δt/Δx, at 200 cells"}
    )
    seed: int = 42
    states: int = 100
    precision: str = "float64"
    length: float = 0.2
    end: float = dataclasses.field(default=0.1, metadata={"doc": "final time"})

    def protocol(self, cells: int, dt_dx: float) -> Protocol:
        """The evaluation protocol on another grid or with other steps."""
        dt = dt_dx * self.length / cells
        return Protocol(
            laws=(self.law,),
            schemes=self.schemes,
            seed=self.seed,
            states=self.states,
            cells=cells,
            length=self.length,
            dt=dt,
            steps=round(self.end / dt),
            precision=self.precision,
        )


def main(argv: list[str]) -> int:
    config, options, path = parse_arguments(argv, Sweeps, command="fv sweeps")
    use_precision(config.precision)
    sweeps = {
        "cells": {cells: config.protocol(cells, 0.1) for cells in config.cells},
        "dt_dx": {ratio: config.protocol(200, ratio) for ratio in config.dt_dx},
    }
    for protocols in sweeps.values():
        for protocol in protocols.values():
            protocol.check()
    with open_run(options, config, f"fv-{path.stem if path else 'sweeps'}") as run:
        page = Report("Error over grid and step", f"{config.law}, {config.states} states, {config.precision}")
        metrics: dict[str, Any] = {}
        for name, protocols in sweeps.items():
            found = {value: _errors(protocol) for value, protocol in protocols.items()}
            metrics[name] = found
            rows = [{"scheme": s, **{f"{v:g}": found[v][s] for v in found}} for s in config.schemes]
            print(f"mean square error over {name}")
            for row in rows:
                print("  ".join(v if isinstance(v, str) else f"{v:.2e}" for v in row.values()), flush=True)
            page.heading(name)
            page.table(rows, caption="Mean square error, mean over states.")
            lines = {s: [found[v][s] for v in found] for s in config.schemes}
            figure = plot.profiles(
                list(found), lines, x_label=name.replace("dt_dx", "Δt/Δx"), y_label="mean square error"
            )
            figure.axes[0].set_yscale("log")
            if name == "cells":
                figure.axes[0].set_xscale("log", base=2)
            figure.axes[0].set_xticks(list(found), [f"{value:g}" for value in found])
            page.figure(
                run.figure(name, figure),
                f"Mean square error over {name}.",
                f"Lines of mean square error over {name}.",
            )
        run.write_metrics(metrics)
        page.write(run.report)
    print(f"report: {run.report}")
    return 0


def _errors(protocol: Protocol) -> dict[str, float]:
    found = evaluate_law(protocol.laws[0], protocol, clock=False)
    return {scheme: float(found[scheme].mse.mean()) for scheme in protocol.schemes}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
