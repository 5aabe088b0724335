"""Save replays while a run trains, to see how its agents change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from xladder.results import Result
from xladder.runs.directory import RunDirectory
from xladder.trainer import Observer


class ReplayRecorder(Observer):
    """Draws what the agents do, every so many epochs, steps, frames or iterations.

    Args:
        directory: The run; pictures go to `media/at-…`.
        every: How often, in the unit of the run's length; rounded up to whole ticks.
        notify: Called with a line if that fails; the run goes on.
    """

    def __init__(self, directory: RunDirectory, every: int, notify: Callable[[str], None]):
        self.directory, self._say = directory, notify
        self.ticks = -(-every // directory.plan.config.units_per_tick)
        self._running: Any = None

    def periods(self) -> Sequence[int]:
        """Chunks end where a replay is due."""
        return (self.ticks,)

    def started(self, seeds: Sequence[int], running: Any) -> None:
        """Remember the run, to read its parameters."""
        self._running = running

    def chunk(self, seeds: Sequence[int], first: int, columns: Mapping[str, np.ndarray], seconds: float) -> None:
        """Draw a replay if one is due at the end of the chunk."""
        plan = self.directory.plan
        ticks = first + columns["return"].shape[1]
        if ticks % self.ticks or seeds[0] != plan.seeds[0]:
            return
        done = ticks * plan.config.units_per_tick
        try:
            self._draw(columns, done)
        except Exception as error:  # a picture is not worth ending a run for
            self._say(f"The replay at {done:,} could not be drawn ({type(error).__name__}: {error}).")

    def _draw(self, columns: Mapping[str, np.ndarray], done: int) -> None:
        import jax

        from xladder import devices

        plan = self.directory.plan
        folder = self.directory.path / "media" / f"at-{done:09d}"
        folder.mkdir(parents=True, exist_ok=True)
        params = jax.tree.map(np.array, self._running.params())
        result = Result(plan, dict(columns), params, 0.0)
        title = f"{plan.workload.name} · {plan.rung} · after {done:,} {plan.workload.length}"
        with jax.default_device(devices.find(plan.device)):
            plan.workload.family.draw(result, {}, folder, title)
