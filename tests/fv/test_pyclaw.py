# pyright: reportCallIssue=false, reportArgumentType=false, reportMissingImports=false
"""The same numbers as PyClaw, classic and SharpClaw, on one Burgers and one traffic problem."""

import jax.numpy as jnp
import numpy as np
import pytest

from sciml.fv.boundary import Outflow, Periodic
from sciml.fv.catalogue import SCHEMES
from sciml.fv.fundamental_diagram import Greenshields
from sciml.fv.grid import UniformGrid
from sciml.fv.integrate import rollout
from sciml.fv.law import Burgers

pytestmark = [pytest.mark.peers, pytest.mark.usefixtures("x64"), pytest.mark.filterwarnings("ignore")]
CELLS, DT, STEPS = 80, 0.005, 60
GRID = UniformGrid(CELLS)
WAVE = 0.5 + 0.4 * np.sin(2 * np.pi * GRID.centres)
LIGHT = np.where(GRID.centres < 0.5, 0.9, 0.1)  # a queue dissolves, a transonic rarefaction


def pyclaw(solver_kind, case):
    clawpack = pytest.importorskip("clawpack.pyclaw")
    riemann = pytest.importorskip("clawpack.riemann")
    kernel = riemann.burgers_1D if case == "burgers" else riemann.traffic_1D
    if solver_kind == "classic":
        solver = clawpack.ClawSolver1D(kernel)
        solver.order = 1
    else:
        solver = clawpack.SharpClawSolver1D(kernel)
        solver.weno_order, solver.time_integrator = 5, "SSP33"
        solver.cfl_max, solver.cfl_desired = 1.0, 0.9
    solver.kernel_language = "Fortran"
    solver.dt_variable, solver.dt_initial, solver.max_steps = False, DT, STEPS + 1
    kind = clawpack.BC.periodic if case == "burgers" else clawpack.BC.extrap
    solver.bc_lower[0] = solver.bc_upper[0] = kind
    domain = clawpack.Domain(clawpack.Dimension(0.0, 1.0, CELLS, name="x"))
    state = clawpack.State(domain, 1)
    state.problem_data.update({"efix": True, "umax": 1.0})
    state.q[0] = WAVE if case == "burgers" else LIGHT
    controller = clawpack.Controller()
    controller.solution, controller.solver = clawpack.Solution(state, domain), solver
    controller.tfinal, controller.num_output_times = DT * STEPS, 1
    controller.keep_copy, controller.output_format, controller.verbosity = True, None, 0
    controller.run()
    return np.array(controller.frames[-1].q[0])


def ours(name, case):
    entry = SCHEMES[name]
    law, boundary, u0 = (
        (Burgers(-1.0, 1.0), Periodic(), WAVE) if case == "burgers" else (Greenshields(), Outflow(), LIGHT)
    )
    scheme = entry.build(law, GRID, boundary)
    run = rollout(scheme, jnp.asarray(u0), DT, STEPS, integrator=entry.integrator, save_every=STEPS)
    return np.asarray(run.states[-1])


@pytest.mark.parametrize("case", ["burgers", "traffic"])
def test_classic_of_first_order_is_godunov(case):
    np.testing.assert_allclose(ours("godunov", case), pyclaw("classic", case), atol=1e-12)


@pytest.mark.parametrize("case", ["burgers", "traffic"])
def test_sharpclaw_is_weno5(case):
    # Other smoothness floors and another treatment of transonic faces: close, not equal.
    difference = np.abs(ours("weno5-js", case) - pyclaw("sharpclaw", case))
    assert difference.mean() < 2e-3 and np.median(difference) < 1e-5
