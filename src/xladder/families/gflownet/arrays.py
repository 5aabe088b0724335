"""The largest arrays of a GFlowNet."""

from __future__ import annotations

from xladder.core.array_sizes import FLOAT, LargeArray, weights
from xladder.families.gflownet.config import GFlowNetConfig


def large_arrays(config: GFlowNetConfig) -> list[LargeArray]:
    """Arrays that grow with the settings, with those settings."""
    learner, world, built = config.learner, config.world, config.world.build()
    width, depth = learner.width, learner.layers
    layers = [(built.num_inputs, width), *[(width, width)] * (depth - 1), (width, 2 * built.num_actions)]
    states, tokens = learner.batch_size * world.steps, (config.tokens or (0,))[0] + 1
    new = learner.batch_size - config.remembered
    found = [
        weights(layers, 1, ("learner.width", "learner.layers")),
        LargeArray(
            "activations of a batch",
            FLOAT * states * max(width * depth * tokens, 2 * built.num_actions),
            ("learner.batch-size", "learner.width", "learner.layers"),
        ),
        LargeArray("trajectories of a batch", FLOAT * states * (world.state_size + 1), ("learner.batch-size",)),
        LargeArray(
            "draws of local search", 2 * FLOAT * learner.local_search * world.steps * new, ("learner.local-search",)
        ),
    ]
    if config.remembered:
        found.append(
            LargeArray("replayed objects", FLOAT * learner.memory * (world.state_size + 1), ("learner.memory",))
        )
    return found
