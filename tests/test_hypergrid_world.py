"""The hypergrid: its published numbers, its rules, its twin on the host; and the memory of objects with its twin."""

from fractions import Fraction
from functools import cache, partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xladder.replay import objects
from xladder.replay.objects_host import HostObjects
from xladder.worlds import hypergrid as world
from xladder.worlds import hypergrid_rewards
from xladder.worlds.hypergrid_host import HostGrid
from xladder.worlds.hypergrid_settings import WorldConfig

REWARDS = ("easy", "hard", "torchgfn", "corners", "custom")
draw_target = jax.jit(hypergrid_rewards.draw_target, static_argnums=(0, 2))


@partial(jax.jit, static_argnums=0)
def look_up(config, cells):
    return jax.vmap(partial(world.log_reward, config))(cells)


@cache
def of_all_cells(config: WorldConfig) -> tuple[np.ndarray, np.ndarray]:
    """float32 [N] and bool [N]: log-rewards and modes. XLA would fold cells that it knew, which takes seconds."""
    log_rewards, modes = look_up(config, world.cells(config)), world.mode_cells(config)
    return np.asarray(log_rewards), np.asarray(modes)


def reward_by_definition(config: WorldConfig, cell) -> float:
    """As the papers say it, in fractions: rounding decides nothing."""
    away = [abs(Fraction(int(x), config.side - 1) - Fraction(1, 2)) for x in cell]
    if config.reward == "corners":
        parts = [np.exp(-((2 * float(a) - 0.75) ** 2) / 0.1) / np.sqrt(2 * np.pi * 0.05) for a in away]
        return float(np.prod(parts))
    r0, r1, r2 = config.levels
    outer = all(a > Fraction(1, 4) for a in away)
    band = all(Fraction(3, 10) < a < Fraction(2, 5) for a in away)
    return r0 + r1 * outer + r2 * band


def target_by_enumeration(config: WorldConfig) -> np.ndarray:
    """float64 [N]: the rewards of all cells, divided by their sum."""
    rewards = np.array([reward_by_definition(config, cell) for cell in world.cells(config)])
    return rewards / rewards.sum()


# ---- published numbers ---------------------------------------------------------------------------------------------

PUBLISHED = [  # reward, D, H, mode cells, log Z, TV of the uniform distribution
    ("easy", 2, 8, 4, 2.77658, 0.747),
    ("easy", 2, 16, 4, 3.69526, 0.745),
    ("easy", 2, 20, 16, 4.41159, 0.746),
    ("easy", 4, 8, 16, 5.10045, 0.914),
    ("easy", 4, 20, 256, 8.64330, 0.911),
    ("hard", 4, 20, 256, 9.28582, 0.936),
    ("torchgfn", 2, 8, 4, 3.10906, 0.536),
    ("torchgfn", 2, 16, 4, 4.18358, 0.457),
    ("corners", 2, 16, None, 5.25890, 0.495),
    ("corners", 2, 20, None, 5.70835, 0.497),
    ("corners", 2, 32, None, 6.65055, 0.505),
]


@pytest.mark.parametrize(("reward", "dim", "side", "modes", "log_z", "tv"), PUBLISHED)
def test_published_numbers_come_out(reward, dim, side, modes, log_z, tv):
    config = WorldConfig(dim, side, reward)
    log_rewards, is_mode = of_all_cells(config)
    log_rewards = log_rewards.astype(float)
    assert log_rewards.shape == (config.states,) == (side**dim,)
    assert hypergrid_rewards.log_z(config) == pytest.approx(log_z, abs=6e-6)  # the last digit
    assert np.logaddexp.reduce(log_rewards) == pytest.approx(log_z, abs=1e-5)
    target = np.exp(log_rewards - hypergrid_rewards.log_z(config))
    assert np.abs(target - 1 / config.states).sum() / 2 == pytest.approx(tv, abs=6e-4)
    if modes is not None:
        assert hypergrid_rewards.num_mode_cells(config) == is_mode.sum() == modes


def test_the_target_is_the_rewards_divided_by_their_sum():
    for config in (WorldConfig(2, 8), WorldConfig(1, 9, "corners")):
        target = np.asarray(world.target(config))
        np.testing.assert_allclose(target, target_by_enumeration(config), rtol=1e-5)
        assert target.sum() == pytest.approx(1, abs=1e-5)
        enumerated = world.all_log_rewards(config), world.mode_cells(config)
        for ours, theirs in zip(enumerated, of_all_cells(config), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-6)


# ---- the reward ----------------------------------------------------------------------------------------------------

GRIDS = [(1, 2), (1, 9), (1, 20), (2, 3), (2, 11), (2, 16), (3, 6), (3, 8)]
CUSTOM = [
    WorldConfig(dim, side, "custom", *levels)
    for dim, side in ((1, 16), (2, 8))
    for levels in ((0.1, 0.0, 2.0), (0.1, 0.5, 0.0), (0.3, 0.0, 0.0), (1e-6, 3.0, 100.0))
]


DEFINED = [
    *(WorldConfig(2, side) for side in (2, 6, 11, 16, 21)),  # rounded fractions go wrong in the last four
    *(WorldConfig(3, 6, reward) for reward in ("hard", "torchgfn", "corners")),
    WorldConfig(1, 9, "corners"),
    WorldConfig(1, 16, "custom", 0.2, 0.0, 1.1),
]


@pytest.mark.parametrize("config", DEFINED)
def test_rewards_are_as_defined(config):
    expected = [reward_by_definition(config, cell) for cell in world.cells(config)]
    # Adding in float32 the logarithms of a few coordinates, which are below 6.
    np.testing.assert_allclose(of_all_cells(config)[0], np.log(expected), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("config", [*(WorldConfig(d, h, r) for r in REWARDS[:4] for d, h in GRIDS), *CUSTOM])
def test_log_z_is_the_sum_over_all_cells(config):
    rewards = [reward_by_definition(config, cell) for cell in world.cells(config)]
    assert hypergrid_rewards.log_z(config) == pytest.approx(np.log(np.sum(rewards)), abs=1e-12, rel=1e-12)


@pytest.mark.parametrize("config", [*(WorldConfig(d, h, r) for r in REWARDS[:4] for d, h in GRIDS[1:]), *CUSTOM])
def test_the_marginal_is_the_target_summed_over_all_but_two_coordinates(config):
    target = target_by_enumeration(config)
    expected = target[None] if config.dim == 1 else target.reshape(config.side, config.side, -1).sum(-1)
    np.testing.assert_allclose(hypergrid_rewards.marginal(config), expected, rtol=1e-10)


def test_log_z_of_a_grid_too_large_to_enumerate_is_finite():
    # Distances from the middle are odd, up to 63. Outer are 33 … 63, on two sides 32 values; in the band are those
    # between 37.8 and 50.4, which are 39 … 49, on two sides 12.
    config = WorldConfig(500, 64)
    terms = [np.log(1e-3) + 500 * np.log(64), np.log(0.5) + 500 * np.log(32), np.log(2.0) + 500 * np.log(12)]
    assert hypergrid_rewards.log_z(config) == pytest.approx(np.logaddexp.reduce(terms), rel=1e-12)
    np.testing.assert_allclose(hypergrid_rewards.marginal(config).sum(), 1.0, rtol=1e-9)


@pytest.mark.parametrize("side", [16, 21, 26, 31, 41])
def test_modes_look_the_same_from_every_corner(side):
    modes = of_all_cells(WorldConfig(2, side))[1].reshape(side, side)
    assert modes.any()
    np.testing.assert_array_equal(modes, modes[::-1])
    np.testing.assert_array_equal(modes, modes[:, ::-1])
    np.testing.assert_array_equal(modes, modes.T)
    assert modes.sum() == hypergrid_rewards.num_mode_cells(WorldConfig(2, side))
    assert hypergrid_rewards.num_modes(WorldConfig(2, side)) == 4
    for member in hypergrid_rewards.membership(side):
        np.testing.assert_array_equal(member, member[::-1])


@pytest.mark.parametrize("side", [3, 4, 5, 6, 11])
def test_some_sides_are_too_short_for_a_band(side):
    config = WorldConfig(2, side)
    assert (
        hypergrid_rewards.num_modes(config)
        == hypergrid_rewards.num_mode_cells(config)
        == of_all_cells(config)[1].sum()
        == 0
    )


@pytest.mark.parametrize("config", [WorldConfig(2, 8, "hard"), WorldConfig(2, 20), WorldConfig(2, 21, "corners")])
def test_modes_are_the_cells_of_highest_reward(config):
    rewards = np.array([reward_by_definition(config, cell) for cell in world.cells(config)])
    # At a side of 21 the hills' tops lie half-way between two values, so that both are modes.
    best = np.isclose(rewards, rewards.max(), rtol=1e-9)
    np.testing.assert_array_equal(of_all_cells(config)[1], best)
    assert hypergrid_rewards.num_mode_cells(config) == best.sum()


@pytest.mark.parametrize(
    "config", [WorldConfig(2, 8), WorldConfig(2, 20), WorldConfig(3, 12, "hard"), WorldConfig(2, 21, "corners")]
)
def test_modes_are_regions_of_neighbouring_cells(config):
    """One in every corner, as papers count them; the same by closed form and by a search over all cells."""
    known = config.build().enumeration()
    assert hypergrid_rewards.num_modes(config) == known.num_regions == 2**config.dim
    target = np.exp(known.log_target)
    masses = [target[known.regions == region].sum() for region in range(known.num_regions)]
    np.testing.assert_allclose(np.sort(hypergrid_rewards.mode_masses(config)), np.sort(masses), rtol=1e-9)
    mine = np.asarray(hypergrid_rewards.mode_of(config, jnp.asarray(world.cells(config))))
    pairs = set(zip(mine.tolist(), known.regions.tolist(), strict=True))
    assert len(pairs) == 2**config.dim + 1 and (2**config.dim,) * 2 in pairs  # one of theirs for each of ours
    np.testing.assert_array_equal(known.regions < known.num_regions, known.modes)


# ---- steps ---------------------------------------------------------------------------------------------------------


@cache
def verbs(config: WorldConfig):
    """The world's verbs on a batch of states, compiled."""

    def said(states):
        actions = jnp.arange(config.dim + 1)
        step = jax.vmap(jax.vmap(world.forward, (None, 0)), (0, None))
        back = jax.vmap(jax.vmap(world.backward, (None, 0)), (0, None))
        return dict(
            forward_mask=jax.vmap(partial(world.forward_mask, config))(states),
            backward_mask=jax.vmap(world.backward_mask)(states),
            forward=step(states, actions),  # [B, A, D]
            backward=back(states, actions[:-1]),  # [B, D, D]
            rows=jax.vmap(partial(world.rows, config))(states),
            log_reward=jax.vmap(partial(world.log_reward, config))(states),
        )

    return jax.jit(said)


def test_masks_in_the_corners():
    config = WorldConfig(2, 5)
    said = verbs(config)(jnp.array([[0, 0], [4, 4], [4, 0], [0, 2], [3, 4]], jnp.int32))
    forward = [[1, 1, 1], [0, 0, 1], [0, 1, 1], [1, 1, 1], [1, 0, 1]]  # the last is stop
    backward = [[0, 0], [1, 1], [1, 0], [0, 1], [1, 1]]
    np.testing.assert_array_equal(said["forward_mask"], np.array(forward, bool))
    np.testing.assert_array_equal(said["backward_mask"], np.array(backward, bool))


@pytest.mark.parametrize("config", [WorldConfig(1, 6), WorldConfig(2, 5), WorldConfig(3, 3)])
def test_what_is_allowed_stays_inside_and_can_be_undone(config):
    cells = world.cells(config)
    said = jax.tree.map(np.asarray, verbs(config)(jnp.asarray(cells)))
    # An action is allowed where, and only where, it leads to a cell.
    inside = ((said["forward"] >= 0) & (said["forward"] < config.side)).all(-1)
    np.testing.assert_array_equal(said["forward_mask"], inside)
    np.testing.assert_array_equal(said["backward_mask"], (said["backward"] >= 0).all(-1))
    np.testing.assert_array_equal(said["forward"][:, -1], cells)  # stop stays
    place = {tuple(cell): n for n, cell in enumerate(cells)}
    edges = 0
    for n, d in product(range(config.states), range(config.dim)):
        if said["forward_mask"][n, d]:
            after = place[tuple(said["forward"][n, d])]
            assert said["backward_mask"][after, d]
            np.testing.assert_array_equal(said["backward"][after, d], cells[n])
            edges += 1
        if said["backward_mask"][n, d]:
            before = place[tuple(said["backward"][n, d])]
            assert said["forward_mask"][before, d]
            np.testing.assert_array_equal(said["forward"][before, d], cells[n])
    assert edges == said["backward_mask"].sum() == config.dim * (config.side - 1) * config.side ** (config.dim - 1)
    assert not np.asarray(world.initial(config)).any()


@pytest.mark.parametrize("config", [WorldConfig(1, 6), WorldConfig(2, 5), WorldConfig(3, 3)])
def test_the_rows_that_are_on_are_the_one_hot_encoding(config):
    cells = world.cells(config)
    encoded = np.zeros((config.states, config.dim * config.side))
    np.put_along_axis(encoded, np.asarray(verbs(config)(jnp.asarray(cells))["rows"]), 1.0, axis=1)
    expected = np.concatenate([np.eye(config.side)[cells[:, d]] for d in range(config.dim)], axis=1)
    np.testing.assert_array_equal(encoded, expected)


@pytest.mark.parametrize("config", [WorldConfig(1, 2), WorldConfig(1, 9), WorldConfig(3, 4), WorldConfig(4, 20)])
def test_the_longest_trajectory_visits_every_level_and_stops(config):
    grid, rng = HostGrid(config), np.random.default_rng(0)
    state, steps = grid.initial(1), 1  # stop is a step
    while (allowed := np.flatnonzero(grid.forward_mask(state)[0, :-1])).size:
        state, steps = grid.forward(state, rng.choice(allowed, 1)), steps + 1
    np.testing.assert_array_equal(state, np.full((1, config.dim), config.side - 1))
    assert steps == config.steps == config.dim * (config.side - 1) + 1


@pytest.mark.parametrize("reward", REWARDS)
def test_the_twin_on_the_host_agrees(reward):
    config = WorldConfig(3, 21, reward, 0.2, 0.7, 1.1)
    rng = np.random.default_rng(1)
    # Bands (3 and 17), what just is not one, edges and the middle, which chance seldom meets.
    near = rng.choice([0, 2, 3, 4, 5, 10, 15, 16, 17, 18, 20], (200, 3))
    states = np.concatenate([rng.integers(0, 21, (200, 3)), near])
    said, grid = verbs(config)(jnp.asarray(states, jnp.int32)), HostGrid(config)
    for name in ("forward_mask", "backward_mask", "rows"):
        theirs = getattr(grid, {"rows": "encode"}.get(name, name))(states)
        np.testing.assert_array_equal(said[name], theirs, err_msg=name)
    for action in range(4):
        np.testing.assert_array_equal(said["forward"][:, action], grid.forward(states, np.full(400, action)))
    for action in range(3):
        np.testing.assert_array_equal(said["backward"][:, action], grid.backward(states, np.full(400, action)))
    theirs = grid.log_reward(states)
    assert theirs.dtype == said["log_reward"].dtype == np.float32
    # Levels are looked up alike; the hills are added in float32 on one side, some 1e-7 of numbers below 20.
    np.testing.assert_allclose(said["log_reward"], theirs, rtol=0, atol=5e-6 if reward == "corners" else 0)
    assert len(np.unique(theirs)) >= 3
    assert hypergrid_rewards.peaks(grid.config)[states].all(1).any()


# ---- samples of the target -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [WorldConfig(2, 8), WorldConfig(2, 8, "corners"), WorldConfig(3, 5, "corners"), WorldConfig(1, 16, "torchgfn")],
)
def test_samples_of_the_target_follow_it(config):
    count = 20_000
    found = np.asarray(draw_target(config, jax.random.key(3), count))
    assert (found.dtype, found.shape) == (np.int32, (count, config.dim))
    seen = np.bincount(np.ravel_multi_index(found.T, (config.side,) * config.dim), minlength=config.states)
    expected = count * target_by_enumeration(config)
    rare = expected < 5  # taken together, where there are any
    seen, expected = (np.append(x[~rare], x[rare].sum()) for x in (seen, expected))
    kept = expected > 0
    square = ((seen - expected)[kept] ** 2 / expected[kept]).sum()
    freedom = kept.sum() - 1
    assert freedom >= 10
    assert abs(square - freedom) < 5 * np.sqrt(2 * freedom)  # too good a fit is not chance either


def test_samples_never_leave_the_grid_or_enter_cells_that_weigh_nothing(monkeypatch):
    config = WorldConfig(2, 20, "custom", 1e-30, 0.0, 1.0)  # all there is lies in the band
    found = np.asarray(draw_target(config, jax.random.key(0), 2000))
    band = np.flatnonzero(hypergrid_rewards.membership(20)[1])
    np.testing.assert_array_equal(np.unique(found), band)
    for draw, place in [(0.0, band[0]), (np.nextafter(np.float32(1), np.float32(0)), band[-1])]:
        monkeypatch.setattr(jax.random, "uniform", lambda key, shape, draw=draw: jnp.full(shape, draw, jnp.float32))
        assert np.all(np.asarray(hypergrid_rewards.draw_target(config, jax.random.key(0), 3)) == place)


# ---- the memory of objects -----------------------------------------------------------------------------------------

add = jax.jit(objects.add)
sample = jax.jit(objects.sample, static_argnums=2)


class Pair:
    """Both memories, told the same, and a list of all they were told."""

    def __init__(self, capacity: int, dim: int = 2):
        self.capacity = capacity
        self.ours, self.host = objects.init(capacity, dim), HostObjects(capacity, dim)
        self.told: list[tuple[np.ndarray, np.float32]] = []

    def add(self, count: int) -> None:
        rng = np.random.default_rng(len(self.told))
        # The first coordinate numbers objects from 1, so that all differ, and from an empty slot.
        numbers = len(self.told) + 1 + np.arange(count)
        states = np.stack([numbers, rng.integers(0, 9, count)], axis=1)
        log_rewards = rng.normal(-3, 2, count).astype(np.float32)
        self.told += list(zip(states, log_rewards, strict=True))
        self.ours = add(self.ours, jnp.asarray(states, jnp.int32), jnp.asarray(log_rewards))
        self.host.add(states, log_rewards)

    def held(self) -> list[tuple[np.ndarray, np.float32]]:
        """Slot by slot what has to be there: slot j has the last of the objects j, j + C, j + 2C …"""
        slots = {n % self.capacity: one for n, one in enumerate(self.told)}
        return [slots[j] for j in range(len(slots))]

    def sample(self, draws: np.ndarray, prioritised: bool) -> list[np.ndarray]:
        draws = draws.astype(np.float32)
        padded = np.pad(draws, (0, -len(draws) % 100))  # so that few programs are compiled
        ours = sample(self.ours, padded, prioritised)
        return [np.asarray(ours)[: len(draws)], self.host.sample(draws, prioritised)]

    def assert_agree(self) -> None:
        held = self.held()
        states, log_rewards = (np.stack(column) for column in zip(*held, strict=True))
        for memory in (self.ours, self.host):
            np.testing.assert_array_equal(memory.states[: len(held)], states)
            np.testing.assert_array_equal(memory.log_rewards[: len(held)], log_rewards)
        assert self.host.size == len(held) == min(int(self.ours.added), self.capacity)
        assert self.host.index == int(self.ours.added) % self.capacity
        # A draw from the middle of each slot's share has to find that slot.
        middles = (np.arange(len(held)) + 0.5) / len(held)
        worth = np.exp(log_rewards.astype(float))
        by_reward = (np.cumsum(worth) - worth / 2) / worth.sum()
        # The first and the last number that can be drawn find the first and the last slot, never an empty one.
        ends = np.array([0.0, np.nextafter(np.float32(1), np.float32(0))])
        for prioritised, draws in [(False, middles), (True, by_reward)]:
            for found in self.sample(np.append(draws, ends), prioritised):
                np.testing.assert_array_equal(found, [*states, states[0], states[-1]])


ADDITIONS = {
    "not yet full": (10, [3, 4]),
    "just full": (7, [3, 4]),
    "wrapping round": (10, [4] * 6),
    "as many as slots": (7, [7, 7]),
    "more than slots at once": (7, [17]),
    "more than slots, again and again": (7, [3, 17, 4, 17]),
    "a single slot": (1, [1, 1, 4]),
    "first addition of one": (10, [1]),
}


@pytest.mark.parametrize(("capacity", "counts"), ADDITIONS.values(), ids=ADDITIONS.keys())
def test_both_memories_hold_the_last_objects_and_hand_out_the_same(capacity, counts):
    pair = Pair(capacity)
    for count in counts:
        pair.add(count)
        pair.assert_agree()


@pytest.mark.parametrize("prioritised", [False, True])
def test_both_memories_find_the_same_for_random_draws(prioritised):
    pair = Pair(50)
    for count in (20, 20, 20, 20):
        pair.add(count)
        draws = np.random.default_rng(count).random(500)
        ours, theirs = pair.sample(draws, prioritised)
        np.testing.assert_array_equal(ours, theirs)
        assert ours[:, 0].min() >= 1, "an empty slot was handed out"
        if not prioritised:
            assert len(np.unique(ours[:, 0])) == min(len(pair.told), 50)


@pytest.mark.parametrize("counts", [[6], [6, 6]], ids=["half empty", "wrapped round"])
def test_prioritised_means_in_proportion_to_the_reward(counts):
    pair = Pair(10)
    for count in counts:
        pair.add(count)
    held = pair.held()
    worth = np.exp([float(log_reward) for _, log_reward in held])
    draws = (np.arange(20_000) + 0.5) / 20_000  # evenly spaced, so that counts are shares to within one
    for prioritised, share in [(True, worth / worth.sum()), (False, np.full(len(held), 1 / len(held)))]:
        for found in pair.sample(draws, prioritised):
            seen = [(found[:, 0] == state[0]).sum() for state, _ in held]
            np.testing.assert_allclose(seen, 20_000 * share, rtol=0, atol=1.1)


def test_rewards_beyond_what_float32_can_hold_are_compared_in_logarithms():
    for shift in (-500.0, 500.0):
        log_rewards = np.array([-200, 0, np.log(3), -200], np.float32) + np.float32(shift)
        states = np.array([[1], [2], [3], [4]])
        ours = add(objects.init(6, 1), jnp.asarray(states, jnp.int32), jnp.asarray(log_rewards))
        host = HostObjects(6, 1)
        host.add(states, log_rewards)
        draws = np.array([0.0, 0.24, 0.26, 0.5, 0.99], np.float32)  # 0 too finds nothing that is worth nothing
        for found in (sample(ours, draws, True), host.sample(draws, True)):
            np.testing.assert_array_equal(np.asarray(found)[:, 0], [2, 2, 3, 3, 3])


def test_the_count_of_additions_stays_small_however_long_a_run_is():
    @partial(jax.jit, static_argnums=1)
    def add_many(memory, count):
        def once(memory, _):
            new = jnp.ones((count, 1), jnp.int32), jnp.zeros(count, jnp.float32)
            return objects.add(memory, *new), memory.added

        return jax.lax.scan(once, memory, length=500)

    for count in (1, 3, 7, 17):
        memory, added = add_many(objects.init(7, 1), count)
        assert added.max() < 14
        assert int(memory.added) % 7 == 500 * count % 7
        assert added[1:].min() > 0, "it must not look empty again"
        assert added[100:].min() >= 7, "nor once it is full as though it were not"
