"""Tables and folders of structures -> one prepared set: detected, primitive, symmetric to round-off.

`prepare` runs the symmetry search in worker processes with a time limit per structure. Structures that cannot
be used are listed in `rejected.csv` with the reason, and never stop the others. The result is one `.npz` file
that is rewritten whole every few seconds, so an interrupted call goes on where it stopped and a finished one
is reused. `PreparedSet` reads it.
"""

from __future__ import annotations

import csv
import hashlib
import json
import time
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from sciml.crystal.detection import Detection, detect
from sciml.crystal.io import Source, find_sources, parse
from sciml.crystal.space_group import Backend
from sciml.crystal.worker import run_all
from sciml.files import replacing

FORMAT = 1
SAVE_EVERY = 15.0  # seconds, or twenty times what saving takes


@dataclass(frozen=True)
class Settings:
    """What the content of a prepared set depends on, beside the structures."""

    symprec: float = 0.01
    loose_symprec: float | None = 0.1
    backend: Backend = "spglib"


@dataclass
class PreparedSet:
    """Detected crystals with the numbers of their table, in the order of the input.

    - `names`: identifier of each structure; `found`: its `Detection`; `targets`: its numbers by column.
    - `rejected`: (name, reason) of every structure that could not be used.
    - `complete`: False in a file left by an interrupted call.
    """

    settings: Settings
    names: list[str] = field(default_factory=list)
    found: list[Detection] = field(default_factory=list)
    targets: list[dict[str, float]] = field(default_factory=list)
    rejected: list[tuple[str, str]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    rejected_keys: list[str] = field(default_factory=list)
    complete: bool = False

    def __len__(self) -> int:
        return len(self.found)

    @property
    def warnings(self) -> list[str]:
        """One sentence for every structure whose group depends on the tolerance."""
        return [one.warning for one in self.found if one.warning]

    def target(self, column: str) -> np.ndarray:
        """The numbers of a column, NaN where a structure has none; `ValueError` for an unknown column."""
        known = sorted({key for row in self.targets for key in row})
        if column not in known:
            raise ValueError(f"no column {column!r}; there are {', '.join(known)}")
        return np.array([row.get(column, np.nan) for row in self.targets])

    def save(self, path: str | Path) -> None:
        """Write everything to one `.npz` file, whole or not at all."""
        found = self.found
        header = {
            "format": FORMAT,
            "settings": vars(self.settings),
            "complete": self.complete,
            "names": self.names,
            "keys": self.keys,
            "targets": self.targets,
            "rejected": self.rejected,
            "rejected_keys": self.rejected_keys,
        }
        with replacing(path) as temporary, open(temporary, "wb") as file:
            np.savez(
                file,
                header=np.frombuffer(json.dumps(header).encode(), np.uint8),
                hall_number=np.array([one.hall_number for one in found], np.int16),
                lattice=np.array([one.lattice for one in found]).reshape(-1, 3, 3),
                displacement=np.array([one.displacement for one in found]),
                number_at_loose=np.array(
                    [-1 if one.number_at_loose is None else one.number_at_loose for one in found], np.int16
                ),
                atoms=np.array([len(one.species) for one in found], np.int32),
                fractional=_join([one.fractional for one in found], (0, 3), float),
                species=_join([one.species for one in found], (0,), np.int16),
                orbit=_join([one.orbit for one in found], (0,), np.int32),
                given=np.array([len(one.atom_of) for one in found], np.int32),
                atom_of=_join([one.atom_of for one in found], (0,), np.int32),
            )

    @classmethod
    def load(cls, path: str | Path) -> PreparedSet:
        """Read a file made by `save`; `ValueError` when it is none."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {key: file[key] for key in file.files}
            header = json.loads(arrays["header"].tobytes())
            if header["format"] != FORMAT:
                raise ValueError(f"format {header['format']}")
        except FileNotFoundError:
            raise
        except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{path}: not a prepared set ({error}); make it with `sciml crystal prepare`"
            ) from None
        settings = Settings(**header["settings"])
        ends, given_ends = np.cumsum(arrays["atoms"]), np.cumsum(arrays["given"])
        found = []
        for i, name in enumerate(header["names"]):
            atoms = slice(ends[i] - arrays["atoms"][i], ends[i])
            given = slice(given_ends[i] - arrays["given"][i], given_ends[i])
            loose = int(arrays["number_at_loose"][i])
            found.append(
                Detection(
                    int(arrays["hall_number"][i]),
                    arrays["lattice"][i],
                    arrays["fractional"][atoms],
                    arrays["species"][atoms].astype(np.intc),
                    arrays["orbit"][atoms].astype(int),
                    arrays["atom_of"][given].astype(int),
                    float(arrays["displacement"][i]),
                    settings.symprec,
                    settings.loose_symprec,
                    None if loose < 0 else loose,
                    name,
                )
            )
        return cls(
            settings,
            header["names"],
            found,
            header["targets"],
            [(name, reason) for name, reason in header["rejected"]],
            header["keys"],
            header["rejected_keys"],
            header["complete"],
        )


def _join(arrays: Sequence[np.ndarray], empty: tuple[int, ...], dtype) -> np.ndarray:
    return np.concatenate(arrays).astype(dtype) if arrays else np.empty(empty, dtype)


def prepare(
    paths: Iterable[str | Path],
    out: str | Path,
    *,
    settings: Settings | None = None,
    processes: int = 1,
    time_limit: float = 20.0,
    structure_column: str | None = None,
    id_column: str | None = None,
    overwrite: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> PreparedSet:
    """Detect the symmetry of many structures and keep the result in one file.

    **Arguments:**

    - `paths`: files, folders, CSV or JSON tables; see `sciml.crystal.io.find_sources`.
    - `out`: the `.npz` file. Structures that it holds already are not computed again. `rejected.csv` is
      written beside it.
    - `settings`: tolerances and backend; default `Settings()`.
    - `processes`: number of worker processes.
    - `time_limit`: seconds per structure.
    - `overwrite`: start anew when `out` was made with other settings.
    - `progress`: called with (done, total).

    Raises `ValueError` when `out` is no prepared set or was made with other settings.
    """
    out = Path(out)
    settings = Settings() if settings is None else settings
    sources = list(find_sources(paths, structure_column=structure_column, id_column=id_column))
    keys = [_key(source) for source in sources]
    known: dict[str, tuple[Detection, dict[str, float]] | str] = {}
    if out.exists() and not overwrite:
        earlier = PreparedSet.load(out)
        if earlier.settings != settings:
            raise ValueError(f"{out} was made with {earlier.settings}; choose another file, or overwrite it")
        known |= {k: (f, t) for k, f, t in zip(earlier.keys, earlier.found, earlier.targets, strict=True)}
        known |= {k: reason for k, (_, reason) in zip(earlier.rejected_keys, earlier.rejected, strict=True)}
        if earlier.complete and set(known) == set(keys) and len(earlier) + len(earlier.rejected) == len(keys):
            if progress is not None:
                progress(len(keys), len(keys))
            return earlier

    missing = [i for i, key in enumerate(keys) if key not in known]
    next_save = time.monotonic() + SAVE_EVERY
    done = len(keys) - len(missing)
    tasks = ((sources[i], settings) for i in missing)
    for position, result in run_all(_prepare_one, tasks, processes=processes, time_limit=time_limit):
        source = sources[missing[position]]
        known[keys[missing[position]]] = (
            _reason(result, source.name) if isinstance(result, Exception) else (result, source.targets)
        )
        done += 1
        if progress is not None:
            progress(done, len(keys))
        if (now := time.monotonic()) > next_save:
            _gather(sources, keys, known, settings, complete=False).save(out)
            next_save = time.monotonic() + max(SAVE_EVERY, 20 * (time.monotonic() - now))
    prepared = _gather(sources, keys, known, settings, complete=True)
    prepared.save(out)
    _write_rejected(out.parent / "rejected.csv", prepared.rejected)
    return prepared


def _prepare_one(task: tuple[Source, Settings]) -> Detection:
    source, settings = task
    return detect(
        parse(source),
        symprec=settings.symprec,
        loose_symprec=settings.loose_symprec,
        backend=settings.backend,
    )


def _key(source: Source) -> str:
    """Identity of a structure: name and content."""
    content = source.payload
    if source.kind == "file":
        status = Path(content).stat()
        content = f"{status.st_size} {status.st_mtime_ns}"
    elif not isinstance(content, str):
        content = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(f"{source.name}\0{content}".encode()).hexdigest()[:24]


def _reason(error: Exception, name: str) -> str:
    text = str(error) if isinstance(error, (ValueError, TimeoutError)) else f"{type(error).__name__}: {error}"
    return " ".join(text.removeprefix(f"{name}: ").split())


def _gather(sources, keys, known, settings: Settings, *, complete: bool) -> PreparedSet:
    prepared = PreparedSet(settings, complete=complete)
    for source, key in zip(sources, keys, strict=True):
        result = known.get(key)
        if isinstance(result, str):
            prepared.rejected.append((source.name, result))
            prepared.rejected_keys.append(key)
        elif result is not None:
            prepared.names.append(source.name)
            prepared.keys.append(key)
            prepared.found.append(result[0])
            prepared.targets.append(result[1])
    return prepared


def _write_rejected(path: Path, rejected: list[tuple[str, str]]) -> None:
    with replacing(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["structure", "reason"])
        writer.writerows(rejected)
