"""What can be put round a run to look into it: the checks of `--debug`, the trace of `--profile`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.console import Console

from xladder import debugging, profiling
from xladder.plans import Plan
from xladder.profiling import FOLDER, Profile
from xladder.runs.directory import RunDirectory


@dataclass(frozen=True)
class ToolOptions:
    """How to look into it."""

    debug: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """nans, checkify, nojit, keys, transfers or compiles, several with commas: see docs/debugging.md."""
    profile: int | None = None
    """Trace so many ticks, after the first chunk, for TensorBoard and Perfetto: see docs/profiling.md."""

    def check(self, plan: Plan, left: int | None = None) -> None:
        """Raise a `UsageError` if a plan cannot be looked into so; `left`: ticks, if not all of them."""
        debugging.check(debugging.parse(self.debug), plan)
        profiling.check(self.profile, plan, left)


class Tools:
    """Open while a run goes on."""

    def __init__(self, directory: RunDirectory, options: ToolOptions | None = None):
        options = options or ToolOptions()
        self.plan, self.directory, self.checks = directory.plan, directory, debugging.parse(options.debug)
        self.profile = Profile(directory.path / FOLDER, options.profile, self.plan.rung) if options.profile else None

    def around(self, start: Callable[..., Any]) -> Callable[..., Any]:
        """The rung's `start` with what was asked for round it."""
        if self.checks:
            from xladder.rungs.debugged import debugged

            start = debugged(start, self.checks, self.plan.workload.tick, self._log)
        return self.profile.around(start) if self.profile else start

    def __enter__(self) -> Tools:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Write what was traced; may be called twice."""
        if self.profile:
            self.profile.close()

    def report(self, console: Console) -> None:
        """Say where the trace is."""
        for line in self.profile.describe() if self.profile else []:
            self.directory.log(line)
            console.print(line, highlight=False, markup=False, soft_wrap=True)

    def _log(self, line: str) -> None:
        self.directory.log(line)
        print(line, file=sys.stderr)
