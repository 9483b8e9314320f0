"""Godunov for Greenshields' law in numba, row by row, one thread per core; arguments: rows cells steps."""

import sys
from pathlib import Path

import numba as nb
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.alternate import serve


@nb.njit(fastmath=True, parallel=True)
def advance(state, dt_dx, steps):
    rows, cells = state.shape
    half, one = np.float32(0.5), np.float32(1)
    for row in nb.prange(rows):
        u = np.empty(cells + 2, np.float32)
        flux = np.empty(cells + 1, np.float32)
        u[1:-1] = state[row]
        for _ in range(steps):
            u[0] = u[1]
            u[cells + 1] = u[cells]
            for i in range(cells + 1):
                left, right = min(u[i], half), max(u[i + 1], half)
                flux[i] = min(left * (one - left), right * (one - right))
            for i in range(cells):
                u[i + 1] -= dt_dx * (flux[i + 1] - flux[i])
        state[row] = u[1:-1]


rows, cells, steps = map(int, sys.argv[1:4])
start = np.repeat(np.random.default_rng(0).random((rows, 10), np.float32), cells // 10, axis=1)
serve(lambda: advance(start.copy(), np.float32(0.5), steps))
