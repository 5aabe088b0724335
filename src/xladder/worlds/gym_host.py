"""Envs of a Gymnasium environment on the host, in this process or each in its own.

Actions have to be discrete, and observations numbers: arrays, dicts and tuples of them, or numbers out of a range,
which become one-hot. Images (uint8) stay as they are, anything else becomes a vector of float32. If the environment
says which actions are available (`info["action_mask"]`, or `action_mask` beside `observation` in a dict), that is
appended to the frames: see `envs.available`.

Shapes: N envs, D numbers in a vector, A actions.
"""

from __future__ import annotations

import difflib
import math
import re
import warnings
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder import user_code
from xladder.core.packages import missing_extra
from xladder.errors import CONTINUOUS, UsageError, UserCodeFailed, XladderError
from xladder.worlds import names
from xladder.worlds.envs import EnvSpec, Step, env_seeds
from xladder.worlds.host_calls import call, tried
from xladder.worlds.spaces_host import as_fields, bounds_of, lay_flat, parts_of

if TYPE_CHECKING:
    from xladder.nets.fields import Fields
    from xladder.worlds.gym_making import Recipe

MOST_PICTURE_AXES = 3  # height, width, channels
MASK = "action_mask"
SHOWN = "observation"  # beside the mask, where a dict has both


class GymEnvs:
    """N envs of a Gymnasium environment; see `envs.HostEnvs`.

    Args:
        env_id: its id, `CartPole-v1` or `gym/CartPole-v1`; `module:ID`, whose module is imported first and may register
            it; or `module:Name` of a class, function or object.
        num_envs: N.
        seed: seed of the run.
        first: number of the first env, where other processes have those before it.
        kwargs: arguments of the environment, as `name=value`.
        wrappers: names of wrappers, the innermost first.
        asynchronous: whether every env has a process of its own.
        masks: whether to ask which actions are available.
        scaled: whether numbers with bounds are scaled to [−1, 1].
    """

    def __init__(
        self,
        env_id: str,
        num_envs: int,
        seed: int,
        first: int = 0,
        kwargs: tuple[str, ...] = (),
        wrappers: tuple[str, ...] = (),
        asynchronous: bool = False,
        masks: bool = True,
        scaled: bool = False,
    ):
        env_id = env_id.removeprefix("gym/")
        require(env_id)
        from xladder.worlds.gym_making import Recipe

        recipe = Recipe(env_id, kwargs, wrappers)
        self.num_envs, self._shown, self._asynchronous = num_envs, recipe.shown, asynchronous
        self._envs: Any = _make(recipe, num_envs, asynchronous)
        space = self._envs.single_observation_space
        self._in_dict = _mask_in_dict(space)
        try:
            plain = _spec(recipe.shown, self._envs.single_action_space, space[SHOWN] if self._in_dict else space)
            self._masked = masks and (self._in_dict or _mask_in_info(recipe))
        except XladderError:
            self.close()
            raise
        if scaled:
            plain = plain._replace(fields=tuple((name, shape, "float32") for name, shape, _ in plain.fields))
        self.spec = _masked(plain) if self._masked else plain
        self._seen = plain
        laid_flat = plain.dtype == np.float32
        self._parts = parts_of(space[SHOWN] if self._in_dict else space) if laid_flat else None
        self._bounds = bounds_of(space[SHOWN] if self._in_dict else space) if scaled and laid_flat else None
        self._lowest_action = int(self._envs.single_action_space.start)
        self._seeds = [int(env_seed) for env_seed in env_seeds(seed, num_envs, first=first)]
        self._over = np.zeros(num_envs, bool)
        self._actions: Any = None

    def reset(self) -> np.ndarray:
        """Reset all envs; returns the first frames [N, *shape]."""
        observations, infos = self._ask("reset", seed=self._seeds)
        self._over = np.zeros(self.num_envs, bool)
        return self._frames("reset", observations, infos)

    def send(self, actions: np.ndarray) -> None:
        """Set the next action of every env, or start the step if each has its process; actions int [N]."""
        self._actions = np.asarray(actions, np.int64) + self._lowest_action
        if self._asynchronous:
            self._ask("step_async", self._actions)

    def recv(self) -> Step:
        """Step every env with the actions that `send` set, or wait for that."""
        answer = self._ask("step_wait") if self._asynchronous else self._ask("step", self._actions)
        observations, rewards, terminated, truncated, infos = answer
        is_first, self._over = self._over, terminated | truncated
        frames = self._frames("step", observations, infos)
        rewards = np.asarray(rewards).astype(np.float32)
        if not np.isfinite(rewards).all():
            raise self._fault("a reward that is not a finite number", "step")
        return Step(frames, rewards, terminated, truncated & ~terminated, is_first)

    def close(self) -> None:
        """Close every env."""
        if self._envs is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about processes that have failed
                self._envs.close()
        self._envs = None

    def _ask(self, method: str, *given: Any, **named: Any) -> Any:
        """Call a method of the environments; an exception is reported as theirs."""
        with warnings.catch_warnings():
            if self._asynchronous:  # the error of a process comes as an exception, too
                warnings.simplefilter("ignore")
            return call(self._shown, method.partition("_")[0], getattr(self._envs, method), *given, **named)

    def _frames(self, function: str, observations: Any, infos: Mapping[str, Any]) -> np.ndarray:
        """[N, *shape]: observations as frames, with the masks of actions where there are any."""
        shown = observations[SHOWN] if self._in_dict else observations
        if self._parts:
            try:
                frames = lay_flat(self._parts, shown, self.num_envs)
            except ValueError as error:
                raise self._fault(
                    f"an observation that is not in its `observation_space` ({error})", function
                ) from error
            if not np.isfinite(frames).all():
                raise self._fault(f"an observation with {_first_bad(self._seen, frames)}", function)
            if self._bounds:
                frames = (frames - self._bounds[0]) / self._bounds[1]
        else:
            frames = shown.reshape(self.num_envs, *self._seen.shape).astype(self._seen.dtype)
        if not self._masked:
            return frames
        return _append(frames, self._mask(function, observations if self._in_dict else infos))

    def _mask(self, function: str, told: Mapping[str, Any]) -> np.ndarray:
        """bool [N, A]: the available actions; all of them where an env does not say, or its episode is over."""
        found = np.ones((self.num_envs, self.spec.actions), bool)
        if MASK in told:
            tells = np.asarray(told.get(f"_{MASK}", np.ones(self.num_envs, bool)))
            for env in np.flatnonzero(tells):
                flags = np.ravel(np.asarray(told[MASK][env]))
                if flags.size != self.spec.actions or flags.dtype.kind not in "biuf":
                    raise self._fault(
                        f"{flags.dtype} [{flags.size}] as `{MASK}`, which has to be {self.spec.actions} flags,",
                        function,
                    )
                found[env] = flags > 0
        stuck = ~found.any(1)
        if (stuck & ~self._over).any():
            raise self._fault(
                f"an `{MASK}` that forbids every action although the episode goes on (allow one, or end it)", function
            )
        found[stuck] = True
        return found

    def _fault(self, what: str, function: str) -> UserCodeFailed:
        return UserCodeFailed(f"`{self._shown}` returns {what} from its `{function}`.")


def _first_bad(spec: EnvSpec, frames: np.ndarray) -> str:
    """Where the first number of frames [N, D] is not finite, such as `nan at 3` or `inf in speed`."""
    env, place = np.argwhere(~np.isfinite(frames))[0]
    value, end = frames[env, place], 0
    for name, shape, _ in spec.fields:
        end += math.prod(shape)
        if place < end:
            return f"{value} in `{name}`"
    return f"{value} at place {place}" if frames.shape[1] > 1 else f"{value}"


def _append(frames: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Frames [N, *shape] with masks [N, A] behind their last axis, in every row of an image."""
    axes = frames.ndim - 2  # besides the first and the last
    spread = mask.reshape(len(mask), *(1,) * axes, -1).astype(frames.dtype)
    return np.concatenate([frames, np.broadcast_to(spread, (*frames.shape[:-1], mask.shape[1]))], axis=-1)


def _masked(spec: EnvSpec) -> EnvSpec:
    """The spec of frames with a mask."""
    return spec._replace(shape=(*spec.shape[:-1], spec.shape[-1] + spec.actions), masked=True)


def _mask_in_dict(space: Any) -> bool:
    """Whether observations are dicts of an observation and a mask, as in PettingZoo."""
    return isinstance(space, Mapping) and set(space) == {SHOWN, MASK}


@cache
def _mask_in_info(recipe: Recipe) -> bool:
    """Whether an environment says which actions are available when it is reset."""
    from xladder.worlds.gym_making import found_object, make_one

    env = make_one(recipe, found_object(recipe.name))
    try:
        _, info = call(recipe.shown, "reset", env.reset, seed=0)
        return isinstance(info, Mapping) and MASK in info
    finally:
        env.close()


def require(env_id: str) -> None:
    """Raise a `UsageError` if there is no such environment; imports the module of `module:ID`."""
    if env_id.startswith("ALE/"):  # these would show raw screens, without the published preprocessing
        game = names.find_atari(re.sub(r"-v\d+$", "", env_id.removeprefix("ALE/")))
        raise UsageError(f"Atari games have their own names here: use `atari/{game}` instead of `gym/{env_id}`.")
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
    from xladder.worlds.gym_making import found_object

    if found_object(env_id) is not None:
        return
    try:
        gymnasium.spec(bare)
    except error.UnregisteredEnv as reason:
        raise _explain(env_id, reason) from reason
    except error.Error:  # such as a version that is missing from the name, which `make` fills in
        pass


def _spec(shown: str, actions: Any, observations: Any) -> EnvSpec:
    """The spec of an environment; raises a `UsageError` that says why if it cannot be used."""
    from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete

    if isinstance(actions, MultiDiscrete | MultiBinary):
        raise UsageError(
            f"`{shown}` has the actions {actions}, but value learners need one discrete choice: wrap it so that every "
            "combination is an action of a `Discrete` (`--world.wrappers my_wrappers:Name`)."
        )
    if not isinstance(actions, Discrete):
        raise UsageError(f"`{shown}` has the actions {actions}, but value learners need discrete ones. {CONTINUOUS}")
    laid_flat, dtype = layout(shown, observations)
    if dtype == np.uint8:
        return EnvSpec(laid_flat, dtype, int(actions.n), max(1, int(observations.high.max())))
    return EnvSpec(laid_flat, dtype, int(actions.n), fields=as_fields(parts_of(observations) or ()))


def layout(shown: str, observations: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype of the frames that observations of a space become; a `UsageError` if they cannot."""
    from gymnasium.spaces import Box

    parts = parts_of(observations)
    if isinstance(observations, Box):
        shape, dtype = observations.shape, np.dtype(observations.dtype)
        picture = dtype == np.uint8
        if parts is None or (picture and len(shape) > MOST_PICTURE_AXES):
            raise UsageError(
                f"`{shown}` shows {dtype} {list(shape)}, but learners need numbers in a vector or an image: wrap it so "
                "that it shows one of these (`--world.wrappers`)."
            )
        if picture and shape:
            return shape, np.dtype(np.uint8)
    if parts is None:
        raise UsageError(
            f"`{shown}` shows {observations}, but networks need numbers: a `Box`, `Discrete`, `MultiDiscrete` or "
            "`MultiBinary`, or a `Dict` or `Tuple` of them. Wrap it so that it shows one of these (`--world.wrappers`)."
        )
    return (sum(part.size for part in parts),), np.dtype(np.float32)


def _make(recipe: Recipe, num_envs: int, asynchronous: bool) -> Any:
    from gymnasium import error

    from xladder.worlds.gym_making import make_vector

    try:
        return make_vector(recipe, num_envs, asynchronous)
    except (error.Error, ImportError) as reason:
        raise _explain(recipe.name, reason) from reason


def _explain(env_id: str, reason: Exception) -> UsageError:
    """The error for an environment that cannot be made, with a suggestion."""
    from gymnasium import error, registry

    message = " ".join(str(reason).split()).removesuffix(".")
    if isinstance(reason, error.DeprecatedEnv):
        return UsageError(f"`gym/{env_id}` is out of date. Gymnasium says: {message}.")
    if isinstance(reason, error.UnregisteredEnv):
        module, _, bare = env_id.rpartition(":")
        if module:  # what Gymnasium has besides is of no help
            return UsageError(
                f"Importing `{module}` registers no world `{bare}` with Gymnasium, so there is no `gym/{env_id}`."
            )
        # Importing ale-py registers a hundred games under old names.
        known = [name for name, spec in registry.items() if "ale_py" not in str(spec.entry_point)]
        # Every name ends with a version, so that says nothing; the newest comes last.
        newest = {name.partition("-v")[0]: name for name in known}
        near = [newest[one] for one in difflib.get_close_matches(env_id.partition("-v")[0], newest, n=3, cutoff=0.5)]
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
    given = {"masks": world.masks, "scaled": world.normalise == "bounds"}
    return tried(lambda: GymEnvs(world.name, 1, 0, 0, world.kwargs, world.wrappers, **given)).spec


def seen_frames(world: Any) -> tuple[tuple[int, ...], np.dtype, Fields]:
    """Shape, dtype and parts of the frames of a configured environment, whatever its actions are; without masks."""
    from xladder.worlds.gym_making import Recipe

    require(world.name.removeprefix("gym/"))
    envs = _make(Recipe(world.name.removeprefix("gym/"), world.kwargs, world.wrappers), 1, asynchronous=False)
    try:
        space = envs.single_observation_space
        space = space[SHOWN] if _mask_in_dict(space) else space
        return *layout(world.name, space), as_fields(parts_of(space) or ())
    finally:
        envs.close()


def on_host(world: Any, num_envs: int, seed: int, compiled: Any, first: int = 0) -> GymEnvs:
    """Envs of a configured environment."""
    separate, scaled = world.vectorisation == "async", world.normalise == "bounds"
    return GymEnvs(world.name, num_envs, seed, first, world.kwargs, world.wrappers, separate, world.masks, scaled)
