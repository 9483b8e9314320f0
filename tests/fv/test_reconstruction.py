# pyright: reportCallIssue=false, reportArgumentType=false
"""Reconstructions: exact for the polynomials they should be, mirrored, scale free, safe in float32."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv.limiter import LIMITERS
from sciml.fv.reconstruction import ENO, MUSCL, WENO3, WENO5, PiecewiseConstant

FAMILY = {  # reconstruction, degree of the polynomials whose face values it gives exactly
    "constant": (PiecewiseConstant(), 0),
    **{f"muscl-{name}": (MUSCL(limiter), 1) for name, limiter in LIMITERS.items()},
    "eno2": (ENO(2), 1),
    "eno3": (ENO(3), 2),
    "weno3": (WENO3(), 1),
    "weno5-js": (WENO5("js"), 2),
    "weno5-z": (WENO5("z"), 2),
}


@pytest.fixture(params=FAMILY)
def member(request):
    return FAMILY[request.param]


def averages(reconstruction, degree):
    faces = np.arange(reconstruction.cells + 1) - 0.5 * reconstruction.cells + 3.3
    return np.diff(faces ** (degree + 1)) / (degree + 1), faces


@pytest.mark.usefixtures("x64")
def test_exact_for_polynomials(member):
    reconstruction, highest = member
    for degree in range(highest + 1):
        u, faces = averages(reconstruction, degree)
        middle = reconstruction.cells // 2
        left, right = reconstruction.both(jnp.asarray(u))
        np.testing.assert_allclose([left, right], faces[middle : middle + 2] ** degree, rtol=1e-12)


@pytest.mark.usefixtures("x64")
def test_weno_takes_the_linear_weights_where_smooth():
    x = np.arange(6) - 2.5
    u = np.diff(np.sin(0.02 * x + 0.6)) / 0.02  # averages of cos
    exact = np.cos(0.02 * 0.5 + 0.6)
    for reconstruction, tolerance in ((WENO5("z"), 1e-10), (WENO5("js"), 1e-9)):
        assert abs(float(reconstruction(jnp.asarray(u))) - exact) < tolerance
    assert abs(float(WENO3()(jnp.asarray(u[1:4]))) - exact) < 1e-5


def test_both_faces_are_mirror_images(member):
    reconstruction, _ = member
    u = jnp.asarray(np.random.default_rng(1).normal(size=(200, reconstruction.cells)), jnp.float32)
    left, right = jax.vmap(reconstruction.both)(u)
    np.testing.assert_allclose(jax.vmap(reconstruction)(u), right, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(jax.vmap(reconstruction)(u[:, ::-1]), left, rtol=1e-5, atol=1e-5)


def test_shifts_and_scales_with_the_data(member, dtype):
    reconstruction, _ = member
    u = np.random.default_rng(2).normal(size=(100, reconstruction.cells))
    base = np.asarray(jax.vmap(reconstruction)(jnp.asarray(u, dtype)))
    assert base.dtype == dtype
    for scale in (1e-6, 1e-2, 1e3, 1e12):
        got = np.asarray(jax.vmap(reconstruction)(jnp.asarray(scale * u, dtype))) / scale
        np.testing.assert_allclose(got, base, atol=1e-3 if dtype == "float32" else 1e-9)
    shifted = np.asarray(jax.vmap(reconstruction)(jnp.asarray(u + 2, dtype))) - 2
    np.testing.assert_allclose(shifted, base, atol=1e-3 if dtype == "float32" else 1e-9)


def test_a_jump_is_not_overshot(member, dtype):
    reconstruction, _ = member
    for place in range(1, reconstruction.cells):
        u = jnp.asarray(np.arange(reconstruction.cells) >= place, dtype)
        values = np.array(reconstruction.both(u))
        assert ((values >= -1e-3) & (values <= 1 + 1e-3)).all()


def test_derivatives_are_finite_at_constants_jumps_and_underflow(member, dtype):
    reconstruction, _ = member
    n = reconstruction.cells
    tiny = float(np.finfo(dtype).tiny) ** 0.5
    rows = [np.zeros(n), np.ones(n), np.arange(n) >= n // 2, np.arange(n) == n // 2, tiny * np.arange(n)]
    rows += [np.ones(n) + np.finfo(dtype).eps * (np.arange(n) % 2), 1e-9 * np.arange(n) ** 2]
    u = jnp.asarray(np.stack(rows), dtype)
    assert np.isfinite(jax.vmap(jax.grad(reconstruction))(u)).all()
    constant = jax.grad(reconstruction)(jnp.ones(n, dtype))
    np.testing.assert_allclose(constant.sum(), 1, rtol=1e-5)


def test_unknown_options_are_refused():
    with pytest.raises(ValueError, match="ENO.order is 4: choose 2 or 3"):
        ENO(4)
    with pytest.raises(ValueError, match="WENO5.weights is 'x'"):
        WENO5("x")
