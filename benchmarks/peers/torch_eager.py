"""Godunov for Greenshields' law in eager PyTorch, all rows at once; arguments: rows cells steps."""

import sys
from pathlib import Path

import torch  # pyright: ignore[reportMissingImports]

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.alternate import serve


def advance(u, dt_dx, steps):
    for _ in range(steps):
        padded = torch.cat([u[:, :1], u, u[:, -1:]], dim=1)
        left, right = padded[:, :-1].clamp(max=0.5), padded[:, 1:].clamp(min=0.5)
        flux = torch.minimum(left * (1 - left), right * (1 - right))
        u = u - dt_dx * (flux[:, 1:] - flux[:, :-1])
    return u


rows, cells, steps = map(int, sys.argv[1:4])
start = torch.rand((rows, 10), generator=torch.Generator().manual_seed(0)).repeat_interleave(
    cells // 10, dim=1
)
with torch.no_grad():
    serve(lambda: advance(start, 0.5, steps))
