"""IQN as the treasure hunt uses it: double Q, dueling, noisy, a soft and a hard target update. One agent, pure JAX.

What an update or a choice of action needs at random is drawn by `draw_*` and passed in, so that the PyTorch twin can
be given the same numbers.

Shapes: B batch, C memory, F frames, V cells, Q quantiles, H width, A actions, T turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from xladder.core.types import Array, Params
from xladder.losses.quantile import quantile_huber
from xladder.nets.iqn import IQN, Noise, noise_size, split_noise
from xladder.replay import frames

if TYPE_CHECKING:
    from xladder.workloads.treasurehunt import LearnerConfig


class Knobs(NamedTuple):
    """What one may want to sweep: traced, so that a sweep is a `vmap`."""

    lr: jax.Array  # float32 []
    gamma: jax.Array  # float32 []
    epsilon_decay: jax.Array  # float32 []
    epsilon_min: jax.Array  # float32 []


class Agent(NamedTuple):
    """All that one agent has learned."""

    params: Params
    target: Params
    moments: optax.OptState
    epsilon: jax.Array  # float32 []
    knobs: Knobs


class ActDraws(NamedTuple):
    """What T choices of action draw."""

    explore: Array  # float32 [T], compared with epsilon
    action: Array  # int8 [T], taken when exploring
    taus: Array  # float32 [T, Q]


class UpdateDraws(NamedTuple):
    """What one update draws. The three passes are: next state online, next state target, state online."""

    scores: jax.Array  # float32 [C], one per slot of the memory; the highest are sampled
    taus: jax.Array  # float32 [3, B, Q]
    noise: jax.Array  # float32 [3, noise_size]


@dataclass(frozen=True)
class IQNLearner:
    """The verbs of one IQN agent, with what does not change bound once.

    With `align` > 1 the hidden layers are kept at the next multiple of it, the units beyond `width` having zero
    weights and zero noise. They stay zero under every update, so it is the same learner, but a GPU multiplies
    matrices of 256 columns faster than of 250. `narrow` takes them off again.
    """

    config: LearnerConfig
    actions: int
    num_codes: int
    cells: int
    align: int = 1

    @property
    def net(self) -> IQN:
        """The network as it is computed with."""
        return self._net(-(-self.config.width // self.align) * self.align)

    def _net(self, width: int) -> IQN:
        return IQN(self.actions, self.num_codes, width, self.config.cosines, self.config.sigma)

    def _shapes(self, net: IQN) -> Params:
        codes = jnp.zeros((self.config.n_frames, self.cells), jnp.int8)
        return jax.eval_shape(net.init, jax.random.key(0), codes, jnp.zeros((1,), jnp.float32))["params"]

    def narrow(self, params: Params) -> Params:
        """Parameters as they are without alignment; leaves may have leading axes."""
        return fit(params, self._shapes(self._net(self.config.width)))

    def init(self, key: jax.Array) -> Agent:
        """An agent that knows nothing."""
        c = self.config
        codes = jnp.zeros((c.n_frames, self.cells), jnp.int8)
        plain = self._net(c.width).init(key, codes, jnp.zeros((1,), jnp.float32))["params"]
        params = fit(plain, self._shapes(self.net))
        knobs = Knobs(*(jnp.float32(x) for x in (c.lr, c.gamma, c.epsilon_decay, c.epsilon_min)))
        # The target is a copy, not an alias: a donated state must not hold one buffer twice.
        target = jax.tree.map(jnp.copy, params)
        return Agent(params, target, self._adam().init(params), jnp.float32(c.epsilon), knobs)

    def draw_act(self, key: jax.Array, turns: int) -> ActDraws:
        """The draws for `turns` actions in a row."""
        uniforms = jax.random.uniform(key, (turns, 2 + self.config.act_quantiles))
        action = (uniforms[:, 1] * self.actions).astype(jnp.int8)
        return ActDraws(uniforms[:, 0], action, uniforms[:, 2:])

    def draw_update(self, sample_key: jax.Array, noise_key: jax.Array) -> UpdateDraws:
        """The draws for one update."""
        c = self.config
        size = 3 * c.batch_size * c.quantiles
        uniforms = jax.random.uniform(sample_key, (size + c.memory,))
        taus = uniforms[:size].reshape(3, c.batch_size, c.quantiles)
        noise = jax.random.normal(noise_key, (3, noise_size(c.width, self.actions)))
        return UpdateDraws(uniforms[size:], taus, noise)

    def embed(self, params: Params, taus: jax.Array) -> jax.Array:
        """float32 […, Q, H] from fractions […, Q]: known before the states are, so done for many turns at once."""
        flat: Any = self.net.apply({"params": params}, taus.reshape(-1), method="embed")
        return flat.reshape(*taus.shape, self.net.width)

    def greedy(self, params: Params, codes: jax.Array, embedding: jax.Array) -> jax.Array:
        """int8 []: the best action in a state, int8 [F, V], given embedded fractions, float32 [Q, H]."""
        values: Any = self.net.apply({"params": params}, codes, embedding, method="embedded_mean")
        return jnp.argmax(values).astype(jnp.int8)

    def act(
        self, agent: Agent, codes: jax.Array, explore: jax.Array, action: jax.Array, embedding: jax.Array
    ) -> jax.Array:
        """int8 []: the random `action` with probability epsilon, else the greedy one."""
        return jnp.where(explore < agent.epsilon, action, self.greedy(agent.params, codes, embedding))

    def loss(
        self,
        params: Params,
        target: Params,
        batch: frames.Batch,
        taus: jax.Array,
        noise: tuple[Noise, Noise, Noise],
    ) -> jax.Array:
        """float32 []: mean over the batch of the quantile loss against the double-Q target."""

        net = self.net.apply
        online: Any = net({"params": params}, batch.next_states, taus[0], noise[0])  # [B, Q, A]
        quantiles: Any = net({"params": target}, batch.next_states, taus[1], noise[1])
        prediction: Any = net({"params": params}, batch.states, taus[2], noise[2])

        def one(step: frames.Batch, online: Any, quantiles: Any, prediction: Any, taus: jax.Array) -> jax.Array:
            best = jnp.argmax(online.mean(0))
            aim = step.returns + step.discounts * of_action(quantiles, best)
            taken = of_action(prediction, step.actions)
            return quantile_huber(taken, taus, aim, self.config.kappa) * step.valid

        return jnp.mean(jax.vmap(one)(batch, online, quantiles, prediction, taus[2]))

    def update(self, agent: Agent, batch: frames.Batch, draws: UpdateDraws) -> tuple[Agent, jax.Array]:
        """One gradient step on a batch, then the soft update of the target. Returns the loss too."""
        noise = tuple(self._noise(draws.noise[i]) for i in range(3))
        loss, gradient = jax.value_and_grad(self.loss)(agent.params, agent.target, batch, draws.taus, noise)
        gradient = clip(gradient, self.config.clip)
        steps, moments = self._adam().update(gradient, agent.moments)
        params = jax.tree.map(lambda p, step: p - agent.knobs.lr * step, agent.params, steps)
        soft = jnp.float32(self.config.soft)
        target = jax.tree.map(lambda t, p: t + soft * (p - t), agent.target, params)
        return agent._replace(params=params, target=target, moments=moments), loss

    def study(
        self, cursor: frames.Cursor, agent: Agent, ring: frames.Ring, draws: UpdateDraws
    ) -> tuple[Agent, jax.Array]:
        """Draw a batch from the memory and learn from it."""
        c = self.config
        starts = frames.choose(cursor, draws.scores, c.batch_size, c.n_frames, c.n_step)
        batch = frames.cut(cursor, ring, starts, agent.knobs.gamma, c.n_frames, c.n_step)
        return self.update(agent, batch, draws)

    def sync(self, agent: Agent, due: jax.Array) -> Agent:
        """The hard update, if it is due: the target becomes the online network."""
        target = jax.lax.cond(due, lambda: agent.params, lambda: agent.target)
        return agent._replace(target=target)

    def decay(self, agent: Agent) -> Agent:
        """Epsilon after an epoch."""
        epsilon = agent.epsilon * (1 - agent.knobs.epsilon_decay)
        return agent._replace(epsilon=jnp.maximum(epsilon, agent.knobs.epsilon_min))

    def _noise(self, normals: jax.Array) -> Noise:
        wide = self.net.width
        size = noise_size(wide, self.actions)
        shapes = jax.eval_shape(lambda: split_noise(jnp.zeros((size,), jnp.float32), wide, self.actions))
        return fit(split_noise(normals, self.config.width, self.actions), shapes)

    def _adam(self) -> optax.GradientTransformation:
        return optax.scale_by_adam(eps=1e-8)


def fit(tree: Params, shapes: Params) -> Params:
    """Every leaf's last axes cut or filled with zeros to the shape given for it."""

    def one(leaf: Array, like: Array) -> Array:
        lead = leaf.ndim - len(like.shape)
        leaf = leaf[(..., *(slice(size) for size in like.shape))]
        missing = [size - have for size, have in zip(like.shape, leaf.shape[lead:], strict=True)]
        return jnp.pad(leaf, [(0, 0)] * lead + [(0, more) for more in missing]) if any(missing) else leaf

    return jax.tree.map(one, tree, shapes)


def of_action(quantiles: jax.Array, action: jax.Array) -> jax.Array:
    """float32 [Q]: one column of [Q, A]. As a product, because a gather's gradient is a scatter."""
    return jnp.sum(quantiles * jax.nn.one_hot(action, quantiles.shape[-1])[None, :], axis=-1)


def clip(gradient: Params, largest: float) -> Params:
    """Scale a gradient to norm `largest` if it is longer; the 1e-6 is PyTorch's (Optax has none)."""
    norm = optax.tree.norm(gradient)
    scale = jnp.minimum(1.0, largest / (norm + 1e-6))
    return jax.tree.map(lambda g: g * scale, gradient)
