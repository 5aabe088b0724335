"""Observations normalised by running mean and variance: Gymnasium's numbers, on every rung, kept and exported."""

from dataclasses import replace

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests import fresh_runs
from tests.conftest import TINY_GYM, assert_trees_close, assert_trees_equal
from tests.test_exchange import bring
from tests.test_mesh import far_apart
from tests.test_resume import assert_exact, saved
from tests.test_value_rungs import JAX_RUNGS, ROUNDING, SEVERAL_STEPS, assert_same_run, follow
from xladder import user_code
from xladder.cli.main import main
from xladder.core import keys
from xladder.core.compiling import compiled
from xladder.errors import UsageError
from xladder.families.value import config as value
from xladder.families.value import evaluation, parity
from xladder.families.value import gym_presets as gym
from xladder.families.value import gymnax_presets as gymnax
from xladder.families.value import presets as named
from xladder.families.value.acting import build
from xladder.families.value.program import Program
from xladder.nets import normaliser, normaliser_torch
from xladder.plans import plan
from xladder.rungs import fused, hybrid, mesh, parallel, sequential
from xladder.rungs import torch as torch_rung
from xladder.runs import loading

RUNNING = {"normalise": "running"}
CART = replace(
    SEVERAL_STEPS,
    world=gymnax.WorldConfig(num_envs=4, **RUNNING),
    learner=replace(SEVERAL_STEPS.learner, memory=512),  # enough for every frame of a test
)
GYM = gym.Config(gym.WorldConfig(num_envs=4, **RUNNING), CART.learner, steps=CART.steps, evaluate_episodes=0)


def scaling(eps=1e-8, clip=10.0):
    return normaliser.Scaling(eps, clip)


# ---- the numbers ---------------------------------------------------------------------------------------------------


def test_the_statistics_are_those_of_gymnasiums_wrapper():
    """One stream of observations, with resets in it, through the wrapper and both of our sides."""
    envs = gymnasium.wrappers.vector.NormalizeObservation(gymnasium.make_vec("CartPole-v1", 3, "sync"))
    raw = []
    observe = envs.observations
    envs.observations = lambda seen: raw.append(np.array(seen)) or observe(seen)
    last, _ = envs.reset(seed=5)
    envs.action_space.seed(5)
    over = 0
    for _ in range(80):
        last, _, terminated, _, _ = envs.step(envs.action_space.sample())
        over += terminated.sum()
    envs.close()
    assert len(raw) == 81 and over > 5
    net = normaliser.Normaliser((4,), scaling())
    params = net.init(jax.random.key(0), jnp.zeros((1, 4)))["params"]
    twin = normaliser_torch.Normaliser((4,), 1e-8, 10.0)
    for frames in raw:
        params = jax.jit(normaliser.merge)(params, frames)
        twin.merge(torch.from_numpy(frames))
    theirs = {"mean": envs.obs_rms.mean, "variance": envs.obs_rms.var, "count": envs.obs_rms.count}
    for name, expected in theirs.items():
        np.testing.assert_allclose(params[name], expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(getattr(twin, name), expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(net.apply({"params": params}, raw[-1][:, None])[:, 0], last, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(twin(torch.from_numpy(raw[-1])), last, rtol=1e-5, atol=1e-5)


def test_a_number_is_centred_divided_and_clipped():
    """(5 − 1) / √(3.75 + 0.25) = 2, (1 + 2) / √(0 + 0.25) = 6, cut to 4."""
    statistics = {"mean": [1.0, -2.0], "variance": [3.75, 0.0], "count": 7.0}
    params = {name: jnp.float32(x) for name, x in statistics.items()}
    state = np.float32([[5.0, 1.0], [1.0, -2.5]])
    found = normaliser.Normaliser((2,), scaling(0.25, 4.0)).apply({"params": params}, state)
    np.testing.assert_allclose(found, [[2.0, 4.0], [0.0, -1.0]])
    twin = normaliser_torch.Normaliser((2,), 0.25, 4.0)
    twin.load_state_dict({name: torch.tensor(x) for name, x in statistics.items()})
    np.testing.assert_allclose(twin(torch.from_numpy(state)), found, rtol=1e-6)


def test_large_numbers_that_hardly_vary_keep_their_variance():
    """Around 10⁵, a float32 sum of squares would have lost a variance of 1."""
    rng = np.random.default_rng(0)
    frames = (1e5 + rng.standard_normal((64, 8, 1))).astype(np.float32)
    found = {"mean": jnp.zeros(1), "variance": jnp.ones(1), "count": jnp.float32(1e-4)}
    for each in frames:
        found = jax.jit(normaliser.merge)(found, each)
    # The initial mean, 0, counts as 10⁻⁴ frames: it adds 10¹⁰ · 10⁻⁴ / 512 to the variance.
    assert float(found["variance"][0]) == pytest.approx(frames.astype(np.float64).var() + 1e6 / 512, rel=1e-3)


# ---- rungs ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone():
    return {name: follow(CART, JAX_RUNGS[name]) for name in ("sequential", "fused")}


@pytest.mark.slow
def test_one_seed_is_one_run_with_the_statistics_of_all_its_frames(alone):
    assert_same_run(alone["fused"], alone["sequential"])
    assert alone["fused"].metrics["updates"].sum() > 20
    # 64 steps of 4 envs; the frame after the last step is not in the memory yet.
    rows = alone["fused"].memory.frames[:, :64].reshape(-1, 4)
    statistics = alone["fused"].agent.params["normaliser"]
    assert statistics["count"] == pytest.approx(65 * 4, abs=1e-3)
    np.testing.assert_allclose(statistics["mean"], rows.mean(0), atol=0.02)
    np.testing.assert_allclose(statistics["variance"], rows.var(0), rtol=0.05)
    for outcome in alone.values():
        assert_trees_equal(outcome.agent.params["normaliser"], outcome.agent.target["normaliser"])
        moments = outcome.agent.opt_state.nu["normaliser"]
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(moments)), "no gradient reaches the statistics"


@pytest.mark.slow
def test_other_rungs_make_the_same_run(alone):
    assert_same_run(follow(CART, parallel), alone["fused"])
    population = fused.start(CART, [2, 3])
    population.advance(32)
    assert_trees_close(jax.tree.map(lambda x: x[1:], population.params()), alone["fused"].params, ROUNDING)
    config = value.for_mesh(replace(CART, learner=replace(CART.learner, strata=2)), 2)
    one, two = fused.start(config, [3]), mesh.start(config, [3], mesh="data=2")
    assert_trees_close(one.advance(16), two.advance(16), 1e-4)
    assert_trees_close(one.params(), two.params(), 1e-4)


@pytest.mark.slow
def test_worlds_on_the_host_make_the_same_run_also_on_several_devices():
    ours, theirs = follow(GYM, parallel), follow(GYM, sequential)
    assert isinstance(ours.run, parallel.OverlappedRun)
    assert_same_run(ours, theirs)
    config = value.for_mesh(replace(GYM, learner=replace(GYM.learner, strata=2)), 2)
    one, two = parallel.start(config, [3]), mesh.start(config, [3], mesh="data=2")
    one.advance(16)
    two.advance(16)
    assert far_apart(saved(one), saved(two)) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("rung", [torch_rung, hybrid])
def test_pytorch_counts_every_frame_too(rung):
    run = rung.start(CART, [3], threads=1)
    metrics = run.advance(32)
    assert np.isfinite(metrics["loss"]).sum() > 10
    statistics = jax.tree.map(lambda x: x[0], run.params()["normaliser"])
    rows = run.loop.memories[0].history.rows.frames[:, :64].reshape(-1, 4)
    assert statistics["count"] == pytest.approx(65 * 4, abs=1e-3)
    np.testing.assert_allclose(statistics["mean"], rows.mean(0), atol=0.02)
    np.testing.assert_allclose(statistics["variance"], rows.var(0), rtol=0.05)


@pytest.mark.slow
def test_pqn_counts_every_frame_once():
    preset = named.presets("cartpole")["pqn"]
    small = {"pqn": replace(preset.pqn, rollout=8, minibatches=4), "steps": 4 * 8 * 5, "evaluate_episodes": 0}
    run = fused.start(replace(preset, world=replace(preset.world, num_envs=4, **RUNNING), **small), [0])
    assert run.params()["normaliser"]["count"] == pytest.approx([4], abs=1e-3)
    assert np.isfinite(run.advance(5)["loss"]).all()
    assert run.params()["normaliser"]["count"] == pytest.approx([4 + 4 * 8 * 5], abs=1e-3)
    assert (run.params()["normaliser"]["variance"] < 0.9).any()


@pytest.mark.slow
@pytest.mark.parametrize("rung", ["torch", "hybrid", "sequential", "parallel", "fused"])
def test_half_and_half_is_the_whole(rung):
    assert_exact(CART, rung, 8)


# ---- twins ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"recurrent": 8, "burn_in": 2, "sequence": 4}], ids="-".join)
def test_every_level_of_parity_passes(changes, monkeypatch):
    monkeypatch.setattr(parity, "RECORDED", 160)
    levels = parity.levels(replace(CART, learner=replace(CART.learner, **changes)), 3)
    assert [level.level for level in levels][:3] == ["memory twins", "statistics", "forward"]
    assert all(level.passed and level.max_abs_diff < 1e-4 for level in levels), levels


def by_fewer(self, frames, merge=normaliser_torch.Normaliser.merge):
    merge(self, frames[1:])


def without_clipping(self, states):
    return (states - self.mean) * torch.rsqrt(self.variance + self.eps)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "fault", "level"), [("merge", by_fewer, "statistics"), ("forward", without_clipping, "forward")]
)
def test_a_twin_that_normalises_otherwise_fails_where_it_enters(method, fault, level, monkeypatch):
    monkeypatch.setattr(parity, "RECORDED", 160)
    monkeypatch.setattr(normaliser_torch.Normaliser, method, fault)
    config = replace(CART, world=replace(CART.world, normalise_clip=0.5))
    assert next(one.level for one in parity.levels(config, 1) if not one.passed) == level


# ---- what users see ------------------------------------------------------------------------------------------------


def test_a_policy_uses_the_statistics_and_leaves_them():
    params = compiled(Program.init_params)(Program(CART), keys.root(0))
    centre, spread = np.float32([1, -2, 0, 5]), np.float32([2, 0.1, 1, 30])
    before = {"mean": centre, "variance": spread**2, "count": np.float32(9)}
    params = params | {"normaliser": jax.tree.map(jnp.array, before)}
    frames = np.random.default_rng(1).standard_normal((5, 1, 4)).astype(np.float32)
    plain, rest = build(CART.learner, CART.world.spec(), 1), {name: params[name] for name in ("torso", "head")}
    expected = plain.values(rest, np.clip((frames - centre) / spread, -10, 10), None, None)
    found = evaluation.policy(CART, params, compiled).values(frames)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.abs(found - plain.values(rest, frames, None, None)).max() > 0.01
    assert_trees_equal(params["normaliser"], before)


def test_the_statistics_are_exported_with_the_network(tmp_path, capsys):
    result = fresh_runs.make(tmp_path / "run", "cartpole", CART)
    assert main(["export", str(tmp_path / "run"), "--to", "torch", "--out", str(tmp_path / "net.pt")]) == 0
    state = torch.load(tmp_path / "net.pt", weights_only=True)
    assert {name for name in state if "normaliser" in name} == {
        f"normaliser.{name}" for name in ("mean", "variance", "count")
    }
    assert bring(tmp_path / "net.pt", tmp_path / "run", tmp_path / "again") == 0
    assert_trees_equal(loading.load(tmp_path / "again").params, result.params)
    fresh_runs.make(tmp_path / "plain", "cartpole", replace(CART, world=gymnax.WorldConfig(num_envs=4)))
    capsys.readouterr()
    assert bring(tmp_path / "net.pt", tmp_path / "plain", tmp_path / "other") == 2
    assert "normaliser.count" in capsys.readouterr().err


@pytest.mark.slow
def test_masks_are_not_normalised():
    """Observations of four numbers and a mask of two: statistics of four."""
    user_code.allow("tests.gym_worlds")
    world = gym.WorldConfig("gym/tests.gym_worlds:TestCorridor-v0", num_envs=2, **RUNNING)
    config = replace(TINY_GYM, world=world, learner=replace(TINY_GYM.learner, steps_per_update=2))
    run = sequential.start(config, [0])
    spec = world.spec()
    assert spec.masked and spec.shape[0] == spec.seen[0] + 2
    run.advance(6)
    statistics = run.params()["normaliser"]
    assert statistics["mean"].shape[-1:] == spec.seen
    assert statistics["mean"].sum() == pytest.approx(1.0, abs=1e-3)  # one-hot observations


@pytest.mark.parametrize(
    ("world", "more", "sentence"),
    [
        ("cartpole", {"normalise_eps": 0.0}, "`--world.normalise-eps` is 0.0, but it has to be a positive number"),
        ("cartpole", {"normalise_clip": 0.0}, "`--world.normalise-clip` is 0.0, but it has to be positive"),
        ("minatar/breakout", {}, "numbers that are not floats .uint8.*: leave out `--world.normalise running`"),
    ],
)
def test_what_cannot_be_normalised_is_refused_in_a_sentence(world, more, sentence):
    with pytest.raises(UsageError, match=sentence):
        plan(world, world=RUNNING | more)


def test_actors_say_why_they_cannot():
    with pytest.raises(UsageError, match=r"sees batches, not every observation.*Use `parallel`"):
        plan("cartpole", "actors", world=RUNNING)


@pytest.mark.slow
def test_badly_scaled_observations_are_learned_from_only_when_normalised():
    user_code.allow("tests.own_worlds")
    found = {}
    for normalise in ("running", "none"):
        preset = named.presets("jax/tests.own_worlds:BadlyScaled")["default"]
        config = replace(preset, steps=24_000, world=replace(preset.world, normalise=normalise), evaluate_episodes=0)
        run = fused.start(config, [1, 2])
        run.advance(config.ticks)
        found[normalise] = [one.mean() for one in evaluation.run_all_seeds(config, run.params(), 32, 0, compiled, 0.0)]
    assert min(found["running"]) > 250, found
    assert max(found["none"]) < 60, found
