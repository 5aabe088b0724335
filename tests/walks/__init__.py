"""Walks: a tutorial followed word by word from an empty folder, and what has to be there at its end.

Each module has the `PAGE` and `check(folder)`. `tests/test_docs.py` runs the page and then the check;
`python -m tests.walks.NAME` does so by itself, with the `xladder` of any installation (`--python`).
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]


def score_of(run: Path) -> dict:
    """The evaluation at the end of a run."""
    return json.loads((run / "timings.json").read_text())["evaluation"]


def walk(page: str, check: Callable[[Path], None]) -> None:
    """Run a page in a fresh folder, with the interpreter that the command line names, and check what came out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the installation to try")
    python = parser.parse_args().python
    with tempfile.TemporaryDirectory() as name:
        # Pages and their runner come from the repository; `xladder` is the installed one.
        (Path(name) / "runner").mkdir()
        for part in ("tests", "docs"):
            (Path(name) / "runner" / part).symlink_to(ROOT / part)
        folder = Path(name) / "empty"
        folder.mkdir()
        environment = {**os.environ, "PYTHONPATH": str(Path(name) / "runner"), "MPLBACKEND": "Agg"}
        subprocess.run([python, "-m", "tests.docs_run", page], cwd=folder, env=environment, check=True)
        check(folder)
    print(f"{page}: the walk ends where it should.")
