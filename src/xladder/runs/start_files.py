"""The state of trained agents that a new run may go on from: of a checkpoint, or of what a run itself starts from."""

from __future__ import annotations

from collections.abc import Mapping
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
from xladder.runs.resuming import EXCHANGEABLE

START = "checkpoints/start.safetensors"
AGENT_STATE = "state.runs.agents."  # agents of the multi-agent family in a checkpoint


def save_start(directory: RunDirectory, params: Params, optimiser: Arrays) -> None:
    """Write the arrays that a run starts from into its directory."""
    arrays = {f"params.{name}": leaf for name, leaf in flatten(params)}
    directory.save_arrays(START, arrays | {f"optimiser.{name}": array for name, array in optimiser.items()})


def read_start(file: Path) -> tuple[Params, Arrays]:
    """The parameters and the optimiser's state that `save_start` has written; empty if there is no such file."""
    if not file.is_file():
        return {}, {}
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays: Mapping[str, np.ndarray] = load_file(file)
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedRun(f"`{file}` cannot be read: {error}.") from None

    def under(prefix: str) -> Arrays:
        return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

    return unflatten(under("params.")), under("optimiser.")


def last_state(result: Result) -> Arrays:
    """The arrays of a run's last checkpoint, if it is of a rung that shares its format with others."""
    if result.path is None:
        return {}
    try:
        found = _read_only(result.path, result.plan).latest(lambda line: None)
    except (DamagedRun, UsageError):
        return {}
    if found is None or found.facts["rung"] not in EXCHANGEABLE or found.facts["group"] != 0:
        return {}
    return found.arrays


def states_of_run(result: Result) -> Arrays:
    """Target networks and optimiser state of a run's agents, [seeds, agents, …] by their names in a checkpoint.

    Empty if the run has not kept them, or kept those of an earlier tick than its agents'.
    """
    if result.path is not None and has_agents_only(result.path):
        return read_start(result.path / START)[1]
    arrays = last_state(result)
    for name, leaf in flatten(result.params):
        kept = arrays.get(f"{AGENT_STATE}params.{name}")
        if kept is None or not np.array_equal(kept[tuple(slice(size) for size in leaf.shape)], leaf):
            return {}
    return {n: a for n, a in arrays.items() if n.startswith((f"{AGENT_STATE}target.", f"{AGENT_STATE}opt_state."))}


def _read_only(path: Path, plan: Plan) -> Any:
    from xladder.runs.checkpoints import Checkpoints

    return Checkpoints(path / "checkpoints", run_metadata(plan))


def has_agents_only(path: Path) -> bool:
    """Whether a run directory holds agents that were imported, and nothing that was trained there."""
    return (path / AGENTS).exists() and not (path / "metrics.csv").exists()
