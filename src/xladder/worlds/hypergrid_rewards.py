"""The rewards of the hypergrid, as gfnx, torchgfn and the gflownet package have them, and what follows from them.

All but the last two are mixtures of products over coordinates (`factors`), so log Z, the target's marginals and its
samples are known for any size. Membership of cells is decided in integers: rounded fractions would make the modes of
some sizes asymmetric, as they do in the other packages.

| reward | value |
|---|---|
| easy, hard, torchgfn, custom | R0 + R1·[all outer] + R2·[all in the band] (Bengio et al. 2021) |
| corners | a normal density of each coordinate's distance from the centre, multiplied (the gflownet package) |
| cosine | R0 + R1·Π (cos 50a + 1)·φ(5a), with a the distance from the centre, ½ at the edge (torchgfn) |
| sparse | R0, and 1 more where all coordinates are 1 or H − 2, but not all 1 (Pan et al. 2023; torchgfn) |
| deceptive | R0 + R1·[not all away from the centre] + R2·[all in the band] (Kim et al. 2025; torchgfn) |
| xor | R0, and 111 more where x₁ xor x₂ xor x₃ is a multiple of 64, or 1 more where of 32 (torchgfn's easy preset) |
| coprime | R0, and 111 more where x₁, x₂, x₃ divide 900 and neighbours are coprime (torchgfn's easy preset) |

torchgfn's R0 of the last two is 0, whose logarithm is not finite. With fewer coordinates, those that there are count.

Shapes: D coordinates, H values of each, N = H^D cells, C components of a mixture.
"""

from __future__ import annotations

import operator
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from xladder.worlds.hypergrid_settings import WorldConfig

# The smooth reward: a normal density of the distance from the centre, which is 1 at the edge.
HILL_MEAN, HILL_VARIANCE = 0.75, 0.05
WAVE_PEAK = 2.0 / np.sqrt(2.0 * np.pi)  # the largest factor of `cosine`, in the centre
RULED = 3  # coordinates about which `xor` and `coprime` have rules
DIVISORS = [value for value in range(1, 901) if 900 % value == 0]  # at most twice each of the primes 2, 3 and 5
NEAR_PEAK = 0.8  # cells whose factors are on average this near to it are modes, as in torchgfn


def log_reward(config: WorldConfig, state: jax.Array) -> jax.Array:
    """float32 []: log-reward of a cell int32 [D], for built-in rewards."""
    if config.reward == "corners":
        return jnp.asarray(hill(config.side), jnp.float32)[state].sum()
    values: tuple[float, ...]
    r0, r1, r2 = config.levels
    if config.reward == "cosine":
        return jnp.log(r0 + r1 * jnp.prod(jnp.asarray(wave(config.side), jnp.float32)[state]))
    if config.reward == "sparse":
        number = (state == config.side - 2).any() & ((state == 1) | (state == config.side - 2)).all()
        values = r0, r0 + r2
    elif config.tiered:
        first, second = tiers(config, state)
        number = first.astype(jnp.int32) + second.astype(jnp.int32)
        values = r0, r0 + r1, r0 + r1 + r2
    elif config.reward == "deceptive":
        away, band = (jnp.asarray(member)[state].all() for member in (far(config.side), membership(config.side)[1]))
        number = jnp.where(band, 2, (~away).astype(jnp.int32))
        values = r0, r0 + r1, r0 + r2
    else:
        outer, band = (jnp.asarray(member)[state].all() for member in membership(config.side))
        number = outer.astype(jnp.int32) + band.astype(jnp.int32)  # cells in the band are outer, too
        values = r0, r0 + r1, r0 + r1 + r2
    return jnp.asarray(np.log(values).astype(np.float32))[number.astype(jnp.int32)]


def tiers(config: WorldConfig, cells: Any) -> tuple[Any, Any]:
    """bool […], twice: whether cells int […, D] satisfy the rule of `xor` or `coprime`, loosely and strictly."""
    ruled = [cells[..., d] for d in range(min(RULED, config.dim))]
    if config.reward == "xor":
        parity = reduce(operator.xor, ruled)
        return parity % 32 == 0, parity % 64 == 0
    divides = [reduce(operator.or_, [x == v for v in DIVISORS if v < config.side]) for x in ruled]
    shared = [(x % prime == 0) & (y % prime == 0) for x, y in pairwise(ruled) for prime in (2, 3, 5)]
    passed = reduce(operator.and_, divides) & ~reduce(operator.or_, shared, cells[..., 0] < 0)
    return passed, passed


def distance(side: int) -> np.ndarray:
    """int [H]: twice the distance of each value of a coordinate from the centre; H − 1 at the edge."""
    return np.abs(2 * np.arange(side) - (side - 1))


def membership(side: int) -> tuple[np.ndarray, np.ndarray]:
    """bool [H], twice: which values of a coordinate are outer, and which lie in the band."""
    twice = distance(side)
    return 2 * twice > side - 1, (5 * twice > 3 * (side - 1)) & (5 * twice < 4 * (side - 1))


def far(side: int) -> np.ndarray:
    """bool [H]: which values of a coordinate are more than a tenth of the side away from the centre."""
    return 5 * distance(side) > side - 1


def hill(side: int) -> np.ndarray:
    """float64 [H]: the contribution of each value of a coordinate to the log-reward `corners`."""
    return -((distance(side) / (side - 1) - HILL_MEAN) ** 2) / (2 * HILL_VARIANCE) - 0.5 * np.log(
        2 * np.pi * HILL_VARIANCE
    )


def wave(side: int) -> np.ndarray:
    """float64 [H]: the factor of each value of a coordinate in the reward `cosine`."""
    away = distance(side) / (2 * (side - 1))
    return (np.cos(50 * away) + 1) * np.exp(-((5 * away) ** 2) / 2) / np.sqrt(2 * np.pi)


def factors(config: WorldConfig) -> tuple[np.ndarray, np.ndarray]:
    """A reward as a mixture of products: log-weights [C] and the factor of every value, float64 [C, D, H]."""
    dim, side = config.dim, config.side
    everywhere = np.ones((1, dim, side))

    def alike(values: np.ndarray) -> np.ndarray:
        return np.broadcast_to(values.astype(float), (1, dim, side))

    if config.reward == "corners":
        return np.zeros(1), alike(np.exp(hill(side)))
    r0, r1, r2 = config.levels
    outer, band = membership(side)
    if config.reward == "cosine":
        parts = [(r0, everywhere), (r1, alike(wave(side)))]
    elif config.reward == "sparse":
        one, other = np.arange(side) == 1, np.arange(side) == side - 2
        parts = [(r0, everywhere), (r2, _first(dim, one & ~other, other, one | other))]
    elif config.reward == "deceptive":
        away = far(side)
        parts = [(r0, everywhere), (r1, _first(dim, away, ~away, np.ones(side, bool))), (r2, alike(band))]
    else:
        parts = [(r0, everywhere), (r1, alike(outer)), (r2, alike(band))]
    weights = np.concatenate([np.full(len(members), weight) for weight, members in parts])
    members = np.concatenate([members for _, members in parts])
    kept = (weights > 0) & (members.sum(2) > 0).all(1)
    return np.log(weights[kept]), members[kept]


def _first(dim: int, before: np.ndarray, here: np.ndarray, after: np.ndarray) -> np.ndarray:
    """float64 [D, D, H]: cells in which some coordinate is `here`, split by which is the first."""
    first, coordinate = np.indices((dim, dim))
    members = np.where((coordinate < first)[..., None], before, np.where((coordinate == first)[..., None], here, after))
    return members.astype(float)


def log_z(config: WorldConfig) -> float:
    """The logarithm of the sum of all rewards."""
    return float(np.logaddexp.reduce(log_sums(config)))


def log_sums(config: WorldConfig) -> np.ndarray:
    """float64 [C]: the logarithm of each component's sum over all cells."""
    weights, members = factors(config)
    return weights + np.log(members.sum(2)).sum(1)


def marginal(config: WorldConfig) -> np.ndarray:
    """float64 [H, H]: the target's marginal of the first two coordinates; [1, H] if there is only one."""
    _, members = factors(config)
    shares = np.exp(log_sums(config) - log_z(config))
    each = members / members.sum(2, keepdims=True)
    if config.dim == 1:
        return (shares @ each[:, 0])[None]
    return np.einsum("c,ci,cj->ij", shares, each[:, 0], each[:, 1])


def log_rewards(config: WorldConfig, cells: np.ndarray) -> np.ndarray:
    """float64 [B]: the log-rewards of cells int [B, D]."""
    if config.tiered:
        (r0, r1, r2), (first, second) = config.levels, tiers(config, cells)
        return np.log(r0 + r1 * first + r2 * second)
    weights, members = factors(config)
    products = np.repeat(np.exp(weights)[:, None], len(cells), axis=1)
    for coordinate, values in enumerate(cells.T):
        products *= members[:, coordinate, values]
    return np.log(products.sum(0))


def draw_target(config: WorldConfig, key: jax.Array, count: int) -> jax.Array:
    """int32 [count, D]: objects sampled from the target."""
    _, members = factors(config)
    which, where = jax.random.split(key)
    component = jax.random.categorical(which, jnp.asarray(log_sums(config), jnp.float32), shape=(count,))
    heights = jnp.asarray(np.cumsum(members, axis=2) / members.sum(2, keepdims=True), jnp.float32)
    draws = jax.random.uniform(where, (count, config.dim))

    def place(chosen: jax.Array, coordinate: jax.Array, draw: jax.Array) -> jax.Array:
        return jnp.searchsorted(heights[chosen, coordinate], draw, side="right")

    places = jax.vmap(jax.vmap(place, (None, 0, 0)), (0, None, 0))(component, jnp.arange(config.dim), draws)
    return jnp.minimum(places, config.side - 1).astype(jnp.int32)


# Modes: cells that a good sampler should find.


def peaks(config: WorldConfig) -> np.ndarray:
    """bool [H]: the coordinate values of modes: in the band, at the top of a hill, near that of a wave, or targets."""
    side = config.side
    if config.reward == "corners":
        return hill(side) == hill(side).max()
    if config.reward == "cosine":
        return wave(side) >= NEAR_PEAK * WAVE_PEAK
    if config.reward == "sparse":
        return (np.arange(side) == 1) | (np.arange(side) == side - 2)
    return membership(side)[1]


def are_modes(config: WorldConfig, cells: np.ndarray) -> np.ndarray:
    """bool [B]: which cells int [B, D] are modes."""
    if config.reward == "cosine":  # only their product has to be large enough
        return np.log(np.maximum(wave(config.side), 1e-300))[cells].mean(1) >= np.log(NEAR_PEAK * WAVE_PEAK)
    found = peaks(config)[cells].all(1)
    return found & (cells == config.side - 2).any(1) if config.reward == "sparse" else found


def mode_runs(config: WorldConfig) -> np.ndarray:
    """int [H]: the group of neighbouring peaks that a value of a coordinate belongs to, 0, 1 …; −1 if to none."""
    top = peaks(config)
    return np.where(top, np.cumsum(top & ~np.append(False, top[:-1])) - 1, -1)


def num_modes(config: WorldConfig) -> int | None:
    """Number of modes: regions of neighbouring cells, 2^D for most sides; None if cells have to be looked at."""
    runs = int(mode_runs(config).max()) + 1
    if config.reward == "cosine":  # one coordinate may make up for another, so that regions are no products
        return None if runs else 0
    return runs**config.dim - (config.reward == "sparse" and runs > 1)


def num_mode_cells(config: WorldConfig) -> int | None:
    """Number of cells in modes; None if they have to be looked at."""
    each = int(peaks(config).sum())
    if config.reward == "cosine":
        return None if each else 0
    return each**config.dim - (config.reward == "sparse" and each > 1)


def mode_masses(config: WorldConfig) -> np.ndarray:
    """float64 [K]: the target probability of every mode, in the order of `mode_of`; not for `cosine`."""
    if config.reward == "sparse":
        cells = num_mode_cells(config)
        modes = num_modes(config)
        assert cells and modes
        r0, _, r2 = config.levels
        return np.full(modes, (r0 + r2) * cells / modes / np.exp(log_z(config)))
    weights, members = factors(config)
    runs = mode_runs(config)
    each = np.stack([members[:, :, runs == run].sum(2) for run in range(runs.max() + 1)], axis=2)  # [C, D, runs]
    masses = np.exp(weights - log_z(config))[:, None]
    for coordinate in range(config.dim):
        masses = (masses[:, :, None] * each[:, coordinate, None, :]).reshape(len(weights), -1)
    return masses.sum(0)


def mode_of(config: WorldConfig, objects: jax.Array) -> jax.Array:
    """int32 [B]: the mode of cells [B, D]; `num_modes` where a cell belongs to none; not for `cosine`."""
    runs, count = mode_runs(config), num_modes(config)
    assert count is not None
    base = int(runs.max()) + 1
    places = jnp.asarray(runs, jnp.int32)[objects]  # [B, D]
    number = places @ jnp.asarray(base ** np.arange(config.dim - 1, -1, -1), jnp.int32)
    inside = (places >= 0).all(-1)
    if config.reward == "sparse":  # the cell (1, …, 1), which would be the first, is no mode
        inside = inside & (objects == config.side - 2).any(-1)
        number = number - (base > 1)
    return jnp.where(inside, number, count)
