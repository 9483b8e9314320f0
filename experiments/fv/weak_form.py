"""What the parts of the weak-form objective are worth, and a wrong solution that only entropy rejects.

    python experiments/fv/weak_form.py experiments/fv/weak_form.toml --out runs/weak-form

1. Ablation: the same short training with and without the entropy residual, with bumps and polynomials, with
   and without windows in time and jumps inside cells; several seeds; errors on random states.
2. Expansion shock: Roe's flux keeps a jump at rest across which waves spread; that is a weak solution and
   not the entropy solution. A network that first imitates Roe's flux is trained on the weak form alone, and
   on the weak form with the entropy residual. The first keeps the wrong solution, the second opens it.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sciml import plot
from sciml.cli.arguments import open_run, parse_arguments
from sciml.cli.neural import fit_flux, train_flux
from sciml.fv.boundary import Outflow
from sciml.fv.catalogue import lookup
from sciml.fv.evaluate import Protocol, evaluate_law
from sciml.fv.finite_volume import FiniteVolume
from sciml.fv.grid import UniformGrid
from sciml.fv.integrate import rollout
from sciml.fv.law import as_dtype
from sciml.fv.lax_hopf import lax_hopf_cell_averages
from sciml.fv.neural_training import NeuralTraining
from sciml.fv.released import save_flux
from sciml.report import Report
from sciml.train.fit import Training
from sciml.train.optimiser import Optimiser, Stage

VARIANTS: dict[str, dict[str, Any]] = {
    "all": {},
    "no entropy": {"entropy": 0.0},
    "no jumps in cells": {"jumps": False},
    "no windows, no jumps": {"jumps": False, "duration": 0.0},
    "polynomials": {"tests": "polynomials"},
    "polynomials, no entropy": {"tests": "polynomials", "entropy": 0.0},
    "as published: polynomials, no windows, no jumps": {
        "tests": "polynomials",
        "jumps": False,
        "duration": 0.0,
    },
}


@dataclasses.dataclass(frozen=True)
class Study:
    """Trainings to compare."""

    training: NeuralTraining = NeuralTraining(objective="weak-form")
    variants: tuple[str, ...] = tuple(VARIANTS)
    seeds: tuple[int, ...] = (0, 1)
    states: int = dataclasses.field(default=100, metadata={"doc": "random states for the errors, seed 42"})
    imitation: int = dataclasses.field(default=1500, metadata={"doc": "updates that imitate Roe's flux"})
    jump: float = dataclasses.field(default=0.8, metadata={"doc": "state left of the jump at rest"})

    def __post_init__(self):
        for name in self.variants:
            lookup("variant", VARIANTS, name)


def main(argv: list[str]) -> int:
    config, options, path = parse_arguments(argv, Study, command="fv weak-form")
    with open_run(options, config, f"fv-{path.stem if path else 'weak-form'}") as run:
        page = Report(
            "The weak-form objective", f"{config.training.law.kind}, {config.training.updates} updates"
        )
        rows = ablation(config, run.path)
        page.table(rows, caption="Mean square error on random states, by seed.")
        errors, figure = expansion_shock(config, run.path)
        for name, error in errors.items():
            print(f"expansion shock, {name}: mean square error {error:.2e}")
        page.figure(
            run.figure("expansion-shock", figure),
            "A jump at rest across which waves spread.",
            "Profiles after both trainings.",
        )
        run.write_metrics({"ablation": rows, "expansion shock": errors})
        page.write(run.report)
    print(f"report: {run.report}")
    return 0


def ablation(config: Study, folder: Path) -> list[dict[str, Any]]:
    """Trains every variant with every seed."""
    rows = []
    for name in config.variants:
        weak = dataclasses.replace(config.training.weak_form, **VARIANTS[name])
        row: dict[str, Any] = {"objective": name}
        for seed in config.seeds:
            training = dataclasses.replace(config.training, weak_form=weak, seed=seed)
            row[f"seed {seed}"] = _error(train_flux(training)[0], training, config, folder)
        rows.append(row)
        print("  ".join(v if isinstance(v, str) else f"{v:.2e}" for v in row.values()), flush=True)
    return rows


def _error(flux, training: NeuralTraining, config: Study, folder: Path) -> float:
    """Mean square error of a flux in the evaluation protocol, at the Δt/Δx of its training."""
    weights = save_flux(folder / "weights.npz", flux, {"law": dataclasses.asdict(training.law)})
    dt = training.stages[-1].dt_dx * 1e-3
    steps = round(0.1 / dt)
    protocol = Protocol(
        (training.law.kind,), (str(weights),), states=config.states, dt=dt, steps=steps, precision="float32"
    )
    return float(evaluate_law(training.law.kind, protocol, clock=False)[str(weights)].mse.mean())


def roe(law, states):
    """Roe's flux: the one of the upwind state of the jump, without an entropy fix."""
    left, right = states[..., 0], states[..., 1]
    first, second = law.flux(left), law.flux(right)
    return jnp.where((second - first) * (right - left) >= 0, first, second)


def expansion_shock(config: Study, folder: Path) -> tuple[dict[str, float], Any]:
    """Errors and profiles of a jump at rest, after imitation alone and after both trainings."""
    law = as_dtype(config.training.law.build(), jnp.float32)
    start = config.training.network.build(law, jax.random.key(0))
    scale = start.flux_range[1] - start.flux_range[0]

    def loss(flux, states, key):
        found = flux.along(law, states.reshape(1, -1), None)[::2]
        return jnp.mean((found - roe(law, states)) ** 2) / scale**2, {}

    def batch(update):
        return np.random.default_rng(update).uniform(law.lower, law.upper, (512, 2)).astype(np.float32)

    imitation = Training(
        Optimiser((Stage(config.imitation, 3e-3, final=0.02),)),
        log_every=config.imitation,
        checkpoint_every=0,
    )
    fluxes = {"imitation of Roe": fit_flux(start, loss, batch, imitation, key=jax.random.key(0)).model}
    card = {"law": dataclasses.asdict(config.training.law)}
    weights = save_flux(folder / "roe.npz", fluxes["imitation of Roe"], card)
    for name, entropy in (("weak form alone", 0.0), ("with entropy residual", 1.0)):
        weak = dataclasses.replace(config.training.weak_form, entropy=entropy)
        fluxes[name], _ = train_flux(dataclasses.replace(config.training, weak_form=weak, start=str(weights)))
    cells, dt_dx, steps = 60, config.training.stages[-1].dt_dx, 40
    edges, other = np.array([0.0, cells / 2, cells]), float(law.lower + law.upper) - config.jump
    truth = lax_hopf_cell_averages(
        law,
        edges[None],
        np.array([[config.jump, other]]),
        np.arange(cells + 1.0),
        np.array([0, steps * dt_dx]),
    )[0]
    grid = UniformGrid(cells, 0.0, float(cells))
    shown, errors = {}, {}
    for name, flux in fluxes.items():
        scheme = FiniteVolume(law, grid, Outflow(), numerical_flux=flux)
        run = rollout(scheme, jnp.asarray(truth[0], jnp.float32), dt_dx, steps, throw=False)
        shown[name] = np.asarray(run.states[-1])
        errors[name] = float(np.mean((shown[name] - truth[-1]) ** 2))
    figure = plot.profiles(
        grid.centres,
        shown,
        reference=("entropy solution", truth[-1]),
        x_label="cell",
        y_label="u",
        title=f"t = {steps * dt_dx:g} Δx",
    )
    return errors, figure


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
