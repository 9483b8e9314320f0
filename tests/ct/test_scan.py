"""Scans and the files that hold them: what is read, what is repaired, and what the errors say."""

import dataclasses
import json
from typing import Any

import h5py
import jax
import numpy as np
import pytest
import tifffile

from sciml.ct import (
    PHANTOMS,
    ImageGrid,
    Scan,
    VolumeGeometry,
    VolumeGrid,
    field_of_view,
    read_scan,
    save_scan,
)
from sciml.ct.ctsimu import Deviations, read_ctsimu, scenario_geometry
from sciml.ct.stl import read_stl, voxelise, write_stl
from tests.ct.scans import angles_of, geometry

KINDS = ("parallel", "fan", "curved")


def a_scan(kind="fan", **lengths) -> Scan:
    scan = geometry(kind, 12, 30, **lengths)
    return Scan(np.asarray(PHANTOMS["disc"]().sinogram(scan)), scan, "mm", "disc")


@pytest.mark.parametrize("kind", [*KINDS, "cone", "per-view"])
def test_npz_round_trip(kind, tmp_path):
    if kind == "cone":
        made = VolumeGeometry.cone(angles_of(5), 3, 8, 0.5, source_to_axis=4.0, source_to_detector=6.0)
        values = np.zeros(made.shape, np.float32)
        values[:, :, 3:5] = np.random.default_rng(0).random((5, 3, 2))
        scan = Scan(values, made, "mm", "scan")
    elif kind == "per-view":
        scan = a_scan("fan", axis_shift=np.linspace(0, 0.1, 12))
    else:
        scan = a_scan(kind, detector_offset=0.05)
    again = read_scan(save_scan(tmp_path / "scan.npz", scan))
    assert type(again.geometry) is type(scan.geometry) and again.unit == "mm" and again.notes == ()
    np.testing.assert_array_equal(again.sinogram, scan.sinogram)
    for field in dataclasses.fields(scan.geometry):
        np.testing.assert_array_equal(getattr(again.geometry, field.name), getattr(scan.geometry, field.name))


def test_npz_errors(tmp_path):
    path = tmp_path / "scan.npz"
    good = {"sinogram": np.ones((3, 8)), "angles": np.arange(3.0), "spacing": 1.0}

    def refused(words, **changes):
        content = {**good, **changes}
        np.savez(path, allow_pickle=False, **{k: v for k, v in content.items() if v is not None})
        with pytest.raises(ValueError, match=words) as caught:
            read_scan(path)
        assert str(path) in str(caught.value)

    refused("angles is missing", angles=None)
    refused("source_to_axis is missing", geometry="fan")
    refused("geometry is 'spiral'", geometry="spiral")
    refused("pitch is no field", pitch=2.0)
    refused(r"sinogram has shape \(3,\)", sinogram=np.ones(3))
    refused("views and bins swapped", sinogram=np.ones((8, 3)), angles=np.arange(3.0))
    refused("give no line integral", sinogram=np.where(np.eye(3, 8) > 0, np.nan, 1.0))
    refused("not a positive|positive length", spacing=-1.0)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"not a readable \.npz"):
        read_scan(path)
    with pytest.raises(ValueError, match="a scan is one of"):
        (tmp_path / "scan.dat").write_text("1 2 3")
        read_scan(tmp_path / "scan.dat")
    with pytest.raises(FileNotFoundError):
        read_scan(tmp_path / "none.npz")
    with pytest.raises(ValueError, match=r"must end in \.npz"):
        save_scan(tmp_path / "scan.dat", a_scan())


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (
            lambda p: np.where(np.arange(p.size).reshape(p.shape) == 40, np.nan, p),
            "1 values that are not finite",
        ),
        (lambda p: p - 2 * (np.arange(p.shape[1]) == 3), "go down to"),
        (lambda p: 1000 + p, "are these counts"),
        (lambda p: 0 * p, "all line integrals are zero"),
        (lambda p: p + 1, "wider than the field of view"),
    ],
)
def test_what_looks_odd_is_noted(change, note, tmp_path):
    scan = a_scan("parallel")
    odd = dataclasses.replace(scan, sinogram=change(scan.sinogram))
    assert any(note in each for each in read_scan(save_scan(tmp_path / "scan.npz", odd)).notes)


def test_repeated_single_and_narrow(tmp_path):
    full = geometry("fan", 13, 30)
    full = dataclasses.replace(full, angles=np.linspace(0, 2 * np.pi, 13))
    scan = Scan(np.asarray(PHANTOMS["disc"]().sinogram(full)), full)
    again = read_scan(save_scan(tmp_path / "scan.npz", scan))
    assert again.geometry.views == 12 and "repeats the first" in again.notes[0]
    for views, bins, words in ((1, 30, "a single view"), (4, 1, "a single detector bin")):
        small = geometry("parallel", views, bins)
        made = Scan(np.ones((views, bins), np.float32), small)
        assert any(words in note for note in read_scan(save_scan(tmp_path / "scan.npz", made)).notes)


def test_thinned_views_and_default_pixels():
    scan = a_scan("fan")
    few = scan.thinned(5)
    index = np.arange(5) * 12 // 5
    np.testing.assert_array_equal(few.sinogram, scan.sinogram[index])
    np.testing.assert_array_equal(few.geometry.angles, scan.geometry.angles[index])
    with pytest.raises(ValueError, match="has 12 views: choose 1 to 12, not 13"):
        scan.thinned(13)
    radius, height = field_of_view(scan.geometry)
    assert height == 0 and radius == pytest.approx(1.2, rel=0.05)
    assert scan.grid() == ImageGrid(30, pixel=2 * radius / 30) and scan.grid(8, 0.1) == ImageGrid(
        8, pixel=0.1
    )


def test_a_row_of_a_panel():
    stack = VolumeGeometry.parallel(angles_of(6, np.pi), 3, 9, 0.5, axis_shift=0.25)
    values = np.random.default_rng(0).random(stack.shape, np.float32)
    scan = Scan(values, stack, "mm", "stack")
    row = scan.row(1)
    np.testing.assert_array_equal(row.sinogram, values[:, 1])
    np.testing.assert_allclose(row.geometry.angles, stack.angles)
    np.testing.assert_allclose(row.geometry.detector_offset, -0.25, atol=1e-6)
    assert scan.grid() == VolumeGrid(3, 9, pixel=scan.grid().pixel)
    with pytest.raises(ValueError, match="choose 0 to 2"):
        scan.row(3)
    cone = VolumeGeometry.cone(angles_of(6), 3, 9, 0.5, source_to_axis=4.0, source_to_detector=6.0)
    with pytest.raises(ValueError, match="parallel rays"):
        Scan(values, cone).row(0)


# ------------------------------------------------------------------------------------------ formats


def counts_of(sinogram, dark=100.0, beam=20000.0):
    return (dark + beam * np.exp(-sinogram)).astype(np.float32)


def test_data_exchange(tmp_path):
    sinogram = np.stack([np.asarray(PHANTOMS["disc"]().sinogram(geometry("parallel", 9, 20)))] * 2, 1)
    path = tmp_path / "scan.h5"
    with h5py.File(path, "w") as file:
        file["exchange/data"] = counts_of(sinogram)
        file["exchange/data_white"] = np.full((2, 2, 20), 20100.0)
        file["exchange/data_dark"] = np.full((2, 2, 20), 100.0)
    with pytest.raises(ValueError, match="theta is missing: give the first and the last angle"):
        read_scan(path)
    scan = read_scan(path, angles=(0, 160))
    np.testing.assert_allclose(scan.sinogram, sinogram, atol=1e-4)
    assert scan.is_volume and scan.geometry.shape == (9, 2, 20)
    np.testing.assert_allclose(np.rad2deg(scan.geometry.angles), np.linspace(0, 160, 9), atol=1e-4)
    with h5py.File(path, "a") as file:
        file["exchange/theta"] = np.arange(9) * 20.0
    assert read_scan(path).geometry.views == 9
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = 1
    with pytest.raises(ValueError, match="neither exchange/data"):
        read_scan(tmp_path / "other.h5")
    (tmp_path / "cut.h5").write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="not a readable HDF5 file"):
        read_scan(tmp_path / "cut.h5")


def test_nxtomo_with_a_moved_link(tmp_path):
    sinogram = np.random.default_rng(0).random((6, 2, 5))
    keys = np.array([1, 1, 2, 0, 0, 0, 0, 0, 0, 1])
    frames = np.full((10, 2, 5), 20100.0)
    frames[keys == 2], frames[keys == 0] = 100.0, counts_of(sinogram)
    with h5py.File(tmp_path / "frames.h5", "w") as file:
        file["entry/frames"] = frames
    with h5py.File(tmp_path / "scan.nxs", "w") as file:
        detector = file.create_group("entry/instrument/detector")
        detector["image_key"] = keys
        detector["data"] = h5py.ExternalLink("elsewhere/frames.h5", "/entry/frames")
        file["entry/sample/rotation_angle"] = np.linspace(0, 90, 10)
    scan = read_scan(tmp_path / "scan.nxs")
    np.testing.assert_allclose(scan.sinogram, sinogram, atol=1e-3)
    np.testing.assert_allclose(np.rad2deg(scan.geometry.angles), np.linspace(0, 90, 10)[keys == 0], atol=1e-4)


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
    tifffile.imwrite(tmp_path / "sinogram.tif", counts_of(sinogram, dark=0.0))
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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "spiral"}, "geometry is 'spiral'"),
        ({"kind": "fan"}, "source_to_axis is missing"),
        ({"data": "nothing*.tif"}, "no file 'nothing"),
        ({"angles": "[0, 1, 2]"}, "3 angles for 6 views; are rows and columns"),
        ({"angles": "{ start = 0 }"}, "give start and stop"),
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


def test_sinoparams(tmp_path):
    numbers = np.random.default_rng(0).random((4, 6)).astype("<f4")
    numbers.tofile(tmp_path / "shepp_slice0001.2Dsinodata")
    text = "Geometry : parallel\nNChannels: 6\nNViews: 4\nDeltaChannel: 0.5\nCenterOffset: -2\n"
    (tmp_path / "shepp.sinoparams").write_text(text)
    scan = read_scan(tmp_path / "shepp.sinoparams")
    np.testing.assert_array_equal(scan.sinogram, numbers)
    assert float(scan.geometry.axis_shift) == -1.0 and "ViewAngleList.txt is missing" in scan.notes[0]
    (tmp_path / "shepp.sinoparams").write_text(text.replace("NViews: 4", "NViews: 5"))
    with pytest.raises(ValueError, match="24 numbers, not 5 views of 6 channels"):
        read_scan(tmp_path / "shepp.sinoparams")


@pytest.mark.data
def test_measured_scans(data_folder):
    folder = data_folder / "ct"
    htc = read_scan(folder / "htc2022" / "htc2022_tc_full.mat")
    assert htc.geometry.shape == (720, 560) and htc.unit == "mm" and "repeats the first" in htc.notes[0]
    tooth = read_scan(folder / "tomopy_tooth" / "tooth.h5")
    assert tooth.geometry.shape == (181, 2, 640) and 1.5 < tooth.sinogram.max() < 2.5
    beamline = read_scan(folder / "httomo_k11" / "k11-18014.nxs", angles=(0, 180))
    assert beamline.geometry.shape == (3001, 22, 26)
    with pytest.raises(ValueError, match="rotation_angle is missing"):
        read_scan(folder / "httomo_k11" / "k11-18014.nxs")
    chip = read_scan(folder / "xradia_chip" / "txrm_test_chip_tomo.txrm")
    assert chip.geometry.shape == (7, 256, 256) and "no open beam" in chip.notes[0]


# ------------------------------------------------------------------------------------------ CTSimU


@pytest.mark.data
def test_scenario_gives_the_matrices_of_another_program(data_folder, x64):
    """CERA's projection matrices count rows upwards and look at the object turned by half a turn."""
    folder = data_folder / "ct" / "ctsimu" / "01_full"
    geometry: Any = read_ctsimu(folder / "01_full_example.json", deviations="known").geometry
    text = (folder / "reconstruction" / "01_full_example_recon_cera_projtable.txt").read_text()
    scanner = geometry.scanner()
    for k, block in enumerate(text.split("@")[1:]):
        theirs = np.array([[float(x) for x in line.split()] for line in block.splitlines()[2:5]])
        ours = np.array(jax.tree.map(lambda leaf, k=k: leaf[k], scanner).camera())
        ours[1] = (geometry.rows - 1) * ours[2] - ours[1]
        ours[:, :2] *= -1
        np.testing.assert_allclose(ours / ours[2, 3], theirs / theirs[2, 3], rtol=1e-6, atol=1e-9)


@pytest.mark.data
@pytest.mark.parametrize("name", ["02_simple_scan_circular", "05_axis_wobble"])
def test_the_object_is_seen_where_the_scenario_says(name, data_folder):
    """The mesh, placed as the scenario says, covers the pixels that are dark; not so without the wobble."""
    folder = data_folder / "ct" / "ctsimu" / name
    scan = read_scan(folder / f"{name}.json")
    assert scan.geometry.views == 20 and any("repeats the first" in note for note in scan.notes)
    corners = read_stl(folder / "tetra.stl").reshape(-1, 3)
    sample = json.loads((folder / f"{name}.json").read_text())["samples"][0]["position"]["center"]
    place = [sample[axis]["value"] for axis in "uvw"]
    corners = corners - (corners.max(0) + corners.min(0)) / 2 + place
    choices: list[tuple[Deviations, bool]] = [("all", True), ("none", name.startswith("02"))]
    for deviations, fits in choices:
        geometry = read_ctsimu(folder / f"{name}.json", deviations=deviations).geometry
        assert isinstance(geometry, VolumeGeometry)
        off = []
        for k in range(20):
            view = jax.tree.map(lambda leaf, k=k: leaf[k], geometry.scanner())
            u, v, w = np.asarray(view.camera()) @ np.vstack([corners.T, np.ones(len(corners))])
            rows, bins = np.nonzero(scan.sinogram[k] > 0.25)
            off += [abs((u / w).max() - bins.max()), abs((v / w).min() - rows.min())]
        assert (max(off) < 3.1) == fits, (deviations, max(off))


def number(value, unit="mm", **more):
    return {"value": value, "unit": unit, **more}


def vector(*values, **more):
    return {axis: number(value, **more) for axis, value in zip("xyz", values, strict=True)}


def small_scenario(views=2, deviation=None):
    """Source at x = 0, stage at 30, panel of 3 rows and 5 columns at 40."""
    axes = {"vector_u": vector(0, -1, 0), "vector_w": vector(1, 0, 0)}
    upright = {"vector_u": vector(1, 0, 0), "vector_w": vector(0, 0, 1)}
    deviations = [] if deviation is None else [deviation]
    return {
        "geometry": {
            "source": {"type": "cone", "center": vector(0, 0, 0), **axes},
            "detector": {"center": vector(40, 0, 0), **axes, "deviations": deviations},
            "stage": {"center": vector(30, 0, 0), **upright},
        },
        "detector": {
            "rows": number(3, "px"),
            "columns": number(5, "px"),
            "pixel_pitch": {"u": number(0.5), "v": number(0.25)},
        },
        "acquisition": {
            "start_angle": number(0, "deg"),
            "stop_angle": number(180, "deg"),
            "number_of_projections": views,
            "include_final_angle": True,
            "direction": "CCW",
        },
    }


def test_deviations_of_a_small_scenario():
    higher = {"type": "translation", "axis": "z", "amount": number(0.1, "cm")}
    scenario = small_scenario(deviation={**higher, "known_to_reconstruction": False})
    made = scenario_geometry(scenario)
    np.testing.assert_allclose(made.source, [[-30, 0, 0, 1], [30, 0, 0, 1]], atol=1e-5)
    np.testing.assert_allclose(made.middle, [[10, 0, 1], [-10, 0, 1]], atol=1e-5)
    np.testing.assert_allclose(made.u_step, [[0, -0.5, 0], [0, 0.5, 0]], atol=1e-6)
    np.testing.assert_allclose(made.v_step, [[0, 0, -0.25]] * 2, atol=1e-6)
    np.testing.assert_allclose(scenario_geometry(scenario, deviations="known").middle[:, 2], 0, atol=1e-6)


def test_drifts_of_a_small_scenario(tmp_path):
    """Values spread over the frames, linear in between; files too; unknown ones only when all count."""
    (tmp_path / "drift.txt").write_text("# micrometres\n0, 1\n100, 2\n")
    scenario = small_scenario(5)
    drifts = [
        {"value": [0, 0.4, 0], "unit": "mm"},
        {"file": "drift.txt", "unit": "um", "known_to_reconstruction": False},
    ]
    scenario["geometry"]["detector"]["center"]["z"]["drifts"] = drifts
    wave, ramp = np.array([0, 0.2, 0.4, 0.2, 0]), np.linspace(0, 0.1, 5)
    heights_of: dict[Deviations, np.ndarray] = {"all": wave + ramp, "known": wave, "none": 0 * wave}
    for deviations, heights in heights_of.items():
        made = scenario_geometry(scenario, deviations=deviations, folder=tmp_path)
        np.testing.assert_allclose(made.middle[:, 2], heights, atol=1e-6)
    scenario["detector"]["pixel_pitch"]["u"]["drifts"] = [{"value": 0.1}]
    made = scenario_geometry(scenario, folder=tmp_path)
    np.testing.assert_allclose(np.linalg.norm(made.u_step, axis=1), 0.6, rtol=1e-6)
    with pytest.raises(ValueError, match=r"drift\.txt: no list of drifts"):
        scenario_geometry(scenario, folder=tmp_path / "elsewhere")


def test_errors_of_scenarios(tmp_path):
    path = tmp_path / "scan.json"

    def refused(words, content):
        path.write_text(json.dumps(content))
        (tmp_path / "projections").mkdir(exist_ok=True)
        (tmp_path / "projections" / "scan_metadata.json").write_text('{"output": {"projections": {}}}')
        with pytest.raises(ValueError, match=words) as caught:
            read_scan(path)
        assert str(tmp_path) in str(caught.value)

    refused("neither a CTSimU scenario", {"projections": []})
    scenario = small_scenario()
    del scenario["geometry"]["stage"]["center"]["y"]
    refused("the field 'y' is missing", scenario)
    scenario = small_scenario(deviation={"type": "translation", "axis": "z", "amount": number(1, "inch")})
    refused("unit 'inch' is unknown", scenario)
    scenario = small_scenario()
    scenario["geometry"]["stage"]["deviations"] = {"position": {}, "rotation": {}}
    refused("before format", scenario)
    scenario = small_scenario()
    scenario["geometry"]["source"]["type"] = "helix"
    refused("cone or parallel", scenario)
    refused("output.projections.filename is missing", small_scenario())
    path.write_text("{")
    with pytest.raises(ValueError, match="not a readable JSON"):
        read_scan(path)


@pytest.mark.data
def test_metadata_of_corrected_projections(data_folder):
    """The reconstruction's metadata name the same views, corrected by another program."""
    folder = data_folder / "ct" / "ctsimu" / "01_full"
    theirs = read_scan(folder / "reconstruction" / "01_full_example_recon_metadata.json")
    assert "flat fields were applied already" in theirs.notes
    ours = read_scan(folder / "01_full_example.json")
    np.testing.assert_allclose(ours.sinogram, theirs.sinogram, atol=1e-4)


def test_stl_and_voxels(tmp_path):
    corners = np.array([(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)], float)
    faces = corners[np.array([(0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)])]
    write_stl(tmp_path / "one.stl", faces)
    np.testing.assert_allclose(read_stl(tmp_path / "one.stl"), faces)
    lines = ["solid t"]
    for face in faces:
        lines += ["facet normal 0 0 0", "outer loop", *(f"vertex {a} {b} {c}" for a, b, c in face), "endloop"]
    (tmp_path / "two.stl").write_text("\n".join([*lines, "endsolid t"]))
    np.testing.assert_allclose(read_stl(tmp_path / "two.stl"), faces)
    grid = VolumeGrid(22, pixel=0.0511, centre=(0.5, 0.5, 0.5))
    filled = voxelise(faces, grid)
    x, y, z = (
        (axis[:, None] + grid.pixel * np.array([-1, 0, 1]) / 3).ravel() for axis in (grid.x, grid.y, grid.z)
    )
    inside = (x > 0) & (y[:, None] > 0) & (z[:, None, None] > 0) & (x + y[:, None] + z[:, None, None] < 1)
    assert filled.sum() * 27 == pytest.approx(inside.sum(), rel=2e-3)
    assert filled[-4, -4, 4] == 1 and filled[4, 4, -4] == 0
    (tmp_path / "one.stl").write_bytes((tmp_path / "one.stl").read_bytes()[:150])
    with pytest.raises(ValueError, match="neither a whole binary nor an ASCII"):
        read_stl(tmp_path / "one.stl")
