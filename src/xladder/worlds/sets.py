"""Sets built item by item: torchgfn's `SetAddition` (Remark 8 of Shen et al. 2023), and the sets of Pan et al. 2023.

A state has a number for each item: 1 if it is in the set. Actions 0 … n − 1 add an item, action n stops. A set that is
full has to stop; others may, unless sets have to be full. torchgfn leaves the reward to its user. Here each item has an
energy, and log R is minus their sum (Pan et al. 2023), or a function of the user's own.

With energies, the sum over all sets of a size is an elementary symmetric polynomial, so log Z and the probability of
each item are known for any number of items.

Shapes: n items, at most k of them in a set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import combinations
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from xladder.worlds import own_rewards
from xladder.worlds.flow import FlowWorld
from xladder.worlds.flow_counts import count_sets
from xladder.worlds.flow_settings import MOST_STATES

if TYPE_CHECKING:
    from xladder.worlds.sets_host import HostSets
    from xladder.worlds.sets_settings import WorldConfig

SETS_TRIED = 4096  # where there are too many to try a reward of the user's own on all
Reward = Callable[[jax.Array], jax.Array]


class Sets(FlowWorld):
    """Sets of at most `most` of `items` items, or of exactly as many if `full`; log R = −Σ energies."""

    chart_text = "probability that an item is in the set"
    chart_axes = ("item", "item")  # a single row: its columns have the first name

    def __init__(self, items: int = 10, most: int = 5, full: bool = False, seed: int = 0, reward: Reward | None = None):
        self.items, self.most, self.full, self.reward = items, most, full, reward
        self.num_actions, self.max_steps, self.min_steps = items + 1, most + 1, most + 1 if full else 1
        self.energies = np.random.default_rng(seed).uniform(-1.0, 1.0, items)

    def initial(self) -> jax.Array:
        """The empty set."""
        return jnp.zeros(self.items, jnp.int32)

    def forward_mask(self, state: jax.Array) -> jax.Array:
        """Items that are not in a set with room for them, and stop."""
        room = state.sum() < self.most
        return jnp.append((state == 0) & room, ~room if self.full else True)

    def backward_mask(self, state: jax.Array) -> jax.Array:
        """Items in the set."""
        return state == 1

    def forward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """Add an item."""
        return jnp.where(jnp.arange(self.items) == action, 1, state)

    def backward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """Take an item out."""
        return jnp.where(jnp.arange(self.items) == action, 0, state)

    def log_reward(self, state: jax.Array) -> jax.Array:
        """Minus the sum of the energies, or the user's function."""
        if self.reward is not None:
            return jnp.asarray(self.reward(state), jnp.float32)
        return -(jnp.asarray(self.energies, jnp.float32) * state).sum()

    def states(self) -> np.ndarray | None:
        """All sets, small ones first; None if there are too many."""
        if count_sets(self.items, self.most) > MOST_STATES:
            return None
        found = []
        for size in range(self.most + 1):
            chosen = np.array(list(combinations(range(self.items), size)), np.int64)
            sets = np.zeros((len(chosen), self.items), np.int32)
            sets[np.arange(len(chosen))[:, None], chosen] = 1
            found.append(sets)
        return np.concatenate(found)

    def host_twin(self) -> HostSets | None:
        """The same world in NumPy; none for a reward of the user's own."""
        from xladder.worlds.sets_host import HostSets

        return HostSets(self.energies, self.most, self.full) if self.reward is None else None

    def known_log_z(self) -> float | None:
        """log Z, from sums over all sets of each size; None for a reward of the user's own."""
        return None if self.reward is not None else float(_total(self._log_sums(np.arange(self.items)), self))

    def chart(self, state: jax.Array) -> jax.Array:
        """float32 [1, n]: one for each item in the set."""
        return state[None].astype(jnp.float32)

    def known_chart(self) -> np.ndarray | None:
        """float64 [1, n]: the probability of each item: what is left of Z without the sets that lack it."""
        log_z = self.known_log_z()
        if log_z is None:
            return None
        rest = [_total(self._log_sums(np.delete(np.arange(self.items), i)), self) for i in range(self.items)]
        return -np.expm1(np.array(rest) - log_z)[None]

    def _log_sums(self, which: np.ndarray) -> np.ndarray:
        """float64 [k + 1]: the logarithm of the sum of all rewards of sets of 0 … k of some items."""
        sums = np.full(self.most + 1, -np.inf)
        sums[0] = 0.0
        for energy in self.energies[which]:
            sums[1:] = np.logaddexp(sums[1:], sums[:-1] - energy)
        return sums

    def table_columns(self, objects: np.ndarray) -> Mapping[str, np.ndarray]:
        """Which items are in a set, 0 or 1, for `xladder sample`."""
        return {f"item_{item + 1}": objects[:, item] for item in range(self.items)}

    def image(self, state: np.ndarray) -> np.ndarray:
        """A row of items: 1 for those in the set."""
        return state[None]


def check_reward(config: WorldConfig) -> None:
    """Raise a `UsageError` if a reward of the user's own is not a finite number for every set that is tried."""

    def sets() -> np.ndarray:
        found = Sets(config.items, config.most).states()
        if found is None:
            rng = np.random.default_rng(0)
            sizes = rng.integers(config.most if config.full else 0, config.most + 1, SETS_TRIED)
            found = (rng.random((SETS_TRIED, config.items)).argsort(1) < sizes[:, None]).astype(np.int32)
        return found[found.sum(1) == config.most] if config.full else found

    own_rewards.check(config.reward, sets, config.items, own_rewards.Words("set", "items"))


def _total(log_sums: np.ndarray, world: Sets) -> float:
    """The sum over the sizes that a complete set may have."""
    return float(log_sums[-1] if world.full else np.logaddexp.reduce(log_sums))
