"""What is promised about failures, tried many times over: kills, damage, nonsense. It prints a table.

    make torture                                   # everything
    python -m tests.torture --kills 10 --seed 3    # less of it, otherwise chosen

Every life of a killed run is a process of its own that gets a signal at a random instant, until one comes through. The
last state and the metrics then have to be those of a run that nobody disturbed. Lives are forked from a process that
has imported everything, so that they are spent in the run and not in `import`.
"""

import argparse
import contextlib
import io
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests import malformed, test_checkpoints
from tests.test_resume import LIVES, once, what_came_of
from xladder.cli.main import main as xladder
from xladder.runs import checkpoints
from xladder.runs.checkpoints import Checkpoints

FORKED = multiprocessing.get_context("forkserver")
IMPORTED = ("tests.torture", "torch", "tensorboardX", "matplotlib.pyplot", "orbax.checkpoint", "optax", "flax.linen")
CHAINS = 4  # of lives, for each workload and rung
AT_ONCE = threading.Semaphore(0)  # lives; `--at-once` lets some in
SAVED_WITHIN = 10.0  # seconds after a signal that may be answered
RUNGS = ("sequential", "parallel", "fused")
# Slower rungs do less, so that every run lasts a few seconds.
LENGTHS = {
    "treasurehunt": ("--epochs", {"sequential": 60, "parallel": 200, "fused": 400}),
    "hypergrid": ("--iterations", {"sequential": 300, "parallel": 1500, "fused": 3000}),
    "cartpole": ("--steps", {"sequential": 3200, "parallel": 12000, "fused": 24000}),
}


def words(workload: str, rung: str) -> list[str]:
    """A run of a few seconds, saved twenty times."""
    flag, lengths = LENGTHS[workload]
    given = dict(zip(LIVES[workload][::2], LIVES[workload][1::2], strict=True))
    ticks = lengths[rung] // (8 if workload == "cartpole" else 1)
    given |= {flag: str(lengths[rung]), "--checkpoint-every": str(max(1, ticks // 20)), "--rung": rung}
    return ["train", workload, *(part for pair in given.items() for part in pair), "--eval-episodes", "0"]


def live(command: list[str], said: str) -> None:
    """What a process of its own does: one command, with all that it says going to a file."""
    with open(said, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ["XLADDER_TRACEBACK"] = "1"
    sys.argv = ["xladder", *command]
    sys.exit(xladder(command))


def life(command: list[str], seconds: float | None, folder: Path, number: int = signal.SIGKILL) -> int:
    """One process, sent a signal after so many seconds if it still runs. Returns its exit code."""
    said = folder / "said.txt"
    with AT_ONCE:
        return _life(command, seconds, said, number)


def _life(command: list[str], seconds: float | None, said: Path, number: int) -> int:
    process = FORKED.Process(target=live, args=(command, str(said)))
    process.start()
    process.join(seconds)
    fit = [0]
    if process.exitcode is None:
        os.kill(process.pid, number)
        # 255: seen of killed processes only; presumably the one that forked it could not say how it ended
        fit += [-number, 255] if number == signal.SIGKILL else [128 + number, -number]
        process.join(None if number == signal.SIGKILL else SAVED_WITHIN)
        assert process.exitcode is not None, f"{' '.join(command)} went on {SAVED_WITHIN} s after signal {number}"
    heard = said.read_text() if said.exists() else ""
    assert process.exitcode in fit, f"{' '.join(command)} ended with {process.exitcode}: {heard[-2000:]}"
    if process.exitcode in (130, 143) and "compiled in" in heard:  # before that there is nothing to save
        assert "xladder resume" in heard, heard[-2000:]
    return process.exitcode


def killed(workload: str, rung: str, kills: int, numbers: list[int], rng: random.Random, folder: Path) -> str:
    """Runs sent signals so many times, against one that was left alone. Returns what happened in words."""
    begin = words(workload, rung)
    life([*begin, "--out", str(folder / "warm")], None, folder)  # fills the cache of compiled programs
    begun = time.monotonic()
    life([*begin, "--out", str(folder / "whole")], None, folder)
    seconds, expected = time.monotonic() - begun, what_came_of(folder / "whole")

    def until_done(number: int) -> int:
        """A number of kills, over as many runs as that takes. Returns how many that were."""
        rng, done, finished = random.Random(starts[number]), 0, 0
        mine, cut = folder / str(number), folder / str(number) / "cut"
        mine.mkdir()
        while done < shares[number]:
            command = [*begin, "--out", str(cut)]
            while True:
                until = rng.uniform(0, 1.1) * seconds if done < shares[number] else None
                if life(command, until, mine, rng.choice(numbers)) == 0:
                    break
                done += 1
                if (cut / "config.json").exists():
                    command = ["resume", str(cut)]
                else:
                    shutil.rmtree(cut, ignore_errors=True)
            assert what_came_of(cut) == expected, f"{workload} on {rung}: another run than the one left alone"
            finished += 1
            shutil.rmtree(cut)
        return finished

    shares = [len(range(number, kills, CHAINS)) for number in range(CHAINS)]
    starts = [rng.random() for _ in shares]
    with ThreadPoolExecutor(CHAINS) as chains:
        runs = sum(chains.map(until_done, range(CHAINS)))
    return f"{kills} signals, {runs} runs, all equal to the one left alone"


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
            code, said = quietly(case.words)
            assert code == 2 and "Traceback" not in said, (case, code, said)
            assert not case.suggestion or f"`{case.suggestion}`" in said, (case, said)
            assert not list((folder / "here").iterdir()), case
    finally:
        os.chdir(before)
    return f"{count} of {count} refused with exit 2, nothing written"


def cut_short(rng: random.Random, folder: Path) -> str:
    """A process that is gone at each step of one save: writes, syncs, renames."""
    kept = Checkpoints(folder / "checkpoints", test_checkpoints.RUN)
    for step in (1, 2):
        test_checkpoints.save(kept, step)
    point = 0
    while True:
        trial = folder / str(point)
        shutil.copytree(kept.folder, trial)
        process = FORKED.Process(target=save_until, args=(trial, point))
        process.start()
        process.join()
        assert process.exitcode in (0, 9), process.exitcode
        found = Checkpoints(trial, test_checkpoints.RUN).latest(lambda line: None)
        assert found is not None and found.step in (2, 3), point
        test_checkpoints.same(found, found.step)
        shutil.rmtree(trial)
        if process.exitcode == 0:
            assert found.step == 3
            return f"{point} of {point} steps: the old or the new one is whole"
        point += 1


def save_until(folder: Path, point: int) -> None:
    """Save, and be gone at the given step of it."""
    left = point

    def reached(_: str) -> None:
        nonlocal left
        if left == 0:
            os._exit(9)
        left -= 1

    checkpoints.reached = reached
    checkpoints.SEGMENT_BYTES = 10_000
    test_checkpoints.save(Checkpoints(folder, test_checkpoints.RUN), 3)


def fuzzed(count: int, rng: random.Random, folder: Path) -> str:
    """Run directories in which some bytes are others: a sentence, or the right answer in spite of it."""
    whole = folder / "whole"
    assert (
        quietly(["train", "hypergrid", *once(*LIVES["hypergrid"], "--iterations", "300", "--out", str(whole))])[0] == 0
    )
    (whole / "finished.json").unlink()
    codes: dict[int, int] = {}
    for number in range(count):
        run = folder / str(number)
        shutil.copytree(whole, run)
        files: dict[str, list[Path]] = {}  # by name, so that the many files of a checkpoint do not crowd out the rest
        for found in sorted(f for f in run.rglob("*") if f.is_file() and f.stat().st_size):
            files.setdefault(found.name if found.suffix in (".json", ".csv", ".safetensors") else "", []).append(found)
        file = rng.choice(rng.choice(list(files.values())))
        data = bytearray(file.read_bytes())
        for _ in range(rng.choice([1, 3, 30])):
            data[rng.randrange(len(data))] = rng.randrange(256)
        file.write_bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
        command = rng.choice([["resume", str(run)], ["eval", str(run)], ["diff", str(run), str(whole)]])
        code, said = quietly(command)
        assert code in (0, 1, 2, 3) and "bug" not in said and "Traceback" not in said, (file.name, command, said)
        codes[code] = codes.get(code, 0) + 1
        shutil.rmtree(run)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    assert most < 4, f"{most:.1f} GiB"
    told = ", ".join(f"exit {code}: {times}" for code, times in sorted(codes.items()))
    return f"{count} of {count} answered ({told}), at most {most:.1f} GiB of memory"


def quietly(command: list[str]) -> tuple[int, str]:
    """A command in this process: its exit code and what it said."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = xladder(command)
        except SystemExit as stop:
            code = int(stop.code or 0)
    return code, said.getvalue()


def malicious(rng: random.Random, folder: Path) -> str:
    """Files made to do harm: the tests of them, all of which have to pass."""
    chosen = "executed or objects or believed or links or huge or random or markup or escape or fifo"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-o", "addopts=", "-q", "-n", "0", "-k", chosen, "tests/test_exchange.py",
         "tests/test_checkpoints.py", "tests/test_resume.py"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    found = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0 and found, done.stdout[-1000:]
    return f"{found[1]} kinds of them: nothing executed, nothing outside read or written"


def surroundings(rng: random.Random, folder: Path) -> str:
    """No network, no home, no locale, no terminal, an awkward path."""
    out = folder / "a b" / "ü∂€ 'q'"
    bare = {"PATH": os.environ["PATH"], "HOME": "/proc", "LANG": "C", "LC_ALL": "C"}
    apart = ["unshare", "-rn"] if subprocess.run(["unshare", "-rn", "true"], check=False).returncode == 0 else []
    for command in ([*words("hypergrid", "fused"), "--out", str(out)], ["eval", str(out)], ["resume", str(out)]):
        done = subprocess.run(
            [*apart, sys.executable, "-m", "xladder.cli.main", *command],
            env=bare, stdin=subprocess.DEVNULL, capture_output=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stderr[-1000:])
    return f"HOME unwritable, LANG=C, no terminal, odd path{', no network' if apart else ''}: works"


def main() -> int:
    """Try everything and print a table; 1 if anything was not as promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--kills", type=int, default=100, help="of each workload on each rung")
    parser.add_argument("--damages", type=int, default=500)
    parser.add_argument("--nonsense", type=int, default=1000)
    parser.add_argument("--fuzzed", type=int, default=100)
    parser.add_argument("--workloads", nargs="*", default=list(LIVES))
    parser.add_argument("--rungs", nargs="*", default=list(RUNGS))
    parser.add_argument("--at-once", type=int, default=2, help="processes at the same time")
    parser.add_argument("--only-kills", action="store_true")
    options = parser.parse_args()
    AT_ONCE.release(options.at_once)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    console, failed = Console(width=110), False
    console.print(f"seed {seed}")
    FORKED.set_forkserver_preload(list(IMPORTED))
    kills = [
        (f"SIGKILL, {workload} on {rung}", partial(killed, workload, rung, options.kills, [signal.SIGKILL]))
        for workload in options.workloads
        for rung in options.rungs
    ]
    answered = [signal.SIGTERM, signal.SIGINT]
    kills += [
        (f"SIGTERM, SIGINT, {workload} on fused", partial(killed, workload, "fused", options.kills // 5, answered))
        for workload in options.workloads
    ]
    others = (
        []
        if options.only_kills
        else [
            ("gone at each step of a save", cut_short),
            ("damaged checkpoints", partial(damaged, options.damages)),
            ("malformed commands", partial(nonsense, options.nonsense)),
            ("byte-fuzzed run directories", partial(fuzzed, options.fuzzed)),
            ("malicious files", malicious),
            ("surroundings", surroundings),
        ]
    )

    def attempt(name: str, trial: Callable[..., str]) -> tuple[str, str, str]:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                result = trial(random.Random(f"{seed} {name}"), Path(folder))
            except AssertionError as error:
                result = f"FAILED: {str(error)[:2000]}"
        row = (name, f"{time.monotonic() - begun:.0f}", result)
        console.print(" · ".join(row), markup=False)
        return row

    with ThreadPoolExecutor(len(kills) or 1) as pool:
        rows = list(pool.map(lambda pair: attempt(*pair), kills))
    rows += [attempt(*pair) for pair in others]
    table = Table("fault", "seconds", "result")
    for row in rows:
        table.add_row(*row)
        failed |= row[2].startswith("FAILED")
    console.print(table)
    return int(failed)
