"""What a run is, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder import devices
from xladder.core.types import Params
from xladder.registry import RungOptions, Workload

if TYPE_CHECKING:
    from xladder.policy import Policy


@dataclass(frozen=True)
class Plan:
    """Everything that says what a run is."""

    workload: Workload
    config: Any
    rung: str
    seeds: tuple[int, ...]
    device: str | None = None
    options: RungOptions = field(default_factory=RungOptions)


@dataclass(frozen=True)
class Snapshot:
    """What the first seed had learned by some tick, as a picture."""

    tick: int
    picture: np.ndarray
    label: str


@dataclass
class Result:
    """A finished (or stopped) run."""

    plan: Plan
    metrics: dict[str, np.ndarray]
    """Name → float [seed, tick]; nan where a seed has not come so far."""
    params: Params
    """What was learned: the JAX pytree with leaves [seed, …]; treasure hunt: [seed, agent, …]."""
    compile_seconds: float
    tick_seconds: list[float] = field(default_factory=list)
    """Seconds per tick and seed, one entry per chunk."""
    snapshots: list[Snapshot] = field(default_factory=list)
    """Of workloads that are measured while they train."""

    @property
    def config(self) -> Any:
        """The settings it was trained with."""
        return self.plan.config

    @property
    def units_done(self) -> int:
        """How far the seed that came least far has come, in what the length is given in."""
        if not self.metrics:
            return self.config.ticks * self.config.units_per_tick
        reached = np.any([np.isfinite(column) for column in self.metrics.values()], axis=0)  # [seed, tick]
        return int(reached.sum(1).min()) * self.config.units_per_tick

    def evaluate(self, episodes: int | None = None, seed: int = 0) -> dict[str, Any]:
        """How good it is without exploring, and chance beside it; the keys are those of `xladder eval --json`."""
        import jax

        from xladder.core.compiling import compiled

        episodes = episodes or self.plan.workload.family.train_episodes
        evaluation = self.config.family
        with jax.default_device(devices.find(self.plan.device)):
            score = evaluation.score(self.config, self.params, episodes, seed, compiled)
        judge = getattr(self.config, "judge", None)  # of worlds with published scores
        return score | judge(score["mean_return"], self.units_done) if judge else score

    def policy(self, seed: int | None = None, agent: int = 0) -> Policy:
        """What one agent does, as a function of what it sees; of the first seed if none is named."""
        from xladder.runs.nets import policy

        return policy(self, seed, agent)

    def save(self, path: str | Path) -> Path:
        """Write a run directory: config, metrics, agents, pictures."""
        from xladder.runs.directory import RunDirectory

        directory = RunDirectory.create(path, self.plan)
        directory.write_metrics(self)
        directory.finish(self)
        if self.units_done == self.config.ticks * self.config.units_per_tick:
            directory.mark_finished()
        directory.lock.release()
        return directory.path
