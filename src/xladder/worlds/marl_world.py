"""Envs of a multi-agent world with JaxMARL's API: `MultiAgentEnv`, JaxMARL's own or a custom one.

Every agent has its own network and replay memory. Networks are trained side by side, so frames and actions have the
same size for all agents: smaller observations are padded with zeros, smaller action sets with actions that are never
available. The mask of available actions is appended to the frame where it differs between agents, or where a world's
`get_avail_actions` depends on its state.

JaxMARL has one kind of end, `dones`, which is a termination here. A world that is cut by a time limit may say so in
`infos["truncated"]`, a flag or a dict of flags by agent.

With `SharedEnvs` one network serves all agents: each agent is a single-agent env, and its frame says which agent it is.

Shapes: N envs, A agents, D numbers in a frame, K actions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from xladder import user_code
from xladder.core.keys import Stream
from xladder.core.types import Compiled
from xladder.errors import UsageError, brief, missing_extra, unknown
from xladder.worlds.envs import Envs, EnvSpec, Step
from xladder.worlds.gymnax_world import attempt, difference, kinds, settled
from xladder.worlds.hosted import HostedEnvs
from xladder.worlds.observations import Layout, describe, layout_of

ALL = "__all__"


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

    @property
    def spec(self) -> EnvSpec:
        """Shape of the frames and number of actions."""
        found = load(self.name)
        shape, dtype, max_value = (found.layouts[0].shape, found.layouts[0].dtype, found.layouts[0].max_value)
        if not found.picture:
            size = max(math.prod(layout.shape) for layout in found.layouts)
            shape, dtype = (size + max(found.actions) * found.masked,), np.dtype(np.float32)
        same = len(set(found.layouts)) == 1 and not found.masked
        return EnvSpec(
            shape,
            dtype,
            max(found.actions),
            max_value,
            agents=found.agents,
            masked=found.masked,
            absences=True,
            fields=found.layouts[0].fields if same else (),
        )

    def reset(self, keys: jax.Array) -> tuple[MarlState, jax.Array]:
        """Reset all envs, from keys [N]. Returns the state and the first frames [A, N, *shape]."""
        world, frames = jax.vmap(self._reset_one, out_axes=(0, 1))(keys)
        over = jnp.zeros(keys.shape, bool)
        return MarlState(world, over, jnp.zeros((*keys.shape, len(load(self.name).agents)), bool)), frames

    def step(self, keys: jax.Array, state: MarlState, actions: jax.Array) -> tuple[MarlState, Step]:
        """Step every env; actions int32 [A, N], keys [N]."""
        return jax.vmap(self._step_one, in_axes=(0, 0, 1), out_axes=(0, 1))(keys, state, actions)

    def _reset_one(self, key: jax.Array) -> tuple[Any, jax.Array]:
        found = load(self.name)
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            observations, world = found.env.reset(key)
            return settled(world), self._frames(found, observations, world)

    def _step_one(self, key: jax.Array, state: MarlState, actions: jax.Array) -> tuple[MarlState, Step]:
        found = load(self.name)
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
        if found.picture:
            return jnp.stack(frames)
        size, most = max(frame.size for frame in frames), max(found.actions)
        padded = [jnp.pad(frame.ravel().astype(jnp.float32), (0, size - frame.size)) for frame in frames]
        if found.masked:
            available = _ask_available(found.env)(world) if found.asks else {}
            for i, agent in enumerate(found.agents):
                mask = jnp.ravel(available[agent]) if found.asks else jnp.ones(found.actions[i])
                mask = jnp.pad((mask > 0).astype(jnp.float32), (0, most - mask.size))
                padded[i] = jnp.concatenate([padded[i], mask])
        return jnp.stack(padded)


@dataclass(frozen=True)
class SharedEnvs:
    """The A agents of N envs as N·A single-agent envs, whose frames say which agent it is.

    The agents of an env are adjacent: row n·A + a is agent a of env n.
    """

    several: MarlEnvs

    @property
    def num_envs(self) -> int:
        """Number of rows, N·A: every agent of every env."""
        return self.several.num_envs * len(self.several.spec.agents)

    @property
    def spec(self) -> EnvSpec:
        """The spec; an agent's one-hot number precedes its observation."""
        spec = self.several.spec
        if len(spec.shape) > 1:
            return spec._replace(agents=(), fields=())
        return spec._replace(shape=(spec.shape[0] + len(spec.agents),), agents=(), fields=())

    def reset(self, keys: jax.Array) -> tuple[MarlState, jax.Array]:
        """Reset all envs, from keys [N·A], of which each env uses one. Returns the state and frames [N·A, *shape]."""
        state, frames = self.several.reset(keys[:: len(self.several.spec.agents)])
        return state, self._rows(self._named(frames))

    def step(self, keys: jax.Array, state: MarlState, actions: jax.Array) -> tuple[MarlState, Step]:
        """Step every env; actions int32 [N·A]."""
        agents = len(self.several.spec.agents)
        state, step = self.several.step(keys[::agents], state, actions.reshape(-1, agents).T)
        step = step._replace(frame=self._named(step.frame))
        return state, Step(*(self._rows(leaf) for leaf in step))

    def _named(self, frames: jax.Array) -> jax.Array:
        if frames.ndim > 3:
            return frames
        names = jnp.eye(frames.shape[0], dtype=frames.dtype)[:, None]  # [A, 1, A]
        return jnp.concatenate([jnp.broadcast_to(names, (*frames.shape[:2], frames.shape[0])), frames], axis=-1)

    def _rows(self, leaf: jax.Array) -> jax.Array:
        """[N·A, …] from [A, N, …]."""
        return jnp.moveaxis(leaf, 0, 1).reshape(-1, *leaf.shape[2:])


@cache
def load(name: str) -> Environment:
    """Load a world and inspect it; a `UsageError` says what is wrong with it."""
    with jax.ensure_compile_time_eval(), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        source, _, rest = name.partition("/")
        found = _of_jaxmarl(rest) if source == "jaxmarl" else user_code.find_world(rest, name)
        return _inspect(name, user_code.instantiate(found, name))


def names() -> list[str]:
    """The worlds that JaxMARL has registered."""
    return list(_jaxmarl().registered_envs)


def _inspect(name: str, env: Any) -> Environment:
    """Inspect a world's agents, spaces, shapes and dtypes."""
    for function in ("reset", "step_env", "action_space"):
        if not callable(getattr(env, function, None)):
            raise UsageError(f"`{name}` does not have JaxMARL's API: it lacks `{function}`.")
    agents = tuple(getattr(env, "agents", ()))
    if not agents:
        raise UsageError(f"`{name}` has no agents: its `agents` has to be a list of their names.")
    if len(set(agents)) < len(agents):
        raise UsageError(f"`{name}` names an agent twice in its `agents`: {list(agents)}.")
    actions = tuple(_count_actions(name, env, agent) for agent in agents)
    key = jax.random.key(0)
    observations, state = attempt(name, "reset", lambda: jax.eval_shape(lambda: tuple(env.reset(key))))
    _check_agents(name, "reset", "observation", observations, agents)
    layouts = tuple(layout_of(kinds(observations[agent]), f"{name} ({agent})") for agent in agents)
    state = kinds(state)
    taken = {agent: jax.ShapeDtypeStruct((), jnp.int32) for agent in agents}
    made = attempt(name, "step_env", lambda: jax.eval_shape(lambda s, a: tuple(env.step_env(key, s, a)), state, taken))
    if len(made) != 5:
        raise UsageError(
            f"`{name}` returns {len(made)} values from `step_env`, not observations, state, rewards, dones, infos."
        )
    next_observations, next_state, rewards, dones, _ = made
    for field, part in [("observation", next_observations), ("reward", rewards), ("done", dones)]:
        _check_agents(name, "step_env", field, part, agents)
    if ALL not in dones:
        raise UsageError(f"`{name}` returns dones without `{ALL}` from `step_env`: it says when the episode is over.")
    if changed := difference(
        kinds({a: observations[a] for a in agents}), kinds({a: next_observations[a] for a in agents})
    ):
        raise UsageError(f"`{name}` changes the type of its observations: in `step_env`, {changed}.")
    if changed := difference(state, kinds(next_state)):
        raise UsageError(f"`{name}` changes the type of its state: in `step_env`, {changed}.")
    for field, part in [("reward", rewards), ("done", dones)]:
        for agent in agents:
            if jnp.shape(part[agent]) != ():
                raise UsageError(
                    f"`{name}` returns a {field} of {describe(part[agent])} for {agent} from `step_env`: it has to be "
                    "a scalar."
                )
    asks = _availability_varies(env, state)
    masked = asks or len(set(actions)) > 1
    picture = not masked and len(set(layouts)) == 1 and len(layouts[0].shape) > 1
    return Environment(env, agents, layouts, actions, picture, masked, asks)


def _count_actions(name: str, env: Any, agent: str) -> int:
    space = attempt(name, "action_space", lambda: env.action_space(agent))
    if not hasattr(space, "n"):
        raise UsageError(
            f"`{name}` has the actions {type(space).__name__} for {agent} (its `action_space`), but value learners "
            "need discrete ones: they have to be `Discrete`."
        )
    return int(space.n)


def _check_agents(name: str, function: str, field: str, part: Any, agents: tuple[str, ...]) -> None:
    missing = [agent for agent in agents if not isinstance(part, dict) or agent not in part]
    if missing:
        raise UsageError(
            f"`{name}` returns no {field} for {missing[0]} from `{function}`: it has to be a dict with one for each of "
            "its `agents`."
        )


def _availability_varies(env: Any, state: Any) -> bool:
    """Whether a world reports available actions, and these depend on its state or are not always all."""
    ask = _ask_available(env)
    if ask is None:
        return False
    try:
        with jax.disable_jit():  # so that results that do not depend on the state stay concrete
            traced = jax.make_jaxpr(ask)(state)
    except NotImplementedError:
        return False  # JaxMARL's default, which worlds need not override
    except Exception as error:
        raise UsageError(f"A world fails in its `get_avail_actions`: {brief(error)}.") from error
    depends = set(map(id, traced.jaxpr.invars))
    for equation in traced.jaxpr.eqns:
        if any(id(variable) in depends for variable in equation.invars):
            depends |= set(map(id, equation.outvars))
    if any(id(variable) in depends for variable in traced.jaxpr.outvars):
        return True
    constants = jax.core.eval_jaxpr(
        traced.jaxpr, traced.consts, *(jnp.zeros(s.shape, s.dtype) for s in jax.tree.leaves(state))
    )
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


def _of_jaxmarl(name: str) -> Any:
    known = names()
    if name not in known:
        raise unknown("world of JaxMARL", name, known)
    return attempt(f"jaxmarl/{name}", "make", lambda: _jaxmarl().make(name))


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
    several = MarlEnvs(world.name, num_envs)
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
