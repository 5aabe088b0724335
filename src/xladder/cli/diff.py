"""`xladder diff`: show where two runs differ; exits with 1 if their metrics do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from xladder.cli.options import parse, write_json_file
from xladder.errors import printable
from xladder.runs.difference import Difference, Pair, compare_runs


@dataclass(frozen=True)
class DiffOptions:
    """The runs to compare."""

    run_a: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The first run directory."""
    run_b: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The second run directory."""
    json: Path | None = None
    """Write the differences as JSON to this file (- for standard output)."""


def run(words: Sequence[str]) -> int:
    """Compare two runs and print the differences; returns 1 if the metrics differ."""
    options = parse(
        DiffOptions,
        words,
        "xladder diff",
        "Show where the metrics of two runs first differ, and how their configs and environments differ.",
    )
    found = compare_runs(options.run_a, options.run_b)
    console = Console(stderr=str(options.json) == "-")
    for line in describe(found):
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    write_json_file(options.json, as_json(found))
    return 0 if found.identical else 1


def describe(found: Difference) -> list[str]:
    """Format the differences as lines."""
    if found.identical:
        lines = [f"identical in {found.rows:,} rows of metrics" if found.rows else "identical: neither has any metrics"]
    elif found.parting:
        tick, seed = found.parting
        lines = [f"the metrics first differ at {found.tick} {tick}, seed {seed}:", *pairs(found.columns)]
    else:
        lines = [f"the metrics agree where both runs have them, but {found.missing:,} rows are in one run only"]
    for place, name in enumerate(("first", "second")):
        if columns := [printable(column) for column, has in found.only.items() if has[place]]:
            lines.append(f"in the {name} run only, not compared: {', '.join(columns)}")
    for seed, ends in found.ends.items():
        first, second = ("is missing" if last is None else f"ends at {found.tick} {last}" for last in ends)
        lines.append(f"seed {seed} {first} in the first run and {second} in the second")
    for title, values in (("config", found.config), ("environment", found.environment)):
        if values:
            lines += [f"{title}:", *pairs(values)]
    return lines


def pairs(values: Mapping[str, Pair]) -> list[str]:
    """One line per name with the values of the first and the second run."""
    width = max((len(printable(name)) for name in values), default=0)
    return [f"  {printable(name):<{width}}  {shown(a)} | {shown(b)}" for name, (a, b) in values.items()]


def shown(value: Any) -> str:
    """Format a value on one line."""
    return "–" if value is None else printable(value)


def as_json(found: Difference) -> dict[str, Any]:
    """Convert the differences to JSON-ready data; every pair is [first run, second run]."""
    parting = found.parting and {
        found.tick: found.parting[0],
        "seed": found.parting[1],
        "columns": {name: list(pair) for name, pair in found.columns.items()},
    }
    return {
        "identical": found.identical,
        "rows": found.rows,
        "rows_in_one_only": found.missing,
        "first_difference": parting,
        "ends": {str(seed): list(pair) for seed, pair in found.ends.items()},
        "config": {name: list(pair) for name, pair in found.config.items()},
        "environment": {name: list(pair) for name, pair in found.environment.items()},
        "columns_in_one_only": {name: list(pair) for name, pair in found.only.items()},
    }
