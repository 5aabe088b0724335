"""Copies of a gymnax world, as pure functions and called from the host.

gymnax resets a world in the step that ends it. Here its single steps and resets are put together anew, so that the
last frame of a game is seen, and the next step begins another (see `copies.py`). What gymnax calls its time limit is a
truncation, whatever else ends a game a termination.

Shapes: N copies, D numbers in a vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core.keys import Stream, reset_keys, root, step_keys
from xladder.core.state import Stateful
from xladder.core.types import Compiled
from xladder.errors import missing_extra
from xladder.worlds.copies import Step, View
from xladder.worlds.names import GYMNAX, find_gymnax


class GymnaxState(NamedTuple):
    """Where N copies stand."""

    world: Any  # gymnax's own state, leaves [N, …]
    over: jax.Array  # bool [N]: the game is over, and the next step begins another


@dataclass(frozen=True)
class GymnaxCopies:
    """N copies of the world with this name, or with this id of gymnax's. See `copies.Copies`."""

    name: str
    num_envs: int

    def __post_init__(self):
        object.__setattr__(self, "name", find_gymnax(self.name).name)  # so that equal worlds are equal, and hash so

    @property
    def view(self) -> View:
        """What its frames look like, and how many actions there are."""
        world = GYMNAX[self.name]
        return View(world.shape, np.dtype(world.dtype), world.actions)

    def reset(self, keys: jax.Array) -> tuple[GymnaxState, jax.Array]:
        """State and first frames [N, *shape], from keys [N]."""
        world, frames = jax.vmap(self._reset_one)(keys)
        return GymnaxState(world, jnp.zeros((self.num_envs,), bool)), frames

    def step(self, keys: jax.Array, state: GymnaxState, actions: jax.Array) -> tuple[GymnaxState, Step]:
        """One step of every copy; actions int32 [N], keys [N]."""
        return jax.vmap(self._step_one)(keys, state, actions)

    def _reset_one(self, key: jax.Array) -> tuple[Any, jax.Array]:
        environment, params = _make(GYMNAX[self.name].id)
        with jax.numpy_dtype_promotion("standard"):
            observation, world = environment.reset_env(key, params)
        return _settle(world), self._frame(observation)

    def _step_one(self, key: jax.Array, state: GymnaxState, action: jax.Array) -> tuple[GymnaxState, Step]:
        environment, params = _make(GYMNAX[self.name].id)
        with jax.numpy_dtype_promotion("standard"):
            observation, moved, reward, terminated, _ = environment.step_env(key, state.world, action, params)
            truncated = environment.is_truncated(moved, params) & ~terminated
        fresh, first_frame = self._reset_one(jax.random.fold_in(key, int(Stream.RESET)))
        first = state.over
        world = jax.tree.map(lambda new, old: jnp.where(first, new, old), fresh, _settle(moved))
        step = Step(
            frame=jnp.where(first, first_frame, self._frame(observation)),
            reward=jnp.where(first, 0.0, reward.astype(jnp.float32)),
            terminated=terminated & ~first,
            truncated=truncated & ~first,
            first=first,
        )
        return GymnaxState(world, step.terminated | step.truncated), step

    def _frame(self, observation: jax.Array) -> jax.Array:
        """An observation as it is remembered: an index becomes one-hot, a small board a vector."""
        view = self.view
        if observation.ndim == 0:
            return jax.nn.one_hot(observation, *view.shape, dtype=view.dtype)
        return observation.reshape(view.shape).astype(view.dtype)


class HostGymnax(Stateful):
    """The same copies, called from the host step by step; see `copies.HostCopies`.

    Draws from `reset_keys` and `step_keys`, so a program that does the same sees the same games, as far as the compiler
    rounds alike in both. `seed` may also be the root key itself. Copies are counted from `first`, where others play
    those before.
    """

    STATE = ("_state", "_steps")

    def __init__(self, name: str, num_envs: int, seed: int | jax.Array, compiled: Compiled, first: int = 0):
        self.copies, self._first = GymnaxCopies(name, num_envs), np.int32(first)
        self.num_envs, self.view = num_envs, self.copies.view
        self._root = seed if isinstance(seed, jax.Array) else root(seed)
        self._reset = compiled(_reset)
        self._step = compiled(_step, donate=(4,))
        self._state: Any = None
        self._answer: Any = None
        self._steps = 0

    def reset(self) -> np.ndarray:
        """Begin anew: first frames [N, *shape]."""
        self._state, frames = self._reset(self.copies, self._root, self._first)
        self._steps = 0
        return np.asarray(frames)

    def send(self, actions: np.ndarray) -> None:
        """Begin a step of every copy; actions int [N]."""
        actions = np.asarray(actions, np.int32)
        given = self._root, self._first, np.int32(self._steps), self._state, actions
        self._state, self._answer = self._step(self.copies, *given)
        self._steps += 1

    def recv(self) -> Step:
        """Wait for what `send` began."""
        return jax.device_get(self._answer)

    def place(self) -> GymnaxState:
        """Where the copies stand, as a program would hold it."""
        state: GymnaxState = self._state
        return state

    def go_to(self, state: GymnaxState, steps: int) -> None:
        """Go on from there, after so many steps."""
        self._state, self._steps = jax.tree.map(jnp.array, state), steps

    def close(self) -> None:
        """Let go of the games."""
        self._state = self._answer = None


def _reset(copies: GymnaxCopies, run: jax.Array, first: jax.Array) -> tuple[GymnaxState, jax.Array]:
    return copies.reset(reset_keys(run, copies.num_envs, first))


def _step(
    copies: GymnaxCopies, run: jax.Array, first: jax.Array, step: jax.Array, state: GymnaxState, actions: jax.Array
) -> tuple[GymnaxState, Step]:
    return copies.step(step_keys(run, step, copies.num_envs, first), state, actions)


def _settle(world: Any) -> Any:
    """gymnax begins with Python numbers, whose types are weak: give leaves the types that they keep."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.result_type(leaf)), world)


@cache
def _make(gymnax_id: str) -> tuple[Any, Any]:
    """gymnax's world and its parameters."""
    try:
        import gymnax
    except ImportError as error:
        raise missing_extra("gymnax", "gymnax") from error
    # Its maps have to be arrays, even when a program is being traced; and it mixes types freely.
    with jax.ensure_compile_time_eval(), jax.numpy_dtype_promotion("standard"):
        return gymnax.make(gymnax_id)


def view(world: Any) -> View:
    """What the frames of a configured world look like, and how many actions there are."""
    return GymnaxCopies(world.name, 1).view


def inside(world: Any, seed: int) -> GymnaxCopies:
    """The copies of a configured world, for a program; the seed comes with the keys."""
    return GymnaxCopies(world.name, world.num_envs)


def on_host(world: Any, num_envs: int, seed: int, compiled: Compiled, first: int = 0) -> HostGymnax:
    """Copies of a configured world, to be stepped from the host."""
    return HostGymnax(world.name, num_envs, seed, compiled, first)
