"""What is written while a run goes on, and when it has ended. Whoever started it, command or library: all goes here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xladder import devices
from xladder.callbacks import AFTER_START
from xladder.plans import Plan, format_seeds
from xladder.progress import SHORTEST_COMPILE, Meter
from xladder.results import Result
from xladder.runs.directory import Keeping, RunDirectory
from xladder.trainer import Observer

LOG_SECONDS = 30.0  # between two lines of progress in log.txt


class Recorder(Observer):
    """Writes a run into its directory: environment, metrics, and in log.txt what has happened.

    Args:
        directory: The run directory.
        show: Prints a line that the user should see; it is in the log already.
    """

    def __init__(self, directory: RunDirectory, show: Callable[[str], None] = lambda line: None):
        self.directory, self.plan, self.show = directory, directory.plan, show
        self.elapsed = directory.writer.elapsed
        self.unwritten = False
        """Whether rows of metrics.csv wait for room on the disk."""
        self._meter = Meter(self.plan)
        self._logged = float("-inf")
        self._starting = ""

    def begin(self, device: Any) -> str:
        """Record where the run takes place. Returns that in a line."""
        line = headline(self.plan, device)
        self.directory.log(line)
        self.directory.mark_begun()
        self.directory.write_environment(device, line)
        return line

    def notify(self, line: str) -> None:
        """Write a line into log.txt, and show it."""
        self.directory.log(line)
        self.show(line)

    def waiting(self, what: str, seconds: float) -> None:
        """Log what a rung does before it trains, once."""
        if what not in AFTER_START and what != self._starting:
            self._starting = what
            self.directory.log(f"{what} {self._meter.name} …")

    def started(self, seeds: Sequence[int], running: Any) -> None:
        """Record how the rung runs."""
        if running.compile_seconds >= SHORTEST_COMPILE:
            self.directory.log(f"compiled in {running.compile_seconds:.1f} s")
        if running.note:
            self.directory.log(running.note)
        self.directory.record_rung(running.note, getattr(running, "threads", None))
        self._meter.start(seeds)

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Append the rows of a chunk to metrics.csv and the events."""
        self.elapsed += seconds
        try:
            self.directory.append(seeds, first, columns, self.elapsed)
            self.unwritten = False
        except OSError as error:
            if not self.unwritten:  # once, until it works again: whether the run can go on, checkpoints decide
                self.notify(
                    f"metrics.csv could not be written ({error.strerror or error}); its rows are kept for later."
                )
            self.unwritten = True
        meter = self._meter
        meter.add(first, columns)
        if time.monotonic() - self._logged > LOG_SECONDS or meter.done == meter.total:
            self._logged = time.monotonic()
            self.directory.log(f"{meter.title}: {meter.text()}")

    def metadata(self, line: str) -> None:
        """Log what has happened on the rung."""
        self.directory.log(line)


def headline(plan: Plan, device: Any) -> str:
    """What is trained where, in a line."""
    return f"{plan.workload.name} on {plan.rung}, {format_seeds(plan)}, on {devices.describe(device)}"


def episodes_of(directory: RunDirectory) -> int:
    """Episodes of the evaluation at the end of a run."""
    asked = directory.keeping.eval_episodes
    return directory.plan.workload.family.train_episodes if asked is None else asked


def save(result: Result, path: str | Path, eval_episodes: int | None = None) -> Path:
    """Write the run directory of a result that was not recorded while it was trained."""
    keeping = Keeping(eval_episodes=eval_episodes)
    keeping.check()
    directory = RunDirectory.create(path, result.plan, keeping)
    try:
        recorder = Recorder(directory)
        recorder.begin(devices.find(result.plan.device))
        come_from = f"the run in {result.path}" if result.path else "a run that Python had trained"
        directory.log(f"Saved from {come_from}.")
        if result.metrics:
            directory.write_metrics(result)
        episodes = episodes_of(directory)
        score = result.evaluate(episodes) if episodes else None
        directory.finish(result, score)
        if result.is_complete:
            directory.mark_finished()
    finally:
        directory.writer.close()
        directory.lock.release()
    result.path = result.path or directory.path
    return directory.path
