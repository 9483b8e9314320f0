"""Speed of the classical schemes against numba, plain C, eager PyTorch and SharpClaw, in one run.

    python -m benchmarks.fv [--repeats 7] [--out fv.json] [--torch-python PATH] [--clawpack-python PATH]

A batch of 256 roads of 200 cells takes 1000 steps. Rates are cell updates per second; one update takes one
cell through one whole step. Every candidate uses all cores: ours one device per core, numba `prange`, C one
thread per core, PyTorch its own threads; SharpClaw has one thread and its rate is given as it is. Peers in
other environments are reached through their interpreters.
"""

import argparse
import ctypes
import os
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(len(os.sched_getaffinity(0))))

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.alternate import Worker, alternate, rows, show, timed, write
from sciml.fv.boundary import Outflow
from sciml.fv.catalogue import SCHEMES, evaluation_laws
from sciml.fv.grid import UniformGrid
from sciml.fv.integrate import ensemble, rollout

ROWS, CELLS, STEPS = 256, 200, 1000
WIDE = {"xla_cpu_prefer_vector_width": 512}
FLAGS = ["-O3", "-march=native", "-ffast-math", "-mprefer-vector-width=512"]


def states(dtype, count=ROWS):
    return np.repeat(np.random.default_rng(0).random((count, 10)).astype(dtype), CELLS // 10, axis=1)


def ours(name, dtype, dt_dx, options, count=ROWS, traces=None):
    """Our scheme as a candidate and the seconds that its compilation took."""
    entry = SCHEMES[name]
    scheme = entry.build(evaluation_laws()["greenshields"], UniformGrid(CELLS), Outflow())

    def one(u0, step):
        if traces is not None:
            traces.append(name)
        found = rollout(scheme, u0, step, STEPS, integrator=entry.integrator, save_every=STEPS, throw=False)
        return found.states[-1]

    u0 = jnp.asarray(states(dtype, count))
    steps = jnp.full(count, dt_dx / CELLS, u0.dtype)
    begun = time.perf_counter()
    made = jax.jit(lambda u, step: ensemble(one, u, step), compiler_options=options)
    made(u0, steps).block_until_ready()
    first = time.perf_counter() - begun
    return timed(lambda: made(u0, steps).block_until_ready()), first


def plain_c(function, dtype, dt_dx, folder, count=ROWS):
    """A C kernel as a candidate: one thread per core on its share of the rows."""
    real, number = ("float", ctypes.c_float) if dtype == np.float32 else ("double", ctypes.c_double)
    library = Path(folder) / f"{real}.so"
    if not library.exists():
        source = Path(__file__).parent / "peers" / "finite_volume.c"
        subprocess.run(
            ["gcc", *FLAGS, f"-DREAL={real}", "-shared", "-fPIC", source, "-o", library], check=True
        )
    kernel = getattr(ctypes.CDLL(str(library)), function)
    start = states(dtype, count)
    cores = len(os.sched_getaffinity(0))
    pool = ThreadPoolExecutor(cores)

    def share(block):
        kernel(block.ctypes.data_as(ctypes.c_void_p), len(block), CELLS, STEPS, number(dt_dx))

    return timed(lambda: list(pool.map(share, [b.copy() for b in np.array_split(start, cores)])))


def compare(title, candidates, work, compiled, mine, repeats, results):
    seconds = alternate(candidates, repeats)
    table = rows(seconds, work, mine, compiled)
    show(title, table, "updates/s")
    results[title] = table


def main():
    parser = argparse.ArgumentParser(description="Speed of the classical schemes")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--out", help="write the figures as JSON")
    parser.add_argument("--torch-python", help="interpreter of an environment with PyTorch")
    parser.add_argument("--clawpack-python", help="interpreter of an environment with Clawpack")
    options = parser.parse_args()
    results: dict[str, object] = {}
    absent: list[str] = []
    full = float(ROWS * CELLS * STEPS)

    def peer(table, work, name, label, count, python=None, *more):
        try:
            table[label] = Worker(name, str(count), str(CELLS), str(STEPS), *more, python=python)
            work[label] = float(count * CELLS * STEPS)
        except ImportError as error:
            absent.append(str(error))

    with tempfile.TemporaryDirectory() as folder:
        candidates, work, compiled = {}, {}, {}
        traces: list[str] = []
        for label, wide in (("sciml, vector width 512", WIDE), ("sciml", {})):
            candidates[label], compiled[label] = ours("godunov", np.float32, 0.5, wide, traces=traces)
            work[label] = full
        peer(candidates, work, "numba_rows", "numba rows, prange", ROWS)
        for form in ("textbook", "demand"):
            peer(candidates, work, "torch_eager", f"PyTorch, eager, {form}", ROWS, options.torch_python, form)
        if shutil.which("gcc"):
            candidates["C " + " ".join(FLAGS[:1]) + ", lanes by gcc"] = plain_c(
                "godunov_euler", np.float32, 0.5, folder
            )
            work["C -O3, lanes by gcc"] = full
        else:
            absent.append("gcc: no C compiler")
        compare(
            "Godunov, float32",
            candidates,
            work,
            compiled,
            "sciml, vector width 512",
            options.repeats,
            results,
        )
        print(f"traces of our step over all runs and both compilations: {len(traces)}")

        for dtype, precision in ((np.float32, "float32"), (np.float64, "float64")):
            with jax.enable_x64(dtype == np.float64):
                candidates, work, compiled = {}, {}, {}
                for name in ("weno5-js", "weno5-z"):
                    label = f"sciml {name}, vector width 512"
                    candidates[label], compiled[label] = ours(name, dtype, 0.1, WIDE, 64)
                    work[label] = full / 4
                label = "sciml weno5-js"
                candidates[label], compiled[label] = ours("weno5-js", dtype, 0.1, {}, 64)
                work[label] = full / 4
                if shutil.which("gcc"):
                    candidates["C weno5-js"] = plain_c("weno5_js", dtype, 0.1, folder, 64)
                    work["C weno5-js"] = full / 4
                if precision == "float64":
                    peer(candidates, work, "sharpclaw", "SharpClaw WENO5 SSP33", 4, options.clawpack_python)
                title = f"WENO5 with SSPRK3, {precision}"
                mine = "sciml weno5-js, vector width 512"
                compare(title, candidates, work, compiled, mine, options.repeats, results)

        candidates, work, compiled = {}, {}, {}
        for name in SCHEMES:
            if not name.startswith("dg"):  # their stable steps are shorter
                label = f"sciml {name}"
                candidates[label], compiled[label] = ours(name, np.float32, 0.1, WIDE, 64)
                work[label] = full / 4
        compare("All schemes, float32", candidates, work, compiled, "sciml godunov", 3, results)
    for name in absent:
        print(f"absent: {name}")
    results["absent"] = absent
    if options.out:
        write(options.out, results)


if __name__ == "__main__":
    main()
