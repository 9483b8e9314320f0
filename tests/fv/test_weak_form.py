# pyright: reportCallIssue=false, reportArgumentType=false
"""Residuals of the weak form: zero for exact solutions up to the cell size, not zero for wrong ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv.boundary import Outflow
from sciml.fv.catalogue import SCHEMES
from sciml.fv.fundamental_diagram import Greenshields
from sciml.fv.grid import UniformGrid
from sciml.fv.integrate import rollout
from sciml.fv.law import Burgers, LinearAdvection
from sciml.fv.lax_hopf import lax_hopf_cell_averages
from sciml.fv.runge_kutta import ForwardEuler
from sciml.fv.weak_form import bumps, entropy_residual, random_polynomials, time_windows, weak_residual


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(
    "tests", [bumps(40, 5.0), random_polynomials(40, 6, 12, 0)], ids=["bumps", "polynomials"]
)
def test_functions_vanish_at_the_ends_and_integrate_their_face_values(tests):
    assert np.abs(np.asarray(tests.at_faces)[:, [0, -1]]).max() < 1e-12
    assert tests.integrals.shape == (tests.at_faces.shape[0], 40)
    # Integrals agree with the trapezoidal rule on the faces to its second order.
    trapezoid = 0.5 * (tests.at_faces[:, 1:] + tests.at_faces[:, :-1])
    assert (
        np.abs(np.asarray(tests.integrals - trapezoid)).max() < 0.2 * np.abs(np.asarray(tests.at_faces)).max()
    )


@pytest.mark.parametrize("width", [2, 2.5, 7, 12])
def test_bumps_have_the_integral_of_their_support(width):
    tests = bumps(30, width)
    np.testing.assert_allclose(tests.integrals.sum(1), width / 2, rtol=1e-12)
    assert float(tests.at_faces.min()) >= 0


def test_the_flux_term_has_the_minus_sign():
    """Linear waves u = x - t solve u_t + u_x = 0; the other sign would leave twice the flux."""
    cells, dt = 30, 0.1
    x, t = np.arange(cells) + 0.5, dt * np.arange(4)
    u = jnp.asarray(x[None] - t[:, None])
    residual = weak_residual(LinearAdvection(1.0), u, dt, bumps(cells, 8.0))
    assert np.abs(residual).max() < 1e-10


@pytest.mark.parametrize("law", [Greenshields(), Burgers(-1.0, 1.0)], ids=["greenshields", "burgers"])
@pytest.mark.parametrize("states", [(0.2, 0.7), (0.9, 0.1), (0.1, 0.8)], ids=str)
def test_windows_in_time_rank_the_exact_solution_first(law, states):
    """Over space-time test functions residuals grow from exact averages to Godunov and Lax-Friedrichs."""
    cells, dt, steps = 60, 0.5, 60
    truth = lax_hopf_cell_averages(
        law, [0, cells / 2 + 0.3, cells], states, np.arange(cells + 1.0), dt * np.arange(steps + 1)
    )
    candidates = [jnp.asarray(truth)]
    for name in ("godunov", "lax-friedrichs"):
        scheme = SCHEMES[name].build(law, UniformGrid(cells, 0.0, float(cells)), Outflow())
        candidates.append(rollout(scheme, candidates[0][0], dt, steps, integrator=ForwardEuler()).states)
    tests, windows = bumps(cells, 8.0), time_windows(steps, 16)
    constants = jnp.linspace(law.lower, law.upper, 11)[1:-1]
    size = [jnp.mean(weak_residual(law, u, dt, tests, windows) ** 2) for u in candidates]
    wrong = [jnp.mean(entropy_residual(law, u, constants, dt, tests, windows) ** 2) for u in candidates]
    assert size[0] < size[1] < size[2] and wrong[0] < wrong[1] < wrong[2]


@pytest.mark.parametrize("steps, length", [(20, 1), (20, 6), (20, 50), (7, 3)])
def test_time_windows_are_weights(steps, length):
    rows = time_windows(steps, length)
    np.testing.assert_allclose(rows.sum(1), 1.0)
    assert (rows >= 0).all() and rows.shape[1] == steps
    if length == 1:
        np.testing.assert_array_equal(rows, np.eye(steps))


def test_an_expansion_shock_passes_the_weak_form_and_fails_the_entropy_condition():
    """A jam next to an empty road at rest: equal fluxes, so a weak solution, but not the entropy one."""
    law, cells = Greenshields(), 40
    u = jnp.broadcast_to(jnp.where(jnp.arange(cells) < cells // 2, 1.0, 0.0), (10, cells))
    tests = bumps(cells, 8.0)
    assert np.abs(weak_residual(law, u, 0.5, tests)).max() < 1e-12
    assert entropy_residual(law, u, jnp.array([0.5]), 0.5, tests).max() > 0.4
    compressed = u[:, ::-1]  # the same jump the other way round is the entropy solution
    assert np.abs(entropy_residual(law, compressed, jnp.array([0.25, 0.5]), 0.5, tests)).max() < 1e-12


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="width is 1"):
        bumps(20, 1)
    with pytest.raises(ValueError, match="width is 30"):
        bumps(20, 30)
    with pytest.raises(ValueError, match="change sign"):
        entropy_residual(
            Greenshields(), jnp.zeros((2, 20)), jnp.array([0.5]), 0.1, random_polynomials(20, 2, 3, 0)
        )
