"""Runs and sweeps whose processes get signals at random instants, until one comes through.

The last state and the metrics then have to be those of a run that nobody disturbed.
"""

import json
import random
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.test_own_worlds import WORLD
from tests.test_resume import LIVES, what_came_of
from tests.test_sweep import GRID_WORDS
from tests.torture.lives import life

CHAINS = 4  # of lives, for each workload and rung
SAVES = 20  # of a run
ANSWERED = (signal.SIGTERM, signal.SIGINT)
SMALL = ["--learner.width", "16", "--learner.batch-size", "8"]
SHORT_VALUES = ["--learner.memory", "2000", "--learner.learning-starts", "400", "--evaluate-episodes", "0"]


@dataclass(frozen=True)
class Case:
    """A workload with settings for runs of a few seconds."""

    workload: str
    flag: str
    """Of its length."""
    lengths: dict[str, int]
    """By rung: slower ones do less, so that every run lasts a few seconds."""
    settings: list[str]
    units: int = 1
    """Of its length in a tick."""
    module: str = ""
    """The source of a world of the user's own, in `mazes.py`."""
    named: list[str] = field(default_factory=list)
    """What `resume` needs besides the run directory."""

    def words(self, rung: str) -> list[str]:
        """The command, with a number of checkpoints."""
        given = dict(zip(self.settings[::2], self.settings[1::2], strict=True))
        every = max(1, self.lengths[rung] // self.units // SAVES)
        given |= {self.flag: str(self.lengths[rung]), "--checkpoint-every": str(every), "--rung": rung}
        return ["train", self.workload, *(word for pair in given.items() for word in pair), "--eval-episodes", "0"]


CASES = {
    "treasurehunt": Case(
        "treasurehunt", "--epochs", {"sequential": 60, "parallel": 200, "fused": 400}, LIVES["treasurehunt"]
    ),
    "hypergrid": Case(
        "hypergrid", "--iterations", {"sequential": 300, "parallel": 1500, "fused": 3000}, LIVES["hypergrid"]
    ),
    "cartpole": Case(
        "cartpole", "--steps", {"sequential": 3200, "parallel": 12000, "fused": 24000}, LIVES["cartpole"], units=8
    ),
}
"""Those that were there first, on three rungs each."""
OTHERS = {
    "bits": Case("bits", "--iterations", {"fused": 2000}, ["--world.bits", "8", "--world.word", "2", *SMALL]),
    "tag": Case(
        "tag", "--epochs", {"fused": 200},
        ["--world.num-agents", "2", "--world.height", "7", "--world.width", "7", "--world.max-turns", "10", *SMALL],
    ),
    "minatar/breakout": Case("minatar/breakout", "--steps", {"fused": 16000}, [*SHORT_VALUES, *SMALL], units=16),
    "cartpole, recurrent": Case(
        "cartpole", "--steps", {"fused": 8000}, ["--learner.recurrent", "16", *SHORT_VALUES, *SMALL], units=8
    ),
    "a world of one's own": Case(
        "jax/mazes:Maze", "--steps", {"fused": 16000}, [*SHORT_VALUES, *SMALL], units=8, module=WORLD,
        named=["--import", "mazes"],
    ),
}  # fmt: skip


def killed(case: Case, rung: str, numbers: tuple[int, ...], count: int, rng: random.Random, folder: Path) -> str:
    """Runs sent signals so many times, against one that was left alone. Returns what happened in words."""
    begin = [*case.words(rung), *case.named]
    if case.module:
        (folder / "mazes.py").write_text(case.module)
    life([*begin, "--out", str(folder / "warm")], None, folder, inside=folder)  # fills the cache of compiled programs
    begun = time.monotonic()
    life([*begin, "--out", str(folder / "whole")], None, folder, inside=folder)
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
                if life(command, until, mine, rng.choice(numbers), folder) == 0:
                    break
                done += 1
                if (cut / "config.json").exists():
                    command = ["resume", str(cut), *case.named]
                else:
                    shutil.rmtree(cut, ignore_errors=True)
            assert what_came_of(cut) == expected, f"{case.workload} on {rung}: another run than the one left alone"
            finished += 1
            shutil.rmtree(cut)
        return finished

    shares = [len(range(number, count, CHAINS)) for number in range(CHAINS)]
    starts = [rng.random() for _ in shares]
    with ThreadPoolExecutor(CHAINS) as chains:
        runs = sum(chains.map(until_done, range(CHAINS)))
    return f"{count} signals, {runs} runs: all equal to the one left alone"


def killed_sweeps(count: int, rng: random.Random, folder: Path) -> str:
    """Sweeps killed when a stage begins, which is between halvings, or at any time, and resumed until they are done."""
    words = ["sweep", "hypergrid", *GRID_WORDS, "--iterations", "600", "--seeds", "2", "--halve", "2"]
    words += ["--learner.lr", "log:1e-3..1e-1", "--trials", "4"]
    life([*words, "--out", str(folder / "warm")], None, folder)
    begun = time.monotonic()
    life([*words, "--out", str(folder / "whole")], None, folder)
    seconds, expected = time.monotonic() - begun, came_of_sweep(folder / "whole")
    done = finished = between = 0
    while done < count:
        cut = folder / "cut"
        command = [*words, "--out", str(cut)]
        for leg in range(1, 100):
            begins = cut / "legs" / f"{leg:03d}"
            at_stage = rng.random() < 0.5 and not begins.exists()
            until = (begins.exists if at_stage else rng.uniform(0, 1.1) * seconds) if done < count else None
            if life(command, until, folder) == 0:
                break
            done += 1
            between += at_stage
            if (cut / "sweep.json").exists():
                command = ["resume", str(cut)]
            else:
                shutil.rmtree(cut, ignore_errors=True)
        assert came_of_sweep(cut) == expected, "another sweep than the one left alone"
        finished += 1
        shutil.rmtree(cut)
    return f"{count} kills, {between} of them between stages, {finished} sweeps: all equal to the one left alone"


def came_of_sweep(folder: Path) -> tuple[dict, str]:
    """Its result and the table of its trials."""
    result = json.loads((folder / "result.json").read_text()) | {"command": ""}
    return result, (folder / "trials.csv").read_text()
