"""Agents that were trained here score the same in the real sorrel, in all of its worlds that are workloads."""

from importlib.util import find_spec

import numpy as np
import pytest

if find_spec("sorrel") is None:
    pytest.skip("sorrel is not installed here: make test-sorrel", allow_module_level=True)

from xladder.cli.main import main
from xladder.core.compiling import compiled
from xladder.core.statistics import mean_and_interval
from xladder.errors import UsageError
from xladder.families.multi_agent.evaluation import evaluate
from xladder.plans import plan
from xladder.runs import loading
from xladder.sorrel import JaxIQN, example_env
from xladder.sorrel.examples import load_agents, run_epoch, score

pytestmark = pytest.mark.slow
QUICK = [
    "--learner.width",
    "64",
    "--learner.batch-size",
    "64",
    "--learner.lr",
    "1e-3",
    "--learner.epsilon-decay",
    "0.02",
]
# Small boards on which agents learn within a minute: epochs, and settings.
TRAINED = {
    "treasurehunt": (150, ["--world.num-agents", "2", "--world.spawn-prob", "0.04"]),
    "tag": (150, ["--world.height", "7", "--world.width", "7", "--world.radius", "2", "--world.num-agents", "3"]),
    "iowa": (
        150,
        ["--world.height", "8", "--world.width", "8", "--world.spawn-prob", "0.05", "--learner.memory", "4096"],
    ),
    "cleanup": (
        100,
        [
            *("--world.height", "12", "--world.width", "12", "--world.radius", "2", "--world.num-agents", "3"),
            *("--world.initial-apples", "6", "--world.apple-prob", "0.03", "--learner.memory", "4096"),
        ],
    ),
}
EPISODES = 60


@pytest.mark.parametrize("world", TRAINED)
def test_trained_agents_score_the_same_in_sorrel(world, tmp_path):
    epochs, settings = TRAINED[world]
    words = ["train", world, "--rung", "fused", "--epochs", str(epochs), *QUICK, *settings, "--eval-episodes", "0"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert main(["export", str(tmp_path / "run"), "--to", "sorrel", "--out", str(tmp_path / "agents")]) == 0
    run = loading.load(tmp_path / "run")
    env = example_env(run.config)
    files = [tmp_path / "agents" / f"seed0-agent{i}.pkl" for i in range(len(env.agents))]
    load_agents(env, files)
    here = evaluate(run.config, run.params, 4 * EPISODES, 0, compiled)
    ours, by_chance = here.returns[0].sum(-1), here.random[0].sum(-1)
    theirs, chance = score(env, EPISODES), score(env, EPISODES, epsilon=1.0)
    for one, other in ((ours, theirs), (by_chance, chance)):
        spread = np.hypot(one.std() / len(one) ** 0.5, other.std() / len(other) ** 0.5)
        assert abs(one.mean() - other.mean()) < 3.5 * spread, (mean_and_interval(one), mean_and_interval(other))
    gain = np.hypot(theirs.std(), chance.std()) / EPISODES**0.5
    assert theirs.mean() > chance.mean() + 3 * gain, "the agents have learned nothing, so nothing was shown"


def test_sorrels_own_loop_learns_with_either_model():
    config = plan("tag", "fused", changes={"learner": {"batch_size": 16, "width": 16}}).config
    for env in (example_env(config), example_env(config, JaxIQN)):
        epochs = [run_epoch(env, number) for number in range(4)]
        assert [epoch.loss > 0 for epoch in epochs] == [False, True, True, True]
        assert all(epoch.reward >= 800 for epoch in epochs)
        assert env.agents[0].model.epsilon == pytest.approx(0.7 * (1 - 0.0001) ** 4)


def test_a_seed_repeats_an_example():
    config = plan("iowa", "fused", changes={"learner": {"batch_size": 16, "width": 16}}).config
    first, again, other = (
        [run_epoch(env, number) for number in range(2)] for env in (example_env(config, seed=s) for s in (1, 1, 2))
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("world", "changes", "words"),
    [
        ("tag", {"world": {"observe": "together"}}, "observe in turn"),
        ("cleanup", {"world": {"full_view": True}}, "what is around them"),
        ("iowa", {"world": {"view": "rgb"}}, "one-hot"),
        ("iowa", {"world": {"num_agents": 3}}, "2 agents"),
        ("treasurehunt", {"world": {"item_names": ("gem",), "item_values": (1.0,)}}, "gem, bone and food"),
        ("cleanup", {"world": {"apple_value": 2.0}}, "pays 1 for an apple"),
        ("treasurehunt", {"learner": {"n_step": 3}}, "single steps"),
    ],
)
def test_settings_that_sorrels_example_does_not_have(world, changes, words):
    with pytest.raises(UsageError, match=words):
        example_env(plan(world, "fused", changes=changes).config)


def test_a_workload_that_is_no_example_of_sorrels_and_too_few_files():
    with pytest.raises(
        UsageError, match="sorrel has no example `cartpole`: there are treasurehunt, tag, iowa, cleanup"
    ):
        example_env(plan("cartpole", "fused").config)
    with pytest.raises(UsageError, match="1 files for 5 agents"):
        load_agents(example_env(plan("tag", "fused").config), ["one.pkl"])
