"""Geometries as other programs write them: `to_astra`, `from_astra`, `to_ctsimu`, `from_ctsimu`.

Pure dictionaries; no other package is imported. What else differs, beside the geometry:

| | here | ASTRA |
|---|---|---|
| sinogram | `[view, bin]` | the same |
| projections of a panel | `[view, row, bin]` | `[row, view, bin]`: `projections.transpose(1, 0, 2)` |
| image | `[row, column]`, first row on top | the same |
| volume | `[slice, row, column]`, first slice and first row on top | z and y grow: `volume[::-1, ::-1]` |

ASTRA's pixels have the side 1 unless its volume geometry says otherwise, so give it the extent of the grid,
in the unit of the geometry.
References: the ASTRA toolbox, docs/geom2d and geom3d; https://bamresearch.github.io/ctsimu-scenarios
"""

from typing import Any

import numpy as np

from sciml.ct.ctsimu import Deviations, scenario_geometry
from sciml.ct.geometry import FanBeam, ParallelBeam
from sciml.ct.scan import Geometry
from sciml.ct.volume_geometry import VolumeGeometry


def to_astra(geometry: Geometry) -> dict[str, Any]:
    """An ASTRA projection geometry: `parallel` or `fanflat` when angles and distances are enough,
    `parallel_vec` or `fanflat_vec` when offsets or changing lengths need vectors; of a panel `cone_vec` or
    `parallel3d_vec`.

    Raises:
        ValueError: for a curved detector, which ASTRA does not have.
    """
    if isinstance(geometry, VolumeGeometry):
        return _panel_to_astra(geometry)
    if not isinstance(geometry, ParallelBeam | FanBeam):
        raise ValueError(
            "ASTRA has no curved detector: resample the sinogram to equally spaced bins of a FanBeam"
        )
    lengths = {
        name: _numbers(getattr(geometry, name))
        for name in ("spacing", "detector_offset", "axis_shift", "source_to_axis", "source_to_detector")
        if hasattr(geometry, name)
    }
    angles = _numbers(geometry.angles)
    kind = "fanflat" if isinstance(geometry, FanBeam) else "parallel"
    made: dict[str, Any] = {"type": kind, "DetectorCount": geometry.bins}
    simple = not (lengths["detector_offset"].any() or lengths["axis_shift"].any())
    if simple and all(length.ndim == 0 for length in lengths.values()):
        made |= {"DetectorWidth": float(lengths["spacing"]), "ProjectionAngles": angles}
        if kind == "fanflat":
            source, panel = float(lengths["source_to_axis"]), float(lengths["source_to_detector"])
            made |= {"DistanceOriginSource": source, "DistanceOriginDetector": panel - source}
        return made
    along = {name: np.broadcast_to(length, angles.shape)[:, None] for name, length in lengths.items()}
    e_u, e_r = _axes(angles)
    if kind == "fanflat":
        first = -along["source_to_axis"] * e_r - along["axis_shift"] * e_u
        middle = first + along["source_to_detector"] * e_r + along["detector_offset"] * e_u
    else:
        first, middle = e_r, (along["detector_offset"] - along["axis_shift"]) * e_u
    vectors = np.concatenate([first, middle, along["spacing"] * e_u], 1)
    return {"type": f"{kind}_vec", "DetectorCount": geometry.bins, "Vectors": vectors}


def _panel_to_astra(geometry: VolumeGeometry) -> dict[str, Any]:
    source = _numbers(geometry.source)
    if np.ptp(source[:, 3]):
        raise ValueError("ASTRA has no scans with both parallel rays and point sources: split the views")
    parallel = geometry.is_parallel
    first = -source[:, :3] if parallel else source[:, :3]
    rest = [_numbers(each) for each in (geometry.middle, geometry.u_step, geometry.v_step)]
    return {
        "type": "parallel3d_vec" if parallel else "cone_vec",
        "DetectorRowCount": geometry.rows,
        "DetectorColCount": geometry.bins,
        "Vectors": np.concatenate([first, *rest], 1),
    }


def from_astra(geometry: dict[str, Any]) -> Geometry:
    """The geometry that an ASTRA dictionary describes: `parallel`, `fanflat`, `parallel3d`, `cone`, and each
    with `_vec`.

    Raises:
        ValueError: naming the field that is missing or does not fit.
    """
    kind = geometry.get("type")
    if kind in ("parallel", "fanflat"):
        angles, width, bins = _fields(geometry, "ProjectionAngles", "DetectorWidth", "DetectorCount")
        if kind == "parallel":
            return ParallelBeam(_numbers(angles), bins, width)
        source, panel = _fields(geometry, "DistanceOriginSource", "DistanceOriginDetector")
        return FanBeam(
            _numbers(angles), bins, width, source_to_axis=source, source_to_detector=source + panel
        )
    if kind in ("parallel_vec", "fanflat_vec"):
        vectors, bins = _fields(geometry, "Vectors", "DetectorCount")
        return _plane_of_vectors(_checked(vectors, 6), int(bins), kind == "fanflat_vec")
    if kind in ("parallel3d", "cone"):
        angles, across, down = _fields(geometry, "ProjectionAngles", "DetectorSpacingX", "DetectorSpacingY")
        rows, bins = _fields(geometry, "DetectorRowCount", "DetectorColCount")
        # their rows are counted upwards
        if kind == "parallel3d":
            upright = VolumeGeometry.parallel(_numbers(angles), rows, bins, (down, across))
        else:
            source, panel = _fields(geometry, "DistanceOriginSource", "DistanceOriginDetector")
            upright = VolumeGeometry.cone(
                _numbers(angles),
                rows,
                bins,
                (down, across),
                source_to_axis=source,
                source_to_detector=source + panel,
            )
        return VolumeGeometry(
            upright.source, upright.middle, upright.u_step, -upright.v_step, rows=rows, bins=bins
        )
    if kind in ("parallel3d_vec", "cone_vec"):
        vectors, rows, bins = _fields(geometry, "Vectors", "DetectorRowCount", "DetectorColCount")
        first, *rest = np.split(_checked(vectors, 12), 4, axis=1)
        last = np.full((len(first), 1), float(kind == "cone_vec"))
        source = np.concatenate([first if kind == "cone_vec" else -first, last], 1)
        return VolumeGeometry(source, *rest, rows=int(rows), bins=int(bins))
    raise ValueError(f"type is {kind!r}: parallel, fanflat, parallel3d or cone, or one of these with _vec")


def _plane_of_vectors(vectors: np.ndarray, bins: int, fan: bool) -> ParallelBeam | FanBeam:
    first, middle, step = vectors[:, :2], vectors[:, 2:4], vectors[:, 4:]
    if not fan:  # e_u is across the rays, the spacing and the offset are those seen along them
        across = np.stack([first[:, 1], -first[:, 0]], 1) / np.linalg.norm(first, axis=1)[:, None]
        e_u = across * np.sign((across * step).sum(1))[:, None]
        angles, spacing = np.unwrap(np.arctan2(e_u[:, 1], e_u[:, 0])), (e_u * step).sum(1)
        if not (spacing > 0).all():
            raise ValueError("Vectors: the rays run along the detector; check the order of the six columns")
        offset = _once((e_u * middle).sum(1), bins * spacing.max())
        return ParallelBeam(angles, bins, _once(spacing, spacing.max()), detector_offset=offset)
    spacing = np.linalg.norm(step, axis=1)
    angles = np.unwrap(np.arctan2(step[:, 1], step[:, 0]))
    e_u, e_r = _axes(angles)
    if (((middle - first) * e_r).sum(1) <= 0).any():
        raise ValueError(
            "Vectors: seen from the source the bins are counted from right to left; reverse the detector"
            " vectors and the sinogram along its bins"
        )
    scale = float(abs(middle - first).max())
    return FanBeam(
        angles,
        bins,
        _once(spacing, spacing.max()),
        source_to_axis=_once(-(first * e_r).sum(1), scale),
        source_to_detector=_once(((middle - first) * e_r).sum(1), scale),
        detector_offset=_once(((middle - first) * e_u).sum(1), scale),
        axis_shift=_once(-(first * e_u).sum(1), scale),
    )


def from_ctsimu(scenario: dict[str, Any], *, deviations: Deviations = "all") -> VolumeGeometry:
    """The geometry of a CTSimU scenario, in the frame of the stage, in millimetres; see
    `sciml.ct.ctsimu.scenario_geometry`.
    """
    return scenario_geometry(scenario, deviations=deviations)


def to_ctsimu(geometry: VolumeGeometry, *, unit: str = "mm") -> dict[str, Any]:
    """`geometry`, `detector` and `acquisition` of a CTSimU scenario (format 1.2).

    The stage turns evenly from the first to the last view; whatever else moves is written as drifts.

    Args:
        geometry: the scan.
        unit: unit of its lengths.

    Raises:
        ValueError: when the two axes of the panel are not at right angles, or sources are mixed.
    """
    source, middle, u_step, v_step = (
        _numbers(each) for each in (geometry.source, geometry.middle, geometry.u_step, geometry.v_step)
    )
    across, down = np.linalg.norm(u_step, axis=1), np.linalg.norm(v_step, axis=1)
    if (abs((u_step * v_step).sum(1)) > 1e-4 * across * down).any():
        raise ValueError("the rows of the panel are not at right angles to its columns: CTSimU has no such")
    if np.ptp(source[:, 3]):
        raise ValueError("CTSimU has no scans with both parallel rays and point sources: split the views")
    views = geometry.views
    angles = np.unwrap(np.arctan2(u_step[:, 1], u_step[:, 0]))
    turn = np.linspace(0.0, angles[0] - angles[-1], views)  # of the stage: against that of the scanner
    cos, sin, zero, one = np.cos(turn), np.sin(turn), np.zeros(views), np.ones(views)
    stage = np.stack(
        [np.stack([cos, -sin, zero], 1), np.stack([sin, cos, zero], 1), np.stack([zero, zero, one], 1)], 1
    )
    vectors = (source[:, :3], middle, u_step / across[:, None], v_step / down[:, None])
    place, middle, u, v = (np.einsum("vij,vj->vi", stage, each) for each in vectors)
    scale = float(max(abs(middle).max(), abs(place).max() if source[0, 3] else 0, across.max()))

    def point(values: np.ndarray) -> dict[str, Any]:
        return {axis: _entry(values[:, k], scale, unit) for k, axis in enumerate("xyz")}

    def axes(u: np.ndarray, w: np.ndarray) -> dict[str, Any]:
        return {
            f"vector_{name}": {axis: _entry(vector[:, k], 1.0) for k, axis in enumerate("xyz")}
            for name, vector in (("u", u), ("w", w))
        }

    normal = np.cross(u, v)
    if source[0, 3]:
        lamp = {"type": "cone", "center": point(place), **axes(u, normal)}
    else:
        beam = -place / np.linalg.norm(place, axis=1)[:, None]
        side = u - (u * beam).sum(1)[:, None] * beam
        lamp = {
            "type": "parallel",
            "center": point(middle - beam * max(scale, 1.0)),
            **axes(side / np.linalg.norm(side, axis=1)[:, None], beam),
        }
    ones, zeros = np.ones((1, 1)), np.zeros((1, 1))
    upright = {
        "center": {axis: {"value": 0.0, "unit": unit} for axis in "xyz"},
        **axes(np.hstack([ones, zeros, zeros]), np.hstack([zeros, zeros, ones])),
    }
    return {
        "file": {"file_type": "CTSimU Scenario", "file_format_version": {"major": 1, "minor": 2}},
        "geometry": {
            "source": lamp,
            "stage": upright,
            "detector": {"center": point(middle), **axes(u, normal)},
        },
        "detector": {
            "columns": {"value": geometry.bins, "unit": "px"},
            "rows": {"value": geometry.rows, "unit": "px"},
            "pixel_pitch": {"u": _entry(across, across[0], unit), "v": _entry(down, down[0], unit)},
        },
        "acquisition": {
            "start_angle": {"value": 0.0, "unit": "deg"},
            "stop_angle": {"value": float(abs(np.rad2deg(turn[-1]))), "unit": "deg"},
            "direction": "CCW" if turn[-1] >= 0 else "CW",
            "number_of_projections": views,
            "include_final_angle": True,
        },
    }


# ------------------------------------------------------------------------------------------ parts


def _entry(values: np.ndarray, scale: float, unit: str | None = None) -> dict[str, Any]:
    """A number of CTSimU, with drifts when it is not the same in every view."""
    made: dict[str, Any] = {"value": float(values[0])}
    made |= {} if unit is None else {"unit": unit}
    if np.ptp(values) > 3e-6 * scale:
        drift = {"value": (values - values[0]).tolist(), "known_to_reconstruction": True}
        made["drifts"] = [drift if unit is None else {**drift, "unit": unit}]
    return made


def _axes(angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    cos, sin = np.cos(angles), np.sin(angles)
    return np.stack([cos, sin], 1), np.stack([-sin, cos], 1)


def _numbers(values: Any) -> np.ndarray:
    return np.asarray(values, np.float64)


def _once(values: np.ndarray, scale: float) -> Any:
    """One number when all are the same to seven digits of a length."""
    return values.mean() if np.ptp(values) <= 3e-7 * scale else values


def _fields(geometry: dict[str, Any], *names: str) -> list[Any]:
    for name in names:
        if name not in geometry:
            raise ValueError(
                f"{name} is missing; a {geometry['type']} geometry of ASTRA needs {', '.join(names)}"
            )
    return [geometry[name] for name in names]


def _checked(vectors: Any, columns: int) -> np.ndarray:
    made = _numbers(vectors)
    if made.ndim != 2 or made.shape[1] != columns or not len(made):
        raise ValueError(f"Vectors has shape {made.shape}: it is (views, {columns})")
    return made
