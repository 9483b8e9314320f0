"""How good a numerical solution is: errors, conservation, variation, bounds, order, paired wins and cost.

Cells are the last axis; every other axis (samples, times) is kept, so that the caller averages over what it
likes. The functions use only what numpy and JAX arrays share: they return the kind of array that they are
given, work inside jit, and keep float64 where the arguments have it. u is the solution, v the reference.

- `l1`: mean_i |u_i - v_i|
- `mean_square`: mean_i (u_i - v_i)², no root
- `relative`: mean_i |u_i - v_i| / max(|v_i|, floor)
- `linf`: max_i |u_i - v_i|
- `total_variation`: Σ_i |u_{i+1} - u_i|
- `mass_defect`: Δx Σ_i (u_i(T) - u_i(0)) - ∫ (F_left - F_right) dt - ∫∫ S dx dt
- `bound_violation`: max_i max(lower - u_i, u_i - upper, 0)
- `observed_order`: slope of log error over log Δx
- `win_rate`: share of samples whose error is below the baseline's, ties counted half
- `Cost`: cell updates per second
"""

import dataclasses
from typing import TypeAlias

import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

Cells: TypeAlias = Float[Array | np.ndarray, "... cells"]
PerSample: TypeAlias = Float[Array | np.ndarray, "..."]


def l1(u: Cells, v: Cells) -> PerSample:
    """Mean absolute error over the cells, the natural norm here: every wave counts by its area."""
    return abs(u - v).mean(axis=-1)


def mean_square(u: Cells, v: Cells) -> PerSample:
    """Mean squared error over the cells; tables of neural finite volumes call it L2, without a root."""
    return ((u - v) ** 2).mean(axis=-1)


def relative(u: Cells, v: Cells, floor: float = 0.01) -> PerSample:
    """Mean over the cells of |u - v| / max(|v|, floor).

    Args:
        u: solution [..., cells].
        v: reference [..., cells].
        floor: smallest denominator, in units of the state, so that an empty road does not divide by zero.
    """
    return (abs(u - v) / abs(v).clip(floor)).mean(axis=-1)


def linf(u: Cells, v: Cells) -> PerSample:
    """Largest absolute error over the cells; of order one at a shock whatever the grid."""
    return abs(u - v).max(axis=-1)


def total_variation(u: Cells, *, periodic: bool = False) -> PerSample:
    """Σ |u_{i+1} - u_i|, which no entropy solution increases on the line; `periodic` adds |u_1 - u_n|."""
    inside = abs(u[..., 1:] - u[..., :-1]).sum(axis=-1)
    return inside + abs(u[..., 0] - u[..., -1]) if periodic else inside


def mass_defect(initial: Cells, final: Cells, dx: float, net_inflow: float | PerSample = 0.0) -> PerSample:
    """What a conservative scheme must leave at round-off: the change of mass that no flux and no source
    explains.

    Args:
        initial: cell averages at the start [..., cells].
        final: cell averages at the end [..., cells].
        dx: cell width [length].
        net_inflow: ∫ (F_left - F_right) dt + ∫∫ S dx dt, the mass that came in through both boundaries and
            from sources (on-ramps positive, off-ramps negative) [state·length]; shape [...] or a number.

    Returns:
        The signed defect [..., state·length].
    """
    return dx * (final - initial).sum(axis=-1) - net_inflow


def bound_violation(u: Cells, lower: float | PerSample, upper: float | PerSample) -> PerSample:
    """How far the worst cell leaves [lower, upper], 0 when none does; NaN counts as NaN."""
    return abs(u - u.clip(lower, upper)).max(axis=-1)


def observed_order(dx: ArrayLike, errors: ArrayLike) -> np.ndarray:
    """The order p of errors ≈ C·Δx^p: least-squares slope of log error over log Δx.

    Args:
        dx: cell widths of at least two grids [grids].
        errors: errors on these grids [..., grids].

    Returns:
        p for every leading index.

    Raises:
        ValueError: when there are fewer than two grids or a number is not positive (an exact solution has
            no order).
    """
    dx, errors = np.asarray(dx, dtype=np.float64), np.asarray(errors, dtype=np.float64)
    if dx.ndim != 1 or dx.size < 2 or errors.shape[-1:] != dx.shape:
        raise ValueError(
            f"observed_order: need two or more grids and one error each, got {dx.shape}, {errors.shape}"
        )
    if not ((dx > 0).all() and (errors > 0).all()):
        raise ValueError("observed_order: cell widths and errors must be positive")
    x = np.log(dx) - np.log(dx).mean()
    return np.log(errors) @ x / (x @ x)


def win_rate(errors: ArrayLike, baseline: ArrayLike) -> float:
    """Share of paired samples in which a scheme's error is below the baseline's; ties count half, NaN loses.

    Args:
        errors: errors of the scheme [samples].
        baseline: errors of the baseline on the same samples [samples].

    Raises:
        ValueError: when the shapes differ, for then the samples are not paired.
    """
    errors, baseline = np.asarray(errors), np.asarray(baseline)
    if errors.shape != baseline.shape or errors.size == 0:
        raise ValueError(
            f"win_rate compares the same samples: got shapes {errors.shape} and {baseline.shape}"
        )
    wins = (errors < baseline) | (np.isnan(baseline) & ~np.isnan(errors))
    ties = (errors == baseline) | (np.isnan(errors) & np.isnan(baseline))
    return float(np.mean(wins + 0.5 * ties))


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a run of many samples cost.

    Args:
        seconds: wall time without compilation.
        cells: cells per sample.
        steps: time steps.
        samples: samples advanced together.
    """

    seconds: float
    cells: int
    steps: int
    samples: int = 1

    @property
    def cell_updates(self) -> int:
        """cells × steps × samples; the stages of a Runge-Kutta step count once."""
        return self.cells * self.steps * self.samples

    @property
    def cell_updates_per_second(self) -> float:
        """Cell updates per second of wall time."""
        return self.cell_updates / self.seconds
