"""Bit sequences as a workload: settings and presets."""

from __future__ import annotations

from dataclasses import dataclass, field

from xladder.families.gflownet.config import GFlowNetConfig
from xladder.worlds.bits_settings import WorldConfig


@dataclass(frozen=True)
class Config(GFlowNetConfig):
    """A GFlowNet learns to sample sequences of bits in proportion to their reward, high near hidden sequences."""

    world: WorldConfig = field(default_factory=WorldConfig)


DEFAULT = Config(iterations=5000)
PRESETS = {"default": DEFAULT}
