"""Runs of released versions, as they were written, under this version: read, resumed, or told what to do.

Those in `samples/0.1` were trained by the code of version 0.1, before names changed; media, events and locks are left
out.
"""

import hashlib
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import xladder
from xladder.cli.main import main
from xladder.errors import UsageError
from xladder.runs.directory import RunDirectory
from xladder.runs.listing import list_runs
from xladder.runs.upgrades import steps_per_tick

PLACE = Path(__file__).parent / "samples"
SAMPLES = sorted(path for path in PLACE.iterdir() if (path / "config.json").exists())
RELEASED = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
OLD = sorted((PLACE / "0.1").iterdir())
EACH_OLD = pytest.mark.parametrize("sample", OLD, ids=lambda sample: sample.name)
RENAMED = {
    "hypergrid": {},
    "cartpole": {"sync_every": "target_update_period", "soft": "tau", "trace": "lambda_"},
    "treasurehunt": {"sync_freq": "target_update_period", "soft": "tau"},
}
"""Settings of the samples of 0.1 that have another name now."""


def test_every_minor_version_has_a_sample():
    version = xladder.__version__.rpartition(".")[0]
    assert any(sample.name.startswith(f"{version}.") for sample in SAMPLES), "train one, and keep it in tests/samples"


@RELEASED
def test_a_run_of_a_released_version_is_read(sample, tmp_path, capsys):
    run = shutil.copytree(sample, tmp_path / "run")
    result = xladder.load(run)
    assert result.is_complete and np.isfinite(result.metrics["loss"]).all() and result.params
    directory = RunDirectory.open(run)
    found = directory.checkpoints.latest(pytest.fail)
    directory.lock.release()
    assert found is not None and found.step == result.config.ticks and found.arrays
    assert main(["runs", str(tmp_path)]) == 0 and "finished" in capsys.readouterr().out
    assert main(["diff", str(run), str(sample)]) == 0


@pytest.mark.slow
@RELEASED
def test_a_run_of_a_released_version_is_trained_on(sample, tmp_path, capsys):
    run = shutil.copytree(sample, tmp_path / "run")
    (run / "media").mkdir(exist_ok=True)
    length = xladder.load(run).config.ticks
    assert main(["resume", str(run), "--iterations", str(length + 3)]) == 0, capsys.readouterr().err
    assert xladder.load(run).metrics["loss"].shape == (1, length + 3)


@RELEASED
def test_a_checkpoint_of_another_format_says_what_to_do(sample, tmp_path, capsys):
    run = shutil.copytree(sample, tmp_path / "run")
    (run / "finished.json").unlink()
    for manifest in run.glob("checkpoints/tick-*/manifest.json"):
        text = json.dumps(json.loads(manifest.read_text()) | {"format": 0})
        manifest.write_text(text)
        manifest.with_suffix(".sha256").write_text(hashlib.sha256(text.encode()).hexdigest())
    assert main(["resume", str(run)]) == 2
    said = capsys.readouterr().err
    assert "use that version to resume" in said and f"--from {run}" in said
    assert not [*run.glob("checkpoints/*.corrupt")]


@RELEASED
@pytest.mark.parametrize(
    ("old", "said"), [("epsilon_start", "called `learner.epsilon`"), ("soft", "called `learner.tau`")]
)
def test_a_config_with_an_old_name_is_told_the_new_one(old, said, sample, tmp_path, capsys):
    run = shutil.copytree(sample, tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    config["config"]["learner"][old] = 0.1
    (run / "config.json").write_text(json.dumps(config))
    assert main(["eval", str(run)]) == 2 and said in capsys.readouterr().err


def renamed(sample: Path, run: Path) -> Path:
    """A copy of a run with the settings of 0.1 by their new names, as the message tells users to."""
    shutil.copytree(sample, run)
    text = (run / "config.json").read_text()
    for old, new in RENAMED[sample.name].items():
        text = text.replace(f'"{old}":', f'"{new}":')
    (run / "config.json").write_text(text)
    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_samples_of_0_1_have_its_names():
    assert [sample.name for sample in OLD] == sorted(RENAMED)
    for sample in OLD:
        header = (sample / "metrics.csv").read_text().splitlines()[0].split(",")
        assert header[-1] == "elapsed_seconds" and "steps" not in header
        text = (sample / "config.json").read_text()
        assert all(f'"{old}":' in text for old in RENAMED[sample.name])


@EACH_OLD
def test_a_run_of_0_1_is_listed_with_a_note(sample, tmp_path, capsys):
    shutil.copytree(sample, tmp_path / "run")
    assert main(["runs", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "finished" in said and "damaged" not in said and "written by xladder 0.1" in said
    found = list_runs(tmp_path)[0]
    assert found.steps == {"hypergrid": 6, "cartpole": 64, "treasurehunt": 16}[sample.name]
    assert found.seconds and found.recent_return is not None and not found.problem


@EACH_OLD
def test_a_run_of_0_1_is_compared_and_shown_as_it_is(sample, tmp_path, capsys):
    before = contents(sample)
    assert main(["diff", str(sample), str(sample)]) == 0 and "identical" in capsys.readouterr().out
    assert main(["report", str(sample), "--no-replay", "--out", str(tmp_path / "page.html")]) == 0
    assert contents(sample) == before


@pytest.mark.slow
@EACH_OLD
def test_a_run_of_0_1_is_drawn(sample, tmp_path, capsys):
    for x in ("steps", "seconds"):
        words = ["plot", str(sample), "--x", x, "--out", str(tmp_path / "p.png"), "--json", str(tmp_path / "p.json")]
        assert main(words) == 0, capsys.readouterr().err
    assert main(["plot", str(sample), "--out", str(tmp_path / "p.png"), "--json", str(tmp_path / "p.json")]) == 0
    curve = json.loads((tmp_path / "p.json").read_text())["groups"][0]
    assert curve["x"][-1] == {"hypergrid": 6, "cartpole": 64, "treasurehunt": 16}[sample.name]


@EACH_OLD
def test_a_run_of_0_1_is_told_all_its_new_names_at_once(sample, tmp_path, capsys):
    run = shutil.copytree(sample, tmp_path / "run")
    before = contents(run)
    for words in (["resume", str(run)], ["resume", str(run), "--iterations", "9"]):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert "nly xladder 0.1 can resume it" in said or "only that version can resume it" in said
        assert "restore" not in said and contents(run) == before
        for old, new in RENAMED[sample.name].items():
            assert re.search(rf"`(learner|pqn)\.{old}` is called `(learner|pqn)\.{new}`", said), said
    for words in (["eval", str(run)], ["export", str(run), "--to", "safetensors", "--out", str(tmp_path / "x")]):
        if RENAMED[sample.name]:
            assert main(words) == 2 and "in a copy of the run" in capsys.readouterr().err
    assert contents(run) == before


@pytest.mark.slow
@EACH_OLD
def test_a_run_of_0_1_by_its_new_names_is_used_but_not_resumed(sample, tmp_path, capsys):
    run = renamed(sample, tmp_path / "run")
    before = contents(run)
    assert main(["eval", str(run), "--episodes", "4"]) == 0, capsys.readouterr().err
    assert main(["export", str(run), "--to", "safetensors", "--out", str(tmp_path / "a.safetensors")]) == 0
    words = ["import", str(tmp_path / "a.safetensors"), "--workload", sample.name]
    assert main([*words, "--config", str(run / "config.json"), "--out", str(tmp_path / "imported")]) == 0
    result = xladder.load(run)
    assert result.is_complete and np.isfinite(result.metrics["return"][:, -1]).all() and "steps" not in result.metrics
    capsys.readouterr()
    assert main(["resume", str(run)]) == 2
    said = capsys.readouterr().err
    assert "only that version can resume it" in said and "restore" not in said and contents(run) == before
    # The command that the message ends with works.
    told = said.strip().partition("xladder train ")[2].split()
    assert main(["train", *told, "--out", str(tmp_path / "new"), "--eval-episodes", "0"]) == 0, capsys.readouterr().err
    assert xladder.load(tmp_path / "new").is_complete and contents(run) == before


def test_a_config_of_this_version_with_old_names_is_not_taken_for_one_of_0_1():
    with pytest.raises(UsageError, match=r"`learner\.soft` is called `learner\.tau`, `pqn\.trace` is") as error:
        xladder.plan("cartpole", learner={"soft": 0.1}, pqn={"trace": 0.5})
    assert "0.1 can" not in str(error.value)


@pytest.mark.parametrize(
    ("settings", "steps"),
    [
        ({"iterations": 5}, 1),
        ({"epochs": 5, "world.max_turns": 20}, 20),
        ({"world.num_envs": 8, "learner.steps_per_update": 4}, 8),
        ({"world.num_envs": 8, "learner.steps_per_update": 16}, 16),
        ({"world.num_envs": 8, "pqn.rollout": 32, "algorithm": "pqn"}, 256),
        ({"world.num_envs": 8, "world.shared": True, "learner.steps_per_update": 8}, None),
        ({"world.num_envs": "8", "learner.steps_per_update": 8}, None),
        ({"epochs": 5}, None),
    ],
)
def test_steps_of_a_tick_of_0_1(settings, steps):
    assert steps_per_tick(settings) == steps
