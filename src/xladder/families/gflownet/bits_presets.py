"""Bit sequences as a workload: settings and presets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from xladder.families.gflownet.config import GFlowNetConfig, LearnerConfig
from xladder.worlds.bits_settings import WorldConfig


@dataclass(frozen=True)
class Config(GFlowNetConfig):
    """A GFlowNet learns to sample sequences of bits in proportion to their reward, high near hidden sequences."""

    world: WorldConfig = field(default_factory=WorldConfig)


DEFAULT = Config(iterations=5000)
TRANSFORMER = LearnerConfig(
    network="transformer",
    width=64,
    layers=3,
    attention_heads=8,
    backward="uniform",
    log_z_lr=5e-2,
    weight_decay=1e-5,
    epsilon=1e-3,
    epsilon_end=1e-3,
)
LONG = WorldConfig(bits=120, word=8, modes=60, beta=3.0, radius=30)
# gfnx's settings (Tiapkin et al. 2025) of the non-autoregressive task of Tiapkin et al. 2024, a baseline for each loss.
GFNX = Config(LONG, TRANSFORMER, iterations=50_000, evaluate_every=1000)
PRESETS = {
    "default": DEFAULT,
    # The same, small enough for a transformer on a CPU and for exact evaluation.
    "transformer": replace(DEFAULT, learner=replace(TRANSFORMER, epsilon=0.1, epsilon_end=0.0)),
    "gfnx": GFNX,
    "gfnx-db": replace(GFNX, loss="db", evaluate_every=2000),
    # λ = 1.9, as in Madan et al. 2023.
    "gfnx-subtb": replace(GFNX, loss="subtb", learner=replace(TRANSFORMER, lr=5e-4, subtb_lambda=1.9)),
    # Malkin et al. 2022: words are appended; rewards fall with the number of bits, as in torchgfn's `BitSequence`.
    "append": replace(GFNX, world=replace(LONG, order="append", beta=1.0, distance="bits")),
}
ABOUT = {
    "default": "16 bits in words of 4, MLP, trajectory balance",
    "transformer": "16 bits in words of 4, a small transformer",
    "gfnx": "120 bits, trajectory balance, gfnx's settings (Tiapkin et al. 2025)",
    "gfnx-db": "120 bits, detailed balance, gfnx's settings",
    "gfnx-subtb": "120 bits, sub-trajectory balance with λ = 1.9 (Madan et al. 2023)",
    "append": "120 bits, words appended left to right (Malkin et al. 2022)",
}
"""What each preset is."""
