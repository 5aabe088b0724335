"""What a gridworld is in which several agents take turns: the protocol of the pure world and of its twin on the host.

An epoch is a reset and then turns. A turn begins with what happens by itself (items appear, grass grows); then every
agent looks and acts, one after another. What an agent sees is a list of codes, one per cell in view, and code 0 shows
nothing. What its action leads to is an *event*, again a code: rewards and the columns of the metrics are made of it.

Nothing is drawn along the way. All that is random in an epoch comes from `draw_reset` and `draw_turns`, which are
called before it; the worlds of JAX and NumPy are then given the same draws and have to give the same account.

A new world is a file with a `TurnWorld`, one with its `HostTurnWorld`, and its settings with presets
(`families.multi_agent.config.WorldSettings`). This file imports no JAX.

Shapes: N agents, T turns, V cells in a view, K kinds of event that are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    import jax

State = Any
"""A pytree of arrays of fixed shapes."""
Draws = Any
"""A pytree of arrays: what a reset draws, or what one turn draws; of T turns, its leaves are [T, …]."""


class Sizes(Protocol):
    """What a learner has to know of a world before it starts."""

    @property
    def num_agents(self) -> int:
        """N."""

    @property
    def num_actions(self) -> int:
        """How many actions an agent has; they are numbered from 0."""

    @property
    def num_codes(self) -> int:
        """How many kinds of cell there are; also the channels of an encoded view."""

    @property
    def num_cells(self) -> int:
        """V: how many cells an agent sees."""


class TurnWorld(Sizes, Protocol):
    """A world in JAX. It is static under `jit`, so it has to be hashable: a frozen dataclass.

    `agent` is a number from 0 to N − 1, and may be traced.
    """

    def draw_reset(self, key: jax.Array) -> Draws:
        """What a fresh world draws."""

    def draw_turns(self, key: jax.Array, turns: int) -> Draws:
        """What so many turns draw, leaves [turns, …]."""

    def reset(self, draws: Draws) -> State:
        """A fresh world."""

    def begin_turn(self, state: State, draws: Draws) -> State:
        """What happens before the agents act."""

    def view(self, state: State, agent: jax.Array | int) -> jax.Array:
        """int8 [V]: the codes of the cells that one agent sees."""

    def move(self, state: State, agent: jax.Array | int, action: jax.Array) -> tuple[State, jax.Array]:
        """One agent acts. Returns the new state and the event, int8 []."""

    def move_all(self, state: State, actions: jax.Array) -> tuple[State, jax.Array]:
        """All agents act, in order. Returns the new state and the events, int8 [N].

        It has to give what `move` gives one agent after another, which is what it does here. A world that can do it
        at once says how.
        """
        import jax.numpy as jnp

        events = []
        for agent in range(self.num_agents):
            state, event = self.move(state, agent, actions[agent])
            events.append(event)
        return state, jnp.stack(events)

    def reward(self, events: jax.Array) -> jax.Array:
        """float32: the rewards for events of any shape."""

    def count(self, events: jax.Array) -> jax.Array:
        """int32 [K]: how often each event that has a column in the metrics is among `events`, of any shape."""


class HostTurnWorld(Sizes, Protocol):
    """The same in NumPy, one epoch at a time. It is changed in place: that is what a Python loop is quick at.

    It has to be the same world by its own account: what it takes from its twin is not compared with it.
    """

    def draw_reset(self, rng: np.random.Generator) -> Draws:
        """What a fresh world draws; not the numbers of the pure world, but of their shapes and distribution."""

    def draw_turns(self, rng: np.random.Generator, turns: int) -> Draws:
        """What so many turns draw, leaves [turns, …]."""

    def reset(self, draws: Draws) -> None:
        """Begin afresh."""

    def begin_turn(self, draws: Draws) -> None:
        """What happens before the agents act."""

    def view(self, agent: int) -> np.ndarray:
        """int8 [V]: the codes of the cells that one agent sees; an array of its own."""

    def move(self, agent: int, action: int) -> int:
        """One agent acts. Returns the event."""

    def reward(self, events: Any) -> Any:
        """float32: the rewards for events, an int or an array of any shape."""

    def count(self, events: np.ndarray) -> np.ndarray:
        """int32 [K]: how often each event that has a column in the metrics is among `events`, of any shape."""

    def state(self) -> State:
        """A copy of the state with the leaves, in their order, that the pure world's state has."""
