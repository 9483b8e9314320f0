"""A run folder: everything needed to know what a result is and where it came from.

    config.toml        the resolved configuration: the same command on it gives the same result
    environment.json   versions, devices, commit, command line, times
    metrics.jsonl      one JSON object per line while the run goes on
    metrics.json       the final numbers
    figures/  checkpoints/  report.html

An existing folder is never overwritten unless `overwrite` is said, and then the old one stays beside it until
the new run has finished.
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from sciml.files import replacing, write_text
from sciml.train.environment import environment, now


class Run:
    """An open run folder; use it in a `with` block, or call `finish` when all is written."""

    path: Path
    resumed: bool

    def __init__(self, path: Path, *, resumed: bool, replaced: Path | None):
        self.path = path
        self.resumed = resumed
        self._replaced = replaced
        self._started = time.time()

    @classmethod
    def create(
        cls, path: str | Path, config: str, *, overwrite: bool = False, resume: bool | None = None
    ) -> Run:
        """Makes the folder, or opens it again.

        **Arguments:**

        - `path`: the folder.
        - `config`: the resolved configuration as TOML text (`sciml.config.dump_toml`).
        - `overwrite`: replace an existing run; the old folder is moved aside and removed by `finish`.
        - `resume`: go on in an existing run of the same configuration; `None` when the command cannot resume.

        **Raises:** `FileExistsError` for a folder with content, `ValueError` when the configuration of the
        run to go on with is another one.
        """
        path = Path(path)
        if path.exists() and not path.is_dir():
            raise FileExistsError(f"{path} is a file, not a run folder; choose another folder with --out")
        occupied = path.is_dir() and any(path.iterdir())
        replaced = None
        if occupied and resume:
            _check_same_config(path, config)
        elif occupied and overwrite:
            if not (path / "config.toml").is_file():
                raise FileExistsError(
                    f"{path} is no run folder (no config.toml); choose another folder with --out"
                )
            replaced = _free_name(path)
            path.rename(replaced)
        elif occupied:
            remedies = "--out OTHER" + (
                ", --overwrite or --resume" if resume is not None else " or --overwrite"
            )
            raise FileExistsError(f"{path} holds an earlier run; use {remedies}")
        for folder in (path, path / "figures", path / "checkpoints"):
            folder.mkdir(parents=True, exist_ok=True)
        run = cls(path, resumed=bool(occupied and resume), replaced=replaced)
        write_text(path / "config.toml", config)
        run._write_json("environment.json", environment())
        return run

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if error is None:
            self.finish()
        elif self._replaced is not None:
            print(f"the earlier run is kept in {self._replaced}", file=sys.stderr)

    def finish(self) -> None:
        """Marks the run as finished and removes the folder that it replaces."""
        record = json.loads((self.path / "environment.json").read_text(encoding="utf-8"))
        record |= {"finished": now(), "wall_seconds": round(time.time() - self._started, 3)}
        self._write_json("environment.json", record)
        if self._replaced is not None:
            shutil.rmtree(self._replaced, ignore_errors=True)
            self._replaced = None

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def log(self, record: dict[str, Any]) -> None:
        """Appends one line to `metrics.jsonl`, at once on disk."""
        with open(self.path / "metrics.jsonl", "a", encoding="utf-8") as file:
            file.write(_json(record, indent=None) + "\n")

    def logged(self) -> list[dict[str, Any]]:
        """The lines of `metrics.jsonl`; a line cut short by a crash is left out."""
        return read_lines(self.path / "metrics.jsonl")

    def forget_after(self, step: int) -> None:
        """Drops the lines of `metrics.jsonl` after a step, so that a resumed run writes each of them once."""
        kept = [line for line in self.logged() if line.get("step", 0) <= step]
        text = "".join(_json(line, indent=None) + "\n" for line in kept)
        write_text(self.path / "metrics.jsonl", text)

    def write_metrics(self, metrics: dict[str, Any]) -> Path:
        """Writes the final numbers to `metrics.json`; a number that is not finite becomes `null`."""
        return self._write_json("metrics.json", metrics)

    def figure(self, name: str, figure: Any, *, dpi: int = 150) -> Path:
        """Writes a matplotlib figure, or the bytes of a PNG, to `figures/NAME.png`."""
        path = self.path / "figures" / f"{name}.png"
        with replacing(path) as temporary:
            if isinstance(figure, bytes):
                temporary.write_bytes(figure)
            else:
                figure.savefig(temporary, dpi=dpi)
        return path

    def _write_json(self, name: str, value: dict[str, Any]) -> Path:
        return write_text(self.path / name, _json(value, indent=2) + "\n")


def read_lines(path: str | Path) -> list[dict[str, Any]]:
    """Reads a file of JSON objects, one per line; an unfinished last line is left out."""
    path = Path(path)
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    whole = lines[:-1]  # what follows the last newline was cut short, or is empty
    return [json.loads(line) for line in whole if line]


def _check_same_config(path: Path, config: str) -> None:
    import tomllib

    earlier = path / "config.toml"
    if not earlier.is_file():
        raise FileExistsError(f"{path} is no run folder (no config.toml); choose another folder with --out")
    before, now = (_flat(tomllib.loads(text)) for text in (earlier.read_text(encoding="utf-8"), config))
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            raise ValueError(
                f"{earlier}: {key} is {before.get(key)!r} there and {now.get(key)!r} now; "
                "a run is resumed with the configuration that it was started with"
            )


def _flat(table: dict[str, Any], key: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        dotted = f"{key}.{name}" if key else name
        found |= _flat(value, dotted) if isinstance(value, dict) else {dotted: value}
    return found


def _free_name(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.replaced-{number}")).exists():
        number += 1
    return aside


def _json(value: Any, *, indent: int | None) -> str:
    return json.dumps(_plain(value), indent=indent, allow_nan=False)


def _plain(value: Any) -> Any:
    """JSON values of dictionaries, sequences, paths and (arrays of) numbers."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy and JAX arrays and scalars
        return _plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    return str(value)
