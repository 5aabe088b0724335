"""Value learners with memory: the GRU, sequences out of the replay memory, their loss, and every rung."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests.conftest import assert_trees_close, assert_trees_equal
from tests.test_value_rungs import JAX_RUNGS, SEVERAL_STEPS, SMALL, assert_same_run, follow
from xladder.core.compiling import compiled
from xladder.errors import UsageError
from xladder.families.value import config as value
from xladder.families.value import evaluation, parity
from xladder.families.value import gym_presets as gym
from xladder.families.value import gymnax_presets as gymnax
from xladder.families.value import presets as named
from xladder.families.value.acting import build
from xladder.learners.recurrent import RecurrentLearner, mixed_errors
from xladder.learners.recurrent_torch import RecurrentTorchLearner
from xladder.nets import recurrent, recurrent_torch
from xladder.plans import plan
from xladder.replay import history, sequences, sequences_host
from xladder.replay.history import SampleIndices, Window
from xladder.replay.history_host import HostHistory
from xladder.rungs import fused, hybrid, mesh, parallel, sequential
from xladder.rungs import torch as torch_rung
from xladder.worlds.envs import EnvSpec

LEARNER = replace(SMALL, recurrent=8, burn_in=3, sequence=5, n_step=2, memory=128, steps_per_update=4, double=True)
# An episode has 6 steps and a reset row, so every sequence of 10 rows has the end of one.
MEMORY = replace(SEVERAL_STEPS, world=gymnax.WorldConfig("memorychain", num_envs=4), learner=LEARNER)
PRIORITISED = replace(MEMORY, learner=replace(LEARNER, prioritised=True, alpha=0.9))


# ---- the network ---------------------------------------------------------------------------------------------------


def test_the_gru_is_pytorchs_own_on_both_sides():
    rng, torch_cell = np.random.default_rng(0), torch.nn.GRUCell(5, 4)
    x, hidden = rng.standard_normal((3, 5), np.float32), rng.standard_normal((3, 4), np.float32)
    expected = torch_cell(torch.from_numpy(x), torch.from_numpy(hidden)).detach().numpy()
    weights = {name: p.detach().numpy() for name, p in torch_cell.named_parameters()}
    params = {
        "input": {"kernel": weights["weight_ih"].T, "bias": weights["bias_ih"]},
        "state": {"kernel": weights["weight_hh"].T, "bias": weights["bias_hh"]},
    }
    cell = recurrent.Gru(4)
    gates = cell.apply({"params": params}, x, method="gates")
    np.testing.assert_allclose(cell.apply({"params": params}, gates, hidden, method="advance"), expected, atol=1e-6)
    twin = recurrent_torch.Gru(5, 4)
    named_like = {"input": ("weight_ih", "bias_ih"), "state": ("weight_hh", "bias_hh")}
    state = {
        f"{layer}.{leaf}": torch.from_numpy(weights[name])
        for layer, names in named_like.items()
        for leaf, name in zip(("weight", "bias"), names, strict=True)
    }
    twin.load_state_dict(state)
    found = twin.advance(twin.input(torch.from_numpy(x)), torch.from_numpy(hidden))
    np.testing.assert_allclose(found.detach().numpy(), expected, atol=1e-6)


@pytest.fixture(scope="module")
def learner():
    found = build(LEARNER, EnvSpec((3,), np.dtype(np.float32), 2), 1)
    assert isinstance(found, RecurrentLearner)
    return found


@pytest.fixture(scope="module")
def params(learner):
    return jax.jit(learner.net.init)(jax.random.key(0), jnp.zeros((1, 3)))["params"]


@partial(jax.jit, static_argnums=(0, 5))
def _unroll(learner, params, states, hidden, is_first, burn_in):
    return learner.net.apply({"params": params}, states, hidden, is_first, burn_in, method="unroll")


def unroll(learner, params, states, hidden, is_first, burn_in=0):
    return _unroll(learner, params, states, hidden, is_first, burn_in)


def test_a_state_is_forgotten_where_an_episode_begins(learner, params):
    rng = np.random.default_rng(1)
    states, hidden = rng.standard_normal((2, 6, 1, 3), np.float32), rng.standard_normal((2, 8), np.float32)
    first = np.zeros((2, 6), bool)
    first[0, 4] = True
    found = unroll(learner, params, states, hidden, first)
    fresh = unroll(learner, params, states[:, 4:], np.zeros_like(hidden), np.zeros((2, 2), bool))
    np.testing.assert_allclose(found[0, 4:], fresh[0], atol=1e-6)
    assert np.abs(found[1, 4:] - fresh[1]).max() > 0.01, "the other sequence goes on"
    step = hidden
    for t in range(4):  # acting step by step is the same network
        step = learner.net.apply({"params": params}, states[:, t], step, method="step")
        np.testing.assert_allclose(found[:, t], step, atol=1e-6)


def test_burn_in_changes_no_state_and_stops_the_gradient(learner, params):
    rng = np.random.default_rng(2)
    states, hidden = rng.standard_normal((2, 6, 1, 3), np.float32), rng.standard_normal((2, 8), np.float32)
    first = np.zeros((2, 6), bool)
    np.testing.assert_allclose(
        unroll(learner, params, states, hidden, first, 4), unroll(learner, params, states, hidden, first), atol=1e-6
    )
    slope = jax.grad(lambda s, h: unroll(learner, params, s, h, first, 4).sum(), argnums=(0, 1))(states, hidden)
    assert not np.asarray(slope[0][:, :4]).any()
    assert not np.asarray(slope[1]).any()
    assert np.abs(slope[0][:, 4:]).min() > 0


# ---- sequences -----------------------------------------------------------------------------------------------------


def recorded(window: Window, seed: int):
    """Both memories, gone round, of 2 envs whose episodes end after 3 to 6 rows, by either kind of end."""
    rng, host = np.random.default_rng(seed), HostHistory(2, window, (3,), np.float32, 2, hidden=4)
    memory, cursor = history.init(2, window.length, (3,), np.float32, 2, hidden=4), history.init_cursor()
    left, is_first = rng.integers(3, 7, 2), np.ones(2, bool)
    for _ in range(window.length + 9):
        ends, kind = left == 2, rng.random(2) < 0.5  # the row before the last is the last step
        columns = (
            rng.standard_normal((2, 3)).astype(np.float32),
            rng.integers(0, 2, 2).astype(np.int8),
            rng.standard_normal(2).astype(np.float32),
            ends & kind,
            ends & ~kind,
            is_first,
        )
        row = history.rows_of(columns, rng.standard_normal((2, 4)).astype(np.float32))
        memory, cursor = jax.jit(history.add)(cursor, memory, row), history.advance(cursor, window.length)
        host.add(row)
        is_first = left == 1
        left = np.where(is_first, rng.integers(3, 7, 2), left - 1)
    return cursor, memory, host


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stack", "n_step", "burn_in", "length"), [pytest.param(1, 1, 0, 4, marks=pytest.mark.slow), (2, 3, 4, 5)]
)
def test_a_sequence_is_the_transitions_of_the_memory_one_after_another(stack, n_step, burn_in, length):
    window = Window(stack, n_step, 40, burn_in=burn_in, sequence=length)
    cursor, memory, host = recorded(window, 3)
    uniforms = np.random.default_rng(4).random((16, 4, 2), np.float32)
    indices = history.sample_indices(window, cursor, memory, jnp.asarray(uniforms))
    found = jax.jit(sequences.gather, static_argnums=0)(window, memory, indices, jnp.float32(0.9))
    assert_trees_equal(indices, host.sample_indices(uniforms))
    theirs = sequences_host.gather(host, host.sample_indices(uniforms), 0.9)
    assert [x.dtype for x in found] == [x.dtype for x in theirs]
    assert_trees_close(found, theirs, 1e-6)
    np.testing.assert_array_equal(found.hidden, memory.hidden[indices.env, indices.slot])
    plain, gather, ends = Window(stack, n_step, 40), jax.jit(history.gather, static_argnums=0), 0
    for s in range(length):
        slot = (indices.slot + burn_in + s) % 40
        one = gather(plain, memory, SampleIndices(indices.env, slot, indices.valid), jnp.float32(0.9))
        is_reset = np.asarray(memory.is_first[indices.env, (slot + 1) % 40])
        np.testing.assert_array_equal(found.valid[:, s], indices.valid * ~is_reset)
        ends += int(is_reset.sum())
        for name in ("actions", "returns", "discounts"):
            np.testing.assert_array_equal(getattr(found, name)[:, s], getattr(one, name))
        rows = np.arange(16)
        np.testing.assert_array_equal(found.states[:, burn_in + s], one.states)
        np.testing.assert_array_equal(found.states[rows, burn_in + s + found.steps[:, s]], one.next_states)
        np.testing.assert_array_equal(found.is_first[:, burn_in + s], memory.is_first[indices.env, slot])
    assert ends > 3, "no sequence reached over the end of an episode"


def test_no_sequence_reaches_over_the_write_position():
    window = Window(1, 2, 20, burn_in=3, sequence=4)
    cursor, _, _ = recorded(window, 5)
    earliest, count = history.eligible(window, cursor)
    assert (int(earliest), int(count)) == (int(cursor.head), 20 - (3 + 4 - 1 + 2))
    with pytest.raises(UsageError, match="at least 9 rows each"):
        Window(1, 2, 8, burn_in=3, sequence=4)


# ---- the loss ------------------------------------------------------------------------------------------------------


def test_the_priority_of_a_sequence_mixes_its_largest_and_its_mean_error():
    errors, valid = jnp.array([[1.0, -4.0, 1.0], [2.0, 9.0, 0.0]]), jnp.array([[True] * 3, [True, False, True]])
    # 0.9 · 4 + 0.1 · (1 + 4 + 1) / 3, and 0.9 · 2 + 0.1 · (2 + 0) / 2: the 9 is no transition
    np.testing.assert_allclose(mixed_errors(errors, valid, 0.9), [3.8, 1.9], atol=1e-6)
    assert not np.asarray(mixed_errors(errors, jnp.zeros((2, 3), bool), 0.9)).any()


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"head": "implicit", "prioritised": True, "noisy": True, "dueling": True}, marks=pytest.mark.slow),
        pytest.param({"munchausen": True, "double": False, "burn_in": 0, "n_step": 1}, marks=pytest.mark.slow),
        pytest.param({"head": "categorical"}, marks=pytest.mark.slow),
    ],
    ids="-".join,
)
def test_every_level_of_parity_passes(changes, monkeypatch):
    monkeypatch.setattr(parity, "RECORDED", 160)
    levels = parity.levels(replace(MEMORY, learner=replace(LEARNER, **changes)), 3)
    assert [level.level for level in levels][:2] == ["memory twins", "forward"]
    assert all(level.passed for level in levels), levels
    assert all(level.max_abs_diff < 2e-5 for level in levels), levels


def keeps_its_state(self, states, hidden, is_first, burn_in, unroll=recurrent_torch.RecurrentNet.unroll):
    return unroll(self, states, hidden, torch.zeros_like(is_first), burn_in)


def learns_from_burn_in(self, states, hidden, is_first, burn_in, unroll=recurrent_torch.RecurrentNet.unroll):
    return unroll(self, states, hidden, is_first, 0)


def starts_from_nothing(self, states, hidden, is_first, burn_in, unroll=recurrent_torch.RecurrentNet.unroll):
    return unroll(self, states, torch.zeros_like(hidden), is_first, burn_in)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "level"),
    [(keeps_its_state, "forward"), (starts_from_nothing, "forward"), (learns_from_burn_in, "gradients")],
)
def test_a_twin_with_another_memory_fails_where_it_enters(fault, level, monkeypatch):
    monkeypatch.setattr(parity, "RECORDED", 160)
    monkeypatch.setattr(recurrent_torch.RecurrentNet, "unroll", fault)
    assert next(one.level for one in parity.levels(MEMORY, 1) if not one.passed) == level


@pytest.mark.slow
def test_another_mixture_of_errors_fails_the_loss(monkeypatch):
    monkeypatch.setattr(parity, "RECORDED", 160)
    start = RecurrentTorchLearner.__init__
    monkeypatch.setattr(
        RecurrentTorchLearner, "__init__", lambda self, c, *more: start(self, replace(c, eta=0.8), *more)
    )
    assert next(one.level for one in parity.levels(MEMORY, 1) if not one.passed) == "loss"


# ---- rungs ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def alone():
    return {name: follow(PRIORITISED, JAX_RUNGS[name]) for name in ("sequential", "fused")}


@pytest.mark.slow
def test_one_seed_is_one_run_on_fused_and_called_one_by_one(alone):
    assert_same_run(alone["fused"], alone["sequential"])
    assert alone["fused"].metrics["updates"].sum() > 10
    assert alone["fused"].metrics["episodes"].sum() > 10


@pytest.mark.slow
def test_what_is_stored_is_the_state_that_the_network_had(alone):
    """With the first parameters, before anything was learned."""
    found = alone["fused"]
    program, rows = found.run.program, found.memory
    before = program.config.learning_begins // 4  # rows of the first ticks, in a memory that was not gone round
    params = jax.tree.map(lambda x: x[0], found.begun)
    given = rows.frames[:, :before, None], rows.hidden[:, 0], rows.is_first[:, :before]
    states = np.asarray(unroll(program.learner, params, *given))
    kept = np.where(rows.is_first[:, 1:before, None], 0.0, states[:, :-1])
    np.testing.assert_allclose(rows.hidden[:, 1:before], kept, atol=1e-5)
    assert np.abs(kept).max() > 0.01


@pytest.mark.slow
def test_parallel_and_a_mesh_make_the_same_run(alone):
    assert_same_run(follow(PRIORITISED, parallel), alone["fused"])
    config = value.for_mesh(replace(MEMORY, learner=replace(LEARNER, strata=2)), 2)
    one, two = (run.advance(16) for run in (fused.start(config, [3]), mesh.start(config, [3], mesh="data=2")))
    assert_trees_close(one, two, 1e-4)
    assert np.isfinite(one["loss"]).any()


@pytest.mark.slow
def test_a_world_on_the_host_is_stepped_while_the_device_learns():
    config = gym.Config(gym.WorldConfig(num_envs=4), PRIORITISED.learner, steps=8 * 32, evaluate_episodes=0)
    ours, theirs = follow(config, parallel), follow(config, sequential)
    assert isinstance(ours.run, parallel.OverlappedRun)
    assert_same_run(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize("rung", [torch_rung, hybrid])
def test_pytorch_acts_with_memory_and_learns(rung):
    run = rung.start(MEMORY, [3], threads=1)
    begun = run.params()
    metrics = run.advance(32)
    assert np.isfinite(metrics["loss"]).sum() > 10
    assert np.abs(run.loop.memories[0].history.rows.hidden).max() > 0.01
    moved = jax.tree.map(lambda old, new: np.abs(old - new).max(), begun["memory"], run.params()["memory"])
    assert min(jax.tree.leaves(moved)) > 0, "every layer of the GRU learns"


@pytest.mark.slow
def test_a_run_goes_on_where_it_was_on_another_rung():
    whole, first = (fused.start(PRIORITISED, [3]) for _ in range(2))
    whole.advance(20)
    first.advance(12)
    other = sequential.start(PRIORITISED, [3])
    family = PRIORITISED.family
    family.from_program(other.loop, *jax.device_get((first.counters, first.runs._replace(key=first.runs.key))))
    other.advance(8)
    assert_trees_close(other.params(), whole.params(), 1e-5)


# ---- what users see ------------------------------------------------------------------------------------------------


def test_a_policy_with_memory_takes_an_episode_in_order(learner, params):
    policy = evaluation.policy(MEMORY, params, compiled)
    frames = np.random.default_rng(6).standard_normal((4, 1, 3)).astype(np.float32)
    hidden, expected = np.zeros((1, 8), np.float32), []
    for frame in frames:
        values, hidden = learner.act(params, frame[None], hidden, None, None)
        expected.append(values[0])
    np.testing.assert_allclose([policy.values(frame) for frame in frames], expected, atol=1e-6)
    with pytest.raises(UsageError, match="remembers 1 episodes, but was given 2"):
        policy(np.stack([frames[0]] * 2))
    policy.reset()
    np.testing.assert_allclose(policy.values(np.stack([frames[0]] * 2)), [expected[0]] * 2, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"recurrent": -1}, "`--learner.recurrent` is -1, but it cannot be negative"),
        ({"recurrent": 8, "burn_in": -1}, "`--learner.burn-in` is -1, but it cannot be negative"),
        ({"recurrent": 8, "sequence": 0}, "`--learner.sequence` is 0, but it has to be 1 or more"),
        ({"recurrent": 8, "eta": 2.0}, r"`--learner.eta` is 2.0, but it has to lie in \[0, 1\]"),
        ({"recurrent": 8, "memory": 200}, "in sequences of 10 \\+ 20 it has to be 288 or more"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_a_sentence(changes, sentence):
    with pytest.raises(UsageError, match=sentence):
        plan("memorychain", learner=changes)


def test_rungs_and_algorithms_without_memory_say_so():
    with pytest.raises(UsageError, match=r"keep transitions, not sequences with hidden states. Use `parallel`"):
        plan("memorychain", "actors", preset="r2d2")
    with pytest.raises(UsageError, match=r"`--learner.recurrent` is 8, but PQN has no use for it"):
        plan("memorychain", preset="pqn", learner={"recurrent": 8})


def test_r2d2_has_the_settings_of_its_source():
    """acme/agents/jax/r2d2/config.py, but for the sizes."""
    c = named.presets("memorychain")["r2d2"].learner
    assert (c.n_step, c.gamma, c.alpha, c.beta, c.beta_end, c.eta, c.lr) == (5, 0.997, 0.9, 0.6, 0.6, 0.9, 1e-3)
    assert (c.double, c.dueling, c.prioritised, c.head) == (True, True, True, "scalar")
    assert (c.recurrent, c.burn_in, c.sequence, c.batch_size) == (64, 10, 20, 32)
    assert named.presets("memorychain")["dueling"].learner.recurrent == 0


@pytest.mark.slow
def test_memory_solves_what_cannot_be_solved_without_it():
    """A bit that is shown once: without memory no policy is better than chance, which has return 0."""
    found = {}
    for name in ("r2d2", "dueling"):
        preset = named.presets("memorychain")[name]
        config = replace(preset, steps=16_000, evaluate_episodes=0)
        run = fused.start(config, [1, 2])
        run.advance(config.ticks)
        found[name] = [one.mean() for one in evaluation.run_all_seeds(config, run.params(), 64, 0, compiled, 0.0)]
    assert min(found["r2d2"]) > 0.9
    assert max(found["dueling"]) < 0.5
