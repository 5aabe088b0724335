"""Find where two runs differ: in their metrics, number by number, and in config, versions and devices."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xladder.core.state import flatten
from xladder.errors import DamagedRun, UsageError
from xladder.registry import find_workload
from xladder.runs.plan_files import read_run_settings
from xladder.runs.reading import MOST_TABLE_BYTES, Unreadable, inside, read_json

Row = tuple[int, int]
"""A tick and a seed; rows sort in the order of training."""
Pair = tuple[Any, Any]
"""The values of the first and the second run; None if missing."""

# Entries of environment.json that can change results. Command line and time cannot, and always differ.
ENVIRONMENT = ("device", "processor", "cores", "threads", "python", "versions", "git_commit")


@dataclass(frozen=True)
class Difference:
    """The differences between two runs."""

    tick: str
    """The name of a tick."""
    rows: int
    """Rows of metrics that were compared."""
    missing: int = 0
    """Rows that only one of the runs has."""
    parting: Row | None = None
    """The first tick and seed in both runs at which the metrics differ."""
    columns: dict[str, Pair] = field(default_factory=dict)
    """The metrics that differ at that tick and seed."""
    ends: dict[int, Pair] = field(default_factory=dict)
    """Seeds that end at different ticks → the last tick in each run."""
    config: dict[str, Pair] = field(default_factory=dict)
    environment: dict[str, Pair] = field(default_factory=dict)
    only: dict[str, Pair] = field(default_factory=dict)
    """Columns in only one of the runs, such as those of `actors` about its processes → whether each run has it."""

    @property
    def identical(self) -> bool:
        """Whether the metrics are identical."""
        return self.parting is None and not self.missing


def compare_runs(a: Path, b: Path) -> Difference:
    """Compare two run directories."""
    plans = read_run_settings(a), read_run_settings(b)
    workloads = [plan["workload"] for plan in plans]
    if workloads[0] != workloads[1]:
        raise UsageError(
            f"`{a}` is a run of `{workloads[0]}` and `{b}` one of `{workloads[1]}`: their metrics cannot be compared."
        )
    tick = find_workload(workloads[0]).tick
    config = _differences(*(_flat(plan, folder) for plan, folder in zip(plans, (a, b), strict=True)))
    environment = _differences(_environment(a), _environment(b))
    ours, theirs = (_read(folder / "metrics.csv", tick) for folder in (a, b))
    both = sorted(ours.keys() & theirs.keys())
    missing = len(ours) + len(theirs) - 2 * len(both)
    only: dict[str, Pair] = {}
    if both and plans[0]["rung"] != plans[1]["rung"]:  # rungs may report different columns
        has = [set().union(*table.values()) for table in (ours, theirs)]
        only = {name: (name in has[0], name in has[1]) for name in sorted(has[0] ^ has[1])}
    for table in (ours, theirs):
        for row in table.values():
            for name in only:
                row.pop(name, None)
    parting = next((place for place in both if _differences(ours[place], theirs[place])), None)
    columns = _differences(ours[parting], theirs[parting]) if parting else {}
    lasts = _lasts(ours), _lasts(theirs)
    return Difference(tick, len(both), missing, parting, columns, _differences(*lasts), config, environment, only)


def _flat(plan: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    try:
        return dict(flatten(plan))
    except RecursionError:
        raise UsageError(
            f"`{folder / 'config.json'}` is not a config that xladder wrote: it is nested too deep."
        ) from None


def _read(path: Path, tick: str) -> dict[Row, dict[str, float | None]]:
    """Read a table of metrics without its timings; None is an empty cell."""
    try:
        inside(path.parent, path.name, MOST_TABLE_BYTES)
    except Unreadable as error:
        if path.exists():
            raise DamagedRun(f"`{path}` is not a valid table of metrics: {error}.") from None
        return {}
    rows: dict[Row, dict[str, float | None]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file, strict=True):
                place = int(row.pop(tick)), int(row.pop("seed"))
                rows[place] = {
                    name: float(text) if text else None for name, text in row.items() if not _is_timing(name)
                }
                if any(text is None for text in row.values()):
                    raise ValueError("a row is incomplete")
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise DamagedRun(f"`{path}` is not a valid table of metrics ({error}).") from None
    except OSError as error:
        raise DamagedRun(f"`{path}` cannot be read: {error.strerror or error}.") from None
    return rows


def _is_timing(name: str) -> bool:
    return name == "seconds" or name.endswith("_per_second")


def _differences(ours: Mapping[Any, Any], theirs: Mapping[Any, Any]) -> dict[Any, Pair]:
    """Entries that differ or are in only one of the mappings."""
    names = [*ours, *(name for name in theirs if name not in ours)]
    return {name: pair for name in names if not _equal(*(pair := (ours.get(name), theirs.get(name))))}


def _equal(a: Any, b: Any) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


def _lasts(rows: Mapping[Row, Any]) -> dict[int, int]:
    """The last tick of every seed."""
    return {seed: tick for tick, seed in sorted(rows)}


def _environment(folder: Path) -> dict[str, Any]:
    """Read environment.json; empty if it cannot be read, because it is only informative."""
    try:
        data = read_json(folder / "environment.json")
    except Unreadable:
        return {}
    return dict(flatten({name: data[name] for name in ENVIRONMENT if name in data}))
