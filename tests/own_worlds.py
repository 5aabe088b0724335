"""Worlds that a user might bring: good ones, and one for everything that can be wrong with them."""

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnax.environments.classic_control.cartpole import CartPole


class Discrete:
    def __init__(self, n):
        self.n = n


class State(NamedTuple):
    place: jax.Array
    time: jax.Array


class Params(NamedTuple):
    max_steps_in_episode: int = 20


class Corridor:
    """gymnax's API without gymnax: walk right to the end of six cells; left of the first is a hole."""

    default_params = Params()
    cells = 6

    def reset_env(self, key, params):
        state = State(jax.random.randint(key, (), 1, 3), 0)  # a Python number, whose type is weak
        return self.observe(state), state

    def step_env(self, key, state, action, params):
        state = State(state.place + jnp.where(action == 1, 1, -1), state.time + 1)
        found, fell = state.place >= self.cells - 1, state.place < 0
        return self.observe(state), state, found * 1.0 - fell * 1.0, found | fell, {}

    def observe(self, state):
        return {"place": jax.nn.one_hot(state.place, self.cells), "time": jnp.asarray(state.time, jnp.int32)}

    def is_truncated(self, state, params):
        return state.time >= params.max_steps_in_episode

    def action_space(self, params):
        return Discrete(2)


class Railed(Corridor):
    """One cannot fall."""

    def get_avail_actions(self, state, params):
        return jnp.array([state.place > 0, True])


class RailedPicture(Railed):
    """Shows an image, and is asked as in JaxMARL."""

    def get_avail_actions(self, state):
        return super().get_avail_actions(state, None)

    def observe(self, state):
        return jnp.full((4, 4, 1), state.place, jnp.uint8)


class MisRailed(Corridor):
    """Has more flags than actions."""

    def get_avail_actions(self, state, params):
        return jnp.ones(3, bool)


class ManyActions(Corridor):
    """More actions than a byte can tell apart; the last one walks right."""

    def step_env(self, key, state, action, params):
        return super().step_env(key, state, jnp.where(action >= 150, 1, 0), params)

    def action_space(self, params):
        return Discrete(300)


class Race:
    """JaxMARL's API: two agents of different sizes, of which one is done before the other and may not always jump."""

    agents = ("hare", "tortoise")
    length = 6

    def reset(self, key):
        state = State(jnp.zeros(2, jnp.int32), jnp.int32(0))
        return self.observe(state), state

    def step_env(self, key, state, actions):
        moves = jnp.stack([jnp.array([0, 1, 3])[actions["hare"]], jnp.array([0, 1])[actions["tortoise"]]])
        arrived = state.place >= self.length
        place = jnp.where(arrived, state.place, state.place + moves)
        state = State(place, state.time + 1)
        here = place >= self.length
        rewards = {a: jnp.where(here[i], 1.0, -0.1) for i, a in enumerate(self.agents)}
        over = here.all() | (state.time >= 12)
        dones = {a: here[i] for i, a in enumerate(self.agents)} | {"__all__": over}
        return self.observe(state), state, rewards, dones, {"truncated": ~here & over}

    def observe(self, state):
        far = state.place.astype(jnp.float32) / self.length
        return {"hare": jnp.stack([far[0], far[1], state.time / 12]), "tortoise": far[1:2]}

    def get_avail_actions(self, state):
        jumps = state.place[0] % 2 == 0
        return {"hare": jnp.stack([jnp.bool_(True), jnp.bool_(True), jumps]), "tortoise": jnp.ones(2, bool)}

    def action_space(self, agent):
        return Discrete(3 if agent == "hare" else 2)


class FilmedRace(Race):
    """Shows both agents the same kind of picture, and how many cells there are is an argument."""

    def __init__(self, length=6, tree=False):
        self.length, self.tree = length, tree

    def observe(self, state):
        seen = jnp.broadcast_to(state.place[:, None, None, None] * 9, (2, 4, 4, 2)).astype(jnp.uint8)
        if self.tree:
            return {agent: {"agent": seen[i], "time": state.time} for i, agent in enumerate(self.agents)}
        return {agent: seen[i] for i, agent in enumerate(self.agents)}


class Alone(Race):
    """The hare runs without an opponent."""

    agents = ("hare",)

    def step_env(self, key, state, actions):
        *rest, _ = super().step_env(key, state, actions | {"tortoise": jnp.int32(1)})
        return *rest, {}


class ChangesShape(Corridor):
    def step_env(self, key, state, action, params):
        observation, *rest = super().step_env(key, state, action, params)
        return observation | {"place": jnp.zeros(7)}, *rest


class ChangesDtype(Corridor):
    def step_env(self, key, state, action, params):
        observation, state, *rest = super().step_env(key, state, action, params)
        return observation, state._replace(place=state.place * 1.0), *rest


class PythonFloat(Corridor):
    def step_env(self, key, state, action, params):
        observation, state, reward, *rest = super().step_env(key, state, action, params)
        return observation, state, float(reward), *rest


class NeverEnds(Corridor):
    is_truncated = None

    def step_env(self, key, state, action, params):
        observation, state, reward, _, info = super().step_env(key, state, action, params)
        return observation, state, reward, jnp.bool_(False), info


class Filmed(Corridor):
    """Shows a picture, a flag and a number."""

    def observe(self, state):
        lit = jax.nn.one_hot(state.place, 4)[:, None, None] > 0
        return {
            "camera": jnp.broadcast_to(lit * 255, (4, 4, 2)).astype(jnp.uint8),
            "late": state.time > 9,
            "time": jnp.float32(state.time),
        }


class Continuous(Corridor):
    def action_space(self, params):
        return object()


class Raises(Corridor):
    def step_env(self, key, state, action, params):
        raise RuntimeError("no more steps today")


class NotANumber(Corridor):
    def step_env(self, key, state, action, params):
        observation, state, reward, *rest = super().step_env(key, state, action, params)
        return observation, state, reward / 0.0, *rest


class ForgetsAnAgent(Race):
    def step_env(self, key, state, actions):
        observations, state, rewards, dones, infos = super().step_env(key, state, actions)
        del rewards["tortoise"]
        return observations, state, rewards, dones, infos


class WithTwin(Corridor):
    twin = Corridor


class WithWrongTwin(Corridor):
    twin = ManyActions


class NeedsArguments(Corridor):
    def __init__(self, size):
        self.cells = size


nine_cells = NeedsArguments(9)


@dataclass
class Unhashable(Corridor):
    """A dataclass that compares its fields, one of which is an array."""

    cells: int = 6
    bonus: np.ndarray = field(default_factory=lambda: np.zeros(2, np.float32))


@dataclass
class UnhashableRace(Race):
    bonus: np.ndarray = field(default_factory=lambda: np.zeros(2, np.float32))


class Duel:
    """PettingZoo's parallel API: one who is hit leaves, and the episode ends when one is left or after ten steps."""

    possible_agents = ("red", "blue")
    render_mode = None

    def __init__(self):
        self.metadata = {"name": "duel"}
        from gymnasium import spaces

        self._actions = {"red": spaces.Discrete(3), "blue": spaces.Discrete(2)}
        self._box = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.agents = []

    def observation_space(self, agent):
        return self._box

    def action_space(self, agent):
        return self._actions[agent]

    def reset(self, seed=None, options=None):
        if seed is not None or not hasattr(self, "rng"):
            self.rng = np.random.default_rng(seed)
        self.agents, self.time = list(self.possible_agents), 0
        return self._look(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self.time += 1
        out = [a for a, action in actions.items() if action == 0 and self.rng.random() < 0.3]
        rewards = {agent: float(action) for agent, action in actions.items()}
        seen = self._look()
        over = self.time >= 10 or len(out) == len(self.agents)
        terminations = {agent: agent in out for agent in self.agents}
        truncations = {agent: over and agent not in out for agent in self.agents}
        self.agents = [agent for agent in self.agents if agent not in out and not over]
        return seen, rewards, terminations, truncations, {agent: {} for agent in seen}

    def _look(self):
        return {a: np.array([self.time / 10, self.rng.random()], np.float32) for a in self.agents}

    def close(self):
        pass


class FilmedDuel(Duel):
    """Shows pictures, in which a corner is the time, and says that the first action is forbidden."""

    def __init__(self, side=5, tells=True, tree=False):
        super().__init__()
        from gymnasium import spaces

        self.side, self.tells, self.tree = side, tells, tree
        self._picture = spaces.Box(0, 255, (side, side, 3), np.uint8)
        self._mask = {agent: spaces.MultiBinary(int(self._actions[agent].n)) for agent in self.possible_agents}

    def observation_space(self, agent):
        from gymnasium import spaces

        shown = spaces.Dict({"camera": self._picture, "own": self._box}) if self.tree else self._picture
        return spaces.Dict({"observation": shown, "action_mask": self._mask[agent]}) if self.tells else shown

    def _look(self):
        found = {}
        for agent, own in super()._look().items():
            shown = np.full((self.side, self.side, 3), self.time, np.uint8)
            shown = {"camera": shown, "own": own} if self.tree else shown
            mask = np.arange(self._actions[agent].n) > 0
            found[agent] = {"observation": shown, "action_mask": mask} if self.tells else shown
        return found


def make_filmed_duel(**given):
    """A function that makes one."""
    return FilmedDuel(**given)


class Lasting(Duel):
    """Ends after so many steps."""

    def __init__(self, turns):
        super().__init__()
        self.turns = turns

    def step(self, actions):
        seen, rewards, terminations, _, infos = super().step(dict.fromkeys(actions, 1))
        over = self.time >= self.turns
        self.agents = [] if over else self.agents
        return seen, rewards, terminations, dict.fromkeys(seen, over), infos


class HostRace:
    """PettingZoo's parallel API: `Race` in NumPy, with other names for its agents."""

    possible_agents = ("first", "second")
    strides = ((0, 1, 3), (0, 1))

    def reset(self, seed=None, options=None):
        self.agents, self.places, self.time = list(self.possible_agents), np.zeros(2, int), 0
        return self._look(), {}

    def step(self, actions):
        self.time += 1
        for i, agent in enumerate(self.possible_agents):
            if agent in self.agents:
                self.places[i] += self.strides[i][actions[agent]]
        here = dict(zip(self.possible_agents, self.places >= Race.length, strict=True))
        over = all(here.values()) or self.time >= 12
        present = list(self.agents)
        self.agents = [agent for agent in present if not here[agent] and not over]
        rewards = {agent: 1.0 if here[agent] else -0.1 for agent in present}
        ends = {agent: bool(here[agent]) for agent in present}
        return self._look(), rewards, ends, {agent: over and not here[agent] for agent in present}, {}

    def _look(self):
        far = self.places / Race.length
        return {"first": np.array([*far, self.time / 12]), "second": far[1:]}


class SlowHostRace(HostRace):
    strides = ((0, 1, 2), (0, 1))


class RaceWithHostTwin(Race):
    twin = HostRace


class HostCorridor:
    """Gymnasium's API: `Corridor`, which begins somewhere else."""

    def reset(self, seed=None, options=None):
        self.place, self.time = 0, 0
        return self._look(), {}

    def step(self, action):
        self.place, self.time = self.place + (1 if action == 1 else -1), self.time + 1
        found, fell = self.place >= Corridor.cells - 1, self.place < 0
        return self._look(), float(found) - float(fell), found or fell, self.time >= 20, {}

    def _look(self):
        place = np.zeros(Corridor.cells)
        place[self.place : self.place + 1] = self.place >= 0
        return {"place": place, "time": self.time}


class CorridorWithHostTwin(Corridor):
    twin = HostCorridor

    def prepare_twin(self, twin, key, state):
        twin.place, twin.time = int(state.place), int(state.time)


class CorridorWithUnpreparedTwin(Corridor):
    twin = HostCorridor


class TreeDuel(Duel):
    """Shows dicts and tuples of numbers."""

    def observation_space(self, agent):
        from gymnasium import spaces

        return spaces.Dict({"rest": spaces.Tuple([self._box, spaces.Discrete(4)]), "a": spaces.MultiBinary(3)})

    def _look(self):
        return {a: {"rest": (look, self.time % 4), "a": np.array([1, 0, 1])} for a, look in super()._look().items()}


class SameCartPole(CartPole):
    """gymnax's CartPole under another name."""


class BadlyScaled(CartPole):
    """CartPole in units that do not fit together: positions in thousands, speeds in thousandths, and far from 0."""

    def get_obs(self, state, params=None, key=None):
        return super().get_obs(state) * jnp.float32([1e3, 1e-3, 1e3, 1e-3]) + jnp.float32([5e3, 0, -5e3, 1])
