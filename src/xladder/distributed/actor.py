"""The actor of the `actors` rung: it steps a slice of the envs with parameters published by the learner.

It draws the same random numbers as the synchronous loop does for these envs and steps, so in lock step it produces the
same transitions. It sends single frames; the replay memory stacks them.

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
from xladder.families.value.config import ValueConfig
from xladder.families.value.program import Program
from xladder.families.value.stepping import Stepper
from xladder.replay.history import History, action_dtype

LARGEST_EPSILON = 0.4  # the first of several actors has at least this ε


class RolloutStats(NamedTuple):
    """Statistics of a rollout, without its rows."""

    steps: int  # over all envs
    totals: np.ndarray  # float32 [episodes that ended]
    lengths: np.ndarray  # int32 [episodes that ended]


@dataclass(frozen=True)
class EnvSlice:
    """The contiguous slice of envs that an actor steps; hashable, so it can be a static argument."""

    program: Program
    first: int
    count: int


class Actor:
    """Steps envs `first` … `first` + `count` − 1 of a run."""

    def __init__(self, config: ValueConfig, seed: int, first: int, count: int, compiled: Compiled):
        self.env_slice, self.seed, self.compiled = EnvSlice(Program(config), first, count), seed, compiled
        self.key = keys.root(seed)
        self._choose = compiled(_choose)
        self.games = self._stepper(seed)

    def begin(self, generation: int) -> None:
        """Begin new episodes, in new envs with seeds of an actor that was restarted so many times."""
        self.games.close()
        self.games = self._stepper(int(np.random.SeedSequence((self.seed, generation)).generate_state(1)[0] >> 1))

    def _stepper(self, seed: int) -> Stepper:
        """The envs with these seeds, reset."""
        env_slice, world = self.env_slice, self.env_slice.program.config.world
        if getattr(world, "threads", None) == 0:
            world = replace(world, threads=1)  # the other actors need the other cores
        return Stepper(world.on_host(env_slice.count, seed, self.compiled, env_slice.first), world.stack)

    def rollout(self, params: Params, epsilon: float, step: int, steps: int) -> tuple[History, RolloutStats]:
        """Step every env `steps` times, the first of them being step number `step` of the run.

        Returns:
            The transitions, leaves [N, T, …], and the statistics of the episodes that ended.
        """
        params = jax.tree.map(jnp.asarray, params)
        rows, ended = [], []
        for number in range(step, step + steps):
            given = self.key, np.int32(number), np.float32(epsilon), params, self.games.stack
            self.games.send(np.asarray(self._choose(self.env_slice, *given)))
            made = self.games.recv()
            rows.append(made.columns(self.env_slice.program.reward(made.step))._asdict())
            ended.append(made.ended)
        chunk = History(**{name: np.stack([row[name] for row in rows], axis=1) for name in History._fields})
        over = np.concatenate([np.isfinite(one.totals) for one in ended])
        totals = np.concatenate([one.totals for one in ended])[over]
        lengths = np.concatenate([one.lengths for one in ended])[over]
        played = RolloutStats(steps * self.env_slice.count, totals, lengths.astype(np.int32))
        smallest = action_dtype(self.env_slice.program.spec.actions)
        return chunk._replace(actions=chunk.actions.astype(smallest)), played

    def state(self) -> dict[str, Any]:
        """The state of the envs; empty where the environment cannot be saved."""
        return self.games.state()

    def save(self) -> Arrays:
        """The same state as named arrays."""
        return capture(self.state())

    def load(self, arrays: Arrays) -> None:
        """Restore a state that `save` returned."""
        self.games.take_state(restore(self.state(), arrays))


def actor_epsilon(epsilon: float, actor: int, actors: int) -> float:
    """ε of one of several actors: a power of the base ε, decreasing with the actor's number (Horgan et al. 2018).

    The base is at least 0.4, as in that paper: with a small base, all actors would act alike. An ε of 0 stays 0.
    """
    if actors == 1 or not epsilon:
        return float(epsilon)
    return float(max(epsilon, LARGEST_EPSILON) ** (1 + 7 * actor / (actors - 1)))


def _choose(
    env_slice: EnvSlice, key: jax.Array, step: jax.Array, epsilon: jax.Array, params: Params, stack: jax.Array
) -> jax.Array:
    mine = slice(env_slice.first, env_slice.first + env_slice.count)
    draws = jax.tree.map(lambda x: x[mine], env_slice.program.draw_act(key, step))
    greedy = env_slice.program.greedy(params, stack, (), draws).actions
    return env_slice.program.explore(greedy, stack, draws, epsilon)
