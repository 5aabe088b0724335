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
    from xladder.families.gflownet.config import WorldConfig

NOTHING = -1e30  # the logarithm of no probability at all, finite so that differences are numbers


class Tables(NamedTuple):
    """What is known of every cell. Passed to programs as arguments: as constants they would be folded for seconds."""

    cells: jax.Array  # int32 [N, D]
    log_rewards: jax.Array  # float32 [N]
    modes: jax.Array  # bool [N]
    levels: jax.Array  # int32 [L, W]: the cells of each level; N stands where a level has fewer


class Policies(NamedTuple):
    """What a policy says of every cell; whatever in places where an action is not allowed."""

    log_pf: jax.Array  # float32 [N, A]
    log_pb: jax.Array  # float32 [N, D]


def strides(config: WorldConfig) -> np.ndarray:
    """int32 [D]: how far apart two cells lie, in `world.cells`, that differ by one in a coordinate."""
    return (config.side ** np.arange(config.dim - 1, -1, -1)).astype(np.int32)


@lru_cache(maxsize=2)
def tables(config: WorldConfig) -> Tables:
    """The tables of a grid."""
    cells = world.cells(config)
    level = cells.sum(1)
    order, sizes = np.argsort(level, kind="stable"), np.bincount(level)
    levels = np.full((len(sizes), sizes.max()), config.states, np.int32)
    levels[np.arange(sizes.max())[None, :] < sizes[:, None]] = order
    log_rewards = world.all_log_rewards(config).astype(np.float32)
    return Tables(*map(jnp.asarray, (cells, log_rewards, world.mode_cells(config), levels)))


def log_visits(config: WorldConfig, levels: jax.Array, log_pf: jax.Array) -> jax.Array:
    """float32 [N]: log-probability that a trajectory passes through each cell."""
    start = jnp.full(config.states + 1, NOTHING, jnp.float32).at[0].set(0.0)
    return _sweep(config, start, log_pf, levels[1:], -1)


def log_terminating(config: WorldConfig, levels: jax.Array, log_pf: jax.Array) -> jax.Array:
    """float32 [N]: log-probability that a trajectory stops in each cell."""
    return log_visits(config, levels, log_pf) + log_pf[:, -1]


def log_returns(config: WorldConfig, levels: jax.Array, log_target: jax.Array, log_pb: jax.Array) -> jax.Array:
    """float32 [N]: log-probability that a walk back from a cell of the target passes through each cell."""
    start = jnp.append(log_target, jnp.float32(NOTHING))
    return _sweep(config, start, log_pb, levels[-2::-1], +1)


def _sweep(config: WorldConfig, start: jax.Array, log_step: jax.Array, levels: jax.Array, side: int) -> jax.Array:
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

    return jax.lax.scan(level, start, levels)[0][: config.states]


def backward_of_flow(config: WorldConfig, cells: jax.Array, log_pf: jax.Array, log_flow: jax.Array) -> jax.Array:
    """float32 [N, D]: log P_B of the flow F(s)·P_F that flow matching learns; it has no backward policy of its own."""
    below = jnp.maximum(jnp.arange(config.states)[:, None] - jnp.asarray(strides(config))[None, :], 0)
    edges = log_flow[below] + log_pf[below, jnp.arange(config.dim)[None, :]]
    return jax.nn.log_softmax(jnp.where(cells > 0, edges, NOTHING))


def bounds(config: WorldConfig, known: Tables, policies: Policies) -> tuple[jax.Array, jax.Array]:
    """float32 [] each: the evidence lower and upper bound of log Z.

    The mean of log R + log P_B − log P_F over trajectories, once of the policy and once walked back from the target.
    Both are log Z where the policy is right, and their gap is how far it is from that.
    """
    (log_pf, log_pb), cells = policies, known.cells
    stride = jnp.asarray(strides(config))
    log_target = jax.nn.log_softmax(known.log_rewards)
    stopping = known.log_rewards - log_pf[:, -1]
    above = jnp.minimum(jnp.arange(config.states)[:, None] + stride[None, :], config.states - 1)  # [N, D]
    ratio = log_pb[above, jnp.arange(config.dim)[None, :]] - log_pf[:, :-1]
    open_edge = cells < config.side - 1
    visits = jnp.exp(log_visits(config, known.levels, log_pf))
    forward = jnp.where(open_edge, jnp.exp(log_pf[:, :-1]) * ratio, 0.0).sum(1) + jnp.exp(log_pf[:, -1]) * stopping
    below = jnp.maximum(jnp.arange(config.states)[:, None] - stride[None, :], 0)
    ratio = log_pb - log_pf[below, jnp.arange(config.dim)[None, :]]
    returns = jnp.exp(log_returns(config, known.levels, log_target, log_pb))
    backward = jnp.where(cells > 0, jnp.exp(log_pb) * ratio, 0.0).sum(1)
    return (visits * forward).sum(), (jnp.exp(log_target) * stopping).sum() + (returns * backward).sum()
