"""Paired comparison of reconstruction methods on phantoms with closed-form sinograms.

The line integrals are exact and averaged over the detector bins, so the data know nothing of the pixels;
the truth is the average of the phantom over every pixel. Every method gets the same data.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import numpy as np

from sciml.ct.geometry import AbstractGeometry, CurvedFanBeam, FanBeam, ParallelBeam
from sciml.ct.grid import ImageGrid
from sciml.ct.metrics import psnr, ssim
from sciml.ct.phantom import PHANTOMS, with_gaussian_noise
from sciml.ct.reconstruct import METHODS, Outcome, Settings, reconstruct
from sciml.typing import documented


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Which objects, scans and methods are compared."""

    phantoms: tuple[str, ...] = documented(
        "phantoms by name", ("hollow-square", "slotted-blocks", "curved-part")
    )
    views: tuple[int, ...] = documented("numbers of views", (16,))
    turns: tuple[float, ...] = documented("degrees by which the phantoms are turned, one case each", (0.0,))
    noise: tuple[float, ...] = documented(
        "standard deviations in parts of the largest line integral", (0.0, 0.01)
    )
    methods: tuple[str, ...] = documented("methods by name", METHODS)
    geometry: Literal["parallel", "fan", "curved-fan"] = documented(
        "beam; parallel views over half a turn, others over a whole one", "parallel"
    )
    rows: int = documented("rows and columns of the image, which is 2 wide", 128)
    bins: int = documented("detector bins, over 3 at the rotation axis", 192)
    known_noise: bool = documented("tell the methods the true standard deviation of the noise", False)
    seed: int = documented("seed of the noise", 0)
    precision: Literal["float32", "float64"] = documented("float32 or float64", "float32")
    settings: Settings = documented("settings of the methods", Settings())

    def __post_init__(self):
        for what, names, known in (("phantom", self.phantoms, PHANTOMS), ("method", self.methods, METHODS)):
            if not names:
                raise ValueError(f"{what}s must name at least one of {', '.join(known)}")
            for name in names:
                if name not in known:
                    raise ValueError(f"unknown {what} {name!r}; known: {', '.join(known)}")
        for name, least in (("rows", 2), ("bins", 5)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}: give at least {least}")
        if not self.views or min(self.views) < 1:
            raise ValueError(f"views is {self.views}: give numbers of at least 1")
        if not self.turns:
            raise ValueError("turns must name at least one angle")
        if not self.noise or min(self.noise) < 0:
            raise ValueError(f"noise is {self.noise}: give numbers of at least 0")

    @property
    def grid(self) -> ImageGrid:
        """The pixels."""
        return ImageGrid(self.rows, pixel=2 / self.rows)

    def scan(self, views: int) -> AbstractGeometry:
        """The geometry with that many views."""
        if self.geometry == "parallel":
            return ParallelBeam(np.arange(views) * np.pi / views, self.bins, 3 / self.bins)
        beam = FanBeam if self.geometry == "fan" else CurvedFanBeam
        angles = np.arange(views) * 2 * np.pi / views
        return beam(angles, self.bins, 4.5 / self.bins, source_to_axis=6.0, source_to_detector=9.0)


@dataclasses.dataclass(frozen=True)
class Case:
    """One phantom in one scan, by all methods."""

    phantom: str
    turn: float
    views: int
    noise: float
    truth: np.ndarray
    sinogram: np.ndarray
    outcomes: dict[str, Outcome]

    def rows(self) -> dict[str, dict[str, Any]]:
        """Scores by method."""
        return {
            name: {
                "psnr": psnr(outcome.image, self.truth),
                "ssim": ssim(outcome.image, self.truth),
                "residual": outcome.residual,
                "seconds_with_compilation": round(outcome.seconds, 3),
                **outcome.extra,
            }
            for name, outcome in self.outcomes.items()
        }


def evaluate(protocol: Protocol, progress: Callable[[Case], None] = lambda case: None) -> list[Case]:
    """Runs every method on every case; `progress` hears of each when it is done."""
    cases = []
    for views in protocol.views:
        geometry = protocol.scan(views)
        for name in protocol.phantoms:
            for relative in protocol.noise:
                for number, turn in enumerate(protocol.turns):
                    phantom = PHANTOMS[name]().turned(float(np.deg2rad(turn)))
                    truth, clean = phantom.raster(protocol.grid), phantom.sinogram(geometry, samples=5)
                    key = jax.random.key(protocol.seed + number)
                    data = np.asarray(with_gaussian_noise(clean, relative, key=key))
                    settings = protocol.settings
                    if protocol.known_noise:
                        settings = dataclasses.replace(settings, noise=relative * float(clean.max()))
                    outcomes = {
                        method: reconstruct(method, data, geometry, protocol.grid, settings)  # pyright: ignore
                        for method in protocol.methods
                    }
                    cases.append(Case(name, turn, views, relative, truth, data, outcomes))
                    progress(cases[-1])
    return cases


def means(cases: list[Case]) -> dict[str, dict[str, Any]]:
    """Means of the scores over cases that differ only in the turn, by method, with the spread of the PSNR."""
    tables = [case.rows() for case in cases]
    found: dict[str, dict[str, Any]] = {}
    for name, row in tables[0].items():
        found[name] = {key: float(np.mean([table[name][key] for table in tables])) for key in row}
        if len(cases) > 1:
            found[name]["psnr_std"] = float(np.std([table[name]["psnr"] for table in tables]))
    return found
