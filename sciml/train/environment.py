"""What a result depends on besides its configuration: versions, devices, commit, command line, time."""

from __future__ import annotations

import platform
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_PACKAGES = (
    "sciml",
    "jax",
    "jaxlib",
    "equinox",
    "optax",
    "diffrax",
    "optimistix",
    "numpy",
    "scipy",
    "xarray",
    "orbax-checkpoint",
    "flax",
    "spglib",
    "pymatgen",
)


def environment() -> dict[str, Any]:
    """What a result depends on besides its configuration: versions, devices, commit, command line, time."""
    import jax

    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "started": now(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "devices": [f"{device.platform}:{device.id} {device.device_kind}" for device in jax.devices()],
        "processes": jax.process_count(),
        "x64": bool(jax.config.jax_enable_x64),  # pyright: ignore[reportAttributeAccessIssue]
        "packages": package_versions(),
        "commit": _commit(),
    }


def package_versions() -> dict[str, str]:
    """The installed versions of sciml and of what it computes with."""
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str | None:
    """The commit of the project that this file belongs to, when it is under version control."""
    folder = Path(__file__).parent

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    if git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None  # an installed copy inside somebody else's repository
    commit = git("rev-parse", "HEAD")
    return f"{commit}{'+changes' if git('status', '--porcelain', '-uno') else ''}" if commit else None


def _cpu() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
