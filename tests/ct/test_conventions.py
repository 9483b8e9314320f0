"""Geometries of ASTRA and CTSimU: their rays go through the same points as ours, there and back."""

import dataclasses
import json
from typing import Any

import jax
import numpy as np
import pytest

from sciml.ct import ImageGrid, JosephProjector, VolumeGeometry
from sciml.ct.conventions import from_astra, from_ctsimu, to_astra, to_ctsimu
from tests.ct.scans import angles_of, geometry, project

DISTANCES = {"source_to_axis": 4.0, "source_to_detector": 6.0}
PLANE = {
    "parallel": ("parallel", {}),
    "parallel-offset": ("parallel", {"detector_offset": 0.3, "axis_shift": 0.1}),
    "parallel-moving": ("parallel", {"axis_shift": np.linspace(0, 0.2, 7)}),
    "fan": ("fan", {}),
    "fan-offset": ("fan", {"detector_offset": 0.3, "axis_shift": -0.1}),
    "fan-moving": ("fan", {"source_to_axis": np.linspace(4, 4.5, 7), "axis_shift": 0.2}),
}
TYPES = ["parallel", "parallel_vec", "parallel_vec", "fanflat", "fanflat_vec", "fanflat_vec"]


def panel(kind, wobble=0.0, **lengths):
    angles = angles_of(7, 2.0)
    if kind == "cone":
        made = VolumeGeometry.cone(angles, 3, 8, (0.4, 0.5), **DISTANCES, **lengths)
    else:
        made = VolumeGeometry.parallel(angles, 3, 8, (0.4, 0.5), **lengths)
    if not wobble:
        return made
    tilt = wobble * np.sin(3 * angles)
    turns = np.zeros((7, 3, 3)) + np.eye(3)
    turns[:, 1, 1] = turns[:, 2, 2] = np.cos(tilt)
    turns[:, 1, 2], turns[:, 2, 1] = -np.sin(tilt), np.sin(tilt)
    return made.turned(turns)


def same(a, b, atol=2e-6):
    assert type(a) is type(b)
    for field in dataclasses.fields(a):
        mine, theirs = getattr(a, field.name), getattr(b, field.name)
        shape = np.broadcast_shapes(np.shape(mine), np.shape(theirs))
        mine, theirs = (np.broadcast_to(each, shape) for each in (mine, theirs))
        np.testing.assert_allclose(mine, theirs, atol=atol, err_msg=field.name)


@pytest.mark.parametrize(("name", "kind"), list(zip(PLANE, TYPES, strict=True)))
def test_plane_to_astra_and_back(name, kind, x64):
    """The line of a bin, by our camera, contains ASTRA's source (or ray) and the middle of ASTRA's bin."""
    made = geometry(PLANE[name][0], 7, 10, **PLANE[name][1])
    theirs = to_astra(made)
    assert theirs["type"] == kind and theirs["DetectorCount"] == 10
    vectors = theirs.get("Vectors")
    if vectors is None:  # by the formulas of ASTRA's documentation
        a = theirs["ProjectionAngles"]
        source, middle = theirs.get("DistanceOriginSource", 1), theirs.get("DistanceOriginDetector", 0)
        vectors = np.stack([np.sin(a) * source, -np.cos(a) * source, -np.sin(a) * middle, np.cos(a) * middle])
        vectors = np.vstack([vectors, theirs["DetectorWidth"] * np.stack([np.cos(a), np.sin(a)])]).T
    bin = np.array([0.0, 3.0, 9.0])
    for k, (first, middle, step) in enumerate(vectors.reshape(-1, 3, 2)):
        view = jax.tree.map(lambda leaf, k=k: leaf[k], made.scanner())
        l0, l1, l2 = (np.asarray(each) for each in view.line(bin))
        place = middle + (bin - 4.5)[:, None] * step
        np.testing.assert_allclose(l0 * place[:, 0] + l1 * place[:, 1] + l2, 0, atol=1e-12)
        ends_here = 1.0 if name.startswith("fan") else 0.0
        np.testing.assert_allclose(l0 * first[0] + l1 * first[1] + l2 * ends_here, 0, atol=1e-12)
    again: Any = from_astra(theirs)
    if PLANE[name][0] == "parallel":  # the two displacements are one
        offset = made.detector_offset - made.axis_shift
        made = dataclasses.replace(made, detector_offset=offset, axis_shift=again.axis_shift)
    same(again, made)


def test_any_parallel_detector_of_astra(x64):
    """A detector that is oblique to its rays sees lines closer together."""
    vectors = [[0.0, 1.0, 0.2, 5.0, 0.5, 0.5], [0.0, -2.0, 0.2, 5.0, 0.5, 0.5]]
    made: Any = from_astra({"type": "parallel_vec", "DetectorCount": 4, "Vectors": vectors})
    np.testing.assert_allclose(made.spacing, 0.5)
    np.testing.assert_allclose(made.angles, 0, atol=1e-12)
    np.testing.assert_allclose(made.bin_positions(), 0.2 + 0.5 * (np.arange(4) - 1.5))


@pytest.mark.parametrize("wobble", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["parallel", "cone"])
def test_panel_to_astra_and_back(kind, wobble, x64):
    made = panel(kind, wobble, detector_offset=0.2, vertical_offset=-0.1, axis_shift=0.05)
    theirs = to_astra(made)
    assert theirs["type"] == ("cone_vec" if kind == "cone" else "parallel3d_vec")
    assert (theirs["DetectorRowCount"], theirs["DetectorColCount"]) == (3, 8)
    first, middle, u, v = np.split(theirs["Vectors"], 4, axis=1)
    place = middle + (2 - 1.0) * v + (5 - 3.5) * u
    for k in range(7):
        view = jax.tree.map(lambda leaf, k=k: leaf[k], made.scanner())
        step = place[k] - first[k] if kind == "cone" else first[k]
        on_ray = np.stack([place[k], place[k] - 0.4 * step])
        seen = np.asarray(view.camera()) @ np.vstack([on_ray.T, np.ones(2)])
        np.testing.assert_allclose(seen[:2] / seen[2], [[5, 5], [2, 2]], atol=1e-9)
    same(from_astra(theirs), made)


@pytest.mark.parametrize("kind", ["parallel3d", "cone"])
def test_upright_panels_of_astra_count_rows_upwards(kind):
    angles = angles_of(7, 2.0)
    given = {
        "type": kind,
        "DetectorSpacingX": 0.5,
        "DetectorSpacingY": 0.4,
        "DetectorRowCount": 3,
        "DetectorColCount": 8,
        "ProjectionAngles": angles,
        "DistanceOriginSource": 4.0,
        "DistanceOriginDetector": 2.0,
    }
    made: Any = from_astra(given)
    ours = panel("cone" if kind == "cone" else "parallel")
    np.testing.assert_allclose(made.v_step, [[0, 0, 0.4]] * 7, atol=1e-6)
    np.testing.assert_allclose(made.u_step, ours.u_step, atol=1e-6)
    np.testing.assert_allclose(made.source, ours.source, atol=1e-6)
    np.testing.assert_allclose(made.middle, ours.middle, atol=1e-6)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"type": "spiral"}, "type is 'spiral'"),
        ({"type": "parallel", "DetectorCount": 3, "DetectorWidth": 1.0}, "ProjectionAngles is missing"),
        (
            {"type": "cone_vec", "Vectors": np.ones((3, 6)), "DetectorRowCount": 2, "DetectorColCount": 2},
            "12",
        ),
        ({"type": "fanflat_vec", "DetectorCount": 3, "Vectors": [[0, -4, 0, 2, -1, 0]]}, "right to left"),
        ({"type": "parallel_vec", "DetectorCount": 3, "Vectors": [[1, 0, 0, 2, 1, 0]]}, "along the detector"),
    ],
)
def test_errors_of_astra(given, words):
    with pytest.raises(ValueError, match=words):
        from_astra(given)


def test_no_curved_detector_in_astra():
    with pytest.raises(ValueError, match="no curved detector"):
        to_astra(geometry("curved"))


@pytest.mark.parametrize("wobble", [0.0, 0.1])
@pytest.mark.parametrize("kind", ["parallel", "cone"])
@pytest.mark.parametrize("clockwise", [False, True])
def test_ctsimu_and_back(kind, wobble, clockwise, x64):
    made = panel(kind, wobble, detector_offset=0.2, vertical_offset=-0.1, axis_shift=0.05)
    made = made.subset(slice(None, None, -1)) if clockwise else made
    scenario = json.loads(json.dumps(to_ctsimu(made, unit="cm")))
    assert scenario["acquisition"]["direction"] == ("CCW" if clockwise else "CW")
    assert ("drifts" in json.dumps(scenario)) == bool(wobble)
    again = from_ctsimu(scenario)
    if kind == "parallel":  # where the panel stands along its rays is free
        same(dataclasses.replace(again, middle=10 * made.middle), scaled(made, 10), 1e-4)
        across = np.cross(again.middle - 10 * made.middle, made.source[:, :3])
        np.testing.assert_allclose(across, 0, atol=1e-4)
    else:
        same(again, scaled(made, 10), 1e-4)
    assert (
        not wobble
        or abs(from_ctsimu(scenario, deviations="none").v_step[:, :2]).max() < abs(again.v_step[:, :2]).max()
    )


def scaled(made, factor):
    source = np.array(made.source)
    source[source[:, 3] > 0, :3] *= factor
    rest = (factor * np.asarray(each) for each in (made.middle, made.u_step, made.v_step))
    return VolumeGeometry(source, *rest, rows=made.rows, bins=made.bins)


def test_skewed_panels_are_no_ctsimu():
    made = panel("cone")
    with pytest.raises(ValueError, match="right angles"):
        to_ctsimu(dataclasses.replace(made, v_step=made.v_step + 0.2 * made.u_step))


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PLANE)
def test_projections_of_astra(name, x64):
    """ASTRA, given the dictionary, measures the same line integrals of a smooth object."""
    astra = pytest.importorskip("astra")
    made = geometry(PLANE[name][0], 7, 60, width=2.4, **PLANE[name][1])
    grid = ImageGrid(120, pixel=2 / 120)
    x, y = grid.x, grid.y[:, None]
    image = np.exp(-20 * ((x - 0.3) ** 2 + (y + 0.2) ** 2)) + 0.5 * np.exp(-30 * ((x + 0.4) ** 2 + y**2))
    volume = astra.create_vol_geom(120, 120, -1, 1, -1, 1)
    kind = "line_fanflat" if name.startswith("fan") else "line"
    kind = astra.create_projector(kind, to_astra(made), volume)
    _, theirs = astra.create_sino(image, kind)
    ours = np.asarray(project(JosephProjector(made, grid), image))
    assert np.linalg.norm(ours - theirs) < 0.01 * np.linalg.norm(ours)
