"""Files that hold scans, told by their names: `read_scan`.

| file | what |
|---|---|
| `.mat` | fan-beam scans of the Helsinki Tomography Challenge 2022 (`CtDataFull`, `CtDataLimited`) |
| `.h5`, `.hdf5`, `.nxs` | Data-Exchange, and NXtomo with `image_key`: stacks of parallel sinograms |
| `.json` | CTSimU scenario or its metadata, with the TIFF projections (`sciml.ct.ctsimu`) |
| `.toml` | a description of TIFF files or raw numbers (`sciml.ct.described`) |
| `.sinoparams` | sv-mbirct, with the `.2Dsinodata` beside it |
| `.txrm` | Zeiss X-ray microscopes |
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

from sciml.ct.counts import interpolated, line_integrals
from sciml.ct.geometry import FanBeam, ParallelBeam
from sciml.ct.scan import GEOMETRIES, Geometry, Scan
from sciml.ct.volume_geometry import VolumeGeometry


def read_scan(path: str | os.PathLike[str], *, angles: tuple[float, float] | None = None) -> Scan:
    """Reads a scan; the kind of file is told by its name.

    Args:
        path: the file.
        angles: first and last view angle in degrees, for files that have none (HDF5).

    Raises:
        FileNotFoundError: when there is no such file.
        ValueError: naming file, field and reason.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(2, "no such file", str(path))
    readers = _readers()
    if path.suffix.lower() not in readers:
        described = path.with_suffix(".toml")
        if described.is_file():
            return read_scan(described, angles=angles)
        raise ValueError(
            f"{path}: a scan is one of {', '.join(readers)}; for TIFF or raw numbers write {described.name}"
            " beside it that describes them"
        )
    hint = {"angles": angles} if path.suffix.lower() in (".h5", ".hdf5", ".nxs") else {}
    return checked(readers[path.suffix.lower()](path, **hint), path)


def _readers() -> dict[str, Callable[..., Scan]]:
    from sciml.ct.ctsimu import read_ctsimu
    from sciml.ct.described import read_described

    return {
        ".mat": _read_htc,
        ".h5": _read_hdf5,
        ".hdf5": _read_hdf5,
        ".nxs": _read_hdf5,
        ".json": read_ctsimu,
        ".toml": read_described,
        ".sinoparams": _read_sinoparams,
        ".txrm": _read_txrm,
        ".npz": _read_npz,
    }


def checked(scan: Scan, path: Path) -> Scan:
    """The scan without a repeated last view and with finite line integrals, and notes of what looks odd."""
    sinogram, geometry, notes = scan.sinogram, scan.geometry, list(scan.notes)
    if _repeats(geometry):
        sinogram, geometry = sinogram[:-1], geometry.subset(slice(0, -1))
        notes.append("the last view repeats the first and was dropped")
    sinogram, repaired = interpolated(np.asarray(sinogram), f"{path}: line integrals")
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
        return bool(back <= 0.02 * step)
    angles = np.asarray(geometry.angles, np.float64)
    turns = (angles[-1] - angles[0]) / (2 * np.pi)
    return round(turns) != 0 and abs(turns - round(turns)) < 0.02 * abs(turns) / (len(angles) - 1)


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


# ------------------------------------------------------------------------------------------ HDF5


def _read_hdf5(path: Path, *, angles: tuple[float, float] | None) -> Scan:
    import h5py

    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise ValueError(f"{path}: not a readable HDF5 file: {error}") from error
    with file:
        if "exchange/data" in file:
            return _read_data_exchange(path, file, angles)
        keys: list[Any] = []
        file.visititems(
            lambda name, item: keys.append(item) if name.rpartition("/")[2] == "image_key" else None
        )
        if keys:
            return _read_nxtomo(path, file, keys, angles)
    raise ValueError(f"{path}: neither exchange/data (Data-Exchange) nor an image_key (NXtomo) in it")


def _read_data_exchange(path: Path, file: Any, angles: tuple[float, float] | None) -> Scan:
    data = file["exchange/data"]
    flats = file["exchange/data_white"][()] if "exchange/data_white" in file else None
    darks = file["exchange/data_dark"][()] if "exchange/data_dark" in file else None
    if "exchange/theta" in file:
        theta = file["exchange/theta"]
        given = np.asarray(theta[()], np.float64)
        unit = theta.attrs.get("units", "degrees")
        turn = np.deg2rad(given) if _text(unit).startswith("deg") else given
    else:
        turn = _angles_between(angles, len(data), f"{path}: exchange/theta")
    return _parallel_stack(path, data[()], turn, flats, darks)


def _read_nxtomo(path: Path, file: Any, keys: list[Any], angles: tuple[float, float] | None) -> Scan:
    for key in keys:
        kinds = np.asarray(key[()])
        data = _linked(path, key.parent, "data")
        if data is not None and data.ndim == 3 and len(data) == len(kinds):
            break
    else:
        raise ValueError(f"{path}: no data of three axes beside an image_key; are the linked files there?")
    images = data[()]
    views, flats, darks = (images[kinds == kind] for kind in (0, 1, 2))
    if not len(views):
        raise ValueError(f"{path}: {key.name} marks no projections (0)")
    found: list[Any] = []
    file.visititems(
        lambda name, item: (
            found.append(item)
            if name.rpartition("/")[2] == "rotation_angle" and hasattr(item, "shape")
            else None
        )
    )
    turn = next((np.asarray(item[()], np.float64) for item in found if item.shape == kinds.shape), None)
    if turn is None:
        turn = _angles_between(angles, len(views), f"{path}: rotation_angle")
    else:
        turn = np.deg2rad(turn[kinds == 0])
    return _parallel_stack(path, views, turn, flats if len(flats) else None, darks if len(darks) else None)


def _linked(path: Path, group: Any, name: str) -> Any:
    """A dataset, also when a link to another file is only right by the name of the file."""
    import h5py

    link = group.get(name, getlink=True)
    if not isinstance(link, h5py.ExternalLink):
        return group.get(name)
    for place in (path.parent / link.filename, path.parent / Path(link.filename).name):
        if place.is_file():
            return h5py.File(place, "r").get(link.path)
    return None


def _angles_between(angles: tuple[float, float] | None, views: int, where: str) -> np.ndarray:
    if angles is None:
        raise ValueError(f"{where} is missing: give the first and the last angle, --angles 0,180 (degrees)")
    return np.deg2rad(np.linspace(*angles, views))


def _parallel_stack(path: Path, counts: Any, angles: np.ndarray, flats: Any, darks: Any) -> Scan:
    counts = np.asarray(counts, np.float32)
    if counts.ndim != 3 or len(counts) != len(angles):
        raise ValueError(f"{path}: data of shape {counts.shape} and {len(angles)} angles do not fit together")
    sinogram, notes = line_integrals(counts, flats, darks, what=str(path))
    geometry = VolumeGeometry.parallel(angles, *counts.shape[1:])
    if counts.shape[1] == 1:
        return Scan(sinogram[:, 0], ParallelBeam(angles, counts.shape[2]), "px", path.stem, notes)
    return Scan(sinogram, geometry, "px", path.stem, notes)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


# ------------------------------------------------------------------------------------------ sv-mbirct, Zeiss


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
    views, bins, spacing = int(values["NViews"]), int(values["NChannels"]), float(values["DeltaChannel"])
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
    shift = float(values.get("CenterOffset", 0)) * spacing
    geometry = ParallelBeam(angles, bins, spacing, axis_shift=shift)
    return Scan(numbers.reshape(views, bins), geometry, "mm", path.stem, notes)


def _read_txrm(path: Path) -> Scan:
    import olefile

    try:
        file = olefile.OleFileIO(str(path))  # pyright: ignore[reportArgumentType]
    except OSError as error:
        raise ValueError(f"{path}: not a readable .txrm file: {error}") from error
    with file:

        def numbers(name: str, dtype: str) -> np.ndarray:
            if not file.exists(name):
                raise ValueError(f"{path}: {name} is missing")
            return np.frombuffer(file.openstream(name).read(), dtype)

        views = int(numbers("ImageInfo/NoOfImages", "<i4")[0])
        rows, bins = (int(numbers(f"ImageInfo/Image{side}", "<i4")[0]) for side in ("Height", "Width"))
        dtype = {5: "<u2", 10: "<f4"}.get(int(numbers("ImageInfo/DataType", "<i4")[0]))
        if dtype is None:
            raise ValueError(f"{path}: ImageInfo/DataType is neither 5 (uint16) nor 10 (float32)")
        angles = np.deg2rad(numbers("ImageInfo/Angles", "<f4").astype(np.float64))[:views]
        pixel = float(numbers("ImageInfo/PixelSize", "<f4")[0]) / 1000
        to_axis, from_axis = (
            abs(float(numbers(f"ImageInfo/{name}Distance", "<f4")[0])) for name in ("StoRA", "DtoRA")
        )
        images = []
        for k in range(views):
            image = numbers(f"ImageData{k // 100 + 1}/Image{k + 1}", dtype)
            if image.size != rows * bins:
                raise ValueError(f"{path}: image {k + 1} has {image.size} pixels, not {rows} x {bins}")
            images.append(image.reshape(rows, bins).astype(np.float32))
        flats = None
        if file.exists("ReferenceData/Image"):
            flats = numbers("ReferenceData/Image", dtype).reshape(rows, bins)
    sinogram, notes = line_integrals(np.stack(images), flats, what=str(path))
    if to_axis <= 1.5 or from_axis <= 1.5:  # zone plates have no source distance: 1 stands for none
        return Scan(
            sinogram,
            VolumeGeometry.parallel(angles, rows, bins, pixel),
            "mm",
            path.stem,
            (*notes, "no source distance: parallel rays"),
        )
    magnification = (to_axis + from_axis) / to_axis
    geometry = VolumeGeometry.cone(
        angles,
        rows,
        bins,
        pixel * magnification,
        source_to_axis=to_axis,
        source_to_detector=to_axis + from_axis,
    )
    return Scan(sinogram, geometry, "mm", path.stem, notes)
