"""Send metrics to Weights & Biases or Trackio as well. Neither can ever stop or slow a run.

Chunks are handed to a thread through a queue of limited size: if the service is slow, chunks are left out; if it fails,
that is said once, and the run goes on without it.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from xladder.core.packages import missing_extra
from xladder.core.statistics import mean_and_interval
from xladder.errors import UsageError, unknown
from xladder.plans import Plan
from xladder.settings import to_dict
from xladder.trainer import Observer

TRACKERS = ("wandb", "trackio")
MOST_WAITING = 100  # chunks
LAST_SECONDS = 10.0  # that the end of a run waits for what is still to be sent


def check_trackers(names: Sequence[str]) -> None:
    """Raise a `UsageError` unless all trackers exist and their packages are installed."""
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
        if find_spec(name) is None:
            raise missing_extra(name, name)
    if len(set(names)) < len(names):
        raise UsageError(f"`--track` names {names[0]} twice.")


class Tracker(Observer):
    """Sends the last values of each chunk, mean over seeds, with the steps so far.

    Args:
        name: `wandb` or `trackio`; both have the same functions.
        plan: The run.
        run: The name of the run there.
        notify: Called with a line if the tracker fails.
    """

    def __init__(self, name: str, plan: Plan, run: str, notify: Callable[[str], None]):
        self.name, self.plan, self.run, self._say = name, plan, run, notify
        self.dropped = 0
        self._failed = False
        self._queue: queue.Queue[tuple[dict[str, float], int] | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._send, name=f"xladder-{name}", daemon=True)
        self._thread.start()

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Queue the newest values of a chunk."""
        config, measured = self.plan.config, self.plan.workload.family.measured(self.plan.config)
        values: dict[str, float] = {}
        for name, rows in columns.items():
            known = [row[np.isfinite(row)] for row in np.asarray(rows, float)]
            mean = mean_and_interval(np.array([row[-1] if len(row) else np.nan for row in known]))[0]
            if np.isfinite(mean):
                group = "eval" if name in measured else "train"
                values[f"{group}/{name.removeprefix('eval_')}"] = float(mean)
        step = (first + next(iter(columns.values())).shape[1]) * config.env_steps_per_tick
        self._put((values, step))

    def close(self, score: Mapping[str, Any] | None = None) -> None:
        """Send the evaluation at the end, and wait a little for what is still to be sent."""
        numbers = {
            f"score/{name}": float(value)
            for name, value in (score or {}).items()
            if isinstance(value, int | float) and not isinstance(value, bool) and np.isfinite(value)
        }
        if numbers:
            self._put((numbers, self.plan.config.ticks * self.plan.config.env_steps_per_tick))
        self._put(None)
        self._thread.join(LAST_SECONDS)

    def _put(self, item: tuple[dict[str, float], int] | None) -> None:
        if self._failed:
            return
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            self.dropped += 1

    def _send(self) -> None:
        try:
            module = import_module(self.name)
            settings = to_dict(self.plan.config) | {"rung": self.plan.rung, "seeds": len(self.plan.seeds)}
            module.init(project=f"xladder-{self.plan.workload.name.replace('/', '-')}", name=self.run, config=settings)
            while (item := self._queue.get()) is not None:
                values, step = item
                module.log(values, step=step)
            module.finish()
        except BaseException as error:  # whatever a service does, the run goes on
            self._failed = True
            first = (str(error).splitlines() or [""])[0][:200]
            self._say(f"{self.name} failed ({type(error).__name__}: {first}); the run goes on without it.")


def make_trackers(names: Sequence[str], plan: Plan, run: str, notify: Callable[[str], None]) -> list[Tracker]:
    """A tracker for each name."""
    check_trackers(names)
    return [Tracker(name, plan, run, notify) for name in names]
