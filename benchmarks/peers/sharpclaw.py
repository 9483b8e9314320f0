"""Greenshields' law by SharpClaw (WENO5, SSPRK3, float64) from Clawpack; arguments: rows cells steps."""

import sys
from pathlib import Path

import numpy as np
from clawpack import pyclaw, riemann  # pyright: ignore[reportMissingImports]

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.alternate import serve

rows, cells, steps = map(int, sys.argv[1:4])
states = np.repeat(np.random.default_rng(0).random((rows, 10)), cells // 10, axis=1)


def run():
    for row in states:
        solver = pyclaw.SharpClawSolver1D(riemann.traffic_1D)
        solver.time_integrator = "SSP33"
        solver.weno_order = 5
        solver.bc_lower[0] = solver.bc_upper[0] = pyclaw.BC.extrap
        solver.cfl_max, solver.cfl_desired, solver.dt_variable = 0.9, 0.5, False
        solver.max_steps = steps + 10
        x = pyclaw.Dimension(0.0, 1.0, cells, name="x")
        state = pyclaw.State(pyclaw.Domain(x), 1)
        state.problem_data["umax"] = 1.0
        state.problem_data["efix"] = True
        state.q[0] = row
        solver.dt_initial = 0.1 / cells
        controller = pyclaw.Controller()
        controller.solution, controller.solver = (
            pyclaw.Solution(state, state.grid and pyclaw.Domain(x)),
            solver,
        )
        controller.tfinal, controller.num_output_times = steps * 0.1 / cells, 1
        controller.keep_copy, controller.output_format, controller.verbosity = False, None, 0
        controller.run()
        del controller, solver  # frees the Fortran workspace, of which there is only one


serve(run)
