"""Reconstruction with the total variation as a prior: few views, edges kept, noise removed.

    min  ½ Σ_rays w (A f - p)² + λ TV(f),  f ≥ 0,    TV(f) = Σ_pixels √((∂ₓf)² + (∂ᵧf)²)   (isotropic)
                                                     or Σ_pixels |∂ₓf| + |∂ᵧf|              (anisotropic)

with differences between neighbouring pixels or voxels. The weights w are 1, or say how sure a ray is
(`poisson_weights`). With a Huber threshold δ, differences g count as g²/2δ up to δ and as g - δ/2 above:
edges stay, slow changes are no steps. Two algorithms reach the same minimum: `tv_pdhg`, primal-dual steps
that apply A and Aᵀ once each, and `tv_fista`, accelerated proximal gradient steps with a denoising problem
inside. The weight λ is given, or chosen: by `tv_held_out`, which looks how well it predicts views that were
left out, or by `tv_discrepancy`, for which the misfit shall be what noise and pixels explain.

References: A. Chambolle and T. Pock, J. Math. Imaging Vis. 40, 120 (2011); A. Beck and M. Teboulle, IEEE
Trans. Image Process. 18, 2419 (2009); B. O'Donoghue and E. Candès, Found. Comput. Math. 15, 715 (2015) for
restarts; V. A. Morozov, Soviet Math. Dokl. 7, 414 (1966) for the discrepancy principle.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from sciml.ct.projector import AbstractProjector, JosephProjector
from sciml.ct.volume_projector import VolumeProjector
from sciml.typing import Scalar, ScalarLike

Image = Float[Array, "*slices rows columns"]
Sinogram = Float[Array, "views *panel"]


def _gradient_norm(image: Array) -> float:
    """No gradient is larger than this times the image."""
    return 2 * math.sqrt(image.ndim)


class RegularisedReconstruction(NamedTuple):
    """An image, how it came about, and the weight of the prior in it."""

    image: Image
    """attenuation [1/length]"""
    misfit: Float[Array, " iterations"]
    """‖A f - p‖ before every iteration (of the last search, when the weight was searched for)"""
    weight: Scalar
    """λ [attenuation x length²]"""


def gradient(image: Image) -> Float[Array, "axes *slices rows columns"]:
    """Differences to the next pixel along every axis, 0 at the last ones."""
    return jnp.stack(
        [jnp.diff(image, axis=k, append=image.take(jnp.array([-1]), axis=k)) for k in range(image.ndim)]
    )


def gradient_transpose(field: Float[Array, "axes *slices rows columns"]) -> Image:
    """The transpose of `gradient`."""

    def along(values, axis):
        inner = jax.lax.slice_in_dim(values, 0, values.shape[axis] - 1, axis=axis)
        return -jnp.diff(
            jnp.pad(inner, [(1, 1) if k == axis else (0, 0) for k in range(values.ndim)]), axis=axis
        )

    return sum((along(field[k], k) for k in range(1, len(field))), along(field[0], 0))


def total_variation(image: Image, *, isotropic: bool = True) -> Scalar:
    """Σ √((∂ₓf)² + (∂ᵧf)²), or Σ |∂ₓf| + |∂ᵧf| when not isotropic."""
    field = gradient(image)
    return jnp.sqrt((field**2).sum(0)).sum() if isotropic else abs(field).sum()


def spectral_norm(projector: AbstractProjector, sinogram: Sinogram, *, iterations: int = 15) -> Scalar:
    """The largest singular value ‖A‖ by power iterations from a constant image [length]."""

    def step(image, _):
        return projector.backproject(projector.project(image / jnp.linalg.norm(image))), None

    image = jnp.ones_like(_zeros(projector, sinogram))
    return jnp.sqrt(jnp.linalg.norm(jax.lax.scan(step, image, length=iterations)[0]))


def tv_pdhg(
    projector: AbstractProjector,
    sinogram: Sinogram,
    weight: ScalarLike,
    *,
    iterations: int = 300,
    weights: Sinogram | None = None,
    huber: ScalarLike = 0.0,
    isotropic: bool = True,
    nonnegative: bool = True,
    balance: ScalarLike = 0.25,
    start: Image | None = None,
) -> RegularisedReconstruction:
    """Total variation by the primal-dual hybrid gradient method of Chambolle and Pock.

    Args:
        projector: projector A.
        sinogram: line integrals p.
        weight: λ [attenuation x length²], for noise of standard deviation σ about σ times the pixel to
            begin with.
        iterations: number of iterations.
        weights: w of every ray, of mean 1; default 1.
        huber: threshold δ below which differences count by their square [attenuation]; default 0, plain TV.
        isotropic: whether both differences of a pixel count together.
        nonnegative: whether attenuation is kept from becoming negative.
        balance: dual against primal step, in units of ‖A‖²; changes the speed only.
        start: first image; default 0.
    """
    norm = 1.01 * spectral_norm(projector, sinogram)
    state = _first_state(projector, sinogram, start)
    weight = jnp.asarray(weight, sinogram.dtype)
    prior = _Prior(weight, jnp.asarray(huber, sinogram.dtype), isotropic, nonnegative)
    state, misfit = _pdhg(projector, sinogram, weights, norm, state, iterations, prior, balance)
    return RegularisedReconstruction(state[0], misfit, weight)


def tv_fista(
    projector: AbstractProjector,
    sinogram: Sinogram,
    weight: ScalarLike,
    *,
    iterations: int = 100,
    inner: int = 20,
    isotropic: bool = True,
    nonnegative: bool = True,
    start: Image | None = None,
) -> RegularisedReconstruction:
    """Total variation by FISTA: gradient steps on the misfit, a denoising problem after each, restarts.

    The denoising problem is solved by `inner` dual steps that begin where the last ones ended; too few of
    them leave an error that grows with the weight.

    Args:
        projector: projector A.
        sinogram: line integrals p.
        weight: λ, as in `tv_pdhg`.
        iterations: number of gradient steps.
        inner: dual steps per gradient step.
        isotropic: whether both differences of a pixel count together.
        nonnegative: whether attenuation is kept from becoming negative.
        start: first image; default 0.
    """
    weight = jnp.asarray(weight, sinogram.dtype)
    square = (1.01 * spectral_norm(projector, sinogram)) ** 2
    one = jnp.ones((), sinogram.dtype)

    def denoised(image, dual, weight):
        def step(state, _):
            dual, ahead, t = state
            trial = _clip(image - gradient_transpose(ahead), nonnegative)
            following = _into_ball(ahead + gradient(trial) / _gradient_norm(image) ** 2, weight, isotropic)
            grown = (1 + jnp.sqrt(1 + 4 * t * t)) / 2
            return (following, following + (t - 1) / grown * (following - dual), grown), None

        dual = jax.lax.scan(step, (dual, dual, one), length=inner)[0][0]
        return _clip(image - gradient_transpose(dual), nonnegative), dual

    def step(state, _):
        image, ahead, dual, t = state
        rest = projector.project(ahead) - sinogram
        following, dual = denoised(ahead - projector.backproject(rest) / square, dual, weight / square)
        restart = jnp.vdot(ahead - following, following - image) > 0
        grown = jnp.where(restart, one, (1 + jnp.sqrt(1 + 4 * t * t)) / 2)
        momentum = jnp.where(restart, 0, (t - 1) / grown)
        return (following, following + momentum * (following - image), dual, grown), jnp.linalg.norm(rest)

    first, _, _, dual = _first_state(projector, sinogram, start)
    (image, *_), misfit = jax.lax.scan(step, (first, first, dual, one), length=iterations)
    return RegularisedReconstruction(image, misfit, weight)


def poisson_weights(sinogram: Sinogram) -> Sinogram:
    """Weights exp(-p) of mean 1: the inverse variances of line integrals from counted photons."""
    weights = jnp.exp(-jnp.maximum(sinogram, 0))
    return weights / weights.mean()


def noise_level(sinogram: Sinogram) -> Scalar:
    """The standard deviation of white noise, from fourth differences along the bins.

    The mean square of those below 1.5 σ, repeated until σ settles, so that edges matter little: with 150
    bins it comes out up to 16 % too large, with 400 up to 9 %. At least five bins are needed.
    """
    if sinogram.shape[-1] < 5:
        raise ValueError(
            f"the noise of {sinogram.shape[-1]} bins cannot be told: give it, or at least 5 bins"
        )
    squares = jnp.diff(sinogram, 4, axis=-1) ** 2 / 70
    kept = 0.5515  # the variance of a normal number that is known to lie within 1.5 σ

    def clipped(_, square):
        inside = squares < 2.25 * square
        return jnp.where(inside, squares, 0).sum() / (kept * jnp.maximum(inside.sum(), 1))

    first = jnp.median(squares) / 0.6745**2
    return jnp.sqrt(jax.lax.fori_loop(0, 20, clipped, first))


def pixel_error(projector: AbstractProjector, image: Image) -> Scalar:
    """How far pixels of this size let the line integrals of an object with edges be off: ½‖A (f - S f)‖.

    S smooths by (¼, ½, ¼) in both directions; half of what smoothing takes away is, within a third, the
    distance between the line integrals of an object and those of its exact average over the pixels.
    """

    def smooth(image, axis):
        padded = jnp.pad(image, [(1, 1) if k == axis else (0, 0) for k in range(image.ndim)], mode="edge")
        first, last = (jax.lax.slice_in_dim(padded, k, k + image.shape[axis], axis=axis) for k in (0, 2))
        return (first + 2 * image + last) / 4

    smoothed = image
    for axis in range(image.ndim):
        smoothed = smooth(smoothed, axis)
    return jnp.linalg.norm(projector.project(image - smoothed)) / 2


def tv_discrepancy(
    projector: AbstractProjector,
    sinogram: Sinogram,
    *,
    noise: ScalarLike | None = None,
    iterations: int = 100,
    searches: int = 8,
    weights: Sinogram | None = None,
    huber: ScalarLike = 0.0,
    isotropic: bool = True,
    nonnegative: bool = True,
) -> RegularisedReconstruction:
    """Total variation with the weight at which the misfit is what noise and pixels explain.

    Bisection of log λ for Σ w (A f - p)² = m σ² + `pixel_error`², every search beginning where the last one
    ended.

    Args:
        projector: projector A.
        sinogram: line integrals p, m of them.
        noise: standard deviation σ of the line integrals (of those with w = 1); default `noise_level`.
        iterations: iterations of `tv_pdhg` per search; the last one gets five times as many.
        searches: number of weights tried.
        weights: w of every ray, of mean 1; default 1.
        huber: threshold δ of `tv_pdhg`.
        isotropic: whether both differences of a pixel count together.
        nonnegative: whether attenuation is kept from becoming negative.
    """
    sure = jnp.ones((), sinogram.dtype) if weights is None else weights
    sigma = noise_level(jnp.sqrt(sure) * sinogram) if noise is None else jnp.asarray(noise, sinogram.dtype)
    norm = 1.01 * spectral_norm(projector, sinogram)
    threshold = jnp.asarray(huber, sinogram.dtype)

    def run(state, weight, iterations):
        prior = _Prior(weight, threshold, isotropic, nonnegative)
        return _pdhg(projector, sinogram, weights, norm, state, iterations, prior, 0.25)

    def search(carry, _):
        state, low, high = carry
        weight = jnp.exp((low + high) / 2)
        state, _ = run(state, weight, iterations)
        misfit = jnp.sum(sure * (projector.project(state[0]) - sinogram) ** 2)
        allowed = sinogram.size * sigma**2 + pixel_error(projector, state[0]) ** 2
        low, high = (
            jnp.where(misfit < allowed, (low + high) / 2, low),
            jnp.where(misfit < allowed, high, (low + high) / 2),
        )
        return (state, low, high), None

    largest = jnp.log(jnp.maximum(abs(projector.backproject(sinogram)).max(), jnp.finfo(sinogram.dtype).tiny))
    bracket = _first_state(projector, sinogram, None), largest - math.log(1e6), largest - math.log(10)
    (state, low, high), _ = jax.lax.scan(search, bracket, length=searches)
    weight = jnp.exp((low + high) / 2)
    state, misfit = run(state, weight, 5 * iterations)
    return RegularisedReconstruction(state[0], misfit, weight)


def tv_held_out(
    projector: JosephProjector | VolumeProjector,
    sinogram: Sinogram,
    *,
    iterations: int = 60,
    searches: int = 10,
    weights: Sinogram | None = None,
    huber: ScalarLike = 0.0,
    isotropic: bool = True,
    nonnegative: bool = True,
) -> RegularisedReconstruction:
    """Total variation with the weight that predicts views best which were held out.

    Every fourth view is left out, then every fourth of the others. Weights are tried from small to large,
    every search beginning where the last one ended: a small weight would hardly change what a large one
    has smoothed. A parabola through the best three errors gives the minimum. Nothing need be known of noise,
    and errors of the model (hardening of the beam, scatter) count as what they are.

    Args:
        projector: projector A.
        sinogram: line integrals p of at least four views.
        iterations: iterations of `tv_pdhg` per search; the last one gets five times as many.
        searches: number of weights tried, over 3½ decades below a tenth of the largest |Aᵀp|.
        weights: w of every ray, of mean 1; default 1.
        huber: threshold δ of `tv_pdhg`.
        isotropic: whether both differences of a pixel count together.
        nonnegative: whether attenuation is kept from becoming negative.

    Raises:
        ValueError: for less than four views.
    """
    views = sinogram.shape[0]
    if views < 4:
        raise ValueError(
            f"{views} views: a weight is told from held-out views of at least 4; give the weight"
        )
    threshold = jnp.asarray(huber, sinogram.dtype)
    largest = jnp.maximum(abs(projector.backproject(sinogram)).max(), jnp.finfo(sinogram.dtype).tiny)
    steps = np.linspace(-4.5, -1, searches)
    tried = largest * jnp.asarray(10.0**steps, sinogram.dtype)
    errors = jnp.zeros(searches, sinogram.dtype)
    for first in (1, 3):
        out = np.arange(views) % 4 == first % views
        kept, left = projector.subset(np.flatnonzero(~out)), projector.subset(np.flatnonzero(out))
        sure = None if weights is None else weights[~out]
        norm = 1.01 * spectral_norm(kept, sinogram[~out])

        def run(state, weight, iterations, kept=kept, out=out, sure=sure, norm=norm):
            prior = _Prior(weight, threshold, isotropic, nonnegative)
            return _pdhg(kept, sinogram[~out], sure, norm, state, iterations, prior, 0.25)[0]

        def search(state, weight, run=run, left=left, out=out):
            state = run(state, weight, iterations)
            rest = left.project(state[0]) - sinogram[out]
            return state, jnp.sum(rest**2 if weights is None else weights[out] * rest**2)

        share = float(np.mean(~out))
        begun = run(_first_state(kept, sinogram[~out], None), share * tried[0], 2 * iterations)
        errors += jax.lax.scan(search, begun, share * tried)[1]
    best = jnp.clip(jnp.argmin(errors), 1, searches - 2)
    before, at, after = (errors[best + k] for k in (-1, 0, 1))
    curvature = before - 2 * at + after
    shift = jnp.where(curvature > 0, (before - after) / (2 * jnp.where(curvature > 0, curvature, 1)), 0)
    exponent = steps[0] + (best + jnp.clip(shift, -1, 1)) * (steps[1] - steps[0])
    weight = (largest * 10.0**exponent).astype(sinogram.dtype)
    return tv_pdhg(
        projector,
        sinogram,
        weight,
        iterations=5 * iterations,
        weights=weights,
        huber=huber,
        isotropic=isotropic,
        nonnegative=nonnegative,
    )


# ------------------------------------------------------------------------------------------ steps


class _Prior(NamedTuple):
    weight: Scalar
    huber: Scalar
    isotropic: bool
    nonnegative: bool


def _pdhg(projector, sinogram, weights, norm, state, iterations, prior: _Prior, balance):
    """Chambolle and Pock on A/‖A‖ and ∇/‖∇‖, whose stack has a norm of at most √2."""
    damping = norm**2 if weights is None else norm**2 * jnp.maximum(weights, 1e-6)
    dual_step = balance * norm**2 / math.sqrt(2)
    primal_step = 1 / (balance * norm**2 * math.sqrt(2))
    norm_of_gradient = _gradient_norm(state[0])

    def step(state, _):
        image, ahead, dual, dual_field = state
        rest = projector.project(ahead) - sinogram
        dual = (dual + dual_step * rest / norm) / (1 + dual_step / damping)
        dual_field = dual_field + dual_step * gradient(ahead) / norm_of_gradient
        radius = prior.weight * norm_of_gradient
        dual_field = dual_field / (1 + dual_step * prior.huber / (radius * norm_of_gradient))
        dual_field = _into_ball(dual_field, radius, prior.isotropic)
        back = projector.backproject(dual) / norm + gradient_transpose(dual_field) / norm_of_gradient
        following = _clip(image - primal_step * back, prior.nonnegative)
        return (following, 2 * following - image, dual, dual_field), jnp.linalg.norm(rest)

    return jax.lax.scan(step, state, length=iterations)


def _first_state(projector: AbstractProjector, sinogram: Array, start: Array | None):
    zeros = _zeros(projector, sinogram)
    first = zeros if start is None else start
    return first, first, jnp.zeros_like(sinogram), jnp.zeros((zeros.ndim, *zeros.shape), zeros.dtype)


def _zeros(projector: AbstractProjector, sinogram: Array) -> Array:
    return jnp.zeros(jax.eval_shape(projector.backproject, sinogram).shape, sinogram.dtype)


def _clip(image: Array, nonnegative: bool) -> Array:
    return jnp.maximum(image, 0) if nonnegative else image


def _into_ball(field: Array, radius: Array, isotropic: bool) -> Array:
    size = jnp.sqrt((field**2).sum(0)) if isotropic else abs(field)
    return field * (radius / jnp.maximum(jnp.maximum(size, radius), np.finfo(np.float32).tiny))
