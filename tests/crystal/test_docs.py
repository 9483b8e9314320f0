"""The examples in the documentation run as they stand there."""

import re
import shlex
from pathlib import Path

import pytest

from sciml.cli import main

PAGES = sorted((Path(__file__).resolve().parents[2] / "docs" / "crystal").glob("*.md"))

QUARTZ = """data_quartz
_cell_length_a 4.913
_cell_length_b 4.913
_cell_length_c 5.405
_cell_angle_alpha 90
_cell_angle_beta 90
_cell_angle_gamma 120
_space_group_name_H-M_alt 'P 32 2 1'
loop_
_atom_site_label
_atom_site_fract_x
_atom_site_fract_y
_atom_site_fract_z
Si1 0.4697 0 0.666667
O1 0.4133 0.2672 0.785467
"""


def fenced(page, language):
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


@pytest.fixture
def beside_structures(tmp_path, monkeypatch):
    """A folder with the files that the examples name."""
    monkeypatch.chdir(tmp_path)
    for name in ("quartz.cif", "structure.cif"):
        (tmp_path / name).write_text(QUARTZ)
    (tmp_path / "table.csv").write_text(f'material_id,cif\nq,"{QUARTZ}"\n')
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples(page, beside_structures):
    blocks = fenced(page, "python")
    assert blocks
    names = {}
    for block in blocks:  # later blocks go on where the earlier ones stopped
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands(page, beside_structures, capsys):
    lines = [line for block in fenced(page, "console") for line in block.splitlines()]
    commands = [shlex.split(line[2:], comments=True) for line in lines if line.startswith("$ sciml crystal")]
    assert commands
    for command in commands:
        if "--self-check" in command:  # has a test of its own
            continue
        assert main(command[1:]) == 0, command
        assert capsys.readouterr().out
