"""Times of ASTRA's CPU projectors as one line of JSON; run by an interpreter that has `astra-toolbox`."""

import json
import time

import astra
import numpy as np

VIEWS, BINS, ROWS = 180, 384, 256


def main():
    volume = astra.create_vol_geom(ROWS, ROWS)
    scans = {
        "parallel": (
            "linear",
            astra.create_proj_geom("parallel", 1.0, BINS, np.arange(VIEWS) * np.pi / VIEWS),
        ),
        "fan": (
            "line_fanflat",
            astra.create_proj_geom(
                "fanflat", 1.5, BINS, np.arange(VIEWS) * 2 * np.pi / VIEWS, 4.0 * ROWS, 2.0 * ROWS
            ),
        ),
    }
    image = np.random.default_rng(0).random((ROWS, ROWS), dtype=np.float32)
    times = {}
    for name, (kind, geometry) in scans.items():
        projector = astra.create_projector(kind, geometry, volume)
        forward, back = [], []
        for _ in range(6):
            start = time.perf_counter()
            _, sinogram = astra.create_sino(image, projector)
            forward.append(time.perf_counter() - start)
            start = time.perf_counter()
            astra.create_backprojection(sinogram, projector)
            back.append(time.perf_counter() - start)
        times[f"{name} forward"], times[f"{name} back"] = (float(np.median(t[1:])) for t in (forward, back))
    print(json.dumps(times))


if __name__ == "__main__":
    main()
