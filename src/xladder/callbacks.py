"""Observers for runs started from Python: the user's callback, Ctrl-C, and several observers combined."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.core.types import Params
from xladder.errors import UsageError
from xladder.trainer import Observer

if TYPE_CHECKING:
    from xladder.plans import Plan

STOPPED = 1  # returned by `Observer.stop` when a callback ended the run: a signal number that nobody sends
FAILED = 64  # and when the callback raised: not a signal number
AFTER_START = ("training", "measuring", "saving", "finishing")  # a rung's activities after it has started


@dataclass
class Progress:
    """The progress of a run: the argument of a `callback`, which is called between chunks of ticks.

    A chunk takes about 0.7 seconds; the first is one tick. On rungs that train seeds one after another (all but
    `fused`, `mesh` and `hosts`), ticks restart at 0 for each seed.
    """

    workload: str
    """The name of the workload."""
    rung: str
    """The rung that executes it."""
    seeds: tuple[int, ...]
    """The seeds that are being trained, in the order of the first axis of `metrics`."""
    tick: int
    """Ticks done so far."""
    ticks: int
    """Ticks of the whole run."""
    steps: int
    """The same as `tick` in the unit of the length (environment steps, frames, epochs or iterations)."""
    unit: str
    """That unit, such as "steps"."""
    metrics: Mapping[str, np.ndarray]
    """The metrics of this chunk by name, each float [seeds, ticks of the chunk]."""
    seconds: float
    """How long this chunk took."""
    elapsed: float
    """Seconds of training so far, in this process."""
    path: Path | None = None
    """The run directory, if there is one."""
    _params: Callable[[], Params] = field(default=dict, repr=False)
    _stop: Callable[[], None] = field(default=lambda: None, repr=False)

    def params(self) -> Params:
        """Copy the current parameters from the device.

        Returns:
            The same pytree as `Result.params`, for the seeds that are being trained.
        """
        import jax

        return jax.tree.map(np.array, self._params())

    def stop(self) -> None:
        """Stop the run after this chunk. `train` returns what was learned so far."""
        self._stop()


Callback = Callable[[Progress], object]
"""Called between chunks; the run stops if it returns True."""


class CallbackObserver(Observer):
    """Calls a function between chunks, and stops the run if it returns True or raises."""

    def __init__(self, plan: Plan, callback: Callback, path: Path | None = None):
        if not callable(callback):
            raise UsageError(f"`callback` is {callback!r}, but it has to be a function that takes one argument.")
        self.plan, self.callback, self.path = plan, callback, path
        self.elapsed, self.stopped = 0.0, False
        self.error: BaseException | None = None
        """What the function raised; it is raised again once the run is saved."""
        self._running: Any = None

    def started(self, seeds: Sequence[int], running: Any) -> None:
        """Remember the run, so that the callback can read its parameters."""
        self._running = running

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Call the function with this chunk's progress."""
        config, tick = self.plan.config, first + columns["return"].shape[1]
        self.elapsed += seconds
        progress = Progress(
            workload=self.plan.workload.name,
            rung=self.plan.rung,
            seeds=tuple(seeds),
            tick=tick,
            ticks=config.ticks,
            steps=tick * config.units_per_tick,
            unit=self.plan.workload.length,
            metrics=dict(columns),
            seconds=seconds,
            elapsed=self.elapsed,
            path=self.path,
            _params=self._running.params,
            _stop=self._end,
        )
        try:
            answer = self.callback(progress)
        except BaseException as error:  # whatever ends the run, what was learned is kept
            self.error = error
            self._end()
        else:
            if isinstance(answer, bool | np.bool_) and answer:
                self._end()

    def stop(self) -> int:
        """Nonzero if the run should stop after this chunk."""
        return FAILED if self.error else STOPPED if self.stopped else 0

    def _end(self) -> None:
        self.stopped = True


class Interrupts(Observer):
    """Makes Ctrl-C stop the run after the current chunk, so that progress is kept; a second Ctrl-C exits at once.

    Before the first chunk there is nothing to keep, so `KeyboardInterrupt` is raised while the rung starts. If the
    calling program handles SIGINT itself, or calls from another thread, nothing is changed.
    """

    def __init__(self) -> None:
        self.signal, self._something_done, self._all_trained = 0, False, False
        self._before: Any = None

    def __enter__(self) -> Interrupts:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def waiting(self, what: str, seconds: float) -> None:
        """Interrupt a rung that is still starting, without waiting for a chunk."""
        if self.signal and not self._something_done and what not in AFTER_START:
            raise KeyboardInterrupt

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Note that there is something to keep."""
        self._something_done = True

    def end_training(self) -> None:
        """Training is over: from now on Ctrl-C interrupts scoring and drawing at once."""
        self._all_trained = True

    def stop(self) -> int:
        """The signal received, or 0."""
        return self.signal

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.signal or self._all_trained:
            raise KeyboardInterrupt
        self.signal = number


class Observers(Observer):
    """Several observers as one; calls are passed on in order."""

    def __init__(self, observers: Sequence[Observer]):
        self.all = tuple(observers)
        self.leads = all(observer.leads for observer in self.all)

    def waiting(self, what: str, seconds: float) -> None:
        """Pass the call on to all observers."""
        for observer in self.all:
            observer.waiting(what, seconds)

    def started(self, seeds: Sequence[int], running: Any) -> None:
        """Pass the call on to all observers."""
        for observer in self.all:
            observer.started(seeds, running)

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Pass the call on to all observers."""
        for observer in self.all:
            observer.chunk(seeds, first, columns, seconds)

    def rows(self, seeds: Sequence[int], ends: np.ndarray, columns: Mapping[str, np.ndarray]) -> None:
        """Pass the call on to all observers."""
        for observer in self.all:
            observer.rows(seeds, ends, columns)

    def notify(self, line: str) -> None:
        """Pass the call on to all observers."""
        for observer in self.all:
            observer.notify(line)

    def ended(self, running: Any) -> None:
        """Pass the call on to all observers."""
        for observer in self.all:
            observer.ended(running)

    def periods(self) -> Sequence[int]:
        """Those of all observers."""
        return [period for observer in self.all for period in observer.periods()]

    def stop(self) -> int:
        """The answer of the first observer that wants to stop, or 0."""
        return next((found for observer in self.all if (found := observer.stop())), 0)

    def stop_too(self, signal: int) -> None:
        """Pass the call on to all observers."""
        for observer in self.all:
            observer.stop_too(signal)
