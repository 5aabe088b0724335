"""Several devices do what one does: the same numbers, but for rounding, however a run is laid over them."""

import json
from dataclasses import replace
from functools import cache

import jax
import numpy as np
import optax
import pytest

from tests.conftest import TINY, TINY_CART, TINY_GRID
from tests.test_resume import saved, slow
from xladder.cli.main import main
from xladder.core.state import restore
from xladder.errors import UsageError
from xladder.learners.gflownet import GFlowNetLearner
from xladder.learners.value import ValueLearner
from xladder.plans import plan
from xladder.registry import RungOptions
from xladder.rungs import fused, layout, mesh
from xladder.rungs.mesh import DeviceDataParallel

# About half of the gradients are cut: were all of them, one of the wrong length would be, too, and not be noticed.
CART = replace(
    TINY_CART,
    world=replace(TINY_CART.world, num_envs=8),
    learner=replace(TINY_CART.learner, batch_size=16, strata=8, steps_per_update=8, memory=400, clip=0.95),
)
GRID = replace(TINY_GRID, learner=replace(TINY_GRID.learner, batch_size=16, replay="uniform"))
HUNT = replace(TINY, learner=replace(TINY.learner, batch_size=8, clip=0.35))
# Devices have different numbers of transitions.
BY_TRANSITIONS = replace(GRID, loss="fm", learner=replace(GRID.learner, weighting="transitions"))
RUNS = {
    "treasurehunt": (HUNT, 4),
    "hypergrid": (GRID, 6),
    "cartpole": (CART, 20),
    "hypergrid by transitions": (BY_TRANSITIONS, 6),
}
SEEDS = [3, 4]


@pytest.fixture(params=["sgd", pytest.param("adam", marks=pytest.mark.slow)])
def optimiser(request, monkeypatch):
    """SGD shows a gradient that is too long or too short; Adam does not."""
    if request.param == "sgd":
        for learner in (ValueLearner, GFlowNetLearner):
            monkeypatch.setattr(learner, "optimiser", lambda self: optax.identity())
    return request.param


@cache
def on_one_device(workload, optimiser):
    """State and metrics of the run as `fused` has it. `optimiser` only tells two such runs apart."""
    config, ticks = RUNS[workload]
    running = fused.start(config, SEEDS, jax.devices()[0])
    metrics = running.advance(ticks)
    return saved(running), metrics


def for_mesh(workload, shape):
    config, ticks = RUNS[workload]
    running = mesh.start(config, SEEDS, jax.devices()[0], mesh=shape)
    metrics = running.advance(ticks)
    return saved(running), metrics


def far_apart(ours, theirs):
    """The largest difference between two runs, over everything that they consist of and report."""
    assert set(ours) == set(theirs)
    gaps = [0.0]
    for name, array in theirs.items():
        a, b = np.asarray(ours[name], float), np.asarray(array, float)
        assert a.shape == b.shape, name
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b), err_msg=name)
        gaps += [np.nanmax(np.abs(a - b))] if a.size and not np.isnan(a).all() else []
    return max(gaps)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape", [slow("data=1"), slow("data=2"), "data=4", slow("data=8"), slow("seeds=2"), slow("seeds=2,data=4")]
)
@pytest.mark.parametrize("workload", [w if w == "hypergrid" else slow(w) for w in RUNS])
def test_devices_together_do_what_one_does(workload, shape, optimiser):
    state, metrics = for_mesh(workload, shape)
    alone, expected = on_one_device(workload, optimiser)
    assert far_apart(metrics, expected) < 2e-5
    assert far_apart(state, alone) < 1e-6
    if "data" not in shape:  # seeds need nothing of each other: not even rounding differs
        assert far_apart(state, alone) == 0


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["hypergrid", slow("treasurehunt"), slow("cartpole")])
def test_a_gradient_of_the_wrong_scale_is_noticed(workload, monkeypatch):
    """The sum in place of the mean, as `pmean` after JAX's own `psum` would give it."""
    for learner in (ValueLearner, GFlowNetLearner):
        monkeypatch.setattr(learner, "optimiser", lambda self: optax.identity())
    alone, _ = on_one_device(workload, "sgd")
    monkeypatch.setattr(DeviceDataParallel, "mean", DeviceDataParallel.add)
    state, _ = for_mesh(workload, "data=4")
    assert far_apart(state, alone) > 1e-5  # ten times what may be rounding


@pytest.mark.slow
def test_pmap_gives_the_same(workload="hypergrid", devices=4):
    """What `mesh` does, in the older words: `pmap` maps over a leading axis that has one entry per device.

    Whatever is the same everywhere has to be copied by hand, and is told apart from what differs by nothing but care.
    """
    config, ticks = RUNS[workload]
    program = config.family.program_for(config, "cpu")
    counters, runs = program.init_counters(), jax.vmap(program.init)(np.asarray(SEEDS, np.int32))
    data_parallel = replace(program, data_parallel=DeviceDataParallel(devices))
    copied = jax.tree.map(lambda x: jax.numpy.stack([x] * devices), (counters, runs))
    tick = jax.pmap(data_parallel.tick, axis_name=layout.DATA)
    for _ in range(ticks):
        *copied, _ = tick(*copied)
    ours = program.params(jax.tree.map(lambda x: x[0], copied[1]))
    on_mesh = mesh.start(config, SEEDS, jax.devices()[0], mesh=f"data={devices}")
    on_mesh.advance(ticks)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(on_mesh.params()), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-7)


@pytest.mark.parametrize("workload", [slow(w) for w in ("cartpole", "treasurehunt", "hypergrid")])
def test_more_devices_take_over_from_one_and_fewer_from_more(workload):
    config, ticks = RUNS[workload]
    state, _ = on_one_device(workload, "adam")
    whole = fused.start(config, SEEDS, jax.devices()[0])
    whole.advance(2 * ticks)
    wide = mesh.start(config, SEEDS, jax.devices()[0], mesh="data=4")
    wide.take_state(restore(wide.state(), state))
    wide.advance(ticks // 2)
    narrow = fused.start(config, SEEDS, jax.devices()[0])
    narrow.take_state(restore(narrow.state(), saved(wide)))
    narrow.advance(ticks - ticks // 2)
    assert far_apart(saved(narrow), saved(whole)) < 1e-5


@pytest.mark.slow
def test_strata_give_every_row_the_same_chance_and_each_group_its_part():
    from xladder.replay import history

    window, rng = history.Window(1, 1, 6), np.random.default_rng(0)
    memory = history.init(8, 6, (1,), np.float32)
    cursor = history.Cursor(np.int32(0), np.int32(6))
    indices = history.sample_indices(window, cursor, memory, rng.random((4000, 4, 2), np.float32), 4)
    np.testing.assert_array_equal(np.asarray(indices.env) // 2, np.arange(4000) // 1000)
    counts = np.bincount(np.asarray(indices.env) * 6 + np.asarray(indices.slot), minlength=48)
    assert sorted(set(np.nonzero(counts)[0] % 6)) == [0, 1, 2, 3, 4]  # what follows the newest row is not known
    assert abs(counts[counts > 0] - 100).max() < 50


BAD = {
    "mesh data=16": "needs 16 devices, but JAX finds 8 (cpu): set `JAX_NUM_CPU_DEVICES=16`",
    "mesh seeds=3": "`--seeds` is 1, which 3 devices cannot share evenly: use 3",
    "mesh data=3": "`--learner.batch-size` is 16, which 3 devices cannot share evenly: use 15 or 18",
    "mesh data=0": "has to be like `seeds=4`",
    "mesh rows=2": "has to be like `seeds=4`",
    "mesh data=2,data=2": "has to be like `seeds=4`",
    "mesh data=2 --rung fused": "`--mesh` is for `mesh`",
    "rung mesh": "`mesh` needs `--mesh`",
    "mesh data=2 --loss vargrad": "shard seeds over the devices",
}


@pytest.mark.parametrize("words", BAD)
def test_what_cannot_be_laid_out_is_said(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "hypergrid", "--learner.batch-size", "16", *f"--{words}".split()]) == 2
    assert BAD[words] in capsys.readouterr().err.replace("\n", " ")
    assert not list(tmp_path.glob("runs/*"))


def test_value_learners_say_what_a_mesh_lacks():
    with pytest.raises(UsageError, match="seeds"):
        plan("atari/pong", options=RungOptions(mesh="seeds=2"), seeds=2)
    for changes, said in [
        ({"learner": {"prioritised": True}}, "Prioritised replay"),
        ({"steps": 12_000, "world": {"num_envs": 12}, "learner": {"steps_per_update": 12}}, "world.num-envs"),
        ({"learner": {"batch_size": 60}}, "batch-size"),
    ]:
        with pytest.raises(UsageError, match=said):
            plan("cartpole", options=RungOptions(mesh="data=8"), **changes)
    found = plan("cartpole", options=RungOptions(mesh="data=2"), learner={"batch_size": 64}, world={"num_envs": 8})
    assert found.rung == "mesh" and found.config.learner.strata == 8


@pytest.mark.slow
def test_a_run_on_a_mesh_is_a_run_like_any_other(tmp_path, capsys):
    words = ["train", "hypergrid", "--mesh", "seeds=2,data=2", "--seeds", "2", "--iterations", "60", "--world.dim", "2",
             "--world.side", "5", "--learner.width", "16", "--checkpoint-every", "30",
             "--eval-episodes", "0"]  # fmt: skip
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    assert "A mesh of 4 cpu devices: 2 along `seeds`, 2 along `data`." in capsys.readouterr().out
    assert json.loads((tmp_path / "a/config.json").read_text())["options"] == {"mesh": "seeds=2,data=2"}
    (tmp_path / "a/finished.json").unlink()
    assert main(["resume", str(tmp_path / "a"), "--rung", "fused"]) == 0
    (tmp_path / "a/finished.json").unlink()
    assert main(["resume", str(tmp_path / "a"), "--mesh", "seeds=3"]) == 2
    assert main(["resume", str(tmp_path / "a"), "--mesh", "data=4"]) == 0
    assert main(["train", "hypergrid", "--config", str(tmp_path / "a/config.json"), "--out", str(tmp_path / "b")]) == 0
    assert main(["diff", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
