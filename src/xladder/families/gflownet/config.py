"""Hypergrid: the settings, their presets and what is wrong with a bad one. Imports nothing heavy."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from xladder.errors import UsageError, uneven
from xladder.protocols import Family

# Published rewards: R0 everywhere, R1 more where all coordinates are outer, R2 more where all lie in the band.
REWARDS = {"easy": (1e-3, 0.5, 2.0), "hard": (1e-4, 1.0, 3.0), "torchgfn": (0.1, 0.5, 2.0)}
MOST_STATES = 2**20  # that are enumerated, for exact answers
MOST_STEPS = 2**15  # of a trajectory: each has a row in the program
MOST_WIDTH = 2**16  # of a hidden layer
EVALUATIONS, SAMPLED_EVALUATIONS = 25, 10  # of a run, if nothing else is said

LossName = Literal["tb", "db", "subtb", "fm", "fldb", "vargrad"]


@dataclass(frozen=True)
class WorldConfig:
    """The grid and its reward."""

    jittable: ClassVar[bool] = True

    dim: int = 2
    """Coordinates, D."""
    side: int = 8
    """Values of each coordinate, H."""
    reward: Literal["easy", "hard", "torchgfn", "corners", "custom"] = "easy"
    """Plateaus with peaks in the corners (easy, hard, torchgfn, custom: r0, r1, r2), or smooth hills (corners)."""
    r0: float = 1e-3
    """For a custom reward: what every cell gives."""
    r1: float = 0.5
    """For a custom reward: what a cell on a plateau gives more."""
    r2: float = 2.0
    """For a custom reward: what a cell on a peak gives more."""

    @property
    def states(self) -> int:
        """How many cells there are."""
        return self.side**self.dim

    @property
    def steps(self) -> int:
        """Steps of the longest trajectory, the last of which is stop."""
        return self.dim * (self.side - 1) + 1

    @property
    def levels(self) -> tuple[float, float, float]:
        """R0, R1 and R2."""
        return REWARDS.get(self.reward, (self.r0, self.r1, self.r2))

    @property
    def enumerable(self) -> bool:
        """Whether there are few enough cells for exact answers."""
        return self.states <= MOST_STATES


@dataclass(frozen=True)
class LearnerConfig:
    """A GFlowNet: the policy's network, its optimiser and how it explores."""

    batch_size: int = 16
    """Trajectories per iteration."""
    lr: float = 1e-3
    """Adam's step size for the network."""
    log_z_lr: float = 0.1
    """Adam's step size for log Z, which trajectory balance learns as a number of its own."""
    width: int = 256
    """Width of the hidden layers."""
    layers: int = 2
    """Hidden layers."""
    trunk: Literal["shared", "separate"] = "shared"
    """Whether the heads (forward policy, backward policy, flow) share their hidden layers."""
    backward: Literal["learned", "uniform"] = "learned"
    """The backward policy."""
    subtb_lambda: float = 0.9
    """Sub-trajectory balance: how much less a part counts that is one step longer, λ in (0, 1]."""
    epsilon: float = 0.1
    """Share of random steps at the start."""
    epsilon_end: float = 0.0
    """Share of random steps in the end."""
    temperature: float = 1.0
    """Sampling flattens the policy's logits by this at the start."""
    temperature_end: float = 1.0
    """The same in the end."""
    explore_until: float = 0.48
    """The share of the run after which epsilon and temperature have come to their ends."""
    replay: Literal["none", "uniform", "prioritised"] = "none"
    """Whether a part of each batch starts from remembered objects and walks backwards; prioritised: by reward."""
    replay_share: float = 0.5
    """Which part of the batch that is."""
    memory: int = 10_000
    """Objects that are remembered."""


@dataclass(frozen=True)
class Config:
    """A GFlowNet learns to sample the cells of a grid in proportion to their reward."""

    family: ClassVar[Family]
    agent_axis: ClassVar[bool] = False
    name: ClassVar[str] = "hypergrid"
    world: WorldConfig = field(default_factory=WorldConfig)
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    loss: LossName = "tb"
    """Trajectory, detailed or sub-trajectory balance, flow matching, forward-looking balance, or VarGrad."""
    iterations: int = 2000
    """How long to train."""
    evaluate_every: int = 0
    """Iterations between two measurements of the sampler; 0: a 25th of the run, a tenth if it has to be sampled."""
    evaluation: Literal["auto", "exact", "sampled"] = "auto"
    """exact needs at most 2²⁰ cells; sampled is noisy; auto is exact where that is possible."""
    eval_samples: int = 2000
    """Objects drawn when the distribution is measured by sampling."""

    @property
    def ticks(self) -> int:
        """What one tick of this workload counts: iterations."""
        return self.iterations

    @property
    def units_per_tick(self) -> int:
        """How much of its length a tick is."""
        return 1

    @property
    def num_learners(self) -> int:
        """How many agents learn apart from each other."""
        return 1

    @property
    def interval(self) -> int:
        """Ticks between two measurements."""
        return self.evaluate_every or max(1, self.iterations // (EVALUATIONS if self.exact else SAMPLED_EVALUATIONS))

    @property
    def exact(self) -> bool:
        """Whether measurements are exact."""
        return self.evaluation == "exact" or (self.evaluation == "auto" and self.world.enumerable)

    @property
    def remembered(self) -> int:
        """Trajectories of a batch that start from the memory."""
        share = self.learner.replay_share if self.learner.replay != "none" else 0.0
        return min(round(share * self.learner.batch_size), self.learner.batch_size - 1)

    @property
    def learns_flow(self) -> bool:
        """Whether the loss needs the flow of a state."""
        return self.loss in ("db", "subtb", "fm", "fldb")

    @property
    def learns_backward(self) -> bool:
        """Whether the backward policy is learned."""
        return self.learner.backward == "learned" and self.loss != "fm"


SHOWN = {"tv": "TV {:.4f}", "tv_marginal": "TV {:.4f}", "loss": "loss {:.3f}", "log_z": "log Z {:.3f}"}
LAST_MEASURED = ("tv", "logz_error")  # columns that `compare` reports the last entry of
EPISODES = 10_000  # objects of an evaluation that has to sample
DEFAULT = Config()
PUBLISHED = replace(DEFAULT, world=WorldConfig(dim=4, side=20), iterations=62_500)
PRESETS = {
    "default": DEFAULT,
    # The settings that papers on trajectory balance report, 20⁴ cells and a million trajectories.
    "published": PUBLISHED,
    # The same on a grid that can be looked at whole.
    "demo": replace(DEFAULT, world=WorldConfig(dim=2, side=16), iterations=5000),
}


def presets(name: str, protocol: str | None = None) -> dict[str, Config]:
    """The named settings."""
    return PRESETS


def compared(config: Config) -> Config:
    """As long as a comparison needs, measured at the end."""
    return replace(config, iterations=500, evaluate_every=500)


def check(config: Config) -> None:
    """Raise a `UsageError` that names the field, its value and what is allowed."""
    world, learner = config.world, config.learner

    def need(ok: bool, flag: str, value: object, allowed: str) -> None:
        if not ok:
            raise UsageError(f"`--{flag}` is {value}, but {allowed}.")

    need(world.dim >= 1, "world.dim", world.dim, "a grid has 1 or more coordinates")
    need(world.side >= 2, "world.side", world.side, "a coordinate needs 2 or more values")
    need(
        world.steps <= MOST_STEPS,
        "world.side",
        world.side,
        f"with {world.dim} coordinates a trajectory would have {world.steps} steps, and {MOST_STEPS} are possible: "
        "make the grid smaller",
    )
    need(world.dim <= 1000, "world.dim", world.dim, "1000 coordinates are possible")
    known = (*REWARDS, "corners", "custom")
    need(world.reward in known, "world.reward", world.reward, f"it has to be one of {', '.join(known)}")
    need(
        0.0 < world.r0 < float("inf"),
        "world.r0",
        world.r0,
        "it has to be positive: the logarithm of every reward is taken",
    )
    for flag, more in [("world.r1", world.r1), ("world.r2", world.r2)]:
        need(0.0 <= more < float("inf"), flag, more, "it has to be a number, and cannot be negative")
    losses = ("tb", "db", "subtb", "fm", "fldb", "vargrad")
    need(config.loss in losses, "loss", config.loss, f"it has to be one of {', '.join(losses)}")
    for flag, count in [
        ("iterations", config.iterations),
        ("eval-samples", config.eval_samples),
        ("learner.batch-size", learner.batch_size),
        ("learner.width", learner.width),
        ("learner.layers", learner.layers),
        ("learner.memory", learner.memory),
    ]:
        need(count >= 1, flag, count, "it has to be 1 or more")
    need(learner.width <= MOST_WIDTH, "learner.width", learner.width, f"{MOST_WIDTH} is the widest possible")
    for flag, count, size in [
        ("learner.batch-size", learner.batch_size, world.steps * world.dim),
        ("learner.memory", learner.memory, world.dim),
    ]:
        need(count * size < 2**31, flag, count, f"with {size} numbers each, {2**31 // size} are possible on this grid")
    need(
        learner.replay == "none" or config.remembered > 0,
        "learner.replay-share",
        learner.replay_share,
        f"of a batch of {learner.batch_size} that leaves no room for remembered objects: "
        "make it or `--learner.batch-size` larger, or add `--learner.replay none`",
    )
    need(config.evaluate_every >= 0, "evaluate-every", config.evaluate_every, "it cannot be negative")
    need(
        config.loss != "vargrad" or learner.batch_size >= 2,
        "learner.batch-size",
        learner.batch_size,
        "VarGrad is a variance over the batch: it needs 2 or more",
    )
    for flag, positive in [
        ("learner.lr", learner.lr),
        ("learner.log-z-lr", learner.log_z_lr),
        ("learner.temperature", learner.temperature),
        ("learner.temperature-end", learner.temperature_end),
    ]:
        need(0.0 < positive < float("inf"), flag, positive, "it has to be a positive number")
    need(0.0 < learner.subtb_lambda <= 1.0, "learner.subtb-lambda", learner.subtb_lambda, "λ has to lie in (0, 1]")
    for flag, fraction in [
        ("learner.epsilon", learner.epsilon),
        ("learner.epsilon-end", learner.epsilon_end),
        ("learner.explore-until", learner.explore_until),
    ]:
        need(0.0 <= fraction <= 1.0, flag, fraction, "it has to lie in [0, 1]")
    share = learner.replay_share
    need(0.0 <= share < 1.0, "learner.replay-share", share, "it has to lie in [0, 1): new objects keep coming")
    if config.evaluation == "exact" and not world.enumerable:
        raise UsageError(
            f"`--evaluation exact` needs every cell, and {world.side}^{world.dim} are more than {MOST_STATES:,}. "
            "Use `--evaluation sampled`, which reports its noise floor beside every distance."
        )


def laid_over(config: Config, devices: int) -> Config:
    """Settings whose trajectories so many devices can share; a `UsageError` if these cannot be."""
    if config.loss == "vargrad":
        raise UsageError("`--loss vargrad` compares all trajectories of a batch: lay seeds over devices, not data.")
    new = config.learner.batch_size - config.remembered
    if new % devices or config.remembered % devices:
        if config.remembered:
            raise UsageError(
                f"A batch has {new} new and {config.remembered} remembered objects, and {devices} devices cannot share "
                f"both evenly: use `--learner.replay-share 0.5` and a `--learner.batch-size` of {2 * devices} or more."
            )
        raise uneven("learner.batch-size", config.learner.batch_size, devices)
    return config


def measured(config: Config) -> dict[str, float]:
    """The columns that measurements fill, empty as between two of them."""
    exactly = ("tv", "l1", "kl", "jsd", "logz_error", "modes", "elbo", "eubo", "correlation", "mean_return")
    by_sampling = ("tv_marginal", "tv_floor", "logz_error", "elbo", "eubo", "mean_return")
    return dict.fromkeys(exactly if config.exact else by_sampling, float("nan"))


def label(values: Mapping[str, np.ndarray]) -> str:
    """A measurement in two words, for the first seed."""
    if "tv" in values:
        return f"TV {values['tv'][0]:.3f}"
    return f"TV {values['tv_marginal'][0]:.3f} (noise floor {values['tv_floor'][0]:.3f})"


def note(config: Config) -> str:
    """What the user should know before it starts, or nothing."""
    if config.exact:
        return ""
    cells = f"{config.world.side}^{config.world.dim}"
    return (
        f"{cells} cells are {'more than are' if not config.world.enumerable else 'not'} enumerated: distances are "
        "estimated from samples, and shown beside what a perfect sampler would show."
    )


def summary(config: Config, metrics: Mapping[str, np.ndarray]) -> list[str]:
    """How training went, in words."""
    name, how = ("tv", "total variation") if config.exact else ("tv_marginal", "total variation of coordinates 1 and 2")
    values = metrics[name].mean(0)
    known = values[np.isfinite(values)]
    if not len(known):
        return []
    return [f"{how}: {known[0]:.3f} when first measured, {known[-1]:.4f} at the end"]


def headline(config: Config) -> str:
    """What a comparison runs, beyond the workload's name."""
    w = config.world
    return f"{w.side}^{w.dim} cells, reward {w.reward}, loss {config.loss}, batch {config.learner.batch_size}"


def describe_score(score: Mapping[str, Any]) -> list[str]:
    """An evaluation in words."""

    def said(name: str, digits: int = 4) -> str:
        interval = score[f"{name}_ci95"]
        return f"{score[name]:.{digits}f}" + (f" ± {interval:.{digits}f}" if interval == interval else "")

    several = f", mean of {score['seeds']} seeds ± 95 %" if score["seeds"] > 1 else ""
    if score["exact"]:
        first = [
            f"total variation {said('tv')} (exact{several})",
            f"L1 {said('l1')}  KL {said('kl')}  JSD {said('jsd')}  correlation(log p, log R) {said('correlation')}",
        ]
        if score["num_modes"]:
            first.append(f"modes {said('modes', 1)} of {score['num_modes']} have half of their probability or more")
    else:
        first = [
            f"total variation of coordinates 1 and 2: {said('tv_marginal')} from {score['episodes']:,} samples"
            f"{several}; a perfect sampler would show {said('tv_floor')}",
        ]
        if not score["enumerable"]:
            first.append("There are too many cells to say it exactly.")
    return [
        *first,
        f"log Z {score['log_z']:.4f}: error {said('logz_error')}, between ELBO {said('elbo')} and EUBO {said('eubo')}",
        f"mean reward {score['mean_return']:.3f}, of random steps {score['random_return']:.3f}",
    ]


def columns(config: Config, metrics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the metrics table shows: name → float [seeds, ticks], from the arrays that a tick reports."""
    return {
        "return": metrics["reward"],
        "loss": metrics["loss"],
        "log_z": metrics["log_z"],
        "length": metrics["length"],
        "epsilon": metrics["epsilon"],
        "temperature": metrics["temperature"],
    }
