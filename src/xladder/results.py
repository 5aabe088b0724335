"""The result of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder import devices
from xladder.core.statistics import episode_weights, last_tenth, mean_and_interval, signed
from xladder.core.types import Params
from xladder.errors import UsageError
from xladder.keywords import in_python
from xladder.plans import Plan, check_fits, check_seeds, format_seeds, is_whole
from xladder.settings import MOST_EPISODES, as_whole

if TYPE_CHECKING:
    from xladder.policy import Policy


@dataclass(frozen=True)
class Snapshot:
    """A picture of what a seed had learned by some tick."""

    tick: int
    picture: np.ndarray
    label: str
    seed: int | None = None
    """None in runs of earlier versions, which kept those of the first seed only."""


@dataclass(repr=False)
class Result:
    """The result of a finished or stopped run: metrics, parameters and timings."""

    plan: Plan
    """What was run."""
    metrics: dict[str, np.ndarray]
    """Name → float [seed, row]; nan for rows that a seed did not reach. A row is a tick, or in long runs as many as
    `ticks_per_row` of the plan says."""
    params: Params
    """The learned parameters, a JAX pytree with leaves [seed, …], or [seed, agent, …] in sorrel's worlds."""
    compile_seconds: float
    """How long the rung took to compile."""
    tick_seconds: list[float] = field(default_factory=list)
    """Seconds per tick and seed, one entry per chunk."""
    snapshots: list[Snapshot] = field(default_factory=list)
    """Pictures of the seeds, for workloads that are evaluated during training; of the first ones if they are large."""
    path: Path | None = None
    """The run directory, if there is one."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds by what they were spent on ("starting", "compiling", "first chunk", "training", "recording", …)."""
    ticks_done: int | None = None
    """Ticks of the seed that trained least; counted by the rows of `metrics` if None."""

    @property
    def config(self) -> Any:
        """The config it was trained with."""
        return self.plan.config

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, in the order of the first axis of `metrics` and `params`."""
        return self.plan.seeds

    @property
    def units_done(self) -> int:
        """Progress of the seed that trained least, in the unit of the workload's length (steps, epochs, …)."""
        if not self.metrics:
            return self.config.ticks * self.config.units_per_tick
        if self.ticks_done is not None:
            return self.ticks_done * self.config.units_per_tick
        reached = np.any([np.isfinite(column) for column in self.metrics.values()], axis=0)  # [seed, row]
        done = min(int(reached.sum(1).min()) * self.plan.ticks_per_row, self.config.ticks)
        return done * self.config.units_per_tick

    @property
    def is_complete(self) -> bool:
        """Whether all seeds were trained to the end."""
        rows = {values.shape[0] for values in self.metrics.values()} or {len(self.seeds)}
        whole = self.config.ticks * self.config.units_per_tick
        return rows == {len(self.seeds)} and self.units_done == whole

    def snapshots_of(self, seed: int) -> list[Snapshot]:
        """The pictures of a seed, in the order of ticks."""
        first = self.seeds[0]
        return [one for one in self.snapshots if (first if one.seed is None else one.seed) == seed]

    @property
    def collapsed(self) -> list[Any]:
        """The seeds of a GFlowNet that missed modes at the last evaluation during training, the worst first.

        Each has `seed`, `missed`, `modes` and `distance`, and reads "seed 3 misses 2 of 4 modes: total variation 0.50".
        """
        return self.config.family.collapsed(self.config, self.metrics, self.seeds)

    def at(self, condition: float | Sequence[float]) -> Result:
        """The result of a conditional sampler (`--learner.condition`) at one condition, as that of a plain sampler.

        Args:
            condition: A number in the range that it was trained for, or the weights of its reward terms.

        Returns:
            A result whose `evaluate`, `policy` and parameters are those at this condition.
        """
        config, params = self.config.family.at_condition(self.config, self.params, condition)
        return replace(self, plan=replace(self.plan, config=config), params=params)

    def evaluate(self, episodes: int | None = None, seed: int = 0) -> dict[str, Any]:
        """Evaluate the greedy policy, and a random one for comparison.

        Args:
            episodes: Episodes per seed, or number of sampled objects; the family's default if None.
            seed: Random seed of the evaluation; independent of the training seeds.

        Returns:
            The keys of `xladder eval --json`, such as `mean_return`, `ci95` and `random_return`.
        """
        import jax

        from xladder.core.compiling import compiled

        check_seeds(seed, 1)
        episodes = as_whole(episodes)
        if episodes is not None and not is_whole(episodes):
            raise UsageError(f"`episodes` is {episodes!r}, but it has to be a whole number.")
        if episodes is not None and not 1 <= episodes <= MOST_EPISODES:
            raise UsageError(f"`episodes` is {episodes}, but it has to be 1 to {MOST_EPISODES:,}.")
        episodes = episodes or self.plan.workload.family.train_episodes
        evaluation, device = self.config.family, devices.find(self.plan.device)
        check_fits(self.config, 1, devices.memory_bytes(device))
        with jax.default_device(device):
            score = evaluation.score(self.config, self.params, episodes, seed, compiled)
        score = evaluation.name_seeds(score, self.seeds)
        judge = getattr(self.config, "judge", None)  # worlds with published scores have one
        return score | judge(score["mean_return"], self.units_done) if judge else score

    def policy(self, seed: int | None = None, agent: int = 0) -> Policy:
        """Return one trained agent as a function from observations to actions.

        Args:
            seed: The training seed of the agent; the first if None.
            agent: Which agent, if several learn.

        Returns:
            A function that takes one observation or a batch of them.
        """
        from xladder.runs.nets import policy

        found = policy(self, seed, agent)
        found.whose = f"{self.plan.workload.name}, seed {self.seeds[0] if seed is None else seed}, agent {agent}"
        return found

    def save(self, path: str | Path, eval_episodes: int | None = None) -> Path:
        """Write a run directory, as `xladder.train(out=…)` does: config, environment, metrics, agents, pictures, log.

        It has no checkpoints, so it cannot be resumed; `xladder eval`, `load`, `export` … work.

        Args:
            path: A folder that does not exist yet, or is empty.
            eval_episodes: Episodes to evaluate; the family's default if None. With 0, no score and no replay.

        Returns:
            The folder.
        """
        from xladder.runs.recording import save

        with in_python(out="path"):
            return save(self, path, eval_episodes)

    def __repr__(self) -> str:
        lines = [f"{name}: {text}" for name, text in self._described().items()]
        return "\n  ".join([f"Result of {self.plan.workload.name} on {self.plan.rung}", *lines])

    def _repr_html_(self) -> str:
        """The result as an HTML table, for notebooks."""
        rows = "".join(
            f"<tr><th style='text-align:left'>{escape(name)}</th><td style='text-align:left'>{escape(text)}</td></tr>"
            for name, text in self._described().items()
        )
        title = f"{self.plan.workload.name} on {self.plan.rung}"
        return f"<table><caption>xladder: {escape(title)}</caption>{rows}</table>"

    def _described(self) -> dict[str, str]:
        """The result in a few lines: seeds, progress, returns, speed and path."""
        plan, each = self.plan, self.config.units_per_tick
        several = len(plan.seeds) > 1
        lines = {
            "seeds": format_seeds(plan).removeprefix("seeds ").removeprefix("seed "),
            "trained": f"{self.units_done:,} of {self.config.ticks * each:,} {plan.workload.length}",
        }
        reached = {name: self.metrics[name] for name in ("return", "eval_return", "tv") if name in self.metrics}
        for name, values in reached.items():
            if not np.isfinite(values).any():
                continue
            if name == "return":
                mean, interval = last_tenth(values, episode_weights(name, self.metrics))
                when = "mean of the last tenth"
            else:  # evaluated now and then: the last value of each seed
                last = [row[np.isfinite(row)][-1] if np.isfinite(row).any() else np.nan for row in values]
                mean, interval = (float(one) for one in mean_and_interval(np.array(last)))
                when = "last evaluation"
                if name == "tv" and 1 < len(last) < 4:  # a mean of so few would hide one that is far off
                    lines[name] = f"{', '.join(f'{one:.4f}' for one in last)} ({when}, one by one)"
                    continue
            if not np.isfinite(mean):
                continue
            around = f" ± {interval:.2f}" if several and np.isfinite(interval) else ""
            lines[name.replace("_", " ")] = f"{signed(mean, 2)}{around} ({when}{', seeds averaged' if several else ''})"
        if self.tick_seconds and np.isfinite(np.median(self.tick_seconds)):
            lines["time"] = f"{np.median(self.tick_seconds) * 1000:.2f} ms per {plan.workload.tick}" + (
                " and seed" if several else ""
            )
        if self.collapsed:
            lines["collapsed"] = "; ".join(map(str, self.collapsed))
        lines["metrics"] = ", ".join(self.metrics) or "none"
        lines["path"] = str(self.path) if self.path else "not saved: use save(path), or train(out=…)"
        return lines
