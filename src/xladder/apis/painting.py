"""Pictures of our worlds as arrays: what `render` returns."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.apis.interface import Interface
from xladder.families.multi_agent.config import Played, WorldSettings
from xladder.pictures.board_frame import draw_board
from xladder.pictures.game_frames import draw_observations

if TYPE_CHECKING:
    from jax.tree_util import PyTreeDef


def paint_turn(world: WorldSettings, leaves: Any) -> np.ndarray:
    """uint8 [height, width, 3]: a world in which agents take turns, from its state or the leaves of it."""
    import jax

    found = [np.asarray(leaf) for leaf in jax.tree.leaves(leaves)]
    settings: Any = world  # a frozen dataclass, so hashable
    state = jax.tree.unflatten(_structure(settings), found)
    twin = world.on_host()
    agents = (1, world.num_agents)
    nothing = Played(
        views=np.zeros((*agents, twin.num_cells), np.int8),
        values=np.zeros((*agents, twin.num_actions), np.float32),
        actions=np.zeros(agents, np.int64),
        rewards=np.zeros(agents, np.float32),
    )
    return draw_board(world.board("", state, jax.tree.map(lambda leaf: leaf[None], state), nothing))


def paint_observation(name: str, observation: np.ndarray, interface: Interface) -> np.ndarray:
    """uint8 [height, width, 3]: an observation of a world of the value family."""
    return draw_observations(name, np.asarray(interface.without_mask(observation))[None])[0]


@cache
def _structure(world: Any) -> PyTreeDef:
    """The structure of the world's state; its twin on the host gives only the leaves."""
    import jax

    made = world.build()
    return jax.tree.structure(jax.eval_shape(lambda key: made.reset(made.draw_reset(key)), jax.random.key(0)))
