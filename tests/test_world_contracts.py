"""What worlds promise and what is made of it: an env of its own for each, twins, ends of episodes, and numbers."""

import numpy as np
import pytest
from gymnasium import spaces

import xladder
from xladder import user_code
from xladder.errors import UsageError
from xladder.worlds import zoo_host
from xladder.worlds.zoo_host import ZooEnvs

HERE = "tests.test_world_contracts"


@pytest.fixture(autouse=True)
def allowed():
    user_code.allow(HERE)


class Clock:
    """PettingZoo's parallel API: every episode has `length` steps, and each of them pays 1."""

    render_mode = None
    possible_agents = ("one",)

    def __init__(self, length=20):
        self.metadata = {"name": "clock"}
        self.length, self.time, self.agents = length, 0, []

    def observation_space(self, agent):
        return spaces.Box(0, 100, (1,), np.float32)

    def action_space(self, agent):
        return spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        self.agents, self.time = ["one"], 0
        return self._by_agent(np.zeros(1, np.float32)), self._by_agent({})

    def step(self, actions):
        self.time += 1
        over = self.time >= self.length
        self.agents = [] if over else self.agents
        seen = np.full(1, self.time, np.float32)
        return tuple(map(self._by_agent, (seen, 1.0, False, over, {})))

    def close(self):
        pass

    def _by_agent(self, value):
        return {"one": value}


class NotCopied(Clock):
    def __deepcopy__(self, memo):
        raise TypeError("no copies")


clock, not_copied = Clock(), NotCopied()


def always_the_same():
    return clock


def test_every_env_of_an_instance_is_its_own():
    envs = ZooEnvs(f"zoo/{HERE}:clock", 3, 0)
    assert not envs.reset().any()
    for t in range(1, 4):
        envs.send(np.zeros((1, 3), int))
        np.testing.assert_array_equal(envs.recv().frame, np.full((1, 3, 1), t))
    assert clock.time == 0, "the user's own object is not stepped"


def test_an_instance_is_trained_in_as_many_envs_as_there_are():
    small = {"batch_size": 8, "learning_starts": 32, "memory": 128, "hidden": (4,), "width": 4}
    result = xladder.train(Clock(5), "torch", steps=256, evaluate_episodes=0, learner=small)
    assert set(result.metrics["return"][np.isfinite(result.metrics["return"])]) == {5.0}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("not_copied", "is one environment, and every env has to be its own, but it cannot be copied: TypeError: no"),
        ("always_the_same", "returns the same environment whenever it is called"),
    ],
)
def test_an_env_that_cannot_be_copied_is_refused(name, said):
    with pytest.raises(UsageError, match=said):
        zoo_host.layout(f"zoo/{HERE}:{name}")
