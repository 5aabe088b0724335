"""Virtual environments with nothing in them but what pip installs, for tests of the installation itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

OURS = ("JAX_", "XLA_", "PYTHON", "VIRTUAL_ENV", "XDG_CACHE_HOME")
"""Beginnings of variables that are set for other tests, or by the environment of these."""


def variables(folder: Path) -> dict[str, str]:
    """The environment of a user who has just logged in, but compiled programs are kept in `folder`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    found = [folder for folder in kept["PATH"].split(os.pathsep) if Path(folder) != Path(sys.prefix, "bin")]
    kept |= {"PATH": os.pathsep.join(found), "JAX_COMPILATION_CACHE_DIR": str(folder / "programs")}
    return kept | {"JAX_PLATFORMS": "cpu", "MPLBACKEND": "Agg"}


def run(*words: object, cwd: Path) -> str:
    """What a command prints in a folder."""
    done = subprocess.run([*map(str, words)], cwd=cwd, env=variables(cwd), capture_output=True, text=True)
    assert done.returncode == 0, f"{words}:\n{(done.stdout + done.stderr)[-6000:]}"
    return done.stdout


def need_index(python: Path, folder: Path) -> None:
    """Skip the test if pip finds no package index; what it asks for is small, and needed to build the package."""
    words = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder / "tried", "hatchling"]
    done = subprocess.run(words, cwd=folder, env=variables(folder), capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"no package index is reachable: {done.stderr.strip().splitlines()[-1]}")


def make(folder: Path) -> Path:
    """The interpreter of a new environment in `folder`/venv."""
    run(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"), "-m", "venv", "venv", cwd=folder)
    python = folder / "venv" / "bin" / "python"
    need_index(python, folder)
    return python
