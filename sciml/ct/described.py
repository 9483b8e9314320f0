"""Scans of TIFF files or raw numbers that a TOML file describes: `read_described`.

    geometry = "fan"              # parallel, fan, curved-fan, cone, parallel-volume
    data = "projections/*.tif"    # one file or a pattern, relative to this file, views in order of numbers
    flats = "flat*.tif"           # readings without an object; darks likewise; or line_integrals = true
    angles = { start = 0, stop = 360, endpoint = false }   # or { start = 0, step = 0.5 }, or a list
    angle_unit = "degrees"              # or "radians"
    unit = "mm"                         # of all lengths
    spacing = 0.2
    source_to_axis = 410.66
    source_to_detector = 553.74
    detector_offset = 0.0               # and axis_shift, vertical_offset, row_spacing where they apply

Raw numbers also need `shape = [views, bins]` (or views, rows, bins), `dtype = "float32"`, and may give
`byte_order = "little"` and `header = 0` bytes. A sinogram in one TIFF is (views, bins); `transposed = true`
when it is stored the other way round.
"""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sciml.ct.counts import line_integrals
from sciml.ct.geometry import CurvedFanBeam, FanBeam, ParallelBeam
from sciml.ct.scan import Scan, some_rows
from sciml.ct.volume_geometry import VolumeGeometry

_MAKERS: dict[str, Any] = {
    "parallel": ParallelBeam,
    "fan": FanBeam,
    "curved-fan": CurvedFanBeam,
    "cone": VolumeGeometry.cone,
    "parallel-volume": VolumeGeometry.parallel,
}
_IN_THE_PLANE = ("parallel", "fan", "curved-fan")
_LENGTHS = ("source_to_axis", "source_to_detector", "detector_offset", "vertical_offset", "axis_shift")
_OTHER = (
    *("geometry", "data", "flats", "darks", "line_integrals", "angles", "angle_unit", "unit", "spacing"),
    *("row_spacing", "shape", "dtype", "byte_order", "header", "transposed", "name"),
)


def is_description(path: Path) -> bool:
    """Whether a TOML file describes a scan."""
    if path.suffix != ".toml" or not path.is_file():
        return False
    content = _toml(path)
    return "data" in content and "geometry" in content


def read_described(path: Path, *, rows: tuple[int, int] | None = None) -> Scan:
    """Reads the scan that a TOML file describes; see the module for its fields.

    Args:
        path: the TOML file.
        rows: first row of a panel and the one after the last, from the top: only these are loaded; default
            all.

    Raises:
        ValueError: naming the file, the field and the remedy.
    """
    content = _toml(path)
    for name in content:
        if name not in (*_OTHER, *_LENGTHS):
            raise ValueError(f"{path}: {name} is unknown; known: {', '.join((*_OTHER, *_LENGTHS))}")
    kind = content.get("geometry")
    if kind not in _MAKERS:
        raise ValueError(f"{path}: geometry is {kind!r}: it is one of {', '.join(_MAKERS)}")
    needed = ["data", "angles", "angle_unit", "spacing"]
    needed += ["source_to_axis", "source_to_detector"] if kind in ("fan", "curved-fan", "cone") else []
    for name in needed:
        if name not in content:
            raise ValueError(f"{path}: {name} is missing; a {kind} scan needs {', '.join(needed)}")
    volume = kind in ("cone", "parallel-volume")
    unfit = [] if volume else ["row_spacing", "vertical_offset"]
    unfit += ["source_to_axis", "source_to_detector"] if "parallel" in kind else []
    for name in unfit:
        if name in content:
            raise ValueError(f"{path}: {name} does not belong to a {kind} scan")
    if rows is not None and not volume:
        raise ValueError(f"{path}: a {kind} scan has no rows to choose from")
    if content.get("line_integrals", False) and ("flats" in content or "darks" in content):
        raise ValueError(f"{path}: line_integrals = true, and yet flats or darks: remove one of them")
    values, height = _numbers(path, content, rows)
    if values.ndim == 3 and not volume and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != (3 if volume else 2):
        expected = "(views, rows, bins)" if volume else "(views, bins)"
        raise ValueError(f"{path}: data have shape {values.shape}, a {kind} scan is {expected}")
    angles = _angles(path, content, len(values))
    lengths = {name: content[name] for name in _LENGTHS if name in content}
    spacing = content["spacing"]
    if "row_spacing" in content:
        spacing = (content["row_spacing"], spacing)
    notes: tuple[str, ...] = ()
    if not content.get("line_integrals", False):
        fields = {key: _field(path, content, key, rows) for key in ("flats", "darks")}
        values, notes = line_integrals(values, fields["flats"], fields["darks"], what=str(path))
    try:
        if volume:
            geometry = _MAKERS[kind](angles, height, values.shape[2], spacing, **lengths)
            geometry = geometry if rows is None else some_rows(geometry, *rows)
        else:
            geometry = _MAKERS[kind](angles, values.shape[1], spacing, **lengths)
        name = str(content.get("name", path.stem))
        return Scan(np.asarray(values, np.float32), geometry, str(content.get("unit", "1")), name, notes)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error


def read_images(paths: Sequence[Path], rows: tuple[int, int] | None = None) -> np.ndarray:
    """Images of TIFF files stacked along a new first axis; files of several pages count page by page.

    Args:
        paths: the files, in order.
        rows: first row and the one after the last; default all.

    Raises:
        ValueError: naming the file that is missing, unreadable or of another size.
    """
    import tifffile

    images: list[np.ndarray] = []
    for path in paths:
        try:
            image = tifffile.imread(path)
        except FileNotFoundError as error:
            raise ValueError(f"{path}: no such file") from error
        except (tifffile.TiffFileError, ValueError, OSError) as error:
            raise ValueError(f"{path}: not a readable TIFF file: {error}") from error
        if image.ndim not in (2, 3) or not image.size:
            raise ValueError(f"{path}: not a readable TIFF of grey values: shape {image.shape}")
        first, stop = (0, image.shape[-2]) if rows is None else rows
        if not 0 <= first < stop <= image.shape[-2]:
            raise ValueError(f"{path}: rows {first} to {stop - 1} of {image.shape[-2]}: choose some of them")
        part = image[..., first:stop, :]
        images.extend(part.copy() if part.ndim == 3 else part.copy()[None])
        if images[-1].shape != images[0].shape:
            raise ValueError(f"{path}: shape {images[-1].shape}, the first image has {images[0].shape}")
    if not images:
        raise ValueError("no images")
    return np.stack(images)


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: not a readable TOML file: {error}") from error


def _files(path: Path, pattern: Any) -> list[Path]:
    if not isinstance(pattern, str):
        raise ValueError(f"{path}: {pattern!r} is no name: give one file or a pattern such as 'view*.tif'")

    def by_number(file: Path) -> list[Any]:  # view2 before view10
        return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", str(file))]

    single = path.parent / pattern
    if single.is_dir():
        pattern = f"{pattern.rstrip('/')}/*.tif*"
    found = [single] if single.is_file() else []
    if not found and not Path(pattern).is_absolute():
        found = sorted((file for file in path.parent.glob(pattern) if file.is_file()), key=by_number)
    if not found:
        raise ValueError(f"{path}: no file {pattern!r} beside it")
    return found


def _numbers(path: Path, content: dict[str, Any], rows: tuple[int, int] | None) -> tuple[np.ndarray, int]:
    """The data, or some rows of a panel, and how many rows the panel has."""
    files = _files(path, content["data"])
    if files[0].suffix.lower() in (".tif", ".tiff"):
        for name in ("shape", "dtype", "byte_order", "header"):
            if name in content:
                raise ValueError(f"{path}: {name} is for raw numbers; {files[0].name} has its own")
        values = read_images(files, rows)
        if len(values) == 1 and content["geometry"] in _IN_THE_PLANE:
            values = values[0]  # one image that is a sinogram
        height = values.shape[-2] if rows is None else read_images(files[:1]).shape[-2]
    else:
        values = _raw(path, files[0], content)
        height = values.shape[-2]
        if rows is not None:
            if not 0 <= rows[0] < rows[1] <= height:
                raise ValueError(f"{path}: rows {rows[0]} to {rows[1] - 1} of {height}: choose some of them")
            values = values[..., rows[0] : rows[1], :]
        values = np.array(values)
    return values.T if content.get("transposed", False) and values.ndim == 2 else values, height


def _raw(path: Path, file: Path, content: dict[str, Any]) -> np.ndarray:
    for name in ("shape", "dtype"):
        if name not in content:
            raise ValueError(f"{path}: {name} is missing; raw numbers in {file.name} need shape and dtype")
    try:
        dtype = np.dtype(content["dtype"]).newbyteorder(content.get("byte_order", "little")[0])
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: dtype or byte_order: {error}") from error
    shape, header = tuple(int(size) for size in content["shape"]), int(content.get("header", 0))
    if len(shape) not in (2, 3) or min(shape) < 1:
        raise ValueError(f"{path}: shape is {shape}: give [views, bins] or [views, rows, bins]")
    expected = header + int(np.prod(shape)) * dtype.itemsize
    if file.stat().st_size != expected:
        raise ValueError(
            f"{file}: {file.stat().st_size} bytes, shape {shape} of {content['dtype']} needs {expected}: is"
            " the file cut short, or has it a header?"
        )
    return np.memmap(file, dtype, "r", header, shape)


def _field(path: Path, content: dict[str, Any], key: str, rows: tuple[int, int] | None) -> Any:
    entry = content.get(key)
    if entry is None or isinstance(entry, int | float):
        return entry
    images = read_images(_files(path, entry), rows)
    return images.reshape(-1, images.shape[-1]) if content["geometry"] in _IN_THE_PLANE else images


def _angles(path: Path, content: dict[str, Any], views: int) -> np.ndarray:
    entry, unit = content["angles"], content["angle_unit"]
    if unit not in ("degrees", "radians"):
        raise ValueError(f"{path}: angle_unit is {unit!r}: degrees or radians")
    try:
        if not isinstance(entry, dict):
            angles = np.asarray(entry, np.float64)
        elif set(entry) == {"start", "step"}:
            angles = float(entry["start"]) + float(entry["step"]) * np.arange(views)
        elif {"start", "stop"} <= set(entry) <= {"start", "stop", "endpoint"}:
            endpoint = bool(entry.get("endpoint", False))
            angles = np.linspace(float(entry["start"]), float(entry["stop"]), views, endpoint=endpoint)
        else:
            raise ValueError(
                "give start and step, or start and stop, and endpoint = true when stop is a view"
            )
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: angles: {error}") from error
    if angles.shape != (views,):
        raise ValueError(
            f"{path}: {angles.size} angles for {views} views; are rows and columns of the data swapped"
            " (transposed = true)?"
        )
    return np.deg2rad(angles) if unit == "degrees" else angles
