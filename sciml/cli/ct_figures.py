"""Figures and datasets of the tomography commands."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from sciml import plot
from sciml.ct.grid import ImageGrid, VolumeGrid

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from sciml.ct.evaluate import Case, Protocol
    from sciml.ct.scan import Scan


def _image(ax: Any, grid: ImageGrid, image: Any, limits: tuple[float, float], title: str, unit: str) -> Any:
    half_x, half_y = grid.shape[1] * grid.pixel / 2, grid.rows * grid.pixel / 2
    x, y = grid.centre
    extent = (x - half_x, x + half_x, y - half_y, y + half_y)
    shown = ax.imshow(image, vmin=limits[0], vmax=limits[1], extent=extent, cmap="gray")
    ax.set_title(title)
    ax.set_xlabel("x" if unit == "1" else f"x [{unit}]")
    return shown


def _sinogram(ax: Any, sinogram: Any, title: str = "sinogram") -> Any:
    shown = ax.imshow(sinogram, aspect="auto", cmap="gray", interpolation="nearest")
    ax.set(title=title, xlabel="detector bin", ylabel="view")
    return shown


def _limits(image: Any) -> tuple[float, float]:
    low, high = np.percentile(image, [0.5, 99.5])
    return (float(low), float(high)) if high > low else (float(low), float(low) + 1)


def _sections(grid: ImageGrid | VolumeGrid, image: Any) -> list[tuple[str, Any]]:
    """The image, or the three sections through the middle of a volume."""
    if isinstance(grid, ImageGrid):
        return [("", image)]
    k, j, i = (size // 2 for size in grid.shape)
    return [("middle slice", image[k]), ("front", image[:, j]), ("side", image[:, :, i])]


def _section(ax: Any, grid: ImageGrid | VolumeGrid, image: Any, limits: Any, title: str, unit: str) -> Any:
    if isinstance(grid, ImageGrid):
        return _image(ax, grid, image, limits, title, unit)
    shown = ax.imshow(image, vmin=limits[0], vmax=limits[1], cmap="gray")
    ax.set_title(title)
    return shown


def _row(grid: ImageGrid | VolumeGrid, image: Any) -> Any:
    """Values along the middle row (of the middle slice)."""
    plane = image if image.ndim == 2 else image[image.shape[0] // 2]
    return plane[plane.shape[0] // 2]


def reconstruction(grid: ImageGrid | VolumeGrid, image: Any, scan: Scan, method: str) -> Figure:
    """One image with its line integrals and the profile along the middle row; of a volume three sections."""
    unit = "1" if scan.unit == "1" else f"1/{scan.unit}"
    sections = _sections(grid, image)
    with plot.style():
        columns = len(sections) + 2
        figure, axes = plot.figure(1, columns, width=3.6 * columns, height=3.6)
        for ax, (where, section) in zip(axes, sections, strict=False):
            title = where or f"{scan.name}, {method}"
            shown = _section(ax, grid, section, _limits(image), title, scan.unit)
        figure.colorbar(shown, ax=axes[len(sections) - 1], label=f"attenuation [{unit}]")
        flat = scan.sinogram if scan.sinogram.ndim == 2 else scan.sinogram[:, scan.sinogram.shape[1] // 2]
        middle, right = axes[-2], axes[-1]
        figure.colorbar(_sinogram(middle, flat), ax=middle, label="line integral")
        right.plot(grid.x, _row(grid, image), linewidth=0.9)
        right.set(xlabel=f"x [{scan.unit}]", ylabel=f"attenuation [{unit}]", title="middle row")
        right.grid(True)
    return figure


def side_by_side(
    grid: ImageGrid | VolumeGrid, reference: Any, images: Mapping[str, Any], unit: str
) -> Figure:
    """Reference and images on one scale, their differences below, and profiles along the middle row."""
    first = _sections(grid, reference)[0][1]
    limits = _limits(reference)
    span = (limits[1] - limits[0]) / 2
    with plot.style():
        figure, axes = plot.figure(2, len(images) + 1, width=2.9 * (len(images) + 1), height=5.8)
        _section(axes[0, 0], grid, first, limits, "reference", unit)
        axes[1, 0].plot(grid.x, _row(grid, reference), color="black", linewidth=2, alpha=0.5)
        for k, (name, image) in enumerate(images.items(), 1):
            section = _sections(grid, image)[0][1]
            shown = _section(axes[0, k], grid, section, limits, name, unit)
            difference = axes[1, k].imshow(section - first, vmin=-span, vmax=span, cmap="RdBu_r")
            axes[1, k].set_title("minus reference")
            axes[1, 0].plot(grid.x, _row(grid, image), linewidth=0.8, label=name)
        figure.colorbar(shown, ax=axes[0, -1], shrink=0.8)
        figure.colorbar(difference, ax=axes[1, -1], shrink=0.8)
        axes[1, 0].set(title="middle row", xlabel="x" if unit == "1" else f"x [{unit}]")
        axes[1, 0].legend(fontsize=6)
        axes[1, 0].grid(True)
    return figure


def comparison(grid: ImageGrid, case: Case) -> Figure:
    """Truth and reconstructions on one scale, the sinogram, and profiles along the middle row."""
    names = list(case.outcomes)
    columns = max(3, -(-(len(names) + 3) // 2))
    limits = (min(0.0, float(case.truth.min())), 1.1 * float(case.truth.max()))
    rows = case.rows()
    with plot.style():
        figure, axes = plot.figure(2, columns, width=2.9 * columns, height=6.0)
        axes = list(axes.ravel())
        shown = _image(axes[0], grid, case.truth, limits, "truth", "1")
        for ax, name in zip(axes[1:], names, strict=False):
            title = f"{name}: {rows[name]['psnr']:.1f} dB"
            _image(ax, grid, case.outcomes[name].image, limits, title, "1")
        used = len(names) + 1
        figure.colorbar(shown, ax=axes[0], label="attenuation", shrink=0.7)
        _sinogram(axes[used], case.sinogram)
        row = grid.rows // 2
        axes[used + 1].plot(grid.x, case.truth[row], color="black", linewidth=2, alpha=0.5, label="truth")
        for name in names:
            axes[used + 1].plot(grid.x, case.outcomes[name].image[row], linewidth=0.8, label=name)
        axes[used + 1].set(title="middle row", xlabel="x", ylim=(limits[0] - 0.3, limits[1] + 0.3))
        axes[used + 1].legend(fontsize=6, ncols=2)
        axes[used + 1].grid(True)
        for ax in axes[used + 2 :]:
            ax.axis("off")
    return figure


def dataset(
    grid: ImageGrid | VolumeGrid, images: Mapping[str, Any], unit: str, scan: Scan | None = None
) -> xr.Dataset:
    """Images over (method, y, x), or (method, z, y, x), with units, and the line integrals of a scan."""
    import xarray as xr

    inverse = "1" if unit == "1" else f"1/{unit}"
    stack = np.stack([np.asarray(image) for image in images.values()])
    axes = ("z", "y", "x")[-len(grid.shape) :]
    places = {
        axis: (axis, getattr(grid, axis), {"units": unit, "long_name": "pixel centre"}) for axis in axes
    }
    data = xr.Dataset(
        {"attenuation": (("method", *axes), stack, {"units": inverse, "cell_methods": "area: mean"})},
        {"method": list(images), **places},
        {"pixel": grid.pixel},
    )
    if scan is not None:
        panel = ("view", "bin") if scan.sinogram.ndim == 2 else ("view", "row", "bin")
        data["sinogram"] = (panel, scan.sinogram, {"units": "1", "long_name": "line integral"})
        data["angle"] = ("view", np.asarray(scan.geometry.angles), {"units": "rad"})
        for field in dataclasses.fields(scan.geometry):
            if field.name not in ("angles", "bins", "rows"):
                data.attrs[field.name] = np.asarray(getattr(scan.geometry, field.name)).ravel()
    return data


def evaluation_dataset(protocol: Protocol, cases: list[Case]) -> xr.Dataset:
    """All images and truths over (case, method, y, x), with the scores."""
    import xarray as xr

    grid, methods = protocol.grid, list(protocol.methods)
    stack = np.stack([np.stack([case.outcomes[name].image for name in methods]) for case in cases])
    scores = [[case.rows()[name] for name in methods] for case in cases]
    data = xr.Dataset(
        {
            "attenuation": (("case", "method", "y", "x"), stack.astype(np.float32), {"units": "1"}),
            "truth": (
                ("case", "y", "x"),
                np.stack([c.truth for c in cases]).astype(np.float32),
                {"units": "1"},
            ),
        },
        {
            "method": methods,
            "phantom": ("case", [case.phantom for case in cases]),
            "turn": ("case", [case.turn for case in cases], {"units": "degree"}),
            "views": ("case", [case.views for case in cases]),
            "noise": ("case", [case.noise for case in cases]),
            "y": ("y", grid.y, {"units": "1"}),
            "x": ("x", grid.x, {"units": "1"}),
        },
    )
    for name, unit in (("psnr", "dB"), ("ssim", "1"), ("residual", "1")):
        data[name] = (("case", "method"), [[row[name] for row in line] for line in scores], {"units": unit})
    return data
