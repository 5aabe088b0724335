"""Load what a run directory holds: its config, metrics and agents."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xladder import user_code
from xladder.core.array_sizes import FLOAT
from xladder.core.state import flatten, unflatten
from xladder.core.types import Params
from xladder.devices import memory_of_machine
from xladder.errors import DamagedRun, UsageError
from xladder.plans import Plan, allow_imports
from xladder.results import Result, Snapshot
from xladder.runs import metrics
from xladder.runs.directory import AGENTS, SNAPSHOTS
from xladder.runs.folders import as_path
from xladder.runs.plan_files import read_run_plan
from xladder.runs.reading import MOST_ARRAY_BYTES, Unreadable, inside, read_json

SHARE_OF_MEMORY = 0.5  # of the machine that agents may take: they are copied to be used
MOST_SNAPSHOT_BYTES = 2**31  # a run keeps far less


def load(
    path: str | Path, *, imports: Sequence[str] = (), objects: Sequence[Any] = (), changed_code: bool = False
) -> Result:
    """Load a run directory: its config, metrics and trained agents.

    Args:
        path: The run directory.
        imports: Modules of your own that the run needs; nothing is imported just because a run names it.
        objects: Worlds, torsos and rewards that were passed as objects when the run was trained, made the same way.
        changed_code: Whether to use them even if they have changed since the run was made.

    Returns:
        The run as `xladder.train` returned it; it can be evaluated, used as a policy and saved elsewhere.
    """
    folder = as_path(path, "path")
    allow_imports(imports, objects)
    with user_code.accepting_changes(changed_code):
        found = read_run_plan(folder)
    table = folder / "metrics.csv"
    values, done = metrics.read(table, found.workload.tick) if table.is_file() else ({}, None)
    compile_seconds, tick_seconds = read_timings(folder, found)
    params = load_agents(folder, found)
    snapshots = read_snapshots(folder)
    return Result(found, values, params, compile_seconds, tick_seconds, snapshots, folder, ticks_done=done)


def evaluate(
    run: str | Path | Result,
    episodes: int | None = None,
    seed: int = 0,
    *,
    imports: Sequence[str] = (),
    objects: Sequence[Any] = (),
    changed_code: bool = False,
) -> dict[str, Any]:
    """Evaluate the greedy agents of a run, and a random policy for comparison.

    Args:
        run: A run directory, or a result.
        episodes: Episodes per seed, or number of sampled objects; 100 or 10,000 if not given.
        seed: Random seed of the evaluation; independent of the training seeds.
        imports: Modules of your own that the run needs; nothing is imported just because a run names it.
        objects: Worlds, torsos and rewards that were passed as objects when the run was trained, made the same way.
        changed_code: Whether to use them even if they have changed since the run was made.

    Returns:
        The keys of `xladder eval --json`, such as `mean_return`, `ci95` and `random_return`.
    """
    result = run if isinstance(run, Result) else load(run, imports=imports, objects=objects, changed_code=changed_code)
    return result.evaluate(episodes or result.plan.workload.family.episodes, seed)


def read_timings(folder: Path, plan: Plan) -> tuple[float, list[float]]:
    """Read compile seconds and seconds per tick; nothing if they cannot be read, because they are only informative."""
    try:
        data = read_json(folder / "timings.json")
        compile_seconds, each = data["compile_seconds"], data[f"seconds_per_{plan.workload.tick}"]
        return float(compile_seconds), [] if each is None else [float(each)]
    except (Unreadable, ValueError, KeyError, TypeError, OverflowError):
        return 0.0, []


def read_snapshots(folder: Path) -> list[Snapshot]:
    """Read the pictures of the seeds; none if they cannot be read, because they are only drawn."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(inside(folder, SNAPSHOTS, MOST_SNAPSHOT_BYTES), framework="numpy") as file:
            labels = json.loads(file.metadata()["snapshots"])
            return [
                Snapshot(int(tick), file.get_tensor(str(i)), str(label), *(int(one) for one in seed if one is not None))
                for i, (tick, label, *seed) in enumerate(labels)
            ]
    except (SafetensorError, Unreadable, OSError, ValueError, KeyError, TypeError, RecursionError):
        return []


def load_agents(folder: Path, plan: Plan) -> Params:
    """Load the agents of a run, after checking what the file declares against the run's config."""
    from xladder.runs import state_files
    from xladder.runs.nets import shapes_of_one_seed  # imports JAX

    try:
        file = inside(folder, AGENTS, MOST_ARRAY_BYTES)
    except Unreadable as error:
        if (folder / AGENTS).is_file():
            raise DamagedRun(f"`{folder}` holds no trained agents that can be read: {error}.") from None
        raise DamagedRun(
            f"`{folder}` holds no trained agents ({AGENTS}): the run ended before they were saved."
        ) from None
    expected = {name: leaf.shape[1:] for name, leaf in flatten(shapes_of_one_seed(plan))}
    try:
        declared = state_files.declared(file)
        seeds = {shape[:1] for _, shape in declared.values()}
        sound = len(seeds) == 1 and min(seeds) > (0,) and max(seeds) <= (len(plan.seeds),)
        sound = sound and all(dtype == "float32" for dtype, _ in declared.values())
        if not sound or {name: shape[1:] for name, (_, shape) in declared.items()} != expected:
            raise DamagedRun(f"`{file}` does not hold the agents that {folder / 'config.json'} describes.")
        size = FLOAT * sum(math.prod(shape) for _, shape in declared.values())
        if size > (most := int(SHARE_OF_MEMORY * memory_of_machine())):
            raise DamagedRun(
                f"`{file}` holds agents of {size / 2**30:,.1f} GiB, and up to {most / 2**30:,.1f} GiB of this "
                "machine's memory are used for them."
            )
        found = state_files.read(file, expected)
    except UsageError as error:
        raise DamagedRun(str(error)) from None
    if not all(np.isfinite(leaf).all() for leaf in found.values()):
        raise DamagedRun(f"`{file}` holds nan or infinite parameters.")
    return unflatten(found)
