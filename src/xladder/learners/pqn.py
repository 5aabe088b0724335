"""PQN (Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning"): Q-learning without replay or target.

Many envs take a few steps, and the rollout is used for updates at once and then discarded. Normalised layers keep this
stable without a target network, and Q(λ) targets make it fast. They are computed once per rollout, from the values
that acting computed anyway, so they need no forward pass of their own.

In the step that shows the final frame of an episode the action is ignored. It has weight zero, and a truncated episode
bootstraps from its value.

Shapes: T steps, N envs, F frames per state, A actions, B transitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from xladder.core.types import Array, Params
from xladder.learners.value import ValueLearner, clip, of_action
from xladder.losses.lambda_returns import q_lambda_targets
from xladder.losses.value import huber


class Hyperparams(NamedTuple):
    """Hyperparameters that may be swept: traced, so that a sweep is a `vmap`."""

    lr: jax.Array  # float32 []
    gamma: jax.Array  # float32 []
    lambda_: jax.Array  # float32 []: λ
    clip: jax.Array  # float32 []
    epsilon: jax.Array  # float32 []
    epsilon_end: jax.Array  # float32 []
    explore_steps: jax.Array  # float32 []: steps over which ε decays, or its half-life


class Agent(NamedTuple):
    """One agent: parameters, optimiser state and hyperparameters."""

    params: Params
    opt_state: optax.OptState
    hyperparams: Hyperparams


class Rollout(NamedTuple):
    """T steps of N envs, under one set of parameters."""

    states: Array  # [T, N, F, …]
    actions: Array  # int32 [T, N]
    rewards: Array  # float32 [T, N]
    terminated: Array  # bool [T, N]
    truncated: Array  # bool [T, N]
    idle: Array  # bool [T, N]: the action was ignored, because the episode was over
    values: Array  # float32 [T + 1, N]: of the greedy action in each state, and in the one after the last step


class RolloutBatch(NamedTuple):
    """B states and actions with their targets."""

    states: Array  # [B, F, …]
    actions: Array  # int32 [B]
    targets: Array  # float32 [B]
    weights: Array  # float32 [B]: 0 for ignored actions


@dataclass(frozen=True)
class PQNLearner:
    """PQN as pure functions; `value` has the network and the optimiser's settings."""

    value: ValueLearner

    def init(self, params: Params, hyperparams: Hyperparams) -> Agent:
        """An agent with these parameters."""
        return Agent(params, self.value.optimiser().init(params), hyperparams)

    def prepare(self, hyperparams: Hyperparams, rollout: Rollout) -> RolloutBatch:
        """The batch of a rollout, B = T·N, step by step."""
        discounts = jnp.where(rollout.terminated, 0.0, hyperparams.gamma)
        # A truncated episode shows its final frame in the next row, whose value ends the recursion.
        targets = q_lambda_targets(
            rollout.rewards, discounts, rollout.values[1:], rollout.truncated, hyperparams.lambda_
        )
        weights = jnp.where(rollout.idle, 0.0, 1.0)
        return jax.tree.map(
            lambda x: x.reshape(-1, *x.shape[2:]), RolloutBatch(rollout.states, rollout.actions, targets, weights)
        )

    def loss(self, params: Params, batch: RolloutBatch) -> jax.Array:
        """float32 []: the weighted mean over the batch of half the squared error."""
        outputs = self.value.apply(params, batch.states, None, None)  # [B, 1, A]
        chosen = jax.vmap(of_action)(outputs, batch.actions)[:, 0]
        return jnp.mean(huber(batch.targets - chosen, float("inf")) * batch.weights)

    def update(self, agent: Agent, batch: RolloutBatch, left: Array) -> tuple[Agent, jax.Array]:
        """One gradient step, with the learning rate scaled by `left`, float32 []. Also returns the loss."""
        loss, gradient = jax.value_and_grad(self.loss)(agent.params, batch)
        if self.value.config.clip != float("inf"):
            gradient = clip(gradient, agent.hyperparams.clip)
        steps, opt_state = self.value.optimiser().update(gradient, agent.opt_state)
        lr = agent.hyperparams.lr * left
        params = jax.tree.map(lambda p, step: p - lr * step, agent.params, steps)
        return agent._replace(params=params, opt_state=opt_state), loss

    def learn(self, agent: Agent, batch: RolloutBatch, orders: jax.Array, left: Array) -> tuple[Agent, jax.Array]:
        """One update per row of `orders`, int32 [K, B'], the indices of its minibatch. Also returns the mean loss."""

        def update(agent: Agent, order: jax.Array) -> tuple[Agent, jax.Array]:
            return self.update(agent, jax.tree.map(lambda x: x[order], batch), left)

        agent, losses = jax.lax.scan(update, agent, orders)
        return agent, losses.mean()
