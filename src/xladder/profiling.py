"""A trace of some ticks of a run: what ran when, on which thread or device, for TensorBoard and Perfetto.

The first chunk is left out, because what it warms up says nothing about the rest. The ticks that are traced are the
run's own: nothing is trained more, or otherwise, than without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xladder.errors import UsageError
from xladder.plans import Plan
from xladder.rungs.running import Metrics, Running

FOLDER = "profile"
TORCH_FILE = "torch-trace.json.gz"


def check(ticks: int | None, plan: Plan, left: int | None = None) -> None:
    """Raise a `UsageError` if a run has not so many ticks after its first chunk, which is one tick long.

    `left`: how many there are before it, if not all of them.
    """
    if ticks is None:
        return
    if ticks < 1:
        raise UsageError(f"`--profile` is {ticks}, but it has to be 1 or more.")
    if left is not None and ticks >= left:
        way_out = f"give {left - 1} at most" if left > 1 else "leave it out"
        raise UsageError(
            f"`--profile` is {ticks}, but of the run's {plan.workload.tick}s {left} are left, and the first of them is "
            f"not traced: {way_out}."
        )
    if ticks >= plan.config.ticks:
        raise UsageError(
            f"`--profile` is {ticks}, but the run has {plan.config.ticks} {plan.workload.tick}s and the first is not "
            f"traced: make it longer (`--{plan.workload.length}`), or give {plan.config.ticks - 1} at most."
        )


class Profile:
    """Traces so many ticks of the first seeds of a run, into `folder`."""

    def __init__(self, folder: Path, ticks: int, rung: str):
        self.folder, self.left, self.rung = folder, ticks, rung
        self.traces: list[Path] = []
        """What this session of the run has traced; others may have left their own beside it."""
        self._before: dict[Path, int] = {}
        self._stop: Callable[[], None] | None = None

    def around(self, start: Callable[..., Any]) -> Callable[..., Any]:
        """A `start` for the same rung whose run is traced."""

        def start_traced(config: Any, seeds: Sequence[int], device: Any = None) -> Any:
            running = start(config, seeds, device)
            return ProfiledRun(running, self) if self.left else running

        return start_traced

    def advance(self, running: Running, ticks: int) -> Metrics:
        """Advance a run and trace it, as long as there are ticks to be traced."""
        traced = min(ticks, self.left)
        if not traced:
            return running.advance(ticks)
        if self._stop is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._before = self._files()
            self._stop = trace_torch(self.folder) if self.rung == "torch" else trace_jax(self.folder)
        parts = [running.advance(traced)]
        self.left -= traced
        if not self.left:
            self.close()
        if ticks > traced:
            parts.append(running.advance(ticks - traced))
        return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}

    def close(self) -> None:
        """End the trace and write it, if it has begun; a run that is stopped ends early."""
        if self._stop:
            self._stop()
            self._stop, self.left = None, 0
            self.traces = [file for file, written in self._files().items() if self._before.get(file) != written]

    def describe(self) -> list[str]:
        """Where the trace is, and what opens it; or that there is none."""
        if not self.traces:
            return ["Nothing was traced: training ended with its first chunk."]
        named = [file for file in self.traces if file.name.startswith(("perfetto", "torch"))] or self.traces
        lines = [f"trace    {named[0]}: open it at https://ui.perfetto.dev"]
        if self.rung != "torch":
            lines.append(f"         or: pip install xprof tensorboard; tensorboard --logdir {self.folder}")
        return lines

    def _files(self) -> dict[Path, int]:
        """Every trace in the folder, and when it was written."""
        return {file: file.stat().st_mtime_ns for file in sorted(self.folder.rglob("*.json.gz"))}


class ProfiledRun:
    """A run whose second chunk and those after it are traced; in everything else it is the run itself."""

    def __init__(self, running: Running, profile: Profile):
        self.running, self.profile, self.warm = running, profile, False

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly so many ticks."""
        if self.warm:
            return self.profile.advance(self.running, ticks)
        self.warm = True
        return self.running.advance(ticks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.running, name)


def trace_jax(folder: Path) -> Callable[[], None]:
    """Begin to trace JAX; what is returned ends it."""
    import jax

    jax.profiler.start_trace(folder, create_perfetto_trace=True)
    return jax.profiler.stop_trace


def trace_torch(folder: Path) -> Callable[[], None]:
    """Begin to trace PyTorch; what is returned ends it."""
    from xladder.rungs.torch import trace

    return trace(folder / TORCH_FILE)
