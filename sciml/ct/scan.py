"""Measured scans: a sinogram with its geometry, and the files that hold one.

| file | what |
|---|---|
| `.mat` | fan-beam scans of the Helsinki Tomography Challenge 2022 (`CtDataFull`, `CtDataLimited`),
millimetres |
| `.npz` | what `save_scan` writes: arrays under the names of the geometry's fields |

`read_scan` repairs what it can and says so in `notes`: a last view that repeats the first is dropped,
single values that are not finite are interpolated along the detector.
"""

import dataclasses
import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from sciml.ct.geometry import AbstractGeometry, CurvedFanBeam, FanBeam, ParallelBeam
from sciml.ct.grid import ImageGrid
from sciml.files import replacing

GEOMETRIES: dict[str, type[AbstractGeometry]] = {
    "parallel": ParallelBeam,
    "fan": FanBeam,
    "curved-fan": CurvedFanBeam,
}


@dataclasses.dataclass(frozen=True)
class Scan:
    """Line integrals and how they were measured.

    Args:
        sinogram: line integrals, shape `geometry.shape`.
        geometry: scan geometry.
        unit: unit of its lengths, such as "mm".
        name: what was scanned.
        notes: what was repaired or looks odd.

    Raises:
        ValueError: when sinogram and geometry do not fit together.
    """

    sinogram: Float[np.ndarray, "views bins"]
    geometry: AbstractGeometry
    unit: str = "1"
    name: str = "scan"
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        shape, expected = np.shape(self.sinogram), self.geometry.shape
        if shape != expected:
            swapped = "; are views and bins swapped?" if shape == expected[::-1] else ""
            raise ValueError(
                f"{self.name}: the sinogram has shape {shape}, angles and detector say {expected}{swapped}"
            )

    def thinned(self, views: int) -> "Scan":
        """The scan with that many of its views, as equally spaced in the order of the file as can be."""
        have = self.geometry.views
        if not 1 <= views <= have:
            raise ValueError(f"{self.name} has {have} views: choose 1 to {have}, not {views}")
        index = np.arange(views) * have // views
        return dataclasses.replace(self, sinogram=self.sinogram[index], geometry=self.geometry.subset(index))

    def grid(self, rows: int | None = None, pixel: float | None = None) -> ImageGrid:
        """Square pixels over the disc that every view sees: as many rows as bins, at most 512, by default."""
        rows = min(self.geometry.bins, 512) if rows is None else rows
        return ImageGrid(rows, pixel=2 * field_of_view(self.geometry) / rows if pixel is None else pixel)


def field_of_view(geometry: AbstractGeometry) -> float:
    """Radius of the largest disc around the rotation axis that the longer side of the detector sees
    [length].
    """
    bins = np.array([-0.5, geometry.bins - 0.5])
    lines = jax.vmap(lambda view: view.line(bins)[2])(geometry.scanner())
    radius = float(abs(np.asarray(lines)).max(1).min())
    return radius if radius > 0 else 1.0


def read_scan(path: str | os.PathLike[str]) -> Scan:
    """Reads a scan; the kind of file is told by its name.

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: naming file, field and reason.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    readers = {".mat": _read_mat, ".npz": _read_npz}
    if path.suffix not in readers:
        raise ValueError(f"{path}: a scan is one of {', '.join(readers)} (npz: see sciml.ct.scan.save_scan)")
    sinogram, geometry, unit, notes = readers[path.suffix](path)
    sinogram, repaired = _finite(np.asarray(sinogram, np.float64), path)
    if repaired:
        notes = (*notes, f"{repaired} values that are not finite were interpolated along the detector")
    if sinogram.min() < -0.1 * abs(sinogram).max():
        notes = (*notes, f"line integrals go down to {sinogram.min():.3g}: is the flat field right?")
    if sinogram.size and sinogram.min() > 1e2:
        notes = (*notes, "all line integrals are above 100: are these counts? take -log(counts/open beam)")
    return Scan(sinogram, geometry, unit, path.stem, notes)


def save_scan(path: str | os.PathLike[str], scan: Scan) -> Path:
    """Writes a scan as `.npz`, whole or not at all."""
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"{path}: the name must end in .npz")
    kind = next(name for name, kind in GEOMETRIES.items() if isinstance(scan.geometry, kind))
    fields = {
        field.name: np.asarray(getattr(scan.geometry, field.name))
        for field in dataclasses.fields(scan.geometry)
        if field.name != "bins"
    }
    with replacing(path) as temporary:
        np.savez(temporary, sinogram=scan.sinogram, geometry=kind, unit=scan.unit, **fields)
    return path


def _read_npz(path: Path) -> tuple[Any, AbstractGeometry, str, tuple[str, ...]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            data = dict(file)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(f"{path}: not a readable .npz file: {error}") from error
    kind = str(data.pop("geometry", "parallel"))
    if kind not in GEOMETRIES:
        raise ValueError(f"{path}: geometry is {kind!r}: it is one of {', '.join(GEOMETRIES)}")
    made = GEOMETRIES[kind]
    needed = ["sinogram", "angles", "spacing"]
    needed += ["source_to_axis", "source_to_detector"] if kind != "parallel" else []
    for name in needed:
        if name not in data:
            raise ValueError(f"{path}: {name} is missing; a {kind} scan needs {', '.join(needed)}")
    sinogram, unit = data.pop("sinogram"), str(data.pop("unit", "1"))
    known = {field.name for field in dataclasses.fields(made)} - {"bins"}
    for name in data:
        if name not in known:
            raise ValueError(f"{path}: {name} is no field of a {kind} scan: {', '.join(sorted(known))}")
    if sinogram.ndim != 2:
        raise ValueError(f"{path}: sinogram has shape {sinogram.shape}: it is (views, bins)")
    try:
        return sinogram, made(bins=sinogram.shape[1], **data), unit, ()  # pyright: ignore[reportCallIssue]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _read_mat(path: Path) -> tuple[Any, AbstractGeometry, str, tuple[str, ...]]:
    import scipy.io

    try:
        content = scipy.io.loadmat(path, squeeze_me=True, struct_as_record=False)
    except (ValueError, TypeError, NotImplementedError, OSError) as error:
        raise ValueError(f"{path}: not a readable MATLAB 5 file: {error}") from error
    names = [name for name in ("CtDataFull", "CtDataLimited") if name in content]
    if not names:
        raise ValueError(
            f"{path}: neither CtDataFull nor CtDataLimited in it; it is no scan of the challenge"
        )
    data: Any = content[names[0]]
    try:
        parameters = data.parameters
        degrees = np.atleast_1d(np.asarray(parameters.angles, np.float64))
        sinogram = np.atleast_2d(np.asarray(data.sinogram, np.float64))
        lengths = {
            "spacing": float(parameters.pixelSizePost),
            "source_to_axis": float(parameters.distanceSourceOrigin),
            "source_to_detector": float(parameters.distanceSourceDetector),
        }
        unit = str(parameters.distanceUnit)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {names[0]}: {error}") from error
    notes: tuple[str, ...] = ()
    if len(degrees) > 1 and abs((degrees[-1] - degrees[0]) % 360) < 1e-6 and len(sinogram) == len(degrees):
        degrees, sinogram = degrees[:-1], sinogram[:-1]
        notes = ("the last view repeats the first and was dropped",)
    return sinogram, FanBeam(np.deg2rad(degrees), sinogram.shape[1], **lengths), unit, notes


def _finite(sinogram: Float[np.ndarray, "views bins"], path: Path) -> tuple[np.ndarray, int]:
    bad = ~np.isfinite(sinogram)
    count = int(bad.sum())
    if not count:
        return sinogram, 0
    if bad.mean() > 0.05 or bad.all(1).any():
        raise ValueError(
            f"{path}: sinogram: {count} of {bad.size} values are not finite, or a whole view is; zero or"
            " negative counts before the logarithm? mask them, or leave these views out"
        )
    repaired, bins = sinogram.copy(), np.arange(sinogram.shape[1])
    for row in np.flatnonzero(bad.any(1)):
        repaired[row, bad[row]] = np.interp(bins[bad[row]], bins[~bad[row]], sinogram[row, ~bad[row]])
    return repaired, count
