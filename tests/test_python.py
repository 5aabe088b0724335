"""xladder from Python: what `train` gives back, and what it says when it cannot."""

import subprocess
import sys

import numpy as np
import pytest

import xladder
from xladder.cli.main import main
from xladder.errors import UsageError


@pytest.fixture(scope="module")
def result():
    from tests.conftest import TINY

    return xladder.train("treasurehunt", rung="fused", config=TINY, seed=3, seeds=2, epochs=9)


def test_train_gives_metrics_by_seed_and_epoch_and_the_parameters(result, tiny):
    assert result.metrics["return"].shape == (2, 9)
    assert np.isnan(result.metrics["loss"][:, 0]).all() and np.isfinite(result.metrics["loss"][:, -1]).all()
    assert result.params["head"]["hidden"]["kernel"].shape == (2, tiny.world.num_agents, 16, 16)
    assert not np.array_equal(result.metrics["return"][0], result.metrics["return"][1])
    agents = [f"return_agent_{i}" for i in range(tiny.world.num_agents)]
    np.testing.assert_allclose(sum(result.metrics[name] for name in agents), result.metrics["return"], rtol=1e-6)


def test_a_population_holds_the_runs_of_its_seeds(result, tiny):
    alone = xladder.train("treasurehunt", rung="fused", config=tiny, seed=4, epochs=9)
    np.testing.assert_array_equal(alone.metrics["epsilon"][0], result.metrics["epsilon"][1])
    # Worlds and exploration are drawn alike; actions part only where rounding decides, which takes some epochs.
    np.testing.assert_array_equal(alone.metrics["return"][0, :4], result.metrics["return"][1, :4])


def test_seeds_on_a_rung_for_one_come_one_after_another(tiny):
    several = xladder.train("treasurehunt", rung="sequential", config=tiny, seeds=2, epochs=3)
    second = xladder.train("treasurehunt", rung="sequential", config=tiny, seed=1, epochs=3)
    np.testing.assert_array_equal(several.metrics["return"][1], second.metrics["return"][0])
    assert several.params["torso"]["bias"].shape[:2] == (2, tiny.world.num_agents)


def test_a_saved_result_opens_as_it_was(result, tmp_path):
    folder = result.save(tmp_path / "kept")
    again = xladder.load(folder)
    assert again.plan == result.plan
    for name, values in result.metrics.items():
        np.testing.assert_allclose(again.metrics[name], values, rtol=1e-6)
    np.testing.assert_array_equal(again.params["torso"]["kernel"], result.params["torso"]["kernel"])
    assert xladder.evaluate(folder, episodes=4) == result.evaluate(episodes=4)
    with pytest.raises(UsageError, match="not empty"):
        result.save(folder)


def test_what_was_saved_is_finished_and_not_trained_again(result, tmp_path, capsys):
    folder = result.save(tmp_path / "run")
    assert main(["resume", str(folder)]) == 0
    assert "is finished" in capsys.readouterr().out


def test_an_evaluation_disturbs_nothing_and_can_be_repeated(result):
    first, other = result.evaluate(episodes=6), result.evaluate(episodes=6, seed=1)
    assert first == result.evaluate(episodes=6)
    assert first["mean_return"] != other["mean_return"]
    assert first["episodes"] == 6 and first["seeds"] == 2


def test_more_episodes_than_one_call_plays_are_the_same_episodes(tiny, result, monkeypatch):
    from xladder.families.multi_agent import evaluation
    from xladder.rungs.running import compiled

    whole = evaluation.evaluate(tiny, result.params, 5, 0, compiled)
    monkeypatch.setattr(evaluation, "AT_ONCE", 2)
    parts = evaluation.evaluate(tiny, result.params, 5, 0, compiled)
    np.testing.assert_array_equal(whole.random, parts.random)
    np.testing.assert_allclose(whole.returns, parts.returns)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"learner": {"lrr": 1.0}}, "learner.lr"),
        ({"learner": {"lr": "fast"}}, "type float"),
        ({"learner": 3}, "mapping"),
        ({"world": {"observe": "never"}}, "in_turn"),
        ({"world": {"item_names": "gem"}}, "list"),
        ({"epochs": True}, "type int"),
        ({"preset": "dmo"}, "demo"),
        ({"rung": "fusd"}, "fused"),
        ({"device": "gpu"}, "no `gpu` here"),
    ],
)
def test_what_is_wrong_is_said(options, said, tiny):
    with pytest.raises(UsageError, match=said):
        xladder.train("treasurehunt", **({"config": tiny} | options))


@pytest.mark.parametrize("name", ["seed", "seeds"])
def test_true_is_no_number_of_seeds(name, tiny):
    from xladder.plans import plan
    from xladder.runs.directory import describe_plan, parse_plan

    with pytest.raises(UsageError, match="is not a config that xladder wrote"):
        parse_plan(describe_plan(plan("treasurehunt", config=tiny)) | {name: True}, "it")


def test_without_pytorch_everything_else_works_and_the_pip_line_is_given():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import xladder\n"
        "from xladder.errors import UsageError\n"
        "from xladder.rungs import fused, sequential\n"
        "try:\n    xladder.train('treasurehunt', rung='torch', epochs=1)\n"
        "except UsageError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'xladder[torch]'" in done.stdout
