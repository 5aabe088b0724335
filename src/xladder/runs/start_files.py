"""The state of trained agents that a new run may go on from: of a checkpoint, or of what a run itself starts from."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xladder.core.state import Arrays, flatten, unflatten
from xladder.core.types import Params
from xladder.errors import DamagedRun, UsageError
from xladder.plans import Plan
from xladder.results import Result
from xladder.runs.directory import AGENTS, RunDirectory
from xladder.runs.plan_files import run_metadata
from xladder.runs.reading import MOST_ARRAY_BYTES, Unreadable, inside
from xladder.runs.resuming import EXCHANGEABLE

START = "checkpoints/start.safetensors"
MOST_PER_PARAMETER, MOST_BESIDES = 8, 2**26
"""Numbers that are kept: for a parameter itself, target and moments; counters, and what a GPU pads layers with."""
AGENT_STATE = "state.runs.agents."  # agents of the multi-agent family in a checkpoint
PARTS_OF_STATE = ("target", "opt_state.mu", "opt_state.nu")  # each has a leaf for every parameter


def save_start(directory: RunDirectory, params: Params, optimiser: Arrays) -> None:
    """Write the arrays that a run starts from into its directory."""
    arrays = {f"params.{name}": leaf for name, leaf in flatten(params)}
    directory.save_arrays(START, arrays | {f"optimiser.{name}": array for name, array in optimiser.items()})


def read_start(folder: Path, plan: Plan) -> tuple[Params, Arrays]:
    """The parameters and the optimiser's state that `save_start` has written for a plan; empty if there is no file."""
    file = folder / START
    if not os.path.lexists(file):
        return {}, {}
    from xladder.runs import state_files
    from xladder.runs.nets import shapes_of_one_seed  # imports JAX

    expected = {f"params.{n}": (len(plan.seeds), *leaf.shape[1:]) for n, leaf in flatten(shapes_of_one_seed(plan))}
    try:
        inside(folder, START, MOST_ARRAY_BYTES)
        declared = state_files.declared(file)
        own = sum(math.prod(shape) for shape in expected.values())
        size = sum(math.prod(shape) for _, shape in declared.values())
        if size > MOST_PER_PARAMETER * own + MOST_BESIDES:
            raise DamagedRun(
                f"`{file}` cannot be read: it has {size:,} numbers, and the agents that its run starts from {own:,}."
            )
        params = {name: entry for name, entry in declared.items() if name.startswith("params.")}
        if params != {name: ("float32", shape) for name, shape in expected.items()} or any(
            shape[:1] != (len(plan.seeds),) for _, shape in declared.values()
        ):
            raise DamagedRun(f"`{file}` does not hold the agents that {folder / 'config.json'} describes.")
        arrays: Mapping[str, np.ndarray] = state_files.read(file, declared)
    except (UsageError, Unreadable) as error:
        raise DamagedRun(f"`{file}` cannot be read: {str(error).removesuffix('.')}.") from None

    def under(prefix: str) -> Arrays:
        return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

    return unflatten(under("params.")), under("optimiser.")


def last_state(result: Result) -> Arrays:
    """The arrays of a run's last checkpoint, if it is of a rung that shares its format with others."""
    if result.path is None:
        return {}
    try:
        found = _checkpoints(result.path, result.plan).read_latest()
    except (OSError, UsageError):
        return {}
    if found is None or found.facts.get("rung") not in EXCHANGEABLE or found.facts.get("group") != 0:
        return {}
    return found.arrays


def states_of_run(result: Result) -> Arrays:
    """Target networks and optimiser state of a run's agents, [seeds, agents, …] by their names in a checkpoint.

    Empty if the run has not kept them, or kept those of an earlier tick than its agents'.
    """
    if result.path is not None and has_agents_only(result.path):
        arrays = read_start(result.path, result.plan)[1]
        return arrays if _has_parts(arrays, result, PARTS_OF_STATE) else {}
    arrays = last_state(result)
    if not _has_parts(arrays, result, ("params", *PARTS_OF_STATE)):
        return {}
    for name, leaf in flatten(result.params):
        kept = arrays[f"{AGENT_STATE}params.{name}"]
        if not np.array_equal(kept[tuple(slice(size) for size in leaf.shape)], leaf):
            return {}
    return {n: a for n, a in arrays.items() if n.startswith((f"{AGENT_STATE}target.", f"{AGENT_STATE}opt_state."))}


def _has_parts(arrays: Arrays, result: Result, parts: Sequence[str]) -> bool:
    """Whether arrays have a leaf for each parameter in all parts of an agent's state; layers may be wider there."""
    for name, leaf in flatten(result.params):
        for part in parts:
            kept = arrays.get(f"{AGENT_STATE}{part}.{name}")
            if kept is None or kept.ndim != leaf.ndim or any(np.array(kept.shape) < leaf.shape):
                return False
    count = arrays.get(f"{AGENT_STATE}opt_state.count")
    seeds_and_agents = next(leaf.shape[:2] for _, leaf in flatten(result.params))
    return count is not None and count.ndim == 2 and all(np.array(count.shape) >= seeds_and_agents)


def _checkpoints(path: Path, plan: Plan) -> Any:
    from xladder.runs.checkpoints import Checkpoints

    return Checkpoints(path / "checkpoints", run_metadata(plan))


def has_agents_only(path: Path) -> bool:
    """Whether a run directory holds agents that were imported, and nothing that was trained there."""
    return (path / AGENTS).exists() and not (path / "metrics.csv").exists()
