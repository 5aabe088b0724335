"""Exploration that keeps modes: local search, and a replay memory of diverse objects."""

from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xladder.errors import UsageError
from xladder.families.gflownet import settings_check
from xladder.families.gflownet.config import LearnerConfig
from xladder.families.gflownet.hypergrid_presets import PRESETS, Config, WorldConfig
from xladder.learners import choosing
from xladder.learners.choosing import Explore
from xladder.learners.gflownet import GFlowNetLearner
from xladder.learners.local_search import SearchDraws, log_ways, propose, refine
from xladder.nets import flow
from xladder.replay import objects
from xladder.replay.objects_host import HostObjects
from xladder.worlds import hypergrid

GRID = Config(WorldConfig(dim=2, side=3, reward="torchgfn"), LearnerConfig(batch_size=8, width=16, local_search=1))


def searching(**changes):
    return replace(GRID, learner=replace(GRID.learner, **changes))


@cache
def searched(config, count):
    """One round of local search from objects of the target: the objects before and after it, and the trajectories."""
    learner = GFlowNetLearner(config)
    steps, most = config.world.steps, config.search_steps
    keys = jax.random.split(jax.random.key(5), 7)
    # A policy far from the target, so that keeping every proposal would change the distribution.
    params = jax.tree.map(lambda leaf: 2 * leaf, learner.init(keys[0]).params)
    shapes = (1, count), (1, steps, count), (1, steps, count), (1, count)
    draws = SearchDraws(*map(jax.random.uniform, keys[1:5], shapes))
    ends = hypergrid.draw_target(config.world, keys[5], count)

    def search(params, ends, draws):
        batch = learner.sample_backward(params, ends, jax.random.uniform(keys[6], (steps, count)))
        kept, rewards = refine(learner, params, batch, jnp.ones(count, bool), draws)
        proposed = propose(learner, params, batch, most, jax.tree.map(lambda x: x[0], draws))[1]
        return kept, rewards, learner.objects(kept), learner.objects(proposed)

    kept, rewards, after, proposed = jax.tree.map(np.asarray, jax.jit(search)(params, ends, draws))
    return np.asarray(ends), after, proposed, kept, rewards


def shares(cells):
    return np.bincount(np.asarray(cells) @ [3, 1], minlength=9) / len(cells)


@pytest.mark.slow
def test_metropolis_leaves_the_target_as_it_is():
    count = 16_000
    before, after, proposed, _, _ = searched(searching(local_search_rule="metropolis"), count)
    target = hypergrid.target(GRID.world)
    spread = np.sqrt(target * (1 - target) / count)
    assert (np.abs(shares(before) - target) < 5 * spread).all()
    assert (np.abs(shares(after) - target) < 5 * spread).all()
    assert (np.abs(shares(proposed) - target) > 10 * spread).any(), "proposals already follow the target"
    assert (before != after).any(1).mean() > 0.2, "hardly anything moved"


@pytest.mark.slow
def test_the_better_object_is_kept_and_its_trajectory_leads_to_it():
    config = searching(local_search_steps=2)
    before, after, _, kept, rewards = searched(config, 500)
    world = config.world.host()
    assert (world.log_reward(after) >= world.log_reward(before)).all()
    np.testing.assert_allclose(rewards, world.log_reward(after), rtol=1e-6)
    assert (world.log_reward(after) > world.log_reward(before)).any()
    for b, length in enumerate(kept.length):
        state = world.initial(1)
        for t in range(length):
            np.testing.assert_array_equal(kept.states[t, b], state[0])
            assert world.forward_mask(state)[0, kept.actions[t, b]]
            state = world.forward(state, kept.actions[t, b][None])
        assert kept.actions[length - 1, b] == world.num_actions - 1
        np.testing.assert_array_equal(state[0], after[b])


def test_ways_to_undo_as_many_moves():
    # Of the draws 0, 1, 2, 3 one undoes two moves. From the initial state's grandchild, 2 and 3 both do.
    found = log_ways(jnp.array([2, 2, 0, 4]), jnp.array([1, 0, 0, 1]), 3)
    np.testing.assert_allclose(found, [0.0, np.log(2), np.log(4), -np.inf], rtol=1e-6)


def test_a_dense_gradient_of_looked_up_rows_is_the_scattered_one():
    rng = np.random.default_rng(0)
    table, pulled = rng.normal(size=(9, 4)).astype(np.float32), rng.normal(size=(50, 4)).astype(np.float32)
    rows = rng.integers(0, 9, (50, 3))  # some have the same row twice
    ours, theirs = (
        jax.jit(jax.grad(lambda table, add=add: (add(table, rows) * pulled).sum()))(table)
        for add in (flow.add_rows_densely, flow.add_rows)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_defaults_explore_and_the_published_settings_stay():
    published = PRESETS["published"]
    assert (published.learner.epsilon, published.learner.epsilon_end, published.learner.explore_until) == (
        0.1,
        0.0,
        0.48,
    )
    assert (published.world.dim, published.world.side, published.iterations) == (4, 20, 62_500)
    assert (published.learner.batch_size, published.learner.width, published.learner.layers) == (16, 256, 2)
    for name in ("default", "demo"):
        assert PRESETS[name].learner.epsilon * PRESETS[name].learner.explore_until > 0.1 * 0.48


@pytest.mark.parametrize("explore", [(0.0, 1.0), (0.3, 0.5)])
def test_writing_actions_out_chooses_the_same(explore):
    rng = np.random.default_rng(0)
    logits, mask = rng.normal(size=(4000, 5)).astype(np.float32) * 3, rng.random((4000, 5)) < 0.6
    mask[:, -1] = True
    draw, explore = rng.random(4000, dtype=np.float32), Explore(*map(jnp.float32, explore))
    ours = jax.jit(choosing.act)(logits, mask, explore, draw)
    theirs = jax.jit(lambda *given: choosing.choose(choosing.mixture(*given), draw))(logits, mask, explore)
    assert (np.asarray(ours) != np.asarray(theirs)).sum() <= 2  # draws on the border between two actions
    assert np.asarray(mask)[np.arange(4000), ours].all()
    assert len(np.unique(ours)) == 5


def test_a_diverse_memory_by_hand():
    memory = HostObjects(3, 2)
    given = [([0, 0], 1.0), ([5, 5], 2.0), ([0, 0], 1.0), ([9, 0], 0.0), ([5, 6], 1.0), ([8, 0], 0.5)]
    for state, log_reward in given:
        memory.add_diverse(np.array([state]), np.array([log_reward], np.float32))
    # (0, 0) is stored once; (5, 6) is worse than its neighbour (5, 5); (8, 0) is better than (9, 0).
    np.testing.assert_array_equal(memory.states, [[0, 0], [5, 5], [8, 0]])
    np.testing.assert_array_equal(memory.log_rewards, [1.0, 2.0, 0.5])
    assert memory.size == 3


def test_a_diverse_memory_is_the_same_in_jax_and_numpy():
    rng = np.random.default_rng(1)
    host, device = HostObjects(20, 3), objects.init(20, 3)
    add = jax.jit(objects.add_diverse)
    for _ in range(12):
        states, log_rewards = rng.integers(0, 5, (8, 3)).astype(np.int32), rng.normal(size=8).astype(np.float32)
        host.add_diverse(states, log_rewards)
        device = add(device, states, log_rewards)
        np.testing.assert_array_equal(device.states, host.states)
        np.testing.assert_array_equal(device.log_rewards, host.log_rewards)
        assert device.added == host.size
        held = host.states[: host.size].tolist()
        assert len({tuple(state) for state in held}) == len(held)
    assert host.size == 20


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"local_search": -1}, "`--learner.local-search` is -1"),
        ({"local_search_steps": 5}, "trajectories have at most 5 steps"),
        ({"local_search_share": 0.0}, "it has to lie in (0, 1]"),
    ],
)
def test_impossible_searches_are_refused(changes, words):
    with pytest.raises(UsageError, match=words.replace("(", r"\(")):
        settings_check.check(searching(**changes))
