"""Runs of released versions, as they were written, under this version: read, resumed, or told what to do."""

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import xladder
from xladder.cli.main import main
from xladder.runs.directory import RunDirectory

SAMPLES = sorted((Path(__file__).parent / "samples").iterdir())
RELEASED = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)


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
