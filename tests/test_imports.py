import subprocess
import sys

import pytest

HEAVY = ("matplotlib", "pymatgen", "spglib", "orbax", "flax", "h5py", "pandas", "pooch", "rich")
MODULES = (
    "sciml",
    "sciml.config",
    "sciml.crystal",
    "sciml.data",
    "sciml.fv",
    "sciml.plot",
    "sciml.report",
    "sciml.train",
    "sciml.typing",
)


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("module", MODULES)
def test_import_starts_nothing_and_changes_nothing(module):
    """No JAX backend, no root log handler, no changed JAX setting, no heavy package."""
    code = f"""
import logging, sys
import jax
before = dict(jax.config.values)
import {module}
from jax._src import xla_bridge
assert not xla_bridge.backends_are_initialized(), "a JAX backend was started"
assert not logging.root.handlers, logging.root.handlers
changed = {{k: v for k, v in jax.config.values.items() if before.get(k) != v}}
assert not changed, changed
heavy = [name for name in {HEAVY!r} if name in sys.modules]
assert not heavy, heavy
"""
    run(code)


def test_import_of_the_package_is_quick_and_lazy():
    code = """
import sys, time
start = time.perf_counter()
import sciml
seconds = time.perf_counter() - start
assert not {"jax", "numpy"} & set(sys.modules)
assert sciml.config.load and "sciml.config" in sys.modules
assert "train" in dir(sciml) and sciml.__version__
print(seconds)
"""
    assert min(float(run(code)) for _ in range(3)) <= 0.1


def test_unknown_attribute():
    import sciml

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        sciml.nothing  # noqa: B018
