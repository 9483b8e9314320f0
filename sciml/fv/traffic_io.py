"""Readers of measured traffic density; each ends in `sciml.fv.density_field.density_field`.

| data | reader | layout |
|---|---|---|
| I-24 MOTION | `read_i24` | `.pt` tensor (time, x), density / 140 veh/km/lane, 10 s, 64.3736 m |
| NGSIM US-101, I-80 | `read_ngsim` | text (x, time), veh/ft over all lanes, 20 ft, 5 s |
| any NetCDF | `read_netcdf` | variable with dims (time, x) and `units` attributes |
| any CSV | `read_csv` | wide: first row x, first column time; long: columns time, x, density |

`write_netcdf` writes what `read_netcdf` reads.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from sciml.files import replacing
from sciml.fv.density_field import density_field
from sciml.fv.torch_tensor import read_tensor

_I24_SCALE = 140.0  # veh/km/lane in the unit of the files


def read_i24(path: str | Path, **options: Any) -> xr.Dataset:
    """A morning of I-24 MOTION: 1300 frames of 10 s, 90 cells of 64.3736 m, saturated at 140 veh/km/lane.

    Args:
        path: `MM-DD-2022_post_TX.pt`.
        **options: passed to `density_field`, e.g. `masked_cells`.

    Raises:
        ValueError: naming the file and the field.

    Reference: D. Gloudemans et al., Transp. Res. C 155, 104311 (2023).
    """
    path = Path(path)
    tensor = read_tensor(path)
    if tensor.ndim != 2:
        raise ValueError(f"{path}: density: shape {tensor.shape} is not (time, x)")
    frames, cells = tensor.shape
    options = {
        "lanes": 4.0,
        "saturation": _I24_SCALE,
        "source": "I-24 MOTION, Nashville, westbound, morning",
        "licence": "I-24 MOTION Data Use Agreement",
        "citation": "Gloudemans et al. 2023, Transp. Res. C 155:104311",
        **options,
    }
    return density_field(
        tensor * _I24_SCALE, 10.0 * np.arange(frames), 64.3736 * (np.arange(cells) + 0.5),
        density_units="veh/km/lane", time_units="s", x_units="m", name=str(path), **options,
    )  # fmt: skip


def read_ngsim(
    path: str | Path,
    *,
    lanes: float | None = None,
    coarsen: int = 5,
    trim: int = 8,
    window: int = 180,
    **options: Any,
) -> xr.Dataset:
    """An NGSIM field binned to 20 ft x 5 s, in cells of `coarsen` rows.

    The first and the last row are dropped (they are only partly filled), then `coarsen` rows are averaged
    into one cell (100 ft: 60 ft/s · 5 s / 100 ft = CFL 3) and rows left over at the downstream end are
    dropped. The record consists of windows of 15 minutes whose trajectories were followed separately: the
    road fills at the start of a window and empties at its end. `trim` frames are cut at both ends of the
    record and masked on both sides of every join inside it. Flow and speed are read from the files beside
    the density when they exist.

    Args:
        path: `..._Density_Data.txt`, rows along the road in the direction of travel, blank or comma
            separated.
        lanes: lanes that the density counts.
        coarsen: rows averaged into a cell.
        trim: frames cut or masked at the ends of a window.
        window: frames in a window.
        **options: passed to `density_field`.

    Raises:
        ValueError: naming the file and the field.
    """
    path = Path(path)
    rows = _text_matrix(path)[1:-1]
    cells = rows.shape[0] // coarsen
    frames = slice(trim, rows.shape[1] - trim)

    def averaged(values: np.ndarray) -> np.ndarray:
        return values[: cells * coarsen].reshape(cells, coarsen, -1).mean(axis=1).T[frames]

    if cells < 4 or rows.shape[1] <= 2 * trim + 2:
        raise ValueError(f"{path}: density: {rows.shape} rows and frames are too few to coarsen by {coarsen}")
    others: dict[str, Any] = {}
    beside = path.with_name(path.name.replace("Density", "Flow"))
    if beside != path and beside.exists():
        flow = _text_matrix(beside)[1:-1]
        if flow.shape != rows.shape:
            raise ValueError(
                f"{beside}: flow: shape {flow.shape} differs from that of the density {rows.shape}"
            )
        others["flow"] = (averaged(flow), "veh/s")
        # Edie: the speed of a larger cell is its flow over its density, not the mean of speeds.
        others["speed"] = (averaged(flow) / averaged(rows), "ft/s")
    field = density_field(
        averaged(rows), 5.0 * np.arange(rows.shape[1])[frames], 20.0 * coarsen * (np.arange(cells) + 0.5),
        density_units="veh/ft", time_units="s", x_units="ft", name=str(path), lanes=lanes,
        **{
            "source": "NGSIM, binned by A. Avila and I. Mezic",
            "licence": "public product of the US Department of Transportation",
            "citation": "Avila & Mezic 2020, Nature Communications 11:2090",
            **options,
        },
        **others,
    )  # fmt: skip
    for join in range(window, rows.shape[1], window):
        field["mask"].values[max(join - 2 * trim, 0) : max(join, 0)] = True
    return field


def _text_matrix(path: Path) -> np.ndarray:
    try:
        lines = path.read_text(encoding="ascii").replace(",", " ").splitlines()
    except FileNotFoundError:
        raise ValueError(f"{path}: file: no such file") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: file: not a text file of numbers") from None
    rows = [line.split() for line in lines if line.strip()]
    if not rows or len({len(row) for row in rows}) != 1:
        raise ValueError(
            f"{path}: file: the lines do not hold the same number of values; the file may be cut short"
        )
    try:
        return np.array(rows, dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{path}: file: {error}") from None


def read_netcdf(
    path: str | Path, *, variable: str = "", units: dict[str, str] | None = None, **options: Any
) -> xr.Dataset:
    """A density field from a NetCDF file (3 or 4) with a two-dimensional variable over time and position.

    Args:
        path: the file; the variable and both coordinates have an attribute `units`; optional attributes
            `lanes`, `source`, `licence`, `citation` of the file and `normalisation`, `saturation` of the
            variable are kept, and so are variables `mask` (True = not measured), `flow` and `speed` with
            the same dims.
        variable: name of the density; default `density`, else the only two-dimensional variable.
        units: units that replace or complete those of the file, by `density`, `time`, `x`.
        **options: passed to `density_field`; they go before what the file says.

    Raises:
        ValueError: naming the file and the field.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: file: no such file")
    with path.open("rb") as stream:
        magic = stream.read(8)
    engine = "scipy" if magic[:3] == b"CDF" else "h5netcdf" if magic == b"\x89HDF\r\n\x1a\n" else None
    if engine is None:
        raise ValueError(f"{path}: file: not a NetCDF file")
    try:
        with xr.open_dataset(path, engine=engine, decode_times=False) as opened:
            data = opened.load()
    except Exception as error:  # h5py and scipy raise many kinds on damaged files
        raise ValueError(f"{path}: file: cannot be read as NetCDF ({error})") from error
    flat = [str(key) for key, value in data.data_vars.items() if value.ndim == 2]
    if not variable:
        variable = "density" if "density" in flat else flat[0] if len(flat) == 1 else ""
    if variable not in flat:
        raise ValueError(
            f"{path}: {variable or 'density'}: no such two-dimensional variable; the file has"
            f" {', '.join(flat) or 'none'};"
            " name it in the configuration (variable)"
        )
    density = data[variable]
    names = {}
    for axis, aliases in (("time", ("time", "t")), ("x", ("x", "position", "distance"))):
        found = [name for name in aliases if name in density.dims]
        if not found or found[0] not in data.coords:
            raise ValueError(
                f"{path}: {axis}: {variable} has dims {density.dims}; name them time and x, with coordinates"
            )
        names[axis] = found[0]
    density = density.transpose(names["time"], names["x"])
    found_units = {
        "density": str(density.attrs.get("units", "")),
        **{axis: str(data[name].attrs.get("units", "")).split(" since ")[0] for axis, name in names.items()},
        **(units or {}),
    }
    same = {key: data[key].transpose(*density.dims) for key in ("mask", "flow", "speed") if key in flat}
    others: dict[str, Any] = {
        key: (values.values, str(values.attrs.get("units", "")))
        for key, values in same.items()
        if key != "mask"
    }
    stated = {key: data.attrs[key] for key in ("lanes", "source", "licence", "citation") if key in data.attrs}
    stated |= {
        key: float(density.attrs[key]) for key in ("normalisation", "saturation") if key in density.attrs
    }
    field = density_field(
        density.values, data[names["time"]].values, data[names["x"]].values,
        density_units=found_units["density"], time_units=found_units["time"], x_units=found_units["x"],
        name=str(path),
        **{**stated, **options},
        **others,
    )  # fmt: skip
    if "mask" in same:
        field["mask"].values |= same["mask"].values.astype(bool)
    return field


def write_netcdf(data: xr.Dataset, path: str | Path) -> Path:
    """Writes a Dataset as compressed NetCDF-4, whole or not at all."""
    path = Path(path)
    encoding = {
        key: {"zlib": True, "complevel": 4} for key, value in data.data_vars.items() if value.ndim > 1
    }
    with replacing(path) as temporary:
        data.to_netcdf(temporary, engine="h5netcdf", encoding=encoding)
    return path


def read_csv(path: str | Path, *, units: dict[str, str] | None = None, **options: Any) -> xr.Dataset:
    """A density field from a text table, comma, semicolon or tab separated; lines starting with `#` are
    skipped.

    Wide: the first cell names the units, `density [veh/km/lane] time [s] x [m]`; the rest of the first row
    holds the positions, the first column the times. Long: a header such as `time [s], x [m], density
    [veh/km]` and one line per time and position, in any order; further columns are ignored.

    Args:
        path: the file; an empty value or `nan` is a missing density.
        units: units that replace or complete those of the header, by `density`, `time`, `x`.
        **options: passed to `density_field`.

    Raises:
        ValueError: naming the file and the field.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise ValueError(f"{path}: file: no such file") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path}: file: not a text table (UTF-8)") from None
    lines = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    if len(lines) < 2:
        raise ValueError(f"{path}: file: no header and rows found")
    separator = max(",;\t", key=lines[0].count)
    header = [cell.strip().strip('"') for cell in lines[0].split(separator)]
    rows = [line.split(separator) for line in lines[1:]]
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ValueError(
                f"{path}: row {number}: {len(row)} values, but the header has {len(header)} columns"
            )
    table = np.array([[_number(path, n, cell) for cell in row] for n, row in enumerate(rows, start=2)])
    names = [re.split(r"[\[(]", cell)[0].strip().lower() for cell in header]
    aliases = {"t": "time", "position": "x", "distance": "x"}
    names = [aliases.get(name, name) for name in names]
    if {"time", "x", "density"} <= set(names):
        header_units: dict[str, str] = {
            name: _bracket(cell) for name, cell in zip(names, header, strict=True)
        }
        columns = [table[:, names.index(name)] for name in ("time", "x", "density")]
        time, x, density = _pivot(path, *columns)
    else:
        pairs = re.findall(r"([A-Za-z_]+)\s*[\[(]([^\])]*)[\])]", header[0])
        header_units = {str(aliases.get(key.lower(), key.lower())): str(unit) for key, unit in pairs}
        x = np.array([_number(path, 1, cell) for cell in header[1:]])
        time, density = table[:, 0], table[:, 1:]
    found = {**header_units, **(units or {})}
    return density_field(
        density, time, x,
        density_units=found.get("density", ""), time_units=found.get("time", ""), x_units=found.get("x", ""),
        name=str(path), **options,
    )  # fmt: skip


def _bracket(cell: str) -> str:
    match = re.search(r"[\[(]([^\])]*)[\])]", cell)
    return match[1].strip() if match else ""


def _number(path: Path, row: int, cell: str) -> float:
    cell = cell.strip().strip('"')
    try:
        return float(cell) if cell else float("nan")
    except ValueError:
        raise ValueError(
            f"{path}: row {row}: {cell!r} is not a number; a wide table has positions in its first row and"
            " times in its"
            " first column, a long one the columns time, x, density"
        ) from None


def _pivot(path: Path, time: np.ndarray, x: np.ndarray, density: np.ndarray):
    """Long columns as (times, positions, density[time, x]); absent pairs become NaN, repeated ones are an
    error.
    """
    times, row = np.unique(time, return_inverse=True)
    places, column = np.unique(x, return_inverse=True)
    flat = row * places.size + column
    counts = np.bincount(flat, minlength=times.size * places.size)
    if (counts > 1).any():
        twice = int(np.argmax(counts > 1))
        raise ValueError(
            f"{path}: density: given twice at time {times[twice // places.size]:g}, x"
            f" {places[twice % places.size]:g};"
            " leave one value for each time and position"
        )
    grid = np.full(times.size * places.size, np.nan)
    grid[flat] = density
    return times, places, grid.reshape(times.size, places.size)


def read_density(path: str | Path, **options: Any) -> xr.Dataset:
    """A density field by the suffix of its file: `.pt`, `.nc`, `.csv`, `.tsv` or NGSIM `.txt`."""
    suffix = Path(path).suffix.lower()
    readers = {
        ".pt": read_i24,
        ".nc": read_netcdf,
        ".nc4": read_netcdf,
        ".csv": read_csv,
        ".tsv": read_csv,
        ".txt": read_ngsim,
    }
    if suffix not in readers:
        raise ValueError(f"{path}: file: unknown suffix {suffix!r}; known: {', '.join(readers)}")
    return readers[suffix](path, **options)
