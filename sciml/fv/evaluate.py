"""Paired comparison of schemes: the same random states, exact cell averages, the same steps for every scheme.

The protocol: piecewise-constant states of random height on a short road, a fixed Δt, the outermost cells of
each end prescribed from the exact solution and not scored, errors averaged over all cells and all times after
the first. States too fast for Δt (near-vacuum states of diagrams whose speed is unbounded) take smaller
steps, and the result says how many.
"""

import dataclasses
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sciml.fv.boundary import Outflow, Prescribed
from sciml.fv.catalogue import SCHEMES, SchemeEntry, evaluation_laws, lookup, scheme_entry
from sciml.fv.grid import UniformGrid
from sciml.fv.initial import PiecewiseConstant, random_piecewise_constant
from sciml.fv.integrate import Result, ensemble, rollout
from sciml.fv.law import AbstractLaw, as_dtype
from sciml.fv.lax_hopf import lax_hopf_cell_averages
from sciml.fv.metrics import win_rate
from sciml.typing import documented


@dataclasses.dataclass(frozen=True)
class Protocol:
    """Which states, steps, laws and schemes are compared."""

    laws: tuple[str, ...] = documented("laws by name", tuple(evaluation_laws()))
    schemes: tuple[str, ...] = documented("schemes by name", tuple(SCHEMES))
    seed: int = documented("seed of the random states (numpy's legacy generator)", 42)
    states: int = documented("number of random states", 1000)
    pieces: int = documented("pieces of constant height per state", 10)
    cells: int = documented("cells of the road, prescribed ones included", 200)
    length: float = documented("length of the road", 0.2)
    dt: float = documented("time step Δt", 1e-4)
    steps: int = documented("number of steps", 1000)
    prescribed: int = documented("cells at each end prescribed from the exact solution and not scored", 3)
    precision: str = documented("float32 or float64", "float64")

    def __post_init__(self):
        for name in self.laws:
            lookup("law", evaluation_laws(), name)
        for name in self.schemes:
            scheme_entry(name)
        if self.precision not in ("float32", "float64"):
            raise ValueError(f"precision is {self.precision!r}: choose float32 or float64")
        if not self.dt > 0:
            raise ValueError(f"dt is {self.dt}: time runs forward, give a positive step")
        for name, least in (("states", 1), ("pieces", 1), ("steps", 1), ("prescribed", 3)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}: give at least {least}")
        if self.cells < 2 * self.prescribed + 3:
            raise ValueError(
                f"cells is {self.cells}: too few beside {self.prescribed} prescribed cells at each end"
            )
        if not self.laws or not self.schemes:
            raise ValueError("laws and schemes must each name at least one entry")

    @property
    def grid(self) -> UniformGrid:
        """All cells, prescribed ones included."""
        return UniformGrid(self.cells, 0.0, self.length)

    @property
    def inner_grid(self) -> UniformGrid:
        """The cells that are computed and scored."""
        edge = self.prescribed * self.grid.dx
        return UniformGrid(self.cells - 2 * self.prescribed, edge, self.length - edge)

    @property
    def times(self) -> Float[np.ndarray, " steps+1"]:
        """Times of all steps, the first one included."""
        return self.dt * np.arange(self.steps + 1)

    @property
    def stride(self) -> int:
        """Steps between the saved times of the example that results keep, about 100 in all."""
        return max(1, self.steps // 100)

    def check(self) -> None:
        """Raise a `ValueError` when a learned scheme has no weights for one of the laws."""
        for law in self.laws:
            for name in self.schemes:
                scheme_entry(name).build(evaluation_laws()[law], self.inner_grid, Outflow())

    def initial(self, law: str) -> PiecewiseConstant:
        """The random states; those of Burgers mirror the traffic states, u = 1 - 2k."""
        lower, upper = (1.0, -1.0) if law == "burgers" else (0.0, 1.0)
        return random_piecewise_constant(
            self.seed, self.states, self.pieces, lower, upper, domain=(0.0, self.length)
        )


@dataclasses.dataclass(frozen=True)
class SchemeResult:
    """Errors of one scheme on all states of one law.

    All arrays have one entry per state. `l1` is mean |e|, `mse` mean e², `relative` mean |e|/max(|u|, 0.01),
    `linf` the largest |e| at the final time, `bound_violation` how far states left the exact range,
    `mass_defect` the unexplained relative change of the total. `curve` is the mean square error over time,
    averaged over states, `example` the first state, `failed` marks states that ended early.
    """

    l1: Float[np.ndarray, " states"]
    mse: Float[np.ndarray, " states"]
    relative: Float[np.ndarray, " states"]
    linf: Float[np.ndarray, " states"]
    mass_defect: Float[np.ndarray, " states"]
    bound_violation: Float[np.ndarray, " states"]
    failed: np.ndarray
    curve: Float[np.ndarray, " steps"]
    example: Float[np.ndarray, "times cells"]
    substepped: int
    cell_updates_per_s: float
    compile_seconds: float

    def summary(self, godunov: "SchemeResult | None") -> dict[str, float]:
        """Means over states under the names of `metrics.json`."""
        row = {name: float(np.mean(getattr(self, name))) for name in ("l1", "mse", "relative", "linf")}
        row["mse_std"] = float(np.std(self.mse))
        row["l1_std"] = float(np.std(self.l1))
        row["mass_defect"] = float(np.max(self.mass_defect))
        row["bound_violation"] = float(np.max(self.bound_violation))
        row["win_rate_vs_godunov"] = (
            float(win_rate(self.mse, godunov.mse)) if godunov is not None else float("nan")
        )
        row["cell_updates_per_s"] = self.cell_updates_per_s
        row["compile_seconds"] = self.compile_seconds
        row["failed_states"] = int(self.failed.sum())
        row["substepped_states"] = self.substepped
        return row


def _one_state(law, entry: SchemeEntry, protocol: Protocol, substeps: int, save: bool) -> Callable:
    grid, edge = protocol.inner_grid, protocol.prescribed
    every = substeps if save else substeps * protocol.steps

    def run(truth: Float[Array, "steps+1 cells"]):
        times = jnp.asarray(protocol.times, truth.dtype)
        boundary = Prescribed(times, truth[:, :edge], truth[:, -edge:])
        scheme = entry.build(law, grid, boundary)
        dt = protocol.dt / substeps
        solution = rollout(
            scheme,
            truth[0, edge:-edge],
            dt,
            substeps * protocol.steps,
            integrator=entry.integrator,
            save_every=every,
            throw=False,
        )
        if not save:
            return solution.states[-1]
        exact = truth[:, edge:-edge]
        error = (solution.states - exact)[1:]
        lower, upper = jnp.min(truth), jnp.max(truth)
        outside = jnp.maximum(jnp.max(solution.states) - upper, lower - jnp.min(solution.states))
        return {
            "l1": jnp.mean(jnp.abs(error)),
            "mse": jnp.mean(error**2),
            "relative": jnp.mean(jnp.abs(error) / jnp.maximum(jnp.abs(exact[1:]), 0.01)),
            "linf": jnp.max(jnp.abs(error[-1])),
            "mass_defect": jnp.max(solution.mass_defect),
            "bound_violation": jnp.maximum(outside, 0),
            "failed": solution.result != Result.SUCCESS,
            "curve": jnp.mean(error**2, axis=1),
        }, solution.states[:: protocol.stride]

    return run


def _substeps(law: AbstractLaw, entry: SchemeEntry, protocol: Protocol, values: np.ndarray) -> np.ndarray:
    """Parts into which Δt is divided for every state: 1, or a power of two for the fast ones."""
    limit = entry.build(law, protocol.inner_grid, Outflow()).cfl_limit
    speed = np.asarray(law.max_wave_speed(jnp.asarray(values.min(axis=1)), jnp.asarray(values.max(axis=1))))
    number = speed * protocol.dt / protocol.grid.dx
    # Schemes that overshoot a little need some room below their limit.
    room = limit if entry.tvd else 0.9 * limit
    need = np.where(number <= limit * (1 + 1e-9), 1, number / room)
    return 2 ** np.ceil(np.log2(need)).astype(int)


def evaluate_law(
    name: str,
    protocol: Protocol,
    *,
    chunk: int = 64,
    progress: Callable[[str, int, int], None] | None = None,
    clock: bool = True,
) -> dict[str, SchemeResult]:
    """Run all schemes of a protocol, and Godunov's for the win rate, on all of its states for one law.

    Args:
        name: command-line name of the law.
        protocol: states, steps and schemes.
        chunk: states in memory at a time; each needs (steps + 1)·cells numbers.
        progress: called with the scheme and the number of states done and to do.
        clock: time every scheme once more on the first chunk, without saving states.
    """
    dtype = jnp.dtype(protocol.precision)
    law = as_dtype(lookup("law", evaluation_laws(), name), dtype)
    exact_law = lookup("law", evaluation_laws(), name)
    data = protocol.initial(name)
    values, breakpoints = data.values, data.breakpoints
    count = len(values)
    chunk = min(chunk, -(-count // len(jax.local_devices())) * len(jax.local_devices()))
    schemes = {name: scheme_entry(name) for name in (*protocol.schemes, "godunov")}
    parts: dict[str, list] = {scheme: [] for scheme in schemes}
    compiled: dict[tuple[str, int], Callable] = {}
    seconds: dict[str, list[float]] = {scheme: [0.0, 0.0] for scheme in schemes}
    examples: dict[str, np.ndarray] = {}
    substeps = {s: _substeps(exact_law, entry, protocol, values) for s, entry in schemes.items()}
    # From the slowest state to the fastest, so that the states of a chunk mostly need the same steps.
    speeds = exact_law.max_wave_speed(jnp.asarray(values.min(axis=1)), jnp.asarray(values.max(axis=1)))
    order = np.argsort(np.asarray(speeds), kind="stable")
    for start in range(0, count, chunk):
        index = order[start : start + chunk]
        filled = np.resize(index, chunk)  # one shape for all chunks; the surplus is dropped again
        truth = lax_hopf_cell_averages(
            exact_law, breakpoints, values[filled], protocol.grid.faces, protocol.times
        )
        # Round-off of the exact averages must not leave the admissible interval.
        low, high = values[filled].min(axis=1), values[filled].max(axis=1)
        truth = jnp.asarray(np.clip(truth, low[:, None, None], high[:, None, None]), dtype)
        for scheme in schemes:
            for division in np.unique(substeps[scheme][index]):
                key = (scheme, int(division))
                if key not in compiled:
                    step = _one_state(law, schemes[scheme], protocol, int(division), True)
                    compiled[key] = _compile(step, truth, seconds[scheme])
                result, states = compiled[key](truth)
                rows = np.flatnonzero(substeps[scheme][index] == division)
                parts[scheme].append((index[rows], {k: np.asarray(v)[rows] for k, v in result.items()}))
                if 0 in index[rows]:
                    examples[scheme] = np.asarray(states[int(np.flatnonzero(index == 0)[0])])
            if progress is not None:
                progress(scheme, min(start + chunk, count), count)
            if clock and not seconds[scheme][1] and substeps[scheme][index[0]] == 1:
                step = _one_state(law, schemes[scheme], protocol, 1, False)
                fast = _compile(step, truth, [0.0])
                begun = time.perf_counter()
                fast(truth).block_until_ready()
                seconds[scheme][1] = time.perf_counter() - begun
    work = chunk * protocol.steps * protocol.inner_grid.cells
    results = {}
    for scheme in schemes:
        back = np.argsort(np.concatenate([index for index, _ in parts[scheme]]))
        merged = {k: np.concatenate([r[k] for _, r in parts[scheme]])[back] for k in parts[scheme][0][1]}
        curve = merged.pop("curve").mean(axis=0)
        results[scheme] = SchemeResult(
            **merged,
            curve=curve,
            example=examples[scheme],
            substepped=int((substeps[scheme] > 1).sum()),
            cell_updates_per_s=work / seconds[scheme][1] if seconds[scheme][1] else float("nan"),
            compile_seconds=seconds[scheme][0],
        )
    return results


def _compile(function: Callable, truth: Array, seconds: list[float]) -> Callable:
    begun = time.perf_counter()
    made = jax.jit(lambda batch: ensemble(function, batch)).lower(truth).compile()
    seconds[0] += time.perf_counter() - begun
    return made


def exact_example(name: str, protocol: Protocol) -> Float[np.ndarray, "times cells"]:
    """Exact averages of the first state on the scored cells, at every `protocol.stride`-th time."""
    data = protocol.initial(name)
    law = lookup("law", evaluation_laws(), name)
    faces = protocol.inner_grid.faces
    times = protocol.times[:: protocol.stride]
    return lax_hopf_cell_averages(law, data.breakpoints, data.values[0], faces, times)
