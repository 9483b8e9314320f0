"""Fair timing on a noisy machine: candidates in turn A B A B …, medians and ratios pair by pair.

A candidate is a function of this process, or a peer in a process of its own (`Worker`), so that peers may
live in another environment and bring their own thread pools. A peer that is not installed is named, not
hidden.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path


class Worker:
    """A peer script that times one run per line of its standard input and prints the seconds."""

    def __init__(self, script: str, *arguments: str, python: str | None = None):
        self.name = script
        path = Path(__file__).parent / "peers" / f"{script}.py"
        self._process = subprocess.Popen(
            [python or sys.executable, str(path), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        first = self._read()
        if first != "ready":
            assert self._process.stderr is not None
            reason = self._process.stderr.read().strip().splitlines()
            raise ImportError(f"{script}: {reason[-1] if reason else 'did not start'}")

    def __call__(self) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        answer = self._read()
        if not answer:
            raise RuntimeError(f"{self.name} stopped")
        return float(answer)

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.terminate()


def seconds_each(run: Callable[[], object], least: float = 0.2) -> float:
    """Seconds of one run, the mean over at least `least` seconds after one uncounted run that wakes the
    threads."""
    run()
    runs, begun = 0, time.perf_counter()
    while (passed := time.perf_counter() - begun) < least or not runs:
        run()
        runs += 1
    return passed / runs


def serve(run: Callable[[], object]) -> None:
    """The loop of a peer script: warm up, say ready, then one timing per line."""
    run()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(seconds_each(run), flush=True)


def timed(run: Callable[[], object]) -> Callable[[], float]:
    """A function of this process as a candidate; `run` must wait for its result."""
    return lambda: seconds_each(run)


def alternate(candidates: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Seconds of every candidate, all in turn, `repeats` times, after one uncounted round.

    The pause lets the threads of the one before fall asleep: OpenMP's keep a core busy for a fifth of a
    second after their work is done.
    """
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for round_ in range(repeats + 1):
        for name, run in candidates.items():
            time.sleep(0.3)
            value = run()
            if round_:
                seconds[name].append(value)
    return seconds


def rows(
    seconds: dict[str, list[float]], work: dict[str, float], ours: str, compile_seconds: dict[str, float]
) -> list[dict[str, object]]:
    """Rates, spreads and the ratio of our rate to each peer's: the median over neighbouring runs."""
    table: list[dict[str, object]] = []
    for name, values in seconds.items():
        pairs = [
            (work[ours] / mine) / (work[name] / other)
            for mine, other in zip(seconds[ours], values, strict=True)
        ]
        table.append(
            {
                "candidate": name,
                "rate": work[name] / statistics.median(values),
                "slowest": work[name] / max(values),
                "fastest": work[name] / min(values),
                "ours_over_it": statistics.median(pairs),
                "compile_s": compile_seconds.get(name),
            }
        )
    return table


def machine() -> dict[str, object]:
    """What the figures were measured on."""
    import jax

    model = ""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        found = [
            line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line
        ]
        model = found[0] if found else ""
    load = os.getloadavg() if hasattr(os, "getloadavg") else ()
    return {
        "processor": model or platform.processor(),
        "cores": os.cpu_count(),
        "load_average": [round(x, 2) for x in load],
        "python": platform.python_version(),
        "jax": jax.__version__,
        "devices": [str(device) for device in jax.local_devices()],
    }


def show(title: str, table: list[dict[str, object]], unit: str) -> None:
    """Prints one table."""
    print(f"\n{title}")
    print(f"{'candidate':<44}{unit:>14}{'slowest':>12}{'fastest':>12}{'ours/it':>10}{'compile s':>11}")
    for row in table:
        numbers = "".join(
            f"{row[key]:>{w}.4g}" for key, w in (("rate", 14), ("slowest", 12), ("fastest", 12))
        )
        made = row["compile_s"]
        compiled = f"{made:>11.2f}" if isinstance(made, float) else f"{'':>11}"
        print(f"{row['candidate']!s:<44}{numbers}{row['ours_over_it']:>10.3g}{compiled}")


def write(path: str, results: dict[str, object]) -> None:
    """The figures as JSON, to compare two commits."""
    Path(path).write_text(json.dumps({"machine": machine(), **results}, indent=2) + "\n", encoding="utf-8")
