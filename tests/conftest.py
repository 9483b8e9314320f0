"""Before JAX is imported: four CPU devices, no grabbing of GPU memory, the data when they are near."""

import os
from pathlib import Path

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "4")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

_data = Path(__file__).resolve().parents[1].parent / "shared" / "data"
if _data.is_dir():
    os.environ.setdefault("SCIML_DATA", str(_data))

import jax  # noqa: E402
import pytest  # noqa: E402


@pytest.fixture
def x64():
    """float64 for the test that asks for it."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Both precisions, each in its own setting of JAX."""
    with jax.enable_x64(request.param == "float64"):
        yield request.param


@pytest.fixture(scope="session")
def data_folder():
    """The folder of measured data; the test is skipped when there is none."""
    folder = os.environ.get("SCIML_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("measured data absent: set SCIML_DATA to the folder that `sciml data list` describes")
    return Path(folder)
