"""Whole agents of sorrel's: a run's agents as files that its models load, and such files as agents of a run.

A file holds one agent: both networks and Adam's state. In a run these are part of the last checkpoint, under the names
that all JAX rungs share; in a run that was imported they are kept in `checkpoints/start.safetensors`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from xladder import parameters
from xladder.core.state import Arrays, capture, flatten, unflatten
from xladder.core.types import Params
from xladder.errors import Mismatch, UsageError
from xladder.learners.iqn import fit
from xladder.plans import Plan
from xladder.results import Result
from xladder.runs import nets
from xladder.runs.nets import Place
from xladder.runs.start_files import AGENT_STATE, states_of_run

if TYPE_CHECKING:
    from xladder.parity.levels import Level
    from xladder.sorrel.files_torch import SavedAgent

KIND = "iqn"


class ExportedAgents(NamedTuple):
    """What was written."""

    files: list[Path]
    parameters: int
    """Number of parameters in all online networks together."""
    steps: int | None
    """Adam's steps so far; None if the run has not kept its state, and the files start with a fresh one."""
    level: Level
    """The largest difference between Flax and PyTorch on random inputs."""


def export_agents(result: Result, folder: Path, seed: int | None = None, agent: int | None = None) -> ExportedAgents:
    """Write agents of a run to a new folder, one file each: `seed0-agent0.pkl` …

    Args:
        result: The run.
        folder: The folder; it must not exist.
        seed: Write only the agents of this seed.
        agent: Write only the agents with this index.
    """
    from xladder.sorrel import files_torch

    plan = result.plan
    check_kind(plan)
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"`{folder}` exists: choose another `--out`, nothing is overwritten.")
    shapes, states = agent_shapes(plan), states_of_run(result)
    chosen = {place: nets.take(result, place) for place in nets.places(result, seed, agent)}
    draft = folder.with_name(f".{os.getpid()}-{folder.name}")
    worst: Level | None = None
    try:
        draft.mkdir(parents=True)
        for place, params in chosen.items():
            saved = _saved(plan, place, params, states)
            file = draft / f"seed{place[0]}-agent{place[1]}.pkl"
            files_torch.write(KIND, file, saved)
            if not _same(saved, files_torch.read(KIND, file, shapes)):
                raise Mismatch(f"The file of seed {place[0]}, agent {place[1]} differs from the run when read back.")
            level = plan.config.family.parity_forward(plan.config, params, parameters.to_state(KIND, params))
            if not level.passed:
                raise Mismatch(f"PyTorch and Flax disagree for seed {place[0]}, agent {place[1]}: nothing was written.")
            worst = level if worst is None or level.max_abs_diff > worst.max_abs_diff else worst
        os.replace(draft, folder)
    except OSError as error:
        raise UsageError(f"`{folder}` cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    assert worst is not None
    files = [folder / f"seed{s}-agent{a}.pkl" for s, a in chosen]
    size = sum(leaf.size for leaf in jax.tree.leaves(chosen))
    return ExportedAgents(files, size, saved.steps if states else None, worst)


def read_agents(files: Sequence[Path], plan: Plan) -> tuple[dict[int, Params], Arrays]:
    """Read files of whole agents, in the order of their indices.

    Returns:
        The online networks by agent, and the rest of their state, leaves [agent, …] by their names in a checkpoint.
    """
    from xladder.sorrel import files_torch

    check_kind(plan)
    found = [files_torch.read(KIND, file, agent_shapes(plan)) for file in files]
    states = [_named(saved) for saved in found]
    stacked = {name: np.stack([state[name] for state in states]) for name in states[0]}
    return {i: saved.params for i, saved in enumerate(found)}, stacked


def is_agent_file(file: Path, plan: Plan) -> bool:
    """Whether a file holds a whole agent of the plan's kind, and not just a network."""
    from xladder.runs import state_files

    if plan.config.family.layer_names != KIND or state_files.kind(file) != "torch":
        return False
    from xladder.sorrel import files_torch

    return files_torch.is_agent_file(file)


def check_kind(plan: Plan) -> None:
    """Raise a `UsageError` unless the agents of a plan are of sorrel's kind."""
    if plan.config.family.layer_names != KIND:
        raise UsageError(f"`{plan.workload.name}` has no agents of sorrel's kind: use `--to torch` or `safetensors`.")


def agent_shapes(plan: Plan) -> dict[str, tuple[int, ...]]:
    """The parameters' shapes by sorrel's names, in its order."""
    found = parameters.state_shapes(KIND, nets.shapes(plan))
    return {name: found[name] for name in parameters.SORREL_NAMES[KIND]}


def _saved(plan: Plan, place: Place, params: Params, states: Mapping[str, np.ndarray]) -> SavedAgent:
    """One agent of a run, for a file; with a fresh optimiser if the run has not kept its own."""
    from xladder.sorrel.files_torch import SavedAgent

    lr = float(plan.config.learner.lr)
    if not states:
        nothing = jax.tree.map(np.zeros_like, params)
        return SavedAgent(params, params, nothing, nothing, 0, lr)
    row, shapes = plan.seeds.index(place[0]), nets.shapes(plan)

    def part(prefix: str) -> Params:
        names = [name for name in states if name.startswith(f"{AGENT_STATE}{prefix}.")]
        tree: Any = unflatten({n.removeprefix(f"{AGENT_STATE}{prefix}."): states[n][row, place[1]] for n in names})
        return jax.tree.map(np.asarray, fit(tree, shapes))  # a GPU may have trained padded layers

    steps = int(states[f"{AGENT_STATE}opt_state.count"][row, place[1]])
    return SavedAgent(params, part("target"), part("opt_state.mu"), part("opt_state.nu"), steps, lr)


def _named(saved: SavedAgent) -> Arrays:
    """The state of an agent besides its online network, by its names in a checkpoint."""
    trees = {"target": saved.target, "opt_state.mu": saved.mu, "opt_state.nu": saved.nu}
    arrays = {
        f"{AGENT_STATE}{part}.{name}": np.asarray(leaf) for part, tree in trees.items() for name, leaf in flatten(tree)
    }
    return arrays | {f"{AGENT_STATE}opt_state.count": np.array(saved.steps, np.int32)}


def _same(ours: SavedAgent, theirs: SavedAgent) -> bool:
    a, b = (capture(saved[:4]) for saved in (ours, theirs))
    return ours[4:] == theirs[4:] and a.keys() == b.keys() and all(a[n].tobytes() == b[n].tobytes() for n in a)
