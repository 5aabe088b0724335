"""A run's progress, drawn and not recorded: a live bar on a terminal, a bar in a notebook, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from html import escape
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from xladder.callbacks import AFTER_START
from xladder.core.statistics import mean_and_interval
from xladder.plans import Plan
from xladder.trainer import Observer

PLAIN_SECONDS = 5.0  # between two lines when there is no terminal
NOTEBOOK_SECONDS = 0.25  # between two pictures of the bar
SMOOTH = 20  # ticks that what is shown is averaged over
UNSMOOTHED = ("epsilon", "tv", "tv_marginal", "eval_return")  # what follows a rule, and what is measured now and then
SHORTEST_COMPILE = 0.05  # seconds worth telling of


class Meter:
    """How fast a run goes and what it reaches, in a line."""

    def __init__(self, plan: Plan):
        self.plan, self.name, self.total = plan, f"{plan.workload.name}/{plan.rung}", plan.config.ticks
        self.seeds: Sequence[int] = plan.seeds
        self.done = 0
        self._shown = plan.workload.family.shown
        self._recent: dict[str, list[float]] = {name: [] for name in self._shown}
        self._rate: float | None = None
        self._chunk_ended = time.monotonic()

    def start(self, seeds: Sequence[int]) -> None:
        """These seeds begin."""
        self.seeds, self.done, self._chunk_ended = seeds, 0, time.monotonic()

    def add(self, first: int, columns: Mapping[str, np.ndarray]) -> None:
        """Ticks `first` … are done."""
        count = columns["return"].shape[1]
        self.done = first + count
        # By the clock, so that measurements between chunks count for the time that is left.
        now = time.monotonic()
        rate, self._chunk_ended = count / max(now - self._chunk_ended, 1e-9), now
        self._rate = rate if self._rate is None else 0.7 * self._rate + 0.3 * rate
        for name, values in self._recent.items():
            if name in columns:
                means = mean_and_interval(columns[name])[0]
                values.extend(means[np.isfinite(means)].tolist())
                del values[: -1 if name in UNSMOOTHED else -SMOOTH]

    @property
    def title(self) -> str:
        """What is trained."""
        several = len(self.plan.seeds) > len(self.seeds)
        return f"{self.name} seed {self.seeds[0]}" if several else self.name

    def text(self) -> str:
        """How far it is, how fast, what it reaches, and how long it still takes."""
        rate, each = self._rate or 1.0, self.plan.config.units_per_tick
        left = int((self.total - self.done) / rate)
        speed = f"{rate * each:.1f}" if rate * each < 100 else f"{rate * each:,.0f}"
        shown = [self._shown[name].format(np.mean(values)) for name, values in self._recent.items() if values]
        parts = [f"{self.done * each:,}/{self.total * each:,} {self.plan.workload.length}", f"{speed}/s", *shown]
        return " · ".join([*parts, f"{left // 60}:{left % 60:02d} left"])

    def how_far(self) -> str:
        """How far the seeds that were trained last have come."""
        count = self.done * self.plan.config.units_per_tick
        done = f"{count:,} {self.plan.workload.length.removesuffix('s' if count == 1 else '')}"
        return done if len(self.seeds) == len(self.plan.seeds) else f"{done} of seed {self.seeds[0]}"


class Drawing(Observer):
    """Somebody who looks at a run. This one sees nothing."""

    def show(self, line: str) -> None:
        """Print a line."""

    def busy(self, what: str) -> AbstractContextManager[Any]:
        """Show that something is going on after training, as long as it does."""
        return nullcontext()

    def close(self) -> None:
        """Training is over: the bar goes. May be called twice."""

    def __enter__(self) -> Drawing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ProgressBar(Drawing):
    """A live bar where the console is a terminal, else plain lines now and then."""

    def __init__(self, plan: Plan, console: Console, expected_compile: float | None = None):
        self.plan, self.console, self.meter = plan, console, Meter(plan)
        self.live = console.is_terminal
        self.busy_starting = True
        self._expected = expected_compile
        self._last_line, self._announced = 0.0, False
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
            console=console,
            transient=True,
            disable=not self.live,
        )
        self._task = self._bar.add_task(self.meter.name, total=self.meter.total, text="")

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def close(self) -> None:
        """Take the bar away."""
        self._bar.stop()

    def busy(self, what: str) -> AbstractContextManager[Any]:
        """A spinner."""
        self._bar.stop()
        return self.console.status(what)

    def waiting(self, what: str, seconds: float) -> None:
        """Show that something is going on before the first tick."""
        self.busy_starting = what not in AFTER_START
        if self.busy_starting:
            name = self.meter.name
            known = f" (last time {self._expected:.1f} s)" if self._expected and what == "compiling" else ""
            self._bar.update(self._task, description=f"{what} {name}", text=f"{seconds:.1f} s{known}")
            if not self.live and not self._announced:
                self._announced = True
                self.show(f"{what} {name} …{known}")
        time.sleep(0.02)

    def started(self, seeds: Sequence[int], running: Any) -> None:
        """Say how long compiling took, and whatever the rung wants to be known."""
        self.busy_starting = False
        if running.compile_seconds >= SHORTEST_COMPILE:  # a later seed finds everything compiled
            self.show(f"compiled in {running.compile_seconds:.1f} s")
        if running.note:
            self.show(running.note)
        self.meter.start(seeds)
        self._bar.update(self._task, description=self.meter.title, completed=0)

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Move the bar."""
        meter = self.meter
        meter.add(first, columns)
        text = meter.text()
        self._bar.update(self._task, completed=meter.done, text=text)
        if not self.live and (time.monotonic() - self._last_line > PLAIN_SECONDS or meter.done == meter.total):
            self.show(f"{meter.name}: {text}")

    def notify(self, line: str) -> None:
        """What has happened on the rung."""
        self.show(line)

    def show(self, line: str) -> None:
        """Print a line above the bar."""
        self._last_line = time.monotonic()
        self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)


class NotebookBar(Drawing):
    """A bar under the cell of a notebook; needs nothing but IPython."""

    def __init__(self, plan: Plan, display: Callable[..., Any]):
        self.meter, self._display = Meter(plan), display
        self._handle: Any = None
        self._drawn = 0.0

    def waiting(self, what: str, seconds: float) -> None:
        """Show that something is going on before the first tick."""
        if what not in AFTER_START:
            self._draw(f"{what} {self.meter.name}", f"{seconds:.1f} s")
        time.sleep(0.02)

    def started(self, seeds: Sequence[int], running: Any) -> None:
        """Whatever the rung wants to be known."""
        self.meter.start(seeds)
        if running.note:
            self.show(running.note)

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Move the bar."""
        self.meter.add(first, columns)
        self._draw(self.meter.title, self.meter.text(), now=self.meter.done == self.meter.total)

    def notify(self, line: str) -> None:
        """What has happened on the rung."""
        self.show(line)

    def show(self, line: str) -> None:
        """Print a line beside the bar."""
        print(line)

    def close(self) -> None:
        """Show where it has ended."""
        if self._handle:
            self._draw(self.meter.title, self.meter.text(), now=True)

    def _draw(self, title: str, text: str, now: bool = False) -> None:
        if not now and time.monotonic() - self._drawn < NOTEBOOK_SECONDS:
            return
        self._drawn = time.monotonic()
        bar = f"<progress value='{self.meter.done}' max='{self.meter.total}'></progress>"
        shown = {
            "text/plain": f"{title}: {text}",
            "text/html": f"<div>{escape(title)} {bar} <code>{escape(text)}</code></div>",
        }
        if self._handle is None:
            self._handle = self._display(shown, raw=True, display_id=True)
        elif self._handle:
            self._handle.update(shown, raw=True)


def drawing(plan: Plan, progress: bool | None = None) -> Drawing:
    """Who draws the progress of a run that Python has started.

    Args:
        plan: What is run.
        progress: Whether to draw it; None for where a terminal or a notebook shows it.
    """
    if progress is False:
        return Drawing()
    display = notebook_display()
    if display:
        return NotebookBar(plan, display)
    if progress or sys.stdout.isatty():
        return ProgressBar(plan, Console(force_jupyter=False))
    return Drawing()


def notebook_display() -> Callable[..., Any] | None:
    """IPython's `display`, if this process runs a notebook; IPython in a terminal is a terminal."""
    found = sys.modules.get("IPython")
    shell = found.get_ipython() if found and hasattr(found, "get_ipython") else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display
