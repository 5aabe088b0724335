"""A run's progress on the screen: a live bar on a terminal, plain lines elsewhere. Also what signals do."""

from __future__ import annotations

import signal
import sys
import time
import zlib
from collections.abc import Mapping, Sequence
from types import FrameType

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from xladder.cli import startup
from xladder.cli.signals import Echoes, end_at_once
from xladder.core.statistics import mean_and_interval
from xladder.results import Plan
from xladder.rungs.running import Running
from xladder.runs.directory import AGENTS, RunDirectory, command
from xladder.trainer import Observer

PLAIN_SECONDS = 5.0  # between two lines when there is no terminal
SMOOTH = 20  # ticks that what is shown is averaged over
UNSMOOTHED = ("epsilon", "tv", "tv_marginal", "eval_return")  # what follows a rule, and what is measured now and then


class Screen(Observer):
    """Shows a run, writes its metrics, and ends it cleanly when a signal comes."""

    def __init__(self, plan: Plan, directory: RunDirectory, console: Console):
        self.plan, self.directory, self.console = plan, directory, console
        self.name = f"{plan.workload.name}/{plan.rung}"
        self.total = plan.config.ticks
        self.done, self.elapsed, self.something_done = 0, directory.writer.elapsed, False
        self.unwritten = False
        """Whether rows of metrics.csv wait for room on the disk."""
        self.signal: int | None = None
        self.left: str | None = None
        """Once all is trained: what a signal would leave undone, and how to have it."""
        self.seeds: Sequence[int] = plan.seeds
        self.busy_starting = True
        self.live = console.is_terminal
        self._shown = plan.workload.family.shown
        self._recent: dict[str, list[float]] = {name: [] for name in self._shown}
        self._rate: float | None = None
        self._chunk_ended = time.monotonic()
        self._last_line = 0.0
        self._expected = startup.last_compile(self._compile_name())
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
            console=console,
            transient=True,
            disable=not self.live,
        )
        self._echoes = Echoes()
        self._task = self._bar.add_task(self.name, total=self.total, text="")

    def __enter__(self) -> Screen:
        self._previous = {s: signal.signal(s, self._on_signal) for s in (signal.SIGINT, signal.SIGTERM)}
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def stop(self) -> int:
        """The signal that has come, or 0."""
        return self.signal or 0

    def stop_too(self, signal: int) -> None:
        """Another process of the run has had a signal."""
        self.signal = signal
        self.say("Another host was told to stop; saving.")

    def end_training(self, saved: bool) -> None:
        """Nothing is left to train: the bar goes, and a signal has nothing to wait for any more."""
        self._bar.stop()
        if saved:
            self.left = f"All is trained and saved; for scores and pictures: {self.directory.resume_command}"
        else:
            scores = command("eval", self.directory.path)
            self.left = f"All is trained; the agents are in {self.directory.path / AGENTS}. For scores: {scores}"

    def how_far(self) -> str:
        """How far the seeds that were trained last have come."""
        count = self.done * self.plan.config.units_per_tick
        done = f"{count:,} {self.plan.workload.length.removesuffix('s' if count == 1 else '')}"
        return done if len(self.seeds) == len(self.plan.seeds) else f"{done} of seed {self.seeds[0]}"

    def waiting(self, what: str, seconds: float) -> None:
        """Show that something is going on before the first tick."""
        self.busy_starting = what not in ("training", "measuring", "saving", "finishing")
        if self.busy_starting:
            known = f" (last time {self._expected:.1f} s)" if self._expected and what == "compiling" else ""
            self._bar.update(self._task, description=f"{what} {self.name}", text=f"{seconds:.1f} s{known}")
            if not self.live and not self._last_line:
                self.say(f"{what} {self.name} …{known}")
        time.sleep(0.02)

    def started(self, seeds: Sequence[int], running: Running) -> None:
        """Say how long compiling took, and whatever the rung wants to be known."""
        self.busy_starting, self.seeds = False, seeds
        if running.compile_seconds >= startup.SHORTEST_COMPILE:  # a later seed finds everything compiled
            startup.remember_compile(self._compile_name(), running.compile_seconds)
            self.say(f"compiled in {running.compile_seconds:.1f} s")
        if running.note:
            self.say(running.note)
        self.directory.record_rung(running.note, getattr(running, "threads", None))
        several = len(self.plan.seeds) > len(seeds)
        self._bar.update(self._task, description=f"{self.name} seed {seeds[0]}" if several else self.name)
        self._bar.update(self._task, completed=0)
        self.done, self._chunk_ended = 0, time.monotonic()

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Write a chunk down and move the bar."""
        self.elapsed += seconds
        try:
            self.directory.append(seeds, first, columns, self.elapsed)
            self.unwritten = False
        except OSError as error:
            if not self.unwritten:  # once, until it works again: whether the run can go on, checkpoints decide
                self.say(f"metrics.csv could not be written ({error.strerror or error}); its rows are kept for later.")
            self.unwritten = True
        count = columns["return"].shape[1]
        self.done = first + count
        self.something_done = True
        # By the clock, so that measurements between chunks count for the time that is left.
        now = time.monotonic()
        rate, self._chunk_ended = count / max(now - self._chunk_ended, 1e-9), now
        self._rate = rate if self._rate is None else 0.7 * self._rate + 0.3 * rate
        for name, values in self._recent.items():
            if name in columns:
                means = mean_and_interval(columns[name])[0]
                values.extend(means[np.isfinite(means)].tolist())
                del values[: -1 if name in UNSMOOTHED else -SMOOTH]
        text = self._text()
        self._bar.update(self._task, completed=self.done, text=text)
        if not self.live and (now - self._last_line > PLAIN_SECONDS or self.done == self.total):
            self.say(f"{self.name}: {text}")

    def _text(self) -> str:
        rate, each = self._rate or 1.0, self.plan.config.units_per_tick
        left = int((self.total - self.done) / rate)
        speed = f"{rate * each:.1f}" if rate * each < 100 else f"{rate * each:,.0f}"
        shown = [self._shown[name].format(np.mean(values)) for name, values in self._recent.items() if values]
        parts = [f"{self.done * each:,}/{self.total * each:,} {self.plan.workload.length}", f"{speed}/s", *shown]
        return " · ".join([*parts, f"{left // 60}:{left % 60:02d} left"])

    def say(self, line: str) -> None:
        """A line above the bar, and in log.txt."""
        self._last_line = time.monotonic()
        self.directory.log(line)
        self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def told(self, line: str) -> None:
        """What has happened on the rung."""
        self.say(line)

    def _compile_name(self) -> str:
        settings = zlib.crc32(repr(self.plan.config).encode())
        return f"{self.name}/{len(self.plan.seeds)}/{settings:08x}"

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self._echoes.is_echo():
            return
        if (self.busy_starting and not self.something_done) or self.signal is not None:
            # Nothing to save yet, or the user means it.
            self._bar.stop()
            sys.stdout.flush()
            end_at_once(number)
        if self.left:
            self.say(self.left)
            sys.stdout.flush()
            end_at_once(number)
        self.signal = number
        self.say("Stopping after this chunk and saving; once more to end at once.")
