"""The actor of `actors`: it steps some envs, with parameters that the learner publishes.

It draws what the synchronous loop draws for these envs and the same step, so that in lock step it plays the same
games. What it sends are single frames; stacking them is left to the memory.

Shapes: N envs of this actor, T steps, F frames per state.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys
from xladder.core.state import Arrays, capture, restore
from xladder.core.types import Compiled, Params
from xladder.families.value.program import Program
from xladder.families.value.stepping import Stepper
from xladder.replay.history import History, action_dtype

LARGEST_EPSILON = 0.4  # ε of the first of several actors, at least


class RolloutStats(NamedTuple):
    """What came of some steps, apart from the rows themselves."""

    steps: int  # of all envs together
    totals: np.ndarray  # float32 [games that ended]
    lengths: np.ndarray  # int32 [games that ended]


@dataclass(frozen=True)
class EnvSlice:
    """Which envs an actor has; it can be hashed, and so be a static argument."""

    program: Program
    first: int
    count: int


class Actor:
    """Envs `first` … `first` + `count` − 1 of a run's world."""

    def __init__(self, config: Any, seed: int, first: int, count: int, compiled: Compiled):
        self.env_slice, self.seed, self.compiled = EnvSlice(Program(config), first, count), seed, compiled
        self.key = keys.root(seed)
        self._choose = compiled(_choose)
        self.begin()

    def begin(self, generation: int = 0) -> None:
        """New games; other ones in every generation."""
        env_slice, world = self.env_slice, self.env_slice.program.config.world
        if getattr(world, "threads", None) == 0:
            world = replace(world, threads=1)  # the other actors need the other cores
        seed = (
            self.seed
            if generation == 0
            else int(np.random.SeedSequence((self.seed, generation)).generate_state(1)[0] >> 1)
        )
        self.games = Stepper(world.on_host(env_slice.count, seed, self.compiled, env_slice.first), world.stack)

    def rollout(self, params: Params, epsilon: float, step: int, steps: int) -> tuple[History, RolloutStats]:
        """So many steps of every env, from step number `step` on: their rows, leaves [N, T, …], and the games."""
        params = jax.tree.map(jnp.asarray, params)
        rows, ended = [], []
        for number in range(step, step + steps):
            given = self.key, np.int32(number), np.float32(epsilon), params, self.games.stack
            self.games.send(np.asarray(self._choose(self.env_slice, *given)))
            made = self.games.recv()
            reward, came = self.env_slice.program.reward(made.step), made.step
            row = History(made.frames, made.actions, reward, came.terminated, came.truncated, made.is_first)
            rows.append(row._asdict())
            ended.append(made.ended)
        chunk = History(**{name: np.stack([row[name] for row in rows], axis=1) for name in History._fields})
        over = np.concatenate([np.isfinite(one.totals) for one in ended])
        totals = np.concatenate([one.totals for one in ended])[over]
        lengths = np.concatenate([one.lengths for one in ended])[over]
        played = RolloutStats(steps * self.env_slice.count, totals, lengths.astype(np.int32))
        smallest = action_dtype(self.env_slice.program.spec.actions)
        return chunk._replace(actions=chunk.actions.astype(smallest)), played

    def state(self) -> dict[str, Any]:
        """What its games go on from; nothing where they cannot be carried over."""
        return self.games.state()

    def save(self) -> Arrays:
        """The same as named arrays."""
        return capture(self.state())

    def load(self, arrays: Arrays) -> None:
        """Go on from there."""
        self.games.take_state(restore(self.state(), arrays))


def actor_epsilon(epsilon: float, actor: int, actors: int) -> float:
    """ε of one of several actors: a power of the usual one, from it down.

    As in Horgan et al. 2018 the largest is 0.4 or above: down from a small ε, all actors would do the same.
    Whoever does not explore by ε at all keeps to that.
    """
    if actors == 1 or not epsilon:
        return float(epsilon)
    return float(max(epsilon, LARGEST_EPSILON) ** (1 + 7 * actor / (actors - 1)))


def _choose(
    env_slice: EnvSlice, key: jax.Array, step: jax.Array, epsilon: jax.Array, params: Params, stack: jax.Array
) -> jax.Array:
    mine = slice(env_slice.first, env_slice.first + env_slice.count)
    draws = jax.tree.map(lambda x: x[mine], env_slice.program.draw_act(key, step))
    return jnp.where(draws.explore < epsilon, draws.action, env_slice.program.greedy(params, stack, draws))
