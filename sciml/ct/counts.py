"""From counts of a detector to line integrals: dark current, open beam, logarithm, and pixels that failed."""

import numpy as np
from jaxtyping import Bool, Float

_MOST_BAD = 0.05
_AT_ONCE = 1 << 22  # readings in double precision at a time


def line_integrals(
    counts: Float[np.ndarray, "views *panel"],
    flats: Float[np.ndarray, "*panel"] | float | None = None,
    darks: Float[np.ndarray, "*panel"] | float | None = None,
    *,
    what: str = "counts",
) -> tuple[Float[np.ndarray, "views *panel"], tuple[str, ...]]:
    """p = -log((counts - dark) / (flat - dark)), float32, and what had to be repaired.

    Values without a logarithm (nothing, less than the dark current, not finite) are interpolated along the
    detector.

    Args:
        counts: readings of the detector, (views, bins) or (views, rows, bins).
        flats: readings without an object, averaged when there are several, or one number; default the
            largest reading of every view, which needs air beside the object.
        darks: readings without a beam; default 0.
        what: name of the data in errors, such as the file.

    Raises:
        ValueError: when more than 5 % of the readings, or all of a view, have no logarithm, or the panels
            of flats and darks have another shape.
    """
    counts = np.asarray(counts)
    if counts.ndim not in (2, 3) or not counts.size:
        raise ValueError(
            f"{what}: readings of shape {counts.shape}: give (views, bins) or (views, rows, bins)"
        )
    panel, notes = counts.shape[1:], []

    def mean(readings, name):
        readings = np.asarray(readings, np.float64)
        if readings.shape in ((), panel):
            return readings
        if readings.shape[1:] != panel or not len(readings):
            raise ValueError(f"{what}: {name} have shape {readings.shape}, the views {counts.shape}")
        return readings.mean(0)

    dark = mean(0.0 if darks is None else darks, "darks")
    bright = None if flats is None else mean(flats, "flats")
    if bright is None:
        notes.append("no open beam: the brightest 0.5 % of every view was taken for it")
    made = np.empty(counts.shape, np.float32)
    step = max(1, _AT_ONCE // max(1, int(np.prod(panel))))
    lit = False
    for first in range(0, len(counts), step):
        part = counts[first : first + step].astype(np.float64)
        beam = (_brightest(part) if bright is None else bright) - dark
        lit |= bool((beam > 0).any())
        with np.errstate(divide="ignore", invalid="ignore"):
            made[first : first + step] = -np.log((part - dark) / np.where(beam > 0, beam, np.nan))
    if not lit:
        raise ValueError(
            f"{what}: the open beam is nowhere brighter than the dark current; are flats and darks swapped?"
        )
    made, repaired = interpolated(made, what)
    if repaired:
        notes.append(f"{repaired} readings without a logarithm were interpolated along the detector")
    return made, tuple(notes)


def _brightest(views: np.ndarray) -> np.ndarray:
    found = [
        np.percentile(view[good], 99.5) if (good := np.isfinite(view)).any() else np.nan for view in views
    ]
    return np.reshape(found, (-1, *(1,) * (views.ndim - 1)))


def interpolated(values: Float[np.ndarray, "views *panel"], what: str) -> tuple[np.ndarray, int]:
    """Values that are not finite replaced by their neighbours along the detector, and how many there were.

    Args:
        values: line integrals.
        what: name of the data in errors.

    Raises:
        ValueError: when more than 5 % of them are bad, or a whole view.
    """
    bad = ~np.isfinite(values)
    count = int(bad.sum())
    if not count:
        return values, 0
    views = bad.reshape(len(bad), -1)
    if bad.mean() > _MOST_BAD or views.all(1).any():
        whole = np.flatnonzero(views.all(1))
        where = f"view {whole[0]} has none" if len(whole) else f"{bad.mean():.0%} have none"
        raise ValueError(
            f"{what}: {count} of {bad.size} readings give no line integral ({where}): zero, negative or"
            " missing counts; leave these views out, or check the flat and dark fields"
        )
    repaired = values.copy()
    lines, failed = repaired.reshape(-1, values.shape[-1]), bad.reshape(-1, values.shape[-1])
    some = failed.any(1) & ~failed.all(1)
    lines[some] = _between(lines[some], ~failed[some])
    if failed.all(1).any():  # rows of a panel: from the rows above and below
        for view in np.flatnonzero(bad.all(-1).any(1)):
            repaired[view] = _between(repaired[view].T, np.isfinite(repaired[view].T)).T
    return repaired, count


def _between(lines: Float[np.ndarray, "n m"], good: Bool[np.ndarray, "n m"]) -> Float[np.ndarray, "n m"]:
    """Linear between the good values of every line, constant beyond the first and the last."""
    place = np.broadcast_to(np.arange(lines.shape[1]), lines.shape)
    before = np.maximum.accumulate(np.where(good, place, -1), 1)
    after = np.minimum.accumulate(np.where(good, place, lines.shape[1])[:, ::-1], 1)[:, ::-1]
    before, after = np.where(before < 0, after, before), np.where(after == lines.shape[1], before, after)
    low, high = (np.take_along_axis(lines, index, 1) for index in (before, after))
    part = np.where(after > before, (place - before) / np.maximum(after - before, 1), 0)
    return np.where(good, lines, low + part.astype(lines.dtype) * (high - low))
