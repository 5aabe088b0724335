"""Show a run's progress: a live bar on a terminal, a bar in a notebook, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from html import escape
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from xladder.callbacks import AFTER_START
from xladder.core.statistics import episode_weights, weighted_mean
from xladder.plans import Plan
from xladder.trainer import Observer

PLAIN_SECONDS = 5.0  # between lines when there is no terminal
BAR_WIDTH = 20
NOTEBOOK_SECONDS = 0.25  # between redraws of the bar
SMOOTH = 20  # displayed values are averaged over this many ticks
UNSMOOTHED = ("epsilon", "tv", "tv_marginal", "eval_return")  # schedules, and values measured only now and then
SPEED_SECONDS = 10.0  # over about so much time the speed is averaged
FIRST_ESTIMATE_SECONDS = 1.0  # of chunks before the time left is estimated
NOTABLE_SECONDS = 1.0  # of a start besides compiling
SHORTEST_COMPILE = 0.05  # shorter compilations are not mentioned, in seconds


class Meter:
    """Tracks a run's speed and metrics, and formats them as one line."""

    def __init__(self, plan: Plan):
        self.plan, self.name, self.total = plan, f"{plan.workload.name}/{plan.rung}", plan.config.ticks
        self.seeds: Sequence[int] = plan.seeds
        self.done = 0
        self._shown = plan.workload.family.shown
        self._recent: dict[str, list[tuple[float, float]]] = {name: [] for name in self._shown}
        """Metric → its last values, each with its weight."""
        self._begin()

    def start(self, seeds: Sequence[int]) -> None:
        """Start counting for a new group of seeds."""
        self.seeds = seeds
        self._begin()

    def _begin(self) -> None:
        self.done, self._chunk_ended = 0, time.monotonic()
        self._learning = False
        self._ticks, self._seconds = 0.0, 0.0
        """What the speed is computed from: of the last chunks, older ones with a smaller weight."""

    def add(self, first: int, columns: Mapping[str, np.ndarray]) -> None:
        """Record a finished chunk whose first tick is `first`."""
        count = columns["return"].shape[1]
        begins, self.done = self.done == 0, first + count
        self._time(count, columns, begins)
        for name, values in self._recent.items():
            if name in columns:
                weights = episode_weights(name, columns)
                counted = np.isfinite(columns[name]) if weights is None else weights
                kept = 1 if name in UNSMOOTHED else SMOOTH
                last = np.flatnonzero((counted > 0).any(0))[-kept:]  # the other ticks cost nothing
                means = weighted_mean(columns[name][:, last], None if weights is None else weights[:, last], axis=0)
                total = counted[:, last].sum(0)
                values.extend((mean, weight) for mean, weight in zip(means, total, strict=True) if np.isfinite(mean))
                del values[:-kept]

    def _time(self, count: int, columns: Mapping[str, np.ndarray], begins: bool) -> None:
        """Take the time of a chunk of `count` ticks."""
        # Wall-clock time, so that the estimated time left includes evaluations between chunks.
        now = time.monotonic()
        seconds, self._chunk_ended = now - self._chunk_ended, now
        learned = self._learning
        self._learning = learned or bool(np.isfinite(columns["loss"]).any())
        if begins or self._learning != learned:
            # Before the first chunk ends, evaluations are compiled; ticks that do not learn yet are quicker.
            self._ticks = self._seconds = 0.0
            return
        # By seconds, not by chunks: the first chunks are a few ticks long, and most of their time is overhead.
        fade = math.exp(-seconds / SPEED_SECONDS)
        self._ticks, self._seconds = fade * self._ticks + count, fade * self._seconds + seconds

    @property
    def _rate(self) -> float | None:
        """Ticks per second; None as long as it is unknown."""
        return self._ticks / self._seconds if self._seconds >= FIRST_ESTIMATE_SECONDS else None

    @property
    def title(self) -> str:
        """The workload and rung, with the seed if seeds are trained one after another."""
        several = len(self.plan.seeds) > len(self.seeds)
        return f"{self.name} seed {self.seeds[0]} ({self._place} of {len(self.plan.seeds)})" if several else self.name

    @property
    def _place(self) -> int:
        """The number of the last seed that has begun, from 1."""
        return self.plan.seeds.index(self.seeds[-1]) + 1

    @property
    def share(self) -> float:
        """The fraction of the run that is done."""
        return self.done / self.total if self.total else 1.0

    @property
    def time_left(self) -> str:
        """The estimated time left for all seeds, as `1:23 left`; empty as long as it is unknown."""
        groups = (len(self.plan.seeds) - self._place) / len(self.seeds)
        ticks = self.total - self.done + groups * self.total
        if self._rate is None and ticks:
            return ""
        left = int(ticks / (self._rate or 1.0))
        hours, minutes = divmod(left // 60, 60)
        return f"{hours}:{minutes:02d}:{left % 60:02d} left" if hours else f"{minutes}:{left % 60:02d} left"

    def text(self) -> str:
        """Progress, speed, metrics and estimated time left, as one line."""
        done, speed, shown = self._pieces()
        return " · ".join(filter(None, [done, speed, *shown, self.time_left]))

    def fitting(self, width: int) -> str:
        """As many of the metrics, progress and speed as fit into a line of this width, the most important first."""
        done, speed, shown = self._pieces()
        text = ""
        for part in filter(None, [*shown[:1], done, speed, *shown[1:]]):
            longer = f"{text} · {part}" if text else part
            if len(longer) <= width:
                text = longer
        return text

    def _pieces(self) -> tuple[str, str, list[str]]:
        each = self.plan.config.units_per_tick
        rate = (self._rate or 0.0) * each
        speed = "" if self._rate is None else f"{rate:.1f}/s" if rate < 100 else f"{rate:,.0f}/s"
        shown = [self._shown[name].format(_mean(values)) for name, values in self._recent.items() if values]
        return f"{self.done * each:,}/{self.total * each:,} {self.plan.workload.length}", speed, shown

    def how_far(self) -> str:
        """The progress of the group of seeds trained last, in words."""
        count = self.done * self.plan.config.units_per_tick
        done = f"{count:,} {self.plan.workload.length.removesuffix('s' if count == 1 else '')}"
        return done if len(self.seeds) == len(self.plan.seeds) else f"{done} of seed {self.seeds[0]}"


def _mean(weighted: Sequence[tuple[float, float]]) -> float:
    values, weights = np.array(weighted).T
    return float(weighted_mean(values, weights))


class Drawing(Observer):
    """Base class for observers that show a run. This one shows nothing."""

    def show(self, line: str) -> None:
        """Print a line."""

    def busy(self, what: str) -> AbstractContextManager[Any]:
        """Show that work is going on after training, for the duration of the context."""
        return nullcontext()

    def close(self) -> None:
        """Remove the bar when training is over. May be called twice."""

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
        self._last_line = 0.0
        self._waited = 0.0
        """Seconds of the rung's start so far: compiling, and everything before it."""
        self.announced = False
        """Whether it was said that the rung starts; if set before, it is not said."""
        self._bar = Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True)),
            BarColumn(bar_width=BAR_WIDTH),
            TextColumn("{task.fields[share]}"),
            TextColumn("{task.fields[text]}", table_column=Column(no_wrap=True)),
            console=console,
            transient=True,
            disable=not self.live,
        )
        self._task = self._bar.add_task(self.meter.name, total=self.meter.total, text="", share="")

    def __enter__(self) -> ProgressBar:
        self._bar.start()
        return self

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()

    def busy(self, what: str) -> AbstractContextManager[Any]:
        """Show a spinner for the duration of the context."""
        self._bar.stop()
        return self.console.status(what)

    def waiting(self, what: str, seconds: float) -> None:
        """Show what the rung is doing before the first tick."""
        self.busy_starting = what not in AFTER_START
        if self.busy_starting:
            name = self.meter.name
            known = f" (last time: {self._expected:.1f} s)" if self._expected and what == "compiling" else ""
            self._waited = seconds
            text = f"{seconds:.1f} s{known}"
            self._bar.update(self._task, description=f"{what} {name}", completed=0, share="", text=text)
            if not self.live and not self.announced:
                self.announced = True
                self.show(f"{what} {name} …{known}")

    def started(self, seeds: Sequence[int], running: Any) -> None:
        """Show how long compiling took, and the rung's note if it has one."""
        self.busy_starting = False
        if running.compile_seconds >= SHORTEST_COMPILE:  # for later seeds everything is already compiled
            more = self._waited >= running.compile_seconds + NOTABLE_SECONDS
            ready = f", ready after {self._waited:.1f} s" if more else ""
            self.show(f"compiled in {running.compile_seconds:.1f} s{ready}")
        if running.note:
            self.show(running.note)
        self.meter.start(seeds)
        self._bar.update(self._task, description=self.meter.title, completed=0, share="", text="first chunk …")

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Move the bar."""
        meter = self.meter
        meter.add(first, columns)
        share = " · ".join(filter(None, [f"{100 * meter.share:3.0f} %", meter.time_left]))
        title = meter.title
        room = self.console.width - BAR_WIDTH - len(share) - 3  # three columns of spaces
        if len(title) > room:  # the bar, the percentage and the time left are worth more than a long name
            title = title[: max(room - 1, 0)] + "…"
        text = meter.fitting(room - len(title))
        self._bar.update(self._task, description=title, completed=meter.done, share=share, text=text)
        if not self.live and (time.monotonic() - self._last_line > PLAIN_SECONDS or meter.done == meter.total):
            self.show(f"{meter.name}: {meter.text()}")

    def notify(self, line: str) -> None:
        """Show a message from the rung."""
        self.show(line)

    def show(self, line: str) -> None:
        """Print a line above the bar."""
        self._last_line = time.monotonic()
        self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)


class NotebookBar(Drawing):
    """A bar below a notebook cell; needs only IPython."""

    def __init__(self, plan: Plan, display: Callable[..., Any]):
        self.meter, self._display = Meter(plan), display
        self._handle: Any = None
        self._drawn = 0.0

    def waiting(self, what: str, seconds: float) -> None:
        """Show what the rung is doing before the first tick."""
        if what not in AFTER_START:
            self._draw(f"{what} {self.meter.name}", f"{seconds:.1f} s")

    def started(self, seeds: Sequence[int], running: Any) -> None:
        """Show the rung's note if it has one."""
        self.meter.start(seeds)
        if running.note:
            self.show(running.note)

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Move the bar."""
        self.meter.add(first, columns)
        self._draw(self.meter.title, self.meter.text(), now=self.meter.done == self.meter.total)

    def notify(self, line: str) -> None:
        """Show a message from the rung."""
        self.show(line)

    def show(self, line: str) -> None:
        """Print a line."""
        print(line)

    def close(self) -> None:
        """Draw the final state."""
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
    """Choose how to show the progress of a run started from Python.

    Args:
        plan: The run.
        progress: Whether to show it; None to show it only on a terminal or in a notebook.
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
    """IPython's `display` if this process runs a notebook; IPython in a terminal does not count."""
    found = sys.modules.get("IPython")
    shell = found.get_ipython() if found and hasattr(found, "get_ipython") else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    from IPython.display import display

    return display
