"""The treasure hunt's board: the facts of its rules, and that its two accounts of them are the same."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xladder.core.encoding import one_hot_encoding
from xladder.families.multi_agent import parity
from xladder.families.multi_agent.treasurehunt_presets import DEFAULT, WorldConfig
from xladder.nets.codes import encode
from xladder.nets.codes_torch import Encoder
from xladder.worlds.treasurehunt import TreasureHunt
from xladder.worlds.turns import TurnWorld

UP, DOWN, LEFT, RIGHT = range(4)
SMALL = WorldConfig(height=5, width=6, num_agents=2, radius=1, max_turns=12, spawn_prob=0.3)
EMPTY, WALL, GEM, BONE, FOOD, AGENT = range(6)  # the codes with the default items

BOARDS = {
    "in_turn": SMALL,
    "together": WorldConfig(height=6, width=5, num_agents=4, radius=1, max_turns=12, observe="together"),
    "gems only": WorldConfig(5, 5, 3, max_turns=12, spawn_prob=0.3, item_names=("gem",), item_values=(10.0,)),
    "radius 0": WorldConfig(height=4, width=9, num_agents=3, radius=0, max_turns=12, spawn_prob=0.3),
    "radius 3": WorldConfig(height=9, width=4, num_agents=3, radius=3, max_turns=12, spawn_prob=0.3),
    "crowded": WorldConfig(height=4, width=4, num_agents=4, radius=2, max_turns=12),
}


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize("config", BOARDS.values(), ids=BOARDS.keys())
def test_both_worlds_give_the_same_account_of_every_turn(config, seed):
    draws = parity.draw_walk(config, jax.random.key(seed))
    ours, theirs = parity.walk(config, draws), parity.walk_host(config, draws)
    for name in parity.Walk._fields:
        for one, other in zip(*map(jax.tree.leaves, (getattr(ours, name), getattr(theirs, name))), strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)
    assert len(np.unique(theirs.events)) > 1, "nothing happened, so nothing was compared"


@pytest.mark.slow
def test_observing_together_and_in_turn_differ_where_an_earlier_agent_has_moved():
    in_turn = WorldConfig(height=5, width=5, num_agents=4, radius=1, max_turns=12)
    together = replace(in_turn, observe="together")
    draws = parity.draw_walk(in_turn, jax.random.key(0))
    one, other = parity.walk(in_turn, draws), parity.walk(together, draws)
    np.testing.assert_array_equal(one.states.board, other.states.board)  # the actions were given, so the boards agree
    np.testing.assert_array_equal(one.views[:, 0], other.views[:, 0])  # the first to move sees the same
    assert (np.asarray(one.views[:, 1:]) != np.asarray(other.views[:, 1:])).any()


@pytest.mark.parametrize("config", BOARDS.values(), ids=BOARDS.keys())
def test_moving_all_at_once_is_moving_one_after_another(config):
    world, draws = config.build(), parity.draw_walk(config, jax.random.key(5))
    at_once, one_by_one = (
        jax.jit(lambda state, actions, move=move: move(world, state, actions))
        for move in (TreasureHunt.move_all, TurnWorld.move_all)
    )
    state = world.reset(jnp.asarray(draws.reset))
    for spawns, actions in zip(draws.turns, draws.actions, strict=True):
        state = world.begin_turn(state, spawns)
        ours, theirs = at_once(state, actions), one_by_one(state, actions)
        jax.tree.map(np.testing.assert_array_equal, ours, theirs)
        state = ours[0]


@pytest.mark.parametrize("config", [*BOARDS.values(), DEFAULT.world])
def test_both_worlds_have_the_same_sizes_by_their_own_account(config):
    for name in ("num_agents", "num_actions", "num_codes", "num_cells"):
        assert getattr(config.build(), name) == getattr(config.on_host(), name)


reset = jax.jit(TreasureHunt.reset, static_argnums=0)
begin_turn = jax.jit(TreasureHunt.begin_turn, static_argnums=0)
move = jax.jit(TreasureHunt.move, static_argnums=0)


class Pair:
    """Both worlds at once, on a board drawn in the test; `step` demands that they agree and tells what happened."""

    def __init__(self, rows: str, agents: list[tuple[int, int]], radius: int = 1):
        lines = rows.split()
        config = WorldConfig(len(lines), len(lines[0]), len(agents), radius)
        self.world, self.host = config.build(), config.on_host()
        self.stride = len(lines[0]) + 2 * radius
        self.radius = radius
        starts = np.array([self.cell(row, column) for row, column in agents], np.int32)
        self.state = reset(self.world, starts)
        self.host.reset(starts)
        spawns = np.zeros_like(self.world.empty_board())
        for row, line in enumerate(lines):
            for column, letter in enumerate(line):
                spawns[self.cell(row, column)] = {"g": GEM, "b": BONE, "f": FOOD}.get(letter, EMPTY)
        self.begin_turn(spawns)

    def cell(self, row: int, column: int) -> int:
        return (row + self.radius) * self.stride + column + self.radius

    def begin_turn(self, spawns: np.ndarray) -> None:
        self.state = begin_turn(self.world, self.state, spawns)
        self.host.begin_turn(spawns)

    def step(self, agent: int, action: int) -> float:
        self.state, found = move(self.world, self.state, agent, np.int8(action))
        assert self.host.move(agent, action) == found
        np.testing.assert_array_equal(self.state.board, self.host.board)
        np.testing.assert_array_equal(self.state.positions, self.host.positions)
        reward = self.world.reward(found)
        assert reward == self.host.reward(int(found))
        return float(reward)

    def at(self, row: int, column: int) -> int:
        return int(self.state.board[self.cell(row, column)])


@pytest.mark.parametrize(("letter", "value"), [("g", 10.0), ("b", -10.0), ("f", 5.0), (".", 0.0)])
def test_entering_a_cell_pays_its_value_and_leaves_emptiness_behind(letter, value):
    pair = Pair(f"##### #.{letter}.# #...# #####", agents=[(1, 1)])
    assert pair.step(0, RIGHT) == value
    assert pair.at(1, 2) == AGENT
    assert pair.at(1, 1) == EMPTY


def test_directions_are_up_down_left_right():
    for action, target in {UP: (1, 2), DOWN: (3, 2), LEFT: (2, 1), RIGHT: (2, 3)}.items():
        pair = Pair("##### #...# #...# #...# #####", agents=[(2, 2)])
        pair.step(0, action)
        assert pair.at(*target) == AGENT


def test_walking_into_the_wall_costs_one_and_moves_nobody():
    pair = Pair("##### #...# #...# #####", agents=[(1, 1)])
    assert pair.step(0, UP) == -1.0
    assert pair.step(0, LEFT) == -1.0
    assert pair.at(1, 1) == AGENT
    assert pair.at(0, 1) == pair.at(1, 0) == WALL


def test_agents_block_each_other_for_nothing():
    pair = Pair("##### #...# #...# #####", agents=[(1, 1), (1, 2)])
    assert pair.step(0, RIGHT) == 0.0
    assert pair.at(1, 1) == pair.at(1, 2) == AGENT
    assert pair.step(1, RIGHT) == 0.0  # the second walks away,
    assert pair.step(0, RIGHT) == 0.0  # and now the first may enter
    assert (pair.at(1, 1), pair.at(1, 2), pair.at(1, 3)) == (EMPTY, AGENT, AGENT)


def test_the_view_is_the_window_around_the_agent_with_wall_outside_the_map():
    pair = Pair("##### #.g.# #f.b# #####", agents=[(1, 1)], radius=2)
    outside = WALL
    expected = [
        [outside, outside, outside, outside, outside],
        [outside, WALL, WALL, WALL, WALL],
        [outside, WALL, AGENT, GEM, EMPTY],
        [outside, WALL, FOOD, EMPTY, BONE],
        [outside, WALL, WALL, WALL, WALL],
    ]
    for view in (pair.world.view(pair.state, 0), pair.host.view(0)):
        np.testing.assert_array_equal(np.asarray(view).reshape(5, 5), expected)


def test_items_appear_on_empty_cells_only():
    pair = Pair("##### #.g.# #...# #####", agents=[(1, 1)])
    before = np.asarray(pair.state.board)
    pair.begin_turn(np.full_like(before, FOOD))  # it rains food everywhere
    after = np.asarray(pair.state.board)
    np.testing.assert_array_equal(after, np.where(before == EMPTY, FOOD, before))
    np.testing.assert_array_equal(after, pair.host.board)


def draws_of(config, side: str, turns: int) -> np.ndarray:
    if side == "jax":
        return np.asarray(config.build().draw_turns(jax.random.key(0), turns))
    return config.on_host().draw_turns(np.random.default_rng(0), turns)


@pytest.mark.parametrize("side", ["jax", "host"])
def test_items_appear_at_the_given_rate_and_each_as_often_as_the_others(side):
    config = WorldConfig(spawn_prob=0.02)
    spawns = draws_of(config, side, 5000)
    assert spawns.dtype == np.int8
    counts = np.bincount(spawns.ravel(), minlength=6)
    items = counts[2:5]
    assert counts[[1, 5]].sum() == 0, "walls and agents do not fall from the sky"
    # Binomial: five standard deviations, which a right generator leaves once in two million.
    total, rate = spawns.size, 0.02
    assert abs(items.sum() - total * rate) < 5 * np.sqrt(total * rate * (1 - rate))
    share = items.sum() / 3
    assert np.all(np.abs(items - share) < 5 * np.sqrt(share * 2 / 3))


@pytest.mark.parametrize("side", ["jax", "host"])
@pytest.mark.parametrize(("rate", "expected"), [(0.0, {EMPTY}), (1.0, {GEM, BONE, FOOD})])
def test_a_rate_of_nought_or_one_means_never_or_always(side, rate, expected):
    assert set(np.unique(draws_of(WorldConfig(spawn_prob=rate), side, 20))) == expected


@pytest.mark.parametrize("side", ["jax", "host"])
def test_agents_start_on_distinct_cells_uniform_over_the_inside(side):
    config = WorldConfig(height=4, width=5, num_agents=3, radius=2)
    if side == "jax":
        draw = jax.jit(jax.vmap(config.build().draw_reset))
        starts = np.asarray(draw(jax.random.split(jax.random.key(1), 3000)))
    else:
        rng, host = np.random.default_rng(1), config.on_host()
        starts = np.stack([host.draw_reset(rng) for _ in range(3000)])
    assert all(len(set(row)) == 3 for row in starts)
    inside = config.build().inside()
    assert len(inside) == 2 * 3
    cells, counts = np.unique(starts[:, 0], return_counts=True)  # whoever comes first has no preference either
    np.testing.assert_array_equal(cells, inside)
    assert np.all(np.abs(counts - 500) < 5 * np.sqrt(500 * 5 / 6))


def test_the_inside_is_what_the_wall_leaves():
    config = WorldConfig(height=4, width=5, radius=1)
    board = config.build().empty_board().reshape(6, 7)
    expected = np.full((6, 7), WALL)
    expected[2:4, 2:5] = EMPTY
    np.testing.assert_array_equal(board, expected)


def test_the_encoding_has_150_entries_channel_first_and_nothing_for_an_empty_cell():
    codes = np.zeros((1, 25), np.int8)
    assert encode(jnp.asarray(codes), DEFAULT.world.encoding()).shape == (150,)
    assert not encode(jnp.asarray(codes), DEFAULT.world.encoding()).any()
    codes[0, 7] = GEM
    codes[0, 24] = AGENT
    encoded = np.asarray(encode(jnp.asarray(codes), DEFAULT.world.encoding())).reshape(6, 25)  # [channel, cell]
    assert set(zip(*np.nonzero(encoded), strict=True)) == {(GEM, 7), (AGENT, 24)}


def test_frames_follow_one_another_in_the_encoding_and_pytorch_encodes_alike():
    import torch

    codes = np.random.default_rng(0).integers(0, 6, (3, 9), dtype=np.int8)
    encoding = one_hot_encoding(6, 9)
    whole = np.asarray(encode(jnp.asarray(codes), encoding))
    parts = [np.asarray(encode(jnp.asarray(codes[i : i + 1]), encoding)) for i in range(3)]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    np.testing.assert_array_equal(whole, Encoder(encoding)(torch.from_numpy(codes[None]))[0])


def test_the_world_needs_no_implicit_dtype_promotion():
    with jax.numpy_dtype_promotion("strict"):
        draws = parity.draw_walk(SMALL, jax.random.key(0))
        walk = jax.eval_shape(lambda draws: parity._walk(SMALL, draws), draws)
    assert walk.states.board.dtype == walk.views.dtype == walk.events.dtype == jnp.int8
    assert walk.states.positions.dtype == jnp.int32
