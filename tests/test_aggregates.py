"""Scores over several tasks, compared with the formulas of rliable and with numbers worked by hand."""

import numpy as np
import pytest

from xladder.core import aggregates
from xladder.core.aggregates import (
    interquartile_mean,
    iqm,
    normalise,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
)

# What rliable computes, on a matrix [runs, tasks], written from its formulas.


def reference_iqm(matrix):
    """`scipy.stats.trim_mean(scores, proportiontocut=0.25, axis=None)`."""
    flat = np.sort(matrix.ravel())
    cut = int(0.25 * flat.size)
    return flat[cut : flat.size - cut].mean()


def reference_profile(matrix, thresholds):
    return np.array([np.mean([np.mean(column > tau) for column in matrix.T]) for tau in thresholds])


def reference_improvement(x, y):
    """Mann–Whitney U by ranks, as scipy's, which is another way than to count pairs."""
    shares = []
    for ours, theirs in zip(x.T, y.T, strict=True):
        both = np.concatenate([ours, theirs])
        ranks = np.array([np.sum(both < value) + (np.sum(both == value) + 1) / 2 for value in both])
        u = ranks[: len(ours)].sum() - len(ours) * (len(ours) + 1) / 2
        shares.append(u / (len(ours) * len(theirs)))
    return np.mean(shares)


def reference_bootstrap(statistic, *matrices, resamples=4000):
    """`rliable`'s stratified bootstrap: runs are resampled task by task."""
    rng, found = np.random.default_rng(7), []
    for _ in range(resamples):
        drawn = []
        for matrix in matrices:
            runs, tasks = matrix.shape
            drawn.append(matrix[rng.integers(0, runs, (runs, tasks)), np.arange(tasks)])
        found.append(statistic(*drawn))
    return np.percentile(found, [2.5, 97.5], axis=0)


@pytest.fixture(params=[(5, 3), pytest.param((3, 7), marks=pytest.mark.slow), (10, 1), (1, 4)], ids=str)
def matrices(request):
    rng = np.random.default_rng(1)
    # Rounded, so that there are ties.
    return rng.normal(1, 1, request.param).round(1), rng.normal(1.3, 0.5, request.param).round(1)


def test_point_estimates_are_those_of_the_formulas(matrices):
    x, y = matrices
    thresholds = np.concatenate([np.linspace(-1, 3, 21), x[0]])
    assert iqm(list(x.T)).value == pytest.approx(reference_iqm(x))
    np.testing.assert_allclose(performance_profile(list(x.T), thresholds).value, reference_profile(x, thresholds))
    assert probability_of_improvement(list(x.T), list(y.T)).value == pytest.approx(reference_improvement(x, y))


def test_intervals_are_those_of_a_stratified_bootstrap(matrices):
    x, y = matrices
    if len(x) == 1:
        assert np.isnan(iqm(list(x.T)).low) and np.isnan(probability_of_improvement(list(x.T), list(y.T)).high)
        return
    found = iqm(list(x.T))
    spread = reference_bootstrap(reference_iqm, x)
    assert [found.low, found.high] == pytest.approx(spread, abs=0.15 * (spread[1] - spread[0]))
    found = probability_of_improvement(list(x.T), list(y.T))
    spread = reference_bootstrap(reference_improvement, x, y)
    assert [found.low, found.high] == pytest.approx(spread, abs=0.15 * (spread[1] - spread[0]))
    thresholds = np.array([0.5, 1.0])
    found = performance_profile(list(x.T), thresholds)
    spread = reference_bootstrap(lambda drawn: reference_profile(drawn, thresholds), x)
    np.testing.assert_allclose([found.low, found.high], spread, atol=1 / x.size + 1e-9)


def test_strata_keep_the_spread_between_tasks_out_of_the_interval():
    """Two tasks far apart whose runs hardly differ: resampling them together would give a wide interval."""
    found = iqm([np.array([0.0, 0.1, 0.0, 0.1]), np.array([10.0, 10.1, 10.0, 10.1])])
    assert found.value == pytest.approx(5.05) and found.high - found.low < 0.2


def test_by_hand():
    assert interquartile_mean(np.array([1.0, 2, 3, 100])) == 2.5
    assert interquartile_mean(np.array([5.0, 1, 3])) == 3  # a quarter of three, rounded down, is none
    assert interquartile_mean(np.arange(10.0)) == 4.5  # 2 … 7
    tasks = [np.array([0.0, 1.0]), np.array([2.0, 3.0])]
    assert iqm(tasks).value == 1.5
    np.testing.assert_array_equal(
        performance_profile(tasks, np.array([-1, 0, 1, 2.5, 3])).value, [1, 0.75, 0.5, 0.25, 0]
    )
    # First task: of 2 × 2 pairs one is won and two are tied. Second: all are lost.
    others = [np.array([0.0, 1.0]), np.array([4.0, 5.0])]
    assert probability_of_improvement(tasks, others).value == 0.25
    assert probability_of_improvement(others, tasks).value == 0.75


def test_tasks_may_have_different_numbers_of_runs():
    tasks = [np.array([0.0, 1.0, 1.0, 1.0]), np.array([1.0])]
    # A task counts once however many runs it has.
    assert performance_profile(tasks, np.array([0.5])).value == pytest.approx((0.75 + 1) / 2)
    assert probability_of_improvement(tasks, [np.array([0.5]), np.array([1.0, 1.0])]).value == (0.75 + 0.5) / 2


def test_the_same_scores_give_the_same_interval():
    tasks = [np.arange(5.0), np.arange(5.0) ** 2]
    assert iqm(tasks) == iqm(tasks)
    assert aggregates.RESAMPLES >= 2000


def test_normalised_scores():
    np.testing.assert_allclose(normalise(np.array([10.0, 20, 30]), 10, 20), [0, 1, 2])


def test_the_optimality_gap_by_hand():
    # 1 − 0.5 and 1 − 0.9, and 0 for what is above 1: a mean of 0.3 in the first task and of 0 in the second.
    tasks = [np.array([0.5, 0.9]), np.array([1.5, 3.0])]
    assert optimality_gap(tasks).value == pytest.approx((0.3 + 0.0) / 2)
    assert optimality_gap([np.array([-1.0])]).value == 2.0  # worse than random play falls further short
    low, high = optimality_gap(tasks)[1:]
    assert low == pytest.approx(0.05) and high == pytest.approx(0.25)  # both runs of the first task the same one


def test_intervals_over_tasks_say_what_other_tasks_would_have_given():
    # One run each: seeds say nothing, but two tasks drawn from {0, 1} have means 0, ½ and 1.
    far = [np.array([0.0]), np.array([1.0])]
    assert np.isnan(iqm(far).low)
    for found in (iqm(far, over_tasks=True), optimality_gap(far, over_tasks=True)):
        assert (found.value, found.low, found.high) == (0.5, 0.0, 1.0)
    # Tasks that agree: the interval over tasks is not much wider than that over seeds, and one task has none.
    rng = np.random.default_rng(0)
    alike = [rng.normal(0.5, 0.1, 5) for _ in range(6)]
    seeds, both = iqm(alike), iqm(alike, over_tasks=True)
    assert both.value == seeds.value and seeds.high - seeds.low < both.high - both.low < 3 * (seeds.high - seeds.low)
    assert np.isnan(iqm(alike[:1], over_tasks=True).low)


def test_methods_are_compared_in_the_same_resampled_tasks():
    # Ours is better by 1 in every task, though tasks differ by far more.
    theirs = [np.array([0.0, 0.1]), np.array([50.0, 50.1]), np.array([100.0, 100.1])]
    found = probability_of_improvement([task + 1 for task in theirs], theirs, over_tasks=True)
    assert (found.value, found.low, found.high) == (1.0, 1.0, 1.0)
