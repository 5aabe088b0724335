"""The exact distribution that a policy samples: dynamic programming over all states of a world, level by level.

A level is the set of states whose longest path from the initial state has the same length. Every step goes to a later
level, so the probability of visiting a state follows from its parents, and one scan over the levels visits each state
once. All sums are in log space: on long paths probabilities underflow float32.

Shapes: N states, D numbers in each, A forward actions, the last of which is stop; L levels, W states of the widest.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from xladder.worlds.flow import NOTHING
from xladder.worlds.flow_conditioned import ConditionedSettings

if TYPE_CHECKING:
    from xladder.worlds.flow_settings import FlowSettings


class Tables(NamedTuple):
    """Tables over all states. Passed to programs as arguments: XLA would spend seconds folding constants."""

    states: jax.Array  # int32 [N, D]
    log_rewards: jax.Array  # float32 [N]; NOTHING where stop is not allowed
    modes: jax.Array  # bool [N]
    regions: jax.Array  # int32 [N]: the mode that a state belongs to, K for none
    levels: jax.Array  # int32 [L, W]: the states of each level; N stands where a level has fewer
    children: jax.Array  # int32 [N, A − 1]: where actions lead; N where they are not allowed
    parents: jax.Array  # int32 [N, A − 1]: where they come from; N where there is no such edge
    terminal: jax.Array | None  # bool [N]: where stop is allowed; None if everywhere


class Policies(NamedTuple):
    """A policy in every state; entries of actions that are not allowed are arbitrary."""

    log_pf: jax.Array  # float32 [N, A]
    log_pb: jax.Array  # float32 [N, A − 1]


def tables(settings: FlowSettings) -> Tables:
    """The tables of a world that can be enumerated."""
    if not isinstance(settings, ConditionedSettings):
        return _tables(settings)
    known = settings.build().enumeration()  # only the rewards are others, and what the best of them are
    assert known is not None
    rewards = jnp.asarray(known.log_rewards, jnp.float32), jnp.asarray(known.modes), jnp.asarray(known.regions)
    return _tables(settings.base)._replace(log_rewards=rewards[0], modes=rewards[1], regions=rewards[2])


@lru_cache(maxsize=2)
def _tables(settings: FlowSettings) -> Tables:
    known = settings.build().enumeration()
    assert known is not None, "this world has too many states"
    return Tables(
        jnp.asarray(known.states),
        jnp.asarray(known.log_rewards, jnp.float32),
        jnp.asarray(known.modes),
        jnp.asarray(known.regions),
        jnp.asarray(known.levels),
        jnp.asarray(known.children),
        jnp.asarray(known.parents),
        None if known.terminal.all() else jnp.asarray(known.terminal),
    )


def log_visits(known: Tables, log_pf: jax.Array) -> jax.Array:
    """float32 [N]: log-probability that a trajectory passes through each state."""
    count = len(known.states)
    start = jnp.full(count + 1, NOTHING, jnp.float32).at[known.levels[0, 0]].set(0.0)
    return _sweep(start, log_pf, known.levels[1:], known.parents)


def log_terminating(known: Tables, log_pf: jax.Array) -> jax.Array:
    """float32 [N]: log-probability that a trajectory stops in each state."""
    return log_visits(known, log_pf) + log_pf[:, -1]


def log_returns(known: Tables, log_target: jax.Array, log_pb: jax.Array) -> jax.Array:
    """float32 [N]: log-probability that a backward trajectory from a target object passes through each state."""
    start = jnp.append(log_target, jnp.float32(NOTHING))
    return _sweep(start, log_pb, known.levels[-2::-1], known.children)


def _sweep(start: jax.Array, log_step: jax.Array, levels: jax.Array, neighbours: jax.Array) -> jax.Array:
    """Propagate log-probabilities level by level from each state's neighbours: its parents, or its children."""
    count, moves = neighbours.shape
    steps = jnp.pad(log_step[:, :moves], ((0, 1), (0, 0)), constant_values=NOTHING)
    near = jnp.pad(neighbours, ((0, 1), (0, 0)), constant_values=count)

    def level(known: jax.Array, states: jax.Array) -> tuple[jax.Array, None]:
        neighbour = near[states]  # [W, A − 1]
        coming = known[neighbour] + steps[neighbour, jnp.arange(moves)[None, :]]
        total = jax.nn.logsumexp(jnp.where(neighbour < count, coming, NOTHING), axis=1)
        return known.at[states].set(jnp.logaddexp(known[states], total)), None

    return jax.lax.scan(level, start, levels)[0][:count]


def backward_of_flow(known: Tables, log_pf: jax.Array, log_flow: jax.Array) -> jax.Array:
    """float32 [N, A − 1]: log P_B of the flow F(s)·P_F: each parent's share of the inflow."""
    count, moves = known.parents.shape
    before = jnp.where(known.parents < count, known.parents, 0)
    edges = log_flow[before] + log_pf[before, jnp.arange(moves)[None, :]]
    return jax.nn.log_softmax(jnp.where(known.parents < count, edges, NOTHING))


def tilt(known: Tables, log_prior: jax.Array) -> tuple[Tables, jax.Array]:
    """The target of relative trajectory balance: tables with the rewards P_prior(x)·R(x), and the prior's own log P_B.

    `log_prior` [N, A] is the prior's forward policy. P_B of a parent is its share of the visits to a state.
    """
    visits = log_visits(known, log_prior)
    log_rewards = visits + log_prior[:, -1] + known.log_rewards
    if known.terminal is not None:
        log_rewards = jnp.where(known.terminal, log_rewards, NOTHING)
    return known._replace(log_rewards=log_rewards), backward_of_flow(known, log_prior, visits)


def bounds(known: Tables, policies: Policies) -> tuple[jax.Array, jax.Array]:
    """float32 [] each: the evidence lower and upper bound of log Z.

    The mean of log R + log P_B − log P_F over trajectories of the policy, and over trajectories sampled backward from
    the target. Both equal log Z if the policy is perfect; their gap measures how far it is from that.
    """
    log_pf, log_pb = policies
    count, moves = known.parents.shape
    action = jnp.arange(moves)[None, :]
    log_target = jax.nn.log_softmax(known.log_rewards)
    stopping = known.log_rewards - log_pf[:, -1]
    if known.terminal is not None:
        stopping = jnp.where(known.terminal, stopping, 0.0)
    after = jnp.minimum(known.children, count - 1)
    ratio = log_pb[after, action] - log_pf[:, :-1]
    visits = jnp.exp(log_visits(known, log_pf))
    forward = jnp.where(known.children < count, jnp.exp(log_pf[:, :-1]) * ratio, 0.0).sum(1)
    forward = forward + jnp.exp(log_pf[:, -1]) * stopping
    before = jnp.where(known.parents < count, known.parents, 0)
    ratio = log_pb - log_pf[before, action]
    returns = jnp.exp(log_returns(known, log_target, log_pb))
    backward = jnp.where(known.parents < count, jnp.exp(log_pb) * ratio, 0.0).sum(1)
    return (visits * forward).sum(), (jnp.exp(log_target) * stopping).sum() + (returns * backward).sum()
