"""What the value worlds share: the settings of their learners, how these are checked, and how a run is described.

Agents in `cartpole`, `minatar/breakout`, `atari/pong` or `gym/LunarLander-v3` are members of one family: a torso, a
head and ingredients. The named members are `MEMBERS`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, ClassVar, Literal

import numpy as np

from xladder.core.statistics import format_mean, signed
from xladder.errors import UsageError, uneven
from xladder.families.value import own_torsos
from xladder.families.value.torsos import is_own, suited, takes
from xladder.protocols import Family

SHOWN = {"return": "return {:.1f}", "eval_return": "evaluated {:.1f}", "loss": "loss {:.4f}", "epsilon": "ε {:.2f}"}
COMPARED_TICKS = 400
MOST_STRATA = 8
# What only `actors` reports: versions that acting lags behind, ticks since a sampled row was played, samples per step,
# chunks of rows on their way to the memories, and batches on theirs to the learner.
OF_ACTORS = ("lag", "staleness", "ratio", "queue_chunks", "queue_batches")


@dataclass(frozen=True)
class LearnerConfig:
    """A value learner: torso × head × ingredients."""

    torso: str = "mlp"
    """mlp for vectors, nature for screens of 84 × 84, minatar for small pictures, or module:Name of your own."""
    hidden: tuple[int, ...] = (128,)
    """Widths of the mlp torso's layers."""
    width: int = 128
    """Width of the head's hidden layer."""
    head: Literal["scalar", "categorical", "quantile", "implicit"] = "scalar"
    """What describes a return: its mean, atoms (C51), quantiles (QR-DQN) or drawn quantiles (IQN)."""
    dueling: bool = False
    """Value and advantage in branches of their own."""
    double: bool = False
    """The online network chooses the action that the target network judges."""
    noisy: bool = False
    """Explore by noise on the head's weights; ε is then best 0."""
    n_step: int = 1
    """Rewards summed before bootstrapping."""
    prioritised: bool = False
    """Replay what was predicted badly more often."""
    munchausen: bool = False
    """Add the scaled logarithm of the policy to the reward (M-DQN, M-IQN)."""
    lr: float = 1e-3
    """The optimiser's step size."""
    optimiser: Literal["adam", "rmsprop", "radam"] = "adam"
    """rmsprop is centred, as in Mnih et al. 2015."""
    optimiser_eps: float = 1e-8
    """What the optimiser adds to its denominator."""
    loss: Literal["huber", "squared"] = "huber"
    """Of a scalar head; the others have their own."""
    kappa: float = 1.0
    """Where the Huber loss turns from square to linear."""
    clip: float = 10.0
    """Largest norm of a gradient; inf for none."""
    gamma: float = 0.99
    """Discount per step."""
    clip_rewards: bool = False
    """Learn from rewards cut to [−1, 1]."""
    batch_size: int = 64
    """Transitions per update."""
    strata: int = 1
    """Groups of envs that give an equal part of each batch; a mesh needs a multiple of its devices."""
    memory: int = 20_000
    """Steps remembered, of all envs together."""
    learning_starts: int = 1000
    """Steps before the first update."""
    steps_per_update: int = 8
    """Agent steps for each update; a multiple of the envs, or they a multiple of it."""
    target_update_period: int = 500
    """Agent steps between hard updates of the target network; 0 for none."""
    tau: float = 0.0
    """Share of the online network that the target network takes over after each update."""
    epsilon: float = 1.0
    """Probability of a random action at the start."""
    epsilon_end: float = 0.05
    """The same at the end of exploring."""
    epsilon_steps: int = 0
    """Agent steps until then, or a half-life if exponential; 0: `epsilon_share` of the run."""
    epsilon_share: float = 0.2
    """The part of the run in which ε falls."""
    explore_from: int = 0
    """Steps before ε starts to decay."""
    epsilon_schedule: Literal["linear", "exponential"] = "linear"
    """How it falls."""
    atoms: int = 51
    """Atoms of a categorical head."""
    v_min: float = -10.0
    """The lowest of them."""
    v_max: float = 10.0
    """The highest of them."""
    quantiles: int = 32
    """Quantiles of a quantile head, or drawn per state by an implicit one."""
    act_quantiles: int = 32
    """Quantiles that an implicit head draws per state when acting."""
    cosines: int = 64
    """Cosines that embed a quantile."""
    sigma: float = 0.5
    """Initial scale of the noise."""
    alpha: float = 0.5
    """How much priorities count: 0 not at all, 1 in full."""
    beta: float = 0.4
    """How far the bias of priorities is taken back at first; it grows to 1."""
    munchausen_scale: float = 0.9
    """Of the added logarithm."""
    munchausen_floor: float = -1.0
    """It is never less than this."""
    temperature: float = 0.03
    """Of the policy whose logarithm it is."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What the layers multiply; parameters, targets and losses stay float32."""


@dataclass(frozen=True)
class PQNConfig:
    """What the replay-free learner has of its own (Gallici et al. 2024); torso, width, lr … are the learner's."""

    rollout: int = 32
    """Steps of every env between two rounds of learning."""
    minibatches: int = 8
    """Minibatches per rollout."""
    passes: int = 2
    """Passes over each rollout."""
    lambda_: float = 0.65
    """λ of Q(λ)."""


class ValueWorld:
    """What the settings of every value world have in common."""

    jittable: ClassVar[bool]
    name: str
    num_envs: int
    stack: int

    @property
    def rows(self) -> int:
        """Copies of the world as one learner sees them."""
        return self.num_envs

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of the agents that learn independently; empty where one agent is alone."""
        return ()


# The named members of the family, as changes to a world's own settings.
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


def compared(config: Any) -> Any:
    """A comparison: a small memory that is soon full enough, a few hundred ticks of learning, no evaluation."""
    c, tick, starts = config.learner, config.per_tick, 0
    learner = c
    if config.algorithm != "pqn":
        starts = -(-max(10 * config.world.rows, c.batch_size) // tick) * tick
        learner = replace(c, learning_starts=starts, memory=min(c.memory, 20_000), explore_from=0)
    ticks = COMPARED_TICKS if c.torso == "mlp" else COMPARED_TICKS // 4
    length = (starts + ticks * tick) * config.length_per_step
    return replace(config, learner=learner, evaluate_episodes=0, **{config.length: length})


def memory_bytes(config: Any) -> int:
    """What the memory of one seed takes."""
    if config.algorithm == "pqn":
        return 0
    from xladder.replay.history import num_bytes  # imports JAX

    n, memory = config.world.rows, config.learner.memory
    spec = config.world.spec()
    agents = max(1, len(spec.agents))
    return (
        agents * num_bytes(n, memory // n, spec.shape, spec.dtype, spec.actions)
        + agents * 4 * memory * config.learner.prioritised
    )


def lacking(config: Any) -> dict[str, tuple[str, str]]:
    """Rungs that cannot run these settings: why, and which can."""
    if config.algorithm == "pqn":
        why = "PQN learns from many envs at once, inside the program"
        none = "PQN remembers nothing that actors could send"
        return {rung: (why, "fused") for rung in ("torch", "hybrid", "sequential")} | {"actors": (none, "fused")}
    found: dict[str, tuple[str, str]] = {}
    if config.learner.strata > 1:
        found["actors"] = ("its memories draw from all their envs alike (`--learner.strata 1`)", "parallel")
    torch = "the PyTorch twin computes in float32" if config.learner.precision != "float32" else ""
    if is_own(config.learner.torso):
        torch = own_torsos.why_no_twin(config.learner.torso) or torch
    return found | ({rung: (torch, "sequential") for rung in ("torch", "hybrid")} if torch else {})


def for_mesh(config: Any, devices: int) -> Any:
    """Settings whose envs and batches so many devices can share; a `UsageError` if these cannot be."""
    c, envs = config.learner, config.world.rows
    if config.algorithm == "pqn":
        raise UsageError("PQN shuffles the steps of all envs: lay seeds over devices, not data.")
    if c.prioritised:
        raise UsageError("Priorities are those of one memory: lay seeds over devices, not data, or replay uniformly.")
    for flag, count in (("learner.batch-size", c.batch_size), ("world.num-envs", config.world.num_envs)):
        if count % devices:
            raise uneven(flag, count, devices)
    if c.strata % devices == 0:
        return config
    if c.strata > 1:
        raise uneven("learner.strata", c.strata, devices)
    # As many as can be, up to eight: then the run can go on on more devices, and on fewer.
    shared = math.gcd(c.batch_size, envs)
    strata = max(n for n in range(devices, max(MOST_STRATA, devices) + 1) if n % devices == 0 and shared % n == 0)
    return replace(config, learner=replace(c, strata=strata))


def check_torso(config: Any, shape: tuple[int, ...]) -> None:
    """Raise a `UsageError` if the torso cannot take the world's frames, of this shape; it says which one can."""
    torso, name = config.learner.torso, config.world.name
    if is_own(torso):
        spec, stack = config.world.spec(), config.world.stack
        features = own_torsos.check(torso, spec, stack, name)
        if own_torsos.find_twin(torso) is not None and find_spec("torch") is not None:
            from xladder.families.value import torso_twins_torch

            torso_twins_torch.check_twin(torso, spec, stack, features)
        return
    if takes(torso, shape):
        return
    other = suited(shape)
    way_out = f"use `--learner.torso {other}`" if other else "none of the torsos can"
    shown = " × ".join(map(str, shape)) or "a single number"
    raise UsageError(f"The `{torso}` torso cannot take the frames of `{name}` ({shown}): {way_out}.")


def note(config: Any) -> str:
    """What the user should know before it starts, or nothing."""
    return "; ".join(filter(None, [config.note(), _too_short(config)]))


def _too_short(config: Any) -> str:
    """That nothing will be learned, if so."""
    if config.algorithm == "pqn" or (config.ticks - 1) * config.per_tick >= config.learning_begins:
        return ""
    return (
        f"nothing will be learned: the first update comes after {config.learning_begins:,} agent steps, and the run "
        f"has {config.agent_steps:,} (`--learner.learning-starts` is {config.learner.learning_starts})"
    )


def members(config: Any) -> dict[str, Any]:
    """Every member of the family, with a world's own settings for the rest."""
    return {name: replace(config, learner=replace(config.learner, **changes)) for name, changes in MEMBERS.items()}


class Ticks:
    """What follows from the settings of any value world. A tick is the least play that owes whole updates."""

    world: Any
    learner: LearnerConfig
    pqn: PQNConfig
    algorithm: str
    evaluate_every: int
    evaluate_episodes: int
    family: ClassVar[Family]
    length: ClassVar[str]
    length_per_step: ClassVar[int]

    @property
    def agent_steps(self) -> int:
        """How long to train, in steps of all envs together."""
        return getattr(self, self.length) // self.length_per_step

    @property
    def steps_per_tick(self) -> int:
        """Steps of every env in a tick."""
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
    def units_per_tick(self) -> int:
        """The same in what the length is given in."""
        return self.per_tick * self.length_per_step

    @property
    def ticks(self) -> int:
        """How long to train, in ticks."""
        return self.agent_steps // self.per_tick

    @property
    def tick_description(self) -> str:
        """What a tick is."""
        steps, envs, updates = self.steps_per_tick, self.world.rows, self.updates_per_tick
        play = f"{steps} step{'s' * (steps > 1)} of {envs} env{'s' * (envs > 1)}"
        return f"a tick is {play} and {updates} update{'s' * (updates > 1)}"

    @property
    def interval(self) -> int:
        """Ticks between two evaluations."""
        if not self.evaluate_episodes:
            return 0
        if self.evaluate_every:
            return max(1, self.evaluate_every // self.units_per_tick)
        return max(1, self.ticks // 10)

    @property
    def longest_game(self) -> int:
        """Steps after which an evaluation leaves a game: some worlds have no limit of their own."""
        return 10_000

    @property
    def learning_begins(self) -> int:
        """Agent steps before the first update of a learner with a memory: then a batch can be drawn, too."""
        c = self.learner
        return max(c.learning_starts, c.batch_size, (c.n_step + 1) * self.world.rows)

    @property
    def explore_steps(self) -> int:
        """Agent steps in which ε falls, or its half-life."""
        return self.learner.epsilon_steps or round(self.learner.epsilon_share * self.agent_steps)

    @property
    def num_learners(self) -> int:
        """How many agents learn independently of each other."""
        return max(1, len(self.world.agents))

    @property
    def agent_axis(self) -> bool:
        """Whether parameters have an axis of agents, [seed, agent, …]."""
        return bool(self.world.agents)


def measured(config: Any) -> dict[str, float]:
    """The columns that evaluations fill, empty as between two of them."""
    return {"eval_return": float("nan")}


def label(values: Mapping[str, np.ndarray]) -> str:
    """An evaluation in two words, for the first seed."""
    return f"return {signed(values['eval_return'][0])}"


def columns(config: Any, metrics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the metrics table shows: name → float [seeds, ticks], from the arrays that a tick reports."""
    shown = {name: metrics[name] for name in ("length", "episodes", "loss", "epsilon", "updates")}
    apart = {name: metrics[name] for name in OF_ACTORS if name in metrics}
    if "agent_returns" in metrics:
        by_agent = np.moveaxis(metrics["agent_returns"], -1, 0)
        apart |= {f"return_{agent}": each for agent, each in zip(config.world.agents, by_agent, strict=True)}
    return {"return": metrics["returns"], **shown, **apart}


def summary(config: Any, metrics: Mapping[str, np.ndarray]) -> list[str]:
    """How training went, in words."""
    returns = metrics["return"]
    tenth = max(1, returns.shape[1] // 10)
    parts = returns[:, :tenth], returns[:, -tenth:]
    if not all(np.isfinite(part).any(axis=1).all() for part in parts):
        return [f"{int(np.nansum(metrics['episodes']))} episodes ended while training"]
    first, last = (format_mean(np.nanmean(part, axis=1)) for part in parts)
    return [f"return per episode while exploring: {first} at first, {last} at the end (first and last tenth)"]


def headline(config: Any) -> str:
    """What a comparison runs, beyond the workload's name."""
    return config.tick_description


def describe_score(score: Mapping[str, Any]) -> list[str]:
    """An evaluation in words."""
    over = "seeds" if score["seeds"] > 1 else "episodes"
    mean = _with_interval(score["mean_return"], score["ci95"], f" (95 % over {over})")
    count = f"{score['episodes']} episode{'s' * (score['episodes'] > 1)}" + " of each seed" * (score["seeds"] > 1)
    if left := score.get("unfinished"):
        count += f", of which {left} did not end and {'was' if left == 1 else 'were'} left"
    lines = [
        f"mean return {mean}, median {signed(score['median_return'])}, ε = {score['epsilon']:g}, {count}",
        f"random play {_with_interval(score['random_return'], score['random_ci95'])}",
    ]
    humans = {49: score.get("human49"), 57: score.get("human57")}
    known = [
        f"{signed(human, 2)} by the table of {games} games" for games, human in humans.items() if human is not None
    ]
    if known:
        lines.append(f"human-normalised {', '.join(known)} (0 is random play, 1 a human)")
    return [*lines, *([score["placing"]] if "placing" in score else []), *score.get("caveats", [])]


def _with_interval(mean: float, half_width: float, what: str = "") -> str:
    """`20.4 ± 0.3`; one value alone has no interval."""
    return signed(mean) + (f" ± {half_width:.1f}{what}" if np.isfinite(half_width) else "")
