"""Sequences with a table of rewards as a workload: settings and presets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from xladder.families.gflownet.config import GFlowNetConfig
from xladder.worlds.table_settings import WorldConfig


@dataclass(frozen=True)
class Config(GFlowNetConfig):
    """A GFlowNet learns to sample sequences in proportion to their values in a table."""

    world: WorldConfig = field(default_factory=WorldConfig)


DEFAULT = Config(iterations=5000)
PRESETS = {
    "default": DEFAULT,
    # gfnx's settings for TFBind8 (`tb_tfbind`), whose table the user has: ε falls from 1 to 0 within 50,000 iterations.
    "tfbind": replace(
        DEFAULT,
        learner=replace(DEFAULT.learner, lr=5e-4, log_z_lr=0.05, epsilon=1.0, explore_until=0.05),
        iterations=1_000_000,
    ),
}
ABOUT = {
    "default": "your table, or a small made-up one",
    "tfbind": "gfnx's settings for TFBind8, whose table you give (Tiapkin et al. 2025)",
}
"""What each preset is."""
