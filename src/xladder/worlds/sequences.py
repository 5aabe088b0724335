"""Sequences over an alphabet, built symbol by symbol: the base of worlds such as bit sequences.

A state has a number for each place: 0 empty, 1 … V the symbols. Symbols are written in one of three orders:

- `append`: at the end, so that there is one way to each sequence (an autoregressive sampler);
- `ends`: at the end or at the beginning; actions V … 2V − 1 prepend;
- `any`: at any empty place (a non-autoregressive sampler); action `V · place + symbol`.

Shapes: L places, V symbols, A actions, the last of which is stop; N states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np

from xladder.worlds.flow import FlowWorld
from xladder.worlds.flow_settings import MOST_STATES

Order = Literal["append", "ends", "any"]


def num_states(length: int, symbols: int, order: Order) -> int:
    """Number of states, incomplete sequences included."""
    return (symbols + 1) ** length if order == "any" else sum(symbols**size for size in range(length + 1))


def num_actions(length: int, symbols: int, order: Order) -> int:
    """Number of forward actions, stop included."""
    return 1 + symbols * {"append": 1, "ends": 2, "any": length}[order]


class Sequences(FlowWorld):
    """Sequences of `shortest` … `length` symbols out of `symbols`. Subclasses have the reward.

    Where symbols are written at any place, sequences are complete when they are full.
    """

    def __init__(self, length: int, symbols: int, order: Order, shortest: int | None = None):
        self.length, self.symbols, self.order = length, symbols, order
        self.shortest = length if shortest is None or order == "any" else shortest
        self.num_actions = num_actions(length, symbols, order)
        self.max_steps, self.min_steps = length + 1, self.shortest + 1
        self.num_inputs = length * (symbols + 1)
        self.actions_per_token = symbols if order == "any" else 0
        self.chart_text, self.chart_axes = "frequency of each symbol at each place", ("symbol", "place")

    def initial(self) -> jax.Array:
        """The empty sequence."""
        return jnp.zeros(self.length, jnp.int32)

    def forward_mask(self, state: jax.Array) -> jax.Array:
        """Symbols may be written as long as there is room, and stop is allowed from the shortest length on."""
        if self.order == "any":
            return jnp.append(jnp.repeat(state == 0, self.symbols), (state > 0).all())
        size = (state > 0).sum()
        return jnp.append(jnp.full(self.num_actions - 1, size < self.length), size >= self.shortest)

    def backward_mask(self, state: jax.Array) -> jax.Array:
        """Which symbol may have been written last, and where."""
        written = state[:, None] == jnp.arange(1, self.symbols + 1)[None, :]  # [L, V]
        if self.order == "any":
            return written.reshape(-1)
        size = (state > 0).sum()
        last = written[jnp.maximum(size - 1, 0)]
        return last if self.order == "append" else jnp.concatenate([last, written[0]])

    def forward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """Write a symbol."""
        if self.order == "any":
            return jnp.where(jnp.arange(self.length) == action // self.symbols, 1 + action % self.symbols, state)
        symbol = 1 + action % self.symbols
        appended = jnp.where(jnp.arange(self.length) == (state > 0).sum(), symbol, state)
        if self.order == "append":
            return appended
        prepended = jnp.roll(state, 1).at[0].set(symbol)
        return jnp.where(action < self.symbols, appended, prepended)

    def backward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """Erase a symbol."""
        if self.order == "any":
            return jnp.where(jnp.arange(self.length) == action // self.symbols, 0, state)
        shorter = jnp.where(jnp.arange(self.length) == (state > 0).sum() - 1, 0, state)
        if self.order == "append":
            return shorter
        return jnp.where(action < self.symbols, shorter, jnp.roll(state.at[0].set(0), -1))

    def encode(self, state: jax.Array) -> jax.Array:
        """One-hot over V + 1 values per place."""
        return state + (self.symbols + 1) * jnp.arange(self.length)

    def states(self) -> np.ndarray | None:
        """int32 [N, L]: all states, if there are few enough."""
        if num_states(self.length, self.symbols, self.order) > MOST_STATES:
            return None
        if self.order == "any":
            return _all(self.length, self.symbols + 1)
        sizes = range(self.length + 1)
        return np.concatenate(
            [np.pad(1 + _all(size, self.symbols), ((0, 0), (0, self.length - size))) for size in sizes]
        )

    def describe(self, states: np.ndarray) -> list[str]:
        """Sequences int [B, L] as texts; subclasses say what their symbols are."""
        return [" ".join(str(symbol - 1) for symbol in state if symbol) for state in states.tolist()]

    def table_columns(self, objects: np.ndarray) -> Mapping[str, np.ndarray]:
        """Sequences as texts, for `xladder sample`."""
        return {"sequence": np.array(self.describe(objects))}

    def chart(self, state: jax.Array) -> jax.Array:
        """float [V, L]: which symbol is at each place."""
        return (state[None, :] == jnp.arange(1, self.symbols + 1)[:, None]).astype(jnp.float32)


def _all(length: int, values: int) -> np.ndarray:
    """int32 [values^length, length]: all tuples of numbers in [0, values)."""
    return np.indices((values,) * length, dtype=np.int32).reshape(length, values**length).T
