"""The basis: orthonormal, invariant in both precisions, exact gradients, one trace for all groups;
series and kernel sums.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.crystal.fourier import (
    FourierBasis,
    SymmetricFourierSeries,
    kernel_sum,
    stack_bases,
    structure_factors,
)
from sciml.crystal.lattice import lattice_of, metric_of, miller_ball, random_metric, reciprocal_metric
from sciml.crystal.seitz import DENOMINATOR
from sciml.crystal.space_group import SpaceGroup
from sciml.crystal.star import first_stars, stars_within
from sciml.crystal.symmetrise import (
    asymmetric_points,
    compatible_shape,
    grid_points,
    symmetrise_coefficients,
    symmetrise_grid,
)
from sciml.crystal.testing import assert_invariant, orbit_of, self_check

NUMBERS = (1, 2, 14, 43, 92, 146, 166, 194, 205, 230)


def case(number, seed=0):
    group = SpaceGroup.from_number(number)
    return group, lattice_of(random_metric(group, np.random.default_rng(seed)))


def padded(number, **options):
    """Group, lattice and basis in tables of one shape, so that the tests compile once and not once per
    group.
    """
    group, lattice = case(number)
    return group, lattice, FourierBasis(group, lattice, pad_stars=32, pad_members=24, **options)


@eqx.filter_jit
def at_points(fun, points):
    return jax.vmap(fun)(points)


def product_grid(basis):
    """Points on which the mean of a product of two functions of the basis is exact, and their weights;
    padded.
    """
    side = 2 * int(jnp.abs(basis.miller).max()) + 1
    points = grid_points((side, side, side)).reshape(-1, 3)
    more = -len(points) % 4096
    weights = np.pad(np.full(len(points), 1 / len(points)), (0, more))
    return jnp.asarray(np.pad(points, ((0, more), (0, 0)))), weights


def test_self_check_passes_for_all_530_settings():
    checks = list(self_check(largest_index=2))
    assert len(checks) == 530
    assert [check for check in checks if not check.passed] == []
    # a check that reads zero everywhere would not be looking
    assert sum(check.residual64 > 0 for check in checks) > 400


@pytest.mark.parametrize("number", NUMBERS)
def test_real_and_complex_functions_are_orthonormal(number, x64):
    _, _, basis = padded(number, cutoff=0.3)
    points, weights = product_grid(basis)
    expected = np.diag(np.asarray(basis.exists).ravel().astype(float))
    for fun in (basis, basis.complex_values):
        values = np.asarray(at_points(fun, points)).reshape(len(points), -1)
        assert np.abs(values.conj().T @ (values * weights[:, None]) - expected).max() < 1e-12


@eqx.filter_jit
def _automatic(basis, x):
    return jax.jacfwd(basis)(x)


@pytest.mark.parametrize("number", NUMBERS)
def test_gradient_equals_automatic_and_finite_differences(number, x64):
    _, _, basis = padded(number, stars=10)
    x, step = jnp.array([0.137, 0.291, -0.423]), 1e-6
    values, gradient = (part[0] for part in at_points(basis.value_and_gradient, x[None]))
    around = at_points(
        basis, jnp.stack([x, *(x + step * e for e in np.eye(3)), *(x - step * e for e in np.eye(3))])
    )
    assert np.abs(values - around[0]).max() < 1e-13
    assert np.abs(gradient - _automatic(basis, x)).max() < 1e-12
    numeric = jnp.moveaxis(around[1:4] - around[4:], 0, -1) / (2 * step)
    assert np.abs(gradient - numeric).max() < 1e-7


def test_laplacian_eigenvalues(x64):
    group, lattice = case(225)
    basis = FourierBasis(group, lattice, stars=8)
    to_fractional = jnp.asarray(np.linalg.inv(lattice))
    r = jnp.array([0.3, 1.1, 2.3])
    hessian = eqx.filter_jit(jax.hessian(lambda position: basis(position @ to_fractional)))(r)
    expected = -4 * np.pi**2 * basis.frequency[:, None] ** 2 * basis(r @ to_fractional)
    assert np.abs(jnp.trace(hessian, axis1=-2, axis2=-1) - expected).max() < 1e-10


def test_float32_far_from_the_origin():
    group, lattice = case(227)
    basis = FourierBasis(group, lattice, cutoff=1.2)
    x = np.array([0.123, 0.456, 0.789], np.float32)
    with jax.enable_x64(True):
        exact = FourierBasis(group, lattice, cutoff=1.2)(jnp.asarray(x.astype(float)))
    values = basis(jnp.asarray(x))
    assert values.dtype == jnp.float32
    assert np.abs(np.asarray(values) - np.asarray(exact)).max() < 5e-6


def test_all_groups_share_one_trace():
    traces = []

    @eqx.filter_jit
    def evaluate(basis, x):
        traces.append(None)
        return basis(x), basis.value_and_gradient(x)

    for number in NUMBERS:
        group, lattice = case(number)
        evaluate(FourierBasis(group, lattice, stars=16, pad_stars=16, pad_members=24), jnp.ones(3) * 0.1)
    assert len(traces) == 1


def test_stacked_bases_equal_single_ones():
    cases = [case(number) for number in (1, 62, 225)]
    tables = [first_stars(group, lattice, 12) for group, lattice in cases]
    stacked = stack_bases(tables, [lattice for _, lattice in cases])
    x = jax.random.uniform(jax.random.key(0), (3, 3))
    together = eqx.filter_jit(jax.vmap(lambda b, y: b(y)))(stacked, x)
    for i, (group, lattice) in enumerate(cases):
        alone = FourierBasis(group, lattice, stars=12)
        values = at_points(alone, x[i][None])[0]
        assert np.allclose(together[i, : len(values)], values, atol=1e-6)
        assert not together[i, len(values) :].any()


def test_fixed_number_of_stars_is_spent_on_every_group():
    sizes = [int((FourierBasis(*case(n), stars=40).members > 0).sum()) for n in (1, 62, 194, 225)]
    assert min(sizes) >= 34


@pytest.mark.parametrize("number", NUMBERS)
def test_series_is_invariant_and_periodic(number, x64):
    group, _, basis = padded(number, stars=20)
    series = SymmetricFourierSeries(basis, (2,), key=jax.random.key(number))
    assert_invariant(lambda x: at_points(series, x[None])[0], group, points=4, key=jax.random.key(1))
    x = jnp.array([0.1, 0.2, 0.3])
    here, far, elsewhere = at_points(series, jnp.stack([x, x + jnp.array([1.0, -2.0, 5.0]), x + 0.1]))
    assert np.allclose(here, far, atol=1e-12)
    assert float(jnp.abs(here - elsewhere).max()) > 1e-3


def test_assert_invariant_can_fail(x64):
    with pytest.raises(AssertionError, match="not invariant under"):
        assert_invariant(
            lambda x: jnp.cos(2 * jnp.pi * x[0]), SpaceGroup.from_number(225), key=jax.random.key(0)
        )


@eqx.filter_jit
def _kernel(basis, x, y):
    return kernel_sum(basis, jnp.exp(-5 * basis.frequency**2), x, y)


@pytest.mark.parametrize("number", NUMBERS)
def test_kernel_sum_equals_sum_over_operators(number, x64):
    group, lattice, basis = padded(number, cutoff=0.3)
    x, y = np.random.default_rng(3).uniform(size=(2, 3))
    value = _kernel(basis, jnp.asarray(x), jnp.asarray(y))
    reciprocal = reciprocal_metric(metric_of(lattice))
    miller = miller_ball(reciprocal, 0.3)
    phi = np.exp(-5 * np.einsum("mi,ij,mj->m", miller, reciprocal, miller))
    images = group.rotations @ y + group.translations / DENOMINATOR
    direct = (phi * np.exp(2j * np.pi * (x - images) @ miller.T)).sum(1).mean()
    assert abs(direct.imag) < 1e-12 * phi.sum()
    assert abs(value - direct.real) < 1e-12 * phi.sum()


@pytest.mark.parametrize("number", NUMBERS)
def test_structure_factors_obey_the_group(number, x64):
    group, _ = case(number)
    atoms = jnp.asarray(orbit_of(group, np.array([[0.11, 0.27, 0.38]])).reshape(-1, 3))
    miller = np.array([[1, 2, 3], [2, 0, 0], [0, 0, 3], [-1, 4, 2]])
    every = jnp.asarray((miller @ group.rotations).reshape(-1, 3))
    moved = np.asarray(structure_factors(every, atoms, jnp.ones(len(atoms)))).reshape(group.order, -1)
    phases = np.exp(-2j * np.pi * group.translations @ miller.T / DENOMINATOR)
    assert np.abs(moved - moved[0] * phases).max() < 1e-10


def test_structure_factors_equal_gemmi(x64):
    gemmi = pytest.importorskip("gemmi")
    group, lattice = case(19)
    atoms = orbit_of(group, np.array([[0.11, 0.27, 0.38]])).reshape(-1, 3)
    miller = np.array([[1, 2, 3], [0, 0, 2], [3, 1, 0]])
    ours = structure_factors(jnp.asarray(miller), jnp.asarray(atoms), jnp.ones(4))
    operations = gemmi.symops_from_hall(group.hall_symbol)
    theirs = []
    for h in miller.tolist():
        shift = [op.phase_shift(h) for op in operations]
        rotated = [op.apply_to_hkl(h) for op in operations]
        site = np.array([0.11, 0.27, 0.38])
        # exp(2πi h·(Rx+t)) with gemmi's convention phase_shift = -2π h·t
        theirs.append(
            sum(np.exp(2j * np.pi * np.dot(k, site) - 1j * s) for k, s in zip(rotated, shift, strict=True))
        )
    assert np.abs(ours - np.array(theirs)).max() < 1e-10


@pytest.mark.parametrize("number", NUMBERS)
def test_symmetrised_grid_is_invariant_and_a_projection(number, x64):
    group, _ = case(number)
    shape = compatible_shape(group, (6, 7, 8))
    field = jax.random.normal(jax.random.key(0), shape)
    once = symmetrise_grid(group, field)
    assert np.abs(symmetrise_grid(group, once) - once).max() < 1e-13
    values, size = np.asarray(once), np.array(shape)
    points = np.indices(shape).reshape(3, -1)
    for rotation, translation in zip(group.rotations, group.translations, strict=True):
        image = (rotation @ (points / size[:, None]) + translation[:, None] / DENOMINATOR) * size[:, None]
        assert np.abs(image - np.rint(image)).max() < 1e-9
        moved = values[tuple(np.rint(image).astype(int) % size[:, None])]
        assert np.abs(moved - values.reshape(-1)).max() < 1e-13


def test_grid_that_does_not_fit_names_one_that_does():
    group = SpaceGroup.from_number(230)
    with pytest.raises(ValueError, match=r"use \(8, 8, 8\)"):
        symmetrise_grid(group, jnp.zeros((5, 6, 7)))


@pytest.mark.parametrize("number", NUMBERS)
def test_symmetrised_coefficients_span_the_basis(number, x64):
    group, lattice = case(number)
    miller = miller_ball(reciprocal_metric(metric_of(lattice)), 0.25)
    noise = np.random.default_rng(0).normal(size=(len(miller), 2))
    coefficients = symmetrise_coefficients(group, miller, jnp.asarray(noise[:, 0] + 1j * noise[:, 1]))
    assert np.abs(symmetrise_coefficients(group, miller, coefficients) - coefficients).max() < 1e-13
    images = orbit_of(group, np.array([[0.1, 0.7, 0.4]]))[:, 0]
    values = np.exp(2j * np.pi * images @ miller.T) @ np.asarray(coefficients)
    assert np.abs(values - values[0]).max() < 1e-12
    # the rank of the projection is the number of stars
    projector = symmetrise_coefficients(group, miller, jnp.eye(len(miller), dtype=complex))
    assert abs(jnp.trace(projector) - stars_within(group, lattice, 0.25).functions) < 1e-9


def test_asymmetric_points_integrate_like_the_grid(x64):
    group, lattice = case(225)
    series = SymmetricFourierSeries(FourierBasis(group, lattice, stars=10), key=jax.random.key(0))
    shape = compatible_shape(group, (12, 12, 12))
    points, weights = asymmetric_points(group, shape)
    assert len(points) < np.prod(shape) / 50
    everywhere = at_points(series, jnp.asarray(grid_points(shape).reshape(-1, 3)))
    assert abs(weights @ at_points(series, jnp.asarray(points)) ** 2 - (everywhere**2).mean()) < 1e-12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one"),
        ({"cutoff": 1.0, "stars": 3}, "exactly one"),
        ({"stars": 0}, "at least 1"),
        ({"stars": 30, "pad_stars": 5}, "does not fit"),
        ({"cutoff": 1e4}, "lower it"),
    ],
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        FourierBasis(*case(225), **options)
