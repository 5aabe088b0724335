"""The examples, run as a user would: from another folder, with nothing of the package's own around."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs_blocks import blocks
from xladder.cli.main import main

EXAMPLES = Path(__file__).parents[1] / "examples"
PRINTED = {
    "own_gridworld": ["fused: return", "losses after 1,000 steps are"],
    "own_network": ["100% of words"],
    "own_gflownet": [],
    "own_loop": ["steps per episode"],
    "own_pytorch_gflownet": ["10 updates", "step in PyTorch log Z 6.", "step in JAX     log Z 6."],
    "sweep_from_python": ["over 4 seeds after"],
    "energy_model": ["−log RMSE 4.", "lattices accepted"],
}
IN_SORREL = {"sorrel_dropin"}  # needs the real sorrel: run by `make test-sorrel`


def test_every_example_is_run():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == set(PRINTED) | IN_SORREL


LONG = {
    "energy_model",
    "own_gflownet",
    "own_gridworld",
    "own_loop",
    "own_network",
    "own_pytorch_gflownet",
    "sweep_from_python",
}


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in LONG else ()) for n in PRINTED])
def test_an_example_runs_from_anywhere_and_is_short(name, tmp_path):
    source = EXAMPLES / f"{name}.py"
    assert len(source.read_text().splitlines()) < (120 if name == "own_pytorch_gflownet" else 100)
    shutil.copy(source, tmp_path)
    done = subprocess.run(
        [sys.executable, f"{name}.py"], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for text in PRINTED[name]:
        assert text in done.stdout
    if name == "own_pytorch_gflownet":
        assert "failed" not in done.stdout
        new = source.read_text().split("# ---- new")[1].split("# -----")[0]
        assert len(new.splitlines()) < 60  # all that a migration adds, but for two lines
    if name == "own_gridworld":
        words = done.stdout.split()
        assert float(words[2].rstrip(",")) > float(words[5]) + 1, done.stdout  # trained against random play
        assert float(words[-2]) < 1e-4, done.stdout  # a loss of both, not NaN before the first update


@pytest.mark.parametrize("world", ["jax/my_line:Line", "gym/my_lock:Lock-v0", "zoo/my_meeting:Meeting"])
def test_the_worlds_of_the_docs_fulfil_their_contracts(world, tmp_path, monkeypatch, capsys):
    """Written to files as the docs show them, and checked by the command that the docs give."""
    page = "docs/how-to/bring-your-own.md"
    assert f"`xladder check {world}`" in (EXAMPLES.parent / page).read_text()
    file = f"{world.partition('/')[2].partition(':')[0]}.py"
    [block] = [block for block in blocks(page) if block.controls.get("file") == file]
    (tmp_path / file).write_text(block.text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["check", world]) == 0, capsys.readouterr()
    said = capsys.readouterr().out
    assert "fulfils its contract" in said and "WRONG" not in said
