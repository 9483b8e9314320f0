"""Double precision for the tests of numerics that ask for it by `pytest.mark.usefixtures("x64")`."""

import jax
import pytest


@pytest.fixture
def x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Both precisions, each with the setting of JAX under which it is the default."""
    with jax.enable_x64(request.param == "float64"):
        yield request.param
