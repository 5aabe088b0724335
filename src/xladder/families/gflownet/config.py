"""Settings of a GFlowNet in any world, and what a run is called.

`settings_check.py` checks them, and `summaries.py` says how a run went.

Imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from xladder.families.gflownet import conditions, preferences
from xladder.families.gflownet.conditions import Condition
from xladder.protocols import Family
from xladder.worlds.flow_settings import FlowSettings

KNOTS = 16  # of a condition's range, between which the network's input, scale and log Z are interpolated
EVALUATIONS, SAMPLED_EVALUATIONS = 25, 10  # per run, by default

LossName = Literal["tb", "db", "subtb", "fm", "fldb", "flsubtb", "vargrad", "rtb", "mdb"]
BY_TRANSITIONS = ("db", "fldb", "fm", "mdb")  # sums over transitions, so that either weighting makes sense

TRACED = tuple(
    f"learner.{name}"
    for name in ("lr", "log_z_lr", "subtb_lambda", "epsilon", "epsilon_end", "temperature", "temperature_end")
)


@dataclass(frozen=True)
class LearnerConfig:
    """A GFlowNet: its network, optimiser and exploration."""

    batch_size: int = 16
    """Trajectories per iteration."""
    lr: float = 1e-3
    """Adam's learning rate for the network."""
    log_z_lr: float = 0.1
    """Adam's learning rate for log Z, which trajectory balance learns as a separate parameter."""
    weight_decay: float = 0.0
    """Decoupled weight decay of the network (AdamW)."""
    network: Literal["mlp", "transformer"] = "mlp"
    """Hidden layers: dense ones, or transformer blocks over the places of a state."""
    attention_heads: int = 8
    """Attention heads of a transformer."""
    width: int = 256
    """Width of the hidden layers."""
    layers: int = 2
    """Number of hidden layers."""
    trunk: Literal["shared", "separate"] = "shared"
    """Whether the heads (forward policy, backward policy, flow) share their hidden layers."""
    backward: Literal["learned", "uniform"] = "learned"
    """Whether the backward policy is learned or uniform."""
    subtb_lambda: float = 0.9
    """λ of sub-trajectory balance: each further step of a sub-trajectory multiplies its weight by λ."""
    weighting: Literal["trajectories", "transitions"] = "trajectories"
    """For db, fldb, fm, mdb: mean over trajectories of their means, or over all transitions as in torchgfn and gfnx."""
    mdb_delta: float = float("inf")
    """δ of modified detailed balance: larger residuals count linearly, as in Huber's loss."""
    epsilon: float = 0.1
    """ε at the start: the fraction of uniformly random steps."""
    epsilon_end: float = 0.0
    """ε at the end of its decay."""
    temperature: float = 1.0
    """Sampling temperature at the start: logits are divided by it."""
    temperature_end: float = 1.0
    """Sampling temperature at the end of its schedule."""
    explore_until: float = 0.48
    """Fraction of the run after which ε and temperature have reached their end values."""
    replay: Literal["none", "uniform", "prioritised", "diverse"] = "none"
    """Sample part of each batch backward from replayed objects; prioritised: by reward; diverse: no object twice."""
    replay_share: float = 0.5
    """Fraction of the batch that is sampled backward from replayed objects."""
    memory: int = 10_000
    """Capacity of the replay memory, in objects."""
    local_search: int = 0
    """Rounds of local search per iteration: some steps back from an object, and forward again."""
    local_search_steps: int = 0
    """Steps that a round of local search undoes at most; 0 means half of the longest trajectory."""
    local_search_rule: Literal["better", "metropolis"] = "better"
    """Keep an object that is not worse, or one by Metropolis and Hastings' rule."""
    local_search_share: float = 0.5
    """Fraction of the newly sampled trajectories that local search refines."""
    condition: Literal["none", "beta", "preferences"] = "none"
    """beta: one sampler for a range of exponents β: objects in proportion to reward^β, β drawn per trajectory.
    preferences: one for all weights of a world's reward terms, drawn from a Dirichlet distribution with α = 1."""
    condition_low: float = 0.5
    """The smallest condition."""
    condition_high: float = 2.0
    """The largest condition."""
    scalarisation: Literal["sum", "product"] = "sum"
    """How weights w combine rewards: Σ w_k R_k, or Π R_k^w_k."""
    conditioning: Literal["input", "logits", "both"] = "both"
    """What the condition changes: the input of the network, the scale of the forward logits, or both."""


@dataclass(frozen=True)
class GFlowNetConfig:
    """A GFlowNet learns to sample objects in proportion to their reward. Subclasses add `world`."""

    family: ClassVar[Family]
    agent_axis: ClassVar[bool] = False
    world: FlowSettings
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    loss: LossName = "tb"
    """Trajectory, detailed or sub-trajectory balance, flow matching, db or subtb with forward-looking flows, VarGrad,
    relative trajectory balance (a sampler of prior × reward, where the prior takes uniformly random steps), or modified
    detailed balance, for worlds in which every state is an object."""
    iterations: int = 2000
    """Training length in iterations."""
    evaluate_every: int = 0
    """Iterations between evaluations; 0 means a 25th of the run, or a tenth if they need sampling."""
    evaluation: Literal["auto", "exact", "sampled"] = "auto"
    """exact enumerates all states, at most 2²⁰; sampled is noisy; auto is exact where possible."""
    eval_samples: int = 2000
    """Objects per evaluation that uses sampling."""

    @property
    def name(self) -> str:
        """The workload's name."""
        return self.world.workload

    @property
    def ticks(self) -> int:
        """Training length in ticks; a tick is one iteration."""
        return self.iterations

    @property
    def units_per_tick(self) -> int:
        """Length of a tick in iterations."""
        return 1

    @property
    def env_steps_per_tick(self) -> int:
        """The `steps` of a tick in metrics.csv: an iteration is one."""
        return 1

    @property
    def num_learners(self) -> int:
        """Number of agents that learn independently."""
        return 1

    @property
    def interval(self) -> int:
        """Ticks between evaluations."""
        return self.evaluate_every or max(1, self.iterations // (EVALUATIONS if self.exact else SAMPLED_EVALUATIONS))

    @property
    def exact(self) -> bool:
        """Whether evaluations are exact."""
        return self.evaluation == "exact" or (self.evaluation == "auto" and self.world.enumerable)

    @property
    def metric_texts(self) -> Mapping[str, str]:
        """Metrics of the world's own → what each is; with a prior or a condition they would be of another target."""
        return {} if self.loss == "rtb" or self.conditional else self.world.metric_texts

    @property
    def knows_log_z(self) -> bool:
        """Whether log Z of the target is known."""
        known = self.world.enumerable if self.conditional else self.world.knows_log_z
        return known and self.loss != "rtb"

    @property
    def charted(self) -> bool:
        """Whether samples can be compared with the target; some need every state for that."""
        return self.world.charted and self.loss != "rtb" and not self.conditional

    @property
    def remembered(self) -> int:
        """Trajectories of a batch that start from replayed objects."""
        share = self.learner.replay_share if self.learner.replay != "none" else 0.0
        return min(round(share * self.learner.batch_size), self.learner.batch_size - 1)

    @property
    def conditional(self) -> bool:
        """Whether one sampler is trained for a range of conditions."""
        return self.learner.condition != "none"

    @property
    def preferential(self) -> bool:
        """Whether the condition is the weights of several reward terms."""
        return self.learner.condition == "preferences"

    @property
    def lattice(self) -> np.ndarray:
        """float32 [N, P]: the knots between which functions of the condition are interpolated."""
        if self.preferential:
            return preferences.lattice(self.world.num_terms)
        return np.arange(KNOTS, dtype=np.float32)[:, None]

    @property
    def knots(self) -> int:
        """Numbers that describe a condition to the network; 0 if there is none."""
        return len(self.lattice) if self.conditional else 0

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions at which a sampler is evaluated: the ends of the range, and between them its middle."""
        if self.preferential:
            return preferences.judged(self.world.num_terms)
        low, high = self.learner.condition_low, self.learner.condition_high
        return (low, (low + high) / 2, high)

    @property
    def search_steps(self) -> int:
        """Steps that a round of local search undoes at most."""
        return self.learner.local_search_steps or max(1, self.world.steps // 2)

    @property
    def searched(self) -> int:
        """Newly sampled trajectories that local search refines."""
        new = self.learner.batch_size - self.remembered
        return max(1, round(self.learner.local_search_share * new)) if self.learner.local_search else 0

    @property
    def tokens(self) -> tuple[int, int, int] | None:
        """For a transformer: tokens of a state, actions of each (0: all are of the whole state), attention heads."""
        if self.learner.network == "mlp":
            return None
        world = self.world.build()
        return world.num_tokens, world.actions_per_token, self.learner.attention_heads

    @property
    def learns_flow(self) -> bool:
        """Whether the loss needs state flows."""
        return self.loss in ("db", "subtb", "fm", "fldb", "flsubtb")

    @property
    def learns_log_z(self) -> bool:
        """Whether log Z is a parameter."""
        return self.loss in ("tb", "rtb")

    @property
    def learns_backward(self) -> bool:
        """Whether the backward policy is learned."""
        return self.learner.backward == "learned" and self.loss not in ("fm", "rtb")


SHOWN = {"tv": "TV {:.4f}", "tv_marginal": "TV {:.4f}", "loss": "loss {:.3f}", "log_z": "log Z {:.3f}"}
OBJECTIVES = {"tv": -1, "tv_marginal": -1, "correlation": 1}  # what a good sampler has: 1 if larger is better
DISTANCES = ("tv", "l1", "kl", "jsd", "logz_error")
EXACTLY = (*DISTANCES, "elbo", "eubo", "correlation", "mean_return", "modes", "mode_cells")  # columns of evaluations
BY_SAMPLING = ("tv_marginal", "tv_floor", "logz_error", "elbo", "eubo", "mean_return", "modes")
LAST_MEASURED = ("tv", "logz_error")  # columns whose last entry `compare` reports
EPISODES = 10_000  # objects per evaluation that uses sampling


def compared(config: GFlowNetConfig) -> GFlowNetConfig:
    """Shorter settings for a comparison, with one evaluation at the end."""
    return replace(config, iterations=500, evaluate_every=500)


def lengthened(config: GFlowNetConfig, length: int) -> tuple[GFlowNetConfig, list[str]]:
    """A longer run: exploration ends where it did, and evaluations come as often as before."""
    until = config.learner.explore_until * config.iterations
    learner = replace(config.learner, explore_until=until / length)
    longer = replace(config, iterations=length, learner=learner, evaluate_every=config.interval)
    moved = learner.epsilon != learner.epsilon_end or learner.temperature != learner.temperature_end
    return longer, [f"Exploration still ends at iteration {until:,.0f}."] if moved else []


def measured(config: GFlowNetConfig) -> dict[str, float]:
    """The columns that evaluations fill, with nan as on ticks without one."""
    by_sampling: tuple[str, ...] = BY_SAMPLING
    if not config.charted:
        by_sampling = ("correlation", "elbo", "mean_return", *["logz_error"] * config.knows_log_z)
    own = config.metric_texts
    at_each = []
    if config.conditional:
        at_each = [f"{name}_{conditions.label(at)}" for name in at_each_condition(config) for at in config.conditions]
    return dict.fromkeys([*(EXACTLY if config.exact else by_sampling), *own, *at_each], float("nan"))


def at_each_condition(config: GFlowNetConfig) -> tuple[str, ...]:
    """The columns that a conditional sampler has for every condition: how far it is from the target, and its modes."""
    return ("tv", "modes") if config.exact else ("correlation",)


def note(config: GFlowNetConfig) -> str:
    """A note to print before the run starts, or an empty string."""
    return " ".join(filter(None, [_how_evaluated(config), *config.world.warnings()]))


def _how_evaluated(config: GFlowNetConfig) -> str:
    if config.exact:
        return ""
    world = config.world
    why = f"{world.size_in_words()} are {'not' if world.enumerable else 'too many to be'} enumerated"
    if config.charted:
        return f"{why}: distances are estimated from samples, and shown next to what a perfect sampler would show."
    return f"{why}: evaluation reports the correlation of log-probability and log-reward over sampled objects."


def headline(config: GFlowNetConfig) -> str:
    """What a comparison runs, in addition to the workload's name."""
    return f"{title(config)}, batch {config.learner.batch_size}"


def title(config: GFlowNetConfig) -> str:
    """World, reward and loss, for titles."""
    return f"{config.world.headline()}, loss {config.loss}"


def columns(config: GFlowNetConfig, metrics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The columns of the metrics table: name → float [seeds, ticks], from the arrays that a tick reports."""
    found = {"modes_found": metrics["modes_found"]} if config.world.modes_counted else {}
    return {
        "return": metrics["reward"],
        "loss": metrics["loss"],
        "log_z": metrics["log_z"],
        "length": metrics["length"],
        "epsilon": metrics["epsilon"],
        "temperature": metrics["temperature"],
        **found,
    }
