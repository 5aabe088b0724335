"""Train one of our workloads once, as a peer's script trains its own. Prints one line of JSON.

    python benchmarks/our_side.py '{"workload": "cartpole", "rung": "fused", "preset": "dqn", "protocol": "cleanrl"}'

The argument has the keywords of `xladder.plans.plan`. The time is that of this process from its start until the agents
are trained, without a cache of compiled programs and without a run directory: what the peers' scripts do, too.
"""

import time

BEGUN = time.perf_counter()

import json
import os
import sys
from collections.abc import Mapping, Sequence

import numpy as np
from peer_facts import peak_memory_mb

from xladder import devices
from xladder.core.statistics import episode_weights, tenths
from xladder.execution import execute
from xladder.plans import plan
from xladder.runs.environment import versions
from xladder.runs.measure import Stopwatch, mean


class Total(Stopwatch):
    """Also adds up the seconds of all chunks."""

    seconds = 0.0

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Add a chunk."""
        self.seconds += seconds
        super().chunk(seeds, first, columns, seconds)

    def ended(self, running) -> None:
        """Nothing: to time sampling apart from learning would compile another program."""


def main() -> None:
    chosen = plan(**json.loads(sys.argv[1]))
    if chosen.device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    watch = Total()
    result = execute(chosen, watch)
    whole = time.perf_counter() - BEGUN
    late = tenths(result.metrics["return"], episode_weights("return", result.metrics))[1]
    seeds, ticks = result.metrics["loss"].shape
    row = {
        "start_seconds": whole - result.compile_seconds - watch.seconds,
        "compile_seconds": result.compile_seconds,
        "train_seconds": watch.seconds,
        "whole_seconds": whole,
        "ticks": ticks,
        "ticks_per_second": seeds * ticks / watch.seconds,
        # Of one seed's tick, the median since learning started; the first chunk with learning is not counted.
        "seconds_per_tick": float(np.median(watch.times or watch.all_times)),
        "return": mean(late),
        "log_z": float(result.metrics["log_z"][:, -1].mean()) if "log_z" in result.metrics else None,
        "peak_memory_mb": peak_memory_mb(),
        "note": watch.note,
        "device": devices.describe(devices.find(chosen.device)),
        **versions(),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
