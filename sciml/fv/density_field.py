"""Measured traffic density as an xarray Dataset with dims (time, x), units, lanes and a mask; every reader
ends here.

| variable | units | meaning |
|---|---|---|
| `density(time, x)` | veh/km/lane | cell averages, with attributes `normalisation` and perhaps `saturation` |
| `mask(time, x)` | - | True where the density is not measured: never scored |
| `flow(time, x)`, `speed(time, x)` | veh/h/lane, km/h | only where they are measured |
| `time`, `x` | s, m | uniform; x grows in the direction of travel, cells are centred on it |

Attributes of the Dataset: `name`, `lanes`, `source`, `licence`, `citation`. A density of `normalisation`
(140 veh/km/lane unless stated) is 1 in the errors that are reported; a sensor that cannot show more than
`saturation` is modelled by clipping the simulated density there.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
import xarray as xr

NORMALISATION = 140.0  # veh/km/lane

_LENGTHS = {"m": 1.0, "km": 1000.0, "ft": 0.3048, "mi": 1609.344, "mile": 1609.344, "cm": 0.01}
_LENGTHS |= {
    "metre": 1.0,
    "meter": 1.0,
    "foot": 0.3048,
    "feet": 0.3048,
    "kilometre": 1000.0,
    "kilometer": 1000.0,
}
_TIMES = {
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "ms": 1e-3,
    "min": 60.0,
    "minute": 60.0,
    "h": 3600.0,
    "hr": 3600.0,
    "hour": 3600.0,
}
_VEHICLES = ("veh", "vehs", "vehicle", "vehicles", "1", "count", "cars")


def _lookup(table: dict[str, float], unit: str) -> float | None:
    unit = unit.strip()
    return table.get(unit, table.get(unit.lower().removesuffix("s"), table.get(unit.lower())))


def unit_factor(units: str, quantity: Literal["density", "time", "x", "flow", "speed"]) -> tuple[float, bool]:
    """Factor to veh/km/lane, s, m, veh/h/lane or km/h, and whether the unit is one per lane.

    Args:
        units: e.g. `veh/km/lane`, `vehicles per mile`, `veh/ft`, `s`, `min`, `ft`, `veh/h`, `mph`.
        quantity: what is measured in these units.

    Raises:
        ValueError: when the unit is not understood; the message lists what is.
    """
    text = units.strip().replace("·", " ").replace(" per ", "/").replace("mph", "mi/h").replace("kph", "km/h")
    text = re.sub(r"\s*/\s*", "/", re.sub(r"^1\s*/", "veh/", text))
    parts = text.split("/")
    per_lane = parts[-1] in ("lane", "lanes", "ln")
    parts = parts[:-1] if per_lane else parts
    known = {
        "density": "veh/km, veh/m, veh/mi, veh/ft, each also per lane (veh/km/lane)",
        "time": "s, min, h, ms",
        "x": "m, km, ft, mi",
        "flow": "veh/h, veh/min, veh/s, each also per lane",
        "speed": "km/h, m/s, mi/h, ft/s",
    }[quantity]
    factor = None
    if quantity in ("time", "x") and len(parts) == 1 and not per_lane:
        factor = _lookup(_TIMES if quantity == "time" else _LENGTHS, parts[0])
    elif quantity in ("density", "flow") and len(parts) == 2 and parts[0].lower() in _VEHICLES:
        base = _lookup(_LENGTHS if quantity == "density" else _TIMES, parts[1])
        factor = None if base is None else (1000.0 if quantity == "density" else 3600.0) / base
    elif quantity == "speed" and len(parts) == 2 and not per_lane:
        length, time = _lookup(_LENGTHS, parts[0]), _lookup(_TIMES, parts[1])
        factor = None if length is None or time is None else 3.6 * length / time
    if factor is None:
        raise ValueError(f"unknown units {units!r} for {quantity}; known: {known}")
    return factor, per_lane


def density_field(
    density: np.ndarray,
    time: np.ndarray,
    x: np.ndarray,
    *,
    density_units: str,
    time_units: str,
    x_units: str,
    name: str,
    lanes: float | None = None,
    normalisation: float = NORMALISATION,
    saturation: float | None = None,
    largest: float = 250.0,
    missing: Literal["error", "mask"] = "error",
    masked_cells: str = "",
    find_copies: bool = True,
    source: str = "",
    licence: str = "",
    citation: str = "",
    **others: tuple[np.ndarray, str],
) -> xr.Dataset:
    """Checks a measured density and puts it into SI-like traffic units.

    Args:
        density: cell averages, shape (time, x), in `density_units`.
        time: increasing, uniformly spaced times of the frames, in `time_units`.
        x: positions of the cell centres along the road in the direction of travel, uniform, in `x_units`.
        density_units: units of the density; without `/lane` they count all lanes and `lanes` is needed.
        time_units: units of `time`.
        x_units: units of `x`.
        name: what the messages call the field, usually its file.
        lanes: number of lanes.
        normalisation: density that counts as 1 in normalised errors [veh/km/lane].
        saturation: largest density the sensor can show [veh/km/lane]; None when it has no such limit.
        largest: density above which the data cannot be vehicles per km and lane [veh/km/lane].
        missing: NaN is an error, or is masked and replaced by linear interpolation in time.
        masked_cells: cells not to be scored, e.g. `"0-21,40"`.
        find_copies: also mask neighbouring cells that hold the same series (sensors filled from one another).
        source: where the data come from.
        licence: under which terms.
        citation: what to cite.
        **others: `flow=(array, units)` or `speed=(array, units)`, measured beside the density.

    Raises:
        ValueError: naming the field and what is wrong with it: shapes, times or positions that do not
            increase or are not uniform, NaN, negative or impossibly large densities, unknown units, too few
            cells or frames.
    """
    density = np.asarray(density, dtype=np.float64)
    axes = {}
    for axis, values, units, least in (("time", time, time_units, 3), ("x", x, x_units, 4)):
        factor, _ = _units(name, axis, units)
        axes[axis] = _uniform(name, axis, np.asarray(values, dtype=np.float64) * factor, least)
    shape = (axes["time"].size, axes["x"].size)
    if density.shape != shape:
        raise ValueError(
            f"{name}: density: shape {density.shape} does not match {shape[0]} times and {shape[1]}"
            " positions;"
            " give one row per time and one column per cell"
        )
    values = {"density": _convert(name, "density", density, density_units, lanes)}
    for key, (array, units) in others.items():
        if np.shape(array) != shape:
            raise ValueError(
                f"{name}: {key}: shape {np.shape(array)} differs from that of the density {shape}"
            )
        values[key] = _convert(name, key, np.asarray(array, dtype=np.float64), units, lanes)
    mask = ~np.isfinite(values["density"])
    values["density"] = _without_gaps(name, values["density"], mask, missing)
    _physical(name, values["density"], axes, largest)
    mask[:, cell_ranges(name, masked_cells, shape[1])] = True
    if find_copies:
        mask[:, copied_cells(values["density"])] = True
    if mask.all():
        raise ValueError(
            f"{name}: mask: every cell is masked, nothing is left to compare with; check the mask"
        )

    dims = ("time", "x")
    attributes = {
        "normalisation": float(normalisation),
        "units": "veh/km/lane",
        "long_name": "density of vehicles",
    }
    if saturation is not None:
        attributes["saturation"] = float(saturation)
    units = {"flow": "veh/h/lane", "speed": "km/h"}
    field = xr.Dataset(
        {
            "density": (dims, values.pop("density"), attributes),
            "mask": (dims, mask, {"long_name": "True where the density is not measured"}),
            **{key: (dims, array, {"units": units[key]}) for key, array in values.items()},
        },
        {
            "time": ("time", axes["time"], {"units": "s", "long_name": "time"}),
            "x": (
                "x",
                axes["x"],
                {"units": "m", "long_name": "position, growing in the direction of travel"},
            ),
        },
    )
    field.attrs = {"name": name, "source": source, "licence": licence, "citation": citation}
    if lanes is not None:
        field.attrs["lanes"] = float(lanes)
    return field


def spacing(field: xr.Dataset) -> tuple[float, float]:
    """Time between frames Δt [s] and cell width Δx [m] of a density field."""
    time, x = field["time"].values, field["x"].values
    return float(time[-1] - time[0]) / (time.size - 1), float(x[-1] - x[0]) / (x.size - 1)


def normalised(field: xr.Dataset) -> np.ndarray:
    """The density divided by its normalisation, shape (time, x)."""
    return field["density"].values / field["density"].attrs["normalisation"]


def copied_cells(density: np.ndarray) -> np.ndarray:
    """True for cells whose whole series equals that of a neighbour: one sensor shown in several cells,
    shape (x,).
    """
    same = (density[:, 1:] == density[:, :-1]).all(axis=0) & (density.max(axis=0) > density.min(axis=0))[1:]
    return np.concatenate([same, [False]]) | np.concatenate([[False], same])


def cell_ranges(name: str, text: str, cells: int) -> np.ndarray:
    """`"0-21,40"` as a boolean array over `cells` cells; both ends of a range are included."""
    chosen = np.zeros(cells, dtype=bool)
    for item in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"(\d+)(?:\s*-\s*(\d+))?", item)
        if match is None:
            raise ValueError(f"{name}: mask: {item!r} is not a cell or a range; write e.g. '0-21,40'")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < cells:
            raise ValueError(f"{name}: mask: {item!r} lies outside of the cells 0-{cells - 1}")
        chosen[first : last + 1] = True
    return chosen


def _units(name: str, quantity, units: str) -> tuple[float, bool]:
    if not units:
        raise ValueError(
            f"{name}: {quantity}: units are missing; write them in the file (header `{quantity} [unit]` or"
            " attribute"
            f" `units`) or give them in the configuration (units.{quantity})"
        )
    try:
        return unit_factor(units, quantity)
    except ValueError as error:
        raise ValueError(f"{name}: {quantity}: {error}") from None


def _convert(name: str, quantity, values: np.ndarray, units: str, lanes: float | None) -> np.ndarray:
    factor, per_lane = _units(name, quantity, units)
    if lanes is not None and not lanes > 0:
        raise ValueError(f"{name}: lanes: {lanes} is not a positive number")
    if quantity in ("density", "flow") and not per_lane:
        if lanes is None:
            raise ValueError(
                f"{name}: lanes: {quantity} in {units!r} counts all lanes; give the number of lanes, or"
                " units per lane"
            )
        factor /= lanes
    return values * factor


def _uniform(name: str, axis: str, values: np.ndarray, least: int) -> np.ndarray:
    what = "times" if axis == "time" else "cells"
    if values.ndim != 1 or values.size < least:
        raise ValueError(f"{name}: {axis}: {values.size} {what} are too few; at least {least} are needed")
    if not np.isfinite(values).all():
        raise ValueError(
            f"{name}: {axis}: entry {int(np.argmin(np.isfinite(values)))} is not a finite number"
        )
    steps = np.diff(values)
    if not (steps > 0).all():
        i = int(np.argmin(steps > 0))
        remedy = "sort the frames" if axis == "time" else "order the cells in the direction of travel"
        raise ValueError(
            f"{name}: {axis}: not increasing: entry {i + 1} is {values[i + 1]:g} after {values[i]:g};"
            f" {remedy}"
        )
    mean = steps.mean()
    if np.abs(steps - mean).max() > 0.01 * mean:
        i = int(np.argmax(np.abs(steps - mean)))
        raise ValueError(
            f"{name}: {axis}: not uniform: the step after entry {i} is {steps[i]:g}, the mean step is"
            f" {mean:g};"
            " interpolate the field to a uniform axis, or fill missing rows with NaN and mask them"
        )
    return values


def _without_gaps(name: str, density: np.ndarray, gaps: np.ndarray, missing: str) -> np.ndarray:
    if not gaps.any():
        return density
    row, column = (int(index) for index in np.argwhere(gaps)[0])
    if missing != "mask":
        raise ValueError(
            f"{name}: density: {int(gaps.sum())} values are NaN or infinite, the first at time entry"
            f" {row}, cell {column};"
            ' fill them, or set missing = "mask" to interpolate in time and leave them out of the score'
        )
    empty = gaps.all(axis=0)
    if empty.all():
        raise ValueError(f"{name}: density: no finite value at all")
    filled = density.copy()
    frames, cells = np.arange(density.shape[0]), np.arange(density.shape[1])
    for cell in np.flatnonzero(gaps.any(axis=0) & ~empty):
        known = ~gaps[:, cell]
        filled[~known, cell] = np.interp(frames[~known], frames[known], density[known, cell])
    for frame in frames if empty.any() else ():
        filled[frame, empty] = np.interp(cells[empty], cells[~empty], filled[frame, ~empty])
    return filled


def _physical(name: str, density: np.ndarray, axes: dict[str, np.ndarray], largest: float) -> None:
    def where(bad: np.ndarray) -> str:
        row, column = (int(index) for index in np.argwhere(bad)[0])
        return f"t = {axes['time'][row]:g} s, x = {axes['x'][column]:g} m ({int(bad.sum())} such values)"

    if (density < 0).any():
        raise ValueError(
            f"{name}: density: negative at {where(density < 0)}; correct or mask these values (NaN)"
        )
    if (density > largest).any():
        raise ValueError(
            f"{name}: density: {density.max():.4g} veh/km/lane, above the largest possible {largest:g} at"
            f" {where(density > largest)}; check the units, the number of lanes, or raise largest"
        )
