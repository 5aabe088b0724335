"""Envs of a world with gymnax's API, as pure functions: gymnax's own, or any subclass of its `Environment`.

gymnax resets an env in the step that ends an episode. Here its `step_env` and `reset_env` are combined differently, so
that the last frame of an episode is seen and the next step begins another (see `envs.py`). gymnax's time limit is a
truncation; any other end of an episode is a termination.

Shapes: N envs, D numbers in a vector.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder import user_code
from xladder.core.keys import Stream
from xladder.core.packages import missing_extra
from xladder.core.types import Compiled
from xladder.errors import UsageError, brief
from xladder.worlds.arguments import arguments, numbers_in
from xladder.worlds.envs import EnvSpec, Step
from xladder.worlds.hosted import HostedEnvs
from xladder.worlds.jax_checks import (
    attempt,
    count_actions,
    kind_of,
    require_scalar,
    require_unchanged,
    trace,
    unchanging,
    unpack,
)
from xladder.worlds.late_imports import without_drawing
from xladder.worlds.names import GYMNAX, check_supported, find_gymnax
from xladder.worlds.observations import Layout, is_real, layout_of

MOST_SIZE = 256
"""The largest number among the arguments of gymnax's worlds, which are sizes of boards and numbers of actions."""


class GymnaxState(NamedTuple):
    """The state of N envs."""

    world: Any  # gymnax's own state, leaves [N, …]
    over: jax.Array  # bool [N]: the episode is over, and the next step begins another


class Environment(NamedTuple):
    """A world as its author wrote it, and what is known of it."""

    env: Any
    params: Any
    layout: Layout
    actions: int
    truncates: bool
    """Whether it has a time limit that `is_truncated` reports."""
    ask: Callable[[Any], Any] | None = None
    """Returns the available actions in a state, if it says which they are."""

    def frame(self, observation: Any, state: Any) -> jax.Array:
        """[*shape]: an observation as a frame, with the mask of available actions where there is one."""
        frame = self.layout.flatten(observation)
        if self.ask is None:
            return frame
        mask = (jnp.ravel(self.ask(state)) > 0).astype(frame.dtype)
        return jnp.concatenate([frame, jnp.broadcast_to(mask, (*frame.shape[:-1], mask.size))], axis=-1)


@dataclass(frozen=True)
class GymnaxEnvs:
    """N envs of a world; see `envs.Envs`.

    `name` is one of our names (`cartpole`), a gymnax id, or `jax/module:Name` for a custom world.
    """

    name: str
    num_envs: int
    kwargs: tuple[str, ...] = ()
    """Arguments of the world, or fields of the params of one of gymnax's own, as `name=value`."""

    def __post_init__(self):
        if not is_own(self.name):
            object.__setattr__(self, "name", find_gymnax(self.name).name)  # so that equal worlds hash as equal

    @property
    def spec(self) -> EnvSpec:
        """Shape of the frames and number of actions."""
        if is_own(self.name) or self.kwargs:
            found = load(self.name, self.kwargs)
            masked, (*rows, last) = found.ask is not None, found.layout.shape
            return EnvSpec(
                (*rows, last + masked * found.actions),
                found.layout.dtype,
                found.actions,
                found.layout.max_value,
                masked=masked,
                fields=found.layout.fields,
            )
        world = GYMNAX[self.name]
        return EnvSpec(world.shape, np.dtype(world.dtype), world.actions)

    def reset(self, keys: jax.Array) -> tuple[GymnaxState, jax.Array]:
        """Reset all envs, from keys [N]. Returns the state and the first frames [N, *shape]."""
        world, frames = jax.vmap(self._reset_one)(keys)
        return GymnaxState(world, jnp.zeros(keys.shape, bool)), frames

    def step(self, keys: jax.Array, state: GymnaxState, actions: jax.Array) -> tuple[GymnaxState, Step]:
        """Step every env; actions int32 [N], keys [N]."""
        return jax.vmap(self._step_one)(keys, state, actions)

    def _reset_one(self, key: jax.Array) -> tuple[Any, jax.Array]:
        found = load(self.name, self.kwargs)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            observation, world = found.env.reset_env(key, found.params)
            frame = found.frame(observation, world)
        return settled(world), frame

    def _step_one(self, key: jax.Array, state: GymnaxState, action: jax.Array) -> tuple[GymnaxState, Step]:
        found = load(self.name, self.kwargs)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            observation, moved, reward, terminated, _ = found.env.step_env(key, state.world, action, found.params)
            terminated = jnp.asarray(terminated, bool)
            truncated = jnp.zeros((), bool)
            if found.truncates:
                truncated = jnp.asarray(found.env.is_truncated(moved, found.params), bool) & ~terminated
            frame = found.frame(observation, moved)
        fresh, first_frame = self._reset_one(jax.random.fold_in(key, int(Stream.RESET)))
        is_first = state.over
        world = jax.tree.map(lambda new, old: jnp.where(is_first, new, old), fresh, settled(moved))
        step = Step(
            frame=jnp.where(is_first, first_frame, frame),
            reward=jnp.where(is_first, 0.0, jnp.asarray(reward).astype(jnp.float32)),
            terminated=terminated & ~is_first,
            truncated=truncated & ~is_first,
            is_first=is_first,
        )
        return GymnaxState(world, step.terminated | step.truncated), step


def settled(world: Any) -> Any:
    """A state without weakly typed leaves: worlds may begin with Python numbers, which would change type later."""
    return jax.tree.map(lambda leaf: jax.lax.convert_element_type(leaf, jnp.result_type(leaf)), world)


def is_own(name: str) -> bool:
    """Whether a name is not in our table: a custom world, or another one of gymnax."""
    return name.startswith(("jax/", "gymnax/"))


@cache
def load(name: str, kwargs: tuple[str, ...] = ()) -> Environment:
    """Load a world and inspect its spaces, shapes and dtypes; a `UsageError` says what is wrong with it.

    `kwargs` are arguments of the world, or fields of the params of one of gymnax's own, as `name=value`.
    """
    given = arguments(kwargs)
    # Level maps have to be concrete arrays even during tracing; and worlds mix dtypes freely.
    with jax.ensure_compile_time_eval(), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        if not is_own(name):
            world = GYMNAX[name]
            if given:
                return _inspect(name, *_make_with(world.id, name, given))
            env, params = _gymnax().make(world.id)
            layout = Layout(world.shape, np.dtype(world.dtype))
            return Environment(env, params, layout, world.actions, truncates=True)
        return _inspect(name, *_make(name, given))


class Choices(NamedTuple):
    """As much of a space as is needed, for a world that has `num_actions` and no `action_space`."""

    n: Any


def _require_api(name: str, env: Any) -> None:
    """Raise a `UsageError` if an object does not have gymnax's functions."""
    for function in ("reset_env", "step_env", "action_space"):
        if not callable(getattr(env, function, None)) and not (
            function == "action_space" and hasattr(env, "num_actions")
        ):
            raise UsageError(f"`{name}` does not have gymnax's API: it lacks `{function}`.")


def _inspect(name: str, env: Any, params: Any) -> Environment:
    """Inspect a world's spaces, shapes and dtypes."""
    _require_api(name, env)
    has_space = callable(getattr(env, "action_space", None))
    space = attempt(name, "action_space", lambda: env.action_space(params)) if has_space else Choices(env.num_actions)
    actions = count_actions(name, space)
    key = jax.random.key(0)

    def reset(key: Any) -> dict[str, Any]:
        return unpack(name, "reset_env", env.reset_env(key, params), ("observation", "state"))

    def step(key: Any, state: Any, action: Any) -> dict[str, Any]:
        fields = ("observation", "state", "reward", "done", "info")
        returned = unpack(name, "step_env", env.step_env(key, state, action, params), fields)
        del returned["info"]  # which is anything
        return returned

    first = trace(name, "reset_env", reset, key)
    layout = layout_of(first["observation"], name)
    after = trace(name, "step_env", step, key, first["state"], jax.ShapeDtypeStruct((), jnp.int32))
    for field in ("observation", "state"):
        require_unchanged(name, "step_env", f"its {field}", first[field], after[field])
    require_scalar(name, "step_env", "its reward", after["reward"])
    require_scalar(name, "step_env", "its done", after["done"], "one flag")
    ask = _available(name, env, params, actions, after["state"])
    return Environment(env, params, layout, actions, _truncates(name, env, params, after["state"]), ask)


def _available(name: str, env: Any, params: Any, actions: int, state: Any) -> Callable[[Any], Any] | None:
    """The function that returns the available actions in a state, under JaxMARL's name, if a world has one."""
    function = "get_avail_actions"
    method = getattr(env, function, None)
    if not callable(method):
        return None
    given = () if len(inspect.signature(method).parameters) == 1 else (params,)

    def ask(state: Any) -> Any:
        return method(state, *given)

    mask = trace(name, function, lambda state: {"mask": ask(state)}, state)["mask"]
    if not hasattr(mask, "dtype") or not is_real(mask.dtype) or math.prod(mask.shape) != actions:
        raise UsageError(
            f"`{name}` returns {kind_of(mask)} from `{function}`, but it has to be a flag for each of its {actions} "
            "actions."
        )
    always = unchanging(name, function, lambda state: [jnp.ravel(jnp.asarray(ask(state)))], state)
    if always is not None and not bool(jnp.any(always[0] > 0)):
        raise UsageError(f"`{name}` leaves its agent without an action: `{function}` never allows one.")
    return ask


def _truncates(name: str, env: Any, params: Any, state: Any) -> bool:
    """Whether a world has a time limit; its author need not have written one."""
    ask = getattr(env, "is_truncated", None)
    if not callable(ask):
        return False
    try:
        found = trace(name, "is_truncated", lambda state: {"flag": ask(state, params)}, state)
    except UsageError as error:
        # gymnax's default reads `state.time` and `params.max_steps_in_episode`, which a world need not have.
        if isinstance(error.__cause__, AttributeError) and ask.__module__.startswith("gymnax."):
            return False
        raise
    require_scalar(name, "is_truncated", "its flag", found["flag"], "one flag")
    return True


def find(name: str) -> Any:
    """The class, function or object called `jax/NAME`, or a function that makes gymnax's `gymnax/ID`."""
    source, _, rest = name.partition("/")
    if source != "gymnax":
        return user_code.find_world(rest, name)
    check_supported(rest)
    gymnax = _gymnax()
    if rest not in gymnax.registered_envs:
        raise UsageError(f"gymnax has no world `{rest}`. It has {', '.join(gymnax.registered_envs)}.")
    return lambda: gymnax.make(rest)


def _make(name: str, given: dict[str, Any]) -> tuple[Any, Any]:
    """A world that is not in our table, made with these arguments, and its params."""
    thing = find(name)
    if given and name.startswith("gymnax/"):
        return _make_with(name.partition("/")[2], name, given)
    found = user_code.instantiate(thing, name, given)
    if isinstance(found, tuple):
        env, params = found
        return env, params
    _require_api(name, found)
    return found, attempt(name, "default_params", lambda: getattr(found, "default_params", None))


def _make_with(world_id: str, name: str, given: dict[str, Any]) -> tuple[Any, Any]:
    """One of gymnax's worlds and its params, with arguments of the world or fields of its params."""
    fields = {field.name for field in dataclasses.fields(_gymnax().make(world_id)[1])}
    own = {key: value for key, value in given.items() if key not in fields}
    for key, value in own.items():  # gymnax makes arrays of these sizes at once, and a stranger's config may name any
        if any(abs(number) > MOST_SIZE for number in numbers_in(value)):
            raise UsageError(f"`--world.kwargs` has {key}={value}, but sizes of gymnax's worlds go up to {MOST_SIZE}.")
    try:
        env, params = _gymnax().make(world_id, **own)
    except (TypeError, ValueError, AssertionError) as reason:
        raise UsageError(
            f"`{name}` cannot be made with `--world.kwargs {' '.join(f'{k}={v}' for k, v in given.items())}`: "
            f"{brief(reason)}. Its params are {', '.join(sorted(fields))}."
        ) from reason
    return env, params.replace(**{key: value for key, value in given.items() if key in fields})


def _gymnax() -> Any:
    try:
        with without_drawing():
            import gymnax
    except ImportError as error:
        raise missing_extra("gymnax", "gymnax") from error
    return gymnax


def spec(world: Any) -> EnvSpec:
    """Shape of the frames and number of actions of a configured world."""
    return GymnaxEnvs(world.name, 1, world.kwargs).spec


def inside(world: Any, seed: int) -> GymnaxEnvs:
    """The envs of a configured world, for use inside a program; the seed comes with the keys."""
    return GymnaxEnvs(world.name, world.num_envs, world.kwargs)


def on_host(world: Any, num_envs: int, seed: int, compiled: Compiled, first: int = 0) -> HostedEnvs:
    """Envs of a configured world, stepped from the host."""
    return HostedEnvs(GymnaxEnvs(world.name, num_envs, world.kwargs), seed, compiled, first)
