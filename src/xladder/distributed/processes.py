"""Processes of this machine: who started whom. Knows nothing where there is no /proc."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path


def all_ids() -> list[int]:
    """The ids of all processes."""
    return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]


def children(parents: set[int]) -> set[int]:
    """The ids of all processes that any of `parents` has started and that still run."""
    found = set()
    for each in all_ids():
        with suppress(OSError):
            # The name in brackets may contain anything; the state and the parent's id come after it.
            state, parent = Path(f"/proc/{each}/stat").read_bytes().rpartition(b")")[2].split()[:2]
            if int(parent) in parents and state != b"Z":
                found.add(each)
    return found


def descendants(parent: int) -> set[int]:
    """The ids of all processes that a process has started, and that those have."""
    found: set[int] = set()
    newest = {parent}
    while newest := children(newest) - found:
        found |= newest
    return found


def kill(ids: set[int]) -> None:
    """Kill processes; those that have ended already are no error."""
    for each in ids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(each, signal.SIGKILL)


def command_line(process: int) -> str:
    """The command line of a process, or its title where it has set one; empty if it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""
