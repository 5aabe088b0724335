"""metrics.csv and its reader, means over episodes, TensorBoard events and the progress line."""

from __future__ import annotations

import io
import re
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from xladder import progress, trainer
from xladder.core.statistics import episode_weights, last_tenth, moving_mean, tenths, weighted_mean
from xladder.errors import DamagedRun
from xladder.families.value.summaries import agent_columns, summary
from xladder.plans import plan
from xladder.progress import Meter, ProgressBar
from xladder.runs.events import EventsFile
from xladder.runs.metrics import ROWS_AT_ONCE, MetricsWriter, format_rows, read, read_table


def test_an_early_finisher_counts_as_one_episode():
    # One episode of 1 in the first tick, sixteen of 10 in the second: 161/17, not 5.5.
    columns = {"return": np.array([[1.0, 10.0]]), "episodes": np.array([[1, 16]])}
    weights = episode_weights("return", columns)
    assert weighted_mean(columns["return"], weights) == pytest.approx(161 / 17)
    np.testing.assert_allclose(moving_mean(columns["return"], 3, weights), [[161 / 17, 161 / 17]])
    assert episode_weights("loss", columns) is None and episode_weights("return", {"return": np.ones((1, 1))}) is None
    assert episode_weights("return_agent_0", columns) is columns["episodes"]


def test_ticks_without_episodes_count_nothing():
    returns = np.array([[np.nan, 2.0, np.nan, 4.0] * 5])
    episodes = np.array([[0, 1, 0, 3] * 5])
    assert tenths(returns, episodes)[1] == pytest.approx([4.0])
    assert last_tenth(returns, episodes)[0] == pytest.approx(4.0)
    assert np.isnan(weighted_mean(np.array([np.nan]), np.array([0.0])))
    assert np.isnan(moving_mean(returns, 3, episodes)[0, 0])


def test_the_summary_of_a_run_weights_by_episodes():
    config = plan("cartpole").config
    returns, episodes = np.full((1, 20), 10.0), np.ones((1, 20), int)
    returns[0, -2:], episodes[0, -2:] = [1.0, 10.0], [1, 16]
    assert summary(config, {"return": returns, "episodes": episodes})[0].endswith(
        "10.0 in the first tenth, 9.5 in the last"
    )


def test_a_run_without_an_end_of_an_episode_says_so():
    config = plan("cartpole").config
    nothing = {"return": np.full((1, 20), np.nan), "episodes": np.zeros((1, 20))}
    assert summary(config, nothing) == ["no episode ended while training"]
    nothing["episodes"][0, 3] = nothing["return"][0, 3] = 1
    assert summary(config, nothing) == ["1 episode ended while training"]


@pytest.fixture
def written(tmp_path):
    writer = MetricsWriter(tmp_path, "tick", [3, 1], 4, steps_per_tick=8, measured=("eval_return",))
    columns = {"return": np.array([[1.0, np.nan], [2.0, 3.0]]), "eval_return": np.array([[np.nan, 5.0], [np.nan, 6.0]])}
    writer.append([3, 1], np.array([1, 2]), columns, 0.5)
    writer.append([3, 1], np.array([3, 4]), columns, 1.5)
    writer.add_scores({"mean_return": 7.0, "per_agent": [1.0], "exact": True, "note": "x"})
    writer.close()
    return tmp_path


def test_rows_have_steps_and_seconds(written):
    seeds, columns, *_ = read_table(written / "metrics.csv", "tick")
    assert seeds == [3, 1]  # in the order they were written
    np.testing.assert_array_equal(columns["steps"], [[8, 16, 24, 32]] * 2)
    np.testing.assert_array_equal(columns["seconds"], [[0.5, 0.5, 1.5, 1.5]] * 2)
    np.testing.assert_array_equal(columns["return"], [[1, np.nan, 1, np.nan], [2, 3, 2, 3]])
    assert set(read(written / "metrics.csv", "tick")[0]) == {"return", "eval_return"}


def test_a_row_that_is_being_written_is_left_out(written):
    file = written / "metrics.csv"
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    _, columns, *_ = read_table(file, "tick")
    assert columns["return"].shape == (2, 4) and np.isnan(columns["steps"][1, 3])


HUGE = "seed,tick,steps,loss,seconds\r\n0,0,8,1e308,1\r\n0,1,16,1e308,2\r\n"  # a mean of them would be infinite


@pytest.mark.parametrize(
    "text",
    ["seed,tick,steps,seconds\r\n0,0,8\r\n", "seed,tick,steps,seconds\r\n0,a,8,1\r\n", "a,seconds\r\n1,2\r\n", HUGE],
)
def test_other_tables_are_refused(tmp_path, text):
    (tmp_path / "metrics.csv").write_text(text)
    with pytest.raises(DamagedRun, match="not a valid table of metrics"):
        read(tmp_path / "metrics.csv", "tick")


def test_events_are_grouped_and_count_in_steps(written):
    from tensorboardX.proto.event_pb2 import Event

    found = {}
    for file in (written / "events").rglob("events.out*"):
        data = file.read_bytes()
        while data:
            length = int.from_bytes(data[:8], "little")
            event = Event.FromString(data[12 : 12 + length])
            for value in event.summary.value:
                found.setdefault((file.parent.name, value.tag), []).append((event.step, value.simple_value))
            data = data[16 + length :]
    assert found["seed-1", "train/return"] == [(8, 2.0), (16, 3.0), (24, 2.0), (32, 3.0)]
    assert found["seed-3", "eval/return"] == [(16, 5.0), (32, 5.0)]
    assert found["score", "score/mean_return"] == [(32, 7.0)]
    assert len(found) == 5


def test_event_files_are_those_of_tensorboardx(tmp_path):
    """Byte for byte, but for the time: the same values, written by somebody else's writer."""
    from tensorboardX.event_file_writer import EventsWriter
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary

    def read_bytes(folder):
        (file,) = folder.glob("*.tfevents.*")
        return file.read_bytes()

    steps, values = [0, 1, 127, 128, 300, 2_000_000_000], [0.5, -1.0, 3e-8, 1e9, float("inf"), 2.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("time.time", lambda: 1234.5)
        ours, theirs = EventsFile(tmp_path / "ours"), EventsWriter(str(tmp_path / "events"))
        ours.add("train/loss", values, steps)
        for step, value in zip(steps, values, strict=True):
            summary = Summary(value=[Summary.Value(tag="train/loss", simple_value=value)])
            theirs.write_event(Event(wall_time=1234.5, step=step, summary=summary))
        ours.close()
        theirs.close()
    assert read_bytes(tmp_path / "ours") == read_bytes(tmp_path)


def test_events_are_encoded_many_chunks_at_a_time(tmp_path, monkeypatch):
    """Each takes a few calls however many events there are, so a chunk of one row must not pay for them."""
    written = []
    flush = EventsFile.flush
    monkeypatch.setattr(EventsFile, "flush", lambda self: written.append(flush(self)))
    writer = MetricsWriter(tmp_path, "tick", [0, 1], 100)
    for tick in range(1, 51):
        writer.append([0, 1], np.array([tick]), {"loss": np.ones((2, 1))}, 0.0)
    assert not written
    monkeypatch.setattr("xladder.runs.metrics.FLUSH_SECONDS", 0.0)
    writer.append([0, 1], np.array([51]), {"loss": np.ones((2, 1))}, 0.0)
    assert len(written) == 2  # a file for each seed
    writer.close()


def test_the_progress_line_looks_at_the_last_ticks_alone(monkeypatch):
    seen = []
    mean = progress.weighted_mean
    monkeypatch.setattr(progress, "weighted_mean", lambda v, w=None, **k: seen.append(v.shape[-1]) or mean(v, w, **k))
    meter = progress.Meter(plan("cartpole", "fused", steps=1_000_000))
    rng = np.random.default_rng(0)
    returns, episodes = rng.normal(size=(2, 5000)), (rng.random((2, 5000)) < 0.1).astype(np.int32)
    returns[episodes == 0] = np.nan
    meter.add(0, {"return": returns, "episodes": episodes, "loss": returns, "epsilon": np.linspace(1, 0, 5000)[None]})
    assert max(seen) <= progress.SMOOTH
    ended = np.flatnonzero(episodes.any(0))[-progress.SMOOTH :]
    shown = progress._mean(meter._recent["return"])
    assert shown == pytest.approx(np.average(np.nan_to_num(returns[:, ended]), weights=episodes[:, ended]))
    assert [value for value, _ in meter._recent["epsilon"]] == [0.0]


def test_while_a_chunk_is_computed_the_host_does_next_to_nothing():
    trial = object.__new__(trainer.Trial)
    trial.phases, calls = defaultdict(float), []
    trial.observer = SimpleNamespace(waiting=lambda what, seconds: calls.append(seconds))
    with ThreadPoolExecutor(1) as trial.thread:
        assert trial.wait("training", lambda: time.sleep(0.2) or "done") == "done"
    assert 1 <= len(calls) <= 5


def test_rows_are_formatted_as_one_by_one():
    rng = np.random.default_rng(0)
    count = ROWS_AT_ONCE + 3
    columns = [rng.normal(0, 1e4, count).astype(np.float32), np.full(count, np.nan), rng.integers(0, 10**9, count)]
    columns[0][::7], columns[1][5] = np.nan, np.inf
    text = "".join(format_rows(3, np.arange(12, 12 + count), 8, columns, 1.25))
    for line, tick, *cells in zip(text.splitlines(), range(11, 11 + count), *columns, strict=True):
        expected = ["" if cell != cell else f"{cell:.7g}" for cell in cells]
        assert line == ",".join(["3", str(tick), str((tick + 1) * 8), *expected, "1.250"])


def chunks(meter_or_bar, counts):
    done = 0
    for count in counts:
        shape = (1, count)
        columns = {"return": np.full(shape, 123.4), "episodes": np.ones(shape), "loss": np.full(shape, 0.1234)}
        columns |= {"epsilon": np.full(shape, 0.05), "eval_return": np.full(shape, 200.0)}
        meter_or_bar(done, columns)
        done += count


@pytest.fixture
def clock(monkeypatch):
    """The time of the progress display, which only moves when it is told to."""
    moved = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: moved.now, sleep=lambda _: None))
    return moved


@pytest.mark.parametrize(("width", "wanted"), [(80, r"return 123\.4"), (200, r"ε 0\.05")])
def test_the_bar_fits_the_terminal(width, wanted, clock):
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=width, height=24, legacy_windows=False)
    made = plan("cartpole", "fused", steps=100_000)
    bar = ProgressBar(made, console)
    with bar:
        bar.meter.start([0])

        def chunk(first, columns):
            clock.now += 1.0
            bar.chunk([0], first, columns, 1.0)

        chunks(chunk, [1, 5000])
        bar._bar.refresh()
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]", text.getvalue())]
    line = next(line for line in reversed(lines) if "%" in line)
    assert len(line.rstrip()) <= width
    assert "━" in line and "40 %" in line and "left" in line and re.search(wanted, line), line


def test_between_compiling_and_the_first_numbers_the_bar_says_what_it_waits_for(clock):
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=80, height=24, legacy_windows=False)
    bar = ProgressBar(plan("cartpole", "fused"), console)
    with bar:
        bar.waiting("compiling", 6.1)
        bar.started([0], SimpleNamespace(compile_seconds=2.1, note=""))
        bar._bar.refresh()
    assert "compiled in 2.1 s, ready after 6.1 s" in text.getvalue()
    assert "first chunk …" in text.getvalue().rpartition("ready after")[2]


def test_seeds_that_are_trained_one_after_another_are_counted_and_all_of_them_take_time(clock):
    meter = Meter(plan("cartpole", "torch", steps=80_000, seeds=3, seed=5))
    for seed, left in ((5, "0:25 left"), (6, "0:15 left"), (7, "0:05 left")):
        meter.start([seed])
        assert meter.title == f"cartpole/torch seed {seed} ({seed - 4} of 3)" and meter.time_left == ""

        def chunk(first, columns):
            clock.now += columns["loss"].shape[1] / 1000
            meter.add(first, columns)

        chunks(chunk, [1000, 2000, 2000])
        assert meter.time_left == left
    chunks(chunk, [10_000])
    assert meter.time_left == "0:00 left"


def test_a_meter_weights_episodes():
    meter = Meter(plan("cartpole", "fused"))
    for tick, (value, episodes) in enumerate([(1.0, 1), (10.0, 16)]):
        one = {"return": np.array([[value]]), "episodes": np.array([[episodes]]), "loss": np.array([[np.nan]])}
        meter.add(tick, one)
    assert f"return {161 / 17:.1f}" in meter.text()


def test_time_left_is_estimated_from_chunks_that_learn_and_last(clock):
    """10,000 ticks at 1,000 a second. The first chunks are mostly overhead: by them it would be half an hour."""
    meter = Meter(plan("cartpole", "fused", steps=80_000))
    meter.start([0])
    said, done = [], 0
    for count, seconds, loss in [(1, 9.0, np.nan), (4, 0.5, np.nan), (4, 2.0, np.nan), (16, 5.0, 1.0)]:
        clock.now += seconds
        meter.add(done, {"return": np.ones((1, count)), "loss": np.full((1, count), loss)})
        done += count
        said.append(meter.time_left)
    assert said[:2] == ["", ""] and said[2] and not said[3], "what does not learn yet is forgotten once it does"
    said.clear()
    for count, seconds in [(4, 0.03), (16, 0.05), (64, 0.1), (256, 0.3), (700, 0.7), (700, 0.7)]:
        clock.now += seconds
        meter.add(done, {"return": np.ones((1, count)), "loss": np.ones((1, count))})
        done += count
        said.append(meter.time_left)
    assert said == ["", "", "", "", "0:10 left", "0:08 left"]


def test_agents_may_be_called_anything():
    assert agent_columns(["a<b>", "b,c", "é"]) == ["return_a_b_", "return_b_c", "return__"]
    assert agent_columns(["b,c", "b;c", "d"]) == ["return_b_c_0", "return_b_c_1", "return_d"]
