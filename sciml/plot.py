"""Figures in one style, drawn without a display; colours that colour-blind readers tell apart.

`space_time` shows a field over x (horizontal) and t (vertical), `space_time_panels` several on one colour
scale, `profiles` curves over x, `bars` one number per method, `pareto` cost against error. The figures are
matplotlib's `Figure`, never shown and never global; `png` gives the bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's eight colours without yellow, black kept for the reference
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F")

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.axisbelow": True,
    "grid.linewidth": 0.4,
    "grid.color": "#d0d0d0",
    "lines.linewidth": 1.3,
    "legend.frameon": False,
    "image.cmap": "viridis",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


@contextmanager
def style() -> Iterator[None]:
    """The style of all figures, for the block only: the user's matplotlib settings stay as they are."""
    import matplotlib
    from cycler import cycler

    with matplotlib.rc_context({**_STYLE, "axes.prop_cycle": cycler(color=COLOURS)}):
        yield


def figure(
    rows: int = 1, columns: int = 1, *, width: float = 7.0, height: float = 3.2, **options: Any
) -> tuple[Figure, Any]:
    """An empty figure in our style and its axes (one, or an array of them); sizes in inches."""
    from matplotlib.figure import Figure

    with style():
        made = Figure(figsize=(width, height), layout="constrained")
        return made, made.subplots(rows, columns, **options)


def png(figure: Figure, *, dpi: int = 150) -> bytes:
    """The figure as the bytes of a PNG."""
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def space_time(
    ax: Axes,
    u: Any,
    x: Any,
    t: Any,
    *,
    limits: tuple[float, float] | None = None,
    cmap: str = "viridis",
    title: str = "",
    x_label: str = "x",
    t_label: str = "t",
) -> Any:
    """Draws a field with x to the right and t upwards; masked or NaN cells stay white.

    **Arguments:**

    - `ax`: the axes to draw on.
    - `u`: field of shape (times, cells).
    - `x`, `t`: cell centres and times.
    - `limits`: values of the two ends of the colour scale; default the extremes of `u`.
    - `title`, `x_label`, `t_label`: with units where there are any.

    **Returns:** the colour mesh, for a colour bar.
    """
    u = np.ma.masked_invalid(np.asarray(u, dtype=float))
    x, t = np.asarray(x), np.asarray(t)
    if u.shape != (t.size, x.size):
        raise ValueError(
            f"u has shape {u.shape}; with {t.size} times and {x.size} cells it is {(t.size, x.size)}"
        )
    low, high = limits or (u.min(), u.max())
    mesh = ax.pcolormesh(x, t, u, vmin=low, vmax=high, cmap=cmap, shading="nearest", rasterized=True)
    ax.set(xlabel=x_label, ylabel=t_label, title=title)
    return mesh


def space_time_panels(
    fields: Mapping[str, Any],
    x: Any,
    t: Any,
    *,
    label: str,
    difference: Mapping[str, Any] | None = None,
    x_label: str = "x",
    t_label: str = "t",
    limits: tuple[float, float] | None = None,
) -> Figure:
    """Fields side by side on one colour scale, then differences on one that is symmetric about zero.

    **Arguments:**

    - `fields`: title to field of shape (times, cells).
    - `x`, `t`: cell centres and times.
    - `label`: what the colour is, with unit.
    - `difference`: title to field whose sign matters; default none.
    - `limits`: ends of the colour scale of `fields`; default their extremes.
    """
    difference = difference or {}
    count = len(fields) + len(difference)
    with style():
        made, axes = figure(
            1, count, width=2.6 * count + 1.2, height=3.4, sharex=True, sharey=True, squeeze=False
        )
        axes = list(axes[0])
        if limits is None:
            values = [np.asarray(field, dtype=float) for field in fields.values()]
            limits = (min(map(np.nanmin, values)), max(map(np.nanmax, values)))
        spread = (
            max((float(np.nanmax(np.abs(np.asarray(d)))) for d in difference.values()), default=0.0) or 1.0
        )
        groups = (
            (fields, axes[: len(fields)], limits, "viridis", label),
            (difference, axes[len(fields) :], (-spread, spread), "RdBu_r", f"difference, {label}"),
        )
        for group, places, ends, cmap, text in groups:
            mesh = None
            for (title, field), ax in zip(group.items(), places, strict=True):
                mesh = space_time(ax, field, x, t, limits=ends, cmap=cmap, title=title, x_label=x_label)
                ax.set_ylabel(t_label if ax is axes[0] else "")
            if mesh is not None:
                made.colorbar(mesh, ax=places, label=text, pad=0.02)
    return made


def profiles(
    x: Any,
    curves: Mapping[str, Any],
    *,
    reference: tuple[str, Any] | None = None,
    x_label: str = "x",
    y_label: str = "u",
    title: str = "",
    ax: Axes | None = None,
) -> Figure:
    """Cell averages over x, one line per method; the reference is black and lies below.

    **Arguments:**

    - `x`: cell centres.
    - `curves`: name to values of shape (cells,).
    - `reference`: name and values of the exact or fine solution; default none.
    - `ax`: axes to draw on; default a new figure.
    """
    with style():
        made, ax = (ax.figure, ax) if ax is not None else figure()
        assert ax is not None
        if reference is not None:
            ax.plot(x, reference[1], color="black", linewidth=2.2, alpha=0.55, label=reference[0])
        for name, values in curves.items():
            ax.plot(x, values, label=name, marker=".", markersize=3)
        ax.set(xlabel=x_label, ylabel=y_label, title=title)
        ax.grid(True)
        ax.legend(loc="best", ncols=1 + (len(curves) > 6))
    return made  # pyright: ignore[reportReturnType]


def bars(
    values: Mapping[str, float],
    *,
    label: str,
    log: bool = True,
    highlight: Sequence[str] = (),
    title: str = "",
) -> Figure:
    """One horizontal bar per method, the smallest on top; values that are not finite are named, not drawn.

    **Arguments:**

    - `values`: name to number.
    - `label`: what the number is, with unit.
    - `log`: logarithmic axis; default `True`.
    - `highlight`: names drawn in the second colour.
    """
    order = sorted(values, key=lambda name: (not np.isfinite(values[name]), values[name]), reverse=True)
    numbers = np.asarray([values[name] for name in order], dtype=float)
    with style():
        made, ax = figure(width=6.5, height=0.7 + 0.22 * len(order))
        colours = [COLOURS[1] if name in highlight else COLOURS[0] for name in order]
        ax.barh(order, np.where(np.isfinite(numbers), numbers, 0.0), color=colours, height=0.65)
        if log:
            ax.set_xscale("log")
        for place, value in enumerate(numbers):
            if np.isfinite(value):
                ax.annotate(f" {value:.3g}", (value, place), va="center", fontsize=7)
            else:
                ax.annotate(
                    " not finite", (0, place), xycoords=("axes fraction", "data"), va="center", fontsize=7
                )
        ax.margins(x=0.14, y=0.01)
        ax.set(xlabel=label, title=title)
        ax.grid(True, axis="x")
    return made


def pareto(
    points: Mapping[str, tuple[float, float]], *, cost_label: str, error_label: str, title: str = ""
) -> Figure:
    """Cost against error, both logarithmic; the line joins the methods that none is better than in both.

    **Arguments:**

    - `points`: name to (cost, error), both positive.
    """
    points = {name: point for name, point in points.items() if min(point) > 0 and np.all(np.isfinite(point))}
    front: list[tuple[float, float]] = []
    for point in sorted(points.values()):
        if not front or point[1] < front[-1][1]:
            front.append(point)
    with style():
        made, ax = figure(width=6.0, height=4.0)
        ax.set(xscale="log", yscale="log", xlabel=cost_label, ylabel=error_label, title=title)
        ax.plot(*zip(*front, strict=True), color="#b0b0b0", linewidth=1, zorder=1) if front else None
        for name, (cost, error) in points.items():
            best = (cost, error) in front
            ax.plot(cost, error, "o", color=COLOURS[1] if best else COLOURS[0], markersize=4.5)
            ax.annotate(name, (cost, error), xytext=(4, 3), textcoords="offset points", fontsize=7)
        ax.margins(0.12)
        ax.grid(True)
    return made
