"""The hypergrid (Bengio et al. 2021): objects are the cells of a grid, built from the origin one step at a time.

A state is D coordinates in 0 … H − 1. Actions 0 … D − 1 add one to a coordinate; action D stops, and the object is the
cell one stands on. Backward actions take one off; undoing stop leaves no choice. Everything is for one state. Because
the reward is a sum of products over coordinates, log Z, the target's marginals and its samples are known for any size;
what enumerates all cells is for small grids.

Shapes: D coordinates, H values of each, A = D + 1 forward actions, N = H^D cells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from xladder.families.gflownet.config import WorldConfig

# The smooth reward: a normal density in the distance from the middle, which is 1 at the edge.
HILL_MEAN, HILL_VARIANCE = 0.75, 0.05


def initial(config: WorldConfig) -> jax.Array:
    """int32 [D]: where every trajectory begins."""
    return jnp.zeros(config.dim, jnp.int32)


def forward_mask(config: WorldConfig, state: jax.Array) -> jax.Array:
    """bool [A]: which forward actions a state allows."""
    return jnp.append(state < config.side - 1, True)


def backward_mask(state: jax.Array) -> jax.Array:
    """bool [D]: which steps may have led to a state."""
    return state > 0


def forward(state: jax.Array, action: jax.Array) -> jax.Array:
    """The state after an action; stop changes nothing."""
    return state + (jnp.arange(state.size) == action).astype(state.dtype)


def backward(state: jax.Array, action: jax.Array) -> jax.Array:
    """The state before an action."""
    return state - (jnp.arange(state.size) == action).astype(state.dtype)


def rows(config: WorldConfig, state: jax.Array) -> jax.Array:
    """int32 [D]: which inputs of a one-hot encoding (D · H of them) are on."""
    return state + config.side * jnp.arange(config.dim)


def log_reward(config: WorldConfig, state: jax.Array) -> jax.Array:
    """float32 []: log R of a state, read from a table of its coordinates."""
    if config.reward == "corners":
        return jnp.asarray(hill(config), jnp.float32)[state].sum()
    outer, band = (jnp.asarray(member)[state].all() for member in membership(config.side))
    r0, r1, r2 = config.levels
    logs = np.log([r0, r0 + r1, r0 + r1 + r2]).astype(np.float32)
    return jnp.asarray(logs)[outer.astype(jnp.int32) + band.astype(jnp.int32)]  # what lies in the band is outer too


def membership(side: int) -> tuple[np.ndarray, np.ndarray]:
    """bool [H], twice: which values of a coordinate are outer, and which lie in the band.

    Decided in integers: rounded fractions would make the modes of some sizes lopsided.
    """
    twice = np.abs(2 * np.arange(side) - (side - 1))  # the distance from the middle, of which the edge has side − 1
    return 2 * twice > side - 1, (5 * twice > 3 * (side - 1)) & (5 * twice < 4 * (side - 1))


def hill(config: WorldConfig) -> np.ndarray:
    """float64 [H]: what each value of a coordinate adds to the log-reward `corners`."""
    away = np.abs(2 * np.arange(config.side) - (config.side - 1)) / (config.side - 1)
    return -((away - HILL_MEAN) ** 2) / (2 * HILL_VARIANCE) - 0.5 * np.log(2 * np.pi * HILL_VARIANCE)


def factors(config: WorldConfig) -> tuple[np.ndarray, np.ndarray]:
    """The reward as a mixture of products: log-weights [C], and what a coordinate contributes, float64 [C, H]."""
    if config.reward == "corners":
        return np.zeros(1), np.exp(hill(config))[None]
    weights = np.array(config.levels)
    members = np.stack([np.ones(config.side), *membership(config.side)])
    kept = (weights > 0) & members.any(1)
    return np.log(weights[kept]), members[kept]


def log_z(config: WorldConfig) -> float:
    """The logarithm of the sum of all rewards."""
    weights, members = factors(config)
    return float(np.logaddexp.reduce(weights + config.dim * np.log(members.sum(1))))


def marginal(config: WorldConfig) -> np.ndarray:
    """float64 [H, H]: the target distribution of the first two coordinates; [1, H] if there is but one."""
    weights, members = factors(config)
    shares = np.exp(weights + config.dim * np.log(members.sum(1)) - log_z(config))
    each = members / members.sum(1, keepdims=True)
    if config.dim == 1:
        return (shares @ each)[None]
    return np.einsum("c,ci,cj->ij", shares, each, each)


def peaks(config: WorldConfig) -> np.ndarray:
    """bool [H]: the values of a coordinate that a mode has: those in the band, or on top of a hill."""
    return hill(config) == hill(config).max() if config.reward == "corners" else membership(config.side)[1]


def num_modes(config: WorldConfig) -> int:
    """How many cells are modes."""
    return int(peaks(config).sum()) ** config.dim


def draw_target(config: WorldConfig, key: jax.Array, count: int) -> jax.Array:
    """int32 [count, D]: objects drawn from the target itself."""
    weights, members = factors(config)
    which, where = jax.random.split(key)
    logits = jnp.asarray(weights + config.dim * np.log(members.sum(1)), jnp.float32)
    component = jax.random.categorical(which, logits, shape=(count,))
    heights = jnp.asarray(np.cumsum(members, axis=1) / members.sum(1, keepdims=True), jnp.float32)[component]
    draws = jax.random.uniform(where, (count, config.dim))
    places = jax.vmap(lambda height, draw: jnp.searchsorted(height, draw, side="right"))(heights, draws)
    return jnp.minimum(places, config.side - 1).astype(jnp.int32)


def cells(config: WorldConfig) -> np.ndarray:
    """int32 [N, D]: all states, the last coordinate running fastest."""
    return np.indices((config.side,) * config.dim, dtype=np.int32).reshape(config.dim, -1).T


def all_log_rewards(config: WorldConfig) -> np.ndarray:
    """float64 [N]: the log-reward of every cell. NumPy, as everything about all cells: XLA folds constants slowly."""
    weights, members = factors(config)
    products = np.repeat(np.exp(weights)[:, None], config.states, axis=1)
    for coordinate in cells(config).T:
        products *= members[:, coordinate]
    return np.log(products.sum(0))


def target(config: WorldConfig) -> np.ndarray:
    """float64 [N]: the distribution to be learned, over every cell."""
    return np.exp(all_log_rewards(config) - log_z(config))


def mode_cells(config: WorldConfig) -> np.ndarray:
    """bool [N]: which cells are modes."""
    return peaks(config)[cells(config)].all(1)
