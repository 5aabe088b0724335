"""What results depend on besides the config: device, versions, commit and command line."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from xladder import __version__, devices

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "torch")
COMMIT = "XLADDER_COMMIT"  # where only a copy of the files is, without a repository


def environment(device: Any) -> dict[str, Any]:
    """Everything besides the config that results depend on: device, versions, commit, command line."""
    return {
        "device": devices.describe(device),
        "processor": devices.processor(),
        "cores": devices.cores(),
        "python": platform.python_version(),
        "versions": versions(),
        "git_commit": _git_commit(),
        "command": shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
    }


def versions() -> dict[str, str]:
    """The versions of the installed packages that affect results."""
    found = {"xladder": __version__}  # of the code that runs, also where another version is installed beside it
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _git_commit() -> str | None:
    """The git commit of the working directory; without a repository, what `XLADDER_COMMIT` says."""
    given = os.environ.get(COMMIT) or None
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],  # noqa: S607 - whichever git the user has
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return given
    return done.stdout.strip() if done.returncode == 0 else given
