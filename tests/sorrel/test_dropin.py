"""`JaxIQN` and `JaxDQN` against sorrel's own models: same weights, same batches, same random numbers, same results."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import jax
import numpy as np
import pytest

if find_spec("sorrel") is None:
    pytest.skip("sorrel is not installed here: make test-sorrel", allow_module_level=True)

import torch
from sorrel.models.pytorch import PyTorchDQN, PyTorchIQN
from sorrel.models.pytorch.iqn_threadsafe import ThreadsafePyTorchIQN

from xladder import bridge, parameters
from xladder.core.compiling import compiled
from xladder.errors import UsageError
from xladder.sorrel import JaxDQN, JaxIQN, ThreadsafeJaxIQN, Together, act_together, installation, joint, learning

torch.set_num_threads(1)  # two of them hinder each other where the machine is busy
SIZES = {"input_size": (6, 3, 3), "action_space": 5, "layer_size": 32, "epsilon": 0.0, "device": "cpu", "n_frames": 4}
MORE = {"batch_size": 16, "memory_size": 128, "LR": 0.001}
PAIRS = {"iqn": (JaxIQN, PyTorchIQN), "dqn": (JaxDQN, PyTorchDQN)}


def make(kind, seed=3, **changes):
    return tuple(model(**SIZES | {"seed": seed} | MORE | changes) for model in PAIRS[kind])


def fill(model, frames, seed=0, dones=0.0, epoch=0):
    """One epoch of experiences."""
    drawn = np.random.default_rng(seed)
    model.start_epoch_action(epoch=epoch)
    for _ in range(frames):
        view = (drawn.random(54) < 0.2).astype(np.float32)
        model.memory.add(view, int(drawn.integers(5)), float(drawn.normal()), bool(drawn.random() < dones))
    model.end_epoch_action(epoch=epoch)


def arrays(model):
    """(local, target, first moments, second moments, steps) by sorrel's names, of either side's model."""
    if isinstance(model, torch.nn.Module):
        nets = [
            {k: v.numpy() for k, v in net.state_dict().items() if not parameters.is_noise(k)} for net in nets_of(model)
        ]
        named = dict(model.qnetwork_local.named_parameters())
        held = {name: model.optimizer.state.get(p, {}) for name, p in named.items()}
        moments = [
            {n: held[n].get(key, torch.zeros_like(p)).detach().numpy() for n, p in named.items()}
            for key in ("exp_avg", "exp_avg_sq")
        ]
        return *nets, *moments, int(held[next(iter(named))].get("step", 0))
    now = jax.device_get(model.learned)
    adam = now.opt_state
    trees = [parameters.to_state(model.kind, tree) for tree in (now.params, now.target, adam.mu, adam.nu)]
    return *trees, int(adam.count)


def nets_of(model):
    return model.qnetwork_local, model.qnetwork_target


def same(ours, theirs):
    return [all(np.array_equal(a[n], b[n]) for n in b) for a, b in zip(ours[:4], theirs[:4], strict=True)]


class OurDraws:
    """Give sorrel's update the random numbers of ours: for three passes, fractions and the noise of the layers."""

    def __init__(self, model, monkeypatch):
        drawn = compiled(learning.draw)(model.network, model._key, model._updates)
        self.taus, self.passes = iter(np.asarray(drawn.taus)), []
        split = model.network.learner.split_noise
        for i in range(3):
            layers = split(drawn.noise[i]) or {}
            self.passes.append({name: tuple(np.asarray(x) for x in noise) for name, noise in layers.items()})
        self.turn = -1
        monkeypatch.setattr(torch, "rand", self.rand)
        monkeypatch.setattr(torch.Tensor, "normal_", lambda tensor: tensor.copy_(torch.from_numpy(self.noise(tensor))))

    def rand(self, *shape):
        self.turn += 1
        self.waiting = [x for name in ("hidden", "advantage", "value") for x in self.passes[self.turn][name]]
        return torch.from_numpy(np.array(next(self.taus)))

    def noise(self, tensor):
        found = self.waiting.pop(0)
        found = np.array(found.T, order="C")
        assert found.shape == tuple(tensor.shape)
        return found


def train_both(ours, theirs, monkeypatch):
    """One update of each from the same batch and random numbers; the losses."""
    seed = ours._updates
    with monkeypatch.context() as patch:
        if ours.kind == "iqn":
            OurDraws(ours, patch)
        np.random.seed(seed)
        theirs_loss = theirs.train_step()
    np.random.seed(seed)
    return ours.train_step(), theirs_loss


@pytest.mark.parametrize("kind", PAIRS)
def test_a_new_model_has_the_weights_of_sorrels(kind):
    ours, theirs = make(kind, seed=2**62 + 5)
    assert all(same(arrays(ours), arrays(theirs))[:2])
    assert (ours.memory.capacity, ours.memory.obs_shape, ours.memory.n_frames) == (128, (54,), 4)
    given = {
        name: value for name, value in vars(theirs).items() if name in vars(ours) and name not in ("memory", "seed")
    }
    assert {"epsilon", "n_frames", "batch_size", "GAMMA", "sync_freq", "action_space"} <= set(given)
    assert all(getattr(ours, name) == value for name, value in given.items())
    import inspect

    defaults = [inspect.signature(model).parameters for model in PAIRS[kind]]
    assert [(p.name, p.default) for p in defaults[0].values()] == [(p.name, p.default) for p in defaults[1].values()]


@pytest.mark.parametrize("kind", PAIRS)
def test_the_same_state_has_the_same_values(kind, monkeypatch):
    ours, theirs = make(kind)
    states = np.random.default_rng(1).random((7, 216)).astype(np.float32)
    states[3:] *= np.random.default_rng(2).random((4, 216)) < 0.1  # few inputs: another way to multiply
    for state in states:
        taus = np.random.default_rng(4).random((12, 1), dtype=np.float32)
        ours._generator = np.random.default_rng(4)
        ours._policy = None
        monkeypatch.setattr(torch, "rand", lambda *shape, taus=taus: torch.from_numpy(taus.T.copy()))
        found, expected = (
            ours.policy.q_values(state[None]),
            theirs._q_values_from_policy(theirs.qnetwork_local, state[None]),
        )
        np.testing.assert_allclose(found, expected, atol=1e-6)
        ours.policy.generator = np.random.default_rng(4)
        assert ours.policy.greedy(state[None]) == expected.argmax()


@pytest.mark.parametrize("kind", PAIRS)
def test_one_update_and_a_hundred_are_sorrels(kind, monkeypatch):
    ours, theirs = make(kind)
    for model in (ours, theirs):
        fill(model, 120, dones=0.05)
        model.start_epoch_action(epoch=1)  # no synchronisation from here on
    theirs_loss = 0.0
    for number in range(100):
        loss, theirs_loss = train_both(ours, theirs, monkeypatch)
        if number == 0:
            assert loss == pytest.approx(float(theirs_loss), rel=2e-6) and loss > 0
            for part, expected in zip(arrays(ours)[:4], arrays(theirs)[:4], strict=True):
                for name, values in expected.items():
                    scale = np.abs(values).max()
                    np.testing.assert_allclose(part[name], values, atol=2e-4 * scale + 1e-9, err_msg=name)
            # The first moments after one step are the clipped gradients, times 0.1.
            for name, values in arrays(theirs)[2].items():
                np.testing.assert_allclose(arrays(ours)[2][name], values, atol=2e-7, err_msg=name)
    assert arrays(ours)[4] == arrays(theirs)[4] == 100
    assert loss == pytest.approx(float(theirs_loss), rel=5e-3)
    states = np.random.default_rng(1).random((5, 216)).astype(np.float32)
    monkeypatch.setattr(torch, "rand", lambda *shape: torch.full(shape, 0.3))
    ours._generator = type("Fixed", (), {"random": lambda self, shape, dtype: np.full(shape, 0.3, dtype)})()
    ours._policy = None
    found, expected = ours.policy.q_values(states), theirs._q_values_from_policy(theirs.qnetwork_local, states)
    np.testing.assert_allclose(found, expected, atol=5e-3 * np.abs(expected).max())


@pytest.mark.parametrize("kind", PAIRS)
def test_files_go_both_ways_with_every_bit(kind, monkeypatch, tmp_path):
    ours, theirs = make(kind)
    for trained in (False, True):
        if trained:
            for model in (ours, theirs):
                fill(model, 60)
            for _ in range(3):
                train_both(ours, theirs, monkeypatch)
        theirs.save(tmp_path / "new" / "theirs.pkl")
        other, sorrels = make(kind, seed=99, LR=0.5)
        other.load(tmp_path / "new" / "theirs.pkl")
        assert all(same(arrays(other), arrays(theirs)))
        assert other.LR == 0.001 and arrays(other)[4] == 3 * trained
        other.save(tmp_path / "ours.pkl")
        sorrels.load(tmp_path / "ours.pkl")
        assert all(same(arrays(sorrels), arrays(theirs))) and arrays(sorrels)[4] == 3 * trained
        assert sorrels.optimizer.state_dict()["param_groups"] == theirs.optimizer.state_dict()["param_groups"]
    # Both go on alike from there.
    fill(other, 60)
    fill(sorrels, 60)
    assert np.allclose(*train_both(other, sorrels, monkeypatch), rtol=2e-6)


def test_files_of_other_models_and_files_that_run_code_are_refused(tmp_path):
    ours, theirs = make("iqn")
    dqn, sorrels_dqn = make("dqn")
    wide = PyTorchIQN(**SIZES | {"seed": 0, "layer_size": 16})
    before = arrays(ours)
    for model, words in [(sorrels_dqn, "file of another model"), (wide, "shape .* but this model needs")]:
        model.save(tmp_path / "other.pkl")
        with pytest.raises(UsageError, match=words):
            ours.load(tmp_path / "other.pkl")
    theirs.save(tmp_path / "iqn.pkl")
    with pytest.raises(UsageError, match="file of another model"):
        dqn.load(tmp_path / "iqn.pkl")
    torch.save(theirs.qnetwork_local.state_dict(), tmp_path / "net.pkl")
    with pytest.raises(UsageError, match="not an agent saved by sorrel"):
        ours.load(tmp_path / "net.pkl")
    torch.save({"local": print}, tmp_path / "code.pkl")
    with pytest.raises(UsageError, match="not a PyTorch file of plain tensors"):
        ours.load(tmp_path / "code.pkl")
    content = torch.load(tmp_path / "iqn.pkl")
    content["optim"]["param_groups"][0]["betas"] = (0.5, 0.999)
    torch.save(content, tmp_path / "betas.pkl")
    with pytest.raises(UsageError, match="Adam's `betas`"):
        ours.load(tmp_path / "betas.pkl")
    with pytest.raises(UsageError, match="cannot be read"):
        ours.load(tmp_path / "nothing.pkl")
    assert all(same(arrays(ours), before))


def run_epochs(models, epochs, seed, finish=lambda number, models: None):
    """sorrel's loop: all end the epoch, then all train."""
    np.random.seed(seed)
    losses = []
    for number in range(epochs):
        for i, model in enumerate(models):
            drawn = np.random.default_rng([number, i])
            model.start_epoch_action(epoch=number)
            for _ in range(20):
                view = (drawn.random(54) < 0.2).astype(np.float32)
                model.memory.add(view, int(drawn.integers(5)), float(drawn.normal()), False)
        for model in models:
            model.end_epoch_action(epoch=number)
        finish(number, models)
        losses.append([float(model.train_step()) for model in models])
    return np.array(losses)


@pytest.mark.parametrize("kind", PAIRS)
def test_models_that_learn_together_learn_what_they_learn_alone(kind, monkeypatch):
    runs, counts, run_tasks = [], [], learning.run_tasks
    for alone in (False, True):
        monkeypatch.setattr(PAIRS[kind][0], "joins", not alone)
        joint_calls = []
        monkeypatch.setattr(
            joint, "run_tasks", lambda n, d, tasks, c=joint_calls: c.append(len(tasks)) or run_tasks(n, d, tasks)
        )
        models = [PAIRS[kind][0](**SIZES | {"seed": 10 + i} | MORE) for i in range(3)]
        for i, model in enumerate(models):  # the same streams in both runs
            model._key = jax.random.key(i)
        runs.append((run_epochs(models, 6, 0), [arrays(model) for model in models]))
        counts.append(joint_calls)
    assert set(counts[0]) == {3} and set(counts[1]) == {1} and len(counts[1]) == 3 * len(counts[0])
    np.testing.assert_array_equal(runs[0][0], runs[1][0])
    assert (runs[0][0][-1] > 0).all()
    for ours, theirs in zip(runs[0][1], runs[1][1], strict=True):
        assert all(same(ours, theirs)) and ours[4] == theirs[4] == len(counts[0])


def test_what_was_computed_too_early_is_computed_again(monkeypatch):
    """A model that stores, acts or begins an epoch before its own `train_step` learns from what is then there."""
    first, second = (JaxIQN(**SIZES | {"seed": i} | MORE) for i in range(2))
    for model in (first, second):
        fill(model, 60)
    first.train_step()
    assert second.joint.pending is not None
    before = arrays(second)
    second.memory.add(np.ones(54, np.float32), 1, 100.0, False)
    seen = []
    sample = second.memory.sample
    monkeypatch.setattr(second.memory, "sample", lambda batch_size: seen.append(batch_size) or sample(batch_size))
    second.train_step()
    assert seen == [16] and arrays(second)[4] == before[4] + 1

    for event in (lambda m: m.take_action(np.zeros((1, 216))), lambda m: m.start_epoch_action(epoch=1)):
        for model in (first, second):
            fill(model, 5, epoch=1)
            model.joint.useful = True
        first.train_step()
        before = arrays(second)
        assert second.joint.pending is not None
        event(second)
        assert second.joint.pending is None and not second.joint.useful and all(same(arrays(second), before))
        second.train_step()
        assert arrays(second)[4] == before[4] + 1 and second.joint.useful


def test_agents_that_do_not_learn_are_left_out_and_groups_have_one_size():
    learns, frozen, other = (JaxIQN(**SIZES | MORE | {"seed": i, "layer_size": 32 + 8 * (i == 2)}) for i in range(3))
    start = arrays(frozen)
    for number in range(3):
        for model in (learns, frozen, other):
            fill(model, 40, epoch=number + 1)
        learns.train_step()
        assert (frozen.joint.pending is not None) == (number == 0) and other.joint.pending is None
        other.train_step()
    assert all(same(arrays(frozen), start)) and arrays(learns)[4] == arrays(other)[4] == 3


def test_actions_are_epsilon_greedy_with_sorrels_generator():
    ours, theirs = make("iqn", epsilon=0.7)
    state = np.random.default_rng(0).random((1, 216)).astype(np.float32)
    greedy = ours.policy.greedy(state)
    found = []
    for model in (ours, theirs):
        random.seed(5)
        found.append([model.take_action(state) for _ in range(400)])
    differ = [a != b for a, b in zip(*found, strict=True)]
    assert sum(differ) <= 12 and all(isinstance(action, int) for action in found[0])  # near-ties of two actions
    assert np.bincount(found[0], minlength=5).argmax() == greedy
    ours.set_epsilon(0.5)
    ours.epsilon_decay(0.1)
    ours.reset()
    assert ours.epsilon == pytest.approx(0.45) and ours.model_name == "JaxIQN"


def test_the_target_follows_softly_and_is_synchronised():
    ours, _ = make("iqn", sync_freq=5)
    fill(ours, 60, epoch=1)
    ours.train_step()
    local, target = arrays(ours)[:2]
    assert not np.array_equal(local["ff_1.weight"], target["ff_1.weight"])
    ours.start_epoch_action(epoch=10)
    local, target = arrays(ours)[:2]
    assert all(np.array_equal(local[name], target[name]) for name in local)


def test_a_threadsafe_model_acts_while_it_learns():
    from sorrel.models.threadsafe_base_model import ThreadsafeBaseModel

    model = ThreadsafeJaxIQN(**SIZES | {"seed": 0} | MORE)
    theirs = ThreadsafePyTorchIQN(**SIZES | {"seed": 0} | MORE)
    assert isinstance(model, ThreadsafeBaseModel) and type(model.memory) is type(theirs.memory)
    model.threadsafe_start_epoch_action(epoch=0)
    state = np.random.default_rng(0).random((1, 216)).astype(np.float32)
    failures = []

    def play():
        try:
            for _ in range(200):
                snapshot = model.get_policy_snapshot()
                action = model.take_action_from_policy(state, snapshot.policy)
                model.add_experience(state[0, :54], action, 1.0, False)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=play) for _ in range(3)]
    for thread in threads:
        thread.start()
    losses = [float(model.threadsafe_train_step()) for _ in range(20)]
    for thread in threads:
        thread.join()
    assert not failures and model._version == 21 and len(losses) == 20
    old = model.get_policy_snapshot()
    weights = [np.array(part) for part in old.policy.hidden]
    assert float(model.threadsafe_train_step()) > 0
    assert model.get_policy_snapshot().policy is not old.policy
    for kept, now in zip(weights, old.policy.hidden, strict=True):
        np.testing.assert_array_equal(kept, now)


def test_models_of_other_sizes_do_not_act_together():
    ours, theirs = make("iqn")
    wide = JaxIQN(**SIZES | {"seed": 0, "layer_size": 40})
    with pytest.raises(UsageError, match=r"Model 1 is IQN on cpu .216 inputs, width 40, 5 actions, 12 quantiles."):
        Together([ours, wide])
    with pytest.raises(UsageError, match="Model 1 is a iRainbowModel"):
        Together([ours, theirs])
    with pytest.raises(UsageError, match="no models"):
        Together([])
    with pytest.raises(UsageError, match="1 states for 2 models"):
        Together([ours, ours]).take_actions([np.zeros((1, 216))])
    with pytest.raises(UsageError, match="`device` is tpu"):
        make("iqn", device="tpu")


def hunt(model, agents=3):
    """sorrel's treasure hunt with some agents."""
    from sorrel.examples.treasurehunt import env
    from sorrel.examples.treasurehunt.entities import EmptyEntity
    from sorrel.examples.treasurehunt.world import TreasurehuntWorld

    config = {
        "experiment": {"epochs": 4, "max_turns": 25, "record_period": 100},
        "model": {"agent_vision_radius": 2, "epsilon_decay": 0.01, "num_agents": agents},
        "world": {"height": 9, "width": 9, "gem_value": 10, "food_value": 5, "bone_value": -10, "spawn_prob": 0.05},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(env, "PyTorchIQN", model)  # the one changed line
        return env.TreasurehuntEnv(TreasurehuntWorld(config=config, default_entity=EmptyEntity()), config)


def test_sorrels_own_loop_runs_and_is_lock_step_until_it_learns(tmp_path):
    """Until the first update nothing but quantile fractions can differ, and with ε = 1 not even those."""
    boards = []
    for model in (JaxIQN, PyTorchIQN):
        random.seed(1)
        np.random.seed(1)
        torch.manual_seed(1)
        env = hunt(model)
        for agent in env.agents:
            agent.model.set_epsilon(1.0)
        env.config.model.epsilon_decay = 0.0
        env.run_experiment(animate=False, logging=False, output_dir=tmp_path)
        boards.append([agent.model.memory for agent in env.agents])
    for ours, theirs in zip(*boards, strict=True):
        assert (ours.idx, ours.size) == (theirs.idx, theirs.size) == (5 * 29, 5 * 26)
        np.testing.assert_array_equal(ours.states, theirs.states)
        np.testing.assert_array_equal(ours.actions, theirs.actions)
        np.testing.assert_array_equal(ours.rewards, theirs.rewards)
    assert all(arrays(agent.model)[4] > 0 for agent in env.agents)


def test_agents_observe_together_if_asked_to():
    env = hunt(JaxIQN)
    plain, seen = [type(agent).pov for agent in env.agents], []
    group = act_together(env)
    for agent, pov in zip(env.agents, plain, strict=True):
        agent.model.set_epsilon(0.3)
        agent.pov = lambda world, agent=agent, pov=pov: (
            seen.append([a.location for a in env.agents]) or pov(agent, world)
        )
    assert group.models == [agent.model for agent in env.agents]
    env.reset()
    for _ in range(5):
        env.take_turn()
    assert len(seen) == 15
    for i in range(0, 15, 3):
        assert seen[i] == seen[i + 1] == seen[i + 2]  # nobody has moved between the agents' observations
    assert all(agent.model.memory.size == 5 for agent in env.agents)
    assert "take_action" not in vars(env.agents[0].model)
    env.agents[0].get_action = lambda state: 0
    with pytest.raises(UsageError, match="does not call its model's `take_action`"):
        env.take_turn()


def test_another_version_of_sorrel_is_named(monkeypatch):
    monkeypatch.setattr(installation.metadata, "version", lambda name: "1.7.2")
    with pytest.raises(UsageError, match=r"sorrel 1\.7\.2 is installed, but .* works with sorrel 1\.6"):
        installation.require_sorrel()


def test_state_dicts_of_both_kinds_convert(tmp_path):
    for kind in PAIRS:
        _, theirs = make(kind)
        state = theirs.qnetwork_local.state_dict()
        back = bridge.to_torch(kind, bridge.to_jax(kind, state))
        assert all(torch.equal(back[name], state[name]) for name in back)
        assert list(parameters.SORREL_NAMES[kind]) == [name for name, _ in theirs.qnetwork_local.named_parameters()]


def test_the_example_runs_from_anywhere_and_is_short(tmp_path):
    source = Path(__file__).parents[2] / "examples" / "sorrel_dropin.py"
    assert len(source.read_text().splitlines()) < 100
    done = subprocess.run([sys.executable, source], cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [row[:2] for row in rows] == [
        [world, model] for world in ("treasurehunt", "tag", "cleanup") for model in ("PyTorchIQN", "JaxIQN")
    ]
    assert all(float(row[2]) > 0 and float(row[4]) > 0 for row in rows)
