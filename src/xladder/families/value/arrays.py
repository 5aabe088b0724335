"""The largest arrays of a value learner."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from xladder.core.array_sizes import FLOAT, LargeArray, weights
from xladder.families.value.config import ValueConfig

FEATURES = {"nature": 3136, "nature_same": 7744, "minatar": 1024}  # that a torso of images gives to the head


class Net(NamedTuple):
    """The sizes of a network."""

    layers: list[tuple[int, int]]
    """Inputs and outputs of its dense layers."""
    learning: int
    """Numbers of a state in the largest activation when learning,"""
    acting: int
    """and when acting."""
    flags: tuple[str, ...]
    """The settings that it grows with."""


def large_arrays(config: ValueConfig) -> list[LargeArray]:
    """Arrays that grow with the settings, with those settings."""
    learner, world, spec, net = config.learner, config.world, config.world.spec(), network(config)
    agents, frame = max(1, len(spec.agents)), math.prod(spec.shape) * np.dtype(spec.dtype).itemsize
    state, per_tick = world.stack * frame, config.per_tick
    found = [
        weights(net.layers, agents, net.flags),
        LargeArray("frames of all envs", agents * world.rows * state, ("world.num-envs", "world.stack")),
        LargeArray(
            "activations of all envs",
            FLOAT * agents * world.rows * net.acting,
            ("world.num-envs", *net.flags, *["learner.act-quantiles"] * (learner.head == "implicit")),
        ),
    ]
    if config.algorithm == "pqn":
        flags = ("pqn.rollout", "world.num-envs", "world.stack")
        size = per_tick // config.pqn.minibatches
        return [
            *found,
            LargeArray("steps of a rollout", agents * per_tick * (state + 8 * FLOAT), flags),
            LargeArray("orders of a rollout", agents * per_tick * config.pqn.passes * FLOAT, ("pqn.passes", *flags)),
            LargeArray("activations of a minibatch", FLOAT * agents * size * net.learning, (*flags, *net.flags)),
        ]
    steps = learner.span + 1 if learner.recurrent else 1
    batch = learner.batch_size * steps
    of_batch = ("learner.batch-size", *["learner.sequence", "learner.burn-in"] * bool(learner.recurrent))
    return [
        *found,
        LargeArray("activations of a batch", FLOAT * agents * batch * net.learning, (*of_batch, *net.flags)),
        LargeArray(
            "batches of a tick",
            agents * config.updates_per_tick * batch * 2 * state,
            (*of_batch, "world.stack", "world.num-envs"),
        ),
        LargeArray("results of a tick", 2 * FLOAT * agents * per_tick, ("learner.steps-per-update", "world.num-envs")),
    ]


def network(config: ValueConfig) -> Net:
    """The sizes of the network."""
    learner, world, spec = config.learner, config.world, config.world.spec()
    implicit = learner.head == "implicit"
    outputs = {"categorical": learner.atoms, "quantile": learner.quantiles}.get(learner.head, 1)
    widths = [math.prod(spec.shape) * world.stack, *learner.hidden]
    widths = widths if learner.torso == "mlp" else [FEATURES.get(learner.torso, 1)]
    layers, features = list(pairwise(widths)), widths[-1]
    if learner.recurrent:
        layers += [(features, 3 * learner.recurrent), (learner.recurrent, 3 * learner.recurrent)]
        widths, features = [*widths, 3 * learner.recurrent], learner.recurrent
    layers += [(features, learner.width), (learner.width, outputs * spec.actions)]
    if implicit:
        layers.append((learner.cosines, features))
    widest = max(*widths, learner.width)
    if implicit:
        embedded = max(learner.width, features, learner.cosines)
        learning = max(widest, learner.quantiles * max(embedded, learner.quantiles))
        acting = max(widest, learner.act_quantiles * embedded)
    else:  # the loss of a distribution compares each output with each of the target's
        learning, acting = max(widest, outputs * max(spec.actions, outputs)), max(widest, outputs * spec.actions)
    flags = (
        *["world.stack"] * (world.stack > 1),
        "learner.width",
        *["learner.hidden"] * (learner.torso == "mlp"),
        *["learner.recurrent"] * bool(learner.recurrent),
        *["learner.atoms"] * (learner.head == "categorical"),
        *["learner.quantiles"] * (learner.head in ("quantile", "implicit")),
        *["learner.cosines"] * implicit,
    )
    return Net(layers, learning, acting, flags)
