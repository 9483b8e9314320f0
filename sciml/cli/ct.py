"""`sciml ct info` and `sciml ct reconstruct`: what a scan holds, and its image by one method."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sciml.cli.arguments import RunOptions, open_run, parse_arguments
from sciml.cli.fv import _command, _text_table, use_precision, write_netcdf
from sciml.config import ConfigError, dump_toml
from sciml.ct.reconstruct import Method, Settings
from sciml.typing import documented

if TYPE_CHECKING:
    import numpy as np

    from sciml.ct.scan import Scan

_ABOUT_SCANS = "SCAN: .mat, .h5, .nxs, .json (CTSimU), .toml (TIFF, raw), .sinoparams, .txrm, .npz."


@dataclasses.dataclass(frozen=True)
class InfoConfig:
    """Which scan."""

    scan: Path = documented("the scan; may stand first, without --scan")
    angles: tuple[float, ...] = documented("first and last angle in degrees, for files that have none", ())

    def __post_init__(self):
        _check_angles(self.angles)


@dataclasses.dataclass(frozen=True)
class ReconstructConfig:
    """Which scan, which method, which pixels."""

    scan: Path = documented("the scan; may stand first, without --scan")
    method: Method = documented("fbp (fdk), sirt, sart, cgls, tv, pwls", "tv")
    views: int | None = documented("use that many equally spaced views; default all", None)
    row: int | None = documented("one row of a parallel panel, from the top; default the whole volume", None)
    rows: int | None = documented("rows and columns of the image; default the bins, at most 512", None)
    pixel: float | None = documented("side of a pixel; default to cover what every view sees", None)
    angles: tuple[float, ...] = documented("first and last angle in degrees, for files that have none", ())
    calibrate: tuple[str, ...] = documented(
        "fit these first, of axis_shift, detector_offset, angles, source_to_axis, ...", ()
    )
    precision: Literal["float32", "float64"] = documented("float32 or float64", "float32")
    settings: Settings = documented("settings of the methods", Settings())

    def __post_init__(self):
        for name in ("views", "rows"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} is {value}: give at least 1")
        if self.pixel is not None and not self.pixel > 0:
            raise ValueError(f"pixel is {self.pixel}: give a positive length")
        _check_angles(self.angles)


def _check_angles(angles: tuple[float, ...]) -> None:
    if len(angles) not in (0, 2):
        raise ValueError(f"angles is {angles}: give the first and the last, in degrees")


def scan_first(argv: list[str]) -> list[str]:
    """The arguments with a scan that stands first named by its key; a configuration stays where it is."""
    from sciml.ct.described import is_description

    first = argv[0] if argv else "--help"
    if not argv or first.startswith("-"):
        return [first, *argv[1:]]
    if first.endswith(".toml") and Path(first).is_file() and not is_description(Path(first)):
        return argv
    return [f"--scan={first}", *argv[1:]]


def load_scan(path: Path, angles: tuple[float, ...], row: int | None = None) -> Scan:
    """Reads a scan, with errors as the command line shows them."""
    from sciml.ct.io import read_scan

    try:
        scan = read_scan(path, angles=(angles[0], angles[1]) if angles else None)
        return scan if row is None else scan.row(row)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def info(argv: list[str]) -> int:
    """Prints what a scan holds."""
    config, _, _ = parse_arguments(
        scan_first(argv),
        InfoConfig,
        RunOptions,
        command="ct info",
        about=f"What a scan holds: sciml ct info SCAN. {_ABOUT_SCANS}",
    )
    scan = load_scan(config.scan, config.angles)
    for name, value in describe(scan).items():
        print(f"{name:24s} {value}")
    for note in scan.notes:
        print(f"note: {note}")
    return 0


def describe(scan: Scan) -> dict[str, str]:
    """What `sciml ct info` says, line by line."""
    import jax
    import numpy as np

    from sciml.ct.geometry import bin_of_axis
    from sciml.ct.reconstruct import projector_of
    from sciml.ct.scan import GEOMETRIES, field_of_view
    from sciml.ct.volume_geometry import VolumeGeometry
    from sciml.ct.volume_projector import VolumeProjector

    geometry, unit = scan.geometry, scan.unit
    kind = next(name for name, made in GEOMETRIES.items() if isinstance(geometry, made))
    degrees = np.rad2deg(np.unwrap(np.asarray(geometry.angles, np.float64)))
    lines = {"scan": scan.name, "geometry": kind}
    if isinstance(geometry, VolumeGeometry):
        lines["geometry"] = "parallel beam, panel" if geometry.is_parallel else "cone beam, panel"
        lines["views, rows, bins"] = " x ".join(map(str, geometry.shape))
        lines["spacing"] = (
            f"{np.linalg.norm(geometry.v_step[0]):.6g} x {np.linalg.norm(geometry.u_step[0]):.6g} {unit}"
        )
        camera = np.asarray(jax.vmap(lambda view: view.camera())(geometry.scanner()))
        axis = camera[:, 0, 3] / camera[:, 2, 3]
        if not geometry.is_parallel:
            distance = np.linalg.norm(np.asarray(geometry.source)[:, :3], axis=1)
            lines["source to origin"] = _range(distance, unit)
            lines["source to panel"] = _range(
                np.linalg.norm(np.asarray(geometry.source)[:, :3] - np.asarray(geometry.middle), axis=1), unit
            )
    else:
        lines["views, bins"] = " x ".join(map(str, geometry.shape))
        lines["spacing"] = f"{float(np.mean(geometry.spacing)):.6g} {unit}"
        for name in ("source_to_axis", "source_to_detector", "detector_offset", "axis_shift"):
            if hasattr(geometry, name):
                lines[name] = _range(np.asarray(getattr(geometry, name)), unit)
        axis = np.asarray(bin_of_axis(geometry))
    steps = np.diff(degrees)
    lines["angles"] = f"{degrees[0]:.6g} to {degrees[-1]:.6g} degrees"
    if len(steps):
        lines["step"] = _range(steps, "degrees")
    lines["axis seen in bin"] = f"{_range(axis, '')}(of 0 to {geometry.bins - 1})"
    radius, height = field_of_view(geometry)
    lines["field of view"] = f"radius {radius:.6g} {unit}" + (
        f", height {height:.6g} {unit}" if height else ""
    )
    lines["line integrals"] = f"{scan.sinogram.min():.4g} to {scan.sinogram.max():.4g}"
    grid = scan.grid()
    lines["default image"] = f"{' x '.join(map(str, grid.shape))}, pixel {grid.pixel:.4g} {unit}"
    needed = 4 * (3 * np.prod(geometry.shape) + 6 * np.prod(grid.shape))
    if isinstance(geometry, VolumeGeometry):
        projector = projector_of(geometry, grid)
        assert isinstance(projector, VolumeProjector)
        needed = projector.memory_estimate()
    lines["memory of a projection"] = f"{needed / 2**20:.0f} MiB"
    return lines


def _range(values: np.ndarray, unit: str) -> str:
    low, high = float(values.min()), float(values.max())
    text = f"{low:.6g}" if high - low <= 1e-5 * max(abs(high), 1e-12) else f"{low:.6g} to {high:.6g}"
    return f"{text} {unit}"


def reconstruct(argv: list[str]) -> int:
    """Reconstructs a measured scan."""
    config, options, path = parse_arguments(
        scan_first(argv),
        ReconstructConfig,
        RunOptions,
        command="ct reconstruct",
        about=f"Reconstruct a scan: sciml ct reconstruct SCAN --method tv --views 16. {_ABOUT_SCANS}",
    )
    use_precision(config.precision)
    from sciml.cli import ct_figures
    from sciml.ct import reconstruct as library
    from sciml.report import Report

    scan = load_scan(config.scan, config.angles, config.row)
    try:
        scan = scan if config.views is None else scan.thinned(config.views)
        calibrated: dict[str, Any] = {}
        if config.calibrate:
            scan, calibrated = calibrated_scan(scan, config.calibrate)
        grid = scan.grid(config.rows, config.pixel)
        text = f"{' x '.join(map(str, grid.shape))} pixels of {grid.pixel:.4g} {scan.unit}"
        with open_run(options, config, f"ct-reconstruct-{scan.name}") as run:
            outcome = library.reconstruct(config.method, scan.sinogram, scan.geometry, grid, config.settings)
            row = {
                "method": config.method,
                "views": scan.geometry.views,
                "bins": scan.geometry.bins,
                "residual": outcome.residual,
                "seconds_with_compilation": round(outcome.seconds, 3),
                **outcome.extra,
                **calibrated,
            }
            run.write_metrics({**row, "notes": scan.notes, "unit": scan.unit})
            data = ct_figures.dataset(grid, {config.method: outcome.image}, scan.unit, scan)
            data.attrs["config"] = dump_toml(config)
            write_netcdf(data, run.path / "result.nc")
            write_tiff(run.path / "result.tif", outcome.image, grid.pixel, scan.unit)
            page = Report(f"{scan.name} by {config.method}", f"{scan.geometry.views} views, {text}")
            page.command(_command("ct reconstruct", path, argv))
            page.table([row])
            if scan.notes:
                page.text("\n".join(f"- {note}" for note in scan.notes))
            figure = ct_figures.reconstruction(grid, outcome.image, scan, config.method)
            page.figure(
                run.figure("reconstruction", figure),
                "Image, line integrals and a profile; of a volume three sections through its middle.",
                f"Image reconstructed from {scan.name}, its line integrals, and a profile.",
            )
            page.write(run.report)
    except ValueError as error:
        raise ConfigError(f"{config.scan}: {error}") from error
    for note in scan.notes:
        print(f"note: {note}")
    print(_text_table([row]))
    print(f"image: {run.path / 'result.tif'}")
    print(f"report: {run.report}")
    return 0


def calibrated_scan(scan: Scan, free: tuple[str, ...]) -> tuple[Scan, dict[str, Any]]:
    """The scan with parts of its geometry fitted to it, and what was found."""
    import numpy as np

    from sciml.ct.calibration import calibrate, centre_of_rotation
    from sciml.ct.geometry import ParallelBeam, bin_of_axis
    from sciml.ct.volume_geometry import VolumeGeometry

    geometry = scan.geometry
    if isinstance(geometry, VolumeGeometry):
        raise ValueError("calibrate: only scans in the plane can be calibrated; choose a row of the panel")
    if isinstance(geometry, ParallelBeam) and "axis_shift" in free:
        shift = centre_of_rotation(np.asarray(scan.sinogram), geometry)
        geometry = dataclasses.replace(geometry, axis_shift=shift)
    grid = scan.grid(min(geometry.bins, 256))
    fitted = calibrate(scan.sinogram, geometry, grid, free=free)  # pyright: ignore[reportArgumentType]
    found: dict[str, Any] = {"axis_seen_in_bin": float(np.mean(bin_of_axis(fitted.geometry)))}
    for name in free:
        change = np.asarray(getattr(fitted.geometry, name)) - np.asarray(getattr(scan.geometry, name))
        found[f"{name}_changed_by"] = float(np.sqrt(np.mean(change**2)) if change.ndim else change)
    return dataclasses.replace(scan, geometry=fitted.geometry), found


def write_tiff(path: Path, image: np.ndarray, pixel: float, unit: str) -> None:
    """Writes an image, or a volume as slices from the top, as float32 with the size of a pixel."""
    import numpy as np
    import tifffile

    from sciml.files import replacing

    with replacing(path) as temporary:
        tifffile.imwrite(
            temporary,
            np.asarray(image, np.float32),
            photometric="minisblack",
            metadata={"axes": "ZYX"[-image.ndim :], "PhysicalSizeX": pixel, "PhysicalSizeXUnit": unit},
        )
