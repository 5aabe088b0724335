"""`xladder rungs`: which workload runs on which rung, and why not where it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from xladder.cli.options import parse
from xladder.registry import RUNGS, WORKLOADS


@dataclass(frozen=True)
class RungsOptions:
    """Nothing to choose."""


def run(words: Sequence[str]) -> int:
    """Print the matrix, the rungs and the gaps."""
    parse(RungsOptions, words, "xladder rungs", "Which workload runs on which rung.")
    console = Console()
    matrix = Table(box=SIMPLE_HEAD, padding=(0, 0), pad_edge=False)
    for head in ("workload", *RUNGS):
        matrix.add_column(head, no_wrap=True)
    for workload in WORKLOADS.values():
        matrix.add_row(workload.name, *("–" if rung in workload.missing else "yes" for rung in RUNGS))
    console.print(matrix)
    for rung in RUNGS.values():
        console.print(f"{rung.name:<11} {rung.summary}", highlight=False)
    for workload in WORKLOADS.values():
        for rung_name, (why, nearest) in workload.missing.items():
            console.print(f"{workload.name} has no {rung_name}: {why}; the nearest is {nearest}.", highlight=False)
    return 0
