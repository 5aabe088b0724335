"""The interface of turn-based multi-agent gridworlds: of the pure JAX world and of its twin on the host.

An epoch is a reset followed by turns. A turn begins with the world's own changes (items appear, grass grows); then all
agents observe and act, one after another. An observation is a list of codes: of visible cells, of the agent's own row,
of whatever the world shows. Its `encoding` says which numbers a network is given for them; code 0 is always zeros. The
outcome of an action is an *event*, again a code, from which rewards and metrics are computed.

All random numbers of an epoch are drawn beforehand, by `draw_reset` and `draw_turns`. The JAX and NumPy worlds are
given the same draws and have to produce the same results.

A new world is a file with a `TurnWorld`, one with its `HostTurnWorld`, and its settings with presets
(`families.multi_agent.config.WorldSettings`). This file imports no JAX.

Shapes: N agents, T turns, V codes in a view, K kinds of event that are counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    import jax

    from xladder.core.encoding import Encoding

State = Any
"""A pytree of arrays of fixed shapes."""
Draws = Any
"""A pytree of arrays: the random numbers of a reset or of one turn; for T turns, leaves [T, …]."""


class Sizes(Protocol):
    """What a learner has to know of a world before it starts."""

    @property
    def num_agents(self) -> int:
        """Number of agents, N."""

    @property
    def num_actions(self) -> int:
        """Number of actions, which are numbered from 0."""

    @property
    def encoding(self) -> Encoding:
        """How a view becomes the inputs of a network."""

    @property
    def num_codes(self) -> int:
        """One more than the largest code of a view."""
        return self.encoding.num_codes

    @property
    def num_cells(self) -> int:
        """Number of codes in a view, V."""
        return self.encoding.num_cells


class TurnWorld(Sizes, Protocol):
    """A world in JAX. It is a static argument of `jit`, so it has to be hashable: a frozen dataclass.

    `agent` is a number from 0 to N − 1, and may be traced.
    """

    def draw_reset(self, key: jax.Array) -> Draws:
        """Draw the random numbers of a reset."""

    def draw_turns(self, key: jax.Array, turns: int) -> Draws:
        """Draw the random numbers of `turns` turns, leaves [turns, …]."""

    def reset(self, draws: Draws) -> State:
        """The initial state."""

    def begin_turn(self, state: State, draws: Draws) -> State:
        """Apply the changes that happen before the agents act."""

    def view(self, state: State, agent: jax.Array | int) -> jax.Array:
        """int8 [V]: the codes that one agent sees."""

    def move(self, state: State, agent: jax.Array | int, action: jax.Array) -> tuple[State, jax.Array]:
        """Let one agent act. Returns the new state and the event, int8 []."""

    def move_all(self, state: State, actions: jax.Array) -> tuple[State, jax.Array]:
        """Let all agents act, in order. Returns the new state and the events, int8 [N].

        By default this calls `move` for one agent after another. A world may override it with something faster that
        gives the same result.
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
    """The same in NumPy, one epoch at a time, changed in place, which is fast in a Python loop.

    It has to implement the rules itself: code shared with its twin would not be tested by comparing the two.
    """

    def draw_reset(self, rng: np.random.Generator) -> Draws:
        """Draw the random numbers of a reset: not the JAX world's, but of the same shapes and distribution."""

    def draw_turns(self, rng: np.random.Generator, turns: int) -> Draws:
        """Draw the random numbers of `turns` turns, leaves [turns, …]."""

    def reset(self, draws: Draws) -> None:
        """Reset the world."""

    def begin_turn(self, draws: Draws) -> None:
        """Apply the changes that happen before the agents act."""

    def view(self, agent: int) -> np.ndarray:
        """int8 [V]: the codes that one agent sees; a new array."""

    def move(self, agent: int, action: int) -> int:
        """Let one agent act. Returns the event."""

    def reward(self, events: Any) -> Any:
        """float32: the rewards for events, an int or an array of any shape."""

    def count(self, events: np.ndarray) -> np.ndarray:
        """int32 [K]: how often each event that has a column in the metrics is among `events`, of any shape."""

    def state(self) -> State:
        """A copy of the state, with the leaves of the JAX world's state, in the same order."""
