"""A JAX world in which objects are built step by step, on the host, for rungs that step it from Python.

Shapes: D numbers in a state, A forward actions, the last of which is stop; B states in a batch.
"""

from __future__ import annotations

import jax
import numpy as np

from xladder.worlds.flow import BoundWorld


class JittedHost:
    """A JAX world on the host: jitted calls on NumPy arrays. Batch sizes are rounded up, so few sizes are compiled."""

    LEAST = 64

    def __init__(self, world: BoundWorld):
        self.state_size, self.num_actions = world.state_size, world.num_actions
        self.max_steps, self.num_inputs = world.max_steps, world.num_inputs
        steps = "forward_mask", "backward_mask", "forward", "backward"
        methods = (*steps, "encode", "log_reward", "log_terms", "near_modes")
        self._methods = {method: jax.jit(jax.vmap(getattr(world, method))) for method in methods}
        self._device = jax.local_devices(backend="cpu")[0]
        with jax.ensure_compile_time_eval():
            self._initial = np.asarray(world.initial())

    def initial(self, count: int) -> np.ndarray:
        """int64 [count, D]: initial states."""
        return np.repeat(self._initial[None].astype(np.int64), count, axis=0)

    def forward_mask(self, states: np.ndarray) -> np.ndarray:
        """bool [B, A]: which forward actions are allowed."""
        return self.call("forward_mask", states)

    def backward_mask(self, states: np.ndarray) -> np.ndarray:
        """bool [B, A − 1]: which actions may have led here."""
        return self.call("backward_mask", states)

    def forward(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """int64 [B, D]: the states after actions [B]; stop does not change a state."""
        return self.call("forward", states, actions).astype(np.int64)

    def backward(self, states: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """int64 [B, D]: the states before actions [B]."""
        return self.call("backward", states, actions).astype(np.int64)

    def encode(self, states: np.ndarray) -> np.ndarray:
        """float32 [B, F], or int64 [B, K]: the indices of the active one-hot inputs."""
        seen = self.call("encode", states)
        return seen.astype(np.int64) if seen.dtype.kind == "i" else seen

    def log_reward(self, states: np.ndarray) -> np.ndarray:
        """float32 [B]: the log-rewards."""
        return self.call("log_reward", states)

    def log_terms(self, states: np.ndarray) -> np.ndarray:
        """float32 [B, K]: the logarithms of the rewards that can be weighted."""
        return self.call("log_terms", states)

    def near_modes(self, states: np.ndarray) -> np.ndarray:
        """bool [B, M]: for which modes of the world objects count."""
        return self.call("near_modes", states)

    def call(self, method: str, *given: np.ndarray) -> np.ndarray:
        """Call a method of the world for a batch."""
        count = len(given[0])
        room = max(self.LEAST, 1 << (count - 1).bit_length()) if count else self.LEAST
        first = np.zeros((room - count, *given[0].shape[1:]), np.int32) + self._initial
        rest = [np.zeros((room - count, *array.shape[1:]), np.int32) for array in given[1:]]
        padded = [np.concatenate([a, more]).astype(np.int32) for a, more in zip(given, [first, *rest], strict=True)]
        with jax.default_device(self._device):
            return np.array(self._methods[method](*padded))[:count]  # a writable copy
