"""A run's progress as the command shows it: the bar, how to go on, and what signals do."""

from __future__ import annotations

import signal
import sys
import zlib
from collections.abc import Mapping, Sequence
from types import FrameType

import numpy as np
from rich.console import Console

from xladder.cli import startup
from xladder.cli.signals import Debounce, end_at_once
from xladder.plans import Plan
from xladder.progress import ProgressBar
from xladder.rungs.running import Running
from xladder.runs.directory import AGENTS, RunDirectory, command


class Screen(ProgressBar):
    """Shows a run, and ends it cleanly when a signal comes."""

    def __init__(self, plan: Plan, directory: RunDirectory, console: Console):
        self._compile_name = compile_name(plan)
        super().__init__(plan, console, startup.last_compile(self._compile_name))
        self.directory = directory
        self.something_done = False
        self.signal: int | None = None
        self.left: str | None = None
        """Once all is trained: what a signal would leave undone, and how to have it."""
        self._debounce = Debounce()

    def __enter__(self) -> Screen:
        self._previous = {s: signal.signal(s, self._on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
        super().__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def stop(self) -> int:
        """The signal that has come, or 0."""
        return self.signal or 0

    def stop_too(self, signal: int) -> None:
        """Another process of the run has had a signal."""
        self.signal = signal
        self.print_line("Another host was told to stop; saving.")

    def end_training(self, saved: bool) -> None:
        """Nothing is left to train: the bar goes, and a signal has nothing to wait for any more."""
        self.close()
        if saved:
            self.left = f"All is trained and saved; for scores and pictures: {self.directory.resume_command}"
        else:
            scores = command("eval", self.directory.path)
            self.left = f"All is trained; the agents are in {self.directory.path / AGENTS}. For scores: {scores}"

    def started(self, seeds: Sequence[int], running: Running) -> None:
        """Remember how long compiling took, for the next time."""
        super().started(seeds, running)
        if running.compile_seconds >= startup.SHORTEST_COMPILE:
            startup.remember_compile(self._compile_name, running.compile_seconds)

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Move the bar; from now on there is something to save."""
        super().chunk(seeds, first, columns, seconds)
        self.something_done = True

    def print_line(self, line: str) -> None:
        """A line above the bar, and in log.txt."""
        self.directory.log(line)
        self.show(line)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._debounce.is_repeat():
            return
        if (self.busy_starting and not self.something_done) or self.signal is not None:
            # Nothing to save yet, or the user means it.
            self.close()
            sys.stdout.flush()
            end_at_once(number)
        if self.left:
            self.print_line(self.left)
            sys.stdout.flush()
            end_at_once(number)
        self.signal = number
        self.print_line("Stopping after this chunk and saving; once more to end at once.")


def compile_name(plan: Plan) -> str:
    """Under what name it is remembered how long something compiles."""
    settings = zlib.crc32(repr(plan.config).encode())
    return f"{plan.workload.name}/{plan.rung}/{len(plan.seeds)}/{settings:08x}"
