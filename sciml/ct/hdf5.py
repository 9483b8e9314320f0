"""Stacks of parallel sinograms in HDF5: Data-Exchange (`exchange/data`), NXtomo (`image_key`): `read_hdf5`.

Angles are degrees unless their `units` say radians. Lengths are millimetres where the file states the size
of a pixel with a unit, and pixels otherwise. The rotation axis is taken to be in the middle; `calibrate`
finds it.
"""

import contextlib
from pathlib import Path
from typing import Any

import numpy as np

from sciml.ct.counts import line_integrals
from sciml.ct.geometry import ParallelBeam
from sciml.ct.scan import Scan, some_rows
from sciml.ct.volume_geometry import VolumeGeometry

_MILLIMETRES = {
    **{"m": 1e3, "metre": 1e3, "meter": 1e3, "cm": 10.0, "mm": 1.0, "millimetre": 1.0, "millimeter": 1.0},
    **{"um": 1e-3, "µm": 1e-3, "micron": 1e-3, "microns": 1e-3, "micrometer": 1e-3, "nm": 1e-6},
}


def read_hdf5(
    path: Path, *, angles: tuple[float, float] | None = None, rows: tuple[int, int] | None = None
) -> Scan:
    """Reads a stack; a stack of one row is a scan in the plane.

    Args:
        path: the file.
        angles: first and last view angle in degrees, for files that have none.
        rows: first row and the one after the last, from the top: only these are loaded; default all.

    Raises:
        ValueError: naming the file, the field and the remedy.
    """
    import h5py

    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(h5py.File(path, "r"))
        except OSError as error:
            raise ValueError(f"{path}: not a readable HDF5 file: {error}") from error
        try:
            if "exchange/data" in file:
                return _data_exchange(path, file, angles, rows)
            keys = _named(file, "image_key")
            if keys:
                return _nxtomo(path, file, keys, angles, rows, stack)
        except OSError as error:
            raise ValueError(f"{path}: cannot be read to its end: {error}; is it cut short?") from error
    raise ValueError(f"{path}: neither exchange/data (Data-Exchange) nor an image_key (NXtomo) in it")


def _data_exchange(path: Path, file: Any, angles: Any, rows: Any) -> Scan:
    data = file["exchange/data"]
    shape = getattr(data, "shape", ())
    if len(shape) != 3:
        raise ValueError(f"{path}: exchange/data has shape {shape}: it is (views, rows, bins)")
    part = _part(path, data, rows)
    flats, darks = (
        file[name][:, part] if name in file and len(file[name]) else None
        for name in ("exchange/data_white", "exchange/data_dark")
    )
    if "exchange/theta" in file:
        turn = _radians(path, file["exchange/theta"])
    else:
        turn = _between(angles, len(data), f"{path}: exchange/theta")
    if len(turn) != len(data):
        swapped = "; its second axis has as many: are views and rows swapped?"
        raise ValueError(
            f"{path}: {len(turn)} angles in exchange/theta for {len(data)} views"
            f" (shape {data.shape}){swapped if data.shape[1] == len(turn) else ''}"
        )
    pixel = _pixel(file.get("measurement/instrument/detector"), ("pixel_size_x", "x_pixel_size"))
    return _stack(path, data[:, part], turn, flats, darks, data.shape, part, pixel)


def _nxtomo(path: Path, file: Any, keys: list[Any], angles: Any, rows: Any, stack: Any) -> Scan:
    for key in keys:
        kinds = np.asarray(key[()])
        data = _linked(path, key.parent, "data", stack)
        if data is not None and data.ndim == 3 and len(data) == len(kinds):
            break
    else:
        raise ValueError(f"{path}: no data of three axes beside an image_key; are the linked files there?")
    count = int((kinds == 0).sum())
    if not count:
        raise ValueError(f"{path}: {key.name} marks no projections (0)")
    found = [item for item in _named(file, "rotation_angle") if getattr(item, "shape", None) == kinds.shape]
    turn = (
        _radians(path, found[0])[kinds == 0] if found else _between(angles, count, f"{path}: rotation_angle")
    )
    part = _part(path, data, rows)
    images = data[:, part]
    views, flats, darks = (images[kinds == kind] for kind in (0, 1, 2))
    pixel = _pixel(key.parent, ("x_pixel_size",))
    return _stack(
        path,
        views,
        turn,
        flats if len(flats) else None,
        darks if len(darks) else None,
        (count, *data.shape[1:]),
        part,
        pixel,
    )


def _stack(
    path: Path,
    counts: np.ndarray,
    turn: np.ndarray,
    flats: Any,
    darks: Any,
    shape: tuple[int, ...],
    part: slice,
    pixel: float | None,
) -> Scan:
    sinogram, notes = line_integrals(counts, flats, darks, what=str(path))
    unit, spacing = ("px", 1.0) if pixel is None else ("mm", pixel)
    try:
        if counts.shape[1] == 1:
            plane = ParallelBeam(turn, shape[2], spacing)
            return Scan(sinogram[:, 0], plane, unit, path.stem, notes)
        geometry = some_rows(
            VolumeGeometry.parallel(turn, shape[1], shape[2], spacing), part.start, part.stop
        )
        return Scan(sinogram, geometry, unit, path.stem, notes)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _part(path: Path, data: Any, rows: tuple[int, int] | None) -> slice:
    first, stop = (0, data.shape[1]) if rows is None else rows
    if not 0 <= first < stop <= data.shape[1]:
        raise ValueError(f"{path}: rows {first} to {stop - 1} of {data.shape[1]}: choose some of them")
    return slice(first, stop)


def _named(file: Any, name: str) -> list[Any]:
    found: list[Any] = []
    file.visititems(lambda place, item: found.append(item) if place.rpartition("/")[2] == name else None)
    return found


def _linked(path: Path, group: Any, name: str, stack: contextlib.ExitStack) -> Any:
    """A dataset, also when a link to another file is only right by the name of the file."""
    import h5py

    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.ExternalLink):
        return group.get(name)
    for place in (path.parent / link.filename, path.parent / Path(link.filename).name):
        if place.is_file():
            return stack.enter_context(h5py.File(place, "r")).get(link.path)
    return None


def _radians(path: Path, dataset: Any) -> np.ndarray:
    try:
        given = np.asarray(dataset[()], np.float64).ravel()
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {dataset.name} holds no angles: {error}") from error
    return given if _unit(dataset, "degrees").startswith("rad") else np.deg2rad(given)


def _unit(dataset: Any, otherwise: str) -> str:
    unit = dataset.attrs.get("units", otherwise)
    return (unit.decode() if isinstance(unit, bytes) else str(unit)).strip().lower()


def _between(angles: tuple[float, float] | None, views: int, where: str) -> np.ndarray:
    if angles is None:
        raise ValueError(f"{where} is missing: give the first and the last angle, --angles 0,180 (degrees)")
    return np.deg2rad(np.linspace(*angles, views))


def _pixel(group: Any, names: tuple[str, ...]) -> float | None:
    """Width of a pixel in millimetres, if the group has one with a unit."""
    for name in names:
        if group is not None and name in group:
            size, factor = np.ravel(group[name][()]), _MILLIMETRES.get(_unit(group[name], ""))
            if factor and size.size and np.isfinite(size[0]) and size[0] > 0:
                return float(size[0]) * factor
    return None
