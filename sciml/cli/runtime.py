"""What a command sets before JAX starts: precision, platform, CPU devices, compilation cache.

Only the command line changes these; the library itself never does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

from sciml.config import ConfigError
from sciml.files import cache_folder

_PLATFORMS = {"cpu": "cpu", "gpu": "cuda", "cuda": "cuda", "rocm": "rocm", "tpu": "tpu"}


def prepare_jax(
    x64: bool = False, devices: int | None = None, platform: str | None = None, cache: Path | None = None
) -> None:
    """Sets the environment from which JAX takes its settings when it is first imported.

    **Arguments:**

    - `x64`: float64 as the default precision; `False` leaves the user's `JAX_ENABLE_X64`.
    - `devices`: number of CPU devices that a batch is spread over; default one per core, or what the user's
      `JAX_NUM_CPU_DEVICES` or `XLA_FLAGS` say.
    - `platform`: `cpu`, `gpu`, `rocm` or `tpu`; default what JAX finds.
    - `cache`: folder in which compiled programs are kept.

    **Raises:** `RuntimeError` when JAX is already imported and a setting would come too late.
    """
    wanted: dict[str, str] = {}
    if x64:
        wanted["JAX_ENABLE_X64"] = "true"
    if platform is not None:
        wanted["JAX_PLATFORMS"] = _PLATFORMS[platform]
    if cache is not None:
        cache.mkdir(parents=True, exist_ok=True)
        wanted["JAX_COMPILATION_CACHE_DIR"] = str(cache)
        wanted["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.2"
    if devices is not None:
        wanted["JAX_NUM_CPU_DEVICES"] = str(devices)
    if "jax" in sys.modules:
        if wanted:
            raise RuntimeError(f"JAX is already imported; set {', '.join(wanted)} before")
        return
    chosen = "JAX_NUM_CPU_DEVICES" in os.environ or "host_platform_device_count" in os.environ.get(
        "XLA_FLAGS", ""
    )
    if not chosen:
        wanted.setdefault("JAX_NUM_CPU_DEVICES", str(cores()))
    os.environ.update(wanted)


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pop_runtime_flags(tokens: list[str]) -> tuple[list[str], Callable[[], None]]:
    """Takes the flags that every verb knows out of a command line; the function returned applies them."""
    rest: list[str] = []
    values: dict[str, str] = {}
    queue = list(tokens)
    while queue:
        token = queue.pop(0)
        name, equals, text = token.partition("=")
        if token == "--x64":
            values["x64"] = "true"
        elif name in ("--platform", "--devices", "--cache"):
            if not equals and (not queue or queue[0].startswith("--")):
                raise ConfigError(f"command line: {name}: needs a value")
            values[name[2:]] = text if equals else queue.pop(0)
        else:
            rest.append(token)
    platform, devices, cache = (values.get(name) for name in ("platform", "devices", "cache"))
    if platform is not None and platform not in _PLATFORMS:
        raise ConfigError(
            f"command line: --platform: expected one of {', '.join(_PLATFORMS)}, got {platform!r}"
        )
    if devices is not None and not (devices.isdigit() and int(devices) > 0):
        raise ConfigError(f"command line: --devices: expected a positive integer, got {devices!r}")
    folder = cache_folder() / "compiled" if cache == "default" else Path(cache) if cache else None
    count = int(devices) if devices else None
    return rest, lambda: prepare_jax("x64" in values, count, platform, folder)
