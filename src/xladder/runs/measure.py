"""Time one plan in this process and print the row as JSON: the child process of `compare`.

    echo PLAN | python -m xladder.runs.measure

No cache of compiled programs is used, so `compile_seconds` is that of a first run.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xladder import devices, user_code
from xladder.core.statistics import episode_weights, mean_and_interval, tenths
from xladder.errors import XladderError
from xladder.execution import execute
from xladder.plans import Plan
from xladder.registry import RUNGS
from xladder.rungs.running import Running
from xladder.trainer import Observer


class Stopwatch(Observer):
    """Records the time per tick of every chunk after learning has started."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.all_times: list[float] = []
        self.note = ""
        self.phases: list[dict[str, float]] = []

    def started(self, seeds: Sequence[int], running: Running) -> None:
        """Start timing a group of seeds; its first chunk with learning is warm-up and not counted."""
        self.note, self.warm = running.note, False

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Record one entry per tick, so that the median is over ticks."""
        ticks = columns["loss"].shape[1]
        entries = [seconds / ticks / len(seeds)] * ticks
        self.all_times += entries
        learning = bool(np.isfinite(columns["loss"]).all())
        if learning and self.warm:
            self.times += entries
        self.warm = learning

    def ended(self, running: Running) -> None:
        """Time sampling and update separately."""
        self.phases.append(running.phases())


def measure(plan: Plan) -> dict[str, Any]:
    """Train a plan and return its row of the comparison: times, memory and returns."""
    watch = Stopwatch()
    result = execute(plan, watch)
    device = devices.find(plan.device)
    first, late = tenths(result.metrics["return"], episode_weights("return", result.metrics))
    times = watch.times or watch.all_times
    return {
        "rung": plan.rung,
        f"seconds_per_{plan.workload.tick}": float(np.median(times)),
        "compile_seconds": result.compile_seconds,
        "speedup": None,
        "return_first": mean(first),
        **over_seeds("return_last", late),
        **{f"{name}_seconds": median([each[name] for each in watch.phases]) for name in watch.phases[0]},
        **last_entries(plan.workload.family.last_measured, result.metrics),
        "peak_memory_mb": peak_memory_mb(device, plan.rung),
        "learning": bool(watch.times),
        "note": watch.note,
        "device": devices.describe(device),
    }


def median(seconds: Sequence[float]) -> float | None:
    """The median of some times; None if one of them could not be measured."""
    return float(np.median(seconds)) if np.isfinite(seconds).all() else None


def mean(values: np.ndarray) -> float:
    """The mean of the finite values; nan if there are none."""
    return float(mean_and_interval(values)[0])


def last_entries(names: Sequence[str], columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The last entry of each column [seeds, ticks], over seeds; None for one that was not measured."""
    found: dict[str, Any] = {}
    for name in names:
        found |= over_seeds(name, columns[name][:, -1]) if name in columns else {name: None}
    return found


def over_seeds(name: str, values: np.ndarray) -> dict[str, Any]:
    """The mean of values [seeds], the half width of its 95 % interval (nan for one seed), and the values."""
    middle, half_width = mean_and_interval(values)
    return {name: float(middle), f"{name}_ci95": float(half_width), f"{name}_per_seed": values.tolist()}


def peak_memory_mb(device: Any, rung: str) -> float:
    """Peak memory in MiB: of the device if it is a GPU, otherwise of this process."""
    if device.platform != "cpu":
        if RUNGS[rung].in_pytorch:
            from xladder.rungs.torch import peak_memory

            return peak_memory() / 2**20
        return device.memory_stats()["peak_bytes_in_use"] / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def main() -> int:
    """Read a plan from standard input, measure it and print its row."""
    from xladder.runs.plan_files import parse_plan

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    try:
        metadata = json.load(sys.stdin)
        for module in metadata.pop("imports", []):
            user_code.allow(module)
        plan = parse_plan(metadata, "the plan")
        if plan.device == "cpu":
            os.environ["JAX_PLATFORMS"] = "cpu"
        row = measure(plan)
    except XladderError as error:
        row = {"error": str(error), "exit_code": error.exit_code}
    print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main())
