"""Experiments: their smoke versions run, and every configuration says a command that reads it."""

import importlib.util
import json
import shlex
import sys
from pathlib import Path

import jax
import pytest

from sciml.cli import main

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
CONFIGS = sorted(EXPERIMENTS.rglob("*.toml"))


def command(path: Path) -> list[str]:
    """The words of the command in the first comment lines of a configuration."""
    for line in path.read_text(encoding="utf-8").splitlines():
        words = shlex.split(line.lstrip("# "))
        if words[:1] in (["sciml"], ["python"]):
            return words
    raise AssertionError(f"{path.name}: no command in its comments")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_every_configuration_names_its_command(path):
    words = command(path)
    assert f"experiments/{path.relative_to(EXPERIMENTS).as_posix()}" in words and "--out" in words
    if words[0] == "python":
        assert (EXPERIMENTS.parent / words[1]).is_file()


@pytest.mark.parametrize("name", ["fv/sweeps", "fv/weak_form"])
def test_smoke_versions_run(name, tmp_path, monkeypatch, capsys):
    path = EXPERIMENTS / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"experiment_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, script)  # type hints are looked up there
    spec.loader.exec_module(script)
    try:
        assert script.main([str(path.with_suffix(".smoke.toml")), "--out", str(tmp_path / "run")]) == 0
    finally:
        jax.config.update("jax_enable_x64", False)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert list((tmp_path / "run" / "figures").glob("*.png")) and (tmp_path / "run" / "report.html").is_file()
    assert "report:" in capsys.readouterr().out


@pytest.mark.parametrize("path", [p for p in CONFIGS if command(p)[0] == "sciml"], ids=lambda path: path.stem)
def test_configurations_are_read_by_their_command(path, capsys):
    words = command(path)
    config = next(word for word in words if word.startswith("experiments/"))
    verb = words[1 : words.index(config)]
    assert main([*verb, str(EXPERIMENTS.parent / config), "--no-such-key", "1"]) != 0
    error = capsys.readouterr().err
    assert "no-such-key" in error or "no_such_key" in error  # the file itself has been read without complaint
