"""`xladder plot`: which runs are a group, what is drawn of them, and folders that are not what they should be."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from tests.conftest import TINY, TINY_GRID
from tests.test_runs_list import HOSTILE, said
from xladder.cli.main import main
from xladder.core.statistics import mean_and_interval
from xladder.pictures.overlay import MOST_GROUPS
from xladder.plans import plan
from xladder.runs.directory import RunDirectory
from xladder.runs.groups import collect, group_runs
from xladder.runs.locks import Lock
from xladder.runs.overlays import elapsed, read_overlay
from xladder.runs.scores import compare_groups, seed_scores


def write_run(folder, values, seed=0, lr=0.1, columns=None, evaluation=None, settings=(), steps=10, **config):
    """A run directory with these returns [S, T]; `columns` are others."""
    values = np.atleast_2d(np.asarray(values, float))
    columns = {"return": values, **(columns or {})}
    folder.mkdir(parents=True)
    data = {"workload": "cartpole", "rung": "fused", "seed": seed, "seeds": len(values), "run": {"keep": 2}}
    data["config"] = {"learner": {"lr": lr, "double": True}, "steps": values.shape[1] * steps, **dict(settings)}
    (folder / "config.json").write_text(json.dumps(data | config))
    lines = [",".join(["seed", "tick", "steps", *columns, "seconds"])]
    for t in range(values.shape[1]):
        for s in range(len(values)):
            cells = [
                "" if np.isnan(v := column[s][t]) else f"{v:.8g}" for column in map(np.atleast_2d, columns.values())
            ]
            lines.append(",".join([str(seed + s), str(t), str((t + 1) * steps), *cells, f"{(t + 1) / 2:.3f}"]))
    (folder / "metrics.csv").write_text("\r\n".join(lines) + "\r\n")
    (folder / "lock").write_text("")
    (folder / "finished.json").write_text("{}")
    if evaluation:
        (folder / "timings.json").write_text(json.dumps({"evaluation": evaluation}))
    return folder


def plot(paths, tmp_path, capsys, *more):
    """The JSON of a plot, and what was said on standard error; the picture has to be one."""
    picture = tmp_path / "plot.png"
    code, out, err = said(["plot", *paths, "--out", picture, "--json", "-", *more], capsys)
    assert code == 0, err
    with Image.open(picture) as image:
        assert image.width == 1600 and len(set(image.convert("L").resize((200, 100)).tobytes())) > 10
    return json.loads(out), err


def refused(words, capsys):
    code, out, err = said(["plot", *words], capsys)
    assert code == 2 and not out and err.startswith("xladder: ") and err.count("\n") == 1, err
    return err


@pytest.mark.parametrize("flag", ["--json", "--out"])
def test_what_cannot_be_written_is_said_before_anything_is_drawn(flag, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    write_run(tmp_path / "run", [1.0, 2.0])
    assert "`file/drawn.png` cannot be written: Not a directory." in refused(["run", flag, "file/drawn.png"], capsys)
    assert not (tmp_path / "plot.png").exists()


# Groups


def test_runs_that_differ_only_in_seed_are_a_group_with_mean_and_interval(tmp_path, capsys):
    rng = np.random.default_rng(0)
    values = {lr: rng.normal(100 * lr, 1, (5, 20)) for lr in (0.1, 0.2)}
    for lr, every in values.items():
        for seed, row in enumerate(every):
            write_run(tmp_path / "runs" / f"{lr}-{seed}", row, seed, lr)
    found, err = plot([tmp_path / "runs"], tmp_path, capsys)
    assert not err.replace("picture", "").startswith("xladder:")
    assert [group["label"] for group in found["groups"]] == ["lr 0.1", "lr 0.2"]
    for group, every in zip(found["groups"], values.values(), strict=True):
        mean, half_width = mean_and_interval(every)
        assert group["x"] == list(range(10, 201, 10)) and [line["seed"] for line in group["lines"]] == [0, 1, 2, 3, 4]
        np.testing.assert_allclose(group["mean"], mean, rtol=1e-6)
        np.testing.assert_allclose(np.subtract(group["high"], group["low"]), 2 * half_width, rtol=1e-5)


def test_seeds_of_one_run_and_of_several_runs_are_the_same_thing(tmp_path, capsys):
    write_run(tmp_path / "a", np.arange(12).reshape(3, 4))
    write_run(tmp_path / "b", np.arange(12, 16), seed=3)
    found, _ = plot([tmp_path / "a", tmp_path / "b"], tmp_path, capsys)
    (group,) = found["groups"]
    assert group["mean"] == [6, 7, 8, 9] and len(group["lines"]) == 4


def test_below_four_seeds_there_are_single_lines(tmp_path, capsys):
    write_run(tmp_path / "a", [[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    found, _ = plot([tmp_path / "a"], tmp_path, capsys)
    (group,) = found["groups"]
    assert "mean" not in group and [line["y"] for line in group["lines"]] == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_the_same_seed_twice_is_not_another_sample(tmp_path, capsys):
    write_run(tmp_path / "short", [1, 2])
    write_run(tmp_path / "long", [1, 2, 3], settings={"steps": 20})
    both = [tmp_path / "short", tmp_path / "long"]
    for paths in (both, both[::-1]):
        found, err = plot(paths, tmp_path, capsys)
        (group,) = found["groups"]
        assert [line["y"] for line in group["lines"]] == [[1, 2, 3]] and "Seed 0 is in" in err


def test_groups_are_labelled_by_what_differs(tmp_path):
    write_run(tmp_path / "a", [1, 2], lr=0.1)
    write_run(tmp_path / "b", [1, 2], lr=0.1, rung="torch", options={"threads": 3})
    write_run(tmp_path / "c", [1, 2], lr=0.05, settings={"world": {"lr": [1, 2]}})
    groups = group_runs(collect([tmp_path]).runs)
    assert [group.label for group in groups] == [
        "fused, learner.lr 0.05, world.lr 1+2",
        "fused, learner.lr 0.1, world.lr –",
        "torch, learner.lr 0.1, world.lr –",
    ]


def test_by_groups_by_the_value_of_a_field(tmp_path, capsys):
    for i, (lr, double) in enumerate([(0.1, True), (0.1, False), (0.02, True), (0.02, False)]):
        settings = {"learner": {"lr": lr, "double": double}}
        write_run(tmp_path / str(i), [i, i], settings=settings, run={"tags": ["x"] * (i % 2)})
    for name in ("learner.lr", "config.learner.lr", "--learner.lr"):
        groups = group_runs(collect([tmp_path]).runs, [name])
        assert [(group.label, len(group.runs)) for group in groups] == [("lr 0.02", 2), ("lr 0.1", 2)]
    _, err = plot([tmp_path], tmp_path / "out", capsys, "--by", "learner.lr")
    assert "Runs of a group also differ in learner.double." in err
    found, _ = plot([tmp_path], tmp_path / "out", capsys, "--by", "learner.double,tags")
    assert [group["label"] for group in found["groups"]] == ["double false, tags x", "double true, tags none"]


# Axes and values


def test_means_are_weighted_by_episodes(tmp_path):
    """In the middle of the run a hundred episodes return 1 and, in another tick, a single one 1000."""
    returns, episodes = np.ones(200), np.full(200, 100.0)
    returns[100], episodes[100] = 1000, 1
    write_run(tmp_path / "a", returns, columns={"episodes": episodes})
    curve = read_overlay(group_runs(collect([tmp_path]).runs), "steps", "return").curves[0]
    # A window of four ticks holds 301 episodes, 300 of which return 1; without weights it would be 250.
    assert np.nanmax(curve.lines) == pytest.approx((300 + 1000) / 301)


def test_the_last_tenth_is_that_of_the_run_whatever_is_drawn(tmp_path, capsys):
    """As `train` and `report` say it: over ticks, weighted by episodes, neither smoothed nor interpolated."""
    rng = np.random.default_rng(0)
    returns, episodes = rng.normal(10, 3, (4, 200)), rng.integers(1, 9, (4, 200)).astype(float)
    write_run(tmp_path / "a", returns, columns={"episodes": episodes})
    late = np.average(returns[:, 180:], axis=1, weights=episodes[:, 180:])
    half_width = 3.182446 * late.std(ddof=1) / 2  # Student's t with three degrees of freedom
    for x in ("steps", "seconds"):
        _, err = plot([tmp_path], tmp_path / "out", capsys, "--x", x)
        assert f"{late.mean():.4g} ± {half_width:.3g} over the last tenth" in err


def test_rare_measurements_are_drawn_as_they_are(tmp_path):
    measured = np.full(300, np.nan)
    measured[::50] = [1, 5, 2, 8, 3, 9]
    write_run(tmp_path / "a", np.zeros(300), columns={"eval_return": measured})
    found = read_overlay(group_runs(collect([tmp_path]).runs), "steps", "eval_return")
    assert found.curves[0].lines.tolist() == [[1, 5, 2, 8, 3, 9]] and not found.smoothed
    assert found.curves[0].x.tolist() == [10, 510, 1010, 1510, 2010, 2510]


def test_seconds_are_of_each_seed_and_spread_over_its_chunks():
    at_once = np.array([[2.0, 2, 4, 4], [2, 2, 4, 4]])
    np.testing.assert_allclose(elapsed(at_once), [[1, 2, 3, 4]] * 2)
    one_after_another = np.array([[2.0, 2, 4, 4], [7, 7, 8, np.nan]])
    np.testing.assert_allclose(elapsed(one_after_another), [[1, 2, 3, 4], [1.5, 3, 4, np.nan]])


def test_x_axes(tmp_path, capsys):
    write_run(tmp_path / "atari", [1, 2, 3], workload="atari/pong", settings={"frames": 120})
    write_run(tmp_path / "flow", [1, 2, 3], workload="hypergrid", settings={"iterations": 3}, steps=1)
    assert plot([tmp_path / "atari"], tmp_path, capsys, "--x", "frames")[0]["groups"][0]["x"] == [40, 80, 120]
    assert plot([tmp_path / "atari"], tmp_path, capsys, "--x", "seconds")[0]["groups"][0]["x"] == [0.5, 1, 1.5]
    found = plot([tmp_path / "flow"], tmp_path, capsys)[0]
    assert found["x"] == "iterations" and found["groups"][0]["x"] == [1, 2, 3]
    assert "`hypergrid` has none: use steps" in refused([tmp_path / "flow", "--x", "frames"], capsys)


def test_a_mean_ends_where_too_few_seeds_are_left(tmp_path):
    for seed in range(5):
        write_run(tmp_path / str(seed), np.full(10 - 3 * (seed > 2), seed), seed, settings={"steps": 1})
    curve = read_overlay(group_runs(collect([tmp_path]).runs), "steps", "return").curves[0]
    mean, _ = curve.mean_and_interval()
    assert np.isfinite(mean).tolist() == [True] * 7 + [False] * 3


# Scores


def scored(folder, world, scores, lr, random=0.0, **more):
    evaluation = {"mean_return": float(np.mean(scores)), "per_seed": list(scores), "random_return": random}
    return write_run(folder, np.ones((len(scores), 2)), lr=lr, workload=world, evaluation=evaluation, **more)


def test_scores_over_several_worlds_on_a_common_scale(tmp_path, capsys):
    scored(tmp_path / "a1", "acrobot", [-400.0, -300], 0.1, random=-500)
    scored(tmp_path / "a2", "acrobot", [-100.0, -300], 0.2, random=-500)
    scored(tmp_path / "p1", "atari/pong", [-20.7, -3.05], 0.1, random=-21)
    scored(tmp_path / "p2", "atari/pong", [14.6, 14.6], 0.2, random=-21)
    found, err = plot([tmp_path], tmp_path / "out", capsys, "--scores")
    assert "left out" not in err and "lr 0.2 beats lr 0.1 with probability 0.94" in err
    low, high = found["groups"]
    assert [low["label"], high["label"]] == ["lr 0.1", "lr 0.2"]
    # The best of acrobot is −100 and random play −500; a human at Pong scores 14.6 and random play −20.7.
    np.testing.assert_allclose(low["scores"]["acrobot"], [0.25, 0.5])
    np.testing.assert_allclose(low["scores"]["atari/pong"], [0, 0.5], atol=1e-9)
    np.testing.assert_allclose(high["scores"]["acrobot"], [1, 0.5])
    # Of four scores the middle two: 0.25 and 0.5, and 1 and 1.
    assert low["iqm"]["value"] == pytest.approx(0.375) and high["iqm"]["value"] == pytest.approx(1)
    (pair,) = found["probability_of_improvement"]
    assert pair["value"] == pytest.approx((3.5 / 4 + 1) / 2) and pair["low"] <= pair["value"] <= pair["high"]


def test_where_no_run_beats_random_play_the_worst_is_minus_one_for_all_groups(tmp_path, capsys):
    scored(tmp_path / "a", "cartpole", [10.0, 14.0], 0.1, random=20)
    scored(tmp_path / "b", "cartpole", [18.0, 20.0], 0.2, random=20)
    found, err = plot([tmp_path], tmp_path / "out", capsys, "--scores")
    assert "−1 the worst run, where none beats it, (cartpole)" in err and "1 the best" not in err.replace("−1", "")
    np.testing.assert_allclose([group["scores"]["cartpole"] for group in found["groups"]], [[-1, -0.6], [-0.2, 0]])


def test_gflownets_are_not_scored_by_reward(tmp_path, capsys):
    scored(tmp_path / "a", "hypergrid", [1.0, 2], 0.1, settings={"iterations": 5})
    assert "draw `--y tv` instead" in refused([tmp_path, "--scores", "--out", tmp_path / "x.png"], capsys)


def test_worlds_that_not_every_group_has_are_left_out(tmp_path, capsys):
    for lr in (0.1, 0.2):
        scored(tmp_path / f"a{lr}", "acrobot", [1.0, 2], lr)
    scored(tmp_path / "c", "cartpole", [5.0], 0.1)
    write_run(tmp_path / "none", [[1, 2], [3, 4]], workload="acrobot", lr=0.3)
    found, err = plot([tmp_path], tmp_path / "out", capsys, "--scores", "--by", "learner.lr")
    assert list(found["scales"]) == ["acrobot"] and len(found["groups"]) == 2
    assert "cartpole is left out: lr 0.2 has no scores in it." in err
    assert "none is skipped: no evaluation tells its seeds apart." in err and "lr 0.3 is left out" in err


def test_the_score_of_a_seed_is_that_of_the_last_evaluation(tmp_path):
    evaluated = np.array([[1, np.nan, 3], [4, 5, np.nan]])
    write_run(tmp_path / "a", np.zeros((2, 3)), columns={"eval_return": evaluated}, evaluation={"mean_return": 9.0})
    (run,) = collect([tmp_path]).runs
    assert seed_scores(run) == {0: 3, 1: 5}
    write_run(tmp_path / "b", [0, 0], seed=7, evaluation={"mean_return": 9.0})
    assert seed_scores(collect([tmp_path / "b"]).runs[0]) == {7: 9}


def test_without_random_play_there_is_no_scale(tmp_path, capsys):
    write_run(tmp_path / "a", [1, 2], evaluation={"mean_return": 9.0})
    assert "has a score of random play" in refused([tmp_path, "--scores", "--out", tmp_path / "x.png"], capsys)
    with pytest.raises(Exception, match="random play"):
        compare_groups(group_runs(collect([tmp_path]).runs))


# Bad input


def test_bad_input_ends_with_a_sentence(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "runs/a", [1, 2])
    write_run(tmp_path / "runs/b", [1, 2], workload="acrobot")
    (tmp_path / "empty").mkdir()
    one = "runs/a"
    assert "needs runs" in refused([], capsys)
    assert "There is no folder `nothing`" in refused(["nothing"], capsys)
    assert "There are no runs in `empty`" in refused(["empty"], capsys)
    assert "runs of 2 workloads (acrobot, cartpole)" in refused(["runs"], capsys)
    assert "Did you mean `learner.lr`?" in refused([one, "--by", "learner.lrr"], capsys)
    assert "There is no column `retrun`. Did you mean `return`?" in refused([one, "--y", "retrun"], capsys)
    assert "`cartpole` has none" in refused([one, "--x", "frames"], capsys)
    assert "has to end in .png" in refused([one, "--out", "plot.txt"], capsys)
    assert "cannot be written" in refused([one, "--out", "runs/a/config.json/x.png"], capsys)
    write_run(tmp_path / "blank", [np.nan, np.nan])
    assert "`return` has no values yet" in refused(["blank"], capsys)
    assert not list(tmp_path.glob("*.png"))


def test_too_many_groups_are_refused(tmp_path, capsys):
    for i in range(MOST_GROUPS + 1):
        write_run(tmp_path / str(i), [1, 2], lr=i)
    assert f"There are {MOST_GROUPS + 1} groups" in refused([tmp_path], capsys)


def test_damaged_runs_are_skipped_with_a_line(tmp_path, capsys):
    write_run(tmp_path / "good", [1, 2])
    (write_run(tmp_path / "config", [1, 2]) / "config.json").write_text("{")
    table = write_run(tmp_path / "table", [1, 2]) / "metrics.csv"
    table.write_text(table.read_text().replace("0,0,10", "0,zero,10"))
    (write_run(tmp_path / "new", [1, 2]) / "metrics.csv").unlink()
    found, err = plot([tmp_path], tmp_path / "out", capsys)
    assert [line["run"] for group in found["groups"] for line in group["lines"]] == [str(tmp_path / "good")]
    assert "config is skipped: config.json is not valid JSON." in err
    assert (
        "table is skipped: " in err and "not a valid table" in err and "new is skipped: it has no metrics yet." in err
    )
    assert "No run can be used" in refused([tmp_path / "config"], capsys)


def test_seeds_that_the_config_does_not_have_are_not_counted(tmp_path, capsys):
    write_run(tmp_path / "a", np.ones((3, 5)))
    bad = write_run(tmp_path / "b", np.ones((3, 5)), lr=0.2)
    (bad / "metrics.csv").write_text((bad / "metrics.csv").read_text().replace("\n2,", "\n-2,"))
    found, err = plot([tmp_path], tmp_path / "out", capsys)
    assert len(found["groups"]) == 1 and "seeds that config.json does not have" in err


def test_a_run_that_is_being_written_shows_what_is_there(tmp_path, capsys):
    run = write_run(tmp_path / "a", [1, 2, 3])
    (run / "finished.json").unlink()
    lock = Lock(run / "lock")
    with (run / "metrics.csv").open("a") as file:
        file.write("0,3,4")
    found, _ = plot([run], tmp_path, capsys)
    assert found["groups"][0]["lines"][0]["y"] == [1, 2, 3]
    lock.release()


def test_a_hostile_run_is_only_text_and_nothing_outside_is_read(tmp_path, capsys):
    outside = write_run(tmp_path / "outside", [111, 222])
    hostile = write_run(tmp_path / "runs" / HOSTILE.replace("/", "|"), [1, 2], workload=f"$x^{HOSTILE}$")
    config = json.loads((hostile / "config.json").read_text())
    config["config"][f"_{HOSTILE}$\\frac"] = f"${HOSTILE}漢"
    (hostile / "config.json").write_text(json.dumps(config))
    other = write_run(tmp_path / "runs/other", [1, 2], workload=f"$x^{HOSTILE}$")
    shutil.copytree(hostile, f"{hostile}-again")
    found, err = plot([tmp_path / "runs"], tmp_path, capsys)
    assert len(found["groups"]) == 2 and "Seed 0 is in" in err and not set(err) & {"\x1b", "\x9b"}
    shutil.rmtree(f"{hostile}-again")
    assert not set(refused([tmp_path / "runs", "--by", "nothing"], capsys)) & {"\x1b", "\x9b"}
    (other / "metrics.csv").unlink()
    (other / "metrics.csv").symlink_to(outside / "metrics.csv")
    (tmp_path / "runs/link").symlink_to(outside)
    (hostile / "metrics.csv").unlink()
    os.mkfifo(hostile / "metrics.csv")
    assert "No run can be used" in refused([tmp_path / "runs"], capsys)


def test_a_table_with_few_rows_cannot_claim_much_memory(tmp_path, capsys):
    """A thousand seeds with a row each, and a tick of a million: a grid of all of them would be 8 GB."""
    run = write_run(tmp_path / "a", [1, 2])
    rows = [f"{seed},{0 if seed else 19_999},1,1,1" for seed in range(20_000)]
    (run / "metrics.csv").write_text("seed,tick,steps,return,seconds\n" + "\n".join(rows) + "\n")
    assert "ticks are missing" in refused([run], capsys)


# Time


@pytest.mark.slow
def test_a_million_rows_are_drawn_quickly(tmp_path):
    """Most of it is reading. Measured in time of the processor, twice that of an idle core."""
    run = write_run(tmp_path / "a", [1, 2])
    ticks = np.arange(1_000_000)
    values = np.sin(ticks / 1e5) + np.random.default_rng(0).normal(0, 1, len(ticks))
    rows = "\r\n".join(
        f"0,{t},{t + 1},{v:.7g},1,{t / 1e4:.3f}" for t, v in zip(ticks.tolist(), values.tolist(), strict=True)
    )
    (run / "metrics.csv").write_text("seed,tick,steps,return,episodes,seconds\r\n" + rows + "\r\n")
    script = (
        "import sys, time; from xladder.cli.main import main\n"
        f"code = main(['plot', {str(run)!r}, '--out', {str(tmp_path / 'plot.png')!r}])\n"
        "print(code, time.process_time(), {'jax', 'torch', 'flax'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    code, seconds, heavy = done.stdout.splitlines()[-1].split(maxsplit=2)
    assert code == "0" and heavy == "set()" and (tmp_path / "plot.png").stat().st_size > 10_000
    assert float(seconds) < 10


# Another command about several runs


def test_diff_of_two_workloads_is_refused(tmp_path, capsys):
    RunDirectory.create(tmp_path / "a", plan("treasurehunt", config=TINY))
    RunDirectory.create(tmp_path / "b", plan("hypergrid", config=TINY_GRID))
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert "is a run of `treasurehunt` and" in capsys.readouterr().err
