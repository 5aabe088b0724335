"""The settings of a GFlowNet in any world, what is wrong with bad ones, and how a run is described.

Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import numpy as np

from xladder.errors import UsageError, uneven
from xladder.protocols import Family
from xladder.worlds.flow_settings import MOST_STATES, FlowSettings

MOST_WIDTH = 2**16  # of a hidden layer
EVALUATIONS, SAMPLED_EVALUATIONS = 25, 10  # of a run, if nothing else is said

LossName = Literal["tb", "db", "subtb", "fm", "fldb", "vargrad"]


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
    """Whether a part of each batch starts from remembered objects and is sampled backward; prioritised: by reward."""
    replay_share: float = 0.5
    """Which part of the batch that is."""
    memory: int = 10_000
    """Objects that are remembered."""


@dataclass(frozen=True)
class GFlowNetConfig:
    """A GFlowNet learns to sample objects in proportion to their reward; worlds have settings of their own."""

    family: ClassVar[Family]
    agent_axis: ClassVar[bool] = False
    world: FlowSettings
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    loss: LossName = "tb"
    """Trajectory, detailed or sub-trajectory balance, flow matching, forward-looking balance, or VarGrad."""
    iterations: int = 2000
    """How long to train."""
    evaluate_every: int = 0
    """Iterations between two measurements of the sampler; 0: a 25th of the run, a tenth if it has to be sampled."""
    evaluation: Literal["auto", "exact", "sampled"] = "auto"
    """exact needs all states, at most 2²⁰; sampled is noisy; auto is exact where that is possible."""
    eval_samples: int = 2000
    """Objects drawn when the distribution is measured by sampling."""

    @property
    def name(self) -> str:
        """The workload's name."""
        raise NotImplementedError

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


def compared(config: GFlowNetConfig) -> GFlowNetConfig:
    """As long as a comparison needs, measured at the end."""
    return replace(config, iterations=500, evaluate_every=500)


def check(config: GFlowNetConfig) -> None:
    """Raise a `UsageError` that names the field, its value and what is allowed."""
    world, learner = config.world, config.learner
    world.check()

    def need(ok: bool, flag: str, value: object, allowed: str) -> None:
        if not ok:
            raise UsageError(f"`--{flag}` is {value}, but {allowed}.")

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
        ("learner.batch-size", learner.batch_size, world.steps * world.state_size),
        ("learner.memory", learner.memory, world.state_size),
    ]:
        need(count * size < 2**31, flag, count, f"with {size} numbers each, {2**31 // size} are possible in this world")
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
            f"`--evaluation exact` needs every state, and there are {world.size_in_words()}: {MOST_STATES:,} are "
            "possible. Use `--evaluation sampled`."
        )


def for_mesh(config: GFlowNetConfig, devices: int) -> GFlowNetConfig:
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


def measured(config: GFlowNetConfig) -> dict[str, float]:
    """The columns that measurements fill, empty as between two of them."""
    exactly = ("tv", "l1", "kl", "jsd", "logz_error", "modes", "elbo", "eubo", "correlation", "mean_return")
    by_sampling: tuple[str, ...] = ("tv_marginal", "tv_floor", "logz_error", "elbo", "eubo", "mean_return")
    if not config.world.charted:
        by_sampling = ("correlation", "elbo", "mean_return")
    return dict.fromkeys(exactly if config.exact else by_sampling, float("nan"))


def label(values: Mapping[str, np.ndarray]) -> str:
    """A measurement in two words, for the first seed."""
    if "tv" in values:
        return f"TV {values['tv'][0]:.3f}"
    if "tv_marginal" not in values:
        return f"correlation {values['correlation'][0]:.3f}"
    return f"TV {values['tv_marginal'][0]:.3f} (noise floor {values['tv_floor'][0]:.3f})"


def note(config: GFlowNetConfig) -> str:
    """What the user should know before it starts, or nothing."""
    if config.exact:
        return ""
    world = config.world
    why = f"{world.size_in_words()} are {'not' if world.enumerable else 'more than are'} enumerated"
    if world.charted:
        return f"{why}: distances are estimated from samples, and shown beside what a perfect sampler would show."
    return f"{why}: of sampled objects it is shown how well probability and reward go together."


def summary(config: GFlowNetConfig, metrics: Mapping[str, np.ndarray]) -> list[str]:
    """How training went, in words."""
    name, how = ("tv", "total variation") if config.exact else ("tv_marginal", "total variation of coordinates 1 and 2")
    if not config.exact and not config.world.charted:
        name, how = "correlation", "correlation of log-probability and log-reward"
    values = metrics[name].mean(0)
    known = values[np.isfinite(values)]
    if not len(known):
        return []
    return [f"{how}: {known[0]:.3f} when first measured, {known[-1]:.4f} at the end"]


def headline(config: GFlowNetConfig) -> str:
    """What a comparison runs, beyond the workload's name."""
    return f"{config.world.headline()}, loss {config.loss}, batch {config.learner.batch_size}"


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
    elif "tv_marginal" in score:
        first = [
            f"total variation of coordinates 1 and 2: {said('tv_marginal')} from {score['episodes']:,} samples"
            f"{several}; a perfect sampler would show {said('tv_floor')}",
        ]
        if not score["enumerable"]:
            first.append("There are too many states to say it exactly.")
    else:
        return [
            f"correlation(log p, log R) {said('correlation')}, estimated from {score['episodes']:,} samples{several}",
            f"log Z is at least about {said('elbo')}; what it is, is not known",
            f"mean reward {score['mean_return']:.3f}, of random steps {score['random_return']:.3f}",
        ]
    return [
        *first,
        f"log Z {score['log_z']:.4f}: error {said('logz_error')}, between ELBO {said('elbo')} and EUBO {said('eubo')}",
        f"mean reward {score['mean_return']:.3f}, of random steps {score['random_return']:.3f}",
    ]


def columns(config: GFlowNetConfig, metrics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the metrics table shows: name → float [seeds, ticks], from the arrays that a tick reports."""
    return {
        "return": metrics["reward"],
        "loss": metrics["loss"],
        "log_z": metrics["log_z"],
        "length": metrics["length"],
        "epsilon": metrics["epsilon"],
        "temperature": metrics["temperature"],
    }
