"""The commands on the hypergrid, as a user types them, with good and with bad input."""

import csv
import json
import shutil

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file, save_file

from tests.test_cli import call
from xladder.worlds import hypergrid as world
from xladder.worlds.hypergrid_settings import WorldConfig

SMALL = ["--world.side", "5", "--learner.batch-size", "6", "--learner.width", "16"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run directory: two seeds, thirty iterations, measured every ten."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    length = ["--iterations", "30", "--evaluate-every", "10", "--seeds", "2", "--seed", "5"]
    assert call("train", "hypergrid", *SMALL, *length, "--out", str(folder)) == 0
    return folder


@pytest.mark.slow
def test_train_writes_pictures_and_what_was_measured(trained):
    for file in ("curves.png", "distribution.png", "distribution.gif", "scatter.png"):
        with Image.open(trained / "media" / file) as picture:
            assert min(picture.size) > 200, file
    with Image.open(trained / "media" / "distribution.gif") as film:
        assert film.n_frames == 4  # before the first iteration, and after 10, 20 and 30
    rows = list(csv.DictReader((trained / "metrics.csv").open()))
    assert {(int(r["seed"]), int(r["iteration"])) for r in rows} == {(s, i) for s in (5, 6) for i in range(30)}
    measured = [int(r["iteration"]) for r in rows if r["tv"] and r["seed"] == "5"]
    assert measured == [9, 19, 29]
    assert all(0 <= float(r["tv"]) <= 1 for r in rows if r["tv"])
    assert all(r["loss"] for r in rows)


@pytest.mark.slow
def test_eval_reports_exact_answers(trained, tmp_path, capsys):
    assert call("eval", str(trained), "--json", str(tmp_path / "score.json")) == 0
    score = json.loads((tmp_path / "score.json").read_text())
    keys = {"mean_return", "ci95", "random_return", "seeds", "tv", "tv_ci95", "l1", "kl", "jsd", "logz_error", "modes"}
    assert keys | {"elbo", "eubo", "correlation", "log_z", "num_modes"} <= set(score)
    assert score["exact"] and score["seeds"] == 2
    assert score["log_z"] == pytest.approx(world.log_z(WorldConfig(2, 5)))
    assert score["elbo"] <= score["log_z"] <= score["eubo"]
    last = [float(r["tv"]) for r in csv.DictReader((trained / "metrics.csv").open()) if r["iteration"] == "29"]
    assert score["tv"] == pytest.approx(np.mean(last), rel=1e-4)
    assert "total variation" in capsys.readouterr().out


def test_sample_writes_objects_that_follow_the_sampler(trained, tmp_path):
    file = tmp_path / "deep" / "samples.csv"
    assert call("sample", str(trained), "-n", "1200", "--out", str(file), "--of-seed", "6") == 0
    rows = list(csv.DictReader(file.open()))
    assert list(rows[0]) == ["coordinate_1", "coordinate_2", "reward", "log_reward", "log_probability"]
    assert len(rows) == 1200
    cells = [(int(r["coordinate_1"]), int(r["coordinate_2"])) for r in rows]
    assert all(0 <= x < 5 and 0 <= y < 5 for x, y in cells)
    # What is said of the origin's probability is how often it comes up, within four standard errors.
    chance = np.exp(next(float(r["log_probability"]) for r, c in zip(rows, cells, strict=True) if c == (0, 0)))
    assert cells.count((0, 0)) / 1200 == pytest.approx(chance, abs=4 * np.sqrt(chance * (1 - chance) / 1200))


def test_sample_overwrites_nothing_unless_told_to(trained, tmp_path, capsys):
    file = tmp_path / "mine.csv"
    file.write_text("precious")
    assert call("sample", str(trained), "-n", "3", "--out", str(file)) == 2
    assert "--force" in capsys.readouterr().err and file.read_text() == "precious"
    assert call("sample", str(trained), "-n", "3", "--out", str(file), "--force") == 0
    assert len(file.read_text().splitlines()) == 4


def test_sample_can_write_to_standard_output_and_repeats_itself(trained, capsys):
    said = []
    for seed in ("1", "1", "2"):
        assert call("sample", str(trained), "-n", "20", "--out", "-", "--seed", seed) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] != said[2]
    assert len(said[0].splitlines()) == 21


@pytest.mark.slow
@pytest.mark.parametrize("rungs", ["torch,fused", "hybrid"])
def test_compare_tells_sampling_and_update_apart(rungs, tmp_path, capsys):
    files = ["--json", str(tmp_path / "c.json"), "--chart", str(tmp_path / "c.png")]
    assert call("compare", "hypergrid", "--rungs", rungs, "--iterations", "12", *files, *SMALL) == 0
    found = json.loads((tmp_path / "c.json").read_text())
    keys = {"rung", "seconds_per_iteration", "compile_seconds", "speedup", "return_first", "return_last"}
    keys |= {"peak_memory_mb", "sampling_seconds", "update_seconds", "tv", "logz_error"}
    assert [row["rung"] for row in found["rows"]] == rungs.split(",")
    for row in found["rows"]:
        assert keys <= set(row)
        assert row["sampling_seconds"] > 0 and 0 < row["tv"] < 1
        assert row["update_seconds"] is None or row["update_seconds"] > 0
    assert "tb" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss", ["tb", *(pytest.param(name, marks=pytest.mark.slow) for name in ("subtb", "fm", "flsubtb", "rtb"))]
)
def test_parity_passes(loss, tmp_path):
    file = tmp_path / "p.json"
    assert call("parity", "hypergrid", "--updates", "5", "--loss", loss, "--json", str(file), *SMALL) == 0
    levels = json.loads(file.read_text())["levels"]
    assert [level["level"] for level in levels][-2:] == ["one update", "5 updates"]
    assert all(level["passed"] for level in levels)


@pytest.mark.slow
def test_a_grid_too_large_to_enumerate_is_trained_and_measured_by_sampling(tmp_path, capsys):
    large = ["--world.dim", "21", "--world.side", "2", "--learner.width", "16", "--learner.batch-size", "6"]
    run = tmp_path / "run"
    length = ["--iterations", "4", "--evaluate-every", "4", "--eval-samples", "500"]
    assert call("train", "hypergrid", *large, *length, "--eval-episodes", "500", "--out", str(run)) == 0
    text = capsys.readouterr().out
    assert "2^21 cells are too many to be enumerated" in text and "a perfect sampler would show" in text
    assert not (run / "media" / "scatter.png").exists() and (run / "media" / "distribution.png").exists()
    rows = list(csv.DictReader((run / "metrics.csv").open()))
    assert "tv" not in rows[0] and float(rows[-1]["tv_floor"]) > 0
    assert call("sample", str(run), "-n", "3", "--out", "-") == 0
    assert "log_probability" not in capsys.readouterr().out


BAD = {
    "--world.dim 0": "1 or more coordinates",
    "--world.side 1": "2 or more values",
    "--world.side 100000": "steps",
    "--loss nothing": "nothing",
    "--world.reward rich": "rich",
    "--world.reward custom --world.r0 0": "positive",
    "--world.reward custom --world.r0 -1": "positive",
    "--world.reward custom --world.r1 -1": "negative",
    "--learner.subtb-lambda 0": "(0, 2]",
    "--learner.subtb-lambda 2.1": "(0, 2]",
    "--learner.temperature 0": "positive",
    "--learner.temperature-end -1": "positive",
    "--learner.epsilon 1.5": "[0, 1]",
    "--learner.replay-share 1": "[0, 1)",
    "--loss vargrad --learner.batch-size 1": "2 or more",
    "--iterations 0": "1 or more",
    "--learner.batch-size 2000000000": "possible in this world",
    "--learner.memory 2000000000": "possible in this world",
    "--learner.width 99999999": "65536",
    "--learner.replay uniform --learner.batch-size 1": "no room",
    "--world.reward custom --world.r2 inf": "has to be a number",
    "--world.dim 8 --world.side 20 --evaluation exact": "sampled",
    "--preset publishd": "published",
    "--rung mesh": "`mesh` needs `--mesh`",
}


@pytest.mark.parametrize(("line", "said"), BAD.items())
def test_bad_input_ends_with_a_sentence_and_writes_nothing(line, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call("train", "hypergrid", *line.split()) == 2
    told = capsys.readouterr()
    assert said in " ".join((told.err + told.out).split())
    assert list(tmp_path.iterdir()) == []


def test_only_samplers_can_be_sampled(trained, tmp_path, capsys):
    folder = tmp_path / "hunt"
    folder.mkdir()
    plan = json.loads((trained / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(plan | {"workload": "treasurehunt", "config": {}}))
    assert call("sample", str(folder)) == 2
    assert "has no objects" in capsys.readouterr().err
    assert call("sample", str(trained), "-n", "0") == 2
    assert call("sample", str(trained), "--of-seed", "9") == 2
    assert "5, 6" in capsys.readouterr().err
    assert call("sample", str(tmp_path / "nowhere")) == 2
    assert call("sample", str(trained), "--out", str(tmp_path)) == 2


def test_where_objects_go_is_checked_before_they_are_drawn(trained, monkeypatch, capsys):
    monkeypatch.setattr("xladder.runs.loading.load", lambda *given: pytest.fail("this takes time"))
    assert call("sample", str(trained), "--out", str(trained / "metrics.csv" / "samples.csv")) == 2
    assert "cannot be written: Not a directory." in capsys.readouterr().err


@pytest.mark.slow
def test_a_loss_that_is_no_number_ends_the_run_on_the_device_too(tmp_path, capsys):
    wild = ["--learner.lr", "1e12", "--iterations", "100", "--out", str(tmp_path / "run")]
    assert call("train", "hypergrid", *SMALL, *wild) == 4
    assert "stopped being a number" in capsys.readouterr().err


def test_agents_that_are_no_numbers_are_refused(trained, tmp_path, capsys):
    broken = tmp_path / "broken"
    shutil.copytree(trained, broken)
    file = broken / "checkpoints" / "agents.safetensors"
    params = {name: np.full_like(leaf, np.nan) for name, leaf in load_file(file).items()}
    save_file(params, file)
    for command in ("eval", "sample"):
        assert call(command, str(broken)) == 3
        assert "nan or infinite" in capsys.readouterr().err


def test_a_seed_that_was_never_trained_is_not_sampled(trained, tmp_path, capsys):
    stopped = tmp_path / "stopped"
    shutil.copytree(trained, stopped)
    file = stopped / "checkpoints" / "agents.safetensors"
    save_file({name: leaf[:1].copy() for name, leaf in load_file(file).items()}, file)
    assert call("sample", str(stopped), "-n", "1", "--out", "-") == 0
    assert call("sample", str(stopped), "--of-seed", "6") == 2
    assert "stopped before seed 6" in capsys.readouterr().err


@pytest.mark.slow
def test_a_long_side_is_measured_in_coarse_bins(tmp_path, capsys):
    long = ["--world.side", "1100", "--learner.width", "16", "--learner.batch-size", "4", "--iterations", "2"]
    few = ["--eval-samples", "300", "--eval-episodes", "300", "--evaluate-every", "2"]
    assert call("train", "hypergrid", *long, *few, "--out", str(tmp_path / "run")) == 0
    assert "a perfect sampler would show" in capsys.readouterr().out
