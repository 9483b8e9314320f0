import random
import subprocess
import sys
import time
from pathlib import Path

from sciml.train.run import read_lines

SCRIPT = Path(__file__).with_name("small_run.py")


def start(folder):
    return subprocess.Popen([sys.executable, str(SCRIPT), str(folder)], stdout=subprocess.PIPE, text=True)


def run_to_the_end(folder):
    with start(folder) as process:
        process.communicate(timeout=300)
    assert process.returncode == 0


def results(folder):
    """All that a run leaves behind, without what depends on the clock."""
    lines = read_lines(folder / "metrics.jsonl")
    for line in lines:
        line.pop("updates_per_second")
    return (folder / "last.eqx").read_bytes(), (folder / "best.eqx").read_bytes(), lines


def kill_after(folder, lines, jitter):
    """Starts or resumes a run and kills it some time after its log has reached a number of lines."""
    with start(folder) as process:
        while process.poll() is None and len(read_lines(folder / "metrics.jsonl")) < lines:
            time.sleep(0.002)
        time.sleep(jitter)
        process.kill()
    return process.returncode


def test_a_run_killed_at_any_moment_ends_with_the_same_bits(tmp_path):
    run_to_the_end(tmp_path / "whole")
    chance = random.SystemRandom()
    for lines in (chance.randint(0, 19), chance.randint(20, 38)):
        status = kill_after(tmp_path / "killed", lines, chance.uniform(0, 0.1))
        print(f"killed (status {status}) after line {lines}")
    run_to_the_end(tmp_path / "killed")
    assert results(tmp_path / "killed") == results(tmp_path / "whole")
    assert [line["step"] for line in results(tmp_path / "whole")[2]] == list(range(10, 401, 10))
