"""Worlds with sorrel's interface as worlds of ours, with a stand-in; tests/sorrel has the real package."""

import numpy as np
import pytest
from pettingzoo.test import parallel_api_test, parallel_seed_test

import xladder
from tests import standin_sorrel as standin
from xladder import user_code
from xladder.errors import UsageError, XladderError
from xladder.sorrel import installation, wrapping
from xladder.sorrel.wrapping import wrap
from xladder.worlds import names
from xladder.worlds.coroutines import Coroutine
from xladder.worlds.zoo_host import ZooEnvs


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setattr(wrapping, "require_sorrel", lambda: None)
    user_code.allow("tests.standin_sorrel")


def test_a_wrapped_world_passes_pettingzoos_tests():
    parallel_api_test(wrap(standin.make_line)(), 30)
    parallel_seed_test(wrap(standin.make_line), 20)
    parallel_seed_test(wrap(standin.make_short_line), 20)


def test_a_step_is_a_turn_in_which_all_observe_before_anyone_moves():
    env, own = wrap(standin.make_line)(), np.random.default_rng(0)
    seen, _ = env.reset(seed=5)
    state = np.random.RandomState(5)
    first, other = None, None
    first = state.randint(standin.SIZE)  # when it is made
    state.randint(standin.SIZE)  # places of the second agent: when it is made, and when it is reset
    other = state.randint(standin.SIZE)
    gold, places = np.zeros(standin.SIZE), [first, other]
    for turn in range(standin.TURNS):
        gold[state.randint(standin.SIZE)] = 1.0
        for i, agent in enumerate(env.possible_agents):
            views = np.stack([gold, np.eye(standin.SIZE)[places[1 - i]], np.eye(standin.SIZE)[places[i]]])
            np.testing.assert_array_equal(seen[agent], views.ravel())
        actions = own.integers(0, 2, 2)
        wanted = []
        for i, action in enumerate(actions):
            places[i] = int(np.clip(places[i] + (1 if action else -1), 0, standin.SIZE - 1))
            wanted.append(gold[places[i]])
            gold[places[i]] = 0.0
        seen, rewards, ended, cut, _ = env.step(dict(zip(env.possible_agents, actions, strict=True)))
        assert list(rewards.values()) == wanted and not any(ended.values())
        assert all(over == (turn == standin.TURNS - 1) for over in cut.values())
    assert env.agents == []


def test_a_world_that_is_done_terminates():
    env = wrap(standin.make_short_line)()
    ends = []
    for _ in range(20):
        env.reset()
        while env.agents:
            _, _, ended, cut, _ = env.step({"agent_0": 0, "agent_1": 1})
        ends.append((all(ended.values()), all(cut.values())))
    assert set(ends) == {(True, False), (False, True)}


def test_random_numbers_of_others_are_left_alone():
    np.random.seed(1)
    expected = np.random.random(3)
    np.random.seed(1)
    env = wrap(standin.make_line)()
    drawn = [np.random.random()]
    env.reset(seed=0)
    drawn.append(np.random.random())
    env.step({"agent_0": 0, "agent_1": 0})
    drawn.append(np.random.random())
    np.testing.assert_array_equal(drawn, expected)
    env.close()


def test_a_function_a_class_and_an_environment_can_be_wrapped():
    for wrapped in (
        wrap(standin.make_line),
        wrap(lambda: standin.Line(rich=True)),
        wrap(standin.Line(rich=True)),
        wrap(standin.Line, 2, True),
        wrap(standin.Line, lambda: 2, True),
    ):
        env = wrapped()
        assert env.possible_agents == ["agent_0", "agent_1"] and env.observation_space("agent_0").shape == (15,)
        assert wrapped() is not env and wrapped().environment is not env.environment


def test_names_lead_to_the_same_world_in_other_processes():
    name = names.name_of(wrap(standin.make_line))
    assert name == names.name_of(wrap(standin.make_line)) == "zoo/tests.standin_sorrel:make_line"
    assert names.name_of(standin.make_short_line) == "zoo/tests.standin_sorrel:make_short_line"
    assert user_code.for_children([name])
    envs = ZooEnvs(name, 3, 0)
    frames = envs.reset()
    assert frames.shape == (2, 3, 15) and envs.spec.actions == 2
    np.testing.assert_array_equal(frames, ZooEnvs(name, 3, 0).reset())
    envs.close()
    with pytest.raises(UsageError, match="exists only in this process"):
        user_code.for_children([names.name_of(wrap(standin.make_line, max_turns=3))])


def test_max_turns_can_be_given():
    env = wrap(standin.make_without_length, max_turns=2)()
    env.reset(seed=0)
    env.step({"agent_0": 1, "agent_1": 1})
    assert env.agents
    env.step({"agent_0": 1, "agent_1": 1})
    assert not env.agents


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((standin.make_without_length,), "does not say how long an epoch is: set `experiment.max_turns`"),
        ((standin.make_without_act,), "has an agent without `act`: Walker"),
        ((standin.make_empty,), "has no agents"),
        ((standin.make_text,), "shows Walker str (its `pov`), but networks need arrays"),
        ((standin.make_blind,), "make_blind` fails in `pov` of Walker: KeyError: 'Wall'."),
        ((dict,), "`dict` is a class: give its world and config"),
        ((dict, 1, 2), "`dict` cannot be created: TypeError"),
        ((lambda: 3,), "is not a sorrel environment: it lacks `take_turn`"),
        ((standin.make_line, 1, 2), "belong to an `Environment` class"),
    ],
)
def test_what_is_no_sorrel_environment_is_refused_in_a_sentence(given, sentence):
    with pytest.raises(UsageError) as caught:
        wrap(*given)
    assert sentence in str(caught.value)


def test_agents_that_never_act_are_refused_in_a_sentence():
    with pytest.raises(XladderError, match="no agent called its `get_action`"):
        wrap(standin.make_silent)().reset()


def test_sorrel_missing_or_of_another_version(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(installation.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"`sorrel` is not installed: .*pip install 'sorrel==1\.6\.\*'"):
        wrap(standin.make_line)


def test_an_error_in_the_world_is_raised_where_it_is_stepped():
    coroutine = Coroutine(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        coroutine.resume()
    paused = []
    other = Coroutine(lambda: (other.pause(), paused.append(1)))
    assert not other.resume()
    other.stop()
    assert not paused and other.ended


@pytest.mark.slow
@pytest.mark.parametrize("rung", ["torch", "sequential", "parallel"])
def test_our_learners_train_in_a_wrapped_world(rung):
    learner = {"batch_size": 16, "learning_starts": 64, "memory": 512, "hidden": (8,), "width": 8}
    fields = {"steps": 256, "evaluate_episodes": 0, "learner": learner, "world": {"stack": 2}}
    result = xladder.train(wrap(standin.make_line), rung, **fields)
    assert np.isfinite(result.metrics["loss"][:, -1]).all() and np.isfinite(result.metrics["return_agent_1"]).any()


def test_a_mistyped_function_is_answered_with_those_that_there_are():
    with pytest.raises(UsageError, match=r"has no `make_lin`, .* It has .*`Walker`.*`make_line`"):
        ZooEnvs("zoo/tests.standin_sorrel:make_lin", 1, 0)
