"""`xladder runs`: list the runs in a folder."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from xladder.cli.options import parse, split_tags, write_json_file
from xladder.core.statistics import signed
from xladder.errors import printable
from xladder.runs.listing import RunInfo, State, list_runs

STYLES = {"running": "cyan", "finished": "green", "stopped": "yellow", "diverged": "red", "damaged": "red"}
RIGHT = ("seeds", "return", "steps", "time", "started")
ALWAYS = ("name", "state", "return")
# The others are shown where there is room, the first one first.
IF_THERE_IS_ROOM = ("started", "workload", "rung", "seeds", "tags", "steps", "time")
GAP = 2  # of the spaces between two columns, rich puts one there itself


@dataclass(frozen=True)
class RunsOptions:
    """Which runs to list, and in what order."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="[FOLDER]")] = Path("runs")
    """The folder, which may have folders of runs in it."""
    sort: Literal["time", "return", "name"] = "time"
    """Newest first, best return first, or by name."""
    workload: str | None = None
    """List only runs of this workload."""
    rung: str | None = None
    """List only runs on this rung."""
    tag: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="TAG")] = ()
    """List only runs with this tag; with all of them if it is given several times or with commas."""
    state: State | None = None
    """List only runs in this state."""
    json: Path | None = None
    """Write the list as JSON to this file (- for standard output)."""


def run(words: Sequence[str]) -> int:
    """List runs as a table."""
    options = parse(RunsOptions, words, "xladder runs", "List the runs in a folder, newest or best first.")
    found = list_runs(
        options.folder,
        workload=options.workload,
        rung=options.rung,
        tags=split_tags(options.tag),
        state=options.state,
        sort=options.sort,
    )
    console = Console(stderr=str(options.json) == "-", highlight=False, markup=False)
    if found:
        show(console, found)
    else:
        console.print(f"No run in {printable(options.folder)} matches.")
    write_json_file(options.json, {"runs": [one.as_json() for one in found]})
    return 0


def show(console: Console, found: Sequence[RunInfo]) -> None:
    """Print the table, with as many columns as there is room for; whoever reads it through a pipe gets all."""
    rows = [cells(one) for one in found]
    used = [head for head in rows[0] if head in ALWAYS or any(row[head] for row in rows)]
    widths = {head: GAP + max(cell_len(head), *(cell_len(row[head]) for row in rows)) for head in used}
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = sum(widths.values())
    shown = {head: widths[head] for head in ALWAYS}
    for head in IF_THERE_IS_ROOM:
        if head in used and sum(shown.values()) + widths[head] - GAP <= console.width:
            shown[head] = widths[head]
    heads = [head for head in used if head in shown]
    table = Table(box=SIMPLE_HEAD, padding=(0, GAP - 1, 0, 0), pad_edge=False, show_edge=False)
    for head in heads:
        table.add_column(
            head, justify="right" if head in RIGHT else "left", no_wrap=head not in ("name", "tags"), overflow="fold"
        )
    for one, row in zip(found, rows, strict=True):
        table.add_row(*(Text(row[head], style=STYLES[one.state] if head == "state" else "") for head in heads))
    console.print(table)
    for one in found:
        if one.problem or one.note:
            console.print(f"{printable(one.name)}: {printable(one.problem or one.note)}", soft_wrap=True)


def cells(one: RunInfo) -> dict[str, str]:
    """The cells of a row, by column."""
    return {
        "name": printable(one.name),
        "workload": printable(one.workload, 40),
        "rung": printable(one.rung, 20),
        "seeds": str(len(one.seeds)) if one.seeds else "",
        "state": one.state,
        "return": format_return(one),
        "steps": "" if one.steps is None else f"{one.steps:,}",
        "time": "" if one.seconds is None else format_seconds(one.seconds),
        "tags": printable(", ".join(one.tags), 60),
        "started": format_start(one.started),
    }


def format_return(one: RunInfo) -> str:
    """The evaluated return with its interval, or the total variation of a GFlowNet.

    Before there is an evaluation, the return of the last rows is shown behind a `~`.
    """
    if one.score is None:
        return ""
    if one.variation is not None:
        few = 1 < len(one.variations) < 4  # a mean of so few would hide one that is far off
        shown = ", ".join(f"{each:.3f}" for each in one.variations) if few else f"{one.variation:.3f}"
        return f"tv {shown}" + (f", {one.collapsed} of {len(one.seeds)} miss modes" if one.collapsed else "")
    digits = 1 if max(abs(one.score), one.interval or 0.0) >= 10 else 3
    if one.evaluated is None:
        return f"~ {signed(one.score, digits)}"
    return signed(one.score, digits) + (f" ± {one.interval:.{digits}f}" if one.interval is not None else "")


def format_seconds(seconds: float) -> str:
    """A duration, in the largest unit that it fills."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def format_start(started: float) -> str:
    """The time of day for runs of today, the day too for those of this year, else the date."""
    try:
        when = time.localtime(started)
    except (OverflowError, OSError, ValueError):
        return ""
    now = time.localtime()
    if when.tm_year != now.tm_year:
        return time.strftime("%Y-%m-%d", when)
    return time.strftime("%H:%M" if when.tm_yday == now.tm_yday else "%m-%d %H:%M", when)
