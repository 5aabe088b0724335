"""The value learner: DQN and its successors, as a network with options. One agent, pure JAX.

The kind of head determines what the network's outputs mean, the target and the loss: see `losses/heads.py`. Double Q
(van Hasselt et al. 2016), n-step returns, priorities (Schaul et al. 2016), dueling and noisy layers and the Munchausen
bonus (Vieillard et al. 2020) work with any of them, except that the bonus needs values or quantiles.

A team of agents (`team`) has one value, the sum of its agents' values for their own actions, and learns from the team's
reward: VDN (Sunehag et al. 2018). Each agent takes its own best action, which maximises the sum.

Random numbers are drawn by `draw_*` and passed in, so that the PyTorch twin can be given the same ones.

Shapes: B batch, F frames, Q fractions, Z outputs per action, A actions. Those of a team have an axis G of agents:
actions [B, G], outputs [B, G, Z, A] and masks [B, G, A].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from xladder.core.data_parallel import SINGLE, DataParallel
from xladder.core.types import Array, Params
from xladder.learners.masks import mask_values, split_mask
from xladder.losses.heads import ReturnHead, make_head
from xladder.losses.heads import midpoints as midpoints
from xladder.losses.value import munchausen_bonus, soft_values
from xladder.nets.noisy import noise_size, split_noise
from xladder.nets.value import ValueNet
from xladder.replay.batch import Batch


class Hyperparams(NamedTuple):
    """Hyperparameters that may be swept: traced, so that a sweep is a `vmap`."""

    lr: jax.Array  # float32 [], like all others
    gamma: jax.Array
    tau: jax.Array
    clip: jax.Array
    epsilon: jax.Array
    epsilon_end: jax.Array
    explore_steps: jax.Array  # steps over which ε decays, or its half-life
    alpha: jax.Array
    beta: jax.Array
    munchausen_scale: jax.Array
    temperature: jax.Array

    @classmethod
    def of(cls, config: Any, explore_steps: float = 0.0) -> Hyperparams:
        """The hyperparameters in a learner's settings; those that it does not have are 0."""
        values = {name: getattr(config, name, 0.0) for name in cls._fields} | {"explore_steps": explore_steps}
        return cls(**{name: jnp.float32(value) for name, value in values.items()})


class Agent(NamedTuple):
    """One agent: parameters, target network, optimiser state and hyperparameters."""

    params: Params
    target: Params
    opt_state: optax.OptState
    hyperparams: Hyperparams


class Draws(NamedTuple):
    """The random numbers of one update, for three passes: choosing the next action, its value, the state itself."""

    taus: Array  # float32 [3, B, Q]; Q = 0 where the head needs none
    noise: Array  # float32 [3, noise_size]; empty where nothing is noisy


class Transitions(NamedTuple):
    """What the loss takes of a batch besides the network's outputs."""

    actions: Array  # int [B]
    returns: Array  # float32 [B]
    discounts: Array  # float32 [B]
    mask: Array | None  # bool [B, A]: the actions available in the states; None if all are
    next_mask: Array | None  # bool [B, A]: in the next states


class Passes(NamedTuple):
    """A network's outputs float32 [B, Z, A], as functions of fractions [B, Q] and noise."""

    now: Callable[..., jax.Array]  # in the states
    next: Callable[..., jax.Array]  # in the next states


@dataclass(frozen=True)
class ValueLearner:
    """A value learner as pure functions, bound to its settings.

    `config` has the fields of `families.value.config.LearnerConfig`, of which a workload may fix some.
    """

    config: Any
    net: ValueNet
    data_parallel: DataParallel = SINGLE
    """How a batch is sharded over devices; batch sizes here are those of this device."""
    masked: int = 0
    """How many axes a frame has, if it says which actions are available (see `masks.py`); 0 if it does not."""
    team: int = 0
    """How many agents share the value that is learned; 0 for a single agent."""

    def init(self, params: Params, hyperparams: Any) -> Agent:
        """An agent with these parameters."""
        # The target is a copy, not an alias: a donated state must not hold one buffer twice.
        return Agent(params, jax.tree.map(jnp.copy, params), self.optimiser().init(params), hyperparams)

    @property
    def head(self) -> ReturnHead:
        """What the network's outputs mean."""
        return make_head(self.config)

    @property
    def fractions(self) -> int:
        """Quantile fractions per state that an update samples."""
        return self.head.fractions

    @property
    def noise_size(self) -> int:
        """Standard normal numbers per draw of noise."""
        return noise_size(self.net.head.noise_shapes(), self.net.head.factorised)

    def split_noise(self, normals: jax.Array) -> Any:
        """Split normals […, noise_size] into the layers' noise; None for a network without noise."""
        shapes = self.net.head.noise_shapes()
        return split_noise(normals, shapes, self.net.head.factorised) if shapes else None

    def draw_update(self, sample_key: jax.Array, noise_key: jax.Array) -> Draws:
        """The random numbers for one update."""
        taus = jax.random.uniform(sample_key, (3, self.config.batch_size, self.fractions))
        return Draws(taus, jax.random.normal(noise_key, (3, self.noise_size)))

    def split_mask(self, states: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        """The network's input states, and which actions are available, bool […, A]; None if all are."""
        return split_mask(states, self.net.head.actions, self.masked, self.team > 0) if self.masked else (states, None)

    def apply(self, params: Params, states: jax.Array, taus: jax.Array | None, noise: Any) -> jax.Array:
        """float32 […, Z, A]: the network's outputs for states, which may contain action masks."""
        seen, _ = self.split_mask(states)
        outputs: Any = self.net.apply({"params": params}, seen, taus if self.fractions else None, noise)
        return outputs

    def values(self, params: Params, states: jax.Array, taus: jax.Array | None, noise: Any) -> jax.Array:
        """float32 […, A]: the expected returns of all actions, masked if unavailable, for acting."""
        seen, mask = self.split_mask(states)
        if not self.fractions:
            return mask_values(self.head.expected(self.apply(params, states, None, noise)), mask)
        embedding = self.net.apply({"params": params}, taus, method="embed")
        mean: Any = self.net.apply({"params": params}, seen, embedding, noise, method="mean_of_embedded")
        return mask_values(mean, mask)

    def act(
        self, params: Params, states: jax.Array, hidden: Any, taus: jax.Array | None, noise: Any
    ) -> tuple[jax.Array, Any]:
        """`values`, and the hidden states after this step; without memory, `hidden` is empty."""
        return self.values(params, states, taus, noise), hidden

    def expected(self, outputs: jax.Array) -> jax.Array:
        """float32 […, A]: the expected returns from outputs […, Z, A]."""
        return self.head.expected(outputs)

    def losses(
        self,
        params: Params,
        target: Params,
        batch: Batch,
        taus: jax.Array,
        noise: tuple[Any, Any, Any],
        hyperparams: Any = None,
    ) -> tuple[jax.Array, jax.Array]:
        """float32 [B] each: the losses of the transitions, and their errors, which become priorities.

        The hyperparameters are those of the settings if not given.
        """
        c, head = self.config, self.head
        hyperparams = Hyperparams.of(c) if hyperparams is None else hyperparams
        online, old = self.passes(params, batch), self.passes(target, batch)
        next_target = old.next(taus[1], noise[1])  # [B, Z, A]
        next_choice = next_target  # what the next action is chosen by
        if c.double:
            next_choice = online.next(taus[0], noise[0])
        elif self.fractions and not c.munchausen:  # at fractions of its own (Dabney et al. 2018b, eq. 2)
            next_choice = old.next(taus[0], noise[1])
        now_target = old.now(taus[1], noise[1]) if c.munchausen else next_target
        prediction = online.now(taus[2], noise[2])

        def one(
            step: Transitions, next_target: Any, next_choice: Any, now_target: Any, prediction: Any, taus: Any
        ) -> tuple[jax.Array, jax.Array]:
            chosen, returns = self.mix(of_action(prediction, step.actions)), step.returns  # [Z], []
            if c.munchausen:
                next_q = mask_values(head.expected(next_target), step.next_mask)
                policy, log_policy = soft_values(next_q, hyperparams.temperature)
                next_outputs = jnp.sum(policy[None, :] * (next_target - log_policy[None, :]), axis=-1)
                now_q = mask_values(head.expected(now_target), step.mask)
                returns = returns + munchausen_bonus(
                    now_q, step.actions, hyperparams.temperature, c.munchausen_floor, hyperparams.munchausen_scale
                )
            else:
                best = jnp.argmax(mask_values(head.expected(next_choice), step.next_mask), axis=-1)
                next_outputs = self.mix(of_action(next_target, best))
            target_outputs = jax.lax.stop_gradient(head.target(returns, step.discounts, next_outputs))  # [Z]
            return head.loss(chosen, target_outputs, taus)

        return jax.vmap(one)(self.transitions(batch), next_target, next_choice, now_target, prediction, taus[2])

    def mix(self, outputs: jax.Array) -> jax.Array:
        """float32 [Z]: the outputs that are learned, from those of the chosen actions: a team's are summed."""
        return outputs.sum(0) if self.team else outputs

    def transitions(self, batch: Any) -> Transitions:
        """The transitions of a batch, leaves [B, …]."""
        masks = self.split_mask(batch.states)[1], self.split_mask(batch.next_states)[1]
        return Transitions(batch.actions, batch.returns, batch.discounts, *masks)

    def passes(self, params: Params, batch: Any) -> Passes:
        """A network's passes over the states and the next states of a batch."""
        return Passes(partial(self.apply, params, batch.states), partial(self.apply, params, batch.next_states))

    def loss(
        self,
        params: Params,
        target: Params,
        batch: Batch,
        taus: jax.Array,
        noise: tuple[Any, Any, Any],
        hyperparams: Any = None,
    ) -> tuple[jax.Array, jax.Array]:
        """The mean loss over the batch, weighted by `valid`, float32 [], and the errors, float32 [B]."""
        losses, errors = self.losses(params, target, batch, taus, noise, hyperparams)
        return jnp.mean(losses * batch.valid), errors

    def update(self, agent: Any, batch: Batch, draws: Draws) -> tuple[Any, jax.Array, jax.Array]:
        """One gradient step on a batch, then the soft target update. Also returns the loss and the errors [B]."""
        noise = tuple(self.split_noise(draws.noise[i]) for i in range(3))
        return self.update_with(agent, batch, draws.taus, noise)

    def update_with(
        self, agent: Any, batch: Batch, taus: jax.Array, noise: tuple[Any, ...]
    ) -> tuple[Any, jax.Array, jax.Array]:
        """`update` with noise that is already split."""
        differentiate, h = jax.value_and_grad(self.loss, has_aux=True), agent.hyperparams
        (loss, errors), gradient = differentiate(agent.params, agent.target, batch, taus, noise, h)
        loss, gradient = self.data_parallel.mean((loss, gradient))
        # Whether there is clipping and a soft target update is decided once; how much may differ from run to run.
        if self.config.clip != float("inf"):
            gradient = clip(gradient, h.clip)
        steps, opt_state = self.optimiser().update(gradient, agent.opt_state)
        params = jax.tree.map(lambda p, step: p - h.lr * step, agent.params, steps)
        target = agent.target
        if self.config.tau:
            target = jax.tree.map(lambda t, p: t + h.tau * (p - t), target, params)
        return agent._replace(params=params, target=target, opt_state=opt_state), loss, errors

    def sync(self, agent: Any, due: jax.Array) -> Any:
        """Copy the online network into the target network, if it is due."""
        target = jax.lax.cond(due, lambda: agent.params, lambda: agent.target)
        return agent._replace(target=target)

    def optimiser(self) -> optax.GradientTransformation:
        """The optimiser without the learning rate, which is a hyperparameter of the agent."""
        if self.config.optimiser == "rmsprop":  # centred, as in Mnih et al. 2015
            return optax.scale_by_stddev(decay=0.95, eps=self.config.optimiser_eps)
        if self.config.optimiser == "rmsprop_torch":
            return scale_by_stddev_outside(0.95, self.config.optimiser_eps)
        if self.config.optimiser == "radam":
            return optax.scale_by_radam(eps=self.config.optimiser_eps)
        return optax.scale_by_adam(eps=self.config.optimiser_eps)


def scale_by_stddev_outside(decay: float, eps: float) -> optax.GradientTransformation:
    """Centred RMSProp with ε outside the root, as in PyTorch.

    Optax's takes the root of a difference that rounding can make negative; here that is 0.
    """
    inside = optax.scale_by_stddev(decay=decay, eps=eps)

    def update(gradient: Params, state: Any, params: Any = None) -> tuple[Params, Any]:
        _, state = inside.update(gradient, state)
        spread = jax.tree.map(lambda m, n: jnp.sqrt(jnp.maximum(n - m * m, 0.0)) + eps, state.mu, state.nu)
        return jax.tree.map(lambda g, s: g / s, gradient, spread), state

    return optax.GradientTransformation(inside.init, update)


def of_action(outputs: jax.Array, action: jax.Array) -> jax.Array:
    """float32 […, Z]: one column of […, Z, A]. As a product, because a gather's gradient is a scatter."""
    return jnp.sum(outputs * jax.nn.one_hot(action, outputs.shape[-1])[..., None, :], axis=-1)


def clip(gradient: Params, largest: jax.Array) -> Params:
    """Clip a gradient to global norm `largest`; the 1e-6 is PyTorch's (Optax has none)."""
    norm = optax.tree.norm(gradient)
    scale = jnp.minimum(1.0, largest / (norm + 1e-6))
    return jax.tree.map(lambda g: g * scale, gradient)
