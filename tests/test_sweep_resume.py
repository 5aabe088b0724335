"""A sweep that goes on: its results belong to the settings that gave them, and are those of a sweep left alone."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from tests.conftest import TINY_GRID
from tests.test_cli import call
from tests.test_sweep import GRID_WORDS, swept
from xladder.errors import DamagedRun, UsageError
from xladder.plans import plan
from xladder.runs.directory import RunDirectory
from xladder.sweeps import running
from xladder.sweeps.legs import LEG
from xladder.sweeps.running import SweepDirectory, SweepRun

SPACE = {"learner.lr": [0.001, 0.01], "learner.layers": [1, 2]}  # a program, and so a leg, for each number of layers


@pytest.fixture
def train(monkeypatch):
    """Train a sweep up to its test, with random numbers in place of what would be learned; `fails` names a leg."""

    def execute(plan, observer, checkpointer, resume_state, on_nan, around, until):
        if observer.fails == observer.leg:
            raise KeyboardInterrupt
        rng, shape = np.random.default_rng(observer.leg), (len(plan.seeds), until)
        found = {name: rng.random(shape, dtype=np.float32) for name in ("loss", "return", "tv")}
        observer.rows(plan.seeds, np.arange(1, until + 1), found)
        return SimpleNamespace(metrics=found, params={"w": rng.random((shape[0], 3), dtype=np.float32)})

    def run(path, sweep=None, fails=None):
        directory = SweepDirectory.create(path, sweep) if sweep else SweepDirectory.open(path)

        def numbered(plan, observer, *more):
            observer.fails, observer.leg = fails, len(found.legs)
            return execute(plan, observer, *more)

        def stop(self, winner):
            self.stopped = 15

        monkeypatch.setattr(running, "execute", numbered)
        monkeypatch.setattr(SweepRun, "test", stop)
        found = SweepRun(directory, watch, lambda line: None)
        try:
            found.run()
        finally:
            directory.lock.release()

    return run


def watch(plan, leg):
    from contextlib import nullcontext

    from xladder.progress import Drawing

    return nullcontext((Drawing(), ()))


def small(space=None):
    return swept(SPACE if space is None else space, "hypergrid")


def edit(path, **changes):
    """Change entries of a JSON file."""
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {k: v(data[k]) if callable(v) else v for k, v in changes.items()}))


def files(folder):
    """All files of a sweep but the locks, which name the process that opened it last."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != "lock"}


def refused(train, folder, error, said):
    before = files(folder)
    with pytest.raises(error, match=said):
        train(folder)
    assert files(folder) == before, "a sweep that is refused is left as it was"


def new_rates(folder):
    """Edit a sweep so that its trials have other learning rates."""

    def changed(trials):
        return [trial | {"learner.lr": {0.01: 0.06}.get(trial["learner.lr"], trial["learner.lr"])} for trial in trials]

    edit(folder / "sweep.json", space=lambda space: space | {"learner.lr": "0.001,0.06"}, trials=changed)


def test_a_table_has_the_same_digits_whether_legs_were_trained_now_or_before(train, tmp_path):
    train(tmp_path / "whole", small())
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "cut", small(), fails=1)
    train(tmp_path / "cut")
    expected = (tmp_path / "whole/trials.csv").read_bytes()
    assert (tmp_path / "cut/trials.csv").read_bytes() == expected
    train(tmp_path / "whole")
    assert (tmp_path / "whole/trials.csv").read_bytes() == expected


@pytest.mark.parametrize("fails", [None, 0, 1])
def test_results_are_not_taken_for_those_of_other_settings(train, tmp_path, fails):
    try:
        train(tmp_path / "s", small(), fails)
    except KeyboardInterrupt:
        assert fails is not None
    new_rates(tmp_path / "s")
    refused(train, tmp_path / "s", UsageError, "legs/000` was trained with other settings than `.*sweep.json` has now")


def test_results_are_not_taken_for_those_of_other_seeds_or_of_another_length(train, tmp_path):
    train(tmp_path / "s", small())
    saved = (tmp_path / "s/sweep.json").read_text()
    for change in (
        lambda plan: plan | {"seed": 8},
        lambda plan: plan | {"config": plan["config"] | {"iterations": 10}},
        lambda plan: plan | {"config": plan["config"] | {"loss": "db"}},
    ):
        edit(tmp_path / "s/sweep.json", plan=change, test_seeds=[20, 21])
        refused(train, tmp_path / "s", UsageError, "other settings")
        (tmp_path / "s/sweep.json").write_text(saved)
    edit(tmp_path / "s/sweep.json", trials=lambda trials: trials[::-1])
    refused(train, tmp_path / "s", UsageError, "other settings")


@pytest.mark.parametrize("name", ["metrics.csv", "checkpoints/agents.safetensors"])
def test_numbers_that_were_changed_are_refused(train, tmp_path, name):
    train(tmp_path / "s", small())
    file = tmp_path / "s/legs/001" / name
    file.write_bytes(file.read_bytes().replace(b"0.1", b"0.9")[:-1] + b"\n ")
    refused(train, tmp_path / "s", DamagedRun, f"{name}` has changed since")
    file.unlink()
    refused(train, tmp_path / "s", DamagedRun, "or is missing")


def test_a_record_that_was_damaged_is_refused(train, tmp_path):
    train(tmp_path / "s", small())
    for text in ("{}", "[", '{"until": 1, "rows": 2, "files": 3}'):
        (tmp_path / "s/legs/000" / LEG).write_text(text)
        refused(train, tmp_path / "s", DamagedRun, "leg.json` (cannot be used|was not written by xladder)")


def test_a_leg_that_was_replaced_by_another_run_is_refused(train, tmp_path):
    train(tmp_path / "s", small())
    leg = tmp_path / "s/legs/000"
    other = RunDirectory.create(tmp_path / "other", plan("hypergrid", config=TINY_GRID, seeds=3))
    other.mark_finished()
    other.lock.release()
    leg.rename(tmp_path / "away")
    (tmp_path / "other").rename(leg)
    refused(train, tmp_path / "s", UsageError, "other settings")


def test_a_leg_without_its_config_is_not_removed(train, tmp_path):
    train(tmp_path / "s", small())
    (tmp_path / "s/legs/000/config.json").unlink()
    refused(train, tmp_path / "s", DamagedRun, "has lost its config.json")


def test_legs_of_earlier_versions_go_on_if_their_config_is_the_same(train, tmp_path):
    train(tmp_path / "s", small())
    expected = (tmp_path / "s/trials.csv").read_bytes()
    for record in tmp_path.glob(f"s/legs/*/{LEG}"):
        record.unlink()
    train(tmp_path / "s")
    assert (tmp_path / "s/trials.csv").read_bytes() == expected
    edit(tmp_path / "s/sweep.json", plan=lambda plan: plan | {"config": plan["config"] | {"loss": "db"}})
    refused(train, tmp_path / "s", UsageError, "other settings")


def test_the_test_has_as_many_rows_after_a_kill(train, tmp_path):
    directory = SweepDirectory.create(tmp_path / "s", small())
    sweep = SweepRun(directory, watch, print)
    sweep.device = SimpleNamespace(platform="gpu")
    config = sweep.sweep.training
    sweep.legs = [SimpleNamespace(plan=SimpleNamespace(config=config, seeds=range(8)))]
    assert sweep._compiled_width(config, 4) == 8, "a leg that was trained before the kill counts"
    directory.lock.release()


def test_from_python_another_sweep_does_not_go_on_in_its_place(train, tmp_path):
    import xladder

    train(tmp_path / "s", small())
    before = files(tmp_path / "s")
    with pytest.raises(UsageError, match="holds a different sweep"):
        xladder.sweep("hypergrid", {"learner.lr": [0.1, 0.2]}, out=tmp_path / "s", resume=True)
    assert files(tmp_path / "s") == before
    rest = {"seeds": 2, "config": small().plan.config}
    (tmp_path / "s/result.json").write_text("{}")
    with pytest.raises(UsageError, match="is complete: its result is in"):
        xladder.sweep("hypergrid", SPACE, out=tmp_path / "s", resume=True, **rest)


@pytest.mark.slow
def test_an_edited_sweep_with_halving_is_refused_also_if_an_earlier_version_began_it(tmp_path, monkeypatch, capsys):
    words = ["sweep", "hypergrid", *GRID_WORDS, "--iterations", "240", "--seeds", "1", "--halve", "2"]
    words += ["--learner.lr", "1e-3,1e-2,3e-3,3e-2"]
    assert call(*words, "--out", str(tmp_path / "whole")) == 0
    execute, legs = SweepRun._execute, []

    def third(self, *arguments):
        legs.append(1)
        if len(legs) == 3:
            raise KeyboardInterrupt
        return execute(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(SweepRun, "_execute", third)
        assert call(*words, "--out", str(tmp_path / "s")) == 130
    saved = (tmp_path / "s/sweep.json").read_text()
    for version in ("this", "an earlier one"):
        if version != "this":
            for record in tmp_path.glob(f"s/legs/*/{LEG}"):
                record.unlink()
        edit(
            tmp_path / "s/sweep.json",
            space={"learner.lr": "0.05,0.06,0.07,0.08"},
            trials=[{"learner.lr": rate} for rate in (0.05, 0.06, 0.07, 0.08)],
        )
        before = files(tmp_path / "s")
        assert call("resume", str(tmp_path / "s")) == 2
        assert "other settings" in capsys.readouterr().err and files(tmp_path / "s") == before
        (tmp_path / "s/sweep.json").write_text(saved)
    numbers = tmp_path / "s/legs/000/metrics.csv"
    whole = numbers.read_bytes()
    numbers.write_bytes(whole.replace(b"0.1", b"0.2"))
    assert call("resume", str(tmp_path / "s")) == 3, "the digest in the checkpoint of an earlier version"
    numbers.write_bytes(whole)
    assert call("resume", str(tmp_path / "s")) == 0
    assert (tmp_path / "s/trials.csv").read_bytes() == (tmp_path / "whole/trials.csv").read_bytes()
