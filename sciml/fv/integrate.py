"""Time integration: the two drivers of a semi-discretisation.

`solve` follows a CFL number with diffrax: it lands on the final time and on every time to be saved, rejects
steps that turn out too long, and stops at events. `rollout` takes a fixed number of equal steps in one fused
scan: for training, for fixed-step comparisons and for large ensembles (`ensemble` runs a batch in chunks,
shared between devices). Both close the balance of mass and return failures as values, one per sample under
`jax.vmap`.
"""

import enum
from collections.abc import Callable

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Float, Int

from sciml.fv.finite_volume import AbstractScheme, State
from sciml.fv.law import AbstractLaw
from sciml.fv.runge_kutta import (
    SSPRK3,
    AbstractSSPRK,
    CFLController,
    ForwardEuler,
    nothing_lost,
    vector_field,
)
from sciml.typing import Scalar, ScalarLike


class Result(enum.IntEnum):
    """How a run ended."""

    SUCCESS = 0
    CFL_VIOLATED = 1
    NOT_FINITE = 2
    INADMISSIBLE_START = 3
    MAX_STEPS = 4
    EVENT = 5
    STEP_TOO_SMALL = 6


_REASONS = {
    Result.CFL_VIOLATED: "the CFL number rose above the limit {limit:g} of the scheme (it reached {cfl:.4g});"
    " take a smaller dt",
    Result.NOT_FINITE: "the state became NaN or infinite",
    Result.INADMISSIBLE_START: "the initial state is NaN or outside of the interval that the law admits",
    Result.MAX_STEPS: "max_steps was reached before the final time; raise max_steps",
    Result.STEP_TOO_SMALL: "no step, however small, gave a finite state within the CFL limit",
}


class NumericalFailure(RuntimeError):
    """A run that ended early; the message says why and what to change."""


class Solution(eqx.Module):
    """What a driver returns.

    `times` are the saved times and `states` the cell averages there (NaN after a failure); `final` is the
    scheme's own state at the end; `mass_defect` is |Σ Δx (u - u₀) - ∫ (boundary fluxes + sources) dt| / Σ Δx
    |u₀| at the saved times; `cfl` is the largest CFL number met, `steps` and `rejected` count steps; `result`
    is a `Result` code.
    """

    times: Float[Array, " saves"]
    states: Float[Array, "saves cells"]
    final: State
    mass_defect: Float[Array, " saves"]
    cfl: Scalar
    steps: Int[Array, ""]
    rejected: Int[Array, ""]
    result: Int[Array, ""]


def _concrete(*values) -> bool:
    return not any(isinstance(x, Tracer) for x in jax.tree.leaves(values))


def check_state(law: AbstractLaw, u0: Float[ArrayLike, "... cells"], name: str = "initial state") -> None:
    """Raise a `ValueError` when concrete cell averages are NaN or outside of the interval that the law
    admits.
    """
    if not _concrete(law, u0):
        return
    values = np.asarray(u0)
    if not np.isfinite(values).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        raise ValueError(f"{name}: entry {where} is {values[where]}; every cell average must be finite")
    lower, upper = float(np.asarray(law.lower)), float(np.asarray(law.upper))
    slack = 1e-6 * max(1.0, abs(upper) if np.isfinite(upper) else 1.0)
    bad = (values < lower - slack) | (values > upper + slack)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        word = (
            "above the jam density"
            if values[where] > upper and hasattr(law, "jam_density")
            else "outside of the admissible interval"
        )
        raise ValueError(
            f"{name}: entry {where} is {values[where]:g}, {word} [{lower:g}, {upper:g}] of"
            f" {type(law).__name__}; "
            "check the units or the parameters of the law"
        )


def _check_start(scheme: AbstractScheme, u0, integrator) -> None:
    if u0.ndim == 2 and u0.shape == jax.eval_shape(scheme.start, u0[:, 0]).shape:
        u0 = u0[:, 0]  # a full state, discontinuous Galerkin coefficients
    if u0.ndim != 1 or u0.shape[0] != scheme.grid.cells:
        raise ValueError(
            f"initial state has shape {u0.shape}, the grid has {scheme.grid.cells} cells; give one average"
            " per cell and use"
            " jax.vmap for batches"
        )
    if not jnp.issubdtype(u0.dtype, jnp.floating):
        raise ValueError(f"initial state has dtype {u0.dtype}; give floating-point cell averages")
    if scheme.fully_discrete and not isinstance(integrator, ForwardEuler):
        raise ValueError(
            "the numerical flux is already averaged over the time step: integrate it with ForwardEuler(),"
            f" not {type(integrator).__name__}"
        )
    check_state(scheme.law, u0)


def _admissible(scheme: AbstractScheme, u0) -> Array:
    slack = 1e-6 * jnp.maximum(1.0, jnp.where(jnp.isfinite(scheme.law.upper), jnp.abs(scheme.law.upper), 1.0))
    inside = (u0 >= scheme.law.lower - slack) & (u0 <= scheme.law.upper + slack)
    return jnp.all(jnp.isfinite(u0) & inside)


def _throw(solution: Solution, scheme: AbstractScheme, throw: bool) -> Solution:
    if throw and _concrete(solution.result):
        code = Result(int(np.max(np.asarray(solution.result))))
        if code in _REASONS:
            reason = _REASONS[code].format(
                limit=scheme.cfl_limit, cfl=float(np.max(np.asarray(solution.cfl)))
            )
            raise NumericalFailure(f"{reason} [{code.name}]")
    return solution


def _all_speeds(scheme: AbstractScheme) -> Callable:
    return lambda t, state: jnp.concatenate([scheme.cell_speeds(t, state), scheme.boundary_speeds(t, state)])


def _defect(scheme, initial, averages, total):
    dx = scheme.grid.dx
    scale = jnp.maximum(jnp.sum(jnp.abs(initial)), jnp.finfo(initial.dtype).tiny ** 0.5)
    return jnp.abs(jnp.sum(averages - initial, axis=-1) - total / dx) / scale


def rollout(
    scheme: AbstractScheme,
    u0: Float[Array, " cells"],
    dt: ScalarLike,
    steps: int,
    *,
    t0: ScalarLike = 0.0,
    integrator: AbstractSSPRK | None = None,
    save_every: int = 1,
    throw: bool = True,
) -> Solution:
    """Advance by a fixed number of equal steps in one fused scan.

    Args:
        scheme: semi-discretisation, a pytree; its numbers may be traced.
        u0: initial cell averages, or a full state of the scheme; their dtype is the dtype of the run. dt:
        step Δt > 0 [time]. steps: number of steps (static). t0: initial time [time]. integrator:
        `ForwardEuler()` for fully discrete fluxes (their default), else `SSPRK3()` by default. save_every:
        save the state after so many steps (static; must divide `steps`). Storing every step costs several
            times the solve itself: save what you need.
        throw: raise on failure when called outside of transformations; otherwise read `Solution.result`.

    Returns:
        A `Solution` with `steps / save_every + 1` saved states, the initial one first.

    Raises:
        ValueError: for a bad state, step or combination.
        NumericalFailure: when the CFL limit is violated or the state stops being finite and `throw` is set.
            States after a violation are NaN, so that it cannot pass unseen.
    """
    integrator = integrator or (ForwardEuler() if scheme.fully_discrete else SSPRK3())
    u0 = jnp.asarray(u0)
    if not isinstance(integrator, AbstractSSPRK):
        raise ValueError(
            f"rollout: {type(integrator).__name__} is not a fixed-step SSP method; use ForwardEuler,"
            " SSPRK2, SSPRK3, or solve"
        )
    _check_start(scheme, u0, integrator)
    if steps < 1 or save_every < 1 or steps % save_every:
        raise ValueError(f"rollout: steps = {steps} must be a positive multiple of save_every = {save_every}")
    if _concrete(dt) and not float(dt) > 0:
        raise ValueError(f"rollout: dt is {float(dt)}; time runs forward, give a positive step")
    if _concrete(dt, t0):
        for part in (scheme.boundary, scheme.source):
            if part is not None:
                part.check_times(float(t0), float(t0) + steps * float(dt))
    solution = _rollout(
        scheme, u0, jnp.asarray(dt, u0.dtype), steps, jnp.asarray(t0, u0.dtype), integrator, save_every
    )
    return _throw(solution, scheme, throw)


@eqx.filter_jit
def _rollout(scheme, u0, dt, steps, t0, integrator, save_every):
    state = scheme.start(u0) if u0.ndim == 1 else u0
    u0 = scheme.averages(state)
    scheme = scheme.prepare(state)
    dt_dx = dt / scheme.grid.dx
    limit = scheme.cfl_limit * (1 + 1e-5)

    # Running maxima are kept cell by cell, since reductions inside the scan cost more than a first-order
    # step.
    watch = scheme.boundary_speeds if scheme.speeds_from_data else _all_speeds(scheme)

    def one(carry, number):
        y, lost, speeds = carry
        t = t0 + number.astype(dt.dtype) * dt
        speeds = jnp.maximum(speeds, watch(t, y[0]))
        new, lost = integrator.advance(scheme, t, y, dt, lost)
        return (new, lost, speeds), None

    def several(carry, block):
        (y, lost, speeds), _ = jax.lax.scan(one, carry, block * save_every + jnp.arange(save_every))
        averages = scheme.averages(y[0])
        bad = ~(dt_dx * jnp.max(speeds) <= limit)
        return (y, lost, speeds), (
            jnp.where(bad, jnp.nan, averages),
            _defect(scheme, u0, averages, y[1]),
            jnp.all(jnp.isfinite(averages)),
        )

    # The whole start counts from the first step on, and so does the last state, or the last step went
    # unchecked.
    first = scheme.max_speed(t0, state)
    start = (state, jnp.zeros((), u0.dtype))
    carry = (start, nothing_lost(start), jnp.full_like(watch(t0, state), 1) * first)
    blocks = steps // save_every
    (y, _, speeds), (states, defect, finite) = jax.lax.scan(several, carry, jnp.arange(blocks))
    cfl = dt_dx * jnp.maximum(jnp.max(speeds), jnp.max(watch(t0 + steps * dt, y[0])))
    result = jnp.where(jnp.all(finite), Result.SUCCESS, Result.NOT_FINITE)
    result = jnp.where(cfl > limit, Result.CFL_VIOLATED, result)  # a NaN is not a violation but its cause
    result = jnp.where(_admissible(scheme, u0), result, Result.INADMISSIBLE_START)
    times = t0 + dt * save_every * jnp.arange(blocks + 1)
    return Solution(
        times.astype(u0.dtype),
        jnp.concatenate([u0[None], states]),
        jax.tree.map(lambda x: jnp.where(cfl <= limit, x, jnp.nan), y[0]),
        jnp.concatenate([jnp.zeros(1, u0.dtype), defect]),
        cfl,
        jnp.asarray(steps, jnp.int32),
        jnp.asarray(0, jnp.int32),
        result.astype(jnp.int32),
    )


def solve(
    scheme: AbstractScheme,
    u0: Float[Array, " cells"],
    t1: ScalarLike,
    *,
    t0: ScalarLike = 0.0,
    cfl: ScalarLike = 0.5,
    integrator: diffrax.AbstractSolver | None = None,
    save_at: Float[Array, " saves"] | None = None,
    event: Callable | None = None,
    max_steps: int = 100_000,
    throw: bool = True,
) -> Solution:
    """Integrate from t0 to t1 with steps of a given CFL number, by diffrax.

    Args:
        scheme: semi-discretisation.
        u0: initial cell averages, or a full state of the scheme; their dtype is the dtype of the run. t1:
        final time, on which the last step lands [time]. t0: initial time [time]. cfl: CFL number max|f′|Δt/Δx
        of every step, at most the scheme's limit [-]. integrator: an SSP method of this module (default as
        for `rollout`), or any explicit diffrax solver for schemes
            without limiter and without Δt in their flux.
        save_at: increasing times at which the state is saved, each the end of a step; default: only t1.
        event: (t, averages) -> bool; the run stops after the step in which it becomes true.
        max_steps: bound on the number of steps (static), rejected ones included.
        throw: raise on failure when called outside of transformations; otherwise read `Solution.result`.

    Raises:
        ValueError: for a bad state, time, CFL number or combination.
        NumericalFailure: when the run ends early and `throw` is set.
    """
    integrator = integrator or (ForwardEuler() if scheme.fully_discrete else SSPRK3())
    u0 = jnp.asarray(u0)
    _check_start(scheme, u0, integrator)
    if not isinstance(integrator, AbstractSSPRK) and getattr(scheme, "limiter", None) is not None:
        raise ValueError(
            "the limiter of this scheme acts after every stage: use SSPRK2 or SSPRK3, not"
            f" {type(integrator).__name__}"
        )
    if _concrete(t0, t1) and not float(t1) > float(t0):
        raise ValueError(f"solve: t1 = {float(t1)} is not after t0 = {float(t0)}; time runs forward")
    if _concrete(cfl) and not 0 < float(cfl) <= scheme.cfl_limit:
        raise ValueError(
            f"solve: cfl is {float(cfl)}, but this scheme is stable for 0 < cfl <= {scheme.cfl_limit:g};"
            " choose one there"
        )
    if _concrete(t0, t1):
        for part in (scheme.boundary, scheme.source):
            if part is not None:
                part.check_times(float(t0), float(t1))
    if save_at is not None and _concrete(save_at, t0, t1):
        times = np.asarray(save_at)
        if (
            times.ndim != 1
            or times.size == 0
            or (np.diff(times) <= 0).any()
            or times[0] < float(t0)
            or times[-1] > float(t1) * (1 + 1e-7)
        ):
            raise ValueError(f"solve: save_at must increase within [{float(t0)}, {float(t1)}], got {times}")
    times = jnp.minimum(
        jnp.asarray([t1] if save_at is None else save_at, u0.dtype), jnp.asarray(t1, u0.dtype)
    )
    start, end, number = (jnp.asarray(x, u0.dtype) for x in (t0, t1, cfl))
    solution = _solve(scheme, u0, start, end, number, integrator, times, event, max_steps)
    return _throw(solution, scheme, throw)


@eqx.filter_jit
def _solve(scheme, u0, t0, t1, cfl, integrator, times, event, max_steps):
    averages = u0 if u0.ndim == 1 else scheme.averages(u0)
    admissible = _admissible(scheme, averages)
    # An inadmissible sample is replaced by a resting one, so that it neither spoils a batch nor loops for
    # ever.
    safe = jnp.where(
        admissible, u0, jnp.where(jnp.isfinite(scheme.law.lower), scheme.law.lower, 0).astype(u0.dtype)
    )
    state = scheme.start(safe) if u0.ndim == 1 else safe
    safe = scheme.averages(state)
    scheme = scheme.prepare(state)
    stop = None
    if event is not None:
        stop = diffrax.Event(lambda t, y, args, **kwargs: event(t, scheme.averages(y[0])))
    result = diffrax.diffeqsolve(
        diffrax.ODETerm(vector_field),
        integrator,
        t0,
        t1,
        dt0=None,
        y0=(state, jnp.zeros((), u0.dtype)),
        # SSP methods hand the scheme their own step; others have none to give.
        args=(scheme, jnp.full_like(t0, jnp.nan) if isinstance(integrator, AbstractSSPRK) else None),
        saveat=diffrax.SaveAt(
            subs=[diffrax.SubSaveAt(ts=times), diffrax.SubSaveAt(t1=True)], controller_state=True
        ),
        stepsize_controller=CFLController(cfl, times),
        event=stop,
        max_steps=max_steps,
        throw=False,
    )
    assert result.ys is not None and result.controller_state is not None
    saved, last = result.ys
    states = jax.vmap(scheme.averages)(saved[0])
    states = jnp.where(jnp.isfinite(states) & admissible, states, jnp.nan)
    code = jnp.asarray(Result.NOT_FINITE)
    for theirs, ours in (
        (diffrax.RESULTS.successful, Result.SUCCESS),
        (diffrax.RESULTS.max_steps_reached, Result.MAX_STEPS),
        (diffrax.RESULTS.event_occurred, Result.EVENT),
        (diffrax.RESULTS.dt_min_reached, Result.STEP_TOO_SMALL),
    ):
        code = jnp.where(result.result == theirs, ours, code)
    code = jnp.where(admissible, code, Result.INADMISSIBLE_START)
    return Solution(
        times,
        states,
        jax.tree.map(lambda x: x[-1], last[0]),
        _defect(scheme, safe, states, saved[1]),
        result.controller_state,
        result.stats["num_accepted_steps"].astype(jnp.int32),
        result.stats["num_rejected_steps"].astype(jnp.int32),
        code.astype(jnp.int32),
    )


def ensemble(function: Callable, *arguments, chunk: int | None = None):
    """Map a function over the leading axis of its arguments, in chunks that stay in cache, shared between the
    devices.

    The leading axis is split over all local devices (one per core when the process was started with as many
    CPU devices) and each walks through its share in vectorised chunks. Results equal those of `jax.vmap`.

    Args:
        function: function of one sample, returning a pytree of arrays.
        arguments: pytrees whose leaves share the leading axis.
        chunk: samples advanced together; by default 4 on CPUs, so that a chunk stays in the first cache,
            and all of a device's share elsewhere.
    """
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    count = jax.tree.leaves(arguments)[0].shape[0]
    devices = jax.local_devices()
    used = max(k for k in range(1, len(devices) + 1) if count % k == 0)
    chunk = chunk or (4 if devices[0].platform == "cpu" else count // used)
    mesh = jax.make_mesh((used,), ("samples",), axis_types=(AxisType.Auto,), devices=devices[:used])
    spec = PartitionSpec("samples")
    split = jax.shard_map(
        lambda *shard: jax.lax.map(lambda sample: function(*sample), shard, batch_size=chunk),
        mesh=mesh,
        in_specs=spec,
        out_specs=spec,
        check_vma=False,
    )
    placed = jax.tree.map(lambda x: jax.device_put(x, NamedSharding(mesh, spec)), arguments)
    return split(*placed)
