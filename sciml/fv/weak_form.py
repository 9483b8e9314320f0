"""Weak-form and entropy residuals: how far a discrete solution is from solving the law, without any label.

For a test function φ(x) with compact support, u_t + f(u)_x = 0 integrated by parts in x reads

    d/dt ∫ u φ dx - ∫ f(u) φ_x dx = 0        (the flux term has the minus sign)

and, with u constant u_i in every cell I_i, over one time step,

    r = Σ_i (u_iⁿ⁺¹ - u_iⁿ)/Δt ∫_{I_i} φ dx - Σ_i f̄_i (φ(x_{i+½}) - φ(x_{i-½})),  f̄ = (f(uⁿ) + f(uⁿ⁺¹))/2.

Entropy solutions also satisfy Kružkov's inequality for every constant k and every φ ≥ 0,

    d/dt ∫ |u - k| φ dx - ∫ sign(u - k)(f(u) - f(k)) φ_x dx ≤ 0,

whose positive part is the entropy residual. Without it a weak residual is also zero for wrong shocks, such as
a jump at rest between two states of equal flux.

A cell that a shock crosses is no constant: with u_i there the residual of the exact solution has an error of
the first order, and profiles that swing past the states of the shock have a smaller one. So cells where waves
meet (u monotone, f′ falling in x) may hold one jump between the neighbouring averages instead, placed such
that the average is kept (`jumps`); f̄ and |u - k| are then averages over both parts. What is left beats with
every cell that a shock crosses. Test functions φ(x)ψ(t) with a window ψ as long as some cells average that
out, and better schemes have smaller residuals.

Reference: S. N. Kružkov, Math. USSR Sb. 10, 217 (1970); T. De Ryck, S. Mishra, R. Molinaro, wPINNs,
SIAM J. Numer. Anal. 62, 811 (2024), for residuals of weak solutions.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sciml.fv.law import AbstractLaw
from sciml.typing import ScalarLike


class TestFunctions(eqx.Module):
    """Test functions on a line of cells: their integrals over cells and their values at faces.

    `integrals` are ∫_{I_i} φ dx / Δx and `at_faces` φ(x_{i±½}); all vanish at both ends of the line.
    `positive` tells whether all φ ≥ 0, as entropy residuals need.
    """

    integrals: Float[Array, "tests cells"]
    at_faces: Float[Array, "tests cells+1"]
    positive: bool = eqx.field(static=True, default=True)


def bumps(cells: int, width: float) -> TestFunctions:
    """Smooth bumps cos²(π (x - c)/(width Δx)) on faces c of the line, a quarter of the width apart.

    Args:
        cells: number of cells of the line.
        width: support in cells, at least 2.

    Raises:
        ValueError: when the support is below 2 cells or wider than the line.
    """
    if not 2 <= width <= cells:
        raise ValueError(f"bumps: width is {width} cells; give 2 to {cells} (the line has {cells} cells)")
    faces = np.arange(cells + 1.0)
    half = width / 2
    fitting = faces[(faces >= half - 1e-9) & (faces <= cells - half + 1e-9)]
    centres = fitting[:: max(1, int(width / 4))]
    s = np.clip(faces[None] - centres[:, None], -half, half)
    primitive = s / 2 + width / (4 * np.pi) * np.sin(2 * np.pi * s / width)
    values = np.cos(np.pi * s / width) ** 2
    return TestFunctions(jnp.asarray(np.diff(primitive, axis=1)), jnp.asarray(values))


def random_polynomials(cells: int, count: int, degree: int, seed: int) -> TestFunctions:
    """Random polynomials on the whole line times a factor that vanishes doubly at its ends.

    Args:
        cells: number of cells of the line.
        count: number of test functions.
        degree: degree of the random factor, in the Legendre basis with normal coefficients.
        seed: of the coefficients.
    """
    coefficients = np.random.default_rng(seed).normal(size=(count, degree + 1)) / np.sqrt(degree + 1)
    series = [
        np.polynomial.Legendre(row) * np.polynomial.Legendre([2 / 3, 0, -2 / 3]) ** 2 for row in coefficients
    ]
    x = np.linspace(-1.0, 1.0, cells + 1)
    nodes, weights = np.polynomial.legendre.leggauss(16)
    inside = 0.5 * (x[:-1] + x[1:])[:, None] + nodes / cells
    integrals = np.stack([0.5 * p(inside) @ weights for p in series])
    return TestFunctions(jnp.asarray(integrals), jnp.asarray(np.stack([p(x) for p in series])), False)


def time_windows(steps: int, length: int) -> Float[np.ndarray, "windows steps"]:
    """Weights of overlapping Hann windows over the steps of a rollout; each row sums to 1.

    Args:
        steps: number of time steps.
        length: steps under a window; 1 keeps every step by itself, more than `steps` counts as `steps`.
    """
    length = max(1, min(length, steps))
    shape = np.hanning(length + 2)[1:-1]
    starts = np.arange(0, steps - length + 1, max(1, length // 4))
    rows = np.zeros((len(starts), steps))
    for row, start in zip(rows, starts, strict=True):
        row[start : start + length] = shape / shape.sum()
    return rows


def _averages(law: AbstractLaw, u: Float[Array, "steps+1 cells"], jumps: bool) -> Callable:
    """The operator that turns a function g into the averages of g(u) over the cells."""
    if not jumps:
        return lambda g: g(u)
    left = jnp.concatenate([u[:, :1], u[:, :-1]], axis=1)
    right = jnp.concatenate([u[:, 1:], u[:, -1:]], axis=1)
    meeting = ((u - left) * (right - u) > 0) & (law.wave_speed(left) > law.wave_speed(right))
    share = jnp.where(meeting, (u - right) / jnp.where(meeting, left - right, 1), 0)
    return lambda g: jnp.where(meeting, share * g(left) + (1 - share) * g(right), g(u))


def _tested(u, dt_dx: ScalarLike, amount, flux, tests: TestFunctions, windows):
    """Σ over cells and time windows of d/dt amount + d/dx flux, the derivatives on the test functions."""
    rate = (amount[1:] - amount[:-1]) / dt_dx
    mean = 0.5 * (flux[1:] + flux[:-1])
    integrals, slopes = (x.astype(u.dtype) for x in (tests.integrals, jnp.diff(tests.at_faces, axis=1)))
    found = rate @ integrals.T - mean @ slopes.T
    return found if windows is None else jnp.asarray(windows, u.dtype) @ found


def weak_residual(
    law: AbstractLaw,
    u: Float[Array, "steps+1 cells"],
    dt_dx: ScalarLike,
    tests: TestFunctions,
    windows: Float[np.ndarray, "windows steps"] | None = None,
    *,
    jumps: bool = False,
) -> Float[Array, "windows tests"]:
    """r in units of the flux: zero for a weak solution up to the error of piecewise constants.

    Args:
        law: conservation law.
        u: cell averages over time.
        dt_dx: Δt/Δx.
        tests: test functions in space.
        windows: test functions in time, see `time_windows`; None keeps the steps apart.
        jumps: let cells where waves meet hold a jump instead of a constant.
    """
    return _tested(u, dt_dx, u, _averages(law, u, jumps)(law.flux), tests, windows)


def entropy_residual(
    law: AbstractLaw,
    u: Float[Array, "steps+1 cells"],
    constants: Float[Array, " constants"],
    dt_dx: ScalarLike,
    tests: TestFunctions,
    windows: Float[np.ndarray, "windows steps"] | None = None,
    *,
    jumps: bool = False,
) -> Float[Array, "constants windows tests"]:
    """Positive part of Kružkov's inequality for every constant k; needs test functions φ ≥ 0.

    Raises:
        ValueError: for test functions that change sign.
    """
    if not tests.positive:
        raise ValueError("entropy_residual: the test functions change sign; use bumps")
    average, found = _averages(law, u, jumps), []
    for k in constants:
        amount = average(lambda v, k=k: jnp.abs(v - k))
        flux = average(lambda v, k=k: jnp.sign(v - k) * (law.flux(v) - law.flux(k)))
        found.append(jnp.maximum(_tested(u, dt_dx, amount, flux, tests, windows), 0))
    return jnp.stack(found)
