"""How a run lies over devices: seeds side by side, or the work of each seed shared out, or both.

The table of what goes where, in the arrays [S, …] that a run consists of:

| program      | over `seeds` | over `data`                                  | what crosses `data`            |
|--------------|--------------|----------------------------------------------|--------------------------------|
| treasurehunt | all, 1st     | each agent's batch (all devices play alike)  | gradients                      |
| hypergrid    | all, 1st     | trajectories                                 | gradients, remembered objects  |
| value        | all, 1st     | envs of the world, their memories, batches | gradients, what games came to  |
| pqn          | all, 1st     | –                                            | –                              |

Nothing here imports JAX before it is asked to place something.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from xladder.errors import UsageError, uneven

SEEDS, DATA = "seeds", "data"


@dataclass(frozen=True)
class MeshShape:
    """How many devices lie along each axis."""

    seeds: int = 1
    data: int = 1

    @property
    def devices(self) -> int:
        """How many that are in all."""
        return self.seeds * self.data

    def __str__(self) -> str:
        return f"{SEEDS}={self.seeds},{DATA}={self.data}"


def parse(text: str) -> MeshShape:
    """`seeds=4`, `data=2`, or both with a comma."""
    parts = [re.fullmatch(rf"({SEEDS}|{DATA})=([1-9][0-9]{{0,5}})", part.strip()) for part in text.split(",")]
    names = [part[1] for part in parts if part]
    if None in parts or len(set(names)) < len(names):
        raise UsageError(f"`--mesh` is {text}, but it has to be like `seeds=4`, `data=2` or `seeds=2,data=2`.")
    return MeshShape(**{part[1]: int(part[2]) for part in parts if part})


def fit(settings: Any, config: Any, layout: MeshShape, seeds: int) -> Any:
    """Settings that can be laid out so; a `UsageError` with the nearest that can, if these cannot."""
    if seeds % layout.seeds:
        raise uneven("seeds", seeds, layout.seeds)
    return settings.for_mesh(config, layout.data) if layout.data > 1 else config


def axes(config: Any, runs: Any) -> Any:
    """The axes of every array of a population, as JAX's `PartitionSpec`s, in the shape of `runs`."""
    import jax
    from jax.sharding import PartitionSpec

    shared = config.family.sharded_fields(config)

    def spec(name: str) -> PartitionSpec:
        return PartitionSpec(SEEDS, *[None] * (shared[name] - 1), DATA) if name in shared else PartitionSpec(SEEDS)

    return type(runs)(
        **{name: jax.tree.map(lambda _, name=name: spec(name), part) for name, part in runs._asdict().items()}
    )
