"""PQN: what is learned from a rollout, and that it is the same on every rung, compiles once and solves CartPole.

`Lane` is a world whose games end in both ways within a few steps; this module is its maker.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import assert_trees_close, assert_trees_equal
from tests.test_compiles import counted
from xladder.core import keys
from xladder.core.compiling import compiled
from xladder.families.value import gymnax_presets as gymnax
from xladder.families.value.evaluation import run_episodes
from xladder.families.value.learner_config import LearnerConfig, PQNConfig
from xladder.families.value.pqn import Program, shuffle
from xladder.families.value.presets import presets
from xladder.learners.pqn import Hyperparams, PQNLearner, Rollout, RolloutBatch
from xladder.rungs import fused, parallel
from xladder.worlds.envs import EnvSpec, Step

NUM_ENVS, STEPS = 3, 10
GOAL, LIMIT = 2, 4


class LaneState(NamedTuple):
    place: jax.Array  # int32 [N]
    age: jax.Array  # int32 [N]
    over: jax.Array  # bool [N]


@dataclass(frozen=True)
class Lane:
    """Action 1 goes on, 0 stays. The goal pays and is the end; after a few steps a game is cut. Steps pay by chance."""

    num_envs: int
    spec: ClassVar[EnvSpec] = EnvSpec((2,), np.dtype(np.float32), 2)

    def reset(self, keys):
        nothing = jnp.zeros(self.num_envs, jnp.int32)
        state = LaneState(nothing, nothing, jnp.zeros(self.num_envs, bool))
        return state, self.frame(state)

    def step(self, keys, state, actions):
        is_first = state.over
        place, age = (jnp.where(is_first, 0, x) for x in (state.place + actions, state.age + 1))
        terminated = ~is_first & (place == GOAL)
        truncated = ~is_first & (age == LIMIT) & ~terminated
        state = LaneState(place, age, terminated | truncated)
        reward = jnp.where(is_first, 0.0, jnp.where(terminated, 2.0, jax.vmap(jax.random.uniform)(keys)))
        return state, Step(self.frame(state), reward, terminated, truncated, is_first)

    def frame(self, state):
        return jnp.stack([state.place, state.age], axis=1).astype(jnp.float32)


@dataclass(frozen=True)
class LaneConfig(gymnax.WorldConfig):
    def inside(self, seed):
        return Lane(self.num_envs)

    def spec(self):
        return Lane.spec


TINY = gymnax.Config(
    world=LaneConfig(num_envs=NUM_ENVS, stack=2),
    learner=LearnerConfig(hidden=(8,), width=8, gamma=0.9, lr=1e-2, optimiser="radam", epsilon=0.7, epsilon_end=0.3),
    pqn=PQNConfig(rollout=STEPS, minibatches=3, passes=2, lambda_=0.6),
    algorithm="pqn",
    steps=40 * NUM_ENVS * STEPS,
)
HYPERPARAMS = Hyperparams(*map(jnp.float32, (0.1, 0.5, 0.5, float("inf"), 0.0, 0.0, 0.0)))


@pytest.fixture(scope="module")
def program():
    return Program.for_platform(TINY, "cpu")


@pytest.fixture(scope="module")
def tick(program):
    return jax.jit(program.tick)


@pytest.fixture(scope="module")
def update(program):
    return jax.jit(program.pqn.update)


@pytest.fixture(scope="module")
def second(program, tick):
    """The second rollout of a run, which begins in the middle of games: the run before and after it, and itself."""
    counters, runs = program.init_counters(), jax.jit(jax.vmap(program.init))(jnp.arange(1))
    _, runs, _ = tick(counters, runs)
    run = jax.tree.map(lambda x: x[0], runs)
    after, rollout, _ = jax.jit(program.rollout)(jnp.int32(1), run)
    return run, rollout, after


@pytest.fixture(scope="module")
def prepare(program):
    return jax.jit(program.pqn.prepare)


@pytest.fixture(scope="module")
def batch(prepare, second):
    """Those of the second rollout."""
    return jax.tree.map(np.asarray, prepare(second[0].agent.hyperparams, second[1]))


def best(program, params, states):
    """What the network says that states [N, F, …] are worth, as a call of its own."""
    return np.asarray(jax.jit(program.learner.values)(params, states, None, None)).max(-1)


# ---- targets -------------------------------------------------------------------------------------------------------


def test_targets_by_hand():
    # One copy, λ = ½, γ = ½. Game one is cut after row 1, game two ends for good in row 4, game three is under way.
    column = [
        # reward, terminated, truncated, idle, value of the row's own state
        (1.0, False, False, False, 9.0),
        (2.0, False, True, False, 4.0),
        (0.0, False, False, True, 6.0),  # the last frame of game one
        (3.0, False, False, False, 50.0),
        (4.0, True, False, False, 8.0),
        (0.0, False, False, True, 70.0),  # the last frame of game two, worth nothing whatever is said
        (1.0, False, False, False, 90.0),
    ]
    rewards, terminated, truncated, idle, values = (jnp.array(x)[:, None] for x in zip(*column, strict=True))
    states, actions = jnp.zeros((7, 1, 1, 2)), jnp.zeros((7, 1), jnp.int32)
    values = jnp.concatenate([values, jnp.array([[12.0]])])  # of the state after the rollout
    rollout = Rollout(states, actions, rewards, terminated, truncated, idle, values)
    batch = PQNLearner(None).prepare(HYPERPARAMS, rollout)
    # G₁ = 2 + ½·6               = 5      the value of the last frame, and nothing of game two
    # G₀ = 1 + ½·(½·5 + ½·4)     = 3.25
    # G₄ = 4
    # G₃ = 3 + ½·(½·4 + ½·8)     = 6
    # G₆ = 1 + ½·12              = 7      the state after the rollout
    taught = np.array([0, 1, 3, 4, 6])
    np.testing.assert_array_equal(batch.targets[taught], [3.25, 5, 6, 4, 7])
    np.testing.assert_array_equal(batch.weights, [1, 1, 0, 1, 1, 0, 1])


@pytest.mark.slow
def test_targets_of_a_recorded_rollout_are_those_of_its_games_one_by_one(program, second, batch):
    run, rollout, after = second
    params, lam, gamma = run.agent.params, TINY.pqn.lambda_, TINY.learner.gamma
    # What was acted on is the network's own opinion, also of the state that comes after.
    states = np.concatenate([rollout.states, after.seen.stack[None]])
    worth = best(program, params, states).astype(np.float64)
    np.testing.assert_allclose(rollout.values, worth, atol=1e-5)
    wanted, ends = np.full((STEPS, NUM_ENVS), np.nan), []
    for n in range(NUM_ENVS):
        for t in range(STEPS):
            if rollout.idle[t, n]:
                continue
            total, factor, now = 0.0, 1.0, t  # the λ-return as it is summed up forwards
            while True:
                total += factor * rollout.rewards[now, n]
                terminated, cut = rollout.terminated[now, n], rollout.truncated[now, n] or now == STEPS - 1
                share = 1.0 if cut else 1 - lam
                total += 0.0 if terminated else factor * gamma * share * worth[now + 1, n]
                if terminated or cut:
                    ends.append("terminated" if terminated else "truncated" if now < STEPS - 1 else "unfinished")
                    break
                factor, now = factor * gamma * lam, now + 1
            wanted[t, n] = total
    assert set(ends) == {"terminated", "truncated", "unfinished"}  # else it shows little
    targets, weights = (np.asarray(x).reshape(STEPS, NUM_ENVS) for x in (batch.targets, batch.weights))
    taught = np.isfinite(wanted)
    np.testing.assert_allclose(targets[taught], wanted[taught], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(weights, taught)
    # Lessons are in the order of the targets.
    np.testing.assert_array_equal(batch.states, np.asarray(rollout.states).reshape(-1, 2, 2))
    np.testing.assert_array_equal(batch.actions, np.asarray(rollout.actions).ravel())


def test_a_rollout_is_what_the_network_and_the_world_do(program, second):
    """A game of `Lane` follows from the actions and the draws; stacks of two begin empty."""
    run, rollout, _ = second
    rows = jax.tree.map(np.asarray, rollout)
    frames, older = rows.states[:, :, 1], rows.states[:, :, 0]
    assert rows.idle.any() and (rows.idle[1:] == (rows.terminated | rows.truncated)[:-1]).all()
    went_on = ~rows.idle[:-1]
    place, age = (frames[:-1, :, i] for i in (0, 1))
    expected = np.stack([place + rows.actions[:-1], age + 1], axis=-1) * went_on[..., None]
    np.testing.assert_array_equal(frames[1:], expected)
    np.testing.assert_array_equal(older[1:], frames[:-1] * went_on[..., None])

    @jax.jit
    @jax.vmap
    def drawn(step):
        return program.draw_act(run.key, step), jax.vmap(jax.random.uniform)(program.step_keys(run.key, step))

    draws, pays = jax.tree.map(np.asarray, drawn(STEPS + np.arange(STEPS)))  # it is the second rollout
    values = jax.jit(program.learner.values)(run.agent.params, rows.states, None, None)
    explores = draws.explore < program.epsilon(1)
    np.testing.assert_array_equal(rows.actions, np.where(explores, draws.action, np.argmax(values, axis=-1)))
    assert 0 < explores.sum() < explores.size and len(set(rows.actions.ravel().tolist())) == 2
    np.testing.assert_allclose(rows.rewards, np.where(rows.idle, 0, np.where(rows.terminated, 2, pays)), rtol=1e-6)


# ---- the loss ------------------------------------------------------------------------------------------------------


def test_the_loss_is_half_the_squared_error_of_the_action_taken(program, second, batch):
    run, _, _ = second
    outputs = jax.jit(program.learner.values)(run.agent.params, batch.states, None, None)
    errors = batch.targets - np.asarray(outputs)[np.arange(len(outputs)), batch.actions]
    loss = jax.jit(program.pqn.loss)(run.agent.params, batch)
    np.testing.assert_allclose(loss, np.sum(0.5 * errors[batch.weights > 0] ** 2) / len(errors), rtol=1e-5)


def test_rows_in_which_nothing_is_decided_have_no_influence(program, prepare, second):
    """They may show anything, be given anything and lead anywhere: targets and gradient stay the same, to the bit."""
    run, rollout, _ = second
    rows = jax.tree.map(np.asarray, rollout)
    rng = np.random.default_rng(0)
    idle = rows.idle
    other = rows._replace(
        states=np.where(idle[..., None, None], rng.normal(size=rows.states.shape), rows.states).astype(np.float32),
        actions=np.where(idle, 1 - rows.actions, rows.actions),
        rewards=np.where(idle, np.float32(1e6), rows.rewards),
    )
    differentiate = jax.jit(jax.grad(program.pqn.loss))
    one, two = (prepare(run.agent.hyperparams, x) for x in (rows, other))
    assert np.abs(one.targets - two.targets).max() > 1e5
    np.testing.assert_array_equal(one.targets[~idle.ravel()], two.targets[~idle.ravel()])
    gradients = [differentiate(run.agent.params, x) for x in (one, two)]
    assert_trees_equal(*gradients)
    assert max(np.abs(x).max() for x in jax.tree.leaves(gradients[0])) > 1e-3


def test_what_a_last_frame_is_worth_counts_only_where_the_game_was_cut(prepare, second):
    run, rollout, _ = second
    rows = jax.tree.map(np.asarray, rollout)
    other = rows._replace(
        values=rows.values + np.float32(10) * np.append(rows.idle, np.zeros((1, NUM_ENVS), bool), axis=0)
    )
    one, two = (np.asarray(prepare(run.agent.hyperparams, x).targets).reshape(STEPS, NUM_ENVS) for x in (rows, other))
    ended, cut = rows.terminated, rows.truncated[:-1]
    np.testing.assert_allclose((two - one)[:-1][cut], 10 * TINY.learner.gamma, rtol=1e-4)
    np.testing.assert_array_equal(one[ended], two[ended])
    assert cut.any() and ended.any()


def test_hidden_layers_are_normalised(program, second):
    """What comes after a normalised layer does not notice when that layer says everything louder."""
    run, rollout, _ = second
    states, params = rollout.states[3], run.agent.params
    before = best(program, params, states)
    for part, layer in (("torso", "hidden_0"), ("head", "hidden")):
        louder = {**params, part: {**params[part], layer: jax.tree.map(lambda x: 50 * x, params[part][layer])}}
        np.testing.assert_allclose(best(program, louder, states), before, rtol=0.01, atol=0.01)


# ---- updates -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 30, 64, 1000])
def test_a_shuffle_has_everything_once(count):
    first, second = (np.asarray(shuffle(jax.random.key(seed), count)) for seed in (0, 1))
    np.testing.assert_array_equal(np.sort(first), np.arange(count))
    assert count < 30 or (first != second).any()


def test_a_shuffle_is_even():
    """Every number is as often in every place: 2000 shuffles of 5, and χ² with 16 degrees of freedom."""
    drawn = np.asarray(jax.vmap(lambda key: shuffle(key, 5))(jax.random.split(jax.random.key(3), 2000)))
    seen = np.stack([(drawn == number).sum(0) for number in range(5)])
    assert np.sum((seen - 400) ** 2 / 400) < 39.3  # once in a thousand times


def test_every_pass_has_every_lesson_once_in_an_order_of_its_own(program):
    draw = jax.jit(program.draw_orders)
    orders = [np.asarray(draw(keys.root(0), tick)).reshape(2, -1) for tick in (0, 1)]
    flat = [order for both in orders for order in both]
    for i, order in enumerate(flat):
        np.testing.assert_array_equal(np.sort(order), np.arange(STEPS * NUM_ENVS))
        assert all((order != other).any() for other in flat[:i])


def test_a_tick_is_a_rollout_and_updates_one_by_one(program, tick, update, second, batch):
    run, rollout, after = second
    agent, losses = run.agent, []
    for order in np.asarray(jax.jit(program.draw_orders)(run.key, 1)):
        agent, loss = update(agent, RolloutBatch(*(x[order] for x in batch)), np.float32(39 / 40))
        losses.append(loss)
    at_one = program.init_counters()._replace(tick=jnp.int32(1))
    counters, runs, metrics = tick(at_one, jax.tree.map(lambda x: x[None], run))
    assert len(losses) == int(metrics.updates[0]) == 6 and int(counters.tick) == 2
    np.testing.assert_allclose(metrics.loss[0], np.mean(losses), rtol=1e-4)
    # Rounding alone: six steps of 0.01 at most.
    assert_trees_close(jax.tree.map(lambda x: x[0], runs.agent), agent, atol=2e-5)
    assert_trees_equal(jax.tree.map(lambda x: x[0], runs.seen), after.seen)
    # Games that ended are those whose last frame was shown.
    assert int(metrics.episodes[0]) == int(rollout.idle.sum())


def test_the_learning_rate_falls_to_nothing(program, update, second, batch):
    assert [float(program.left(tick)) for tick in (0, 10, 39, 40)] == pytest.approx([1, 0.75, 1 / 40, 0])
    run = second[0]
    batch = jax.tree.map(lambda x: x[:10], batch)  # as many as in a minibatch: nothing is compiled for them
    full, half, none = (update(run.agent, batch, np.float32(left))[0] for left in (1, 0.5, 0))
    assert_trees_equal(none.params, run.agent.params)
    steps = [jax.tree.map(lambda p, q: p - q, agent.params, run.agent.params) for agent in (full, half)]
    assert_trees_close(jax.tree.map(lambda x: 0.5 * x, steps[0]), steps[1], atol=1e-6)
    assert max(np.abs(x).max() for x in jax.tree.leaves(steps[1])) > 1e-4


def test_gradients_are_clipped_by_their_norm(program, update, second):
    """Adam's steps forget the length of a gradient, but it is seen in the moments."""
    params, _, hyperparams = second[0].agent
    ones = np.ones(10, np.float32)
    batch = RolloutBatch(np.ones((10, 2, 2), np.float32), np.zeros(10, np.int32), 1e4 * ones, ones)
    fresh = program.pqn.init(params, hyperparams)
    agent, _ = update(fresh, batch, np.float32(1))
    norm = np.sqrt(sum(np.sum(np.square(x)) for x in jax.tree.leaves(agent.opt_state.mu))) / 0.1  # 1 − β₁
    np.testing.assert_allclose(norm, TINY.learner.clip, rtol=1e-3)


# ---- rungs ---------------------------------------------------------------------------------------------------------


class Trained(NamedTuple):
    run: parallel.ParallelRun | fused.FusedRun
    metrics: dict
    traced: dict  # in the second of two calls


@pytest.fixture(scope="module")
def trained():
    """Six ticks of seed 1 alone, and in a population of two."""

    def train(run):
        first = run.advance(2)
        with counted() as traced:
            second = run.advance(4)
        return Trained(run, {k: np.concatenate([first[k], second[k]], axis=1) for k in first}, traced)

    return {"parallel": train(parallel.start(TINY, [1])), "fused": train(fused.start(TINY, [0, 1]))}


@pytest.mark.slow
def test_the_same_seed_is_the_same_run_on_every_rung(trained):
    (alone, rows, _), (population, chunk, _) = trained["parallel"], trained["fused"]
    for name in ("returns", "length", "episodes", "epsilon", "updates"):
        np.testing.assert_allclose(rows[name][0], chunk[name][1], rtol=1e-6)
    # Rounding alone: 36 steps of 0.01 at most.
    np.testing.assert_allclose(rows["loss"][0], chunk["loss"][1], rtol=1e-3)
    mine, theirs = (jax.tree.map(lambda x, i=i: x[i], run.params()) for i, run in enumerate((alone, population)))
    assert_trees_close(mine, theirs, atol=1e-4)
    differ = jax.tree.map(lambda x: np.abs(x[0] - x[1]).max(), population.params())
    assert max(jax.tree.leaves(differ)) > 1e-2  # seeds are not each other


@pytest.mark.slow
def test_seeds_all_at_once_are_seeds_one_after_another(trained):
    """As they are laid out on a GPU, and on a CPU."""
    population = trained["fused"].run
    program = replace(population.program, mapped=True)
    assert not population.program.mapped
    counters, runs = program.init_counters(), jax.jit(jax.vmap(program.init))(jnp.arange(2))
    tick = jax.jit(program.tick)
    for _ in range(6):
        counters, runs, _ = tick(counters, runs)
    assert_trees_close(runs.agent.params, population.params(), atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("rung", ["parallel", "fused"])
def test_a_second_call_traces_nothing(trained, rung):
    assert trained[rung].traced == {"traced": 0, "compiled": 0}
    metrics = trained[rung].metrics
    assert np.isfinite(metrics["loss"]).all() and (metrics["updates"] == 6).all()


def test_a_tick_gives_back_what_it_takes(program):
    """Types and shapes of the state are a fixed point of the tick, weak types included."""
    before = jax.eval_shape(lambda: (program.init_counters(), jax.vmap(program.init)(jnp.arange(2))))
    after = jax.eval_shape(program.tick, *before)[:2]
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert (old.shape, old.dtype, old.weak_type) == (new.shape, new.dtype, new.weak_type)


def test_a_rehearsal_plays_what_a_tick_plays(program, second):
    run, rollout, _ = second
    counters = program.init_counters()._replace(tick=jnp.int32(1))
    rolled_out = jax.jit(program.rollout_only)(counters, jax.tree.map(lambda x: x[None], run))
    np.testing.assert_array_equal(rolled_out.actions[0], rollout.actions)
    np.testing.assert_array_equal(rolled_out.states[0], rollout.states)


# ---- learning ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_it_solves_cartpole():
    config = presets("cartpole")["pqn"]
    run = fused.start(config, [0])
    metrics = run.advance(config.ticks)
    assert np.nanmean(metrics["returns"][0, :5]) < 50
    params = jax.tree.map(lambda x: x[0], run.params())
    returns = run_episodes(config, params, 20, 0, compiled, 0.0).returns
    assert len(returns) == 20 and returns.mean() >= 450
