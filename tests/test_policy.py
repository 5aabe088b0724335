"""Trained agents as functions: the same actions as an evaluation takes, for one observation or many."""

import subprocess
import sys
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from tests import fresh_runs
from tests.conftest import TINY, TINY_CART, TINY_GRID
from xladder.core import keys
from xladder.core.compiling import compiled
from xladder.core.mapping import pick
from xladder.errors import UsageError
from xladder.families.gflownet import evaluation as hypergrid_evaluation
from xladder.families.gflownet.program import Program as GridProgram
from xladder.families.multi_agent import evaluation as treasurehunt_evaluation
from xladder.families.value import evaluation as value_evaluation
from xladder.families.value import presets as named
from xladder.runs import nets
from xladder.worlds import treasurehunt as world


@pytest.fixture(scope="module")
def hunt(tmp_path_factory):
    return fresh_runs.make(tmp_path_factory.mktemp("hunt") / "run", "treasurehunt", TINY, seeds=2, seed=3)


@pytest.fixture(scope="module")
def cart(tmp_path_factory):
    return fresh_runs.make(tmp_path_factory.mktemp("cart") / "run", "cartpole", TINY_CART)


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    return fresh_runs.make(tmp_path_factory.mktemp("grid") / "run", "hypergrid", TINY_GRID)


def test_a_value_policy_acts_as_an_evaluation_without_exploring(cart):
    states = np.random.default_rng(0).standard_normal((9, 1, 4), np.float32)
    policy = cart.policy()
    params, choose = nets.take(cart, (0, 0)), compiled(value_evaluation._choose)
    evaluated = choose(
        cart.config.family.program(cart.config), params, states, (), keys.evaluation(0), np.int32(0), np.float32(0.0)
    )
    np.testing.assert_array_equal(policy(states), evaluated.actions)
    assert policy.values(states).shape == (9, 2)


def test_one_observation_gives_an_int_and_a_batch_as_many_whether_numpy_jax_or_lists(cart):
    states = np.random.default_rng(1).standard_normal((5, 1, 4), np.float32)
    policy = cart.policy(seed=0, agent=0)
    actions = policy(states)
    assert actions.dtype == np.int32 and actions.shape == (5,)
    for given in (states[2], jnp.asarray(states[2]), states[2].tolist(), states[2].astype(np.float64)):
        assert policy(given) == actions[2] and isinstance(policy(given), int)
    np.testing.assert_array_equal(policy(jnp.asarray(states)), actions)
    assert policy.values(states[2]).shape == (2,)


def test_a_stack_of_one_frame_may_be_left_out(cart):
    frames = np.random.default_rng(2).standard_normal((5, 4), np.float32)
    policy = cart.policy()
    actions = policy(frames[:, None])
    np.testing.assert_array_equal(policy(frames), actions)
    assert policy(frames[3]) == actions[3] and isinstance(policy(frames[3]), int)
    with pytest.raises(UsageError, match=r"shape \[5\]"):
        policy(np.zeros(5))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["iqn", "rainbow"])
def test_members_that_draw_something_are_the_same_every_time(algorithm, tmp_path):
    config = named.presets("cartpole")[algorithm]
    small = replace(config.learner, hidden=(16,), width=16, memory=64, batch_size=8)
    config = replace(config, learner=small)
    policy = fresh_runs.make(tmp_path / "run", "cartpole", config).policy()
    states = np.random.default_rng(2).standard_normal((6, 1, 4), np.float32)
    np.testing.assert_array_equal(policy.values(states), policy.values(states))
    np.testing.assert_allclose(policy.values(states)[3], policy.values(states[3]), atol=1e-4)  # C51 sums to 500


def test_each_agent_of_each_seed_has_a_policy_of_its_own(hunt):
    shape = (40, TINY.learner.n_frames, TINY.world.build().num_cells)
    views = np.random.default_rng(0).integers(0, TINY.world.build().num_codes, shape).astype(np.int8)
    said = [hunt.policy(seed, agent).values(views) for seed in (3, 4) for agent in (0, 1)]
    assert all(not np.allclose(a, b) for i, a in enumerate(said) for b in said[:i])
    np.testing.assert_array_equal(hunt.policy().values(views), said[0])


def test_a_hunters_policy_acts_as_it_does_in_an_evaluation(hunt):
    played = treasurehunt_evaluation.episode(hunt.config, pick(hunt.params, 0), 0, compiled)
    frames = TINY.learner.n_frames
    views = played.rows.frames  # [T, N, V]
    for agent in range(TINY.world.num_agents):
        before = np.full((frames - 1, views.shape[-1]), world.EMPTY, np.int8)
        seen = np.concatenate([before, views[:, agent]])
        stacks = np.stack([seen[t : t + frames] for t in range(len(views))])
        actions = hunt.policy(3, agent)(stacks)
        # An evaluation draws its fractions, so where two actions are nearly as good it may take the other.
        assert np.mean(actions == played.rows.actions[:, agent]) > 0.7


def test_a_samplers_policy_takes_the_most_probable_action_and_none_that_is_forbidden(grid):
    side, policy = TINY_GRID.world.side, grid.policy()
    cells = np.stack(np.meshgrid(range(side), range(side), indexing="ij"), -1).reshape(-1, 2)
    probs = policy.probabilities(cells)
    np.testing.assert_allclose(probs.sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(policy(cells), probs.argmax(1))
    assert policy([side - 1, side - 1]) == 2  # nothing is left but to stop
    assert policy.probabilities([side - 1, 0])[0] == 0
    exact = hypergrid_evaluation._policy(GridProgram(grid.config), nets.take(grid, (0, 0)), jnp.asarray(cells))
    np.testing.assert_allclose(probs, exact, rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([0, 0, 0], r"shape \[3\]"),
        (np.zeros((2, 2, 2), int), r"\[B, 2\]"),
        ([0.5, 1.0], "have to be int32"),
        ([0, 5], r"lie in \[0, 5\)"),
        ([-1, 0], r"lie in \[0, 5\)"),
        (np.zeros((0, 2), int), "observations is empty"),
        (["a", "b"], "have to be int32"),
        (np.array([None, None]), "have to be int32"),
    ],
)
def test_what_is_no_observation_is_refused_with_a_sentence(given, said, grid):
    with pytest.raises(UsageError, match=said):
        grid.policy()(given)


def test_seeds_and_agents_that_are_not_there_are_named(hunt, grid):
    with pytest.raises(UsageError, match="no seed 0 in this run: it has 3 … 4"):
        hunt.policy(seed=0)
    with pytest.raises(UsageError, match="no agent 2 in this run: it has 0 … 1"):
        hunt.policy(agent=2)
    with pytest.raises(UsageError, match="no agent 1 in this run: it has 0"):
        grid.policy(agent=1)


def test_a_policy_needs_no_rung_and_no_pytorch(tmp_path):
    folder = tmp_path / "run"
    fresh_runs.make(folder, "hypergrid", TINY_GRID)
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import xladder\n"
        f"print(xladder.load({str(folder)!r}).policy()([4, 4]))\n"
        "print([name for name in sys.modules if name.startswith('xladder.rungs.')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["2", "['xladder.rungs.running']"]
