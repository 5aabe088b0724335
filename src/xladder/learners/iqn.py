"""IQN as in the treasure hunt: the value learner with double Q, dueling noisy layers, soft and hard target updates.

The torso is one layer on encoded codes; the head multiplies its features with embedded fractions. This file adds what
is specific to these agents: ε that decays with the epochs, a replay memory that is sampled without replacement, and
fractions that are embedded for a whole epoch at once.

Shapes: B batch, C memory, F frames, V cells, Q quantiles, H width, A actions, T turns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from xladder.core.data_parallel import SINGLE, DataParallel
from xladder.core.encoding import Encoding
from xladder.core.types import Array, Params
from xladder.learners.value import ValueLearner
from xladder.nets.codes import CodesTorso, multiply
from xladder.nets.heads import Head
from xladder.nets.value import ValueNet
from xladder.replay import frames
from xladder.replay.batch import Batch

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import LearnerConfig


class Hyperparams(NamedTuple):
    """Hyperparameters that may be swept: traced, so that a sweep is a `vmap`."""

    lr: jax.Array  # float32 []
    gamma: jax.Array  # float32 []
    tau: jax.Array  # float32 []
    clip: jax.Array  # float32 []
    epsilon: jax.Array  # float32 []: at the start
    epsilon_decay: jax.Array  # float32 []
    epsilon_min: jax.Array  # float32 []


class Agent(NamedTuple):
    """One agent: parameters, target network, optimiser state, ε and hyperparameters."""

    params: Params
    target: Params
    opt_state: optax.OptState
    epsilon: jax.Array  # float32 []
    hyperparams: Hyperparams


class ActDraws(NamedTuple):
    """The random numbers of T action selections."""

    explore: Array  # float32 [T], compared with epsilon
    action: Array  # int8 [T], taken when exploring
    taus: Array  # float32 [T, Q]


class UpdateDraws(NamedTuple):
    """The random numbers of one update; `taus` and `noise` as in `value.Draws`."""

    scores: jax.Array  # float32 [C], one per slot of the memory; the highest are sampled
    taus: jax.Array  # float32 [3, B, Q]
    noise: jax.Array  # float32 [3, noise_size]


@dataclass(frozen=True)
class IQNLearner:
    """An IQN agent as pure functions, bound to its settings.

    With `align` > 1 the hidden layers are padded to the next multiple of it, with zero weights and zero noise. The
    padding stays zero under every update, so it is the same learner, but a GPU multiplies matrices of 256 columns
    faster than of 250. `narrow` removes the padding.
    """

    config: LearnerConfig
    actions: int
    encoding: Encoding
    align: int = 1
    data_parallel: DataParallel = SINGLE

    @property
    def cells(self) -> int:
        """Number of codes in a view, V."""
        return self.encoding.num_cells

    @property
    def value(self) -> ValueLearner:
        """The learner with padded layers, as computed."""
        return self._value(-(-self.config.width // self.align) * self.align)

    @property
    def plain(self) -> ValueLearner:
        """The learner without padding."""
        return self._value(self.config.width)

    @property
    def net(self) -> ValueNet:
        """The network with padded layers, as computed."""
        return self.value.net

    def _value(self, width: int) -> ValueLearner:
        torso = CodesTorso(width, self.encoding, jnp.dtype(self.config.precision))
        net = ValueNet(torso, iqn_head(self.config, self.actions, width))
        return ValueLearner(self.config, net, self.data_parallel)

    def _shapes(self, net: ValueNet) -> Params:
        codes = jnp.zeros((self.config.n_frames, self.cells), jnp.int8)
        return jax.eval_shape(net.init, jax.random.key(0), codes, jnp.zeros((1,), jnp.float32))["params"]

    def narrow(self, params: Params) -> Params:
        """Parameters without padding; leaves may have leading axes."""
        return fit(params, self._shapes(self.plain.net))

    def widen(self, params: Params) -> Params:
        """The inverse of `narrow`: parameters with padding; leaves may have leading axes."""
        return fit(params, self._shapes(self.net))

    def init(self, key: jax.Array) -> Agent:
        """A freshly initialised agent."""
        c = self.config
        codes = jnp.zeros((c.n_frames, self.cells), jnp.int8)
        plain = self.plain.net.init(key, codes, jnp.zeros((1,), jnp.float32))["params"]
        hyperparams = self.hyperparams()
        fresh = self.value.init(fit(plain, self._shapes(self.net)), hyperparams)
        return Agent(fresh.params, fresh.target, fresh.opt_state, jnp.float32(c.epsilon), hyperparams)

    def hyperparams(self) -> Hyperparams:
        """The hyperparameters in the settings."""
        return Hyperparams(*(jnp.float32(getattr(self.config, name)) for name in Hyperparams._fields))

    def draw_act(self, key: jax.Array, turns: int) -> ActDraws:
        """The random numbers for `turns` consecutive actions."""
        uniforms = jax.random.uniform(key, (turns, 2 + self.config.act_quantiles))
        action = (uniforms[:, 1] * self.actions).astype(jnp.int8)
        return ActDraws(uniforms[:, 0], action, uniforms[:, 2:])

    def draw_update(self, sample_key: jax.Array, noise_key: jax.Array) -> UpdateDraws:
        """The random numbers for one update."""
        c = self.config
        size = 3 * c.batch_size * c.quantiles
        uniforms = jax.random.uniform(sample_key, (size + c.memory,))
        taus = uniforms[:size].reshape(3, c.batch_size, c.quantiles)
        noise = jax.random.normal(noise_key, (3, self.plain.noise_size))
        return UpdateDraws(uniforms[size:], taus, noise)

    def embed(self, params: Params, taus: jax.Array) -> jax.Array:
        """float32 […, Q, H] from fractions […, Q]; independent of states, so computed for many turns at once."""
        flat: Any = self.net.apply({"params": params}, taus.reshape(-1), method="embed")
        return flat.reshape(*taus.shape, self.net.head.features)

    def greedy(self, params: Params, codes: jax.Array, embedding: jax.Array) -> jax.Array:
        """int8 []: the greedy action in a state, int8 [F, V], given embedded fractions, float32 [Q, H]."""
        values: Any = self.net.apply({"params": params}, codes, embedding, method="mean_of_embedded")
        return jnp.argmax(values).astype(jnp.int8)

    def recall(self, params: Params, before: jax.Array) -> jax.Array:
        """float32 [H]: what the first layer makes of the frames before the present one, int8 [F − 1, V]."""
        layer = params["torso"]
        return multiply(before, layer["kernel"], self.encoding) + layer["bias"]

    def act(
        self,
        agent: Agent,
        recalled: jax.Array,
        view: jax.Array,
        explore: jax.Array,
        action: jax.Array,
        embedding: jax.Array,
    ) -> jax.Array:
        """int8 []: the random `action` with probability ε, else the greedy one for a view, int8 [V].

        `recalled` is known before the view is. So when agents act in turn, only the view's part of the first layer is
        left to compute in each agent's turn.
        """
        kernel = agent.params["torso"]["kernel"]
        features = nn.relu(recalled + multiply(view[None], kernel, self.encoding, self.config.n_frames - 1))
        values: Any = self.net.apply({"params": agent.params}, features, embedding, method="mean_of_features")
        return jnp.where(explore < agent.epsilon, action, jnp.argmax(values).astype(jnp.int8))

    def update(self, agent: Agent, batch: Batch, draws: UpdateDraws) -> tuple[Agent, jax.Array]:
        """One gradient step on a batch, then the soft update of the target. Also returns the loss."""
        noise = tuple(self.noise(draws.noise[i]) for i in range(3))
        return self.value.update_with(agent, batch, draws.taus, noise)[:2]

    def learn(
        self, cursor: frames.Cursor, agent: Agent, ring: frames.FrameRing, draws: UpdateDraws
    ) -> tuple[Agent, jax.Array]:
        """Sample a batch from the replay memory and update from it."""
        c = self.config
        starts = self.data_parallel.local(
            frames.sample_indices(cursor, draws.scores, c.batch_size, c.n_frames, c.n_step)
        )
        batch = frames.gather(cursor, ring, starts, agent.hyperparams.gamma, c.n_frames, c.n_step)
        return self.update(agent, batch, draws._replace(taus=self.data_parallel.local(draws.taus, axis=1)))

    def sync(self, agent: Agent, due: jax.Array) -> Agent:
        """Copy the online network into the target network, if it is due."""
        return self.value.sync(agent, due)

    def decay(self, agent: Agent) -> Agent:
        """Decay ε after an epoch."""
        epsilon = agent.epsilon * (1 - agent.hyperparams.epsilon_decay)
        return agent._replace(epsilon=jnp.maximum(epsilon, agent.hyperparams.epsilon_min))

    def noise(self, normals: jax.Array) -> Any:
        """The noise of the layers from float32 [noise_size]."""
        wide = self.value
        shapes = jax.eval_shape(lambda: wide.split_noise(jnp.zeros((wide.noise_size,), jnp.float32)))
        return fit(self.plain.split_noise(normals), shapes)


def iqn_head(config: LearnerConfig, actions: int, width: int) -> Head:
    """The head of these agents' networks: dueling streams that share a hidden layer, independent noise per weight."""
    return Head(
        actions=actions,
        features=width,
        width=width,
        cosines=config.cosines,
        dueling=True,
        apart=False,
        sigma=config.sigma,
        factorised=False,
        dtype=jnp.dtype(config.precision),
    )


def fit(tree: Params, shapes: Params) -> Params:
    """Truncate or zero-pad the last axes of every leaf to the given shapes."""

    def one(leaf: Array, like: Array) -> Array:
        lead = leaf.ndim - len(like.shape)
        leaf = leaf[(..., *(slice(size) for size in like.shape))]
        missing = [size - have for size, have in zip(like.shape, leaf.shape[lead:], strict=True)]
        return jnp.pad(leaf, [(0, 0)] * lead + [(0, more) for more in missing]) if any(missing) else leaf

    return jax.tree.map(one, tree, shapes)
