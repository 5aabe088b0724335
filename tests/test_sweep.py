"""Sweeps: the space, the schedule, trials in one program, the winner's test, and going on after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tests.conftest import TINY, TINY_GRID
from tests.test_cli import call
from xladder.errors import UsageError
from xladder.plans import plan
from xladder.rungs import fused
from xladder.runs.listing import find_runs
from xladder.sweeps import running
from xladder.sweeps.population import shared_config, stack_hyperparams
from xladder.sweeps.schedule import Scores, Stage, exploit, generations, halving_stages
from xladder.sweeps.space import Choices, Range, draw_trials, parse_axis, with_values
from xladder.sweeps.sweep import describe_sweep, make_sweep, parse_sweep

CART = plan(
    "cartpole",
    steps=1200,
    learner={"hidden": (16,), "width": 16, "memory": 400, "learning_starts": 40, "batch_size": 8},
).config
GRID_WORDS = ["--world.dim", "2", "--world.side", "4", "--learner.batch-size", "16", "--learner.width", "32"]


# ---- the space -----------------------------------------------------------------------------------------------------


def test_lists_and_ranges():
    config = CART
    assert parse_axis(config, "learner.lr", "log:1e-4..1e-2") == Range("learner.lr", 1e-4, 1e-2, True)
    assert parse_axis(config, "learner.gamma", "0.9..0.99") == Range("learner.gamma", 0.9, 0.99)
    assert parse_axis(config, "learner.tau", "0.001,0.01") == Choices("learner.tau", (0.001, 0.01))
    assert parse_axis(config, "learner.batch_size", "16,32").values == (16, 32)
    assert parse_axis(config, "learner.batch_size", "8..64").whole
    assert parse_axis(config, "learner.double", "true,false").values == (True, False)
    assert parse_axis(config, "learner.head", "scalar,quantile").values == ("scalar", "quantile")
    assert parse_axis(config, "learner.lr", [1e-3, 1e-4]).values == (1e-3, 1e-4)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("learner.lr", "log:0..1", "both above 0"),
        ("learner.lr", "1e-2..1e-4", "smaller number to a larger"),
        ("learner.lr", "0.1,,0.2", "a sweep needs"),
        ("learner.lr", "0.1,0.1", "twice"),
        ("learner.lr", "0.1,fast", "type float"),
        ("learner.head", "1..2", "not a number"),
        ("learner.head", "scalar,round", "one of"),
        ("learner.lrr", "0.1,0.2", "Did you mean `learner.lr`"),
        ("learner", "0.1,0.2", "cannot be swept"),
        ("learner.hidden", "64,128", "cannot be swept"),
    ],
)
def test_bad_axes_are_named(name, text, said):
    with pytest.raises(UsageError, match=said):
        parse_axis(CART, name, text)


def test_trials_are_drawn_from_the_whole_space():
    axes = [Range("learner.lr", 1e-4, 1e-2, True), Choices("learner.tau", (0.1, 0.2, 0.3))]
    drawn = draw_trials(axes, 200, seed=1)
    rates = np.array([trial["learner.lr"] for trial in drawn])
    assert draw_trials(axes, 200, seed=1) == drawn != draw_trials(axes, 200, seed=2)
    assert 0.4 < np.mean(rates < 1e-3) < 0.6, "half of a logarithmic range is below its geometric mean"
    assert rates.min() >= 1e-4 and rates.max() <= 1e-2
    assert {trial["learner.tau"] for trial in drawn} == {0.1, 0.2, 0.3}


def test_lists_alone_make_a_grid():
    axes = [Choices("a", (1, 2)), Choices("b", (3, 4, 5))]
    assert len(draw_trials(axes, None, 0)) == len(draw_trials(axes, 64, 0)) == 6
    assert len(draw_trials(axes, 4, 0)) == 4
    with pytest.raises(UsageError, match="needs `--trials`"):
        draw_trials([Range("a", 0, 1)], None, 0)


# ---- the schedule --------------------------------------------------------------------------------------------------


def test_halving_by_hand():
    assert halving_stages(900, 27, 3) == [Stage(100, 27), Stage(300, 9), Stage(900, 3)]
    assert halving_stages(900, 9, 3) == [Stage(100, 9), Stage(300, 3), Stage(900, 1)]
    assert halving_stages(100, 64, 0) == [Stage(100, 64)]
    assert [stage.until for stage in halving_stages(1000, 9, 3, interval=100)] == [100, 300, 1000]


def test_generations_end_with_the_run():
    assert [stage.until for stage in generations(100, 8, 4)] == [25, 50, 75, 100]
    assert generations(100, 8, 4, interval=20)[-1].until == 100


def test_the_worst_quarter_copies_the_best():
    scores = Scores(np.array([[1.0], [8.0], [3.0], [4.0], [5.0], [6.0], [7.0], [np.nan]]))
    assert scores.order()[0] == 1 and scores.order()[-1] == 7
    assert exploit(scores) == [6, 1, 2, 3, 4, 5, 6, 1]


# ---- trials in one program -----------------------------------------------------------------------------------------

VALUES = {
    "cartpole": {
        "learner.lr": (1e-3, 3e-3),
        "learner.gamma": (0.9, 0.99),
        "learner.tau": (0.01, 0.1),
        "learner.clip": (0.1, 10.0),
        "learner.epsilon": (1.0, 0.5),
        "learner.epsilon_share": (0.2, 0.6),
    },
    "treasurehunt": {"learner.lr": (1e-3, 3e-3), "learner.epsilon": (1.0, 0.3), "learner.epsilon_decay": (0.1, 0.01)},
    "hypergrid": {"learner.lr": (1e-3, 1e-2), "learner.temperature": (1.0, 2.0), "learner.epsilon": (0.1, 0.3)},
}
BASES = {"cartpole": CART, "treasurehunt": TINY, "hypergrid": TINY_GRID}


@pytest.mark.slow
@pytest.mark.parametrize(
    "workload", [w if w == "hypergrid" else pytest.param(w, marks=pytest.mark.slow) for w in BASES]
)
def test_a_trial_in_a_sweep_gives_the_numbers_that_it_gives_alone(workload):
    base, ticks = BASES[workload], 20
    settings = [{name: pair[i] for name, pair in VALUES[workload].items()} for i in (0, 1)]
    configs = [with_values(base, values) for values in settings]
    assert shared_config(configs[0], base) == shared_config(configs[1], base)
    rows = [(config, seed) for config in configs for seed in (3, 4)]
    hyperparams = stack_hyperparams([config for config, _ in rows])
    swept = fused.start(shared_config(configs[0], base), [seed for _, seed in rows], hyperparams=hyperparams)
    together = swept.advance(ticks)
    for row, (config, seed) in enumerate(rows):
        alone = fused.start(config, [seed])
        for name, values in alone.advance(ticks).items():
            # To the bit as users compile; without optimisation, as in these tests, some sums round differently.
            np.testing.assert_allclose(together[name][row], values[0], rtol=2e-6, err_msg=f"{name} of row {row}")
    returns = together["returns" if "returns" in together else "reward"]
    assert not np.array_equal(np.nan_to_num(returns[0]), np.nan_to_num(returns[2])), "the settings made no difference"


def test_what_switches_something_off_is_another_program():
    off = with_values(CART, {"learner.tau": 0.0, "learner.target_update_period": 100})
    on = with_values(CART, {"learner.tau": 0.1, "learner.target_update_period": 100})
    like = with_values(CART, {"learner.tau": 0.2, "learner.target_update_period": 100})
    assert shared_config(on, like) == like != shared_config(off, like)


# ---- planning ------------------------------------------------------------------------------------------------------


def swept(space, workload="cartpole", rung="fused", **options):
    given = {"seeds": options.pop("seeds", 2), "config": BASES[workload]}
    return make_sweep(plan(workload, rung, **given), space, **options)


@pytest.mark.parametrize(
    ("space", "options", "said"),
    [
        ({}, {}, "needs a setting that varies"),
        ({"learner.lr": "1e-4,1e-3"}, {"halve": 3}, "there are 2"),
        ({"learner.lr": "1e-3"}, {"halve": 2}, "there is 1"),
        ({"learner.lr": "1e-4,1e-3"}, {"halve": 1}, "2 or more"),
        ({"learner.lr": "1e-4,1e-3"}, {"halve": 2, "pbt": True}, "two ways"),
        ({"learner.width": "8..200"}, {"trials": 20}, "fixed once a program is compiled"),
        ({"learner.width": "8,16,32,64"}, {"pbt": True}, "fixed once a program is compiled"),
        ({"learner.lr": "1e-4,1e-3"}, {"pbt": True}, "needs 4 trials"),
        ({"learner.lr": "-1,1e-3"}, {}, "learner.lr"),
        ({"learner.lr": "1e-4,1e-3"}, {"metric": "returns"}, "Did you mean `return`"),
        ({"steps": "800,1600"}, {}, "the length of training"),
        ({"learner.lr": "1e-4,1e-3"}, {"trials": 0}, "1 or more"),
        ({"learner.lr": "1e-4,1e-3"}, {"rung": "sequential"}, "one run at a time"),
    ],
)
def test_bad_sweeps_are_refused_before_anything_starts(space, options, said):
    with pytest.raises(UsageError, match=said):
        swept(space, **options)


def test_test_seeds_are_not_tuning_seeds_and_a_sweep_goes_through_json():
    sweep = swept({"learner.lr": "log:1e-4..1e-2", "learner.width": "8,16"}, trials=6, test_seeds=3)
    assert not set(sweep.test_seeds) & set(sweep.plan.seeds) and len(sweep.test_seeds) == 3
    assert parse_sweep(json.loads(json.dumps(describe_sweep(sweep))), "here") == sweep
    with pytest.raises(UsageError, match="not a sweep"):
        parse_sweep({"plan": {}}, "here")


def test_trials_are_rounded_up_to_their_own_ticks():
    space = {"learner.steps_per_update": [8, 56]}
    trials = swept(space).trials
    assert [trial.config.steps for trial in trials] == [1200, 1232]


def test_a_run_whose_episodes_outlast_the_last_tenth_has_a_score():
    sweep = swept({"learner.lr": "1e-4,1e-3"})
    returns = np.full((2, 100), np.nan)
    returns[0, 50], returns[1, 99] = 300.0, 20.0
    table = {"return": returns, "episodes": np.isfinite(returns).astype(int), "loss": np.ones((2, 100))}
    assert sweep.score(table).tolist() == [300.0, 20.0]
    table["loss"][0, -1] = np.nan
    assert np.isnan(sweep.score(table)[0])


# ---- the command ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def grid_sweep(tmp_path_factory):
    """A sweep of a small hypergrid with halving, finished."""
    out = tmp_path_factory.mktemp("sweep") / "s"
    words = [*GRID_WORDS, "--iterations", "240", "--learner.lr", "1e-30,0.01", "--halve", "2", "--seeds", "2"]
    assert call("sweep", "hypergrid", *words, "--out", str(out)) == 0
    return out


@pytest.mark.slow
def test_the_winner_is_found_tested_and_saved(grid_sweep):
    result = json.loads((grid_sweep / "result.json").read_text())
    assert result["best"]["learner.lr"] == 0.01, "a rate of nearly zero learns nothing"
    assert result["metric"] == "tv" and result["tuning_seeds"] == [0, 1] and result["test_seeds"] == [2, 3]
    assert 0 < result["test_score"]["tv"] < 1 and result["test_score"]["seeds"] == 2
    rows = (grid_sweep / "trials.csv").read_text().splitlines()
    assert [row.rsplit(",", 1)[1] for row in rows[1:]] == ["240", "120"], "one of two goes to the end"
    assert (grid_sweep / "media/sweep.png").stat().st_size > 10_000
    last = (grid_sweep / "best/metrics.csv").read_text().splitlines()[-1]
    assert float(last.rsplit(",", 1)[1]) > 0, "the seconds that it took"
    assert call("eval", str(grid_sweep / "best"), "--episodes", "10") == 0
    assert f"--learner.lr {result['best']['learner.lr']:g}" in result["command"]


@pytest.mark.slow
def test_a_finished_sweep_says_so(grid_sweep, capsys):
    assert call("resume", str(grid_sweep)) == 0
    assert "is complete" in capsys.readouterr().out
    assert call("resume", str(grid_sweep), "--rung", "mesh") == 2


@pytest.mark.slow
def test_a_sweep_is_one_row_of_the_list_and_its_winner_one_run(grid_sweep, capsys):
    assert call("runs", str(grid_sweep.parent), "--json", "-") == 0
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert row["name"] == "s" and row["state"] == "finished" and row["tags"] == ["sweep"]
    assert find_runs(grid_sweep.parent) == [grid_sweep / "best"]
    assert call("plot", str(grid_sweep.parent), "--out", str(grid_sweep.parent / "p.png")) == 0
    assert "2 seeds" in capsys.readouterr().out


@pytest.mark.slow
def test_a_sweep_that_is_killed_before_its_result_is_written_can_be_resumed(tmp_path, monkeypatch):
    words = [*GRID_WORDS, "--iterations", "240", "--learner.lr", "1e-30,0.01", "--halve", "2", "--seeds", "2"]
    write = running.write_json

    def ends(path, data):
        if path.name == "result.json":
            raise KeyboardInterrupt
        write(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(running, "write_json", ends)
        assert call("sweep", "hypergrid", *words, "--out", str(tmp_path / "s")) == 130
    assert call("resume", str(tmp_path / "s")) == 0
    assert (tmp_path / "s/result.json").exists() and not list((tmp_path / "s/legs").glob("*/checkpoints"))


@pytest.mark.slow
def test_a_killed_sweep_goes_on_as_if_nothing_had_been(tmp_path):
    words = ["sweep", "hypergrid", *GRID_WORDS, "--iterations", "600", "--seeds", "2", "--halve", "2"]
    words += ["--learner.lr", "log:1e-3..1e-1", "--trials", "4"]
    assert call(*words, "--out", str(tmp_path / "whole")) == 0
    process = subprocess.Popen(
        [sys.executable, "-m", "xladder", *words, "--out", str(tmp_path / "killed")], stdout=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while not (tmp_path / "killed/legs/001/metrics.csv").exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        os.kill(process.pid, signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert not (tmp_path / "killed/result.json").exists()
    assert call("resume", str(tmp_path / "killed")) == 0
    ours, theirs = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("whole", "killed"))
    assert ours | {"command": ""} == theirs | {"command": ""}
    assert (tmp_path / "whole/trials.csv").read_text() == (tmp_path / "killed/trials.csv").read_text()


@pytest.mark.slow
def test_trials_are_not_dropped_before_anything_is_learned(tmp_path, capsys):
    words = ["--learner.lr", "1e-4,1e-3", "--steps", "2000", "--learner.learning-starts", "1200", "--halve", "2"]
    assert call("sweep", "cartpole", *words, "--out", str(tmp_path / "s")) == 0
    assert "nothing has been learned yet" in capsys.readouterr().out
    rows = (tmp_path / "s/trials.csv").read_text().splitlines()
    assert [row.rsplit(",", 1)[1] for row in rows[1:]] == ["2000", "2000"]


@pytest.mark.slow
def test_trials_with_ticks_of_other_sizes_train_equally_long(tmp_path):
    words = ["--learner.lr", "1e-3", "--world.num-envs", "4,8", "--steps", "1600", "--learner.learning-starts", "400"]
    assert call("sweep", "cartpole", *words, "--out", str(tmp_path / "s")) == 0
    ends = [
        (leg / "metrics.csv").read_text().splitlines()[-1].split(",")[2] for leg in sorted(tmp_path.glob("s/legs/*"))
    ]
    assert ends[:2] == ["1600", "1600"], "environment steps"


@pytest.mark.slow
def test_a_population_changes_its_settings_while_it_trains(tmp_path):
    words = ["sweep", "hypergrid", *GRID_WORDS, "--iterations", "200", "--pbt", "--trials", "4"]
    assert call(*words, "--learner.lr", "log:1e-5..1e-1", "--out", str(tmp_path / "p")) == 0
    drawn = [trial["learner.lr"] for trial in json.loads((tmp_path / "p/sweep.json").read_text())["trials"]]
    final = [float(row.split(",")[1]) for row in (tmp_path / "p/trials.csv").read_text().splitlines()[1:]]
    assert len(final) == 4 and set(final) != set(drawn)
    assert all(1e-5 <= rate <= 1e-1 for rate in final)


@pytest.mark.slow
def test_static_settings_make_groups_and_a_mesh_makes_the_same_numbers(tmp_path):
    words = ["sweep", "hypergrid", *GRID_WORDS, "--iterations", "60", "--seeds", "2", "--learner.layers", "1,2"]
    words += ["--learner.lr", "0.001,0.01"]
    for name, more in (("one", []), ("mesh", ["--mesh", "seeds=2"])):
        assert call(*words, *more, "--out", str(tmp_path / name)) == 0
    ours, theirs = (json.loads((tmp_path / name / "result.json").read_text()) for name in ("one", "mesh"))
    assert ours["best"] == theirs["best"] and ours["tuning_score"] == pytest.approx(theirs["tuning_score"], rel=1e-3)
    assert len((tmp_path / "one/trials.csv").read_text().splitlines()) == 5


def test_bad_commands_end_with_a_sentence(capsys, tmp_path):
    assert call("sweep", "cartpole", "--out", str(tmp_path / "x")) == 2
    assert "needs a setting that varies" in capsys.readouterr().err
    assert call("sweep", "cartpole", "--learner.lr", "log:1e-4..1e-2", "--out", str(tmp_path / "x")) == 2
    assert "needs `--trials`" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_a_sweep_from_python(tmp_path):
    import xladder

    outcome = xladder.sweep(
        "hypergrid",
        {"learner.lr": [1e-30, 0.01]},
        out=tmp_path / "s",
        iterations=120,
        world={"dim": 2, "side": 4},
        learner={"batch_size": 16, "width": 32},
        progress=False,
    )
    assert outcome.best == {"learner.lr": 0.01} and len(outcome.trials) == 2
    assert outcome.test_score["tv"] < outcome.trials[1]["tv"]
