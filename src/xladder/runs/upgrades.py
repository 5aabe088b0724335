"""Runs of version 0.1: what they call differently, and what this version can still do with them.

Version 0.1 had other names for some settings and one column of `metrics.csv`, and no column `steps`. Its tables are
read with the names of today. It kept its training state in another form, so only that version resumes such a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xladder.errors import UsageError
from xladder.runs.folders import typed
from xladder.runs.reading import read_bytes

OLD_COLUMNS = {"elapsed_seconds": "seconds"}
"""Columns by their names in version 0.1; a table that has one was written by it."""
CAN = "list, show, plot, evaluate, export and compare"
NOTE = "written by xladder 0.1, which alone can resume it"


def is_old(header: Sequence[str]) -> bool:
    """Whether a table with these columns was written by version 0.1."""
    return not OLD_COLUMNS.keys().isdisjoint(header)


def current_names(header: Sequence[str]) -> list[str]:
    """The columns of a table by the names of today."""
    return [OLD_COLUMNS.get(name, name) for name in header]


def is_old_run(folder: Path) -> bool:
    """Whether the metrics of a run directory were written by version 0.1."""
    try:
        return is_old(
            read_bytes(folder / "metrics.csv", 0, 4096).partition(b"\n")[0].decode("ascii").strip().split(",")
        )
    except (OSError, ValueError):
        return False


def steps_per_tick(settings: Mapping[str, Any]) -> int | None:
    """Environment steps of a tick of version 0.1, from settings by dotted name; None if they do not say."""
    if "iterations" in settings:
        return 1
    if "epochs" in settings:
        return _count(settings.get("world.max_turns"))
    envs = None if settings.get("world.shared") else _count(settings.get("world.num_envs"))
    if settings.get("algorithm") == "pqn":
        rollout = _count(settings.get("pqn.rollout"))
        return envs and rollout and envs * rollout
    each = _count(settings.get("learner.steps_per_update"))
    return envs and each and envs * max(1, each // envs)


def add_steps(columns: dict[str, np.ndarray], ends: np.ndarray, settings: Mapping[str, Any]) -> None:
    """Add the column `steps` to a table of version 0.1, whose rows end at these ticks [seed, row]; nan if not known."""
    if "steps" not in columns:
        columns["steps"] = np.where(ends > 0, ends * (steps_per_tick(settings) or np.nan), np.nan)


def refuse_to_resume(folder: Path, workload: str) -> None:
    """Raise the `UsageError` for a run of version 0.1 that is to be resumed."""
    name = typed(folder)
    raise UsageError(
        f"`{folder}` was written by xladder 0.1, and only that version can resume it. This one can "
        f"{CAN} it. To train its agents on in a new run: xladder train {workload} --config "
        f"{name}/config.json --from {name}"
    )


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
