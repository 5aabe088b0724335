"""Envs of a multi-agent world with JaxMARL's API: `MultiAgentEnv`, JaxMARL's own or a custom one.

Every agent has its own network and replay memory. Networks are trained side by side, so frames and actions have the
same size for all agents: smaller observations are padded with zeros, smaller action sets with actions that are never
available. The mask of available actions is appended to the frame where it differs between agents, or where a world's
`get_avail_actions` depends on its state.

JaxMARL has one kind of end, `dones`, which is a termination here. A world that is cut by a time limit may say so in
`infos["truncated"]`, a flag or a dict of flags by agent.

Other layouts of the same envs, for one learner instead of one per agent, are in `marl_layouts.py`.

Shapes: N envs, A agents, D numbers in a frame, K actions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from xladder import user_code
from xladder.core.keys import Stream
from xladder.core.packages import missing_extra
from xladder.core.types import Compiled
from xladder.errors import UsageError, unknown
from xladder.worlds.arguments import arguments, numbers_in
from xladder.worlds.envs import Envs, EnvSpec, Step
from xladder.worlds.gymnax_world import settled
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
from xladder.worlds.marl_layouts import SharedEnvs, TeamEnvs
from xladder.worlds.observations import Layout, is_real, layout_of

ALL = "__all__"
TRUNCATED = '`infos["truncated"]`'
MOST_SIZE = 256
"""The largest number among the arguments of JaxMARL's worlds that counts no steps: agents, landmarks, cells."""


class MarlState(NamedTuple):
    """The state of N envs."""

    world: Any  # the world's own state, leaves [N, …]
    over: jax.Array  # bool [N]: the episode is over for all, and the next step begins another
    absent: jax.Array  # bool [N, A]: it is over for this agent


class Environment(NamedTuple):
    """A world as its author wrote it, and what is known of it."""

    env: Any
    agents: tuple[str, ...]
    layouts: tuple[Layout, ...]
    """How each agent's observation is converted to numbers."""
    actions: tuple[int, ...]
    """Number of actions of each agent."""
    picture: bool
    """Whether frames are images; otherwise they are vectors."""
    masked: bool
    asks: bool
    """Whether the mask of available actions has to be computed at every step."""


@dataclass(frozen=True)
class MarlEnvs:
    """N envs of a world, frames and steps [A, N, …]; see `envs.Envs`."""

    name: str
    num_envs: int
    kwargs: tuple[str, ...] = ()
    """Arguments of the world, as `name=value`."""

    @property
    def world(self) -> Environment:
        """The world as its author wrote it."""
        return load(self.name, self.kwargs)

    @property
    def spec(self) -> EnvSpec:
        """Shape of the frames and number of actions."""
        found = self.world
        first, most = found.layouts[0], max(found.actions)
        size = max(math.prod(layout.shape) for layout in found.layouts)
        *rows, last = first.shape if found.picture else (size,)
        return EnvSpec(
            (*rows, last + most * found.masked),
            first.dtype if found.picture else np.dtype(np.float32),
            most,
            first.max_value,
            agents=found.agents,
            masked=found.masked,
            absences=True,
            fields=first.fields if len(set(found.layouts)) == 1 else (),
        )

    def reset(self, keys: jax.Array) -> tuple[MarlState, jax.Array]:
        """Reset all envs, from keys [N]. Returns the state and the first frames [A, N, *shape]."""
        world, frames = jax.vmap(self._reset_one, out_axes=(0, 1))(keys)
        over = jnp.zeros(keys.shape, bool)
        return MarlState(world, over, jnp.zeros((*keys.shape, len(self.world.agents)), bool)), frames

    def step(self, keys: jax.Array, state: MarlState, actions: jax.Array) -> tuple[MarlState, Step]:
        """Step every env; actions int32 [A, N], keys [N]."""
        return jax.vmap(self._step_one, in_axes=(0, 0, 1), out_axes=(0, 1))(keys, state, actions)

    def _reset_one(self, key: jax.Array) -> tuple[Any, jax.Array]:
        found = self.world
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            observations, world = found.env.reset(key)
            return settled(world), self._frames(found, observations, world)

    def _step_one(self, key: jax.Array, state: MarlState, actions: jax.Array) -> tuple[MarlState, Step]:
        found = self.world
        taken = {
            agent: jnp.minimum(actions[i], found.actions[i] - 1).astype(jnp.int32)
            for i, agent in enumerate(found.agents)
        }
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            observations, moved, rewards, dones, infos = found.env.step_env(key, state.world, taken)
            frames = self._frames(found, observations, moved)
            all_over = jnp.asarray(dones[ALL], bool)
            over = jnp.stack([jnp.asarray(dones[agent], bool) for agent in found.agents]) | all_over  # [A]
            cut = _by_agent(infos.get("truncated", False) if isinstance(infos, dict) else False, found.agents)
            reward = jnp.stack([jnp.asarray(rewards[agent]).astype(jnp.float32) for agent in found.agents])
        fresh, first_frames = self._reset_one(jax.random.fold_in(key, int(Stream.RESET)))
        is_first = state.over
        world = jax.tree.map(lambda new, old: jnp.where(is_first, new, old), fresh, settled(moved))
        counts = ~state.absent & ~is_first
        step = Step(
            frame=jnp.where(is_first, first_frames, frames),
            reward=jnp.where(counts, reward, 0.0),
            terminated=((over & ~cut) & counts) | (state.absent & ~is_first),
            truncated=((over & cut) & counts) | (state.absent & ~is_first),
            is_first=jnp.broadcast_to(is_first, over.shape),
        )
        gone = (over | state.absent) & ~is_first
        ends = (all_over | gone.all()) & ~is_first
        # In the step that ends the episode for all, an absent agent shows its last frame like the others.
        return MarlState(world, ends, gone & ~ends), step

    def _frames(self, found: Environment, observations: Any, world: Any) -> jax.Array:
        """[A, *shape]: the frames of all agents."""
        frames = [layout.flatten(observations[a]) for layout, a in zip(found.layouts, found.agents, strict=True)]
        size, most = max(frame.size for frame in frames), max(found.actions)
        if not found.picture:
            frames = [jnp.pad(frame.ravel().astype(jnp.float32), (0, size - frame.size)) for frame in frames]
        if found.masked:
            available = _ask_available(found.env)(world) if found.asks else {}
            for i, agent in enumerate(found.agents):
                mask = jnp.ravel(available[agent]) if found.asks else jnp.ones(found.actions[i])
                mask = jnp.pad((mask > 0).astype(frames[i].dtype), (0, most - mask.size))
                spread = jnp.broadcast_to(mask, (*frames[i].shape[:-1], most))  # in every row of an image
                frames[i] = jnp.concatenate([frames[i], spread], axis=-1)
        return jnp.stack(frames)


@cache
def load(name: str, kwargs: tuple[str, ...] = ()) -> Environment:
    """Load a world, made with arguments `name=value`, and inspect it; a `UsageError` says what is wrong with it."""
    given = arguments(kwargs)
    if name.startswith("jaxmarl/"):
        _check_sizes(given)
    with jax.ensure_compile_time_eval(), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return _inspect(name, user_code.instantiate(find(name), name, given))


def _check_sizes(given: dict[str, Any]) -> None:
    """Raise a `UsageError` for large sizes: JaxMARL makes such arrays at once, and a stranger's config may name any."""
    for key, value in given.items():
        if "step" not in key and any(abs(number) > MOST_SIZE for number in numbers_in(value)):
            raise UsageError(f"`--world.kwargs` has {key}={value}, but sizes of JaxMARL's worlds go up to {MOST_SIZE}.")


def find(name: str) -> Any:
    """The class, function or object called `marl/NAME`, or a function that makes JaxMARL's `jaxmarl/NAME`."""
    source, _, rest = name.partition("/")
    if source != "jaxmarl":
        return user_code.find_world(rest, name)
    known = names()
    if rest not in known:
        raise unknown("world of JaxMARL", rest, known)
    return lambda **given: _jaxmarl().make(rest, **given)


def names() -> list[str]:
    """The worlds that JaxMARL has registered."""
    return list(_jaxmarl().registered_envs)


def _inspect(name: str, env: Any) -> Environment:
    """Inspect a world's agents, spaces, shapes and dtypes."""
    for function in ("reset", "step_env", "action_space"):
        if not callable(getattr(env, function, None)):
            raise UsageError(f"`{name}` does not have JaxMARL's API: it lacks `{function}`.")
    agents = _agents(name, env)
    actions = tuple(
        count_actions(name, attempt(name, "action_space", partial(env.action_space, agent)), agent) for agent in agents
    )
    key = jax.random.key(0)

    def reset(key: Any) -> dict[str, Any]:
        returned = unpack(name, "reset", env.reset(key), ("observations", "state"))
        return returned | {"observations": _by_name(name, "reset", "observation", returned["observations"], agents)}

    def step(key: Any, state: Any, taken: Any) -> dict[str, Any]:
        fields = ("observations", "state", "rewards", "dones", "infos")
        returned = unpack(name, "step_env", env.step_env(key, state, taken), fields)
        infos, dones = returned.pop("infos"), returned["dones"]
        for field in ("observation", "reward", "done"):
            returned[f"{field}s"] = _by_name(name, "step_env", field, returned[f"{field}s"], agents)
        if ALL not in dones:
            raise UsageError(
                f"`{name}` returns dones without `{ALL}` from `step_env`: it says when the episode is over."
            )
        returned["all"] = dones[ALL]
        returned[TRUNCATED] = infos.get("truncated", False) if isinstance(infos, dict) else False
        return returned

    first = trace(name, "reset", reset, key)
    observations, state = first["observations"], first["state"]
    layouts = tuple(layout_of(observations[agent], name, f"{agent}'s") for agent in agents)
    taken = {agent: jax.ShapeDtypeStruct((), jnp.int32) for agent in agents}
    after = trace(name, "step_env", step, key, state, taken)
    for agent in agents:
        require_unchanged(name, "step_env", f"{agent}'s observation", observations[agent], after["observations"][agent])
    require_unchanged(name, "step_env", "its state", state, after["state"])
    for agent in agents:
        require_scalar(name, "step_env", f"the reward of {agent}", after["rewards"][agent])
        require_scalar(name, "step_env", f"the done of {agent}", after["dones"][agent], "one flag")
    require_scalar(name, "step_env", f'`dones["{ALL}"]`', after["all"], "one flag")
    _check_truncated(name, after[TRUNCATED], agents)
    asks = _availability_varies(name, env, agents, actions, state)
    masked = asks or len(set(actions)) > 1
    picture = len(set(layouts)) == 1 and len(layouts[0].shape) > 1
    return Environment(env, agents, layouts, actions, picture, masked, asks)


def _agents(name: str, env: Any) -> tuple[str, ...]:
    """The names of a world's agents."""
    listed = attempt(name, "agents", lambda: getattr(env, "agents", None))
    if not isinstance(listed, list | tuple) or not all(isinstance(agent, str) for agent in listed) or not listed:
        what = "no agents" if not listed else f"the agents {listed!r}"
        raise UsageError(f"`{name}` has {what}: its `agents` has to be a list of their names.")
    if len(set(listed)) < len(listed):
        raise UsageError(f"`{name}` names an agent twice in its `agents`: {list(listed)}.")
    return tuple(listed)


def _by_name(name: str, function: str, field: str, part: Any, agents: tuple[str, ...]) -> dict[str, Any]:
    """What a function returned for each agent."""
    missing = [agent for agent in agents if not isinstance(part, dict) or agent not in part]
    if missing:
        raise UsageError(
            f"`{name}` returns no {field} for {missing[0]} from `{function}`: it has to be a dict with one for each of "
            "its `agents`."
        )
    return {agent: part[agent] for agent in agents}


def _check_truncated(name: str, flags: Any, agents: tuple[str, ...]) -> None:
    """Raise a `UsageError` unless the flags are one for all agents, one for each, or a dict of them."""
    must = f"one flag, {len(agents)} flags in the order of its agents, or a dict of flags by agent"
    if isinstance(flags, dict):
        for agent in agents:
            require_scalar(name, "step_env", TRUNCATED, flags.get(agent, jax.ShapeDtypeStruct((), bool)), must)
    elif getattr(flags, "shape", None) != (len(agents),):
        require_scalar(name, "step_env", TRUNCATED, flags, must)


def _availability_varies(name: str, env: Any, agents: tuple[str, ...], actions: tuple[int, ...], state: Any) -> bool:
    """Whether a world reports available actions, and these depend on its state or are not always all."""
    ask = _ask_available(env)
    if not callable(ask):
        return False
    function = "get_legal_moves" if ask == getattr(env, "get_legal_moves", None) else "get_avail_actions"

    def masks(state: Any) -> list[Any]:
        found = _by_name(name, function, "mask", ask(state), agents)
        for agent, count in zip(agents, actions, strict=True):
            mask = found[agent]
            if not hasattr(mask, "dtype") or not is_real(mask.dtype) or mask.size != count:
                raise UsageError(
                    f"`{name}` returns {kind_of(mask)} for {agent} from `{function}`, but it has to be a flag for each "
                    f"of its {count} actions."
                )
        return [jnp.ravel(found[agent]) for agent in agents]

    try:
        constants = unchanging(name, function, masks, state)
    except UsageError as error:
        if isinstance(error.__cause__, NotImplementedError):
            return False  # JaxMARL's default, which worlds need not override
        raise
    if constants is None:
        return True
    for agent, constant in zip(agents, constants, strict=True):
        if not bool(jnp.any(constant > 0)):
            raise UsageError(f"`{name}` leaves {agent} without an action: `{function}` never allows one.")
    return not all(bool(jnp.all(constant > 0)) for constant in constants)


def _ask_available(env: Any) -> Any:
    """The function that returns the available actions, under either name that JaxMARL's worlds have for it."""
    found = getattr(env, "get_legal_moves", None)  # Hanabi's
    return found if callable(found) else getattr(env, "get_avail_actions", None)


def _by_agent(flags: Any, agents: tuple[str, ...]) -> jax.Array:
    """bool [A] from one flag for all or a dict by agent."""
    if isinstance(flags, dict):
        return jnp.stack([jnp.asarray(flags.get(agent, False), bool) for agent in agents])
    return jnp.broadcast_to(jnp.asarray(flags, bool), (len(agents),))


def _jaxmarl() -> Any:
    try:
        # JaxMARL prints which optional worlds are missing, and one of its imports undoes redirections of stdout.
        with patch("builtins.print"):
            import jaxmarl
    except ImportError as error:
        raise missing_extra("jaxmarl", "jaxmarl") from error
    return jaxmarl


def envs(world: Any, num_envs: int) -> Envs:
    """Envs of a configured world."""
    several = MarlEnvs(world.name, num_envs, world.kwargs)
    if world.team:
        return TeamEnvs(several, world.shared)
    return SharedEnvs(several) if world.shared else several


def spec(world: Any) -> EnvSpec:
    """Shape of the frames and number of actions of a configured world."""
    return envs(world, 1).spec


def inside(world: Any, seed: int) -> Envs:
    """The envs of a configured world, for use inside a program; the seed comes with the keys."""
    return envs(world, world.num_envs)


def on_host(world: Any, num_envs: int, seed: int, compiled: Compiled, first: int = 0) -> HostedEnvs:
    """Envs of a configured world, stepped from the host."""
    return HostedEnvs(envs(world, num_envs), seed, compiled, first)
