"""Checkpoints of a run (orbax) and files of released models (equinox leaves behind a JSON line).

`Checkpoints` keeps the last few states of a run and never offers a half-written one. `save_model` and
`load_model` are for weights that outlive a run. Both hold arrays only and read no pickle. This is the only
file that knows orbax.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from sciml.files import replacing

_FORMAT = "sciml model 1"


@contextmanager
def _root_logger_as_it_was() -> Iterator[None]:
    """orbax logs through absl, which puts a handler on a root logger that has none: give it one meanwhile."""
    placeholder = logging.NullHandler()
    logging.root.addHandler(placeholder)
    try:
        yield
    finally:
        logging.root.removeHandler(placeholder)


class Checkpoints:
    """The last few states of a run in a folder; use it in a `with` block or call `close`.

    **Arguments:**

    - `folder`: made when it is absent.
    - `keep`: number of states kept.
    """

    def __init__(self, folder: str | Path, *, keep: int = 2):
        self.folder = Path(folder).absolute()
        self._logging = ExitStack()
        self._logging.enter_context(_root_logger_as_it_was())
        import orbax.checkpoint as orbax

        options = orbax.CheckpointManagerOptions(max_to_keep=keep, create=True, step_prefix="step")
        handler = orbax.StandardCheckpointHandler()
        self._manager = orbax.CheckpointManager(self.folder, options=options, item_handlers=handler)
        self._args = orbax.args

    def save(self, step: int, tree: PyTree) -> None:
        """Begins to write the arrays of a pytree; returns as soon as they may change again."""
        if step not in self._manager.all_steps():
            copies = {name: jnp.copy(leaf) for name, leaf in _named_arrays(tree).items()}
            self._manager.save(step, args=self._args.StandardSave(copies), force=True)

    def latest(self) -> int | None:
        """The step of the newest complete checkpoint, or `None`."""
        return self._manager.latest_step()

    def restore(self, like: PyTree, step: int | None = None) -> PyTree:
        """The pytree with the saved arrays, placed on devices as those of `like` are.

        **Arguments:**

        - `like`: pytree of the same structure; what is not an array is taken from it.
        - `step`: default the newest.

        **Raises:** `FileNotFoundError` without a checkpoint, `ValueError` naming the first array whose name,
        shape or dtype is another one.
        """
        step = self.latest() if step is None else step
        if step is None:
            raise FileNotFoundError(f"{self.folder} holds no complete checkpoint")
        wanted = _named_arrays(like)
        saved = self._manager.item_metadata(step)
        _check_same(
            f"{self.folder}, step {step}",
            {name: (tuple(leaf.shape), str(leaf.dtype)) for name, leaf in saved.items()},
            {name: (leaf.shape, str(leaf.dtype)) for name, leaf in wanted.items()},
        )
        abstract = {
            name: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=getattr(leaf, "sharding", None))
            for name, leaf in wanted.items()
        }
        found = self._manager.restore(step, args=self._args.StandardRestore(abstract))
        return _with_arrays(like, dict(found))

    def wait(self) -> None:
        """Returns when everything is on disk."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits and frees what orbax holds."""
        self._manager.close()
        self._logging.close()

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()


def save_model(path: str | Path, model: PyTree, config: dict[str, Any]) -> Path:
    """Writes a model whole or not at all.

    **Arguments:**

    - `path`: file name; `.eqx` is the usual suffix.
    - `model`: pytree; its arrays are written, all else must follow from `config`.
    - `config`: JSON values from which the model can be built again.
    """
    import sciml

    leaves = {name: [list(leaf.shape), str(leaf.dtype)] for name, leaf in _named_arrays(model).items()}
    header = {"format": _FORMAT, "sciml": sciml.__version__, "config": config, "leaves": leaves}
    with replacing(path) as temporary, open(temporary, "wb") as file:
        file.write((json.dumps(header) + "\n").encode())
        for leaf in _named_arrays(model).values():
            np.save(file, np.asarray(leaf), allow_pickle=False)
    return Path(path)


def read_header(path: str | Path) -> dict[str, Any]:
    """The JSON line of a model file: `config`, `sciml` (version), `leaves`."""
    path = Path(path)
    with open(path, "rb") as file:
        line = file.readline(10_000_000)
    try:
        header = json.loads(line)
        if header["format"] != _FORMAT:
            raise ValueError(header["format"])
    except (ValueError, KeyError, TypeError, UnicodeDecodeError):
        raise ValueError(f"{path}: not a model file ({_FORMAT!r} expected in its first line)") from None
    return header


def load_model(path: str | Path, build: Callable[[dict[str, Any]], PyTree], *, dtype: Any = None) -> PyTree:
    """Reads a released model.

    **Arguments:**

    - `path`: file written by `save_model`.
    - `build`: makes a model of the right structure from the file's `config`; its weights are not used.
    - `dtype`: convert floating arrays to it; without it the model that `build` makes must have the dtypes of
      the file.

    **Raises:** `ValueError` naming the file and the first array whose name, shape or dtype does not fit, or
    the configuration that `build` refuses.
    """
    path, header = Path(path), read_header(path)
    try:
        like = eqx.filter_eval_shape(build, header["config"])
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path}: no model can be built from its config: {error}") from error
    wanted = {
        name: (leaf.shape, str(leaf.dtype))
        for name, leaf in _named_arrays(like, jax.ShapeDtypeStruct).items()
    }
    there = {name: (tuple(shape), kind) for name, (shape, kind) in header["leaves"].items()}
    if dtype is not None:
        wanted = {name: (shape, there.get(name, (shape, kind))[1]) for name, (shape, kind) in wanted.items()}
    _check_same(str(path), there, wanted)
    arrays = {}
    with open(path, "rb") as file:
        file.readline()
        for name in there:
            try:
                array = np.load(file, allow_pickle=False)
            except (ValueError, EOFError, OSError):
                raise ValueError(f"{path}: cut short at {name}") from None
            inexact = np.issubdtype(array.dtype, np.inexact) and dtype is not None
            arrays[name] = jnp.asarray(array, dtype if inexact else None)
    return _with_arrays(like, arrays, jax.ShapeDtypeStruct)


def _named_arrays(tree: PyTree, kind: Any = None) -> dict[str, Any]:
    """Path to array of every array of a pytree, in its order."""
    wanted = eqx.is_array if kind is None else lambda leaf: isinstance(leaf, kind)
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): leaf for path, leaf in leaves if wanted(leaf)}


def _with_arrays(tree: PyTree, arrays: dict[str, Any], kind: Any = None) -> PyTree:
    names = _named_arrays(tree, kind)
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: arrays[name] if (name := jax.tree_util.keystr(path)) in names else leaf, tree
    )


def _check_same(where: str, there: dict[str, Any], here: dict[str, Any]) -> None:
    for name in [*there, *here]:
        if name not in here or name not in there:
            owner, other = ("the file", "the model") if name in there else ("the model", "the file")
            raise ValueError(f"{where}: {name} is in {owner} and not in {other}; the configurations differ")
        if there[name] != here[name]:
            shown = [f"{kind}{list(shape)}" for shape, kind in (there[name], here[name])]
            raise ValueError(f"{where}: {name} is {shown[0]} in the file and {shown[1]} in the model")
