"""The same seed gives the same run on every JAX rung; and what all four rungs have in common."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.conftest import assert_trees_close, assert_trees_equal
from xladder import bridge
from xladder.core import keys
from xladder.families.multi_agent import torch_backend as treasurehunt_torch
from xladder.families.multi_agent.program import Program
from xladder.rungs import fused, hybrid, parallel, sequential
from xladder.rungs import torch as torch_rung

JAX_RUNGS = {"sequential": sequential, "parallel": parallel, "fused": fused}
RUNGS = {**JAX_RUNGS, "torch": torch_rung, "hybrid": hybrid}

# A few updates apart, programs that add in another order differ by roundings of weights up to 1. Adam can make more
# of it where a gradient is rounding itself, but then no more than the learning rate, 2.5e-4; not seen with these seeds.
FEW_UPDATES = 1e-5


@pytest.fixture(autouse=True)
def one_torch_thread():
    """The torch rung chooses its number of threads; the next test should not inherit it."""
    yield
    torch.set_num_threads(1)


def memories(run) -> dict[str, np.ndarray]:
    """What all agents of a run's first seed remember, leaves [N, …]."""
    names = ("frames", "actions", "rewards", "dones", "breaks")
    if hasattr(run, "loop"):
        return {name: np.stack([getattr(ring, name) for ring in run.loop.rings]) for name in names}
    return {name: np.asarray(getattr(run.runs.rings, name))[0] for name in names}


def targets(run):
    """The target networks' parameters of a run's first seed, leaves [N, …]."""
    if isinstance(run, parallel.ParallelRun | fused.FusedRun):
        return jax.tree.map(lambda x: np.asarray(x)[0], run.runs.agents.target)
    learner = run.loop.learner
    agents = learner.learner.agents if isinstance(learner, hybrid.ParamMirror) else learner.agents
    trees = [
        agent.target if hasattr(agent, "params") else bridge.to_jax("value", agent.target.state_dict())
        for agent in agents
    ]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)


def params(run):
    return jax.tree.map(lambda x: x[0], run.params())


@pytest.mark.parametrize("observe", ["in_turn", pytest.param("together", marks=pytest.mark.slow)])
def test_one_seed_is_one_run_on_every_jax_rung(altered, observe):
    config = altered(world={"observe": observe})
    rungs = JAX_RUNGS if observe == "in_turn" else {name: JAX_RUNGS[name] for name in ("sequential", "fused")}
    runs = {name: rung.start(config, [3]) for name, rung in rungs.items()}
    begun = {name: params(run) for name, run in runs.items()}
    metrics = {name: run.advance(5) for name, run in runs.items()}
    for name in list(rungs)[1:]:
        assert_trees_equal(begun[name], begun["sequential"])
        np.testing.assert_array_equal(metrics[name]["returns"], metrics["sequential"]["returns"])
        np.testing.assert_array_equal(metrics[name]["events"], metrics["sequential"]["events"])
        np.testing.assert_allclose(metrics[name]["loss"], metrics["sequential"]["loss"], rtol=1e-5)
        np.testing.assert_allclose(metrics[name]["epsilon"], metrics["sequential"]["epsilon"], rtol=1e-6)
        assert_trees_equal(memories(runs[name]), memories(runs["sequential"]))
        assert_trees_close(params(runs[name]), params(runs["sequential"]), FEW_UPDATES)
        assert_trees_close(targets(runs[name]), targets(runs["sequential"]), FEW_UPDATES)
    moved = np.abs(params(runs["fused"])["torso"]["kernel"] - begun["fused"]["torso"]["kernel"]).max()
    assert moved > 10 * FEW_UPDATES, "nothing was learned, so nothing was compared"


@pytest.mark.slow
def test_the_two_ways_of_observing_are_two_runs(altered):
    one, other = (parallel.start(altered(world={"observe": mode}), [3]) for mode in ("in_turn", "together"))
    one.advance(3), other.advance(3)
    assert not np.array_equal(memories(one)["frames"], memories(other)["frames"])


@pytest.mark.slow
def test_how_a_program_is_laid_out_does_not_change_the_learner(tiny):
    """As for a GPU: agents under `vmap`, wider matrices. Units beyond the width stay nought."""
    plain = parallel.start(tiny, [3])
    returns = plain.advance(5)["returns"][0]
    wide = Program(tiny, mapped=True, align=32, unroll=5)
    counters, run = jax.jit(lambda seeds: (wide.init_counters(), jax.vmap(wide.init)(seeds)))(jnp.arange(3, 4))
    tick = jax.jit(wide.tick)
    for epoch in range(5):
        counters, run, metrics = tick(counters, run)
        np.testing.assert_array_equal(metrics.returns[0], returns[epoch])
    run = jax.tree.map(lambda x: x[0], run)
    assert_trees_equal(run.rings._asdict(), memories(plain))
    kernel = run.agents.params["head"]["hidden"]["kernel"]
    assert kernel.shape == (tiny.world.num_agents, 32, 32)
    assert not np.any(kernel[:, 16:])
    assert not np.any(kernel[:, :, 16:])
    assert_trees_close(wide.learner.narrow(run.agents.params), params(plain), FEW_UPDATES)


def test_every_address_has_numbers_of_its_own():
    run, draw = keys.root(0), jax.jit(jax.vmap(jax.random.bits))
    drawn = [
        draw(keys.addresses(root, tick, 3, stream))
        for root in (run, keys.root(1))
        for tick in (0, 1, 2)
        for stream in keys.Stream
    ]
    drawn.append(draw(jnp.stack([keys.address(run, tick, keys.WORLD, keys.Stream.RESET) for tick in range(3)])))
    numbers = np.concatenate(drawn)
    assert len(np.unique(numbers)) == len(numbers)


def test_agents_and_ticks_draw_independently_of_each_other(tiny):
    program, key = Program(tiny), keys.root(0)
    play, draw_update = jax.jit(program.draw_rollout), jax.jit(program.draw_learn)
    draws, other = play(key, 0), play(key, 1)
    assert not np.array_equal(draws.turns, other.turns)
    assert not np.array_equal(draws.reset, other.reset)
    assert not np.array_equal(draws.acts.taus, other.acts.taus)
    assert not np.array_equal(draws.acts.taus[0], draws.acts.taus[1])
    one = draw_update(key, 0, 0)
    for other in (draw_update(key, 0, 1), draw_update(key, 1, 0)):
        for ours, theirs in zip(one, other, strict=True):
            assert not np.array_equal(ours, theirs)
    assert not np.array_equal(one.noise[0], one.noise[1])
    assert not np.array_equal(one.taus[0], one.taus[1])


@pytest.mark.slow
def test_choosing_for_all_agents_at_once_is_choosing_one_by_one(tiny):
    program = Program(tiny)
    learner, n, turns = program.learner, tiny.world.num_agents, 40
    agents = jax.jit(program.init)(jnp.int32(0)).agents
    draws = jax.jit(jax.vmap(lambda key: learner.draw_act(key, turns)))(jax.random.split(jax.random.key(1), n))
    codes = jax.random.randint(jax.random.key(2), (n, turns, tiny.learner.n_frames, learner.cells), 0, 6, jnp.int8)

    def choose(agent, draw, codes):
        recalled, embedding = learner.recall(agent.params, codes[:-1]), learner.embed(agent.params, draw.taus)
        return learner.act(agent, recalled, codes[-1], draw.explore, draw.action, embedding)

    at_once = jax.jit(jax.vmap(jax.vmap(choose, in_axes=(None, 0, 0))))(agents, draws, codes)
    single = jax.jit(choose)
    one_by_one = [
        [
            int(
                single(
                    *jax.tree.map(lambda x, i=i: x[i], (agents,)),
                    *jax.tree.map(lambda x, i=i, t=t: x[i, t], (draws, codes)),
                )
            )
            for t in range(turns)
        ]
        for i in range(n)
    ]
    np.testing.assert_array_equal(at_once, one_by_one)
    explored = np.asarray(draws.explore) < tiny.learner.epsilon
    np.testing.assert_array_equal(np.asarray(at_once)[explored], np.asarray(draws.action)[explored])
    assert (np.asarray(at_once) != np.asarray(draws.action))[~explored].any()


@pytest.mark.slow
def test_a_seed_in_a_population_is_the_seed_alone(tiny):
    population, alone = fused.start(tiny, [2, 3]), fused.start(tiny, [3])
    many, one = population.advance(4), alone.advance(4)
    for name in ("returns", "events"):
        np.testing.assert_array_equal(many[name][1:2], one[name])
    np.testing.assert_allclose(many["loss"][1:2], one["loss"], rtol=1e-5)
    assert_trees_equal(
        jax.tree.map(lambda x: x[1], population.runs.rings), jax.tree.map(lambda x: x[0], alone.runs.rings)
    )
    assert_trees_close(jax.tree.map(lambda x: x[1], population.params()), params(alone), FEW_UPDATES)
    assert not np.array_equal(many["returns"][0], many["returns"][1]), "seeds have to differ"


@pytest.mark.slow
def test_chunks_of_any_length_make_the_same_run(tiny, monkeypatch):
    whole, parts = fused.start(tiny, [0, 1]), fused.start(tiny, [0, 1])
    at_once = whole.advance(7)
    first, second = parts.advance(3), parts.advance(4)
    joined = {name: np.concatenate([first[name], second[name]], axis=1) for name in first}
    assert_trees_equal(joined, at_once)
    assert_trees_equal(
        jax.tree.map(np.asarray, parts.runs._replace(key=0)), jax.tree.map(np.asarray, whole.runs._replace(key=0))
    )
    assert int(parts.counters.tick) == int(whole.counters.tick) == 7

    monkeypatch.setattr(fused, "LONGEST_CHUNK", 3)  # so that seven ticks are three calls
    short = fused.start(tiny, [0, 1])
    rows = short.advance(7)
    assert rows["returns"].shape == (2, 7, tiny.world.num_agents)
    np.testing.assert_array_equal(rows["returns"], at_once["returns"])
    np.testing.assert_array_equal(rows["events"], at_once["events"])
    assert_trees_close(short.params(), whole.params(), FEW_UPDATES)


@pytest.mark.slow
@pytest.mark.parametrize("rung", RUNGS.values(), ids=RUNGS.keys())
def test_the_target_follows_slowly_and_is_copied_at_the_start_of_every_third_epoch(tiny, rung):
    run = rung.start(tiny, [0])
    online, target = params(run), targets(run)
    assert_trees_equal(target, online)
    tau = tiny.learner.tau
    for epoch in range(5):
        metrics = run.advance(1)
        if epoch == 3:
            assert np.abs(target["head"]["value"]["kernel"] - online["head"]["value"]["kernel"]).max() > 100 * 1e-7, (
                "no copy to be seen"
            )
        if epoch % tiny.learner.target_update_period == 0:
            target = online  # what was known before this epoch
        online = params(run)
        if np.isfinite(metrics["loss"][0, 0]):
            target = jax.tree.map(lambda t, p: t + tau * (p - t), target, online)
        assert_trees_close(targets(run), target, 1e-7)  # one rounding of numbers below 1
        target = targets(run)


@pytest.mark.slow
@pytest.mark.parametrize("rung", RUNGS.values(), ids=RUNGS.keys())
def test_what_every_rung_reports(altered, rung):
    config = altered(learner={"epsilon": 0.8, "epsilon_decay": 0.25, "epsilon_min": 0.4})
    metrics = rung.start(config, [5]).advance(5)
    # 0.8, · 0.75 = 0.6, · 0.75 = 0.45, then 0.3375 is below the least allowed
    np.testing.assert_allclose(metrics["epsilon"], [[0.8, 0.6, 0.45, 0.4, 0.4]], rtol=1e-6)
    # A batch of 8 from states of 3 frames needs 12: one epoch stores 8 + 1, two 18.
    assert np.isnan(metrics["loss"][0, 0])
    assert np.all(np.isfinite(metrics["loss"][0, 1:]))
    assert metrics["returns"].shape == (1, 5, config.world.num_agents)
    assert metrics["events"].shape == (1, 5, 3)
    # What was earned is what was collected (10, −10, 5) less the walls run into, one each, at most one per move.
    walls = metrics["events"] @ np.array([10.0, -10.0, 5.0]) - metrics["returns"].sum(-1)
    moves = config.world.max_turns * config.world.num_agents
    assert np.all((walls >= 0) & (walls <= moves) & (walls == np.round(walls)))
    assert metrics["events"].sum() > 0


def test_the_torch_rung_repeats_itself_from_a_seed_and_says_how_many_threads_it_took(tiny):
    returns = []
    for seed in (1, 1, 2):
        run = torch_rung.start(tiny, [seed])
        assert " thread" in run.note
        returns.append(run.advance(3)["returns"])
    np.testing.assert_array_equal(returns[0], returns[1])
    assert not np.array_equal(returns[0], returns[2])


def test_the_torch_rung_takes_as_many_threads_as_are_quickest(tiny, monkeypatch):
    """A trial that is quickest with two: with fewer or more it sleeps."""

    def dry_run(self):
        time.sleep(0 if torch.get_num_threads() == 2 else 0.02)

    monkeypatch.setattr(treasurehunt_torch.Backend, "dry_run", dry_run)
    monkeypatch.setattr(torch_rung, "cores", lambda: 5)
    times = torch_rung.best_threads(tiny)
    assert set(times) == {1, 2, 4} and next(iter(times)) == torch.get_num_threads() == 2
    assert times[2] < 20 <= min(times[1], times[4])
    assert "uses 2 of 5 threads (the fastest of a trial: 1: " in torch_rung.choose_threads(tiny)


def test_on_hybrid_pytorch_acts_with_what_jax_has_learned(tiny):
    run = hybrid.start(tiny, [1])
    actor, learner = run.loop.actor, run.loop.learner.learner
    fresh = torch_rung.start(tiny, [1]).params()
    assert_trees_equal(run.params(), fresh)  # JAX begins with PyTorch's weights
    run.advance(3)
    assert np.abs(run.params()["head"]["value"]["kernel"] - fresh["head"]["value"]["kernel"]).max() > 0
    for agent in range(tiny.world.num_agents):
        assert_trees_equal(actor.give(agent), jax.tree.map(np.asarray, learner.give(agent)))
