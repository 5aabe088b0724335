"""Several ticks in one row of metrics: joined the same however a run is cut, and read back."""

import csv

import numpy as np
import pytest

import xladder
from tests.conftest import TINY_CART, TINY_GRID
from tests.test_cli import call
from xladder.core.metric_rows import RowBuilder, default_ticks_per_row, row_ends
from xladder.errors import DamagedRun, UsageError
from xladder.plans import plan
from xladder.runs.metrics import read_table

nan = np.nan
COLUMNS = {
    "return": np.array([[1.0, nan, 4.0, 2.0, nan, 7.0, 5.0]]),
    "episodes": np.array([[1, 0, 3, 2, 0, 1, 1]]),
    "loss": np.array([[nan, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]]),
    "eval_return": np.array([[nan, 8.0, nan, nan, nan, nan, 9.0]]),
}


def test_rows_are_cut_alike_whatever_the_chunks():
    for sizes in ([7], [1] * 7, [2, 2, 3], [5, 2]):
        builder, rows, begin = RowBuilder(3, {"eval_return"}), [], 0
        for size in sizes:
            rows.append(builder.add({name: values[:, begin : begin + size] for name, values in COLUMNS.items()}))
            begin += size
        rows.append(builder.flush())
        joined = {name: np.concatenate([part[name] for part in rows], axis=1)[0] for name in COLUMNS}
        # (1·1 + 3·4) / 4 episodes, then (2·2 + 1·7) / 3, then 5 alone
        np.testing.assert_allclose(joined["return"], [13 / 4, 11 / 3, 5], rtol=1e-6)
        np.testing.assert_array_equal(joined["episodes"], [4, 3, 1])
        np.testing.assert_allclose(joined["loss"], [1.5, 4, 6])
        np.testing.assert_array_equal(joined["eval_return"], [8, nan, 9])
        assert builder.flush() == {}


def test_a_row_per_tick_is_the_chunk_itself():
    rows = RowBuilder(1).add(COLUMNS)
    assert all(rows[name] is values for name, values in COLUMNS.items())


@pytest.mark.parametrize(
    ("ticks", "seeds", "size"),
    [(1000, 512, 1), (20_000, 1, 1), (1_000_000, 1, 50), (62_500, 128, 100), (1_000_003, 1, 51), (10, 100_000, 1)],
)
def test_only_long_runs_and_populations_join_ticks(ticks, seeds, size):
    # 62,500 ticks of 128 seeds need 63 ticks per row; 100 is the next that divides them.
    assert default_ticks_per_row(ticks, seeds) == size


def test_ends_of_rows():
    np.testing.assert_array_equal(row_ends(2, 3, 4, 18), [12, 16, 18])


def rows_of(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return [{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]


@pytest.mark.slow
def test_a_stopped_run_goes_on_with_the_ticks_of_its_last_row(tmp_path):
    options = {"config": TINY_CART, "ticks_per_row": 7, "eval_episodes": 0, "seeds": 2}
    each = xladder.train("cartpole", config=TINY_CART, seeds=2)
    whole = xladder.train("cartpole", out=tmp_path / "whole", **options)
    ticks = TINY_CART.ticks
    assert ticks % 7 and whole.metrics["loss"].shape == (2, -(-ticks // 7)) and whole.is_complete
    np.testing.assert_array_equal(whole.metrics["episodes"][:, 0], each.metrics["episodes"][:, :7].sum(1))
    np.testing.assert_allclose(whole.metrics["loss"][:, -1], each.metrics["loss"][:, ticks // 7 * 7 :].mean(1), 1e-6)

    def stop(progress):
        return progress.tick >= 9

    stopped = xladder.train("cartpole", out=tmp_path / "cut", callback=stop, checkpoint_every=5, **options)
    done = stopped.units_done // TINY_CART.units_per_tick
    assert 9 <= done < ticks and done % 7  # the last row has fewer ticks, and says so
    assert int(rows_of(tmp_path / "cut")[-1]["tick"]) == done - 1
    assert xladder.load(tmp_path / "cut").units_done == stopped.units_done
    resumed = xladder.resume(tmp_path / "cut")
    assert resumed.is_complete

    def ordered(folder):
        return sorted(rows_of(folder), key=lambda row: (int(row["seed"]), int(row["tick"])))

    assert ordered(tmp_path / "cut") == ordered(tmp_path / "whole")

    longer = xladder.resume(tmp_path / "whole", steps=TINY_CART.steps * 2)
    ends = read_table(tmp_path / "whole" / "metrics.csv", "tick").ends
    np.testing.assert_array_equal(ends[0], row_ends(0, len(ends[0]), 7, 2 * ticks))
    assert longer.is_complete and longer.metrics["loss"].shape[1] == len(ends[0])


def test_rows_of_a_run_are_those_of_its_ticks():
    each, joined = (xladder.train("hypergrid", config=TINY_GRID, ticks_per_row=size) for size in (1, 7))
    assert each.metrics["loss"].shape == (1, 20) and joined.metrics["loss"].shape == (1, 3) and joined.is_complete
    expected = [each.metrics["loss"][0, begin : begin + 7].mean() for begin in (0, 7, 14)]
    np.testing.assert_allclose(joined.metrics["loss"][0], expected, rtol=1e-6)
    assert joined.metrics["tv"][0, -1] == each.metrics["tv"][0, -1]  # the last evaluation


@pytest.mark.slow
def test_a_run_that_is_shorter_than_a_row(tmp_path):
    def stop(progress):
        return progress.tick >= 3

    options = {"config": TINY_CART, "ticks_per_row": 1000, "eval_episodes": 0}
    stopped = xladder.train("cartpole", out=tmp_path / "run", callback=stop, **options)
    assert stopped.metrics["loss"].shape == (1, 1) and not stopped.is_complete
    resumed = xladder.resume(tmp_path / "run")
    assert resumed.is_complete and len(rows_of(tmp_path / "run")) == 1
    whole = xladder.train("cartpole", config=TINY_CART)
    assert resumed.metrics["episodes"][0, 0] == whole.metrics["episodes"].sum()


def test_a_table_with_a_gap_is_refused(tmp_path):
    lines = ["seed,tick,steps,loss,seconds", "0,3,4,1,1", "0,7,8,1,1", "0,9,10,1,1"]
    (tmp_path / "metrics.csv").write_text("\n".join(lines) + "\n")
    table = read_table(tmp_path / "metrics.csv", "tick")
    assert table.ticks_per_row == 4 and table.ends.tolist() == [[4, 8, 10]]
    (tmp_path / "metrics.csv").write_text("\n".join([*lines[:2], "0,5,6,1,1", *lines[2:]]) + "\n")
    with pytest.raises(DamagedRun, match="ticks are missing"):
        read_table(tmp_path / "metrics.csv", "tick")


def test_the_size_of_rows_is_checked(tmp_path, capsys):
    for wrong in (0, -1, 1.5, True, "3"):
        with pytest.raises(UsageError, match="ticks-per-row"):
            plan("hypergrid", ticks_per_row=wrong)
    assert call("train", "hypergrid", "--ticks-per-row", "0", "--out", str(tmp_path / "run")) == 2
    assert "--ticks-per-row" in capsys.readouterr().err
