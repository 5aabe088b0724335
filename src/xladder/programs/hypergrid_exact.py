"""Which distribution a policy samples, exactly: dynamic programming over all cells of a grid, level by level.

A level is the set of cells whose coordinates have the same sum. Every step goes from one level to the next, so the
probability of passing through a cell follows from its parents, and one scan over the levels visits each cell once.
All sums are of logarithms: on long ways probabilities fall below what float32 can hold.

Shapes: N cells, D coordinates, A = D + 1 forward actions, L levels, W cells of the widest.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.worlds import hypergrid as world

if TYPE_CHECKING:
    from xladder.workloads.hypergrid import WorldConfig

NOTHING = -1e30  # the logarithm of no probability at all, finite so that differences are numbers


class Policies(NamedTuple):
    """What a policy says of every cell; whatever in places where an action is not allowed."""

    log_pf: jax.Array  # float32 [N, A]
    log_pb: jax.Array  # float32 [N, D]


def strides(config: WorldConfig) -> np.ndarray:
    """int32 [D]: how far apart two cells lie, in `world.cells`, that differ by one in a coordinate."""
    return (config.side ** np.arange(config.dim - 1, -1, -1)).astype(np.int32)


@lru_cache(maxsize=4)
def level_table(config: WorldConfig) -> np.ndarray:
    """int32 [L, W]: the cells of each level; N stands where a level has fewer."""
    level = world.cells(config).sum(1)
    order, sizes = np.argsort(level, kind="stable"), np.bincount(level)
    table = np.full((len(sizes), sizes.max()), config.states, np.int32)
    table[np.arange(sizes.max())[None, :] < sizes[:, None]] = order
    return table


def log_visits(config: WorldConfig, log_pf: jax.Array) -> jax.Array:
    """float32 [N]: log-probability that a trajectory passes through each cell."""
    start = jnp.full(config.states + 1, NOTHING, jnp.float32).at[0].set(0.0)
    return _sweep(config, start, log_pf, jnp.asarray(level_table(config)[1:]), -1)


def log_terminating(config: WorldConfig, log_pf: jax.Array) -> jax.Array:
    """float32 [N]: log-probability that a trajectory stops in each cell."""
    return log_visits(config, log_pf) + log_pf[:, -1]


def log_returns(config: WorldConfig, log_target: jax.Array, log_pb: jax.Array) -> jax.Array:
    """float32 [N]: log-probability that a walk back from a cell of the target passes through each cell."""
    start = jnp.append(log_target, NOTHING)
    return _sweep(config, start, log_pb, jnp.asarray(level_table(config)[-2::-1]), +1)


def _sweep(config: WorldConfig, start: jax.Array, log_step: jax.Array, table: jax.Array, side: int) -> jax.Array:
    """Add to each cell, level by level, what comes from its neighbours one lower (side −1) or one higher (+1)."""
    stride = jnp.asarray(strides(config))
    steps = jnp.pad(log_step[:, : config.dim], ((0, 1), (0, 0)), constant_values=NOTHING)

    def level(known: jax.Array, cells: jax.Array) -> tuple[jax.Array, None]:
        place = cells[:, None] // stride[None, :] % config.side  # [W, D]: the coordinates
        there = (place > 0) if side < 0 else (place < config.side - 1)
        there &= (cells < config.states)[:, None]
        neighbour = jnp.where(there, cells[:, None] + side * stride[None, :], config.states)
        coming = known[neighbour] + steps[neighbour, jnp.arange(config.dim)[None, :]]
        total = jax.nn.logsumexp(jnp.where(there, coming, NOTHING), axis=1)
        return known.at[cells].set(jnp.logaddexp(known[cells], total)), None

    return jax.lax.scan(level, start, table)[0][: config.states]


def backward_of_flow(config: WorldConfig, log_pf: jax.Array, log_flow: jax.Array) -> jax.Array:
    """float32 [N, D]: log P_B of the flow F(s)·P_F that flow matching learns; it has no backward policy of its own."""
    below = jnp.maximum(jnp.arange(config.states)[:, None] - jnp.asarray(strides(config))[None, :], 0)
    edges = log_flow[below] + log_pf[below, jnp.arange(config.dim)[None, :]]
    return jax.nn.log_softmax(jnp.where(jnp.asarray(world.cells(config)) > 0, edges, NOTHING))


def bounds(
    config: WorldConfig, policies: Policies, log_rewards: jax.Array, log_target: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """float32 [] each: the evidence lower and upper bound of log Z.

    The mean of log R + log P_B − log P_F over trajectories, once of the policy and once walked back from the target.
    Both are log Z where the policy is right, and their gap is how far it is from that.
    """
    log_pf, log_pb = policies
    stride = jnp.asarray(strides(config))
    cells = jnp.asarray(world.cells(config))
    stopping = log_rewards - log_pf[:, -1]
    above = jnp.minimum(jnp.arange(config.states)[:, None] + stride[None, :], config.states - 1)  # [N, D]
    ratio = log_pb[above, jnp.arange(config.dim)[None, :]] - log_pf[:, :-1]
    open_edge = cells < config.side - 1
    visits = jnp.exp(log_visits(config, log_pf))
    forward = jnp.where(open_edge, jnp.exp(log_pf[:, :-1]) * ratio, 0.0).sum(1) + jnp.exp(log_pf[:, -1]) * stopping
    below = jnp.maximum(jnp.arange(config.states)[:, None] - stride[None, :], 0)
    ratio = log_pb - log_pf[below, jnp.arange(config.dim)[None, :]]
    returns = jnp.exp(log_returns(config, log_target, log_pb))
    backward = jnp.where(cells > 0, jnp.exp(log_pb) * ratio, 0.0).sum(1)
    return (visits * forward).sum(), (jnp.exp(log_target) * stopping).sum() + (returns * backward).sum()
