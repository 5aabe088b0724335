"""The loss of a batch of trajectories, by its name, from what a network says of their steps. Pure JAX.

The losses themselves, each on one trajectory, are in `losses.balance`.

Shapes: B trajectories, T steps of the longest, D numbers in a state, A forward actions, the last of which is stop, R
rows: the steps of a batch one after another.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from xladder.core.types import Params
from xladder.learners.choosing import MASKED_LOGIT, take
from xladder.learners.packing import pack, unpack
from xladder.losses import balance

if TYPE_CHECKING:
    from xladder.learners.gflownet import GFlowNetLearner, Trajectories


class Lost(NamedTuple):
    """float32 [] each."""

    loss: jax.Array
    log_z: jax.Array  # the estimate of log Z that belongs to it


class Terms:
    """What the losses are made of, for a batch with at most `bucket` steps; computed when a loss asks for it.

    `transitions` is the number of steps over which a mean over transitions is taken, if not those of this batch.
    """

    def __init__(
        self,
        learner: GFlowNetLearner,
        params: Params,
        batch: Trajectories,
        bucket: int,
        transitions: jax.Array | None,
    ):
        self.learner, self.params, self.batch, self.transitions = learner, params, batch, transitions
        self.rows = pack(batch, bucket)
        self.length = batch.length
        self.outputs = learner.apply(
            params, self.rows.states, "forward", "backward", "flow", condition=self.rows.condition
        )
        self.spread = partial(unpack, self.rows)  # [B, T] from [R]
        self.mask = learner.forward_mask(self.rows.states)
        self.forward = jax.nn.log_softmax(jnp.where(self.mask, self.outputs.forward, MASKED_LOGIT))  # [R, A]
        self.log_pf = self.spread(take(self.forward, self.rows.actions))
        self.log_reward = learner.log_rewards(learner.objects(batch), batch.condition)  # [B]

    @cached_property
    def log_pb(self) -> jax.Array:
        """float32 [B, T]: log P_B of every step."""
        backward = self.learner.log_backward(self.outputs.backward, self.rows)
        return jnp.roll(self.spread(backward), -1, axis=1)  # known where the step leads

    @cached_property
    def log_flow(self) -> jax.Array:
        """float32 [B, T]: the log-flow of the states in which steps begin."""
        assert self.outputs.log_flow is not None
        return self.spread(self.outputs.log_flow)

    @cached_property
    def log_rewards(self) -> jax.Array:
        """float32 [B, T]: the log-rewards of the states in which steps begin."""
        return self.spread(self.learner.log_rewards(self.rows.states, self.rows.condition))

    @cached_property
    def log_z(self) -> jax.Array:
        """float32 [] or [B]: the learned log Z."""
        return self.learner.log_z(self.params, self.batch.condition)

    @property
    def log_z_axis(self) -> int | None:
        """The axis of `log_z` that is mapped with the batch: None if all trajectories have the same."""
        return None if self.batch.condition is None else 0

    @property
    def by_transitions(self) -> bool:
        """Whether transitions have the same weight, instead of trajectories."""
        return self.learner.config.learner.weighting == "transitions"

    def at_start(self, values: jax.Array) -> jax.Array:
        """float32 []: the mean of values [B, T] in the initial state, which is the same without conditions."""
        return values[0, 0] if self.batch.condition is None else values[:, 0].mean()

    def mean(self, losses: jax.Array, left_out: int = 0) -> jax.Array:
        """float32 []: the mean of losses [B] of trajectories, of each of which some steps may be left out."""
        if not self.by_transitions:
            return losses.mean()
        total = None if self.transitions is None else self.transitions - left_out * self.length.size
        return balance.mean_over_transitions(losses, self.length - left_out, total)


def _trajectory(terms: Terms, _: jax.Array) -> Lost:
    balanced = jax.vmap(balance.trajectory_balance, in_axes=(terms.log_z_axis, 0, 0, 0, 0))
    losses = balanced(terms.log_z, terms.log_pf, terms.log_pb, terms.log_reward, terms.length)
    return Lost(losses.mean(), terms.log_z.mean())


def _relative(terms: Terms, _: jax.Array) -> Lost:
    log_prior = terms.spread(-jnp.log(terms.mask.sum(-1).astype(jnp.float32)))
    relative = jax.vmap(balance.relative_trajectory_balance, in_axes=(terms.log_z_axis, 0, 0, 0, 0))
    losses = relative(terms.log_z, terms.log_pf, log_prior, terms.log_reward, terms.length)
    return Lost(losses.mean(), terms.log_z.mean())


def _vargrad(terms: Terms, _: jax.Array) -> Lost:
    weights = jax.vmap(balance.log_weight)(terms.log_pf, terms.log_pb, terms.log_reward, terms.length)
    return Lost(balance.log_partition_variance(weights), weights.mean())


def _modified(terms: Terms, _: jax.Array) -> Lost:
    log_stop, delta = terms.spread(terms.forward[:, -1]), terms.learner.config.learner.mdb_delta
    modified = jax.vmap(balance.modified_detailed_balance, in_axes=(0, 0, 0, 0, 0, None))
    losses = modified(log_stop, terms.log_pf, terms.log_pb, terms.log_rewards, terms.length, delta)
    return Lost(terms.mean(losses, 1), terms.at_start(terms.log_rewards - log_stop))


def _detailed(terms: Terms, _: jax.Array) -> Lost:
    detailed = jax.vmap(balance.detailed_balance)
    losses = detailed(terms.log_flow, terms.log_pf, terms.log_pb, terms.log_reward, terms.length)
    return Lost(terms.mean(losses), terms.at_start(terms.log_flow))


def _sub_trajectories(terms: Terms, lambda_: jax.Array) -> Lost:
    parts = jax.vmap(balance.sub_trajectory_balance, in_axes=(0, 0, 0, 0, 0, None))
    losses = parts(terms.log_flow, terms.log_pf, terms.log_pb, terms.log_reward, terms.length, lambda_)
    return Lost(losses.mean(), terms.at_start(terms.log_flow))


def _flow_matching(terms: Terms, _: jax.Array) -> Lost:
    inflow = terms.spread(terms.learner.log_inflow(terms.params, terms.rows.states, terms.rows.condition))
    given = inflow, terms.log_flow, terms.log_pf, terms.log_reward, terms.length
    log_z, length, transitions = terms.at_start(terms.log_flow), terms.length, terms.transitions
    if not terms.by_transitions:
        return Lost(jax.vmap(balance.flow_matching)(*given).mean(), log_z)
    inside, stops = jax.vmap(balance.flow_matching_squares)(*given)
    states = (length.sum().astype(jnp.float32) if transitions is None else transitions) - length.size
    return Lost(inside.sum() / jnp.maximum(states, 1.0) + stops.mean(), log_z)


def _ahead_log_z(terms: Terms) -> jax.Array:
    """The flow of the initial state is that of the network times its reward."""
    return terms.at_start(terms.log_flow) + terms.at_start(terms.log_rewards)


def _ahead(terms: Terms, _: jax.Array) -> Lost:
    looking = jax.vmap(balance.forward_looking_balance)
    losses = looking(terms.log_flow, terms.log_pf, terms.log_pb, terms.log_rewards, terms.length)
    return Lost(terms.mean(losses), _ahead_log_z(terms))


def _ahead_sub_trajectories(terms: Terms, lambda_: jax.Array) -> Lost:
    parts = jax.vmap(balance.forward_looking_sub_trajectory_balance, in_axes=(0, 0, 0, 0, 0, None))
    losses = parts(terms.log_flow, terms.log_pf, terms.log_pb, terms.log_rewards, terms.length, lambda_)
    return Lost(losses.mean(), _ahead_log_z(terms))


LOSSES: dict[str, Callable[[Terms, jax.Array], Lost]] = {
    "tb": _trajectory,
    "rtb": _relative,
    "vargrad": _vargrad,
    "mdb": _modified,
    "db": _detailed,
    "subtb": _sub_trajectories,
    "fm": _flow_matching,
    "fldb": _ahead,
    "flsubtb": _ahead_sub_trajectories,
}
"""By name; functions of the terms and λ of sub-trajectory balance."""
