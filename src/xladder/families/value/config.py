"""Shared by all value workloads: the learner's settings, their checks, and the texts that describe a run.

Agents in `cartpole`, `minatar/breakout`, `atari/pong` or `gym/LunarLander-v3` belong to one family: a torso, a head and
options such as double Q-learning. `MEMBERS` are the combinations that have a name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

import numpy as np

from xladder.core.statistics import format_mean, signed, tenths
from xladder.errors import UsageError, uneven
from xladder.families.value import own_torsos
from xladder.families.value.torsos import is_own, suited, takes
from xladder.protocols import Family

SHOWN = {"return": "return {:.1f}", "eval_return": "evaluated {:.1f}", "loss": "loss {:.4f}", "epsilon": "ε {:.2f}"}
COMPARED_TICKS = 400
MOST_STRATA = 8
MOST_AGENTS = 6  # whose returns are printed one by one
# Columns that only `actors` reports: how many parameter versions the actors lag behind, the age of sampled rows in
# ticks, samples per environment step, chunks queued for the replay memories, and batches queued for the learner.
OF_ACTORS = ("lag", "staleness", "ratio", "queue_chunks", "queue_batches")
# Settings that are traced; the steps of ε's decay follow from the last two.
_BOTH = ("lr", "gamma", "clip", "epsilon", "epsilon_end", "epsilon_steps", "epsilon_share")
TRACED = tuple(f"learner.{name}" for name in (*_BOTH, "tau", "alpha", "beta", "munchausen_scale", "temperature"))
TRACED_PQN = (*(f"learner.{name}" for name in _BOTH), "pqn.lambda_")


@dataclass(frozen=True)
class LearnerConfig:
    """A value learner: torso × head × options."""

    torso: str = "mlp"
    """mlp for vectors, nature for large images (nature_same with padding), minatar for small ones, or module:Name for
    your own."""
    hidden: tuple[int, ...] = (128,)
    """Widths of the mlp torso's layers."""
    width: int = 128
    """Width of the head's hidden layer."""
    recurrent: int = 0
    """Units of a GRU between torso and head, which remembers earlier observations; 0 for none."""
    burn_in: int = 10
    """Steps that bring a stored hidden state up to date before the sequence that is learned from (with a GRU)."""
    sequence: int = 20
    """Transitions that are learned from in a row (with a GRU); a batch has `batch_size` such sequences."""
    eta: float = 0.9
    """η: share of a sequence's largest error in its priority; the rest is the mean (with a GRU)."""
    head: Literal["scalar", "categorical", "quantile", "implicit"] = "scalar"
    """How returns are modelled: mean, atoms (C51), fixed quantiles (QR-DQN) or sampled quantiles (IQN)."""
    dueling: bool = False
    """Separate value and advantage streams."""
    streams: Literal["apart", "shared"] = "apart"
    """Whether the streams of a dueling head have a hidden layer each, or share one."""
    double: bool = False
    """Double Q-learning: the online network chooses the next action, the target network evaluates it."""
    noisy: bool = False
    """Explore with noise on the head's weights; usually combined with ε = 0."""
    n_step: int = 1
    """Rewards summed before bootstrapping."""
    prioritised: bool = False
    """Prioritised replay: sample transitions with a large error more often."""
    munchausen: bool = False
    """Add the scaled log-policy to the reward (M-DQN, M-IQN)."""
    lr: float = 1e-3
    """Learning rate."""
    optimiser: Literal["adam", "rmsprop", "rmsprop_torch", "radam"] = "adam"
    """The optimiser; rmsprop is centred, with ε inside the root as in Mnih et al. 2015, or outside as in PyTorch."""
    optimiser_eps: float = 1e-8
    """ε in the optimiser's denominator."""
    loss: Literal["huber", "squared"] = "huber"
    """Loss of a scalar head; the other heads have their own."""
    kappa: float = 1.0
    """κ: the error at which the Huber loss turns from quadratic to linear."""
    clip: float = 10.0
    """Clip gradients to this global norm; inf for no clipping."""
    gamma: float = 0.99
    """Discount per step."""
    clip_rewards: bool = False
    """Clip rewards to [−1, 1] for learning."""
    reward_scale: float = 1.0
    """Multiply rewards by this for learning."""
    batch_size: int = 64
    """Transitions per update."""
    strata: int = 1
    """Groups of envs that contribute equally to each batch; a mesh needs a multiple of its devices."""
    memory: int = 20_000
    """Capacity of the replay memory in steps, over all envs."""
    learning_starts: int = 1000
    """Steps before the first update."""
    steps_per_update: int = 8
    """Agent steps per update; a multiple or a divisor of the number of envs."""
    target_update_period: int = 500
    """Agent steps between hard updates of the target network; 0 for no hard updates."""
    tau: float = 0.0
    """τ of the soft target update after each update; 0 for no soft updates."""
    epsilon: float = 1.0
    """ε at the start: the probability of a random action."""
    epsilon_end: float = 0.05
    """ε at the end of its decay."""
    epsilon_steps: int = 0
    """Agent steps over which ε decays, or its half-life if exponential; 0 means `epsilon_share` of the run."""
    epsilon_share: float = 0.2
    """Fraction of the run over which ε decays, unless `epsilon_steps` is set."""
    explore_from: int = 0
    """Steps before ε starts to decay."""
    epsilon_schedule: Literal["linear", "exponential"] = "linear"
    """How ε decays."""
    explore_repeat: int = 1
    """Steps for which exploration goes on with one random action, where single ones get nowhere."""
    atoms: int = 51
    """Atoms of a categorical head."""
    v_min: float = -10.0
    """Lowest atom of a categorical head."""
    v_max: float = 10.0
    """Highest atom of a categorical head."""
    quantiles: int = 32
    """Quantiles of a quantile head, or quantiles that an implicit head samples per state when learning."""
    act_quantiles: int = 32
    """Quantiles that an implicit head samples per state when acting."""
    cosines: int = 64
    """Cosine features that embed a quantile fraction (implicit head)."""
    sigma: float = 0.5
    """Initial scale σ of the noise in noisy layers."""
    alpha: float = 0.5
    """Priority exponent α: 0 is uniform replay, 1 is fully proportional."""
    beta: float = 0.4
    """Initial importance-sampling exponent β; it moves to `beta_end` over the run."""
    beta_end: float = 1.0
    """Final importance-sampling exponent β; 0 at both ends for no correction."""
    munchausen_scale: float = 0.9
    """Scale of the Munchausen bonus."""
    munchausen_floor: float = -1.0
    """Lower bound of the scaled log-policy in the Munchausen bonus."""
    temperature: float = 0.03
    """Softmax temperature of the Munchausen policy."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the matrix products; parameters, targets and losses stay float32."""

    @property
    def span(self) -> int:
        """Steps of an env that a sample needs after the one at which it starts."""
        return self.n_step + (self.burn_in + self.sequence - 1 if self.recurrent else 0)


@dataclass(frozen=True)
class PQNConfig:
    """Settings of PQN, the learner without replay (Gallici et al. 2024); torso, width, lr … are under `learner`."""

    rollout: int = 32
    """Steps per env in each rollout."""
    minibatches: int = 8
    """Minibatches per rollout."""
    passes: int = 2
    """Passes over each rollout."""
    lambda_: float = 0.65
    """λ of Q(λ)."""


class ValueWorld:
    """Base class of the world settings."""

    jittable: ClassVar[bool]
    name: str
    num_envs: int
    stack: int

    @property
    def rows(self) -> int:
        """Rows that one learner sees: one per env."""
        return self.num_envs

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of the agents that learn independently; empty for a single agent."""
        return ()


# The named members of the family, as changes to a world's settings.
_PLAIN = {"double": False, "n_step": 1}
MEMBERS: dict[str, dict[str, Any]] = {
    "dqn": _PLAIN,
    "double": {**_PLAIN, "double": True},
    "dueling": {**_PLAIN, "double": True, "dueling": True},
    "c51": {**_PLAIN, "head": "categorical"},
    "qrdqn": {**_PLAIN, "head": "quantile"},
    "iqn": {**_PLAIN, "head": "implicit"},
    "munchausen": {**_PLAIN, "munchausen": True},
    "rainbow": {
        "head": "categorical",
        "dueling": True,
        "double": True,
        "noisy": True,
        "n_step": 3,
        "prioritised": True,
        "epsilon": 0.0,
        "epsilon_end": 0.0,
    },
}


# R2D2 (Kapturowski et al. 2019; numbers of google-deepmind/acme: acme/agents/jax/r2d2/config.py), as changes to a
# world's settings. Its sizes are for Atari: here a GRU of 64 units instead of an LSTM of 512, sequences of 10 + 20
# steps instead of 40 + 80 and batches of 32 instead of 64, and a sequence may begin at any step instead of every 40th.
# Values are not rescaled, and previous action and reward are no input.
R2D2: dict[str, Any] = {
    "recurrent": 64,
    "burn_in": 10,
    "sequence": 20,
    "batch_size": 32,
    "head": "scalar",
    "double": True,
    "dueling": True,
    "n_step": 5,  # bootstrap_n
    "gamma": 0.997,  # discount
    "prioritised": True,
    "alpha": 0.9,  # priority_exponent
    "beta": 0.6,  # importance_sampling_exponent
    "beta_end": 0.6,
    "eta": 0.9,  # max_priority_weight
    "lr": 1e-3,  # learning_rate
}


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
    agents = max(1, len(spec.agents))
    return (
        agents * num_bytes(n, memory // n, spec.shape, spec.dtype, spec.actions, config.learner.recurrent)
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
    if config.learner.recurrent:
        found["actors"] = ("its replay memories keep transitions, not sequences with hidden states", "parallel")
    torch = "the PyTorch twin computes in float32" if config.learner.precision != "float32" else ""
    torch = why_no_twin(config) or torch
    return found | ({rung: (torch, "sequential") for rung in ("torch", "compiled", "hybrid")} if torch else {})


def why_no_twin(config: ValueConfig) -> str:
    """Why a user's own torso has no PyTorch twin that matches it, as a clause; an empty string if it has one."""
    torso = config.learner.torso
    if not is_own(torso):
        return ""
    missing = own_torsos.why_no_twin(torso)
    if missing or find_spec("torch") is None:
        return missing
    from xladder.families.value import torso_twins_torch

    return torso_twins_torch.fault(torso, config.world.spec(), config.world.stack, config.world.name)


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
    if is_own(torso):
        own_torsos.check(torso, config.world.spec(), config.world.stack, name)
        return
    if takes(torso, shape):
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
    return (
        f"nothing will be learned: the first update comes after {config.learning_begins:,} agent steps, and the run "
        f"has {config.agent_steps:,} (`--learner.learning-starts` is {config.learner.learning_starts})"
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

    def check_world(self) -> None:
        """Raise a `UsageError` if the world cannot be stepped, or the torso cannot take its frames."""
        check_torso(self, self.world.spec().shape)

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


def measured(config: ValueConfig) -> dict[str, float]:
    """The columns that evaluations fill, with nan as on ticks without one."""
    return {"eval_return": float("nan")}


def label(values: Mapping[str, np.ndarray], place: int = 0) -> str:
    """A short label of an evaluation, for one of its seeds."""
    return f"return {signed(values['eval_return'][place])}"


def agent_columns(agents: Sequence[str]) -> list[str]:
    """The names of columns with the agents' returns: of plain characters, and different, whatever agents are called."""
    names = [re.sub(r"[^A-Za-z0-9_.-]+", "_", agent) for agent in agents]
    return [f"return_{name}" if names.count(name) == 1 else f"return_{name}_{i}" for i, name in enumerate(names)]


def columns(config: ValueConfig, metrics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns of the metrics table: name → float [seeds, ticks], from the arrays that a tick reports."""
    shown = {name: metrics[name] for name in ("length", "episodes", "loss", "epsilon", "updates")}
    apart = {name: metrics[name] for name in OF_ACTORS if name in metrics}
    if "agent_returns" in metrics:
        by_agent = np.moveaxis(metrics["agent_returns"], -1, 0)
        apart |= dict(zip(agent_columns(config.world.agents), by_agent, strict=True))
    return {"return": metrics["returns"], **shown, **apart}


def summary(config: ValueConfig, metrics: Mapping[str, np.ndarray]) -> list[str]:
    """Lines that summarise the training run."""
    parts = tenths(metrics["return"], metrics["episodes"])
    if not all(np.isfinite(part).all() for part in parts):
        count = int(np.nansum(metrics["episodes"]))
        if not count and metrics["return"].size:
            hint = f": `xladder check {config.name}` says whether its episodes end at all" if ":" in config.name else ""
            return [f"no episode ended while training{hint}"]
        return [f"{count} episode{'s' * (count != 1)} ended while training"]
    first, last = (format_mean(part) for part in parts)
    return [f"return per episode during training: {first} in the first tenth, {last} in the last"]


def headline(config: ValueConfig) -> str:
    """What a comparison runs, in addition to the workload's name."""
    return config.tick_description


def describe_score(score: Mapping[str, Any]) -> list[str]:
    """Lines that describe an evaluation."""
    over = "seeds" if score["seeds"] > 1 else "episodes"
    mean = _with_interval(score["mean_return"], score["ci95"], f" (95 % over {over})")
    count = f"{score['episodes']} episode{'s' * (score['episodes'] > 1)}" + " of each seed" * (score["seeds"] > 1)
    if left := score.get("unfinished"):
        count += f", of which {left} did not end and {'was' if left == 1 else 'were'} abandoned"
    lines = [
        f"mean return {mean}, median {signed(score['median_return'])}, ε = {score['epsilon']:g}, {count}",
        f"random play {_with_interval(score['random_return'], score['random_ci95'])}",
    ]
    if len(score.get("agents", ())) > 1:
        by_agent = {
            "per agent": score["per_agent"],
            "while the others act at random": score["against_random"],
            "all at random": score["random_per_agent"],
        }
        for what, values in by_agent.items():
            each = [f"{name} {signed(value)}" for name, value in zip(score["agents"], values, strict=True)]
            more = f", and {len(each) - MOST_AGENTS} more" if len(each) > MOST_AGENTS else ""
            lines.append(f"{what}: {', '.join(each[:MOST_AGENTS])}{more}")
    humans = {49: score.get("human49"), 57: score.get("human57")}
    known = [
        f"{signed(human, 2)} by the table of {games} games" for games, human in humans.items() if human is not None
    ]
    if known:
        lines.append(f"human-normalised {', '.join(known)} (0 is random play, 1 a human)")
    said = [score[name] for name in ("advice", "placing") if name in score]
    return [*lines, *said, *score.get("caveats", [])]


def _with_interval(mean: float, half_width: float, what: str = "") -> str:
    """`20.4 ± 0.3`; a single value has no interval."""
    return signed(mean) + (f" ± {half_width:.1f}{what}" if np.isfinite(half_width) else "")
