"""One sampler for a range of conditions: the network, what it is at one condition, and the commands."""

import csv
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.test_cli import call
from xladder.core import keys
from xladder.core.compiling import compiled
from xladder.errors import UsageError
from xladder.families.gflownet import bits_presets, conditions, evaluation, settings_check
from xladder.families.gflownet.config import LearnerConfig
from xladder.families.gflownet.hypergrid_presets import Config, WorldConfig
from xladder.families.gflownet.program import Program
from xladder.learners.choosing import Explore
from xladder.learners.gflownet import GFlowNetLearner
from xladder.nets.flow import hats
from xladder.rungs import fused
from xladder.worlds.flow_conditioned import ConditionedSettings

GRID = Config(WorldConfig(dim=2, side=4), LearnerConfig(batch_size=6, width=16, condition="beta"), iterations=20)


def conditional(loss="tb", **changes):
    return replace(GRID, loss=loss, learner=replace(GRID.learner, **changes))


def test_hats_interpolate():
    table = jnp.array([1.0, 5.0, 7.0])
    places = jnp.array([0.0, 0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(
        hats(2 * places[:, None], np.arange(3)[:, None]) @ table, [1.0, 3.0, 5.0, 6.0, 7.0], rtol=1e-6
    )


BITS = bits_presets.Config(
    bits_presets.WorldConfig(bits=4, word=2),
    LearnerConfig(network="transformer", width=16, layers=1, attention_heads=2, condition="beta"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(conditional(), marks=pytest.mark.slow),
        conditional("db", conditioning="input", trunk="separate"),
        pytest.param(BITS, marks=pytest.mark.slow),
    ],
    ids=["tb", "db", "bits"],
)
def test_at_a_condition_it_is_a_plain_sampler(config):
    beta, loss = 0.8, config.loss
    learner = GFlowNetLearner(config)
    params = learner.init(jax.random.key(3)).params
    noise = jax.random.normal(jax.random.key(4), (16,))
    params |= {name: leaf + noise for name, leaf in params.items() if name in ("log_z", "logit_scale")}
    fixed, plain = conditions.fix(config, params, beta)
    known = config.world.build().enumeration()
    assert known is not None
    cells = known.states
    given = jnp.full(len(cells), beta, jnp.float32)
    ours = jax.jit(GFlowNetLearner(fixed).log_policies)(plain, cells)
    theirs = jax.jit(learner.log_policies)(params, cells, given)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    if loss == "tb":
        np.testing.assert_allclose(plain["log_z"], learner.log_z(params, given)[0], rtol=1e-5)
    np.testing.assert_allclose(GFlowNetLearner(fixed).log_rewards(cells), learner.log_rewards(cells, given), rtol=1e-6)
    policy = Explore(jnp.float32(0), jnp.float32(1))
    lower = learner.forward_policy(params, cells, policy, jnp.full(len(cells), 0.5, jnp.float32))
    assert np.abs(np.asarray(lower) - np.exp(theirs[0])).max() > 1e-3, "the condition changes nothing"


def test_the_target_under_a_condition_by_hand():
    # 8²: 48 cells with reward 0.001, 12 with 0.501 and 4 with 2.501, all squared.
    world = ConditionedSettings(WorldConfig(dim=2, side=8), 2.0).build()
    assert world.log_z() == pytest.approx(np.log(48 * 1e-6 + 12 * 0.501**2 + 4 * 2.501**2), rel=1e-9)
    known = world.enumeration()
    assert known is not None
    assert np.exp(known.log_target).max() == pytest.approx(2.501**2 / np.exp(world.log_z()))
    picture = world.target_picture(exact=True)
    assert picture is not None and picture.sum() == pytest.approx(1, rel=1e-5)


def test_conditions_are_drawn_per_trajectory_and_shared_where_a_batch_is_compared():
    for loss, different in (("tb", 6), ("vargrad", 1)):
        drawn = Program(conditional(loss)).draw(keys.root(1), 2).condition
        assert drawn is not None and drawn.shape == (6,)
        assert len(np.unique(drawn)) == different
    assert (
        Program(replace(GRID, learner=replace(GRID.learner, condition="none"))).draw(keys.root(1), 2).condition is None
    )


@pytest.mark.parametrize(
    ("changes", "loss", "words"),
    [
        ({"condition_low": 0.0}, "tb", "an exponent has to be a positive number"),
        ({"condition_high": 0.5}, "tb", "it has to be larger than the lowest, 0.5"),
        ({"conditioning": "logits"}, "db", "use `both` or `input`"),
    ],
)
def test_impossible_ranges_are_refused(changes, loss, words):
    with pytest.raises(UsageError, match=words):
        settings_check.check(conditional(loss, **changes))


def test_a_condition_outside_its_range_is_refused():
    with pytest.raises(UsageError, match=r"The condition is 2\.5, but this sampler was trained for 0\.5 to 2\."):
        conditions.check(GRID, 2.5)
    with pytest.raises(UsageError, match=r"train one with `--learner\.condition beta`"):
        conditions.check(replace(GRID, learner=replace(GRID.learner, condition="none")), 1.0)


@pytest.mark.slow
def test_the_commands_take_a_condition(tmp_path, capsys):
    run = str(tmp_path / "run")
    small = ["--world.side", "4", "--learner.batch-size", "6", "--learner.width", "16", "--iterations", "4"]
    assert call("train", "hypergrid", *small, "--learner.condition", "beta", "--evaluate-every", "2", "--out", run) == 0
    assert "at β = 1.25: 0." in capsys.readouterr().out
    rows = list(csv.DictReader((tmp_path / "run" / "metrics.csv").open()))
    each = [float(rows[-1][f"tv_beta_{at}"]) for at in ("0.5", "1.25", "2")]
    assert float(rows[-1]["tv"]) == pytest.approx(np.mean(each), rel=1e-5)
    assert call("eval", run, "--json", str(tmp_path / "all.json")) == 0
    listed = json.loads((tmp_path / "all.json").read_text())["conditions"]
    assert [one["tv"] for one in listed] == pytest.approx(each, rel=1e-4)
    assert call("eval", run, "--condition", "2", "--json", str(tmp_path / "one.json")) == 0
    assert json.loads((tmp_path / "one.json").read_text())["tv"] == pytest.approx(each[2], rel=1e-4)
    assert call("sample", run, "-n", "20", "--condition", "0.5", "--out", str(tmp_path / "some.csv")) == 0
    assert len((tmp_path / "some.csv").read_text().splitlines()) == 21
    capsys.readouterr()
    for words, said in [
        (("eval", run, "--condition", "2.5"), "The condition is 2.5, but this sampler was trained for 0.5 to 2."),
        (("sample", run, "--out", str(tmp_path / "no.csv")), "add `--condition` and a number from 0.5 to 2"),
    ]:
        assert call(*words) == 2
        assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_a_conditional_sampler_learns_every_condition():
    config = Config(WorldConfig(dim=2, side=6, reward="torchgfn"), LearnerConfig(condition="beta", width=64))
    run = fused.start(config, [0])
    before = evaluation.measure(config, run.params(), 0, compiled).columns
    run.advance(2000)
    after = evaluation.measure(config, run.params(), 2000, compiled).columns
    for at in config.conditions:
        name = f"tv_{conditions.label(at)}"
        assert after[name][0] < 0.1 < before[name][0]
