"""What a highway study is made of, as configuration: where the days are, which models, how they are
calibrated.
"""

import dataclasses
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sciml.fv.calibrate import FAMILIES
from sciml.fv.source import AbstractSource, OffRamp, OnRamp, Sources
from sciml.fv.traffic_neural import NeuralModel
from sciml.typing import documented


@dataclasses.dataclass(frozen=True)
class I24Data:
    """Mornings of I-24 MOTION, named `MM-DD`; found by the registry of data sets, or in `folder`."""

    kind: Literal["i24"] = "i24"
    folder: Path | None = documented("folder of the .pt files (default: SCIML_DATA, cache, download)", None)

    DAYS = ("11-21", "11-22", "11-23", "11-28", "11-29", "11-30", "12-01", "12-02")

    def days(self) -> tuple[str, ...]:
        return self.DAYS

    def locate(self, day: str) -> tuple[str, dict[str, Any]]:
        """Path below the folder of data sets and the options of the reader."""
        return f"traffic/i24/{day.removesuffix('-2022')}-2022_post_TX.pt", {}


@dataclasses.dataclass(frozen=True)
class NGSIMData:
    """The binned NGSIM records `US101`, `US80_4pm`, `US80_5pm`; found by the registry, or in `folder`."""

    kind: Literal["ngsim"] = "ngsim"
    folder: Path | None = documented("folder of the text files (default: SCIML_DATA, cache, download)", None)
    coarsen: int = documented("rows of 20 ft averaged into a cell", 5)
    trim: int = documented("frames of 5 s cut at the ends and masked at the joins of 15-minute windows", 8)

    LANES = {"US101": 5.0, "US80_4pm": 6.0, "US80_5pm": 6.0}  # main lanes

    def days(self) -> tuple[str, ...]:
        return tuple(self.LANES)

    def locate(self, day: str) -> tuple[str, dict[str, Any]]:
        """Path below the folder of data sets and the options of the reader."""
        options = {"lanes": self.LANES.get(day, 5.0), "coarsen": self.coarsen, "trim": self.trim}
        return f"traffic/ngsim/NGSIM_{day}_Density_Data.txt", options


@dataclasses.dataclass(frozen=True)
class FileData:
    """A user's own files, one per day: NetCDF, CSV, or any other format that is read."""

    kind: Literal["files"] = "files"
    files: dict[str, Path] = dataclasses.field(
        default_factory=dict, metadata={"doc": "day = path (.nc, .csv, .pt, .txt)"}
    )
    units: dict[str, str] = dataclasses.field(
        default_factory=dict, metadata={"doc": "units of density, time, x where the file does not state them"}
    )
    lanes: float | None = documented("number of lanes, for densities that count all lanes", None)
    saturation: float | None = documented("largest density that the sensor can show [veh/km/lane]", None)

    def __post_init__(self):
        for key in self.units:
            if key not in ("density", "time", "x"):
                raise ValueError(f"units.{key}: units are given for density, time and x")

    def days(self) -> tuple[str, ...]:
        return tuple(self.files)

    def locate(self, day: str) -> tuple[str, dict[str, Any]]:
        """Path and the options of the reader."""
        options: dict[str, Any] = {}
        if self.lanes is not None:
            options["lanes"] = self.lanes
        if self.saturation is not None:
            options["saturation"] = self.saturation
        path = self.files[day]
        if path.suffix.lower() in (".csv", ".tsv", ".nc", ".nc4"):
            options["units"] = self.units
        return str(path), options


@dataclasses.dataclass(frozen=True)
class CalibrationConfig:
    """Search for the parameters on the training day; see `sciml.fv.calibrate.calibrate`."""

    samples: int = documented("parameters tried all over the box, and four times those of a round", 256)
    rounds: int = documented("largest number of rounds of the search", 30)
    seed: int = documented("seed of the samples", 0)
    bounds: dict[str, tuple[float, float]] = dataclasses.field(
        default_factory=dict,
        metadata={"doc": "admissible interval by parameter, e.g. free_flow_speed = [20, 130]"},
    )

    def __post_init__(self):
        if self.samples < 16 or self.rounds < 0:
            raise ValueError(
                f"samples = {self.samples}, rounds = {self.rounds}: need samples >= 16 and rounds >= 0"
            )


@dataclasses.dataclass(frozen=True)
class Ramp:
    """An on-ramp with a flow, or an off-ramp that takes a share of the passing traffic."""

    position: float = documented("place along the road [m]", 0.0)
    flow: tuple[float, ...] = documented("on-ramp: flow of all lanes [veh/h], one or one per time", ())
    times: tuple[float, ...] = documented("times of the flows [s], from the first frame on", ())
    fraction: float | None = documented("off-ramp: share of the passing traffic that leaves", None)

    def __post_init__(self):
        if bool(self.flow) == (self.fraction is not None):
            raise ValueError("a ramp has either a flow (on-ramp) or a fraction (off-ramp)")
        if len(self.flow) > 1 and len(self.times) != len(self.flow):
            raise ValueError(
                f"ramp: {len(self.flow)} flows but {len(self.times)} times; give one time per flow"
            )

    def build(self, lanes: float | None) -> AbstractSource:
        """The source in veh/h/lane and km."""
        if self.fraction is not None:
            return OffRamp(self.position / 1000, self.fraction)
        if lanes is None:
            raise ValueError(
                "ramps: the number of lanes is not known; a ramp's flow is shared among the lanes"
            )
        flow = np.asarray(self.flow) / lanes
        times = np.asarray(self.times) / 3600
        if flow.size == 1:
            flow, times = np.repeat(flow, 2), np.array([0.0, 1e4])
        return OnRamp(self.position / 1000, times, flow)


@dataclasses.dataclass(frozen=True)
class TrafficConfig:
    """Everything that `sciml fv traffic` needs."""

    data: I24Data | NGSIMData | FileData
    train: str = documented("day on which every diagram is calibrated", "")
    test: tuple[str, ...] = documented("days to simulate, or all", ("all",))
    diagrams: tuple[str, ...] = documented("fundamental diagrams", tuple(FAMILIES))
    schemes: tuple[str, ...] = documented("numerical schemes", ("godunov",))
    cfl: float = documented("share of the CFL limit used at the largest admissible speed", 0.95)
    calibration: CalibrationConfig = CalibrationConfig()
    neural: tuple[NeuralModel, ...] = documented("neural fluxes to train on the training day", ())
    ramps: tuple[Ramp, ...] = documented("on- and off-ramps", ())
    mask: dict[str, str] = dataclasses.field(
        default_factory=dict, metadata={"doc": 'day = cells that are not measured, e.g. "0-21,40"'}
    )
    find_copies: bool = documented("also mask neighbouring cells that hold the same series", True)
    missing: Literal["error", "mask"] = documented("NaN in the density is an error, or is masked", "error")
    normalisation: float = documented("density that counts as 1 in the errors [veh/km/lane]", 140.0)
    largest: float = documented("density above which data are refused [veh/km/lane]", 250.0)
    figures: bool = documented("draw the space-time figures", True)

    def __post_init__(self):
        if not 0 < self.cfl <= 1:
            raise ValueError(f"cfl is {self.cfl}: a share of the CFL limit lies in (0, 1]")
        if not self.normalisation > 0:
            raise ValueError(f"normalisation is {self.normalisation}: give a positive density")

    def test_days(self) -> tuple[str, ...]:
        """The days of the comparison, the training day left out."""
        named = self.data.days() if self.test == ("all",) else self.test
        return tuple(dict.fromkeys(day for day in named if day != self.train))

    def source(self, lanes: float | None) -> AbstractSource | None:
        """All ramps as one source, or none."""
        return Sources(tuple(ramp.build(lanes) for ramp in self.ramps)) if self.ramps else None

    def reader_options(self, day: str) -> dict[str, Any]:
        """Options of `density_field` that hold for all formats."""
        return {
            "masked_cells": self.mask.get(day, ""),
            "find_copies": self.find_copies,
            "missing": self.missing,
            "normalisation": self.normalisation,
            "largest": self.largest,
        }
