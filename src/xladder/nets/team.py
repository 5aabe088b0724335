"""The networks of a team of agents, each of which sees its own frames: one that all share, or one for each.

`TeamNet` has the interface of the Flax module that it is made from, with an axis of agents in states and outputs.
Separate networks are that module with parameters [G, …]; a shared one has its parameters as they are.

Shapes: G agents, F frames, H numbers of one agent's state, Z numbers per action, A actions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from xladder.core.types import Params
from xladder.nets.heads import Head


@dataclass(frozen=True)
class TeamNet:
    """The networks of a team."""

    net: Any
    """The network of one agent: a `ValueNet` or a `RecurrentNet`."""
    agents: int
    shared: bool
    axes: int
    """How many axes one agent's frame has."""

    @property
    def head(self) -> Head:
        """The head of one agent's network."""
        return self.net.head

    def init(self, key: jax.Array, state: jax.Array, *given: Any) -> dict[str, Params]:
        """Fresh parameters for states [F, G, …]."""
        states = self._by_agent(state)
        if self.shared:
            return self.net.init(key, states[0], *given)
        keys = jax.vmap(lambda agent: jax.random.fold_in(key, agent))(jnp.arange(self.agents))
        return jax.vmap(lambda key, state: self.net.init(key, state, *given))(keys, states)

    def apply(self, variables: dict[str, Params], *given: Any, method: str = "__call__") -> jax.Array:
        """What a method of the agents' networks returns: outputs […, G, Z, A], or hidden states […, G·H]."""
        return getattr(self, f"_{method.strip('_')}")(variables, *given)

    def _call(self, variables: dict[str, Params], states: jax.Array, *given: Any) -> jax.Array:
        return self._map("__call__", variables, self._by_agent(states), *given, place=-3)

    def _step(self, variables: dict[str, Params], states: jax.Array, hidden: jax.Array | None = None) -> jax.Array:
        each = () if hidden is None else (self._split(hidden),)
        return self._join(self._map("step", variables, (self._by_agent(states), *each)))

    def _unroll(self, variables: dict[str, Params], states: jax.Array, hidden: jax.Array, *given: Any) -> jax.Array:
        return self._join(self._map("unroll", variables, (self._by_agent(states), self._split(hidden)), *given))

    def _outputs(self, variables: dict[str, Params], hidden: jax.Array, *given: Any) -> jax.Array:
        return self._map("outputs", variables, self._split(hidden), *given, place=-3)

    def _map(self, method: str, variables: Any, each: Any, *given: Any, place: int = -2) -> jax.Array:
        """Call a method of every agent's network with its part of `each`, [G, …]; agents come at `place`."""
        parts = each if isinstance(each, tuple) else (each,)

        def one(variables: Any, *own: jax.Array) -> jax.Array:
            return self.net.apply(variables, *own, *given, method=method)

        shared = None if self.shared else 0
        return jax.vmap(one, in_axes=(shared, *(0,) * len(parts)), out_axes=place)(variables, *parts)

    def _by_agent(self, states: jax.Array) -> jax.Array:
        """[G, …, F, …] from states […, F, G, …]."""
        return jnp.moveaxis(states, -1 - self.axes, 0)

    def _split(self, hidden: jax.Array) -> jax.Array:
        """[G, …, H] from […, G·H]."""
        return jnp.moveaxis(hidden.reshape(*hidden.shape[:-1], self.agents, -1), -2, 0)

    def _join(self, hidden: jax.Array) -> jax.Array:
        """[…, G·H] from […, G, H]."""
        return hidden.reshape(*hidden.shape[:-2], -1)
