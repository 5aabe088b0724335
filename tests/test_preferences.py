"""One sampler for all weights of several rewards: the lattice of its knots, its targets, rungs, and bad weights."""

import csv
import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import assert_trees_close
from tests.test_cli import call
from xladder.core import keys
from xladder.core.compiling import compiled
from xladder.errors import UsageError
from xladder.families.gflownet import conditions, evaluation, own_presets, preferences, settings_check
from xladder.families.gflownet.check import check_world
from xladder.families.gflownet.config import LearnerConfig
from xladder.families.gflownet.hypergrid_presets import Config, WorldConfig
from xladder.families.gflownet.parity import levels
from xladder.families.gflownet.program import Program
from xladder.learners.choosing import Explore
from xladder.learners.gflownet import GFlowNetLearner
from xladder.nets.flow import hats
from xladder.rungs import fused, hybrid, mesh, parallel, sequential
from xladder.rungs import torch as torch_rung
from xladder.worlds.flow import FlowWorld, for_object
from xladder.worlds.flow_conditioned import ConditionedSettings

SMALL = LearnerConfig(batch_size=6, width=16, condition="preferences")
GRID = Config(WorldConfig(dim=2, side=4, reward="easy+corners"), SMALL, iterations=20)


class Basket(FlowWorld):
    """Some of four items, of which one counts by number, one by weight and one by neither."""

    num_actions, max_steps, num_terms = 5, 5, 3

    def initial(self):
        return jnp.zeros(4, jnp.int32)

    def forward_mask(self, state):
        return jnp.append(state == 0, True)

    def backward_mask(self, state):
        return state == 1

    def forward(self, state, action):
        return state.at[action].set(1)

    def backward(self, state, action):
        return state.at[action].set(0)

    def log_terms(self, state):
        return jnp.stack([1.0 * state.sum(), -1.0 * (state * jnp.arange(4)).sum(), 0.5 * state[0]])

    def log_reward(self, state):
        return jax.nn.logsumexp(self.log_terms(state)) - jnp.log(3.0)


BASKET = own_presets.Config(own_presets.WorldConfig(for_object(Basket())), SMALL, iterations=20)
CONFIGS = {"grid": GRID, "basket": BASKET}


def changed(config, loss="tb", **changes):
    return replace(config, loss=loss, learner=replace(config.learner, **changes))


# ---- the lattice -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [2, 3, 4])
def test_functions_of_weights_are_interpolated_linearly_between_knots(terms):
    knots, steps = preferences.lattice(terms), preferences.STEPS[terms]
    ends = np.pad(knots, ((0, 0), (1, 1)), constant_values=[(0, 0), (0, steps)])
    at_knots = np.diff(ends, axis=1) / steps  # the weights that the knots stand for
    np.testing.assert_allclose(hats(preferences.place(at_knots), knots), np.eye(len(knots)), atol=1e-5)
    weights = np.random.default_rng(0).dirichlet([1.0] * terms, 200)
    shares = np.asarray(hats(preferences.place(weights), knots))
    np.testing.assert_allclose(shares.sum(1), 1.0, atol=1e-5)
    assert ((shares > 1e-6).sum(1) <= terms).all(), "more knots than the corners of a simplex"
    np.testing.assert_allclose(shares @ at_knots, weights, atol=1e-5)  # linear functions are kept


def test_the_knots_of_two_weights_are_those_of_an_exponent():
    np.testing.assert_array_equal(preferences.lattice(2), np.arange(16)[:, None])
    assert [len(preferences.lattice(terms)) for terms in (2, 3, 4)] == [16, 36, 56]


# ---- targets and networks --------------------------------------------------------------------------------------------


def test_the_target_under_weights_by_hand():
    # 8²: 48 cells with reward 0.001, 12 with 0.501, 4 with 2.501 by `easy`, and 0.1 more each by `torchgfn` but 0.001.
    grid = WorldConfig(dim=2, side=8, reward="easy+torchgfn")
    assert ConditionedSettings(grid, (1.0, 0.0)).build().log_z() == pytest.approx(2.77658, abs=1e-5)
    assert ConditionedSettings(grid, (0.0, 1.0)).build().log_z() == pytest.approx(3.10906, abs=1e-5)
    values = np.array([[0.001, 0.1], [0.501, 0.6], [2.501, 2.6]])
    weighted = values @ [0.25, 0.75]
    summed = ConditionedSettings(grid, (0.25, 0.75)).build()
    assert summed.log_z() == pytest.approx(np.log([48, 12, 4] @ weighted), rel=1e-6)
    multiplied = ConditionedSettings(grid, (0.25, 0.75), "product").build()
    assert multiplied.log_z() == pytest.approx(np.log([48, 12, 4] @ np.prod(values ** [0.25, 0.75], axis=1)), rel=1e-6)
    # Without a condition, the rewards are averaged.
    assert grid.build().log_z() == pytest.approx(np.log([48, 12, 4] @ values.mean(1)), rel=1e-9)
    assert grid.build().num_modes() == 4 and not grid.closed_form


def test_modes_are_those_of_the_weighted_reward():
    grid = WorldConfig(dim=2, side=11, reward="cosine+corners")
    counted = [ConditionedSettings(grid, weights).build().num_modes() for weights in ((1.0, 0.0), (0.0, 1.0))]
    assert counted == [1, 4]  # the middle of the waves, or a hill in each corner


@pytest.mark.parametrize(
    ("config", "weights"),
    [
        pytest.param(GRID, (0.3, 0.7), marks=pytest.mark.slow),
        pytest.param(changed(BASKET, "db"), (0.2, 0.3, 0.5), marks=pytest.mark.slow),
    ],
    ids=["grid", "basket"],
)
def test_at_fixed_weights_it_is_a_plain_sampler(config, weights):
    learner = GFlowNetLearner(config)
    params = learner.init(jax.random.key(3)).params
    noise = jax.random.normal(jax.random.key(4), (config.knots,))
    params |= {name: leaf + noise for name, leaf in params.items() if name in ("log_z", "logit_scale")}
    fixed, plain = conditions.fix(config, params, weights)
    states = config.world.build().enumeration().states
    given = jnp.tile(jnp.array(weights, jnp.float32), (len(states), 1))
    ours = jax.jit(GFlowNetLearner(fixed).log_policies)(plain, states)
    theirs = jax.jit(learner.log_policies)(params, states, given)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    if config.loss == "tb":
        np.testing.assert_allclose(plain["log_z"], learner.log_z(params, given)[0], rtol=1e-5)
    log_rewards = GFlowNetLearner(fixed).log_rewards(states)
    np.testing.assert_allclose(log_rewards, learner.log_rewards(states, given), rtol=1e-5, atol=1e-6)
    policy = Explore(jnp.float32(0), jnp.float32(1))
    alone = jnp.tile(jnp.eye(len(weights))[0], (len(states), 1))
    assert np.abs(learner.forward_policy(params, states, policy, alone) - np.exp(theirs[0])).max() > 1e-3


@pytest.mark.slow
def test_weights_are_drawn_from_a_dirichlet_distribution():
    for loss, different in (("tb", 6), ("vargrad", 1)):
        drawn = Program(changed(BASKET, loss)).draw(keys.root(1), 2).condition
        assert drawn.shape == (6, 3) and len(np.unique(drawn, axis=0)) == different
        np.testing.assert_allclose(drawn.sum(1), 1.0, atol=1e-5)
    many = np.asarray(Program(changed(BASKET, batch_size=4000)).draw(keys.root(0), 0).condition)
    # Of K weights that are uniform on the simplex, each has variance (K − 1) / (K² (K + 1)).
    np.testing.assert_allclose(many.var(0), 2 / 36, rtol=0.1)


# ---- rungs -----------------------------------------------------------------------------------------------------------


RUNGS = {"sequential": sequential, "parallel": parallel, "fused": fused, "torch": torch_rung, "hybrid": hybrid}
VARIANTS = {
    "grid": changed(GRID, replay="prioritised", memory=8, local_search=1, epsilon=0.3),
    "basket": changed(BASKET, "subtb", scalarisation="product", local_search=1, local_search_rule="metropolis"),
}


def trained(rung, config, monkeypatch):
    for module in (torch_rung, hybrid):
        monkeypatch.setattr(module, "choose_threads", lambda config, threads=None: "")
    run = RUNGS[rung].start(config, [3])
    return run.advance(4), run.params()


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize(("one", "other"), [("fused", "sequential"), ("parallel", "fused"), ("hybrid", "torch")])
def test_rungs_make_the_same_run(one, other, name, monkeypatch):
    (metrics, params), (other_metrics, other_params) = (trained(r, VARIANTS[name], monkeypatch) for r in (one, other))
    np.testing.assert_allclose(metrics["loss"], other_metrics["loss"], rtol=1e-4, atol=1e-5)
    assert_trees_close(params, other_params, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_parity_holds_on_every_level(name):
    found = levels(VARIANTS[name], updates=3)
    assert all(level.passed for level in found), found


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["preferences", "beta"])
def test_over_a_mesh_it_is_the_same_run(condition):
    config = changed(GRID, condition=condition, batch_size=8, replay="prioritised", memory=8, local_search=2)
    run, alone = mesh.start(config, [3], mesh="data=2"), fused.start(config, [3])
    np.testing.assert_allclose(run.advance(4)["loss"], alone.advance(4)["loss"], rtol=1e-4)
    assert_trees_close(run.params(), alone.params(), 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("scalarisation", ["sum", "product"])
def test_one_sampler_learns_all_weights(scalarisation):
    grid = WorldConfig(dim=2, side=6, reward="torchgfn+corners")
    config = Config(grid, LearnerConfig(condition="preferences", scalarisation=scalarisation, width=64))
    run = fused.start(config, [0])
    before = evaluation.measure(config, run.params(), 0, compiled).columns
    run.advance(2000)
    after = evaluation.measure(config, run.params(), 2000, compiled).columns
    for at in [*config.conditions, (0.3, 0.7)]:
        fixed = conditions.fix(config, run.params(), at)
        assert evaluation.measure(*fixed, 0, compiled).columns["tv"][0] < 0.15
    for at in config.conditions:
        name = f"tv_{conditions.label(at)}"
        assert after[name][0] < before[name][0]


# ---- bad input, and the commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        (0.5, "The condition is 0.5, but this sampler needs 2 weights, such as 0.5,0.5."),
        ((0.2, 0.3, 0.5), "The condition is 0.2, 0.3, 0.5, but this sampler needs 2 weights, such as 0.5,0.5."),
        ((1.5, -0.5), "The weights are 1.5, -0.5, but a weight has to be a number, and cannot be negative."),
        ((float("nan"), 0.5), "The weights are nan, 0.5, but a weight has to be a number, and cannot be negative."),
        ((0.5, 0.4), "The weights are 0.5, 0.4, which add up to 0.9, but they have to add up to 1."),
    ],
)
def test_weights_outside_the_simplex_are_refused(weights, words):
    with pytest.raises(UsageError) as error:
        conditions.check(GRID, weights)
    assert str(error.value) == words


def test_weights_for_an_exponent_are_refused():
    with pytest.raises(UsageError, match="is 2 numbers, but that of this sampler is one exponent"):
        conditions.check(changed(GRID, condition="beta"), (0.5, 0.5))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (replace(GRID, world=WorldConfig(reward="easy")), "needs 2 to 4 reward terms, and this world has one reward"),
        (
            replace(GRID, world=WorldConfig(reward="+".join(["easy"] * 5))),
            "needs 2 to 4 reward terms, and this world has 5",
        ),
        (replace(GRID, world=WorldConfig(reward="easy+nothing")), "those with . between them have to be of easy, hard"),
        (replace(GRID, world=WorldConfig(reward="easy+my:own")), "those with . between them have to be of easy, hard"),
    ],
)
def test_impossible_settings_are_refused(config, words):
    with pytest.raises(UsageError, match=words):
        settings_check.check(config)


class NoTerms(Basket):
    def log_terms(self, state):
        return jnp.zeros(2)


class Infinite(Basket):
    def log_reward(self, state):
        return jnp.float32(state.sum())

    def log_terms(self, state):
        return jnp.where(state.sum() == 2, -jnp.inf, jnp.zeros(3))


class NotANumber(Basket):
    num_terms = "three"


@pytest.mark.parametrize(
    ("world", "words"),
    [
        (NoTerms(), "`log_terms` gives float32 [2] for one object, but it has to be float [3] (`num_terms`)."),
        (Infinite(), "`log_terms` gives -inf for the object [0, 0, 1, 1], and nothing finite for 6 of 16"),
        (NotANumber(), "`num_terms` is 'three', but it has to be a whole number, 0 or more."),
    ],
)
def test_terms_that_do_not_fit_are_named(world, words):
    found = check_world(world)
    assert len(found) == 1 and words in found[0]


@pytest.mark.slow
def test_the_commands_take_weights(tmp_path, capsys):
    run = str(tmp_path / "run")
    small = ["--world.side", "8", "--learner.batch-size", "6", "--learner.width", "16", "--iterations", "4"]
    words = ["--world.reward", "easy+corners", "--learner.condition", "preferences", "--evaluate-every", "2"]
    assert call("train", "hypergrid", *small, *words, "--out", run) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "at weights 0.5, 0.5: 0." in out
    assert "misses 4 of 4 modes at weights 1, 0: total variation 0." in out
    rows = list(csv.DictReader((tmp_path / "run" / "metrics.csv").open()))
    each = [float(rows[-1][f"tv_weights_{at}"]) for at in ("1_0", "0.5_0.5", "0_1")]
    assert float(rows[-1]["tv"]) == pytest.approx(np.mean(each), rel=1e-5)
    assert call("eval", run, "--condition", "0.5,0.5", "--json", str(tmp_path / "one.json")) == 0
    assert json.loads((tmp_path / "one.json").read_text())["tv"] == pytest.approx(each[1], rel=1e-4)
    assert call("eval", run, "--json", str(tmp_path / "all.json")) == 0
    scored = json.loads((tmp_path / "all.json").read_text())
    assert [one["tv"] for one in scored["conditions"]] == pytest.approx(each, rel=1e-4)
    assert [1.0, 0.0] in [one["condition"] for one in scored["collapsed"]]
    assert call("sample", run, "-n", "20", "--condition", "0.3,0.7", "--out", str(tmp_path / "some.csv")) == 0
    assert call("report", run) == 0
    capsys.readouterr()
    for words, said in [
        (("eval", run, "--condition", "0.3,0.3"), "which add up to 0.6, but they have to add up to 1."),
        (("eval", run, "--condition", "a,b"), "it has to be a number, or weights with commas between them"),
        (("sample", run, "--out", str(tmp_path / "no.csv")), "add `--condition` and 2 weights that add up to 1"),
    ]:
        assert call(*words) == 2
        assert said in " ".join(capsys.readouterr().err.split())
