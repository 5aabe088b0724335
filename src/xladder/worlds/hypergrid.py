"""The hypergrid (Bengio et al. 2021): objects are the cells of a grid, reached from the origin step by step.

A state is D coordinates in 0 … H − 1. Actions 0 … D − 1 increment a coordinate; action D stops, and the object is the
current cell. Backward actions decrement a coordinate; undoing stop leaves no choice. All functions are for one state.
Because the reward is a sum of products over coordinates, log Z, the target's marginals and its samples are known for
any size; functions that enumerate all cells are for small grids. A custom reward is known by enumeration only.

Shapes: D coordinates, H values of each, A = D + 1 forward actions, N = H^D cells.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder import user_code
from xladder.core.caching import cached_by_identity
from xladder.errors import UsageError, brief
from xladder.worlds.flow import AT_ONCE, BoundWorld, Enumeration

if TYPE_CHECKING:
    from xladder.worlds.hypergrid_settings import WorldConfig

# The smooth reward: a normal density of the distance from the centre, which is 1 at the edge.
HILL_MEAN, HILL_VARIANCE = 0.75, 0.05
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
        return jnp.asarray(find_reward(config.reward)(state), jnp.float32)
    if config.reward == "corners":
        return jnp.asarray(hill(config), jnp.float32)[state].sum()
    outer, band = (jnp.asarray(member)[state].all() for member in membership(config.side))
    r0, r1, r2 = config.levels
    logs = np.log([r0, r0 + r1, r0 + r1 + r2]).astype(np.float32)
    return jnp.asarray(logs)[outer.astype(jnp.int32) + band.astype(jnp.int32)]  # cells in the band are outer, too


def membership(side: int) -> tuple[np.ndarray, np.ndarray]:
    """bool [H], twice: which values of a coordinate are outer, and which lie in the band.

    Computed in integers: rounded fractions would make the modes of some sizes asymmetric.
    """
    twice = np.abs(2 * np.arange(side) - (side - 1))  # the distance from the centre; side − 1 at the edge
    return 2 * twice > side - 1, (5 * twice > 3 * (side - 1)) & (5 * twice < 4 * (side - 1))


def hill(config: WorldConfig) -> np.ndarray:
    """float64 [H]: the contribution of each value of a coordinate to the log-reward `corners`."""
    away = np.abs(2 * np.arange(config.side) - (config.side - 1)) / (config.side - 1)
    return -((away - HILL_MEAN) ** 2) / (2 * HILL_VARIANCE) - 0.5 * np.log(2 * np.pi * HILL_VARIANCE)


def factors(config: WorldConfig) -> tuple[np.ndarray, np.ndarray]:
    """The reward as a mixture of products: log-weights [C] and the factor of each coordinate value, float64 [C, H]."""
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
    """float64 [H, H]: the target's marginal of the first two coordinates; [1, H] if there is only one."""
    weights, members = factors(config)
    shares = np.exp(weights + config.dim * np.log(members.sum(1)) - log_z(config))
    each = members / members.sum(1, keepdims=True)
    if config.dim == 1:
        return (shares @ each)[None]
    return np.einsum("c,ci,cj->ij", shares, each, each)


def peaks(config: WorldConfig) -> np.ndarray:
    """bool [H]: the coordinate values of modes: those in the band, or at the top of a hill."""
    return hill(config) == hill(config).max() if config.reward == "corners" else membership(config.side)[1]


def mode_runs(config: WorldConfig) -> np.ndarray:
    """int [H]: the group of neighbouring peaks that a value of a coordinate belongs to, 0, 1 …; −1 if to none."""
    top = peaks(config)
    return np.where(top, np.cumsum(top & ~np.append(False, top[:-1])) - 1, -1)


def num_modes(config: WorldConfig) -> int:
    """Number of modes: regions of neighbouring cells, 2^D for most sides."""
    return int(mode_runs(config).max() + 1) ** config.dim


def num_mode_cells(config: WorldConfig) -> int:
    """Number of cells in modes."""
    return int(peaks(config).sum()) ** config.dim


def mode_masses(config: WorldConfig) -> np.ndarray:
    """float64 [K]: the target probability of every mode, in the order of `mode_of`."""
    weights, members = factors(config)
    runs = mode_runs(config)
    each = np.stack([members[:, runs == run].sum(1) for run in range(runs.max() + 1)], axis=1)  # [C, runs]
    masses = np.exp(weights - log_z(config))[:, None]
    for _ in range(config.dim):
        masses = (masses[:, :, None] * each[:, None, :]).reshape(len(weights), -1)
    return masses.sum(0)


def mode_of(config: WorldConfig, objects: jax.Array) -> jax.Array:
    """int32 [B]: the mode of cells [B, D]; `num_modes` where a cell belongs to none."""
    runs, count = mode_runs(config), num_modes(config)
    base = int(runs.max()) + 1
    places = jnp.asarray(runs, jnp.int32)[objects]  # [B, D]
    number = places @ jnp.asarray(base ** np.arange(config.dim - 1, -1, -1), jnp.int32)
    return jnp.where((places >= 0).all(-1), number, count)


def draw_target(config: WorldConfig, key: jax.Array, count: int) -> jax.Array:
    """int32 [count, D]: objects sampled from the target."""
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
    """float64 [N]: the log-reward of every cell. In NumPy, like all enumerations: XLA is slow at constant folding."""
    if config.own_reward:
        return own_log_rewards(config, cells(config)).astype(np.float64)
    weights, members = factors(config)
    products = np.repeat(np.exp(weights)[:, None], config.states, axis=1)
    for coordinate in cells(config).T:
        products *= members[:, coordinate]
    return np.log(products.sum(0))


def target(config: WorldConfig) -> np.ndarray:
    """float64 [N]: the target distribution over all cells, for built-in rewards."""
    return np.exp(all_log_rewards(config) - log_z(config))


def mode_cells(config: WorldConfig) -> np.ndarray:
    """bool [N]: which cells are modes."""
    return peaks(config)[cells(config)].all(1)


def strides(config: WorldConfig) -> np.ndarray:
    """int32 [D]: distance in `cells` between cells that differ by one in a coordinate."""
    return (config.side ** np.arange(config.dim - 1, -1, -1)).astype(np.int32)


def find_reward(name: str) -> Callable[[jax.Array], Any]:
    """Load the user's reward, named `module:name`: a function, a callable object, or a class of them."""
    found = user_code.find(name, "reward")
    if inspect.isclass(found):
        found = _instance(found)
    if not callable(found):
        raise UsageError(f"`--world.reward` is {name}, which is a {type(found).__name__} and not a function.")
    return found


def own_log_rewards(config: WorldConfig, places: np.ndarray) -> np.ndarray:
    """float32 [B]: a custom reward in cells int32 [B, D], in batches of some thousands."""
    reward = _mapped(find_reward(config.reward))
    found = []
    with jax.ensure_compile_time_eval(), jax.default_device(jax.local_devices(backend="cpu")[0]):
        for begin in range(0, len(places), AT_ONCE):
            part = np.asarray(places[begin : begin + AT_ONCE], np.int32)
            room = min(AT_ONCE, max(16, 1 << (len(part) - 1).bit_length()))
            padded = np.concatenate([part, np.zeros((room - len(part), config.dim), np.int32)])
            found.append(np.asarray(reward(padded))[: len(part)])
    return np.concatenate(found)


@cached_by_identity
def _instance(kind: Any) -> Any:
    return user_code.instantiate(kind, user_code.shown(kind))


@cached_by_identity
def _mapped(reward: Callable[[jax.Array], Any]) -> Callable[[np.ndarray], jax.Array]:
    return jax.jit(jax.vmap(lambda place: jnp.asarray(reward(place), jnp.float32)))


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
        self.num_inputs, self.below = config.dim * config.side, config.side
        self.chart_text = "all cells" if config.dim <= 2 else "marginal of coordinates 1 and 2"

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
        modes = log_rewards >= log_rewards.max() - 1e-6 if config.own_reward else mode_cells(config)
        everywhere = np.ones(count, bool)
        return Enumeration(
            places, everywhere, log_rewards, children, parents, levels, modes, lambda some: some @ step.astype(np.int64)
        )

    def log_z(self) -> float | None:
        """The logarithm of the sum of all rewards: in closed form, unless the reward is custom."""
        return super().log_z() if self.config.own_reward else log_z(self.config)

    def num_modes(self) -> int | None:
        """Number of modes, regions of neighbouring cells."""
        return super().num_modes() if self.config.own_reward else num_modes(self.config)

    def num_mode_cells(self) -> int | None:
        """Number of cells in modes."""
        return super().num_mode_cells() if self.config.own_reward else num_mode_cells(self.config)

    def mode_masses(self) -> np.ndarray | None:
        """float64 [K]: the target probability of every mode; None for a custom reward, or if there are thousands."""
        known = not self.config.own_reward and 0 < num_modes(self.config) <= MOST_MODES
        return mode_masses(self.config) if known else None

    def mode_of(self, objects: jax.Array) -> jax.Array:
        """int32 [B]: the mode of each object, or K for none."""
        return mode_of(self.config, objects)

    def draw_target(self, key: jax.Array, count: int) -> jax.Array:
        """int32 [count, D]: objects sampled from the target."""
        return super().draw_target(key, count) if self.config.own_reward else draw_target(self.config, key, count)

    def target_picture(self, exact: bool) -> np.ndarray | None:
        """float64 [H, H] or [1, H]: the target's marginal, at the resolution of the estimates."""
        if not self.config.charted:
            return None
        if self.config.own_reward:
            known = self.enumeration()
            assert known is not None
            whole = marginal_of(self.config, np.exp(known.log_target))
        else:
            whole = marginal(self.config)
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
        for fault in self._reward_faults:
            raise UsageError(fault)

    @cached_property
    def _reward_faults(self) -> tuple[str, ...]:
        config = self.config
        reward, flag = find_reward(config.reward), f"`--world.reward {config.reward}`"
        kinds: list[type] = []

        def probed(place: jax.Array) -> Any:
            given = reward(place)
            kinds.append(type(given))
            return given

        try:
            shape = jax.eval_shape(probed, jax.ShapeDtypeStruct((config.dim,), jnp.int32))
        except (Exception, SystemExit) as error:
            return (
                f"{flag} fails inside `jit`, given coordinates int32 [{config.dim}]: {brief(error)}. It has to be pure "
                "JAX.",
            )
        if kinds[-1] in (float, int, bool):
            return (
                f"{flag} returns a Python {kinds[-1].__name__}, the same for every cell: return a JAX number that "
                "depends on the coordinates.",
            )
        one = len(jax.tree.leaves(shape)) == 1 and isinstance(shape, jax.ShapeDtypeStruct)
        if not one or shape.shape != () or jnp.dtype(shape.dtype).kind not in "iuf":
            given = f"{shape.dtype} {list(shape.shape)}" if one else f"a {kinds[-1].__name__}"
            return (f"{flag} returns {given} for one cell, but it has to be one float, the logarithm of its reward.",)
        if config.enumerable:
            places, rewards = cells(config), all_log_rewards(config)
        else:
            places = np.random.default_rng(0).integers(0, config.side, (CELLS_TRIED, config.dim), dtype=np.int32)
            places[0], places[1] = 0, config.side - 1
            rewards = own_log_rewards(config, places)
        bad = np.flatnonzero(~np.isfinite(rewards))
        if len(bad):
            cell = ", ".join(map(str, places[bad[0]].tolist()[:20]))
            return (
                f"{flag} returns {rewards[bad[0]]:g} in cell ({cell}), and is not finite in {len(bad):,} of "
                f"{len(places):,} cells: log-rewards have to be finite numbers.",
            )
        return ()


@lru_cache(maxsize=8)
def build(config: WorldConfig) -> Hypergrid:
    """The grid for these settings; cached, so that equal settings give the same object."""
    return Hypergrid(config)
