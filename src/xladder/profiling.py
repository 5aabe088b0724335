"""Trace some ticks of a run (what ran when, on which thread or device) for TensorBoard and Perfetto.

The first chunk is not traced, because warm-up is not representative. The traced ticks are part of the run, which
trains exactly as it would without tracing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xladder.core.packages import pip_line
from xladder.errors import UsageError
from xladder.plans import Plan
from xladder.protocols import Config
from xladder.registry import RUNGS
from xladder.rungs.running import Metrics, Running

FOLDER = "profile"
TORCH_FILE = "torch-trace.json.gz"


def check(ticks: int | None, plan: Plan, left: int | None = None) -> None:
    """Raise a `UsageError` if a run has too few ticks to trace.

    Args:
        ticks: Ticks to trace; they start after the first chunk, which is one tick long.
        plan: The run.
        left: Ticks left to train, if the run is resumed.
    """
    if ticks is None:
        return
    if ticks < 1:
        raise UsageError(f"`--profile` is {ticks}, but it has to be 1 or more.")
    if left is not None and ticks >= left:
        hint = f"give at most {left - 1}" if left > 1 else "leave it out"
        raise UsageError(
            f"`--profile` is {ticks}, but {left} of the run's {plan.workload.tick}s are left, and the first of them is "
            f"not traced: {hint}."
        )
    if ticks >= plan.config.ticks:
        raise UsageError(
            f"`--profile` is {ticks}, but the run has {plan.config.ticks} {plan.workload.tick}s and the first is not "
            f"traced: make it longer (`--{plan.workload.length}`), or give at most {plan.config.ticks - 1}."
        )


class Profile:
    """Traces the given number of ticks of a run's first group of seeds, into `folder`."""

    def __init__(self, folder: Path, ticks: int, rung: str):
        self.folder, self.left, self.rung = folder, ticks, rung
        self.traces: list[Path] = []
        """Files traced in this session of the run; the folder may also hold those of earlier sessions."""
        self._before: dict[Path, int] = {}
        self._stop: Callable[[], None] | None = None

    def around(self, start: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a rung's `start` so that its run is traced."""

        def start_traced(config: Config, seeds: Sequence[int], device: Any = None) -> Any:
            running = start(config, seeds, device)
            return ProfiledRun(running, self) if self.left else running

        return start_traced

    def advance(self, running: Running, ticks: int) -> Metrics:
        """Advance a run, tracing it while there are ticks left to trace."""
        traced = min(ticks, self.left)
        if not traced:
            return running.advance(ticks)
        if self._stop is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._before = self._files()
            self._stop = trace_torch(self.folder) if RUNGS[self.rung].in_pytorch else trace_jax(self.folder)
        parts = [running.advance(traced)]
        self.left -= traced
        if not self.left:
            self.close()
        if ticks > traced:
            parts.append(running.advance(ticks - traced))
        return {name: np.concatenate([part[name] for part in parts], axis=1) for name in parts[0]}

    def close(self) -> None:
        """Stop the trace and write it, if it has begun; a stopped run ends it early."""
        if self._stop:
            self._stop()
            self._stop, self.left = None, 0
            self.traces = [file for file, written in self._files().items() if self._before.get(file) != written]

    def describe(self) -> list[str]:
        """Lines that say where the trace is and how to open it, or that there is none."""
        if not self.traces:
            return ["Nothing was traced: training ended with its first chunk."]
        named = [file for file in self.traces if file.name.startswith(("perfetto", "torch"))] or self.traces
        lines = [f"trace    {named[0]}: open it at https://ui.perfetto.dev"]
        if not RUNGS[self.rung].in_pytorch:
            lines.append(f"         or: {pip_line('xprof tensorboard')}; tensorboard --logdir {self.folder}")
        return lines

    def _files(self) -> dict[Path, int]:
        """All traces in the folder with their modification times."""
        return {file: file.stat().st_mtime_ns for file in sorted(self.folder.rglob("*.json.gz"))}


class ProfiledRun:
    """Wraps a run and traces it from its second chunk on; everything else is passed through."""

    def __init__(self, running: Running, profile: Profile):
        self.running, self.profile, self.warm = running, profile, False

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly `ticks` ticks."""
        if self.warm:
            return self.profile.advance(self.running, ticks)
        self.warm = True
        return self.running.advance(ticks)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.running, name)


def trace_jax(folder: Path) -> Callable[[], None]:
    """Start tracing JAX. Returns a function that stops it."""
    import jax

    jax.profiler.start_trace(folder, create_perfetto_trace=True)
    return jax.profiler.stop_trace


def trace_torch(folder: Path) -> Callable[[], None]:
    """Start tracing PyTorch. Returns a function that stops it."""
    from xladder.rungs.torch import trace

    return trace(folder / TORCH_FILE)
