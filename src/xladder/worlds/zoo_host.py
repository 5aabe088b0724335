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
from xladder.core.packages import missing_extra
from xladder.errors import CONTINUOUS, UsageError, UserCodeFailed, brief
from xladder.worlds.arguments import arguments
from xladder.worlds.envs import EnvSpec, Step, env_seeds
from xladder.worlds.host_calls import call, tried
from xladder.worlds.spaces_host import Part, as_fields, lay_flat, parts_of

MASK = "action_mask"  # beside "observation", where a world masks actions
PICTURE_AXES = 3
RETURNED = {
    "reset": ("observations", "infos"),
    "step": ("observations", "rewards", "terminations", "truncations", "infos"),
}


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
        *rows, last = self.picture or (max(self.sizes),)
        return EnvSpec(
            (*rows, last + self.masked * most),
            np.dtype(np.uint8 if self.picture else np.float32),
            most,
            255 if self.picture else 1,
            agents=self.agents,
            masked=self.masked,
            absences=True,
            fields=as_fields(self.parts[0]) if len(set(self.parts)) == 1 else (),
        )


class ZooEnvs:
    """N envs of the world called `zoo/module:parallel_env`; see `envs.HostEnvs`. Frames are [A, N, *shape]."""

    def __init__(self, name: str, num_envs: int, seed: int, first: int = 0, kwargs: tuple[str, ...] = ()):
        self.num_envs, self._name = num_envs, name
        self._envs = [make(name, kwargs) for _ in range(num_envs)]
        if len(set(map(id, self._envs))) < num_envs:
            raise UsageError(
                f"`{name}` returns the same environment whenever it is called, but every env has to be its own: make a "
                "new one in each call."
            )
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
                if agent in self._acting(env)
            }
            observations, rewards, terminations, truncations, _ = self._ask(env, "step", taken)
            self._show(n, "step", observations)
            acting = self._acting(env)
            for i, agent in enumerate(self.layout.agents):
                if absent[i]:
                    ends[i, n] = cut[i, n] = True
                    continue
                reward[i, n] = self._number("reward", rewards, agent)
                ends[i, n] = bool(self._number("termination", terminations, agent))
                cut[i, n] = bool(self._number("truncation", truncations, agent)) and not ends[i, n]
                self._gone[i, n] = ends[i, n] or cut[i, n] or agent not in acting
                if self._gone[i, n] and not cut[i, n]:
                    ends[i, n] = True
            self._over[n] = bool(self._gone[:, n].all()) or not acting
            if self._over[n]:
                self._gone[:, n] = False
        return Step(self._frames.copy(), reward, ends, cut, np.broadcast_to(is_first, shape).copy())

    def close(self) -> None:
        """Close every env."""
        for env in self._envs:
            call(self._name, "close", env.close)
        self._envs = []

    def _begin(self, n: int, seed: int | None) -> None:
        observations, _ = self._ask(self._envs[n], "reset", seed=seed)
        self._frames[:, n] = 0
        self._show(n, "reset", observations)

    def _show(self, n: int, function: str, observations: Mapping[str, Any]) -> None:
        """Write the agents' observations to the frames; an agent without one keeps its last."""
        layout, most, acting = self.layout, max(self.layout.actions), self._acting(self._envs[n])
        for i, agent in enumerate(layout.agents):
            if agent not in observations:
                continue
            shown, mask = observations[agent], None
            if layout.tells:
                if not isinstance(shown, Mapping) or not {"observation", MASK} <= set(shown):
                    raise self._fault(function, shown, f"the observation of {agent}", f"a dict with `{MASK}`")
                shown, mask = shown["observation"], np.asarray(shown[MASK])
            try:
                numbers = lay_flat(layout.parts[i], shown, 1)[0]
            except (ValueError, TypeError, LookupError) as error:
                must = f"numbers of the size of its `observation_space`, {layout.sizes[i]}"
                shown = shown if isinstance(shown, Mapping | tuple) else np.asarray(shown)
                raise self._fault(function, shown, f"the observation of {agent}", must) from error
            if not np.isfinite(numbers).all():
                raise UserCodeFailed(
                    f"`{self._name}` returns an observation of {agent} with {numbers[~np.isfinite(numbers)][0]} in it "
                    f"from `{function}`: it has to be finite numbers."
                )
            if layout.picture:
                self._frames[i, n, ..., : layout.picture[-1]] = numbers.reshape(layout.picture)
            else:
                self._frames[i, n, : layout.sizes[i]] = numbers
            if layout.masked:
                if mask is not None and (mask.size != layout.actions[i] or mask.dtype.kind not in "biuf"):
                    raise self._fault(function, mask, f"the `{MASK}` of {agent}", f"{layout.actions[i]} flags")
                available = np.zeros(most, np.float32)
                available[: layout.actions[i]] = 1.0 if mask is None else mask.ravel()
                if agent in acting and not available.any():
                    raise UserCodeFailed(
                        f"`{self._name}` forbids {agent} every action in its `{MASK}` from `{function}` although its "
                        "episode goes on: allow one, or end it."
                    )
                self._frames[i, n, ..., -most:] = available

    def _number(self, field: str, returned: Mapping[str, Any], agent: str) -> float:
        """What `step` returned for an agent that acted."""
        if agent not in returned:
            raise UserCodeFailed(
                f"`{self._name}` returns no {field} for {agent} from `step`: it has to be a dict with one for each of "
                "the agents that act."
            )
        value = np.asarray(returned[agent])
        if value.size != 1 or value.dtype.kind not in "biuf":
            raise self._fault("step", returned[agent], f"the {field} of {agent}", "one number")
        return float(value.item())

    def _acting(self, env: Any) -> list[str]:
        """The agents that act now."""
        return call(self._name, "agents", lambda: list(env.agents))

    def _ask(self, env: Any, function: str, *given: Any, **named: Any) -> Any:
        """Call a method of a world, and check that it returns what it has to."""
        returned = call(self._name, function, getattr(env, function), *given, **named)
        fields = RETURNED[function]
        if not isinstance(returned, tuple | list) or len(returned) != len(fields):
            what = f"{len(returned)} values" if isinstance(returned, tuple | list) else _kind(returned)
            raise UserCodeFailed(
                f"`{self._name}` returns {what} from `{function}`, but there have to be {len(fields)}: "
                f"{', '.join(fields[:-1])} and {fields[-1]}."
            )
        for field, part in zip(fields[:-1], returned, strict=False):  # infos are not used
            if not isinstance(part, Mapping):
                raise self._fault(function, part, field, "a dict by agent")
        return returned

    def _fault(self, function: str, returned: Any, field: str, must: str) -> UserCodeFailed:
        return UserCodeFailed(
            f"`{self._name}` returns {_kind(returned)} as {field} from `{function}`: it has to be {must}."
        )


def _kind(thing: Any) -> str:
    """What something is, in words."""
    if isinstance(thing, np.ndarray):
        return f"{thing.dtype} {list(thing.shape)}"
    return "None" if thing is None else f"an object of type {type(thing).__name__}"


def _layout(name: str, env: Any) -> Layout:
    """The layout of a world's frames; raises a `UsageError` that says why if it cannot be used."""
    from gymnasium import spaces

    listed = call(name, "possible_agents", lambda: getattr(env, "possible_agents", None))
    if not isinstance(listed, list | tuple) or not listed or not all(isinstance(agent, str) for agent in listed):
        what = f"the agents {listed!r}" if listed else "no agents"
        raise UsageError(f"`{name}` has {what}: its `possible_agents` has to be a list of their names.")
    if len(set(listed)) < len(listed):
        raise UsageError(f"`{name}` names an agent twice in its `possible_agents`: {list(listed)}.")
    agents = tuple(listed)
    parts, actions, lowest, shapes, tells = [], [], [], [], False
    for agent in agents:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about spaces that are dicts rather than functions
            choices = call(name, "action_space", env.action_space, agent)
            shown = call(name, "observation_space", env.observation_space, agent)
        if not isinstance(choices, spaces.Discrete):
            raise UsageError(
                f"`{name}` has the actions {choices} for {agent} (its `action_space`), but value learners "
                f"need discrete ones: they have to be `Discrete`. {CONTINUOUS}"
            )
        if isinstance(shown, spaces.Dict) and {"observation", MASK} <= set(shown.spaces):
            tells, shown = True, shown["observation"]
        found = parts_of(shown)
        if found is None:
            raise UsageError(
                f"`{name}` shows {agent} {shown} (its `observation_space`), but networks need numbers: wrap it so that "
                "it shows a `Box`, `Discrete`, `MultiDiscrete` or `MultiBinary`, or a `Dict` or `Tuple` of them."
            )
        parts.append(found)
        shapes.append((found[0].shape, found[0].dtype) if len(found) == 1 else None)
        actions.append(int(choices.n))
        lowest.append(int(choices.start))
    picture = None
    first = shapes[0]
    if first and len(set(shapes)) == 1 and first[1] == np.uint8 and len(first[0]) == PICTURE_AXES:
        picture = first[0]
    return Layout(agents, tuple(parts), tuple(actions), tuple(lowest), picture, tells)


def find(name: str) -> Any:
    """The class, function or object called `zoo/NAME`."""
    try:
        import pettingzoo  # noqa: F401 - fail here, before the world's module does
    except ImportError as error:
        raise missing_extra("pettingzoo", "zoo") from error
    return user_code.find_world(name.partition("/")[2], name)


def make(name: str, kwargs: tuple[str, ...] = ()) -> Any:
    """Make one env, a copy where the name stands for an instance; a sorrel environment is given PettingZoo's API.

    `kwargs` are arguments of the class or function, as `name=value`.
    """
    found, given = find(name), arguments(kwargs)
    made = user_code.instantiate(found, name, given)
    from xladder.worlds import sorrel_host

    if sorrel_host.is_sorrel(made):
        make = (lambda: copy.deepcopy(made)) if made is found else partial(user_code.instantiate, found, name, given)
        return sorrel_host.SorrelEnv(make, name)
    for function in ("reset", "step", "action_space", "observation_space"):
        if not callable(getattr(made, function, None)):
            raise UsageError(
                f"`{name}` does not have PettingZoo's parallel API: it lacks `{function}`. Name the function that "
                "makes one, such as `zoo/pettingzoo.sisl.pursuit_v5:parallel_env`."
            )
    return _copy(made, name) if made is found else made


def _copy(env: Any, name: str) -> Any:
    """A copy of an env that the user made: several that step the same one would play one episode together."""
    try:
        return copy.deepcopy(env)
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"`{name}` is one environment, and every env has to be its own, but it cannot be copied: {brief(error)}. "
            "Name a class or function without arguments that makes one."
        ) from error


@cache
def layout(name: str, kwargs: tuple[str, ...] = ()) -> Layout:
    """The layout of the world with this name and these arguments, which is reset and stepped once."""
    # One step: what a world returns is known only once it has been called. Two envs: they have to be two.
    return tried(lambda: ZooEnvs(name, 2, 0, kwargs=kwargs)).layout


def spec(world: Any) -> EnvSpec:
    """Shape of the frames and number of actions of a configured world."""
    return layout(world.name, world.kwargs).spec


def on_host(world: Any, num_envs: int, seed: int, compiled: Any, first: int = 0) -> ZooEnvs:
    """Envs of a configured world."""
    return ZooEnvs(world.name, num_envs, seed, first, world.kwargs)
