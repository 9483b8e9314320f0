"""Checks that users can point at their own functions: `assert_invariant`, `invariance_residual`, and
`self_check`.

`self_check` goes over all 530 settings: operators, stars against the trace formula, invariance in both
precisions and, when gemmi is installed, absences, epsilon factors and centric flags against its independent
tables.
"""

import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sciml.crystal.fourier import FourierBasis
from sciml.crystal.lattice import lattice_of, miller_ball, random_metric, reciprocal_metric
from sciml.crystal.seitz import DENOMINATOR, is_closed
from sciml.crystal.space_group import HALL_NUMBERS, SpaceGroup
from sciml.crystal.star import StarTable, classify, count_stars, stars_within
from sciml.typing import Key

FLOAT64_TOLERANCE = 1e-12
FLOAT32_TOLERANCE = 1e-5


def orbit_of(space_group: SpaceGroup, fractional: np.ndarray) -> np.ndarray:
    """Images R x + t of points (N, 3) under every operator, (G, N, 3), moved into [-1/2, 1/2]."""
    images = (
        fractional @ np.swapaxes(space_group.rotations, 1, 2)
        + space_group.translations[:, None] / DENOMINATOR
    )
    return images - np.rint(images)


def invariance_residual(
    fun: Callable[[Float[Array, " 3"]], Array], space_group: SpaceGroup, *, points: int = 8, key: Key
) -> float:
    """Largest |f(Rx + t) - f(x)| over random points x and all operators.

    `fun` takes fractional coordinates (3,) and returns an array; it is vmapped. The points have the default
    float dtype, and images are computed in float64 before they are rounded to it.
    """
    start = np.asarray(jax.random.uniform(key, (points, 3)), float)
    images = jnp.asarray(orbit_of(space_group, start))
    values = jax.lax.map(jax.vmap(fun), images)
    return float(jnp.abs(values - values[0]).max())


def assert_invariant(
    fun: Callable[[Float[Array, " 3"]], Array],
    space_group: SpaceGroup,
    *,
    tolerance: float | None = None,
    points: int = 8,
    key: Key,
) -> None:
    """Assert f(Rx + t) = f(x) for every operator at random points.

    **Arguments:**

    - `fun`: from fractional coordinates (3,) to an array.
    - `tolerance`: largest difference allowed; default 1e-12 in float64, 1e-5 in float32.

    Raises `AssertionError` with the residual.
    """
    if tolerance is None:
        tolerance = FLOAT64_TOLERANCE if jnp.asarray(0.0).dtype == jnp.float64 else FLOAT32_TOLERANCE
    residual = invariance_residual(fun, space_group, points=points, key=key)
    assert residual <= tolerance, (
        f"not invariant under {space_group!r}: |f(Rx+t) - f(x)| = {residual:.3g} > {tolerance:g}"
    )


@dataclass(frozen=True)
class SettingCheck:
    """Result of the self-check for one setting."""

    hall_number: int
    symbol: str
    operators: int
    stars: int
    expected_stars: int
    residual32: float
    residual64: float
    closed: bool
    mismatches: int | None

    @property
    def passed(self) -> bool:
        """Whether every part of the check held."""
        return (
            self.closed
            and self.stars == self.expected_stars
            and self.residual32 <= FLOAT32_TOLERANCE
            and self.residual64 <= FLOAT64_TOLERANCE
            and not self.mismatches
        )


@eqx.filter_jit
def _evaluate(basis: FourierBasis, points: Float[Array, "points 3"]) -> Float[Array, "points stars 2"]:
    return jax.vmap(basis)(points)


def self_check(
    hall_numbers: range = HALL_NUMBERS, *, cutoff: float = 0.6, largest_index: int = 5, seed: int = 0
) -> Iterator[SettingCheck]:
    """Check settings one after another; yields a `SettingCheck` for each.

    **Arguments:**

    - `cutoff`: of the basis, in 1/Å, on a random lattice with edges near 6 Å.
    - `largest_index`: flags are compared with gemmi's for |h|, |k|, |l| up to this.
    """
    rng = np.random.default_rng(seed)
    miller = np.indices((2 * largest_index + 1,) * 3).reshape(3, -1).T - largest_index
    oracle = _gemmi_mismatches if importlib.util.find_spec("gemmi") else None
    for hall_number in hall_numbers:
        group = SpaceGroup.from_hall_number(hall_number)
        metric = random_metric(group, rng)
        lattice = lattice_of(metric)
        table = stars_within(group, lattice, cutoff)
        images = orbit_of(group, rng.uniform(size=(2, 3)))[_some_operators(group, rng)]
        yield SettingCheck(
            hall_number,
            group.symbol,
            group.order,
            table.functions,
            count_stars(group, miller_ball(reciprocal_metric(metric), cutoff)),
            basis_residual(table, lattice, images, double=False),
            basis_residual(table, lattice, images, double=True),
            is_closed(group.rotations, group.translations),
            None if oracle is None else oracle(group, miller),
        )


def _some_operators(group: SpaceGroup, rng: np.random.Generator, count: int = 96) -> np.ndarray:
    """The identity and up to 95 other operators, repeated to a fixed number so that one trace serves
    all groups.
    """
    return np.r_[0, np.resize(1 + rng.permutation(max(group.order - 1, 1)), count - 1) % group.order]


def basis_residual(table: StarTable, lattice: np.ndarray, images: np.ndarray, *, double: bool) -> float:
    """Largest difference of the basis between images (operators, points, 3), the identity's first, in
    float64 or float32.

    The table is padded to few shapes, so that many structures share few compilations.
    """
    stars, members = table.phase.shape
    pad = {"pad_stars": -(-stars // 128) * 128, "pad_members": -(-members // 8) * 8}
    with jax.enable_x64(double):
        basis = FourierBasis.from_table(table, lattice, **pad)
        points = jnp.asarray(images.reshape(-1, 3).astype(basis.frequency.dtype))
        values = np.asarray(_evaluate(basis, points)).reshape(*images.shape[:2], -1)
    return float(np.abs(values - values[0]).max())


def _gemmi_mismatches(group: SpaceGroup, miller: np.ndarray) -> int:
    import gemmi

    assert group.hall_symbol is not None
    theirs = gemmi.symops_from_hall(group.hall_symbol)
    ours = classify(group, miller)
    listed = miller.tolist()
    return int(
        (ours.epsilon != [theirs.epsilon_factor(k) for k in listed]).sum()
        + (ours.absent != [theirs.is_systematically_absent(k) for k in listed]).sum()
        + (ours.centric != [theirs.is_reflection_centric(k) for k in listed]).sum()
    )
