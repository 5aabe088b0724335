"""The largest arrays of agents that take turns in one world."""

from __future__ import annotations

from xladder.core.array_sizes import FLOAT, LargeArray, weights
from xladder.families.multi_agent.board_settings import BoardSettings
from xladder.families.multi_agent.config import Config


def large_arrays(config: Config) -> list[LargeArray]:
    """Arrays that grow with the settings, with those settings."""
    world, learner = config.world, config.learner
    if not isinstance(world, BoardSettings):  # a world of an installed workload
        return []
    encoding, agents = world.encoding(), world.num_agents
    inputs = encoding.num_inputs * learner.n_frames
    layers = [(inputs, learner.width), (learner.width, learner.width), (learner.cosines, learner.width)]
    fractions, widest = learner.batch_size * learner.quantiles, max(learner.width, learner.cosines)
    cells = (world.height + 2 * world.margin) * (world.width + 2 * world.margin)
    return [
        weights(layers, agents, ("world.num-agents", "world.radius", "learner.n-frames", "learner.width")),
        LargeArray("views in memory", learner.memory * encoding.num_cells * agents, ("learner.memory", "world.radius")),
        LargeArray(
            "activations of a batch",
            FLOAT * agents * fractions * max(widest, learner.quantiles),
            ("learner.batch-size", "learner.quantiles", "learner.width"),
        ),
        LargeArray(
            "embedded fractions of an epoch",
            FLOAT * agents * world.max_turns * learner.act_quantiles * widest,
            ("learner.act-quantiles", "learner.width", "learner.cosines", "world.max-turns"),
        ),
        LargeArray(
            "frames of a batch",
            agents * learner.batch_size * (learner.n_frames + learner.n_step) * encoding.num_cells,
            ("learner.batch-size", "learner.n-frames", "world.radius"),
        ),
        LargeArray(
            "draws for a board",
            FLOAT * world.max_turns * cells,
            ("world.height", "world.width", "world.radius", "world.max-turns"),
        ),
    ]
