"""Record a run in its directory, while it trains and when it ends; for the command line and the library alike."""

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
from xladder.runs.folders import as_path
from xladder.trainer import Observer

LOG_SECONDS = 30.0  # between progress lines in log.txt


class Recorder(Observer):
    """Writes a run's environment, metrics and log into its directory.

    Args:
        directory: The run directory.
        show: Prints a line for the user.
    """

    def __init__(self, directory: RunDirectory, show: Callable[[str], None] = lambda line: None):
        self.directory, self.plan, self.show = directory, directory.plan, show
        self.elapsed = directory.writer.elapsed
        self.unwritten = False
        """Whether rows of metrics.csv could not be written yet, for example because the disk is full."""
        self._meter = Meter(self.plan)
        self._logged = float("-inf")
        self._starting = ""

    def begin(self, device: Any) -> str:
        """Record the environment of the run. Returns it as a headline."""
        line = headline(self.plan, device)
        self.directory.log(line)
        self.directory.mark_begun()
        self.directory.write_environment(device, line)
        return line

    def announce(self, line: str) -> None:
        """Log a line and show it to the user."""
        self.directory.log(line)
        self.show(line)

    def waiting(self, what: str, seconds: float) -> None:
        """Log what the rung does before training, once per activity."""
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
        """Count the time of a chunk, and log the progress now and then."""
        self.elapsed += seconds
        meter = self._meter
        meter.add(first, columns)
        if time.monotonic() - self._logged > LOG_SECONDS or meter.done == meter.total:
            self._logged = time.monotonic()
            self.directory.log(f"{meter.title}: {meter.text()}")

    def rows(self, seeds: Sequence[int], ends: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
        """Append rows to metrics.csv and the events."""
        try:
            self.directory.append(seeds, ends, columns, self.elapsed)
            self.unwritten = False
        except OSError as error:
            if not self.unwritten:  # announced once until writing works again; only failing checkpoints end the run
                self.announce(
                    f"metrics.csv could not be written ({error.strerror or error}); its rows are kept for later."
                )
            self.unwritten = True

    def notify(self, line: str) -> None:
        """Log a message from the rung; another observer shows it."""
        self.directory.log(line)


def headline(plan: Plan, device: Any) -> str:
    """One line: workload, rung, seeds and device."""
    return f"{plan.workload.name} on {plan.rung}, {format_seeds(plan)}, on {devices.describe(device)}"


def episodes_of(directory: RunDirectory) -> int:
    """Number of episodes of the evaluation at the end of a run."""
    episodes = directory.keeping.eval_episodes
    return directory.plan.workload.family.train_episodes if episodes is None else episodes


def save(
    result: Result, path: str | Path, eval_episodes: int | None = None, score: Mapping[str, Any] | None = None
) -> Path:
    """Write a run directory for a result that was not recorded during training; `score`, if it has been evaluated."""
    keeping = Keeping(eval_episodes=eval_episodes)
    keeping.check()
    directory = RunDirectory.create(as_path(path, "path"), result.plan, keeping)
    try:
        recorder = Recorder(directory)
        recorder.begin(devices.find(result.plan.device))
        origin = f"the run in {result.path}" if result.path else "a run trained from Python"
        directory.log(f"Saved from {origin}.")
        if result.metrics:
            directory.write_metrics(result)
        episodes = episodes_of(directory)
        score = score or (result.evaluate(episodes) if episodes else None)
        directory.finish(result, score)
        if result.is_complete:
            directory.mark_finished()
    finally:
        directory.writer.close()
        directory.lock.release()
    result.path = result.path or directory.path
    return directory.path
