"""TIFF files and raw numbers that a TOML file describes."""

import dataclasses
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import tifffile

from sciml.ct import Scan, read_scan, save_scan
from tests.ct.scans import geometry

DESCRIPTION = """geometry = "{kind}"
data = "{data}"
angles = {angles}
angle_unit = "degrees"
unit = "mm"
spacing = 0.5
{more}"""


def described(folder, data, kind="parallel", angles="{ start = 0, stop = 180 }", more=""):
    path = folder / "scan.toml"
    path.write_text(DESCRIPTION.format(kind=kind, data=data, angles=angles, more=more))
    return path


def test_described_tiff_and_raw(tmp_path):
    rng = np.random.default_rng(0)
    sinogram = rng.random((6, 20)).astype(np.float32)
    tifffile.imwrite(tmp_path / "sinogram.tif", 20000 * np.exp(-sinogram))
    scan = read_scan(described(tmp_path, "sinogram.tif", more="flats = 20000.0\naxis_shift = 0.25"))
    np.testing.assert_allclose(scan.sinogram, sinogram, atol=1e-4)
    assert float(scan.geometry.axis_shift) == 0.25 and scan.unit == "mm"
    np.testing.assert_allclose(np.rad2deg(scan.geometry.angles), np.arange(6) * 30, atol=1e-4)
    sinogram.astype(">f4").tofile(tmp_path / "numbers.raw")
    raw = 'shape = [6, 20]\ndtype = "float32"\nbyte_order = "big"\nline_integrals = true'
    np.testing.assert_array_equal(read_scan(described(tmp_path, "numbers.raw", more=raw)).sinogram, sinogram)
    projections = rng.random((5, 3, 8)).astype(np.float32)
    for k, image in enumerate(projections):
        tifffile.imwrite(tmp_path / f"view{k:02}.tif", image)
    more = "line_integrals = true\nsource_to_axis = 4.0\nsource_to_detector = 6.0\nrow_spacing = 0.25"
    cone = read_scan(described(tmp_path, "view*.tif", "cone", "[0, 10, 20, 30, 40]", more))
    np.testing.assert_array_equal(cone.sinogram, projections)
    np.testing.assert_allclose(np.linalg.norm(cone.geometry.v_step, axis=1), 0.25, rtol=1e-5)


def test_views_in_order_of_their_numbers_and_some_rows(tmp_path):
    projections = np.random.default_rng(0).random((11, 4, 3)).astype(np.float32)
    (tmp_path / "views").mkdir()
    for k, image in enumerate(projections):
        tifffile.imwrite(tmp_path / "views" / f"view{k + 1}.tif", image)
    projections.tofile(tmp_path / "views.raw")
    raw = 'shape = [11, 4, 3]\ndtype = "float32"\n'
    for data, more in (("views/view*.tif", ""), ("views", ""), ("views.raw", raw)):
        more += "line_integrals = true\nsource_to_axis = 4.0\nsource_to_detector = 6.0"
        path = described(tmp_path, data, "cone", "{ start = 5, step = 10 }", more)
        whole, part = read_scan(path), read_scan(path, rows=(2, 4))
        np.testing.assert_array_equal(whole.sinogram, projections)
        np.testing.assert_allclose(np.rad2deg(whole.geometry.angles)[:3], [5, 15, 25], atol=1e-4)
        np.testing.assert_array_equal(part.sinogram, projections[:, 2:])
        np.testing.assert_allclose(part.geometry.middle[:, 2], -0.5, atol=1e-6)
        with pytest.raises(ValueError, match="rows 3 to 4 of 4"):
            read_scan(path, rows=(3, 5))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"more": "flats = 2.0\nline_integrals = true"}, "line_integrals = true, and yet flats"),
        ({"data": "numbers.raw", "more": 'shape = [120]\ndtype = "float32"'}, "give .views, bins."),
        ({"more": "flats = 2.0\nsource_to_axis = 4.0"}, "source_to_axis does not belong to a parallel scan"),
        ({"more": "flats = 2.0\nrow_spacing = 4.0"}, "row_spacing does not belong"),
        ({"more": "flats = 2.0\nshape = [6, 20]"}, "shape is for raw numbers"),
        ({"angles": '{ start = "a", stop = 3 }', "more": "flats = 2.0"}, "angles: could not convert"),
        ({"angles": '"x"', "more": "flats = 2.0"}, "angles: could not convert"),
        ({"kind": "spiral"}, "geometry is 'spiral'"),
        ({"kind": "fan"}, "source_to_axis is missing"),
        ({"data": "nothing*.tif"}, "no file 'nothing"),
        ({"angles": "[0, 1, 2]"}, "3 angles for 6 views; are rows and columns"),
        ({"angles": "{ start = 0 }"}, "give start and step, or start and stop"),
        ({"more": "sapcing = 1"}, "sapcing is unknown"),
        ({"more": "flats = 0.0"}, "nowhere brighter"),
        ({"data": "numbers.raw"}, "shape is missing"),
        ({"data": "numbers.raw", "more": 'shape = [6, 21]\ndtype = "float32"'}, "480 bytes, shape"),
        ({"data": "broken.tif"}, "not a readable TIFF"),
        ({"kind": "fan", "more": "source_to_axis = 6.0\nsource_to_detector = 4.0\nflats = 2.0"}, "swapped"),
    ],
)
def test_described_errors(change, words, tmp_path):
    tifffile.imwrite(tmp_path / "sinogram.tif", np.ones((6, 20), np.float32))
    np.ones((6, 20), np.float32).tofile(tmp_path / "numbers.raw")
    (tmp_path / "broken.tif").write_bytes(b"II*\0nothing")
    path = described(tmp_path, **{"data": "sinogram.tif", **change})
    with pytest.raises(ValueError, match=words) as caught:
        read_scan(path)
    assert str(tmp_path) in str(caught.value)


def test_angles_that_are_radians(tmp_path):
    made = geometry("parallel", 12, 30)
    made = dataclasses.replace(made, angles=np.deg2rad(np.linspace(0, 3.1, 12)))
    scan = Scan(np.ones((12, 30), np.float32), made)
    assert "are these angles radians" in "".join(read_scan(save_scan(tmp_path / "a.npz", scan)).notes)
    path = described(tmp_path, "sinogram.tif", more="flats = 2.0")
    path.write_text(path.read_text().replace('"degrees"', '"radians"'))
    tifffile.imwrite(tmp_path / "sinogram.tif", np.ones((6, 20), np.float32))
    with pytest.warns(UserWarning, match="radians: if these are degrees"):
        read_scan(path)


def blocks_of_the_documentation():
    page = Path(__file__).parents[2] / "docs" / "ct" / "reading-scans.md"
    return re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("text", blocks_of_the_documentation())
def test_descriptions_of_the_documentation(text, tmp_path):
    content = tomllib.loads(text)
    volume = content["geometry"] in ("cone", "parallel-volume")
    shape = tuple(content.get("shape", (4, 3, 6) if volume else (4, 6)))
    exact = np.full(shape, 0.5, np.float32)
    if content.get("line_integrals"):
        values = exact
    else:
        dark = content["darks"] if isinstance(content.get("darks"), float) else 10.0 * ("darks" in content)
        flat = content["flats"] if isinstance(content["flats"], float) else 2000.0
        values = (dark + (flat - dark) * np.exp(-exact)).astype(np.float32)
        for name, level in (("flats", flat), ("darks", dark)):
            if isinstance(content.get(name), str):
                for k in range(2):
                    file = tmp_path / content[name].replace("*", str(k))
                    file.parent.mkdir(exist_ok=True)
                    panel = shape[1:] if volume else (1, *shape[1:])
                    tifffile.imwrite(file, np.full(panel, level, np.float32))
    data = tmp_path / content["data"]
    data.parent.mkdir(exist_ok=True)
    if "*" in content["data"]:
        for k, image in enumerate(values):
            tifffile.imwrite(data.with_name(f"{k}.tif"), image)
    elif data.suffix == ".raw":
        values.tofile(data)
    else:
        tifffile.imwrite(data, values, photometric="minisblack")
    (tmp_path / "scan.toml").write_text(text)
    scan = read_scan(tmp_path / "scan.toml")
    np.testing.assert_allclose(scan.sinogram, exact, atol=1e-3)
    assert scan.is_volume == volume


@pytest.mark.data
def test_neutrons_over_a_whole_turn(data_folder, tmp_path):
    """Counts of an off-centre scan, described by hand; opposite views mirror each other about the axis."""
    data = data_folder / "ct" / "neutron360" / "sinogram_360_neutron_image.tif"
    path = tmp_path / "neutron.toml"
    path.write_text(
        f"""geometry = "parallel"
data = "{data}"
angles = {{ start = 0, stop = 360, endpoint = true }}
angle_unit = "degrees"
spacing = 1.0
"""
    )
    scan = read_scan(path)
    assert scan.geometry.shape == (458, 503) and np.isfinite(scan.sinogram).all()
    assert any("no open beam" in note for note in scan.notes)


def test_flats_of_a_line_detector_in_one_image(tmp_path):
    tifffile.imwrite(tmp_path / "counts.tif", np.full((6, 20), 500.0, np.float32))
    tifffile.imwrite(tmp_path / "flat.tif", np.repeat([[900.0], [1100.0]], 20, 1).astype(np.float32))
    scan = read_scan(described(tmp_path, "counts.tif", more='flats = "flat.tif"'))
    np.testing.assert_allclose(scan.sinogram, np.log(2), rtol=1e-5)
