"""Treasure hunt: the settings, their presets and what is wrong with a bad one. Imports nothing heavy."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from xladder.core.statistics import in_words
from xladder.errors import UsageError, uneven
from xladder.protocols import Family


@dataclass(frozen=True)
class WorldConfig:
    """The board and what happens on it."""

    jittable: ClassVar[bool] = True

    height: int = 10
    """Rows, the wall included."""
    width: int = 10
    """Columns, the wall included."""
    num_agents: int = 5
    """Agents on the board; each has its own network and memory."""
    radius: int = 2
    """How far an agent sees: a window of (2·radius + 1)² cells."""
    max_turns: int = 50
    """Turns in an epoch."""
    spawn_prob: float = 0.02
    """Probability that an empty cell becomes an item at the beginning of a turn."""
    item_names: tuple[str, ...] = ("gem", "bone", "food")
    """The items, each as likely as the others."""
    item_values: tuple[float, ...] = (10.0, -10.0, 5.0)
    """The reward for each item, in the order of their names."""
    wall_value: float = -1.0
    """The reward for walking into the wall."""
    observe: Literal["in_turn", "together"] = "in_turn"
    """in_turn: an agent sees what those before it did this turn. together: all look, then all move in order."""


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
    soft: float = 0.001
    """Share of the online network that the target network takes over after each update."""
    sync_freq: int = 200
    """Epochs between hard copies of the online network into the target network."""
    epsilon: float = 1.0
    """Probability of a random action at the start."""
    epsilon_decay: float = 0.001
    """Share of epsilon that is lost after each epoch."""
    epsilon_min: float = 0.0
    """Epsilon never falls below this."""


@dataclass(frozen=True)
class Config:
    """Several IQN agents hunt treasure on one board."""

    family: ClassVar[Family]
    agent_axis: ClassVar[bool] = True
    name: ClassVar[str] = "treasurehunt"
    world: WorldConfig = field(default_factory=WorldConfig)
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
DEFAULT = Config()
PRESETS = {
    "default": DEFAULT,
    # Smaller batches and less exploration: agents that have visibly learned after a minute on a laptop.
    "demo": replace(DEFAULT, learner=replace(DEFAULT.learner, batch_size=64, epsilon_decay=0.01), epochs=600),
    # The settings of sorrel 1.6.0's own example.
    "sorrel": replace(
        DEFAULT,
        world=replace(DEFAULT.world, height=21, width=21, spawn_prob=0.005, max_turns=100, num_agents=2),
        learner=replace(DEFAULT.learner, epsilon=0.6, epsilon_decay=0.0005, batch_size=64),
    ),
}


def presets(name: str, protocol: str | None = None) -> dict[str, Config]:
    """The named settings."""
    return PRESETS


def compared(config: Config) -> Config:
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
        ("learner.sync-freq", learner.sync_freq),
    ]:
        need(value >= 1, flag, value, "it has to be 1 or more")
    for flag, size in [("world.height", world.height), ("world.width", world.width)]:
        need(size >= 3, flag, size, "a board needs 3 or more: two rows of wall and something between them")
    need(world.radius >= 0, "world.radius", world.radius, "a view cannot be smaller than radius 0")
    free = (world.height - 2) * (world.width - 2)
    need(
        world.num_agents <= free,
        "world.num-agents",
        world.num_agents,
        f"a {world.height} × {world.width} board has only {free} cells inside its wall",
    )
    for flag, fraction in [
        ("world.spawn-prob", world.spawn_prob),
        ("learner.gamma", learner.gamma),
        ("learner.soft", learner.soft),
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
    names, values = world.item_names, world.item_values
    need(1 <= len(names) <= 100, "world.item-names", names, "there have to be 1 to 100 items")
    for name in names:
        free_name = name.isidentifier() and not name.startswith(RESERVED)
        need(free_name, "world.item-names", name, "an item's name is a word, and not one of the metrics' own")
    need(len(set(names)) == len(names), "world.item-names", names, "every item needs its own name")
    need(
        len(names) == len(values),
        "world.item-values",
        values,
        f"there have to be as many as `--world.item-names` ({len(names)})",
    )
    for reward in (*values, world.wall_value):
        need(abs(reward) < float("inf"), "world.item-values", reward, "rewards have to be finite")
    need(world.observe in ("in_turn", "together"), "world.observe", world.observe, "it is in_turn or together")
    samples = learner.memory - learner.n_frames - learner.n_step
    need(
        learner.batch_size <= samples,
        "learner.batch-size",
        learner.batch_size,
        f"a memory of {learner.memory} frames never offers more than {max(samples, 0)} transitions: "
        "make the batch smaller or `--learner.memory` larger",
    )


def laid_over(config: Config, devices: int) -> Config:
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
    first, last = (in_words(part.mean(1)) for part in (returns[:, :tenth], returns[:, -tenth:]))
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
    table |= {name: metrics["collected"][..., k] for k, name in enumerate(config.world.item_names)}
    return table | {f"return_agent_{i}": returns[..., i] for i in range(config.world.num_agents)}
