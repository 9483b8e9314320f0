"""Small scans of every kind, and projections compiled once per size."""

import equinox as eqx
import numpy as np

from sciml.ct import CurvedFanBeam, FanBeam, ImageGrid, ParallelBeam

GEOMETRIES = ("parallel", "fan", "curved")


@eqx.filter_jit
def project(projector, image):
    return projector.project(image)


@eqx.filter_jit
def backproject(projector, sinogram):
    return projector.backproject(sinogram)


def angles_of(views, turn=2 * np.pi, first=0.1):
    return first + np.arange(views) * turn / views


def geometry(kind, views=24, bins=40, *, width=2.4, turn=2 * np.pi, first=0.1, **lengths):
    """A scan of the unit disc, whose shadow at the rotation axis is `width` wide."""
    angles = angles_of(views, turn, first)
    if kind == "parallel":
        return ParallelBeam(angles, bins, width / bins, **lengths)
    distances = {"source_to_axis": 4.0, "source_to_detector": 6.0, **lengths}
    return (FanBeam if kind == "fan" else CurvedFanBeam)(angles, bins, 1.5 * width / bins, **distances)


def unit_grid(rows, columns=None):
    """Pixels that cover the square around the unit disc."""
    return ImageGrid(rows, columns, pixel=2 / rows)
