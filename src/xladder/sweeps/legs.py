"""What a leg of a sweep trains, kept beside its numbers, so that they are never taken for those of other settings.

leg.json, in the run directory of each leg:
  until   the tick at which it ends
  rows    SHA-256 of its rows: the values of each trial, its seed, and where its training began
  files   SHA-256 of what came of it, once it is finished
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.errors import DamagedRun, UsageError
from xladder.plans import Plan
from xladder.runs.directory import AGENTS, RunDirectory
from xladder.runs.disk import write_json
from xladder.runs.listing import SWEEP
from xladder.runs.plan_files import run_metadata
from xladder.runs.reading import Unreadable, open_regular, read_json

if TYPE_CHECKING:
    from xladder.protocols import Config

LEG = "leg.json"
METRICS = "metrics.csv"
BLOCK_BYTES = 8 * 2**20  # that are read at once


@dataclass(frozen=True)
class Row:
    """One trial on one seed, in a leg."""

    config: Config
    seed: int
    values: Mapping[str, Any]
    """Of the settings that vary; none of them for the base settings."""
    leg: int = -1
    """The leg whose state it goes on from; −1 if it begins."""
    place: int = 0
    """Its row there."""


def describe_leg(rows: Sequence[Row], until: int) -> dict[str, Any]:
    """What a leg trains, as JSON-ready data."""
    found = hashlib.sha256()
    for row in rows:
        line = [dict(row.values), row.seed, row.leg, row.place if row.leg >= 0 else 0]
        found.update(json.dumps(line, sort_keys=True).encode() + b"\n")
    return {"until": until, "rows": found.hexdigest()}


def begin_leg(directory: RunDirectory, rows: Sequence[Row], until: int) -> None:
    """Record what a leg trains, before it does."""
    write_json(directory.path / LEG, describe_leg(rows, until))


def finish_leg(directory: RunDirectory, rows: Sequence[Row], until: int) -> None:
    """Record what came of a leg, before it is marked as finished."""
    files = {name: _digest(directory.path / name) for name in (METRICS, AGENTS)}
    write_json(directory.path / LEG, describe_leg(rows, until) | {"files": files})


def check_leg(directory: RunDirectory, plan: Plan, rows: Sequence[Row], until: int) -> None:
    """Raise an error unless a leg was begun with this plan and these rows, and its numbers are as it left them.

    Nothing is written. Of a leg that an earlier version began, which recorded none of it, the plan is compared, and
    what its checkpoint holds.
    """
    if run_metadata(directory.plan) != run_metadata(plan):
        raise _other(directory)
    recorded = _read(directory)
    if recorded is None:
        _check_checkpoint(directory, rows)
        return
    if {name: recorded[name] for name in ("until", "rows")} != describe_leg(rows, until):
        raise _other(directory)
    if not directory.is_finished:
        return  # its checkpoint has a digest of the rows of metrics.csv that it goes on from
    for name in (METRICS, AGENTS):
        if _digest(directory.path / name) != recorded.get("files", {}).get(name):
            raise _changed(directory.path / name)


def _read(directory: RunDirectory) -> dict[str, Any] | None:
    """The record of a leg; None if there is none."""
    path = directory.path / LEG
    if not path.exists():
        return None
    try:
        found = read_json(path)
    except Unreadable as error:
        raise DamagedRun(f"`{path}` cannot be used: {error}. Restore it, or start a new sweep.") from None
    if not {"until", "rows"} <= found.keys() or not isinstance(found.get("files", {}), dict):
        raise DamagedRun(f"`{path}` was not written by xladder: restore it, or start a new sweep.")
    return found


def _check_checkpoint(directory: RunDirectory, rows: Sequence[Row]) -> None:
    """Compare the rows of a leg without a record with the hyperparameters in its newest checkpoint, and its metrics."""
    from xladder.sweeps.population import AGENT, stack_hyperparams

    checkpoint = directory.checkpoints.read_latest()
    if checkpoint is None:
        return
    for field, values in stack_hyperparams([row.config for row in rows])._asdict().items():
        for found in (checkpoint.arrays.get(f"{prefix}hyperparams.{field}") for prefix in AGENT):
            if found is not None and not (
                found.ndim and len(found) == len(rows) and np.array_equal(found.reshape(len(rows), -1)[:, 0], values)
            ):
                raise _other(directory)
    size, digest = (checkpoint.facts.get(f"metrics_{name}") for name in ("bytes", "sha256"))
    if directory.is_finished and isinstance(size, int) and _digest(directory.path / METRICS, size) != digest:
        raise _changed(directory.path / METRICS)


def _digest(path: Path, size: int | None = None) -> str:
    """SHA-256 of a file, or of its first bytes; empty if it cannot be read."""
    found = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while block := file.read(BLOCK_BYTES if size is None else min(BLOCK_BYTES, size - file.tell())):
                found.update(block)
    except OSError:
        return ""
    return found.hexdigest()


def _other(directory: RunDirectory) -> UsageError:
    folder = directory.path.parent.parent
    return UsageError(
        f"`{directory.path}` was trained with other settings than `{folder / SWEEP}` has now, or with as many trials "
        "at once as another device holds, so its results are not those of this sweep: restore the file and use the "
        "same device, or start a new sweep with another `--out`."
    )


def _changed(path: Path) -> DamagedRun:
    return DamagedRun(
        f"`{path}` has changed since the sweep wrote it, or is missing: restore the file, or start a new sweep with "
        "another `--out`."
    )
