"""PQN (Gallici et al. 2024, "Simplifying Deep Temporal Difference Learning"): Q-learning without memory or target net.

Many envs play a few steps, and what they met is learned from at once and then forgotten. What keeps this
stable is not a slow copy of the network but its normalised layers; what makes it quick are Q(λ) targets. They are
formed once per rollout, from the values that the envs acted on, so they cost no pass of the network of their own.

The step that shows the last frame of a game that is over decides nothing. It has no weight, and its value is what a
game that was cut is bootstrapped from.

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


class Agent(NamedTuple):
    """All that one agent has learned."""

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
    idle: Array  # bool [T, N]: the action was ignored, because the game was over
    values: Array  # float32 [T + 1, N]: of the best action in each state, and in the one after the last step


class RolloutBatch(NamedTuple):
    """B states, and what their actions turned out to be worth."""

    states: Array  # [B, F, …]
    actions: Array  # int32 [B]
    targets: Array  # float32 [B]
    weights: Array  # float32 [B]: 0 for what must not be learned from


@dataclass(frozen=True)
class PQNLearner:
    """What one agent can do; `value` has the network, and the settings of its optimiser."""

    value: ValueLearner

    def init(self, params: Params, hyperparams: Hyperparams) -> Agent:
        """An agent with these parameters."""
        return Agent(params, self.value.optimiser().init(params), hyperparams)

    def prepare(self, hyperparams: Hyperparams, rollout: Rollout) -> RolloutBatch:
        """The batch of a rollout, B = T·N, step by step."""
        discounts = jnp.where(rollout.terminated, 0.0, hyperparams.gamma)
        # A game that was cut shows its last frame in the next row: its value ends the chain.
        targets = q_lambda_targets(
            rollout.rewards, discounts, rollout.values[1:], rollout.truncated, hyperparams.lambda_
        )
        weights = jnp.where(rollout.idle, 0.0, 1.0)
        return jax.tree.map(
            lambda x: x.reshape(-1, *x.shape[2:]), RolloutBatch(rollout.states, rollout.actions, targets, weights)
        )

    def loss(self, params: Params, batch: RolloutBatch) -> jax.Array:
        """float32 []: the mean over the batch of half the squared error, each weighted."""
        outputs = self.value.apply(params, batch.states, None, None)  # [B, 1, A]
        chosen = jax.vmap(of_action)(outputs, batch.actions)[:, 0]
        return jnp.mean(huber(batch.targets - chosen, float("inf")) * batch.weights)

    def update(self, agent: Agent, batch: RolloutBatch, left: Array) -> tuple[Agent, jax.Array]:
        """One gradient step, with the part of the learning rate that is left, float32 []; and the loss."""
        loss, gradient = jax.value_and_grad(self.loss)(agent.params, batch)
        gradient = clip(gradient, self.value.config.clip)
        steps, opt_state = self.value.optimiser().update(gradient, agent.opt_state)
        lr = agent.hyperparams.lr * left
        params = jax.tree.map(lambda p, step: p - lr * step, agent.params, steps)
        return agent._replace(params=params, opt_state=opt_state), loss

    def learn(
        self, agent: Agent, batch: RolloutBatch, orders: jax.Array, left: Array, unroll: int = 1
    ) -> tuple[Agent, jax.Array]:
        """An update from the transitions that each row of `orders`, int32 [K, B'], names; and the mean loss."""

        def update(agent: Agent, order: jax.Array) -> tuple[Agent, jax.Array]:
            return self.update(agent, jax.tree.map(lambda x: x[order], batch), left)

        agent, losses = jax.lax.scan(update, agent, orders, unroll=min(unroll, orders.shape[0]))
        return agent, losses.mean()
