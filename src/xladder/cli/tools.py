"""Tools that wrap a run: the checks of `--debug` and the trace of `--profile`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.console import Console

from xladder import debugging, profiling, program_cache
from xladder.plans import Plan
from xladder.profiling import FOLDER, Profile
from xladder.runs.directory import RunDirectory
from xladder.stopwatch import describe


@dataclass(frozen=True)
class ToolOptions:
    """Debugging and profiling."""

    debug: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Checks, separated by commas: nans (where the first arises), checkify (indices and divisions too), nojit (print
    works anywhere), keys (used twice), transfers (implicit ones) or compiles (each, and why)."""
    profile: int | None = None
    """Number of ticks to trace, after the first chunk, for TensorBoard and Perfetto; a line at the end says how to open
    it."""
    timings: bool = False
    """Print where the time of the whole command went, and where compiled programs are kept."""

    def check(self, plan: Plan, left: int | None = None) -> None:
        """Raise a `UsageError` if a plan does not support these tools; `left`: ticks left, if the run is resumed."""
        debugging.check(debugging.parse(self.debug), plan)
        profiling.check(self.profile, plan, left)


class Tools:
    """The debugging and profiling tools of one run; a context manager."""

    def __init__(self, directory: RunDirectory, options: ToolOptions | None = None):
        options = options or ToolOptions()
        self.plan, self.directory, self.checks = directory.plan, directory, debugging.parse(options.debug)
        self.timings = options.timings
        self.profile = Profile(directory.path / FOLDER, options.profile, self.plan.rung) if options.profile else None

    def around(self, start: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the rung's `start` with the requested tools."""
        if self.checks:
            from xladder.rungs.debugged import debugged

            start = debugged(start, self.checks, self.plan.workload.tick, self._log)
        return self.profile.around(start) if self.profile else start

    def __enter__(self) -> Tools:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write the trace; may be called twice."""
        if self.profile:
            self.profile.close()

    def report(self, console: Console) -> None:
        """Print where the trace is."""
        for line in self.profile.describe() if self.profile else []:
            self.directory.log(line)
            console.print(line, highlight=False, markup=False, soft_wrap=True)

    def report_phases(self, phases: Mapping[str, float], console: Console) -> None:
        """Print where the time went, if that was asked for."""
        for line in [*describe(phases), f"compiled programs: {program_cache.describe()}"] if self.timings else []:
            self.directory.log(line)
            console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _log(self, line: str) -> None:
        self.directory.log(line)
        print(line, file=sys.stderr)
