"""Value learners: the same seed gives the same run on every JAX rung, in worlds inside the program and on the host."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.conftest import assert_trees_close, assert_trees_equal
from tests.test_compiles import counted
from xladder import bridge, training
from xladder.core.compiling import compiled
from xladder.families.value import atari_presets as atari
from xladder.families.value import evaluation as value_evaluation
from xladder.families.value import gym_presets as gym
from xladder.families.value import gymnax_presets as gymnax
from xladder.families.value import summaries
from xladder.families.value.learner_config import LearnerConfig
from xladder.replay.history import eligible
from xladder.rungs import fused, hybrid, parallel, sequential
from xladder.rungs import torch as torch_rung

TICKS, SEED = 32, 3
JAX_RUNGS = {"sequential": sequential, "parallel": parallel, "fused": fused}
# Programs that add in another order differ by roundings, of parameters and frames up to 3, and of returns up to 10; so
# after 50 updates it is seen in the sixth digit. The first other action would make it a hundred times as much.
ROUNDING = 2e-5

SMALL = LearnerConfig(
    hidden=(16,),
    width=16,
    batch_size=8,
    memory=64,
    learning_starts=8,
    steps_per_update=2,
    target_update_period=24,
    atoms=5,
    quantiles=4,
    act_quantiles=4,
    cosines=8,
    lr=0.01,  # so much that what is chosen before an update is not what would be chosen after it
)
# One step of 4 envs and 2 updates; ε halves every 40 steps.
SEVERAL_UPDATES = gymnax.Config(
    world=gymnax.WorldConfig(num_envs=4),
    learner=replace(
        SMALL,
        noisy=True,
        prioritised=True,
        n_step=3,
        epsilon=0.6,
        epsilon_end=0.1,
        epsilon_schedule="exponential",
        epsilon_steps=40,
    ),
    steps=4 * TICKS,
    evaluate_episodes=0,
)
# Two steps of 4 envs and one update; ε falls for half of the run.
SEVERAL_STEPS = replace(
    SEVERAL_UPDATES,
    learner=replace(SMALL, steps_per_update=8, epsilon=0.9, epsilon_end=0.1, epsilon_share=0.5),
    steps=8 * TICKS,
)
GYM = gym.Config(gym.WorldConfig(num_envs=4), SEVERAL_UPDATES.learner, steps=4 * TICKS, evaluate_episodes=0)
# Two steps of 2 envs and one update. Games are cut after 100 frames, so that some end.
PONG = atari.Config(
    world=atari.WorldConfig("atari/pong", num_envs=2, cap_frames=100, noops=8, threads=1),
    learner=replace(
        atari.PROTOCOLS["cleanrl"].learner,
        width=16,
        batch_size=4,
        memory=40,
        learning_starts=16,
        steps_per_update=4,
        target_update_period=24,
        epsilon_steps=0,
        epsilon_share=0.5,
    ),
    frames=4 * 4 * TICKS,
    evaluate_episodes=0,
)


@pytest.fixture(autouse=True)
def one_torch_thread():
    """The torch rung chooses its number of threads; the next test should not inherit it."""
    yield
    torch.set_num_threads(1)


# ---- runs that several tests look at -------------------------------------------------------------------------------


@dataclass
class Outcome:
    """A run of `TICKS` ticks, and what two more cost."""

    run: Any
    metrics: dict
    begun: Any
    params: Any
    agent: Any  # online and target networks and all else that the agent has
    memory: Any
    priorities: Any
    samples: list  # of rungs on the host: where samples start, what they are, which rows were first, and β
    counts: dict


def follow(config, rung, seeds=(SEED,)) -> Outcome:
    run, samples = rung.start(config, list(seeds)), []
    if rung is sequential:
        record_samples(run.loop.memories[0], samples)
    begun = run.params()
    metrics = run.advance(TICKS)
    agent, memory, priorities = inside(run)
    found = Outcome(run, metrics, begun, run.params(), agent, memory, priorities, list(samples), {})
    with counted() as found.counts:
        run.advance(2)
    return found


def record_samples(memory, samples):
    sample = memory.sample

    def recorded(uniforms, gamma):
        indices, batch = sample(uniforms, gamma)
        samples.append((indices, batch, memory.history.rows.is_first.copy(), memory.beta))
        return indices, batch

    memory.sample = recorded


def inside(run) -> tuple:
    """Agent, memory and chances of a run's first seed, as NumPy arrays that do not change any more."""
    if isinstance(run, parallel.ParallelRun | fused.FusedRun):
        # What came of the last step is written by the next one; here it is written now.
        stored = jax.jit(run.program.store_all)(run.counters.cursor, run.runs)
        state = jax.tree.map(lambda x: x[0], stored)
    elif isinstance(run, parallel.OverlappedRun):
        state = jax.tree.map(lambda x: x[0], run.loop.run)
    else:
        memory, agent = run.loop.memories[0], run.loop.learner.agents[0]
        priorities = memory.priorities and (memory.priorities.blocks, memory.priorities.sums, memory.priorities.largest)
        return jax.tree.map(np.array, (agent, memory.history.rows, priorities or ()))
    return jax.tree.map(np.array, (state.agent, state.memory, tuple(state.priorities)))


@pytest.fixture(scope="module")
def several_updates():
    return SEVERAL_UPDATES, {name: follow(SEVERAL_UPDATES, rung) for name, rung in JAX_RUNGS.items()}


@pytest.fixture(scope="module")
def several_steps():
    return SEVERAL_STEPS, {name: follow(SEVERAL_STEPS, rung) for name, rung in JAX_RUNGS.items()}


@pytest.fixture(params=[pytest.param("several_updates", marks=pytest.mark.slow), "several_steps"])
def outcomes(request):
    """One config after the other, on the three rungs whose worlds may be inside the program."""
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def gym_outcomes():
    return GYM, {"sequential": follow(GYM, sequential), "parallel": follow(GYM, parallel)}


@pytest.fixture(scope="module")
def pong_outcomes():
    return PONG, {"sequential": follow(PONG, sequential), "parallel": follow(PONG, parallel)}


def assert_same_run(ours: Outcome, theirs: Outcome):
    """To rounding; whole numbers exactly."""
    assert_trees_equal(ours.begun, theirs.begun)
    for name in ("episodes", "updates"):
        np.testing.assert_array_equal(ours.metrics[name], theirs.metrics[name])
    for name in ("returns", "length", "loss", "epsilon"):
        assert_column_close(ours.metrics[name], theirs.metrics[name])
    for mine, other in zip(ours.memory, theirs.memory, strict=True):
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(np.float64(mine), np.float64(other), rtol=0, atol=ROUNDING)
    for part in ("params", "target"):
        assert_trees_close(getattr(ours.agent, part), getattr(theirs.agent, part), ROUNDING)
    assert_trees_close(ours.priorities, theirs.priorities, 10 * ROUNDING)  # roots of errors of a few
    assert_trees_close(ours.params, theirs.params, ROUNDING)


def assert_column_close(ours, theirs):
    """As a share of its largest number; nan in the same places."""
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=ROUNDING * np.nanmax(np.abs(theirs)))


# ---- one seed, one run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rung", ["parallel", "fused"])
def test_one_seed_is_one_run_on_every_jax_rung(outcomes, rung):
    config, found = outcomes
    assert_same_run(found[rung], found["sequential"])
    learned = found["fused"].metrics
    assert learned["updates"].sum() > 20
    assert learned["episodes"].sum() > 5, "no game ended, so no reset was compared"
    leaves = zip(jax.tree.leaves(found[rung].begun), jax.tree.leaves(found[rung].params), strict=True)
    assert max(np.abs(old - new).max() for old, new in leaves) > 100 * ROUNDING, "nothing was learned"
    assert bool(found[rung].priorities) == config.learner.prioritised


@pytest.mark.slow
def test_a_world_of_gymnasium_stepped_while_the_device_learns_makes_the_same_run(gym_outcomes):
    _, found = gym_outcomes
    assert isinstance(found["parallel"].run, parallel.OverlappedRun)
    assert_same_run(found["parallel"], found["sequential"])
    assert found["parallel"].metrics["episodes"].sum() > 5
    assert found["parallel"].metrics["updates"].sum() > 20


@pytest.mark.slow
def test_atari_stepped_while_the_device_learns_makes_the_same_run(pong_outcomes):
    _, found = pong_outcomes
    assert isinstance(found["parallel"].run, parallel.OverlappedRun)
    assert_same_run(found["parallel"], found["sequential"])
    assert found["parallel"].metrics["episodes"].sum() > 2
    assert found["parallel"].memory.frames.any()


@pytest.mark.slow
def test_fire_after_a_lost_life_is_what_every_rung_does_and_remembers():
    world = replace(PONG.world, name="atari/breakout", cap_frames=1000, fire_after_life=True)
    config = replace(PONG, world=world, learner=replace(PONG.learner, memory=2 * 100, epsilon=0.0, epsilon_end=0.0))
    found = {name: follow(config, rung) for name, rung in JAX_RUNGS.items()}
    assert_same_run(found["parallel"], found["sequential"])
    assert_same_run(found["fused"], found["sequential"])
    rows = found["sequential"].memory
    lost = rows.terminated[:, :-1] & ~rows.is_first[:, 1:]
    lost &= np.arange(lost.shape[1])[None] < 2 * TICKS - 1  # rows that are written
    assert lost.sum() >= 2
    assert (rows.actions[:, 1:][lost] == 1).all()


@pytest.mark.slow
def test_atari_repeats_itself_from_a_seed_whatever_is_evaluated_between(pong_outcomes):
    config, found = pong_outcomes
    run = parallel.start(config, [SEED])
    first = run.advance(5)
    value_evaluation.measure(replace(config, evaluate_episodes=2), run.params(), 5, compiled)
    second = run.advance(TICKS - 5)
    metrics = {name: np.concatenate([first[name], second[name]], axis=1) for name in first}
    assert_trees_equal(metrics, found["parallel"].metrics)
    assert_trees_equal(inside(run), (found["parallel"].agent, found["parallel"].memory, found["parallel"].priorities))
    other = parallel.start(config, [SEED + 1]).advance(TICKS)
    assert not np.array_equal(other["loss"], metrics["loss"], equal_nan=True)


@pytest.mark.slow
def test_a_seed_in_a_population_is_the_seed_alone(several_steps):
    config, found = several_steps
    population = fused.start(config, [SEED - 1, SEED])
    metrics = population.advance(TICKS)
    assert_second_seed_is(found["fused"], metrics, population.params())
    assert not np.array_equal(metrics["loss"][0], metrics["loss"][1], equal_nan=True), "seeds have to differ"


@pytest.mark.slow
def test_how_a_program_is_laid_out_does_not_change_the_learner(outcomes):
    """As for a GPU: all seeds at once, updates side by side, no branch for hard updates or the start of learning."""
    _, found = outcomes
    program = replace(found["fused"].run.program, mapped=True)
    counters, runs = jax.jit(lambda seeds: (program.init_counters(), jax.vmap(program.init)(seeds)))(jnp.arange(2, 4))
    tick, rows = jax.jit(program.tick), []
    for _ in range(TICKS):
        counters, runs, row = tick(counters, runs)
        rows.append(jax.device_get(row)._asdict())
    metrics = {name: np.stack([row[name] for row in rows], axis=1) for name in rows[0]}
    assert_second_seed_is(found["fused"], metrics, runs.agent.params)
    stored = jax.tree.map(
        lambda x: np.asarray(x[1]), jax.jit(program.store_all)(counters.cursor, runs)._replace(key=jnp.zeros(2))
    )
    assert_trees_close(stored.agent.target, found["fused"].agent.target, ROUNDING)
    assert_trees_close(tuple(stored.priorities), found["fused"].priorities, 10 * ROUNDING)
    for mine, other in zip(stored.memory, found["fused"].memory, strict=True):
        np.testing.assert_allclose(np.float64(mine), np.float64(other), rtol=0, atol=ROUNDING)


def assert_second_seed_is(alone: Outcome, metrics, params):
    for name in ("episodes", "updates"):
        np.testing.assert_array_equal(metrics[name][1:], alone.metrics[name])
    for name in ("returns", "length", "loss", "epsilon"):
        assert_column_close(metrics[name][1:], alone.metrics[name])
    assert_trees_close(jax.tree.map(lambda x: x[1:], params), alone.params, ROUNDING)


# ---- what a tick does ----------------------------------------------------------------------------------------------


def test_updates_are_exactly_as_many_as_asked_for(outcomes, gym_outcomes, pong_outcomes):
    for config, found in (outcomes, gym_outcomes, pong_outcomes):
        c = config.learner
        # Enough to start with, a batch, and n rows after the first: for 4 envs and n = 3 that is 16 steps.
        starts = max(c.learning_starts, c.batch_size, (c.n_step + 1) * config.world.num_envs)
        each = config.per_tick // c.steps_per_update
        wanted = [each if tick * config.per_tick >= starts else 0 for tick in range(TICKS)]
        assert 0 < wanted.index(each) < 5
        for outcome in found.values():
            np.testing.assert_array_equal(outcome.metrics["updates"], [wanted])
            np.testing.assert_array_equal(np.isfinite(outcome.metrics["loss"]), [np.array(wanted) > 0])
        assert len(found["sequential"].samples) == sum(wanted)


def test_epsilon_falls_as_the_schedule_says(outcomes, pong_outcomes):
    config, found = outcomes
    step = config.per_tick * np.arange(TICKS)
    if config is SEVERAL_UPDATES:
        wanted = 0.1 + 0.5 * 0.5 ** (step / 40)
    else:  # half of the run is 128 steps, 16 ticks
        wanted = 0.9 - 0.8 * np.minimum(step / 128, 1)
        assert wanted[8] == pytest.approx(0.5)
    for outcome in found.values():
        np.testing.assert_allclose(outcome.metrics["epsilon"], [wanted], rtol=1e-6)
    for outcome in pong_outcomes[1].values():  # from 1 to 0.01 in half of 128 steps
        wanted = 1 - 0.99 * np.minimum(4 * np.arange(TICKS) / 64, 1)
        np.testing.assert_allclose(outcome.metrics["epsilon"], [wanted], rtol=1e-5)


@pytest.mark.slow
def test_the_bias_of_priorities_is_taken_back_more_and_more(several_updates):
    """From 0.4 at the start to 1 at the end of 32 ticks, of which the first four learn nothing."""
    _, found = several_updates
    betas = [beta for *_, beta in found["sequential"].samples]
    np.testing.assert_allclose(betas, np.repeat(0.4 + 0.6 * np.arange(4, TICKS) / TICKS, 2), rtol=1e-6)
    weights = np.stack([indices.valid for indices, *_ in found["sequential"].samples])
    np.testing.assert_allclose(weights.max(axis=1), 1)
    assert weights.min() < 0.8, "all priorities are alike"


def test_games_are_counted_where_they_end(outcomes):
    """A step of CartPole pays 1, so a game's return is its length; and no game spans the run's steps."""
    config, found = outcomes
    for outcome in found.values():
        returns, length, episodes = (outcome.metrics[name] for name in ("returns", "length", "episodes"))
        np.testing.assert_allclose(returns, length)
        np.testing.assert_array_equal(np.isfinite(returns), episodes > 0)
        total = np.nansum(length * episodes)
        # Each game costs one step more, the one that begins the next.
        played = config.world.num_envs * config.steps_per_tick * TICKS
        assert total + episodes.sum() <= played
        assert total > 0.5 * played


def test_the_step_that_begins_a_game_is_never_learned_from(outcomes, gym_outcomes, pong_outcomes):
    for config, found in (outcomes, gym_outcomes, pong_outcomes):
        length = config.learner.memory // config.world.num_envs
        resets = learned = 0
        for indices, _, is_first, _ in found["sequential"].samples:
            starts_next = is_first[indices.env, (indices.slot + 1) % length]
            assert not np.any(starts_next & (indices.valid > 0))
            resets += np.sum(is_first)
            learned += np.sum(indices.valid > 0)
        assert resets > 20, "there were hardly any such steps to learn from"
        assert learned > 0.9 * len(found["sequential"].samples) * config.learner.batch_size
        if config is not PONG:
            # CartPole pays 1 for every step but that one: what n steps bring says which steps they were.
            allowed = np.array([(1 - 0.99**n) / 0.01 for n in range(1, config.learner.n_step + 1)])
            returns = np.concatenate(
                [batch.returns[indices.valid > 0] for indices, batch, *_ in found["sequential"].samples]
            )
            assert np.abs(returns[:, None] - allowed).min(axis=1).max() < 1e-5
            assert np.any(np.abs(returns - 1) < 1e-5), "no sample ended with its game"


def test_nor_is_it_on_the_device(outcomes):
    """Of what the run has in its memory on the device, a thousand draws of its own."""
    _, found = outcomes
    run = found["parallel"].run
    program = run.program

    def draw(counters, runs, update):
        one = jax.tree.map(lambda x: x[0], runs)
        return program.sample_indices(counters, one.memory, one.priorities, program.draw_learn(one.key, update).indices)

    indices = jax.jit(jax.vmap(draw, in_axes=(None, None, 0)))(run.counters, run.runs, jnp.arange(128))
    env, slot, valid = (np.ravel(x) for x in indices)
    is_first = np.asarray(run.runs.memory.is_first[0])
    length = program.window.length
    reset_rows = np.roll(is_first, -1, axis=1)
    assert not np.any(reset_rows[env, slot] & (valid > 0))
    # All else that may be drawn is, so that the rows that are not are no accident.
    earliest, count = (int(x) for x in eligible(program.window, run.counters.cursor))
    allowed = np.zeros_like(is_first)
    allowed[:, (earliest + np.arange(count)) % length] = True
    assert np.any(allowed & reset_rows)
    drawn = np.zeros_like(is_first)
    drawn[env[valid > 0], slot[valid > 0]] = True
    np.testing.assert_array_equal(drawn, allowed & ~reset_rows)


@pytest.mark.slow
@pytest.mark.parametrize("rung", [sequential, torch_rung, hybrid], ids=["sequential", "torch", "hybrid"])
def test_the_target_becomes_the_online_network_every_24_steps(several_updates, rung):
    """Where it can be looked at after every tick; the JAX rungs make the run that `sequential` makes."""
    config, _ = several_updates
    run = rung.start(config, [SEED])
    every, target, syncs = 24 // config.per_tick, run.params(), 0
    for tick in range(14):
        before = run.params()
        run.advance(1)
        if tick % every == 0:
            target, syncs = before, syncs + 1
        assert_trees_equal(target_of(run), target)
    assert syncs == 3
    assert np.abs(target["head"]["hidden"]["kernel"] - run.params()["head"]["hidden"]["kernel"]).max() > 1e-3


def target_of(run):
    """The target network of a host rung, leaves [1, …]."""
    learner = run.loop.learner
    agent = (learner.learner if isinstance(learner, hybrid.ParamMirror) else learner).agents[0]
    params = agent.target if hasattr(agent, "params") else bridge.to_jax("value", agent.target.state_dict())
    return jax.tree.map(lambda x: np.asarray(x)[None], params)


# ---- compiled once -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_call_traces_nothing(outcomes, gym_outcomes, pong_outcomes):
    for _, found in (outcomes, gym_outcomes, pong_outcomes):
        for name, outcome in found.items():
            assert outcome.counts == {"traced": 0, "compiled": 0}, name


def test_a_tick_gives_back_what_it_takes(outcomes):
    """Types and shapes of the state are a fixed point of the tick, weak types included."""
    program = outcomes[1]["parallel"].run.program
    before = jax.eval_shape(lambda: (program.init_counters(), jax.vmap(program.init)(jnp.arange(1))))
    after = jax.eval_shape(program.tick, *before)[:2]
    for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert (old.shape, old.dtype, old.weak_type) == (new.shape, new.dtype, new.weak_type)


# ---- evaluations ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_evaluations_do_not_disturb_training(several_steps):
    config, found = several_steps
    asked = replace(config, evaluate_episodes=3, evaluate_every=80, evaluate_epsilon=0.5)  # every ten ticks
    result = training.execute(training.plan("cartpole", "fused", config=asked, seed=SEED))
    columns = summaries.columns(config, found["fused"].metrics)
    assert_trees_equal({name: result.metrics[name] for name in columns}, columns)
    assert_trees_equal(result.params, found["fused"].params)
    (evaluated,) = result.metrics["eval_return"]
    assert np.flatnonzero(np.isfinite(evaluated)).tolist() == [9, 19, 31]  # not at 29, so close to the end
    assert np.all((evaluated[[9, 19, 31]] >= 8) & (evaluated[[9, 19, 31]] <= 500))
    again = value_evaluation.measure(asked, result.params, TICKS, compiled)  # the games are the same every time
    np.testing.assert_array_equal(again.columns["eval_return"], evaluated[-1:])


# ---- the rungs with PyTorch ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("rung", [torch_rung, hybrid], ids=["torch", "hybrid"])
def test_rungs_with_pytorch_report_the_same_columns_and_learn(several_updates, rung):
    config, found = several_updates
    run = rung.start(config, [SEED])
    assert " thread" in run.note
    begun, metrics, expected = run.params(), run.advance(TICKS), found["sequential"].metrics
    assert metrics.keys() == expected.keys()
    for name in metrics:
        assert (metrics[name].shape, metrics[name].dtype) == (expected[name].shape, expected[name].dtype)
    for name in ("updates", "epsilon"):
        np.testing.assert_array_equal(metrics[name], expected[name])
    np.testing.assert_array_equal(np.isfinite(metrics["loss"]), np.isfinite(expected["loss"]))
    moved = jax.tree.map(lambda old, new: np.abs(new - old).max(), begun, run.params())
    assert min(jax.tree.leaves(moved)) > 1e-4, moved
    if rung is hybrid:  # PyTorch acts with what JAX has learned
        assert_trees_equal(run.loop.actor.give(0), jax.tree.map(lambda x: x[0], run.params()))
