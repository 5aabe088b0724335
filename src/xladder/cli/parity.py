"""`xladder parity`: compare JAX with PyTorch on the same random draws, level by level; exits with 1 if they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from xladder.cli.main import split_workload
from xladder.cli.options import check_writable, parse_with_config, write_json_file
from xladder.devices import memory_of_machine
from xladder.errors import UsageError
from xladder.plans import check_fits, check_seeds
from xladder.registry import find_workload

if TYPE_CHECKING:
    from xladder.parity.levels import Level

MOST_UPDATES = 100_000  # their draws are made before the first


@dataclass(frozen=True)
class ParityOptions:
    """What to check."""

    updates: int = 100
    """Number of updates in the last level."""
    seed: int = 0
    """Random seed of the parameters, batches and draws."""
    json: Path | None = None
    """Write the levels as JSON to this file (- for standard output)."""
    preset: str | None = None
    """The preset to start from: one of those above."""
    config: Path | None = None
    """The config.json of a run to start from."""


def run(words: Sequence[str]) -> int:
    """Check all levels and print them; returns 1 if one fails."""
    name, rest = split_workload(words, "parity")
    workload = find_workload(name)
    about = f"Check that JAX and PyTorch learn the same on {name}."
    options, config = parse_with_config(ParityOptions, workload, rest, "xladder parity", about)
    if not 1 <= options.updates <= MOST_UPDATES:
        raise UsageError(f"`--updates` is {options.updates}, but it has to be 1 to {MOST_UPDATES:,}.")
    check_writable(options.json)
    check_seeds(options.seed, 1)
    check_fits(config, 1, memory_of_machine())
    from xladder.cli import startup

    startup.prepare("cpu")  # rounding is compared, so both sides compute on the same processor

    console = Console(stderr=str(options.json) == "-")
    with console.status("comparing JAX with PyTorch"):
        found = workload.family.parity_levels(config, options.updates, options.seed)
    shown = Table(title=f"{name}: JAX against PyTorch and NumPy, on the same random draws", title_justify="left")
    for head in ("level", "largest difference", "tolerance", ""):
        shown.add_column(head, justify="right" if head in ("largest difference", "tolerance") else "left")
    for level in found:
        mark = "[green]passed[/]" if level.passed else "[red]FAILED[/]"
        shown.add_row(level.level, f"{level.max_abs_diff:.2e}", f"{level.tolerance:.0e}", mark)
    console.print(shown)
    passed = all(level.passed for level in found)
    if not passed:
        console.print(first_difference(found))
    write_json_file(options.json, {"workload": name, "levels": [level._asdict() for level in found]})
    return 0 if passed else 1


def first_difference(levels: Sequence[Level]) -> str:
    """The sentence that names the first level that has failed."""
    place, first = next((i, level.level) for i, level in enumerate(levels) if not level.passed)
    before = "; the levels before it agree" if place > 1 else "; the level before it agrees" if place else ""
    return f"The twins first differ at “{first}”{before}."
