"""How good a sampler is: its distribution against the target's.

Exactly, by dynamic programming over all cells, where there are few enough of them. Otherwise from samples, of which
even a perfect sampler's differ from the target: what it would show is measured beside it, as the noise floor.

Shapes: S seeds, N cells, R of them at a time, B trajectories, D coordinates, H values of each.
"""

from __future__ import annotations

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
from xladder.families.gflownet import exact
from xladder.families.gflownet.program import Program
from xladder.learners.gflownet import Explore, GFlowNetLearner, Trajectories, take
from xladder.policy import Observation, SamplerPolicy
from xladder.worlds import hypergrid as world

if TYPE_CHECKING:
    from xladder.families.gflownet.config import Config, WorldConfig

ROWS_AT_ONCE = 8192  # cells that the network is run on in one go: bounds the memory
TRAJECTORIES_AT_ONCE = 500
MOST_STEPS_AT_ONCE = 2**22  # times coordinates, of all trajectories at once
MOST_BINS = 64  # of a coordinate, when distributions are estimated: finer ones would hold nothing but noise
FOUND = 0.5  # of a mode's probability in the target, from which on it counts as found


class Exact(NamedTuple):
    """An exact measurement. float32 [] each, but for the last."""

    tv: jax.Array  # total variation, half of l1
    l1: jax.Array
    kl: jax.Array  # of the learned distribution from the target
    jsd: jax.Array
    logz_error: jax.Array
    modes: jax.Array  # cells on a peak that have half of their probability or more
    elbo: jax.Array
    eubo: jax.Array
    correlation: jax.Array  # Pearson's, of log-probability and log-reward over all cells
    mean_return: jax.Array  # the expected reward of an object
    marginal: jax.Array  # float32 [H, H]: of the first two coordinates; [1, H] if there is but one


class Sampled(NamedTuple):
    """A measurement from samples. float32 [] each, but for the last."""

    tv_marginal: jax.Array  # of the first two coordinates
    tv_floor: jax.Array  # the same of as many samples from the target itself
    logz_error: jax.Array
    elbo: jax.Array  # of flow matching: for a uniform backward policy, so the two bounds stay apart
    eubo: jax.Array
    mean_return: jax.Array
    marginal: jax.Array  # float32 [H, H] or [1, H]


class Measured(NamedTuple):
    """Measurements of every seed."""

    columns: dict[str, np.ndarray]  # name → float [S]
    picture: np.ndarray  # float [H, H]: the first seed's marginal


def measure(config: Config, params: Params, tick: int, compiled: Compiled) -> Measured:
    """Measure samplers with parameters [S, …] after so many ticks."""
    function = compiled(measure_exactly if config.exact else measure_by_sampling)
    seeds = jax.tree.leaves(params)[0].shape[0]
    # Every seed is measured with draws of its own, so that their mean is the better for it.
    given = [exact.tables(config.world) if config.exact else np.array([tick, s], np.int32) for s in range(seeds)]
    found = [jax.tree.map(np.asarray, function(Program(config), pick(params, s), given[s])) for s in range(seeds)]
    names = [name for name in found[0]._fields if name != "marginal"]
    return Measured({name: np.array([getattr(one, name) for one in found]) for name in names}, found[0].marginal)


def distribution(config: Config, params: Params, compiled: Compiled) -> np.ndarray:
    """float32 [N]: log-probability of every cell, for one seed's parameters."""
    return np.asarray(compiled(log_distribution)(Program(config), params, exact.tables(config.world)))


def score(config: Config, params: Params, episodes: int, seed: int, compiled: Compiled) -> dict[str, Any]:
    """The numbers that an evaluation reports. `episodes` are used where it has to sample, at least 1."""
    config = replace(config, eval_samples=episodes)
    found = measure(config, params, seed, compiled).columns
    mean, interval = mean_and_interval(found["mean_return"])
    said: dict[str, Any] = {"mean_return": float(mean), "ci95": float(interval), "seeds": len(found["mean_return"])}
    drawn = -(-episodes // at_once(config.world)) * at_once(config.world)
    said |= {"random_return": random_return(config, compiled), "exact": config.exact}
    said["episodes"] = None if config.exact else drawn
    for name, values in found.items():
        if name != "mean_return":
            mean, interval = mean_and_interval(values)
            said |= {name: float(mean), f"{name}_ci95": float(interval)}
    w = config.world
    return said | {"log_z": world.log_z(w), "num_modes": world.num_modes(w), "enumerable": w.enumerable}


def draw_objects(config: Config, params: Params, count: int, seed: int, compiled: Compiled) -> dict[str, np.ndarray]:
    """Objects of one sampler as columns [count]: coordinates, reward, and log-probability where that is known."""
    program, parts = Program(config), -(-count // at_once(config.world))
    draw = compiled(_objects)
    found = [
        jax.tree.map(np.asarray, draw(program, params, np.int32(seed), np.int32(number))) for number in range(parts)
    ]
    states, log_rewards = (np.concatenate(part)[:count] for part in zip(*found, strict=True))
    table = {f"coordinate_{d + 1}": states[:, d] for d in range(config.world.dim)}
    table |= {"reward": np.exp(log_rewards), "log_reward": log_rewards}
    if config.exact:
        table["log_probability"] = distribution(config, params, compiled)[states @ exact.strides(config.world)]
    return table


def random_return(config: Config, compiled: Compiled) -> float:
    """The expected reward of an object that uniformly random steps make, exactly or from samples."""
    if config.exact:
        return float(compiled(_random_return_exactly)(Program(config), exact.tables(config.world)))
    return float(compiled(_random_return_by_sampling)(Program(config)))


def policy(config: Config, params: Params, compiled: Compiled) -> SamplerPolicy:
    """What one sampler does in a cell: a step along a coordinate, or, the last action, stop."""
    program, w = Program(config), config.world
    seen = Observation((w.dim,), np.dtype(np.int32), w.side, "coordinates of a cell")
    return SamplerPolicy(seen, lambda cells: compiled(_chances)(program, params, cells))


def _chances(program: Program, params: Params, cells: jax.Array) -> jax.Array:
    """float32 [B, A]: the policy itself, without exploring."""
    return program.learner.forward_chances(params, cells, Explore(jnp.float32(0), jnp.float32(1)))


def measure_exactly(program: Program, params: Params, known: exact.Tables) -> Exact:
    """One sampler against the target, over all cells."""
    w = program.config.world
    policies, log_z = _policies(program, params, known)
    log_target = known.log_rewards - world.log_z(w)
    log_p = exact.log_terminating(w, known.levels, policies.log_pf)
    p, target = jnp.exp(log_p), jnp.exp(log_target)
    l1 = jnp.abs(p - target).sum()
    elbo, eubo = exact.bounds(w, known, policies)
    modes = known.modes & (p >= FOUND * target)
    # VarGrad keeps no estimate of log Z; the mean of its trajectories' own is the lower bound.
    guess = elbo if log_z is None else log_z
    return Exact(
        tv=l1 / 2,
        l1=l1,
        kl=jnp.maximum((p * (log_p - log_target)).sum(), 0.0),  # rounding can make less of nothing
        jsd=jnp.maximum(_jsd(p, target), 0.0),
        logz_error=jnp.abs(guess - world.log_z(w)),
        modes=modes.sum(dtype=jnp.float32),
        elbo=elbo,
        eubo=eubo,
        correlation=_correlation(log_p, known.log_rewards),
        mean_return=(p * jnp.exp(known.log_rewards)).sum(),
        marginal=_marginal(w, p),
    )


def log_distribution(program: Program, params: Params, known: exact.Tables) -> jax.Array:
    """float32 [N]: the log-probability with which a sampler ends in each cell."""
    return exact.log_terminating(program.config.world, known.levels, _policies(program, params, known)[0].log_pf)


def at_once(config: WorldConfig) -> int:
    """How many trajectories are sampled in one go: fewer where they are long, to bound the memory."""
    return max(1, min(TRAJECTORIES_AT_ONCE, MOST_STEPS_AT_ONCE // (config.steps * config.dim)))


def target_picture(config: Config) -> np.ndarray:
    """float64 [H, H] or [1, H]: the target's marginal, as coarse as measurements show it."""
    whole = world.marginal(config.world)
    if config.exact:
        return whole
    rows, columns = (np.arange(n) * min(n, MOST_BINS) // n for n in whole.shape)
    coarse = np.zeros((rows[-1] + 1, columns[-1] + 1))
    np.add.at(coarse, (rows[:, None], columns[None, :]), whole)
    return coarse


def measure_by_sampling(program: Program, params: Params, address: jax.Array) -> Sampled:
    """One sampler against the target, from samples of both. `address` is int32 [2]: tick and seed."""
    config, learner = program.config, program.learner
    w, count = config.world, at_once(config.world)
    key = keys.address(keys.evaluation(0), address[0], address[1], Stream.SAMPLE)
    parts = -(-config.eval_samples // count)

    def part(total: Any, i: jax.Array) -> tuple[Any, None]:
        forwards, targets, back = jax.random.split(jax.random.fold_in(key, i), 3)
        batch = sample(program, params, forwards, count)
        ideal = world.draw_target(w, targets, count)
        walked = learner.walk_back(params, ideal, jax.random.uniform(back, (w.steps, count)))
        found = learner.objects(batch)
        low, high = (weigh(learner, params, each) for each in (batch, walked))
        new = _histogram(w, found), _histogram(w, ideal), low, high, jnp.exp(learner.log_rewards(found)).mean()
        return jax.tree.map(lambda sum_, one: sum_ + one / parts, total, new), None

    target = jnp.asarray(target_picture(config), jnp.float32)
    nothing = jnp.zeros_like(target), jnp.zeros_like(target), jnp.float32(0), jnp.float32(0), jnp.float32(0)
    (learned, ideal, low, high, reward), _ = jax.lax.scan(part, nothing, jnp.arange(parts))
    _, _, log_flow = learner.log_policies(params, world.initial(w)[None])
    log_z = _log_z(program, params, log_flow[0])
    return Sampled(
        tv_marginal=jnp.abs(learned - target).sum() / 2,
        tv_floor=jnp.abs(ideal - target).sum() / 2,
        logz_error=jnp.abs((low if log_z is None else log_z) - world.log_z(w)),
        elbo=low,
        eubo=high,
        mean_return=reward,
        marginal=learned,
    )


def sample(program: Program, params: Params, key: jax.Array, count: int) -> Trajectories:
    """So many trajectories of the policy itself."""
    draws = jax.random.uniform(key, (program.config.world.steps, count))
    return program.learner.sample(params, Explore(jnp.float32(0), jnp.float32(1)), draws)


def weigh(learner: GFlowNetLearner, params: Params, batch: Trajectories) -> jax.Array:
    """float32 []: the mean of log R + log P_B − log P_F over a batch; step by step, to the end of the longest."""

    def step(carry: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        t, led_by, total = carry
        log_pf, log_pb, _ = learner.log_policies(params, batch.states[t])
        forward = take(log_pf, batch.actions[t])
        undone = jnp.where(t > 0, take(log_pb, jnp.minimum(led_by, log_pb.shape[1] - 1)), 0.0)
        return t + 1, batch.actions[t], total + jnp.where(t < batch.length, undone - forward, 0.0)

    log_rewards = learner.log_rewards(learner.objects(batch))
    first = jnp.int32(0), jnp.zeros_like(batch.length), log_rewards
    return jax.lax.while_loop(lambda carry: carry[0] < batch.length.max(), step, first)[2].mean()


def _policies(program: Program, params: Params, known: exact.Tables) -> tuple[exact.Policies, jax.Array | None]:
    """What the network says of all cells, so many at a time; and its estimate of log Z, if it has one."""
    w = program.config.world
    parts = -(-w.states // ROWS_AT_ONCE)
    padded = jnp.pad(known.cells, ((0, parts * min(ROWS_AT_ONCE, w.states) - w.states), (0, 0)))
    said = jax.lax.map(partial(program.learner.log_policies, params), padded.reshape(parts, -1, w.dim))
    log_pf, log_pb, log_flow = (x.reshape(-1, *x.shape[2:])[: w.states] for x in said)
    if program.config.loss == "fm":
        log_pb = exact.backward_of_flow(w, known.cells, log_pf, log_flow)
    return exact.Policies(log_pf, log_pb), _log_z(program, params, log_flow[0])


def _log_z(program: Program, params: Params, log_flow: jax.Array) -> jax.Array | None:
    """The estimate of log Z that a loss learns, given what is said of the origin's flow; None if it learns none."""
    config = program.config
    if config.loss == "tb":
        return params["log_z"]
    if config.loss == "fldb":
        return log_flow + world.log_reward(config.world, world.initial(config.world))
    return log_flow if config.learns_flow else None


def _objects(program: Program, params: Params, seed: jax.Array, number: jax.Array) -> tuple[jax.Array, jax.Array]:
    key = keys.address(keys.evaluation(seed), number, 0, Stream.ACT)
    found = program.learner.objects(sample(program, params, key, at_once(program.config.world)))
    return found, program.learner.log_rewards(found)


def _random_return_exactly(program: Program, known: exact.Tables) -> jax.Array:
    w = program.config.world
    mask = jax.vmap(partial(world.forward_mask, w))(known.cells)
    log_pf = jnp.where(mask, -jnp.log(mask.sum(1, keepdims=True).astype(jnp.float32)), exact.NOTHING)
    return (jnp.exp(exact.log_terminating(w, known.levels, log_pf)) * jnp.exp(known.log_rewards)).sum()


def _random_return_by_sampling(program: Program) -> jax.Array:
    learner, key = program.learner, keys.evaluation(1)
    draws = jax.random.uniform(key, (program.config.world.steps, at_once(program.config.world)))
    batch = learner.sample(learner.init(key).params, Explore(jnp.float32(1), jnp.float32(1)), draws)
    return jnp.exp(learner.log_rewards(learner.objects(batch))).mean()


def _histogram(config: WorldConfig, objects: jax.Array) -> jax.Array:
    """float32 [H, H] or [1, H]: how often each pair of first two coordinates is among objects [B, D], coarsely."""
    bins = min(config.side, MOST_BINS)
    places = objects * bins // config.side
    first = places[:, 0] if config.dim > 1 else jnp.zeros_like(places[:, 0])
    second = places[:, min(1, config.dim - 1)]
    shape = (bins if config.dim > 1 else 1, bins)
    return jnp.zeros(shape, jnp.float32).at[first, second].add(1.0 / objects.shape[0])


def _marginal(config: WorldConfig, p: jax.Array) -> jax.Array:
    if config.dim == 1:
        return p[None]
    return p.reshape(config.side, config.side, -1).sum(-1)


def _jsd(p: jax.Array, q: jax.Array) -> jax.Array:
    middle = (p + q) / 2

    def part(x: jax.Array) -> jax.Array:
        return jnp.where(x > 0, x * jnp.log(jnp.where(x > 0, x, 1.0) / jnp.where(middle > 0, middle, 1.0)), 0.0).sum()

    return (part(p) + part(q)) / 2


def _correlation(x: jax.Array, y: jax.Array) -> jax.Array:
    x, y = x - x.mean(), y - y.mean()
    return (x * y).sum() / jnp.sqrt((x**2).sum() * (y**2).sum())
