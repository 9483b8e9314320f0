"""`sciml ct reconstruct` and `sciml ct evaluate`: a measured scan by one method, phantoms by several."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, Literal

from sciml.cli.arguments import RunOptions, open_run, parse_arguments
from sciml.cli.fv import _command, _text_table, use_precision, write_netcdf
from sciml.config import ConfigError, dump_toml
from sciml.ct.evaluate import Case, Protocol
from sciml.ct.reconstruct import Method, Settings
from sciml.typing import documented


@dataclasses.dataclass(frozen=True)
class ReconstructConfig:
    """Which scan, which method, which pixels."""

    scan: Path = documented("the scan: HTC 2022 .mat or .npz; may stand first, without --scan")
    method: Method = documented("method", "tv")
    views: int | None = documented("use that many equally spaced views; default all", None)
    rows: int | None = documented("rows and columns of the image; default the bins, at most 512", None)
    pixel: float | None = documented("side of a pixel; default to cover what every view sees", None)
    precision: Literal["float32", "float64"] = documented("float32 or float64", "float32")
    settings: Settings = documented("settings of the methods", Settings())

    def __post_init__(self):
        for name in ("views", "rows"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"{name} is {value}: give at least 1")
        if self.pixel is not None and not self.pixel > 0:
            raise ValueError(f"pixel is {self.pixel}: give a positive length")


def reconstruct(argv: list[str]) -> int:
    """Reconstructs a measured scan."""
    first = argv[0] if argv else "--help"
    named = not first.startswith("-") and not first.endswith(".toml") and not Path(first).is_dir()
    config, options, _ = parse_arguments(
        [f"--scan={first}", *argv[1:]] if named else argv,
        ReconstructConfig,
        RunOptions,
        command="ct reconstruct",
        about="Reconstruct a measured scan: sciml ct reconstruct SCAN --method tv --views 16.",
    )
    use_precision(config.precision)
    from sciml.cli import ct_figures
    from sciml.ct import reconstruct as library
    from sciml.ct.io import read_scan
    from sciml.report import Report

    scan = read_scan(config.scan)
    scan = scan if config.views is None else scan.thinned(config.views)
    try:
        grid = scan.grid(config.rows, config.pixel)
        grid_text = f"{grid.rows} x {grid.rows} pixels of {grid.pixel:.4g} {scan.unit}"
        with open_run(options, config, f"ct-reconstruct-{scan.name}") as run:
            outcome = library.reconstruct(config.method, scan.sinogram, scan.geometry, grid, config.settings)
            views, bins = scan.geometry.shape
            row = {
                "method": config.method,
                "views": views,
                "bins": bins,
                "residual": outcome.residual,
                "seconds_with_compilation": round(outcome.seconds, 3),
                **outcome.extra,
            }
            run.write_metrics({**row, "notes": scan.notes, "unit": scan.unit})
            data = ct_figures.dataset(grid, {config.method: outcome.image}, scan.unit, scan)
            data.attrs["config"] = dump_toml(config)
            write_netcdf(data, run.path / "result.nc")
            page = Report(f"{scan.name} by {config.method}", f"{views} views of {bins} bins, {grid_text}")
            page.command(_command("ct reconstruct", None, argv))
            page.table([row])
            if scan.notes:
                page.text("\n".join(f"- {note}" for note in scan.notes))
            figure = ct_figures.reconstruction(grid, outcome.image, scan, config.method)
            page.figure(
                run.figure("reconstruction", figure),
                "Image, sinogram and the profile along the middle row.",
                f"Image reconstructed from {scan.name}, its sinogram, and a profile.",
            )
            page.write(run.report)
    except ValueError as error:
        raise ConfigError(f"{config.scan}: {error}") from error
    for note in scan.notes:
        print(f"note: {note}")
    print(_text_table([row]))
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

        def report(case: Case) -> None:
            run.log(
                {"phantom": case.phantom, "views": case.views, "noise": case.noise, "methods": case.rows()}
            )
            print(_text_table(_rows(case), title=_title(case)), flush=True)

        cases = library.evaluate(config, progress=report)
        metrics: dict[str, Any] = {}
        for case in cases:
            by_noise = metrics.setdefault(case.phantom, {}).setdefault(str(case.views), {})
            by_noise[f"{case.noise:g}"] = case.rows()
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
            " without the truth."
        )
        page.command(_command("ct evaluate", path, argv))
        for case in cases:
            page.heading(_title(case))
            page.table(_rows(case), highlight={"psnr": "max", "ssim": "max"})
            name = f"{case.phantom}-{case.views}-{case.noise:g}"
            figure = ct_figures.comparison(config.grid, case)
            page.figure(
                run.figure(name, figure),
                "Truth, reconstructions on the same scale, the sinogram, and profiles along the middle row.",
                f"Reconstructions of {case.phantom} from {case.views} views beside the truth.",
            )
        page.write(run.report)
    print(f"report: {run.report}")
    return 0


def _title(case: Case) -> str:
    return f"{case.phantom}, {case.views} views, {100 * case.noise:g} % noise"


def _rows(case: Case) -> list[dict[str, Any]]:
    keys = dict.fromkeys(key for row in case.rows().values() for key in row)
    return [{"method": name, **{key: row.get(key, "") for key in keys}} for name, row in case.rows().items()]
