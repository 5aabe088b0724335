"""Bit sequences (Malkin et al. 2022): n bits, written in words of k, with a high reward near hidden sequences.

Hidden sequences, the modes, are concatenations of blocks of eight bits out of a fixed set. The logarithm of the reward
falls with the Hamming distance to the nearest mode. A symbol is a word, its first bit the most significant one.

Shapes: n bits, L = n / k words, M modes, T sequences of the test set.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.stats import rankdata

from xladder.worlds.flow import Sampler
from xladder.worlds.sequences import Sequences
from xladder.worlds.sequences_host import HostSequences

if TYPE_CHECKING:
    from xladder.worlds.bits_settings import WorldConfig

WAYS = 10  # backward trajectories from each test sequence


class Bits(Sequences):
    """Bit sequences near hidden modes."""

    metric_texts = MappingProxyType(
        {
            "spearman": "Spearman correlation of log p and log R on the test set",
            "pearson": "Pearson correlation of log p and log R on the test set",
        }
    )

    def __init__(self, config: WorldConfig):
        super().__init__(config.words, 2**config.word, config.order)
        self.config, self.modes_counted = config, config.modes
        self.modes = config.mode_bits()
        self.tests = to_words(flipped_modes(config, self.modes), config.word)
        if config.word == 1:
            self.chart_text = "frequency of each bit at each place"

    def bits(self, state: jax.Array) -> jax.Array:
        """int32 [n]: the bits of a complete sequence."""
        powers = jnp.arange(self.config.word - 1, -1, -1)
        return (((state - 1)[:, None] >> powers[None, :]) & 1).reshape(-1)

    def distances(self, state: jax.Array) -> jax.Array:
        """int32 [M]: the Hamming distances of a complete sequence to the modes."""
        return (self.bits(state)[None, :] != jnp.asarray(self.modes)).sum(1)

    def log_reward(self, state: jax.Array) -> jax.Array:
        """−β times the distance to the nearest mode, as a fraction of all bits or in bits."""
        scale = self.config.bits if self.config.distance == "fraction" else 1
        return -self.config.beta * self.distances(state).min() / scale

    def near_modes(self, state: jax.Array) -> jax.Array:
        """bool [M]: which modes are nearer than the radius."""
        return self.distances(state) < self.config.radius

    def describe(self, states: np.ndarray) -> list[str]:
        """The bits of complete sequences int [B, L]."""
        return ["".join(format(word - 1, f"0{self.config.word}b") for word in state) for state in states.tolist()]

    def host_twin(self) -> HostSequences:
        """The same in NumPy."""
        return HostSequences(self.length, self.symbols, self.order, self.length, partial(log_rewards, self.config))

    def metrics(self, sampler: Sampler) -> Mapping[str, jax.Array]:
        """Correlations of log-probability and log-reward over the test set."""
        log_p = sampler.log_probability(self.tests, WAYS)
        log_r = jax.vmap(self.log_reward)(jnp.asarray(self.tests))
        ranks = rankdata(log_p), rankdata(log_r)
        return {"spearman": jnp.corrcoef(*ranks)[0, 1], "pearson": jnp.corrcoef(log_p, log_r)[0, 1]}


def log_rewards(config: WorldConfig, states: np.ndarray) -> np.ndarray:
    """float64 [B]: log-rewards of states int [B, L] in NumPy, for the twin."""
    digits = [(states - 1) // 2**power % 2 for power in range(config.word - 1, -1, -1)]
    bits = np.stack(digits, axis=-1).reshape(len(states), -1)
    nearest = np.full(len(states), config.bits)
    for mode in config.mode_bits():
        nearest = np.minimum(nearest, np.abs(bits - mode).sum(1))
    return -config.beta * nearest / (config.bits if config.distance == "fraction" else 1)


def flipped_modes(config: WorldConfig, modes: np.ndarray) -> np.ndarray:
    """int32 [T, n]: every mode with 0, 1, … n − 1 of its bits flipped at random places."""
    rng = np.random.default_rng((config.mode_seed, 1))
    flips = np.arange(config.bits)[None, :, None]  # [1, n, 1]: how many
    places = rng.random((len(modes), config.bits, config.bits)).argsort(-1).argsort(-1)
    return np.where(places < flips, 1 - modes[:, None], modes[:, None]).reshape(-1, config.bits).astype(np.int32)


def to_words(bits: np.ndarray, word: int) -> np.ndarray:
    """int32 […, L]: states of complete sequences, from their bits […, n]."""
    powers = 2 ** np.arange(word - 1, -1, -1)
    return (1 + (bits.reshape(*bits.shape[:-1], -1, word) * powers).sum(-1)).astype(np.int32)
