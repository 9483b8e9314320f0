"""Measured and independently simulated scans: axes that are found, volumes compared with the mesh they were
simulated from, and a scan whose geometry is wrong, repaired from its own line integrals.

    python experiments/ct/scans.py experiments/ct/scans.toml --out runs/scans
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

import jax
import numpy as np

from sciml import plot
from sciml.cli.arguments import RunOptions, open_run, parse_arguments
from sciml.cli.fv import _text_table
from sciml.config import ConfigError
from sciml.ct import PHANTOMS, FanBeam, ImageGrid, ParallelBeam, Scan, VolumeGrid, with_gaussian_noise
from sciml.ct.calibration import calibrate, centre_of_rotation
from sciml.ct.ctsimu import read_ctsimu
from sciml.ct.geometry import bin_of_axis
from sciml.ct.io import checked, read_scan
from sciml.ct.metrics import psnr
from sciml.ct.reconstruct import Settings, reconstruct
from sciml.ct.stl import read_stl, voxelise
from sciml.report import Report
from sciml.train.run import Run
from sciml.typing import documented


@dataclasses.dataclass(frozen=True)
class Config:
    """Which parts run, and at which size."""

    data: Path | None = documented("folder of the scans; default ct/ below SCIML_DATA", None)
    parts: tuple[str, ...] = documented("axis, cone, calibration", ("axis", "cone", "calibration"))
    rows: int = documented("rows of images and volumes", 96)
    tv_iterations: int = documented("iterations of the total variation of volumes", 60)
    tv_weight: float = documented("its weight", 0.2)
    bins: int = documented("detector bins of the scan that is repaired", 192)

    def __post_init__(self):
        for name in self.parts:
            if name not in ("axis", "cone", "calibration"):
                raise ValueError(f"unknown part {name!r}; known: axis, cone, calibration")


def main(argv: list[str]) -> int:
    config, options, path = parse_arguments(argv, Config, RunOptions, command="ct scans")
    with open_run(options, config, f"ct-{path.stem if path else 'scans'}") as run:
        page = Report("Scans", "what is found from measured and independently simulated scans")
        metrics = {}
        for name in config.parts:
            rows = {"axis": axes, "cone": cones, "calibration": repaired}[name](config, page, run)
            metrics[name] = rows
            print(_text_table(rows, title=name), flush=True)
            page.table(rows)
        run.write_metrics(metrics)
        page.write(run.report)
    print(f"report: {run.report}")
    return 0


def folder(config: Config) -> Path:
    if config.data is not None:
        return config.data
    if "SCIML_DATA" not in os.environ:
        raise ConfigError("set SCIML_DATA, or give --data the folder of the scans")
    return Path(os.environ["SCIML_DATA"]) / "ct"


def axes(config: Config, page: Report, run: Run) -> list[dict[str, Any]]:
    """The bin in which the axis is seen, told by centres of mass and by the fit of image and geometry."""
    import tifffile

    page.heading("Where is the rotation axis?")
    counts = tifffile.imread(folder(config) / "neutron360" / "sinogram_360_neutron_image.tif").astype(float)
    beam = np.percentile(counts[:, :20], 50)
    turn = np.linspace(0, 2 * np.pi, len(counts), endpoint=False)
    neutron = Scan(-np.log(np.maximum(counts, 0.01 * beam) / beam), ParallelBeam(turn, counts.shape[1]), "px")
    scans = {
        "tooth (synchrotron, half a turn)": read_scan(folder(config) / "tomopy_tooth" / "tooth.h5").row(0),
        "Shepp-Logan of sv-mbirct (offset -6)": read_scan(
            folder(config) / "svmbirct_shepp" / "shepp.sinoparams"
        ),
        "neutrons, a whole turn": neutron,
    }
    rows = []
    for name, scan in scans.items():
        plain = dataclasses.replace(scan.geometry, axis_shift=0.0, detector_offset=0.0)
        assert isinstance(plain, ParallelBeam)
        middle = (plain.bins - 1) / 2
        mass = centre_of_rotation(scan.sinogram, plain) / float(plain.spacing)
        start = dataclasses.replace(plain, axis_shift=mass * float(plain.spacing))
        step = max(1, scan.geometry.views // 180)
        thin = start.subset(slice(None, None, step))
        grid = ImageGrid(256, pixel=plain.bins * float(plain.spacing) / 256)
        fitted = calibrate(scan.sinogram[::step].astype(np.float32), thin, grid)  # pyright: ignore
        rows.append(
            {
                "scan": name,
                "axis by centres of mass [bin]": middle + mass,
                "axis by the fit [bin]": float(np.mean(bin_of_axis(fitted.geometry))),
                "middle of the detector [bin]": middle,
            }
        )
    return rows


def cones(config: Config, page: Report, run: Run) -> list[dict[str, Any]]:
    """Volumes of a tetrahedron from 20 cone-beam views against its mesh."""
    page.heading("Cone beam: volumes against the mesh that was scanned")
    rows, images = [], {}
    for name in ("02_simple_scan_circular", "05_axis_wobble"):
        place = folder(config) / "ctsimu" / name
        triangles = read_stl(place / "tetra.stl")
        corners = triangles.reshape(-1, 3)
        sample = json.loads((place / f"{name}.json").read_text())["samples"][0]["position"]["center"]
        centre = np.array([sample[axis]["value"] for axis in "uvw"])
        triangles = triangles - (corners.max(0) + corners.min(0)) / 2 + centre
        grid = VolumeGrid(
            round(0.85 * config.rows), config.rows, pixel=86.4 / config.rows, centre=tuple(centre)
        )
        truth = voxelise(triangles, grid)
        for deviations in ("all", "none"):
            if deviations == "none" and name.startswith("02"):
                continue
            scan = checked(read_ctsimu(place / f"{name}.json", deviations=deviations), place)
            for method in ("fdk", "tv"):
                settings = Settings(filter="hann", iterations=config.tv_iterations, weight=config.tv_weight)
                outcome = reconstruct(method, scan.sinogram, scan.geometry, grid, settings)
                scale = float((outcome.image * truth).sum() / (truth**2).sum())
                rows.append(
                    {
                        "scan": name,
                        "geometry": "per-view vectors" if deviations == "all" else "ideal circle",
                        "method": method,
                        "psnr [dB]": psnr(outcome.image / scale, truth),
                        "attenuation [1/mm]": scale,
                        "residual": outcome.residual,
                        "seconds_with_compilation": round(outcome.seconds, 1),
                    }
                )
                images[f"{name[:2]} {deviations} {method}"] = outcome.image / scale
    middle = truth.shape[0] // 2
    with plot.style():
        figure, panels = plot.figure(1, len(images) + 1, width=2.4 * (len(images) + 1), height=2.8)
        for ax, (title, volume) in zip(panels, {"mesh": truth, **images}.items(), strict=True):
            ax.imshow(volume[middle], vmin=-0.2, vmax=1.2, cmap="gray")
            ax.set_title(title, fontsize=8)
            ax.axis("off")
    page.figure(
        run.figure("cones", figure),
        "Middle slices.",
        "Slices of volumes beside the mesh they were made from.",
    )
    return rows


def repaired(config: Config, page: Report, run: Run) -> list[dict[str, Any]]:
    """Axis off by 3 bins, angles off by 0.2 degrees: image before and after the repair."""
    page.heading("A wrong geometry repaired by gradients")
    rows, images = [], {}
    grid = ImageGrid(config.rows, pixel=2.2 / config.rows)
    phantom = PHANTOMS["slotted-blocks"]()
    truth = phantom.raster(grid)
    rng = np.random.default_rng(0)
    for kind in ("parallel", "fan"):
        views = 120
        turn = np.arange(views) * (np.pi if kind == "parallel" else 2 * np.pi) / views
        wrong = np.deg2rad(0.2) * rng.normal(size=views)
        bin_at_axis = 3 / config.bins

        def made(angles, shift, kind=kind):
            if kind == "parallel":
                return ParallelBeam(angles, config.bins, 3 / config.bins, axis_shift=shift)
            distances = {"source_to_axis": 6.0, "source_to_detector": 9.0}
            return FanBeam(angles, config.bins, 4.5 / config.bins, axis_shift=shift, **distances)

        data = phantom.sinogram(made(turn + wrong - wrong.mean(), 3 * bin_at_axis), samples=5)
        data = with_gaussian_noise(data, 0.005, key=jax.random.key(0))
        start = made(turn, 0.0)
        fitted = calibrate(data, start, grid, free=("axis_shift", "angles"), rounds=12)
        for name, geometry in (("as stated", start), ("repaired", fitted.geometry)):
            image = reconstruct("sirt", np.asarray(data), geometry, grid).image
            images[f"{kind}, {name}"] = image
            error = np.asarray(geometry.angles) - turn - (wrong - wrong.mean())
            rows.append(
                {
                    "beam": kind,
                    "geometry": name,
                    "axis off by [bin]": float(geometry.axis_shift) / bin_at_axis - 3,
                    "angles off by [degree]": float(np.rad2deg(np.std(error))),
                    "psnr of SIRT [dB]": psnr(image, truth),
                }
            )
    with plot.style():
        figure, panels = plot.figure(1, 1 + len(images), width=2.6 * (1 + len(images)), height=2.9)
        for ax, (title, image) in zip(panels, {"truth": truth, **images}.items(), strict=True):
            ax.imshow(image, vmin=-0.1, vmax=1.1, cmap="gray")
            ax.set_title(title, fontsize=8)
            ax.axis("off")
    page.figure(
        run.figure("repaired", figure),
        "SIRT with the geometry as stated and as repaired.",
        "Images before and after the geometry was fitted.",
    )
    return rows


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
