# pyright: reportCallIssue=false, reportArgumentType=false
"""Drivers: landing, saving, events, rejection, failures as values, one trace per shape, refused input."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv.boundary import Outflow, Periodic, Prescribed
from sciml.fv.catalogue import SCHEMES
from sciml.fv.fundamental_diagram import Greenshields
from sciml.fv.grid import UniformGrid
from sciml.fv.integrate import NumericalFailure, Result, ensemble, rollout, solve
from sciml.fv.law import Burgers
from sciml.fv.runge_kutta import SSPRK2, SSPRK3, ForwardEuler
from sciml.fv.source import SourceFunction

pytestmark = pytest.mark.usefixtures("x64")
GRID = UniformGrid(20)
U0 = np.where(np.arange(20) < 10, 0.8, 0.1)
SERIES = (np.array([0.0, 1.0]), np.array([0.8, 0.8]), np.array([0.1, 0.1]))


def build(name="godunov", law=None, boundary=None, source=None, grid=GRID):
    return SCHEMES[name].build(law or Greenshields(), grid, boundary or Outflow(), source)


class Decay(eqx.Module):
    """y′ = -y and a memory of the times at which it was asked, as a scheme of one cell."""

    law = None

    def tendency(self, t, state, dt):
        return -state * (1 + jnp.sin(3 * t)), jnp.zeros(())

    def limit(self, state):
        return state


@pytest.mark.parametrize(("method", "order"), [(ForwardEuler(), 1), (SSPRK2(), 2), (SSPRK3(), 3)])
def test_order_in_time_with_a_rate_that_depends_on_time(method, order):
    exact, errors = np.exp(-1 - (1 - np.cos(3.0)) / 3), []
    for steps in (20, 40):
        step = jax.jit(lambda t, y, h=1 / steps: method.advance(Decay(), t, y, h)[0])
        y = (jnp.ones(()), jnp.zeros(()))
        for k in range(steps):
            y = step(k / steps, y)
        errors.append(abs(float(y[0]) - exact))
    assert abs(np.log2(errors[0] / errors[1]) - order) < 0.2


def test_solve_lands_on_the_end_and_on_the_times_to_save():
    times = np.array([0.0, 0.1234, 0.2, 0.31])
    solution = solve(build("muscl-mc"), U0, 0.31, save_at=times, cfl=0.7)
    np.testing.assert_allclose(solution.times, times)
    np.testing.assert_allclose(solution.states[0], U0, atol=1e-15)
    assert int(solution.result) == Result.SUCCESS
    assert np.isfinite(solution.states).all() and (np.asarray(solution.mass_defect) < 1e-12).all()
    assert 0.5 < float(solution.cfl) <= 0.72


def test_an_event_stops_the_run():
    solution = solve(
        build(), U0, 5.0, event=lambda t, u: u[12] > 0.2, save_at=np.array([0.01, 5.0]), throw=False
    )
    assert int(solution.result) == Result.EVENT
    assert float(solution.final[12]) > 0.2
    assert np.isfinite(solution.states[0]).all() and np.isnan(solution.states[1]).all()


def test_a_step_that_proved_too_long_is_taken_again():
    rising = Prescribed(np.array([0.0, 0.2, 1.0]), np.array([0.1, 2.0, 2.0]), np.array([0.1, 0.1, 0.1]))
    scheme = build(law=Burgers(0.0, 2.0), boundary=rising)
    solution = solve(scheme, np.full(20, 0.1), 0.5, cfl=1.0)
    assert int(solution.rejected) > 0 and float(solution.cfl) <= 1 + 1e-4
    assert float(solution.states[-1][0]) > 1.5


def test_one_bad_sample_leaves_the_others_alone():
    batch = np.stack([U0, np.full(20, np.nan), 2 * U0, U0[::-1]])
    scheme = build("muscl-mc")
    for driver in (
        lambda u: solve(scheme, u, 0.1, throw=False),
        lambda u: rollout(scheme, u, 0.01, 10, throw=False),
    ):
        solution = eqx.filter_jit(jax.vmap(driver))(jnp.asarray(batch))
        bad = int(Result.INADMISSIBLE_START)
        np.testing.assert_array_equal(solution.result, [0, bad, bad, 0])
        assert np.isfinite(np.asarray(solution.states)[[0, 3]]).all()
        np.testing.assert_allclose(solution.states[0, -1], driver(jnp.asarray(U0)).states[-1], atol=1e-13)


@pytest.mark.parametrize("method", [diffrax.Heun(), diffrax.Tsit5(), diffrax.Dopri5()])
def test_solvers_of_diffrax(method):
    scheme = build("weno3", boundary=Periodic())
    ours = solve(scheme, U0, 0.1, cfl=0.2).states[-1]
    theirs = solve(scheme, U0, 0.1, cfl=0.2, integrator=method)
    assert float(theirs.mass_defect[-1]) < 1e-12
    np.testing.assert_allclose(theirs.states[-1], ours, atol=5e-3)


def test_rollout_reports_a_cfl_violation():
    with pytest.raises(NumericalFailure, match=r"CFL number rose above the limit 1 .*it reached 1\."):
        rollout(build(), U0, 0.1, 4)
    solution = rollout(build(), U0, 0.1, 4, throw=False)
    assert int(solution.result) == Result.CFL_VIOLATED
    assert np.isnan(solution.states[1:]).all() and np.isnan(solution.final).all()


def test_one_trace_for_all_values():
    traces = []

    def nothing(t, x, u):
        traces.append(1)
        return 0 * u

    counts = []
    for scale in (1.0, 0.7, 0.4):
        ends = Prescribed(SERIES[0], scale * SERIES[1], scale * SERIES[2])
        scheme = build("muscl-mc", Greenshields(scale, 1.0), ends, SourceFunction(nothing))
        rollout(scheme, scale * U0, 0.02 * scale, 8, t0=0.1 * scale, save_every=4)
        solve(scheme, scale * U0, 0.1 * scale, cfl=0.5 * scale)
        counts.append(len(traces))
    assert counts[0] == counts[1] == counts[2]


def test_dtype_follows_the_state(dtype):
    for name in ("subcell", "dg1"):
        scheme = build(name, boundary=Prescribed(*SERIES))
        solution = rollout(scheme, jnp.asarray(U0, dtype), 0.01, 2)
        assert solution.states.dtype == solution.final.dtype == solution.mass_defect.dtype == dtype
    solution = solve(build(), jnp.asarray(U0, dtype), 0.05)
    assert solution.states.dtype == solution.cfl.dtype == dtype


def test_saving_less_changes_nothing_else():
    every = rollout(build("hancock-mc"), U0, 0.01, 12)
    some = rollout(build("hancock-mc"), U0, 0.01, 12, save_every=4)
    np.testing.assert_allclose(some.states, every.states[::4], atol=1e-14)
    np.testing.assert_allclose(some.times, every.times[::4])


def test_ensemble_is_vmap():
    batch = jnp.asarray(np.random.default_rng(0).uniform(0, 1, (6, 20)))
    one = lambda u: rollout(build(), u, 0.02, 5, throw=False).states[-1]  # noqa: E731
    np.testing.assert_allclose(ensemble(one, batch, chunk=4), jax.vmap(one)(batch), atol=1e-14)


def changed(**values):
    u0 = U0.copy()
    for place, value in values.items():
        u0[int(place[1:])] = value
    return u0


SHORT = Prescribed(*SERIES)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: solve(build(), U0, 1.0, cfl=1.5), r"cfl is 1.5, but this scheme is stable for 0 < cfl <= 1"),
        (lambda: solve(build("dg1"), U0, 1.0, cfl=0.5), "stable for 0 < cfl <= 0.333"),
        (lambda: solve(build(), U0, -1.0), "not after t0"),
        (lambda: solve(build(), U0, 1.0, save_at=np.array([0.5, 0.2])), "save_at must increase"),
        (lambda: solve(build(), U0, 1.0, save_at=np.array([0.5, 2.0])), "save_at must increase within"),
        (lambda: solve(build(), U0, 1.0, save_at=np.array([])), "save_at must increase"),
        (lambda: rollout(build(), U0, -0.01, 4), "dt is -0.01; time runs forward"),
        (lambda: rollout(build(), U0, 0.01, 5, save_every=2), "positive multiple of save_every"),
        (lambda: rollout(build(), U0, 0.01, 0), "positive multiple"),
        (lambda: rollout(build(), changed(_3=np.nan), 0.01, 4), r"entry \(3,\) is nan; every cell average"),
        (
            lambda: solve(build(), changed(_4=1.3), 1.0),
            r"entry \(4,\) is 1.3, above the jam density \[0, 1\]",
        ),
        (
            lambda: solve(build(law=Burgers(0.0, 1.0)), changed(_4=-1.0), 1.0),
            "outside of the admissible interval",
        ),
        (lambda: rollout(build(), U0[:7], 0.01, 4), r"shape \(7,\), the grid has 20 cells"),
        (lambda: rollout(build(), np.stack([U0, U0]), 0.01, 4), "use jax.vmap for batches"),
        (lambda: rollout(build(), np.zeros(20, int), 0.01, 4), "dtype int64; give floating-point"),
        (lambda: rollout(build(boundary=SHORT), U0, 0.01, 200), "boundary series too short"),
        (lambda: solve(build(boundary=SHORT), U0, 2.0), r"too short: it covers \[0, 1\].*needs \[0, 2\]"),
        (
            lambda: rollout(build("subcell"), U0, 0.01, 4, integrator=SSPRK3()),
            "already averaged over the time",
        ),
        (lambda: rollout(build(), U0, 0.01, 4, integrator=diffrax.Tsit5()), "not a fixed-step SSP method"),
        (lambda: solve(build("dg1"), U0, 1.0, cfl=0.1, integrator=diffrax.Tsit5()), "acts after every stage"),
        (
            lambda: solve(build("lax-friedrichs"), U0, 1.0, integrator=diffrax.Tsit5()),
            "contains the time step",
        ),
        (lambda: build(grid=UniformGrid(1)), "at least 2 cells"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_running_out_of_steps_is_said():
    with pytest.raises(NumericalFailure, match="max_steps was reached"):
        solve(build(), U0, 1.0, max_steps=3)


@pytest.mark.parametrize("name", ["godunov", "muscl-superbee", "dg1"])
@pytest.mark.parametrize("boundary", [Periodic(), Outflow()], ids=["periodic", "outflow"])
def test_mass_does_not_drift_in_single_precision(name, boundary):
    """Plain sums lose 2e-5 of the mass over 1000 steps: small changes of a cell round to nothing."""
    scheme = build(name, boundary=boundary, grid=UniformGrid(100))
    u0 = jnp.asarray(np.repeat(np.random.default_rng(1).uniform(0.1, 1, 10), 10), jnp.float32)
    run = rollout(scheme, u0, 0.1 / 100, 1000, save_every=1000)
    assert float(run.mass_defect[-1]) < 3e-7
    if isinstance(boundary, Periodic):  # not only the reported balance
        totals = np.asarray(run.states, float).sum(axis=1)
        assert abs(totals[-1] / totals[0] - 1) < 1e-7
    assert float(solve(scheme, u0, 1.0, cfl=0.1).mass_defect[-1]) < 3e-7
