"""What is promised about failures, tried many times over: kills, damage, nonsense. It prints a table.

    make torture                                   # everything
    python -m tests.torture --kills 10 --seed 3    # less of it, otherwise chosen

Every life of a killed run is a process of its own that gets SIGKILL at a random instant, from its start on, until one
comes through. The last state and the metrics then have to be those of a run that nobody disturbed.
"""

import argparse
import contextlib
import io
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests import malformed, test_checkpoints
from tests.test_resume import LIVES, what_came_of
from xladder.cli.main import main as xladder
from xladder.runs import checkpoints
from xladder.runs.checkpoints import Checkpoints

RUNGS = ("sequential", "parallel", "fused")
# Slower rungs do less, so that every run lasts a few seconds.
LENGTHS = {
    "treasurehunt": ("--epochs", {"sequential": 60, "parallel": 400, "fused": 800}),
    "hypergrid": ("--iterations", {"sequential": 600, "parallel": 4000, "fused": 8000}),
    "cartpole": ("--steps", {"sequential": 6000, "parallel": 24000, "fused": 60000}),
}


def words(workload: str, rung: str) -> list[str]:
    """A run of a few seconds, saved twenty times."""
    flag, lengths = LENGTHS[workload]
    given = dict(zip(LIVES[workload][::2], LIVES[workload][1::2], strict=True))
    ticks = lengths[rung] // (8 if workload == "cartpole" else 1)
    given |= {flag: str(lengths[rung]), "--checkpoint-every": str(max(1, ticks // 20)), "--rung": rung}
    return ["train", workload, *(part for pair in given.items() for part in pair), "--eval-episodes", "0"]


def life(command: list[str], seconds: float | None) -> int:
    """One process, killed after so many seconds if it still runs. Returns its exit code."""
    environment = os.environ | {"XLADDER_TRACEBACK": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "xladder.cli.main", *command],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment,
    )  # fmt: skip
    try:
        _, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate()
    if process.returncode not in (0, -signal.SIGKILL):
        raise AssertionError(f"{' '.join(command)} ended with {process.returncode}: {said[-2000:]}")
    return process.returncode


def killed(workload: str, rung: str, kills: int, rng: random.Random, folder: Path) -> str:
    """A run killed so many times, against one that was left alone. Returns what happened in words."""
    begin = words(workload, rung)
    life([*begin, "--out", str(folder / "warm")], None)  # fills the cache of compiled programs
    begun = time.monotonic()
    life([*begin, "--out", str(folder / "whole")], None)
    whole, expected = time.monotonic() - begun, what_came_of(folder / "whole")
    done, finished = 0, 0
    while done < kills:
        cut = folder / f"cut-{finished}"
        command = [*begin, "--out", str(cut)]
        while True:
            # Some die while Python or XLA start, most somewhere in the run.
            code = life(command, rng.uniform(0.2, 1.1) * whole if done < kills else None)
            if code == 0:
                break
            done += 1
            command = ["resume", str(cut)] if (cut / "config.json").exists() else [*begin, "--out", str(cut)]
            if command[0] == "train":
                shutil.rmtree(cut, ignore_errors=True)
        assert what_came_of(cut) == expected, f"{workload} on {rung}: another run than the one left alone"
        finished += 1
        shutil.rmtree(cut)
    return f"{done} kills, {finished} runs, all equal to the one left alone"


def damaged(count: int, rng: random.Random, folder: Path) -> str:
    """Checkpoints damaged in many ways, each of which has to be noticed."""
    checkpoints.SEGMENT_BYTES = 10_000
    whole = folder / "whole"
    for step in (3, 4):
        test_checkpoints.save(Checkpoints(whole, test_checkpoints.RUN), step)
    for number in range(count):
        cut = folder / str(number) / "checkpoints"
        shutil.copytree(whole, cut)
        what, said = test_checkpoints.damage(rng, cut), []
        found = Checkpoints(cut, test_checkpoints.RUN).latest(said.append)
        assert found is not None and found.step == 3 and len(said) == 1, f"{what}: {said}"
        test_checkpoints.same(found, 3)
        shutil.rmtree(cut.parent)
    return f"{count} of {count} noticed, the one before used"


def nonsense(count: int, rng: random.Random, folder: Path) -> str:
    """Command lines that have to be refused."""
    (folder / "here").mkdir()
    before = Path.cwd()
    os.chdir(folder / "here")
    try:
        for case in malformed.cases(rng, count, folder):
            said = io.StringIO()
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
                try:
                    code = xladder(case.words)
                except SystemExit as stop:
                    code = stop.code
            assert code == 2 and "Traceback" not in said.getvalue(), (case, code, said.getvalue())
            assert not case.suggestion or f"`{case.suggestion}`" in said.getvalue(), (case, said.getvalue())
            assert not list((folder / "here").iterdir()), case
    finally:
        os.chdir(before)
    return f"{count} of {count} refused with exit 2, nothing written"


def main() -> int:
    """Try everything and print a table; 1 if anything was not as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kills", type=int, default=100, help="of each workload on each rung")
    parser.add_argument("--damages", type=int, default=500)
    parser.add_argument("--nonsense", type=int, default=1000)
    parser.add_argument("--workloads", nargs="*", default=list(LIVES))
    parser.add_argument("--rungs", nargs="*", default=list(RUNGS))
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    console, table, failed = Console(width=110), Table("fault", "seconds", "result"), False
    console.print(f"seed {seed}")
    trials = [
        (f"SIGKILL, {workload} on {rung}", partial(killed, workload, rung, options.kills))
        for workload in options.workloads
        for rung in options.rungs
    ]
    trials.append(("damaged checkpoints", partial(damaged, options.damages)))
    trials.append(("malformed commands", partial(nonsense, options.nonsense)))
    for name, trial in trials:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = trial(random.Random(f"{seed} {name}"), Path(folder))
            except AssertionError as error:
                result, failed = f"FAILED: {str(error)[:300]}", True
        console.print(f"{name}: {result}")
        table.add_row(name, f"{time.monotonic() - begun:.0f}", result)
    console.print(table)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
