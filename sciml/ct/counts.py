"""From counts of a detector to line integrals: dark current, open beam, logarithm, and pixels that failed."""

import numpy as np
from jaxtyping import Float

_MOST_BAD = 0.05


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
        counts: readings of the detector.
        flats: readings without an object, averaged when there are several, or one number; default the
            largest reading of every view, which needs air beside the object.
        darks: readings without a beam; default 0.
        what: name of the data in errors, such as the file.

    Raises:
        ValueError: when more than 5 % of the readings, or all of a view, have no logarithm, or the panels
            of flats and darks have another shape.
    """
    counts = np.asarray(counts)
    panel, notes = counts.shape[1:], []

    def mean(readings, name):
        readings = np.asarray(readings, np.float64)
        if readings.shape in ((), panel):
            return readings
        if readings.shape[1:] != panel or not len(readings):
            raise ValueError(f"{what}: {name} have shape {readings.shape}, the views {counts.shape}")
        return readings.mean(0)

    dark = mean(0.0 if darks is None else darks, "darks")
    if flats is None:
        axes = tuple(range(1, counts.ndim))
        bright = np.nanpercentile(counts.astype(np.float64), 99.5, axis=axes, keepdims=True)
        notes.append("no open beam: the brightest 0.5 % of every view was taken for it")
    else:
        bright = mean(flats, "flats")
    beam = bright - dark
    if not (beam > 0).any():
        raise ValueError(
            f"{what}: the open beam is nowhere brighter than the dark current; are they swapped?"
        )
    with np.errstate(divide="ignore", invalid="ignore"):
        made = -np.log((counts - dark) / np.where(beam > 0, beam, np.nan))
    made, repaired = interpolated(made.astype(np.float32), what)
    if repaired:
        notes.append(f"{repaired} readings without a logarithm were interpolated along the detector")
    return made, tuple(notes)


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
    bins = np.arange(values.shape[-1])
    for row in np.flatnonzero(failed.any(1)):
        good = ~failed[row]
        lines[row, failed[row]] = (
            np.interp(bins[failed[row]], bins[good], lines[row, good]) if good.any() else 0
        )
    return lines.reshape(values.shape), count
