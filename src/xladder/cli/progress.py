"""The command line's progress display: a bar, signal handling, and hints on how to resume."""

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
from xladder.runs.directory import AGENTS, RunDirectory
from xladder.runs.folders import command


class Screen(ProgressBar):
    """Shows a run, and stops it cleanly on a signal."""

    def __init__(self, plan: Plan, directory: RunDirectory, console: Console):
        self._compile_name = compile_name(plan)
        super().__init__(plan, console, startup.last_compile(self._compile_name))
        self.directory = directory
        self.something_done = False
        self.signal: int | None = None
        self.left: str | None = None
        """After training: the message for a signal that skips the evaluation."""
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
        """The signal received, or 0."""
        return self.signal or 0

    def stop_too(self, signal: int) -> None:
        """Stop because another process of the run has received a signal."""
        self.signal = signal
        self.print_line("Another host was told to stop; saving.")

    def end_training(self, saved: bool) -> None:
        """Remove the bar; from now on a signal ends the process at once."""
        self.close()
        if saved:
            self.left = f"Training is complete and saved; for scores and pictures: {self.directory.resume_command}"
        else:
            scores = command("eval", self.directory.path, self.directory.plan)
            self.left = f"Training is complete; the agents are in {self.directory.path / AGENTS}. For scores: {scores}"

    def started(self, seeds: Sequence[int], running: Running) -> None:
        """Store how long compiling took, to show it next time."""
        super().started(seeds, running)
        if running.compile_seconds >= startup.SHORTEST_COMPILE:
            startup.remember_compile(self._compile_name, running.compile_seconds)

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Move the bar, and note that there is something to save."""
        super().chunk(seeds, first, columns, seconds)
        self.something_done = True

    def print_line(self, line: str) -> None:
        """Print a line above the bar and log it."""
        self.directory.log(line)
        self.show(line)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._debounce.is_repeat():
            return
        if (self.busy_starting and not self.something_done) or self.signal is not None:
            # Nothing to save yet, or a second signal.
            self.close()
            if self.signal is None:
                self.show(f"Stopped before anything was trained; to begin: {self.directory.resume_command}")
            sys.stdout.flush()
            end_at_once(number)
        if self.left:
            self.print_line(self.left)
            sys.stdout.flush()
            end_at_once(number)
        self.signal = number
        self.print_line("Stopping after this chunk and saving; press Ctrl-C again to exit at once.")


def compile_name(plan: Plan) -> str:
    """The key under which a plan's compile time is stored."""
    settings = zlib.crc32(repr(plan.config).encode())
    return f"{plan.workload.name}/{plan.rung}/{len(plan.seeds)}/{settings:08x}"
