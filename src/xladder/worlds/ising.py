"""The Ising model as a world: an N × N torus of spins, set one by one (Zhang et al. 2022).

The energy of a lattice is E = −J · Σ s·s′ over bonds, of which each site has one to the next in its row and in its
column; its log-reward is −E / T. gfnx and torchgfn write xᵀJx, where each bond counts twice: J / T = 2σ.

A state has a number for each site, row by row: 0 not set, 1 down, 2 up. Action a sets site a mod N²: to down if
a < N², else to up, as in gfnx and torchgfn. Stop is allowed, and nothing else, once all spins are set. Peers set spins
in any order, which makes 3^(N²) states; if rows are filled one after another, or sites, there are far fewer, and exact
evaluation goes further: 3 × 3 in any order, 4 × 4 in the others.

Shapes: N sites in a row, n = N² sites, A = 2n + 1 actions, B objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from xladder.worlds import ising_exact
from xladder.worlds.flow import FlowWorld, Sampler
from xladder.worlds.flow_counts import count_lattices, ising_blocks
from xladder.worlds.flow_settings import MOST_STATES

if TYPE_CHECKING:
    from xladder.worlds.ising_host import HostIsing

SAMPLED = 2000  # objects from which the metrics are computed
PERFECT = 2000  # samples of the target that they are compared with
WEIGHED, WAYS = 250, 4  # samples of the target whose probability is estimated, and ways back from each


class Ising(FlowWorld):
    """Spins on a torus with `side` sites in a row; log R = `coupling` / `temperature` · Σ s·s′ over bonds."""

    chart_text = "histogram of energy and magnetisation"
    chart_axes = ("energy level", "spins up")

    def __init__(self, side: int = 4, coupling: float = 1.0, temperature: float = 2.5, order: str = "any"):
        self.side, self.strength, self.order = side, coupling / temperature, order
        self.block = ising_blocks(side)[order]  # sites that are filled in any order before the next ones
        self.sites = side**2
        self.num_actions = 2 * self.sites + 1
        self.min_steps = self.max_steps = self.sites + 1
        self.exact_samples = side <= ising_exact.MOST_ROWS
        self.metric_texts = {}
        if count_lattices(side, order) > MOST_STATES:  # otherwise the whole distribution is compared
            self.metric_texts["energy_error"] = "error of the mean energy per spin"
        if self.metric_texts and self.exact_samples:
            self.metric_texts |= {
                "magnetisation_error": "error of the mean magnetisation per spin, without its sign",
                "energy_tv": f"total variation of the energy, from {SAMPLED:,} samples",
                "energy_floor": "the same of a perfect sampler",
                "forward_kl": "KL divergence of the target from the sampler, at most",
            }

    def initial(self) -> jax.Array:
        """No spin is set."""
        return jnp.zeros(self.sites, jnp.int32)

    def forward_mask(self, state: jax.Array) -> jax.Array:
        """Sites of the first block that is not full may be set; a full lattice has to stop."""
        unset = state == 0
        here = jnp.argmax(unset) // self.block
        open_ = unset & (jnp.arange(self.sites) // self.block == here)
        return jnp.concatenate([open_, open_, ~unset.any()[None]])

    def backward_mask(self, state: jax.Array) -> jax.Array:
        """Spins of the last block that is not empty may have been set last."""
        last = jnp.max(jnp.where(state > 0, jnp.arange(self.sites), -1)) // self.block
        here = jnp.arange(self.sites) // self.block == last
        return jnp.concatenate([here & (state == 1), here & (state == 2)])

    def forward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """Set a spin."""
        here = jnp.arange(self.sites) == action % self.sites
        return jnp.where(here, 1 + action // self.sites, state)

    def backward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """Unset a spin."""
        return jnp.where(jnp.arange(self.sites) == action % self.sites, 0, state)

    def encode(self, state: jax.Array) -> jax.Array:
        """float32 [2n]: which spins are down, and which are up."""
        return jnp.concatenate([state == 1, state == 2]).astype(jnp.float32)

    def log_reward(self, state: jax.Array) -> jax.Array:
        """−E / T; bonds of spins that are not set count nothing."""
        return self.strength * self.bonds(state)

    def bonds(self, state: jax.Array) -> jax.Array:
        """float32 []: Σ s·s′ over all bonds."""
        lattice = self.spins(state).reshape(self.side, self.side)
        return (lattice * (jnp.roll(lattice, 1, 0) + jnp.roll(lattice, 1, 1))).sum().astype(jnp.float32)

    def spins(self, state: jax.Array) -> jax.Array:
        """int32 [n]: −1 and 1, and 0 where a spin is not set."""
        return jnp.where(state > 0, 2 * state - 3, 0)

    def states(self) -> np.ndarray | None:
        """All states, block by block; None if there are too many."""
        if count_lattices(self.side, self.order) > MOST_STATES:
            return None
        full = np.zeros((1, 0), np.int32)  # all fillings of the blocks so far
        partly = np.indices((3,) * self.block, dtype=np.int32).reshape(self.block, -1).T
        done = (partly > 0).all(1)
        found = []
        for begin in range(0, self.sites, self.block):
            last = begin + self.block == self.sites
            filled = _pairs(full, partly if last else partly[~done])
            found.append(np.pad(filled, ((0, 0), (0, self.sites - filled.shape[1]))))
            full = _pairs(full, partly[done])
        return np.concatenate(found)

    def host_twin(self) -> HostIsing:
        """The same world in NumPy."""
        from xladder.worlds.ising_host import HostIsing

        return HostIsing(self.side, self.strength, self.block)

    # What is known of the target.

    def known_log_z(self) -> float | None:
        """log Z, by transfer matrices or Kaufman's formula."""
        return ising_exact.log_z(self.side, self.strength)

    @cached_property
    def perfect(self) -> np.ndarray:
        """int32 [B, n]: independent objects from the target itself, as states; the last `SAMPLED` are to compare."""
        spins = ising_exact.perfect_samples(self.side, self.strength, PERFECT + SAMPLED)
        return (3 + spins.astype(np.int32)) // 2

    def known_chart(self) -> np.ndarray | None:
        """float [n + 1, n + 1]: the chart of the target, from perfect samples where it is not enumerated."""
        if not self.exact_samples:
            return None
        with jax.ensure_compile_time_eval():
            return np.asarray(jax.vmap(self.chart)(jnp.asarray(self.perfect)).mean(0), np.float64)

    def chart(self, state: jax.Array) -> jax.Array:
        """float32 [n + 1, n + 1]: one in the row of the energy, lowest first, and the column of the magnetisation."""
        levels = jnp.arange(self.sites + 1)
        energy, up = self._level(state), (state == 2).sum()
        return ((levels == energy)[:, None] & (levels == up)[None, :]).astype(jnp.float32)

    def _level(self, state: jax.Array) -> jax.Array:
        """int32 []: 0 for the most Σ s·s′ there can be, 2n, and one more for every 4 less."""
        return (2 * self.sites - self.bonds(state).astype(jnp.int32)) // 4

    def metrics(self, sampler: Sampler) -> Mapping[str, jax.Array]:
        """Energy and magnetisation of sampled lattices, and the probability of perfect samples."""
        found = sampler.sample(SAMPLED)
        energy, magnetisation, shares = self._observe(found)
        true_bonds = ising_exact.mean_bonds(self.side, self.strength)
        if not self.exact_samples:
            true = jnp.nan if true_bonds is None else -true_bonds / self.sites
            return {"energy_error": jnp.abs(energy - true)}
        log_z = self.known_log_z()
        assert true_bonds is not None and log_z is not None
        with jax.ensure_compile_time_eval():  # XLA would spend seconds folding constants
            perfect, more = jnp.split(jnp.asarray(self.perfect), [PERFECT])
            _, true_magnetisation, true_shares = self._observe(perfect)
            _, _, ideal = self._observe(more)
            log_target = jax.vmap(self.log_reward)(perfect[:WEIGHED]) - log_z
            weighed = perfect[:WEIGHED]
        log_p = sampler.log_probability(weighed, WAYS)
        return {
            "energy_error": jnp.abs(energy + true_bonds / self.sites),
            "magnetisation_error": jnp.abs(magnetisation - true_magnetisation),
            "energy_tv": jnp.abs(shares - true_shares).sum() / 2,
            "energy_floor": jnp.abs(ideal - true_shares).sum() / 2,
            "forward_kl": (log_target - log_p).mean(),
        }

    def _observe(self, objects: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Mean energy and magnetisation (without its sign) per spin, and the share of each energy, float32 [n + 1]."""
        bonds = jax.vmap(self.bonds)(objects)
        totals = jnp.abs(jax.vmap(self.spins)(objects).sum(1)).astype(jnp.float32)
        levels = jax.vmap(self._level)(objects)
        shares = (levels[:, None] == jnp.arange(self.sites + 1)[None, :]).mean(0, dtype=jnp.float32)
        return -bonds.mean() / self.sites, totals.mean() / self.sites, shares

    def table_columns(self, objects: np.ndarray) -> Mapping[str, np.ndarray]:
        """The spins, −1 and 1, for `xladder sample`."""
        return {f"spin_{site + 1}": 2 * objects[:, site] - 3 for site in range(self.sites)}

    def image(self, state: np.ndarray) -> np.ndarray:
        """The lattice as a picture: −1, 0 or 1."""
        return np.where(state > 0, 2 * state - 3, 0).reshape(self.side, self.side)


def _pairs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """int32 [P · Q, …]: every line of the one followed by every line of the other."""
    return np.concatenate([np.repeat(first, len(second), axis=0), np.tile(second, (len(first), 1))], axis=1)
