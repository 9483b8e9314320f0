"""Cell averages as labelled arrays: xarray datasets u(sample, time, x) with units, and NetCDF files."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from sciml.fv.grid import UniformGrid

if TYPE_CHECKING:
    import xarray as xr


def to_dataset(
    fields: Mapping[str, Float[np.ndarray, "samples times cells"]],
    grid: UniformGrid,
    times: Float[np.ndarray, " times"],
    *,
    units: Mapping[str, str] | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> "xr.Dataset":
    """A dataset with one variable per field over (sample, time, x).

    Args:
        fields: name to cell averages.
        grid: the cells.
        times: saved times.
        units: units under the keys "state", "length" and "time"; default dimensionless.
        attributes: what else belongs to the data, such as the configuration as text.
    """
    import xarray as xr

    units = {"state": "1", "length": "1", "time": "1", **(units or {})}
    coords = {
        "time": ("time", np.asarray(times, np.float64), {"units": units["time"], "long_name": "time"}),
        "x": ("x", grid.centres, {"units": units["length"], "long_name": "cell centre"}),
    }
    variables = {
        name: (
            ("sample", "time", "x"),
            np.asarray(values),
            {"units": units["state"], "long_name": "cell average", "cell_methods": "x: mean"},
        )
        for name, values in fields.items()
    }
    extent = {"lower": grid.lower, "upper": grid.upper, "cells": grid.cells}
    return xr.Dataset(variables, coords, {**extent, **(attributes or {})})


def grid_of(data: "xr.Dataset | xr.DataArray") -> UniformGrid:
    """The grid whose cell centres are the coordinate x; `ValueError` unless uniform and increasing."""
    if "x" not in data.coords:
        raise ValueError(
            "the data have no coordinate x: give the positions of the cell centres under that name"
        )
    x = np.asarray(data["x"], np.float64)
    steps = np.diff(x)
    if x.size < 2 or not (steps > 0).all() or np.ptp(steps) > 1e-6 * abs(steps[0]) + 1e-12 * np.abs(x).max():
        raise ValueError(
            "coordinate x is not a uniform increasing series of at least 2 cell centres; resample the data"
        )
    dx = (x[-1] - x[0]) / (x.size - 1)
    return UniformGrid(x.size, x[0] - dx / 2, x[-1] + dx / 2)


def read_averages(path: str | Path, cells: int) -> Float[np.ndarray, "samples cells"]:
    """Cell averages from a file: the last time of u(…, time, x) in NetCDF, or one number per cell in text.

    Raises:
        ValueError: naming the file when it cannot be read, has other cells or values that are not finite.
        FileNotFoundError: when there is no such file.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; initial.path names the cell averages to start from")
    try:
        if path.suffix == ".nc":
            import xarray as xr

            with xr.open_dataset(path, engine="h5netcdf") as data:
                if "u" not in data:
                    raise ValueError(
                        f"no variable u, only {', '.join(map(str, data.data_vars)) or 'nothing'}"
                    )
                field = data["u"].isel(time=-1) if "time" in data["u"].dims else data["u"]
                if field.dims[-1] != "x":
                    raise ValueError(f"u has dimensions {field.dims}; the last one must be x")
                values = np.asarray(field, np.float64).reshape(-1, field.shape[-1])
        else:
            values = np.loadtxt(path, delimiter="," if path.suffix == ".csv" else None, ndmin=1, comments="#")
            values = values.reshape(1, -1)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}") from error
    if values.shape[-1] != cells:
        raise ValueError(
            f"{path}: {values.shape[-1]} values for {cells} cells; set grid.cells to {values.shape[-1]}"
        )
    if not np.isfinite(values).all():
        raise ValueError(f"{path}: entry {int(np.argwhere(~np.isfinite(values))[0][-1])} is not finite")
    return values
