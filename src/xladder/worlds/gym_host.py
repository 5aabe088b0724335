"""Envs of a Gymnasium environment on the host, stepped one after another in this process.

Actions have to be discrete, and observations arrays or dicts and tuples of them. Images (uint8) stay as they are,
anything else becomes a vector of float32.

Shapes: N envs, D numbers in a vector.
"""

from __future__ import annotations

import difflib
import math
from functools import cache
from typing import Any

import numpy as np

from xladder import user_code
from xladder.errors import UsageError, brief, missing_extra
from xladder.worlds.envs import EnvSpec, Step, env_seeds
from xladder.worlds.host_calls import call, tried
from xladder.worlds.spaces_host import as_fields, lay_flat, parts_of

MOST_PICTURE_AXES = 3  # height, width, channels


class GymEnvs:
    """N envs of the Gymnasium environment with this id, `CartPole-v1` or `gym/CartPole-v1`; see `envs.HostEnvs`.

    `module:ID` imports the module first, which may register a custom environment.
    """

    def __init__(self, env_id: str, num_envs: int, seed: int, first: int = 0):
        env_id = env_id.removeprefix("gym/")
        require(env_id)
        self.num_envs, self._id = num_envs, env_id
        self._envs: Any = _make(env_id, num_envs)
        try:
            self.spec = _spec(env_id, self._envs)
        except UsageError:
            self.close()
            raise
        self._parts = parts_of(self._envs.single_observation_space) if self.spec.fields else None
        self._lowest_action = int(self._envs.single_action_space.start)
        self._seeds = [int(env_seed) for env_seed in env_seeds(seed, num_envs, first=first)]
        self._over = np.zeros(num_envs, bool)
        self._actions: Any = None

    def reset(self) -> np.ndarray:
        """Reset all envs; returns the first frames [N, *shape]."""
        observations, _ = self._ask("reset", seed=self._seeds)
        self._over = np.zeros(self.num_envs, bool)
        return self._frames(observations)

    def send(self, actions: np.ndarray) -> None:
        """Set the next action of every env; actions int [N]."""
        self._actions = np.asarray(actions, np.int64) + self._lowest_action

    def recv(self) -> Step:
        """Step every env with the actions that `send` set."""
        observations, rewards, terminated, truncated, _ = self._ask("step", self._actions)
        is_first = self._over
        step = Step(
            self._frames(observations), rewards.astype(np.float32), terminated, truncated & ~terminated, is_first
        )
        self._over = step.terminated | step.truncated
        return step

    def close(self) -> None:
        """Close every env."""
        if self._envs is not None:
            self._envs.close()
        self._envs = None

    def _ask(self, method: str, *given: Any, **named: Any) -> Any:
        """Call a method of the environments; an exception is reported as theirs."""
        return call(f"gym/{self._id}", method, getattr(self._envs, method), *given, **named)

    def _frames(self, observations: Any) -> np.ndarray:
        if self._parts:
            return lay_flat(self._parts, observations, self.num_envs)
        return observations.reshape(self.num_envs, *self.spec.shape).astype(self.spec.dtype)


def require(env_id: str) -> None:
    """Raise a `UsageError` if there is no such environment; imports the module of `module:ID`."""
    if env_id.startswith("ALE/"):  # these would show raw screens, without the published preprocessing
        raise UsageError(f"Atari games have their own names here: use `atari/GAME` instead of `gym/{env_id}`.")
    module, colon, bare = env_id.rpartition(":")
    if not bare or (colon and not all(part.isidentifier() for part in module.split("."))):
        raise UsageError(f"`gym/{env_id}` does not name a world: it has to be `gym/ID` or `gym/module:ID`.")
    if module:  # Gymnasium would import whatever module is named
        user_code.require(module, f"gym/{env_id}")
    try:
        import gymnasium
        from gymnasium import error
    except ImportError as missing:
        raise missing_extra("gymnasium", "gym") from missing
    try:
        gymnasium.spec(bare)
    except error.UnregisteredEnv as reason:
        raise _explain(env_id, reason) from reason
    except error.Error:  # such as a version that is missing from the name, which `make` fills in
        pass


def _spec(env_id: str, envs: Any) -> EnvSpec:
    """The spec of an environment; raises a `UsageError` that says why if it cannot be used."""
    from gymnasium.spaces import Box, Dict, Discrete, Tuple

    actions, observations = envs.single_action_space, envs.single_observation_space
    if not isinstance(actions, Discrete):
        raise UsageError(
            f"`gym/{env_id}` has the actions {actions}, but value learners need discrete ones: "
            "use a world whose actions are `Discrete`, such as `gym/CartPole-v1`."
        )
    parts = parts_of(observations) if isinstance(observations, Dict | Tuple) else None
    if parts:
        size = sum(part.size for part in parts)
        return EnvSpec((size,), np.dtype(np.float32), int(actions.n), fields=as_fields(parts))
    if not isinstance(observations, Box):
        raise UsageError(
            f"`gym/{env_id}` shows {observations}, but networks need arrays: "
            "use a world whose observations are a `Box`, such as `gym/CartPole-v1`, or a `Dict` or `Tuple` of numbers, "
            "or wrap and register it."
        )
    shape, dtype, size = observations.shape, np.dtype(observations.dtype), math.prod(observations.shape)
    picture = dtype == np.uint8
    if size == 0 or dtype.kind not in "biuf" or (picture and len(shape) > MOST_PICTURE_AXES):
        raise UsageError(
            f"`gym/{env_id}` shows {dtype} {list(shape)}, but learners need numbers in a vector or an "
            "image: wrap it so that it shows one of these, and register the wrapped one."
        )
    if picture and shape:
        return EnvSpec(shape, np.dtype(np.uint8), int(actions.n), max(1, int(observations.high.max())))
    return EnvSpec((size,), np.dtype(np.float32), int(actions.n))


def _make(env_id: str, num_envs: int) -> Any:
    try:
        import gymnasium
        from gymnasium import error
        from gymnasium.vector import AutoresetMode
    except ImportError as missing:
        raise missing_extra("gymnasium", "gym") from missing
    try:
        return gymnasium.make_vec(
            env_id,
            num_envs,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": AutoresetMode.NEXT_STEP},
        )
    except (error.Error, ImportError) as reason:
        raise _explain(env_id, reason) from reason
    except (Exception, SystemExit) as reason:
        raise UsageError(f"`gym/{env_id}` fails when it is made: {brief(reason)}. Fix that in the world.") from reason


def _explain(env_id: str, reason: Exception) -> UsageError:
    """The error for an environment that cannot be made, with a suggestion."""
    from gymnasium import error, registry

    message = " ".join(str(reason).split()).removesuffix(".")
    if isinstance(reason, error.UnregisteredEnv | error.DeprecatedEnv):
        module, _, bare = env_id.rpartition(":")
        if module:  # what Gymnasium has besides is of no help
            return UsageError(
                f"Importing `{module}` registers no world `{bare}` with Gymnasium, so there is no `gym/{env_id}`."
            )
        # Importing ale-py registers a hundred games under old names.
        known = [name for name, spec in registry.items() if "ale_py" not in str(spec.entry_point)]
        near = difflib.get_close_matches(env_id, known, n=3, cutoff=0.5)
        hint = f"The nearest are {', '.join(f'`gym/{name}`' for name in near)}. " if near else ""
        return UsageError(
            f"Gymnasium has no world `{env_id}`. {hint}"
            "Custom ones are named `gym/module:ID`, where importing the module registers them."
        )
    if isinstance(reason, error.DependencyNotInstalled):
        return UsageError(f"`gym/{env_id}` needs a package that is not installed. Gymnasium says: {message}.")
    return UsageError(f"`gym/{env_id}` cannot be made. Gymnasium says: {message}.")


@cache
def spec(world: Any) -> EnvSpec:
    """Shape of the frames and number of actions of a configured environment, which is reset and stepped once."""
    return tried(lambda: GymEnvs(world.name, 1, 0)).spec


def on_host(world: Any, num_envs: int, seed: int, compiled: Any, first: int = 0) -> GymEnvs:
    """Envs of a configured environment."""
    return GymEnvs(world.name, num_envs, seed, first)
