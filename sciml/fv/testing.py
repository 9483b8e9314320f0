"""Assertions about numerical fluxes and schemes, to be pointed at your own as well as at those of the
library.

| assertion | statement |
|---|---|
| `assert_consistent` | F(u, …, u) = f(u) |
| `assert_monotone` | the new average rises with every old one: entropic, first order |
| `assert_mirror_equivariant` | looking at the road from the other side changes nothing |
| `assert_conservative` | the total changes by boundary fluxes and sources only |
| `assert_tvd` | the total variation never grows |
| `assert_bounded` | no state leaves the range of the data |
| `assert_finite_gradients` | derivatives exist at constants, jumps, spikes and the ends of the interval |

Every failure is an `AssertionError` that says what was violated, where and by how much. Precision follows the
data: run them under `jax.enable_x64(True)` with float64 data for sharp statements.
"""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sciml.fv.boundary import Outflow, Periodic
from sciml.fv.finite_volume import AbstractScheme
from sciml.fv.integrate import Solution, rollout
from sciml.fv.law import AbstractLaw, Curvature
from sciml.fv.numerical_flux import AbstractNumericalFlux
from sciml.fv.runge_kutta import SSPRK2, SSPRK3, AbstractSSPRK, ForwardEuler


def _interval(law: AbstractLaw) -> tuple[float, float]:
    """The admissible interval, cut to [-1, 1] where it is infinite."""
    lower, upper = float(law.lower), float(law.upper)
    lower = lower if np.isfinite(lower) else min(-1.0, upper - 2)
    return lower, upper if np.isfinite(upper) else max(1.0, lower + 2)


def _dtype():
    return jax.dtypes.canonicalize_dtype(np.float64)


def _round_off(dtype, double: float, single: float) -> float:
    return double if dtype == np.float64 else single


def _dt_dx(law: AbstractLaw, cfl: float) -> Array:
    lower, upper = (jnp.asarray(x, _dtype()) for x in _interval(law))
    speed = law.max_wave_speed(lower, upper)
    return jnp.asarray(cfl / jnp.where(speed > 0, speed, 1), _dtype())


def _worst(excess: np.ndarray) -> tuple[float, tuple[int, ...]]:
    excess = np.where(np.isnan(excess), np.inf, excess)
    where = np.unravel_index(int(np.argmax(excess)), excess.shape)
    return float(excess[where]), tuple(int(i) for i in where)


def assert_consistent(
    flux: AbstractNumericalFlux,
    law: AbstractLaw,
    *,
    cfl: float = 0.5,
    samples: int = 101,
    tolerance: float | None = None,
) -> None:
    """Check F(u, …, u) = f(u) at states across the admissible interval of a law.

    Args:
        flux: numerical flux.
        law: conservation law with flux f.
        cfl: CFL number from which Δt/Δx follows, for fluxes that contain it [-].
        samples: number of states, evenly spaced, both ends included.
        tolerance: largest error allowed relative to max |f|; default 1e-12 (float64) or 1e-5 (float32).

    Raises:
        AssertionError: with the state and the error.
    """
    u = jnp.linspace(*_interval(law), samples, dtype=_dtype())
    windows = jnp.broadcast_to(u[:, None], (samples, flux.stencil))
    every = jax.jit(jax.vmap(flux, in_axes=(None, 0, None)))
    got = np.asarray(every(law, windows, _dt_dx(law, cfl)))
    want = np.asarray(law.flux(u))
    tolerance = _round_off(u.dtype, 1e-12, 1e-5) if tolerance is None else tolerance
    scale = max(float(np.abs(want).max()), 1e-30)
    error, (k,) = _worst(np.abs(got - want) / scale)
    if not error <= tolerance:
        raise AssertionError(
            f"{type(flux).__name__} is not consistent with {type(law).__name__}: F(u, …, u) = {got[k]:.9g}"
            " but"
            f" f(u) = {want[k]:.9g} at u = {float(u[k]):.6g}; relative error {error:.3g} exceeds"
            f" {tolerance:.3g}"
        )


def assert_monotone(
    flux: AbstractNumericalFlux,
    law: AbstractLaw,
    *,
    cfl: float = 1.0,
    samples: int = 2000,
    tolerance: float | None = None,
    seed: int = 0,
) -> None:
    """Check that u_i - Δt/Δx (F_{i+½} - F_{i-½}) never falls when any one cell average rises.

    For a flux of two states this says that F rises with the left and falls with the right state, and that the
    CFL number is small enough.

    Args:
        flux: numerical flux.
        law: conservation law.
        cfl: CFL number from which Δt/Δx follows [-].
        samples: number of random neighbourhoods.
        tolerance: largest fall allowed, relative to the interval of states; default 1e-12 (float64) or 1e-5.
        seed: seed of the neighbourhoods.

    Raises:
        AssertionError: with the neighbour that acts the wrong way.

    Reference: A. Harten, J. M. Hyman, P. D. Lax, Commun. Pure Appl. Math. 29, 297 (1976).
    """
    lower, upper = _interval(law)
    width, dt_dx = flux.stencil + 1, _dt_dx(law, cfl)
    random = np.random.default_rng(seed)
    states = jnp.asarray(random.uniform(lower, upper, (samples, width)), _dtype())
    raised = states + jnp.asarray(random.uniform(0, 1, (samples, 1)), _dtype()) * (upper - states)

    def update(cells):
        return cells[width // 2] - dt_dx * (flux(law, cells[1:], dt_dx) - flux(law, cells[:-1], dt_dx))

    def changes(before, after):
        one_raised = jnp.where(jnp.eye(width, dtype=bool), after, before)
        return jax.vmap(update)(one_raised) - update(before)

    falls = -np.asarray(jax.jit(jax.vmap(changes))(states, raised)) / (upper - lower)
    tolerance = _round_off(states.dtype, 1e-12, 1e-5) if tolerance is None else tolerance
    error, (k, neighbour) = _worst(falls)
    if not error <= tolerance:
        raise AssertionError(
            f"{type(flux).__name__} is not monotone for {type(law).__name__} at CFL {cfl:g}: raising cell"
            f" i{neighbour - width // 2:+d} of {np.round(np.asarray(states[k]), 4).tolist()} to"
            f" {float(raised[k, neighbour]):.4g} lowers the new average by {error:.3g} of the interval of"
            " states"
        )


class _Mirrored(AbstractLaw):
    """The law seen from the other side of the road: f becomes -f."""

    law: AbstractLaw
    lower: Array
    upper: Array
    curvature: Curvature = eqx.field(static=True)
    _SWAP: ClassVar = {"concave": "convex", "convex": "concave"}

    def __init__(self, law: AbstractLaw):
        self.law, self.lower, self.upper = law, law.lower, law.upper
        swapped = self._SWAP.get(law.curvature, law.curvature)
        self.curvature = swapped  # pyright: ignore[reportAttributeAccessIssue]

    def flux(self, u):
        return -self.law.flux(u)

    def wave_speed(self, u):
        return -self.law.wave_speed(u)

    @property
    def stationary_points(self):
        return self.law.stationary_points

    @property
    def inflection_points(self):
        return self.law.inflection_points

    @property
    def kinks(self):
        return self.law.kinks

    @property
    def piecewise_linear(self):
        return self.law.piecewise_linear

    @property
    def quadratic(self):
        return self.law.quadratic

    def legendre_state(self, speed, lower, upper):
        return self.law.legendre_state(-speed, lower, upper)


def assert_mirror_equivariant(
    flux: AbstractNumericalFlux,
    law: AbstractLaw,
    *,
    cfl: float = 0.5,
    samples: int = 1000,
    tolerance: float | None = None,
    seed: int = 0,
) -> None:
    """Check that the mirrored law on the mirrored cells gives the opposite flux: F₋f(reversed cells) =
    -F_f(cells).

    Args:
        flux: numerical flux.
        law: conservation law with flux f.
        cfl: CFL number from which Δt/Δx follows [-].
        samples: number of random neighbourhoods.
        tolerance: largest difference allowed, relative to max |F|; default 1e-12 (float64) or 1e-5 (float32).
        seed: seed of the neighbourhoods.

    Raises:
        AssertionError: with the cells and both fluxes.
    """
    random, dt_dx = np.random.default_rng(seed), _dt_dx(law, cfl)
    windows = jnp.asarray(random.uniform(*_interval(law), (samples, flux.stencil)), _dtype())
    every = jax.jit(jax.vmap(lambda law, window: flux(law, window, dt_dx), in_axes=(None, 0)))
    here = np.asarray(every(law, windows))
    there = -np.asarray(every(_Mirrored(law), windows[:, ::-1]))
    tolerance = _round_off(windows.dtype, 1e-12, 1e-5) if tolerance is None else tolerance
    error, (k,) = _worst(np.abs(here - there) / max(float(np.abs(here).max()), 1e-30))
    if not error <= tolerance:
        raise AssertionError(
            f"{type(flux).__name__} is not mirror equivariant for {type(law).__name__}: cells"
            f" {np.round(np.asarray(windows[k]), 4).tolist()} give F = {here[k]:.9g}, mirrored"
            f" {there[k]:.9g};"
            f" relative difference {error:.3g} exceeds {tolerance:.3g}"
        )


def _run(
    scheme: AbstractScheme,
    u0: Float[Array, " cells"],
    cfl: float | None,
    steps: int,
    integrator: AbstractSSPRK | None,
) -> Solution:
    u0 = jnp.asarray(u0)
    if integrator is None:
        integrator = ForwardEuler() if scheme.fully_discrete else SSPRK3()
    cfl = 0.5 * scheme.cfl_limit if cfl is None else cfl
    lower, upper = jnp.min(u0), jnp.max(u0)
    speed = jnp.maximum(
        scheme.law.max_wave_speed(lower, upper), scheme.max_speed(jnp.zeros(()), scheme.start(u0))
    )
    dt = cfl * scheme.grid.dx / float(jnp.where(speed > 0, speed, 1))
    return rollout(scheme, u0, dt, steps, integrator=integrator, throw=False)


def assert_conservative(
    scheme: AbstractScheme,
    u0: Float[Array, " cells"],
    *,
    cfl: float | None = None,
    steps: int = 20,
    integrator: AbstractSSPRK | None = None,
    tolerance: float | None = None,
) -> None:
    """Check that the total Σ Δx u changes by what boundary and sources bring in, and not at all on a closed
    loop.

    Args:
        scheme: semi-discretisation with its boundary and sources.
        u0: initial cell averages.
        cfl: CFL number of the steps, by the speeds of `u0`; half of the scheme's limit by default [-].
        steps: number of steps.
        integrator: time integrator; the default of `rollout`.
        tolerance: largest defect relative to Σ |u₀|; default 1e-12 (float64) or 1e-6 (float32).

    Raises:
        AssertionError: with the step and the defect.
    """
    solution = _run(scheme, u0, cfl, steps, integrator)
    states = np.asarray(solution.states, np.float64)
    defect = np.asarray(solution.mass_defect, np.float64)
    if isinstance(scheme.boundary, Periodic) and scheme.source is None:
        total = np.abs(states.sum(axis=1) - states[0].sum()) / max(np.abs(states[0]).sum(), 1e-30)
        defect = np.maximum(defect, total)
    tolerance = _round_off(solution.states.dtype, 1e-12, 1e-6) if tolerance is None else tolerance
    error, (step,) = _worst(np.where(np.isnan(states).any(axis=1), np.nan, defect))
    if not error <= tolerance:
        raise AssertionError(
            f"the scheme is not conservative: after {step} steps the total is off by {error:.3g} of its size,"
            f" more than {tolerance:.3g}"
        )


def _check_closed(scheme: AbstractScheme, owner: str) -> None:
    if not isinstance(scheme.boundary, (Periodic, Outflow)) or scheme.source is not None:
        raise ValueError(f"{owner} needs a Periodic or Outflow boundary and no source: nothing new may enter")


def assert_tvd(
    scheme: AbstractScheme,
    u0: Float[Array, " cells"],
    *,
    cfl: float | None = None,
    steps: int = 20,
    integrator: AbstractSSPRK | None = None,
    tolerance: float | None = None,
) -> None:
    """Check that Σ |u_{i+1} - u_i| never grows from step to step.

    Args:
        scheme: semi-discretisation with a periodic or outflow boundary and no source.
        u0: initial cell averages.
        cfl: CFL number of the steps; half of the scheme's limit by default [-].
        steps: number of steps.
        integrator: time integrator; the default of `rollout`.
        tolerance: growth allowed per step relative to the initial variation; default 1e-12 (float64) or 1e-5.

    Raises:
        AssertionError: with the step and the growth.
        ValueError: when variation may enter through the boundary or a source.
    """
    _check_closed(scheme, "assert_tvd")
    solution = _run(scheme, u0, cfl, steps, integrator)
    states = np.asarray(solution.states, np.float64)
    if isinstance(scheme.boundary, Periodic):
        states = np.concatenate([states, states[:, :1]], axis=1)
    variation = np.abs(np.diff(states, axis=1)).sum(axis=1)
    tolerance = _round_off(solution.states.dtype, 1e-12, 1e-5) if tolerance is None else tolerance
    error, (step,) = _worst(np.diff(variation) / max(variation[0], 1e-30))
    if not error <= tolerance:
        raise AssertionError(
            f"the scheme is not total-variation diminishing: in step {step + 1} the variation grew by"
            f" {error:.3g}"
            f" of its initial value {variation[0]:.6g}, more than {tolerance:.3g}"
        )


def assert_bounded(
    scheme: AbstractScheme,
    u0: Float[Array, " cells"],
    *,
    cfl: float | None = None,
    steps: int = 20,
    integrator: AbstractSSPRK | None = None,
    tolerance: float | None = None,
) -> None:
    """Check that no cell average leaves the range of the initial ones.

    Args:
        scheme: semi-discretisation with a periodic or outflow boundary and no source.
        u0: initial cell averages.
        cfl: CFL number of the steps; half of the scheme's limit by default [-].
        steps: number of steps.
        integrator: time integrator; the default of `rollout`.
        tolerance: excess allowed relative to the range; default 1e-12 (float64) or 1e-5 (float32).

    Raises:
        AssertionError: with the step, the cell and the excess.
        ValueError: when states may enter through the boundary or a source.
    """
    _check_closed(scheme, "assert_bounded")
    solution = _run(scheme, u0, cfl, steps, integrator)
    states = np.asarray(solution.states, np.float64)
    lower, upper = states[0].min(), states[0].max()
    tolerance = _round_off(solution.states.dtype, 1e-12, 1e-5) if tolerance is None else tolerance
    excess = np.maximum(states - upper, lower - states) / max(upper - lower, 1e-30)
    error, (step, cell) = _worst(excess)
    if not error <= tolerance:
        raise AssertionError(
            f"the scheme leaves the range [{lower:.6g}, {upper:.6g}] of the data: cell {cell} is"
            f" {states[step, cell]:.9g} after {step} steps, out by {error:.3g} of the range"
        )


def assert_finite_gradients(
    scheme: AbstractScheme, *, cfl: float | None = None, integrator: AbstractSSPRK | None = None
) -> None:
    """Check that a step has finite derivatives by state and law parameters where formulas like to divide by
    zero.

    The states are constants (both ends of the admissible interval, its middle), a jump, a spike of one cell,
    and differences at the edge of underflow.

    Args:
        scheme: semi-discretisation; its numbers are differentiated too.
        cfl: CFL number of the step; half of the scheme's limit by default [-].
        integrator: time integrator; `ForwardEuler` for fully discrete fluxes, else `SSPRK2` by default.

    Raises:
        AssertionError: with the kind of state and the quantity whose derivative is not finite.
    """
    if integrator is None:
        integrator = ForwardEuler() if scheme.fully_discrete else SSPRK2()
    lower, upper = _interval(scheme.law)
    cells, dtype = scheme.grid.cells, _dtype()
    index, middle = np.arange(cells), 0.5 * (lower + upper)
    tiny = float(np.finfo(dtype).tiny) ** 0.5
    states = {
        "a constant state in the middle": np.full(cells, middle),
        "a constant state at the lower end": np.full(cells, lower),
        "a constant state at the upper end": np.full(cells, upper),
        "a jump up": np.where(index < cells // 2, lower, upper),
        "a jump down": np.where(index < cells // 2, upper, lower),
        "a spike": np.where(index == cells // 2, upper, lower),
        "differences at the edge of underflow": lower + tiny * (index % 3),
    }
    dt = _dt_dx(scheme.law, 0.5 * scheme.cfl_limit if cfl is None else cfl) * scheme.grid.dx

    @eqx.filter_jit
    @eqx.filter_grad
    def gradient(parts):
        scheme, u0 = parts
        zero = jnp.zeros((), dtype)
        (state, _), _ = integrator.advance(scheme, zero, (scheme.start(u0), zero), dt)
        return jnp.sum(jnp.sin(1.0 + jnp.arange(cells)) * scheme.averages(state))

    for name, values in states.items():
        by_scheme, by_state = gradient((scheme, jnp.asarray(values, dtype)))
        for path, leaf in jax.tree_util.tree_leaves_with_path({"the state": by_state, "scheme": by_scheme}):
            if not bool(jnp.isfinite(leaf).all()):
                raise AssertionError(
                    f"the derivative by {jax.tree_util.keystr(path)} is not finite at {name}:"
                    f" {np.asarray(leaf)}"
                )
