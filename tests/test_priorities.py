"""Prioritised replay: who can be chosen, how often and with what weight, on both sides alike."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import assert_trees_equal
from tests.test_history import Oracle, Worlds, gather
from xladder.replay import history, priorities, priorities_host
from xladder.replay.history import Cursor, History, SampleIndices, Window
from xladder.replay.history_host import HostHistory
from xladder.replay.priorities import Priorities
from xladder.replay.priorities_host import HostPriorities

BATCH = 6
DRAWS = 10_000
BETA = np.float32(0.5)
admit = jax.jit(priorities.admit, static_argnums=0)
sample_indices = jax.jit(priorities.sample_indices)
assign = jax.jit(priorities.assign)


@partial(jax.jit, static_argnums=0)
def turn(window, cursor, state, rows, uniforms, values):
    """A row is added, a batch chosen, and its priorities are set anew."""
    state = priorities.admit(window, cursor, state, rows)
    indices = priorities.sample_indices(state, uniforms, BETA)
    return state, indices, priorities.assign(state, indices, values)


class Duo:
    """Both twins, told the same."""

    def __init__(self, num_envs: int, window: Window, seed: int = 0):
        self.num_envs, self.window = num_envs, window
        self.worlds, self.oracle = Worlds(num_envs, seed), Oracle(num_envs, window)
        self.history = HostHistory(num_envs, window, (2, 3), np.int32)
        self.host = HostPriorities(num_envs, window.length)
        self.state = priorities.init(num_envs, window.length)
        self.rng = np.random.default_rng(seed)

    def turn(self) -> Priorities:
        """Both have their turn; the state between adding a row and learning from a batch."""
        cursor = Cursor(np.int32(self.history.head), np.int32(self.history.size))
        rows = self.worlds.tick()
        self.oracle.add(rows)
        self.history.add(gather(rows))
        uniforms = self.rng.random((BATCH, 2), dtype=np.float32)
        # Eighths add up without rounding, so the twins must agree in every bit, and on every choice.
        values = np.float32(self.rng.integers(1, 100, BATCH) / 8)
        between, indices, self.state = turn(self.window, cursor, self.state, self.history.rows, uniforms, values)
        self.host.admit(self.history)
        self.assert_same(between)
        host_indices = self.host.sample_indices(uniforms, BETA)
        assert_trees_equal(indices[:2], host_indices[:2])
        np.testing.assert_allclose(indices.valid, host_indices.valid, rtol=1e-6)
        self.host.assign(host_indices, values)
        self.assert_same(self.state)
        return jax.tree.map(np.asarray, between)

    def assert_same(self, state: Priorities) -> None:
        for name in Priorities._fields:
            np.testing.assert_array_equal(getattr(state, name), getattr(self.host, name), err_msg=name)

    def positive(self, state: Priorities) -> set[tuple[int, int]]:
        """(copy, time) of the rows that can be chosen."""
        by_slot = state.blocks.reshape(-1, self.num_envs)
        newest = self.oracle.now - 1
        slots, envs = np.nonzero(by_slot)
        assert np.all(slots < self.window.length)
        return {(int(e), int(newest - (newest - s) % self.window.length)) for s, e in zip(slots, envs, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_envs", "stack", "n_step", "length"), [(1, 1, 1, 9), (3, 4, 1, 13), (5, 2, 3, 5), (1, 3, 4, 50)]
)
def test_exactly_the_starts_can_be_chosen_and_sums_are_exact_whatever_happens(num_envs, stack, n_step, length):
    duo = Duo(num_envs, Window(stack, n_step, length), seed=length)
    for _ in range(150):
        between = duo.turn()
        for state in (between, duo.state):
            assert duo.positive(jax.tree.map(np.asarray, state)) == duo.oracle.starts()
            np.testing.assert_array_equal(state.sums, np.sum(state.blocks, axis=(1, 2)))
    assert float(duo.state.largest) == 99 / 8


def test_sums_do_not_drift_over_thousands_of_turns():
    window, num_envs, turns = Window(stack=4, n_step=3, length=47), 3, 4000
    rng = np.random.default_rng(0)
    is_first = rng.random((turns, num_envs)) < 0.2
    uniforms = rng.random((turns, BATCH, 2), dtype=np.float32)
    values = np.exp(rng.normal(0, 6, (turns, BATCH))).astype(np.float32)  # from e⁻²⁰ to e²⁰: differences would be lost

    def body(carry, inputs):
        cursor, firsts, state = carry
        is_first, uniforms, values = inputs
        firsts = jax.lax.dynamic_update_slice_in_dim(firsts, is_first[:, None], cursor.head, axis=1)
        state = priorities.admit(window, cursor, state, History(*[None] * 5, is_first=firsts))
        state = priorities.assign(state, priorities.sample_indices(state, uniforms, BETA), values)
        worst = jnp.max(jnp.abs(state.sums - jnp.sum(state.blocks, axis=(1, 2))) / jnp.maximum(state.sums, 1e-30))
        return (history.advance(cursor, window.length), firsts, state), worst

    start = history.init_cursor(), jnp.zeros((num_envs, window.length), bool), priorities.init(num_envs, window.length)
    (_, _, state), worst = jax.jit(partial(jax.lax.scan, body))(start, (is_first, uniforms, values))
    assert np.max(worst) < 1e-6  # the same few numbers, perhaps in another order
    np.testing.assert_allclose(state.sums, np.sum(np.asarray(state.blocks, float), axis=(1, 2)), rtol=1e-6)
    assert float(state.largest) > 1e8


# ---- by hand -------------------------------------------------------------------------------------------------------


def stand(values) -> tuple[Priorities, HostPriorities]:
    """Both twins with these priorities [L, N]."""
    values = np.float32(values)
    host = HostPriorities(values.shape[1], values.shape[0])
    by_slot = np.zeros((host.blocks.shape[0] * host.times, values.shape[1]), np.float32)
    by_slot[: len(values)] = values
    host.blocks[:] = by_slot.reshape(host.blocks.shape)
    host.sums[:] = host.blocks.sum(axis=(1, 2))
    host.largest = values.max()
    return Priorities(host.blocks.copy(), host.sums.copy(), host.largest), host


def test_rows_are_chosen_in_proportion_to_their_priorities():
    values = np.float32(np.random.default_rng(1).integers(0, 5, (70, 3)))  # some are zero
    state, host = stand(values)
    uniforms = np.random.default_rng(2).random((DRAWS, 2), dtype=np.float32)
    for indices in (sample_indices(state, uniforms, BETA), host.sample_indices(uniforms, BETA)):
        counts = np.zeros(values.shape)
        np.add.at(counts, (np.asarray(indices.slot), np.asarray(indices.env)), 1)
        assert np.all(counts[values == 0] == 0)
        expected = DRAWS * values / values.sum()
        there = values > 0
        # Chi-square with about 165 degrees of freedom: above 230 less than once in a thousand.
        assert 150 < np.sum(there) < 180
        assert np.sum((counts - expected)[there] ** 2 / expected[there]) < 230


def test_which_numbers_choose_which_rows():
    # Three times of two copies: one time per block, with sums 4, 0 and 4.
    state, host = stand([[1, 3], [0, 0], [4, 0]])
    assert state.blocks.shape == (3, 1, 2)
    uniforms = np.float32([[0, 0], [0.49, 0.24], [0.49, 0.25], [0, 1], [0.5, 0.0], [0.5, 1], [1, 0.99]])
    for indices in (sample_indices(state, uniforms, BETA), host.sample_indices(uniforms, BETA)):
        np.testing.assert_array_equal(indices.slot, [0, 0, 0, 0, 2, 2, 2])
        np.testing.assert_array_equal(indices.env, [0, 0, 1, 1, 0, 0, 0])


def test_rows_without_priority_are_never_chosen_however_sums_are_rounded():
    rng = np.random.default_rng(4)
    values = np.where(rng.random((1, 4000)) < 0.5, 0, rng.lognormal(0, 3, (1, 4000))).astype(np.float32)
    state, host = stand(values)  # one block
    heights = np.asarray(jax.jit(jnp.cumsum)(values[0]))
    steps = np.flatnonzero((np.diff(heights) > 0) & (values[0, 1:] == 0))  # rounding makes them look chosen
    # Numbers that fall right before and right after such a place.
    edges = np.concatenate([heights[steps], heights[steps + 1]]) / heights[-1]
    edges = np.concatenate([edges, *(np.nextafter(edges, np.float32(to)) for to in (0, 1)), np.float32([0, 1])])
    uniforms = np.stack([np.full_like(edges, 0.5), edges], axis=1)
    for indices in (sample_indices(state, uniforms, BETA), host.sample_indices(uniforms, BETA)):
        assert np.all(values[indices.slot, indices.env] > 0)
        assert np.all(np.asarray(indices.valid) > 0)


def test_the_twins_choose_alike_but_for_rounding():
    state, host = stand(np.random.default_rng(5).lognormal(0, 1, (70, 3)))
    uniforms = np.random.default_rng(6).random((DRAWS, 2), dtype=np.float32)
    ours, theirs = sample_indices(state, uniforms, BETA), host.sample_indices(uniforms, BETA)
    alike = (np.asarray(ours.slot) == theirs.slot) & (np.asarray(ours.env) == theirs.env)
    assert alike.mean() > 0.999
    np.testing.assert_allclose(np.asarray(ours.valid)[alike], theirs.valid[alike], rtol=1e-5)


def test_importance_weights_by_hand():
    state, host = stand([[1, 4], [2, 1], [0, 8]])  # five starts, of 16 in all
    indices_of = np.float32([[0, 0], [0, 0.9], [0.4, 0], [0.99, 0]])  # priorities 1, 4, 2, 8
    for beta in (0.0, 0.4, 1.0):
        probability = np.array([1, 4, 2, 8]) / 16
        weights = (1 / (5 * probability)) ** beta  # for β = 1: 3.2, 0.8, 1.6, 0.4
        wanted = weights / weights.max()  # for β = 1: 1, ¼, ½, ⅛
        for indices in (sample_indices(state, indices_of, np.float32(beta)), host.sample_indices(indices_of, beta)):
            np.testing.assert_array_equal(indices.slot, [0, 0, 1, 2])
            np.testing.assert_allclose(indices.valid, wanted, rtol=1e-6)
    np.testing.assert_allclose(wanted, [1, 1 / 4, 1 / 2, 1 / 8])


def test_a_row_chosen_twice_gets_the_larger_and_one_that_has_gone_gets_none():
    state, host = stand([[1, 2], [0, 4], [1, 1]])
    indices = SampleIndices(np.array([0, 1, 0, 0, 0]), np.array([0, 1, 0, 1, 0]), np.ones(5, np.float32))
    new = np.float32([3, 0.5, 7, 50, 5])  # [0, 0] three times; [1, 0] has gone
    state = assign(state, indices, new)
    host.assign(indices, new)
    for blocks, sums, largest in (state, (host.blocks, host.sums, host.largest)):
        np.testing.assert_array_equal(np.reshape(blocks, (3, 2)), [[7, 2], [0, 0.5], [1, 1]])
        np.testing.assert_array_equal(sums, [9, 0.5, 2])
        assert float(largest) == 7  # not the 50 that was not used


def test_a_new_row_gets_the_largest_so_far_even_if_no_row_has_it_any_more():
    window = Window(stack=1, n_step=1, length=8)
    duo = Duo(2, window)
    duo.turn()
    duo.state, duo.host = stand(np.ones((8, 2)))
    duo.state, duo.host.largest = duo.state._replace(largest=jnp.float32(32)), np.float32(32)
    between = duo.turn()
    np.testing.assert_array_equal(between.blocks.reshape(-1, 2)[:3], [[32, 32], [0, 0], [1, 1]])


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_without_a_start_nothing_is_valid(beta):
    state, host = priorities.init(2, 10), HostPriorities(2, 10)
    uniforms, values = np.random.default_rng(7).random((5, 2), dtype=np.float32), np.ones(5, np.float32)
    with jax.debug_nans(True):
        ours = sample_indices(state, uniforms, np.float32(beta))
        state = assign(state, ours, values)
    theirs = host.sample_indices(uniforms, beta)
    for indices in (ours, theirs):
        np.testing.assert_array_equal(indices.valid, np.zeros(5))
        assert np.all((np.asarray(indices.slot) < 10) & (np.asarray(indices.slot) >= 0))
    host.assign(theirs, values)
    assert not state.blocks.any() and not host.blocks.any()
    assert float(state.largest) == host.largest == 1


def test_a_row_has_to_wait_for_n_others_whether_or_not_a_game_begins_with_it():
    window = Window(stack=2, n_step=2, length=5)
    memory, host = HostHistory(1, window, (), np.uint8), HostPriorities(1, 5)
    state = priorities.init(1, 5)
    for told in range(4):
        cursor = Cursor(np.int32(memory.head), np.int32(memory.size))
        row = History(*(leaf[:, 0] for leaf in memory.rows))
        memory.add(row._replace(is_first=np.array([told == 0])))
        state = admit(window, cursor, state, memory.rows)
        host.admit(memory)
        for blocks in (state.blocks, host.blocks):
            np.testing.assert_array_equal(np.ravel(blocks)[:5], np.arange(5) < told - 1)


def test_strata_and_errors_by_hand():
    uniforms, errors = np.float32([0.5, 0, 0.25, 0.75]), np.float32([-4, 0, 0.25])
    for side, asarray in ((priorities, jnp.asarray), (priorities_host, np.asarray)):
        np.testing.assert_allclose(side.stratified(asarray(uniforms)), [0.125, 0.25, 0.5625, 0.9375])
        values = side.from_errors(asarray(errors), np.float32(0.5), offset=1e-4)
        np.testing.assert_allclose(values, [2.000025, 0.01, 0.5001], rtol=1e-5)  # the roots of 4.0001, 0.0001, 0.2501
        assert values.dtype == np.float32


# ---- what XLA makes of it ------------------------------------------------------------------------------------------


def test_blocks_are_balanced_and_never_copied():
    num_envs, length = 8, 125_000
    state = jax.eval_shape(partial(priorities.init, num_envs, length))
    blocks, times, envs = state.blocks.shape
    assert envs == num_envs
    assert blocks * times >= length
    assert 500 < blocks < 2000 and 500 < times * envs < 2000  # about √1,000,000 of about √1,000,000
    uniforms, values = jax.ShapeDtypeStruct((32, 2), jnp.float32), jax.ShapeDtypeStruct((32,), jnp.float32)
    is_first = jax.ShapeDtypeStruct((num_envs, length), bool)
    window = Window(stack=4, n_step=1, length=length)
    step = jax.jit(lambda *args: turn.__wrapped__(window, *args)[2], donate_argnums=1)
    rows = History(*[None] * 5, is_first=is_first)
    compiled = step.lower(history.init_cursor(), state, rows, uniforms, values).compile()
    taken = compiled.memory_analysis()
    assert taken.alias_size_in_bytes >= state.blocks.size * 4  # in place
    assert taken.temp_size_in_bytes < 2e6  # half of what the priorities take


@pytest.mark.slow
def test_seeds_under_vmap_are_as_if_alone():
    duos = [Duo(3, Window(stack=4, n_step=1, length=13), seed=seed) for seed in (1, 2)]
    for _ in range(20):
        for duo in duos:
            duo.turn()
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(duo.state for duo in duos))
    rows = History(*[None] * 5, is_first=np.stack([duo.history.rows.is_first for duo in duos]))
    cursor = Cursor(np.int32(duos[0].history.head), np.int32(13))
    rng = np.random.default_rng(8)
    uniforms, values = rng.random((2, BATCH, 2), dtype=np.float32), np.float32(rng.integers(1, 9, (2, BATCH)))
    args = stacked, rows, uniforms, values
    mapped = jax.vmap(partial(turn, duos[0].window, cursor))(*args)
    for seed, duo in enumerate(duos):
        alone = turn(duo.window, cursor, *jax.tree.map(lambda leaf: leaf[seed], args))  # noqa: B023
        assert_trees_equal(jax.tree.map(lambda leaf: leaf[seed], mapped), alone)  # noqa: B023


def test_no_dtype_is_promoted():
    window = Window(stack=3, n_step=2, length=20)
    args = jax.eval_shape(
        lambda: (
            history.init_cursor(),
            priorities.init(2, 20),
            History(*[None] * 5, is_first=jnp.zeros((2, 20), bool)),
            jnp.zeros((5, 2)),
            priorities.from_errors(jnp.zeros(5), jnp.float32(0.5)) + priorities.stratified(jnp.zeros(5)),
        )
    )
    with jax.numpy_dtype_promotion("strict"):
        between, indices, after = jax.eval_shape(partial(turn, window), *args)
    assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), between) == jax.tree.map(
        lambda leaf: (leaf.shape, leaf.dtype), after
    )
    assert [leaf.dtype for leaf in indices] == [jnp.int32, jnp.int32, jnp.float32]
    assert not any(leaf.weak_type for leaf in (*after, *indices))
