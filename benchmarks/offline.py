"""Collect what the peers need in one folder, for a GPU machine that has JAX, Equinox and PyTorch but reaches no
package index.

    python benchmarks/offline.py build/offline --python 3.12 \
        --sources purejaxrl=PATH purejaxql=PATH cleanrl=PATH

Copy the folder to the machine with the repository. There, with JAX, PyTorch and NumPy installed:

    export XLA_PYTHON_CLIENT_PREALLOCATE=false PYTHONPATH=$PWD/build/offline/packages:$PWD/src
    python3 benchmarks/peers.py --device gpu --environments build/offline

Packages come from the index as wheels for that Python, without what they depend on: JAX, PyTorch and NumPy are the
machine's own. A source is a clone of the peer's repository; only the tracked folder of its package is copied.
PEER_PYTHON names the Python of the peers if it is not `python3`.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

OURS = (
    "flax==0.12.8 optax chex gymnax==1.0.1 gymnasium==1.3.0 farama-notifications cloudpickle toolz absl-py typeguard "
    "docstring-parser tyro treescope msgpack etils ale-py"
)
PEERS = "gfnx==0.0.1 flashbax jax-tqdm omegaconf sorrel==1.6.0 tqdm pyyaml six"
SOURCES = {"purejaxrl": "purejaxrl", "purejaxql": "purejaxql", "cleanrl": "cleanrl"}
PY = """#!/usr/bin/env bash
export PYTHONPATH="$(cd "$(dirname "$0")" && pwd)/packages"
exec "${PEER_PYTHON:-python3}" "$@"
"""


def install(packages: list[str], folder: Path, python: str) -> None:
    """Wheels for that Python, without their dependencies."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--no-deps", "--ignore-requires-python"]
    subprocess.run(
        [*pip, "--only-binary=:all:", "--python-version", python, "--target", str(folder), *packages], check=True
    )
    seaborn = folder / "seaborn" / "__init__.py"  # sorrel imports it for pictures; nothing here draws any
    seaborn.parent.mkdir(exist_ok=True)
    seaborn.touch()
    for cache in folder.rglob("__pycache__"):
        shutil.rmtree(cache)


def copy_source(repository: Path, package: str, folder: Path) -> None:
    """The tracked files of a peer's package, as of the newest commit."""
    folder.mkdir(parents=True, exist_ok=True)
    archive = subprocess.run(
        ["git", "-C", str(repository), "archive", "HEAD", package], check=True, capture_output=True
    )
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="version of the machine's Python")
    parser.add_argument(
        "--sources", nargs="*", default=[], metavar="PEER=PATH", help="clones of the peers' repositories"
    )
    options = parser.parse_args()
    sources = dict(text.split("=", 1) for text in options.sources)
    if unknown := set(sources) - set(SOURCES):
        parser.error(f"{', '.join(sorted(unknown))} is no peer with a source: {', '.join(SOURCES)}")
    install((OURS + " " + PEERS).split(), options.folder / "packages", options.python)
    for name, path in sources.items():
        copy_source(Path(path), SOURCES[name], options.folder / name / "src")
    py = options.folder / "py"
    py.write_text(PY)
    py.chmod(0o755)
    size = sum(path.stat().st_size for path in options.folder.rglob("*") if path.is_file())
    print(f"{options.folder}: {size / 2**20:.0f} MB")


if __name__ == "__main__":
    main()
