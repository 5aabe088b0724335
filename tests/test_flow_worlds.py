"""Every built-in GFlowNet world through every command, with tiny settings. Slow."""

import csv
import json
from pathlib import Path

import pytest

from tests.test_cli import call

SMALL = ["--learner.width", "16", "--learner.batch-size", "4"]
WORLDS = {
    "hypergrid": (["--world.side", "8"], "coordinate_1"),
    "hypergrid xor": (["--world.side", "8", "--world.reward", "xor"], "coordinate_1"),
    "bits": (["--world.bits", "8", "--world.word", "2"], "sequence"),
    "sequences": (["--world.table", "table.csv", "--world.modes", "3"], "sequence"),
    "ising": (["--world.side", "2"], "spin_1"),
    "sets": (["--world.items", "5", "--world.most", "3"], "item_1"),
    "dags": (["--world.nodes", "3"], "X1->X2"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{a}{b},{1 + i / 3}" for i, (a, b) in enumerate([(a, b) for a in "AB" for b in "AB"])]
    Path("table.csv").write_text("\n".join(["sequence,value", *rows]))


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_a_run_can_be_evaluated_sampled_resumed_reported_and_exported(name, capsys):
    (flags, column), workload = WORLDS[name], name.split()[0]
    length = ["--iterations", "6", "--evaluate-every", "3", "--seeds", "2"]
    assert call("train", workload, *flags, *SMALL, *length, "--out", "run") == 0
    said = capsys.readouterr().out.splitlines()
    assert len(set(said)) == len(said), "a line is printed twice"
    assert not any("nan" in line for line in said)
    assert call("eval", "run", "--json", "score.json") == 0
    score = json.loads(Path("score.json").read_text())
    assert score["exact"] and 0 < score["tv"] < 1 and score["num_modes"] >= 1
    # Untrained, a sampler is far from all but flat targets: modes that are not there must not count as found.
    assert max(score["modes_per_seed"]) <= score["num_modes"] <= score["num_mode_cells"]
    assert call("sample", "run", "-n", "7", "--out", "some.csv") == 0
    rows = list(csv.DictReader(Path("some.csv").read_text().splitlines()))
    assert len(rows) == 7 and column in rows[0]
    assert {row[column] for row in rows} <= {"-1", "1"} or not column.startswith("spin")
    assert call("resume", "run", "--iterations", "8") == 0
    assert call("report", "run", "--out", "report.html") == 0
    assert Path("report.html").stat().st_size > 10_000
    assert call("export", "run", "--to", "torch", "--out", "nets.pt") == 0
    assert "read back bit for bit" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", WORLDS)
def test_parity_and_compare_come_to_their_end(name, capsys):
    flags, workload = WORLDS[name][0], name.split()[0]
    assert call("parity", workload, *flags, *SMALL, "--updates", "3") == 0
    assert "FAILED" not in capsys.readouterr().out
    length = ["--iterations", "4", "--evaluate-every", "4", "--rungs", "sequential,fused"]
    assert call("compare", workload, *flags, *SMALL, *length, "--json", "table.json", "--chart", "bars.png") == 0
    rungs = json.loads(Path("table.json").read_text())["rows"]
    assert [row["rung"] for row in rungs] == ["sequential", "fused"]
    assert rungs[0]["tv"] == pytest.approx(rungs[1]["tv"], abs=1e-4)
