"""A sorrel environment with PettingZoo's parallel API: any `Environment` of sorrel 1.6.

A step is a turn, `take_turn` as its author wrote it. When the first agent asks for its action, the turn is paused: all
agents observe now, their actions are awaited, and then they act one after another, in sorrel's order. So everything is
as in sorrel, except that agents do not see the moves that others make before them in the same turn.

sorrel draws from the global generators of NumPy and Python. Every environment here has states of its own for them, so
that the same seed gives the same episodes, whatever else is drawn.

Shapes: A agents.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from xladder.errors import UsageError, XladderError, brief
from xladder.worlds.coroutines import Coroutine
from xladder.worlds.names import SORREL

OF_AGENTS = ("pov", "act", "get_action", "transition")


class SorrelEnv(ParallelEnv[str, np.ndarray, int]):
    """All agents of a sorrel environment. Observations are their `pov`, flattened; their own models are not used.

    Args:
        make: makes the environment; called again whenever a seed is given.
        name: its name in messages.
        max_turns: turns of an episode; `config.experiment.max_turns` if not given.
    """

    def __init__(self, make: Callable[[], Any], name: str, max_turns: int | None = None):
        self.metadata = {"name": name, "render_modes": []}
        self.render_mode = None
        self._construct, self._name, self._given_turns = make, name, max_turns
        self._randomness = Randomness(int(np.random.SeedSequence().generate_state(1)[0]))
        self._turns: Coroutine | None = None
        self.agents: list[str] = []
        self._make()
        first = self._check_agents()
        self.possible_agents = [f"agent_{i}" for i in range(len(first))]
        self._boxes: dict[str, spaces.Space] = {
            agent: spaces.Box(-np.inf, np.inf, (seen.size,), np.float32)
            for agent, seen in zip(self.possible_agents, first, strict=True)
        }
        self._actions: dict[str, spaces.Space] = {
            agent: spaces.Discrete(int(one.action_spec.n_actions))
            for agent, one in zip(self.possible_agents, self.environment.agents, strict=True)
        }

    environment: Any
    """The sorrel environment."""

    def observation_space(self, agent: str) -> spaces.Space:
        """The observations of an agent."""
        return self._boxes[agent]

    def action_space(self, agent: str) -> spaces.Space:
        """The actions of an agent."""
        return self._actions[agent]

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict[str, np.ndarray], dict]:
        """Begin an epoch, up to where its first agent would act. With a seed, the environment is made anew."""
        self.close()
        if seed is not None:
            self._randomness = Randomness(seed)
            self._make()
        with self._randomness.used():
            self.environment.reset()
            self._attach()
        self._turns = Coroutine(self._play)
        self.agents = list(self.possible_agents)
        self._advance()
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict, dict, dict, dict, dict]:
        """Let all agents act in order; then the next turn begins, up to where its first agent would act."""
        self._chosen = [int(actions[agent]) for agent in self.possible_agents]
        over = self._advance()
        dones, rewards = self._last
        present = list(self.agents)
        terminated = {agent: over and done for agent, done in zip(present, dones, strict=True)}
        truncated = {agent: over and not done for agent, done in zip(present, dones, strict=True)}
        seen = self._observations()
        if over:
            self.agents = []
        given = dict(zip(present, rewards, strict=True))
        return seen, given, terminated, truncated, {agent: {} for agent in present}

    def close(self) -> None:
        """End the turn that is paused, if there is one."""
        if self._turns is not None:
            with self._randomness.used():
                self._turns.stop()
            self._turns = None

    def _make(self) -> None:
        """Make the environment; what it draws then comes from its own random numbers."""
        with self._randomness.used(), _torch_kept():
            self.environment = self._construct()
        need_environment(self.environment, self._name)
        self._max_turns = self._length()

    def _length(self) -> int:
        turns = self._given_turns
        if turns is None:
            experiment = getattr(getattr(self.environment, "config", None), "experiment", None)
            turns = getattr(experiment, "max_turns", None)
        if turns is None:
            raise UsageError(
                f"`{self._name}` does not say how long an epoch is: set `experiment.max_turns` in its config, or give "
                "`max_turns` to `wrap`."
            )
        if int(turns) < 1:
            raise UsageError(f"`max_turns` of `{self._name}` is {turns}, but it has to be 1 or more.")
        return int(turns)

    def _check_agents(self) -> list[np.ndarray]:
        """What each agent sees now; a `UsageError` if an agent lacks what is needed."""
        found = list(self.environment.agents)
        if not found:
            raise UsageError(f"`{self._name}` has no agents: its `setup_agents` has to assign them to `self.agents`.")
        for agent in found:
            for method in OF_AGENTS:
                if not callable(getattr(agent, method, None)):
                    raise UsageError(f"`{self._name}` has an agent without `{method}`: {type(agent).__name__}.")
            if not hasattr(getattr(agent, "action_spec", None), "n_actions"):
                raise UsageError(
                    f"`{self._name}` has an agent without `action_spec.n_actions`: {type(agent).__name__}."
                )
        return [self._flat(self._first_look(agent), agent) for agent in found]

    def _first_look(self, agent: Any) -> Any:
        try:
            return agent.pov(self.environment.world)
        except Exception as error:
            raise UsageError(f"`{self._name}` fails in `pov` of {type(agent).__name__}: {brief(error)}.") from error

    def _flat(self, seen: Any, agent: Any) -> np.ndarray:
        numbers = np.asarray(seen)
        if numbers.dtype.kind not in "biuf":
            raise UsageError(
                f"`{self._name}` shows {type(agent).__name__} {type(seen).__name__} (its `pov`), but networks need "
                "arrays of numbers."
            )
        return numbers.astype(np.float32).ravel()

    def _attach(self) -> None:
        """Replace what connects agents to their models: actions come from outside, experience goes there."""
        present = list(self.environment.agents)
        if len(present) != len(self.possible_agents):
            raise XladderError(
                f"`{self._name}` has {len(present)} agents after a reset and had {len(self.possible_agents)} before: "
                "their number has to stay the same."
            )
        self._present = present
        for i, agent in enumerate(present):
            if "get_action" not in vars(agent):  # not attached yet
                self._attach_one(i, agent)

    def _attach_one(self, i: int, agent: Any) -> None:
        look, act = agent.pov, agent.act

        def pov(world: Any) -> Any:
            return look(world) if self._seen is None else self._seen[i]

        def get_action(state: Any) -> int:
            if self._seen is None:
                self._seen = [state if j == i else one.pov(self.environment.world) for j, one in self._numbered()]
                self._pause()
            return self._chosen[i]

        def acted(world: Any, action: int) -> Any:
            reward = act(world, action)
            self._rewards[i] = float(reward)
            return reward

        def add_memory(state: Any, action: int, reward: Any, done: Any) -> None:
            self._rewards[i], self._dones[i] = float(reward), bool(done)

        agent.pov, agent.get_action, agent.act, agent.add_memory = pov, get_action, acted, add_memory

    def _numbered(self) -> list[tuple[int, Any]]:
        return list(enumerate(self._present))

    def _pause(self) -> None:
        assert self._turns is not None
        self._turns.pause()

    def _play(self) -> None:
        """An epoch; `_turns` runs it from one decision of the agents to the next."""
        environment, agents = self.environment, len(self.possible_agents)
        over, taken = False, 0
        while not over:
            self._seen, self._rewards, self._dones = None, [0.0] * agents, [False] * agents
            environment.take_turn()
            taken += 1
            if self._seen is None:
                raise XladderError(
                    f"`{self._name}` took a turn in which no agent called its `get_action`: there is nothing to learn."
                )
            stopped = bool(getattr(environment, "stop_if_done", False) and environment.world.is_done)
            dones = [stopped or done for done in self._dones]
            over = taken >= self._max_turns or all(dones)
            self._last = dones, self._rewards
        self._seen = None  # so that agents look again
        self._seen = [one.pov(environment.world) for one in self._present]

    def _advance(self) -> bool:
        """Go on to the agents' next decision; returns whether the epoch has ended instead."""
        assert self._turns is not None
        with self._randomness.used():
            return self._turns.resume()

    def _observations(self) -> dict[str, np.ndarray]:
        assert self._seen is not None
        flat = [self._flat(seen, agent) for seen, agent in zip(self._seen, self._present, strict=True)]
        return dict(zip(self.possible_agents, flat, strict=True))

    _seen: list[Any] | None = None  # what agents see in this turn, once the first has looked
    _chosen: list[int]
    _rewards: list[float]
    _dones: list[bool]
    _last: tuple[list[bool], list[float]]  # whether agents are done, and their rewards, of the last turn
    _present: list[Any]


class Randomness:
    """The global generators of NumPy and Python, as one environment sees them."""

    def __init__(self, seed: int):
        generator: Any = np.random.MT19937()
        generator.state = np.random.RandomState(seed % 2**32).get_state(legacy=False)  # as after `np.random.seed`
        self._numpy = generator
        self._python = random.Random(seed).getstate()  # noqa: S311

    @contextmanager
    def used(self) -> Iterator[None]:
        """Within, the global generators continue from here; afterwards they are what they were."""
        generators: Any = np.random  # whose stubs lack two of its functions
        numpy, python = generators.get_bit_generator(), random.getstate()
        generators.set_bit_generator(self._numpy)
        random.setstate(self._python)
        try:
            yield
        finally:
            self._python = random.getstate()
            generators.set_bit_generator(numpy)
            random.setstate(python)


@contextmanager
def _torch_kept() -> Iterator[None]:
    """Keep PyTorch's generator as it is: models of sorrel are made with `torch.random.seed()`, which changes it."""
    torch = sys.modules.get("torch")
    state = torch.get_rng_state() if torch else None
    try:
        yield
    finally:
        torch = sys.modules.get("torch")
        if torch and state is not None:
            torch.set_rng_state(state)


def is_sorrel(thing: Any) -> bool:
    """Whether an object looks like a sorrel environment."""
    return all(hasattr(thing, name) for name in SORREL)


def need_environment(made: Any, name: str) -> None:
    """Raise a `UsageError` if an object is not a sorrel environment."""
    for part in ("take_turn", "reset", "agents", "world"):
        if not hasattr(made, part):
            raise UsageError(f"`{name}` is not a sorrel environment: it lacks `{part}`.")


def checked(make: Callable[[], Any], name: str) -> Callable[[], Any]:
    """The same function, with its exceptions as a `UsageError`."""
    return partial(_call, make, name)


def _call(make: Callable[[], Any], name: str) -> Any:
    try:
        return make()
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"`{name}` cannot be created: {brief(error)}.") from error
