"""What is said of several seeds: each of a few, the worst of many, and which of them miss modes."""

import json
from dataclasses import replace

import numpy as np
import pytest

import xladder
from xladder import trainer
from xladder.cli.runs import format_return
from xladder.families.gflownet import summaries
from xladder.families.gflownet.hypergrid_presets import DEFAULT
from xladder.families.gflownet.pictures import choose_seeds, scenes
from xladder.plans import plan
from xladder.results import Result, Snapshot
from xladder.runs.listing import RunInfo


def score(*tv, modes=None, seeds=None, **more):
    """An exact evaluation of some seeds."""
    found = {"seeds": len(tv), "exact": True, "num_modes": 4, "num_mode_cells": 16, "log_z": 4.4, "random_return": 0.1}
    columns = dict.fromkeys(("l1", "kl", "jsd", "correlation", "logz_error", "elbo", "eubo", "mode_cells"), tv)
    width = 3.0771 if len(tv) > 1 else float("nan")
    for name, values in (columns | {"tv": tv, "modes": modes or [4.0] * len(tv)}).items():
        found |= {name: float(np.mean(values)), f"{name}_ci95": width, f"{name}_per_seed": list(values)}
    found |= {"mean_return": 1.0, "ci95": width, "per_seed": [1.0] * len(tv)}
    return summaries.name_seeds(found, seeds or range(len(tv))) | more


@pytest.mark.parametrize(
    ("ticks", "interval", "expected"),
    [(12, 4, [4, 8, 12]), (13, 4, [4, 8, 13]), (14, 4, [4, 8, 12, 14]), (10, 9, [10]), (3, 1, [1, 2, 3])],
)
def test_the_last_two_evaluations_are_not_close_together(ticks, interval, expected):
    assert [done for done in range(1, ticks + 1) if trainer.evaluation_due(done, interval, ticks)] == expected


def test_a_few_seeds_are_listed_one_by_one():
    lines = summaries.describe_score(score(0.0162, 0.5, seeds=[5, 6]))
    assert lines[0] == "total variation 0.0162, 0.5000 (exact, seeds 5 and 6)"
    assert not any("±" in line for line in lines)
    assert "mean reward 1.000, 1.000; with random steps 0.100" in lines


def test_of_many_seeds_the_worst_is_named():
    lines = summaries.describe_score(score(0.01, 0.02, 0.03, 0.02, 0.52, seeds=range(10, 15)))
    assert lines[0] == (
        "total variation 0.1200 ± 3.0771 (exact, mean of 5 seeds ± 95 %; median 0.0200, worst 0.5200 of seed 14)"
    )


def test_one_seed_is_a_number_and_an_evaluation_of_an_older_run_is_a_mean():
    assert summaries.describe_score(score(0.25))[0] == "total variation 0.2500 (exact)"
    older = {name: value for name, value in score(0.25, 0.75).items() if not name.endswith("per_seed")}
    older |= {"per_seed": [1.0, 1.0], "tv_ci95": 0.5}
    assert summaries.describe_score(older)[0].startswith("total variation 0.5000 ± 0.5000")


def test_numbers_that_are_none_or_too_large_are_said_in_words():
    nan, inf = float("nan"), float("inf")
    found = score(0.25, 0.5, correlation_per_seed=[nan, 0.5], per_seed=[2.5e34, inf], random_return=inf)
    lines = summaries.describe_score(found)
    assert any(line.endswith("correlation(log p, log R) –, 0.5000") for line in lines)
    assert "mean reward 2.5e+34, more than 3e+38; with random steps more than 3e+38" in lines
    assert not any("nan" in line or "inf" in line for line in lines)


def test_modes_are_regions_and_their_cells_stand_beside():
    lines = summaries.describe_score(score(0.25, modes=[3.0]))
    assert "modes found 3 of 4 (at least half of their probability; cells 0 of 16)" in lines


@pytest.mark.parametrize("tell", [str, lambda one: str(summaries.Collapse(**one))])
def test_seeds_that_miss_modes_are_named_the_worst_first(tell):
    found = score(0.26, 0.01, 0.5, 0.02, modes=[3.0, 4.0, 2.0, 4.0], seeds=[1, 2, 3, 4])
    wanted = [
        "seed 3 misses 2 of 4 modes: total variation 0.50",
        "seed 1 misses 1 of 4 modes: total variation 0.26",
    ]
    given = summaries.collapsed(found) if tell is str else found["collapsed"]
    assert [tell(one) for one in given] == wanted
    assert summaries.describe_score(found)[-2:] == wanted
    assert json.loads(json.dumps(found["collapsed"]))[0] == {"seed": 3, "missed": 2, "modes": 4, "distance": 0.5}


def test_so_many_that_miss_modes_are_counted():
    lines = summaries.describe_score(score(*[0.5] * 20, modes=[2.0] * 20))
    assert lines[-1] == "and 12 more: 20 of 20 seeds miss modes"


def test_no_seed_misses_modes_that_are_not_known_or_were_not_counted():
    assert summaries.collapsed(score(0.9, modes=[0.0]) | {"num_modes": None}) == []
    assert summaries.collapsed(score(0.9, modes=[0.0]) | {"num_modes": 0}) == []
    assert summaries.collapsed(score(0.9, modes=[float("nan")])) == []


def result_of(tv, modes, seeds):
    """A result whose last evaluation found this, after one that found nothing."""
    metrics = {"return": np.ones((len(tv), 4)), "loss": np.ones((len(tv), 4))}
    for name, values in {"tv": tv, "modes": modes}.items():
        metrics[name] = np.full((len(tv), 4), np.nan)
        metrics[name][:, 1], metrics[name][:, 3] = 0.75 if name == "tv" else 0, values
    return Result(plan("hypergrid", seeds=list(seeds)), metrics, {}, 0.0)


def test_results_know_which_seeds_miss_modes():
    result = result_of([0.01, 0.5], [4, 2], [7, 9])
    (missing,) = result.collapsed
    assert (missing.seed, missing.missed, missing.modes, missing.distance) == (9, 2, 4, 0.5)
    assert "tv: 0.0100, 0.5000 (last evaluation, one by one)" in repr(result)
    assert "collapsed: seed 9 misses 2 of 4 modes: total variation 0.50" in repr(result)
    assert result_of([0.01], [4], [7]).collapsed == []


def test_the_summary_of_training_lists_few_and_shows_the_range_of_many():
    few, many = result_of([0.01, 0.5], [4, 2], [7, 9]), result_of([0.01, 0.02, 0.03, 0.5], [4] * 4, range(4))
    assert summaries.summary(DEFAULT, few.metrics) == [
        "total variation: 0.750, 0.750 at the first evaluation, 0.0100, 0.5000 at the last"
    ]
    assert summaries.summary(DEFAULT, many.metrics) == [
        "total variation: 0.750 (median of 4 seeds, 0.750 to 0.750) at the first evaluation, "
        "0.0250 (median of 4 seeds, 0.0100 to 0.5000) at the last"
    ]


def pictured(result):
    """The same with a picture of every seed."""
    result.snapshots = [Snapshot(4, np.full((8, 8), 1 / 64), "TV", seed) for seed in result.seeds]
    return result


@pytest.mark.parametrize(
    ("tv", "modes", "words"),
    [
        ([0.02], [4], ["seed 10"]),
        ([0.03, 0.02], [4, 4], ["seed 11, the better of 2"]),
        ([0.03, 0.01, 0.02], [4, 4, 4], ["seed 12, the median of 3"]),
        ([0.5, 0.01, 0.02], [2, 4, 4], ["seed 12, the median of 3", "seed 10, the worst of 3"]),
        ([0.02, 0.01, 0.03], [4, 4, 3], ["seed 10, the median of 3", "seed 12, the worst of 3"]),
        ([float("nan")] * 2, [4, 4], ["seed 10, the better of 2"]),  # by the evaluation before
    ],
)
def test_pictures_show_the_median_seed_and_the_worst_if_they_disagree(tv, modes, words):
    result = pictured(result_of(tv, modes, range(10, 10 + len(tv))))
    assert [one.words for one in choose_seeds(result)] == words
    assert [scene["title"] for scene in scenes(result)] == [f"sampler of {each}" for each in words]


def test_where_pictures_of_some_seeds_were_kept_it_says_so():
    result = pictured(result_of([0.5, 0.01, 0.02, 0.03], [2, 4, 4, 4], range(4)))
    result.snapshots = [one for one in result.snapshots if one.seed in (1, 2, 3)]
    assert [one.words for one in choose_seeds(result)] == ["seed 2, the median of 3 pictured, of 4"]


@pytest.mark.parametrize(
    ("evaluation", "shown"),
    [
        (score(0.012, 0.5, modes=[4.0, 2.0]), "tv 0.012, 0.500, 1 of 2 miss modes"),
        (score(0.01, 0.01, 0.01, 0.01), "tv 0.010"),
        ({"mean_return": 1.0, "tv": 0.25, "tv_per_seed": "spoilt", "collapsed": 3}, "tv 0.250"),
    ],
)
def test_the_list_of_runs_shows_it(evaluation, shown, tmp_path):
    seeds = tuple(range(evaluation.get("seeds", 1)))
    run = RunInfo(tmp_path, "a", "finished", seeds=seeds, settings={"iterations": 9}, evaluation=evaluation)
    assert format_return(run) == shown


@pytest.mark.slow
@pytest.mark.parametrize("rung", ["fused", "parallel"])
def test_every_seed_is_pictured_and_a_resumed_run_goes_on_with_that(rung, tmp_path):
    small = {"world": {"side": 7}, "learner": {"width": 8, "batch_size": 4}, "evaluate_every": 2}
    out = tmp_path / "run"
    xladder.train("hypergrid", rung, seeds=[3, 8], out=out, iterations=4, eval_episodes=0, progress=False, **small)
    kept = xladder.load(out)
    for seed in (3, 8):
        assert [one.tick for one in kept.snapshots_of(seed)] == [0, 2, 4]
    assert not np.array_equal(kept.snapshots_of(3)[-1].picture, kept.snapshots_of(8)[-1].picture)
    if rung == "parallel":  # one seed after another: such a run cannot be made longer
        return
    again = xladder.resume(out, iterations=6, progress=False)
    for seed in (3, 8):
        assert [one.tick for one in again.snapshots_of(seed)] == [0, 2, 4, 6]
        for old, new in zip(kept.snapshots_of(seed), again.snapshots_of(seed), strict=False):
            np.testing.assert_array_equal(old.picture, new.picture)
            assert old.label == new.label


def test_large_pictures_are_kept_of_the_first_seeds_only(monkeypatch):
    monkeypatch.setattr(trainer, "MOST_PICTURE_BYTES", 27 * 64 * 8 * 2)
    assert trainer._pictures_kept(plan("hypergrid", seeds=5), np.zeros((5, 8, 8))) == 2
    assert trainer._pictures_kept(plan("hypergrid", seeds=5), np.zeros((5, 99, 99))) == 1


def test_a_conditional_sampler_that_misses_modes_is_named_with_its_condition():
    config = replace(DEFAULT, learner=replace(DEFAULT.learner, condition="beta"))
    metrics = {
        "modes": np.array([[4.0], [2.0]]),
        **{f"modes_beta_{at}": np.array([[4.0], [4.0]]) for at in ("0.5", "1.25")},
        **{f"tv_beta_{at}": np.array([[0.01], [0.02]]) for at in ("0.5", "1.25")},
        "modes_beta_2": np.array([[4.0], [2.0]]),
        "tv_beta_2": np.array([[0.03], [0.5]]),
    }
    (found,) = summaries.collapsed_in(config, metrics, [5, 6])
    assert str(found) == "seed 6 misses 2 of 4 modes at β = 2: total variation 0.50"
    assert summaries.label({name: values[:, 0] for name, values in metrics.items()}, 1) == "TV 0.020"
