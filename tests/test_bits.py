"""Bit sequences: modes, rewards and orders as published, metrics against exact ones, equal on every rung."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import xladder
from tests.conftest import TINY_SEQUENCES, assert_trees_close
from tests.test_cli import call
from xladder.core.compiling import compiled
from xladder.core.mapping import pick
from xladder.families.gflownet import evaluation, exact
from xladder.families.gflownet.check import check_world
from xladder.families.gflownet.program import Program
from xladder.families.gflownet.sampling import PolicySampler
from xladder.learners.gflownet import Explore
from xladder.plans import plan
from xladder.rungs import fused, hybrid, parallel, sequential
from xladder.rungs import torch as torch_rung
from xladder.worlds.bits import Bits, flipped_modes, to_words
from xladder.worlds.bits_settings import BLOCKS, WorldConfig

ORDERS = ("append", "ends", "any")


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_worlds_keep_the_contract_and_have_as_many_states_as_they_say(order):
    config = WorldConfig(bits=6, word=2, modes=3, order=order)
    assert check_world(config.make()) == []
    known = config.build().enumeration()
    assert len(known.states) == config.states == {"append": 85, "ends": 85, "any": 125}[order]
    assert known.terminal.sum() == 2**6


def test_the_three_orders_reach_the_same_objects_with_the_same_rewards():
    found = []
    for order in ORDERS:
        known = WorldConfig(bits=6, word=2, modes=3, order=order).build().enumeration()
        objects = known.states[known.terminal]
        place = np.lexsort(objects.T)
        found.append((objects[place], known.log_rewards[known.terminal][place]))
    for states, log_rewards in found[1:]:
        np.testing.assert_array_equal(states, found[0][0])
        np.testing.assert_array_equal(log_rewards, found[0][1])


def test_modes_are_made_of_the_published_blocks():
    modes = WorldConfig(bits=120, word=8, modes=60).mode_bits()
    assert len(np.unique(modes, axis=0)) == 60
    blocks = {"".join(map(str, block)) for block in modes.reshape(-1, 8)}
    assert blocks == set(BLOCKS)


def test_rewards_fall_with_the_distance_to_the_nearest_mode():
    config = WorldConfig(bits=16, word=4, modes=5, beta=3.0)
    world, rng = Bits(config), np.random.default_rng(0)
    some = rng.integers(0, 2, (20, 16))
    nearest = (some[:, None] != config.mode_bits()[None]).sum(-1).min(1)
    states = jnp.asarray(to_words(some, 4))
    np.testing.assert_array_equal(jax.vmap(world.bits)(states), some)
    np.testing.assert_allclose(jax.vmap(world.log_reward)(states), -3.0 * nearest / 16, rtol=1e-6)
    plain = Bits(replace(config, distance="bits", beta=1.0))
    np.testing.assert_allclose(jax.vmap(plain.log_reward)(states), -nearest.astype(float), rtol=1e-6)


def test_the_test_set_has_every_number_of_flipped_bits():
    config = WorldConfig(bits=16, word=4, modes=5)
    modes = config.mode_bits()
    tests = flipped_modes(config, modes).reshape(5, 16, 16)
    np.testing.assert_array_equal((tests != modes[:, None]).sum(-1), np.tile(np.arange(16), (5, 1)))


def test_a_mode_is_found_nearer_than_the_radius():
    """As in gfnx, whose AccumulatedModesMetricsModule compares Hamming distance < distance_threshold."""
    config = WorldConfig(bits=16, word=4, modes=5, radius=3)
    world, modes = Bits(config), config.mode_bits()
    for flips, found in [(2, True), (3, False)]:
        near = modes[1].copy()
        near[:flips] = 1 - near[:flips]
        assert bool(world.near_modes(jnp.asarray(to_words(near, 4)))[1]) is found


@pytest.mark.slow
@pytest.mark.parametrize(
    "order", [pytest.param("append", marks=pytest.mark.slow), "ends", pytest.param("any", marks=pytest.mark.slow)]
)
def test_estimated_log_probabilities_agree_with_exact_ones(order):
    """Backward trajectories give the probability of an object: at once in a tree, on average elsewhere."""
    config = replace(TINY_SEQUENCES, world=replace(TINY_SEQUENCES.world, order=order))
    program = Program(config)
    params, known = program.init(3).agent.params, exact.tables(config.world)
    log_p = partial(evaluation.log_distribution, program, params, known)
    exactly = PolicySampler(program, params, jax.random.key(0), known.states, log_p)
    sampled = PolicySampler(program, params, jax.random.key(0))
    tests = program.learner.world.world.tests
    estimates = np.asarray(jax.jit(lambda: sampled.log_probability(tests, 300))())
    wanted = np.asarray(exactly.log_probability(tests))
    np.testing.assert_allclose(estimates, wanted, atol=1e-4 if order == "append" else 0.1)


@pytest.mark.slow
def test_metrics_are_the_correlations_that_scipy_computes():
    config = TINY_SEQUENCES
    params = Program(config).init(3).agent.params
    found = evaluation.own_metrics(config, jax.tree.map(lambda x: x[None], params), 1, compiled)
    world, known = config.world.build(), config.world.build().enumeration()
    place = known.place(world.world.tests)
    log_p = evaluation.distribution(config, params, compiled)[place]
    log_r = known.log_rewards[place]
    assert found["spearman"][0] == pytest.approx(stats.spearmanr(log_p, log_r)[0], abs=1e-4)
    assert found["pearson"][0] == pytest.approx(stats.pearsonr(log_p, log_r)[0], abs=1e-4)


@pytest.mark.slow
def test_all_rungs_learn_the_same_and_count_the_same_modes():
    config, ticks = TINY_SEQUENCES, 4
    runs = {rung: rung.start(config, [3]) for rung in (fused, parallel, sequential)}
    metrics = {rung: run.advance(ticks) for rung, run in runs.items()}
    for rung in (parallel, sequential):
        assert_trees_close(pick(runs[fused].params(), 0), pick(runs[rung].params(), 0), 1e-5)
        np.testing.assert_array_equal(metrics[fused]["modes_found"], metrics[rung]["modes_found"])
    assert metrics[fused]["modes_found"][0, -1] > 0
    for rung in (torch_rung, hybrid):
        assert np.isfinite(rung.start(config, [3]).advance(2)["modes_found"]).all()


@pytest.mark.slow
def test_training_reports_the_published_metrics(tmp_path):
    done = xladder.train("bits", config=TINY_SEQUENCES, evaluate_every=10, out=tmp_path / "run")
    assert {"spearman", "pearson", "modes_found", "tv"} <= set(done.metrics)
    head = (tmp_path / "run" / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"spearman", "modes_found"} <= set(head)
    score = xladder.evaluate(tmp_path / "run")
    lines = done.config.family.describe_score(score)
    assert any(line.startswith("Spearman correlation") for line in lines)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--world.bits", "10"], "multiple of `--world.word`"),
        (["--world.bits", "0"], "1 … 4,096"),
        (["--world.word", "13"], "1 … 12"),
        (["--world.modes", "26"], "1 … 25"),
        (["--world.beta", "nan"], "positive number"),
        (["--world.radius", "0"], "1 … 16"),
        (["--world.mode-seed", "-1"], "[0, 2³¹)"),
    ],
)
def test_bad_settings_end_in_a_sentence(flags, said, capsys):
    assert call("train", "bits", *flags) == 2
    assert said in " ".join(capsys.readouterr().err.split())


@pytest.mark.slow
def test_sequences_of_one_length_compile_one_size_and_sample_without_checks():
    config = plan("bits", "fused", changes={"world": {"bits": 12, "word": 3, "modes": 4}}).config
    world, program = config.world.build(), Program(config)
    assert world.min_steps == world.max_steps == 5 and program.buckets == (5 * config.learner.batch_size,)
    learner = program.learner
    params = learner.init(jax.random.key(0)).params
    draws = jax.random.uniform(jax.random.key(1), (5, config.learner.batch_size))
    explore = Explore(jnp.float32(0.1), jnp.float32(1))
    text = str(jax.make_jaxpr(lambda params: learner.sample(params, explore, draws))(params))
    assert "while[" not in text and "scan[" in text
    assert (learner.sample(params, explore, draws).length == 5).all()
