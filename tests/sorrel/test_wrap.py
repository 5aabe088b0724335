"""Real sorrel environments on our host rungs: the dynamics are sorrel's, and our learners train in them."""

import copy

import numpy as np
import pytest

pytest.importorskip("sorrel")

from omegaconf import OmegaConf
from pettingzoo.test import parallel_api_test, parallel_seed_test
from sorrel.entities.basic_entities import EmptyEntity as Empty
from sorrel.examples.cleanup.entities import EmptyEntity as CleanupEmpty
from sorrel.examples.cleanup.env import CleanupEnv
from sorrel.examples.cleanup.world import CleanupWorld
from sorrel.examples.iowa.entities import EmptyEntity as IowaEmpty
from sorrel.examples.iowa.env import GamblingEnv
from sorrel.examples.iowa.world import GamblingWorld
from sorrel.examples.tag.env import TagEnv
from sorrel.examples.treasurehunt.entities import EmptyEntity as HuntEmpty
from sorrel.examples.treasurehunt.env import TreasurehuntEnv
from sorrel.examples.treasurehunt.world import TreasurehuntWorld
from sorrel.examples.treasurehunt_threadsafe.entities import EmptyEntity as ThreadsafeEmpty
from sorrel.examples.treasurehunt_threadsafe.env import TreasurehuntEnv as ThreadsafeEnv
from sorrel.examples.treasurehunt_threadsafe.world import TreasurehuntWorld as ThreadsafeWorld
from sorrel.worlds import Gridworld

import xladder
from xladder import user_code

TURNS = 12
EXPERIMENT = {"epochs": 1, "max_turns": TURNS, "record_period": 50}
HUNT = {
    "experiment": EXPERIMENT,
    "model": {"agent_vision_radius": 2, "epsilon_decay": 0.0005, "observation_spec": "onehot"},
    "world": {"height": 8, "width": 8, "gem_value": 10, "food_value": 5, "bone_value": -10, "spawn_prob": 0.05},
}
TAG = {
    "experiment": EXPERIMENT,
    "model": {"epsilon_decay": 0.0001},
    "agent": {"num_agents": 3, "vision_radius": 2},
    "world": {"height": 6, "width": 6, "layers": 1},
}
IOWA = {
    "experiment": EXPERIMENT,
    "model": {
        "agent_vision_radius": 2,
        "parameters": {"layer_size": 250, "epsilon": 0.5, "device": "cpu", "n_frames": 5},
    },
    "world": {"height": 8, "width": 8, "spawn_prob": 0.05},
}
CLEANUP = OmegaConf.create(
    {
        "experiment": EXPERIMENT,
        "env": {
            "height": 12,
            "width": 12,
            "layers": 3,
            "full_mdp": False,
            "pollution_threshold": 0.5,
            "initial_apples": 8,
            "apple_spawn_chance": 0.05,
            "pollution_spawn_chance": 0.05,
            "mode": "DEFAULT",
        },
        "model": {
            "iqn": {
                "parameters": {
                    "layer_size": 250,
                    "batch_size": 64,
                    "memory_size": 1024,
                    "epsilon": 0.8,
                    "device": "cpu",
                }
            }
        },
        "agent": {"agent": {"num": 3, "beam_radius": 2, "obs": {"channels": 8, "vision": 3, "n_frames": 5}}},
    }
)


def make_hunt():
    return TreasurehuntEnv(TreasurehuntWorld(HUNT, HuntEmpty()), HUNT)


def make_rgb_hunt():
    config = {**HUNT, "model": {**HUNT["model"], "observation_spec": "rgb"}}
    return TreasurehuntEnv(TreasurehuntWorld(config, HuntEmpty()), config)


def make_threadsafe_hunt():
    return ThreadsafeEnv(ThreadsafeWorld(HUNT, ThreadsafeEmpty()), HUNT)


def make_tag():
    return TagEnv(Gridworld(**TAG["world"], default_entity=Empty()), TAG)


def make_iowa():
    return GamblingEnv(GamblingWorld(IOWA, IowaEmpty()), IOWA)


def make_cleanup():
    return CleanupEnv(CleanupWorld(CLEANUP, CleanupEmpty()), CLEANUP)


WORLDS = [make_hunt, make_rgb_hunt, make_threadsafe_hunt, make_tag, make_iowa, make_cleanup]


@pytest.mark.parametrize("make", WORLDS)
def test_every_world_of_sorrel_passes_pettingzoos_tests(make):
    wrapped = xladder.sorrel.wrap(make)
    parallel_api_test(wrapped(), 2 * TURNS)
    parallel_seed_test(wrapped, TURNS)


@pytest.mark.parametrize("make", WORLDS)
def test_a_wrapped_world_is_sorrels_own(make):
    """sorrel's own loop, with the same seed and actions: the same rewards, and the first agent sees the same."""
    seed, actions = 3, np.random.default_rng(0).integers(0, 4, (TURNS, 10))
    env = xladder.sorrel.wrap(make)()
    seen, _ = env.reset(seed=seed)
    state = np.random.get_state()
    try:
        np.random.seed(seed)
        theirs = make()
        theirs.reset()
        memory = [[] for _ in theirs.agents]
        for i, agent in enumerate(theirs.agents):
            agent.get_action = lambda state, i=i: int(actions[theirs.turn - 1, i])
            agent.add_memory = lambda *experience, i=i: memory[i].append(experience)
        for _ in range(TURNS):
            theirs.take_turn()
    finally:
        np.random.set_state(state)
    rewarded = 0
    for turn in range(TURNS):
        np.testing.assert_allclose(seen["agent_0"], np.ravel(memory[0][turn][0]).astype(np.float32), rtol=0, atol=0)
        seen, rewards, _, cut, _ = env.step(dict(zip(env.possible_agents, actions[turn], strict=False)))
        assert list(rewards.values()) == [float(experience[turn][2]) for experience in memory]
        rewarded += any(rewards.values())
    assert all(cut.values()) and rewarded


def test_a_class_and_its_world_can_be_wrapped():
    config = copy.deepcopy(HUNT)
    wrapped = xladder.sorrel.wrap(TreasurehuntEnv, TreasurehuntWorld(config, HuntEmpty()), config)
    one, two = wrapped(), wrapped()
    for _ in range(2):
        np.testing.assert_array_equal(one.reset(seed=1)[0]["agent_1"], two.reset(seed=1)[0]["agent_1"])
    assert one.environment.world is not two.environment.world


def test_a_constructed_environment_can_be_wrapped():
    env = xladder.sorrel.wrap(make_hunt())()
    parallel_api_test(env, TURNS)


@pytest.mark.parametrize("rung", ["torch", "sequential", "parallel"])
def test_our_learners_train_in_sorrels_treasure_hunt(rung):
    learner = {"batch_size": 32, "learning_starts": 96, "memory": 1024, "hidden": (16,), "width": 16}
    fields = {"steps": 256, "evaluate_episodes": 2, "learner": learner, "world": {"stack": 5, "num_envs": 2}}
    result = xladder.train(xladder.sorrel.wrap(make_hunt), rung, preset="iqn", **fields)
    assert np.isfinite(result.metrics["loss"][:, -1]).all()
    assert set(result.metrics) >= {"return_agent_0", "return_agent_1"}


def test_a_name_on_the_command_line_is_enough():
    from xladder.cli.main import main

    user_code.allow("tests.sorrel.test_wrap")
    assert main(["check", "tests.sorrel.test_wrap:make_tag"]) == 0


def test_check_compares_a_world_in_jax_with_sorrels(tmp_path):
    """Step by step, with sorrel's draws replaced by ours: our treasure hunt is sorrel's."""
    pytest.importorskip("jaxmarl")
    from xladder.cli.main import main

    found = tmp_path / "found.json"
    assert main(["check", "marl/tests.sorrel.moved_hunt:Hunt", "--json", str(found)]) == 0
    assert "its twin returns the same for 200 steps" in found.read_text()
    assert main(["check", "marl/tests.sorrel.moved_hunt:WrongHunt", "--json", str(found)]) == 2
    assert "returns a different reward: the reward of agent_" in found.read_text()
