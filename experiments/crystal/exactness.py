"""Do symmetry-equivalent atoms get equal features, however a crystal is described? All structures, eight
descriptions each.

    python experiments/crystal/exactness.py experiments/crystal/exactness.toml

Beside our pipeline stands the one that applies the tabulated group of the space-group *number* to the
coordinates as given.
"""

from __future__ import annotations

import csv
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from sciml import data
from sciml.cli.arguments import open_run, parse_arguments
from sciml.crystal.io import find_sources
from sciml.crystal.redescribe import WAYS, check_source
from sciml.crystal.worker import run_all
from sciml.files import replacing


@dataclass(frozen=True)
class Config:
    """Which structures, and how."""

    sets: tuple[str, ...] = ("elastic", "dielectric", "piezoelectric", "flla", "aflow-prototypes")
    limit: int = field(default=0, metadata={"doc": "structures of each set; 0 takes all"})
    symprec: float = field(default=0.01, metadata={"doc": "tolerance of the symmetry search in Å"})
    backend: str = field(default="spglib", metadata={"doc": "spglib or moyopy"})
    ways: tuple[str, ...] = tuple(WAYS)
    tolerance: float = field(default=1e-5, metadata={"doc": "relative difference that counts as failure"})
    published_tolerance: float = field(
        default=0.05, metadata={"doc": "the same for the number-only pipeline"}
    )
    processes: int = 2
    time_limit: float = field(default=300.0, metadata={"doc": "seconds per structure"})


def main(argv: list[str]) -> int:
    config, options, path = parse_arguments(argv, Config, command="crystal exactness")
    os.environ["JAX_PLATFORMS"] = "cpu"  # the workers share one accelerator badly
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")  # and a worker is one thread
    failed = 0
    with open_run(options, config, f"crystal-{path.stem if path else 'exactness'}") as run:
        table = {}
        rows = []
        for name in config.sets:
            started = time.perf_counter()
            sources = list(islice(find_sources([data.fetch(name)]), config.limit or None))
            how = {"ways": config.ways, "symprec": config.symprec, "backend": config.backend}
            checks, errors = [], []
            tasks = ((source, how) for source in sources)
            for index, result in run_all(
                check_source, tasks, processes=config.processes, time_limit=config.time_limit
            ):
                if isinstance(result, Exception):
                    errors.append(f"{sources[index].name}: {result}")
                else:
                    checks.append(result)
            table[name] = summary = _summary(checks, errors, config)
            summary["seconds"] = round(time.perf_counter() - started, 1)
            failed += summary["failures"] + summary["errors"] + summary["other group in another description"]
            rows += [(name, c.name, w, *v) for c in checks for w, *v in _by_way(c)]
            print(
                f"{name}: " + ", ".join(f"{k} {v}" for k, v in summary.items() if k != "error list"),
                flush=True,
            )
            for error in errors:
                print(f"  {error}")
        run.write_metrics(table)
        with replacing(run.path / "exactness.csv") as temporary, open(temporary, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["set", "structure", "description", "inequality", "dependence", "number"])
            writer.writerows(rows)
        print(f"written to {run.path}")
    return 1 if failed else 0


def _by_way(check):
    return zip(check.ways, check.inequality, check.dependence, check.numbers, strict=True)


def _summary(checks, errors, config: Config) -> dict:
    inequality = np.array([c.inequality for c in checks])
    changed = [c for c in checks if len(set(c.numbers)) > 1]
    same = [c for c in checks if len(set(c.numbers)) == 1]
    dependence = np.array([c.dependence for c in same])
    return {
        "structures": len(checks),
        "descriptions": inequality.size,
        "errors": len(errors),
        "failures": int((inequality > config.tolerance).sum()),
        "largest difference of equivalent atoms": float(inequality.max()),
        "other group in another description": len(changed),
        "descriptions affected": dict(
            Counter(w for c in changed for w, _, _, n in _by_way(c) if n != c.numbers[0])
        ),
        "largest dependence on description": float(dependence.max()),
        "dependence above 1e-3": int((dependence > 1e-3).any(1).sum()),
        "number-only pipeline fails": float(
            np.mean([c.number_only > config.published_tolerance for c in checks])
        ),
        "error list": errors,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
