"""The memory of single frames: both twins against a slow, obvious account of the games that were played."""

from functools import partial
from itertools import product
from typing import NamedTuple

import flashbax
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import assert_trees_equal
from xladder.errors import UsageError
from xladder.replay import history, history_host, packed
from xladder.replay.history import Cursor, History, SampleIndices, Window
from xladder.replay.history_host import HostHistory

GAMMA = np.float32(0.9)
SHAPE = (2, 3)
IGNORED = 99  # the action of a reset row, whose reward here is not a number, so that it cannot be overlooked
RANDOM = 64  # starts that are drawn at random, each time that all starts are looked at


class Row(NamedTuple):
    time: int
    frame: np.ndarray
    action: int
    reward: float
    terminated: bool
    truncated: bool
    is_first: bool


class Worlds:
    """N envs in which games last from one to seven steps, are won, lost or cut, and cost a life now and then."""

    def __init__(self, num_envs: int, seed: int):
        self.rng = np.random.default_rng(seed)
        self.time = 0
        self.left = [0] * num_envs  # steps left in the game
        self.over = [True] * num_envs  # the next frame begins a game

    def tick(self) -> list[Row]:
        rows = [self.row(env) for env in range(len(self.left))]
        self.time += 1
        return rows

    def row(self, env: int) -> Row:
        rng, frame = self.rng, np.full(SHAPE, 1 + 1000 * env + self.time, np.int32)
        is_first = self.over[env]
        if is_first:
            self.left[env], self.over[env] = int(rng.integers(1, 8)), False
        if self.left[env] == 0:  # the last frame of a game
            self.over[env] = True
            return Row(self.time, frame, IGNORED, np.nan, False, False, False)
        self.left[env] -= 1
        terminated, truncated = bool(rng.random() < 0.15), False  # a life lost
        if self.left[env] == 0:
            terminated, truncated = [(True, False), (False, True), (True, True)][rng.integers(3)]
        action, reward = int(rng.integers(4)), float(np.float32(rng.normal()))
        return Row(self.time, frame, action, reward, terminated, truncated, is_first)


class Oracle:
    """All games of all envs from the very beginning, as lists of rows."""

    def __init__(self, num_envs: int, window: Window):
        self.window, self.now = window, 0
        self.games: list[list[list[Row]]] = [[] for _ in range(num_envs)]

    def add(self, rows: list[Row]) -> None:
        for games, row in zip(self.games, rows, strict=True):
            if row.is_first:
                games.append([])
            games[-1].append(row)
        self.now += 1

    def starts(self) -> set[tuple[int, int]]:
        """(copy, time): the actions that may be learned from."""
        stack, n_step, length = self.window.stack, self.window.n_step, self.window.length
        found = set()
        for env, games in enumerate(self.games):
            for game in games:
                played = game if game is games[-1] else game[:-1]  # nothing is decided in the last row of a game
                for row in played:
                    held = self.now < length or row.time - (stack - 1) >= self.now - length
                    known = row.time + n_step < self.now
                    if held and known:
                        found.add((env, row.time))
        return found

    def sample(self, env: int, time: int) -> tuple:
        """What is to be learned from what was done at that time."""
        game = next(game for game in self.games[env] if game[0].time <= time <= game[-1].time)
        index = time - game[0].time
        ahead, end = 0.0, index
        for k in range(self.window.n_step):
            row = game[index + k]
            ahead += float(GAMMA) ** k * row.reward
            end = index + k + 1
            if row.terminated or row.truncated:
                break
        discount = 0.0 if row.terminated else float(GAMMA) ** (end - index)
        return self.stack(game, index), game[index].action, ahead, discount, self.stack(game, end)

    def stack(self, game: list[Row], index: int) -> np.ndarray:
        assert index < len(game), "a sample must not reach beyond its game"
        wanted = range(index - self.window.stack + 1, index + 1)
        return np.stack([game[i].frame if i >= 0 else np.zeros(SHAPE, np.int32) for i in wanted])


def gather(rows: list[Row]) -> History:
    """The rows of N envs as arrays."""
    return History(
        frames=np.stack([row.frame for row in rows]),
        actions=np.array([row.action for row in rows], np.int32),
        rewards=np.array([row.reward for row in rows], np.float32),
        terminated=np.array([row.terminated for row in rows]),
        truncated=np.array([row.truncated for row in rows]),
        is_first=np.array([row.is_first for row in rows]),
    )


@partial(jax.jit, donate_argnums=(0, 1))
def tell(cursor, memory, rows):
    return history.advance(cursor, memory.is_first.shape[1]), history.add(cursor, memory, rows)


sample_indices = jax.jit(history.sample_indices, static_argnums=0)
gather_batch = jax.jit(history.gather, static_argnums=0)


@partial(jax.jit, static_argnums=0)
def sample(window, cursor, memory, uniforms):
    indices = history.sample_indices(window, cursor, memory, uniforms)
    return indices, history.gather(window, memory, indices, GAMMA)


joined = jax.jit(packed.batch_of, static_argnums=1)


class Trio:
    """Both memories and the oracle, told the same. Few sizes occur, so that few programs are compiled."""

    def __init__(self, stack: int, n_step: int, length: int = 0, seed: int = 0):
        num_envs, usual = (3, 8) if (stack + n_step) % 2 else (2, 13)
        window = Window(stack, n_step, length or usual)
        self.num_envs, self.window = num_envs, window
        self.worlds, self.oracle = Worlds(num_envs, seed), Oracle(num_envs, window)
        self.host = HostHistory(num_envs, window, SHAPE, np.int32)
        self.memory = history.init(num_envs, window.length, SHAPE, jnp.int32)
        self.cursor = history.init_cursor()

    def tick(self) -> History:
        rows = self.worlds.tick()
        self.oracle.add(rows)
        self.host.add(gather(rows))
        self.cursor, self.memory = tell(self.cursor, self.memory, gather(rows))
        return gather(rows)

    def time(self, slot):
        """When the row in a slot was written last."""
        newest = self.oracle.now - 1
        return newest - (newest - np.asarray(slot)) % self.window.length

    def sample(self, uniforms):
        """Picks and batch, which are the same on both sides."""
        indices, batch = sample(self.window, self.cursor, self.memory, uniforms)
        host_indices = self.host.sample_indices(uniforms)
        host_batch = self.host.gather(host_indices, GAMMA)
        assert_trees_equal(indices, host_indices)
        assert_trees_equal(joined(packed.gather(self.host, host_indices, GAMMA), self.window.stack), host_batch)
        for name, ours, theirs in zip(batch._fields, batch, host_batch, strict=True):
            if name == "returns" and self.window.n_step > 1:
                # A product and a sum may be contracted into one operation, once per step.
                np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
            else:
                np.testing.assert_array_equal(ours, theirs, err_msg=name)
        return jax.tree.map(np.asarray, (indices, batch))

    def uniforms(self, rng) -> np.ndarray:
        """Numbers for a batch, always of the same size."""
        count = self.num_envs * self.window.length + RANDOM
        return rng.random((count, history.CANDIDATES, 2), dtype=np.float32)

    def assert_as_described(self, rng) -> int:
        """Every start that there is, and some drawn at random, are what the oracle says. How many were compared."""
        count = self.host.eligible()[1]
        centres = [((e + 0.5) / self.num_envs, (t % max(count, 1) + 0.5) / max(count, 1)) for e, t in self.places()]
        uniforms = self.uniforms(rng)
        uniforms[: len(centres)] = np.float32(centres)[:, None]
        indices, batch = self.sample(uniforms)
        chosen = list(zip(indices.env.tolist(), self.time(indices.slot).tolist(), strict=True))
        valid = np.flatnonzero(indices.valid)
        assert {chosen[i] for i in valid[valid < len(centres)]} == self.oracle.starts()
        assert {chosen[i] for i in valid} == self.oracle.starts()
        if valid.size:
            wanted = [np.stack(column) for column in zip(*(self.oracle.sample(*chosen[i]) for i in valid), strict=True)]
            for name, got, right in zip(batch._fields, batch, wanted, strict=False):
                np.testing.assert_allclose(got[valid], right, rtol=1e-6, atol=1e-6, err_msg=name)
            assert set(batch.valid) <= {0, 1}
        return valid.size

    def places(self):
        return product(range(self.num_envs), range(self.window.length))


STACKS_AND_STEPS = [(1, 1), (1, 2), (1, 4), (2, 1), (2, 3), (3, 2), (3, 4), (4, 1), (4, 3)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "n_step"),
    [
        pytest.param(*case, marks=pytest.mark.slow if case in STACKS_AND_STEPS[1::2] else ())
        for case in STACKS_AND_STEPS
    ],
)
def test_all_that_can_be_drawn_is_what_was_played(stack, n_step):
    trio, rng = Trio(stack, n_step, seed=stack), np.random.default_rng(n_step)
    compared = 0
    for _ in range(5 * trio.window.length + 1):
        trio.tick()
        compared += trio.assert_as_described(rng)
    assert compared > 2000
    assert_trees_equal(trio.memory, trio.host.rows)
    assert (int(trio.cursor.head), int(trio.cursor.size)) == (trio.host.head, trio.host.size)


def test_a_strip_holds_each_frame_once():
    for stack, n_step, frames in ((4, 1, 5), (4, 3, 7), (4, 5, 8), (1, 5, 2)):
        assert packed.nothing(Window(stack, n_step, 20), SHAPE, np.dtype(np.int32), 6).frames.shape == (
            6,
            frames,
            *SHAPE,
        )


@pytest.mark.parametrize("steps", [1, 3, 5, 8, 21])
def test_rows_that_are_written_at_once_are_those_that_are_written_one_by_one(steps):
    """Into parts of one memory, which go at their own pace; the last number is more than there is room for."""
    window, rng = Window(2, 1, 8), np.random.default_rng(steps)
    whole, alone = HostHistory(5, window, (), np.int32), HostHistory(3, window, (), np.int32)
    parts = [whole.part(0, 2), whole.part(2, 3)]
    parts[0].extend(History(*(rng.integers(0, 2, (2, 3)) for _ in History._fields)))
    for _ in range(5):
        chunk = History(*(rng.integers(0, 2, (3, steps)) for _ in History._fields))
        parts[1].extend(chunk)
        for t in range(steps):
            alone.add(History(*(column[:, t] for column in chunk)))
        assert_trees_equal(parts[1].rows, alone.rows)
        assert (parts[1].head, parts[1].size) == (alone.head, alone.size)
    assert_trees_equal(History(*(column[2:] for column in whole.rows)), alone.rows)
    assert (parts[0].head, parts[0].size) == (3, 3)
    parts[1].take_state(HostHistory(3, window, (), np.int32).state())
    assert not whole.rows.actions[2:].any() and parts[1].size == 0


def test_a_ring_that_barely_holds_one_sample():
    trio, rng = Trio(stack=3, n_step=2, length=5, seed=5), np.random.default_rng(6)
    for _ in range(30):
        trio.tick()
        trio.assert_as_described(rng)
    assert trio.host.eligible()[1] == 1


def test_the_pair_of_an_old_games_end_and_a_new_games_beginning_is_never_drawn():
    trio, rng = Trio(stack=2, n_step=3, seed=7), np.random.default_rng(8)
    invalid, steps = 0, set()
    for _ in range(100):
        trio.tick()
        indices, batch = trio.sample(trio.uniforms(rng))
        valid = indices.valid > 0
        assert not np.any(batch.actions[valid] == IGNORED)
        assert np.all(np.isfinite(batch.returns[valid]))  # nor does a reset row's reward come in later
        # Frames count up by one per tick: a batch that crossed into another game would be found further away.
        steps |= set(batch.next_states[valid, -1, 0, 0] - batch.states[valid, -1, 0, 0])
        invalid += np.sum(batch.actions[~valid] == IGNORED)
    assert steps == {1, 2, 3}
    assert invalid > 0  # games are short here, so four reset rows in a row do happen: they are marked


# ---- by hand -------------------------------------------------------------------------------------------------------


def story(rows: str, length: int, window: Window):
    """One copy told a story. Letters: `f` first, `t` terminated, `c` cut; row i has frame i + 1, reward i, action i."""
    memory, cursor = history.init(1, length, (), jnp.int32), history.init_cursor()
    host = HostHistory(1, window, (), np.int32)
    for i, letters in enumerate(rows.split()):
        flags = [np.array([letter in letters]) for letter in "tcf"]
        row = History(np.array([i + 1], np.int32), np.array([i], np.int32), np.array([i], np.float32), *flags)
        host.add(row)
        cursor, memory = tell(cursor, memory, row)
    return cursor, memory, host


def cut_both(window, memory, host, slots):
    weights = np.arange(len(slots), dtype=np.float32) / 8
    indices = SampleIndices(np.zeros(len(slots), np.int32), np.array(slots, np.int32), weights)
    batches = gather_batch(window, memory, indices, GAMMA), host.gather(indices, GAMMA)
    for batch in batches:
        np.testing.assert_array_equal(batch.valid, weights)  # handed on as they are
    return batches


def test_one_step_by_hand():
    window = Window(stack=3, n_step=1, length=12)
    #                                0 1 2  3 4 5 6  7 8
    _, memory, host = story("f . t . f . c . f", 12, window)  # two games, the second cut; rows 3 and 7 are reset rows
    for batch in cut_both(window, memory, host, [0, 1, 2, 4, 6]):
        np.testing.assert_array_equal(batch.states, [[0, 0, 1], [0, 1, 2], [1, 2, 3], [0, 0, 5], [5, 6, 7]])
        np.testing.assert_array_equal(batch.next_states, [[0, 1, 2], [1, 2, 3], [2, 3, 4], [0, 5, 6], [6, 7, 8]])
        np.testing.assert_array_equal(batch.actions, [0, 1, 2, 4, 6])
        np.testing.assert_array_equal(batch.returns, [0, 1, 2, 4, 6])
        np.testing.assert_array_equal(batch.discounts, [GAMMA, GAMMA, 0, GAMMA, GAMMA])  # a cut game had a future


def test_three_steps_by_hand():
    window = Window(stack=2, n_step=3, length=12)
    _, memory, host = story("f . t . f . . c . f .", 12, window)
    for batch in cut_both(window, memory, host, [0, 1, 2, 4, 5, 6, 7]):
        np.testing.assert_array_equal(batch.states[:, 1], [1, 2, 3, 5, 6, 7, 8])
        # From 0: 0 + 0.9·1 + 0.81·2, then over. From 4: 4 + 0.9·5 + 0.81·6. From 5: 5 + 0.9·6 + 0.81·7, and cut.
        np.testing.assert_allclose(batch.returns, [2.52, 2.8, 2, 13.36, 16.07, 12.3, 7], rtol=1e-6)
        np.testing.assert_allclose(batch.discounts, [0, 0, 0, 0.729, 0.729, 0.81, 0.9], rtol=1e-6)
        # Row 8, frame 9, is the last of the game that was cut: all bootstrap from it that reach it.
        np.testing.assert_array_equal(batch.next_states, [[3, 4], [3, 4], [3, 4], [7, 8], [8, 9], [8, 9], [8, 9]])


def test_a_lost_life_ends_the_return_but_not_the_game():
    window = Window(stack=3, n_step=2, length=12)
    cursor, memory, host = story("f . t . . . .", 12, window)  # no `is_first` after it
    for batch in cut_both(window, memory, host, [1, 2, 3]):
        np.testing.assert_allclose(batch.returns, [1 + 0.9 * 2, 2, 3 + 0.9 * 4], rtol=1e-6)
        np.testing.assert_allclose(batch.discounts, [0, 0, 0.81], rtol=1e-6)
        np.testing.assert_array_equal(batch.states[2], [2, 3, 4])  # it reaches back over the loss
    every = np.float32([[[0, (t + 0.5) / 5]] for t in range(5)])
    for indices in (sample_indices(window, cursor, memory, every), host.sample_indices(every)):
        np.testing.assert_array_equal(indices.slot, [0, 1, 2, 3, 4])
        np.testing.assert_array_equal(indices.valid, np.ones(5))


def test_the_first_candidate_that_is_not_a_reset_row_is_taken():
    window = Window(stack=1, n_step=1, length=12)
    cursor, memory, host = story("f t . f t . f . .", 12, window)  # 8 times, of which 2 and 5 are reset rows
    times = [[2, 5, 4, 0], [2, 5, 2, 5], [7, 2, 3, 1], [5, 2, 5, 6]]
    uniforms = np.stack([np.zeros((4, 4)), (np.array(times) + 0.5) / 8], axis=2).astype(np.float32)
    for indices in (sample_indices(window, cursor, memory, uniforms), host.sample_indices(uniforms)):
        np.testing.assert_array_equal(indices.valid, [1, 0, 1, 1])
        np.testing.assert_array_equal(np.asarray(indices.slot)[[0, 2, 3]], [4, 7, 6])


def test_what_can_be_drawn_while_the_ring_fills_and_when_it_is_full():
    window = Window(stack=3, n_step=2, length=6)
    eligible = [(0, 0), (0, 0), (0, 1), (0, 2), (0, 3), (2, 2), (3, 2), (4, 2), (5, 2), (0, 2), (1, 2), (2, 2)]
    # Rows 0, 1, 2 while it fills. With six rows held, a stack of three begins at the third oldest, and two rows follow.
    for told, (earliest, count) in enumerate(eligible, start=1):
        cursor, _, host = story(" ".join(["f", *"." * (told - 1)]), 6, window)
        assert tuple(map(int, history.eligible(window, cursor))) == (earliest, count)
        assert host.eligible() == (earliest, count)


def test_nothing_is_valid_before_there_is_a_start():
    window = Window(stack=2, n_step=2, length=8)
    uniforms = np.random.default_rng(0).random((20, 2, 2), dtype=np.float32)
    for told in ("", "f", "f ."):
        cursor, memory, host = story(told, 8, window)
        for indices in (sample_indices(window, cursor, memory, uniforms), host.sample_indices(uniforms)):
            np.testing.assert_array_equal(indices.valid, np.zeros(20))
            assert np.all((np.asarray(indices.slot) >= 0) & (np.asarray(indices.slot) < 8))


def test_the_largest_and_smallest_numbers_stay_inside():
    trio = Trio(stack=2, n_step=1)
    for _ in range(17):
        trio.tick()
    edges = np.float32([0, np.nextafter(np.float32(1), np.float32(0)), 1])
    uniforms = trio.uniforms(np.random.default_rng(0))
    uniforms[:9] = np.array(list(product(edges, edges)))[:, None]
    indices, _ = trio.sample(uniforms)
    np.testing.assert_array_equal(indices.env[:9], np.repeat([0, 2, 2], 3))
    # Times 9 … 16 are held, and a start needs one before and one after.
    np.testing.assert_array_equal(trio.time(indices.slot)[:9], np.tile([10, 15, 15], 3))


def test_starts_are_uniform_over_copies_and_times():
    window = Window(stack=2, n_step=1, length=9)
    memory, cursor = history.init(4, 9, SHAPE, jnp.int32), Cursor(jnp.int32(5), jnp.int32(9))  # no game ever ends
    draws = 28 * 400
    uniforms = np.random.default_rng(1).random((draws, 1, 2), dtype=np.float32)
    indices = sample_indices(window, cursor, memory, uniforms)
    counts = np.bincount(np.asarray(indices.env) * 9 + np.asarray(indices.slot), minlength=36).reshape(4, 9)
    assert np.all(counts[:, [5, 4]] == 0)  # the oldest has half a stack, the newest no successor
    counts = np.delete(counts, [4, 5], axis=1)
    assert counts.size == 28
    # Chi-square with 27 degrees of freedom: mean 27, and above 55 once in a thousand.
    assert np.sum((counts - 400) ** 2 / 400) < 55


def places(uniforms, num_envs, count):
    """Envs and starts, which are the same on both sides."""
    ours = jax.jit(history._places, static_argnums=1)(uniforms, num_envs, jnp.int32(count))
    assert_trees_equal(ours, history_host._places(uniforms, num_envs, count))
    return history_host._places(uniforms, num_envs, count)


@pytest.mark.parametrize(("num_envs", "count"), [(1, 1), (1, 7), (3, 5), (8, 2), (5, 64)])
def test_every_start_is_chosen_by_as_many_numbers(num_envs, count):
    grid = (np.arange(1024, dtype=np.float32) + 0.5) / 1024
    env, start = places(np.stack(np.meshgrid(grid, grid), axis=-1), num_envs, count)
    for chosen, among in ((env, num_envs), (start, count)):
        each = np.bincount(chosen.ravel(), minlength=among) / 1024
        assert each.size == among and np.ptp(each) <= 1 and abs(each.mean() - 1024 / among) < 1e-6


@pytest.mark.parametrize("num_envs", [1, 8])
def test_a_million_starts_are_equally_likely(num_envs):
    """All numbers of 32 bits between two borders; those of 23 bits chose a start 7, 8 or 9 times."""
    first = np.arange(512, dtype=np.float32) / 512 / num_envs  # all of the first env
    second = (np.arange(2**12, dtype=np.float32) + 3 * 2**20) / 2**23
    env, start = places(np.stack(np.meshgrid(first, second), axis=-1), num_envs, 2**20 + 7)
    assert np.all(env == 0)
    whole = np.bincount(start.ravel() - start.min())[1:-1]
    assert whole.size > 500 and set(whole) <= {4095, 4096}


def test_places_of_any_size_are_the_same_on_both_sides():
    uniforms = np.random.default_rng(5).random((1000, 2), np.float32)
    for num_envs, count in ((1, 2**31 - 1), (4096, 2**18), (65_537, 3), (2**20, 2**20)):
        env, start = places(uniforms, num_envs, count)
        assert (env.min() >= 0) & (env.max() < num_envs) & (start.min() >= 0) & (start.max() < count)
        assert abs(env.mean() / num_envs - 0.5) < 0.05 + 0.5 / num_envs and abs(start.mean() / count - 0.5) < 0.2


# ---- acting, and others' opinions ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stack", [1, 3])
def test_the_state_acted_on_is_the_state_learned_from(stack):
    trio, rng = Trio(stack, n_step=2, seed=stack), np.random.default_rng(2)
    ours = theirs = np.zeros((3, stack, *SHAPE), np.int32)
    push, acted_on = jax.jit(history.push), []
    compared = 0
    for _ in range(50):
        rows = trio.tick()
        ours = push(ours, rows.frames, rows.is_first)
        theirs = history_host.push(theirs, rows.frames, rows.is_first)
        np.testing.assert_array_equal(ours, theirs)
        acted_on.append(theirs)
        indices, batch = trio.sample(trio.uniforms(rng))
        times = trio.time(indices.slot)
        steps = batch.next_states[:, -1, 0, 0] - batch.states[:, -1, 0, 0]
        for b in np.flatnonzero(indices.valid):
            np.testing.assert_array_equal(batch.states[b], acted_on[times[b]][indices.env[b]])
            np.testing.assert_array_equal(batch.next_states[b], acted_on[times[b] + steps[b]][indices.env[b]])
            compared += 1
    assert compared > 1000


def test_pushing_leaves_the_old_stack_as_it_was():
    old = np.ones((1, 2, *SHAPE), np.int32)
    history_host.push(old, 2 * old[:, 0], np.array([True]))
    np.testing.assert_array_equal(old, 1)


@pytest.mark.parametrize("ticks", [7, 33], ids=["filling", "full"])
def test_flashbax_draws_the_same_pairs(ticks):
    trio, rng = Trio(stack=1, n_step=1, seed=3), np.random.default_rng(5)
    buffer = flashbax.make_trajectory_buffer(
        add_batch_size=trio.num_envs,
        sample_batch_size=2000,
        sample_sequence_length=2,
        period=1,
        min_length_time_axis=2,
        max_length_time_axis=trio.window.length,
    )
    add, draw = jax.jit(buffer.add, donate_argnums=0), jax.jit(buffer.sample)
    state = buffer.init(jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), gather(Worlds(1, seed=0).tick())))
    for _ in range(ticks):
        rows = trio.tick()
        state = add(state, jax.tree.map(lambda leaf: leaf[:, None], rows))
    with jax.numpy_rank_promotion("allow"):
        pairs = jax.tree.map(np.asarray, draw(state, jax.random.key(4)).experience)
    theirs = {
        (frame[0], action[0], reward[0], frame[1], 0 if terminated[0] else GAMMA)
        for frame, action, reward, terminated, is_first in zip(
            pairs.frames[:, :, 0, 0], pairs.actions, pairs.rewards, pairs.terminated, pairs.is_first, strict=True
        )
        if not is_first[1]
    }
    ours = {
        (state[0, 0, 0], action, reward, following[0, 0, 0], discount)
        for _ in range(20)
        for state, action, reward, discount, following, valid in zip(*trio.sample(trio.uniforms(rng))[1], strict=True)
        if valid
    }
    assert ours == theirs
    assert len(ours) == len(trio.oracle.starts())


# ---- what XLA makes of it ------------------------------------------------------------------------------------------


def test_a_row_is_written_in_place():
    memory, cursor = history.init(4, 500, (64, 64), jnp.uint8), history.init_cursor()  # 8 MB
    rows = History(*(np.ones((4, *leaf.shape[2:]), leaf.dtype) for leaf in memory))
    where = memory.frames.unsafe_buffer_pointer()
    for _ in range(3):
        cursor, memory = tell(cursor, memory, rows)
        assert memory.frames.unsafe_buffer_pointer() == where
    np.testing.assert_array_equal(memory.is_first[:, :4], [[True, True, True, False]] * 4)


@pytest.mark.parametrize("seeds", [None, 2])
def test_a_loop_that_plays_and_learns_copies_no_memory(seeds):
    window = Window(stack=4, n_step=1, length=500)
    batch = 2

    def body(carry, uniforms):
        cursor, memory = carry

        def one(memory, uniforms):
            rows = jax.tree.map(lambda leaf: leaf[:, 0], memory)
            memory = history.add(cursor, memory, rows)
            indices = history.sample_indices(window, cursor, memory, uniforms)
            drawn = history.gather(window, memory, indices, GAMMA)
            return memory, jnp.sum(drawn.states, dtype=jnp.int32) + jnp.sum(drawn.next_states, dtype=jnp.int32)

        memory, seen = (jax.vmap(one) if seeds else one)(memory, uniforms)
        return (history.advance(cursor, window.length), memory), seen

    def loop(cursor, memory, uniforms):
        return jax.lax.scan(body, (cursor, memory), uniforms)

    lead = (seeds,) if seeds else ()
    memory = jax.eval_shape(lambda: history.init(4, 500, (64, 64), jnp.uint8))
    memory = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((*lead, *leaf.shape), leaf.dtype), memory)
    uniforms = jax.ShapeDtypeStruct((10, *lead, batch, 4, 2), jnp.float32)
    compiled = jax.jit(loop, donate_argnums=(0, 1)).lower(history.init_cursor(), memory, uniforms).compile()
    taken = compiled.memory_analysis()
    assert taken.alias_size_in_bytes >= (seeds or 1) * history.num_bytes(4, 500, (64, 64), jnp.uint8)
    assert taken.temp_size_in_bytes < 1e6  # one memory has 8 MB
    assert " scatter(" not in compiled.as_text()  # the cursor is shared, so that writes stay slices


def test_one_step_reads_each_frame_once():
    window = Window(stack=4, n_step=1, length=50)
    memory = jax.eval_shape(lambda: history.init(2, 50, (8, 8), jnp.uint8))
    indices = jax.eval_shape(
        lambda: SampleIndices(jnp.zeros(3, jnp.int32), jnp.zeros(3, jnp.int32), jnp.zeros(3, jnp.float32))
    )
    text = jax.jit(partial(history.gather, window)).lower(memory, indices, jnp.float32(GAMMA)).as_text()
    reads = [line for line in text.splitlines() if "stablehlo.gather" in line and "8x8xui8" in line]
    assert len(reads) == 1
    assert "tensor<3x5x8x8xui8>" in reads[0]


def test_seeds_under_vmap_are_as_if_alone():
    trios = [Trio(stack=2, n_step=1, seed=seed) for seed in (1, 2)]
    window = trios[0].window
    for _ in range(21):
        for trio in trios:
            trio.tick()
    uniforms = np.random.default_rng(3).random((2, 50, 4, 2), dtype=np.float32)
    together = jax.tree.map(lambda *leaves: np.stack(leaves), *(trio.memory for trio in trios))
    mapped = jax.vmap(partial(sample, window), in_axes=(None, 0, 0))(trios[0].cursor, together, uniforms)
    for seed, trio in enumerate(trios):
        indices = trio.host.sample_indices(uniforms[seed])
        wanted = indices, trio.host.gather(indices, GAMMA)
        jax.tree.map(lambda got, right: np.testing.assert_array_equal(got[seed], right), mapped, wanted)  # noqa: B023


def test_no_dtype_is_promoted_and_frames_keep_theirs():
    window = Window(stack=4, n_step=3, length=20)

    def once(uniforms):
        memory, cursor = history.init(2, 20, (84, 84), jnp.uint8), history.init_cursor()
        rows = jax.tree.map(lambda leaf: leaf[:, 0], memory)._replace(actions=jnp.zeros(2, jnp.int32))
        cursor, memory = tell(cursor, memory, rows)
        indices, batch = sample(window, cursor, memory, uniforms)
        return memory, cursor, batch, history.push(batch.states, batch.states[:, 0], indices.valid > 0)

    with jax.numpy_dtype_promotion("strict"):
        memory, cursor, batch, pushed = jax.eval_shape(once, jnp.zeros((5, 4, 2)))
    assert batch.states.shape == batch.next_states.shape == pushed.shape == (5, 4, 84, 84)
    kinds = (jnp.uint8, jnp.int8, jnp.float32, jnp.float32, jnp.uint8, jnp.float32)
    assert tuple(field.dtype for field in batch) == kinds
    assert pushed.dtype == memory.frames.dtype == jnp.uint8
    assert memory.actions.dtype == jnp.int8
    # What a program gives back has to be what it was given, or it would be compiled twice.
    assert not any(leaf.weak_type for leaf in (*memory, *cursor, *batch, pushed))


def test_the_memory_takes_what_it_says():
    assert history.num_bytes(8, 125_000, (84, 84), jnp.uint8) == 7_064_000_000
    for num_envs, length, shape, dtype in [(3, 7, (5, 2), jnp.uint8), (1, 10, (4,), jnp.float32)]:
        memory = jax.eval_shape(partial(history.init, num_envs, length, shape, dtype))
        nbytes = sum(leaf.size * leaf.dtype.itemsize for leaf in memory)
        assert history.num_bytes(num_envs, length, shape, dtype) == nbytes


@pytest.mark.parametrize(("stack", "n_step", "length"), [(0, 1, 10), (1, 0, 10), (4, 3, 6)])
def test_a_window_that_cannot_be_is_refused(stack, n_step, length):
    with pytest.raises(UsageError, match="at least"):
        Window(stack, n_step, length)
