"""A small world with sorrel's interface, for tests without sorrel; written for this, and much simpler."""

from types import SimpleNamespace

import numpy as np

SIZE, TURNS = 5, 6
CONFIG = SimpleNamespace(experiment=SimpleNamespace(max_turns=TURNS))


class Walker:
    """Walks along a line and gets what lies on the cell it walks to."""

    def __init__(self):
        self.action_spec = SimpleNamespace(n_actions=2)
        self.model = None
        self.place = 0

    def pov(self, world):
        others = np.zeros(SIZE)
        others[[agent.place for agent in world.walkers if agent is not self]] = 1
        return np.stack([world.gold, others, np.eye(SIZE)[self.place]])[None]

    def get_action(self, state):
        raise AssertionError("the model is not asked")

    def act(self, world, action):
        self.place = int(np.clip(self.place + (1 if action else -1), 0, SIZE - 1))
        found, world.gold[self.place] = world.gold[self.place], 0.0
        return found

    def is_done(self, world):
        return world.is_done

    def add_memory(self, state, action, reward, done):
        raise AssertionError("the model's memory is not used")

    def transition(self, world):
        state = self.pov(world)
        action = self.get_action(state)
        reward = self.act(world, action)
        self.add_memory(state, action, reward, self.is_done(world))


class Line:
    def __init__(self, walkers=2, rich=False):
        self.config, self.stop_if_done, self.rich = CONFIG, True, rich
        self.world = SimpleNamespace(gold=np.zeros(SIZE), is_done=False, walkers=[])
        self.walkers = walkers
        self.setup_agents()
        self.populate_environment()

    def setup_agents(self):
        self.agents = [Walker() for _ in range(self.walkers)]
        self.first = int(np.random.randint(SIZE))  # drawn once, when it is made

    def populate_environment(self):
        self.world.walkers, self.world.gold = self.agents, np.zeros(SIZE)
        for agent in self.agents:
            agent.place = self.first if agent is self.agents[0] else int(np.random.randint(SIZE))

    def reset(self):
        self.world.is_done = False
        self.populate_environment()

    def take_turn(self, epoch=0):
        self.world.gold[np.random.randint(SIZE)] = 1.0
        for agent in self.agents:
            agent.transition(self.world)
        if not self.rich and self.world.gold.sum() == 0:
            self.world.is_done = True


def make_line():
    return Line(rich=True)


def make_short_line():
    return Line()


def make_silent():
    made = Line()
    for agent in made.agents:
        agent.transition = lambda world: None
    return made


def make_without_act():
    made = Line()
    made.agents[1].act = None
    return made


def make_without_length():
    made = Line()
    made.config = SimpleNamespace()
    return made


def make_text():
    made = Line()
    made.agents[0].pov = lambda world: "a line"
    return made


def make_empty():
    return Line(walkers=0)


def make_blind():
    made = Line()
    made.agents[1].pov = lambda world: {}["Wall"]
    return made
