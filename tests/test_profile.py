"""`--profile` leaves a trace that can be opened, and the run as it would have been."""

import gzip
import json

import numpy as np
import pytest

from tests import standin
from tests.conftest import TINY_GRID, assert_trees_equal
from tests.test_cli import call
from xladder.errors import UsageError
from xladder.plans import plan
from xladder.profiling import Profile, check
from xladder.rungs import fused, parallel

GRID = [
    *("--world.dim", "2", "--world.side", "4", "--learner.batch-size", "4", "--learner.width", "8"),
    *("--eval-episodes", "0", "--evaluate-every", "0"),
]


@pytest.mark.slow
def test_a_trace_is_written_and_the_run_is_the_same(tmp_path, capsys):
    words = ["train", "hypergrid", "--rung", "fused", "--iterations", "30", *GRID]
    assert call(*words, "--out", str(tmp_path / "plain")) == 0
    assert call(*words, "--out", str(tmp_path / "traced"), "--profile", "5") == 0
    said = capsys.readouterr().out
    assert "https://ui.perfetto.dev" in said and "tensorboard --logdir" in said
    folder = tmp_path / "traced" / "profile"
    assert list(folder.rglob("*.xplane.pb"))
    (perfetto,) = folder.rglob("perfetto_trace.json.gz")
    assert json.loads(gzip.decompress(perfetto.read_bytes()))["traceEvents"]
    plain, traced = (tmp_path / name / "checkpoints/agents.safetensors" for name in ("plain", "traced"))
    assert plain.read_bytes() == traced.read_bytes()
    assert not (tmp_path / "plain" / "profile").exists()


@pytest.mark.slow
def test_torch_is_traced_by_its_own_profiler(tmp_path, capsys):
    words = ["train", "hypergrid", "--rung", "torch", "--iterations", "8", *GRID]
    assert call(*words, "--out", str(tmp_path / "run"), "--profile", "2") == 0
    trace = tmp_path / "run/profile/torch-trace.json.gz"
    assert str(trace) in capsys.readouterr().out.replace("\n", "")
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    assert any(event.get("name", "").startswith("aten::") for event in events)


@pytest.mark.parametrize("rung", [parallel, fused], ids=["parallel", "fused"])
def test_ticks_are_traced_over_several_chunks_and_no_further(rung, tmp_path, monkeypatch):
    events = []
    monkeypatch.setattr(
        "xladder.profiling.trace_jax", lambda folder: events.append("on") or (lambda: events.append("off"))
    )
    plain = rung.start(standin.Config(), [0])
    traced = Profile(tmp_path, 4, "fused").around(rung.start)(standin.Config(), [0])
    seen = []
    for ticks in (1, 3, 5, 2):
        assert_trees_equal(plain.advance(ticks), traced.advance(ticks))
        seen.append(list(events))
    assert seen == [[], ["on"], ["on", "off"], ["on", "off"]]
    np.testing.assert_array_equal(plain.params()["weights"], traced.params()["weights"])


def test_a_run_that_ends_early_closes_its_trace(tmp_path, monkeypatch):
    events = []
    monkeypatch.setattr(
        "xladder.profiling.trace_jax", lambda folder: events.append("on") or (lambda: events.append("off"))
    )
    profile = Profile(tmp_path, 9, "fused")
    run = profile.around(fused.start)(standin.Config(), [0])
    run.advance(1), run.advance(1)
    profile.close()
    assert events == ["on", "off"]


@pytest.mark.parametrize(("ticks", "said"), [("0", "1 or more"), ("8", "give at most 7")])
def test_a_trace_that_cannot_be_had_is_refused(ticks, said, tmp_path, capsys):
    words = ["train", "hypergrid", "--iterations", "8", "--profile", ticks, "--out", str(tmp_path / "run")]
    assert call(*words, *GRID) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_each_life_tells_of_its_own_trace(tmp_path, monkeypatch):
    lives = iter(["b", "a"])

    def trace(folder):
        file = folder / next(lives) / "perfetto_trace.json.gz"
        return lambda: (file.parent.mkdir(), file.write_bytes(b""))

    monkeypatch.setattr("xladder.profiling.trace_jax", trace)
    for name in ("b", "a"):
        profile = Profile(tmp_path, 1, "fused")
        run = profile.around(fused.start)(standin.Config(), [0])
        run.advance(1)
        assert "Nothing was traced" in profile.describe()[0]
        run.advance(1)
        assert str(tmp_path / name / "perfetto_trace.json.gz") in profile.describe()[0]


@pytest.mark.parametrize(("left", "said"), [(5, "give at most 4"), (1, "leave it out"), (0, "leave it out")])
def test_what_is_left_of_a_run_has_to_be_enough(left, said):
    made = plan("hypergrid", config=TINY_GRID)
    check(4, made, 6)
    with pytest.raises(UsageError, match=said):
        check(5, made, left)
