"""A measured day of traffic, simulated open loop: initial state and one edge cell per side are given,
nothing else.

The field (`sciml.fv.density_field`) becomes a `Day` of arrays; a fundamental diagram and a scheme turn it
into a simulated density by `rollout` with several sub-steps per frame, the edge cells interpolated in time.
Units inside: veh/km/lane, km, h. `persistence` and `interpolation` are the baselines without any traffic in
them, `scores` compares on the cells that were neither prescribed nor masked.
"""

import math

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from sciml.fv.boundary import Prescribed
from sciml.fv.catalogue import SCHEMES, SchemeEntry
from sciml.fv.density_field import spacing
from sciml.fv.fundamental_diagram import AbstractFundamentalDiagram
from sciml.fv.grid import UniformGrid
from sciml.fv.integrate import Result, rollout
from sciml.fv.source import AbstractSource
from sciml.typing import Scalar

FLOOR = 0.01  # normalised density below which a relative error is taken with respect to it


class Day(eqx.Module):
    """The arrays of a density field that a simulation needs, cut to its outermost measured cells.

    `density` [veh/km/lane] has one row per frame; its first and last column are prescribed, `grid` [km]
    holds the cells between them. `frame` is the time between frames [h]; densities above `saturation`
    [veh/km/lane] are shown by the sensor as `saturation`. `scored` marks what is compared. Days of equal
    shape and place can be stacked and mapped.
    """

    density: Float[Array, "frames cells"]
    scored: Array
    frame: Scalar
    saturation: Scalar
    normalisation: Scalar
    grid: UniformGrid = eqx.field(static=True)

    @property
    def times(self) -> Float[Array, " frames"]:
        """Times of the frames [h], from 0."""
        return self.frame * jnp.arange(self.density.shape[0])


def measured_cells(field: xr.Dataset) -> slice:
    """From the first to the last cell that is measured at some time: cells masked at the ends of the road
    are cut off.

    Raises:
        ValueError: when fewer than 4 cells are left.
    """
    measured = np.flatnonzero(~field["mask"].values.all(axis=0))
    if measured.size == 0 or measured[-1] - measured[0] < 3:
        raise ValueError(f"{field.attrs['name']}: mask: fewer than 4 cells are left; unmask some")
    return slice(int(measured[0]), int(measured[-1]) + 1)


def as_day(field: xr.Dataset) -> Day:
    """The arrays of a density field, in the default floating-point dtype."""
    cells = measured_cells(field)
    density, x = field["density"].values[:, cells], field["x"].values[cells] / 1000
    frame, width = spacing(field)
    attributes = field["density"].attrs
    scored = ~field["mask"].values[:, cells]
    scored[0] = scored[:, [0, -1]] = False
    return Day(
        density=jnp.asarray(density, dtype=float),
        scored=jnp.asarray(scored),
        frame=jnp.asarray(frame / 3600),
        saturation=jnp.asarray(attributes.get("saturation", np.inf)),
        normalisation=jnp.asarray(attributes["normalisation"]),
        # Rounded, so that files that differ in the last digit share one compilation.
        grid=UniformGrid(x.size - 2, round(x[1] - width / 2000, 6), round(x[-1] - width / 2000, 6)),
    )


def substeps(
    day: Day, speed: float, scheme: SchemeEntry, diagram: AbstractFundamentalDiagram, cfl: float = 0.95
) -> int:
    """Steps per frame that keep the CFL number at or below `cfl` times the limit of the scheme.

    Args:
        day: the measured day.
        speed: largest speed of vehicles or waves [km/h].
        scheme: an entry of `sciml.fv.catalogue.SCHEMES`.
        diagram: any diagram, to build the scheme with.
        cfl: share of the scheme's CFL limit to be used.
    """
    limit = scheme.build(diagram, day.grid, _boundary(day, diagram), None).cfl_limit
    number = speed * float(day.frame) / day.grid.dx
    return max(1, math.ceil(number / (cfl * limit) - 1e-6))


def _boundary(day: Day, diagram: AbstractFundamentalDiagram) -> Prescribed:
    edges = jnp.clip(day.density[:, jnp.array([0, -1])], diagram.lower, diagram.upper)
    return Prescribed(day.times, edges[:, 0], edges[:, 1])


def simulate_day(
    diagram: AbstractFundamentalDiagram,
    day: Day,
    scheme: SchemeEntry,
    steps_per_frame: int,
    source: AbstractSource | None = None,
) -> tuple[Float[Array, "frames cells"], Scalar]:
    """Open-loop simulation from the first frame, the two edge cells prescribed and interpolated in time.

    Measured densities above the jam density of the diagram enter as the jam density.

    Args:
        diagram: fundamental diagram in veh/km/lane, km/h, veh/h/lane.
        day: the measured day.
        scheme: an entry of `sciml.fv.catalogue.SCHEMES`.
        steps_per_frame: equal time steps between two frames (static).
        source: ramps, in veh/h/lane and km.

    Returns:
        Density [veh/km/lane] at all frames, prescribed cells included, and the `Result` code of the run. A
        violated CFL limit leaves NaN.
    """
    boundary = _boundary(day, diagram)
    semi_discrete = scheme.build(diagram, day.grid, boundary, source)
    start = jnp.clip(day.density[0, 1:-1], diagram.lower, diagram.upper)
    run = rollout(
        semi_discrete,
        start,
        day.frame / steps_per_frame,
        steps_per_frame * (day.density.shape[0] - 1),
        integrator=scheme.integrator,
        save_every=steps_per_frame,
        throw=False,
    )
    edges = day.density[:, :1], day.density[:, -1:]
    return jnp.concatenate([edges[0], run.states, edges[1]], axis=1), run.result


def simulate(
    field: xr.Dataset,
    diagram: AbstractFundamentalDiagram,
    scheme: SchemeEntry | None = None,
    *,
    steps_per_frame: int | None = None,
    source: AbstractSource | None = None,
) -> xr.DataArray:
    """Simulates a measured field and returns the density [veh/km/lane] with its dims, NaN on the cells cut
    off.

    Args:
        field: measured field, from a reader or `density_field`.
        diagram: fundamental diagram in veh/km/lane, km/h, veh/h/lane.
        scheme: an entry of `sciml.fv.catalogue.SCHEMES`; default `godunov`.
        steps_per_frame: time steps between two frames; default as many as the fastest wave of the diagram
            needs.
        source: ramps, in veh/h/lane and km.

    Raises:
        ValueError: when the CFL limit is violated or the result is not finite.
    """
    scheme = scheme or SCHEMES["godunov"]
    day = as_day(field)
    if steps_per_frame is None:
        speed = max(abs(float(diagram.wave_speed(diagram.upper))), float(diagram.free_flow_speed))
        steps_per_frame = substeps(day, speed, scheme, diagram)
    density, result = eqx.filter_jit(simulate_day)(diagram, day, scheme, steps_per_frame, source)
    check_result(int(result), field.attrs["name"], steps_per_frame)
    return embed(field, np.asarray(density))


def check_result(code: int, name: str, steps_per_frame: int) -> None:
    """Raise a `ValueError` that names the day when a simulation ended early."""
    if code == Result.CFL_VIOLATED:
        raise ValueError(
            f"{name}: the CFL limit is violated with {steps_per_frame} steps per frame; take more"
        )
    if code != Result.SUCCESS:
        raise ValueError(f"{name}: the simulation ended with {Result(code).name}; check parameters and data")


def embed(field: xr.Dataset, density: np.ndarray) -> xr.DataArray:
    """A simulated array on the measured cells as a DataArray on all cells of the field."""
    values = np.full(field["density"].shape, np.nan)
    values[:, measured_cells(field)] = density
    like = field["density"]
    return xr.DataArray(
        values, like.coords, like.dims, attrs={"units": "veh/km/lane", "long_name": "density of vehicles"}
    )


def persistence(day: Day) -> Float[Array, "frames cells"]:
    """The first frame for ever, between the prescribed edge cells."""
    inner = jnp.broadcast_to(day.density[0, 1:-1], (day.density.shape[0], day.grid.cells))
    return jnp.concatenate([day.density[:, :1], inner, day.density[:, -1:]], axis=1)


def interpolation(day: Day) -> Float[Array, "frames cells"]:
    """Linear in x between the two prescribed edge cells of the same time."""
    weight = jnp.linspace(0, 1, day.density.shape[1])
    return (1 - weight) * day.density[:, :1] + weight * day.density[:, -1:]


def residual(simulated: Float[Array, "frames cells"], day: Day) -> Float[Array, "frames cells"]:
    """What the sensor would show minus what it showed, in units of the normalisation; 0 where nothing is
    compared.
    """
    difference = jnp.minimum(simulated, day.saturation) - day.density
    return jnp.where(day.scored, difference / day.normalisation, 0)


def scores(simulated: Float[Array, "frames cells"], day: Day) -> dict[str, float]:
    """Errors over all scored frames and cells on the normalised density k.

    mse = ⟨(k̂ - k)²⟩, l1 = ⟨|k̂ - k|⟩, relative = ⟨|k̂ - k| / max(k, 0.01)⟩.
    """
    scored = np.asarray(day.scored)
    error = np.asarray(residual(simulated, day), dtype=np.float64)[scored]
    truth = np.asarray(day.density, dtype=np.float64)[scored] / float(day.normalisation)
    return {
        "mse": float(np.mean(error**2)),
        "l1": float(np.mean(np.abs(error))),
        "relative": float(np.mean(np.abs(error) / np.maximum(truth, FLOOR))),
    }
