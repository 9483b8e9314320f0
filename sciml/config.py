"""TOML files and command-line overrides into frozen dataclasses, and back.

A configuration is a frozen dataclass that lives next to what it builds. Its fields may be

- `bool`, `int`, `float`, `str`, `Path`, `Literal[...]`, any of them `| None` (written `"none"` in TOML),
- `tuple[X, ...]` and `tuple[X, Y]` (TOML arrays; on the command line a comma list), `dict[str, X]`,
- other dataclasses (TOML tables), and unions of dataclasses told apart by a field
  `kind: Literal["name"] = "name"`.

A table changes only what it names: the rest comes from the field's default. A field's documentation is
`dataclasses.field(default=..., metadata={"doc": "..."})`.
`load` reads a file and overrides, `dump_toml` writes the resolved configuration; `sciml.cli.arguments` reads
the command line. Every mistake is a `ConfigError` of one line: where, which key, what was expected.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, Union

T = TypeVar("T")


class ConfigError(ValueError):
    """A configuration that cannot be used; the message is one line that says where and why."""


class _Text(str):
    """A value from the command line: its type is known only when its field is."""


# ------------------------------------------------------------------------------------------ reading


def load(
    cls: type[T], path: str | Path | None = None, overrides: Mapping[str, str | bool] | None = None
) -> T:
    """Builds a `cls` from a TOML file and dotted overrides.

    **Arguments:**

    - `cls`: a dataclass.
    - `path`: the TOML file, or a run folder that holds `config.toml`; default none.
    - `overrides`: dotted key to text, e.g. `{"grid.cells": "400"}`; `bool` for a flag without a value.

    **Raises:** `ConfigError` for an unreadable file, an unknown key, a wrong type, a refused value.
    """
    source = "command line"
    data: dict[str, Any] = {}
    if path is not None:
        path = Path(path)
        path = path / "config.toml" if path.is_dir() else path
        source = str(path)
        try:
            data = tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ConfigError(f"{path}: no such file") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: not a TOML file: {error}") from None
    for key, text in (overrides or {}).items():
        _override(data, dotted_key(cls, key), text)
    return _dataclass(cls, data, "", source, None)


def dotted_key(cls: Any, name: str) -> str:
    """The key that a flag means: dashes are underscores, but not in names that a user chose for a table."""
    free = {leaf.key for leaf in leaves(cls) if typing.get_origin(leaf.hint) is dict}
    parts: list[str] = []
    for part in name.split("."):
        parts.append(part if ".".join(parts) in free else part.replace("-", "_"))
    return ".".join(parts)


def _override(data: dict[str, Any], dotted: str, text: str | bool) -> None:
    *tables, name = dotted.split(".")
    for table in tables:
        inner = data.setdefault(table, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"command line: --{dotted}: {table} is {_shown(inner)}, not a table")
        data = inner
    value = text if isinstance(text, bool) else _Text(text)
    if name == "kind" and data.get("kind", value) != value:
        data.clear()  # another kind has other fields: those of the file do not belong to it
    data[name] = value


def _dataclass(cls: Any, data: Any, key: str, source: str, default: Any) -> Any:
    if not isinstance(data, dict):
        raise ConfigError(_wrong(source, key, f"a table ({cls.__name__})", data))
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}
    hints = typing.get_type_hints(cls)
    if type(default) is not cls:
        default = None
    values = {}
    for name, value in data.items():
        dotted = f"{key}.{name}" if key else name
        if name not in fields:
            nested = [leaf.key for leaf in leaves(cls) if leaf.key.endswith(f".{name}")]
            known = nested if nested and not _nearest(name, list(fields)) else list(fields)
            raise ConfigError(f"{_where(source, dotted, value)}: {unknown_name('key', name, known)}")
        missing = getattr(default, name) if default is not None else _default(fields[name])
        values[name] = _convert(hints[name], value, dotted, source, missing)
    for name, field in fields.items():
        if name in values:
            continue
        if default is not None:
            values[name] = getattr(default, name)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            dotted = f"{key}.{name}" if key else name
            doc = f", {field.metadata['doc']}" if "doc" in field.metadata else ""
            raise ConfigError(f"{source}: {dotted} is missing: {type_name(hints[name])}{doc}")
    try:
        return cls(**values)
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError(f"{source}: {key}: {error}" if key else f"{source}: {error}") from error


def _default(field: dataclasses.Field[Any], missing: Any = None) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return missing if field.default is dataclasses.MISSING else field.default


def _convert(expected: Any, value: Any, key: str, source: str, default: Any = None) -> Any:
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    text = isinstance(value, _Text)
    wrong = _wrong(source, key, type_name(expected), value)
    if expected is Any:
        return str(value) if text else value
    if origin in (Union, types.UnionType):
        return _union(arguments, value, key, source, default, wrong)
    if dataclasses.is_dataclass(expected):
        return _dataclass(expected, value, key, source, default)
    if origin is Literal:
        for choice in arguments:
            if (str(choice) == value) if text else (choice == value and type(choice) is type(value)):
                return choice
        raise ConfigError(wrong + _nearest(str(value), [str(choice) for choice in arguments]))
    if origin is tuple:
        items = [_Text(item.strip()) for item in value.split(",") if item.strip()] if text else value
        if not isinstance(items, list):
            raise ConfigError(wrong)
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            arguments = (arguments[0],) * len(items)
        if len(items) != len(arguments):
            raise ConfigError(wrong)
        keys = [f"{key}[{i}]" for i in range(len(items))]
        return tuple(_convert(*each, source) for each in zip(arguments, items, keys, strict=True))
    if origin is dict:
        if not isinstance(value, dict):
            raise ConfigError(wrong)
        return {name: _convert(arguments[1], item, f"{key}.{name}", source) for name, item in value.items()}
    if text:
        value = _from_text(expected, str(value))
    if expected is float and type(value) is int:
        return float(value)
    if expected is Path and isinstance(value, str):
        return Path(value)
    if type(value) is expected:
        return value
    raise ConfigError(wrong)


def _union(members: tuple[Any, ...], value: Any, key: str, source: str, default: Any, wrong: str) -> Any:
    if type(None) in members and (value is None or (isinstance(value, str) and value.lower() == "none")):
        return None
    members = tuple(member for member in members if member is not type(None))
    if len(members) == 1:
        return _convert(members[0], value, key, source, default)
    if isinstance(value, dict):
        kinds = {kind_of(member): member for member in members if dataclasses.is_dataclass(member)}
        kind = value.get("kind", getattr(default, "kind", None))
        if kind not in kinds:
            got = "nothing" if kind is None else _shown(kind)
            choices = f"expected one of {', '.join(kinds)}, got {got}{_nearest(str(kind), list(kinds))}"
            raise ConfigError(f"{_where(source, f'{key}.kind', kind)}: {choices}")
        return _convert(kinds[kind], value, key, source, default)
    for member in members:
        try:
            return _convert(member, value, key, source)
        except ConfigError:
            continue
    raise ConfigError(wrong)


def _from_text(expected: Any, text: str) -> Any:
    if expected is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if expected in (int, float):
        try:
            return expected(text)
        except ValueError:
            return text
    return text


def kind_of(cls: Any) -> str:
    """The value of the field `kind` that marks a member of a tagged union."""
    (kind,) = typing.get_args(typing.get_type_hints(cls)["kind"])
    return kind


class Leaf(typing.NamedTuple):
    """One value below a dataclass: dotted key, type, default (`dataclasses.MISSING` without one), meaning."""

    key: str
    hint: Any
    default: Any
    doc: str


def leaves(cls: Any, key: str = "", default: Any = None) -> list[Leaf]:
    """Every value below a dataclass; of a union the fields of all its members."""
    found: list[Leaf] = []
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if not field.init:
            continue
        dotted, hint = f"{key}.{field.name}" if key else field.name, hints[field.name]
        value = (
            getattr(default, field.name) if isinstance(default, cls) else _default(field, dataclasses.MISSING)
        )
        members = typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)
        tables = [member for member in members if dataclasses.is_dataclass(member)]
        doc = field.metadata.get("doc", "")
        if not tables:
            found.append(Leaf(dotted, hint, value, doc))
        elif len(tables) > 1:
            kinds: Any = Literal[tuple(kind_of(table) for table in tables)]  # pyright: ignore
            found.append(Leaf(f"{dotted}.kind", kinds, getattr(value, "kind", value), doc))
        for table in tables:
            below = leaves(table, dotted, value)
            found += [leaf for leaf in below if len(tables) == 1 or leaf.key != f"{dotted}.kind"]
    return found


# ------------------------------------------------------------------------------------------ messages


def type_name(expected: Any) -> str:
    """The name of a field's type as a user would say it."""
    origin, arguments = typing.get_origin(expected), typing.get_args(expected)
    if origin in (Union, types.UnionType):
        return " or ".join("none" if member is type(None) else type_name(member) for member in arguments)
    if origin is Literal:
        return ("one of " if len(arguments) > 1 else "") + ", ".join(str(choice) for choice in arguments)
    if origin is tuple:
        names = [type_name(argument) for argument in arguments if argument is not Ellipsis]
        return f"list of {names[0]}" if Ellipsis in arguments else f"list ({', '.join(names)})"
    if origin is dict:
        return f"table of {type_name(arguments[1])}"
    names = {float: "number", int: "integer", str: "text", bool: "true or false", Path: "path"}
    name = names.get(expected, getattr(expected, "__name__", str(expected)))
    return f"table {name}" if dataclasses.is_dataclass(expected) else name


def unknown_name(what: str, name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    """One phrase that says that a name is not known and which known name is nearest.

    **Arguments:**

    - `what`: the kind of thing, e.g. `"scheme"`.
    - `name`: what was asked for.
    - `known`: the names that there are.
    """
    return f"unknown {what} {name!r}" + (_nearest(name, list(known)) or "; known: " + ", ".join(known))


def _nearest(name: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, known, 1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict | list):
        return {dict: "a table", list: "a list"}[type(value)]
    return repr(str(value)) if isinstance(value, str) else str(value)


def _from_command_line(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(_from_command_line(item) for item in value.values())
    return isinstance(value, _Text)


def _where(source: str, key: str, value: Any) -> str:
    return f"command line: --{key}" if _from_command_line(value) else f"{source}: {key}"


def _wrong(source: str, key: str, expected: str, value: Any) -> str:
    return f"{_where(source, key, value)}: expected {expected}, got {_shown(value)}"


# ------------------------------------------------------------------------------------------ writing


def dump_toml(config: Any) -> str:
    """The resolved configuration as TOML; `load` of it gives an equal object."""
    return "\n".join(_table(config, "")).strip() + "\n"


def _table(config: Any, key: str) -> list[str]:
    if isinstance(config, dict):
        items = list(config.items())
    else:
        items = [
            (field.name, getattr(config, field.name)) for field in dataclasses.fields(config) if field.init
        ]
    lines, below = [], []
    for name, value in items:
        bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
        name = name if bare else _value(name)
        dotted = f"{key}.{name}" if key else name
        if isinstance(value, dict) or dataclasses.is_dataclass(value):
            below += ["", f"[{dotted}]", *_table(value, dotted)]
        elif isinstance(value, tuple) and value and all(map(dataclasses.is_dataclass, value)):
            for item in value:
                below += ["", f"[[{dotted}]]", *_table(item, dotted)]
        else:
            lines.append(f"{name} = {_value(value)}")
    return lines + below


def _value(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str | Path):
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return f"[{', '.join(_value(item) for item in value)}]"
    raise ConfigError(f"a {type(value).__name__} cannot be written to a TOML file: {value!r}")
