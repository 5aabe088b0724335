"""Train on: start from another run's agents or from a file, and make a finished run longer."""

from __future__ import annotations

import json
from dataclasses import replace

import jax
import numpy as np
import pytest

import xladder
from tests.conftest import TINY, TINY_GRID
from tests.test_cli import call
from xladder.errors import UsageError
from xladder.plans import plan
from xladder.registry import RUNGS
from xladder.results import Result
from xladder.runs.directory import Keeping, RunDirectory
from xladder.runs.starting import find_beginning

GRID = ["--world.dim", "2", "--world.side", "4", "--learner.batch-size", "4", "--learner.width", "8"]
CART = plan(
    "cartpole",
    steps=400,
    evaluate_episodes=0,
    learner={"hidden": (16,), "width": 16, "memory": 400, "learning_starts": 40, "batch_size": 8},
).config
CONFIGS = {"treasurehunt": TINY, "hypergrid": TINY_GRID, "cartpole": CART}


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def other_params(config, seed):
    program = config.family.program(config)
    return jax.tree.map(lambda x: np.asarray(x)[None], program.fresh_params(np.int32(seed)))


QUICK = {("cartpole", "torch"), ("treasurehunt", "sequential"), ("hypergrid", "fused")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "rung"),
    [
        (w, r) if (w, r) in QUICK else slow(w, r)
        for w in CONFIGS
        for r in ("torch", "hybrid", "sequential", "parallel", "fused")
    ],
)
def test_every_rung_takes_parameters(workload, rung):
    config = CONFIGS[workload]
    running = RUNGS[rung].start(config, [0])
    params = other_params(config, 99)
    running.take_params(params)
    for ours, theirs in zip(jax.tree.leaves(running.params()), jax.tree.leaves(params), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    running.advance(2)


@pytest.mark.slow
def test_agents_of_one_seed_serve_all_and_others_must_match(grid):
    two = xladder.load(grid)
    params = jax.tree.map(lambda leaf: leaf[:1], two.params)
    one = Result(replace(two.plan, seeds=(0,)), two.metrics, params, 0.0)
    begun = find_beginning(one, plan("hypergrid", "fused", seeds=3, config=two.config))
    assert {leaf.shape[0] for leaf in jax.tree.leaves(begun.params)} == {3}
    with pytest.raises(UsageError, match="agents of 2 seeds, and this run has 3"):
        find_beginning(two, plan("hypergrid", "fused", seeds=3, config=two.config))
    with pytest.raises(UsageError, match="do not fit these settings"):
        find_beginning(two, plan("hypergrid", "fused", seeds=2, config=two.config, learner={"width": 24}))
    with pytest.raises(UsageError, match="agents of `hypergrid`, which are of another kind than those of `cartpole`"):
        find_beginning(two, plan("cartpole", "fused", config=CART))
    with pytest.raises(UsageError, match="no such run directory or file"):
        find_beginning("nowhere", plan("hypergrid", "fused", config=TINY_GRID))


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    """A finished run of 40 iterations, two seeds."""
    out = tmp_path_factory.mktemp("on") / "first"
    words = [*GRID, "--iterations", "40", "--seeds", "2", "--eval-episodes", "10", "--evaluate-every", "20"]
    assert call("train", "hypergrid", *words, "--out", str(out)) == 0
    return out


@pytest.mark.slow
def test_a_run_starts_from_another_with_its_optimiser(grid, tmp_path):
    begun = find_beginning(grid, plan("hypergrid", "fused", seeds=2, config=xladder.load(grid).config))
    assert begun.optimiser and any(np.abs(a).max() > 0 for a in begun.optimiser.values() if a.dtype.kind == "f")
    words = ["train", "hypergrid", "--config", str(grid / "config.json"), "--from", str(grid), "--learner.lr", "1e-30"]
    assert call(*words, "--learner.log-z-lr", "1e-30", "--out", str(tmp_path / "second")) == 0
    first, second = xladder.load(grid), xladder.load(tmp_path / "second")
    for ours, theirs in zip(jax.tree.leaves(first.params), jax.tree.leaves(second.params), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)
    assert (tmp_path / "second/checkpoints/start.safetensors").exists()


@pytest.mark.slow
def test_a_file_of_pytorch_is_trained_on_and_resume_gives_the_command(grid, tmp_path, capsys):
    file, imported = str(tmp_path / "nets.pt"), str(tmp_path / "imported")
    assert call("export", str(grid), "--to", "torch", "--out", file) == 0
    assert call("import", file, "--workload", "hypergrid", *GRID, "--iterations", "5", "--out", imported) == 0
    capsys.readouterr()
    assert call("resume", imported) == 2
    said = capsys.readouterr().err
    command = said.split("To train them: ")[1].strip().split()
    assert call(*command[1:], "--out", str(tmp_path / "on")) == 0
    assert (
        call(
            "train",
            "hypergrid",
            *GRID,
            "--iterations",
            "5",
            "--seeds",
            "2",
            "--from",
            file,
            "--out",
            str(tmp_path / "b"),
        )
        == 0
    )
    assert call("train", "hypergrid", *GRID, "--iterations", "5", "--from", str(tmp_path / "none")) == 2


@pytest.mark.slow
def test_a_finished_run_is_made_longer_and_is_the_longer_run(grid, tmp_path, capsys):
    words = [*GRID, "--seeds", "2", "--eval-episodes", "10", "--evaluate-every", "20"]
    short, whole = str(tmp_path / "short"), str(tmp_path / "whole")
    assert call("train", "hypergrid", *words, "--iterations", "40", "--out", short) == 0
    assert call("resume", short, "--iterations", "40") == 2
    assert call("resume", short, "--epochs", "80") == 2
    assert "counted in iterations" in capsys.readouterr().err
    assert call("resume", short, "--iterations", "80") == 0
    assert "Exploration still ends at iteration 36" in capsys.readouterr().out
    # The same as a run that was planned to be so long, with exploration ending at the same iteration.
    share = repr(0.9 * 40 / 80)
    assert (
        call("train", "hypergrid", *words, "--iterations", "80", "--learner.explore-until", share, "--out", whole) == 0
    )
    ours, theirs = xladder.load(short), xladder.load(whole)
    for name in ("loss", "return", "epsilon", "tv"):
        np.testing.assert_array_equal(ours.metrics[name], theirs.metrics[name], err_msg=name)
    assert ours.config == theirs.config and json.loads((tmp_path / "short/config.json").read_text())["earlier"]
    assert call("resume", short) == 0
    assert xladder.resume(short, iterations=90, progress=False).metrics["loss"].shape == (2, 90)


def test_epsilon_stays_where_it_was_when_a_run_is_made_longer():
    config = plan("cartpole", preset="rainbow").config
    longer, notes = config.family.lengthened(config, 2 * config.steps)
    assert longer.explore_steps == config.explore_steps and longer.interval == config.interval
    assert any("β" in note for note in notes) and longer.steps == 2 * config.steps


def test_a_new_length_is_rounded_up_and_said(tmp_path):
    directory = RunDirectory.create(tmp_path / "run", plan("cartpole", config=CART), Keeping())
    try:
        notes = directory.lengthen(401)
    finally:
        directory.lock.release()
    assert notes[0].startswith("401 steps are rounded up to 408: a tick is 1 step of 8 envs")
    assert json.loads((tmp_path / "run/config.json").read_text())["config"]["steps"] == 408


@pytest.mark.slow
def test_replays_are_saved_exactly_where_they_are_due(tmp_path):
    xladder.train(
        "hypergrid",
        config=TINY_GRID,
        iterations=7,
        record_every=3,
        out=tmp_path / "run",
        eval_episodes=0,
        progress=False,
    )
    folders = sorted(folder.name for folder in (tmp_path / "run/media").glob("at-*"))
    assert folders == ["at-000000003", "at-000000006"]
    assert all(any(folder.iterdir()) for folder in (tmp_path / "run/media").glob("at-*"))
    with pytest.raises(UsageError, match="not possible on `hosts`"):
        RunDirectory.create(
            tmp_path / "h", replace(plan("hypergrid", config=TINY_GRID), rung="hosts"), Keeping(record_every=3)
        )
