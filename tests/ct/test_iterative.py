import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize

from sciml.ct import (
    PHANTOMS,
    JosephProjector,
    cgls,
    psnr,
    sart,
    sirt,
    tv_discrepancy,
    tv_fista,
    tv_pdhg,
    with_gaussian_noise,
)
from sciml.ct.total_variation import gradient, gradient_transpose, noise_level, spectral_norm, total_variation

from .scans import geometry, unit_grid

GRID = unit_grid(10)


@pytest.fixture
def small(x64):
    """A projector, its dense matrix and noisy data."""
    scan = geometry("fan", 9, 14, first=0.2)
    projector = JosephProjector(scan, GRID)
    basis = jnp.eye(100).reshape(100, 10, 10)
    matrix = np.asarray(jax.jit(jax.vmap(projector.project))(basis)).reshape(100, -1).T
    data = PHANTOMS["bored-block"]().sinogram(scan)
    return projector, matrix, data + 0.02 * jax.random.normal(jax.random.key(0), data.shape)


def test_cgls_is_least_squares(small):
    projector, matrix, data = small
    expected = np.linalg.lstsq(matrix, np.asarray(data).ravel(), rcond=1e-10)[0]
    result = eqx.filter_jit(cgls)(projector, data, iterations=300)
    rest = np.linalg.norm(matrix @ expected - np.asarray(data).ravel())
    assert float(result.misfit[-1]) == pytest.approx(rest, rel=1e-4)
    assert (np.diff(result.misfit) <= 1e-9).all()
    consistent = jnp.asarray(matrix.sum(1)).reshape(data.shape)
    exact = eqx.filter_jit(cgls)(projector, consistent, iterations=300).image
    np.testing.assert_allclose(matrix @ exact.ravel(), matrix.sum(1), atol=1e-5)
    assert not np.asarray(cgls(projector, 0 * data, iterations=3).image).any()  # no 0/0


def test_sirt_reaches_the_weighted_least_squares_solution(small):
    projector, matrix, data = small
    weight = 1 / np.where(matrix.sum(1) > 1e-9, matrix.sum(1), np.inf)
    result = eqx.filter_jit(sirt)(projector, data, iterations=2000, relaxation=1.9, nonnegative=False)
    gradient = matrix.T @ (weight * (matrix @ np.asarray(result.image).ravel() - np.asarray(data).ravel()))
    assert np.abs(gradient).max() < 1e-3 * np.abs(matrix.T @ (weight * np.asarray(data).ravel())).max()
    bounded = np.asarray(eqx.filter_jit(sirt)(projector, data, iterations=50).image)
    assert bounded.min() >= 0 and np.asarray(result.image).min() < 0


@pytest.mark.parametrize("subsets", [None, 4])  # 9 views: 4 subsets are not of one size
def test_sart_solves_consistent_data(small, subsets):
    projector, matrix, _ = small
    true = jnp.asarray(PHANTOMS["bored-block"]().raster(GRID))
    data = projector.project(true)
    result = eqx.filter_jit(sart)(projector, data, subsets=subsets, iterations=60, decay=1.0)
    assert float(result.misfit[-1]) < 0.01 * float(result.misfit[0])
    assert psnr(result.image, true) > psnr(eqx.filter_jit(sirt)(projector, data, iterations=60).image, true)


def test_one_subset_is_sirt(small):
    projector, _, data = small
    one = eqx.filter_jit(sart)(projector, data, subsets=1, iterations=7, decay=1.0)
    all_at_once = eqx.filter_jit(sirt)(projector, data, iterations=7)
    np.testing.assert_allclose(one.image, all_at_once.image, atol=1e-12)
    np.testing.assert_allclose(one.misfit, all_at_once.misfit)
    with pytest.raises(ValueError, match="subsets"):
        sart(projector, data, subsets=10)


def test_gradient_and_its_transpose(x64):
    rng = np.random.default_rng(0)
    image, field = jnp.asarray(rng.normal(size=(5, 7))), jnp.asarray(rng.normal(size=(2, 5, 7)))
    assert float(jnp.vdot(gradient(image), field)) == pytest.approx(
        float(jnp.vdot(image, gradient_transpose(field)))
    )
    step = jnp.zeros((4, 4)).at[:2, :2].set(3.0)  # the corner pixel jumps in both directions
    assert float(total_variation(step, isotropic=False)) == 12.0
    assert float(total_variation(step)) == pytest.approx(6 + 3 * np.sqrt(2))


def test_spectral_norm(small):
    projector, matrix, data = small
    expected = np.linalg.svd(matrix, compute_uv=False)[0]
    assert float(spectral_norm(projector, data)) == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("isotropic", [True, False])
def test_both_algorithms_reach_the_minimum_of_total_variation(small, isotropic):
    """Against each other, and (anisotropic) against the quadratic program that it is."""
    projector, matrix, data = small
    p, weight = np.asarray(data).ravel(), 0.02

    def objective(image):
        image = jnp.asarray(image).reshape(10, 10)
        rest = matrix @ np.asarray(image).ravel() - p
        return 0.5 * rest @ rest + weight * float(total_variation(image, isotropic=isotropic))

    primal_dual = eqx.filter_jit(tv_pdhg)(projector, data, weight, iterations=3000, isotropic=isotropic)
    options = {"iterations": 400, "inner": 60, "isotropic": isotropic}
    proximal = eqx.filter_jit(tv_fista)(projector, data, weight, **options)
    a, b = objective(primal_dual.image), objective(proximal.image)
    assert a == pytest.approx(b, rel=1e-6) and float(primal_dual.image.min()) >= 0
    if not isotropic:
        basis = np.eye(100).reshape(100, 10, 10)
        difference = np.asarray(jax.vmap(gradient)(jnp.asarray(basis))).reshape(100, -1).T
        # f ≥ 0 and D f = q⁺ - q⁻ with both parts ≥ 0, by a penalty that is exact in the limit
        big = 1e4

        def penalised(z):
            f, up, down = np.split(z, [100, 300])
            rest, split = matrix @ f - p, difference @ f - up + down
            value = 0.5 * rest @ rest + weight * (up.sum() + down.sum()) + 0.5 * big * split @ split
            slope = matrix.T @ rest + big * difference.T @ split
            return value, np.r_[slope, weight - big * split, weight + big * split]

        f = np.asarray(primal_dual.image).ravel()
        z = np.r_[f, np.maximum(difference @ f, 0), np.maximum(-difference @ f, 0)]
        found = scipy.optimize.minimize(
            penalised, z, jac=True, method="L-BFGS-B", bounds=[(0, None)] * 500, options={"maxiter": 500}
        )
        assert found.fun > a * (1 - 1e-4)  # nothing below the minimum that was found


def test_noise_level():
    clean = PHANTOMS["curved-part"]().sinogram(geometry("parallel", 16, 400))
    for relative in (0.003, 0.03):
        noisy = with_gaussian_noise(clean, relative, key=jax.random.key(0))
        assert float(noise_level(noisy)) == pytest.approx(relative * float(clean.max()), rel=0.15)
    with pytest.raises(ValueError, match="5 bins"):
        noise_level(jnp.ones((3, 4)))


def test_the_weight_is_chosen_without_the_truth():
    """Within 1 dB of the best of a ladder of weights, with noise and without."""
    grid, scan = unit_grid(32), geometry("parallel", 16, 60, turn=np.pi)
    projector, block = JosephProjector(scan, grid), PHANTOMS["hollow-square"]()
    true, clean = block.raster(grid), block.sinogram(scan, samples=5)
    by_weight, choose = eqx.filter_jit(tv_pdhg), eqx.filter_jit(tv_discrepancy)
    for relative in (0.0, 0.01):
        data = with_gaussian_noise(clean, relative, key=jax.random.key(1))
        chosen = choose(projector, data, noise=jnp.asarray(relative * clean.max()), iterations=60)
        ladder = [
            by_weight(projector, data, jnp.asarray(w)).image for w in (0.0003, 0.001, 0.003, 0.01, 0.03)
        ]
        best = max(psnr(image, true) for image in ladder)
        assert psnr(chosen.image, true) > best - 1.0, (relative, best)
