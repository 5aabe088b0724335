"""A run's folder and its config.json: how they begin, what another command takes over from them."""

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from tests.conftest import TINY_GRID
from xladder.cli.main import main
from xladder.cli.options import parse_with_config
from xladder.cli.progress import Screen
from xladder.cli.train import TrainOptions
from xladder.errors import UsageError
from xladder.plans import plan
from xladder.registry import RungOptions, find_workload
from xladder.runs import disk
from xladder.runs import environment as environment_module
from xladder.runs.checkpoints import Checkpoint
from xladder.runs.directory import AGENTS, Keeping, RunDirectory
from xladder.runs.folders import command
from xladder.runs.resuming import ticks_left

ON_TORCH = {"config": TINY_GRID, "options": RungOptions(threads=1)}
KEEPING = Keeping(checkpoint_every=7, keep=3, on_nan="continue", eval_episodes=0)


@pytest.fixture
def run(tmp_path):
    """The folder of a run on `torch` that was killed before it had done anything."""
    made = RunDirectory.create(tmp_path / "run", plan("hypergrid", "torch", **ON_TORCH), KEEPING)
    made.lock.release()
    return made.path


def parsed(run, *words):
    words = ["--config", str(run / "config.json"), *words]
    return parse_with_config(TrainOptions, find_workload("hypergrid"), words, "xladder train", "")[0]


@pytest.mark.parametrize("was_there", [False, True])
@pytest.mark.parametrize("name", ["config.json", "checkpoints"])
def test_a_start_that_fails_leaves_nothing_behind(was_there, name, tmp_path, monkeypatch):
    folder = tmp_path / "run"
    if was_there:
        folder.mkdir()

    def fail(path, *_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        if name == "config.json":
            patch.setattr(disk, "replace_synced", fail)
        else:
            make = type(folder).mkdir
            patch.setattr(type(folder), "mkdir", lambda p, *a, **k: fail(p) if p.name == name else make(p, *a, **k))
        with pytest.raises(UsageError, match="No space left"):
            RunDirectory.create(folder, plan("hypergrid", config=TINY_GRID))
    assert folder.exists() == was_there and not list(folder.glob("*"))
    RunDirectory.create(folder, plan("hypergrid", config=TINY_GRID)).discard()


def test_a_folder_that_is_not_utf8_is_refused_at_once(tmp_path):
    with pytest.raises(UsageError, match="not valid UTF-8"):
        RunDirectory.create(tmp_path / os.fsdecode(b"caf\xe9"), plan("hypergrid", config=TINY_GRID))
    assert not list(tmp_path.iterdir())


def test_a_config_says_how_its_run_was_kept(run):
    found = parsed(run)
    inherited = {name: getattr(found, name) for name in asdict(KEEPING) if name != "tags"}  # tags are the run's own
    assert Keeping(**inherited) == KEEPING
    assert parsed(run, "--keep", "5").keep == 5


def test_another_rung_takes_over_what_it_understands(run):
    assert parsed(run).threads == 1 and parsed(run, "--rung", "hybrid").threads == 1
    assert parsed(run, "--rung", "fused").threads is None
    assert parsed(run, "--rung=fused").threads is None


def test_a_run_that_begins_anew_on_another_rung_says_so(run, monkeypatch):
    monkeypatch.setattr("xladder.cli.resume.run_in_terminal", lambda *_: 0)
    assert main(["resume", str(run), "--rung", "fused"]) == 0
    metadata = json.loads((run / "config.json").read_text())
    assert metadata["rung"] == "fused" and metadata["options"] == {}
    assert metadata["run"] == json.loads(json.dumps(asdict(KEEPING)))


@pytest.mark.parametrize(("metrics", "said"), [(True, "no checkpoint to resume from"), (False, "never trained")])
def test_agents_are_not_replaced_by_beginning_anew(metrics, said, run, capsys):
    (run / AGENTS).write_bytes(b"precious")
    if metrics:
        (run / "metrics.csv").write_text("")
    assert main(["resume", str(run)]) == 2
    assert said in capsys.readouterr().err
    assert (run / AGENTS).read_bytes() == b"precious" and not (run / "metrics.csv.old").exists()


def test_a_folder_may_begin_with_a_dash(run, monkeypatch):
    monkeypatch.chdir(run.parent)
    run.rename("-dash")
    monkeypatch.setattr("xladder.cli.resume.run_in_terminal", lambda *_: 0)
    assert main(["resume", "--", "-dash"]) == 0


@pytest.mark.parametrize(("group", "done", "left"), [(0, 0, 20), (0, 5, 15), (0, 20, 20), (1, 20, 0)])
def test_what_is_left_is_what_the_next_seeds_have_before_them(group, done, left):
    two = plan("hypergrid", "sequential", config=TINY_GRID, seeds=2)
    assert ticks_left(two, Checkpoint(0, {}, {"group": group, "done": done})) == left
    assert ticks_left(two, None) == 20


@pytest.mark.parametrize(("name", "typed"), [("a b[1]", "'a b[1]'"), ("-dash", "./-dash"), ("plain", "plain")])
def test_a_command_can_be_typed_as_it_is_printed(name, typed):
    assert command("resume", Path(name)) == f"xladder resume {typed}"


def test_the_way_on_is_one_that_loses_nothing(run):
    opened = RunDirectory.open(run)
    assert opened.way_on == f"xladder resume {run}"
    (run / AGENTS).write_bytes(b"precious")
    assert opened.way_on == f"xladder eval {run}"
    (run / "checkpoints/tick-000000005").mkdir()
    assert opened.way_on == f"xladder resume {run}"
    opened.lock.release()


@pytest.fixture
def screen(run):
    opened = RunDirectory.open(run)
    yield Screen(opened.plan, opened, Console())
    opened.lock.release()


@pytest.mark.parametrize(("saved", "said"), [(True, "pictures: xladder resume"), (False, "For scores: xladder eval")])
def test_a_signal_after_training_names_what_is_there(saved, said, screen, monkeypatch, capsys):
    ended = []
    monkeypatch.setattr("xladder.cli.progress.end_at_once", ended.append)
    screen.busy_starting = False
    screen.end_training(saved)
    screen._on_signal(15, None)
    assert ended[0] == 15
    assert f"{said} {screen.directory.path}" in capsys.readouterr().out
    assert (AGENTS in screen.left) != saved


def test_one_is_singular_and_what_was_compiled_before_is_no_news(screen, capsys):
    screen.started([0], SimpleNamespace(compile_seconds=0.01, note=""))
    assert "compiled" not in capsys.readouterr().out
    screen.meter.done = 1
    assert screen.meter.how_far() == "1 iteration"
    screen.meter.done = 2
    assert screen.meter.how_far() == "2 iterations"


def test_a_git_that_hangs_is_no_reason_to_fail(monkeypatch):
    def hang(*words, **options):
        raise subprocess.TimeoutExpired(words, 5)

    monkeypatch.setattr(subprocess, "run", hang)
    assert environment_module._git_commit() is None


def test_the_commit_can_be_given_where_there_is_no_repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert environment_module._git_commit() is None
    monkeypatch.setenv("XLADDER_COMMIT", "0123abc")
    assert environment_module._git_commit() == "0123abc"
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(returncode=0, stdout="4567def\n"))
    assert environment_module._git_commit() == "4567def"
