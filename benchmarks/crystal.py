"""Timings of the crystal package beside its peers, one table: CPU seconds, so that other work on the machine
matters little.

    python benchmarks/crystal.py [--structures 1000] [--rounds 3] [--repeats 20]

Preparing: `sciml.crystal.prepare` against the bare calls of the symmetry library on the same structures, both
tolerances. Basis: values and values with gradients for a batch of points, against a plain Fourier encoding
(sine and cosine of every mode, no symmetry) of the same modes and against the dense product with the routing
matrix M_G that published code uses.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sciml import data
from sciml.crystal.fourier import FourierBasis
from sciml.crystal.io import find_sources, parse
from sciml.crystal.prepare import Settings, prepare
from sciml.crystal.space_group import Backend, SpaceGroup, find_symmetry
from sciml.crystal.star import build_stars, index_ball


def cpu_seconds() -> float:
    """CPU time of this process and of its finished children."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def preparing(structures: int, backend: Backend, rounds: int) -> None:
    """`prepare` over the library's own calls in turn: CPU seconds of one worker, seconds with all cores."""
    path = data.fetch("flla")
    cells = [parse(source) for source in list(find_sources([path]))[:structures]]
    library, ours, wall_library, wall_ours = [], [], [], []
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "part.csv"
        with gzip.open(path, "rt", newline="") as file, open(table, "w", newline="") as out:
            rows = csv.reader(line for line in file if not line.startswith("#"))
            csv.writer(out).writerows(row for _, row in zip(range(structures + 1), rows, strict=False))

        def by_library() -> float:
            start, began = cpu_seconds(), time.perf_counter()
            for cell in cells:
                for symprec in (0.01, 0.1):
                    find_symmetry(
                        cell.lattice, cell.fractional, cell.species, symprec=symprec, backend=backend
                    )
            wall_library.append(time.perf_counter() - began)
            return cpu_seconds() - start

        def by_prepare(out: Path, processes: int) -> None:
            prepared = prepare([table], out, settings=Settings(backend=backend), processes=processes)
            assert len(prepared) == len(cells)

        for number in range(rounds):  # the library before and after, since the machine's pace drifts
            before = by_library()
            start = cpu_seconds()
            by_prepare(Path(folder) / f"one-{number}.npz", 1)
            ours.append(cpu_seconds() - start)
            library.append((before + by_library()) / 2)
            began = time.perf_counter()
            by_prepare(Path(folder) / f"all-{number}.npz", os.cpu_count() or 1)
            wall_ours.append(time.perf_counter() - began)
    ratios = [mine / theirs for mine, theirs in zip(ours, library, strict=True)]
    together = np.median(wall_ours) / np.median(wall_library)
    print(
        f"prepare, {backend}: {len(cells)} structures, CPU s {np.median(ours):.2f} with one worker, the "
        f"library's own calls {np.median(library):.2f}; ratio {np.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}, {rounds} rounds)\n"
        f"  seconds {np.median(wall_ours):.2f} with {os.cpu_count()} workers, the library alone "
        f"{np.median(wall_library):.2f}; ratio {together:.2f}"
    )


def timed(function: Callable, *arguments, repeats: int) -> float:
    """Milliseconds of CPU per call, compiled."""
    jax.block_until_ready(function(*arguments))
    start = cpu_seconds()
    for _ in range(repeats):
        jax.block_until_ready(function(*arguments))
    return (cpu_seconds() - start) / repeats * 1e3


def bases(number: int, points: int, repeats: int) -> None:
    """Milliseconds for values, and for gradients, at `points` points."""
    group = SpaceGroup.from_number(number)
    miller = index_ball(5)
    table = build_stars(group, miller)
    basis = FourierBasis.from_table(table, np.eye(3))
    x = jax.random.uniform(jax.random.key(0), (points, 3))
    half = jnp.asarray(miller[(miller @ [121, 11, 1]) > 0].astype(np.float32))
    routing = np.zeros((len(table), 2, len(half)), complex)
    lookup = {tuple(k): i for i, k in enumerate(np.asarray(half, int).tolist())}
    for row in range(len(table)):
        for member in range(int(table.members[row])):
            k = table.miller[row, member]
            wave = np.exp(2j * np.pi * table.phase[row, member] / 48)
            sign = tuple(k.tolist()) in lookup
            column = lookup[tuple((k if sign else -k).tolist())]
            scale = np.sqrt(2 / table.members[row])
            routing[row, 0, column] += scale * (wave if sign else wave.conj())
            routing[row, 1, column] += scale * (-1j * wave if sign else 1j * wave.conj())
    real, imaginary = (jnp.asarray(part(routing).astype(np.float32)) for part in (np.real, np.imag))

    def plain(x):
        angle = 2 * jnp.pi * (half @ x)
        return jnp.concatenate([jnp.cos(angle), jnp.sin(angle)])

    def dense(x):
        angle = 2 * jnp.pi * (half @ x)
        return jnp.einsum("srm,m->sr", real, jnp.cos(angle)) - jnp.einsum(
            "srm,m->sr", imaginary, jnp.sin(angle)
        )

    exists = np.asarray(basis.exists)
    assert np.abs((dense(x[0]) - basis(x[0])) * exists).max() < 1e-4, "the two symmetric encodings differ"
    sizes = f"{len(miller)} modes, {table.functions} functions, {points} points"
    print(f"{group.symbol} ({number}): {sizes}; milliseconds of CPU")
    for label, function in (("symmetric", basis), ("dense M_G", dense), ("plain Fourier", plain)):
        value = timed(_values, function, x, repeats=repeats)
        gradient = timed(_gradients, function, x, repeats=repeats)
        print(f"  {label:14s} values {value:8.2f}   gradient of a scalar {gradient:8.2f}")


@eqx.filter_jit
def _values(function: Callable, x: jax.Array) -> jax.Array:
    return jax.vmap(function)(x)


@eqx.filter_jit
def _gradients(function: Callable, x: jax.Array) -> jax.Array:
    return jax.vmap(jax.grad(lambda y: (function(y) ** 2).sum()))(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--structures", type=int, default=1000)
    parser.add_argument("--points", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3, help="of preparing and the library's calls in turn")
    options = parser.parse_args()
    print(f"JAX on {jax.default_backend()}, {os.cpu_count()} cores")
    for number in (1, 14, 62, 225):
        bases(number, options.points, options.repeats)
    for backend in ("spglib", "moyopy"):
        preparing(options.structures, backend, options.rounds)


if __name__ == "__main__":
    main()
