"""CTSimU scenarios and triangle meshes: every view where another program and the images see it."""

import json
from typing import Any

import jax
import numpy as np
import pytest

from sciml.ct import VolumeGeometry, VolumeGrid, read_scan
from sciml.ct.ctsimu import Deviations, read_ctsimu, scenario_geometry
from sciml.ct.stl import read_stl, voxelise, write_stl


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
