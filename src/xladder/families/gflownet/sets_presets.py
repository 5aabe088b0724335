"""Sets as a workload: their settings and presets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from xladder.families.gflownet.config import GFlowNetConfig
from xladder.worlds.sets_settings import WorldConfig


@dataclass(frozen=True)
class Config(GFlowNetConfig):
    """A GFlowNet learns to sample sets of items in proportion to their reward."""

    world: WorldConfig = field(default_factory=WorldConfig)


DEFAULT = Config()
PUBLISHED = replace(DEFAULT, loss="fldb", iterations=10_000, learner=replace(DEFAULT.learner, epsilon=0.0))
PRESETS = {
    "default": DEFAULT,
    "quick": replace(DEFAULT, world=WorldConfig(items=6, most=3), iterations=500),
    # The sizes, network and batch of Pan et al. 2023, with forward-looking balance. Their energies have ten values in
    # [−1, 1]; ours are uniform there.
    "small": replace(PUBLISHED, world=WorldConfig(items=30, most=20, full=True)),
    "medium": replace(PUBLISHED, world=WorldConfig(items=80, most=60, full=True)),
    "large": replace(PUBLISHED, world=WorldConfig(items=100, most=80, full=True)),
}
ABOUT = {
    "default": "up to 5 of 10 items, trajectory balance",
    "quick": "up to 3 of 6 items, for a first look",
    "small": "20 of 30 items, forward-looking balance (Pan et al. 2023)",
    "medium": "60 of 80 items, forward-looking balance (Pan et al. 2023)",
    "large": "80 of 100 items, forward-looking balance (Pan et al. 2023)",
}
"""What each preset is."""
