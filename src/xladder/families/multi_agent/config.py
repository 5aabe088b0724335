"""The settings that all worlds of this family share, and what is wrong with bad ones. Imports nothing heavy.

A world adds its own in a file beside this one (`treasurehunt_presets.py`).

Shapes: N agents, T turns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np

from xladder.core.statistics import format_mean
from xladder.errors import UsageError, uneven
from xladder.protocols import Family

if TYPE_CHECKING:
    from xladder.pictures.curves import Panel
    from xladder.worlds.turns import HostTurnWorld, TurnWorld

C = TypeVar("C", bound="Config")


class Need(Protocol):
    """How a check makes a demand: unless it is met, a `UsageError` names the flag, its value and what is allowed."""

    def __call__(self, ok: bool, flag: str, value: object, allowed: str) -> None:
        """Raise unless `ok`."""


class WorldSettings(Protocol):
    """The settings of a world in which agents take turns: a frozen dataclass whose fields are `--world.…` flags."""

    jittable: ClassVar[bool]

    @property
    def num_agents(self) -> int:
        """How many agents there are; each has its own network and memory."""

    @property
    def max_turns(self) -> int:
        """Turns in an epoch."""

    @property
    def observe(self) -> Literal["in_turn", "together"]:
        """in_turn: an agent sees what those before it did this turn. together: all look, then all move in order."""

    @property
    def event_names(self) -> tuple[str, ...]:
        """The columns of the metrics that the world's `count` fills, in its order."""

    def build(self) -> TurnWorld:
        """The world in JAX."""

    def on_host(self) -> HostTurnWorld:
        """Its twin in NumPy."""

    def check(self, need: Need) -> None:
        """Demand what the world needs, beyond what all need."""

    def panels(self) -> tuple[Panel, ...]:
        """What the curves show."""

    def draw(self, path: Path, states: Any, rewards: np.ndarray, title: str) -> None:
        """Write an epoch as an animation: the world's states, leaves [T, …], and the agents' rewards, [T, N]."""


@dataclass(frozen=True)
class LearnerConfig:
    """IQN with double Q, dueling heads and noisy layers (Dabney et al. 2018 and "iRainbow")."""

    # What of the value learner is fixed here.
    head: ClassVar[str] = "implicit"
    double: ClassVar[bool] = True
    munchausen: ClassVar[bool] = False
    optimiser: ClassVar[str] = "adam"
    optimiser_eps: ClassVar[float] = 1e-8
    lr: float = 2.5e-4
    """Adam's step size."""
    gamma: float = 0.99
    """Discount per step."""
    n_step: int = 1
    """Rewards summed before bootstrapping; 1 is what sorrel does."""
    batch_size: int = 256
    """Transitions per update, drawn without replacement."""
    memory: int = 1024
    """Frames that each agent remembers."""
    n_frames: int = 5
    """Frames stacked into a state."""
    width: int = 250
    """Width of the hidden layers."""
    cosines: int = 64
    """Cosines that embed a quantile."""
    quantiles: int = 12
    """Quantiles per state when learning."""
    act_quantiles: int = 12
    """Quantiles per state when acting."""
    sigma: float = 0.017
    """Initial scale of the noise on the weights."""
    kappa: float = 1.0
    """Where the Huber loss turns from square to linear."""
    clip: float = 1.0
    """Largest norm of a gradient."""
    tau: float = 0.001
    """Share of the online network that the target network takes over after each update."""
    target_update_period: int = 200
    """Epochs between hard copies of the online network into the target network."""
    epsilon: float = 1.0
    """Probability of a random action at the start."""
    epsilon_decay: float = 0.001
    """Share of epsilon that is lost after each epoch."""
    epsilon_min: float = 0.0
    """Epsilon never falls below this."""


@dataclass(frozen=True)
class Config:
    """Several IQN agents take turns in one world. A world's own settings say which: they add `name` and `world`."""

    family: ClassVar[Family]
    agent_axis: ClassVar[bool] = True
    name: ClassVar[str]
    world: WorldSettings
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    epochs: int = 1000
    """How long to train."""

    @property
    def ticks(self) -> int:
        """What one tick of this workload counts: epochs."""
        return self.epochs

    @property
    def interval(self) -> int:
        """Ticks between two measurements while it trains: none are made."""
        return 0

    @property
    def units_per_tick(self) -> int:
        """How much of its length a tick is."""
        return 1

    @property
    def num_learners(self) -> int:
        """How many agents learn apart from each other."""
        return self.world.num_agents


SHOWN = {"return": "return {:.1f}", "loss": "loss {:.3f}", "epsilon": "ε {:.2f}"}  # beside the progress bar
RESERVED = ("return", "loss", "epsilon", "seed", "epoch", "elapsed")  # columns of the metrics table


def compared(config: C) -> C:
    """As long as a comparison needs to fill the memory and to time some thirty epochs of learning."""
    return replace(config, epochs=40)


def check(config: Config) -> None:
    """Raise a `UsageError` that names the field, its value and what is allowed."""
    world, learner = config.world, config.learner

    def need(ok: bool, flag: str, value: object, allowed: str) -> None:
        if not ok:
            raise UsageError(f"`--{flag}` is {value}, but {allowed}.")

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
        f"a memory of {learner.memory} frames never offers more than {max(samples, 0)} transitions: "
        "make the batch smaller or `--learner.memory` larger",
    )
    world.check(need)


def for_mesh(config: C, devices: int) -> C:
    """Settings whose batches so many devices can share; a `UsageError` if these cannot be."""
    if config.learner.batch_size % devices:
        raise uneven("learner.batch-size", config.learner.batch_size, devices)
    return config


def note(config: Config) -> str:
    """What the user should know before it starts, or nothing."""
    return ""


def summary(config: Config, metrics: Mapping[str, np.ndarray]) -> list[str]:
    """How training went, in words."""
    returns = metrics["return"]
    tenth = max(1, returns.shape[1] // 10)
    first, last = (format_mean(part.mean(1)) for part in (returns[:, :tenth], returns[:, -tenth:]))
    return [f"return per epoch: {first} at first, {last} at the end (means of the first and last tenth)"]


def headline(config: Config) -> str:
    """What a comparison runs, beyond the workload's name."""
    return f"agents observe {config.world.observe}"


def describe_score(score: Mapping[str, Any]) -> list[str]:
    """An evaluation in words."""
    over = "seeds" if score["seeds"] > 1 else "episodes"
    return [
        f"mean return {score['mean_return']:.1f} ± {score['ci95']:.1f} (95 % over {over}), all agents, not exploring",
        f"per agent   {'  '.join(f'{x:.1f}' for x in score['per_agent'])}",
        f"random play {score['random_return']:.1f} ± {score['random_ci95']:.1f}, on the same boards",
    ]


def columns(config: Config, metrics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the metrics table shows: name → float [seeds, ticks], from the arrays that a tick reports."""
    returns = metrics["returns"]
    table = {"return": returns.sum(-1), "loss": metrics["loss"], "epsilon": metrics["epsilon"]}
    table |= {name: metrics["events"][..., k] for k, name in enumerate(config.world.event_names)}
    return table | {f"return_agent_{i}": returns[..., i] for i in range(config.world.num_agents)}
