"""Files that hold scans, told by their names: `read_scan`.

| file | what |
|---|---|
| `.mat` | fan-beam scans of the Helsinki Tomography Challenge 2022 (`CtDataFull`, `CtDataLimited`) |
| `.h5`, `.hdf5`, `.nxs` | Data-Exchange, NXtomo with `image_key`: stacks of sinograms (`sciml.ct.hdf5`) |
| `.json` | CTSimU scenario or its metadata, with the TIFF projections (`sciml.ct.ctsimu`) |
| `.toml` | a description of TIFF files or raw numbers (`sciml.ct.described`) |
| `.sinoparams` | sv-mbirct, with the `.2Dsinodata` beside it |
| `.txrm` | Zeiss X-ray microscopes (`sciml.ct.txrm`) |
| `.npz` | what `save_scan` writes |

What can be repaired is, and `Scan.notes` says so: readings without a logarithm are interpolated, a last view
that repeats the first is dropped.
"""

import dataclasses
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from sciml.ct.counts import interpolated
from sciml.ct.ctsimu import Deviations
from sciml.ct.geometry import FanBeam, ParallelBeam
from sciml.ct.scan import GEOMETRIES, Geometry, Scan
from sciml.ct.volume_geometry import VolumeGeometry


def read_scan(
    path: str | os.PathLike[str],
    *,
    angles: tuple[float, float] | None = None,
    rows: tuple[int, int] | None = None,
    deviations: Deviations = "all",
) -> Scan:
    """Reads a scan; the kind of file is told by its name.

    Args:
        path: the file.
        angles: first and last view angle in degrees, for files that have none (HDF5).
        rows: first row of a panel and the one after the last, from the top; of HDF5, TIFF and raw numbers
            only these are loaded. Default all.
        deviations: which deviations from the ideal geometry count in a CTSimU scenario: "all", those that
            are "known" to the reconstruction, or "none".

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: naming file, field and reason.
    """
    path = Path(path)
    if path.is_dir():
        raise ValueError(f"{path}: a folder; describe its images in a TOML file and read that")
    if not path.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    readers = _readers()
    if path.suffix.lower() not in readers:
        described = path.with_suffix(".toml")
        if described.is_file():
            return read_scan(described, rows=rows)
        raise ValueError(
            f"{path}: a scan is one of {', '.join(readers)}; for TIFF or raw numbers write {described.name}"
            " beside it that describes them"
        )
    reader, takes = readers[path.suffix.lower()]
    options = {"angles": angles, "rows": rows, "deviations": deviations}
    try:
        scan = reader(path, **{name: options[name] for name in takes})
        if rows is not None and "rows" not in takes:
            scan = scan.rows_between(*rows)
        return checked(scan, path)
    except (ValueError, TypeError, AttributeError, LookupError) as error:  # a field of another kind
        known = isinstance(error, ValueError) and str(path.parent) in str(error)
        raise (error if known else ValueError(f"{path}: {error}")) from error


def _readers() -> dict[str, tuple[Callable[..., Scan], tuple[str, ...]]]:
    from sciml.ct.ctsimu import read_ctsimu
    from sciml.ct.described import read_described
    from sciml.ct.hdf5 import read_hdf5
    from sciml.ct.txrm import read_txrm

    return {
        ".mat": (_read_htc, ()),
        **dict.fromkeys((".h5", ".hdf5", ".nxs"), (read_hdf5, ("angles", "rows"))),
        ".json": (read_ctsimu, ("deviations",)),
        ".toml": (read_described, ("rows",)),
        ".sinoparams": (_read_sinoparams, ()),
        ".txrm": (read_txrm, ()),
        ".npz": (_read_npz, ()),
    }


def checked(scan: Scan, path: Path) -> Scan:
    """The scan without a repeated last view and with finite line integrals, and notes of what looks odd."""
    sinogram, geometry, notes = np.asarray(scan.sinogram), scan.geometry, list(scan.notes)
    if sinogram.dtype.kind not in "fiub":
        raise ValueError(f"{path}: the line integrals are {sinogram.dtype}: they must be real numbers")
    if sinogram.dtype not in (np.float32, np.float64):
        sinogram = sinogram.astype(np.float32)
    if _repeats(geometry):
        sinogram, geometry = sinogram[:-1], geometry.subset(slice(0, -1))
        notes.append("the last view repeats the first and was dropped")
    sinogram, repaired = interpolated(sinogram, f"{path}: line integrals")
    if repaired:
        notes.append(f"{repaired} values that are not finite were interpolated along the detector")
    largest = float(abs(sinogram).max())
    if sinogram.min() < -0.1 * largest:
        notes.append(f"line integrals go down to {sinogram.min():.3g}: is the flat field right?")
    if sinogram.min() > 100:
        notes.append("all line integrals are above 100: are these counts? take -log(counts/open beam)")
    if largest == 0:
        notes.append("all line integrals are zero")
    edges = np.abs(sinogram[..., [0, -1]])
    if largest > 0 and (np.median(edges, axis=tuple(range(edges.ndim - 1))) > 0.1 * largest).any():
        notes.append("attenuation at the edge of the detector: the object is wider than the field of view")
    angles = np.unwrap(np.asarray(geometry.angles, np.float64))
    turned = np.rad2deg(np.ptp(angles))
    if geometry.views > 10 and turned < 7:
        notes.append(f"all views lie within {turned:.3g} degrees: are these angles radians?")
    if geometry.views == 1:
        notes.append("a single view: no image can be told from it")
    if geometry.bins == 1:
        notes.append("a single detector bin: no image can be told from it")
    return dataclasses.replace(scan, sinogram=sinogram, geometry=geometry, notes=tuple(notes))


def _repeats(geometry: Geometry) -> bool:
    """Whether the last view is taken from where the first one is."""
    if geometry.views < 3:
        return False
    if isinstance(geometry, VolumeGeometry):
        vectors = np.concatenate([geometry.source, geometry.middle, geometry.u_step, geometry.v_step], axis=1)
        step, back = (abs(vectors[k] - vectors[0]).max() for k in (1, -1))
        return bool(step > 0 and back <= 0.02 * step)
    angles = np.asarray(geometry.angles, np.float64)
    turns = (angles[-1] - angles[0]) / (2 * np.pi)
    step = abs(turns) / (len(angles) - 1)
    return round(turns) != 0 and step < 0.5 and abs(turns - round(turns)) < 0.02 * step


# ------------------------------------------------------------------------------------------ npz, mat


def _read_npz(path: Path) -> Scan:
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            data = dict(file)
    except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: not a readable .npz file: {error}") from error
    kind = str(data.pop("geometry", "parallel"))
    if kind not in GEOMETRIES:
        raise ValueError(f"{path}: geometry is {kind!r}: it is one of {', '.join(GEOMETRIES)}")
    made = GEOMETRIES[kind]
    needed = {
        "parallel": ["angles", "spacing"],
        "volume": ["source", "middle", "u_step", "v_step"],
    }.get(kind, ["angles", "spacing", "source_to_axis", "source_to_detector"])
    for name in ("sinogram", *needed):
        if name not in data:
            raise ValueError(f"{path}: {name} is missing; a {kind} scan needs sinogram, {', '.join(needed)}")
    sinogram, unit = data.pop("sinogram"), str(data.pop("unit", "1"))
    known = {field.name for field in dataclasses.fields(made)} - {"bins", "rows"}
    for name in data:
        if name not in known:
            raise ValueError(f"{path}: {name} is no field of a {kind} scan: {', '.join(sorted(known))}")
    axes = 3 if kind == "volume" else 2
    if sinogram.ndim != axes:
        expected = "(views, rows, bins)" if axes == 3 else "(views, bins)"
        raise ValueError(f"{path}: sinogram has shape {sinogram.shape}: it is {expected}")
    sizes: dict[str, Any] = {"bins": sinogram.shape[-1]}
    sizes |= {"rows": sinogram.shape[1]} if axes == 3 else {}
    try:
        return Scan(sinogram, made(**sizes, **data), unit, path.stem)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _read_htc(path: Path) -> Scan:
    import scipy.io

    try:
        content = scipy.io.loadmat(path, squeeze_me=True, struct_as_record=False)
    except (ValueError, TypeError, NotImplementedError, OSError, EOFError) as error:
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
        sinogram = np.atleast_2d(np.asarray(data.sinogram, np.float32))
        geometry = FanBeam(
            np.deg2rad(degrees),
            sinogram.shape[1],
            float(parameters.pixelSizePost),
            source_to_axis=float(parameters.distanceSourceOrigin),
            source_to_detector=float(parameters.distanceSourceDetector),
        )
        return Scan(sinogram, geometry, str(parameters.distanceUnit), path.stem)
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: {names[0]}: {error}") from error


# ------------------------------------------------------------------------------------------ sv-mbirct


def _read_sinoparams(path: Path) -> Scan:
    values: dict[str, str] = {}
    for line in path.read_text(errors="replace").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            values[name.strip()] = value.strip()
    for name in ("NChannels", "NViews", "DeltaChannel"):
        if name not in values:
            raise ValueError(f"{path}: {name} is missing")
    if values.get("Geometry", "parallel") != "parallel":
        raise ValueError(f"{path}: Geometry is {values['Geometry']!r}: only parallel is known")
    try:
        views, bins, spacing = int(values["NViews"]), int(values["NChannels"]), float(values["DeltaChannel"])
        shift = float(values.get("CenterOffset", 0)) * spacing
    except ValueError as error:
        raise ValueError(
            f"{path}: NViews, NChannels, DeltaChannel or CenterOffset is no number: {error}"
        ) from error
    files = sorted(path.parent.glob(f"{path.stem}_slice*.2Dsinodata"))
    if not files:
        raise ValueError(f"{path}: no {path.stem}_slice*.2Dsinodata beside it")
    numbers = np.fromfile(files[0], "<f4")
    if numbers.size != views * bins:
        raise ValueError(f"{files[0]}: {numbers.size} numbers, not {views} views of {bins} channels")
    listed = path.parent / values.get("ViewAngleList", "ViewAngleList.txt")
    notes: tuple[str, ...] = ()
    if listed.is_file():
        angles = np.loadtxt(listed, ndmin=1)
    else:
        angles = np.arange(views) * np.pi / views
        notes = (f"{listed.name} is missing: {views} equal steps over half a turn were taken",)
    if len(angles) != views:
        raise ValueError(f"{listed}: {len(angles)} angles for {views} views")
    geometry = ParallelBeam(angles, bins, spacing, axis_shift=shift)
    return Scan(numbers.reshape(views, bins), geometry, "mm", path.stem, notes)
