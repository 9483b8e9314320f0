"""A progress bar on standard error, silent when nobody looks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[int, dict[str, Any]], None]]:
    """Yields `show(step, record)`, which draws the step and the loss when standard error is a terminal."""
    if not sys.stderr.isatty():
        yield lambda step, record: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)

        def show(step: int, record: dict[str, Any]) -> None:
            bar.update(task, completed=step, description=f"loss {record['loss']:.3e}")

        yield show
