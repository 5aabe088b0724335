"""Schedules: corner points, numbers worked out by hand, Optax, and NumPy against JAX."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from xladder.core.schedules import exponential, linear

LAST = 2**31 - 1
ENDS = [(1.0, 0.01), (1.0, 0.1), (0.4, 1.0), (1.0, 0.0), (0.05, 0.05)]


def traced(schedule):
    """A schedule of numbers, compiled with all of them traced."""
    compiled = jax.jit(schedule)

    def run(start, end, span, step):
        with jax.numpy_dtype_promotion("strict"):
            return compiled(jnp.float32(start), jnp.float32(end), jnp.float32(span), jnp.int32(step))

    return run


def both(schedule):
    return pytest.mark.parametrize("schedule", [schedule, traced(schedule)], ids=["numpy", "jax"])


@both(linear)
@pytest.mark.parametrize(
    ("start", "end", "steps", "step", "expected"),
    [
        (1.0, 0.1, 100, 0, 1.0),
        (1.0, 0.1, 100, 1, 0.991),  # 0.1 + 0.9 · 99/100
        (1.0, 0.1, 100, 50, 0.55),
        (1.0, 0.1, 100, 99, 0.109),  # 0.1 + 0.9 · 1/100
        (1.0, 0.1, 100, 100, 0.1),
        (1.0, 0.1, 100, 101, 0.1),
        (1.0, 0.1, 100, LAST, 0.1),
        (1.0, 0.1, 100, -7, 1.0),  # while a memory is being filled, say
        (1.0, 0.1, 0, 0, 0.1),
        (1.0, 0.1, 0, 3, 0.1),
        (1.0, 0.1, 0, -3, 0.1),
        (1.0, 0.1, 1, 0, 1.0),
        (1.0, 0.1, 1, 1, 0.1),
        (1.0, 0.1, 2.5, 2, 0.28),  # a tenth of 25 steps: 0.1 + 0.9 · 0.5/2.5
        (1.0, 0.1, 0.5, 0, 1.0),  # a tenth of 5 steps
        (0.4, 1.0, 10, 5, 0.7),  # β rises
        (0.4, 1.0, 10, 11, 1.0),
    ],
)
def test_linear_by_hand(schedule, start, end, steps, step, expected):
    value = schedule(start, end, steps, step)
    assert value.dtype == np.float32
    assert value.shape == ()
    assert float(value) == pytest.approx(expected, rel=3e-7)


@both(exponential)
@pytest.mark.parametrize(
    ("start", "end", "half_life", "step", "expected"),
    [
        (1.0, 0.2, 10, 0, 1.0),
        (1.0, 0.2, 10, 10, 0.6),  # 0.2 + 0.8/2
        (1.0, 0.2, 10, 20, 0.4),  # 0.2 + 0.8/4
        (1.0, 0.2, 10, 30, 0.3),  # 0.2 + 0.8/8
        (1.0, 0.2, 10, 5, 0.2 + 0.8 * 0.5**0.5),
        (1.0, 0.2, 10, LAST, 0.2),
        (1.0, 0.2, 10, -4, 1.0),
        (1.0, 0.2, 0, 0, 0.2),
        (1.0, 0.2, 0, 7, 0.2),
        (1.0, 0.0, 1, 3, 0.125),
        (0.5, 1.0, 4, 8, 0.875),  # 1 − 0.5/4
    ],
)
def test_exponential_by_hand(schedule, start, end, half_life, step, expected):
    value = schedule(start, end, half_life, step)
    assert value.dtype == np.float32
    assert value.shape == ()
    assert float(value) == pytest.approx(expected, rel=3e-7)


def test_a_half_life_is_what_its_description_says_of_other_parameters():
    # A factor e takes half_life / ln 2 steps: 1000 / 0.693147 = 1442.695
    assert float(exponential(1.0, 0.0, 1000, 1442.695)) == pytest.approx(np.exp(-1), rel=1e-6)
    # 1 − d at every step, d = 0.001: 0.999^k = ½ at k = 692.8, and 0.693147 / d = 693.1
    assert float(exponential(1.0, 0.0, 0.693147 / 0.001, 500)) == pytest.approx(0.999**500, rel=1e-3)


@pytest.mark.parametrize(("start", "end"), ENDS)
@pytest.mark.parametrize("jump", [1, 1_000_000])
def test_a_line_meets_its_ends_never_turns_back_and_never_leaves_their_range(start, end, jump):
    steps = np.arange(0, 2000 * jump, jump, dtype=np.int32)
    span = 1234 * jump
    compiled = jax.jit(partial(linear, start, end, span))  # a constant span is where XLA divides by multiplying
    for values in (linear(start, end, span, steps), np.asarray(compiled(steps))):
        assert values.dtype == np.float32
        assert values[0] == pytest.approx(start, rel=2e-7)
        assert np.all(values[1234:] == np.float32(end))
        low, high = sorted((np.float32(start), np.float32(end)))
        rounding = 0 if start >= end else 1e-7  # when rising, `start` is the sum of two rounded numbers
        assert np.all((values >= low - rounding) & (values <= high))
        assert np.all(np.diff(values) * np.sign(end - start) >= 0)
        if start == end:
            assert np.all(values == np.float32(start))
        else:
            assert len(np.unique(values)) == 1235


@pytest.mark.parametrize(("start", "end"), ENDS)
@pytest.mark.parametrize(
    ("schedule", "theirs"),
    [
        (linear, lambda start, end, span: optax.linear_schedule(start, end, span)),
        (exponential, lambda start, end, span: lambda n: end + optax.exponential_decay(start - end, span, 0.5)(n)),
    ],
)
def test_optax_agrees(schedule, theirs, start, end):
    steps = np.array([0, 1, 2, 17, 250, 499, 500, 501, 3000])
    expected = [float(theirs(start, end, 500)(step)) for step in steps]
    np.testing.assert_allclose(schedule(start, end, 500, steps), expected, rtol=0, atol=3e-7)


@pytest.mark.parametrize("schedule", [linear, exponential])
@pytest.mark.parametrize("span", [1000, 1_000_000, 2_000_000_000])
@pytest.mark.parametrize(("start", "end"), ENDS[1:3])
def test_numpy_and_jax_agree_over_all_of_int32_and_are_right(schedule, span, start, end):
    rng = np.random.default_rng(span % 101)
    steps = np.concatenate([np.arange(64), rng.integers(0, 2 * span, 500), rng.integers(0, LAST, 500), [LAST]])
    steps = np.minimum(steps, LAST).astype(np.int32)
    host = schedule(start, end, span, steps)
    assert isinstance(host, np.ndarray)
    # Numbers are at most 1, so these are two units in the last place; see the module about divisions.
    np.testing.assert_allclose(host, jax.jit(partial(schedule, start, end, span))(steps), rtol=0, atol=1.2e-7)
    hyperparams = (jnp.float32(value) for value in (start, end, span))
    np.testing.assert_allclose(host, jax.jit(schedule)(*hyperparams, steps), rtol=0, atol=1.2e-7)
    left = np.clip(1 - steps / span, 0, 1) if schedule is linear else np.exp2(-steps / span)
    np.testing.assert_allclose(host, end + (start - end) * left, rtol=0, atol=2e-7)


@pytest.mark.parametrize("schedule", [linear, exponential])
def test_any_jax_argument_makes_the_answer_jax_and_knobs_may_be_swept(schedule):
    assert isinstance(schedule(1.0, 0.1, 10, 3), np.float32)
    for place in range(4):
        args = [1.0, 0.1, 10, 3]
        args[place] = jnp.asarray(args[place])
        assert isinstance(schedule(*args), jax.Array)
    swept = jax.vmap(schedule, (0, None, 0, None))(
        jnp.array([1.0, 0.5, 1.0]), 0.1, jnp.array([10, 10, 0]), jnp.int32(3)
    )
    each = [schedule(start, 0.1, span, 3) for start, span in ((1.0, 10), (0.5, 10), (1.0, 0))]
    np.testing.assert_allclose(swept, each, rtol=0, atol=1.2e-7)
