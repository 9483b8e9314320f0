"""`sciml ct compare`, `evaluate` and `simulate`: methods beside one another on scans and phantoms."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

from sciml.cli.arguments import RunOptions, open_run, parse_arguments
from sciml.cli.ct import _check_angles, calibrated_scan, load_scan, scan_first, write_tiff
from sciml.cli.fv import _command, _text_table, use_precision, write_netcdf
from sciml.config import ConfigError, dump_toml
from sciml.ct.evaluate import Case, Protocol
from sciml.ct.phantom import PHANTOMS
from sciml.ct.reconstruct import METHODS, Settings
from sciml.typing import documented


@dataclasses.dataclass(frozen=True)
class CompareConfig:
    """Which scan, which methods, how many views."""

    scan: Path = documented("the scan; may stand first, without --scan")
    methods: tuple[str, ...] = documented("methods by name", METHODS)
    views: tuple[int, ...] = documented("numbers of views", (16,))
    row: int | None = documented("one row of a parallel panel, from the top; default the whole volume", None)
    rows: int | None = documented("rows and columns of the image; default the bins, at most 512", None)
    pixel: float | None = documented("side of a pixel; default to cover what every view sees", None)
    angles: tuple[float, ...] = documented("first and last angle in degrees, for files that have none", ())
    reference: Path | None = documented(
        "image to compare with, .tif or .npy; default filtered backprojection of all views", None
    )
    segmentation: Path | None = documented(
        "what is material, .tif or .npy; default what lies beside a scan of HTC 2022", None
    )
    calibrate: tuple[str, ...] = documented("fit these to all views first, such as axis_shift", ())
    precision: Literal["float32", "float64"] = documented("float32 or float64", "float32")
    settings: Settings = documented("settings of the methods", Settings())

    def __post_init__(self):
        for name in self.methods:
            if name not in (*METHODS, "fdk", "pwls"):
                raise ValueError(f"unknown method {name!r}; known: {', '.join((*METHODS, 'fdk', 'pwls'))}")
        if not self.methods or not self.views or min(self.views) < 1:
            raise ValueError("give at least one method, and numbers of views of at least 1")
        _check_angles(self.angles)


def compare(argv: list[str]) -> int:
    """Compares methods on one scan."""
    config, options, path = parse_arguments(
        scan_first(argv),
        CompareConfig,
        RunOptions,
        command="ct compare",
        about="Compare methods on a scan: sciml ct compare SCAN --methods fbp,tv --views 12,16,20.",
    )
    use_precision(config.precision)
    from sciml.cli import ct_figures
    from sciml.ct import compare as library
    from sciml.report import Report

    scan = load_scan(config.scan, config.angles, config.row)
    segmentation, grid = _image(config.segmentation, bool), None
    free = config.segmentation is None and config.rows is None and config.pixel is None
    if free and (found := library.htc_segmentation(config.scan)):
        segmentation, grid = found
    try:
        calibrated: dict[str, Any] = {}
        if config.calibrate:
            scan, calibrated = calibrated_scan(scan, config.calibrate)
        grid = scan.grid(config.rows, config.pixel) if grid is None else grid
        with open_run(options, config, f"ct-compare-{scan.name}") as run:

            def report(views, method, outcome):
                print(f"{views} views, {method}: {outcome.seconds:.1f} s", flush=True)

            result = library.compare(
                scan,
                grid,
                config.methods,
                config.views,
                settings=config.settings,
                reference=_image(config.reference, float),
                segmentation=segmentation,
                progress=report,
            )
            rows = result.rows()
            run.write_metrics(rows)
            images = {
                f"{method}-{views}": outcome.image
                for views, by_method in result.outcomes.items()
                for method, outcome in by_method.items()
            }
            data = ct_figures.dataset(grid, {"reference": result.reference, **images}, scan.unit, scan)
            data.attrs["config"] = dump_toml(config)
            write_netcdf(data, run.path / "result.nc")
            page = Report(f"{scan.name} from few views", f"{' x '.join(map(str, grid.shape))} pixels")
            page.command(_command("ct compare", path, argv))
            noisy = "the filtered backprojection of all views, which is noisy"
            against = "the image given" if config.reference else noisy
            page.text(
                f"`psnr` and `ssim` are against {against}; `dice` and `mcc` compare what is above half of the"
                " material's attenuation with the segmentation."
            )
            table = [
                {"views": views, "method": method, **row}
                for views, by_method in rows.items()
                for method, row in by_method.items()
            ]
            keys = list(dict.fromkeys(key for row in table for key in row))
            table = [{key: row.get(key, "") for key in keys} for row in table]
            page.table(table)
            for views, by_method in result.outcomes.items():
                figure = ct_figures.side_by_side(
                    grid, result.reference, {name: o.image for name, o in by_method.items()}, scan.unit
                )
                page.figure(
                    run.figure(f"views-{views}", figure),
                    f"{views} views: reference, images on one scale, their differences, and a profile.",
                    f"Reconstructions from {views} views beside the reference.",
                )
            page.write(run.report)
    except ValueError as error:
        raise ConfigError(f"{config.scan}: {error}") from error
    for note in scan.notes:
        print(f"note: {note}")
    if calibrated:
        print(_text_table([calibrated]))
    print(_text_table(table))
    print(f"report: {run.report}")
    return 0


def _image(path: Path | None, dtype: type) -> Any:
    if path is None:
        return None
    import numpy as np

    try:
        if path.suffix == ".npy":
            return np.load(path).astype(dtype)
        if path.suffix in (".tif", ".tiff"):
            import tifffile

            return tifffile.imread(path).astype(dtype)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: not a readable image: {error}") from error
    raise ConfigError(f"{path}: an image is .tif or .npy")


# ------------------------------------------------------------------------------------------ phantoms


@dataclasses.dataclass(frozen=True)
class SimulateConfig:
    """Which object, how it is scanned, and how noisy the scan is."""

    phantom: str = documented(f"one of {', '.join(PHANTOMS)}", "hollow-square")
    turn: float = documented("degrees by which the phantom is turned", 0.0)
    geometry: Literal["parallel", "fan", "curved-fan"] = documented(
        "beam; parallel views over half a turn, others over a whole one", "parallel"
    )
    views: int = documented("number of views", 16)
    rows: int = documented("rows and columns of the image of the truth, which is 2 wide", 256)
    bins: int = documented("detector bins, over 3 at the rotation axis", 384)
    noise: float = documented("standard deviation in parts of the largest line integral", 0.0)
    photons: float = documented("photons per bin of the open beam; 0 for no photon noise", 0.0)
    attenuation: float = documented("multiplies the attenuation of the phantom", 1.0)
    axis_shift: float = documented("position of the rotation axis off the middle", 0.0)
    seed: int = documented("seed of the noise", 0)

    def __post_init__(self):
        if self.phantom not in PHANTOMS:
            raise ValueError(f"unknown phantom {self.phantom!r}; known: {', '.join(PHANTOMS)}")
        for name in ("views", "rows", "bins"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: give at least 1")
        for name in ("noise", "photons"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: it cannot be negative")


def simulate(argv: list[str]) -> int:
    """Writes a scan of a phantom."""
    config, options, path = parse_arguments(
        argv,
        SimulateConfig,
        RunOptions,
        command="ct simulate",
        about="Scan a phantom: closed-form line integrals, noise; writes scan.npz and the truth.",
    )
    import jax
    import numpy as np

    from sciml.cli import ct_figures
    from sciml.ct.phantom import with_gaussian_noise, with_poisson_noise
    from sciml.ct.scan import Scan, save_scan
    from sciml.report import Report

    protocol = Protocol(geometry=config.geometry, rows=max(config.rows, 2), bins=max(config.bins, 5))
    geometry = dataclasses.replace(protocol.scan(config.views), axis_shift=np.float32(config.axis_shift))
    phantom = (
        PHANTOMS[config.phantom]().turned(float(np.deg2rad(config.turn))).scaled(1.0, config.attenuation)
    )
    sinogram = phantom.sinogram(geometry, samples=5)
    keys = jax.random.split(jax.random.key(config.seed))
    if config.photons:
        sinogram = with_poisson_noise(sinogram, config.photons, key=keys[0])
    if config.noise:
        sinogram = with_gaussian_noise(sinogram, config.noise, key=keys[1])
    truth = phantom.raster(protocol.grid)
    with open_run(options, config, f"ct-simulate-{config.phantom}") as run:
        scan = Scan(np.asarray(sinogram), geometry, "1", config.phantom)
        save_scan(run.path / "scan.npz", scan)
        write_tiff(run.path / "truth.tif", truth, protocol.grid.pixel, "1")
        run.write_metrics({"views": geometry.views, "bins": geometry.bins, "largest": float(sinogram.max())})
        page = Report(f"Scan of {config.phantom}", f"{geometry.views} views of {geometry.bins} bins")
        page.command(_command("ct simulate", path, argv))
        figure = ct_figures.reconstruction(protocol.grid, truth, scan, "truth")
        page.figure(
            run.figure("scan", figure),
            "The phantom and its line integrals.",
            f"{config.phantom} and its scan.",
        )
        page.write(run.report)
    print(f"scan: {run.path / 'scan.npz'}")
    print(f"truth: {run.path / 'truth.tif'}")
    print(f"report: {run.report}")
    return 0


def evaluate(argv: list[str]) -> int:
    """Compares methods on phantoms with closed-form sinograms."""
    config, options, path = parse_arguments(
        argv,
        Protocol,
        RunOptions,
        command="ct evaluate",
        about="Compare reconstruction methods on phantoms with closed-form sinograms.",
    )
    use_precision(config.precision)
    from sciml.cli import ct_figures
    from sciml.ct import evaluate as library
    from sciml.report import Report

    with open_run(options, config, f"ct-evaluate-{path.stem}" if path else "ct-evaluate") as run:
        groups: dict[tuple[str, int, float], list[Case]] = {}

        def report(case: Case) -> None:
            group = groups.setdefault((case.phantom, case.views, case.noise), [])
            group.append(case)
            run.log(
                {
                    "phantom": case.phantom,
                    "turn": case.turn,
                    "views": case.views,
                    "noise": case.noise,
                    "methods": case.rows(),
                }
            )
            if len(group) == len(config.turns):
                print(_text_table(_rows(library.means(group)), title=_title(case)), flush=True)

        cases = library.evaluate(config, progress=report)
        metrics: dict[str, Any] = {}
        for (phantom, views, noise), group in groups.items():
            by_noise = metrics.setdefault(phantom, {}).setdefault(str(views), {})
            by_noise[f"{noise:g}"] = library.means(group)
        run.write_metrics(metrics)
        data = ct_figures.evaluation_dataset(config, cases)
        data.attrs["config"] = dump_toml(config)
        write_netcdf(data, run.path / "result.nc")
        page = Report(
            "Reconstruction from few views",
            f"{config.geometry} beam, {config.bins} bins, {config.rows} x {config.rows} pixels, "
            f"seed {config.seed}, {config.precision}",
        )
        page.text(
            "The line integrals are closed forms averaged over the bins, the truth is the average over every"
            " pixel. `psnr` is against the truth with its range of values; `residual` is the misfit of the"
            " line integrals relative to their norm; `weight` is the weight of the total variation, chosen"
            " without the truth. With several turns these are means over them."
        )
        page.command(_command("ct evaluate", path, argv))
        for (phantom, views, noise), group in groups.items():
            page.heading(_title(group[0]))
            page.table(_rows(library.means(group)), highlight={"psnr": "max", "ssim": "max"})
            figure = ct_figures.comparison(config.grid, group[0])
            page.figure(
                run.figure(f"{phantom}-{views}-{noise:g}", figure),
                "Truth, reconstructions on the same scale, the sinogram, and profiles along the middle row.",
                f"Reconstructions of {phantom} from {views} views beside the truth.",
            )
        page.write(run.report)
    print(f"report: {run.report}")
    return 0


def _title(case: Case) -> str:
    return f"{case.phantom}, {case.views} views, {100 * case.noise:g} % noise"


def _rows(table: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    keys = dict.fromkeys(key for row in table.values() for key in row)
    return [{"method": name, **{key: row.get(key, "") for key in keys}} for name, row in table.items()]
