"""Local search in the space of objects (Kim et al. 2024, "Local Search GFlowNets"): a few steps back, forward again.

A trajectory's object is taken apart by up to K steps of the backward policy and completed by the forward policy; then
either the new object or the old one is kept. How many steps are undone is drawn uniformly from 0 … K, so that every
move has an inverse, and by Metropolis and Hastings' rule the search leaves the target distribution as it is. (Kim et
al. undo exactly K steps and have objects of one size.)

Shapes: B trajectories, T steps of the longest, D numbers in a state, I rounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from xladder.core.types import Array, Params
from xladder.learners.choosing import Explore, take

if TYPE_CHECKING:
    from xladder.learners.gflownet import GFlowNetLearner, Trajectories


class SearchDraws(NamedTuple):
    """Uniform random numbers of all rounds. (On the host: the same as NumPy arrays.)"""

    undone: Array  # float32 [I, B]: how many steps are undone
    back: Array  # float32 [I, T, B]: backward steps
    onward: Array  # float32 [I, T, B]: forward steps
    accept: Array  # float32 [I, B]


def refine(
    learner: GFlowNetLearner, params: Params, batch: Trajectories, searched: jax.Array, draws: SearchDraws
) -> tuple[Trajectories, jax.Array]:
    """Some rounds of local search from every trajectory for which `searched`, bool [B], is true.

    Returns the trajectories that were kept, and the log-rewards of their objects, float32 [B].
    """
    most, rule = learner.config.search_steps, learner.config.learner.local_search_rule

    def search(carry: tuple[Trajectories, jax.Array], draw: SearchDraws) -> tuple[tuple[Trajectories, jax.Array], None]:
        old, log_rewards = carry
        back, new, cut = propose(learner, params, old, most, draw)
        found = learner.log_rewards(learner.objects(new), new.condition)
        if rule == "better":
            kept = found >= log_rewards
        else:
            weights = [log_weights(learner, params, each, cut) for each in (new, back)]
            ways = [log_ways(each.length - 1 - cut, cut, most) for each in (new, back)]
            ratio = (found + weights[0] + ways[0]) - (log_rewards + weights[1] + ways[1])
            kept = jnp.log(draw.accept) < ratio
        kept &= searched
        return (choose_each(kept, new, old), jnp.where(kept, found, log_rewards)), None

    first = batch, learner.log_rewards(learner.objects(batch), batch.condition)
    return jax.lax.scan(search, first, draws)[0]


def propose(
    learner: GFlowNetLearner, params: Params, batch: Trajectories, most: int, draw: SearchDraws
) -> tuple[Trajectories, Trajectories, jax.Array]:
    """A way back from each object, another object that shares its beginning, and how many steps they share, int32 [B].

    The numbers in `draw` are those of one round.
    """
    count = jnp.arange(batch.length.size)
    back = learner.sample_backward(params, learner.objects(batch), draw.back, condition=batch.condition)
    undone = jnp.minimum((draw.undone * (most + 1)).astype(jnp.int32), most)
    cut = jnp.maximum(back.length - 1 - undone, 0)
    policy = Explore(jnp.float32(0), jnp.float32(1))
    onward = learner.sample(params, policy, draw.onward, back.states[cut, count], batch.condition)
    step = jnp.arange(batch.actions.shape[0])[:, None]
    after = jnp.maximum(step - cut[None], 0), count[None]
    shared = step < cut[None]
    new = back._replace(
        states=jnp.where(shared[..., None], back.states, onward.states[after]),
        actions=jnp.where(shared, back.actions, onward.actions[after]),
        length=cut + onward.length,
    )
    return back, new, cut


def log_weights(learner: GFlowNetLearner, params: Params, batch: Trajectories, cut: jax.Array) -> jax.Array:
    """float32 [B]: log P_B − log P_F of each trajectory's steps from step `cut`, int32 [B], on."""

    def step(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        t, previous, total = carry
        log_pf, log_pb, _ = learner.log_policies(params, batch.states[t], batch.condition)
        forward = take(log_pf, batch.actions[t])
        undone = jnp.where(t > cut, take(log_pb, jnp.minimum(previous, log_pb.shape[1] - 1)), 0.0)
        counted = (t >= cut) & (t < batch.length)
        return t + 1, batch.actions[t], total + jnp.where(counted, undone - forward, 0.0)

    first = jnp.int32(0), jnp.zeros_like(batch.length), jnp.zeros(batch.length.shape, jnp.float32)
    return jax.lax.while_loop(lambda carry: learner.any_seed(carry[0] < batch.length.max()), step, first)[2]


def log_ways(moves: jax.Array, cut: jax.Array, most: int) -> jax.Array:
    """float32 [B]: log of how many of the K + 1 equally likely draws undo this many moves; −inf if none does.

    In the initial state there is nothing more to undo, so all larger draws end there, too.
    """
    draws = jnp.where(cut > 0, 1, most + 1 - moves)
    return jnp.where(moves <= most, jnp.log(jnp.maximum(draws, 1).astype(jnp.float32)), -jnp.inf)


def choose_each(which: jax.Array, ours: Trajectories, theirs: Trajectories) -> Trajectories:
    """Trajectory by trajectory, ours where `which`, bool [B], is true."""
    return ours._replace(
        states=jnp.where(which[None, :, None], ours.states, theirs.states),
        actions=jnp.where(which[None], ours.actions, theirs.actions),
        length=jnp.where(which, ours.length, theirs.length),
    )
