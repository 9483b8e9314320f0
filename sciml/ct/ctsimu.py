"""CTSimU scenarios (JSON, format 1.2) with their projections: every view in the frame of the object.

A scenario places source, detector and stage in a world (x, y, z); each has axes u, w and v = w x u. The
stage turns about its w by the angle of the frame, then its deviations apply, in its own turned axes if they
are given in u, v, w. Any number may drift: values spread evenly over the frames, linear in between, are added
to it.
Seen from the stage, source and detector move instead; u, v, w of the stage are x, y, z of the volume.
Reference: https://bamresearch.github.io/ctsimu-scenarios
"""

import dataclasses
import json
from pathlib import Path
from typing import Any, Literal

import numpy as np

from sciml.ct.counts import line_integrals
from sciml.ct.scan import Scan
from sciml.ct.volume_geometry import VolumeGeometry

_UNITS = {
    **{"m": 1000.0, "dm": 100.0, "cm": 10.0, "mm": 1.0, "um": 1e-3, "µm": 1e-3, "nm": 1e-6},
    **{"rad": 1.0, "deg": np.pi / 180, "px": 1.0, None: 1.0},
}

Deviations = Literal["all", "known", "none"]


@dataclasses.dataclass(frozen=True)
class _Moment:
    """A frame, from 0 (first) to 1 (last), and what counts of the deviations and drifts."""

    progress: float
    deviations: Deviations = "all"
    folder: Path | None = None

    def counts(self, deviation: dict[str, Any]) -> bool:
        known = deviation.get("known_to_reconstruction", True)
        return self.deviations == "all" or (self.deviations == "known" and known is not False)


_IDEAL = _Moment(0.0, "none")


def read_ctsimu(path: Path, *, deviations: Deviations = "all") -> Scan:
    """Reads a scenario, or the metadata beside its projections, lengths in millimetres.

    Args:
        path: the JSON file; projections lie beside the metadata, or in `projections/` beside the scenario.
        deviations: which deviations from the ideal geometry count: all, those that are known to the
            reconstruction, or none.
    """
    content = _json(path)
    if "projections" in (content.get("output") or {}):
        metadata_path, metadata = path, content
        scenario = (content.get("simulation") or {}).get("ctsimu_scenario")
        if not scenario:
            name = (content.get("acquisition_geometry") or {}).get("path_to_CTSimU_JSON")
            if not name:
                raise ValueError(f"{path}: acquisition_geometry.path_to_CTSimU_JSON is missing")
            scenario = _json(path.parent / name)
    else:
        parts = content.get("geometry")
        if not isinstance(parts, dict) or not {"source", "detector", "stage"} <= set(parts):
            raise ValueError(
                f"{path}: neither a CTSimU scenario (geometry: source, detector, stage) nor its"
                " metadata (output.projections)"
            )
        scenario = content
        found = sorted((path.parent / "projections").glob("*_metadata.json"))
        if not found:
            raise ValueError(f"{path}: no *_metadata.json with the projections in projections/ beside it")
        metadata_path, metadata = found[0], _json(found[0])
    try:
        geometry = scenario_geometry(scenario, deviations=deviations, folder=path.parent)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: the field {error} is missing or wrong") from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    counts, flats, darks, notes = _projections(metadata_path, metadata, geometry)
    sinogram, more = line_integrals(counts, flats, darks, what=str(metadata_path))
    return Scan(sinogram, geometry, "mm", path.stem.removesuffix("_metadata"), (*notes, *more))


def scenario_geometry(
    scenario: dict[str, Any], *, deviations: Deviations = "all", folder: Path | None = None
) -> VolumeGeometry:
    """The geometry that a scenario describes.

    Args:
        scenario: the content of a scenario's JSON file.
        deviations: which deviations and drifts count: all, those that are known to the reconstruction, or
            none.
        folder: where the files of drifts lie; default the working folder.

    Raises:
        KeyError: naming a field that is missing.
        ValueError: for a source that is neither a cone nor parallel, or a unit that is not known.
    """
    parts, detector = scenario["geometry"], scenario["detector"]
    kind = parts["source"].get("type", "cone")
    if kind not in ("cone", "parallel"):
        raise ValueError(f"geometry.source.type is {kind!r}: cone or parallel")
    sources, middles, u_steps, v_steps = [], [], [], []
    angles = scan_angles(scenario["acquisition"])
    for frame, angle in enumerate(angles):
        moment = _Moment(frame / max(1, len(angles) - 1), deviations, folder)
        stage, source, panel = (
            _deviated(_frame(parts[name], moment), parts[name], moment, turn)
            for name, turn in (("stage", angle), ("source", 0.0), ("detector", 0.0))
        )
        across, down = (_number(detector["pixel_pitch"][axis], moment) for axis in "uv")
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


def _frame(part: dict[str, Any], moment: _Moment) -> Frame:
    centre = _vector(part["center"], "xyz", moment)
    u, w = (_unit(_vector(part[f"vector_{name}"], "xyz", moment)) for name in "uw")
    return centre, np.stack([u, np.cross(w, u), w])


def _deviated(frame: Frame, part: dict[str, Any], moment: _Moment, turn: float) -> Frame:
    from scipy.spatial.transform import Rotation

    centre, axes = frame
    axes = axes @ Rotation.from_rotvec(turn * axes[2]).as_matrix().T
    listed = part.get("deviations") or []
    if not isinstance(listed, list):
        raise ValueError("deviations are no list: scenarios before format 1.0 are not read; convert them")
    for deviation in listed:
        if not moment.counts(deviation):
            continue
        direction = _direction(deviation["axis"], axes, moment)
        amount = _number(deviation["amount"], moment)
        if deviation["type"] == "translation":
            centre = centre + amount * direction
            continue
        rotation = Rotation.from_rotvec(amount * direction).as_matrix()
        pivot = deviation.get("pivot") or {}
        if any(key in pivot for key in "xyz"):
            point = _vector(_whole(pivot, "xyz"), "xyz", moment)
        else:
            point = centre + _vector(_whole(pivot, "uvw"), "uvw", moment) @ axes
        centre, axes = point + rotation @ (centre - point), axes @ rotation.T
    return centre, axes


def _direction(axis: Any, axes: np.ndarray, moment: _Moment) -> np.ndarray:
    if isinstance(axis, str):
        return axes["uvw".index(axis)] if axis in "uvw" else np.eye(3)["xyz".index(axis)]
    if any(key in axis for key in "xyz"):
        return _unit(_vector(_whole(axis, "xyz"), "xyz", moment))
    return _unit(_vector(_whole(axis, "uvw"), "uvw", moment) @ axes)


def _whole(entry: dict[str, Any], keys: str) -> dict[str, Any]:
    return {key: entry.get(key) for key in keys}


def _vector(entry: dict[str, Any], keys: str, moment: _Moment) -> np.ndarray:
    if missing := [key for key in keys if key not in entry]:
        raise KeyError(missing[0])
    return np.array([_number(entry[key], moment) for key in keys])


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def _number(entry: Any, moment: _Moment = _IDEAL) -> float:
    """A number in millimetres or radians, with what has drifted until that moment."""
    if not isinstance(entry, dict):
        return float(entry or 0)
    value = float(entry["value"] or 0) * _factor(entry.get("unit"))
    drifts = entry.get("drifts") or []
    for drift in drifts if isinstance(drifts, list) else [drifts]:
        if moment.counts(drift):
            given = np.atleast_1d(_drift_values(drift, moment))
            moments = np.linspace(0, 1, len(given))
            unit = drift.get("unit", entry.get("unit"))
            value += float(np.interp(moment.progress, moments, given)) * _factor(unit)
    return value


def _drift_values(drift: dict[str, Any], moment: _Moment) -> Any:
    if drift.get("value") is not None:
        return np.asarray(drift["value"], np.float64)
    path = (moment.folder or Path()) / drift["file"]
    try:
        lines = [line.split("#")[0].replace(",", " ").split() for line in path.read_text().splitlines()]
        return np.array([float(line[0]) for line in lines if line])
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: no list of drifts: {error}") from error


def _factor(unit: str | None) -> float:
    if unit not in _UNITS:
        raise ValueError(f"the unit {unit!r} is unknown: {', '.join(name for name in _UNITS if name)}")
    return _UNITS[unit]


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

    if not names(output):
        raise ValueError(f"{path}: output.projections.filename is missing")
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
