"""What worlds promise and what is made of it: an env of its own for each, twins, ends of episodes, and numbers."""

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import xladder
from tests.own_worlds import Corridor
from tests.test_own_gflownet import Strings
from xladder import user_code
from xladder.bad_numbers import returned_by_world
from xladder.cli.main import main
from xladder.errors import UsageError, UserCodeFailed
from xladder.families.gflownet.check import remarks_on
from xladder.worlds import contract, contract_host, gymnax_world, marl_world, twin_check, zoo_host
from xladder.worlds.twin_check import TwinFault
from xladder.worlds.zoo_host import ZooEnvs

HERE = "tests.test_world_contracts"
SMALL = {"batch_size": 8, "learning_starts": 32, "memory": 128, "hidden": (4,), "width": 4}


@pytest.fixture(autouse=True)
def allowed():
    for module in (HERE, "tests.own_worlds", "tests.test_own_gflownet"):
        user_code.allow(module)


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
    result = xladder.train(Clock(5), "torch", steps=256, evaluate_episodes=0, learner=SMALL)
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


class Lamp(Corridor):
    """As careful about types as a compiled world may be: `astype` is no method of a Python number."""

    def step_env(self, key, state, action, params):
        return super().step_env(key, state, action.astype(jnp.int32), params)


class LampTwin:
    """The same world, which keeps its limit elsewhere and reports it as done."""

    default_params = {"limit": 20}  # noqa: RUF012

    def reset_env(self, key, params):
        return Corridor().reset_env(key, None)

    def step_env(self, key, state, action, params):
        seen, state, reward, done, info = Corridor().step_env(key, state, action, None)
        return (
            seen,
            state._replace(time=state.time.astype(jnp.int32)),
            reward,
            done | (state.time >= params["limit"]),
            info,
        )


class FailingTwin(LampTwin):
    def step_env(self, key, state, action, params):
        raise ValueError("no light")


@pytest.mark.parametrize(
    ("world", "twin", "said"),
    [
        ("Lamp", "LampTwin", ""),
        ("Lamp", "FailingTwin", f"`{HERE}:FailingTwin` fails in its `step`: ValueError: no light ("),
        ("Lamp", "tests.own_worlds:Race", "`tests.own_worlds:Race` lacks `reset_env`, and the world is for one agent"),
        ("Race", "Lamp", f"`{HERE}:Lamp` is for one agent, but the world has 2: hare, tortoise."),
    ],
)
def test_a_twin_has_its_own_parameters_and_its_faults_are_not_the_worlds(world, twin, said, monkeypatch):
    monkeypatch.setattr(twin_check, "STEPS", 30)
    several = world == "Race"
    found = marl_world.load("marl/tests.own_worlds:Race") if several else gymnax_world.load(f"jax/{HERE}:{world}")
    name = twin if ":" in twin else f"{HERE}:{twin}"
    try:
        found = list(twin_check.compare(found, several, user_code.find(name, "world"), name))
        assert not said and found == [("kept", "its twin returns the same for 30 steps of random actions")]
    except TwinFault as error:
        assert said and said in str(error)


def test_check_says_what_is_wrong_with_a_twin_without_blaming_the_world(monkeypatch, capsys):
    assert main(["check", f"{HERE}:Lamp", "--twin", "nothere:X"]) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("xladder: There is no module `nothere`")

    def failing(name, twin, kwargs):
        raise TwinFault("`m:Twin` fails.")
        yield

    monkeypatch.setattr(contract, "check_jittable", failing)
    assert main(["check", f"{HERE}:Lamp", "--twin", f"{HERE}:LampTwin"]) == 2
    out, err = capsys.readouterr()
    assert "WRONG" not in out and err == "xladder: `m:Twin` fails.\n"


class Forever(Clock):
    def __init__(self):
        super().__init__(10**9)


class ForeverAlone(gymnasium.Env):
    """Gymnasium's API: one action, and rewards that are too large."""

    observation_space, action_space = spaces.Box(0, 1, (2,), np.float32), spaces.Discrete(1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return np.zeros(2, np.float32), 3e38, False, False, {}


gymnasium.register("ForeverAlone-v0", ForeverAlone)


def findings(name, kind):
    found = contract.check_world(name.partition("/")[0], name)
    return [finding.sentence for finding in found if finding.kind == kind]


NEVER = "no episode ended within 512 steps of random actions: `step` never ends one, and there is no time limit"


def test_an_episode_on_the_host_has_to_end(monkeypatch):
    monkeypatch.setattr(contract_host, "LONGEST", 512)
    monkeypatch.setattr("xladder.worlds.findings.LONGEST", 512)
    monkeypatch.setattr("pettingzoo.test.parallel_api_test", lambda made, num_cycles: None)
    assert findings(f"zoo/{HERE}:Forever", "broken") == [NEVER]
    alone = f"gym/{HERE}:ForeverAlone-v0"
    assert NEVER in findings(alone, "broken")
    notes = findings(alone, "noted")
    assert "there is only one action, so nothing can be learned" in notes
    assert "rewards are as large as 3e+38: scale them down, or use `--learner.reward-scale`" in notes


class LimitInDone(Corridor):
    """Its limit is told twice, its done is a number, and it has only one action."""

    def step_env(self, key, state, action, params):
        seen, state, reward, done, info = super().step_env(key, state, 1 - action, params)
        return seen, state, reward * 0, jnp.where(done | (state.time >= 3), 0.5, 0.0), info

    def is_truncated(self, state, params):
        return state.time >= 3

    def action_space(self, params):
        return spaces.Discrete(1)


def test_what_is_allowed_but_rarely_meant_is_noted():
    notes = findings(f"jax/{HERE}:LimitInDone", "noted")
    assert [note for note in notes if "compiled" not in note] == [
        "`is_truncated` is true only where done is true as well, so no episode counts as cut off: leave the limit out "
        "of done",
        "there is only one action, so nothing can be learned",
        "random actions got no reward in 2,048 steps",
        "`step_env` returns float32 as done: any number but 0 ends an episode",
        "there is no `observation_space`, so observations were not compared with one",
    ]


class Uniform(Strings):
    def log_reward(self, state):
        return 0.5


def test_a_reward_that_is_the_same_for_all_objects_is_noted():
    note = "`log_reward` is 0.5 for every object tried: all are to be sampled equally often"
    assert list(remarks_on(f"flow/{HERE}:Uniform")) == [note]
    assert not list(remarks_on("flow/tests.test_own_gflownet:Strings"))


SAID = "`{}` returns {} that is not a finite number from {}: `xladder check {}` looks for it."


@pytest.mark.parametrize(
    ("world", "array", "said"),
    [
        ("jax/m:W", "state.runs.memory.rewards", ("a reward", "`step_env`")),
        ("marl/m:W", "state.runs.memory.frames", ("an observation", "`reset` or `step_env`")),
        ("zoo/m:W", "state.loop.memories.0.history.rows.rewards", ("a reward", "`step`")),
        ("zoo/m:W", "state.runs.agent.params.head.bias", None),
        ("cartpole", "state.runs.memory.rewards", None),
    ],
)
def test_numbers_that_a_world_returned_are_told_apart_from_those_of_a_learner(world, array, said):
    nothing = {"state.runs.memory.actions": np.zeros(3, np.int32), array: np.zeros(3, np.float32)}
    assert returned_by_world(world, nothing) == ""
    found = returned_by_world(world, nothing | {array: np.array([0, np.inf, 1], np.float32)})
    assert found == (SAID.format(world, *said, world) if said else "")


class NotANumberLater(Clock):
    def step(self, actions):
        seen, _, *more = super().step(actions)
        return seen, {"one": np.nan if self.time == 3 else 1.0}, *more


def test_a_world_whose_reward_is_no_number_fails_and_not_the_learner():
    with pytest.raises(UserCodeFailed, match=r"a reward that is not a finite number from `step`.* ended at tick \d+\."):
        xladder.train(NotANumberLater, "torch", steps=512, evaluate_episodes=0, learner=SMALL)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("RESOURCE_EXHAUSTED: out of memory")])
def test_a_run_that_does_not_fit_into_memory_leaves_nothing_if_nothing_was_trained(error, tmp_path, monkeypatch):
    def execute(*_, **__):
        raise error

    monkeypatch.setattr("xladder.training.execute", execute)
    with pytest.raises(type(error)):
        xladder.train("cartpole", out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("world", [ForeverAlone, ForeverAlone()])
def test_an_environment_of_gymnasiums_needs_no_id(world):
    assert xladder.plan(world).workload.name == f"gym/{HERE}:ForeverAlone"
