"""The hypergrid (Bengio et al. 2021): objects are the cells of a grid, reached from the origin step by step.

A state is D coordinates in 0 … H − 1. Actions 0 … D − 1 increment a coordinate; action D stops, and the object is the
current cell. Backward actions decrement a coordinate; undoing stop leaves no choice. All functions are for one state.
Rewards are in `hypergrid_rewards`. Functions that enumerate all cells are for small grids; a custom reward is known by
enumeration only.

Shapes: D coordinates, H values of each, A = D + 1 forward actions, N = H^D cells.
"""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.worlds import hypergrid_rewards, own_rewards
from xladder.worlds.flow import BoundWorld, Enumeration
from xladder.worlds.hypergrid_rewards import draw_target, log_z, marginal

if TYPE_CHECKING:
    from xladder.worlds.hypergrid_settings import WorldConfig

MOST_BINS = 64  # per coordinate, when distributions are estimated: finer ones would be noise only
MOST_MODES = 4096  # that are counted in samples
CELLS_TRIED = 4096  # cells of a grid too large to enumerate, when a custom reward is checked


def initial(config: WorldConfig) -> jax.Array:
    """int32 [D]: the initial state."""
    return jnp.zeros(config.dim, jnp.int32)


def forward_mask(config: WorldConfig, state: jax.Array) -> jax.Array:
    """bool [A]: which forward actions are allowed in a state."""
    return jnp.append(state < config.side - 1, True)


def backward_mask(state: jax.Array) -> jax.Array:
    """bool [D]: which steps may have led to a state."""
    return state > 0


def forward(state: jax.Array, action: jax.Array) -> jax.Array:
    """The state after an action; stop does not change it."""
    return state + (jnp.arange(state.size) == action).astype(state.dtype)


def backward(state: jax.Array, action: jax.Array) -> jax.Array:
    """The state before an action."""
    return state - (jnp.arange(state.size) == action).astype(state.dtype)


def rows(config: WorldConfig, state: jax.Array) -> jax.Array:
    """int32 [D]: the indices of the active inputs of a one-hot encoding with D · H inputs."""
    return state + config.side * jnp.arange(config.dim)


def log_reward(config: WorldConfig, state: jax.Array) -> jax.Array:
    """float32 []: log-reward of a state, from a table by coordinates or from the user's function."""
    if config.own_reward:
        return jnp.asarray(own_rewards.find_reward(config.reward)(state), jnp.float32)
    if config.terms:
        return jax.nn.logsumexp(log_terms(config, state)) - np.log(config.num_terms).astype(np.float32)
    return hypergrid_rewards.log_reward(config, state)


def log_terms(config: WorldConfig, state: jax.Array) -> jax.Array:
    """float32 [K]: the log-rewards of a state by each of several rewards."""
    return jnp.stack([hypergrid_rewards.log_reward(term, state) for term in config.terms])


def cells(config: WorldConfig) -> np.ndarray:
    """int32 [N, D]: all states, the last coordinate running fastest."""
    return np.indices((config.side,) * config.dim, dtype=np.int32).reshape(config.dim, -1).T


def all_log_rewards(config: WorldConfig) -> np.ndarray:
    """float64 [N]: the log-reward of every cell. In NumPy, like all enumerations: XLA is slow at constant folding."""
    if config.own_reward:
        return own_rewards.log_rewards(config.reward, cells(config)).astype(np.float64)
    if config.terms:
        each = [hypergrid_rewards.log_rewards(term, cells(config)) for term in config.terms]
        return np.logaddexp.reduce(each) - np.log(config.num_terms)
    return hypergrid_rewards.log_rewards(config, cells(config))


def target(config: WorldConfig) -> np.ndarray:
    """float64 [N]: the target distribution over all cells, for built-in rewards."""
    return np.exp(all_log_rewards(config) - log_z(config))


def mode_cells(config: WorldConfig) -> np.ndarray:
    """bool [N]: which cells are modes."""
    return hypergrid_rewards.are_modes(config, cells(config))


def strides(config: WorldConfig) -> np.ndarray:
    """int32 [D]: distance in `cells` between cells that differ by one in a coordinate."""
    return (config.side ** np.arange(config.dim - 1, -1, -1)).astype(np.int32)


def marginal_of(config: WorldConfig, p: Any) -> Any:
    """[H, H], or [1, H] for one coordinate: the marginal of the first two, from the probability of every cell [N]."""
    return p[None] if config.dim == 1 else p.reshape(config.side, config.side, -1).sum(-1)


def histogram(config: WorldConfig, objects: jax.Array) -> jax.Array:
    """float32 [H, H] or [1, H]: histogram of the first two coordinates of objects [B, D], binned."""
    bins = min(config.side, MOST_BINS)
    places = objects * bins // config.side
    first = places[:, 0] if config.dim > 1 else jnp.zeros_like(places[:, 0])
    second = places[:, min(1, config.dim - 1)]
    shape = (bins if config.dim > 1 else 1, bins)
    return jnp.zeros(shape, jnp.float32).at[first, second].add(1.0 / objects.shape[0])


class Hypergrid(BoundWorld):
    """The hypergrid as a `BoundWorld`."""

    state_name, state_words = "coordinate", "coordinates of a cell"

    def __init__(self, config: WorldConfig):
        self.config = config
        self.state_size, self.num_actions, self.max_steps = config.dim, config.dim + 1, config.steps
        self.num_inputs, self.below, self.num_terms = config.dim * config.side, config.side, config.num_terms
        self.num_tokens, self.actions_per_token = config.dim, 1
        self.chart_text = "all cells" if config.dim <= 2 else "marginal of coordinates 1 and 2"
        self._reward_checked = False

    def initial(self) -> jax.Array:
        """int32 [D]: the origin."""
        return initial(self.config)

    def forward_mask(self, state: jax.Array) -> jax.Array:
        """bool [A]: coordinates that can be incremented, and stop."""
        return forward_mask(self.config, state)

    def backward_mask(self, state: jax.Array) -> jax.Array:
        """bool [D]: coordinates that are not zero."""
        return backward_mask(state)

    def forward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """Increment a coordinate."""
        return forward(state, action)

    def backward(self, state: jax.Array, action: jax.Array) -> jax.Array:
        """Decrement a coordinate."""
        return backward(state, action)

    def encode(self, state: jax.Array) -> jax.Array:
        """int32 [D]: the active input of each coordinate's one-hot encoding."""
        return rows(self.config, state)

    def log_reward(self, state: jax.Array) -> jax.Array:
        """float32 []: log-reward of a cell."""
        return log_reward(self.config, state)

    def log_terms(self, state: jax.Array) -> jax.Array:
        """float32 [K]: log-rewards of a cell by each of several rewards."""
        return log_terms(self.config, state)

    def enumeration(self) -> Enumeration | None:
        """All cells; None if there are too many."""
        return self._enumeration

    @cached_property
    def _enumeration(self) -> Enumeration | None:
        config = self.config
        if not config.enumerable:
            return None
        places, step, count = cells(config), strides(config), config.states
        numbers = np.arange(count, dtype=np.int32)[:, None]
        children = np.where(places < config.side - 1, numbers + step, count).astype(np.int32)
        parents = np.where(places > 0, numbers - step, count).astype(np.int32)
        level = places.sum(1)
        order, sizes = np.argsort(level, kind="stable"), np.bincount(level)
        levels = np.full((len(sizes), sizes.max()), count, np.int32)
        levels[np.arange(sizes.max())[None, :] < sizes[:, None]] = order
        log_rewards = all_log_rewards(config)
        modes = mode_cells(config) if config.closed_form else log_rewards >= log_rewards.max() - 1e-6
        everywhere = np.ones(count, bool)
        return Enumeration(
            places, everywhere, log_rewards, children, parents, levels, modes, lambda some: some @ step.astype(np.int64)
        )

    def log_z(self) -> float | None:
        """The logarithm of the sum of all rewards: in closed form, for single built-in rewards."""
        return log_z(self.config) if self.config.closed_form else super().log_z()

    def num_modes(self) -> int | None:
        """Number of modes, regions of neighbouring cells."""
        known = hypergrid_rewards.num_modes(self.config) if self.config.closed_form else None
        return super().num_modes() if known is None else known

    def num_mode_cells(self) -> int | None:
        """Number of cells in modes."""
        known = hypergrid_rewards.num_mode_cells(self.config) if self.config.closed_form else None
        return super().num_mode_cells() if known is None else known

    def mode_masses(self) -> np.ndarray | None:
        """float64 [K]: the target probability of every mode; None if it is unknown, or if there are thousands."""
        count = hypergrid_rewards.num_modes(self.config) if self.config.closed_form else None
        return hypergrid_rewards.mode_masses(self.config) if count and count <= MOST_MODES else None

    def mode_of(self, objects: jax.Array) -> jax.Array:
        """int32 [B]: the mode of each object, or K for none."""
        return hypergrid_rewards.mode_of(self.config, objects)

    def draw_target(self, key: jax.Array, count: int) -> jax.Array:
        """int32 [count, D]: objects sampled from the target."""
        return draw_target(self.config, key, count) if self.config.closed_form else super().draw_target(key, count)

    def target_picture(self, exact: bool) -> np.ndarray | None:
        """float64 [H, H] or [1, H]: the target's marginal, at the resolution of the estimates."""
        if not self.config.charted:
            return None
        if self.config.closed_form:
            whole = marginal(self.config)
        else:
            known = self.enumeration()
            assert known is not None
            whole = marginal_of(self.config, np.exp(known.log_target))
        if exact:
            return whole
        fine, columns = (np.arange(n) * min(n, MOST_BINS) // n for n in whole.shape)
        coarse = np.zeros((fine[-1] + 1, columns[-1] + 1))
        np.add.at(coarse, (fine[:, None], columns[None, :]), whole)
        return coarse

    def marginal(self, p: jax.Array, states: jax.Array) -> jax.Array:
        """float32 [H, H] or [1, H]: the marginal of the first two coordinates, from the probability of every cell."""
        return marginal_of(self.config, p)

    def histogram(self, objects: jax.Array) -> jax.Array:
        """float32 [H, H] or [1, H]: histogram of the first two coordinates, binned."""
        return histogram(self.config, objects)

    def check_reward(self) -> None:
        """Raise a `UsageError` if a custom reward is not a finite number in every cell that is checked."""
        if not self._reward_checked:
            own_rewards.check(
                self.config.reward, self._cells_to_try, self.config.dim, own_rewards.Words("cell", "coordinates")
            )
            self._reward_checked = True

    def _cells_to_try(self) -> np.ndarray:
        if self.config.enumerable:
            return cells(self.config)
        shape = (CELLS_TRIED, self.config.dim)
        places = np.random.default_rng(0).integers(0, self.config.side, shape, dtype=np.int32)
        places[0], places[1] = 0, self.config.side - 1
        return places


@lru_cache(maxsize=8)
def build(config: WorldConfig) -> Hypergrid:
    """The grid for these settings; cached, so that equal settings give the same object."""
    return Hypergrid(config)
