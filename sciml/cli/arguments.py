"""The command line of a verb: `[CONFIG.toml] [--key value | --key=value | --flag | --no-flag]...`.

`parse_arguments` gives the configuration and the options that say where results go; `help_text` lists all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sciml.config import ConfigError, dotted_key, dump_toml, leaves, load, type_name, unknown_name

if TYPE_CHECKING:
    from sciml.train.run import Run

C = TypeVar("C")
R = TypeVar("R")


class HelpRequested(Exception):  # noqa: N818
    """`--help` stood on the command line; the text is the message."""


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Where a command puts its results; these are no part of the configuration."""

    out: Path | None = dataclasses.field(default=None, metadata={"doc": "run folder; default runs/NAME"})
    overwrite: bool = dataclasses.field(default=False, metadata={"doc": "replace an existing run folder"})


@dataclasses.dataclass(frozen=True)
class ResumableRunOptions:
    """`RunOptions` of a command that can go on where an earlier call of it stopped."""

    out: Path | None = dataclasses.field(default=None, metadata={"doc": "run folder; default runs/NAME"})
    overwrite: bool = dataclasses.field(default=False, metadata={"doc": "replace an existing run folder"})
    resume: bool = dataclasses.field(default=False, metadata={"doc": "go on in an existing run folder"})


def open_run(options: RunOptions | ResumableRunOptions, config: Any, name: str) -> Run:
    """Opens the run folder of a command, by default `runs/NAME`, with the resolved configuration in it."""
    from sciml.train.run import Run

    resume = getattr(options, "resume", None)
    folder = options.out or Path("runs") / name
    return Run.create(folder, dump_toml(config), overwrite=options.overwrite, resume=resume)


def parse_arguments(
    argv: Sequence[str], cls: type[C], options: type[R] = RunOptions, *, command: str, about: str = ""
) -> tuple[C, R, Path | None]:
    """Reads what follows a verb on the command line.

    **Arguments:**

    - `argv`: what follows the verb.
    - `cls`: the dataclass of the configuration.
    - `options`: a flat dataclass of flags that are not configuration (where results go).
    - `command`, `about`: for `--help`, e.g. `"fv solve"` and one sentence.

    **Returns:** the configuration, the options, and the path of the configuration file (`None` without one).

    **Raises:** `HelpRequested` for `--help`, `ConfigError` for everything that is wrong.
    """
    paths: list[str] = []
    flags: dict[str, str | bool] = {}
    tokens = list(argv)
    booleans = _boolean_keys(cls) | _boolean_keys(options)
    while tokens:
        token = tokens.pop(0)
        if token in ("--help", "-h"):
            raise HelpRequested(help_text(cls, options, command=command, about=about))
        if not token.startswith("--"):
            paths.append(token)
            continue
        name, equals, text = token[2:].partition("=")
        key = dotted_key(cls, name)
        if equals:
            flags[key] = text
        elif key in booleans:
            flags[key] = tokens.pop(0) if tokens and tokens[0].lower() in ("true", "false") else True
        elif _negated(key) in booleans:
            flags[_negated(key)] = False
        elif tokens and not tokens[0].startswith("--"):
            flags[key] = tokens.pop(0)
        else:
            known = [*_dotted_keys(cls), *_dotted_keys(options)]
            tables = [table.rpartition(".")[0] for table in known]
            problem = "needs a value" if key in known else unknown_name("key", key, [*known, *tables])
            raise ConfigError(f"command line: --{name}: {problem}")
    if len(paths) > 1:
        raise ConfigError(f"command line: one configuration file is expected, got {' '.join(paths)}")
    names = {field.name for field in dataclasses.fields(options)}  # pyright: ignore[reportArgumentType]
    chosen = {key: flags.pop(key) for key in list(flags) if key in names}
    path = Path(paths[0]) if paths else None
    return load(cls, path, flags), load(options, None, chosen), path


def _negated(key: str) -> str:
    """`no_flag` -> `flag`, and `grid.no_flag` -> `grid.flag`."""
    table, dot, name = key.rpartition(".")
    return table + dot + name.removeprefix("no_") if name.startswith("no_") else ""


def _dotted_keys(cls: Any) -> list[str]:
    return list(dict.fromkeys(leaf.key for leaf in leaves(cls)))


def _boolean_keys(cls: Any) -> set[str]:
    return {leaf.key for leaf in leaves(cls) if leaf.hint is bool}


def help_text(cls: type, options: type = RunOptions, *, command: str, about: str = "") -> str:
    """Every key of a verb with its type, default and documentation."""
    lines = [f"sciml {command} [CONFIG.toml] [--key value]...", ""]
    lines += [about, ""] if about else []
    for title, part in (("configuration", cls), ("where results go", options)):
        keys = leaves(part)
        lines += [f"{title}:"] if keys else []
        for leaf in keys:
            shown = (
                "required" if leaf.default is dataclasses.MISSING else f"default {_help_value(leaf.default)}"
            )
            lines.append(f"  --{leaf.key:<28} {type_name(leaf.hint)}; {shown}")
            lines += [f"      {leaf.doc}"] if leaf.doc else []
        lines += [""] if keys else []
    lines.append("also: --x64, --platform NAME, --devices N, --cache FOLDER, --debug (see sciml --help)")
    return "\n".join(lines)


def _help_value(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(_help_value(item) for item in value) or "empty"
    if dataclasses.is_dataclass(value):
        return type(value).__name__
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
