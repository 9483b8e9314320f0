"""Scans of Zeiss X-ray microscopes (`.txrm`, an OLE container): `read_txrm`.

PixelSize is that of the object; the panel's is larger by the magnification. Angles turn counter-clockwise,
and the shifts of every view move its pixels to the right and downwards, as in CIL's reader of these files.
"""

from pathlib import Path
from typing import Any

import numpy as np

from sciml.ct.counts import line_integrals
from sciml.ct.scan import Scan
from sciml.ct.volume_geometry import VolumeGeometry

_TYPES = {5: "<u2", 10: "<f4"}


def read_txrm(path: Path) -> Scan:
    """Reads a scan of a Zeiss X-ray microscope, lengths in millimetres.

    Raises:
        ValueError: naming the file, the field and the reason.
    """
    import olefile

    try:
        file = olefile.OleFileIO(str(path))  # pyright: ignore[reportArgumentType]
    except OSError as error:
        raise ValueError(f"{path}: not a readable .txrm file: {error}") from error
    with file:
        return _txrm(path, file)


def _txrm(path: Path, file: Any) -> Scan:
    def numbers(name: str, dtype: str, count: int = 1) -> np.ndarray:
        if not file.exists(name):
            raise ValueError(f"{path}: {name} is missing")
        content = file.openstream(name).read()
        found = np.frombuffer(
            content[: len(content) // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize], dtype
        )
        if len(found) < count:
            raise ValueError(f"{path}: {name} has {len(found)} numbers, not {count}: is the file cut short?")
        return found[:count]

    def image(name: str, kind: str) -> np.ndarray:
        code = int(numbers(kind, "<i4")[0])
        if code not in _TYPES:
            raise ValueError(f"{path}: {kind} is {code}, neither 5 (uint16) nor 10 (float32)")
        return numbers(name, _TYPES[code], rows * bins).reshape(rows, bins)

    def per_view(name: str) -> np.ndarray:
        return numbers(name, "<f4", views).astype(np.float64) if file.exists(name) else np.zeros(views)

    views = int(numbers("ImageInfo/NoOfImages", "<i4")[0])
    rows, bins = (int(numbers(f"ImageInfo/Image{side}", "<i4")[0]) for side in ("Height", "Width"))
    pixel = float(numbers("ImageInfo/PixelSize", "<f4")[0]) / 1000
    to_axis, from_axis = (
        abs(float(numbers(f"ImageInfo/{name}Distance", "<f4")[0])) for name in ("StoRA", "DtoRA")
    )
    angles = np.deg2rad(numbers("ImageInfo/Angles", "<f4", views).astype(np.float64))
    images = [image(f"ImageData{k // 100 + 1}/Image{k + 1}", "ImageInfo/DataType") for k in range(views)]
    flat = None
    if file.exists("ReferenceData/Image"):
        own = "ReferenceData/DataType"
        flat = image("ReferenceData/Image", own if file.exists(own) else "ImageInfo/DataType")
    across, down = per_view("Alignment/X-Shifts"), per_view("Alignment/Y-Shifts")
    sinogram, counted = line_integrals(np.stack(images), flat, what=str(path))
    notes = list(counted)
    if across.any() or down.any():
        largest = max(abs(across).max(), abs(down).max())
        notes.append(
            f"views are shifted by up to {largest:.3g} pixels, as Alignment/X-Shifts and Y-Shifts say"
        )
    centre = numbers("ReconSettings/CenterShift", "<f4")[0] if file.exists("ReconSettings/CenterShift") else 0
    if centre:
        notes.append(f"ReconSettings/CenterShift of {centre:.4g} pixels is not applied: calibrate axis_shift")
    offsets: dict[str, Any]
    distances: dict[str, Any]
    try:
        if to_axis <= 1.5 or from_axis <= 1.5:  # zone plates have no source distance: 1 stands for none
            notes.append("no source distance: parallel rays")
            offsets = {"detector_offset": across * pixel, "vertical_offset": -down * pixel}
            geometry = VolumeGeometry.parallel(angles, rows, bins, pixel, **offsets)
        else:
            pitch = pixel * (to_axis + from_axis) / to_axis
            offsets = {"detector_offset": across * pitch, "vertical_offset": -down * pitch}
            distances = {"source_to_axis": to_axis, "source_to_detector": to_axis + from_axis}
            geometry = VolumeGeometry.cone(angles, rows, bins, pitch, **distances, **offsets)
        return Scan(sinogram, geometry, "mm", path.stem, tuple(notes))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
