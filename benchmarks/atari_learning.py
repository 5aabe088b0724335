"""Atari: a whole run under a protocol; its learning curve and evaluation beside published results.

python benchmarks/atari_learning.py pong dopamine --frames 10_000_000 --json FILE
"""

import argparse
import json
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
from rounds import measured_on

from xladder import devices
from xladder.core.statistics import weighted_mean
from xladder.execution import execute
from xladder.plans import plan
from xladder.runs.directory import RunDirectory
from xladder.trainer import Observer


class ProgressPrinter(Observer):
    """Prints a progress line now and then."""

    def __init__(self, each: int):
        self.each, self.begun, self.last, self.returns = each, time.perf_counter(), 0.0, []

    def chunk(self, seeds, first, columns, seconds):
        now = time.perf_counter() - self.begun
        self.returns += [r for r in columns["return"][0] if np.isfinite(r)]
        evaluated = columns.get("eval_return")
        done = evaluated is not None and np.isfinite(evaluated[0, -1])
        if done or now - self.last > 15:
            self.last = now
            ticks = first + columns["return"].shape[1]
            text = f"{now:.0f} s {ticks * self.each:,} steps, return {np.mean(self.returns[-100:]):.1f}"
            print(text + (f", evaluated {evaluated[0, -1]:.1f}" if done else ""), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("game")
    parser.add_argument("protocol")
    parser.add_argument("--frames", type=int, default=10_000_000)
    parser.add_argument("--envs", type=int, default=160)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--evaluations", type=int, default=4, help="number of evaluations during training")
    parser.add_argument("--memory", type=int)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    chosen = plan(
        f"atari/{options.game}",
        "parallel",
        preset=options.protocol,
        protocol=options.protocol,
        seed=options.seed,
        frames=options.frames,
        world={"num_envs": options.envs},
        learner={"precision": options.precision} | ({"memory": options.memory} if options.memory else {}),
        evaluate_every=options.frames // options.evaluations,
    )
    begun = time.perf_counter()
    result = execute(chosen, ProgressPrinter(chosen.config.per_tick))
    seconds = time.perf_counter() - begun
    score = result.evaluate(options.episodes)
    m, ticks = result.metrics, chosen.config.ticks
    parts = 50
    edges = np.linspace(0, ticks, parts + 1).astype(int)

    def mean(begin, end):
        value = float(weighted_mean(m["return"][0, begin:end], m["episodes"][0, begin:end]))
        return value if np.isfinite(value) else None

    curve = [mean(a, b) for a, b in pairwise(edges)]
    evaluated = np.flatnonzero(np.isfinite(m["eval_return"][0]))
    found = {
        "game": options.game,
        "protocol": options.protocol,
        "frames": options.frames,
        "copies": options.envs,
        "seed": options.seed,
        "precision": options.precision,
        "seconds": seconds,
        "steps_per_second": chosen.config.agent_steps / seconds,
        "training_return_last_tenth": mean(ticks - ticks // 10, ticks),
        "training_curve": {"frames": [int(b * chosen.config.units_per_tick) for b in edges[1:]], "return": curve},
        "evaluations": {
            "frames": [int((t + 1) * chosen.config.units_per_tick) for t in evaluated],
            "return": [float(x) for x in m["eval_return"][0, evaluated]],
        },
        "final": score,
        "updates": int(m["updates"].sum()),
        **measured_on(devices.find(None)),
    }
    print(json.dumps({k: found[k] for k in ("seconds", "steps_per_second", "training_return_last_tenth", "final")}))
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")
    if options.save:
        directory = RunDirectory.create(options.save, chosen)
        directory.write_metrics(result)
        directory.finish(result, score)


if __name__ == "__main__":
    main()
