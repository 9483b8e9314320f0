"""Pixel and voxel grids: where the centre of every pixel lies, by values that never change during a run."""

import dataclasses

import numpy as np
from jaxtyping import Float


@dataclasses.dataclass(frozen=True)
class ImageGrid:
    """Square pixels around the rotation axis; hashable, so static under `jax.jit`.

    Column i and row j of an image have their centre at x = (i - (columns - 1)/2)·pixel + centre[0] and
    y = ((rows - 1)/2 - j)·pixel + centre[1]: x to the right, y upwards, the first row on top.

    Args:
        rows: number of rows, at least 1.
        columns: number of columns, at least 1; default as many as rows.
        pixel: side h of a pixel [length unit of the geometry].
        centre: position of the middle of the image relative to the rotation axis [same unit].

    Raises:
        ValueError: when a size is not a positive integer, or the pixel no positive length.
    """

    rows: int
    columns: int | None = None
    pixel: float = 1.0
    centre: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self):
        columns = self.rows if self.columns is None else self.columns
        for name, value in (("rows", self.rows), ("columns", columns)):
            if int(value) != value or value < 1:
                raise ValueError(f"grid.{name} is {value}: give a whole number of at least 1")
            object.__setattr__(self, name, int(value))
        object.__setattr__(self, "pixel", float(self.pixel))
        object.__setattr__(self, "centre", (float(self.centre[0]), float(self.centre[1])))
        if not (np.isfinite(self.pixel) and self.pixel > 0):
            raise ValueError(f"grid.pixel is {self.pixel}: give the side of a pixel as a positive length")
        if not np.isfinite(self.centre).all():
            raise ValueError(f"grid.centre is {self.centre}: give two finite lengths")

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns), the shape of an image."""
        assert self.columns is not None
        return self.rows, self.columns

    @property
    def x(self) -> Float[np.ndarray, " columns"]:
        """Positions of the columns (float64)."""
        return (np.arange(self.shape[1]) - (self.shape[1] - 1) / 2) * self.pixel + self.centre[0]

    @property
    def y(self) -> Float[np.ndarray, " rows"]:
        """Positions of the rows, from the top downwards (float64)."""
        return ((self.rows - 1) / 2 - np.arange(self.rows)) * self.pixel + self.centre[1]

    @property
    def radius(self) -> float:
        """Largest distance of a point of the image from the rotation axis."""
        half = np.array(self.shape[::-1]) * self.pixel / 2
        return float(np.hypot(*(half + np.abs(self.centre))))


@dataclasses.dataclass(frozen=True)
class VolumeGrid:
    """Cubic voxels around the rotation axis; slices are images, the first one on top.

    Slice k of a volume lies at z = ((slices - 1)/2 - k)·pixel + centre[2]; rows and columns as in
    `ImageGrid`.

    Args:
        slices: number of slices, at least 1.
        rows: number of rows; default as many as slices.
        columns: number of columns; default as many as rows.
        pixel: edge h of a voxel [length unit of the geometry].
        centre: position (x, y, z) of the middle of the volume [same unit].

    Raises:
        ValueError: when a size is not a positive integer, or the voxel no positive length.
    """

    slices: int
    rows: int | None = None
    columns: int | None = None
    pixel: float = 1.0
    centre: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def __post_init__(self):
        rows = self.slices if self.rows is None else self.rows
        plane = ImageGrid(rows, self.columns, self.pixel, (self.centre[0], self.centre[1]))
        if int(self.slices) != self.slices or self.slices < 1:
            raise ValueError(f"grid.slices is {self.slices}: give a whole number of at least 1")
        if not np.isfinite(self.centre[2]):
            raise ValueError(f"grid.centre is {self.centre}: give three finite lengths")
        for name, value in (
            ("slices", int(self.slices)),
            ("rows", plane.shape[0]),
            ("columns", plane.shape[1]),
            ("pixel", plane.pixel),
            ("centre", (*plane.centre, float(self.centre[2]))),
        ):
            object.__setattr__(self, name, value)

    @property
    def plane(self) -> ImageGrid:
        """Pixels of a slice."""
        assert self.rows is not None
        return ImageGrid(self.rows, self.columns, self.pixel, self.centre[:2])

    @property
    def shape(self) -> tuple[int, int, int]:
        """(slices, rows, columns), the shape of a volume."""
        return self.slices, *self.plane.shape

    @property
    def x(self) -> Float[np.ndarray, " columns"]:
        """Positions of the columns (float64)."""
        return self.plane.x

    @property
    def y(self) -> Float[np.ndarray, " rows"]:
        """Positions of the rows, from the top of a slice downwards (float64)."""
        return self.plane.y

    @property
    def z(self) -> Float[np.ndarray, " slices"]:
        """Positions of the slices, from the top downwards (float64)."""
        return ((self.slices - 1) / 2 - np.arange(self.slices)) * self.pixel + self.centre[2]
