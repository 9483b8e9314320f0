"""The Lax-Hopf formula: exact evolution of piecewise-constant data under a concave or convex flux.

The potential N(x, t) with N_x = u obeys N_t + f(N_x) = 0 and has a closed form; cell averages are its
differences. `lax_hopf_potential` is the formula, pure and batched by `jax.vmap`; `lax_hopf_cell_averages`
evaluates it for whole ensembles in float64, tile by tile.
"""

import concurrent.futures
import os

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from sciml.fv.law import AbstractLaw, as_dtype


def check_states(law: AbstractLaw, states: ArrayLike, owner: str) -> np.ndarray:
    states = np.asarray(states, dtype=np.float64)
    if not np.isfinite(states).all():
        raise ValueError(f"{owner}: a state is not finite; remove NaN and infinity from the initial data")
    lower, upper = float(law.lower), float(law.upper)
    slack = 1e-6 * max((abs(v) for v in (lower, upper) if np.isfinite(v)), default=0.0)
    if states.size and (states.min() < lower - slack or states.max() > upper + slack):
        raise ValueError(
            f"{owner}: states in [{states.min():.6g}, {states.max():.6g}] leave the interval "
            f"[{lower:.6g}, {upper:.6g}] that {type(law).__name__} admits; clip the data or widen the law"
        )
    return states


def lax_hopf_potential(
    law: AbstractLaw,
    breakpoints: Float[Array, " pieces+1"],
    states: Float[Array, " pieces"],
    x: Float[Array, "..."],
    t: ArrayLike,
) -> Float[Array, "..."]:
    """The potential N(x, t) with N_x = u of piecewise-constant data; pure, for use inside jit, vmap and scan.

    N(x, t) = max over y of U₀(y) - t R((x - y)/t) for concave f, min for convex f, with U₀(y) = ∫ u₀ from
    breakpoints[0] to y and the Legendre transform R(s) = sup_u f(u) - s·u (inf for convex f). On a piece of
    state k the best y is x - t f′(k) when that lies on the piece and one of its ends otherwise; first and
    last piece extend to infinity. The derivative of the result with respect to every argument is right
    almost everywhere (envelope theorem).

    Args:
        law: conservation law with concave, convex or linear flux f.
        breakpoints: increasing positions of the jumps between pieces, and the two outer ends [length].
        states: state k of every piece.
        x: positions, any shape [length].
        t: time, at least 0; t = 0 gives U₀(x).

    Returns:
        N of the shape and dtype of `x`; use float64 where differences of N are divided by a small cell width.

    Raises:
        ValueError: when f is neither concave nor convex.

    Reference: P. D. Lax, Comm. Pure Appl. Math. 10, 537 (1957).
    """
    if law.curvature == "neither":
        raise ValueError(
            f"the Lax-Hopf formula needs a concave or convex flux and that of {type(law).__name__} is "
            "neither: use riemann_cell_averages for one jump or a fine-grid Godunov solution"
        )
    dtype = jnp.result_type(x, states)
    breakpoints, states = jnp.asarray(breakpoints, dtype), jnp.asarray(states, dtype)
    law, sign = as_dtype(law, dtype), -1.0 if law.curvature == "convex" else 1.0
    # Far above the smallest number: XLA may divide by the product of t and a speed, which must not underflow.
    t = jnp.maximum(jnp.asarray(t, dtype), jnp.finfo(dtype).tiny ** 0.75)
    x, t = jnp.broadcast_arrays(jnp.asarray(x, dtype), t)
    before = jnp.cumsum(states * jnp.diff(breakpoints))[:-1]
    lowest, highest = jnp.min(states), jnp.max(states)  # bounds of the solution for all times: enough for R
    speeds = law.wave_speed(states)
    opening = sign * (states[:-1] - states[1:]) > 0
    pieces = {
        "left": breakpoints[:-1].at[0].set(-jnp.inf),
        "right": breakpoints[1:].at[-1].set(jnp.inf),
        "origin": breakpoints[:-1],
        "start": jnp.concatenate([jnp.zeros_like(states[:1]), before]),
        "state": states,
        "flux": law.flux(states),
        "speed": speeds,
        "slowest": jnp.concatenate([speeds[:1], jnp.minimum(speeds[:-1], speeds[1:])]),
        "fastest": jnp.concatenate([speeds[:1], jnp.maximum(speeds[:-1], speeds[1:])]),
        "opens": jnp.concatenate([jnp.zeros((1,), bool), opening]),
    }

    def from_inside(best, piece):
        foot = x - t * piece["speed"]
        value = piece["start"] + piece["state"] * (x - piece["origin"]) - t * piece["flux"]
        inside = (foot >= piece["left"]) & (foot <= piece["right"])
        return jnp.maximum(best, jnp.where(inside, sign * value, -jnp.inf))

    def from_breakpoint(best, piece):
        distance = x - piece["origin"]
        state = jax.lax.stop_gradient(law.legendre_state(distance / t, lowest, highest))
        return jnp.maximum(best, sign * (piece["start"] + distance * state - t * law.flux(state)))

    def step(best, piece):
        # A breakpoint wins only inside the rarefaction that starts there; elsewhere a neighbour is better.
        distance, slow, fast = x - piece["origin"], t * piece["slowest"], t * piece["fastest"]
        size = jnp.abs(x) + jnp.abs(piece["origin"]) + jnp.abs(slow) + jnp.abs(fast)
        slack = 32 * jnp.finfo(dtype).eps * size
        inside = (distance >= slow - slack) & (distance <= fast + slack)
        reached = piece["opens"] & jnp.any(inside)
        best = jax.lax.cond(reached, from_breakpoint, lambda best, _: best, best, piece)
        return from_inside(best, piece), None

    best = from_inside(jnp.full_like(x, -jnp.inf), jax.tree.map(lambda a: a[0], pieces))
    best, _ = jax.lax.scan(step, best, jax.tree.map(lambda a: a[1:], pieces))
    return sign * best


_TILE = (128, 32)  # times x faces


@eqx.filter_jit
def _lax_hopf_averages(law, breakpoints, states, faces, times, rows, columns):
    """Averages [samples, times, cells], by tiles of `rows` times and `columns` faces."""

    def tiles(values, size):
        padding = jnp.broadcast_to(values[-1:], (-values.size % size,))
        return jnp.concatenate([values, padding]).reshape(-1, size)

    def one_profile(profile):
        tile = lambda t, x: lax_hopf_potential(law, profile[0], profile[1], x, t[:, None])  # noqa: E731
        one_row = lambda t: jax.lax.map(lambda x: tile(t, x), tiles(faces, columns))  # noqa: E731
        potential = jax.lax.map(one_row, tiles(times, rows))  # [row of tiles, tile, time, face]
        potential = jnp.swapaxes(potential, 1, 2)
        potential = potential.reshape(-1, potential.shape[2] * columns)[: times.size, : faces.size]
        return jnp.diff(potential) / jnp.diff(faces)

    return jax.lax.map(one_profile, (breakpoints, states))


def lax_hopf_cell_averages(
    law: AbstractLaw,
    breakpoints: ArrayLike,
    states: ArrayLike,
    faces: ArrayLike,
    times: ArrayLike,
) -> Float[np.ndarray, "... times cells"]:
    """Exact cell averages of the entropy solution of piecewise-constant data, by differences of the
    potential N.

    ū_i(t) = (N(x_{i+½}, t) - N(x_{i-½}, t)) / (x_{i+½} - x_{i-½}); see `lax_hopf_potential`. One
    compilation serves all laws of a class, all data and all times of the same shape. Besides the result,
    memory holds some tens of megabytes per core, whatever the number of pieces.

    Args:
        law: conservation law with concave, convex or linear flux.
        breakpoints: increasing ends [..., pieces+1] [length]; the outer pieces extend to infinity. Leading
            axes broadcast against those of `states`.
        states: state of every piece [..., pieces].
        faces: increasing positions [cells+1] of the faces, uniform or not [length].
        times: times [times], at least 0, in any order.

    Returns:
        Averages in float64, whatever the precision that JAX is set to.

    Raises:
        ValueError: for a flux that is neither concave nor convex, states outside the law's interval,
            negative times, breakpoints or faces that do not increase, or shapes that do not fit.
    """
    states = check_states(law, np.asarray(states), "lax_hopf_cell_averages")
    breakpoints, faces = np.asarray(breakpoints, dtype=np.float64), np.asarray(faces, dtype=np.float64)
    times = np.asarray(times, dtype=np.float64)
    pieces = states.shape[-1] if states.ndim else 0
    if pieces < 1 or breakpoints.shape[-1:] != (pieces + 1,):
        raise ValueError(
            f"lax_hopf_cell_averages: {pieces} pieces need {pieces + 1} breakpoints, "
            f"got shape {breakpoints.shape}"
        )
    for name, values in (("breakpoints", breakpoints), ("faces", faces)):
        if not (np.diff(values) > 0).all():
            raise ValueError(f"lax_hopf_cell_averages: {name} must increase along their last axis")
    if times.ndim != 1 or faces.ndim != 1 or faces.size < 2:
        raise ValueError(
            f"lax_hopf_cell_averages: times {times.shape} and faces {faces.shape} must have one axis each"
        )
    if not (np.isfinite(times) & (times >= 0)).all():
        raise ValueError("lax_hopf_cell_averages: times must be finite and at least 0")
    batch = np.broadcast_shapes(states.shape[:-1], breakpoints.shape[:-1])
    states = np.broadcast_to(states, (*batch, pieces)).reshape(-1, pieces)
    breakpoints = np.broadcast_to(breakpoints, (*batch, pieces + 1)).reshape(-1, pieces + 1)

    # Small tiles stay in a processor's cache and miss most rarefactions; an accelerator wants more work.
    rows, columns = _TILE if jax.default_backend() == "cpu" else (4096, faces.size)
    rows = max(1, min(rows, times.size))
    columns = min(faces.size, max(columns, _TILE[0] * _TILE[1] // rows))
    result = np.empty((len(states), times.size, faces.size - 1))
    if result.size == 0:
        return result.reshape(*batch, times.size, faces.size - 1)
    workers = os.cpu_count() or 1
    chunk = min(-(-len(states) // workers), max(1, 2**22 // result[0].size))

    def fill(start: int) -> None:
        index = np.minimum(np.arange(start, start + chunk), len(states) - 1)  # chunks of one shape
        with jax.enable_x64(True):  # a setting of the thread
            averages = _lax_hopf_averages(law, breakpoints[index], states[index], faces, times, rows, columns)
            result[start : start + chunk] = np.asarray(averages)[: len(states) - start]

    fill(0)  # compiles, before the threads need it
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        list(pool.map(fill, range(chunk, len(states), chunk)))
    return result.reshape(*batch, times.size, faces.size - 1)
