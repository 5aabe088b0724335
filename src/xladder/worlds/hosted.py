"""Envs of a jittable world, called from the host step by step.

Shapes: N envs, A agents.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core.keys import reset_keys, root, step_keys
from xladder.core.state import Stateful
from xladder.core.types import Compiled
from xladder.worlds.envs import Envs, Step


class HostedEnvs(Stateful):
    """Jittable `Envs` with the interface of `HostEnvs`.

    Random numbers come from `reset_keys` and `step_keys`, so a program that uses the same keys gets the same episodes,
    up to differences in rounding between compiled programs.

    Args:
        envs: the envs.
        seed: seed of the run, or its root key.
        compiled: compiles a function.
        first: number of the first env, where other processes have those before it.
    """

    STATE = ("_state", "_steps")
    root: jax.Array
    """The root key of the envs' random numbers."""

    def __init__(self, envs: Envs, seed: int | jax.Array, compiled: Compiled, first: int = 0):
        self.envs, self._first = envs, np.int32(first)
        self.num_envs, self.spec = envs.num_envs, envs.spec
        self.root = seed if isinstance(seed, jax.Array) else root(seed)
        self._reset = compiled(_reset)
        self._step = compiled(_step, donate=(4,))
        self._state: Any = None
        self._answer: Any = None
        self._steps = 0

    def reset(self) -> np.ndarray:
        """Reset all envs; returns the first frames [N, *shape], or [A, N, *shape]."""
        self._state, frames = self._reset(self.envs, self.root, self._first)
        self._steps = 0
        return np.asarray(frames)

    def send(self, actions: np.ndarray) -> None:
        """Start a step of every env; actions int [N], or [A, N]."""
        actions = np.asarray(actions, np.int32)
        given = self.root, self._first, np.int32(self._steps), self._state, actions
        self._state, self._answer = self._step(self.envs, *given)
        self._steps += 1

    def recv(self) -> Step:
        """Wait for the step that `send` started."""
        return jax.device_get(self._answer)

    def place(self) -> Any:
        """The state of the envs, as in a program."""
        return self._state

    def go_to(self, state: Any, steps: int) -> None:
        """Continue from a state, after `steps` steps."""
        self._state, self._steps = jax.tree.map(jnp.array, state), steps

    def close(self) -> None:
        """Free the state of the envs."""
        self._state = self._answer = None


def _reset(envs: Envs, run: jax.Array, first: jax.Array) -> tuple[Any, jax.Array]:
    return envs.reset(reset_keys(run, envs.num_envs, first))


def _step(
    envs: Envs, run: jax.Array, first: jax.Array, step: jax.Array, state: Any, actions: jax.Array
) -> tuple[Any, Step]:
    return envs.step(step_keys(run, step, envs.num_envs, first), state, actions)
