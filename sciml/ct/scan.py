"""Measured scans: line integrals with their geometry. `sciml.ct.io` reads them, `save_scan` writes them."""

import dataclasses
import os
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float

from sciml.ct.geometry import AbstractGeometry, CurvedFanBeam, FanBeam, ParallelBeam
from sciml.ct.grid import ImageGrid, VolumeGrid
from sciml.ct.volume_geometry import VolumeGeometry
from sciml.files import replacing

Geometry = AbstractGeometry | VolumeGeometry

GEOMETRIES: dict[str, type[AbstractGeometry] | type[VolumeGeometry]] = {
    "parallel": ParallelBeam,
    "fan": FanBeam,
    "curved-fan": CurvedFanBeam,
    "volume": VolumeGeometry,
}


@dataclasses.dataclass(frozen=True)
class Scan:
    """Line integrals and how they were measured.

    Args:
        sinogram: line integrals, shape `geometry.shape`: (views, bins), or (views, rows, bins) of a panel.
        geometry: scan geometry.
        unit: unit of its lengths, such as "mm".
        name: what was scanned.
        notes: what was repaired or looks odd.

    Raises:
        ValueError: when sinogram and geometry do not fit together.
    """

    sinogram: Float[np.ndarray, "views *panel"]
    geometry: Geometry
    unit: str = "1"
    name: str = "scan"
    notes: tuple[str, ...] = ()

    def __post_init__(self):
        shape, expected = np.shape(self.sinogram), self.geometry.shape
        if shape != expected:
            turned = len(shape) > 1 and shape[-1] == self.geometry.views
            swapped = "; are views and bins swapped?" if turned else ""
            raise ValueError(
                f"{self.name}: the sinogram has shape {shape}, angles and detector say {expected}{swapped}"
            )

    @property
    def is_volume(self) -> bool:
        """Whether the detector is a panel, so that a volume is reconstructed."""
        return isinstance(self.geometry, VolumeGeometry)

    def thinned(self, views: int) -> "Scan":
        """The scan with that many of its views, as equally spaced in the order of the file as can be."""
        have = self.geometry.views
        if not 1 <= views <= have:
            raise ValueError(f"{self.name} has {have} views: choose 1 to {have}, not {views}")
        index = np.arange(views) * have // views
        return dataclasses.replace(self, sinogram=self.sinogram[index], geometry=self.geometry.subset(index))

    def row(self, number: int) -> "Scan":
        """The scan in the plane of one row of a panel with parallel rays, counted from the top.

        Raises:
            ValueError: for another geometry, a tilted panel, or a row that does not exist.
        """
        geometry = self.geometry
        if not isinstance(geometry, VolumeGeometry) or not geometry.is_parallel:
            raise ValueError(
                f"{self.name}: only the rows of a panel with parallel rays are scans by themselves"
            )
        if not 0 <= number < geometry.rows:
            raise ValueError(f"{self.name} has {geometry.rows} rows: choose 0 to {geometry.rows - 1}")
        u, source = np.asarray(geometry.u_step), np.asarray(geometry.source)
        if abs(u[:, 2]).max() > 1e-6 * abs(u).max() or abs(source[:, 2]).max() > 1e-6:
            raise ValueError(f"{self.name}: the panel or the rays are tilted: reconstruct the whole volume")
        spacing = np.linalg.norm(u, axis=1)
        offset = (np.asarray(geometry.middle) * u).sum(1) / spacing
        if np.ptp(spacing) > 1e-6 * spacing[0]:
            raise ValueError(f"{self.name}: the spacing changes from view to view: reconstruct the volume")
        angles = np.unwrap(np.arctan2(u[:, 1], u[:, 0]))
        same = np.ptp(offset) <= 1e-6 * max(spacing[0], abs(offset).max())
        offset = jax.numpy.asarray(offset[0] if same else offset)
        plane = ParallelBeam(angles, geometry.bins, float(spacing[0]), detector_offset=offset)
        name = f"{self.name}-row-{number}"
        return dataclasses.replace(self, sinogram=self.sinogram[:, number], geometry=plane, name=name)

    def rows_between(self, first: int, stop: int) -> "Scan":
        """The scan of some rows of a panel, counted from the top, at the height where they are.

        Raises:
            ValueError: for a scan in the plane, or rows that do not exist.
        """
        if not isinstance(self.geometry, VolumeGeometry):
            raise ValueError(f"{self.name}: a scan in the plane has no rows to choose from")
        if not 0 <= first < stop <= self.geometry.rows:
            raise ValueError(f"{self.name} has {self.geometry.rows} rows: choose some of them")
        geometry = some_rows(self.geometry, first, stop)
        return dataclasses.replace(self, sinogram=self.sinogram[:, first:stop], geometry=geometry)

    def grid(self, rows: int | None = None, pixel: float | None = None) -> ImageGrid | VolumeGrid:
        """Square pixels over the disc that every view sees: as many rows as bins, at most 512, by default.

        For a panel cubic voxels, at most 256 rows, and as many slices as its rows see on the axis.
        """
        largest = 256 if self.is_volume else 512
        rows = min(self.geometry.bins, largest) if rows is None else rows
        radius, height = field_of_view(self.geometry)
        pixel = 2 * radius / rows if pixel is None else pixel
        if not self.is_volume:
            return ImageGrid(rows, pixel=pixel)
        return VolumeGrid(max(1, round(height / pixel)), rows, pixel=pixel)


def some_rows(geometry: VolumeGeometry, first: int, stop: int) -> VolumeGeometry:
    """The geometry of the rows from `first` to before `stop`."""
    middle = geometry.middle + ((first + stop - 1) / 2 - (geometry.rows - 1) / 2) * geometry.v_step
    return VolumeGeometry(
        geometry.source, middle, geometry.u_step, geometry.v_step, rows=stop - first, bins=geometry.bins
    )


def field_of_view(geometry: Geometry) -> tuple[float, float]:
    """Radius of the largest disc around the rotation axis that the longer side of the detector sees, and
    the height that a panel sees on the axis (0 for a scan in the plane) [length].
    """
    if not isinstance(geometry, VolumeGeometry):
        bins = np.array([-0.5, geometry.bins - 0.5])
        lines = jax.vmap(lambda view: view.line(bins)[2])(geometry.scanner())
        radius = float(abs(np.asarray(lines)).max(1).min())
        return (radius if radius > 0 else 1.0), 0.0
    row = np.full(2, (geometry.rows - 1) / 2)
    bin = np.array([-0.5, geometry.bins - 0.5])

    def reach(view):
        point, direction = view.ray(row, bin)
        across = abs(point[0] * direction[1] - point[1] * direction[0])
        return across / jax.numpy.hypot(direction[0], direction[1])

    radius = float(np.asarray(jax.vmap(reach)(geometry.scanner())).max(1).min())
    cameras = np.asarray(jax.vmap(lambda view: view.camera())(geometry.scanner()))
    rate = (cameras[:, 1, 2] * cameras[:, 2, 3] - cameras[:, 1, 3] * cameras[:, 2, 2]) / cameras[:, 2, 3] ** 2
    height = float(geometry.rows / abs(rate).max()) if abs(rate).max() > 0 else 2 * radius
    return (radius if radius > 0 else 1.0), height


def save_scan(path: str | os.PathLike[str], scan: Scan) -> Path:
    """Writes a scan as `.npz`, whole or not at all: arrays under the names of the geometry's fields."""
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"{path}: the name must end in .npz")
    kind = next(name for name, kind in GEOMETRIES.items() if isinstance(scan.geometry, kind))
    arrays = {
        field.name: np.asarray(getattr(scan.geometry, field.name))
        for field in dataclasses.fields(scan.geometry)
        if field.name not in ("bins", "rows")
    }
    arrays |= {"sinogram": np.asarray(scan.sinogram), "geometry": np.array(kind), "unit": np.array(scan.unit)}
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
    return path
