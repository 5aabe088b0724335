"""Shared by all value workloads: the settings of a run, what follows from them, and which rungs they can run on.

Agents in `cartpole`, `minatar/breakout`, `atari/pong` or `gym/LunarLander-v3` belong to one family: a torso, a head and
options such as double Q-learning.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

from xladder.errors import UsageError, uneven
from xladder.families.value import own_torsos
from xladder.families.value.learner_config import MEMBERS, LearnerConfig, PQNConfig
from xladder.families.value.torsos import BY_KEY, is_own, suited, takes
from xladder.parity.precision import TORCH_RUNGS, missing_rungs
from xladder.protocols import Family

COMPARED_TICKS = 400
MOST_STRATA = 8
# Settings that are traced; the steps of ε's decay follow from the last two.
_BOTH = ("lr", "gamma", "clip", "epsilon", "epsilon_end", "epsilon_steps", "epsilon_share")
TRACED = tuple(f"learner.{name}" for name in (*_BOTH, "tau", "alpha", "beta", "munchausen_scale", "temperature"))
TRACED_PQN = (*(f"learner.{name}" for name in _BOTH), "pqn.lambda_")


class ValueWorld:
    """Base class of the world settings."""

    jittable: ClassVar[bool]
    name: str
    num_envs: int
    stack: int

    @property
    def scaling(self) -> tuple[float, float] | None:
        """ε and limit of observations that are normalised by running statistics; None if they are not."""
        if getattr(self, "normalise", "none") != "running":
            return None
        own: Any = self
        return own.normalise_eps, own.normalise_clip

    @property
    def rows(self) -> int:
        """Rows that one learner sees: one per env."""
        return self.num_envs

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of the agents that learn independently; empty for a single agent."""
        return ()


def rounded_up(config: ValueConfig) -> Any:
    """Settings whose length is a whole number of ticks."""
    length, tick = getattr(config, config.length), config.units_per_tick
    changes: dict[str, Any] = {config.length: -(-length // tick) * tick}
    return replace(config, **changes) if length % tick else config


def compared(config: ValueConfig) -> Any:
    """Shorter settings for a comparison: a small replay memory, a few hundred ticks of learning, no evaluation."""
    c, tick, starts = config.learner, config.per_tick, 0
    learner = c
    if config.algorithm != "pqn":
        starts = -(-max(10 * config.world.rows, c.batch_size) // tick) * tick
        learner = replace(c, learning_starts=starts, memory=min(c.memory, 20_000), explore_from=0)
    ticks = COMPARED_TICKS if c.torso == "mlp" else COMPARED_TICKS // 4
    length = (starts + ticks * tick) * config.length_per_step
    changes: dict[str, Any] = {config.length: length}
    return replace(config, learner=learner, evaluate_episodes=0, **changes)


def lengthened(config: ValueConfig, length: int) -> tuple[Any, list[str]]:
    """A longer run: ε decays as before, and evaluations come as often as before; other schedules are stretched."""
    c, notes = config.learner, list[str]()
    learner = replace(c, epsilon_steps=max(1, config.explore_steps))
    if c.epsilon != c.epsilon_end:
        notes.append(f"ε still decays over {config.explore_steps:,} agent steps.")
    if c.prioritised and c.beta != c.beta_end:
        notes.append("β of prioritised replay reaches its last value at the new end, so it falls back a little first.")
    if config.algorithm == "pqn":
        notes.append("The learning rate falls to zero at the new end, so it rises first.")
    changes: dict[str, Any] = {config.length: length, "learner": learner}
    if config.interval:
        changes["evaluate_every"] = config.interval * config.units_per_tick
    return replace(config, **changes), notes


def memory_bytes(config: ValueConfig) -> int:
    """Bytes of one seed's replay memory."""
    if config.algorithm == "pqn":
        return 0
    from xladder.replay.history import num_bytes  # imports JAX

    n, memory = config.world.rows, config.learner.memory
    spec = config.world.spec()
    agents, sizes = max(1, len(spec.agents)), (spec.actions, config.hidden_width, spec.choices)
    return (
        agents * num_bytes(n, memory // n, spec.shape, spec.dtype, *sizes)
        + agents * 4 * memory * config.learner.prioritised
    )


def lacking(config: ValueConfig) -> dict[str, tuple[str, str]]:
    """Rungs that cannot run these settings: name → (reason, a rung that can)."""
    if config.algorithm == "pqn":
        why = "PQN learns from many envs at once, inside the program"
        none = "PQN has no replay memory for actors to fill"
        return {rung: (why, "fused") for rung in ("torch", "compiled", "hybrid", "sequential")} | {
            "actors": (none, "fused")
        }
    found: dict[str, tuple[str, str]] = {}
    if config.learner.strata > 1:
        found["actors"] = ("its replay memories sample uniformly over their envs (`--learner.strata 1`)", "parallel")
    if getattr(config.world, "team", False):
        found["actors"] = ("its replay memories keep the action of one agent, not those of a team", "fused")
    if config.learner.recurrent:
        found["actors"] = ("its replay memories keep transitions, not sequences with hidden states", "parallel")
    if config.world.scaling is not None:
        found["actors"] = ("its learner sees batches, not every observation that has to be counted", "parallel")
    if torch := why_no_twin(config):
        return found | dict.fromkeys(TORCH_RUNGS, (torch, "sequential"))
    return found | missing_rungs(config.learner.precision)


def why_no_twin(config: ValueConfig) -> str:
    """Why a user's own torso has no PyTorch twin that matches it, as a clause; an empty string if it has one."""
    torso = config.learner.torso
    if not is_own(torso):
        return ""
    missing = own_torsos.why_no_twin(torso)
    if missing or find_spec("torch") is None:
        return missing
    from xladder.families.value import torso_twins_torch

    return torso_twins_torch.fault(torso, config.world.spec().of_one, config.world.stack, config.world.name)


def for_mesh(config: ValueConfig, devices: int) -> Any:
    """Settings whose envs and batches divide over `devices`; a `UsageError` if that is not possible."""
    c, envs = config.learner, config.world.rows
    if config.algorithm == "pqn":
        raise UsageError(
            "PQN shuffles the steps of all envs, so data cannot be sharded: shard seeds over the devices instead."
        )
    if c.prioritised:
        raise UsageError(
            "Prioritised replay needs one memory, so data cannot be sharded: shard seeds over the devices instead, or "
            "replay uniformly."
        )
    for flag, count in (("learner.batch-size", c.batch_size), ("world.num-envs", config.world.num_envs)):
        if count % devices:
            raise uneven(flag, count, devices)
    if c.strata % devices == 0:
        return config
    if c.strata > 1:
        raise uneven("learner.strata", c.strata, devices)
    # As many as possible, up to eight, so that the run can be resumed on more devices, or on fewer.
    shared = math.gcd(c.batch_size, envs)
    strata = max(n for n in range(devices, max(MOST_STRATA, devices) + 1) if n % devices == 0 and shared % n == 0)
    return replace(config, learner=replace(c, strata=strata))


def check_torso(config: ValueConfig, shape: tuple[int, ...]) -> None:
    """Raise a `UsageError` if the torso cannot take frames of this shape; the error names one that can."""
    torso, name = config.learner.torso, config.world.name
    if is_own(torso) and (torso != BY_KEY or config.world.spec().fields):
        own_torsos.check(torso, config.world.spec().of_one, config.world.stack, name)
        return
    if torso != BY_KEY and takes(torso, shape):
        return
    other = suited(shape)
    way_out = f"use `--learner.torso {other}`" if other else "no built-in torso can"
    shown = " × ".join(map(str, shape)) or "a single number"
    raise UsageError(f"The `{torso}` torso cannot take the frames of `{name}` ({shown}): {way_out}.")


def note(config: ValueConfig) -> str:
    """A note to print before the run starts, or an empty string."""
    return "; ".join(filter(None, [config.note(), _too_short(config), _wrong_twin(config)]))


def _wrong_twin(config: ValueConfig) -> str:
    """A warning if a user's own torso has a PyTorch twin that does not match it, or an empty string."""
    if not is_own(config.learner.torso) or own_torsos.find_twin(config.learner.torso) is None:
        return ""
    why = why_no_twin(config)
    return f"there will be no `torch`, `compiled`, `hybrid`, `parity` and `export`: {why}" if why else ""


def _too_short(config: ValueConfig) -> str:
    """A warning if the run ends before the first update, or an empty string."""
    if config.algorithm == "pqn" or (config.ticks - 1) * config.per_tick >= config.learning_begins:
        return ""
    c, begins = config.learner, config.learning_begins
    causes = {"learning-starts": c.learning_starts, "batch-size": c.batch_size, "n-step": c.n_step}
    flag, value = next((each for each in causes.items() if each[1] == begins), ("n-step", c.n_step))
    return (
        f"nothing will be learned: the first update comes after {begins:,} agent steps, and the run "
        f"has {config.agent_steps:,} (`--learner.{flag}` is {value})"
    )


def members(config: ValueConfig) -> dict[str, Any]:
    """Every member of the family, with a world's settings for the rest."""
    return {name: replace(config, learner=replace(config.learner, **changes)) for name, changes in MEMBERS.items()}


@dataclass(frozen=True)
class ValueConfig:
    """The settings that every value workload has, and what follows from them.

    A tick is the smallest number of environment steps that triggers a whole number of updates.
    """

    family: ClassVar[Family]
    length: ClassVar[str]
    length_per_step: ClassVar[int]
    world: Any = None
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    pqn: PQNConfig = field(default_factory=PQNConfig)
    algorithm: str = "replay"
    evaluate_every: int = 0
    """Steps between evaluations during training; 0 means a tenth of the run."""
    evaluate_episodes: int = 10
    """Episodes of each evaluation during training; 0 makes none. `--eval-episodes` is for the one at the end."""
    evaluate_epsilon: float = 0.0
    """Probability of a random action in evaluations."""

    @property
    def name(self) -> str:
        """The workload's name."""
        return str(self.world.name)

    def check_settings(self) -> None:
        """Raise a `UsageError` for settings that the world cannot have, as far as is known without making it."""

    def check_world(self) -> None:
        """Raise a `UsageError` if the world cannot be stepped, or the torso cannot take its frames."""
        check_torso(self, self.world.spec().of_one.shape)

    def note(self) -> str:
        """A note to print before the run starts, or an empty string."""
        return ""

    @property
    def agent_steps(self) -> int:
        """Training length in agent steps, summed over envs."""
        return getattr(self, self.length) // self.length_per_step

    @property
    def steps_per_tick(self) -> int:
        """Steps per env in a tick."""
        if self.algorithm == "pqn":
            return self.pqn.rollout
        return max(1, self.learner.steps_per_update // self.world.rows)

    @property
    def updates_per_tick(self) -> int:
        """Updates in a tick, once learning has started."""
        if self.algorithm == "pqn":
            return self.pqn.minibatches * self.pqn.passes
        return max(1, self.world.rows // self.learner.steps_per_update)

    @property
    def per_tick(self) -> int:
        """Agent steps in a tick."""
        return self.steps_per_tick * self.world.rows

    @property
    def env_steps_per_tick(self) -> int:
        """Environment steps of a tick, over all envs."""
        return self.per_tick

    @property
    def units_per_tick(self) -> int:
        """Length of a tick in the unit that the training length is given in (steps or frames)."""
        return self.per_tick * self.length_per_step

    @property
    def ticks(self) -> int:
        """Training length in ticks."""
        return self.agent_steps // self.per_tick

    @property
    def tick_description(self) -> str:
        """A sentence that says what a tick is."""
        steps, envs, updates = self.steps_per_tick, self.world.rows, self.updates_per_tick
        rollout = f"{steps} step{'s' * (steps > 1)} of {envs} env{'s' * (envs > 1)}"
        return f"a tick is {rollout} and {updates} update{'s' * (updates > 1)}"

    @property
    def interval(self) -> int:
        """Ticks between evaluations; 0 if there are none."""
        if not self.evaluate_episodes:
            return 0
        if self.evaluate_every:
            return max(1, self.evaluate_every // self.units_per_tick)
        return max(1, self.ticks // 10)

    @property
    def longest_game(self) -> int:
        """Steps after which an evaluation abandons an episode: some worlds have no time limit."""
        return 10_000

    @property
    def learning_begins(self) -> int:
        """Agent steps before the first update with replay: `learning_starts`, or enough to sample a batch."""
        c = self.learner
        return max(c.learning_starts, c.batch_size, (c.span + 1) * self.world.rows)

    @property
    def explore_steps(self) -> int:
        """Agent steps over which ε decays, or its half-life."""
        return self.learner.epsilon_steps or round(self.learner.epsilon_share * self.agent_steps)

    @property
    def hidden_width(self) -> int:
        """Numbers of the hidden state in one row: those of all agents of a team; 0 for a network without memory."""
        return self.learner.recurrent and self.learner.recurrent * max(1, self.world.spec().team)

    @property
    def acting(self) -> Any:
        """The settings under which trained agents act: those of a team act each on its own."""
        return self

    @property
    def num_learners(self) -> int:
        """Number of agents that learn independently."""
        return max(1, len(self.world.agents))

    @property
    def agent_axis(self) -> bool:
        """Whether parameters have an agent axis, [seed, agent, …]."""
        return bool(self.world.agents)


@dataclass(frozen=True)
class StepsConfig(ValueConfig):
    """The settings of a workload whose length is counted in steps."""

    length: ClassVar[str] = "steps"
    length_per_step: ClassVar[int] = 1
    algorithm: Literal["replay", "pqn"] = "replay"
    """replay: the value learner with a replay memory. pqn: no replay memory, but many envs."""
    steps: int = 100_000
    """How long to train: steps of all envs together."""
