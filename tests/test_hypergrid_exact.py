"""What a sampler samples: dynamic programming against all trajectories one by one, and the measurements built on it."""

from dataclasses import replace
from functools import cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xladder.core.compiling import compiled
from xladder.core.mapping import pick
from xladder.families.gflownet import evaluation, exact
from xladder.families.gflownet.config import LearnerConfig
from xladder.families.gflownet.hypergrid_presets import Config, WorldConfig
from xladder.families.gflownet.program import Program
from xladder.families.gflownet.sampling import TRAJECTORIES_AT_ONCE
from xladder.learners.gflownet import Agent, GFlowNetLearner
from xladder.worlds import hypergrid as world
from xladder.worlds import hypergrid_rewards
from xladder.worlds.hypergrid_host import HostGrid

GRIDS = {"3²": WorldConfig(2, 3), "2³": WorldConfig(3, 2), "1-D": WorldConfig(1, 6), "two cells": WorldConfig(1, 2)}
grids = pytest.mark.parametrize("config", GRIDS.values(), ids=GRIDS.keys())


# ---- all trajectories, one by one ----------------------------------------------------------------------------------


class Case(NamedTuple):
    """Policies and rewards of every cell in float64; NaN where an action is not allowed."""

    log_pf: np.ndarray  # [N, A]
    log_pb: np.ndarray  # [N, D]
    log_rewards: np.ndarray  # [N]

    @property
    def log_z(self):
        return np.logaddexp.reduce(self.log_rewards)


class Account(NamedTuple):
    """What follows from a case, by going through all trajectories."""

    visits: np.ndarray  # [N]
    terminating: np.ndarray  # [N]
    returns: np.ndarray  # [N]
    forward: np.ndarray  # [trajectories]: the probability of each if it is sampled,
    backward: np.ndarray  # and if it is walked back from the target
    weight: np.ndarray  # [trajectories]: log R + log P_B − log P_F

    def mean_and_deviation(self, probs):
        mean = probs @ self.weight
        return mean, np.sqrt(probs @ (self.weight - mean) ** 2)


def log_softmax(logits, mask):
    logits = np.where(mask, logits, -np.inf)
    with np.errstate(invalid="ignore"):  # nothing is allowed at the origin
        return np.where(mask, logits - np.logaddexp.reduce(logits, axis=1, keepdims=True), np.nan)


def masks(config):
    cells = world.cells(config)
    return np.append(cells < config.side - 1, np.ones((len(cells), 1), bool), axis=1), cells > 0


def random_case(config, seed=0):
    rng = np.random.default_rng(seed)
    policies = (log_softmax(rng.normal(0, 1.5, mask.shape), mask) for mask in masks(config))
    return Case(*policies, rng.normal(0, 1, config.states))


@cache
def trajectories(config):
    """All of them: each a list of (cell, action), the last action of which is stop."""
    step = world.strides(config)

    def onward(coordinates):
        cell = int(np.dot(coordinates, step))
        yield [(cell, config.dim)]
        for d in range(config.dim):
            if coordinates[d] < config.side - 1:
                after = (*coordinates[:d], coordinates[d] + 1, *coordinates[d + 1 :])
                yield from ([(cell, d), *rest] for rest in onward(after))

    return list(onward((0,) * config.dim))


def go_through(config, case):
    step = world.strides(config)
    ways = trajectories(config)
    forward = np.exp([sum(case.log_pf[cell, action] for cell, action in way) for way in ways])
    undo = np.array([sum(case.log_pb[cell + step[action], action] for cell, action in way[:-1]) for way in ways])
    end = np.array([way[-1][0] for way in ways])
    passed = np.zeros((len(ways), config.states))
    for row, way in zip(passed, ways, strict=True):
        row[[cell for cell, _ in way]] = 1
    backward = np.exp(case.log_rewards[end] - case.log_z + undo)
    weight = case.log_rewards[end] + undo - np.log(forward)
    terminating = np.bincount(end, forward, config.states)
    return Account(passed.T @ forward, terminating, passed.T @ backward, forward, backward, weight)


def flow_of(config, case):
    """float64 [N]: the flow that a backward policy and the rewards call for, children first."""
    flow = np.exp(case.log_rewards)
    cells, step = world.cells(config), world.strides(config)
    for n in reversed(range(config.states)):
        for d in range(config.dim):
            if cells[n, d] < config.side - 1:
                flow[n] += flow[n + step[d]] * np.exp(case.log_pb[n + step[d], d])
    return flow


def exact_case(config, case):
    """The case with the forward policy that makes all flow fit."""
    flow, step = flow_of(config, case), world.strides(config)
    log_pf = np.full((config.states, config.dim + 1), np.nan)
    for n, d in zip(*np.nonzero(masks(config)[0][:, :-1]), strict=True):
        log_pf[n, d] = np.log(flow[n + step[d]] / flow[n]) + case.log_pb[n + step[d], d]
    log_pf[:, -1] = case.log_rewards - np.log(flow)
    return case._replace(log_pf=log_pf)


@jax.jit
def all_answers(known, log_pf, log_pb, log_rewards, log_z, log_flow):
    log_target = log_rewards - log_z
    known = known._replace(log_rewards=log_rewards)
    return dict(
        visits=exact.log_visits(known, log_pf),
        terminating=exact.log_terminating(known, log_pf),
        returns=exact.log_returns(known, log_target, log_pb),
        bounds=exact.bounds(known, exact.Policies(log_pf, log_pb)),
        backward=exact.backward_of_flow(known, log_pf, log_flow),
    )


def answers(config, case):
    given = (*case, case.log_z, np.log(flow_of(config, case)))
    known = exact.tables(config)
    return jax.tree.map(np.asarray, all_answers(known, *(np.asarray(x, np.float32) for x in given)))


# float32 logarithms of size ten, added along ways of at most six steps
close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-5)


def test_all_trajectories_are_counted():
    # On 3²: 1 + 2 + 4 + 6 + 6, cell by cell the binomials (i + j over i). On 2³: 1 + 3 · 1 + 3 · 2 + 6.
    assert [len(trajectories(config)) for config in GRIDS.values()] == [19, 16, 6, 2]
    for config in GRIDS.values():
        assert max(map(len, trajectories(config))) == config.steps


@pytest.mark.parametrize("seed", range(2))
@grids
def test_the_distribution_over_cells_is_the_sum_over_all_trajectories(config, seed):
    case = random_case(config, seed)
    ours, account = answers(config, case), go_through(config, case)
    close(ours["terminating"], np.log(account.terminating))
    close(ours["visits"], np.log(account.visits))
    assert ours["visits"][0] == 0.0
    assert np.exp(ours["terminating"].astype(float)).sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("seed", range(2))
@grids
def test_the_way_back_from_the_target_is_the_sum_over_all_trajectories(config, seed):
    case = random_case(config, seed)
    ours, account = answers(config, case), go_through(config, case)
    close(ours["returns"], np.log(account.returns))
    assert ours["returns"][0] == pytest.approx(0, abs=1e-5)  # all ways lead to the origin


@pytest.mark.parametrize("seed", range(3))
@grids
def test_the_bounds_are_means_over_all_trajectories_and_hold_log_z_between_them(config, seed):
    case = random_case(config, seed)
    account = go_through(config, case)
    (low, high), log_z = answers(config, case)["bounds"], case.log_z
    assert low == pytest.approx(account.forward @ account.weight, abs=2e-5)
    assert high == pytest.approx(account.backward @ account.weight, abs=2e-5)
    assert low < log_z + 1e-5
    assert log_z - 1e-5 < high
    if config.dim == 1:  # where there is one way to each cell, the gap is the divergence from and of the target
        p, q = account.terminating, np.exp(case.log_rewards - log_z)
        assert log_z - low == pytest.approx((p * np.log(p / q)).sum(), abs=2e-5)
        assert high - log_z == pytest.approx((q * np.log(q / p)).sum(), abs=2e-5)
    else:
        assert high - low > 0.1


@grids
def test_on_an_exact_flow_all_is_as_it_should_be(config):
    case = exact_case(config, random_case(config))
    assert np.log(flow_of(config, case)[0]) == pytest.approx(case.log_z)
    ours = answers(config, case)
    close(ours["terminating"], case.log_rewards - case.log_z)
    close(ours["visits"], np.log(flow_of(config, case)) - case.log_z)
    close(ours["returns"], ours["visits"])  # it comes the way it goes
    close(np.array(ours["bounds"]), np.full(2, case.log_z))
    allowed = masks(config)[1]
    close(ours["backward"][allowed], case.log_pb[allowed])
    assert np.all(ours["backward"][1:][~allowed[1:]] < -1e9)


@pytest.mark.parametrize("config", [WorldConfig(1, 500), WorldConfig(2, 60)])
def test_ways_too_improbable_for_float32_keep_their_logarithms(config):
    stop, edge = 0.9, config.side - 1
    mask = masks(config)[0]
    moves = mask[:, :-1].sum(1, keepdims=True)
    log_pf = np.where(mask[:, :-1], np.log((1 - stop) / np.maximum(moves, 1)), np.nan)
    log_pf = np.append(log_pf, np.where(moves > 0, np.log(stop), 0.0), axis=1)
    ours = jax.jit(exact.log_visits)(exact.tables(config), np.asarray(log_pf, np.float32))
    assert np.isfinite(ours).all()
    assert np.exp(ours.min()) == 0, "that was not improbable"
    # Off the far edges: each way to a cell is as probable as any other, and the binomial says how many there are.
    cells = world.cells(config)
    inner = (cells < edge).all(1)
    level = cells.sum(1)[inner]
    logs = np.append(0.0, np.cumsum(np.log(np.arange(1, level.max() + 1))))  # of the factorials
    ways = logs[level] - logs[cells[inner]].sum(1)
    expected = ways + level * np.log((1 - stop) / config.dim)
    np.testing.assert_allclose(np.asarray(ours)[inner], expected, rtol=1e-5, atol=1e-5)
    last = np.asarray(ours, float) + log_pf[:, -1]
    assert np.exp(last).sum() == pytest.approx(1, abs=1e-5)


def test_levels_hold_every_cell_once():
    for config in (*GRIDS.values(), WorldConfig(3, 4)):
        table = np.asarray(exact.tables(config).levels)
        assert len(table) == config.steps  # as many levels as the longest trajectory has states
        real = table[table < config.states]
        np.testing.assert_array_equal(np.sort(real), np.arange(config.states))
        level = np.append(world.cells(config).sum(1), -1)[table]
        assert np.all((level == np.arange(len(table))[:, None]) | (level == -1))


# ---- small functions of the evaluation -----------------------------------------------------------------------------


def entropy(p):
    return -(p[p > 0] * np.log(p[p > 0])).sum()


def test_the_jensen_shannon_divergence_is_what_mixing_adds_to_the_entropy():
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.full(20, 0.3), 2)
    p[3] = q[5] = p[7] = q[7] = 0.0  # at one, at the other, at both
    p, q = p / p.sum(), q / q.sum()
    ours = float(evaluation._jsd(jnp.float32(p), jnp.float32(q)))
    assert ours == pytest.approx(entropy((p + q) / 2) - (entropy(p) + entropy(q)) / 2, abs=1e-6)
    assert float(evaluation._jsd(jnp.float32(p), jnp.float32(p))) == 0.0
    apart = jnp.float32([0.5, 0.5, 0, 0]), jnp.float32([0, 0, 0.25, 0.75])
    assert float(evaluation._jsd(*apart)) == pytest.approx(np.log(2), rel=1e-6)


def test_the_correlation_is_pearsons():
    x, y = np.random.default_rng(1).normal(5, 2, (2, 300)).astype(np.float32)
    for other in (y, x + y, -x - 0.1 * y):
        assert float(evaluation._correlation(x, other)) == pytest.approx(np.corrcoef(x, other)[0, 1], abs=1e-5)
    assert float(evaluation._correlation(x, 3 * x - 7)) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_marginals_and_histograms_count_the_first_two_coordinates(dim):
    config = WorldConfig(dim, 4)
    found = np.random.default_rng(2).integers(0, 4, (100, dim))
    expected = np.zeros((4 if dim > 1 else 1, 4))
    for one in found:
        expected[(one[0], one[1]) if dim > 1 else (0, one[0])] += 0.01
    histogram = np.asarray(world.histogram(config, jnp.asarray(found)))
    np.testing.assert_allclose(histogram, expected, atol=1e-6)
    # The same from the frequencies of all cells, in the order in which the world enumerates them.
    p = (found[:, None] == world.cells(config)[None]).all(-1).mean(0)
    np.testing.assert_allclose(world.marginal_of(config, jnp.float32(p)), expected, atol=1e-6)
    target = np.exp(HostGrid(config).log_reward(world.cells(config)) - hypergrid_rewards.log_z(config))
    np.testing.assert_allclose(
        world.marginal_of(config, jnp.float32(target)), hypergrid_rewards.marginal(config), rtol=1e-4
    )


# ---- measurements --------------------------------------------------------------------------------------------------
# A network as wide as there are cells can say anything of each of them: hidden unit n is on in cell n alone, so the
# heads are tables.


def tabular(config, case, log_z=0.0):
    """Parameters [1, …] of a network that has the policies of a case, and for its flow the one they call for."""
    w = config.world
    assert config.learner.width == w.states
    cells, learner = world.cells(w), GFlowNetLearner(config)
    flow = np.log(flow_of(w, case)) - (case.log_rewards if config.loss in ("fldb", "flsubtb") else 0)
    table = {"forward": case.log_pf, "backward": case.log_pb, "flow": flow[:, None]}
    on = np.eye(w.side)[cells]  # [N, D, H]
    params = {"trunk": {"rows": on.reshape(w.states, -1).T, "bias": np.full(w.states, 1.0 - w.dim)}}
    for head in learner.net.heads:
        kernel = np.nan_to_num(table[head])
        params[f"{head}_head"] = {"kernel": kernel, "bias": np.zeros(kernel.shape[1])}
    if config.learns_log_z:
        params["log_z"] = np.array(log_z)
    fresh = jax.eval_shape(learner.init, jax.random.key(0)).params
    return jax.tree.map(lambda like, given: np.asarray(given, like.dtype).reshape(1, *like.shape), fresh, params)


def tables(dim, side, reward="easy", **more):
    """The config of a tabular network."""
    return Config(WorldConfig(dim, side, reward), LearnerConfig(width=side**dim, layers=1), **more)


def case_for(config, seed=0):
    """Random policies, and the world's own rewards."""
    w = config.world
    return random_case(w, seed)._replace(log_rewards=HostGrid(w).log_reward(world.cells(w)).astype(float))


EIGHT = tables(2, 8)


def test_of_the_exact_solution_the_measurement_finds_no_fault():
    case = exact_case(EIGHT.world, case_for(EIGHT))
    log_z = hypergrid_rewards.log_z(EIGHT.world)
    columns, picture = evaluation.measure(EIGHT, tabular(EIGHT, case, log_z + 0.25), 0, compiled)
    for name in ("tv", "l1", "kl", "jsd"):
        assert columns[name] == pytest.approx(0, abs=2e-5), name
    assert columns["elbo"] == pytest.approx(log_z, abs=2e-5)
    assert columns["eubo"] == pytest.approx(log_z, abs=2e-5)
    assert columns["logz_error"] == pytest.approx(0.25, abs=1e-5)
    assert columns["correlation"] == pytest.approx(1, abs=1e-5)
    assert columns["modes"] == columns["mode_cells"] == hypergrid_rewards.num_modes(EIGHT.world) == 4
    rewards = np.exp(case.log_rewards)
    assert columns["mean_return"] == pytest.approx((rewards**2).sum() / rewards.sum(), rel=1e-5)
    np.testing.assert_allclose(picture[0], hypergrid_rewards.marginal(EIGHT.world), rtol=1e-4)


def test_a_mode_counts_as_found_when_it_has_half_of_its_probability():
    case = exact_case(EIGHT.world, case_for(EIGHT))
    mode = np.ravel_multi_index((1, 6), (8, 8))
    assert world.mode_cells(EIGHT.world)[mode]
    for share, modes in [(0.55, 4), (0.45, 3)]:
        # Stop there as much more seldom; what does not stop goes on in the old proportions, and only adds elsewhere.
        log_pf = case.log_pf.copy()
        stop = np.exp(log_pf[mode, -1])
        log_pf[mode, :-1] += np.log((1 - share * stop) / (1 - stop))
        log_pf[mode, -1] += np.log(share)
        columns, _ = evaluation.measure(EIGHT, tabular(EIGHT, case._replace(log_pf=log_pf)), 0, compiled)
        assert columns["modes"] == modes
        assert columns["tv"] == pytest.approx((1 - share) * np.exp(case.log_rewards[mode] - case.log_z), abs=1e-5)


def test_a_fresh_network_is_measured_as_numpy_measures_its_distribution():
    init = jax.jit(jax.vmap(GFlowNetLearner(EIGHT).init))
    params = init(jax.random.split(jax.random.key(0), 2)).params
    columns, picture = evaluation.measure(EIGHT, params, 0, compiled)
    target = np.asarray(world.target(EIGHT.world), float)
    modes = np.asarray(world.mode_cells(EIGHT.world))
    assert all(values.shape == (2,) for values in columns.values())
    assert columns["tv"][0] != columns["tv"][1]
    for seed in range(2):
        found = {name: float(values[seed]) for name, values in columns.items()}
        log_p = evaluation.distribution(EIGHT, pick(params, seed), compiled).astype(float)
        p = np.exp(log_p)
        assert p.shape == (64,)
        assert p.sum() == pytest.approx(1, abs=1e-5)
        expected = dict(
            tv=np.abs(p - target).sum() / 2,
            l1=np.abs(p - target).sum(),
            kl=(p * np.log(p / target)).sum(),
            jsd=entropy((p + target) / 2) - (entropy(p) + entropy(target)) / 2,
            modes=(p[modes] >= target[modes] / 2).sum(),
            correlation=np.corrcoef(log_p, np.log(target))[0, 1],
            mean_return=p @ target * np.exp(hypergrid_rewards.log_z(EIGHT.world)),
            logz_error=hypergrid_rewards.log_z(EIGHT.world),  # it starts at 0
        )
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
        assert found["l1"] == 2 * found["tv"]
        assert found["kl"] > 0.1
        assert 0.01 < found["jsd"] < np.log(2)
        assert found["elbo"] < hypergrid_rewards.log_z(EIGHT.world) < found["eubo"]
        np.testing.assert_allclose(picture[seed], p.reshape(8, 8), rtol=1e-4)


def relative_solution(w, log_rewards):
    """The forward policy that samples prior × reward, for a prior of uniformly random steps; its Z, and the prior."""
    shape = (w.side,) * w.dim
    value, policy, prior = np.zeros(shape), np.zeros((*shape, w.dim + 1)), np.zeros((*shape, w.dim + 1))
    for cell in reversed(list(np.ndindex(shape))):
        after = {a: tuple(np.add(cell, np.eye(w.dim, dtype=int)[a])) for a in range(w.dim) if cell[a] < w.side - 1}
        chance = 1 / (len(after) + 1)
        worth = {a: chance * value[place] for a, place in after.items()}
        worth[w.dim] = chance * np.exp(log_rewards[np.ravel_multi_index(cell, shape)])
        value[cell] = sum(worth.values())
        for action, much in worth.items():
            policy[(*cell, action)], prior[(*cell, action)] = much / value[cell], chance
    return policy.reshape(-1, w.dim + 1), value.flat[0], prior.reshape(-1, w.dim + 1)


@pytest.mark.slow
def test_relative_trajectory_balance_is_measured_against_prior_times_reward():
    config = tables(2, 4, "torchgfn", loss="rtb")
    case = case_for(config)
    policy, z, prior = relative_solution(config.world, case.log_rewards)
    with np.errstate(divide="ignore"):
        log_pf, log_prior = (np.maximum(np.log(x), -60.0) for x in (policy, prior))
    found = evaluation.measure(config, tabular(config, case._replace(log_pf=log_pf), np.log(z)), 0, compiled).columns
    for name, value in dict(tv=0, logz_error=0, elbo=np.log(z), eubo=np.log(z), correlation=1).items():
        assert found[name] == pytest.approx(value, abs=2e-5), name
    # The prior itself is as far off as the rewards make it.
    at_first = go_through(config.world, case._replace(log_pf=log_prior)).terminating
    target = at_first * np.exp(case.log_rewards) / z
    found = evaluation.measure(config, tabular(config, case._replace(log_pf=log_prior)), 0, compiled).columns
    assert target.sum() == pytest.approx(1)
    assert found["tv"] == pytest.approx(np.abs(at_first - target).sum() / 2, abs=1e-5)
    assert found["mean_return"] == pytest.approx(z, rel=1e-5)
    # From samples, trajectories are compared instead.
    sampled = evaluation.measure(
        replace(config, evaluation="sampled"), tabular(config, case._replace(log_pf=log_pf)), 0, compiled
    ).columns
    assert sampled["correlation"] == pytest.approx(1, abs=1e-4)
    assert sampled["elbo"] == pytest.approx(np.log(z), abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["db", "fm", "fldb", "flsubtb", "vargrad", "mdb"])
def test_every_loss_has_its_own_estimate_of_log_z_which_is_right_on_an_exact_flow(loss):
    config = tables(2, 3, loss=loss)
    right = exact_case(config.world, case_for(config))
    found = evaluation.measure(config, tabular(config, right), 0, compiled).columns
    log_z = hypergrid_rewards.log_z(config.world)
    for name, value in dict(tv=0, logz_error=0, elbo=log_z, eubo=log_z).items():
        assert found[name] == pytest.approx(value, abs=2e-5), name
    case = case_for(config, 1)
    wrong = evaluation.measure(config, tabular(config, case), 0, compiled).columns
    assert wrong["tv"] > 0.1
    # The flow is still that of the backward policy; VarGrad's guess follows from both policies, and modified detailed
    # balance reads the flow off the first stop edge.
    guess = wrong["elbo"] - log_z if loss == "vargrad" else 0
    if loss == "mdb":
        guess = case.log_rewards[0] - case.log_pf[0, -1] - log_z
    assert wrong["logz_error"] == pytest.approx(abs(guess), abs=2e-5)


def test_the_distribution_does_not_depend_on_how_many_cells_are_looked_at_at_once(monkeypatch):
    params = pick(tabular(EIGHT, case_for(EIGHT)), 0)
    whole = evaluation.distribution(EIGHT, params, compiled)
    monkeypatch.setattr(evaluation, "ROWS_AT_ONCE", 30)  # 64 cells: three goes, the last of which is not full
    known = exact.tables(EIGHT.world)
    parts = jax.jit(lambda params: evaluation.log_distribution(Program(EIGHT), params, known))(params)
    np.testing.assert_allclose(parts, whole, rtol=1e-6)


def test_a_mode_of_several_cells_counts_as_a_whole():
    config = tables(1, 20)  # cells 2 and 3 are one mode, 16 and 17 the other
    case = exact_case(config.world, case_for(config))
    assert hypergrid_rewards.num_modes(config.world) == 2 and hypergrid_rewards.num_mode_cells(config.world) == 4
    log_pf = case.log_pf.copy()
    # Whoever would stop in cell 2 goes on, and all of that stops in cell 3: the cell is missed, not the mode.
    log_pf[2] = np.log([1 - 1e-3, 1e-3])
    shares = np.exp(case.log_rewards - case.log_z)
    onward = shares[4:].sum() / shares[2:].sum()
    log_pf[3] = np.log([onward, 1 - onward])
    found = evaluation.measure(config, tabular(config, case._replace(log_pf=log_pf)), 0, compiled).columns
    assert found["modes"] == 2 and found["mode_cells"] == 3


# ---- from samples --------------------------------------------------------------------------------------------------

SAMPLES = 4000
SAMPLED = tables(3, 3, "torchgfn", evaluation="sampled", eval_samples=SAMPLES)


def tv_from_samples(p, target, count=SAMPLES):
    """Mean and deviation of the total variation that so many samples of p show from a target."""
    seen = np.random.default_rng(0).multinomial(count, p.ravel() / p.sum(), size=2000) / count
    tv = np.abs(seen - target.ravel()).sum(1) / 2
    return tv.mean(), tv.std()


@pytest.mark.slow
@pytest.mark.parametrize("tick", [0, 7])
def test_samples_show_what_is_exactly_so_within_their_noise(tick):
    case = case_for(SAMPLED)
    account = go_through(SAMPLED.world, case)
    found, picture = evaluation.measure(SAMPLED, tabular(SAMPLED, case, 1.0), tick, compiled)
    exactly = evaluation.measure(replace(SAMPLED, evaluation="exact"), tabular(SAMPLED, case, 1.0), 0, compiled)
    for name, probs in [("elbo", account.forward), ("eubo", account.backward)]:
        mean, deviation = account.mean_and_deviation(probs)
        assert exactly.columns[name] == pytest.approx(mean, abs=2e-5)
        assert abs(found[name] - mean) < 5 * deviation / np.sqrt(SAMPLES), name
        assert found[name] != exactly.columns[name]
    rewards = np.exp(case.log_rewards)
    mean = account.terminating @ rewards
    deviation = np.sqrt(account.terminating @ (rewards - mean) ** 2)
    assert exactly.columns["mean_return"] == pytest.approx(mean, rel=1e-5)
    assert abs(found["mean_return"] - mean) < 5 * deviation / np.sqrt(SAMPLES)
    p = account.terminating.reshape(3, 3, 3).sum(-1)
    np.testing.assert_allclose(exactly.pictures[0], p, rtol=1e-4)
    assert np.all(np.abs(picture[0] - p) < 5 * np.sqrt(p * (1 - p) / SAMPLES))
    assert picture.sum() == pytest.approx(1, abs=1e-5)
    target = hypergrid_rewards.marginal(SAMPLED.world)
    for name, sampled in [("tv_marginal", p), ("tv_floor", target)]:
        mean, deviation = tv_from_samples(sampled, target)
        assert abs(found[name] - mean) < 5 * deviation, name
    assert found["logz_error"] == pytest.approx(hypergrid_rewards.log_z(SAMPLED.world) - 1, abs=1e-5)


def test_another_tick_takes_other_samples_and_the_same_tick_the_same():
    params = tabular(SAMPLED, case_for(SAMPLED))
    one, again, other = (evaluation.measure(SAMPLED, params, tick, compiled).columns for tick in (0, 0, 1))
    for name in ("tv_marginal", "tv_floor", "elbo", "eubo", "mean_return"):
        assert one[name] == again[name] != other[name]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["tb", "fm"])
def test_of_the_exact_solution_samples_show_the_noise_floor_and_both_bounds_are_log_z(loss):
    # Flow matching has no backward policy but the one that its flow has: a uniform one would part the bounds.
    config = replace(SAMPLED, loss=loss)
    case = exact_case(SAMPLED.world, case_for(SAMPLED))
    found = evaluation.measure(config, tabular(config, case, case.log_z), 0, compiled).columns
    target = hypergrid_rewards.marginal(SAMPLED.world)
    mean, deviation = tv_from_samples(target, target)
    for name in ("tv_marginal", "tv_floor"):
        assert abs(found[name] - mean) < 5 * deviation, name
    assert found["tv_marginal"] != found["tv_floor"], "they have to be different samples"
    assert np.isnan(found["modes"])  # this grid has none
    # Every single trajectory weighs Z, so there is no noise in these.
    assert found["elbo"] == pytest.approx(case.log_z, abs=2e-5)
    assert found["eubo"] == pytest.approx(case.log_z, abs=2e-5)
    assert found["logz_error"] == pytest.approx(0, abs=1e-5)


@pytest.mark.slow
def test_modes_are_counted_in_samples():
    config = tables(2, 8, evaluation="sampled", eval_samples=1000)
    case = exact_case(config.world, case_for(config))
    far = case.log_pf.copy()
    far[world.cells(config.world)[:, 0] == 2] = [-50.0, -0.7, -0.7]  # nothing passes the third row
    for log_pf, modes in [(case.log_pf, 4), (far, 2)]:
        params = tabular(config, case._replace(log_pf=log_pf))
        assert evaluation.measure(config, params, 0, compiled).columns["modes"] == modes


def test_random_steps_earn_what_all_trajectories_of_a_uniform_policy_earn(monkeypatch):
    case = case_for(SAMPLED)
    mask = masks(SAMPLED.world)[0]
    account = go_through(SAMPLED.world, case._replace(log_pf=log_softmax(np.zeros(mask.shape), mask)))
    rewards = np.exp(case.log_rewards)
    mean = account.terminating @ rewards
    deviation = np.sqrt(account.terminating @ (rewards - mean) ** 2)
    assert evaluation.random_return(replace(SAMPLED, evaluation="exact"), compiled) == pytest.approx(mean, rel=1e-5)
    # A policy that always stops at once has no say in it.
    stopping = case._replace(log_pf=np.where(np.arange(4) == 3, 0.0, -50.0) * np.ones(mask.shape))
    fresh = Agent(jax.tree.map(jnp.asarray, pick(tabular(SAMPLED, stopping), 0)), None, None)
    monkeypatch.setattr(GFlowNetLearner, "init", lambda learner, key: fresh)
    sampled = evaluation.random_return(SAMPLED, compiled)
    assert abs(sampled - mean) < 5 * deviation / np.sqrt(TRAJECTORIES_AT_ONCE)
    assert abs(sampled - rewards[0]) > 5 * deviation / np.sqrt(TRAJECTORIES_AT_ONCE)
