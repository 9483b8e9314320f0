"""`sciml info`: versions, devices, precision, cores and folders: what to send along with a question."""

from __future__ import annotations

import argparse
import os

from sciml.cli.runtime import cores
from sciml.files import cache_folder


def info(argv: list[str]) -> int:
    """Prints what a result on this machine depends on."""
    argparse.ArgumentParser("sciml info", description="Versions, devices, precision, folders.").parse_args(
        argv
    )
    import jax
    import jax.numpy as jnp

    from sciml.train.environment import environment

    found = environment()
    data, cache = os.environ.get("SCIML_DATA"), cache_folder()
    compiled = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    lines = [
        ("python", found["python"]),
        *found["packages"].items(),
        ("platform", found["platform"]),
        ("processor", found["cpu"]),
        ("cores", str(cores())),
        ("devices", ", ".join(found["devices"])),
        ("default device", str(jax.devices()[0])),
        ("precision", str(jnp.zeros(()).dtype)),
        ("data folder", _folder(data) if data else "SCIML_DATA is not set"),
        ("cache", _folder(str(cache))),
        ("compiled programs", compiled or "not kept (--cache default keeps them)"),
        ("commit", found["commit"] or "an installed copy, or no git"),
    ]
    width = max(len(name) for name, _ in lines)
    for name, value in lines:
        print(f"{name:<{width}}  {value}")
    return 0


def _folder(path: str) -> str:
    return path if os.path.isdir(path) else f"{path} (does not exist)"
