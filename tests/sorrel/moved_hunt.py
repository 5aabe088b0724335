"""sorrel's treasure hunt, and the same world in JAX that names it as its twin: what `xladder check` compares."""

import numpy as np
from sorrel.examples.treasurehunt.entities import Bone, EmptyEntity, Food, Gem
from sorrel.examples.treasurehunt.env import TreasurehuntEnv
from sorrel.examples.treasurehunt.world import TreasurehuntWorld

from xladder.apis.jax_games import TurnGame
from xladder.apis.jaxmarl_env import JaxMARLEnv
from xladder.families.multi_agent.treasurehunt_presets import WorldConfig

SIZE, RADIUS, TOP = 8, 2, 1
SETTINGS = WorldConfig(SIZE, SIZE, num_agents=3, radius=RADIUS, max_turns=15, spawn_prob=0.1, observe="together")
CONFIG = {
    "experiment": {"epochs": 1, "max_turns": SETTINGS.max_turns, "record_period": 50},
    "model": {"agent_vision_radius": RADIUS, "num_agents": SETTINGS.num_agents},
    "world": {
        "height": SIZE,
        "width": SIZE,
        "gem_value": 10,
        "bone_value": -10,
        "food_value": 5,
        "spawn_prob": SETTINGS.spawn_prob,
    },
}
ITEMS = {2: lambda: Gem(10), 3: lambda: Bone(-10), 4: lambda: Food(5)}  # by code


class Drawn(EmptyEntity):
    """An empty cell that becomes what was drawn elsewhere."""

    def __init__(self):
        super().__init__()
        self.kind = "EmptyEntity"

    def transition(self, world):
        drawn = getattr(world, "drawn", None)
        if drawn is not None and (code := int(drawn[self.location[:2]])):
            world.add(self.location, ITEMS[code]())


def make_hunt():
    return TreasurehuntEnv(TreasurehuntWorld(CONFIG, Drawn()), CONFIG)


def on_board(cells):
    """[height, width] from the flat board with its margin."""
    side = SIZE + 2 * RADIUS
    return np.asarray(cells).reshape(side, side)[RADIUS:-RADIUS, RADIUS:-RADIUS]


class Hunt(JaxMARLEnv):
    """The JAX world."""

    twin = staticmethod(make_hunt)

    def __init__(self):
        super().__init__(TurnGame(SETTINGS), "hunt")

    def prepare_twin(self, twin, key, state):
        """Lay the twin out as the state, and let it draw what the step with this key draws."""
        environment = twin.environment
        world, side = environment.world, SIZE + 2 * RADIUS
        for place, code in np.ndenumerate(on_board(state.world.board)):
            if min(place) > 0 and max(place) < SIZE - 1:
                world.add((*place, TOP), ITEMS[int(code)]() if int(code) in ITEMS else Drawn())
        for agent, position in zip(environment.agents, np.asarray(state.world.positions), strict=True):
            row, column = divmod(int(position), side)
            world.add((row - RADIUS, column - RADIUS, TOP), agent)
        world.drawn = on_board(SETTINGS.build().draw_turns(key, 1)[0])


class WrongHunt(Hunt):
    """Its rules differ in one number."""

    def __init__(self):
        from dataclasses import replace

        JaxMARLEnv.__init__(self, TurnGame(replace(SETTINGS, wall_value=-2.0)), "wrong hunt")
