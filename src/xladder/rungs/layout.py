"""How a run is laid out over devices: one seed per device, each seed sharded over devices, or both.

What is sharded how, among the arrays [S, …] of a run:

| program      | over `seeds` | over `data`                                 | exchanged over `data`             |
|--------------|--------------|---------------------------------------------|-----------------------------------|
| treasurehunt | all, axis 0  | each agent's batch (rollouts are identical) | gradients                         |
| hypergrid    | all, axis 0  | trajectories                                | gradients, objects in the memory  |
| value        | all, axis 0  | envs, their replay memories, batches        | gradients, returns of episodes    |
| … on the host| –            | the same; every process steps its envs      | the same                          |
| pqn          | all, axis 0  | –                                           | –                                 |

This module imports JAX only when it is needed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from xladder.errors import UsageError, uneven
from xladder.protocols import Config

SEEDS, DATA = "seeds", "data"


@dataclass(frozen=True)
class MeshShape:
    """The number of devices along each axis of the mesh."""

    seeds: int = 1
    data: int = 1

    @property
    def devices(self) -> int:
        """The number of devices in all."""
        return self.seeds * self.data

    def __str__(self) -> str:
        return f"{SEEDS}={self.seeds},{DATA}={self.data}"


def parse(text: str) -> MeshShape:
    """Parse a mesh such as `seeds=4`, `data=2`, or both with a comma."""
    parts = [re.fullmatch(rf"({SEEDS}|{DATA})=([1-9][0-9]{{0,5}})", part.strip()) for part in text.split(",")]
    names = [part[1] for part in parts if part]
    if None in parts or len(set(names)) < len(names):
        raise UsageError(f"`--mesh` is {text}, but it has to be like `seeds=4`, `data=2` or `seeds=2,data=2`.")
    return MeshShape(**{part[1]: int(part[2]) for part in parts if part})


def fit(settings: Any, config: Config, layout: MeshShape, seeds: int) -> Any:
    """Check that a run can be sharded like this; returns the config, adapted if needed.

    Raises:
        UsageError: if it cannot; the message names the nearest sizes that can.
    """
    if layout.seeds > 1 and not config.world.jittable:
        raise UsageError(
            f"`--mesh {layout}` shards seeds, but a world on the host is stepped for one seed at a time: shard its "
            f"envs with `--mesh data={layout.devices}`."
        )
    if seeds % layout.seeds:
        raise uneven("seeds", seeds, layout.seeds)
    return settings.for_mesh(config, layout.data) if layout.data > 1 else config


def axes(config: Config, runs: Any) -> Any:
    """The `PartitionSpec` of every array of a population, in the structure of `runs`."""
    import jax
    from jax.sharding import PartitionSpec

    shared = config.family.sharded_fields(config)

    def spec(name: str) -> PartitionSpec:
        return PartitionSpec(SEEDS, *[None] * (shared[name] - 1), DATA) if name in shared else PartitionSpec(SEEDS)

    return type(runs)(
        **{name: jax.tree.map(lambda _, name=name: spec(name), part) for name, part in runs._asdict().items()}
    )
