"""MinAtar Breakout: steps per second of each rung, and the effect of bfloat16 on speed and score.

    python benchmarks/minatar.py [--rows torch fused fused/16 …] [--seconds 5] [--learn 16] [--json FILE]

A row is RUNG[/SEEDS], and steps are those of all seeds together. `--learn N` also trains and evaluates N seeds in each
precision.
"""

import argparse
import json
import time
from pathlib import Path

from rounds import measured_on

from xladder import devices
from xladder.execution import execute
from xladder.plans import plan
from xladder.registry import RUNGS

WORLD = "minatar/breakout"
ROWS = ["torch", "compiled", "hybrid", "sequential", "parallel", "fused", "fused/16", "fused/128"]


def speed(row: str, seconds: float, device: object) -> dict:
    """Steps per second of a rung, learning from its first chunk on."""
    rung, _, seeds = row.partition("/")
    seeds = int(seeds or 1)
    config = plan(WORLD, rung, learner={"learning_starts": 256}).config
    running = RUNGS[rung].start(config, list(range(seeds)), device)
    ticks = 100 if rung == "fused" else 20
    for _ in range(3):
        running.advance(ticks)
    done, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        running.advance(ticks)
        done += ticks
    each = (time.perf_counter() - begun) / done
    rate = config.per_tick * seeds / each
    return {"name": row, "steps_per_second": rate, "compile_seconds": running.compile_seconds}


def learn(precision: str, seeds: int, steps: int) -> dict:
    """Train a population and evaluate each of its agents."""
    begun = time.perf_counter()
    result = execute(plan(WORLD, "fused", seeds=seeds, steps=steps, learner={"precision": precision}))
    seconds = time.perf_counter() - begun - result.compile_seconds
    found = {"name": f"learn/{precision}", "seeds": seeds, "steps": steps, "steps_per_second": seeds * steps / seconds}
    return found | result.evaluate(20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", nargs="*", default=ROWS)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--learn", type=int, default=0, metavar="SEEDS")
    parser.add_argument("--steps", type=int, default=500_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device = devices.find(None)
    rows = []
    for name in options.rows:
        rows.append(speed(name, options.seconds, device))
        print(f"{name:<16} {rows[-1]['steps_per_second']:>12,.0f} steps/s", flush=True)
    for precision in ("float32", "bfloat16") if options.learn else ():
        rows.append(learn(precision, options.learn, options.steps))
        row = rows[-1]
        print(
            f"{row['name']:<16} {row['steps_per_second']:>12,.0f} steps/s, "
            f"{row['mean_return']:.1f} ± {row['ci95']:.1f} after {row['steps']:,} steps ({row['seeds']} seeds)",
            flush=True,
        )
    if options.json:
        found = {"world": WORLD, "rows": rows, **measured_on(device)}
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
