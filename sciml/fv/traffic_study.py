"""Every model of a measured highway in one table: calibrated on one day, simulated on others, compared with
baselines.

`study` takes density fields and returns a `Study`: metrics by model and day, and one Dataset with the
measured and all simulated densities, travel times, queue lengths and mean flows. Scores are those of
`sciml.fv.traffic.scores`.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from sciml.fv.calibrate import FAMILIES, Calibration, Estimate, calibrate
from sciml.fv.catalogue import SCHEMES, lookup
from sciml.fv.density_field import spacing
from sciml.fv.source import AbstractSource
from sciml.fv.traffic import (
    Day,
    as_day,
    check_result,
    embed,
    interpolation,
    measured_cells,
    persistence,
    scores,
    simulate_day,
)
from sciml.fv.traffic_neural import NeuralModel
from sciml.fv.travel import (
    experienced_travel_time,
    instantaneous_travel_time,
    jam_wave_speed,
    queue_length,
    vehicle_totals,
)

MEASURES = ("mse", "l1", "relative")
BASELINES: dict[str, Callable[[Day], jax.Array]] = {
    "interpolation": interpolation,
    "persistence": persistence,
}


@dataclasses.dataclass(frozen=True)
class Study:
    """Metrics (JSON-like) and fields of a comparison; `calibrations` by model."""

    metrics: dict[str, Any]
    fields: xr.Dataset
    calibrations: dict[str, Calibration]


def model_name(diagram: str, scheme: str) -> str:
    """`triangular` for Godunov's method, `triangular/subcell` for another scheme."""
    return diagram if scheme == "godunov" else f"{diagram}/{scheme}"


def study(
    train: tuple[str, xr.Dataset],
    tests: Mapping[str, xr.Dataset],
    diagrams: Sequence[str] = tuple(FAMILIES),
    schemes: Sequence[str] = ("godunov",),
    *,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    samples: int = 256,
    rounds: int = 30,
    cfl: float = 0.95,
    seed: int = 0,
    source: AbstractSource | None = None,
    neural: Sequence[NeuralModel] = (),
    trainer: Callable[..., tuple[Any, dict[str, Any]]] | None = None,
    log: Callable[[dict[str, Any]], None] | None = None,
    progress: Callable[[str], None] = lambda message: None,
) -> Study:
    """Calibrates every diagram with every scheme on one day and simulates the others from initial state and
    edges.

    Args:
        train: name and field of the day of calibration.
        tests: name -> field of the days of the comparison; the mean over them leaves the training day out.
        diagrams: keys of `FAMILIES`.
        schemes: keys of `SCHEMES`.
        bounds, samples, rounds, cfl, seed, source: as for `calibrate`.
        neural: neural fluxes to train on the same day, for roads without ramps.
        trainer: trains one of them, (model, day, diagram, log=...) -> flux and numbers.
        log: called with every line of metrics of their training.
        progress: called with a line of text before every piece of work.

    Raises:
        ValueError: for unknown names, no test day, or a failed simulation; the message names the day.
    """
    for scheme in schemes:
        lookup("scheme", SCHEMES, scheme)
    for diagram in diagrams:
        lookup("fundamental diagram", FAMILIES, diagram)
    if not tests or not diagrams or not schemes:
        raise ValueError("nothing to compare: name at least one test day, one diagram and one scheme")
    days = {name: as_day(field) for name, field in tests.items() if name != train[0]}
    training = as_day(train[1])
    all_days = {train[0]: training, **days}
    fields = {train[0]: train[1], **tests}

    calibrations: dict[str, Calibration] = {}
    densities: dict[str, dict[str, np.ndarray]] = {}
    for scheme in schemes:
        for diagram in diagrams:
            name = model_name(diagram, scheme)
            progress(f"{name}: calibration on {train[0]}")
            entry = SCHEMES[scheme]
            calibrations[name] = fit = calibrate(
                diagram,
                training,
                entry,
                bounds=bounds,
                samples=samples,
                rounds=rounds,
                source=source,
                cfl=cfl,
                seed=seed,
            )
            progress(f"{name}: simulation of {len(all_days)} days")
            densities[name] = _simulate(fit.diagram, entry, all_days, source, fit.steps_per_frame)
    chosen = min(calibrations.values(), key=lambda fit: fit.mse)
    trained: dict[str, dict[str, Any]] = {}
    for model in neural:
        assert trainer is not None
        if source is not None:
            raise ValueError(
                f"{model.name}: neural fluxes are not trained on roads with ramps; leave one out"
            )
        progress(f"{model.name}: training on {train[0]}")
        sink = log and (lambda record, name=model.name: log({"model": name, **record}))
        flux, trained[model.name] = trainer(model, training, chosen.diagram, log=sink)
        progress(f"{model.name}: simulation of {len(all_days)} days")
        entry, steps = model.entry(flux), model.steps_per_frame
        densities[model.name] = _simulate(chosen.diagram, entry, all_days, source, steps)
    for name, baseline in BASELINES.items():
        densities[name] = {key: np.asarray(baseline(day)) for key, day in all_days.items()}

    progress("scores, travel times and queues")
    threshold = float(next(iter(calibrations.values())).diagram.critical_density)
    speed_of = {name: fit.diagram for name, fit in calibrations.items()}
    # A neural flux has no diagram; travel times on its densities take the speeds of the best calibrated one.
    speed_of |= {name: chosen.diagram for name in trained}
    reference = next(iter(speed_of.values()))
    observed = {
        key: {
            "measured": _observe(
                fields[key], all_days[key], np.asarray(all_days[key].density), reference, threshold, True
            ),
            **{
                name: _observe(fields[key], all_days[key], densities[name][key], diagram, threshold, False)
                for name, diagram in speed_of.items()
            },
        }
        for key in all_days
    }
    metrics: dict[str, Any] = {
        "train": train[0],
        "test": list(days),
        "scored": "all cells but the prescribed and the masked ones, t > 0, density over its normalisation",
        "normalisation": {"value": float(training.normalisation), "units": "veh/km/lane"},
        "congestion_threshold": {"value": threshold, "units": "veh/km/lane"},
        "models": {},
        "measured": {
            key: {**_masked(fields[key]), **_numbers(observed[key]["measured"])} for key in all_days
        },
    }
    for name, by_day in densities.items():
        table = {key: scores(jnp.asarray(by_day[key]), day) for key, day in all_days.items()}
        entry = {
            "mean": {measure: float(np.mean([table[key][measure] for key in days])) for measure in MEASURES},
            "train": table[train[0]],
            "days": {key: table[key] for key in days},
        }
        if name in calibrations:
            entry |= _described(calibrations[name])
        if name in trained:
            entry |= {"training": trained[name]}
        if name in speed_of:
            for key in all_days:
                table[key].update(_numbers(observed[key][name]))
        metrics["models"][name] = entry
    return Study(metrics, _dataset(fields, all_days, densities, observed), calibrations)


def _simulate(diagram, scheme, days: Mapping[str, Day], source, steps: int) -> dict[str, np.ndarray]:
    """All days; those of one shape and place in one vectorised run."""
    groups: dict[Any, list[str]] = {}
    for key, day in days.items():
        groups.setdefault((day.grid, day.density.shape), []).append(key)
    found: dict[str, np.ndarray] = {}
    run = eqx.filter_jit(
        lambda diagram, stacked: jax.vmap(lambda day: simulate_day(diagram, day, scheme, steps, source))(
            stacked
        )
    )
    for keys in groups.values():
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(days[key] for key in keys))
        density, result = run(diagram, stacked)
        for key, values, code in zip(keys, np.asarray(density), np.asarray(result), strict=True):
            check_result(int(code), key, steps)
            found[key] = values
    return found


def _observe(
    field, day: Day, density: np.ndarray, diagram, threshold: float, measured: bool
) -> dict[str, Any]:
    """What travellers and operators see of one density; series in h, km, veh/h/lane."""
    frame, width = spacing(field)
    frame, width = frame / 3600, width / 1000
    density = density.astype(np.float64)
    inside = jnp.clip(jnp.asarray(density), diagram.lower, diagram.upper)
    speed = np.asarray(diagram.speed(inside), np.float64)
    seen = field["speed"].values[:, measured_cells(field)] if "speed" in field else None
    if measured and seen is not None:
        speed = seen
    spent, driven = vehicle_totals(density, speed, np.asarray(day.scored), frame, width)
    wave, error = jam_wave_speed(density, frame, width)
    found = {
        "instantaneous": instantaneous_travel_time(speed, width),
        "experienced": experienced_travel_time(speed, frame, width),
        "queue": queue_length(density, threshold, width),
        "flow": (density * speed).mean(axis=1),
        "jam_wave_speed": {"value": wave, "standard_error": error, "units": "km/h"},
        "time_spent": {"value": spent, "units": "veh h/lane"},
        "distance_driven": {"value": driven, "units": "veh km/lane"},
    }
    if seen is not None and not measured:
        scored = np.asarray(day.scored)
        found["speed_rmse"] = {"value": float(np.sqrt(np.mean((speed - seen)[scored] ** 2))), "units": "km/h"}
    return found


def _numbers(observed: Mapping[str, Any]) -> dict[str, Any]:
    minutes = {key: 60 * observed[key] for key in ("instantaneous", "experienced")}
    return {
        **{f"{key}_travel_time": {"value": _mean(values), "units": "min"} for key, values in minutes.items()},
        "queue_length": {
            "value": _mean(observed["queue"]),
            "largest": float(observed["queue"].max()),
            "units": "km",
        },
        "flow": {"value": _mean(observed["flow"]), "units": "veh/h/lane"},
        **{key: value for key, value in observed.items() if isinstance(value, dict)},
    }


def _mean(values: np.ndarray) -> float:
    return float(np.nanmean(values)) if np.isfinite(values).any() else float("nan")


def _masked(field: xr.Dataset) -> dict[str, Any]:
    cells = np.flatnonzero(field["mask"].values.all(axis=0))
    return {"masked_cells": cells.tolist(), "masked_share": float(field["mask"].values.mean())}


def _described(fit: Calibration) -> dict[str, Any]:
    def shown(estimates: Mapping[str, Estimate]) -> dict[str, Any]:
        return {key: dataclasses.asdict(estimate) for key, estimate in estimates.items()}

    return {
        "parameters": shown(fit.estimates),
        "derived": shown(fit.derived),
        "correlation": {"order": list(fit.estimates), "matrix": fit.correlation.tolist()},
        "residuals": fit.residuals,
        "effective_residuals": fit.effective,
        "steps_per_frame": fit.steps_per_frame,
    }


def _dataset(fields, days, densities, observed) -> xr.Dataset:
    """Measured and simulated fields with dims (day, time, x), series with dims (model, day, time)."""
    parts = []
    for key in days:
        field = fields[key]
        part = xr.Dataset(
            {"measured": field["density"], "mask": field["mask"].astype("int8")},
            attrs={key: field.attrs[key] for key in ("source", "licence", "citation")},
        )
        for name, by_day in densities.items():
            part[name.replace("/", "_")] = embed(field, by_day[key])
        series = {
            "travel_time_instantaneous": ("instantaneous", 60, "min"),
            "travel_time_experienced": ("experienced", 60, "min"),
            "queue_length": ("queue", 1, "km"),
            "flow": ("flow", 1, "veh/h/lane"),
        }
        for label, (quantity, factor, units) in series.items():
            values = np.stack([factor * each[quantity] for each in observed[key].values()])
            part[label] = xr.DataArray(
                values,
                {"model": [name.replace("/", "_") for name in observed[key]], "time": field["time"]},
                ("model", "time"),
                attrs={"units": units},
            )
        parts.append(part.expand_dims(day=[key]))
    whole = xr.concat(parts, "day", join="outer", combine_attrs="drop_conflicts", fill_value={"mask": 1})
    return whole.map(
        lambda values: values.astype("float32") if values.dtype == "float64" else values, keep_attrs=True
    )
