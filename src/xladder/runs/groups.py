"""Which runs belong together: those that differ in nothing but their seeds, or that share the value of a setting."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from xladder.errors import UsageError, printable, unknown
from xladder.runs.listing import RunInfo, find_runs, read_info

# None of them makes another experiment: threads are measured anew for every run, and evaluations change nothing.
IGNORED = frozenset({"options.threads", "evaluate_every", "evaluate_episodes"})
NAMELESS = ("workload", "rung")  # their values explain themselves
LONGEST_LABEL = 80


@dataclass(frozen=True)
class Group:
    """Runs that are shown as one."""

    label: str
    runs: tuple[RunInfo, ...]


class Found(NamedTuple):
    """Runs that can be used, and sentences about those that cannot."""

    runs: list[RunInfo]
    skipped: list[str]


def collect(paths: Sequence[Path]) -> Found:
    """The runs of run directories and of folders of runs; damaged ones are skipped."""
    found: list[RunInfo] = []
    for folder in paths:
        for path in find_runs(folder):
            if not any(path == run.path for run in found):
                found.append(read_info(path, str(path)))
    skipped = [f"{printable(run.name)} is skipped: {printable(run.problem)}." for run in found if run.problem]
    good = [run for run in found if not run.problem]
    if not good:
        raise UsageError(f"No run can be used: {printable(found[0].name)}: {printable(found[0].problem)}.")
    return Found(good, skipped)


def group_runs(runs: Sequence[RunInfo], by: Sequence[str] = ()) -> list[Group]:
    """Group runs by the values of some settings.

    Args:
        runs: The runs.
        by: Dotted names of config fields, such as `learner.lr`; also `rung`, `workload` and `tags`. If there are none,
            all settings that differ between runs of the same workload.

    Returns:
        The groups, in the order of the values.
    """
    names = [field_name(runs, name) for name in by] or differing(runs)
    keyed: dict[str, list[RunInfo]] = {}
    for run in runs:
        keyed.setdefault(_key(run, names), []).append(run)
    ordered = sorted(keyed.values(), key=lambda group: [_order(_value(group[0], name)) for name in names])
    if not names:
        every = _distinct(f"{run.workload} · {run.rung}" for run in runs)
        return [Group(printable(every[0]) if len(every) == 1 else "all runs", tuple(runs))]
    return [Group(_label(group[0], names), tuple(group)) for group in ordered]


def mixed(groups: Sequence[Group]) -> list[str]:
    """Settings that differ inside a group, because it was made by others."""
    return _distinct(name for group in groups for name in differing(group.runs))


def differing(runs: Sequence[RunInfo]) -> list[str]:
    """Settings that differ between runs of the same workload. Those that only come with a workload are its presets'."""
    found: dict[str, None] = {}
    for workload in _distinct(run.workload for run in runs):
        same = [run for run in runs if run.workload == workload]
        names = _distinct(name for run in same for name in run.settings if name not in IGNORED)
        found |= {name: None for name in names if len({_key(run, [name]) for run in same}) > 1}
    return list(found)


def field_name(runs: Sequence[RunInfo], name: str) -> str:
    """The setting that a user means: as in config.json, or as a flag."""
    known = {"tags", *(field for run in runs for field in run.settings)}
    spelled = name.strip().lstrip("-").replace("-", "_").removeprefix("config.")
    if spelled not in known:
        raise unknown("config field", printable(name), map(printable, known))
    return spelled


def same_experiment(run: RunInfo) -> str:
    """A key that two runs share if they differ in nothing but their seeds."""
    return _key(run, sorted(name for name in run.settings if name not in IGNORED))


def _value(run: RunInfo, name: str) -> Any:
    return list(run.tags) if name == "tags" else run.settings.get(name)


def _key(run: RunInfo, names: Iterable[str]) -> str:
    return json.dumps([[name, _value(run, name)] for name in names])


def _order(value: Any) -> tuple[int, float, str]:
    """Numbers by size, before everything else by its text."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    return (0, float(value), "") if number else (1, 0.0, str(value))


def _label(run: RunInfo, names: Sequence[str]) -> str:
    parts = []
    for name in names:
        text = _format(_value(run, name))
        parts.append(text if name in NAMELESS else f"{_short(name, names)} {text}")
    return printable(", ".join(parts), LONGEST_LABEL)


def _short(name: str, names: Sequence[str]) -> str:
    """The last part of a dotted name, unless another setting is called the same."""
    last = name.rpartition(".")[2]
    return name if sum(other.rpartition(".")[2] == last for other in names) > 1 else last


def _format(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "+".join(map(_format, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _distinct(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))
