"""Envs of a world with PettingZoo's parallel API, or sorrel's, on the host, stepped one after another in this process.

Agents are the world's `possible_agents`; one that is no longer among its `agents` is absent until the next episode.
Frames and actions have the same size for all agents: smaller ones are padded, and actions that an agent does not have,
or that its `action_mask` forbids, are never available (see `marl_world.py`).

Shapes: N envs, A agents, D numbers in a frame, K actions.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from xladder import user_code
from xladder.errors import UsageError, XladderError, brief, missing_extra
from xladder.worlds.envs import EnvSpec, Step, env_seeds
from xladder.worlds.spaces_host import Part, lay_flat, parts_of

MASK = "action_mask"  # beside "observation", where a world masks actions
PICTURE_AXES = 3


class Layout(NamedTuple):
    """What is known of a world before it starts."""

    agents: tuple[str, ...]
    parts: tuple[tuple[Part, ...], ...]
    """The arrays of each agent's observation."""
    actions: tuple[int, ...]
    lowest: tuple[int, ...]
    """The first action of each agent."""
    picture: tuple[int, ...] | None
    """The shape of a uint8 frame, if all agents have images of the same shape."""
    tells: bool
    """Whether observations come with a mask of available actions."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Size of each agent's observation."""
        return tuple(sum(part.size for part in parts) for parts in self.parts)

    @property
    def masked(self) -> bool:
        """Whether frames end with an action mask."""
        return self.tells or len(set(self.actions)) > 1

    @property
    def spec(self) -> EnvSpec:
        """Shape of the frames and number of actions."""
        most = max(self.actions)
        if self.picture:
            return EnvSpec(self.picture, np.dtype(np.uint8), most, 255, agents=self.agents, absences=True)
        size = max(self.sizes) + self.masked * most
        return EnvSpec((size,), np.dtype(np.float32), most, agents=self.agents, masked=self.masked, absences=True)


class ZooEnvs:
    """N envs of the world called `zoo/module:parallel_env`; see `envs.HostEnvs`. Frames are [A, N, *shape]."""

    def __init__(self, name: str, num_envs: int, seed: int, first: int = 0):
        self.num_envs, self._name = num_envs, name
        self._envs = [make(name) for _ in range(num_envs)]
        self.layout = _layout(name, self._envs[0])
        self.spec = self.layout.spec
        self._seeds = [int(each) for each in env_seeds(seed, num_envs, first=first)]
        self._over = np.zeros(num_envs, bool)
        self._gone = np.zeros((len(self.layout.agents), num_envs), bool)
        self._actions: Any = None
        self._frames = np.zeros((len(self.layout.agents), num_envs, *self.spec.shape), self.spec.dtype)

    def reset(self) -> np.ndarray:
        """Reset all envs; returns the first frames [A, N, *shape]."""
        for n, seed in enumerate(self._seeds):
            self._begin(n, seed)
        self._over[:], self._gone[:] = False, False
        return self._frames.copy()

    def send(self, actions: np.ndarray) -> None:
        """Set the next actions of all agents; actions int [A, N]."""
        self._actions = np.asarray(actions, np.int64)

    def recv(self) -> Step:
        """Step every env with the actions that `send` set."""
        shape = self._gone.shape
        reward, ends, cut = np.zeros(shape, np.float32), np.zeros(shape, bool), np.zeros(shape, bool)
        is_first = self._over.copy()
        for n, env in enumerate(self._envs):
            if is_first[n]:
                self._begin(n, None)
                self._gone[:, n], self._over[n] = False, False
                continue
            absent = self._gone[:, n].copy()
            taken = {
                agent: int(min(self._actions[i, n], self.layout.actions[i] - 1)) + self.layout.lowest[i]
                for i, agent in enumerate(self.layout.agents)
                if agent in env.agents
            }
            observations, rewards, terminations, truncations, _ = self._ask(env, "step", taken)
            self._show(n, observations)
            for i, agent in enumerate(self.layout.agents):
                if absent[i]:
                    ends[i, n] = cut[i, n] = True
                    continue
                reward[i, n] = rewards.get(agent, 0.0)
                ends[i, n] = bool(terminations.get(agent, False))
                cut[i, n] = bool(truncations.get(agent, False)) and not ends[i, n]
                self._gone[i, n] = ends[i, n] or cut[i, n] or agent not in env.agents
                if self._gone[i, n] and not cut[i, n]:
                    ends[i, n] = True
            self._over[n] = bool(self._gone[:, n].all()) or not env.agents
            if self._over[n]:
                self._gone[:, n] = False
        return Step(self._frames.copy(), reward, ends, cut, np.broadcast_to(is_first, shape).copy())

    def close(self) -> None:
        """Close every env."""
        for env in self._envs:
            env.close()
        self._envs = []

    def _begin(self, n: int, seed: int | None) -> None:
        observations, _ = self._ask(self._envs[n], "reset", seed=seed)
        self._frames[:, n] = 0
        self._show(n, observations)

    def _show(self, n: int, observations: Mapping[str, Any]) -> None:
        """Write the agents' observations to the frames; an agent without one keeps its last."""
        layout, most = self.layout, max(self.layout.actions)
        for i, agent in enumerate(layout.agents):
            if agent not in observations:
                continue
            shown = observations[agent]
            seen, mask = (shown["observation"], shown[MASK]) if layout.tells else (shown, None)
            try:
                numbers = lay_flat(layout.parts[i], seen, 1)[0]
            except (ValueError, TypeError, LookupError) as error:
                raise XladderError(
                    f"`{self._name}` shows {agent} an observation that is not in its `observation_space`: "
                    f"{brief(error)}."
                ) from error
            if layout.picture:
                self._frames[i, n] = numbers.reshape(layout.picture)
                continue
            self._frames[i, n, : layout.sizes[i]] = numbers
            if layout.masked:
                available = np.zeros(most, np.float32)
                available[: layout.actions[i]] = 1.0 if mask is None else np.asarray(mask)
                self._frames[i, n, -most:] = available

    def _ask(self, env: Any, function: str, *given: Any, **named: Any) -> Any:
        """Call a method of a world; an exception is reported as the world's."""
        try:
            return getattr(env, function)(*given, **named)
        except Exception as error:
            raise XladderError(f"`{self._name}` fails in its `{function}`: {brief(error)}.") from error


def _layout(name: str, env: Any) -> Layout:
    """The layout of a world's frames; raises a `UsageError` that says why if it cannot be used."""
    from gymnasium import spaces

    agents = tuple(getattr(env, "possible_agents", ()))
    if not agents:
        raise UsageError(f"`{name}` has no agents: its `possible_agents` has to be a list of their names.")
    parts, actions, lowest, shapes, tells = [], [], [], [], False
    for agent in agents:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about spaces that are dicts rather than functions
            choices, shown = env.action_space(agent), env.observation_space(agent)
        if not isinstance(choices, spaces.Discrete):
            raise UsageError(
                f"`{name}` has the actions {choices} for {agent} (its `action_space`), but value learners "
                "need discrete ones: they have to be `Discrete`."
            )
        if isinstance(shown, spaces.Dict) and {"observation", MASK} <= set(shown.spaces):
            tells, shown = True, shown["observation"]
        found = parts_of(shown) if isinstance(shown, spaces.Box | spaces.Dict | spaces.Tuple) else None
        if found is None:
            raise UsageError(
                f"`{name}` shows {agent} {shown} (its `observation_space`), but networks need arrays: wrap "
                "it so that it shows a `Box`, or a `Dict` or `Tuple` of numbers."
            )
        parts.append(found)
        shapes.append((found[0].shape, found[0].dtype) if len(found) == 1 else None)
        actions.append(int(choices.n))
        lowest.append(int(choices.start))
    picture = None
    first = shapes[0]
    if first and len(set(shapes)) == 1 and first[1] == np.uint8 and len(first[0]) == PICTURE_AXES and not tells:
        picture = first[0] if len(set(actions)) == 1 else None
    return Layout(tuple(map(str, agents)), tuple(parts), tuple(actions), tuple(lowest), picture, tells)


def make(name: str) -> Any:
    """Make one env; a sorrel environment is given PettingZoo's API."""
    try:
        import pettingzoo  # noqa: F401 - fail here, before the world's module does
    except ImportError as error:
        raise missing_extra("pettingzoo", "zoo") from error
    found = user_code.find_world(name.partition("/")[2], name)
    made = user_code.instantiate(found, name)
    from xladder.worlds import sorrel_host

    if sorrel_host.is_sorrel(made):
        make = (lambda: copy.deepcopy(made)) if made is found else partial(user_code.instantiate, found, name)
        return sorrel_host.SorrelEnv(make, name)
    for function in ("reset", "step", "action_space", "observation_space"):
        if not callable(getattr(made, function, None)):
            raise UsageError(
                f"`{name}` does not have PettingZoo's parallel API: it lacks `{function}`. Name the function that "
                "makes one, such as `zoo/pettingzoo.sisl.pursuit_v5:parallel_env`."
            )
    return made


@cache
def layout(name: str) -> Layout:
    """The layout of the world with this name."""
    env = make(name)
    try:
        return _layout(name, env)
    finally:
        env.close()


def spec(world: Any) -> EnvSpec:
    """Shape of the frames and number of actions of a configured world."""
    return layout(world.name).spec


def on_host(world: Any, num_envs: int, seed: int, compiled: Any, first: int = 0) -> ZooEnvs:
    """Envs of a configured world."""
    return ZooEnvs(world.name, num_envs, seed, first)
