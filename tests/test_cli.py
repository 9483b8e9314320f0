import os
import signal
import subprocess
import sys
import time

import pytest

from sciml import cli
from sciml.cli.runtime import pop_runtime_flags, prepare_jax
from sciml.config import ConfigError

BARE = {key: value for key, value in os.environ.items() if not key.startswith(("JAX_", "XLA_"))}


def sciml(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "sciml", *arguments],
        capture_output=True,
        text=True,
        env=BARE | environment,
        timeout=120,
    )


def test_help_names_every_verb_without_jax():
    started = time.perf_counter()
    done = sciml("--help")
    seconds = time.perf_counter() - started
    assert done.returncode == 0 and done.stderr == ""
    assert all(f"sciml {verb}" in done.stdout for verb in cli.VERBS)
    assert seconds < 3  # about 0.1 s on an idle machine; importing JAX would take more
    code = "import sys, sciml.cli; sciml.cli.main(['--help']); assert not {'jax', 'numpy'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, timeout=60).returncode == 0


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_exists_and_has_help(verb, capsys):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["sciml", *verb.split(), "--help"])
        try:
            status = cli.main()
        except SystemExit as end:  # argparse
            status = end.code
    assert status == 0
    assert "sciml" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line, words",
    [
        ("dta list", ["unknown verb 'dta'", "did you mean 'data'"]),
        ("data lst", ["unknown verb 'data lst'", "did you mean 'data list'"]),
        ("data", ["needs a verb", "list, get, verify"]),
        ("info --platform abacus", ["--platform", "expected one of cpu", "'abacus'"]),
        ("info --devices many", ["--devices", "positive integer"]),
        ("info --cache", ["--cache", "needs a value"]),
        ("data get nothing", ["unknown data set or file 'nothing'"]),
    ],
)
def test_bad_input_is_one_line_and_status_2(line, words, capsys):
    assert cli.main(line.split()) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.startswith("error: ") and shown.err.count("\n") == 1
    assert all(word in shown.err for word in words)


def test_debug_shows_the_traceback():
    done = sciml("data", "get", "nothing", "--debug")
    assert done.returncode == 1 and "Traceback" in done.stderr and "nothing" in done.stderr


def test_missing_optional_package_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(cli.VERBS, "broken", ("tests_no_such_module:run", ""))
    assert cli.main(["broken"]) == 2
    assert "No module named 'tests_no_such_module'" in capsys.readouterr().err
    error = ModuleNotFoundError("No module named 'pymatgen.core'", name="pymatgen.core")
    assert cli._one_line(error) == "pymatgen.core is not installed; pip install 'sciml[crystal]'"


def test_interrupt_is_one_line_and_status_130():
    code = (
        "import sys, types, time, sciml.cli as cli\n"
        "module = types.ModuleType('sleeper')\n"
        "def run(argv): print('ready', flush=True); time.sleep(60)\n"
        "module.run = run; sys.modules['sleeper'] = module\n"
        "cli.VERBS['sleep'] = ('sleeper:run', '')\n"
        "sys.exit(cli.main(['sleep']))\n"
    )
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(command, text=True, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == "interrupted\n"


def test_reader_that_goes_away_is_no_error():
    code = f"{sys.executable} -m sciml data list | head -1; echo ${{PIPESTATUS[0]}} >&2"
    done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, timeout=60)
    assert "NAME" in done.stdout and "Traceback" not in done.stderr and "Exception" not in done.stderr


@pytest.mark.parametrize(
    "arguments, environment, words",
    [
        ([], {}, ["float32"]),
        (["--x64"], {}, ["float64"]),
        (["--devices", "3"], {}, ["cpu:2 ", "float32"]),
        ([], {"JAX_NUM_CPU_DEVICES": "5"}, ["cpu:4 "]),
        ([], {"XLA_FLAGS": "--xla_force_host_platform_device_count=6"}, ["cpu:5 "]),
    ],
)
def test_info_and_the_runtime_flags(arguments, environment, words):
    done = sciml("info", "--platform", "cpu", *arguments, **environment)
    assert done.returncode == 0, done.stderr
    assert all(word in done.stdout for word in ["jax", "devices", *words])


def test_flags_may_stand_anywhere():
    rest, _ = pop_runtime_flags(["fv", "solve", "--x64", "a.toml", "--platform=cpu", "--grid.cells", "4"])
    assert rest == ["fv", "solve", "a.toml", "--grid.cells", "4"]
    with pytest.raises(ConfigError):
        pop_runtime_flags(["--platform", "--x64"])


def test_a_setting_that_comes_too_late_is_an_error():
    import jax  # noqa: F401

    with pytest.raises(RuntimeError, match="JAX is already imported"):
        prepare_jax(x64=True)
    prepare_jax()  # nothing asked for: nothing to complain about
