"""Who hears of a run while it goes on, in Python: a function of the user's, Ctrl-C, and several observers as one."""

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

STOPPED = 1  # what `Observer.stop` says where a callback has ended the run: no signal that anybody sends
FAILED = 64  # and where it has raised something: no signal at all
AFTER_START = ("training", "measuring", "saving", "finishing")  # what a rung is busy with after its start


@dataclass
class Progress:
    """How far a run has come; what a `callback` is called with between chunks of ticks.

    Chunks last about 0.7 seconds; the first is one tick. Where seeds are trained one after another (all rungs but
    `fused`, `mesh` and `hosts`), ticks count from 0 again for each.
    """

    workload: str
    """The name of the workload."""
    rung: str
    """The rung that executes it."""
    seeds: tuple[int, ...]
    """The seeds that are being trained, in the order of the first axis of `metrics`."""
    tick: int
    """Ticks that are done."""
    ticks: int
    """Ticks of the whole run."""
    steps: int
    """The same as `tick` in the unit of the length: environment steps, frames, epochs or iterations."""
    unit: str
    """That unit, such as "steps"."""
    metrics: Mapping[str, np.ndarray]
    """What the ticks of this chunk reported: name → float [seeds, ticks of the chunk]."""
    seconds: float
    """How long this chunk took."""
    elapsed: float
    """Seconds of training so far, in this process."""
    path: Path | None = None
    """The run directory, where there is one."""
    _params: Callable[[], Params] = field(default=dict, repr=False)
    _stop: Callable[[], None] = field(default=lambda: None, repr=False)

    def params(self) -> Params:
        """Copy the parameters as they are now from the device.

        Returns:
            The pytree of `Result.params`, of the seeds that are being trained.
        """
        import jax

        return jax.tree.map(np.array, self._params())

    def stop(self) -> None:
        """End the run after this chunk. What it has learned is kept, as `train` gives it back."""
        self._stop()


Callback = Callable[[Progress], object]
"""Called between chunks; the run ends if it returns True."""


class CallbackObserver(Observer):
    """Calls a function between chunks, and ends the run if it says so or raises."""

    def __init__(self, plan: Plan, callback: Callback, path: Path | None = None):
        if not callable(callback):
            raise UsageError(f"`callback` is {callback!r}, but it has to be a function that takes one argument.")
        self.plan, self.callback, self.path = plan, callback, path
        self.elapsed, self.stopped = 0.0, False
        self.error: Exception | None = None
        """What the function raised; whoever started the run raises it again once all is saved."""
        self._running: Any = None

    def started(self, seeds: Sequence[int], running: Any) -> None:
        """Whose parameters the function may ask for."""
        self._running = running

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Call the function."""
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
        except Exception as error:
            self.error = error
            self._end()
        else:
            if isinstance(answer, bool | np.bool_) and answer:
                self._end()

    def stop(self) -> int:
        """Whether to end after this chunk."""
        return FAILED if self.error else STOPPED if self.stopped else 0

    def _end(self) -> None:
        self.stopped = True


class Interrupts(Observer):
    """Turns Ctrl-C into an end after the chunk, so that what was learned can be kept; a second one ends at once.

    Before the first chunk there is nothing to keep, and `KeyboardInterrupt` is raised as soon as the rung has started.
    Where the program around has its own way with SIGINT, or calls from another thread, nothing is changed.
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
        """While a rung starts, end without waiting for a chunk."""
        if self.signal and not self._something_done and what not in AFTER_START:
            raise KeyboardInterrupt

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """There is something to keep."""
        self._something_done = True

    def end_training(self) -> None:
        """From now on there is nothing to wait for: Ctrl-C ends scoring and drawing at once."""
        self._all_trained = True

    def stop(self) -> int:
        """The signal that has come, or 0."""
        return self.signal

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.signal or self._all_trained:
            raise KeyboardInterrupt
        self.signal = number


class Observers(Observer):
    """Several observers as one, notify in order."""

    def __init__(self, observers: Sequence[Observer]):
        self.all = tuple(observers)
        self.leads = all(observer.leads for observer in self.all)

    def waiting(self, what: str, seconds: float) -> None:
        """Tell all."""
        for observer in self.all:
            observer.waiting(what, seconds)

    def started(self, seeds: Sequence[int], running: Any) -> None:
        """Tell all."""
        for observer in self.all:
            observer.started(seeds, running)

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Tell all."""
        for observer in self.all:
            observer.chunk(seeds, first, columns, seconds)

    def notify(self, line: str) -> None:
        """Tell all."""
        for observer in self.all:
            observer.notify(line)

    def ended(self, running: Any) -> None:
        """Tell all."""
        for observer in self.all:
            observer.ended(running)

    def stop(self) -> int:
        """What the first says that wants to end, or 0."""
        return next((found for observer in self.all if (found := observer.stop())), 0)

    def stop_too(self, signal: int) -> None:
        """Tell all."""
        for observer in self.all:
            observer.stop_too(signal)
