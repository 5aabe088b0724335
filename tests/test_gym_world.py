"""Copies of Gymnasium worlds: the protocol, the same games as Gymnasium plays alone, and errors with a way out."""

import re
import sys
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

from xladder import bridge
from xladder.core import keys
from xladder.core.compiling import compiled
from xladder.errors import UsageError, XladderError
from xladder.families.value import config as value
from xladder.families.value import evaluation as value_evaluation
from xladder.families.value import gym_presets as gym
from xladder.families.value import summaries
from xladder.families.value.acting import build
from xladder.families.value.learner_config import LearnerConfig
from xladder.families.value.program import Program
from xladder.families.value.torch_backend import make_learner
from xladder.worlds.envs import Step, env_seeds
from xladder.worlds.gym_host import GymEnvs


def line_of(text):
    """The line of this file in which a text first occurs."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


class Probe(gymnasium.Env):
    """Shows what its space says and counts actions; its game ends for good in the step that reaches its limit."""

    def __init__(self, space, lowest=0, actions=3):
        self.observation_space = space
        self.action_space = gymnasium.spaces.Discrete(actions, start=lowest)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.low.copy(), {}

    def step(self, action):
        self.steps += 1
        return self.observation_space.high.copy(), float(action), self.steps == 2, self.steps == 2, {}


class Broken(Probe):
    """Fails when it is made, or in its second step."""

    def __init__(self, at_once):
        super().__init__(SPACES["Vector"])
        if at_once:
            raise ValueError("no map here.\nAt all.")

    def step(self, action):
        if self.steps == 1:
            raise RuntimeError("the engine has stalled")
        return super().step(action)


def box(low, high, shape, dtype):
    return gymnasium.spaces.Box(low, high, shape, dtype)


SPACES = {
    "Vector": box(-1, 1, (3,), np.float64),
    "Board": box(0, 4, (2, 3), np.int64),
    "Scalar": box(0, 4, (), np.float32),
    "Picture": box(0, 255, (8, 6, 3), np.uint8),
    "Dim": box(0, 8, (5, 4, 2), np.uint8),
    "Bytes": box(0, 255, (7,), np.uint8),
    "Film": box(0, 255, (4, 8, 6, 3), np.uint8),
    "Nothing": box(0, 1, (0,), np.float32),
}


TREE = gymnasium.spaces.Dict(
    {
        "rest": gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(4, start=2), gymnasium.spaces.MultiBinary(2)]),
        "board": box(0, 9, (2, 2), np.uint8),
    }
)


class TreeProbe(Probe):
    """Shows a dict with a tuple in it."""

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self.look(), {}

    def step(self, action):
        self.steps += 1
        return self.look(), float(action), self.steps == 2, False, {}

    def look(self):
        return {"rest": (2 + self.steps, np.array([1, 0], np.int8)), "board": np.uint8([[1, 2], [3, 4]])}


def test_dicts_and_tuples_of_numbers_become_vectors_in_the_order_of_names():
    envs = GymEnvs("ProbeTree-v0", 2, 0)
    assert envs.spec.shape == (10,) and envs.spec.dtype == np.float32
    assert envs.spec.fields == (("board", (2, 2), "uint8"), ("rest.0", (4,), "float32"), ("rest.1", (2,), "int8"))
    np.testing.assert_array_equal(envs.reset(), [[1, 2, 3, 4, 1, 0, 0, 0, 1, 0]] * 2)
    envs.send(np.zeros(2, int))
    np.testing.assert_array_equal(envs.recv().frame, [[1, 2, 3, 4, 0, 1, 0, 0, 1, 0]] * 2)
    envs.close()


@pytest.fixture(autouse=True)
def probes():
    gymnasium.registry.pop("ProbeTree-v0", None)
    gymnasium.register("ProbeTree-v0", TreeProbe, kwargs={"space": TREE}, disable_env_checker=True)
    for name, space in SPACES.items():
        gymnasium.register(f"Probe{name}-v0", Probe, kwargs={"space": space}, disable_env_checker=True)
    gymnasium.register("ProbeLow-v0", Probe, kwargs={"space": SPACES["Vector"], "lowest": -1})
    gymnasium.register("ProbeMany-v0", Probe, kwargs={"space": SPACES["Vector"], "actions": 127})
    gymnasium.register("ProbeTooMany-v0", Probe, kwargs={"space": SPACES["Vector"], "actions": 128})
    for name, at_once in [("Unmade", True), ("Stalled", False)]:
        gymnasium.register(f"Probe{name}-v0", Broken, kwargs={"at_once": at_once}, disable_env_checker=True)
    yield
    for name in (*SPACES, "Low", "Many", "TooMany", "Unmade", "Stalled"):
        del gymnasium.registry[f"Probe{name}-v0"]


def played(env_id, num_envs, seed, actions):
    """First frames, and the answers to actions [T, N] as one `Step` of arrays [T, N, …]."""
    envs = GymEnvs(env_id, num_envs, seed)
    frames, answers = envs.reset(), []
    for chosen in actions:
        envs.send(chosen)
        answers.append(envs.recv())
    envs.close()
    envs.close()
    return frames, Step(*map(np.stack, zip(*answers, strict=True)))


def random_actions(steps, num_envs, actions=2):
    return np.random.default_rng(0).integers(0, actions, (steps, num_envs))


def test_the_limit_of_a_game_is_a_truncation():
    frames, steps = played("MountainCar-v0", 2, 0, np.ones((203, 2), int))
    np.testing.assert_array_equal(np.nonzero(steps.truncated.all(1))[0], [199])
    np.testing.assert_array_equal(np.nonzero(steps.is_first.all(1))[0], [200])
    assert steps.truncated.sum() == steps.is_first.sum() == 2 and not steps.terminated.any()
    np.testing.assert_array_equal(steps.reward[198:202, 0], [-1, -1, 0, -1])
    assert np.any(steps.frame[200] != frames)  # another game


def test_a_fallen_pole_is_a_termination_and_its_last_frame_is_seen():
    actions = random_actions(80, 3)
    frames, steps = played("gym/CartPole-v1", 3, 1, actions)
    assert (frames.shape, frames.dtype) == ((3, 4), np.float32)
    assert (steps.frame.shape, steps.frame.dtype) == ((80, 3, 4), np.float32)
    for values, kind in zip(steps[1:], (np.float32, bool, bool, bool), strict=True):
        assert (values.shape, values.dtype) == ((80, 3), kind)
    assert steps.terminated.any() and not steps.truncated.any()
    np.testing.assert_array_equal(steps.is_first[1:], steps.terminated[:-1])
    assert not steps.reward[steps.is_first].any()
    assert np.all(np.abs(steps.frame[steps.terminated][:, 2]) > np.deg2rad(12))
    # Gymnasium alone plays the same first game.
    single = gymnasium.make("CartPole-v1")
    for copy, seed in enumerate(env_seeds(1, 3)):
        np.testing.assert_array_equal(single.reset(seed=int(seed))[0], frames[copy])
        for t in range(80):
            frame, reward, terminated, truncated, _ = single.step(int(actions[t, copy]))
            np.testing.assert_array_equal(frame, steps.frame[t, copy])
            assert (reward, terminated, truncated) == tuple(leaf[t, copy] for leaf in steps[1:4])
            if terminated:
                break
        else:
            pytest.fail("no game ended")


def test_games_are_their_seeds():
    actions = random_actions(30, 2)
    once, again, other = (played("CartPole-v1", 2, seed, actions)[1].frame for seed in (0, 0, 1))
    np.testing.assert_array_equal(once, again)
    assert np.all(np.any(once != other, axis=-1))
    assert np.any(once[0, 0] != once[0, 1])


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "largest"),
    [
        ("Vector", (3,), np.float32, 1),
        ("Board", (6,), np.float32, 4),
        ("Scalar", (1,), np.float32, 4),
        ("Picture", (8, 6, 3), np.uint8, 255),
        ("Dim", (5, 4, 2), np.uint8, 8),
        ("Bytes", (7,), np.uint8, 255),
    ],
)
def test_pictures_stay_and_other_arrays_become_vectors(name, shape, dtype, largest):
    envs = GymEnvs(f"Probe{name}-v0", 2, 0)
    assert envs.spec[:4] == (shape, dtype, 3, largest if dtype == np.uint8 else 1)
    frames = envs.reset()
    envs.send(np.array([0, 2]))
    step = envs.recv()
    envs.close()
    for seen, shown in ((frames, SPACES[name].low.min()), (step.frame, largest)):
        assert (seen.shape, seen.dtype) == ((2, *shape), dtype) and np.all(seen == shown)
    np.testing.assert_array_equal(step.reward, [0, 2])


def test_an_end_at_the_limit_is_an_end():
    _, steps = played("ProbeVector-v0", 1, 0, np.zeros((3, 1), int))
    np.testing.assert_array_equal(steps.terminated[:, 0], [False, True, False])
    np.testing.assert_array_equal(steps.is_first[:, 0], [False, False, True])
    assert not steps.truncated.any()


def test_actions_are_counted_from_0_wherever_the_world_begins():
    _, steps = played("ProbeLow-v0", 1, 0, np.array([[0], [2]]))
    np.testing.assert_array_equal(steps.reward[:, 0], [-1, 1])


@pytest.mark.parametrize(
    ("env_id", "said"),
    [
        ("CartPole-v7", "Gymnasium has no world `CartPole-v7`. The nearest are `gym/CartPole-v1`"),
        ("CartPoll-v1", "The nearest are `gym/CartPole-v1`"),
        ("gym/CartPoll-v1", "Gymnasium has no world `CartPoll-v1`."),
        ("ALE/Breakout-v5", "use `atari/breakout` instead of `gym/ALE/Breakout-v5`."),
        ("Pendulum-v1", "has the actions Box(-2.0, 2.0, (1,), float32)"),
        ("Pendulum-v1", "Continuous actions are learned by other libraries: Stable-Baselines3 or CleanRL"),
        ("ProbeFilm-v0", "shows uint8 [4, 8, 6, 3]"),
        ("ProbeNothing-v0", "shows float32 [0]"),
        (
            "ProbeUnmade-v0",
            "`gym/ProbeUnmade-v0` fails when it is made: ValueError: no map here (test_gym_world.py, "
            f"line {line_of('no map here')})",
        ),
        ("no_such_module:CartPole-v1", "add `--import no_such_module`"),
    ],
)
def test_worlds_that_cannot_be_played_are_explained(env_id, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        GymEnvs(env_id, 1, 0)


def test_as_many_actions_as_can_be_remembered_are_accepted():
    assert GymEnvs("ProbeMany-v0", 1, 0).spec.actions == 127


def test_a_world_that_fails_on_the_way_is_named():
    with pytest.raises(
        XladderError,
        match=r"`gym/ProbeStalled-v0` fails in its `step`: RuntimeError: the engine .* \(test_gym_world.py, line "
        rf"{line_of('the engine')}\)",
    ):
        played("ProbeStalled-v0", 1, 0, np.zeros((2, 1), int))


def test_an_evaluation_leaves_games_that_do_not_end(monkeypatch):
    """Two copies play two games each; the first game of one of them never ends."""
    config = gym.Config(gym.WorldConfig("gym/ProbeVector-v0"), LearnerConfig(hidden=(4,), width=4))
    params = Program(config).init_params(keys.root(0))
    monkeypatch.setattr(Probe, "count", 0, raising=False)
    monkeypatch.setattr(value.ValueConfig, "longest_game", 9)
    step, reset = Probe.step, Probe.reset

    def counting(self, **given):
        self.endless = Probe.count == 1
        Probe.count += 1
        return reset(self, **given)

    def going_on(self, action):
        frame, _, terminated, truncated, info = step(self, action)
        return frame, 1.0, terminated and not self.endless, truncated and not self.endless, info

    monkeypatch.setattr(Probe, "reset", counting)
    monkeypatch.setattr(Probe, "step", going_on)
    monkeypatch.setattr(value_evaluation, "AT_ONCE", 2)
    games = value_evaluation.run_episodes(config, params, 4, 0, compiled, 0.0)
    np.testing.assert_array_equal(games.returns[:, 0], [2.0, 9.0])
    assert games.left == 1
    Probe.count = 0
    score = value_evaluation.score(config, jax.tree.map(lambda x: x[None], params), 4, 0, compiled)
    assert (score["episodes"], score["unfinished"], score["mean_return"]) == (2, 1, 5.5)
    assert "2 episodes, of which 1 did not end and was abandoned" in summaries.describe_score(score)[0]


@pytest.mark.parametrize("name", ["Picture", "Dim", "Bytes"])
def test_networks_see_the_brightest_byte_as_one(name):
    """In JAX and in PyTorch."""
    world = gym.WorldConfig(f"gym/Probe{name}-v0", num_envs=1)
    torso = "mlp" if name == "Bytes" else "minatar"
    config = gym.Config(world, LearnerConfig(torso=torso, hidden=(8,), width=8))
    bright = np.full((1, 1, *SPACES[name].shape), SPACES[name].high.max(), np.uint8)
    program = Program(config)
    params = program.init_params(keys.root(0))
    other = make_learner(config)
    other.net.load_state_dict(bridge.to_torch("value", params))
    plain = build(config.learner, program.spec._replace(max_value=1), 1)
    expected = plain.values(params, bright // bright.max(), None, None)
    np.testing.assert_allclose(program.learner.values(params, bright, None, None), expected, rtol=1e-5, atol=1e-6)
    theirs = other.values(bright, np.zeros((1, 0), np.float32), None)
    np.testing.assert_allclose(theirs, expected, rtol=1e-5, atol=1e-6)


def test_old_names_of_atari_games_are_not_offered():
    import ale_py  # registers them

    assert ale_py and "Pong-v4" in gymnasium.registry
    with pytest.raises(UsageError, match="no world `Pong-v9`") as raised:
        GymEnvs("Pong-v9", 1, 0)
    assert "Pong-v4" not in str(raised.value)


def test_a_package_that_a_world_needs_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for module in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(UsageError, match=re.escape('pip install "gymnasium[box2d]"')):
        GymEnvs("LunarLander-v3", 1, 0)


def test_without_gymnasium_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    with pytest.raises(UsageError, match=r"pip install .*\[gym\]'"):
        GymEnvs("CartPole-v1", 1, 0)
