"""The hypergrid as a workload: its settings and presets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from xladder.families.gflownet.config import GFlowNetConfig
from xladder.worlds.hypergrid_settings import WorldConfig


@dataclass(frozen=True)
class Config(GFlowNetConfig):
    """A GFlowNet learns to sample the cells of a grid in proportion to their reward."""

    world: WorldConfig = field(default_factory=WorldConfig)


DEFAULT = Config()
PUBLISHED = replace(DEFAULT, world=WorldConfig(dim=4, side=20), iterations=62_500)
PRESETS = {
    "default": DEFAULT,
    # The settings of papers on trajectory balance: 20⁴ cells and a million trajectories.
    "published": PUBLISHED,
    # The same on a two-dimensional grid, which can be drawn in full.
    "demo": replace(DEFAULT, world=WorldConfig(dim=2, side=16), iterations=5000),
}
