"""Checkpoints and run directories that are not as they were written."""

import os
import random
import resource
import shutil
from pathlib import Path

from tests import test_checkpoints
from tests.test_resume import LIVES, once
from tests.torture.lives import FORKED, quietly
from xladder.runs import checkpoints
from xladder.runs.checkpoints import Checkpoints

MOST_MEMORY = 4.0  # GiB


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


def cut_short(count: int, rng: random.Random, folder: Path) -> str:
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


def unfinished_run(folder: Path) -> Path:
    """A run with checkpoints, metrics and agents that is not marked as complete."""
    whole = folder / "whole"
    words = once(*LIVES["hypergrid"], "--iterations", "300", "--out", str(whole))
    code, said = quietly(["train", "hypergrid", *words])
    assert code == 0, said
    (whole / "finished.json").unlink()
    return whole


def fuzz(run: Path, rng: random.Random) -> Path:
    """Change some bytes of one file, and maybe cut it. Returns the file."""
    files: dict[str, list[Path]] = {}  # by name, so that the many files of a checkpoint do not crowd out the rest
    for found in sorted(f for f in run.rglob("*") if f.is_file() and f.stat().st_size):
        files.setdefault(found.name if found.suffix in (".json", ".csv", ".safetensors") else "", []).append(found)
    file = rng.choice(rng.choice(list(files.values())))
    data = bytearray(file.read_bytes())
    for _ in range(rng.choice([1, 3, 30])):
        data[rng.randrange(len(data))] = rng.randrange(256)
    file.write_bytes(data[: rng.choice([len(data), rng.randrange(len(data))])])
    return file


def fuzzed(count: int, rng: random.Random, folder: Path) -> str:
    """Run directories in which some bytes are others: a sentence, or the right answer in spite of it."""
    whole, codes = unfinished_run(folder), {}
    for number in range(count):
        run = folder / str(number)
        shutil.copytree(whole, run)
        file = fuzz(run, rng)
        command = rng.choice([["resume", str(run)], ["eval", str(run)], ["diff", str(run), str(whole)]])
        code, said = quietly(command)
        assert code in (0, 1, 2, 3) and "bug" not in said and "Traceback" not in said, (file.name, command, said)
        codes[code] = codes.get(code, 0) + 1
        shutil.rmtree(run)
    return f"{count} of {count} answered ({told(codes)}), {memory_used()}"


def told(codes: dict[int, int]) -> str:
    """How often each exit code was seen."""
    return ", ".join(f"exit {code}: {times}" for code, times in sorted(codes.items()))


def memory_used() -> str:
    """The most memory of this process so far, which has to be bounded."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    assert most < MOST_MEMORY, f"{most:.1f} GiB"
    return f"at most {most:.1f} GiB of memory"
