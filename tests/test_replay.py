"""The ring of frames: both twins against a slow, obvious account of what the memory has to do."""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xladder.replay import frames
from xladder.replay.frames_host import HostFrameRing

CELLS = 2
GAMMA = 0.9


class Row(NamedTuple):
    frame: list[int]
    action: int
    reward: float
    done: bool


class Oracle:
    """The memory as it is described, one Python list, one window at a time."""

    def __init__(self, capacity: int, n_frames: int):
        self.rows = [Row([0] * CELLS, 0, 0.0, False)] * capacity
        self.capacity, self.n_frames = capacity, n_frames
        self.idx = self.size = 0

    def add(self, row: Row) -> None:
        self.rows[self.idx] = row
        self.idx = (self.idx + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def add_empty(self) -> None:
        self.idx = (self.idx + self.n_frames - 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def current_state(self) -> list[list[int]]:
        return [self.rows[(self.idx - back) % self.capacity].frame for back in range(self.n_frames - 1, 0, -1)]

    def window(self, start: int) -> tuple:
        rows = [self.rows[(start + i) % self.capacity] for i in range(self.n_frames + 1)]
        state, following = rows[:-1], rows[1:]
        last = state[-1]
        valid = 0.0 if any(row.done for row in state[:-1]) else 1.0
        discount = np.float32(0.0) if last.done else np.float32(GAMMA)
        return (
            [row.frame for row in state],
            last.action,
            last.reward,
            discount,
            [row.frame for row in following],
            valid,
        )

    def starts(self, n_step: int = 1) -> range:
        return range(max(1, self.size - self.n_frames - n_step))


gather = jax.jit(frames.gather, static_argnums=(4, 5))
recent = jax.jit(frames.recent, static_argnums=2)
sample_indices = jax.jit(frames.sample_indices, static_argnums=(2, 3, 4))


@partial(jax.jit, static_argnums=3)
def tell(cursor, ring, new, n_frames):
    """The JAX ring hears of an epoch."""
    ring = frames.mark_break(cursor, ring)
    cursor = frames.skip(cursor, ring.dones.size, n_frames)
    return frames.advance(cursor, ring.dones.size, new.dones.size), frames.add(cursor, ring, new)


class Trio:
    """Both rings and the oracle, told the same."""

    def __init__(self, capacity: int, n_frames: int, n_step: int = 1):
        self.capacity, self.n_frames, self.n_step = capacity, n_frames, n_step
        self.oracle = Oracle(capacity, n_frames)
        self.host = HostFrameRing(capacity, CELLS, n_frames, n_step)
        self.ring, self.cursor = frames.init(capacity, CELLS), frames.init_cursor()
        self.told = 0

    def epoch(self, turns: int, dones: tuple[int, ...] = ()) -> None:
        """One epoch of frames that can all be told apart; `dones` are the turns stored as terminal."""
        self.host.add_empty()
        self.oracle.add_empty()
        rows = []
        for turn in range(turns):
            self.told += 1
            number = self.told
            rows.append(Row([number % 100, number % 7], number % 4, float(number), turn in dones))
            self.oracle.add(rows[-1])
            row = rows[-1]
            self.host.add(np.array(row.frame, np.int8), row.action, row.reward, row.done, is_first=turn == 0)
        new = frames.FrameRing(
            frames=np.array([row.frame for row in rows], np.int8),
            actions=np.array([row.action for row in rows], np.int8),
            rewards=np.array([row.reward for row in rows], np.float32),
            dones=np.array([row.done for row in rows]),
            breaks=np.arange(turns) == 0,
        )
        self.cursor, self.ring = tell(self.cursor, self.ring, new, self.n_frames)

    def gather(self, starts) -> tuple[frames.Batch, frames.Batch]:
        ours = gather(self.cursor, self.ring, jnp.asarray(starts), jnp.float32(GAMMA), self.n_frames, self.n_step)
        return ours, frames.Batch(*self.host.gather(np.asarray(starts), GAMMA))

    def assert_agree(self) -> None:
        assert (int(self.cursor.head), int(self.cursor.size)) == (self.host.index, self.host.size)
        assert (self.host.index, self.host.size) == (self.oracle.idx, self.oracle.size)
        for name in frames.FrameRing._fields:
            np.testing.assert_array_equal(getattr(self.ring, name), getattr(self.host, name), err_msg=name)
        np.testing.assert_array_equal(self.host.frames, [row.frame for row in self.oracle.rows])
        for seen in (recent(self.cursor, self.ring, self.n_frames), self.host.recent()):
            np.testing.assert_array_equal(seen, np.reshape(self.oracle.current_state(), (self.n_frames - 1, CELLS)))
        assert self.host.limit() == len(self.oracle.starts(self.n_step))
        if self.n_step == 1:
            starts = range(self.capacity)  # all windows that there are, drawable or not
            expected = [np.stack(column) for column in zip(*map(self.oracle.window, starts), strict=True)]
            for batch in self.gather(np.asarray(starts)):
                for name, got, wanted in zip(batch._fields, batch, expected, strict=True):
                    np.testing.assert_array_equal(got, wanted, err_msg=name)


EPOCHS = {
    "not yet full": (20, 3, [5, 4]),
    "wrapping round": (20, 3, [8, 8, 8, 8]),
    "wrapping many times": (13, 4, [7] * 9),
    "more turns than slots": (9, 3, [25, 4]),
    "as many turns as slots": (9, 3, [9, 9]),
    "one frame per state": (10, 1, [4, 4, 4]),
    "a single turn": (12, 5, [1, 1, 1]),
}


@pytest.mark.parametrize(("capacity", "n_frames", "turns"), EPOCHS.values(), ids=EPOCHS.keys())
def test_both_rings_keep_and_hand_out_what_the_description_says(capacity, n_frames, turns):
    trio = Trio(capacity, n_frames)
    trio.assert_agree()
    for count in turns:
        trio.epoch(count)
        trio.assert_agree()


def test_an_epoch_skips_slots_without_clearing_them_and_counts_one():
    trio = Trio(capacity=10, n_frames=4)
    trio.epoch(2)  # slots 0–2 skipped, 3 and 4 written
    assert (trio.host.index, trio.host.size) == (5, 3)
    trio.epoch(4)  # 5–7 skipped, 8, 9, 0, 1 written: over the slots skipped before
    trio.epoch(1)  # 2–4 skipped: 3 and 4 keep what the first epoch wrote
    np.testing.assert_array_equal(trio.host.frames[3:5, 0], [1, 2])
    trio.assert_agree()


def test_a_window_is_invalid_if_a_terminal_frame_comes_before_its_last():
    trio = Trio(capacity=30, n_frames=3)
    trio.epoch(12, dones=(5,))  # two slots are skipped, so turn 5 is in slot 7
    trio.assert_agree()
    ours, theirs = trio.gather(np.arange(2, 10))
    for batch in (ours, theirs):
        # Windows [s, s + 2]. Those from 6 and 7 hold slot 7 before their last frame; that from 5 ends on it.
        np.testing.assert_array_equal(batch.valid, [1, 1, 1, 1, 0, 0, 1, 1])
        np.testing.assert_allclose(batch.discounts, [0.9, 0.9, 0.9, 0, 0.9, 0.9, 0.9, 0.9], rtol=1e-6)


@pytest.mark.parametrize("n_step", [1, 3])
def test_learning_begins_when_a_batch_can_be_drawn_without_replacement(n_step):
    batch, n_frames = 4, 3
    threshold = batch + n_frames + n_step
    for turns, ready in [(threshold - 2, False), (threshold - 1, True)]:  # the epoch's gap counts as one
        trio = Trio(capacity=40, n_frames=n_frames, n_step=n_step)
        trio.epoch(turns)
        assert trio.host.can_sample(batch) == ready
        assert bool(frames.can_sample(trio.cursor, batch, n_frames, n_step)) == ready


def test_at_the_threshold_a_batch_is_every_window_there_is():
    trio = Trio(capacity=40, n_frames=3)
    trio.epoch(7)  # size 8 = 4 + 3 + 1
    scores = np.random.default_rng(0).random(40, dtype=np.float32)
    ours = sample_indices(trio.cursor, jnp.asarray(scores), 4, 3, 1)
    assert sorted(np.asarray(ours)) == [0, 1, 2, 3]
    np.testing.assert_array_equal(ours, trio.host.sample_indices(scores, 4))


@pytest.mark.parametrize("turns", [[12], [12, 12, 12]], ids=["filling", "full"])
def test_windows_are_chosen_without_replacement_from_those_allowed_alike_on_both_sides(turns):
    trio = Trio(capacity=25, n_frames=3)
    for count in turns:
        trio.epoch(count)
    limit = len(trio.oracle.starts())
    seen = set()
    for seed in range(40):
        scores = np.random.default_rng(seed).random(25, dtype=np.float32)
        ours = np.asarray(sample_indices(trio.cursor, jnp.asarray(scores), 5, 3, 1))
        np.testing.assert_array_equal(ours, trio.host.sample_indices(scores, 5))
        assert len(set(ours)) == 5
        seen |= set(ours.tolist())
    assert seen == set(range(limit)), "every allowed window has to be drawn sooner or later, and no other"


def test_equal_scores_are_broken_alike_on_both_sides():
    trio = Trio(capacity=25, n_frames=3)
    trio.epoch(14)
    scores = np.zeros(25, np.float32)
    scores[[2, 5]] = 0.5
    ours = sample_indices(trio.cursor, jnp.asarray(scores), 5, 3, 1)
    np.testing.assert_array_equal(ours, trio.host.sample_indices(scores, 5))


def test_n_step_returns_by_hand():
    trio = Trio(capacity=30, n_frames=2, n_step=3)
    trio.epoch(10)  # slot 0 is skipped; slot 1 holds reward 1, slot 2 reward 2 …
    for batch in trio.gather(np.array([1, 2])):
        # From slot 1 the state is slots 1–2, judged is slot 2: 2 + 0.9·3 + 0.81·4 = 7.94; then 3 + 3.6 + 4.05.
        np.testing.assert_allclose(batch.returns, [7.94, 10.65], rtol=1e-6)
        np.testing.assert_allclose(batch.discounts, [0.729, 0.729], rtol=1e-6)  # 0.9³
        np.testing.assert_array_equal(batch.states[:, :, 0], [[1, 2], [2, 3]])
        np.testing.assert_array_equal(batch.next_states[:, :, 0], [[4, 5], [5, 6]])  # three steps later
        np.testing.assert_array_equal(batch.actions, [2, 3])
        np.testing.assert_array_equal(batch.valid, [1, 1])


def test_rewards_after_a_terminal_step_do_not_count():
    trio = Trio(capacity=30, n_frames=2, n_step=3)
    trio.epoch(10, dones=(2,))  # reward 3, in slot 3
    for batch in trio.gather(np.array([1])):
        np.testing.assert_allclose(batch.returns, [2 + 0.9 * 3], rtol=1e-6)
        np.testing.assert_array_equal(batch.discounts, [0])
        np.testing.assert_array_equal(batch.valid, [1])


def test_n_step_windows_across_an_epochs_end_are_invalid():
    trio = Trio(capacity=40, n_frames=2, n_step=2)
    trio.epoch(5)  # slots 1–5
    trio.epoch(5)  # slot 6 skipped, 7–11 written
    starts = np.arange(1, 9)
    # The judged step is s + 1, its rewards and next state reach to s + 3. Epochs break at slots 6 and 7, so what
    # begins up to slot 5 must not reach 6, and nothing may begin in the skipped slot and reach 7.
    # s:        1  2  3  4  5  6  7  8
    expected = [1, 1, 0, 0, 0, 1, 1, 1]
    for batch in trio.gather(starts):
        np.testing.assert_array_equal(batch.valid, expected)


def test_n_step_windows_across_the_write_head_are_invalid():
    trio = Trio(capacity=12, n_frames=2, n_step=2)
    trio.epoch(11)  # slots 1–11
    trio.epoch(4)  # slot 0 skipped, 1–4 written; what was written first begins at 5
    assert trio.host.index == 5
    starts = np.arange(1, 8)
    # Reaching from s + 1 to s + 3: over the head (slot 5) from s = 2, 3; s = 4 judges slot 5 itself.
    for batch in trio.gather(starts):
        np.testing.assert_array_equal(batch.valid, [1, 0, 0, 1, 1, 1, 1])


def test_with_one_step_breaks_and_the_head_change_nothing():
    trio = Trio(capacity=12, n_frames=2)
    for turns in (11, 4):
        trio.epoch(turns)
    for batch in trio.gather(np.arange(9)):
        np.testing.assert_array_equal(batch.valid, np.ones(9))


@pytest.mark.parametrize("n_step", [2, 3])
def test_twins_agree_on_n_step_batches_after_many_epochs(n_step):
    trio = Trio(capacity=23, n_frames=3, n_step=n_step)
    for turns in (6, 9, 4, 11):
        trio.epoch(turns, dones=(2,))
        trio.assert_agree()
        ours, theirs = trio.gather(np.arange(trio.capacity))
        for name, a, b in zip(ours._fields, ours, theirs, strict=True):
            # One rounding: a product and a sum may be contracted into one operation.
            np.testing.assert_allclose(a, b, rtol=1e-6, err_msg=name)


def test_the_ring_needs_no_implicit_dtype_promotion():
    with jax.numpy_dtype_promotion("strict"):
        trio = Trio(capacity=20, n_frames=3, n_step=2)
        trio.epoch(12)
        starts = sample_indices(trio.cursor, jnp.zeros(20, jnp.float32), 4, 3, 2)
        batch = trio.gather(starts)[0]
    kinds = (jnp.int8, jnp.int8, jnp.float32, jnp.float32, jnp.int8, jnp.float32)
    assert tuple(field.dtype for field in batch) == kinds
