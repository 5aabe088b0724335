"""Random keys as addresses: seed → tick → agent → stream, one `fold_in` each.

No key is carried along and split. So every rung, any number of agents and a resumed run draw the same numbers at the
same address, in any order.
"""

from enum import IntEnum

import jax
import jax.numpy as jnp


class Stream(IntEnum):
    """What the random numbers at an address are for. Never renumber: old runs would change."""

    INIT = 0
    RESET = 1
    SPAWN = 2
    ACT = 3
    SAMPLE = 4
    NOISE = 5
    BACK = 6
    SEARCH = 7
    CONDITION = 8


WORLD = 2**31 - 1  # the "agent" whose draws belong to the world itself


def root(seed: jax.Array | int) -> jax.Array:
    """The root key of a run, from which all others derive."""
    return jax.random.key(seed)


def evaluation(seed: jax.Array | int) -> jax.Array:
    """The root key of an evaluation, separate from all training keys."""
    return jax.random.fold_in(root(seed), WORLD)


def address(run: jax.Array, tick: jax.Array | int, agent: jax.Array | int, stream: Stream) -> jax.Array:
    """The key for one stream of one agent (or `WORLD`) in one tick."""
    key = jax.random.fold_in(run, tick)
    return jax.random.fold_in(jax.random.fold_in(key, agent), int(stream))


def of_agents(run: jax.Array, agents: int) -> jax.Array:
    """Root keys [A] of agents that learn independently in one world; the first is the run's."""
    others = jax.vmap(lambda agent: jax.random.fold_in(run, WORLD - agent))(jnp.arange(1, agents))
    return jnp.concatenate([run[None], others])


def reset_keys(run: jax.Array, num_envs: int, first: jax.Array | int = 0) -> jax.Array:
    """Keys [N] of the envs' first episodes; `first` is the index of the first env if others have the earlier ones."""
    return addresses(run, 0, num_envs, Stream.RESET, first)


def step_keys(run: jax.Array, step: jax.Array | int, num_envs: int, first: jax.Array | int = 0) -> jax.Array:
    """Keys [N] of one step of the envs, counted from 0; episodes that begin in it use them, too."""
    return addresses(run, step, num_envs, Stream.SPAWN, first)


def addresses(
    run: jax.Array, tick: jax.Array | int, agents: int, stream: Stream, first: jax.Array | int = 0
) -> jax.Array:
    """Keys [N] for one stream of agents `first` … `first` + N − 1 in one tick."""
    return jax.vmap(lambda agent: address(run, tick, agent, stream))(first + jnp.arange(agents))
