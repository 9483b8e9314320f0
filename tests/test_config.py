import dataclasses
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sciml.cli.arguments import HelpRequested, ResumableRunOptions, RunOptions, help_text, parse_arguments
from sciml.config import ConfigError, dump_toml, load


@dataclasses.dataclass(frozen=True)
class Grid:
    cells: int = 100
    lower: float = dataclasses.field(default=0.0, metadata={"doc": "left end (m)"})

    def __post_init__(self):
        if self.cells < 2:
            raise ValueError(f"cells is {self.cells}; at least 2 are needed")


@dataclasses.dataclass(frozen=True)
class Muscl:
    kind: Literal["muscl"] = "muscl"
    limiter: Literal["mc", "minmod"] = "mc"


@dataclasses.dataclass(frozen=True)
class Weno:
    kind: Literal["weno"] = "weno"
    order: int = 5
    epsilon: float = 1e-6


@dataclasses.dataclass(frozen=True)
class Config:
    law: str
    grid: Grid = Grid(cells=50)
    scheme: Muscl | Weno = Muscl(limiter="minmod")
    stages: tuple[Weno, ...] = (Weno(), Weno(order=3))
    schemes: tuple[str, ...] = ("a", "b")
    window: tuple[float, float] = (0.0, 1.0)
    end: float | None = None
    plot: bool = True
    file: Path | None = None
    table: dict[str, float] = dataclasses.field(default_factory=dict)


def parsed(line: str, folder: Path | None = None, toml: str | None = None) -> Config:
    argv = line.split()
    if toml is not None and folder is not None:
        (folder / "c.toml").write_text(toml)
        argv = [str(folder / "c.toml"), *argv]
    return parse_arguments(argv, Config, command="x")[0]


def test_defaults_file_and_overrides(tmp_path):
    config = parsed("--grid.cells 400", tmp_path, 'law = "burgers"\n[grid]\nlower = 1\n')
    assert config == Config("burgers", Grid(400, 1.0))


@pytest.mark.parametrize(
    "line, expected",
    [
        ("--grid.cells 400", {"grid": Grid(400)}),
        ("--grid.cells=400", {"grid": Grid(400)}),
        ("--grid.lower -1e-3", {"grid": Grid(50, -1e-3)}),  # what is not named stays as the field's default
        ("--schemes a,b,c", {"schemes": ("a", "b", "c")}),
        ("--schemes=", {"schemes": ()}),
        ("--window 2,3.5", {"window": (2.0, 3.5)}),
        ("--no-plot", {"plot": False}),
        ("--plot", {"plot": True}),
        ("--plot=false", {"plot": False}),
        ("--end 3", {"end": 3.0}),
        ("--end none", {"end": None}),
        ("--file a/b.nc", {"file": Path("a/b.nc")}),
        ("--scheme.kind weno", {"scheme": Weno()}),
        ("--scheme.kind weno --scheme.order 3", {"scheme": Weno(order=3)}),
        ("--scheme.limiter mc", {"scheme": Muscl(limiter="mc")}),
        ("--table.a 1 --table.b 2", {"table": {"a": 1.0, "b": 2.0}}),
    ],
)
def test_override(line, expected):
    assert parsed(f"--law burgers {line}") == dataclasses.replace(Config("burgers"), **expected)


def test_another_kind_drops_the_fields_of_the_file(tmp_path):
    toml = 'law = "x"\n[scheme]\nkind = "muscl"\nlimiter = "mc"\n'
    assert parsed("--scheme.kind weno", tmp_path, toml).scheme == Weno()


@pytest.mark.parametrize(
    "toml, words",
    [
        ("[grid]\ncell = 3", ["grid.cell", "did you mean 'cells'"]),
        ('[grid]\ncells = "many"', ["grid.cells", "expected integer", "got 'many'"]),
        ("[grid]\ncells = true", ["grid.cells", "expected integer", "got true"]),
        ("[grid]\ncells = 2.5", ["grid.cells", "expected integer", "got 2.5"]),
        ("grid = 3", ["grid", "expected a table", "got 3"]),
        ("[grid]\ncells = 1", ["grid", "cells is 1", "at least 2"]),
        ('[scheme]\nkind = "wino"', ["scheme.kind", "got 'wino'", "did you mean 'weno'"]),
        ('[scheme]\nlimiter = "minmd"', ["scheme.limiter", "one of mc, minmod", "did you mean 'minmod'"]),
        ('[scheme]\nkind = "weno"\nlimiter = "mc"', ["scheme.limiter", "unknown key"]),
        ("window = [1.0]", ["window", "list (number, number)", "got a list"]),
        ('schemes = "a"', ["schemes", "list of text", "got 'a'"]),
        ("schemes = [1]", ["schemes[0]", "expected text", "got 1"]),
        ('[[stages]]\norder = "x"', ["stages[0].order", "expected integer"]),
        ('plot = "yes"', ["plot", "true or false"]),
        ("schems = []", ["schems", "did you mean 'schemes'"]),
        ("= 3", ["not a TOML file"]),
    ],
)
def test_mistake_in_a_file_is_one_line_with_file_and_key(tmp_path, toml, words):
    with pytest.raises(ConfigError) as error:
        parsed("", tmp_path, f'law = "x"\n{toml}' if not toml.startswith("=") else toml)
    message = str(error.value)
    assert "\n" not in message
    for word in [str(tmp_path / "c.toml"), *words]:
        assert word in message


@pytest.mark.parametrize(
    "line, words",
    [
        ("--grid.cell 3", ["command line: --grid.cell", "did you mean 'cells'"]),
        ("--grid.cells x", ["command line: --grid.cells", "expected integer", "got 'x'"]),
        ("--grid.cells", ["--grid.cells", "needs a value"]),
        ("--grdi 3", ["--grdi", "did you mean 'grid'"]),
        ("--grdi", ["--grdi", "did you mean 'grid'"]),
        ("--cells 3", ["--cells", "did you mean 'grid.cells'"]),
        ("--law.name 3", ["--law.name", "not a table"]),
        ("--plot=maybe", ["--plot", "true or false"]),
        ("--scheme.kind wino", ["--scheme.kind", "did you mean 'weno'"]),
        ("a.toml b.toml", ["one configuration file"]),
    ],
)
def test_mistake_on_the_command_line(line, words):
    with pytest.raises(ConfigError) as error:
        parsed(f"--law x {line}")
    for word in words:
        assert word in str(error.value)


def test_missing_key_and_missing_file(tmp_path):
    with pytest.raises(ConfigError, match="law is missing: text"):
        parsed("")
    with pytest.raises(ConfigError, match=r"none\.toml: no such file"):
        parsed(f"{tmp_path}/none.toml")


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
number = st.floats(allow_nan=False)


@settings(deadline=None)
@given(
    st.builds(
        Config,
        law=text,
        grid=st.builds(Grid, cells=st.integers(2, 10**12), lower=number),
        scheme=st.builds(Muscl, limiter=st.sampled_from(["mc", "minmod"])) | st.builds(Weno, epsilon=number),
        stages=st.lists(st.builds(Weno, order=st.integers()), max_size=3).map(tuple),
        schemes=st.lists(text, max_size=3).map(tuple),
        window=st.tuples(number, number),
        end=st.none() | number,
        plot=st.booleans(),
        file=st.none() | st.sampled_from([Path("a/b"), Path('we"ird\\name')]),
        table=st.dictionaries(text, number, max_size=3),
    )
)
def test_what_is_written_is_read_back(tmp_path_factory, config):
    path = tmp_path_factory.mktemp("config") / "config.toml"
    path.write_text(dump_toml(config), encoding="utf-8", newline="")
    assert load(Config, path) == config
    assert load(Config, path.parent) == config  # a run folder


def test_options_are_no_configuration():
    argv = ["--law", "x", "--out", "runs/a", "--overwrite", "--resume"]
    config, options, path = parse_arguments(argv, Config, ResumableRunOptions, command="x")
    assert (config, path) == (Config("x"), None)
    assert options == ResumableRunOptions(Path("runs/a"), overwrite=True, resume=True)
    with pytest.raises(ConfigError, match="resume"):
        parse_arguments(argv, Config, RunOptions, command="x")


def test_help_lists_every_key():
    shown = help_text(Config, command="fv solve", about="One sentence.")
    for words in ("sciml fv solve", "One sentence.", "--grid.cells", "default 50", "left end (m)", "--law"):
        assert words in shown
    for words in (
        "one of muscl, weno",
        "--scheme.order",
        "--scheme.limiter",
        "--out",
        "required",
        "default a,b",
    ):
        assert words in shown
    with pytest.raises(HelpRequested):
        parsed("--help")


@dataclasses.dataclass(frozen=True)
class Tables:
    mask_of: dict[str, str] = dataclasses.field(default_factory=dict)
    inner: Grid = Grid()


def test_names_in_a_table_of_the_users_keep_their_dashes():
    config, _, _ = parse_arguments(["--mask-of.11-21", "0-3", "--inner.cells=7"], Tables, command="x")
    assert config.mask_of == {"11-21": "0-3"} and config.inner.cells == 7
