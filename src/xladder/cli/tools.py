"""What `xladder train` can put round a run to look into it: the checks of `--debug`, the trace of `--profile`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console

from xladder.profiling import FOLDER, Profile
from xladder.runs.directory import RunDirectory
from xladder.training import Plan


class Tools:
    """Open while a run goes on."""

    def __init__(self, plan: Plan, directory: RunDirectory, checks: Sequence[str] = (), profiled: int | None = None):
        self.plan, self.directory, self.checks = plan, directory, checks
        self.profile = Profile(directory.path / FOLDER, profiled, plan.rung) if profiled else None

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
