"""Start a run from the agents of another one, or from those in a file, instead of fresh ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xladder.core.state import Arrays, capture, flatten, restore, unflatten
from xladder.core.types import Params
from xladder.errors import DamagedRun, UsageError
from xladder.plans import Plan
from xladder.results import Result
from xladder.runs.directory import AGENTS, RunDirectory, load
from xladder.runs.plan_files import run_metadata
from xladder.runs.resuming import EXCHANGEABLE

START = "checkpoints/start.safetensors"
OPTIMISER = ".opt_state."


@dataclass(frozen=True)
class Beginning:
    """What a run starts from."""

    params: Params
    """Leaves [seeds, …], or [seeds, agents, …]."""
    optimiser: Arrays = field(default_factory=dict)
    """The optimiser's state, [seeds, …] by its name in a checkpoint; empty for a fresh one."""
    source: str = ""
    """Where it comes from, in words."""

    def around(self, plan: Plan, start: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a rung's `start`, so that what it starts has these agents."""

        def begin(config: Any, seeds: Sequence[int], device: Any, **options: Any) -> Any:
            import jax

            running = start(config, seeds, device, **options)
            rows = [plan.seeds.index(seed) for seed in seeds]
            running.take_params(jax.tree.map(lambda leaf: leaf[rows], self.params))
            if self.optimiser:
                state = running.state()
                arrays = capture(state, "state.")
                fitting = {name: array[rows] for name, array in self.optimiser.items()}
                if all(name in arrays and arrays[name].shape == array.shape for name, array in fitting.items()):
                    running.take_state(restore(state, arrays | fitting, "state."))
            return running

        return begin


def find_beginning(source: str | Path | Result, plan: Plan) -> Beginning:
    """Read the agents that a run is to start from, and check that they fit its settings.

    Args:
        source: A run directory, a file (PyTorch's, sorrel's or safetensors), or a result.
        plan: The run. Agents of a single seed serve all its seeds.
    """
    if plan.rung == "actors":
        raise UsageError("`--from` is not possible on `actors`: start on `parallel`, and resume there.")
    if isinstance(source, Result):
        return _of_result(source, plan, "a result")
    path = Path(source)
    if path.is_dir():
        return _of_result(load(path), plan, f"{path}")
    if not path.is_file():
        raise UsageError(f"`--from` is {path}, but there is no such run directory or file.")
    from xladder.runs import exchange, nets

    nets.check_twin(plan)
    imported = exchange.arrange(path, plan, exchange.read(path, plan))
    seeds = sorted({seed for seed, _ in imported.nets})
    every = {(seed, agent): net for (seed, agent), net in imported.nets.items()}
    rows = _rows(seeds, plan, str(path))
    chosen = {
        (seed, agent): every[seeds[row], agent]
        for seed, row in zip(plan.seeds, rows, strict=True)
        for agent in range(plan.config.num_learners if plan.config.agent_axis else 1)
    }
    return Beginning(nets.put_together(plan, chosen), source=f"`{path}`")


def _of_result(result: Result, plan: Plan, where: str) -> Beginning:
    import jax

    from xladder.runs.nets import shapes_of_one_seed

    if result.plan.workload.family is not plan.workload.family:
        raise UsageError(
            f"{where} has agents of `{result.plan.workload.name}`, which are of another kind than those of "
            f"`{plan.workload.name}`."
        )
    trained = jax.tree.leaves(result.params)[0].shape[0]
    rows = _rows(result.seeds[:trained], plan, where)
    expected = {name: leaf.shape[1:] for name, leaf in flatten(shapes_of_one_seed(plan))}
    found = {name: leaf.shape[1:] for name, leaf in flatten(result.params)}
    if found != expected:
        name = next(name for name in sorted({*found, *expected}) if found.get(name) != expected.get(name))
        shapes = [
            str(list(shape)) if shape is not None else "missing" for shape in (found.get(name), expected.get(name))
        ]
        raise UsageError(
            f"The agents of {where} do not fit these settings: `{name}` is {shapes[0]} there and {shapes[1]} here. "
            f"Start from the same settings with `--config {where}/config.json`."
        )
    params = jax.tree.map(lambda leaf: np.asarray(leaf)[rows], result.params)
    return Beginning(params, _optimiser(result, plan, rows), f"`{where}`")


def _optimiser(result: Result, plan: Plan, rows: Sequence[int]) -> Arrays:
    """The optimiser's state in a run's last checkpoint, if it has the format of the plan's rung."""
    if result.path is None or plan.rung not in EXCHANGEABLE or result.plan.workload.name != plan.workload.name:
        return {}
    directory = _read_only(result.path, result.plan)
    try:
        found = directory.latest(lambda line: None)
    except (DamagedRun, UsageError):
        return {}
    if found is None or found.facts["rung"] not in EXCHANGEABLE or found.facts["group"] != 0:
        return {}
    return {
        name: array[list(rows)] for name, array in found.arrays.items() if OPTIMISER in name and max(rows) < len(array)
    }


def _read_only(path: Path, plan: Plan) -> Any:
    from xladder.runs.checkpoints import Checkpoints

    return Checkpoints(path / "checkpoints", run_metadata(plan))


def _rows(seeds: Sequence[int], plan: Plan, where: str) -> list[int]:
    """Which of the seeds there each seed of a plan starts from."""
    if len(seeds) == 1:
        return [0] * len(plan.seeds)
    if len(seeds) == len(plan.seeds):
        return list(range(len(seeds)))
    raise UsageError(
        f"{where} has agents of {len(seeds)} seeds, and this run has {len(plan.seeds)}: train as many, or start from "
        "one."
    )


def keep_beginning(directory: RunDirectory, beginning: Beginning) -> None:
    """Write what a run starts from into its directory, so that it does not depend on where that came from."""
    arrays = {f"params.{name}": leaf for name, leaf in flatten(beginning.params)}
    arrays |= {f"optimiser.{name}": array for name, array in beginning.optimiser.items()}
    directory.save_arrays(START, arrays)
    directory.log(f"Starting from {beginning.source}.")


def kept_beginning(directory: RunDirectory) -> Beginning | None:
    """What a run has started from; None if from fresh agents."""
    file = directory.path / START
    if not file.is_file():
        return None
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays: Mapping[str, np.ndarray] = load_file(file)
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedRun(f"`{file}` cannot be read: {error}.") from None

    def under(prefix: str) -> Arrays:
        return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}

    return Beginning(unflatten(under("params.")), under("optimiser."), f"`{file}`")


def has_agents_only(path: Path) -> bool:
    """Whether a run directory holds agents that were imported, and nothing that was trained there."""
    return (path / AGENTS).exists() and not (path / "metrics.csv").exists()
