"""Sequences whose rewards are in a table: the way in for measured data, such as TFBind8.

Shapes: L places, V symbols, M modes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import rankdata

from xladder.worlds.flow import Sampler
from xladder.worlds.sequence_table import read_table
from xladder.worlds.sequences import Sequences
from xladder.worlds.sequences_host import HostSequences

if TYPE_CHECKING:
    from xladder.worlds.table_settings import WorldConfig

MOST_TESTED = 4096  # sequences of the table, evenly spaced by value, over which correlations are computed
WAYS = 10  # backward trajectories from each


class Table(Sequences):
    """Sequences with given rewards."""

    metric_texts = MappingProxyType({"spearman": "Spearman correlation of log p and log R over the table"})

    def __init__(self, config: WorldConfig):
        shortest, longest = config.lengths
        super().__init__(longest, len(config.symbols), config.order, shortest)
        self.config, self.modes_counted = config, config.modes
        table = read_table(config.table)
        ordered = sorted((one for one in table if len(one) >= shortest), key=lambda one: (-table[one], one))
        self.best = config.to_states(ordered[: config.modes])
        places = np.linspace(0, len(ordered) - 1, min(MOST_TESTED, len(ordered))).astype(int)
        self.tests = config.to_states([ordered[place] for place in places])
        self._strides = (self.symbols + 1) ** np.arange(longest)

    def log_reward(self, state: jax.Array) -> jax.Array:
        """Looked up in the table."""
        key = (state * jnp.asarray(self._strides, jnp.int32)).sum()
        return jnp.asarray(self.config.log_rewards())[key]

    def near_modes(self, state: jax.Array) -> jax.Array:
        """bool [M]: which of the best sequences it is."""
        return (state[None, :] == jnp.asarray(self.best)).all(1)

    def metrics(self, sampler: Sampler) -> Mapping[str, jax.Array]:
        """The rank correlation of log-probability and log-reward over sequences of the table."""
        log_p = sampler.log_probability(self.tests, WAYS)
        log_r = jax.vmap(self.log_reward)(jnp.asarray(self.tests))
        return {"spearman": jnp.corrcoef(rankdata(log_p), rankdata(log_r))[0, 1]}

    def describe(self, states: np.ndarray) -> list[str]:
        """The sequences that states int [B, L] are."""
        return ["".join(self.config.symbols[symbol - 1] for symbol in state if symbol) for state in states.tolist()]

    def host_twin(self) -> HostSequences:
        """The same in NumPy."""
        rewards = self.config.log_rewards()
        return HostSequences(
            self.length, self.symbols, self.order, self.shortest, lambda states: rewards[self.config.key(states)]
        )
