"""The hypergrid as a workload: its settings and presets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from xladder.families.gflownet.config import GFlowNetConfig, LearnerConfig
from xladder.worlds.hypergrid_settings import WorldConfig


@dataclass(frozen=True)
class Config(GFlowNetConfig):
    """A GFlowNet learns to sample the cells of a grid in proportion to their reward."""

    world: WorldConfig = field(default_factory=WorldConfig)


# Much exploration, nearly to the end: with the published 0.1 until 0.48 of the run, some seeds of tb and vargrad never
# find all modes of larger grids. See benchmarks/flow_defaults.py.
EXPLORING = LearnerConfig(epsilon=0.3, explore_until=0.9)
DEFAULT = Config(learner=EXPLORING)
PUBLISHED = Config(
    WorldConfig(dim=4, side=20), LearnerConfig(epsilon=0.1, epsilon_end=0.0, explore_until=0.48), iterations=62_500
)
PRESETS = {
    "default": DEFAULT,
    # The settings of papers on trajectory balance: 20⁴ cells and a million trajectories.
    "published": PUBLISHED,
    # A two-dimensional grid, which can be drawn in full.
    "demo": replace(DEFAULT, world=WorldConfig(dim=2, side=16), iterations=5000),
}
ABOUT = {
    "default": "8 × 8 cells, trajectory balance, explores nearly to the end",
    "published": "20⁴ cells, a million trajectories (Malkin et al. 2022)",
    "demo": "16 × 16 cells, which can be drawn in full",
}
"""What each preset is."""
