"""Computed tomography: exact differentiable projectors and classical reconstruction.

A scan is a geometry and a sinogram; an image is attenuation on a grid of pixels. The projector stands between
them, and everything that reconstructs uses only its `project` and `backproject`.

| question | module |
|---|---|
| which line does a bin look along? | `geometry` (parallel, fans), `volume_geometry` (panels in space) |
| where are the pixels? | `grid` |
| A f and Aᵀ p | `projector`, `volume_projector` |
| objects with closed-form sinograms, noise | `phantom` |
| images by one formula | `filtered` |
| by iteration, without and with a prior | `iterative` (SIRT, SART, CGLS), `total_variation` |
| by name; compared on phantoms | `reconstruct`, `evaluate` |
| measured scans and their files | `scan`, `io` (`hdf5`, `described`, `ctsimu`, `txrm`), `counts`, `stl` |
| geometries of other programs | `conventions` (ASTRA, CTSimU) |
| axis, offset and angles from the scan itself | `calibration` |
| how good are they? | `metrics` |
| laws that a projector must obey | `testing` |

The names below load when they are first used; importing the package starts no JAX backend.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "grid": ("ImageGrid", "VolumeGrid"),
    "geometry": ("AbstractGeometry", "ParallelBeam", "FanBeam", "CurvedFanBeam", "bin_of_axis"),
    "projector": ("AbstractProjector", "JosephProjector"),
    "volume_geometry": ("PanelView", "VolumeGeometry"),
    "volume_projector": ("VolumeProjector",),
    "filtered": ("filtered_backprojection",),
    "iterative": ("Reconstruction", "cgls", "sart", "sirt"),
    "total_variation": (
        "RegularisedReconstruction",
        "noise_level",
        "poisson_weights",
        "tv_discrepancy",
        "tv_fista",
        "tv_held_out",
        "tv_pdhg",
    ),
    "scan": ("Scan", "field_of_view", "save_scan"),
    "io": ("read_scan",),
    "counts": ("line_integrals",),
    "conventions": ("from_astra", "from_ctsimu", "to_astra", "to_ctsimu"),
    "calibration": ("Calibration", "calibrate", "centre_of_rotation"),
    "metrics": ("dice", "mcc", "psnr", "ssim"),
    "phantom": ("Box", "Ellipse", "Phantom", "PHANTOMS", "with_gaussian_noise", "with_poisson_noise"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted(_MODULE)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULE:
        return getattr(importlib.import_module(f"{__name__}.{_MODULE[name]}"), name)
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"{__name__}.{name}":
            raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
