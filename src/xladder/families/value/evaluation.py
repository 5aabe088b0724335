"""How good a value learner is: whole games without learning, in worlds and on a key stream of their own.

Every copy plays the same number of games, else short ones would count too often. ε is the protocol's; a game begins
with an empty stack of frames.

Shapes: S seeds, E episodes, N copies, F frames per state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys
from xladder.core.mapping import pick
from xladder.core.statistics import mean_and_interval
from xladder.core.types import Compiled, Params
from xladder.learners.value import midpoints
from xladder.policy import Observation, ValuePolicy
from xladder.replay import history_host

AT_ONCE = 32  # games side by side


class Measurement(NamedTuple):
    """What an evaluation in the middle of training finds."""

    columns: Mapping[str, np.ndarray]
    picture: None = None


class Games(NamedTuple):
    """What came of an agent's games."""

    returns: np.ndarray  # float [E]
    left: int  # how many of them did not end


def measure(config: Any, params: Params, tick: int, compiled: Compiled) -> Measurement:
    """The mean return of every seed's agent, leaves [S, …], in a few games that are the same every time."""
    seeds = jax.tree.leaves(params)[0].shape[0]
    games = [
        play(config, pick(params, s), config.evaluate_episodes, 0, compiled, config.evaluate_epsilon)
        for s in range(seeds)
    ]
    return Measurement({"eval_return": np.array([one.returns.mean() for one in games], np.float32)})


def score(config: Any, params: Params, episodes: int, seed: int, compiled: Compiled) -> dict[str, Any]:
    """Play `episodes` with every seed's agent, and at random beside it.

    There are fewer where games do not end: `episodes` is how many there were, and `unfinished` how many were left. With
    one seed the interval is over episodes, with several over the seeds' means.
    """
    seeds = jax.tree.leaves(params)[0].shape[0]
    epsilon = config.evaluate_epsilon
    games = [play(config, pick(params, s), episodes, seed, compiled, epsilon) for s in range(seeds)]
    means = np.array([one.returns.mean() for one in games])
    mean, interval = mean_and_interval(means if seeds > 1 else games[0].returns)
    chance, chance_interval = mean_and_interval(play(config, pick(params, 0), episodes, seed, compiled, 1.0).returns)
    return {
        "mean_return": float(mean),
        "ci95": float(interval),
        "median_return": float(np.median(np.concatenate([one.returns for one in games]))),
        "per_agent": [float(mean)],
        "episodes": min(len(one.returns) for one in games),
        "unfinished": sum(one.left for one in games),
        "seeds": seeds,
        "epsilon": epsilon,
        "random_return": float(chance),
        "random_ci95": float(chance_interval),
    }


def play(config: Any, params: Params, episodes: int, seed: int, compiled: Compiled, epsilon: float) -> Games:
    """An agent's games. One that does not end is left after `config.longest_game` steps, and nobody plays on then."""
    copies = min(episodes, AT_ONCE)
    quota = -(-episodes // copies)
    actor = Actor(config, params, copies, seed, compiled)
    found: list[list[tuple[float, bool]]] = [[] for _ in range(copies)]  # reward, and whether the game was left
    totals, steps = np.zeros(copies), np.zeros(copies, int)
    owing = np.ones(copies, bool)
    try:
        actor.reset()
        for step in count():
            answer = actor.advance(step, epsilon)
            totals += np.asarray(answer.reward)
            steps += 1
            # An end shows one step later, when the next game begins; until then a lost life may be meant.
            for i in np.flatnonzero(answer.first):
                found[i].append((float(totals[i]), False))
                totals[i], steps[i] = 0.0, 0
                owing[i] = len(found[i]) < quota
            if not np.any(owing & (steps < config.longest_game)):
                break
    finally:
        actor.close()
    for i in np.flatnonzero(owing):
        found[i].append((float(totals[i]), True))  # what a game that never ends has brought so far
    # As many games of each copy as the one with the fewest has.
    games = [game for each in zip(*(games[:quota] for games in found), strict=False) for game in each][:episodes]
    return Games(np.array([total for total, _ in games]), sum(left for _, left in games))


class Actor:
    """An agent in copies of its world on the host."""

    def __init__(self, config: Any, params: Params, copies: int, seed: int, compiled: Compiled):
        self.program = config.family.program(config)
        self.params, self.stack_size = params, config.world.stack
        # Apart from all training: a run's own seeds lie below 2³¹ as well, so the number is mixed.
        apart = int(np.random.SeedSequence((seed, 7)).generate_state(1)[0] >> 1)
        self.worlds = config.world.on_host(copies, apart, compiled)
        self.key = keys.evaluation(seed)
        self._choose = compiled(_choose)

    def reset(self) -> np.ndarray:
        """First frames [N, …]."""
        frames = np.asarray(self.worlds.reset())
        stack = np.zeros((len(frames), self.stack_size, *frames.shape[1:]), frames.dtype)
        self.stack = history_host.push(stack, frames, np.ones(len(frames), bool))
        return frames

    def advance(self, step: int, epsilon: float) -> Any:
        """One step of every copy."""
        actions = self._choose(self.program, self.params, self.stack, self.key, np.int32(step), np.float32(epsilon))
        self.worlds.send(np.asarray(actions))
        answer = self.worlds.recv()
        self.stack = history_host.push(self.stack, np.asarray(answer.frame), np.asarray(answer.first))
        return answer

    def close(self) -> None:
        """End the worlds' threads."""
        self.worlds.close()


def policy(config: Any, params: Params, compiled: Compiled) -> ValuePolicy:
    """What an agent does: the last frames, as the world gives them and noughts before a game's first, to actions."""
    program = config.family.program(config)
    view, dtype = program.view, np.dtype(program.view.dtype)
    most = {"u": 256, "b": 2}.get(dtype.kind)
    seen = Observation((config.world.stack, *view.shape), dtype, most, "frames")
    return ValuePolicy(seen, lambda states: compiled(_values)(program, params, states))


def _values(program: Any, params: Params, states: jax.Array) -> jax.Array:
    """float32 [B, A]: without noise and, where fractions are needed, at fixed ones: a state always gives the same."""
    learner = program.learner
    fractions = program.config.learner.act_quantiles if learner.fractions else 0
    taus = jnp.asarray(midpoints(fractions))
    return learner.values(params, states, jnp.broadcast_to(taus[None], (states.shape[0], fractions)), None)


def _choose(
    program: Any, params: Params, stack: jax.Array, key: jax.Array, step: jax.Array, epsilon: jax.Array
) -> jax.Array:
    """int32 [N]: the best actions by the weights as they are, without noise, or random ones with probability ε."""
    copies, learner = stack.shape[0], program.learner
    fractions = program.config.learner.act_quantiles if learner.fractions else 0
    uniforms = jax.random.uniform(keys.address(key, step, 0, keys.Stream.ACT), (copies, 2 + fractions))
    values = learner.values(params, stack, uniforms[:, 2:], None)
    action = jnp.minimum((uniforms[:, 1] * program.view.actions).astype(jnp.int32), program.view.actions - 1)
    return jnp.where(uniforms[:, 0] < epsilon, action, jnp.argmax(values, axis=-1).astype(jnp.int32))


def choose_one(config: Any, params: Params, seed: int, compiled: Compiled) -> Callable[[np.ndarray], int]:
    """The policy as a function from one state [F, …] to an action; it counts its own steps."""
    program, key, choose = config.family.program(config), keys.evaluation(seed), compiled(_choose)
    steps = count()

    def policy(state: np.ndarray) -> int:
        given = params, state[None], key, np.int32(next(steps)), np.float32(config.evaluate_epsilon)
        return int(choose(program, *given)[0])

    return policy
