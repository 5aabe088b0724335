"""The value learner: DQN and its successors, put together from a network and ingredients. One agent, pure JAX.

A head says what kind of numbers describe a return, and with it how a target is formed and what the loss is: one value
(Mnih et al. 2015), a categorical distribution (Bellemare et al. 2017), quantiles at fixed fractions (Dabney et al.
2018a) or at drawn ones (Dabney et al. 2018b). Double Q (van Hasselt et al. 2016), n-step returns, priorities (Schaul
et al. 2016), dueling and noisy layers and Munchausen's bonus (Vieillard et al. 2020) go with any of them, except that
the bonus needs values or quantiles.

What an update needs at random is drawn by `draw_*` and passed in, so that the PyTorch twin can be given the same.

Shapes: B batch, F frames, Q fractions, Z numbers per action, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from xladder.core.data_parallel import ALONE, Crew
from xladder.core.types import Array, Params
from xladder.losses.quantile import quantile_huber
from xladder.losses.value import cross_entropy, huber, munchausen_bonus, project, soft_values, squared
from xladder.nets.noisy import noise_size, split_noise
from xladder.nets.value import ValueNet
from xladder.replay.batch import Batch


class Knobs(NamedTuple):
    """What one may want to sweep: traced, so that a sweep is a `vmap`."""

    lr: jax.Array  # float32 []
    gamma: jax.Array  # float32 []


class Agent(NamedTuple):
    """All that one agent has learned."""

    params: Params
    target: Params
    moments: optax.OptState
    knobs: Knobs


class Draws(NamedTuple):
    """What one update draws. The three passes are: next state online, next state target, state online."""

    taus: Array  # float32 [3, B, Q]; Q = 0 where the head needs none
    noise: Array  # float32 [3, noise_size]; empty where nothing is noisy


@dataclass(frozen=True)
class ValueLearner:
    """The verbs of one agent, with what does not change bound once.

    `config` names the ingredients: the fields of `workloads.value.LearnerConfig`, of which a workload may fix some.
    """

    config: Any
    net: ValueNet
    crew: Crew = ALONE
    """Who the rest of a batch is with; its size is what this one has of it."""

    def init(self, params: Params, knobs: Any) -> Agent:
        """An agent with these parameters."""
        # The target is a copy, not an alias: a donated state must not hold one buffer twice.
        return Agent(params, jax.tree.map(jnp.copy, params), self.optimiser().init(params), knobs)

    @property
    def fractions(self) -> int:
        """Fractions per state of an update."""
        return self.config.quantiles if self.config.head == "implicit" else 0

    @property
    def noise_size(self) -> int:
        """Normals that one draw of noise takes."""
        return noise_size(self.net.head.noise_shapes(), self.net.head.factorised)

    def split_noise(self, normals: jax.Array) -> Any:
        """Normals […, noise_size] as the noise of the layers; None where there is none."""
        shapes = self.net.head.noise_shapes()
        return split_noise(normals, shapes, self.net.head.factorised) if shapes else None

    def draw_update(self, sample_key: jax.Array, noise_key: jax.Array) -> Draws:
        """The draws for one update."""
        taus = jax.random.uniform(sample_key, (3, self.config.batch_size, self.fractions))
        return Draws(taus, jax.random.normal(noise_key, (3, self.noise_size)))

    def say(self, params: Params, states: jax.Array, taus: jax.Array | None, noise: Any) -> jax.Array:
        """float32 […, Z, A]: what the network says of states."""
        said: Any = self.net.apply({"params": params}, states, taus if self.fractions else None, noise)
        return said

    def values(self, params: Params, states: jax.Array, taus: jax.Array | None, noise: Any) -> jax.Array:
        """float32 […, A]: the expected return of every action, for acting."""
        if self.config.head != "implicit":
            return self.expected(self.say(params, states, None, noise))
        embedding = self.net.apply({"params": params}, taus, method="embed")
        mean: Any = self.net.apply({"params": params}, states, embedding, noise, method="mean_of_embedded")
        return mean

    def expected(self, said: jax.Array) -> jax.Array:
        """float32 […, A]: the means of what was said, […, Z, A]."""
        if self.config.head == "scalar":
            return said[..., 0, :]
        if self.config.head == "categorical":
            support = jnp.expand_dims(self.support[:, None], range(said.ndim - 2))
            return jnp.sum(jax.nn.softmax(said, axis=-2) * support, axis=-2)
        return said.mean(-2)

    @property
    def support(self) -> jax.Array:
        """float32 [Z]: the returns that a categorical head's numbers stand for."""
        return jnp.linspace(self.config.v_min, self.config.v_max, self.config.atoms, dtype=jnp.float32)

    def losses(
        self, params: Params, target: Params, batch: Batch, taus: jax.Array, noise: tuple[Any, Any, Any]
    ) -> tuple[jax.Array, jax.Array]:
        """The loss of each transition, float32 [B], and how far off it was, which becomes its priority."""
        c = self.config
        following = self.say(target, batch.next_states, taus[1], noise[1])  # [B, Z, A]
        online = self.say(params, batch.next_states, taus[0], noise[0]) if c.double else following
        now = self.say(target, batch.states, taus[1], noise[1]) if c.munchausen else following
        prediction = self.say(params, batch.states, taus[2], noise[2])

        def one(
            step: Batch, following: Any, online: Any, now: Any, prediction: Any, taus: jax.Array
        ) -> tuple[jax.Array, jax.Array]:
            taken = of_action(prediction, step.actions)  # [Z]
            if c.head == "categorical":
                best = jnp.argmax(self.expected(online))
                support = self.support
                aims = step.returns + step.discounts * support
                wanted = project(support, jax.nn.softmax(of_action(following, best)), aims)
                loss = cross_entropy(taken, jax.lax.stop_gradient(wanted))
                return loss, loss
            if c.munchausen:
                policy, log_policy = soft_values(self.expected(following), c.temperature)
                after = jnp.sum(policy[None, :] * (following - log_policy[None, :]), axis=-1)
                bonus = munchausen_bonus(
                    self.expected(now), step.actions, c.temperature, c.munchausen_floor, c.munchausen_scale
                )
                returns = step.returns + bonus
            else:
                after, returns = of_action(following, jnp.argmax(self.expected(online))), step.returns
            aim = jax.lax.stop_gradient(returns + step.discounts * after)  # [Z]
            if c.head == "scalar":
                error = aim[0] - taken[0]
                return (huber(error, c.kappa) if c.loss == "huber" else squared(error)), jnp.abs(error)
            fractions = taus if c.head == "implicit" else jnp.asarray(midpoints(c.quantiles))
            loss = quantile_huber(taken, fractions, aim, c.kappa)
            return loss, loss

        return jax.vmap(one)(batch, following, online, now, prediction, taus[2])

    def loss(
        self, params: Params, target: Params, batch: Batch, taus: jax.Array, noise: tuple[Any, Any, Any]
    ) -> tuple[jax.Array, jax.Array]:
        """float32 []: the mean over the batch, each transition weighted by `valid`; and how far off each was, [B]."""
        losses, errors = self.losses(params, target, batch, taus, noise)
        return jnp.mean(losses * batch.valid), errors

    def update(self, agent: Any, batch: Batch, draws: Draws) -> tuple[Any, jax.Array, jax.Array]:
        """One gradient step on a batch, then the soft update of the target. Also the loss, and each one's error [B]."""
        noise = tuple(self.split_noise(draws.noise[i]) for i in range(3))
        return self.update_with(agent, batch, draws.taus, noise)

    def update_with(
        self, agent: Any, batch: Batch, taus: jax.Array, noise: tuple[Any, ...]
    ) -> tuple[Any, jax.Array, jax.Array]:
        """The same with noise that has been split already."""
        differentiate = jax.value_and_grad(self.loss, has_aux=True)
        (loss, errors), gradient = differentiate(agent.params, agent.target, batch, taus, noise)
        loss, gradient = self.crew.average((loss, gradient))
        gradient = clip(gradient, self.config.clip)
        steps, moments = self.optimiser().update(gradient, agent.moments)
        params = jax.tree.map(lambda p, step: p - agent.knobs.lr * step, agent.params, steps)
        target, soft = agent.target, self.config.soft
        if soft:
            target = jax.tree.map(lambda t, p: t + jnp.float32(soft) * (p - t), target, params)
        return agent._replace(params=params, target=target, moments=moments), loss, errors

    def sync(self, agent: Any, due: jax.Array) -> Any:
        """The hard update, if it is due: the target becomes the online network."""
        target = jax.lax.cond(due, lambda: agent.params, lambda: agent.target)
        return agent._replace(target=target)

    def optimiser(self) -> optax.GradientTransformation:
        """Optax's, without the learning rate, which is a knob of the agent."""
        if self.config.optimiser == "rmsprop":  # centred, as in Mnih et al. 2015
            return optax.scale_by_stddev(decay=0.95, eps=self.config.optimiser_eps)
        if self.config.optimiser == "radam":
            return optax.scale_by_radam(eps=self.config.optimiser_eps)
        return optax.scale_by_adam(eps=self.config.optimiser_eps)


def midpoints(quantiles: int) -> np.ndarray:
    """float32 [Q]: the fractions of quantile regression."""
    return (np.arange(quantiles, dtype=np.float32) + np.float32(0.5)) / np.float32(quantiles)


def of_action(said: jax.Array, action: jax.Array) -> jax.Array:
    """float32 [Z]: one column of [Z, A]. As a product, because a gather's gradient is a scatter."""
    return jnp.sum(said * jax.nn.one_hot(action, said.shape[-1])[None, :], axis=-1)


def clip(gradient: Params, largest: float) -> Params:
    """Scale a gradient to norm `largest` if it is longer; the 1e-6 is PyTorch's (Optax has none)."""
    if largest == float("inf"):
        return gradient
    norm = optax.tree.norm(gradient)
    scale = jnp.minimum(1.0, largest / (norm + 1e-6))
    return jax.tree.map(lambda g: g * scale, gradient)
