"""Whether a resumed run equals an uninterrupted one bitwise on this device; and the time per tick.

    XLA_FLAGS=--xla_gpu_deterministic_ops=true python benchmarks/exact_resume.py [--rows cartpole/fused …] [--json F]

Compares 2N ticks with N ticks, a state that is captured and restored into a fresh run, and N more ticks. A GPU
guarantees reproducible sums only with that option; without it the table shows what happens by chance.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
from rounds import measured_on

from xladder import devices
from xladder.core.state import capture, restore
from xladder.plans import plan
from xladder.registry import RUNGS

TICKS = {"treasurehunt": 30, "hypergrid": 200, "cartpole": 500, "minatar/breakout": 500, "atari/pong": 40}
FIELDS = {"atari/pong": {"learner": {"memory": 20_000, "learning_starts": 640}, "world": {"num_envs": 16}}}
ROWS = [f"{name}/{rung}" for name in list(TICKS)[:4] for rung in ("sequential", "parallel", "fused")]


def attempt(row: str, device: object) -> dict:
    """Check one workload on one rung."""
    workload, _, rung = row.rpartition("/")
    config, module = plan(workload, rung, **FIELDS.get(workload, {})).config, RUNGS[rung]
    ticks = TICKS[workload] // (5 if rung == "sequential" else 1)
    whole, first, second = (module.start(config, [0], device) for _ in range(3))
    whole.advance(ticks)
    begun = time.perf_counter()
    expected = whole.advance(ticks)
    seconds = time.perf_counter() - begun
    first.advance(ticks)
    kept = {name: np.array(array) for name, array in capture(first.state()).items()}
    second.take_state(restore(second.state(), kept))
    found = second.advance(ticks)
    ours, theirs = capture(second.state()), capture(whole.state())
    other = [name for name in theirs if not np.array_equal(ours[name], theirs[name], equal_nan=True)]
    same = all(np.array_equal(found[name], expected[name], equal_nan=True) for name in expected)
    return {
        "name": row,
        "ticks": 2 * ticks,
        "arrays": len(theirs),
        "arrays_that_differ": len(other),
        "metrics_equal": same,
        "seconds_per_tick": seconds / ticks,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", default=ROWS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device, rows = devices.find(None), []
    for row in options.rows:
        rows.append(attempt(row, device))
        last = rows[-1]
        verdict = "exact" if last["metrics_equal"] and not last["arrays_that_differ"] else "differs"
        print(
            f"{row:<28} {last['ticks']:>5} ticks  {verdict:<8} "
            f"{last['arrays_that_differ']:>3} of {last['arrays']} arrays differ  "
            f"{1e3 * last['seconds_per_tick']:.2f} ms",
            flush=True,
        )
    if options.json:
        flags = os.environ.get("XLA_FLAGS", "")
        found = {"xla_flags": flags, "rows": rows, **measured_on(device)}
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
