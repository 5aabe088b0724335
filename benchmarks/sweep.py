"""A sweep against as many seeds of one setting: whole commands, each in its own process, with a cold compile cache.

    python benchmarks/sweep.py [--workload cartpole] [--trials 64] [--seeds 4] [--rounds 2] [--device gpu] [--out FILE]

A sweep of T trials on S seeds has the rows of a run of T·S seeds, and trains them once more to test its winner. It may
take up to 1.3 times as long.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from rounds import measured_on

from xladder import devices

SPACE = ["--learner.lr", "log:1e-4..1e-2", "--learner.tau", "log:1e-3..1e-1", "--learner.gamma", "0.95..0.999"]


def seconds_of(words, folder):
    """Wall-clock seconds of one command."""
    begun = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "xladder", *words],
        env=os.environ | {"XDG_CACHE_HOME": str(folder / "cache")},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - begun
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()[-800:]}")
    print(f"{seconds:7.1f} s  xladder {' '.join(words)}", flush=True)
    return seconds, done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", default="cartpole")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", default="gpu", choices=("cpu", "gpu"))
    parser.add_argument("--flags", nargs="*", default=[])
    parser.add_argument("--out", default=None)
    given = parser.parse_args()
    both = [given.workload, "--device", given.device, *given.flags]
    train = ["train", *both, "--rung", "fused", "--seeds", str(given.trials * given.seeds), "--out", "run"]
    sweep = ["sweep", *both, *SPACE, "--trials", str(given.trials), "--seeds", str(given.seeds), "--out", "swept"]
    times = {"train": [], "sweep": []}
    for number in range(given.rounds):
        for name, words in sorted({"train": train, "sweep": sweep}.items(), reverse=number % 2 == 0):
            with tempfile.TemporaryDirectory() as folder:
                seconds, said = seconds_of(words, Path(folder))
                times[name].append(seconds)
                found = Path(folder) / "swept/result.json"
                result = json.loads(found.read_text()) if found.exists() else None
            if result:
                print(said, flush=True)
                last = result
    ratio = median(times["sweep"]) / median(times["train"])
    rows = given.trials * given.seeds
    print(f"{given.trials} trials × {given.seeds} seeds take {ratio:.2f} times as long as {rows} seeds")
    if given.out:
        told = {
            **measured_on(devices.find(given.device)),
            "seconds": times,
            "ratio": ratio,
            "commands": {"train": train, "sweep": sweep},
            "result": last,
        }
        Path(given.out).write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
