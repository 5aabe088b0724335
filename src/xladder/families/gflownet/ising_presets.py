"""The Ising model as a workload: its settings and presets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from xladder.families.gflownet.config import GFlowNetConfig, LearnerConfig
from xladder.worlds.ising_settings import WorldConfig


@dataclass(frozen=True)
class Config(GFlowNetConfig):
    """A GFlowNet learns to sample the spins of a lattice in proportion to their Boltzmann weight."""

    world: WorldConfig = field(default_factory=WorldConfig)


DEFAULT = Config(iterations=5000)
PRESETS = {
    "default": DEFAULT,
    "quick": replace(DEFAULT, world=WorldConfig(side=3, order="any"), iterations=1000),
    # gfnx's Ising baseline at its settings, but for the energy, which is known here instead of learned: 10 × 10 spins,
    # σ = 0.1 (so J / T = 0.2), batch 256, four layers of 256, no exploration.
    "gfnx": Config(
        WorldConfig(side=10, coupling=0.2, temperature=1.0, order="any"),
        LearnerConfig(batch_size=256, lr=1e-2, log_z_lr=1e-3, layers=4, epsilon=0.0),
        iterations=20_000,
    ),
    # torchgfn's `train_ising.py`: 6 × 6 spins, a coupling of 0.44 (so J / T = 0.88), flow matching, batch 8.
    "torchgfn": Config(
        WorldConfig(side=6, coupling=0.88, temperature=1.0, order="any"),
        LearnerConfig(batch_size=8, width=512, layers=3, epsilon=0.0),
        loss="fm",
        iterations=10_000,
    ),
}
ABOUT = {
    "default": "4 × 4 spins, set row by row, trajectory balance",
    "quick": "3 × 3 spins, for a first look",
    "gfnx": "10 × 10 spins, gfnx's settings with the energy known",
    "torchgfn": "6 × 6 spins, flow matching, as torchgfn's train_ising.py",
}
"""What each preset is."""
