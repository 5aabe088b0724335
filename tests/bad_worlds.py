"""Worlds that break their contract, each in one way: with gymnax's, JaxMARL's and PettingZoo's APIs, and GFlowNets'."""

import random
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from tests.own_worlds import Corridor, Discrete, Duel, Race
from tests.test_own_gflownet import Strings


def altered(base, name, **changes):
    """A subclass under its own name, so that it can be found in this module."""
    globals()[name] = type(name, (base,), {"__module__": __name__, **changes})


def stepping(base, change):
    """`step_env`, or `step`, whose results are changed by a function."""

    def step(self, *given):
        return change(*getattr(base, name)(self, *given))

    name = "step" if hasattr(base, "possible_agents") else "step_env"
    return {name: step}


def raising(error):
    def fail(*_):
        raise error

    return fail


# gymnax's API: an observation, a state, a reward, whether it is over, and infos

altered(Corridor, "LimitRaises", is_truncated=raising(TypeError("no limit")))
altered(Corridor, "LimitWithoutParams", is_truncated=lambda self, state: state.time > 3)
altered(Corridor, "LimitBranches", is_truncated=lambda self, state, params: bool(state.time > 3))
altered(Corridor, "LimitOfTwo", is_truncated=lambda self, state, params: jnp.zeros(2, bool))
altered(Corridor, "LimitIsNone", is_truncated=lambda self, state, params: None)
altered(Corridor, "LimitMisspelt", is_truncated=lambda self, state, params: state.tme > 3)
altered(Corridor, "NoActions", action_space=lambda self, params: Discrete(0))
altered(Corridor, "TextActions", action_space=lambda self, params: Discrete("x"))
altered(Corridor, "HalfAnAction", action_space=lambda self, params: Discrete(2.5))
altered(Corridor, "KeyShown", reset_env=lambda self, key, params: (key, jnp.int32(0)))
altered(Corridor, "TextShown", reset_env=lambda self, key, params: ("north", jnp.int32(0)))
altered(Corridor, "TextInState", reset_env=lambda self, key, params: (jnp.zeros(2), {"n": 0, "name": "maze"}))
altered(Corridor, "ResetIsNone", reset_env=lambda self, key, params: None)
altered(Corridor, "Exits", step_env=raising(SystemExit(0)))
altered(Corridor, "SixValues", **stepping(Corridor, lambda *made: (*made, 0)))
altered(Corridor, "TextReward", **stepping(Corridor, lambda o, s, r, d, i: (o, s, "one", d, i)))
altered(Corridor, "ComplexReward", **stepping(Corridor, lambda o, s, r, d, i: (o, s, r + 1j, d, i)))
altered(Corridor, "NoReward", **stepping(Corridor, lambda o, s, r, d, i: (o, s, None, d, i)))
altered(Corridor, "ListShown", **stepping(Corridor, lambda o, s, r, d, i: ([1.0, 2.0], s, r, d, i)))
altered(Corridor, "DrawsElsewhere", **stepping(Corridor, lambda o, s, r, d, i: (o, s, r + random.random(), d, i)))
altered(
    Corridor,
    "DrawsInsideJit",
    step_env=partial(jax.jit, static_argnums=0)(
        lambda self, key, state, action, params: (
            (*Corridor.step_env(self, key, state, action, params)[:2], np.random.rand(), False, {})
        )
    ),
)


class VectorChanges(Corridor):
    """The observation itself changes, not a part of it."""

    def reset_env(self, key, params):
        return jnp.zeros(3), jnp.int32(0)

    def step_env(self, key, state, action, params):
        return jnp.zeros(4), state, 1.0, False, {}


# JaxMARL's

altered(Race, "AgentsAreNone", agents=None)
altered(Race, "AgentsAreText", agents="ab")
altered(Race, "AllOfTwo", **stepping(Race, lambda o, s, r, d, i: (o, s, r, d | {"__all__": jnp.ones(2, bool)}, i)))
altered(Race, "CutOfFour", **stepping(Race, lambda o, s, r, d, i: (o, s, r, d, {"truncated": jnp.ones(4, bool)})))
altered(Race, "CutIsNone", **stepping(Race, lambda o, s, r, d, i: (o, s, r, d, {"truncated": None})))
altered(Race, "MaskRaises", get_avail_actions=raising(TypeError("no mask")))
altered(Race, "MaskOfOne", get_avail_actions=lambda self, state: {"hare": jnp.ones(3)})
altered(Race, "MaskIsAList", get_avail_actions=lambda self, state: [jnp.ones(3), jnp.ones(2)])
altered(Race, "MaskTooLong", get_avail_actions=lambda self, s: {"hare": jnp.ones(7) * s.time, "tortoise": jnp.ones(2)})
altered(Race, "MaskTooShort", get_avail_actions=lambda self, s: {"hare": jnp.ones(2) * s.time, "tortoise": jnp.ones(2)})
altered(Race, "MaskOfNothing", get_avail_actions=lambda self, s: {"hare": jnp.zeros(3), "tortoise": jnp.ones(2)})
altered(Race, "MaskRunsOut", get_avail_actions=lambda self, s: {"hare": jnp.ones(3) * (s.time < 2), "tortoise": [1, 1]})
altered(
    Race,
    "StuckLater",
    get_avail_actions=lambda self, s: {"hare": jnp.ones(3) * (s.time < 2), "tortoise": jnp.ones(2)},
)
altered(Race, "OneWithoutActions", action_space=lambda self, agent: Discrete(3 if agent == "hare" else 0))
altered(Race, "KeysShown", reset=lambda self, key: (dict.fromkeys(self.agents, key), jnp.int32(0)))
altered(Race, "ChangesOne", **stepping(Race, lambda o, s, r, d, i: (o | {"hare": jnp.zeros(9)}, s, r, d, i)))


class KeyInState(Race):
    """A good world: a random key in its state, and a mask that is always the same."""

    def reset(self, key):
        observations, state = Race.reset(self, key)
        return observations, (state, key)

    def step_env(self, key, state, actions):
        observations, moved, *rest = Race.step_env(self, key, state[0], actions)
        return observations, (moved, state[1]), *rest

    def get_avail_actions(self, state):
        return {"hare": jnp.array([True, False, True]), "tortoise": jnp.ones(2, bool)}


# PettingZoo's

altered(Duel, "ResetReturnsNone", reset=lambda self, seed=None, options=None: None)
altered(Duel, "FourValues", **stepping(Duel, lambda *made: made[:4]))
altered(Duel, "SpaceRaises", observation_space=raising(KeyError("red")))
altered(Duel, "SpaceExits", action_space=raising(SystemExit(0)))
altered(Duel, "AgentsRaise", possible_agents=property(raising(RuntimeError("nobody"))))
altered(Duel, "LargerShown", **stepping(Duel, lambda o, r, t, c, i: ({a: np.ones(9) for a in o}, r, t, c, i)))
altered(Duel, "TextIsShown", **stepping(Duel, lambda o, r, t, c, i: ({a: "ab" for a in o}, r, t, c, i)))
altered(Duel, "RewardIsNone", **stepping(Duel, lambda o, r, t, c, i: (o, dict.fromkeys(r), t, c, i)))
altered(Duel, "RewardMissing", **stepping(Duel, lambda o, r, t, c, i: (o, {}, t, c, i)))
altered(Duel, "NamedTwice", possible_agents=("red", "red"))
altered(Duel, "RewardIsNan", **stepping(Duel, lambda o, r, t, c, i: (o, dict.fromkeys(r, np.nan), t, c, i)))


class FailsLater(Duel):
    def step(self, actions):
        if self.time > 3:
            raise ValueError("out of time")
        return Duel.step(self, actions)


# GFlowNets

altered(Strings, "StatesRaise", states=raising(ValueError("cannot list")))
altered(Strings, "StatesAreANumber", states=lambda self: 7)
altered(Strings, "ActionsRaise", num_actions=property(raising(RuntimeError("not yet"))))
altered(Strings, "StepExits", forward=raising(SystemExit(0)))
altered(Strings, "TwinIsANumber", host_twin=lambda self: 5)


def exits(cell):
    raise SystemExit(0)


# A key that is drawn from and then read by Python


def branching(reset):
    def branch(self, key, *given):
        return reset(self, key, *given) if jax.random.bernoulli(key) else None

    return branch


altered(Corridor, "ResetBranches", reset_env=branching(Corridor.reset_env))
altered(Race, "ResetOfAllBranches", reset=branching(Race.reset))

# Masks that allow nothing

altered(Corridor, "NothingAllowed", get_avail_actions=lambda self, state, params: jnp.zeros(2))
altered(Corridor, "StuckInTime", get_avail_actions=lambda self, state: jnp.ones(2) * (state.time < 2))


class ForbidsAll(Duel):
    """Red may do nothing after two steps, although the episode goes on."""

    def observation_space(self, agent):
        from gymnasium import spaces

        mask = spaces.MultiBinary(int(self.action_space(agent).n))
        return spaces.Dict({"observation": super().observation_space(agent), "action_mask": mask})

    def _look(self):
        free = {agent: agent == "blue" or self.time < 2 for agent in self.agents}
        return {
            agent: {"observation": seen, "action_mask": np.full(self._actions[agent].n, free[agent], np.int8)}
            for agent, seen in super()._look().items()
        }


def noisy(cell):
    return cell.sum() * random.random()


def still(cell):
    return cell.sum() * 0.1


class Keeps(Corridor):
    """Reads what it has kept of the call before, which was traced by itself."""

    kept = 0.0

    def step_env(self, key, state, action, params):
        made = super().step_env(key, state, action, params)
        reward = made[2] + self.kept
        self.kept = made[2]
        return (*made[:2], reward, *made[3:])


class Counts(Corridor):
    calls = 0

    def step_env(self, key, state, action, params):
        self.calls += 1
        observation, state, reward, *rest = super().step_env(key, state, action, params)
        return observation, state, reward + self.calls, *rest


class Sized(Corridor):
    """A good world that has to be told its size."""

    def __init__(self, cells):
        self.cells = cells


class SizedTwin(Sized):
    pass


altered(Strings, "DrawsReward", log_reward=lambda self, state: state["letters"].sum() * random.random())
altered(Strings, "CountsSteps", calls=0, forward=lambda self, state, action: counting(self, state, action))


def counting(world, state, action):
    world.calls += 1
    return Strings.forward(world, state, action) | {"length": state["length"] + world.calls}
