"""Envs of an Atari game inside an XLA program: ale-py's emulators as foreign function calls.

The emulators stay on the host; the program carries only their address. On a GPU the device waits while they run, so
where speed matters, step `AtariEnvs` on the host while the device learns.

Shapes: N envs.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp

from xladder.core.packages import is_installed, missing_extra
from xladder.worlds.atari_host import Options, emulator_spec, fire_button, frames_before, open_emulator, options
from xladder.worlds.envs import EnvSpec, Step, env_seeds


class AtariState(NamedTuple):
    """A handle to the emulators. It orders the calls; the emulators' states are not in it."""

    handle: jax.Array  # uint8 [8]: an address in this process
    before: jax.Array  # int32 [N]: frames of earlier episodes
    lives: jax.Array  # int32 [N]
    lost: jax.Array  # bool [N]: whether the last step cost a life


class AtariXla:
    """N envs of a game for `jit`, `scan` and `fori_loop`; hashed by identity.

    The same episodes as `AtariEnvs` with the same seed and actions. Keys are ignored: the emulators have their own
    random numbers, from `seed`. There is only one set of emulators, whatever happens to the state: `reset` resets them
    for every state, an old state cannot be restored, and envs cannot be vmapped (for several seeds, make one object
    each).
    """

    def __init__(self, game: str, num_envs: int, seed: int, **options: Unpack[Options]):
        self.num_envs, self._fire = num_envs, fire_button(game, options)
        self._emulator: Any = open_emulator(game, num_envs, **options)
        if not is_installed("chex"):  # all that its XLA interface needs besides
            raise missing_extra("chex", "atari")
        self._handle, self._reset, self._step = self._emulator.xla()
        self._seeds = env_seeds(seed, num_envs)
        self._view = emulator_spec(self._emulator)

    @property
    def spec(self) -> EnvSpec:
        """Shape of the frames and number of actions."""
        return self._view

    def reset(self, keys: Any) -> tuple[AtariState, jax.Array]:
        """Reset all envs. Returns the state and the first frames [N, 84, 84]; keys are ignored."""
        handle, (stacks, info) = self._reset(self._handle, seed=self._seeds)
        lives = info["lives"]
        return AtariState(handle, frames_before(info), lives, jnp.zeros(lives.shape, bool)), stacks[:, 0]

    def force(self, state: AtariState, actions: jax.Array) -> jax.Array:
        """int32 [N]: the actions that will be taken: fire after a lost life, where the settings say so."""
        return actions if self._fire is None else jnp.where(state.lost, self._fire, actions)

    def step(self, keys: Any, state: AtariState, actions: jax.Array) -> tuple[AtariState, Step]:
        """Step every env; actions int32 [N]; keys are ignored."""
        handle, (stacks, rewards, terminated, truncated, info) = self._step(state.handle, actions.astype(jnp.int32))
        before = frames_before(info)
        cut = truncated & ~terminated
        is_first, lives = before != state.before, info["lives"]
        step = Step(stacks[:, 0], rewards.astype(jnp.float32), terminated, cut, is_first)
        return AtariState(handle, before, lives, (lives < state.lives) & ~is_first), step

    def close(self) -> None:
        """Stop the emulators' threads. Programs that step these envs must not run afterwards."""
        self._emulator = self._reset = self._step = None


def inside(world: Any, seed: int) -> AtariXla:
    """The envs of a configured game, for use inside a program."""
    return AtariXla(world.name, world.num_envs, seed, **options(world))
