"""Find where two runs differ: in their metrics, number by number, and in config, versions and devices."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xladder.core.state import flatten
from xladder.errors import UsageError
from xladder.registry import find_workload
from xladder.runs.metrics import Table, read_table
from xladder.runs.plan_files import read_run_settings
from xladder.runs.reading import Unreadable, read_json

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
    tables = _table(a / "metrics.csv", tick), _table(b / "metrics.csv", tick)
    has = [{name for name in table.columns if not _is_timing(name)} for table in tables]
    names, only = sorted(has[0] | has[1]), {}
    if all(has) and plans[0]["rung"] != plans[1]["rung"]:  # rungs may report different columns
        names, only = sorted(has[0] & has[1]), {name: (name in has[0], name in has[1]) for name in has[0] ^ has[1]}
    found = [_compare(tables, seed, names) for seed in sorted({*tables[0].seeds, *tables[1].seeds})]
    rows, missing = sum(one[0] for one in found), sum(one[1] for one in found)
    partings = {place: columns for *_, place, columns in found if place}
    parting = min(partings, default=None)
    columns = partings[parting] if parting else {}
    lasts = [{seed: int(_ends(table, seed)[-1]) - 1 for seed in table.seeds} for table in tables]
    return Difference(
        tick, rows, missing, parting, columns, _differences(*lasts), config, environment, dict(sorted(only.items()))
    )


def _compare(tables: tuple[Table, Table], seed: int, names: list[str]) -> tuple[int, int, Row | None, dict[str, Pair]]:
    """Rows of a seed in both tables and in only one, the first row that differs, and what differs in it."""
    ends = _ends(tables[0], seed), _ends(tables[1], seed)
    both, at, other = np.intersect1d(ends[0], ends[1], assume_unique=True, return_indices=True)
    missing = len(ends[0]) + len(ends[1]) - 2 * len(both)
    places = zip(tables, (at, other), strict=True)
    values = [{name: _values(table, seed, name)[rows] for name in names} for table, rows in places]
    unequal = np.zeros(len(both), bool)
    for ours, theirs in zip(values[0].values(), values[1].values(), strict=True):
        unequal |= (ours != theirs) & ~(np.isnan(ours) & np.isnan(theirs))
    if not unequal.any():
        return len(both), missing, None, {}
    first = int(unequal.argmax())
    cells = [{name: _cell(column[first]) for name, column in one.items()} for one in values]
    return len(both), missing, (int(both[first]) - 1, seed), _differences(*cells)


def _flat(plan: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    try:
        return dict(flatten(plan))
    except RecursionError:
        raise UsageError(
            f"`{folder / 'config.json'}` is not a config that xladder wrote: it is nested too deep."
        ) from None


def _table(path: Path, tick: str) -> Table:
    """Read a table of metrics; one that is not there yet is empty."""
    return read_table(path, tick) if os.path.lexists(path) else Table([], {})


def _ends(table: Table, seed: int) -> np.ndarray:
    """Ticks at the ends of a seed's rows."""
    ends = table.ends[table.seeds.index(seed)] if seed in table.seeds else np.zeros(0, int)
    return ends[ends > 0]


def _values(table: Table, seed: int, name: str) -> np.ndarray:
    """A seed's column; nan where cells are empty, and everywhere if the table has no such column."""
    found = table.columns.get(name) if seed in table.seeds else None
    return np.full(len(_ends(table, seed)), np.nan) if found is None else found[table.seeds.index(seed)]


def _cell(value: np.floating) -> float | None:
    return None if np.isnan(value) else float(value)


def _is_timing(name: str) -> bool:
    return name == "seconds" or name.endswith("_per_second")


def _differences(ours: Mapping[Any, Any], theirs: Mapping[Any, Any]) -> dict[Any, Pair]:
    """Entries that differ or are in only one of the mappings."""
    names = [*ours, *(name for name in theirs if name not in ours)]
    return {name: pair for name in names if (pair := (ours.get(name), theirs.get(name)))[0] != pair[1]}


def _environment(folder: Path) -> dict[str, Any]:
    """Read environment.json; empty if it cannot be read, because it is only informative."""
    try:
        data = read_json(folder / "environment.json")
    except Unreadable:
        return {}
    return dict(flatten({name: data[name] for name in ENVIRONMENT if name in data}))
