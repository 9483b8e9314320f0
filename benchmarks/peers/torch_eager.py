"""Godunov for Greenshields' law in eager PyTorch, all rows at once; arguments: rows cells steps form.

Form "textbook" spells out Godunov's cases for any concave flux; "demand" is the shortest for this one.
"""

import sys
from pathlib import Path

import torch  # pyright: ignore[reportMissingImports]

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.alternate import serve


def textbook(left, right):
    f_left, f_right = left * (1 - left), right * (1 - right)
    low, high = torch.minimum(left, right), torch.maximum(left, right)
    top = torch.where((low < 0.5) & (high > 0.5), torch.full_like(left, 0.25), torch.maximum(f_left, f_right))
    return torch.where(left <= right, torch.minimum(f_left, f_right), top)


def demand(left, right):
    left, right = left.clamp(max=0.5), right.clamp(min=0.5)
    return torch.minimum(left * (1 - left), right * (1 - right))


def advance(u, dt_dx, steps, flux):
    for _ in range(steps):
        padded = torch.cat([u[:, :1], u, u[:, -1:]], dim=1)
        through = flux(padded[:, :-1], padded[:, 1:])
        u = u - dt_dx * (through[:, 1:] - through[:, :-1])
    return u


rows, cells, steps = map(int, sys.argv[1:4])
start = torch.rand((rows, 10), generator=torch.Generator().manual_seed(0)).repeat_interleave(
    cells // 10, dim=1
)
with torch.no_grad():
    flux = {"textbook": textbook, "demand": demand}[sys.argv[4]]
    serve(lambda: advance(start, 0.5, steps, flux))
