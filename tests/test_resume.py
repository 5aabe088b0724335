"""A run that was stopped goes on as if nothing had happened: the same numbers, bit by bit, on the same machine."""

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import xladder
from tests.conftest import TINY, TINY_ATARI, TINY_CART, TINY_GRID, TINY_GYM, assert_trees_close
from xladder.cli.main import main
from xladder.core.state import Stateful, capture, restore
from xladder.errors import DamagedRun, UsageError
from xladder.plans import plan
from xladder.registry import RUNGS, RungOptions
from xladder.runs import resuming
from xladder.runs.checkpoints import Checkpoint, Checkpoints
from xladder.runs.directory import Keeping, RunDirectory
from xladder.runs.locks import Lock
from xladder.runs.metrics import MetricsWriter
from xladder.worlds import atari_host


def slow(*values):
    """A parameter of `make test-all` only."""
    return pytest.param(*values, marks=pytest.mark.slow)


REPLAYED = replace(TINY_GRID, learner=replace(TINY_GRID.learner, replay="prioritised"))
RATED = replace(TINY_CART, learner=replace(TINY_CART.learner, prioritised=True, n_step=3))
SHORT_GAMES = replace(TINY_ATARI, frames=4 * 2 * 200, world=replace(TINY_ATARI.world, cap_frames=120))
RUNS = {
    "treasurehunt": (TINY, 4),
    "hypergrid": (REPLAYED, 6),
    "cartpole": (RATED, 20),
}


def start(config, rung):
    return RUNGS[rung].start(config, [0], jax.devices("cpu")[0])


def saved(running):
    """The state as a checkpoint gives it back."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder) / "checkpoints", {})
        checkpoints.save(Checkpoint(0, capture(running.state()), {}))
        return checkpoints.load(0).arrays


def resumed(config, rung, arrays):
    running = start(config, rung)
    running.take_state(restore(running.state(), arrays))
    return running


def assert_exact(config, rung, ticks):
    whole = start(config, rung)
    halves = whole.advance(ticks), whole.advance(ticks)
    first = start(config, rung)
    first.advance(ticks)
    second = resumed(config, rung, saved(first))
    for name, values in second.advance(ticks).items():
        np.testing.assert_array_equal(values, halves[1][name], err_msg=name)
    ours, theirs = saved(second), saved(whole)
    assert set(ours) == set(theirs)
    for name, array in theirs.items():
        np.testing.assert_array_equal(ours[name], array, err_msg=name)


@pytest.mark.parametrize(
    ("workload", "rung"),
    [
        slow(w, r)
        if r in ("compiled", "hybrid", "parallel")
        or (w, r)
        in (
            ("hypergrid", "fused"),
            ("treasurehunt", "fused"),
            ("treasurehunt", "sequential"),
            ("hypergrid", "sequential"),
        )
        else (w, r)
        for w in RUNS
        for r in ("torch", "compiled", "hybrid", "sequential", "parallel", "fused")
    ],
)
def test_half_and_half_is_the_whole(workload, rung):
    assert_exact(*RUNS[workload][:1], rung, RUNS[workload][1])


@pytest.mark.parametrize("rung", [slow("torch"), slow("sequential"), slow("parallel")])
def test_atari_games_are_played_again_up_to_where_they_were(rung, monkeypatch):
    monkeypatch.setattr(atari_host, "ACTION_LOG_STEPS", 10)
    assert_exact(SHORT_GAMES, rung, 40)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"), [("sequential", "fused"), slow("fused", "sequential"), slow("parallel", "fused")]
)
@pytest.mark.parametrize("workload", RUNS)
def test_another_rung_may_take_over(workload, before, after):
    config, ticks = RUNS[workload]
    whole = start(config, before)
    whole.advance(ticks)
    expected = whole.advance(ticks)
    first = start(config, before)
    first.advance(ticks)
    second = resumed(config, after, saved(first))
    for name, values in second.advance(ticks).items():
        np.testing.assert_allclose(values, expected[name], rtol=0, atol=1e-5, err_msg=name)
    assert_trees_close(second.params(), whole.params(), 1e-5)


@pytest.mark.slow
def test_games_that_cannot_be_carried_begin_anew():
    first = start(TINY_GYM, "sequential")
    first.advance(8)
    arrays = saved(first)
    second = resumed(TINY_GYM, "sequential", arrays)
    assert second.loop.tick == 8 and second.loop.games.is_first.all()
    assert not [name for name in arrays if "seen" in name]
    second.advance(4)
    rows = second.loop.memories[0].history.rows
    assert rows.is_first[:, 8 * TINY_GYM.steps_per_tick].all()  # so nothing is learned across the gap


@pytest.mark.slow
def test_a_state_that_does_not_fit_is_refused():
    running = start(TINY_GRID, "sequential")
    arrays = saved(running)
    name = next(name for name in arrays if "kernel" in name)
    for wrong in (arrays[name][..., :-1], arrays[name].astype(np.float64), None):
        bad = {k: v for k, v in (arrays | {name: wrong}).items() if v is not None}
        with pytest.raises(DamagedRun, match="does not fit this run"):
            restore(running.state(), bad)


def test_generators_and_objects_are_part_of_a_state():
    class Dice(Stateful):
        STATE = ("rng", "thrown")

        def __init__(self):
            self.rng, self.thrown = np.random.default_rng(1), 0

        def throw(self):
            self.thrown += 1
            return self.rng.random(3, dtype=np.float32)  # leaves half a word behind

    one, other = Dice(), Dice()
    one.throw()
    restore({"dice": other}, capture({"dice": one}))
    assert other.thrown == 1
    np.testing.assert_array_equal(one.throw(), other.throw())


# Whole runs, as a user has them.


def once(*words: str) -> list[str]:
    """Flags with their values, each as it is given last."""
    return [word for pair in dict(zip(words[::2], words[1::2], strict=True)).items() for word in pair]


LIVES = {
    "treasurehunt": ["--epochs", "400", "--checkpoint-every", "20", "--world.num-agents", "2", "--world.height", "7",
                     "--world.width", "7", "--world.max-turns", "10", "--learner.width", "16", "--learner.batch-size",
                     "8", "--learner.quantiles", "4", "--learner.act-quantiles", "4", "--learner.cosines", "8"],
    "hypergrid": ["--iterations", "3000", "--checkpoint-every", "150", "--world.dim", "2", "--world.side", "6",
                  "--learner.width", "16", "--evaluate-every", "500"],
    "cartpole": ["--steps", "24000", "--checkpoint-every", "150", "--learner.memory", "2000",
                 "--learner.learning-starts", "400", "--evaluate-every", "8000", "--evaluate-episodes", "2"],
}  # fmt: skip


def command(*words):
    return [sys.executable, "-m", "xladder.cli.main", *words]


def what_came_of(folder):
    """The digest of the last state, and the metrics without the clock."""
    newest = sorted((folder / "checkpoints").glob("tick-?????????"))[-1]
    rows = list(csv.reader((folder / "metrics.csv").open(newline="")))
    return json.loads((newest / "manifest.json").read_text())["digest"], [row[:-1] for row in rows]


def kill_later(words, folder, rng):
    """Start a process and kill it at a random moment after its next checkpoint; None if it was quicker."""
    known = len(list((folder / "checkpoints").glob("tick-*")))
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        newest = max((folder / "checkpoints").glob("tick-*"), default=None)
        while process.poll() is None and max((folder / "checkpoints").glob("tick-*"), default=None) == newest:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.5))
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode in (0, -signal.SIGKILL), (known, said)
    return process.returncode


@pytest.mark.slow
@pytest.mark.parametrize("workload", LIVES)
def test_killed_twice_and_taken_up_again_is_the_same_run(workload, tmp_path, capsys):
    rng = random.Random(workload)
    words = ["train", workload, *LIVES[workload], "--eval-episodes", "0"]
    assert main([*words, "--out", str(tmp_path / "whole")]) == 0
    cut = tmp_path / "cut"
    kill_later(command(*words, "--out", str(cut)), cut, rng)
    kill_later(command("resume", str(cut)), cut, rng)
    assert main(["resume", str(cut)]) == 0
    digest, rows = what_came_of(cut)
    expected, expected_rows = what_came_of(tmp_path / "whole")
    assert rows == expected_rows
    assert digest == expected
    assert (cut / "media/curves.png").exists()
    capsys.readouterr()
    assert main(["resume", str(cut)]) == 0
    assert "is complete" in capsys.readouterr().out


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run that SIGTERM has ended, and what it said."""
    folder = tmp_path_factory.mktemp("stopped") / "run"
    words = [
        "train",
        "hypergrid",
        *once(*LIVES["hypergrid"], "--iterations", "1000000", "--ticks-per-row", "1", "--out", str(folder)),
    ]
    process = subprocess.Popen(command(*words), stdout=subprocess.PIPE, text=True)
    try:
        while not (folder / "metrics.csv").exists():
            assert process.poll() is None
            time.sleep(0.05)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143 and time.monotonic() - begun < 10
    return folder, said


@pytest.mark.slow
def test_a_signal_saves_and_says_how_to_go_on(stopped):
    folder, said = stopped
    assert f"xladder resume {folder}" in said
    done = json.loads((sorted((folder / "checkpoints").glob("tick-*"))[-1] / "manifest.json").read_text())["facts"]
    rows = list(csv.DictReader((folder / "metrics.csv").open(newline="")))
    assert [int(row["iteration"]) for row in rows] == list(range(done["done"]))


@pytest.mark.slow
def test_two_processes_do_not_share_a_run(stopped, capsys):
    lock = Lock(stopped[0] / "lock")
    assert main(["resume", str(stopped[0])]) == 2
    assert f"in use by process {os.getpid()}" in capsys.readouterr().err
    lock.release()
    Lock(stopped[0] / "lock").release()  # a lock that nobody holds is taken over


@pytest.mark.slow
@pytest.mark.parametrize(("rung", "reason"), [("torch", "fits no other rung"), ("nonsense", "no rung")])
def test_a_rung_with_another_state_is_refused(stopped, rung, reason, capsys):
    assert main(["resume", str(stopped[0]), "--rung", rung]) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.slow
def test_a_changed_config_is_noticed(stopped, tmp_path, capsys):
    shutil.copytree(stopped[0], tmp_path / "run")
    file = tmp_path / "run/config.json"
    data = json.loads(file.read_text())
    data["config"]["learner"]["lr"] = 0.5
    file.write_text(json.dumps(data))
    assert main(["resume", str(tmp_path / "run")]) == 2
    assert "a different config.json" in capsys.readouterr().err
    assert not list((tmp_path / "run/checkpoints").glob("*.corrupt*"))


def test_what_is_no_run_cannot_be_resumed(tmp_path, capsys):
    assert main(["resume", str(tmp_path)]) == 2
    assert "not a run directory" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_killed_before_its_first_checkpoint_begins_anew(tmp_path, capsys):
    words = ["train", "hypergrid", *once(*LIVES["hypergrid"], "--iterations", "40", "--eval-episodes", "0")]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    _, expected = what_came_of(tmp_path / "run")
    for checkpoint in (tmp_path / "run/checkpoints").glob("tick-*"):
        shutil.rmtree(checkpoint)
    for file in ("finished.json", "checkpoints/agents.safetensors"):
        (tmp_path / "run" / file).unlink()
    (tmp_path / "run/notes.txt").write_text("mine")
    assert main(["resume", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run/notes.txt").exists() and (tmp_path / "run/metrics.csv.old").exists()
    assert "starts over" in capsys.readouterr().out
    assert what_came_of(tmp_path / "run")[1] == expected


@pytest.mark.slow
def test_numbers_that_are_none_end_the_run_and_are_reported(tmp_path, capsys):
    words = ["train", "hypergrid", *once(*LIVES["hypergrid"], "--learner.lr", "1e30", "--checkpoint-every", "1")]
    words += ["--out", str(tmp_path / "run")]
    assert main(words) == 4
    said = capsys.readouterr().err
    assert "stopped being a number" in said and "runs.agent.params" in said and "last checkpoint" in said
    report = json.loads((tmp_path / "run/diverged.json").read_text())
    assert report["seed"] == 0 and report["leaf"].startswith("runs.agent")
    if report["last_checkpoint"]:
        newest = tmp_path / "run/checkpoints" / report["last_checkpoint"]
        assert newest.is_dir() and int(newest.name[5:]) <= report["tick"]


@pytest.mark.slow
def test_numbers_that_are_none_may_be_wanted(tmp_path):
    words = ["train", "hypergrid", *once(*LIVES["hypergrid"], "--iterations", "20", "--eval-episodes", "0")]
    words += ["--learner.lr", "1e30", "--on-nan", "continue", "--out", str(tmp_path / "run")]
    assert main(words) == 0


@pytest.mark.slow
def test_saving_may_fail_twice_but_not_for_ever(tmp_path, monkeypatch, capsys):
    from xladder.runs import checkpoints

    failing = [False, True, True, False, True, True, True]

    def reached(point):
        if point == "draft" and failing and failing.pop(0):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "reached", reached)
    words = ["train", "hypergrid", *once(*LIVES["hypergrid"], "--iterations", "200", "--checkpoint-every", "10")]
    assert main([*words, "--out", str(tmp_path / "run")]) == 5
    out, err = capsys.readouterr()
    assert out.count("could not be saved") == 5 and "xladder resume" in err
    assert [path.name for path in sorted((tmp_path / "run/checkpoints").glob("tick-*"))] == [
        "tick-000000010",
        "tick-000000040",
    ]
    monkeypatch.undo()
    assert main(["resume", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize(("failures", "code"), [slow(4, 0), slow(1000, 5)])
def test_metrics_may_wait_for_room_but_not_beyond_the_end(failures, code, tmp_path, monkeypatch, capsys):
    append, left = MetricsWriter.append, [failures]

    def fail(self, *given):
        left[0] -= 1
        if left[0] >= 0:
            raise OSError(28, "No space left on device")
        append(self, *given)

    monkeypatch.setattr(MetricsWriter, "append", fail)
    words = ["train", "hypergrid", *once(*SHORT_GRID, "--iterations", "400", "--checkpoint-every", "0")]
    assert main([*words, "--out", str(tmp_path / "run")]) == code
    out, err = capsys.readouterr()
    assert out.count("metrics.csv could not be written") == 1
    if code:
        assert "No space left on device. What is already there is kept." in err
        assert f"Once it is writable again: xladder eval {tmp_path}" in err
    else:
        rows = list(csv.DictReader((tmp_path / "run/metrics.csv").open(newline="")))
        assert [int(row["iteration"]) for row in rows] == list(range(400))


@pytest.mark.slow
def test_a_stopped_run_is_not_taken_for_a_finished_one(stopped):
    assert (stopped[0] / "media/curves.png").exists() and not (stopped[0] / "finished.json").exists()


def test_metrics_that_were_changed_are_noticed(stopped, tmp_path, capsys):
    shutil.copytree(stopped[0], tmp_path / "run")
    file = tmp_path / "run/metrics.csv"
    file.write_bytes(file.read_bytes().replace(b"\r\n", b"\n"))
    assert main(["resume", str(tmp_path / "run")]) == 3
    assert "has changed since" in capsys.readouterr().err


def test_links_are_not_followed(stopped, tmp_path):
    shutil.copytree(stopped[0], tmp_path / "run")
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "run/environment.json.tmp").symlink_to(tmp_path / "victim")
    assert main(["resume", str(tmp_path / "run")]) == 2
    assert (tmp_path / "victim").read_text() == "precious"


def test_events_that_cannot_be_written_double_no_row(tmp_path, monkeypatch):
    writer = MetricsWriter(tmp_path, "tick", [0], 8)
    failing = [True, False, True]
    add = MetricsWriter._add_events

    def fail(self, *given):
        if failing and failing.pop(0):
            raise OSError(28, "No space left on device")
        add(self, *given)

    monkeypatch.setattr(MetricsWriter, "_add_events", fail)
    for first in (0, 2, 4):
        writer.append([0], np.array([first + 1, first + 2]), {"loss": np.ones((1, 2))}, 0.0)
    writer.close()
    rows = list(csv.DictReader((tmp_path / "metrics.csv").open(newline="")))
    assert [int(row["tick"]) for row in rows] == list(range(6))


@pytest.mark.parametrize(("flag", "value"), [("--checkpoint-every", "-1"), ("--keep", "1"), ("--on-nan", "maybe")])
def test_senseless_ways_of_keeping_are_refused(flag, value, tmp_path):
    try:
        code = main(["train", "hypergrid", flag, value, "--out", str(tmp_path / "run")])
    except SystemExit as stop:
        code = stop.code
    assert code == 2 and not (tmp_path / "run").exists()


def test_a_lock_refuses_a_link(tmp_path):
    (tmp_path / "elsewhere").write_text("precious")
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises((OSError, UsageError)):
        Lock(tmp_path / "lock")
    assert (tmp_path / "elsewhere").read_text() == "precious"


SHORT_GRID = once(*LIVES["hypergrid"], "--iterations", "40", "--checkpoint-every", "20", "--evaluate-every", "0",
                  "--eval-episodes", "0")  # fmt: skip


@pytest.mark.slow
def test_a_run_is_looked_into_while_it_goes_on_and_its_earlier_life_is_remembered(tmp_path):
    run = tmp_path / "run"
    assert main(["train", "hypergrid", *SHORT_GRID, "--out", str(run)]) == 0
    (run / "finished.json").unlink()
    shutil.rmtree(run / "checkpoints/tick-000000040")
    assert main(["resume", str(run), "--profile", "3", "--debug", "keys"]) == 0
    assert list((run / "profile").rglob("*.xplane.pb"))
    environment = json.loads((run / "environment.json").read_text())
    assert [life["device"] for life in environment["earlier"]] == [environment["device"]]
    assert main(["resume", str(run), "--debug", "nonsense"]) == 2


@pytest.mark.slow
def test_pytorchs_threads_are_part_of_the_plan(tmp_path, monkeypatch, capsys):
    words = ["train", "hypergrid", *SHORT_GRID]
    assert main([*words, "--rung", "torch", "--out", str(tmp_path / "one")]) == 0
    threads = json.loads((tmp_path / "one/environment.json").read_text())["threads"]
    assert json.loads((tmp_path / "one/config.json").read_text())["options"] == {"threads": threads}
    monkeypatch.setattr("xladder.rungs.torch.best_threads", lambda config: pytest.fail("measured anew"))
    again = ["train", "hypergrid", "--config", str(tmp_path / "one/config.json"), "--eval-episodes", "0"]
    assert main([*again, "--out", str(tmp_path / "two")]) == 0
    assert main(["diff", str(tmp_path / "one"), str(tmp_path / "two")]) == 0
    capsys.readouterr()
    assert main([*words, "--threads", "2"]) == 2
    assert "`--threads` is for `torch`, `compiled` and `hybrid`, not for `fused`" in capsys.readouterr().err
    data = json.loads((tmp_path / "one/config.json").read_text()) | {"options": {"threads": "many"}}
    (tmp_path / "bad.json").write_text(json.dumps(data))
    assert main(["train", "hypergrid", "--config", str(tmp_path / "bad.json")]) == 2


@pytest.mark.slow
def test_a_signal_after_training_says_what_is_left(tmp_path):
    """Scoring takes a while, and there is nothing to wait for any more."""
    code = (
        "import os, signal, sys\n"
        "from xladder import results\n"
        "results.Result.evaluate = lambda *_: os.kill(os.getpid(), signal.SIGTERM)\n"
        "from xladder.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    words = ["train", "hypergrid", *SHORT_GRID[:-1], "50", "--out", str(tmp_path / "run")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 143, done.stderr
    assert f"Training is complete and saved; for scores and pictures: xladder resume {tmp_path / 'run'}" in done.stdout
    assert (tmp_path / "run/checkpoints/agents.safetensors").stat().st_size
    assert not (tmp_path / "run/finished.json").exists()


def test_a_run_on_actors_may_continue_on_another_cluster(tmp_path):
    directory = SimpleNamespace(path=tmp_path, plan=plan("cartpole", "actors", options=RungOptions(ray="there:6379")))
    resuming.move_to_cluster(directory, "elsewhere:6379")
    assert directory.plan.options.ray == "elsewhere:6379"
    assert resuming.on_rung(directory.plan, "actors", None).options.ray == "elsewhere:6379"
    resuming.move_to_cluster(directory, "local")
    assert directory.plan.options.ray is None
    directory.plan = plan("cartpole", "fused")
    with pytest.raises(UsageError, match="`--ray` is for `actors`"):
        resuming.move_to_cluster(directory, "elsewhere:6379")


@pytest.mark.parametrize("name", ["actors", "shards"])
def test_another_number_of_actors_is_refused_before_a_run_is_opened(name, tmp_path, capsys):
    assert main(["resume", str(tmp_path), f"--{name}=3"]) == 2
    assert f"`--{name}` cannot change when a run is resumed" in capsys.readouterr().err
    with pytest.raises(UsageError, match=f"`{name}` cannot change when a run is resumed"):
        xladder.resume(tmp_path, **{name: 3})


def test_a_cluster_is_for_runs_on_actors_in_python_too(tmp_path):
    grid = replace(TINY_GRID, iterations=2)
    RunDirectory.create(tmp_path / "run", plan("hypergrid", "fused", config=grid), Keeping()).lock.release()
    with pytest.raises(UsageError, match="`ray` is for `actors`"):
        xladder.resume(tmp_path / "run", ray="local")
