"""Evaluation of the agents: whole epochs without learning, with separate random keys and empty frame stacks.

Shapes: S seeds, N agents, E episodes, T turns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys
from xladder.core.mapping import pick
from xladder.core.statistics import mean_and_interval
from xladder.core.types import Compiled, Params
from xladder.families.multi_agent.program import EpochRollout, Program
from xladder.learners.iqn import Agent
from xladder.learners.value import midpoints
from xladder.policy import Observation, ValuePolicy

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import Config

AT_ONCE = 64  # episodes per call: bounds memory use, and lets a long evaluation be interrupted


class Evaluation(NamedTuple):
    """Returns of the trained agents and, on the same boards, of random play."""

    returns: np.ndarray  # float32 [S, E, N]
    random: np.ndarray  # float32 [S, E, N]


def score(config: Config, params: Params, episodes: int, seed: int, compiled: Compiled) -> dict[str, Any]:
    """Run `episodes` greedily with every seed's agents, and with random actions for comparison.

    `mean_return` is summed over agents. With one seed the interval is over episodes, with several over the
    seeds' means: agents trained from one seed are not independent of each other.
    """
    found = evaluate(config, params, episodes, seed, compiled)
    several = found.returns.shape[0] > 1
    totals = found.returns.sum(-1)  # [seed, episode]
    mean, interval = mean_and_interval(totals.mean(1) if several else totals[0])
    chance, chance_interval = mean_and_interval(found.random.sum(-1)[0])
    return {
        "mean_return": float(mean),
        "ci95": float(interval),
        "per_seed": [float(x) for x in totals.mean(1)],
        "per_agent": [float(x) for x in found.returns.mean((0, 1))],
        "episodes": episodes,
        "seeds": found.returns.shape[0],
        "random_return": float(chance),
        "random_ci95": float(chance_interval),
    }


def evaluate(config: Config, params: Params, episodes: int, seed: int, compiled: Compiled) -> Evaluation:
    """Run `episodes` epochs with ε = 0 and as many with ε = 1. `params` has leaves [S, N, …]."""
    program, rollout = Program(config), compiled(_returns)
    seeds = jax.tree.leaves(params)[0].shape[0]
    parts = []
    for begin in range(0, episodes, AT_ONCE):
        # A shorter last call would compile again, so it runs too many epochs and drops the surplus.
        numbers = begin + np.arange(min(AT_ONCE, episodes), dtype=np.int32)
        kept = min(AT_ONCE, episodes - begin)
        greedy = [rollout(program, pick(params, s), seed, numbers, 0.0)[:kept] for s in range(seeds)]
        chance = [rollout(program, pick(params, s), seed, numbers, 1.0)[:kept] for s in range(seeds)]
        parts.append((np.stack(greedy), np.stack(chance)))
    return Evaluation(*(np.concatenate(part, axis=1) for part in zip(*parts, strict=True)))


def episode(config: Config, params: Params, seed: int, compiled: Compiled, number: int = 0) -> EpochRollout:
    """One greedy epoch of the agents with leaves [N, …], as NumPy arrays."""
    return jax.tree.map(np.asarray, compiled(_episode)(Program(config), params, seed, number, 0.0))


def episode_start(config: Config, seed: int, compiled: Compiled, number: int) -> Any:
    """The state in which an epoch of `episode` begins."""
    return jax.tree.map(np.asarray, compiled(_start)(Program(config), seed, number))


def episode_values(
    config: Config, params: Params, seed: int, compiled: Compiled, number: int, played: EpochRollout
) -> np.ndarray:
    """float32 [T, N, A]: the values by which the agents chose in an epoch that `episode` returned."""
    return np.asarray(compiled(_episode_values)(Program(config), params, seed, number, played.rows.frames))


def policy(config: Config, params: Params, compiled: Compiled) -> ValuePolicy:
    """One agent as a function from its last views (cell codes, empty before an epoch's first) to actions."""
    program = Program(config)
    learner = program.learner
    shape = config.learner.n_frames, learner.cells
    seen = Observation(shape, np.dtype(np.int8), learner.encoding.num_codes, "codes of cells")
    return ValuePolicy(seen, lambda states: compiled(_values)(program, params, states))


def _values(program: Program, params: Params, states: jax.Array) -> jax.Array:
    """float32 [B, A]: mean quantiles at fixed fractions, so that the same views always give the same action."""
    taus = jnp.asarray(midpoints(program.config.learner.act_quantiles))
    taus = jnp.broadcast_to(taus[None], (states.shape[0], taus.size))
    return program.learner.value.values(params, states, taus, None)


def _episode(program: Program, params: Params, seed: jax.Array, number: jax.Array, epsilon: jax.Array) -> EpochRollout:
    count, n_frames = program.config.world.num_agents, program.config.learner.n_frames
    key = keys.evaluation(seed)
    epsilons = jnp.full((count,), epsilon, jnp.float32)
    # Acting needs only the parameters and ε.
    agents: Any = Agent(params, None, None, epsilons, None)  # type: ignore[arg-type]
    before = jnp.zeros((count, n_frames - 1, program.learner.cells), jnp.int8)  # code 0 shows nothing
    return program.rollout(program.draw_rollout(key, number), agents, before)


def _start(program: Program, seed: jax.Array, number: jax.Array) -> Any:
    return program.world.reset(program.draw_rollout(keys.evaluation(seed), number).reset)


def _episode_values(
    program: Program, params: Params, seed: jax.Array, number: jax.Array, views: jax.Array
) -> jax.Array:
    n_frames, learner = program.config.learner.n_frames, program.learner
    taus = program.draw_rollout(keys.evaluation(seed), number).acts.taus  # [N, T, Q]

    def one(params: Params, views: jax.Array, taus: jax.Array) -> jax.Array:
        padded = jnp.pad(views, ((n_frames - 1, 0), (0, 0)))  # code 0 shows nothing
        states = jnp.stack([padded[i : i + len(views)] for i in range(n_frames)], axis=1)  # [T, F, V]
        return learner.value.values(params, states, taus, None)

    return jax.vmap(one, out_axes=1)(params, jnp.moveaxis(views, 1, 0), taus)


def _returns(program: Program, params: Params, seed: jax.Array, numbers: jax.Array, epsilon: jax.Array) -> jax.Array:
    def one(number: jax.Array) -> jax.Array:
        return _episode(program, params, seed, number, epsilon).rows.rewards.sum(0)

    return jax.vmap(one)(numbers)
