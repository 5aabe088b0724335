"""The hypergrid on its rungs: one seed is one run in JAX, and PyTorch goes its way whoever computes the gradient."""

from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest

from tests.conftest import TINY_GRID, assert_trees_close, assert_trees_equal
from xladder.core import keys
from xladder.core.compiling import compiled
from xladder.families.gflownet.program import Program
from xladder.rungs import fused, hybrid, parallel, sequential
from xladder.rungs import torch as torch_rung

RUNGS = {"sequential": sequential, "parallel": parallel, "fused": fused, "torch": torch_rung, "hybrid": hybrid}
CONFIGS = {
    "tb": TINY_GRID,
    "tb, prioritised": replace(TINY_GRID, learner=replace(TINY_GRID.learner, replay="prioritised")),
    "tb, diverse, searched, conditional": replace(
        TINY_GRID,
        learner=replace(
            TINY_GRID.learner, replay="diverse", local_search=2, local_search_rule="metropolis", condition="beta"
        ),
    ),
    "subtb, uniform": replace(TINY_GRID, loss="subtb", learner=replace(TINY_GRID.learner, replay="uniform")),
}
SEED, TICKS = 3, 5
# Adam turns roundings of the gradient into steps that differ by as much of the learning rate, 1e-3 (log Z: 0.1).
FEW_UPDATES = 1e-5


def started(rung, config, seeds):
    with pytest.MonkeyPatch.context() as patch:  # how many threads PyTorch has is nothing to these tests
        for module in (torch_rung, hybrid):
            patch.setattr(module, "choose_threads", lambda config, threads=None: "")
        return RUNGS[rung].start(config, seeds)


def params(run, seed=0):
    return jax.tree.map(lambda x: x[seed], run.params())


@cache
def trained(rung, name):
    """A run of a few iterations: itself, what it began with, and what it reported."""
    run = started(rung, CONFIGS[name], [SEED])
    begun = params(run)
    return run, begun, run.advance(TICKS)


def assert_same_run(ours, theirs):
    (run, begun, metrics), (other, other_begun, other_metrics) = ours, theirs
    assert_trees_equal(begun, other_begun)
    assert set(metrics) == set(other_metrics)
    for name in ("length", "reward"):
        np.testing.assert_allclose(metrics[name], other_metrics[name], rtol=1e-6)
    for name in ("loss", "log_z"):
        np.testing.assert_allclose(metrics[name], other_metrics[name], rtol=1e-4, atol=1e-5)
    assert_trees_close(params(run), params(other), FEW_UPDATES)
    moved = np.abs(params(run)["forward_head"]["kernel"] - begun["forward_head"]["kernel"]).max()
    assert moved > 10 * FEW_UPDATES, "nothing was learned, so nothing was compared"


def assert_explored_as_configured(metrics):
    """Straight lines over 0.15 of 20 iterations, then level."""
    np.testing.assert_allclose(metrics["epsilon"], [[0.3, 0.3 - 0.2 / 3, 0.3 - 0.4 / 3, 0.1, 0.1]], rtol=1e-5)
    np.testing.assert_allclose(metrics["temperature"], [[1.5, 4 / 3, 7 / 6, 1.0, 1.0]], rtol=1e-5)


def assert_same_memory(device, host):
    assert host.size == len(host.log_rewards) == 8, "not full yet, so nothing was overwritten"
    assert len(np.unique(host.states, axis=0)) > 1
    np.testing.assert_array_equal(device.states, host.states)
    np.testing.assert_allclose(device.log_rewards, host.log_rewards, rtol=1e-6)
    assert device.added % 8 == host.index and min(device.added, 8) == host.size


@pytest.mark.parametrize(
    "name",
    [
        "tb",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("tb, prioritised", "tb, diverse, searched, conditional", "subtb, uniform")
        ),
    ],
)
def test_one_seed_is_one_run_on_every_jax_rung_memory_included(name):
    sequentially = trained("sequential", name)
    assert_explored_as_configured(sequentially[2])
    for rung in ("parallel", "fused"):
        assert_same_run(trained(rung, name), sequentially)
        assert_explored_as_configured(trained(rung, name)[2])
        memory, host = trained(rung, name)[0].runs.memory, sequentially[0].loop.memory
        if CONFIGS[name].remembered:
            assert_same_memory(jax.tree.map(lambda x: np.asarray(x)[0], memory), host)
        else:
            assert memory is host is None


@pytest.mark.parametrize("name", CONFIGS)
def test_pytorch_goes_the_same_way_if_jax_computes_its_gradient(name):
    assert_same_run(trained("hybrid", name), trained("torch", name))
    for rung in ("hybrid", "torch"):
        assert_explored_as_configured(trained(rung, name)[2])


@pytest.mark.parametrize("rung", ["torch", "sequential"])
def test_one_half_of_a_batch_is_new_and_the_other_remembered(rung):
    loop = started(rung, CONFIGS["tb, prioritised"], [SEED]).loop
    batches, learn = [], loop.learner.learn
    loop.learner.learn = lambda tick, agent, batch: batches.append(batch) or learn(tick, agent, batch)
    seen = []
    for _ in range(3):  # then the memory is full
        loop.advance()
        batch = batches.pop()
        ends = batch.states[batch.length - 1, np.arange(6)].tolist()
        seen += ends[:3]
        assert all(end in seen[-8:] for end in ends[3:])
        np.testing.assert_array_equal(sorted(loop.memory.states[: loop.memory.size].tolist()), sorted(seen[-8:]))


def test_steps_picks_and_walks_of_every_iteration_and_seed_draw_independently():
    config = CONFIGS["tb, prioritised"]
    config = replace(config, learner=replace(config.learner, local_search=2))
    drawn = [
        compiled(Program.draw)(Program(config), keys.root(seed), np.int32(tick)) for seed in (0, 1) for tick in (0, 1)
    ]
    searching = [(2, 3), (2, 9, 3), (2, 9, 3), (2, 3)]
    assert [part.shape for part in jax.tree.leaves(drawn[0])] == [(9, 3), (3,), (9, 3), *searching]
    numbers = np.concatenate([np.ravel(part) for part in jax.tree.leaves(drawn)])
    assert len(np.unique(numbers)) >= len(numbers) - 2  # 708 of 2²³ possible numbers: a few pairs may be equal


@pytest.mark.slow
def test_a_seed_in_a_population_is_the_seed_alone():
    population = started("fused", TINY_GRID, [2, SEED])
    many = population.advance(TICKS)
    alone, _, one = trained("fused", "tb")
    for name in one:
        np.testing.assert_allclose(many[name][1:], one[name], rtol=1e-4, atol=1e-5)
    assert_trees_close(params(population, 1), params(alone), FEW_UPDATES)
    assert not np.array_equal(many["length"][0], many["length"][1]), "seeds have to differ"


def test_on_hybrid_pytorch_acts_with_what_jax_has_learned():
    run = started("hybrid", CONFIGS["subtb, uniform"], [1])
    actor, learner = run.loop.actor, run.loop.learner.learner
    fresh = params(started("torch", CONFIGS["subtb, uniform"], [1]))
    assert_trees_equal(params(run), fresh)  # JAX begins with PyTorch's weights
    before = fresh
    for _ in range(3):
        run.advance(1)
        now = params(run)
        assert_trees_equal(actor.give(0), jax.tree.map(np.asarray, learner.give(0)))
        assert_trees_equal(actor.give(0), now)
        assert np.abs(now["flow_head"]["kernel"] - before["flow_head"]["kernel"]).max() > 0
        before = now
