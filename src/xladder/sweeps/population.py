"""Trials as rows of one compiled population.

Shapes: R rows, one for each trial and seed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

from xladder.core.state import Arrays
from xladder.protocols import Config
from xladder.rungs.fused import FusedRun

AGENT = ("state.runs.agent.", "state.runs.agents.")  # what a member of a population copies from a better one


@dataclass
class Populations:
    """Compiled populations, kept so that a program is compiled once for all parts of a sweep.

    Args:
        start: Starts a population: `fused.start`, or `mesh.start` with its mesh.
    """

    start: Callable[..., FusedRun]
    made: dict[tuple[Config, int], FusedRun] = field(default_factory=dict)

    def begin(self, shared: Config, rows: Sequence[tuple[Config, int]], device: Any) -> FusedRun:
        """A fresh population.

        Args:
            shared: The config that all rows share, but for traced settings.
            rows: The config and seed of each row.
            device: The device.
        """
        hyperparams, seeds = stack_hyperparams([config for config, _ in rows]), [seed for _, seed in rows]
        found = self.made.get((shared, len(rows)))
        if found is None:
            found = self.made[shared, len(rows)] = self.start(shared, seeds, device, hyperparams=hyperparams)
        else:
            found.begin(seeds, hyperparams)
            found.compile_seconds = 0.0
        return found


def stack_hyperparams(configs: Sequence[Config]) -> Any:
    """The traced hyperparameters of each row, leaves float32 [R]."""
    each = [config.family.program(config).hyperparams() for config in configs]
    return jax.tree.map(lambda *values: np.stack([np.asarray(value) for value in values]), *each)


def gather_rows(states: Sequence[Arrays], rows: Sequence[tuple[int, int]]) -> Arrays:
    """The state of a population made of rows of others.

    Args:
        states: The arrays of each population, as a checkpoint holds them.
        rows: For each row, the population that it comes from, and its place there.
    """
    names = states[0].keys()
    return {
        name: np.stack([states[which][name][place] for which, place in rows])
        if name.startswith("state.runs.")
        else states[0][name]
        for name in names
    }


def set_hyperparams(state: Arrays, configs: Sequence[Config]) -> Arrays:
    """A population whose rows go on with other hyperparameters."""
    fields: Mapping[str, np.ndarray] = stack_hyperparams(configs)._asdict()
    changed = dict(state)
    for prefix in AGENT:
        for name, values in fields.items():
            whole = f"{prefix}hyperparams.{name}"
            if whole in changed:
                like = changed[whole]  # [R], or [R, agents]
                spread = values.reshape(-1, *[1] * (like.ndim - 1))
                changed[whole] = np.broadcast_to(spread, like.shape).astype(like.dtype)
    return changed


def shared_config(config: Config, like: Config) -> Config:
    """A config with the traced settings of `like`; two configs with the same one can share a program.

    Zero and infinity may switch something off that the program then does not contain, so they are not replaced.
    """
    from xladder.sweeps.space import value_of

    same: Any = config
    for name in config.family.traced(config):
        ours, theirs = float(value_of(config, name)), float(value_of(like, name))
        if (ours == 0) == (theirs == 0) and np.isinf(ours) == np.isinf(theirs):
            same = _replaced(same, name.split("."), value_of(like, name))
    return same


def _replaced(node: Any, path: Sequence[str], value: Any) -> Any:
    first, *rest = path
    return replace(node, **{first: _replaced(getattr(node, first), rest, value) if rest else value})
