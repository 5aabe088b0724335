"""Settings that all worlds of this family share, and their checks. Imports nothing heavy.

A world adds its own settings in a file next to this one (`treasurehunt_presets.py`).

Shapes: N agents, T turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from xladder.core.statistics import format_mean, signed
from xladder.errors import need, uneven
from xladder.parity.precision import missing_rungs
from xladder.protocols import Family
from xladder.settings import MOST_STEPS_SUMMED, check_counts

if TYPE_CHECKING:
    from xladder.pictures.curves import Panel
    from xladder.pictures.scenes import Board
    from xladder.worlds.turns import HostTurnWorld, TurnWorld

C = TypeVar("C", bound="Config")

MOST_AGENTS = 100  # the moves of each are compiled by themselves


class Need(Protocol):
    """A requirement: unless it is met, a `UsageError` names the flag, its value and what is allowed."""

    def __call__(self, ok: bool, flag: str, value: object, allowed: str) -> None:
        """Raise unless `ok`."""


class Played(NamedTuple):
    """What the agents saw, expected, did and received in an epoch."""

    views: np.ndarray  # int8 [T, N, V]: codes of cells
    values: np.ndarray  # float32 [T, N, A]: of each action
    actions: np.ndarray  # int [T, N]
    rewards: np.ndarray  # float32 [T, N]


class WorldSettings(Protocol):
    """The settings of a world in which agents take turns: a frozen dataclass whose fields are `--world.…` flags."""

    jittable: ClassVar[bool]

    @property
    def num_agents(self) -> int:
        """Number of agents; each has its own network and replay memory."""

    @property
    def max_turns(self) -> int:
        """Turns in an epoch."""

    @property
    def observe(self) -> Literal["in_turn", "together"]:
        """in_turn: an agent sees earlier agents' moves of this turn. together: all observe, then all move in order."""

    @property
    def event_names(self) -> tuple[str, ...]:
        """Metrics columns for the event counts of the world's `count`, in the same order."""

    def build(self) -> TurnWorld:
        """The world in JAX."""

    def on_host(self) -> HostTurnWorld:
        """The world's NumPy twin."""

    def check(self, need: Need) -> None:
        """Check the world's own settings, using `need` for each requirement."""

    def panels(self) -> tuple[Panel, ...]:
        """The panels of the learning curves."""

    def draw(self, path: Path, states: Any, rewards: np.ndarray, title: str) -> None:
        """Write an epoch as an animation: the world's states, leaves [T, …], and the agents' rewards, [T, N]."""

    def board(self, title: str, start: Any, states: Any, played: Played) -> Board:
        """An epoch as a board that a page can replay: the first state, and those after each turn, leaves [T, …]."""


TRACED = tuple(f"learner.{name}" for name in ("lr", "gamma", "tau", "clip", "epsilon", "epsilon_decay", "epsilon_min"))


@dataclass(frozen=True)
class LearnerConfig:
    """IQN with double Q, dueling heads and noisy layers (Dabney et al. 2018 and "iRainbow")."""

    # Settings of the value learner that are fixed here.
    head: ClassVar[str] = "sorrel"
    double: ClassVar[bool] = True
    munchausen: ClassVar[bool] = False
    optimiser: ClassVar[str] = "adam"
    optimiser_eps: ClassVar[float] = 1e-8
    lr: float = 2.5e-4
    """Adam's learning rate."""
    gamma: float = 0.99
    """Discount per step."""
    n_step: int = 1
    """Rewards summed before bootstrapping; sorrel uses 1."""
    batch_size: int = 256
    """Transitions per update, sampled without replacement."""
    memory: int = 1024
    """Capacity of each agent's replay memory, in frames."""
    n_frames: int = 5
    """Frames stacked into a state."""
    width: int = 250
    """Width of the hidden layers."""
    cosines: int = 64
    """Cosine features that embed a quantile fraction."""
    quantiles: int = 12
    """Quantiles sampled per state when learning."""
    act_quantiles: int = 12
    """Quantiles sampled per state when acting."""
    sigma: float = 0.017
    """Initial scale σ of the noise in noisy layers."""
    kappa: float = 1.0
    """κ: the error at which the Huber loss turns from quadratic to linear."""
    clip: float = 1.0
    """Clip gradients to this global norm."""
    tau: float = 0.001
    """τ of the soft target update after each update."""
    target_update_period: int = 200
    """Epochs between hard updates of the target network."""
    epsilon: float = 1.0
    """ε at the start: the probability of a random action."""
    epsilon_decay: float = 0.001
    """Fraction by which ε shrinks after each epoch."""
    epsilon_min: float = 0.0
    """Lower bound of ε."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the matrix products, and of what is kept of sampled fractions; all else stays float32."""


@dataclass(frozen=True)
class Config:
    """Several IQN agents take turns in one world. Subclasses add `name` and `world`."""

    family: ClassVar[Family]
    agent_axis: ClassVar[bool] = True
    name: ClassVar[str]
    world: WorldSettings
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    epochs: int = 1000
    """Training length in epochs."""

    @property
    def ticks(self) -> int:
        """Training length in ticks; a tick is one epoch."""
        return self.epochs

    @property
    def interval(self) -> int:
        """Ticks between evaluations during training: 0, because there are none."""
        return 0

    @property
    def units_per_tick(self) -> int:
        """Length of a tick in epochs."""
        return 1

    @property
    def env_steps_per_tick(self) -> int:
        """Environment steps of an epoch: its turns."""
        return self.world.max_turns

    @property
    def num_learners(self) -> int:
        """Number of agents that learn independently."""
        return self.world.num_agents


SHOWN = {"return": "return {:.1f}", "loss": "loss {:.3f}", "epsilon": "ε {:.2f}"}  # next to the progress bar
RESERVED = ("return", "loss", "epsilon", "seed", "epoch", "elapsed")  # columns of the metrics table


def compared(config: C) -> C:
    """Shorter settings for a comparison: enough epochs to fill the replay memory and to time about thirty updates."""
    return replace(config, epochs=40)


def check(config: Config) -> None:
    """Raise a `UsageError` that names the field, its value and what is allowed."""
    check_counts(config)
    world, learner = config.world, config.learner

    for flag, value in [
        ("epochs", config.epochs),
        ("world.max-turns", world.max_turns),
        ("world.num-agents", world.num_agents),
        ("learner.batch-size", learner.batch_size),
        ("learner.n-frames", learner.n_frames),
        ("learner.n-step", learner.n_step),
        ("learner.width", learner.width),
        ("learner.cosines", learner.cosines),
        ("learner.quantiles", learner.quantiles),
        ("learner.act-quantiles", learner.act_quantiles),
        ("learner.target-update-period", learner.target_update_period),
    ]:
        need(value >= 1, flag, value, "it has to be 1 or more")
    agents = world.num_agents
    need(agents <= MOST_AGENTS, "world.num-agents", agents, f"it has to be 1 to {MOST_AGENTS}")
    need(
        learner.n_step <= MOST_STEPS_SUMMED,
        "learner.n-step",
        learner.n_step,
        f"it has to be 1 to {MOST_STEPS_SUMMED}",
    )
    for flag, fraction in [
        ("learner.gamma", learner.gamma),
        ("learner.tau", learner.tau),
        ("learner.epsilon", learner.epsilon),
        ("learner.epsilon-decay", learner.epsilon_decay),
        ("learner.epsilon-min", learner.epsilon_min),
    ]:
        need(0.0 <= fraction <= 1.0, flag, fraction, "it has to lie in [0, 1]")
    need(
        learner.epsilon >= learner.epsilon_min,
        "learner.epsilon",
        learner.epsilon,
        f"it cannot start below `--learner.epsilon-min` ({learner.epsilon_min})",
    )
    for flag, positive in [
        ("learner.lr", learner.lr),
        ("learner.kappa", learner.kappa),
        ("learner.clip", learner.clip),
    ]:
        need(0.0 < positive < float("inf"), flag, positive, "it has to be a positive number")
    need(0.0 <= learner.sigma < float("inf"), "learner.sigma", learner.sigma, "it cannot be negative")
    need(world.observe in ("in_turn", "together"), "world.observe", world.observe, "it is in_turn or together")
    samples = learner.memory - learner.n_frames - learner.n_step
    need(
        learner.batch_size <= samples,
        "learner.batch-size",
        learner.batch_size,
        f"a memory of {learner.memory} frames holds at most {max(samples, 0)} transitions: "
        "make the batch smaller or `--learner.memory` larger",
    )
    world.check(need)


def lacking(config: Config) -> dict[str, tuple[str, str]]:
    """Rungs that cannot run these settings: name → (reason, a rung that can)."""
    return missing_rungs(config.learner.precision)


def for_mesh(config: C, devices: int) -> C:
    """Settings whose batches divide over `devices`; a `UsageError` if that is not possible."""
    if config.learner.batch_size % devices:
        raise uneven("learner.batch-size", config.learner.batch_size, devices)
    return config


def note(config: Config) -> str:
    """A note to print before the run starts, or an empty string."""
    return ""


def summary(config: Config, metrics: Mapping[str, np.ndarray]) -> list[str]:
    """Lines that summarise the training run."""
    returns = metrics["return"]
    tenth = max(1, returns.shape[1] // 10)
    first, last = (format_mean(part.mean(1)) for part in (returns[:, :tenth], returns[:, -tenth:]))
    return [f"return per epoch: {first} in the first tenth of the run, {last} in the last"]


def headline(config: Config) -> str:
    """What a comparison runs, in addition to the workload's name."""
    return f"agents observe {config.world.observe}"


def describe_score(score: Mapping[str, Any]) -> list[str]:
    """Lines that describe an evaluation."""
    over = "seeds" if score["seeds"] > 1 else "episodes"
    mean = f"{signed(score['mean_return'])} ± {score['ci95']:.1f} (95 % over {over})"
    return [
        f"mean return {mean}, summed over agents, greedy",
        f"per agent   {'  '.join(map(signed, score['per_agent']))}",
        f"random play {signed(score['random_return'])} ± {score['random_ci95']:.1f}, on the same boards",
    ]


def columns(config: Config, metrics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns of the metrics table: name → float [seeds, ticks], from the arrays that a tick reports."""
    returns = metrics["returns"]
    table = {"return": returns.sum(-1), "loss": metrics["loss"], "epsilon": metrics["epsilon"]}
    table |= {name: metrics["events"][..., k] for k, name in enumerate(config.world.event_names)}
    return table | {f"return_agent_{i}": returns[..., i] for i in range(config.world.num_agents)}
