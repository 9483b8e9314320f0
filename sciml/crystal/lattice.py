"""Lattices and metrics: the one place that fixes the conventions of direct and reciprocal space.

    lattice        rows a, b, c in Å (3, 3); Cartesian position r = x L for fractional x
    metric         G = L Lᵀ, so |r|² = xᵀ G x                                         [Å²]
    reciprocal     G* = G⁻¹, so |k|² = kᵀ G* k for Miller indices k, without 2π       [Å⁻²]
    plane wave     exp(2πi k·x); spacing d = 1/|k|

A metric that obeys a space group only to symprec is replaced by its mean over the point group, so that |k| is
constant on stars to the last bit that matters.
"""

from __future__ import annotations

import numpy as np

from sciml.crystal.space_group import SpaceGroup


def metric_of(lattice: np.ndarray) -> np.ndarray:
    """Metric G = L Lᵀ (Å²) of a lattice given by rows (Å)."""
    lattice = np.asarray(lattice, float)
    return lattice @ lattice.T


def reciprocal_metric(metric: np.ndarray) -> np.ndarray:
    """Reciprocal metric G* = G⁻¹ (Å⁻²), crystallographer's convention without 2π."""
    return np.linalg.inv(metric)


def lattice_of(metric: np.ndarray) -> np.ndarray:
    """The right-handed lattice with this metric, a along x and b in the xy plane (rows, Å)."""
    return np.linalg.cholesky(metric)


def lattice_from_parameters(
    a: float, b: float, c: float, alpha: float, beta: float, gamma: float
) -> np.ndarray:
    """Lattice rows (Å) from cell lengths (Å) and angles (degrees); `ValueError` when no such cell exists."""
    cos = np.cos(np.deg2rad([alpha, beta, gamma]))
    # right and 60/120 degree angles exactly, not to one unit in the last place
    cos = np.where(np.abs(cos * 2 - np.rint(cos * 2)) < 1e-12, np.rint(cos * 2) / 2, cos)
    lengths = np.array([a, b, c], float)
    cosines = np.array([[1, cos[2], cos[1]], [cos[2], 1, cos[0]], [cos[1], cos[0], 1]])
    if not (np.isfinite(lengths).all() and np.isfinite(cos).all() and (lengths > 0).all()):
        raise ValueError(
            f"cell lengths {lengths.tolist()} and angles {[alpha, beta, gamma]} must be finite, lengths > 0"
        )
    if np.linalg.det(cosines) <= 1e-12:
        raise ValueError(f"cell angles {[alpha, beta, gamma]} degrees enclose no volume")
    return lattice_of(cosines * np.outer(lengths, lengths))


def symmetrise_metric(space_group: SpaceGroup, metric: np.ndarray, tolerance: float = 0.05) -> np.ndarray:
    """Mean of the metric over the point group, G <- mean_g Rᵀ G R.

    **Arguments:**

    - `metric`: (3, 3), Å².
    - `tolerance`: largest relative change of an entry that is still taken for noise.

    Raises `ValueError` when the metric does not fit the group: most often the cell is in another setting.
    """
    metric = np.asarray(metric, float)
    rotations = space_group.rotations
    images = np.swapaxes(rotations, 1, 2) @ metric @ rotations
    mean = images.sum(0) / len(rotations)
    mean = (mean + mean.T) / 2
    scale = np.sqrt(np.outer(np.diag(metric), np.diag(metric)))
    change = float((np.abs(mean - metric) / scale).max())
    if not change <= tolerance:
        raise ValueError(
            f"the lattice lacks the symmetry of {space_group!r}: a metric entry changes by {change:.1%}; "
            "give the setting (axes, cell choice) that the lattice is described in"
        )
    return mean


def random_metric(space_group: SpaceGroup, rng: np.random.Generator, edge: float = 6.0) -> np.ndarray:
    """A random metric (Å²) that the group leaves invariant, with edges near `edge` Å; for tests and
    examples.
    """
    noise = np.eye(3) + rng.uniform(-0.3, 0.3, (3, 3))
    return symmetrise_metric(space_group, edge**2 * noise @ noise.T, tolerance=np.inf)


def miller_ball(reciprocal: np.ndarray, cutoff: float) -> np.ndarray:
    """All Miller indices with |k| <= cutoff (1/Å), an array (M, 3) that a compatible point group maps to
    itself.
    """
    # |h_i| = |k · a_i| <= |k| |a_i|
    edges = np.sqrt(np.diag(np.linalg.inv(reciprocal)))
    bounds = np.floor(cutoff * edges * (1 + 1e-9)).astype(int)
    size = int(np.prod(2 * bounds + 1))
    if size > 50_000_000:
        raise ValueError(f"cut-off {cutoff:g} 1/Å asks for {size} Miller indices; lower it")
    grid = np.indices(tuple(2 * bounds + 1)).reshape(3, -1).T - bounds
    squared = np.einsum("mi,ij,mj->m", grid, reciprocal, grid)
    return grid[squared <= cutoff**2 * (1 + 1e-9)]
