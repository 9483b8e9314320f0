import json

import numpy as np
import pytest

from sciml.cli.arguments import ResumableRunOptions, RunOptions, open_run
from sciml.train.environment import environment
from sciml.train.run import Run, read_lines

CONFIG = 'law = "burgers"\n[grid]\ncells = 100\n'


def finished(path, text="first"):
    with Run.create(path, CONFIG) as run:
        run.write_metrics({"text": text})
    return path


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_run_holds_what_its_docstring_promises(tmp_path):
    with Run.create(tmp_path / "runs" / "a", CONFIG) as run:
        run.log({"step": 1, "loss": np.float32(0.5)})
        run.log({"step": 2, "loss": float("nan"), "list": [np.int64(1), np.ones(2)]})
        run.write_metrics({"l1": {"godunov": np.float64(1e-3), "bad": np.inf}})
        run.figure("a", b"\x89PNG")
    kept = names(run.path)
    assert kept == [
        "checkpoints",
        "config.toml",
        "environment.json",
        "figures",
        "metrics.json",
        "metrics.jsonl",
    ]
    assert (run.path / "config.toml").read_text() == CONFIG
    assert run.logged() == [{"step": 1, "loss": 0.5}, {"step": 2, "loss": None, "list": [1, [1.0, 1.0]]}]
    assert json.loads((run.path / "metrics.json").read_text()) == {"l1": {"godunov": 1e-3, "bad": None}}
    record = json.loads((run.path / "environment.json").read_text())
    assert record["finished"] >= record["started"] and record["packages"]["jax"] and record["devices"]
    assert names(run.path / "figures") == ["a.png"]


def test_environment_names_no_host_and_no_user():
    import getpass
    import socket

    text = json.dumps(environment())
    assert socket.gethostname() not in text.replace(json.dumps(environment()["platform"]), "")
    assert f"/home/{getpass.getuser()}" not in text


@pytest.mark.parametrize(
    "resume, remedies", [(None, "--out OTHER or --overwrite"), (False, "--overwrite or --resume")]
)
def test_an_existing_run_is_refused_with_the_remedies(tmp_path, resume, remedies):
    path = finished(tmp_path / "a")
    with pytest.raises(FileExistsError, match=remedies):
        Run.create(path, CONFIG, resume=resume)
    assert json.loads((path / "metrics.json").read_text()) == {"text": "first"}


def test_an_empty_folder_is_used_and_a_file_is_not(tmp_path):
    (tmp_path / "a").mkdir()
    Run.create(tmp_path / "a", CONFIG).finish()
    (tmp_path / "b").write_text("")
    with pytest.raises(FileExistsError, match="is a file"):
        Run.create(tmp_path / "b", CONFIG, overwrite=True)


def test_overwrite_keeps_the_old_run_until_the_new_one_has_finished(tmp_path):
    path = finished(tmp_path / "a")
    with Run.create(path, CONFIG, overwrite=True) as run:
        assert names(tmp_path) == ["a", "a.replaced-1"]
        run.write_metrics({"text": "second"})
    assert names(tmp_path) == ["a"]
    assert json.loads((path / "metrics.json").read_text()) == {"text": "second"}


def test_overwrite_that_fails_keeps_the_old_run_beside_it(tmp_path, capsys):
    path = finished(tmp_path / "a")
    with pytest.raises(ZeroDivisionError), Run.create(path, CONFIG, overwrite=True):
        raise ZeroDivisionError
    assert json.loads((tmp_path / "a.replaced-1" / "metrics.json").read_text()) == {"text": "first"}
    assert "a.replaced-1" in capsys.readouterr().err


@pytest.mark.parametrize("how", [{"overwrite": True}, {"resume": True}])
def test_a_folder_that_is_no_run_is_never_touched(tmp_path, how):
    (tmp_path / "thesis.tex").write_text("ten years")
    with pytest.raises(FileExistsError, match="no run folder"):
        Run.create(tmp_path, CONFIG, **how)
    assert names(tmp_path) == ["thesis.tex"]


def test_resume_wants_the_same_configuration_and_drops_later_lines(tmp_path):
    run = Run.create(tmp_path / "a", CONFIG)
    for step in (10, 20, 30):
        run.log({"step": step})
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"step": 4')  # cut short by a crash
    with pytest.raises(ValueError, match=r"grid\.cells is 100 there and 200 now"):
        Run.create(run.path, CONFIG.replace("100", "200"), resume=True)
    again = Run.create(run.path, CONFIG, resume=True)
    assert again.resumed and not run.resumed
    again.forget_after(20)
    assert read_lines(run.path / "metrics.jsonl") == [{"step": 10}, {"step": 20}]
    assert not Run.create(tmp_path / "new", CONFIG, resume=True).resumed


def test_open_run_takes_the_folder_from_the_options(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = RunOptions()
    assert open_run(options, options, "fv-solve").path.resolve() == tmp_path / "runs" / "fv-solve"
    with pytest.raises(FileExistsError, match="--out OTHER or --overwrite"):
        open_run(options, options, "fv-solve")
    assert open_run(ResumableRunOptions(resume=True), options, "fv-solve").resumed
    assert open_run(RunOptions(out=tmp_path / "b"), options, "fv-solve").path == tmp_path / "b"
