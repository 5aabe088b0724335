"""Commands in processes of their own, which get signals; and how long one may wait on a machine that is busy.

Lives are forked from a process that has imported everything, so that they are spent in the run and not in `import`.
"""

import contextlib
import io
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from xladder.cli.main import main as xladder

FORKED = multiprocessing.get_context("forkserver")
IMPORTED = (
    "tests.torture.lives", "tests.torture.damage", "torch", "tensorboardX", "matplotlib.pyplot",
    "optax", "flax.linen",
)  # fmt: skip
AT_ONCE = threading.Semaphore(0)  # lives; `--at-once` lets some in
SAVED_WITHIN = 10.0  # seconds after a signal that may be answered, on a machine that does nothing else
SPIN = 0.1  # seconds of CPU time
MARGIN = 1.5  # load changes while one waits


def slowness() -> float:
    """Wall time per CPU time of a thread that only computes: 1 on a machine with nothing else to do."""
    begun, mine = time.monotonic(), time.thread_time()
    while time.thread_time() - mine < SPIN:
        pass
    return max(1.0, (time.monotonic() - begun) / SPIN)


def patience(seconds: float) -> float:
    """How long something may take now that takes so many seconds where nothing else runs."""
    factor = slowness()
    return seconds if factor < MARGIN else seconds * factor * MARGIN


def wait_until(ended: Callable[[], bool], seconds: float) -> bool:
    """Wait for something as long as is patient, asking anew how slow the machine is before giving up."""
    begun, most = time.monotonic(), seconds
    while not ended():
        if time.monotonic() - begun > most:
            longer = patience(seconds)
            if longer <= most:
                return False
            most = longer
        time.sleep(0.02)
    return True


def live(command: list[str], said: str, folder: str | None) -> None:
    """What a process of its own does: one command, with all that it says going to a file."""
    with open(said, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    if folder:
        os.chdir(folder)
    os.environ["XLADDER_TRACEBACK"] = "1"
    sys.argv = ["xladder", *command]
    sys.exit(xladder(command))


def life(
    command: list[str],
    until: float | Callable[[], bool] | None,
    folder: Path,
    number: int = signal.SIGKILL,
    inside: Path | None = None,
) -> int:
    """One process. Returns its exit code.

    Args:
        command: What it does.
        until: It gets the signal after so many seconds, or as soon as this is true, if it still runs; None: never.
        folder: For what it says.
        number: The signal.
        inside: The folder in which it runs.
    """
    with AT_ONCE:
        return _life(command, until, folder / "said.txt", number, inside)


def _life(
    command: list[str], until: float | Callable[[], bool] | None, said: Path, number: int, inside: Path | None
) -> int:
    process = FORKED.Process(target=live, args=(command, str(said), inside and str(inside)))
    process.start()
    if callable(until):
        while process.exitcode is None and not until():
            process.join(0.02)
    else:
        process.join(until)
    fit = [0]
    if process.exitcode is None:
        os.kill(process.pid or 0, number)
        # 255: seen of killed processes only; presumably the one that forked it could not say how it ended
        fit += [-number, 255] if number == signal.SIGKILL else [128 + number, -number]
        in_time = wait_until(lambda: process.exitcode is not None, SAVED_WITHIN)
        if not in_time:
            process.kill()
        assert in_time, f"{' '.join(command)} went on long after signal {number}"
    heard = said.read_text() if said.exists() else ""
    assert process.exitcode in fit, f"{' '.join(command)} ended with {process.exitcode}: {heard[-2000:]}"
    if process.exitcode in (130, 143) and "compiled in" in heard:  # before that there is nothing to save
        assert "xladder resume" in heard, heard[-2000:]
    return process.exitcode or 0


def quietly(command: list[str]) -> tuple[int, str]:
    """A command in this process: its exit code and what it said."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = xladder(command)
        except SystemExit as stop:
            code = int(stop.code or 0)
    return code, said.getvalue()
