"""Projectors beside ASTRA on the CPU, in turn: 256 x 256 pixels, 180 views, 384 bins, float32.

    python -m benchmarks.ct [--astra PYTHON] [--rounds 5]

PYTHON is an interpreter with `astra-toolbox`, in an environment of its own; without it only our times are
printed. Also a cone beam of 128³ voxels and 120 views by filtered backprojection. Times are medians after a
first call; GUPS are 10⁹ pixel updates (pixels x views) per second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from sciml.ct import (
    FanBeam,
    ImageGrid,
    JosephProjector,
    ParallelBeam,
    VolumeGeometry,
    VolumeGrid,
    filtered_backprojection,
)

PEER = Path(__file__).parent / "peers" / "astra_projectors.py"
VIEWS, BINS, ROWS = 180, 384, 256

_project = eqx.filter_jit(lambda projector, image: projector.project(image))
_backproject = eqx.filter_jit(lambda projector, sinogram: projector.backproject(sinogram))
_fdk = eqx.filter_jit(filtered_backprojection)


def projectors() -> dict[str, JosephProjector]:
    """The scans that both packages know."""
    grid = ImageGrid(ROWS)
    parallel = ParallelBeam(np.arange(VIEWS) * np.pi / VIEWS, BINS, 1.0)
    distances = {"source_to_axis": 4.0 * ROWS, "source_to_detector": 6.0 * ROWS}
    fan = FanBeam(np.arange(VIEWS) * 2 * np.pi / VIEWS, BINS, 1.5, **distances)
    return {"parallel": JosephProjector(parallel, grid), "fan": JosephProjector(fan, grid)}


def timed(function: Callable, *arguments) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    jax.block_until_ready(function(*arguments))
    return time.perf_counter() - start


def ours() -> dict[str, float]:
    """Seconds by scan and direction, medians of five."""
    image = jnp.asarray(np.random.default_rng(0).random((ROWS, ROWS)), jnp.float32)
    times = {}
    for name, projector in projectors().items():
        sinogram = _project(projector, image)
        for direction, function, argument in (
            ("forward", _project, image),
            ("back", _backproject, sinogram),
        ):
            timed(function, projector, argument)
            times[f"{name} {direction}"] = float(
                np.median([timed(function, projector, argument) for _ in range(5)])
            )
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--astra", help="interpreter with astra-toolbox")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rounds: list[dict[str, dict[str, float]]] = []
    for _ in range(options.rounds):
        each = {"sciml": ours()}
        if options.astra:
            answer = subprocess.run([options.astra, str(PEER)], capture_output=True, text=True, check=True)
            each["astra"] = json.loads(answer.stdout.splitlines()[-1])
        rounds.append(each)
    updates = ROWS * ROWS * VIEWS / 1e9
    for key in rounds[0]["sciml"]:
        mine = float(np.median([each["sciml"][key] for each in rounds]))
        line = f"{key:18s} {mine * 1e3:7.1f} ms {updates / mine:6.3f} GUPS"
        if options.astra:
            theirs = [each["astra"][key] for each in rounds]
            ratios = [each["astra"][key] / each["sciml"][key] for each in rounds]
            line += (
                f"   astra {np.median(theirs) * 1e3:7.1f} ms, {np.median(ratios):.2f} times as long"
                f" ({min(ratios):.2f} to {max(ratios):.2f})"
            )
        print(line)
    cone = VolumeGeometry.cone(
        np.arange(120) * 2 * np.pi / 120, 128, 128, 3.9 / 128, source_to_axis=4.0, source_to_detector=6.0
    )
    data, grid = jnp.ones(cone.shape, jnp.float32), VolumeGrid(128, pixel=2 / 128)
    first = timed(_fdk, data, cone, grid)
    best = float(np.median([timed(_fdk, data, cone, grid) for _ in range(3)]))
    print(
        f"cone, 128³ x 120   {best:7.2f} s  {128**3 * 120 / best / 1e9:6.3f} GUPS (first call {first:.1f} s)"
    )


if __name__ == "__main__":
    main()
