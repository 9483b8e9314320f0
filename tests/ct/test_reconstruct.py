"""Methods by name, comparisons, and the commands."""

import dataclasses
import json

import numpy as np
import pytest
import tifffile
import xarray as xr

from sciml.cli import main
from sciml.ct import PHANTOMS, VolumeGeometry, VolumeGrid, line_integrals, psnr, read_scan, save_scan
from sciml.ct.compare import compare, segmented
from sciml.ct.evaluate import Protocol, evaluate, means
from sciml.ct.reconstruct import Settings, reconstruct
from sciml.ct.scan import Scan
from tests.ct.scans import geometry, unit_grid


def test_methods_give_the_object():
    scan, grid = geometry("fan", 60, 64), unit_grid(32)
    block = PHANTOMS["bored-block"]()
    data, truth = np.asarray(block.sinogram(scan, samples=5)), block.raster(grid)
    settings = Settings(iterations=60, weight=0.002)
    for method in ("fbp", "cgls", "pwls"):  # the others have tests of their own
        outcome = reconstruct(method, data, scan, grid, settings)
        assert psnr(outcome.image, truth) > 19 and outcome.residual < 0.2, method
    with pytest.raises(ValueError, match="choose one of fbp"):
        reconstruct("nothing", data, scan, grid)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="needs an ImageGrid"):
        reconstruct("sirt", data, scan, VolumeGrid(3))


def test_volumes_by_name():
    angles = np.arange(12) * 2 * np.pi / 12
    scan = VolumeGeometry.cone(angles, 16, 16, 0.2, source_to_axis=4.0, source_to_detector=6.0)
    grid = VolumeGrid(10, pixel=0.2)
    for method in ("fdk", "cgls"):
        outcome = reconstruct(method, np.ones(scan.shape, np.float32), scan, grid, Settings(iterations=10))
        assert outcome.image.shape == grid.shape and np.isfinite(outcome.image).all()


def test_weight_is_chosen_by_held_out_views():
    scan, grid = geometry("parallel", 16, 60, turn=np.pi), unit_grid(32)
    block = PHANTOMS["bored-block"]()
    rng = np.random.default_rng(0)
    data, truth = np.asarray(block.sinogram(scan, samples=5)), block.raster(grid)
    data = data + 0.01 * data.max() * rng.normal(size=data.shape).astype(np.float32)
    ladder = [
        reconstruct("tv", data, scan, grid, Settings(weight=w)) for w in (0.0003, 0.001, 0.003, 0.01, 0.03)
    ]
    best = max(psnr(outcome.image, truth) for outcome in ladder)
    chosen = reconstruct("tv", data, scan, grid)
    assert psnr(chosen.image, truth) > best - 1.5 and 1e-4 < chosen.extra["weight"] < 0.05


def test_line_integrals_from_counts():
    rng = np.random.default_rng(0)
    true = rng.random((6, 30))
    counts = 50 + 1000 * np.exp(-true)
    flats, darks = np.full((3, 30), 1050.0), np.full((2, 30), 50.0)
    made, notes = line_integrals(counts, flats, darks)
    np.testing.assert_allclose(made, true, atol=1e-5)
    assert notes == () and made.dtype == np.float32
    counts[2, 7], counts[3, 9], counts[4, 0] = 0, np.nan, 40
    made, notes = line_integrals(counts, flats, darks)
    assert notes == ("3 readings without a logarithm were interpolated along the detector",)
    assert made[2, 7] == pytest.approx((true[2, 6] + true[2, 8]) / 2, abs=1e-4)
    assert line_integrals(counts[:2], 1050.0, 50.0)[0].shape == (2, 30)
    assert "no open beam" in line_integrals(counts[:2])[1][0]
    for bad, words in ((flats * 0, "nowhere brighter"), (flats[:, :5], "flats have shape")):
        with pytest.raises(ValueError, match=words):
            line_integrals(counts, bad, darks)
    counts[1] = 0
    with pytest.raises(ValueError, match="view 1 has none"):
        line_integrals(counts, flats, darks, what="scan.tif")


def test_segmentation_at_half_height():
    truth = PHANTOMS["bored-block"]().raster(unit_grid(64))
    noisy = 0.3 * truth + 0.02 * np.random.default_rng(0).normal(size=truth.shape)
    assert np.mean(segmented(noisy) == (truth > 0.5)) > 0.99


def test_compare_and_evaluate():
    scan, grid = geometry("parallel", 40, 48, turn=np.pi), unit_grid(24)
    disc = PHANTOMS["disc"]()
    made = Scan(np.asarray(disc.sinogram(scan)), scan)
    truth = disc.raster(grid)
    heard = []
    result = compare(
        made, grid, ["fbp", "cgls"], [10, 40], reference=truth, segmentation=truth > 0.5,
        progress=lambda views, method, outcome: heard.append((views, method)),
    )  # fmt: skip
    rows = result.rows()
    assert heard == [(10, "fbp"), (10, "cgls"), (40, "fbp"), (40, "cgls")]
    assert rows["40"]["fbp"]["psnr"] > rows["10"]["fbp"]["psnr"] and rows["40"]["fbp"]["dice"] > 0.95
    assert set(rows["10"]["cgls"]) >= {"psnr", "ssim", "dice", "mcc", "residual", "seconds_with_compilation"}
    with pytest.raises(ValueError, match="reference has shape"):
        compare(made, grid, ["fbp"], [10], reference=truth[1:])
    protocol = Protocol(("disc",), (8,), (0.0, 30.0), (0.0,), ("fbp",), rows=16, bins=24)
    cases = evaluate(protocol)
    assert [case.turn for case in cases] == [0.0, 30.0]
    assert means(cases)["fbp"]["psnr_std"] == pytest.approx(np.std([c.rows()["fbp"]["psnr"] for c in cases]))


def test_commands_from_phantom_to_comparison(tmp_path, capsys):
    out = tmp_path / "made"
    words = ["--phantom", "disc", "--views", "20", "--rows", "32", "--bins", "48", "--noise", "0.01"]
    assert main(["ct", "simulate", *words, "--photons", "1e5", "--out", str(out)]) == 0
    scan = out / "scan.npz"
    assert read_scan(scan).geometry.shape == (20, 48) and tifffile.imread(out / "truth.tif").shape == (32, 32)
    capsys.readouterr()
    assert main(["ct", "info", str(scan)]) == 0
    text = capsys.readouterr().out
    assert "views, bins              20 x 48" in text and "axis seen in bin         23.5" in text
    image = tmp_path / "image"
    command = ["ct", "reconstruct", str(scan), "--method", "cgls", "--views", "10", "--rows", "24"]
    assert main([*command, "--out", str(image)]) == 0
    assert json.loads((image / "metrics.json").read_text())["views"] == 10
    assert tifffile.imread(image / "result.tif").shape == (24, 24)
    with xr.open_dataset(image / "result.nc") as data:
        assert data.attenuation.dims == ("method", "y", "x") and data.sinogram.shape == (10, 48)
    assert list((image / "figures").glob("*.png")) and (image / "report.html").is_file()
    assert main([*command, "--out", str(image)]) != 0  # never silently over an earlier result
    both = tmp_path / "both"
    words = ["--methods", "fbp,cgls", "--views", "5,20", "--rows", "32", "--pixel", "0.0625"]
    words += ["--reference", str(out / "truth.tif"), "--settings.iterations", "20"]
    assert main(["ct", "compare", str(scan), *words, "--out", str(both)]) == 0
    metrics = json.loads((both / "metrics.json").read_text())
    assert set(metrics) == {"5", "20"} and set(metrics["5"]) == {"fbp", "cgls"}
    assert metrics["20"]["cgls"]["psnr"] > metrics["5"]["fbp"]["psnr"]


@pytest.mark.slow
def test_a_command_that_finds_the_axis_first(tmp_path):
    words = ["--phantom", "slotted-blocks", "--views", "60", "--bins", "96", "--axis_shift", "0.1"]
    assert main(["ct", "simulate", *words, "--out", str(tmp_path / "made")]) == 0
    command = ["ct", "reconstruct", str(tmp_path / "made" / "scan.npz"), "--method", "fbp"]
    scan = read_scan(tmp_path / "made" / "scan.npz")
    stated = dataclasses.replace(scan.geometry, axis_shift=np.float32(0))
    save_scan(tmp_path / "wrong.npz", dataclasses.replace(scan, geometry=stated))
    command[2] = str(tmp_path / "wrong.npz")
    assert main([*command, "--calibrate", "axis_shift", "--out", str(tmp_path / "image")]) == 0
    metrics = json.loads((tmp_path / "image" / "metrics.json").read_text())
    assert metrics["axis_shift_changed_by"] == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reconstruct", "missing.npz"], "no such file"),
        (["reconstruct", "SCAN", "--method", "magic"], "magic"),
        (["reconstruct", "SCAN", "--views", "99"], "has 6 views"),
        (["reconstruct", "SCAN", "--row", "1"], "parallel rays"),
        (["reconstruct", "SCAN", "--calibrate", "wobble"], "no field of this geometry"),
        (["compare", "SCAN", "--methods", "magic"], "unknown method 'magic'"),
        (["compare", "SCAN", "--reference", "SCAN"], "an image is .tif or .npy"),
        (["info", "SCAN", "--angles", "1"], "the first and the last"),
        (["simulate", "--phantom", "cat"], "unknown phantom 'cat'"),
        (["evaluate", "--phantoms", "cat"], "unknown phantom 'cat'"),
    ],
)
def test_command_line_errors(words, message, tmp_path, capsys, monkeypatch):
    scan = geometry("fan", 6, 12)
    path = save_scan(tmp_path / "scan.npz", Scan(np.zeros(scan.shape, np.float32), scan))
    monkeypatch.chdir(tmp_path)
    assert main(["ct", *[str(path) if word == "SCAN" else word for word in words]]) != 0
    error = capsys.readouterr().err
    assert message in error and len(error.strip().splitlines()) == 1
