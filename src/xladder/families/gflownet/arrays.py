"""The largest arrays of a GFlowNet."""

from __future__ import annotations

from xladder.core.array_sizes import FLOAT, LargeArray, weights
from xladder.families.gflownet.config import GFlowNetConfig


def large_arrays(config: GFlowNetConfig) -> list[LargeArray]:
    """Arrays that grow with the settings, with those settings."""
    learner = config.learner
    layers = [(learner.width * learner.layers, learner.width)]
    states = learner.batch_size * config.world.steps
    return [
        weights(layers, 1, ("learner.width", "learner.layers")),
        LargeArray("activations of a batch", FLOAT * states * learner.width, ("learner.batch-size", "learner.width")),
    ]
