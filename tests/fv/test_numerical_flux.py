# pyright: reportCallIssue=false, reportArgumentType=false
"""Numerical fluxes of the catalogue: consistency, mirror images, signs, one face or a whole line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv.catalogue import LAW_TYPES, SCHEMES
from sciml.fv.law import BuckleyLeverett, FluxFunction, as_dtype
from sciml.fv.numerical_flux import ReconstructedFlux
from sciml.fv.reconstruction import MUSCL, PiecewiseConstant
from sciml.fv.riemann import Upwind
from sciml.fv.testing import assert_consistent, assert_mirror_equivariant, assert_monotone

FLUXES = {name: entry.flux for name, entry in SCHEMES.items() if entry.flux is not None}
MONOTONE = [name for name, flux in FLUXES.items() if flux().monotone]
LAWS = {
    **{name: (lambda kind=kind: kind()) for name, kind in LAW_TYPES.items()},
    "cubic": lambda: FluxFunction(lambda u: u**3 - 0.5 * u, -1.0, 1.0),
}
QUICK = ("burgers", "buckley-leverett", "triangular")


def fits(flux, law):
    try:
        flux.check(law)
    except ValueError:
        assert law.curvature == "neither"
        return False
    return True


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize(
    "law", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in LAWS]
)
@pytest.mark.parametrize("name", FLUXES)
def test_consistent(name, law):
    flux, law = FLUXES[name](), as_dtype(LAWS[law](), jnp.float64)
    if fits(flux, law):
        assert_consistent(flux, law)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("law", ["greenberg", pytest.param("cubic", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", FLUXES)
def test_mirror_equivariant(name, law):
    flux, law = FLUXES[name](), as_dtype(LAWS[law](), jnp.float64)
    if fits(flux, law):
        # The foot of a characteristic on a slope is found by iteration.
        assert_mirror_equivariant(flux, law, samples=200, tolerance=1e-9 if name == "subcell" else None)


@pytest.mark.usefixtures("x64")
@pytest.mark.parametrize("law", QUICK)
@pytest.mark.parametrize("name", MONOTONE)
def test_monotone_up_to_cfl_one(name, law):
    flux = FLUXES[name]()
    # The viscosity of Rusanov depends on the states itself, which costs a factor of four.
    assert_monotone(
        flux, as_dtype(LAWS[law](), jnp.float64), cfl=0.25 if name == "rusanov" else 1.0, samples=300
    )


def test_only_two_point_fluxes_claim_to_be_monotone():
    assert MONOTONE == ["godunov", "engquist-osher", "lax-friedrichs", "rusanov"]
    with pytest.raises(AssertionError, match="MUSCL|not monotone"):
        assert_monotone(ReconstructedFlux(MUSCL()), LAWS["greenshields"]())


@pytest.mark.parametrize("name", FLUXES)
def test_a_line_of_faces_is_one_face_at_a_time(name, dtype):
    flux, law = FLUXES[name](), as_dtype(LAWS["greenshields"](), dtype)
    half = flux.stencil // 2
    u = np.random.default_rng(0).uniform(0, 1, 16 + 2 * half)
    u[4:9] = 0.5
    padded, dt_dx = jnp.asarray(u, dtype), jnp.asarray(0.4, dtype)
    line = jax.jit(flux.along)(law, padded, dt_dx)
    windows = jnp.stack([padded[k : k + flux.stencil] for k in range(17)])
    faces = jax.jit(jax.vmap(lambda w: flux(law, w, dt_dx)))(windows)
    assert line.dtype == faces.dtype == dtype and line.shape == (17,)
    np.testing.assert_allclose(line, faces, atol=1e-6 if dtype == "float32" else 1e-14)


def test_fluxes_refuse_laws_they_do_not_serve():
    for name in ("ultrabee", "subcell"):
        with pytest.raises(ValueError, match=f"{name}: BuckleyLeverett is neither concave nor convex"):
            FLUXES[name]().check(BuckleyLeverett())
    with pytest.raises(ValueError, match="change direction"):
        ReconstructedFlux(PiecewiseConstant(), Upwind()).check(LAWS["greenshields"]())
