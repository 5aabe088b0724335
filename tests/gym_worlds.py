"""Gymnasium environments as users write them: spaces of all kinds, masks, faults."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text


class Corridor(gymnasium.Env):
    """Walk to the right end; left is forbidden at the left end."""

    def __init__(self, length=4, masked=True, fault="", picture=False, in_dict=False):
        self.length, self.masked, self.fault, self.picture, self.in_dict = length, masked, fault, picture, in_dict
        shown = Box(0, 255, (8, 8, 3), np.uint8) if picture else Discrete(length + 1)
        self.observation_space = Dict({"observation": shown, "action_mask": MultiBinary(2)}) if in_dict else shown
        self.action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.time = 0
        return self.look(), self.info()

    def step(self, action):
        assert self.place or action == 1 or not self.masked, "left is forbidden"
        self.place, self.time = max(0, self.place + 2 * int(action) - 1), self.time + 1
        if self.fault == "raise" and self.time == 2:
            raise RuntimeError("the floor is wet")
        over = self.place == self.length
        reward = float("nan") if self.fault == "reward" else float(over)
        return self.look(), reward, over, self.time >= 20, self.info()

    def info(self):
        return {"action_mask": self.mask()} if self.masked and not self.in_dict else {}

    def mask(self):
        if self.fault == "flags":
            return np.ones(3, np.int8)
        stuck = (self.fault == "stuck" and self.time) or self.place == self.length
        return np.zeros(2, np.int8) if stuck else np.array([self.place > 0, 1], np.int8)

    def look(self):
        seen = np.full((8, 8, 3), self.place, np.uint8) if self.picture else self.place
        if self.fault == "outside":
            seen = 99
        return {"observation": seen, "action_mask": self.mask()} if self.in_dict else seen


class Numbers(gymnasium.Env):
    """Shows a vector, whose second number may be nan, inf or anything."""

    observation_space, action_space = Box(-1, 1, (3,), np.float32), Discrete(2)

    def __init__(self, second=0.0):
        self.second = second

    def reset(self, *, seed=None, options=None):
        return np.float32([0, 0, 0]), {}

    def step(self, action):
        return np.float32([0, self.second, 0]), 0.0, False, True, {}


class Counted(Numbers):
    """Counts those that are open, and may raise in a step, or when a run resets it."""

    open = 0

    def __init__(self, wet=0):
        super().__init__()
        self.wet, self.steps = wet, 0
        Counted.open += 1

    def step(self, action):
        self.steps += 1
        if self.steps == self.wet:
            raise RuntimeError("the floor is wet")
        return super().step(action)

    def close(self):
        Counted.open -= 1


class Several(Numbers):
    """Actions that are two choices at once."""

    action_space = MultiDiscrete([2, 3])


class Words(Numbers):
    """Shows a text."""

    observation_space = Text(5)


class Racing(Numbers):
    """Shows colours, and is steered by numbers or by choices, as CarRacing is."""

    observation_space = Box(0, 255, (96, 96, 3), np.uint8)

    def __init__(self, continuous=True):
        self.action_space = Box(-1, 1, (3,), np.float32) if continuous else Discrete(5)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 1.0, False, True, {}


class Camera(gymnasium.Env):
    """Shows a picture of a corridor, and numbers beside it: the time, and which of three colours is on."""

    action_space = Discrete(2)

    def __init__(self, side=6):
        self.side = side
        numbers = {"time": Box(0, 20, (1,), np.float32), "light": Discrete(3)}
        self.observation_space = Dict({"camera": Box(0, 255, (side, side, 3), np.uint8), **numbers})

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.time = 0
        return self.look(), {}

    def step(self, action):
        self.place, self.time = max(0, self.place + 2 * int(action) - 1), self.time + 1
        over = self.place == self.side - 1
        return self.look(), float(over), over, self.time >= 20, {}

    def look(self):
        camera = np.zeros((self.side, self.side, 3), np.uint8)
        camera[:, self.place, self.time % 3] = 255
        return {"camera": camera, "time": np.float32([self.time]), "light": self.time % 3}


class Driving(Racing):
    """Shows colours and a speed."""

    observation_space = Dict({"colours": Racing.observation_space, "speed": Box(-1, 1, (1,), np.float32)})


def short_corridor():
    return Corridor(2)


def shifted(env):
    return gymnasium.wrappers.TransformReward(env, lambda reward: reward - 1)


long_corridor = Corridor(6)
gymnasium.register("TestCorridor-v0", Corridor)
gymnasium.register("TestCounted-v0", Counted)
