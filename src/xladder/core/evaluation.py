"""How good the agents are: whole epochs without learning, on a key stream of their own, from an empty memory.

Shapes: S seeds, N agents, E episodes, T turns.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys
from xladder.core.tick import Played, Program
from xladder.core.types import Params
from xladder.learners.iqn import Agent
from xladder.worlds import treasurehunt as world

if TYPE_CHECKING:
    from xladder.workloads.treasurehunt import Config

AT_ONCE = 64  # episodes per call: bounds the memory, and lets a long evaluation be interrupted


class Evaluation(NamedTuple):
    """Returns of the trained agents and, on the same boards, of random play."""

    returns: np.ndarray  # float32 [S, E, N]
    random: np.ndarray  # float32 [S, E, N]


def evaluate(config: Config, params: Params, episodes: int, seed: int = 0) -> Evaluation:
    """Play `episodes` epochs with ε = 0 and as many with ε = 1. `params` has leaves [S, N, …]."""
    program = Program(config)
    seeds = jax.tree.leaves(params)[0].shape[0]
    parts = []
    for begin in range(0, episodes, AT_ONCE):
        # A short last call would compile again, so it plays too many and drops them.
        numbers = begin + np.arange(min(AT_ONCE, episodes), dtype=np.int32)
        kept = min(AT_ONCE, episodes - begin)
        greedy = [_returns(program, pick(params, s), seed, numbers, 0.0)[:kept] for s in range(seeds)]
        chance = [_returns(program, pick(params, s), seed, numbers, 1.0)[:kept] for s in range(seeds)]
        parts.append((np.stack(greedy), np.stack(chance)))
    return Evaluation(*(np.concatenate(part, axis=1) for part in zip(*parts, strict=True)))


def episode(config: Config, params: Params, seed: int = 0) -> Played:
    """One greedy epoch of the agents with leaves [N, …], as NumPy arrays."""
    return jax.tree.map(np.asarray, _episode(Program(config), params, seed, 0, 0.0))


def pick(params: Params, seed: int) -> Params:
    """One seed's agents out of a population."""
    return jax.tree.map(lambda leaf: leaf[seed], params)


@partial(jax.jit, static_argnums=0)
def _episode(program: Program, params: Params, seed: jax.Array, number: jax.Array, epsilon: jax.Array) -> Played:
    w, n_frames = program.config.world, program.config.learner.n_frames
    key = keys.evaluation(seed)
    epsilons = jnp.full((w.num_agents,), epsilon, jnp.float32)
    # Acting uses the parameters and epsilon; what learning needs is left out.
    agents: Any = Agent(params, None, None, epsilons, None)  # type: ignore[arg-type]
    before = jnp.full((w.num_agents, n_frames - 1, program.learner.cells), world.EMPTY, jnp.int8)
    return program.play(program.draw_play(key, number), agents, before)


@partial(jax.jit, static_argnums=0)
def _returns(program: Program, params: Params, seed: jax.Array, numbers: jax.Array, epsilon: jax.Array) -> jax.Array:
    def one(number: jax.Array) -> jax.Array:
        return _episode(program, params, seed, number, epsilon).rows.rewards.sum(0)

    return jax.vmap(one)(numbers)
