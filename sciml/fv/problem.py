"""A problem in words: law, grid, boundary, initial data, schemes; frozen dataclasses, ready for a TOML file.

`Problem.run` solves it by one scheme and `Problem.reference` sets the exact solution beside it where a closed
form exists: Lax-Hopf for piecewise-constant data and a concave or convex flux, the Riemann solution for one
jump and any flux, characteristics for smooth data before the first shock. Otherwise the reference is the same
problem on a finer grid, and says so.
"""

import dataclasses
from typing import Any, Literal, Union

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from sciml.fv import boundary as ends
from sciml.fv import source as sources
from sciml.fv.catalogue import LAW_TYPES, scheme_entry
from sciml.fv.dg import DiscontinuousGalerkin
from sciml.fv.exact import riemann_cell_averages
from sciml.fv.fields import read_averages
from sciml.fv.grid import UniformGrid
from sciml.fv.initial import AbstractProfile, GaussianBump, PiecewiseConstant, Sine, random_piecewise_constant
from sciml.fv.integrate import Solution, check_state, ensemble, solve
from sciml.fv.law import AbstractLaw
from sciml.fv.lax_hopf import lax_hopf_cell_averages
from sciml.fv.method_of_characteristics import characteristic_cell_averages, shock_time
from sciml.typing import documented


def _law_config(kind: str) -> type:
    """The configuration of a law: its kind and one number per field of the law's class."""
    fields: list[Any] = []
    for field in dataclasses.fields(LAW_TYPES[kind]):
        default = float(field.default) if field.default is not dataclasses.MISSING else dataclasses.MISSING
        fields.append((field.name, float, documented(field.metadata.get("doc", ""), default)))
    fields.append(("kind", Literal[kind], dataclasses.field(default=kind)))
    return dataclasses.make_dataclass(
        "".join(word.title() for word in kind.split("-")) + "Config",
        fields,
        frozen=True,
        namespace={"build": _build_law},
    )


def _build_law(self) -> AbstractLaw:
    values = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
    return LAW_TYPES[values.pop("kind")](**values)


LAW_CONFIGS: dict[str, type] = {kind: _law_config(kind) for kind in LAW_TYPES}
LawConfig = Union[tuple(LAW_CONFIGS.values())]  # noqa: UP007  # pyright: ignore


@dataclasses.dataclass(frozen=True)
class GridConfig:
    cells: int = documented("number of cells", 200)
    lower: float = documented("left end [length]", 0.0)
    upper: float = documented("right end [length]", 1.0)

    def __post_init__(self):
        self.build()

    def build(self) -> UniformGrid:
        return UniformGrid(self.cells, self.lower, self.upper)


@dataclasses.dataclass(frozen=True)
class RiemannData:
    """One jump."""

    left: float = documented("state left of the jump")
    right: float = documented("state right of the jump")
    position: float | None = documented("place of the jump [length]; default the middle", None)
    kind: Literal["riemann"] = "riemann"

    def build(self, grid: UniformGrid) -> PiecewiseConstant:
        place = 0.5 * (grid.lower + grid.upper) if self.position is None else self.position
        return PiecewiseConstant(
            [min(grid.lower, place - 1), place, max(grid.upper, place + 1)], [self.left, self.right]
        )


@dataclasses.dataclass(frozen=True)
class PiecewiseData:
    """Constant pieces; n values need n-1 places of jumps."""

    values: tuple[float, ...] = documented("state of every piece")
    jumps: tuple[float, ...] = documented("increasing places between the pieces [length]")
    kind: Literal["piecewise"] = "piecewise"

    def build(self, grid: UniformGrid) -> PiecewiseConstant:
        if len(self.jumps) != len(self.values) - 1 or not self.jumps:
            raise ValueError(
                f"initial.jumps has {len(self.jumps)} entries for {len(self.values)} values; "
                "n values need n-1 jumps"
            )
        first, last = min(grid.lower, self.jumps[0] - 1), max(grid.upper, self.jumps[-1] + 1)
        return PiecewiseConstant([first, *self.jumps, last], list(self.values))


@dataclasses.dataclass(frozen=True)
class RandomData:
    """Random states of equal pieces."""

    seed: int = documented("seed", 0)
    pieces: int = documented("number of pieces", 10)
    samples: int = documented("number of random states, solved together", 1)
    lower: float = documented("smallest state", 0.0)
    upper: float = documented("largest state", 1.0)
    kind: Literal["random"] = "random"

    def build(self, grid: UniformGrid) -> PiecewiseConstant:
        return random_piecewise_constant(
            self.seed, self.samples, self.pieces, self.lower, self.upper, domain=(grid.lower, grid.upper)
        )


@dataclasses.dataclass(frozen=True)
class SineData:
    """mean + amplitude·sin(2π (x - shift)/wavelength)."""

    mean: float = documented("mean state", 0.5)
    amplitude: float = documented("amplitude", 0.25)
    wavelength: float = documented("wavelength [length]", 1.0)
    shift: float = documented("shift [length]", 0.0)
    kind: Literal["sine"] = "sine"

    def build(self, grid: UniformGrid) -> Sine:
        return Sine(self.mean, self.amplitude, self.wavelength, self.shift)


@dataclasses.dataclass(frozen=True)
class GaussianData:
    """mean + amplitude·exp(-(x - centre)²/(2 width²))."""

    mean: float = documented("state far away", 0.2)
    amplitude: float = documented("height of the bump", 0.5)
    centre: float = documented("centre [length]", 0.5)
    width: float = documented("width [length]", 0.1)
    kind: Literal["gaussian"] = "gaussian"

    def build(self, grid: UniformGrid) -> GaussianBump:
        return GaussianBump(self.mean, self.amplitude, self.centre, self.width)


@dataclasses.dataclass(frozen=True)
class FileData:
    """Cell averages from a file: NetCDF with a variable u(…, x), or text with one number per cell."""

    path: str = documented("file name (.nc, .csv or .txt)")
    kind: Literal["file"] = "file"

    def build(self, grid: UniformGrid) -> np.ndarray:
        return read_averages(self.path, grid.cells)


InitialConfig = RiemannData | PiecewiseData | RandomData | SineData | GaussianData | FileData


@dataclasses.dataclass(frozen=True)
class PeriodicConfig:
    kind: Literal["periodic"] = "periodic"

    def build(self) -> ends.AbstractBoundary:
        return ends.Periodic()


@dataclasses.dataclass(frozen=True)
class OutflowConfig:
    kind: Literal["outflow"] = "outflow"

    def build(self) -> ends.AbstractBoundary:
        return ends.Outflow()


@dataclasses.dataclass(frozen=True)
class PrescribedConfig:
    """Time series of the states beyond both ends, linear in between."""

    times: tuple[float, ...] = documented("increasing times [time]")
    left: tuple[float, ...] = documented("state beyond the left end at these times")
    right: tuple[float, ...] = documented("state beyond the right end at these times")
    kind: Literal["prescribed"] = "prescribed"

    def build(self) -> ends.AbstractBoundary:
        return ends.Prescribed(*(np.asarray(x, float) for x in (self.times, self.left, self.right)))


@dataclasses.dataclass(frozen=True)
class DemandSupplyConfig:
    """Time series of the flow that wants to enter and of the flow that can leave."""

    times: tuple[float, ...] = documented("increasing times [time]")
    demand: tuple[float, ...] = documented("flow that wants to enter at the left end [vehicles/time]")
    supply: tuple[float, ...] = documented("flow that the road beyond the right end accepts [vehicles/time]")
    kind: Literal["demand-supply"] = "demand-supply"

    def build(self) -> ends.AbstractBoundary:
        return ends.DemandSupply(*(np.asarray(x, float) for x in (self.times, self.demand, self.supply)))


BoundaryConfig = PeriodicConfig | OutflowConfig | PrescribedConfig | DemandSupplyConfig


@dataclasses.dataclass(frozen=True)
class OnRampConfig:
    position: float = documented("place of the ramp [length]")
    times: tuple[float, ...] = documented("increasing times [time]")
    flow: tuple[float, ...] = documented("flow that joins at these times [vehicles/time]")
    kind: Literal["on-ramp"] = "on-ramp"

    def build(self) -> sources.AbstractSource:
        return sources.OnRamp(self.position, np.asarray(self.times, float), np.asarray(self.flow, float))


@dataclasses.dataclass(frozen=True)
class OffRampConfig:
    position: float = documented("place of the ramp [length]")
    fraction: float = documented("share of the passing flow that leaves, 0 to 1")
    kind: Literal["off-ramp"] = "off-ramp"

    def build(self) -> sources.AbstractSource:
        return sources.OffRamp(self.position, self.fraction)


@dataclasses.dataclass(frozen=True)
class UnitsConfig:
    """Units for labels and files; the numbers themselves are taken as they are."""

    state: str = documented("unit of the state", "1")
    length: str = documented("unit of length", "1")
    time: str = documented("unit of time", "1")


@dataclasses.dataclass(frozen=True)
class Problem:
    """One law on one grid, solved by several schemes."""

    law: LawConfig = documented(  # pyright: ignore[reportInvalidTypeForm]
        "conservation law", LAW_CONFIGS["greenshields"]()
    )
    grid: GridConfig = documented("cells", GridConfig())
    boundary: BoundaryConfig = documented("what lies beyond the ends", OutflowConfig())
    initial: InitialConfig = documented("initial data", RiemannData(0.9, 0.1))
    ramps: tuple[OnRampConfig | OffRampConfig, ...] = documented("on- and off-ramps", ())
    schemes: tuple[str, ...] = documented("schemes by name", ("godunov", "muscl-van-leer", "weno5-z"))
    end_time: float = documented("final time [time]", 0.5)
    saves: int = documented("number of equally spaced times saved after the first", 50)
    cfl: float = documented("CFL number, lowered to a scheme's own limit where that is smaller", 0.4)
    refine: int = documented("refinement of the reference grid where none is exact; 0 for none", 8)
    precision: Literal["float32", "float64"] = documented("precision of the run", "float64")
    units: UnitsConfig = documented("units for labels and files", UnitsConfig())

    def __post_init__(self):
        for name in self.schemes:
            scheme_entry(name)
        if not self.schemes:
            raise ValueError("schemes is empty: name at least one")
        if not self.end_time > 0:
            raise ValueError(f"end_time is {self.end_time}: give a positive time")
        if self.saves < 1:
            raise ValueError(f"saves is {self.saves}: give at least 1")
        if not 0 < self.cfl <= 1:
            raise ValueError(f"cfl is {self.cfl}: explicit schemes are stable for 0 < cfl <= 1 at most")

    @property
    def times(self) -> Float[np.ndarray, " saves+1"]:
        return np.linspace(0.0, self.end_time, self.saves + 1)

    def check(self) -> None:
        """Raise a `ValueError` when initial data, boundary or ramps do not fit the law, grid or time."""
        law, grid = self.law.build(), self.grid.build()
        check_state(law, self.initial_averages(grid), "initial")
        boundary = self.boundary.build()
        boundary.check(law, grid.cells, 1)
        boundary.check_times(0.0, self.end_time)
        for ramp in self.ramps:
            ramp.build().check(grid)

    def initial_averages(self, grid: UniformGrid) -> Float[np.ndarray, "samples cells"]:
        """Exact initial averages on a grid, one row per sample (float64)."""
        data = self.initial.build(grid)
        return np.atleast_2d(data if isinstance(data, np.ndarray) else data.cell_averages(grid))

    def run(self, name: str, grid: UniformGrid | None = None) -> Solution:
        """Solve all samples by one scheme; every leaf of the result has a leading axis of samples."""
        grid, law, boundary = grid or self.grid.build(), self.law.build(), self.boundary.build()
        parts = tuple(ramp.build() for ramp in self.ramps)
        entry = scheme_entry(name)
        scheme = entry.build(law, grid, boundary, sources.Sources(parts) if parts else None)
        dtype = jnp.dtype(self.precision)
        averages = jnp.asarray(self.initial_averages(grid), dtype)
        start, data = averages, self.initial.build(grid)
        if isinstance(scheme, DiscontinuousGalerkin) and isinstance(data, AbstractProfile):
            start = jnp.asarray(scheme.project(data), dtype)[None]
        cfl, times = min(self.cfl, scheme.cfl_limit), jnp.asarray(self.times, dtype)

        options = {"cfl": cfl, "integrator": entry.integrator, "save_at": times}
        check_state(law, averages, "initial data")
        if len(averages) == 1:
            solution = solve(scheme, start[0], self.end_time, **options)
            return jax.tree.map(lambda x: x[None], solution)
        return jax.jit(
            lambda batch: ensemble(lambda u0: solve(scheme, u0, self.end_time, throw=False, **options), batch)
        )(start)

    def reference(self) -> tuple[str, Float[np.ndarray, "samples saves+1 cells"]] | None:
        """What the solution ought to be on this grid and how it is known, or None."""
        grid, law = self.grid.build(), self.law.build()
        data = self.initial.build(grid)
        open_ends, wraps = isinstance(self.boundary, OutflowConfig), isinstance(self.boundary, PeriodicConfig)
        if isinstance(data, PiecewiseConstant) and not self.ramps and (open_ends or wraps):
            if law.curvature != "neither":
                places, values = data.breakpoints, np.atleast_2d(data.values)
                if wraps:
                    places, values = self._unrolled(law, places, values)
                averages = lax_hopf_cell_averages(law, places, values, grid.faces, self.times)
                return "exact (Lax-Hopf)", averages
            if open_ends and data.values.shape[-1] == 2:
                left, right = (float(x) for x in np.ravel(data.values))
                place = float(data.breakpoints[1])
                rows = [
                    riemann_cell_averages(law, left, right, grid.faces, float(t), place) for t in self.times
                ]
                return "exact (Riemann)", np.stack(rows)[None]
        if wraps and isinstance(self.initial, SineData) and not self.ramps:
            period = (grid.upper - grid.lower) / self.initial.wavelength
            if abs(period - round(period)) < 1e-9 and round(period) > 0:
                assert isinstance(data, AbstractProfile)
                first = shock_time(law, data, grid.lower, grid.upper)
                if self.end_time < first:
                    rows = [characteristic_cell_averages(law, data, grid, float(t)) for t in self.times]
                    return "exact (characteristics)", np.stack(rows)[None]
        if self.refine < 2 or isinstance(self.initial, FileData):
            return None
        fine = UniformGrid(grid.cells * self.refine, grid.lower, grid.upper)
        scheme = "muscl-minmod" if law.curvature == "neither" else "muscl-van-leer"
        states = np.asarray(self.run(scheme, fine).states, np.float64)
        shape = (*states.shape[:-1], grid.cells, self.refine)
        return f"{scheme} on {fine.cells} cells", states.reshape(shape).mean(axis=-1)

    def _unrolled(self, law, places, values):
        """Enough periods on both sides that the ends of the data are out of reach."""
        grid = self.grid.build()
        period = grid.upper - grid.lower
        speed = float(
            np.max(np.asarray(law.max_wave_speed(jnp.asarray(values.min()), jnp.asarray(values.max()))))
        )
        turns = int(np.ceil(speed * self.end_time / period)) + 1
        inner = [places[1:-1] + k * period for k in range(-turns, turns + 1)]
        joints = [grid.lower + k * period for k in range(-turns, turns + 2)]
        cuts = np.concatenate(
            [np.concatenate([[joint], part]) for joint, part in zip(joints, inner, strict=False)]
        )
        return np.concatenate([cuts, [joints[-1]]]), np.tile(values, (1, 2 * turns + 1))
