"""Files that are either whole or absent (write under a temporary name, then rename), and the cache folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yields a temporary path beside `path` that takes its place when the block ends without an error.

    The temporary name keeps the suffix of `path` (libraries that choose a format by it see the right one).
    The folder is made when it is absent. After an error `path` is as it was and the temporary file is gone.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes files that nobody else can read
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Writes a whole text file (UTF-8) or nothing."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def cache_folder() -> Path:
    """The folder for downloaded data and compiled programs: `SCIML_CACHE`, else the user's cache folder."""
    if folder := os.environ.get("SCIML_CACHE"):
        return Path(folder)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sciml"


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
