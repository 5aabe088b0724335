"""Evaluation of a sampler: its distribution against the target.

Exact, by dynamic programming over all states, if there are few enough of them. Otherwise from samples. Even a perfect
sampler's samples differ from the target, so that difference is measured, too, as the noise floor. If the target is not
known either, probabilities of sampled objects are estimated and compared with their rewards.

Shapes: S seeds, N states, R of them at a time, B trajectories, D numbers in a state, H values of a coordinate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys
from xladder.core.keys import Stream
from xladder.core.mapping import pick
from xladder.core.statistics import mean_and_interval
from xladder.core.types import Compiled, Params
from xladder.families.gflownet import conditions, exact
from xladder.families.gflownet.config import at_each_condition
from xladder.families.gflownet.program import Program
from xladder.families.gflownet.sampling import (
    PolicySampler,
    at_once,
    estimate_log_p,
    log_probabilities,
    sample,
    sample_backward,
    weigh,
)
from xladder.learners.gflownet import Explore
from xladder.policy import Observation, SamplerPolicy

if TYPE_CHECKING:
    from xladder.families.gflownet.config import GFlowNetConfig

ROWS_AT_ONCE = 8192  # states per call of the network: bounds memory use
WAYS_BACK = 8  # backward trajectories from which an object's probability is estimated
FOUND = 0.5  # fraction of a mode's target probability from which on it counts as found
ENOUGH = 40  # samples that a mode should have before a mode with less than half of them counts as missed


class Exact(NamedTuple):
    """An exact evaluation. float32 [] each, except for the last."""

    tv: jax.Array  # total variation, half of l1
    l1: jax.Array
    kl: jax.Array  # of the learned distribution from the target
    jsd: jax.Array
    logz_error: jax.Array
    modes: jax.Array  # those that have at least half of their target probability; neighbouring mode states are one
    mode_cells: jax.Array  # single mode states that have
    elbo: jax.Array
    eubo: jax.Array
    correlation: jax.Array  # Pearson's, of log-probability and log-reward over all objects
    mean_return: jax.Array  # the expected reward of an object
    marginal: jax.Array | None  # float32 [H, H]: of the first two coordinates; [1, H] if there is but one


class Sampled(NamedTuple):
    """An evaluation from samples. float32 [] each, except for the last."""

    tv_marginal: jax.Array  # of the first two coordinates
    tv_floor: jax.Array  # the same of as many samples from the target itself
    logz_error: jax.Array
    elbo: jax.Array
    eubo: jax.Array
    mean_return: jax.Array
    modes: jax.Array  # as in `Exact`; nan if there are too many for this number of samples
    marginal: jax.Array  # float32 [H, H] or [1, H]


class Estimated(NamedTuple):
    """An evaluation from samples if the target is not known. float32 [] each, except for the last."""

    correlation: jax.Array  # Pearson's, of estimated log-probability and log-reward over sampled objects
    elbo: jax.Array
    mean_return: jax.Array
    logz_error: jax.Array | None  # None if log Z is not known
    marginal: jax.Array | None  # float32 [H, W]: what the world draws of objects


class Measured(NamedTuple):
    """Evaluations of every seed."""

    columns: dict[str, np.ndarray]  # name → float [S]
    pictures: np.ndarray | None  # float [S, H, W]: every seed's figure, where the world has one


def measure(config: GFlowNetConfig, params: Params, tick: int, compiled: Compiled) -> Measured:
    """Evaluate samplers with parameters [S, …] after `tick` ticks.

    With a condition: at several of them. Columns are their means; the distance has one for each condition as well.
    """
    if not config.conditional:
        return measure_plain(config, params, tick, compiled)
    each = [measure_plain(*conditions.fix(config, params, at), tick, compiled) for at in config.conditions]
    columns = {
        # A mode counts as found if it is under every condition.
        name: (np.min if name.startswith("mode") else np.mean)([one.columns[name] for one in each], axis=0)
        for name in each[0].columns
    }
    for name in at_each_condition(config):
        for at, one in zip(config.conditions, each, strict=True):
            columns[f"{name}_{conditions.label(at)}"] = one.columns[name]
    return Measured(columns, each[len(each) // 2].pictures)


def measure_plain(config: GFlowNetConfig, params: Params, tick: int, compiled: Compiled) -> Measured:
    """Evaluate samplers without a condition, or at a fixed one."""
    by_sampling = measure_by_sampling if config.charted else estimate
    function = compiled(measure_exactly if config.exact else by_sampling)
    seeds = jax.tree.leaves(params)[0].shape[0]
    # Every seed has its own random numbers, which makes the mean over seeds more accurate.
    given = [exact.tables(config.world) if config.exact else np.array([tick, s], np.int32) for s in range(seeds)]
    found = [jax.tree.map(np.asarray, function(Program(config), pick(params, s), given[s])) for s in range(seeds)]
    names = [name for name, value in found[0]._asdict().items() if name != "marginal" and value is not None]
    columns = {name: np.array([getattr(one, name) for one in found]) for name in names}
    pictures = None if found[0].marginal is None else np.stack([one.marginal for one in found])
    return Measured(columns | own_metrics(config, params, tick, compiled), pictures)


def own_metrics(config: GFlowNetConfig, params: Params, tick: int, compiled: Compiled) -> dict[str, np.ndarray]:
    """Name → float [S]: the metrics that a world has of its own, for parameters [S, …]."""
    if not config.metric_texts:
        return {}
    known = exact.tables(config.world) if config.exact else None
    seeds = jax.tree.leaves(params)[0].shape[0]
    found = [
        compiled(_own_metrics)(Program(config), pick(params, s), known, np.array([tick, s], np.int32))
        for s in range(seeds)
    ]
    return {name: np.array([one[name] for one in found]) for name in config.metric_texts}


def distribution(config: GFlowNetConfig, params: Params, compiled: Compiled) -> np.ndarray:
    """float32 [N]: log-probability of every state, for one seed's parameters."""
    return np.asarray(compiled(log_distribution)(Program(config), params, exact.tables(config.world)))


def log_target(config: GFlowNetConfig, compiled: Compiled) -> tuple[np.ndarray, float]:
    """float64 [N]: the logarithm of what every state's probability should be proportional to, and its log Z.

    That is the log-reward or, for relative trajectory balance, log-prior + log-reward.
    """
    known = config.world.build().enumeration()
    assert known is not None
    if config.loss != "rtb":
        return known.log_rewards, known.log_z
    tilted = np.asarray(compiled(_tilted)(Program(config), exact.tables(config.world)), float)
    return tilted, float(np.logaddexp.reduce(tilted[known.terminal]))


def target_picture(config: GFlowNetConfig, compiled: Compiled) -> np.ndarray | None:
    """float64 [H, H] or [1, H]: the target's marginal, in the shape of the measured ones; None if it has none."""
    world = config.world.build()
    if config.loss != "rtb" or world.target_picture(config.exact) is None:
        return world.target_picture(config.exact)
    if not config.exact:
        return None
    log_rewards, log_z = log_target(config, compiled)
    return np.asarray(
        world.marginal(jnp.exp(jnp.asarray(log_rewards - log_z, jnp.float32)), exact.tables(config.world).states), float
    )


def score(config: GFlowNetConfig, params: Params, episodes: int, seed: int, compiled: Compiled) -> dict[str, Any]:
    """The numbers that an evaluation reports. `episodes`, at least 1, is the sample size if it has to sample."""
    if config.conditional:
        return score_conditions(config, params, episodes, seed, compiled)
    config = replace(config, eval_samples=episodes)
    found = measure(config, params, seed, compiled).columns
    mean, interval = mean_and_interval(found["mean_return"])
    scores: dict[str, Any] = {"mean_return": float(mean), "ci95": float(interval), "seeds": len(found["mean_return"])}
    scores["per_seed"] = [float(x) for x in found["mean_return"]]
    drawn = -(-episodes // at_once(config.world)) * at_once(config.world)
    scores |= {"random_return": random_return(config, compiled), "exact": config.exact}
    scores["episodes"] = None if config.exact else drawn
    for name, values in found.items():
        if name != "mean_return":
            mean, interval = mean_and_interval(values)
            scores |= {name: float(mean), f"{name}_ci95": float(interval)}
            scores[f"{name}_per_seed"] = [float(x) for x in values]
    scores["texts"] = dict(config.metric_texts)
    world = config.world.build()
    log_z = log_target(config, compiled)[1] if config.exact and config.loss == "rtb" else world.log_z()
    known = {"num_modes": world.num_modes(), "num_mode_cells": world.num_mode_cells()}
    return scores | known | {"log_z": log_z, "enumerable": config.world.enumerable, "loss": config.loss}


def score_conditions(
    config: GFlowNetConfig, params: Params, episodes: int, seed: int, compiled: Compiled
) -> dict[str, Any]:
    """The score at several conditions: a list, and the means over them under the names of a plain score."""
    given = [conditions.fix(config, params, at) for at in config.conditions]
    each = [score(*fixed, episodes, seed, compiled) for fixed in given]
    means = {
        name: float(np.mean([one[name] for one in each])) if isinstance(value, float) else value
        for name, value in each[len(each) // 2].items()
    }
    listed = [one | {"condition": at} for at, one in zip(config.conditions, each, strict=True)]
    return means | {"conditions": listed}


def draw_states(
    config: GFlowNetConfig, params: Params, count: int, seed: int, compiled: Compiled
) -> tuple[np.ndarray, np.ndarray]:
    """Sample objects: their states, int32 [count, D], and log-rewards, float32 [count]."""
    program, parts = Program(config), -(-count // at_once(config.world))
    draw = compiled(_objects)
    found = [
        jax.tree.map(np.asarray, draw(program, params, np.int32(seed), np.int32(number))) for number in range(parts)
    ]
    states, log_rewards = (np.concatenate(part)[:count] for part in zip(*found, strict=True))
    return states, log_rewards


def draw_objects(
    config: GFlowNetConfig, params: Params, count: int, seed: int, compiled: Compiled
) -> dict[str, np.ndarray]:
    """Sample objects; columns [count]: states, reward, and log-probability if it is known."""
    states, log_rewards = draw_states(config, params, count, seed, compiled)
    world = config.world.build()
    table: dict[str, np.ndarray] = {
        **world.table(states),
        "reward": np.exp(log_rewards),
        "log_reward": log_rewards + 0.0,
    }
    known = world.enumeration() if config.exact else None
    if known is not None:
        table["log_probability"] = distribution(config, params, compiled)[known.place(states)]
    return table


def random_return(config: GFlowNetConfig, compiled: Compiled) -> float:
    """The expected reward of an object built by uniformly random steps, exact or from samples."""
    if config.exact:
        return float(compiled(_random_return_exactly)(Program(config), exact.tables(config.world)))
    return float(compiled(_random_return_by_sampling)(Program(config)))


def policy(config: GFlowNetConfig, params: Params, compiled: Compiled) -> SamplerPolicy:
    """One sampler as a function from states to actions; the last action is stop."""
    program, world = Program(config), config.world.build()
    seen = Observation((world.state_size,), np.dtype(np.int32), world.below, world.state_words)
    return SamplerPolicy(seen, lambda states: compiled(_policy)(program, params, states))


def _policy(program: Program, params: Params, states: jax.Array) -> jax.Array:
    """float32 [B, A]: the forward policy without exploration."""
    return program.learner.forward_policy(params, states, Explore(jnp.float32(0), jnp.float32(1)))


def measure_exactly(program: Program, params: Params, known: exact.Tables) -> Exact:
    """Compare one sampler with the target over all states."""
    world, rewards = program.learner.world, jnp.exp(known.log_rewards)
    policies, log_z = _policies(program, params, known)
    true_log_z: Any = world.log_z()
    if program.config.loss == "rtb":
        known, log_pb = exact.tilt(known, _random_policy(program, known))
        policies, true_log_z = policies._replace(log_pb=log_pb), jax.nn.logsumexp(known.log_rewards)
    assert true_log_z is not None
    log_target = known.log_rewards - true_log_z
    log_p = exact.log_terminating(known, policies.log_pf)
    p, target = jnp.exp(log_p), jnp.exp(log_target)
    l1 = jnp.abs(p - target).sum()
    elbo, eubo = exact.bounds(known, policies)
    cells = known.modes & (p >= FOUND * target)
    # VarGrad learns no log Z; the mean of its trajectories' estimates is the lower bound.
    guess = elbo if log_z is None else log_z
    return Exact(
        tv=l1 / 2,
        l1=l1,
        kl=jnp.maximum((p * (log_p - log_target)).sum(), 0.0),  # rounding can make it negative
        jsd=jnp.maximum(_jsd(p, target), 0.0),
        logz_error=jnp.abs(guess - true_log_z),
        modes=_modes_found(known, world.num_modes() or 0, p, target),
        mode_cells=cells.sum(dtype=jnp.float32),
        elbo=elbo,
        eubo=eubo,
        correlation=_correlation(log_p, known.log_rewards, known.terminal),
        mean_return=(p * rewards).sum(),
        marginal=world.marginal(p, known.states),
    )


def _modes_found(known: exact.Tables, count: int, p: jax.Array, target: jax.Array) -> jax.Array:
    """float32 []: how many of `count` modes have at least half of their target probability."""
    shares, wanted = (jax.ops.segment_sum(x, known.regions, count + 1)[:count] for x in (p, target))
    return (shares >= FOUND * wanted).sum(dtype=jnp.float32)


def log_distribution(program: Program, params: Params, known: exact.Tables) -> jax.Array:
    """float32 [N]: the log-probability with which a sampler ends in each state."""
    return exact.log_terminating(known, _policies(program, params, known)[0].log_pf)


def measure_by_sampling(program: Program, params: Params, address: jax.Array) -> Sampled:
    """Compare one sampler with the target from samples of both. `address` is int32 [2]: tick and seed."""
    config, learner, world = program.config, program.learner, program.learner.world
    count, steps = at_once(config.world), config.world.steps
    key = keys.address(keys.evaluation(0), address[0], address[1], Stream.SAMPLE)
    parts, masses = -(-config.eval_samples // count), world.mode_masses()

    def part(total: Any, i: jax.Array) -> tuple[Any, None]:
        forwards, targets, back = jax.random.split(jax.random.fold_in(key, i), 3)
        batch = sample(program, params, forwards, count)
        ideal = world.draw_target(targets, count)
        walked = sample_backward(learner, params, ideal, jax.random.uniform(back, (steps, count)))
        found = learner.objects(batch)
        low, high = (weigh(learner, params, each).mean() for each in (batch, walked))
        pictures = world.histogram(found), world.histogram(ideal)
        assert pictures[0] is not None
        shares = *pictures, jnp.zeros(0)
        if masses is not None:
            shares = *pictures, jnp.zeros(len(masses) + 1).at[world.mode_of(found)].add(1 / count)[:-1]
        new = *shares, low, high, jnp.exp(learner.log_rewards(found)).mean()
        return jax.tree.map(lambda sum_, one: sum_ + one / parts, total, new), None

    target = jnp.asarray(world.target_picture(exact=False), jnp.float32)
    in_modes = jnp.zeros(0 if masses is None else len(masses))
    nothing = jnp.zeros_like(target), jnp.zeros_like(target), in_modes, *[jnp.float32(0)] * 3
    (learned, ideal, in_modes, low, high, reward), _ = jax.lax.scan(part, nothing, jnp.arange(parts))
    modes = jnp.float32(jnp.nan)
    if masses is not None and masses.min() * parts * count >= ENOUGH:
        modes = (in_modes >= FOUND * jnp.asarray(masses, jnp.float32)).sum(dtype=jnp.float32)
    _, _, log_flow = learner.log_policies(params, world.initial()[None])
    log_z, true_log_z = _log_z(program, params, log_flow[0]), world.log_z()
    assert true_log_z is not None
    return Sampled(
        tv_marginal=jnp.abs(learned - target).sum() / 2,
        tv_floor=jnp.abs(ideal - target).sum() / 2,
        logz_error=jnp.abs((low if log_z is None else log_z) - true_log_z),
        elbo=low,
        eubo=high,
        mean_return=reward,
        modes=modes,
        marginal=learned,
    )


def estimate(program: Program, params: Params, address: jax.Array) -> Estimated:
    """Evaluate one sampler whose target is not known. `address` is int32 [2]: tick and seed.

    The probability of an object is estimated as the mean of P_F / P_B over backward trajectories. Relative trajectory
    balance has no P_B: there, trajectories are compared, log P_F with log P_prior + log R.
    """
    config, learner, world = program.config, program.learner, program.learner.world
    count = at_once(config.world)
    key = keys.address(keys.evaluation(0), address[0], address[1], Stream.SAMPLE)
    parts = -(-config.eval_samples // count)

    def part(i: jax.Array) -> Any:
        forwards, back = jax.random.split(jax.random.fold_in(key, i))
        batch = sample(program, params, forwards, count)
        found = learner.objects(batch)
        log_rewards, picture = learner.log_rewards(found), world.histogram(found)
        if config.loss == "rtb":
            log_pf, log_prior = log_probabilities(learner, params, batch)
            log_target = log_prior + log_rewards
            return (log_pf, log_target, log_target - log_pf, log_rewards), picture
        log_p = estimate_log_p(program, params, found, back, WAYS_BACK)
        return (log_p, log_rewards, weigh(learner, params, batch), log_rewards), picture

    columns, pictures = jax.lax.map(part, jnp.arange(parts))
    log_p, log_target, weights, log_rewards = (x.reshape(-1) for x in columns)
    true_log_z, error = world.log_z() if config.knows_log_z else None, None
    if true_log_z is not None:
        _, _, log_flow = learner.log_policies(params, world.initial()[None])
        log_z = _log_z(program, params, log_flow[0])
        error = jnp.abs((weights.mean() if log_z is None else log_z) - true_log_z)
    return Estimated(
        correlation=_correlation(log_p, log_target),
        elbo=weights.mean(),
        mean_return=jnp.exp(log_rewards).mean(),
        logz_error=error,
        marginal=None if pictures is None else pictures.mean(0),
    )


def _own_metrics(
    program: Program, params: Params, known: exact.Tables | None, address: jax.Array
) -> Mapping[str, jax.Array]:
    key = keys.address(keys.evaluation(1), address[0], address[1], Stream.SAMPLE)
    whole = () if known is None else (known.states, partial(log_distribution, program, params, known))
    return program.learner.world.metrics(PolicySampler(program, params, key, *whole))


def _policies(program: Program, params: Params, known: exact.Tables) -> tuple[exact.Policies, jax.Array | None]:
    """The network's policies in all states, computed in chunks, and its estimate of log Z, if it has one."""
    count, size = known.states.shape
    parts = -(-count // ROWS_AT_ONCE)
    padded = jnp.pad(known.states, ((0, parts * min(ROWS_AT_ONCE, count) - count), (0, 0)))
    outputs = jax.lax.map(partial(program.learner.log_policies, params), padded.reshape(parts, -1, size))
    log_pf, log_pb, log_flow = (x.reshape(-1, *x.shape[2:])[:count] for x in outputs)
    if program.config.loss == "fm":
        log_pb = exact.backward_of_flow(known, log_pf, log_flow)
    return exact.Policies(log_pf, log_pb), _log_z(program, params, log_flow[known.levels[0, 0]])


def _log_z(program: Program, params: Params, log_flow: jax.Array) -> jax.Array | None:
    """The estimate of log Z that a loss learns, given the flow of the initial state; None if it learns none."""
    config, world = program.config, program.learner.world
    if config.learns_log_z:
        return params["log_z"]
    if config.loss in ("fldb", "flsubtb"):
        return log_flow + world.log_reward(world.initial())
    return log_flow if config.learns_flow or config.loss == "mdb" else None


def _objects(program: Program, params: Params, seed: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
    key = keys.address(keys.evaluation(seed), number, 0, Stream.ACT)
    found = program.learner.objects(sample(program, params, key, at_once(program.config.world)))
    return found, program.learner.log_rewards(found)


def _random_return_exactly(program: Program, known: exact.Tables) -> jax.Array:
    log_pf = _random_policy(program, known)
    return (jnp.exp(exact.log_terminating(known, log_pf)) * jnp.exp(known.log_rewards)).sum()


def _tilted(program: Program, known: exact.Tables) -> jax.Array:
    return exact.tilt(known, _random_policy(program, known))[0].log_rewards


def _random_policy(program: Program, known: exact.Tables) -> jax.Array:
    """float32 [N, A]: log-probabilities of uniformly random steps, the prior of relative trajectory balance."""
    mask = program.learner.forward_mask(known.states)
    return jnp.where(mask, -jnp.log(mask.sum(1, keepdims=True).astype(jnp.float32)), exact.NOTHING)


def _random_return_by_sampling(program: Program) -> jax.Array:
    learner, key = program.learner, keys.evaluation(1)
    draws = jax.random.uniform(key, (program.config.world.steps, at_once(program.config.world)))
    batch = learner.sample(learner.init(key).params, Explore(jnp.float32(1), jnp.float32(1)), draws)
    return jnp.exp(learner.log_rewards(learner.objects(batch))).mean()


def _jsd(p: jax.Array, q: jax.Array) -> jax.Array:
    middle = (p + q) / 2

    def part(x: jax.Array) -> jax.Array:
        return jnp.where(x > 0, x * jnp.log(jnp.where(x > 0, x, 1.0) / jnp.where(middle > 0, middle, 1.0)), 0.0).sum()

    return (part(p) + part(q)) / 2


def _correlation(x: jax.Array, y: jax.Array, where: jax.Array | None = None) -> jax.Array:
    x, y = (values - jnp.mean(values, where=where) for values in (x, y))
    if where is not None:
        x, y = (jnp.where(where, values, 0.0) for values in (x, y))
    return (x * y).sum() / jnp.sqrt((x**2).sum() * (y**2).sum())
