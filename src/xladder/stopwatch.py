"""Where the time of a whole command goes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping

PHASES = {
    "start-up": "imports, settings, the device",
    "starting": "the initial state: the world, parameters, memory",
    "compiling": "the program, or reading it from the cache",
    "restoring": "the checkpoint that the run resumes from",
    "first chunk": "the first ticks, which a host loop compiles for",
    "training": "the other ticks",
    "measuring": "evaluations while training",
    "recording": "metrics, events, the progress bar",
    "saving": "checkpoints",
    "evaluation": "of the trained agents",
    "pictures": "curves and replay, timings and agents",
    "rest": "anything else",
}
"""What takes time in a run, in its order."""

_command: list[float] = []


def command_begins(at: float) -> None:
    """Remember when the command of this process began, by `time.perf_counter`."""
    _command[:] = [at]


def command_begun() -> float | None:
    """When the command of this process began; None if it is no command."""
    return _command[0] if _command else None


class Stopwatch:
    """Adds up the seconds between laps.

    Args:
        begun: When to begin, by `time.perf_counter`; now if not given.
    """

    def __init__(self, begun: float | None = None):
        self._begun = self._last = time.perf_counter() if begun is None else begun
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def lap(self, name: str) -> None:
        """The time since the last lap was spent on this."""
        now = time.perf_counter()
        self._seconds[name] += now - self._last
        self._last = now

    def take(self, phases: Mapping[str, float]) -> None:
        """The time since the last lap was spent on these, measured elsewhere, and what they do not add up to."""
        for name, seconds in phases.items():
            self._seconds[name] += seconds
        self.lap("rest")
        self._seconds["rest"] -= sum(phases.values())

    def phases(self) -> dict[str, float]:
        """Seconds by phase, in the order of a run; they add up to the whole."""
        named = {name: self._seconds[name] for name in PHASES if name in self._seconds}
        others = sum(seconds for name, seconds in self._seconds.items() if name not in PHASES)
        return named | {"rest": named.get("rest", 0.0) + others}


def describe(phases: Mapping[str, float]) -> list[str]:
    """A table of where the time went, a line each, and the whole."""
    lines = [f"  {name:<12} {seconds:>8.2f} s   {PHASES.get(name, '')}".rstrip() for name, seconds in phases.items()]
    return ["where the time went", *lines, f"  {'whole':<12} {sum(phases.values()):>8.2f} s"]
