"""Networks with the structure of the problem built in: conservation laws, crystals, tomography.

`sciml.fv`       hyperbolic conservation laws: finite volumes whose numerical flux may be a network
`sciml.crystal`  space-group-adapted Fourier bases and models on crystals
`sciml.ct`       sparse-view tomography: projectors, classical reconstructions, adaptive bins
`sciml.train`    domain-free training: `fit`, checkpoints, run folders
`sciml.data`     registry of public data sets; `sciml.plot`, `sciml.report` show results
`sciml.config`   TOML files and command-line overrides into frozen dataclasses

Sub-packages load when they are first named, so that `import sciml` is quick and starts no JAX backend.
"""

from __future__ import annotations

import importlib
from typing import Any

_SUBPACKAGES = ("config", "crystal", "ct", "data", "fv", "interop", "plot", "report", "train", "typing")

__all__ = ["__version__", *_SUBPACKAGES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    raise AttributeError(f"module 'sciml' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
