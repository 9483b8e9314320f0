"""Worker processes with a time limit per task: `run_all`.

A symmetry search can hang inside C code or end its process, so it runs where both are survivable. Workers are
fresh interpreters (they import neither JAX nor the caller's script); tasks go out in small batches and
results come back one by one, so that the clock of every task is its own.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

BATCH = 16


class _Worker:
    def __init__(self, function: Callable[[Any], Any]):
        self.connection, other = Pipe()
        environment = dict(
            os.environ, PYTHONPATH=os.pathsep.join(p for p in sys.path if p), OMP_NUM_THREADS="1"
        )
        command = f"from sciml.crystal.worker import serve; serve({other.fileno()})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", command],
            pass_fds=[other.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        other.close()
        self.connection.send((function.__module__, function.__qualname__))
        self.pending: deque[tuple[int, Any]] = deque()
        self.ready = False
        self.since = time.monotonic()

    def give(self, batch: list[tuple[int, Any]]) -> None:
        self.pending.extend(batch)
        self.connection.send(batch)
        self.since = time.monotonic()

    def end(self) -> None:
        self.connection.close()
        self.process.kill()
        self.process.wait()


def run_all(
    function: Callable[[Any], Any], tasks: Iterable[Any], *, processes: int, time_limit: float
) -> Iterator[tuple[int, Any]]:
    """Apply an importable function to every task; yield (index of the task, result) in the order of
    completion.

    A result is what the function returned, or the exception it raised, a `TimeoutError` after `time_limit`
    seconds, or a `RuntimeError` when the process ended (a crash in C code, say).
    """
    queue = enumerate(tasks)
    again: deque[tuple[int, Any]] = deque()
    workers: list[_Worker] = []

    def next_batch() -> list[tuple[int, Any]]:
        batch = [again.popleft() for _ in range(min(BATCH, len(again)))]
        while len(batch) < BATCH and (item := next(queue, None)) is not None:
            batch.append(item)
        return batch

    def start() -> None:
        batch = next_batch()
        if batch:
            worker = _Worker(function)
            workers.append(worker)
            worker.give(batch)

    try:
        for _ in range(max(1, processes)):
            start()
        while workers:
            # a worker that is still importing has no task on the clock
            deadlines = [w.since + (time_limit if w.ready else time_limit + 120) for w in workers]
            timeout = max(0.0, min(deadlines) - time.monotonic())
            ready = wait([w.connection for w in workers], timeout)
            for worker in list(workers):
                failure = None
                if worker.connection in ready:
                    try:
                        message = worker.connection.recv()
                    except (EOFError, OSError):
                        code = worker.process.wait()
                        failure = RuntimeError(
                            f"the worker process ended with code {code} while on this task"
                        )
                    else:
                        worker.since = time.monotonic()
                        if message == "ready":
                            worker.ready = True
                            continue
                        worker.pending.popleft()
                        yield message
                        worker.since = time.monotonic()
                        if len(worker.pending) <= BATCH // 4 and (batch := next_batch()):
                            worker.give(batch)
                        if not worker.pending:
                            worker.end()
                            workers.remove(worker)
                        continue
                elif time.monotonic() > worker.since + (time_limit if worker.ready else time_limit + 120):
                    failure = TimeoutError(f"no result within {time_limit:g} s")
                if failure is not None:
                    worker.end()
                    workers.remove(worker)
                    index, _ = worker.pending.popleft()
                    again.extend(worker.pending)
                    yield index, failure
                    start()
    finally:
        for worker in workers:
            worker.end()


def serve(descriptor: int) -> None:
    """Main loop of a worker process: read batches, send a result for every task."""
    import importlib

    connection = Connection(descriptor)
    module, name = connection.recv()
    function = getattr(importlib.import_module(module), name)
    connection.send("ready")
    while True:
        try:
            batch = connection.recv()
        except EOFError:
            return
        for index, task in batch:
            try:
                message = pickle.dumps((index, function(task)))
            except Exception as error:
                message = pickle.dumps((index, _portable(error)))
            connection.send_bytes(message)


def _portable(error: Exception) -> Exception:
    """The error itself when it survives the trip between processes, else one with the same text."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
