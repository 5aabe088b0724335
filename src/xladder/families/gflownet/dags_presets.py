"""Posteriors over directed acyclic graphs as a workload: settings and presets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from xladder.families.gflownet.config import GFlowNetConfig, LearnerConfig, LossName
from xladder.worlds.dags_settings import WorldConfig


@dataclass(frozen=True)
class Config(GFlowNetConfig):
    """A GFlowNet learns the posterior over the structure of a Bayesian network, adding one edge at a time."""

    world: WorldConfig = field(default_factory=WorldConfig)
    loss: LossName = "mdb"


LEARNER = LearnerConfig(
    batch_size=32, backward="uniform", mdb_delta=1.0, epsilon=1.0, epsilon_end=0.1, explore_until=0.5
)
DEFAULT = Config(learner=LEARNER, iterations=5000)
PRESETS = {
    "default": DEFAULT,
    # Deleu et al. 2022, five nodes: graphs with one edge per node, 100 samples, weights from N(0, 1), noise of variance
    # 0.1, BGe, a uniform prior; modified detailed balance, averaged over transitions, with a uniform backward policy
    # and Huber's loss with δ = 1. Batches, exploration and Adam's 1e-4 are those of gfnx's benchmark (mdb_dag): 128
    # trajectories per iteration, ε from 1 to 0.1 in the first half of 100,000. Theirs is a graph network with attention
    # and a target network; ours is an MLP without one.
    "published": replace(
        DEFAULT,
        learner=replace(LEARNER, batch_size=128, lr=1e-4, weighting="transitions"),
        iterations=100_000,
    ),
    # Categories instead of numbers.
    "discrete": replace(DEFAULT, world=WorldConfig(score="bde", samples=500)),
}
ABOUT = {
    "default": "five nodes, 100 samples, Gaussian noise (BGe), modified balance",
    "published": "five nodes at the sizes of DAG-GFlowNet (Deleu et al. 2022)",
    "discrete": "five nodes, 500 samples of discrete data (BDe)",
}
"""What each preset is."""
