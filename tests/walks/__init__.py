"""Walks: a tutorial followed word by word from an empty folder, and what has to be there at its end.

Each module has the `PAGE`, the `EXTRAS` that the page asks for, and `check(folder)`. `tests/test_docs.py` runs the page
with the installation that the tests have. `tests/test_walks.py` and `python -m tests.walks.NAME` begin earlier: with a
clone, and the lines of the install page.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from tests import clean_venv
from tests.docs_blocks import ROOT, blocks, commands

INSTALL = "docs/how-to/install.md"


def score_of(run: Path) -> dict:
    """The evaluation at the end of a run."""
    return json.loads((run / "timings.json").read_text())["evaluation"]


def install(folder: Path, extras: str) -> Path:
    """Clone the repository into `folder`, install it as the install page says; the interpreter of that environment."""
    clean_venv.need_index(Path(sys.executable), folder)
    clean_venv.run("git", "clone", "--quiet", ROOT, "xladder", cwd=folder)
    script = "\n".join(commands(blocks(INSTALL)[0]))
    assert "[torch,gymnax]" in script  # the page's example of extras, in place of which a reader names their own
    (folder / "bin").mkdir()
    (folder / "bin" / "python3").symlink_to(Path(sys.base_prefix, "bin", f"python3.{sys.version_info.minor}"))
    script = f'export PATH="{folder}/bin:$PATH"\n' + script.replace("[torch,gymnax]", f"[{extras}]")
    print(clean_venv.run("bash", "-e", "-c", script, cwd=folder))
    return folder / "xladder" / ".venv" / "bin" / "python"


def walk(module: ModuleType) -> None:
    """Follow a page from clone to end in a fresh folder, and check what came out."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        python = install(place, module.EXTRAS)
        # The runner of the pages comes from the repository, but not its code: that is the installed one.
        (place / "runner").mkdir()
        for part in ("tests", "docs"):
            (place / "runner" / part).symlink_to(ROOT / part)
        folder = place / "empty"
        folder.mkdir()
        environment = clean_venv.variables(place) | {"PYTHONPATH": str(place / "runner")}
        done = subprocess.run(
            [python, "-m", "tests.docs_run", module.PAGE], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        module.check(folder)
