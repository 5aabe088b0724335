"""Trackers that fail, hang or fall behind never stop or slow a run; replays are saved on the way."""

from __future__ import annotations

import sys
import time
import types

import numpy as np
import pytest

import xladder
from tests.conftest import TINY, TINY_GRID
from tests.test_cli import call
from xladder.errors import UsageError
from xladder.plans import plan
from xladder.runs import trackers
from xladder.runs.trackers import Tracker, check_trackers

COLUMNS = {"return": np.array([[1.0, 3.0], [2.0, 5.0]]), "eval_return": np.array([[np.nan, 7.0], [np.nan, np.nan]])}


@pytest.fixture
def service(monkeypatch):
    """A stand-in for wandb that remembers what it is sent."""
    module = types.ModuleType("wandb")
    module.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    module.sent, module.done, module.begun = [], [], []
    module.init = lambda **given: module.begun.append(given)
    module.log = lambda values, step: module.sent.append((step, values))
    module.finish = lambda: module.done.append(True)
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.setattr(trackers, "find_spec", lambda name: sys.modules.get(name))
    return module


def test_metrics_arrive_with_steps_and_groups(service):
    tracker = Tracker("wandb", plan("cartpole", "fused", seeds=2), "first", lambda line: None)
    tracker.chunk([0, 1], 10, COLUMNS, 0.1)
    tracker.close({"mean_return": 9.0, "per_agent": [1], "exact": True})
    each = plan("cartpole").config.env_steps_per_tick
    assert service.sent[0] == (12 * each, {"train/return": 4.0, "eval/return": 7.0})
    assert service.sent[1][1] == {"score/mean_return": 9.0} and service.done
    assert service.begun[0]["name"] == "first" and service.begun[0]["config"]["rung"] == "fused"


def test_one_that_fails_is_named_once(service):
    def fail(**given):
        raise ConnectionError("no network")

    service.init, lines = fail, []
    tracker = Tracker("wandb", plan("cartpole", "fused"), "first", lines.append)
    tracker._thread.join(5)
    for _ in range(300):
        tracker.chunk([0, 1], 0, COLUMNS, 0.1)
    tracker.close()
    assert lines == ["wandb failed (ConnectionError: no network); the run goes on without it."]


def test_one_that_hangs_costs_nothing(service, monkeypatch):
    service.log = lambda values, step: time.sleep(60)
    monkeypatch.setattr(trackers, "LAST_SECONDS", 0.1)
    tracker = Tracker("wandb", plan("cartpole", "fused"), "first", lambda line: None)
    begun = time.monotonic()
    for _ in range(300):
        tracker.chunk([0, 1], 0, COLUMNS, 0.1)
    tracker.close()
    assert time.monotonic() - begun < 5 and tracker.dropped > 100


@pytest.mark.slow
def test_a_whole_run_is_tracked(service, tmp_path):
    xladder.train("hypergrid", "fused", config=TINY_GRID, out=tmp_path / "r", track=["wandb"], progress=False)
    steps, values = service.sent[-2]
    assert steps == TINY_GRID.iterations and {"train/loss", "eval/tv"} <= set(values)
    assert "score/tv" in service.sent[-1][1]


@pytest.mark.parametrize(("names", "said"), [(["wandbb"], "Did you mean"), (["trackio"], "pip install")])
def test_unknown_and_missing_ones_are_refused(names, said):
    with pytest.raises(UsageError, match=said):
        check_trackers(names)


@pytest.mark.slow
def test_replays_are_saved_on_the_way(tmp_path):
    out = tmp_path / "r"
    xladder.train("treasurehunt", "fused", config=TINY, out=out, record_every=4, eval_episodes=0, progress=False)
    found = sorted(path.name for path in (out / "media").glob("at-*"))
    assert found[:2] == ["at-000000004", "at-000000008"]
    assert all((out / "media" / name / "replay.gif").stat().st_size > 1000 for name in found)


def test_bad_values_are_refused(capsys, tmp_path):
    assert call("train", "cartpole", "--record-every", "0", "--out", str(tmp_path / "x")) == 2
    assert "has to be 1 or more" in capsys.readouterr().err
    assert call("train", "cartpole", "--track", "wandb,tensorbord", "--out", str(tmp_path / "x")) == 2
    assert not (tmp_path / "x").exists()
