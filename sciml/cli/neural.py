"""`sciml fv train`: a neural flux trained for one law, with its card, checkpoints and pictures."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

from sciml.cli.arguments import ResumableRunOptions, open_run, parse_arguments

if TYPE_CHECKING:
    from sciml.fv.fundamental_diagram import AbstractFundamentalDiagram
    from sciml.fv.neural_flux import NeuralFlux
    from sciml.fv.neural_training import NeuralTraining
    from sciml.fv.traffic import Day
    from sciml.fv.traffic_neural import NeuralModel
    from sciml.train.fit import Fitted, Training
    from sciml.train.optimiser import Stage


def train(argv: list[str]) -> int:
    """Trains one neural flux and writes its weights to `weights.npz` of the run folder."""
    from sciml.fv.neural_training import NeuralTraining
    from sciml.fv.released import save_flux

    config, options, path = parse_arguments(
        argv,
        NeuralTraining,
        ResumableRunOptions,
        command="fv train",
        about="Train a neural flux for one law, on exact solutions or on the weak form.",
    )
    name = f"fv-train-{path.stem}" if path else "fv-train"
    with open_run(options, config, name) as run:
        flux, summary = train_flux(config, run)
        weights = save_flux(run.path / "weights.npz", flux, card(config, summary))
        run.write_metrics(summary)
        _report(config, flux, summary, run)
    for key, value in summary.items():
        print(f"{key}: {value:.4g}" if isinstance(value, float) else f"{key}: {value}")
    print(f"weights: {weights}")
    print(f"report: {run.report}")
    return 0


def train_flux(config: NeuralTraining, run: Any = None) -> tuple[NeuralFlux, dict[str, Any]]:
    """Trains by the stages of a configuration; the run folder, if any, holds checkpoints and metrics."""
    import jax
    import jax.numpy as jnp

    from sciml.fv.law import as_dtype
    from sciml.fv.neural_flux import without_offset
    from sciml.fv.neural_training import make_batches, make_loss, make_validation
    from sciml.fv.released import flux_for
    from sciml.train.fit import Training
    from sciml.train.optimiser import Optimiser

    law = as_dtype(config.law.build(), jnp.float32)
    weights_key, train_key = jax.random.split(jax.random.key(config.seed))
    flux = config.network.build(law, weights_key)
    if config.start is not None:
        earlier = flux_for(config.start, config.law.build())
        if jax.tree.structure(earlier) != jax.tree.structure(flux) or any(
            a.shape != b.shape for a, b in zip(jax.tree.leaves(earlier), jax.tree.leaves(flux), strict=True)
        ):
            raise ValueError(f"start: {config.start} is a network of another kind than [network] asks for")
        flux = earlier
    validate = make_validation(config, law)
    every = config.validate_every if validate else 0
    training = Training(
        optimiser=Optimiser(_stages(config.stages, final=0.05), clip_norm=config.clip_norm),
        log_every=config.log_every,
        validate_every=every,
        monitor="mse",
        checkpoint_every=10 * config.log_every,
        seed=config.seed,
        average_decay=config.average_decay,
    )
    begun = time.perf_counter()
    loss, batches = make_loss(config, law), make_batches(config, law)
    fitted = fit_flux(flux, loss, batches, training, key=train_key, run=run, validate=validate)
    # An error against exact solutions is a label: without labels the last weights count, not the best.
    chosen = fitted.state.averaged
    if validate and config.objective == "supervised":
        chosen = min((chosen, fitted.model), key=lambda flux: float(validate(flux)["mse"]))
    chosen = without_offset(chosen, law)
    summary: dict[str, Any] = {
        "parameters": flux.parameters,
        "updates": config.updates,
        "cell_updates": sum(s.updates * s.batch * s.rollout * s.cells for s in config.stages),
        "seconds": round(time.perf_counter() - begun, 1),
    }
    if validate:
        summary["validation_mse"] = float(validate(chosen)["mse"])
    return chosen, summary


def _stages(stages: Any, *, final: float) -> tuple[Stage, ...]:
    """Cosine stages with a short warm-up, of the updates and rates of a configuration."""
    from sciml.train.optimiser import Stage

    return tuple(
        Stage(s.updates, s.learning_rate, "cosine", warmup=min(50, s.updates // 10), final=final)
        for s in stages
    )


def fit_flux(
    flux: NeuralFlux, loss: Any, batches: Any, training: Training, *, key: Any, **options: Any
) -> Fitted:
    """`sciml.train.fit` of weights and biases; the scales of input and output stay."""
    import equinox as eqx
    import jax

    from sciml.train.fit import fit
    from sciml.train.state import TrainState

    nothing = jax.tree.map(lambda _: False, flux)
    trainable = eqx.tree_at(
        lambda f: (f.weights, f.biases), nothing, jax.tree.map(lambda _: True, (flux.weights, flux.biases))
    )
    state = TrainState.create(
        flux, training.optimiser.build(), trainable=trainable, key=key, average=training.average_decay > 0
    )
    return fit(state, loss, batches, training, trainable=trainable, **options)


def train_on_day(
    model: NeuralModel, day: Day, diagram: AbstractFundamentalDiagram, *, log: Any = None
) -> tuple[NeuralFlux, dict[str, Any]]:
    """Trains a flux on one measured day; the last part of the day chooses among the weights."""
    import jax

    from sciml.fv.traffic_neural import DayObjective, new_flux
    from sciml.train.fit import Training
    from sciml.train.optimiser import Optimiser

    objective = DayObjective(model, day, diagram)
    weights_key, train_key = jax.random.split(jax.random.key(model.seed))
    flux = new_flux(model, diagram, weights_key)
    stages = _stages(objective.stages, final=0.1)
    total = sum(stage.steps for stage in stages)
    every = max(k for k in (1, 2, 5, 10, 25, 50) if total % k == 0)
    training = Training(
        optimiser=Optimiser(stages, weight_decay=model.weight_decay),
        log_every=every,
        validate_every=every,
        monitor="mse",
        checkpoint_every=0,
        seed=model.seed,
    )
    fitted = fit_flux(
        flux,
        objective.loss,
        objective.batch,
        training,
        key=train_key,
        validate=objective.validate,
        log=log,
    )
    return fitted.model, {
        "parameters": flux.parameters,
        "steps_per_frame": model.steps_per_frame,
        "updates": total,
        "validation_mse": float(objective.validate(fitted.model)["mse"]),
    }


def card(config: NeuralTraining, summary: dict[str, Any]) -> dict[str, Any]:
    """What a file of weights says of itself."""
    import jax

    import sciml
    from sciml.config import dump_toml

    return {
        "name": config.name,
        "law": dataclasses.asdict(config.law),
        "objective": config.objective,
        "dt_dx": config.stages[-1].dt_dx,
        "seed": config.seed,
        "training": summary,
        "versions": {"sciml": sciml.__version__, "jax": jax.__version__},
        "config": dump_toml(config),
    }


def _report(config: NeuralTraining, flux: NeuralFlux, summary: dict[str, Any], run: Any) -> None:
    from sciml import plot
    from sciml.report import Report

    law = config.law.build()
    page = Report(f"Neural flux {config.name}", f"{config.law.kind}, {config.objective}, seed {config.seed}")
    page.table([{"quantity": key, "value": value} for key, value in summary.items()])
    records = run.logged()
    steps = [record["step"] for record in records]
    losses = plot.profiles(
        steps, {"loss": [r["loss"] for r in records]}, x_label="update", y_label="loss", title="training"
    )
    losses.axes[0].set_yscale("log")
    figures = [("training", losses, "Loss over the updates.", "Training loss over updates.")]
    if flux.stencil == 2 and flux.levels == 1:
        surface = flux_surfaces(flux, law)
        figures.append(
            (
                "flux",
                surface,
                "The learned flux beside Godunov's.",
                "Maps of both fluxes and their difference.",
            )
        )
    for key, figure, caption, alt in figures:
        page.figure(run.figure(key, figure), caption, alt)
    page.write(run.report)


def flux_surfaces(flux: NeuralFlux, law: Any) -> Any:
    """F(a, b) of a two-cell flux, of Godunov's and their difference, as maps over both states."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from sciml import plot
    from sciml.fv.riemann import Godunov

    lower, upper = float(flux.centre - flux.half_width), float(flux.centre + flux.half_width)
    states = np.linspace(lower, upper, 129)
    left, right = (jnp.asarray(x.ravel()) for x in np.meshgrid(states, states))
    learned = flux.along(law, jnp.stack([left, right], axis=1).reshape(1, -1), None)[::2]
    exact = jax.vmap(lambda a, b: Godunov()(law, a, b, None))(left, right)
    shape = (len(states), len(states))
    panels = {
        "learned": np.asarray(learned).reshape(shape),
        "Godunov": np.asarray(exact).reshape(shape),
    }
    difference = {"learned - Godunov": panels["learned"] - panels["Godunov"]}
    return plot.space_time_panels(
        panels,
        states,
        states,
        label="F(a, b)",
        x_label="left state a",
        t_label="right state b",
        difference=difference,
    )
