"""Runs the blocks of a page, or the cells of a notebook, in the current folder: `python -m tests.docs_run PAGE`.

A process of its own for each page: blocks see what a user's session would see, not what the tests have set.
"""

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.docs_blocks import ROOT, Block, blocks, commands, missing_line, shortened, shown

SECONDS = 1800  # that a page may take


def run_page(page: str) -> None:
    """Run all blocks of a page in order."""
    names: dict = {"__name__": "__main__"}
    printed = None  # by the last block, if that was Python
    for block in blocks(page):
        begun = time.perf_counter()
        if "file" in block.controls:
            path = Path(block.controls["file"])
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
        elif block.language == "text" and printed is not None:
            compare(block.where, block.text.splitlines(), printed)
            printed = None
        elif not block.is_run:
            continue
        elif block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as output:
                run_python(block.text, block.page, block.line, names)
            printed = output.getvalue()
            print(printed, end="", flush=True)
        else:
            printed = None
            run_console(block)
        print(f"{block.where}: {time.perf_counter() - begun:.1f} s", file=sys.stderr, flush=True)


def run_notebook(path: str) -> None:
    """Run the code cells of a notebook in order."""
    names: dict = {"__name__": "__main__"}
    cells = json.loads((ROOT / path).read_text())["cells"]
    for number, cell in enumerate(cell for cell in cells if cell["cell_type"] == "code"):
        lines = "".join(cell["source"]).splitlines()
        for command in (line[1:] for line in lines if line.startswith("!")):
            run_shell(command, f"{path}, cell {number + 1}")
        kept = ["" if line.startswith(("%", "!")) else line for line in lines]
        run_python("\n".join(kept), f"{path}, cell {number + 1}", 1, names)


def run_python(text: str, where: str, line: int, names: dict) -> None:
    """Execute code so that a traceback names the line of the page."""
    exec(compile("\n" * (line - 1) + text, where, "exec"), names)


def run_console(block: Block) -> None:
    """Run the commands of a block, and compare the exit code and what was printed."""
    expected = int(block.controls.get("fails", "0"))
    if "short" in block.controls:
        run_shell("\n".join(map(shortened, commands(block))), block.where)
    else:
        compare(block.where, shown(block), run_shell("\n".join(commands(block)), block.where, expected))


def compare(where: str, lines: list[str], printed: str) -> None:
    """Exit with an error if one of the lines that are shown was not printed."""
    if (line := missing_line([line for line in lines if line.strip()], printed)) is not None:
        sys.exit(f"{where}: {line!r} was not printed, or not in this order, or with other figures:\n{printed}")


def run_shell(script: str, where: str, expected: int = 0) -> str:
    """Run some lines of shell; what they leave running is ended."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    process = subprocess.Popen(
        ["bash", "-e", "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        printed = process.communicate()[0]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if process.returncode != expected:
        sys.exit(f"{where}: exit code {process.returncode} instead of {expected} of\n{script}\n{printed}")
    return printed


def run_in(folder: Path, page: str) -> None:
    """Run a page or notebook in a process of its own, as somebody would who works in a clone of the repository."""
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    ours = ("JAX_NUM_CPU_DEVICES", "JAX_NUMPY_RANK_PROMOTION", "XLA_FLAGS", "COLUMNS")  # set for other tests
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    done = subprocess.run(
        [sys.executable, "-m", "tests.docs_run", page],
        cwd=folder,
        env=environment | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


if __name__ == "__main__":
    sys.path[0] = os.getcwd()
    (run_notebook if sys.argv[1].endswith(".ipynb") else run_page)(sys.argv[1])
