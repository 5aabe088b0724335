"""The largest arrays of a value learner."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from xladder.core.array_sizes import FLOAT, LargeArray, weights
from xladder.families.value.config import ValueConfig

FEATURES = {"nature": 3136, "nature_same": 7744, "minatar": 1024}  # that a torso of images gives to the head


def large_arrays(config: ValueConfig) -> list[LargeArray]:
    """Arrays that grow with the settings, with those settings."""
    learner, world, spec = config.learner, config.world, config.world.spec()
    agents, frame = max(1, len(spec.agents)), math.prod(spec.shape)
    widths = [frame * world.stack, *learner.hidden] if learner.torso == "mlp" else [FEATURES.get(learner.torso, 1)]
    layers = list(pairwise([*widths, learner.width]))
    per_state = {
        "scalar": 1,
        "categorical": learner.atoms * spec.actions,
        "quantile": max(spec.actions, learner.quantiles) * learner.quantiles,
        "implicit": learner.quantiles * max(learner.width, learner.cosines, learner.quantiles),
    }[learner.head]
    rows = world.rows if config.algorithm == "pqn" else learner.batch_size
    return [
        weights(layers, agents, ("learner.width", "learner.hidden")),
        LargeArray(
            "activations of a batch",
            FLOAT * agents * rows * max(per_state, learner.width),
            ("learner.batch-size", "learner.width", "learner.atoms", "learner.quantiles"),
        ),
        LargeArray(
            "frames of all envs",
            agents * world.rows * world.stack * frame * np.dtype(spec.dtype).itemsize,
            ("world.num-envs",),
        ),
    ]
