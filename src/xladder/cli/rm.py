"""`xladder rm`: remove runs, after asking."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from xladder.cli.options import parse
from xladder.errors import UsageError, printable
from xladder.runs.removing import Removal, find_removals, remove


@dataclass(frozen=True)
class RemoveOptions:
    """The runs to remove."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN…")] = ()
    """The run directories."""
    yes: bool = False
    """Do not ask."""


def run(words: Sequence[str]) -> int:
    """Remove runs; returns 1 if the answer is no."""
    options = parse(RemoveOptions, words, "xladder rm", "Remove runs with everything in them; asks first.")
    if not options.runs:
        raise UsageError("`xladder rm` needs the runs to remove: xladder rm runs/NAME")
    found = find_removals(options.runs)
    for removal in found:
        print(describe(removal))
    if not options.yes:
        if not sys.stdin.isatty():
            raise UsageError("Nothing was removed: without a terminal to ask, `xladder rm` needs `--yes`.")
        if input(f"{question(found)} [y/N] ").strip().lower() not in ("y", "yes"):
            print("Nothing was removed.")
            return 1
    for removal in found:
        remove(removal)
    print(f"Removed {count(found)}.")
    return 0


def describe(removal: Removal) -> str:
    """A line about a run that would be removed."""
    run = removal.run
    what = f"{run.workload} on {run.rung}, {run.state}" if run.workload else run.state
    return f"{printable(run.name)}  {printable(what)}, {format_size(removal.size)}"


def question(found: Sequence[Removal]) -> str:
    """Ask whether to remove them."""
    return f"Remove {count(found)}, {format_size(sum(removal.size for removal in found))}?"


def count(found: Sequence[Removal]) -> str:
    """How many runs."""
    return f"{len(found)} run{'s' * (len(found) != 1)}"


def format_size(size: float) -> str:
    """A number of bytes, in the largest unit that it fills."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 100 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
