"""Start a run from the agents of another one, or from those in a file, instead of fresh ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.core.state import Arrays, capture, flatten, restore
from xladder.core.types import Params
from xladder.errors import UsageError
from xladder.plans import Plan
from xladder.results import Result
from xladder.runs.directory import RunDirectory
from xladder.runs.loading import load
from xladder.runs.resuming import EXCHANGEABLE
from xladder.runs.start_files import START, has_agents_only, last_state, read_start, save_start

if TYPE_CHECKING:
    from xladder.protocols import Config

OPTIMISER = ".opt_state."


@dataclass(frozen=True)
class Beginning:
    """What a run starts from."""

    params: Params
    """Leaves [seeds, …], or [seeds, agents, …]."""
    optimiser: Arrays = field(default_factory=dict)
    """The optimiser's state, [seeds, …] by its name in a checkpoint, and that of target networks where they are known;
    empty for a fresh one."""
    source: str = ""
    """Where it comes from, in words."""

    def around(self, plan: Plan, start: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a rung's `start`, so that what it starts has these agents."""

        def begin(config: Config, seeds: Sequence[int], device: Any, **options: Any) -> Any:
            import jax

            running = start(config, seeds, device, **options)
            rows = [plan.seeds.index(seed) for seed in seeds]
            running.take_params(jax.tree.map(lambda leaf: leaf[rows], self.params))
            if self.optimiser:
                state = running.state()
                arrays = capture(state, "state.")
                given = {name: array[rows] for name, array in self.optimiser.items()}
                if all(name in arrays and arrays[name].ndim == array.ndim for name, array in given.items()):
                    fitting = {name: _fit(array, arrays[name].shape) for name, array in given.items()}
                    running.take_state(restore(state, arrays | fitting, "state."))
            return running

        return begin


def _fit(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Cut an array to a shape or fill it with zeros: on a GPU layers may be wider than their weights."""
    cut = array[tuple(slice(size) for size in shape)]
    return np.pad(cut, [(0, size - have) for size, have in zip(shape, cut.shape, strict=True)])


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
    imported = exchange.read_files([path], plan)
    seeds = sorted({seed for seed, _ in imported.nets})
    rows, config = _rows(seeds, plan, str(path)), nets.acting(plan)
    chosen = {
        (seed, agent): imported.nets[seeds[row], agent]
        for seed, row in zip(plan.seeds, rows, strict=True)
        for agent in range(config.num_learners if config.agent_axis else 1)
    }
    states = {name: array[rows] for name, array in imported.states.items()}
    return Beginning(nets.put_together(plan, chosen), states, f"`{path}`")


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
    if has_agents_only(result.path):
        arrays = read_start(result.path, result.plan)[1]
    else:
        arrays = {name: array for name, array in last_state(result).items() if OPTIMISER in name}
    return {name: array[list(rows)] for name, array in arrays.items() if array.ndim and max(rows) < len(array)}


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
    save_start(directory, beginning.params, beginning.optimiser)
    directory.log(f"Starting from {beginning.source}.")


def kept_beginning(directory: RunDirectory) -> Beginning | None:
    """What a run has started from; None if from fresh agents."""
    file = directory.path / START
    return Beginning(*read_start(directory.path, directory.plan), f"`{file}`") if file.is_file() else None
