"""CTSimU scenarios (JSON, format 1.2) with their projections: every view in the frame of the object.

A scenario places source, detector and stage in a world (x, y, z); each has axes u, w and v = w x u. The
stage turns about its w by the angle of the frame, then its deviations apply, in its own turned axes if they
are given in u, v, w.
Seen from the stage, source and detector move instead; u, v, w of the stage are x, y, z of the volume.
Reference: https://bamresearch.github.io/ctsimu-scenarios
"""

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sciml.ct.counts import line_integrals
from sciml.ct.scan import Scan
from sciml.ct.volume_geometry import VolumeGeometry

_UNITS = {
    "mm": 1.0,
    "m": 1000.0,
    "cm": 10.0,
    "um": 1e-3,
    "µm": 1e-3,
    "rad": 1.0,
    "deg": np.pi / 180,
    None: 1.0,
}

Deviations = Literal["all", "known", "none"]


def read_ctsimu(path: Path, *, deviations: Deviations = "all") -> Scan:
    """Reads a scenario, or the metadata beside its projections, lengths in millimetres.

    Args:
        path: the JSON file; projections lie beside the metadata, or in `projections/` beside the scenario.
        deviations: which deviations from the ideal geometry count: all, those that are known to the
            reconstruction, or none.
    """
    content = _json(path)
    if "projections" in content.get("output", {}):
        metadata_path, metadata = path, content
        scenario = content.get("simulation", {}).get("ctsimu_scenario")
        if scenario is None:
            name = content.get("acquisition_geometry", {}).get("path_to_CTSimU_JSON")
            if not name:
                raise ValueError(f"{path}: acquisition_geometry.path_to_CTSimU_JSON is missing")
            scenario = _json(path.parent / name)
    else:
        scenario = content
        found = sorted((path.parent / "projections").glob("*_metadata.json"))
        if not found:
            raise ValueError(f"{path}: no *_metadata.json with the projections in projections/ beside it")
        metadata_path, metadata = found[0], _json(found[0])
    try:
        geometry = scenario_geometry(scenario, deviations=deviations)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: the field {error} is missing or wrong") from error
    counts, flats, darks, notes = _projections(metadata_path, metadata, geometry)
    sinogram, more = line_integrals(counts, flats, darks, what=str(metadata_path))
    return Scan(sinogram, geometry, "mm", path.stem.removesuffix("_metadata"), (*notes, *more))


def scenario_geometry(scenario: dict[str, Any], *, deviations: Deviations = "all") -> VolumeGeometry:
    """The geometry that a scenario describes.

    Raises:
        KeyError: naming a field that is missing.
        ValueError: for a source that is neither a cone nor parallel.
    """
    parts, detector = scenario["geometry"], scenario["detector"]
    kind = parts["source"].get("type", "cone")
    if kind not in ("cone", "parallel"):
        raise ValueError(f"geometry.source.type is {kind!r}: cone or parallel")
    pitch = detector["pixel_pitch"]
    across, down = _number(pitch["u"]), _number(pitch["v"])
    sources, middles, u_steps, v_steps = [], [], [], []
    angles = scan_angles(scenario["acquisition"])
    for angle in angles:
        stage = _deviated(_frame(parts["stage"]), parts["stage"], deviations, turn=angle)
        source = _deviated(_frame(parts["source"]), parts["source"], deviations)
        panel = _deviated(_frame(parts["detector"]), parts["detector"], deviations)
        middles.append(stage[1] @ (panel[0] - stage[0]))
        u_steps.append(stage[1] @ panel[1][0] * across)
        v_steps.append(stage[1] @ panel[1][1] * down)
        if kind == "cone":
            sources.append([*(stage[1] @ (source[0] - stage[0])), 1.0])
        else:
            sources.append([*(-stage[1] @ source[1][2]), 0.0])
    rows, bins = (int(_number(detector[name])) for name in ("rows", "columns"))
    return VolumeGeometry(sources, middles, u_steps, v_steps, rows=rows, bins=bins)


def scan_angles(acquisition: dict[str, Any]) -> np.ndarray:
    """Angles of the stage in every frame [rad]."""
    start, stop = _number(acquisition["start_angle"]), _number(acquisition["stop_angle"])
    frames = int(acquisition["number_of_projections"])
    if frames > 1 and acquisition.get("include_final_angle", False):
        angles = np.linspace(start, stop, frames)
    else:
        angles = start + (stop - start) * np.arange(frames) / frames
    return -angles if acquisition.get("direction", "CCW") == "CW" else angles


Frame = tuple[np.ndarray, np.ndarray]  # centre, and rows u, v, w


def _frame(part: dict[str, Any]) -> Frame:
    centre = np.array([_number(part["center"][axis]) for axis in "xyz"])
    u, w = (_unit(np.array([_number(part[f"vector_{name}"][axis]) for axis in "xyz"])) for name in "uw")
    return centre, np.stack([u, np.cross(w, u), w])


def _deviated(frame: Frame, part: dict[str, Any], deviations: Deviations, turn: float = 0.0) -> Frame:
    from scipy.spatial.transform import Rotation

    centre, axes = frame
    axes = axes @ Rotation.from_rotvec(turn * axes[2]).as_matrix().T
    for deviation in part.get("deviations") or []:
        if deviations == "none":
            break
        if deviations == "known" and not deviation.get("known_to_reconstruction", True):
            continue
        direction, amount = _direction(deviation["axis"], axes), _number(deviation["amount"])
        if deviation["type"] == "translation":
            centre = centre + amount * direction
            continue
        rotation = Rotation.from_rotvec(amount * direction).as_matrix()
        pivot = deviation.get("pivot") or {}
        if any(key in pivot for key in "xyz"):
            point = np.array([_number(pivot[key]) for key in "xyz"])
        else:
            point = centre + np.array([_number(pivot.get(key)) for key in "uvw"]) @ axes
        centre, axes = point + rotation @ (centre - point), axes @ rotation.T
    return centre, axes


def _direction(axis: Any, axes: np.ndarray) -> np.ndarray:
    if isinstance(axis, str):
        return axes["uvw".index(axis)] if axis in "uvw" else np.eye(3)["xyz".index(axis)]
    if any(key in axis for key in "xyz"):
        return _unit(np.array([_number(axis.get(key)) for key in "xyz"]))
    return _unit(np.array([_number(axis.get(key)) for key in "uvw"]) @ axes)


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def _number(entry: Any) -> float:
    if entry is None:
        return 0.0
    if not isinstance(entry, dict):
        return float(entry)
    value = entry["value"]
    return 0.0 if value is None else float(value) * _UNITS.get(entry.get("unit"), 1.0)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ValueError(f"{path}: no such file") from error
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: not a readable JSON file: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path}: no CTSimU scenario")
    return content


def _projections(path: Path, metadata: dict[str, Any], geometry: VolumeGeometry):
    from sciml.ct.described import read_images

    output = metadata["output"]["projections"]

    def names(entry: dict[str, Any]) -> list[Path]:
        pattern = entry.get("filename")
        if not pattern:
            return []
        number = int(entry.get("number") or 1)
        return [path.parent / (pattern % k if "%" in pattern else pattern) for k in range(number)]

    counts = read_images(names(output))
    if counts.shape != geometry.shape:
        raise ValueError(f"{path}: projections of shape {counts.shape}, the scenario says {geometry.shape}")
    flat, dark = (output.get(f"{kind}_field") or {} for kind in ("flat", "dark"))
    corrected = bool(flat.get("projections_corrected"))
    flats = None if corrected or not names(flat) else read_images(names(flat))
    darks = None if corrected or not names(dark) else read_images(names(dark))
    if flats is not None:
        return counts, flats, darks, ()
    brightest = output.get("max_intensity")
    if not brightest:
        return counts, None, darks, ()
    if corrected:
        return counts, float(brightest), None, ("flat fields were applied already",)
    # without a flat field: the flux through a pixel falls with distance and obliquity
    source, corner = (
        np.asarray(each[0], np.float64) for each in (geometry.source, geometry.scanner().corner)
    )
    u, v = np.asarray(geometry.u_step[0], np.float64), np.asarray(geometry.v_step[0], np.float64)
    row, bin = np.arange(geometry.rows)[:, None, None], np.arange(geometry.bins)[None, :, None]
    ray = corner + row * v + bin * u - source[:3]
    normal = _unit(np.cross(u, v))
    cosine = abs(ray @ normal) / np.linalg.norm(ray, axis=-1)
    flat_field = float(brightest) * cosine**3 if source[3] else np.full(geometry.shape[1:], float(brightest))
    return (
        counts,
        flat_field,
        darks,
        ("no flat field: computed from max_intensity and the obliquity of rays",),
    )
