"""Samples of a trained policy, and the log-probabilities of trajectories and objects.

Shapes: B trajectories or objects, D numbers in a state.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core.types import Array, Params
from xladder.families.gflownet.program import Program
from xladder.learners.gflownet import Explore, GFlowNetLearner, Trajectories, take

if TYPE_CHECKING:
    from xladder.worlds.flow_settings import FlowSettings

TRAJECTORIES_AT_ONCE = 500
MOST_STEPS_AT_ONCE = 2**22  # times the numbers of a state, of all trajectories at once
SMALLEST = 1e-30  # probability whose logarithm is taken
BACKWARD = 2**31 - 1  # the number of the key for backward trajectories; samples have lower ones


def at_once(settings: FlowSettings) -> int:
    """Trajectories per call: fewer if they are long, to bound memory use."""
    return max(1, min(TRAJECTORIES_AT_ONCE, MOST_STEPS_AT_ONCE // (settings.steps * settings.state_size)))


def sample(program: Program, params: Params, key: jax.Array, count: int) -> Trajectories:
    """Sample `count` trajectories without exploration."""
    draws = jax.random.uniform(key, (program.config.world.steps, count))
    return program.learner.sample(params, Explore(jnp.float32(0), jnp.float32(1)), draws)


def sample_backward(learner: GFlowNetLearner, params: Params, objects: jax.Array, draws: jax.Array) -> Trajectories:
    """Sample trajectories that end in given objects with the sampler's own backward policy."""
    policy = learner.flow_backward_policy if learner.config.loss == "fm" else None
    return learner.sample_backward(params, objects, draws, policy)


def weigh(learner: GFlowNetLearner, params: Params, batch: Trajectories) -> jax.Array:
    """float32 [B]: log R + log P_B − log P_F of each trajectory."""
    log_pf, log_pb = log_probabilities(learner, params, batch)
    return learner.log_rewards(learner.objects(batch)) + log_pb - log_pf


def log_probabilities(learner: GFlowNetLearner, params: Params, batch: Trajectories) -> tuple[jax.Array, jax.Array]:
    """float32 [B], twice: Σ log P_F and Σ log P_B of each trajectory, computed step by step.

    For relative trajectory balance the latter is Σ log P_prior, which plays the same part.
    """
    kind = learner.config.loss

    def step(carry: Any) -> Any:
        t, previous_action, forward, backward = carry
        states = batch.states[t]
        log_pf, log_pb, _ = learner.log_policies(params, states)
        if kind == "rtb":
            undone = -jnp.log(learner.forward_mask(states).sum(-1).astype(jnp.float32))
        else:
            if kind == "fm":
                log_pb = jnp.log(jnp.maximum(learner.flow_backward_policy(params, states), SMALLEST))
            undone = jnp.where(t > 0, take(log_pb, jnp.minimum(previous_action, log_pb.shape[1] - 1)), 0.0)
        there = t < batch.length
        taken = jnp.where(there, take(log_pf, batch.actions[t]), 0.0)
        return t + 1, batch.actions[t], forward + taken, backward + jnp.where(there, undone, 0.0)

    nothing = jnp.zeros(batch.length.shape, jnp.float32)
    first = jnp.int32(0), jnp.zeros_like(batch.length), nothing, nothing
    return jax.lax.while_loop(lambda carry: carry[0] < batch.length.max(), step, first)[2:]


def estimate_log_p(program: Program, params: Params, objects: jax.Array, key: jax.Array, ways: int) -> jax.Array:
    """float32 [B]: log-probability of objects: the mean of P_F / P_B over `ways` backward trajectories from each."""
    learner, steps, log_rewards = program.learner, program.config.world.steps, program.learner.log_rewards(objects)

    def way(number: jax.Array) -> jax.Array:
        draws = jax.random.uniform(jax.random.fold_in(key, number), (steps, len(objects)))
        return log_rewards - weigh(learner, params, sample_backward(learner, params, objects, draws))

    return jax.nn.logsumexp(jax.lax.map(way, jnp.arange(ways)), axis=0) - jnp.log(jnp.float32(ways))


class PolicySampler:
    """One policy, for the metrics of its world; see `worlds.flow.Sampler`. Objects are int32 [B, D].

    `states` are all states int32 [N, D], where they are enumerated, and `log_p` gives their log-probabilities.
    """

    def __init__(
        self,
        program: Program,
        params: Params,
        key: jax.Array,
        states: jax.Array | None = None,
        log_p: Callable[[], jax.Array] | None = None,
    ):
        self.program, self.params, self.key, self.states, self.log_p = program, params, key, states, log_p

    def sample(self, count: int, number: int = 0) -> jax.Array:
        """int32 [count, D]: objects that the policy builds."""
        size, key = min(count, at_once(self.program.config.world)), jax.random.fold_in(self.key, number)

        def part(i: jax.Array) -> jax.Array:
            batch = sample(self.program, self.params, jax.random.fold_in(key, i), size)
            return self.program.learner.objects(batch)

        found = jax.lax.map(part, jnp.arange(-(-count // size)))
        return found.reshape(-1, found.shape[-1])[:count]

    def distribution(self) -> tuple[jax.Array, jax.Array] | None:
        """int32 [N, D] and float32 [N]: all states and their log-probabilities; None unless evaluation is exact."""
        return None if self.states is None else (self.states, self._log_p)

    def log_probability(self, objects: Array, ways: int = 10) -> jax.Array:
        """float32 [B]: log-probability of objects, exact where it can be."""
        states = None if self.log_p is None else self.program.learner.world.enumeration()
        if states is not None and isinstance(objects, np.ndarray):
            return self._log_p[states.place(objects)]
        size = min(len(objects), at_once(self.program.config.world))
        padded = jnp.concatenate([objects, jnp.repeat(objects[:1], -len(objects) % size, axis=0)])
        parts, key = padded.reshape(-1, size, padded.shape[1]), jax.random.fold_in(self.key, BACKWARD)

        def part(given: tuple[jax.Array, jax.Array]) -> jax.Array:
            return estimate_log_p(self.program, self.params, given[1], jax.random.fold_in(key, given[0]), ways)

        return jax.lax.map(part, (jnp.arange(len(parts)), parts)).reshape(-1)[: len(objects)]

    @cached_property
    def _log_p(self) -> jax.Array:
        assert self.log_p is not None
        return self.log_p()
