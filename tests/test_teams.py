"""Teams: agents whose values are summed (VDN). Numbers worked by hand, twins, rungs, devices, and what is refused."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import xladder
from tests.test_resume import assert_exact, start
from xladder import user_code
from xladder.core.keys import reset_keys, root, step_keys
from xladder.errors import UsageError
from xladder.families.value import marl_presets, parity
from xladder.families.value.learner_config import LearnerConfig
from xladder.learners import value, value_torch
from xladder.replay.batch import Batch
from xladder.rungs import fused, mesh
from xladder.runs import nets
from xladder.worlds.marl_world import MarlEnvs, TeamEnvs

RACE = "marl/tests.own_worlds:Race"
SMALL = LearnerConfig(
    hidden=(8,), width=8, batch_size=16, learning_starts=64, memory=512, double=True, loss="squared", clip=0.5, tau=0.05
)
TEAM = marl_presets.Config(marl_presets.WorldConfig(RACE, num_envs=8, team=True), SMALL, steps=512, evaluate_episodes=0)
SHARED = replace(TEAM, world=replace(TEAM.world, shared=True))
RECURRENT = replace(TEAM, learner=replace(SMALL, recurrent=4, burn_in=2, sequence=3, prioritised=True))


@pytest.fixture(autouse=True)
def allowed():
    user_code.allow("tests.own_worlds")


# ---- the loss by hand: two agents with two actions -----------------------------------------------------------------

NOW = np.array([[1.0, 2.0], [3.0, 5.0]], np.float32)  # the online network's values of the state, by agent and action
NEXT = np.array([[0.0, 1.0], [1.0, 0.0]], np.float32)  # of the next state
TARGET = np.array([[4.0, 0.0], [1.0, 6.0]], np.float32)  # the target network's values of the next state
BOTH, FIRST = np.array([1.0, 1.0], np.float32), np.array([1.0, 0.0], np.float32)


@pytest.mark.parametrize(
    ("double", "mask", "loss"),
    [
        # Q_tot = Q_0(1) + Q_1(0) = 2 + 3 = 5. The target is 2 + ½ · (4 + 6) = 7.
        (False, BOTH, 4.0),
        # The online network prefers action 1 of the first agent and action 0 of the second: 2 + ½ · (0 + 1) = 2.5.
        (True, BOTH, 6.25),
        # The second agent may only take action 0: 2 + ½ · (4 + 1) = 4.5.
        (False, FIRST, 0.25),
    ],
)
def test_the_loss_is_that_of_the_sum_of_values(double, mask, loss):
    config = replace(SMALL, double=double)
    masks = np.stack([BOTH, mask])[None, None]  # [B, F, G, A]: frames that are nothing but the mask
    batch = Batch(
        states=np.ones_like(masks),
        actions=np.array([[1, 0]], np.int8),
        returns=np.array([2.0], np.float32),
        discounts=np.array([0.5], np.float32),
        next_states=masks,
        valid=np.ones(1, np.float32),
    )

    def outputs(values):
        return values[None, :, None]  # [B, G, Z, A]

    class Known(value.ValueLearner):
        def passes(self, params, batch):
            return value.Passes(lambda *_: outputs(params[0]), lambda *_: outputs(params[1]))

    class Net:
        head = type("Head", (), {"actions": 2})

    learner, none = Known(config, Net(), masked=1, team=2), (None, None, None)
    taus = jnp.zeros((3, 1, 0))
    found, errors = learner.loss((NOW, NEXT), (NOW, TARGET), batch, taus, none)
    assert float(found) == pytest.approx(loss) and float(errors[0]) == pytest.approx(loss**0.5)

    class KnownTorch(value_torch.TorchLearner):
        def __init__(self):
            self.config, self.device, self.masked, self.team = config, "cpu", 1, 2
            self.head, self.net, self.target, self._home = value_torch.make_head(config), Head(), None, "cpu"

        def passes(self, net, batch):
            later = NEXT if net is self.net else TARGET
            return value_torch.Passes(
                lambda *_: torch.from_numpy(outputs(NOW)), lambda *_: torch.from_numpy(outputs(later))
            )

    class Head:
        head = type("Head", (), {"actions": 2, "split_noise": staticmethod(lambda normals: None)})

    other, errors = KnownTorch().loss(batch, value_torch.Draws(torch.zeros(3, 1, 0), torch.zeros(3, 0)))
    assert float(other) == pytest.approx(loss) and float(errors[0]) == pytest.approx(loss**0.5)


# ---- the world -----------------------------------------------------------------------------------------------------


def test_a_team_has_one_reward_and_one_end():
    apart, team = MarlEnvs(RACE, 2), TeamEnvs(MarlEnvs(RACE, 2), shared=False)
    assert (team.spec.shape, team.spec.team, team.spec.agents) == ((2, *apart.spec.shape), 2, ())
    keys, actions = reset_keys(root(0), 2), np.array([[2, 1]] * 2, np.int32)  # the hares jump
    state, frames = team.reset(keys)
    other, others = apart.reset(keys)
    np.testing.assert_array_equal(frames, np.moveaxis(np.asarray(others), 0, 1))
    step, step_apart, early, ends = jax.jit(team.step), jax.jit(apart.step), 0, 0
    for t in range(8):
        state, one = step(step_keys(root(0), t, 2), state, actions)
        other, each = step_apart(step_keys(root(0), t, 2), other, actions.T)
        np.testing.assert_array_equal(one.reward, each.reward.sum(0))
        over = one.terminated | one.truncated
        np.testing.assert_array_equal(over, (each.terminated | each.truncated).all(0) & ~one.is_first)
        early += int((each.terminated | each.truncated).any(0).sum()) - int(over.sum())
        ends += int(over.sum())
        assert not (one.terminated & one.truncated).any()
    assert early > 0 and ends > 0, "no agent ended before the other"


@pytest.mark.slow
def test_the_reward_is_jaxmarls():
    """JaxMARL's own baselines learn from the sum of the agents' rewards in MPE."""
    jaxmarl = pytest.importorskip("jaxmarl")
    from jaxmarl.wrappers.baselines import CTRolloutManager

    theirs = CTRolloutManager(jaxmarl.make("MPE_simple_spread_v3"), 1)
    team = TeamEnvs(MarlEnvs("jaxmarl/MPE_simple_spread_v3", 1), shared=True)
    state, frames = team.reset(jax.random.split(jax.random.key(0), 1))
    actions = np.array([[1, 2, 3]], np.int32)
    _, step = jax.jit(team.step)(jax.random.split(jax.random.key(1), 1), state, actions)
    with jax.numpy_rank_promotion("allow"):
        _, _, rewards, *_ = theirs.step_env(
            jax.random.key(1),
            jax.tree.map(lambda x: x[0], state.world),
            {agent: actions[0, i] for i, agent in enumerate(theirs.agents)},
        )
        assert float(step.reward[0]) == pytest.approx(float(theirs.global_reward(rewards)), rel=1e-5)
    np.testing.assert_array_equal(frames[0, :, :3], np.eye(3))  # whose observation it is comes first


# ---- twins, rungs, devices -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        pytest.param(TEAM, id="separate"),
        pytest.param(SHARED, id="shared", marks=pytest.mark.slow),
        pytest.param(RECURRENT, id="with memory", marks=pytest.mark.slow),
        pytest.param(replace(RECURRENT, world=SHARED.world), id="shared with memory", marks=pytest.mark.slow),
    ],
)
def test_pytorch_and_jax_agree(config, monkeypatch):
    monkeypatch.setattr(parity, "RECORDED", 160)
    levels = parity.levels(config, 4)
    assert len(levels) == 6 and all(level.passed and level.max_abs_diff < 1e-5 for level in levels), levels


@pytest.mark.slow
@pytest.mark.parametrize("config", [TEAM, SHARED, RECURRENT], ids=["separate", "shared", "with memory"])
def test_rungs_train_the_same_and_half_and_half_is_the_whole(config):
    assert_exact(config, "fused", 20)
    ours, theirs = (start(config, rung).advance(30) for rung in ("fused", "sequential"))
    assert np.isfinite(ours["loss"][:, -1]).all() and np.isfinite(ours["returns"]).any()
    for name in ("loss", "returns", "episodes"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=2e-4, atol=1e-5, err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("config", [TEAM, SHARED], ids=["separate", "shared"])
def test_two_devices_learn_what_one_does(config):
    config = replace(config, learner=replace(SMALL, strata=2))
    one = fused.start(config, [3], jax.devices()[0])
    two = mesh.start(config, [3], jax.devices()[0], mesh="data=2")
    ours, theirs = one.advance(30), two.advance(30)
    np.testing.assert_allclose(ours["loss"], theirs["loss"], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(ours["returns"], theirs["returns"], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("rung", ["torch", "hybrid", "parallel"])
def test_other_rungs_train_a_team(rung):
    result = xladder.train(RACE, rung, preset="vdn", steps=256, evaluate_episodes=0, learner=vars_of(SMALL))
    assert np.isfinite(result.metrics["loss"]).any()


def vars_of(learner):
    return {name: getattr(learner, name) for name in ("hidden", "width", "batch_size", "learning_starts", "memory")}


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
def test_trained_agents_act_each_on_its_own(shared, tmp_path):
    world = {"team": True, "shared": shared}
    options = {"steps": 256, "evaluate_episodes": 0, "learner": vars_of(SMALL), "world": world}
    result = xladder.train(RACE, "fused", seeds=2, **options)
    assert len(result.evaluate(4)["per_agent"]) == 2
    assert nets.places(result) == [(s, a) for s in (0, 1) for a in ((0,) if shared else (0, 1))]
    policy = result.policy(seed=1, agent=0 if shared else 1)
    size = MarlEnvs(RACE, 1).spec.shape[0] + 2 * shared
    frame = np.ones(size, np.float32)
    assert policy(frame) in range(3)
    path = result.save(tmp_path / "run")
    from xladder.cli.main import main

    assert main(["export", str(path), "--to", "safetensors", "--out", str(tmp_path / "team.safetensors")]) == 0
    again = xladder.train(RACE, "fused", start_from=tmp_path / "team.safetensors", seeds=2, **options | {"steps": 8})
    assert jax.tree.leaves(again.params)[0].shape == jax.tree.leaves(result.params)[0].shape


# ---- what is refused -----------------------------------------------------------------------------------------------

REFUSED = {
    "head": ({"learner": {"head": "quantile"}}, "`--learner.head` is quantile, but a team sums values"),
    "munchausen": ({"learner": {"munchausen": True, "double": False}}, "`--learner.munchausen` is True, but a team"),
    "noisy": ({"learner": {"noisy": True}}, "`--learner.noisy` is True, but a team's agents explore by ε"),
    "pqn": ({"preset": "pqn"}, "PQN learns for one agent"),
    "actors": ({"rung": "actors"}, "actors"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_settings_that_are_no_teams_are_refused_in_a_sentence(case):
    given, said = REFUSED[case]
    with pytest.raises(UsageError, match=said):
        xladder.plan(RACE, world={"team": True}, **given)


def test_a_team_of_one_is_refused():
    with pytest.raises(UsageError, match="has one agent, hare: leave it out"):
        xladder.plan("marl/tests.own_worlds:Alone", world={"team": True})
