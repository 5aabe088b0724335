"""Models for sorrel's agents that learn in JAX: `JaxIQN` for `PyTorchIQN`, `JaxDQN` for `PyTorchDQN`.

They take the same arguments, start from the same weights, act by the same rule and save the same files. Python's and
NumPy's generators are used as sorrel uses them, for exploration and for batches; quantile fractions and noise have
streams of their own.
"""

from __future__ import annotations

import inspect
import os
import random
from collections import Counter
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from sorrel.buffers import Buffer
from sorrel.models.base_model import BaseModel
from sorrel.models.pytorch import PyTorchDQN, PyTorchIQN
from sorrel.models.pytorch.dqn import QNetwork
from sorrel.models.pytorch.iqn import IQN
from sorrel.models.threadsafe_base_model import ThreadsafeBaseModel
from sorrel.threadsafe.buffers import ThreadsafeBuffer

from xladder import bridge, devices, parameters
from xladder.errors import UsageError
from xladder.parameters import SORREL_NAMES
from xladder.replay.batch import Batch
from xladder.sorrel import files_torch
from xladder.sorrel.files_torch import SavedAgent
from xladder.sorrel.joint import Joint, leave, train, wait
from xladder.sorrel.learning import CLIP, Learned, Network, Rates, Row, Task, alone, host_params
from xladder.sorrel.policies import Policy, QuantilePolicy, ValuePolicy

_SEEN: Counter[int] = Counter()  # models by seed: those with the same one must not draw the same noise


class JaxModel(BaseModel):
    """What both kinds of models share: two networks, Adam, a replay memory, and an ε-greedy policy.

    Args:
        input_size: The shape of an observation.
        action_space: Number of actions.
        layer_size: Width of the hidden layers.
        epsilon: Probability of a random action.
        device: Where it learns: `cpu`, `cuda`, `cuda:1`, …, or a `torch.device`.
        seed: Determines the initial weights, which are those of sorrel's model, and the noise.
        n_frames: Observations that make a state.
        sync_freq: Epochs between hard updates of the target network.
        batch_size: Transitions per update.
        memory_size: Capacity of the replay memory.
        LR: Adam's learning rate.
        GAMMA: Discount.
        TAU: Of the soft target update; IQN only.
        n_quantiles: Quantiles per state; IQN only.
        n_step, model_update_freq: Not used, as in sorrel; IQN only.
    """

    kind: ClassVar[Literal["iqn", "dqn"]]
    original: ClassVar[type]
    """sorrel's model: arguments and defaults are read from it."""
    joins: ClassVar[bool] = True
    """Whether its updates may be computed together with those of other models."""
    layer_size: int
    device: Any
    seed: int
    n_frames: int
    sync_freq: int
    batch_size: int
    LR: float
    GAMMA: float
    TAU: float = 0.0
    n_quantiles: int = 0

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Show the arguments of sorrel's model in help and in editors."""
        super().__init_subclass__(**kwargs)
        cls.__signature__ = inspect.signature(cls.original)

    def __init__(self, *args: Any, **kwargs: Any):
        given = inspect.signature(self.original).bind(*args, **kwargs)
        given.apply_defaults()
        for name, value in given.arguments.items():
            setattr(self, name, value)
        inputs = (int(np.prod(self.input_size)),)
        self.memory: Buffer = self._make_memory(given.arguments["memory_size"], inputs, self.n_frames)
        self.jax_device = find_device(self.device)
        # The same weights as sorrel's model of this seed: they are drawn by sorrel's own network.
        self._learned: Learned | Row = self._place(bridge.to_jax(self.kind, self._initial_network().state_dict()))
        self._policy: Policy | None = None
        self._updates = 0
        entropy = np.random.SeedSequence([int(self.seed) % 2**64, _SEEN[self.seed]])
        _SEEN[self.seed] += 1
        self._key = jax.random.wrap_key_data(jax.device_put(entropy.generate_state(2), self.jax_device))
        self._generator = np.random.Generator(np.random.SFC64(entropy.spawn(1)[0]))
        self.joint = Joint()

    def _make_memory(self, capacity: int, obs_shape: tuple[int, ...], n_frames: int) -> Buffer:
        return Buffer(capacity=capacity, obs_shape=obs_shape, n_frames=n_frames)

    def _initial_network(self) -> Any:
        """sorrel's network, freshly initialised."""
        raise NotImplementedError

    def _make_policy(self, params: Any) -> Policy:
        """A network as a function in NumPy."""
        raise NotImplementedError

    def _place(self, params: Any) -> Learned:
        with jax.default_device(self.jax_device):
            return self.network.fresh(params)

    def __str__(self) -> str:
        inputs = int(np.prod(self.input_size)) * self.n_frames
        return f"{type(self).__name__}(input_size={inputs},action_space={self.action_space})"

    @property
    def network(self) -> Network:
        """The sizes of its networks and batches."""
        return Network(
            self.kind,
            int(np.prod(self.input_size)) * self.n_frames,
            self.action_space,
            self.layer_size,
            self.batch_size,
            self.n_quantiles,
        )

    # State. Every change of it goes through `state`, so that nothing that was computed from an older one survives.

    @property
    def learned(self) -> Learned:
        """Parameters, target and optimiser state, on the model's device."""
        return alone(self._learned)

    @learned.setter
    def learned(self, state: Learned | Row) -> None:
        leave(self)
        self._learned, self._policy = state, None

    @property
    def held(self) -> Learned | Row:
        """The same as it is held: by itself, or stacked with those of others."""
        return self._learned

    @property
    def policy(self) -> Policy:
        """The online network, as a function in NumPy. It never changes, because an update makes a new one."""
        if self._policy is None:
            self._policy = self._make_policy(host_params(self._learned))
        return self._policy

    # Acting.

    def take_action(self, state: np.ndarray) -> int:
        """An action for a state, [1, inputs]: random with probability ε, else greedy."""
        if self.joint.pending:
            leave(self)  # it goes on playing, so what was computed for this epoch's end came too early
        return self.random_action() if self.explores() else self.policy.greedy(state)

    def take_action_from_policy(self, state: np.ndarray, policy: Policy) -> int:
        """An action for a state, [1, inputs]: random with probability ε, else greedy by the given policy."""
        return self.random_action() if self.explores() else policy.greedy(state)

    def explores(self) -> bool:
        """Draw whether the next action is random."""
        return random.random() <= self.epsilon  # noqa: S311 - sorrel's generator, not a secret

    def random_action(self) -> int:
        """A uniformly random action."""
        return random.choices(range(self.action_space))[0]  # noqa: S311 - sorrel's generator, not a secret

    def draw_fractions(self) -> np.ndarray:
        """float32 [Q]: fractions for one state; none for a DQN."""
        return self._generator.random(self.n_quantiles, dtype=np.float32)

    # Learning.

    def train_step(self) -> np.ndarray:
        """Update from a batch of the replay memory; 0 if it does not hold one yet.

        If other models of these sizes have ended their epoch, too, their updates are computed in the same go, and
        their own `train_step` only returns what is already there. The result is the same.
        """
        return np.asarray(train(self))

    def can_train(self) -> bool:
        """Whether the memory holds enough for a batch."""
        return len(self.memory) >= self.batch_size + self.memory.n_frames + 1

    def next_task(self) -> Task:
        """The next update, with a batch that is drawn now."""
        states, actions, rewards, next_states, dones, valid = self.memory.sample(batch_size=self.batch_size)
        float32 = np.float32
        batch = Batch(
            states=np.asarray(states, float32),
            actions=actions[:, 0].astype(np.int32),
            returns=rewards[:, 0].astype(float32),
            discounts=(float32(self.GAMMA) * (1 - dones[:, 0])).astype(float32),
            next_states=np.asarray(next_states, float32),
            valid=valid[:, 0].astype(float32),
        )
        rates = Rates(float32(self.LR), float32(self.TAU), float32(CLIP))
        return Task(self._learned, rates, batch, self._key, self._updates)

    def finish(self, state: Learned | Row) -> None:
        """Take over the state after an update."""
        self.learned = state
        self._updates += 1

    def start_epoch_action(self, **kwargs: Any) -> None:
        """Begin an epoch: a gap in the memory, and the target synchronised every `sync_freq` epochs."""
        leave(self)
        self._add_gap()
        if kwargs["epoch"] % self.sync_freq == 0:
            now = self.learned
            self.learned = now._replace(target=jax.tree.map(jnp.copy, now.params))

    def _add_gap(self) -> None:
        self.memory.add_empty()

    def end_epoch_action(self, **kwargs: Any) -> None:
        """End an epoch: from now on the model may learn together with others."""
        leave(self)
        if self.joins:
            wait(self)

    # Files.

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        found = parameters.state_shapes(self.kind, self.learned.params)
        return {name: found[name] for name in SORREL_NAMES[self.kind]}

    def save(self, file_path: str | os.PathLike) -> None:
        """Write networks and optimiser to a file that sorrel's model of the same kind loads, too."""
        now = jax.device_get(self.learned)
        adam = now.opt_state
        saved = SavedAgent(now.params, now.target, adam.mu, adam.nu, int(adam.count), float(self.LR))
        files_torch.write(self.kind, os.fspath(file_path), saved)

    def load(self, file_path: str | os.PathLike) -> None:
        """Read networks and optimiser from a file that sorrel or `save` wrote. Nothing in it is executed."""
        found = files_torch.read(self.kind, os.fspath(file_path), self._shapes())
        adam = self.learned.opt_state._replace(count=np.int32(found.steps), mu=found.mu, nu=found.nu)
        self.learned = jax.device_put(Learned(found.params, found.target, adam), self.jax_device)
        self.LR = found.lr

    def _build_snapshot_locked(self) -> Policy:
        """A policy for `take_action_from_policy`, which later updates do not change."""
        return self.policy


class JaxIQN(JaxModel):
    """sorrel's IQN ("iRainbow") in JAX, with the arguments of `PyTorchIQN`: see `JaxModel`."""

    kind = "iqn"
    original = PyTorchIQN

    def _initial_network(self) -> IQN:
        return IQN(self.input_size, self.action_space, self.layer_size, self.seed, self.n_quantiles, self.n_frames)

    def _make_policy(self, params: Any) -> QuantilePolicy:
        return QuantilePolicy(params, self.n_quantiles, self._generator)


class JaxDQN(JaxModel):
    """sorrel's DQN in JAX, with the arguments of `PyTorchDQN`: see `JaxModel`."""

    kind = "dqn"
    original = PyTorchDQN

    def _initial_network(self) -> QNetwork:
        bridge.torch.manual_seed(self.seed)
        return QNetwork(self.input_size, self.action_space, self.layer_size, self.n_frames)

    def _make_policy(self, params: Any) -> ValuePolicy:
        return ValuePolicy(params)

    def _add_gap(self) -> None:
        if self.n_frames > 1:  # a gap of no frames would still count as one
            self.memory.add_empty()


class ThreadsafeJaxIQN(JaxIQN, ThreadsafeBaseModel):
    """`JaxIQN` for sorrel's threadsafe environments, in place of `ThreadsafePyTorchIQN`. It learns by itself."""

    joins = False

    def _make_memory(self, capacity: int, obs_shape: tuple[int, ...], n_frames: int) -> Buffer:
        return ThreadsafeBuffer(capacity=capacity, obs_shape=obs_shape, n_frames=n_frames)


def find_device(name: Any) -> Any:
    """The JAX device for a device as PyTorch names it: `cpu`, `cuda` or `cuda:1`."""
    platform, _, index = str(name).partition(":")
    if platform not in ("cpu", "cuda", "gpu") or not (index or "0").isdigit():
        raise UsageError(f"`device` is {name}, but it has to be `cpu`, `cuda` or `cuda:` and a number.")
    if platform == "cpu":
        return devices.find("cpu")
    devices.find("gpu")
    found = jax.local_devices(backend="gpu")
    if int(index or 0) >= len(found):
        raise UsageError(f"`device` is {name}, but JAX finds {len(found)} GPU here.")
    return found[int(index or 0)]
