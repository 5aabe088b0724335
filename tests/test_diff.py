"""`xladder diff`: the same run twice, runs that part, and directories that are not what they should be."""

import json
import shutil

import numpy as np
import pytest

import xladder
from tests.conftest import TINY, TINY_GRID
from xladder.cli.main import main
from xladder.plans import plan
from xladder.runs.directory import RunDirectory


def write(folder, seeds=2, ticks=5, learner=(), change=None, environment=None, name="return", rung=None, more=()):
    """A run with made-up metrics; `change` is a row (tick, seed) in which the loss is another."""
    directory = RunDirectory.create(folder, plan("treasurehunt", rung, config=TINY, seeds=seeds, learner=dict(learner)))
    columns = {name: np.arange(seeds * ticks, dtype=float).reshape(seeds, ticks), "loss": np.full((seeds, ticks), 0.5)}
    columns["loss"][:, 0] = np.nan
    columns |= {name: np.ones((seeds, ticks)) for name in more}
    if change:
        columns["loss"][change[1], change[0]] = 0.75
    directory.append(directory.plan.seeds, np.arange(1, ticks + 1), columns, elapsed=np.random.default_rng().random())
    directory.writer.close()
    if environment:
        (folder / "environment.json").write_text(json.dumps(environment))
    return str(folder)


@pytest.fixture
def first(tmp_path):
    return write(tmp_path / "first")


def diff(a, b, capsys, *more):
    code = main(["diff", str(a), str(b), *more])
    said = capsys.readouterr()
    return code, said.out, said.err


@pytest.mark.slow
def test_the_same_seed_gives_an_identical_run(tmp_path, capsys):
    for name in ("one", "again"):
        result = xladder.train("hypergrid", "parallel", config=TINY_GRID, iterations=3)
        RunDirectory.create(tmp_path / name, result.plan).write_metrics(result)
    assert diff(tmp_path / "one", tmp_path / "again", capsys)[:2] == (0, "identical in 3 rows of metrics\n")


def test_timings_are_not_compared(first, tmp_path, capsys):
    assert diff(first, write(tmp_path / "b"), capsys)[0] == 0


def test_the_first_tick_that_differs_is_shown_with_both_values(first, tmp_path, capsys):
    code, out, _ = diff(first, write(tmp_path / "b", change=(3, 1)), capsys)
    assert code == 1
    assert out == "the metrics first differ at epoch 3, seed 1:\n  loss  0.5 | 0.75\n"


def test_an_empty_cell_is_not_a_number(first, tmp_path, capsys):
    code, out, _ = diff(first, write(tmp_path / "b", change=(0, 0)), capsys)
    assert code == 1 and "epoch 0, seed 0:\n  loss  – | 0.75" in out


def test_a_run_that_ends_earlier_is_told_from_one_that_differs(first, tmp_path, capsys):
    code, out, _ = diff(first, write(tmp_path / "b", seeds=1, ticks=5), capsys)
    assert code == 1 and "agree where both runs have them, but 5 rows are in one run only" in out
    assert "seed 1 ends at epoch 4 in the first run and is missing in the second" in out
    assert "  seeds  2 | 1" in out


def test_settings_and_versions_are_shown_even_where_the_metrics_are_the_same(tmp_path, capsys):
    here = {"device": "cpu", "versions": {"jax": "0.10.2"}, "command": "xladder train", "note": "one"}
    there = {"device": "gpu", "versions": {"jax": "0.11.0"}, "command": "python", "note": "two", "time": 3}
    a = write(tmp_path / "a", environment=here)
    code, out, _ = diff(a, write(tmp_path / "b", learner={"lr": 0.5}, environment=there), capsys)
    assert code == 0 and out.startswith("identical in 10 rows")
    assert "  config.learner.lr  0.00025 | 0.5" in out
    assert "  device        cpu | gpu\n  versions.jax  0.10.2 | 0.11.0" in out
    assert "command" not in out and "note" not in out and "time" not in out


def test_json_says_the_same(first, tmp_path, capsys):
    code, out, err = diff(first, write(tmp_path / "b", change=(3, 1), learner={"lr": 0.5}), capsys, "--json", "-")
    found = json.loads(out)
    assert code == 1 and "differ at epoch 3" in err
    assert found["first_difference"] == {"epoch": 3, "seed": 1, "columns": {"loss": [0.5, 0.75]}}
    assert found["identical"] is False and found["config"] == {"config.learner.lr": [0.00025, 0.5]}


def test_runs_without_metrics_are_said_to_have_none(first, tmp_path, capsys):
    RunDirectory.create(tmp_path / "b", plan("treasurehunt", config=TINY))
    RunDirectory.create(tmp_path / "c", plan("treasurehunt", config=TINY))
    assert diff(tmp_path / "b", tmp_path / "c", capsys)[:2] == (0, "identical: neither has any metrics\n")
    assert diff(first, tmp_path / "b", capsys)[0] == 1


def test_what_is_no_run_directory_is_a_wrong_path(first, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "nowhere", tmp_path / "empty"):
        for pair in ((first, path), (path, first)):
            code, _, err = diff(*pair, capsys)
            assert code == 2 and "is not a run directory" in err


DAMAGE = {
    "letters": b"seed,epoch,loss\r\n0,zero,1\r\n",
    "no seeds": b"epoch,loss\r\n0,1\r\n",
    "cut short": b"seed,epoch,loss,return\r\n0,0,1\r\n",
    "too long": b"seed,epoch,loss\r\n0,0,1,2,3\r\n",
    "no text": bytes(range(256)),
    "quotes": b'seed,epoch,loss\r\n0,0,"1\r\n',
}


@pytest.mark.parametrize("content", DAMAGE.values(), ids=DAMAGE.keys())
def test_metrics_that_cannot_be_read_are_damage(content, first, tmp_path, capsys):
    shutil.copytree(first, tmp_path / "b")
    (tmp_path / "b" / "metrics.csv").write_bytes(content)
    code, _, err = diff(first, tmp_path / "b", capsys)
    assert code == 3 and "is not a valid table of metrics" in err and "Traceback" not in err


def test_columns_that_only_another_rung_has_are_named_and_not_compared(first, tmp_path, capsys):
    other = write(tmp_path / "other", rung="parallel", more=("lag",))
    code, out, _ = diff(first, other, capsys)
    assert code == 0 and "identical in 10 rows" in out and "in the second run only, not compared: lag" in out
    same = write(tmp_path / "same", more=("lag",))
    assert diff(first, same, capsys)[0] == 1  # on the same rung it is a difference


def test_a_damaged_environment_is_no_obstacle_and_nothing_commands_the_terminal(first, tmp_path, capsys):
    b = write(tmp_path / "b", environment={"device": "\x1b[2J"}, name="re\x1bturn")
    (tmp_path / "first" / "environment.json").write_text("{")
    code, out, _ = diff(first, b, capsys)
    assert code == 1 and "\x1b" not in out and "?[2J" in out
