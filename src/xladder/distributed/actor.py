"""Who plays some of the copies of a world, with parameters that somebody else learns: the actor of `actors`.

It draws what the synchronous loop draws for these copies and the same step, so that in lock step it plays the same
games. What it sends are single frames; stacking them is left to the memory.

Shapes: N copies of this player, T steps, F frames per state.
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
from xladder.families.value.host_loop import Score
from xladder.families.value.program import Program
from xladder.replay import history_host
from xladder.replay.history import History

LADDER_TOP = 0.4  # ε of the first of several players, at least


class Played(NamedTuple):
    """What came of some steps, apart from the rows themselves."""

    steps: int  # of all copies together
    totals: np.ndarray  # float32 [games that ended]
    lengths: np.ndarray  # int32 [games that ended]


@dataclass(frozen=True)
class Seat:
    """Which copies of the world a player has; it can be hashed, and so be a static argument."""

    program: Program
    first: int
    count: int


class Player:
    """Copies `first` … `first` + `count` − 1 of a run's world."""

    def __init__(self, config: Any, seed: int, first: int, count: int, compiled: Compiled):
        self.seat, self.seed, self.compiled = Seat(Program(config), first, count), seed, compiled
        self.key = keys.root(seed)
        self._choose = compiled(_choose)
        self.begin()

    def begin(self, life: int = 0) -> None:
        """New games; other ones in every life."""
        seat, world = self.seat, self.seat.program.config.world
        if getattr(world, "threads", None) == 0:
            world = replace(world, threads=1)  # the other players need the other cores
        seed = self.seed if life == 0 else int(np.random.SeedSequence((self.seed, life)).generate_state(1)[0] >> 1)
        self.worlds = world.on_host(seat.count, seed, self.compiled, seat.first)
        frames = self.worlds.reset()
        self.score, self.first = Score(seat.count), np.ones(seat.count, bool)
        stack = np.zeros((seat.count, world.stack, *frames.shape[1:]), frames.dtype)
        self.stack = history_host.push(stack, frames, self.first)

    def play(self, params: Params, epsilon: float, step: int, steps: int) -> tuple[History, Played]:
        """So many steps of every copy, from step number `step` on: their rows, leaves [N, T, …], and the games."""
        params = jax.tree.map(jnp.asarray, params)
        clip = self.seat.program.config.learner.clip_rewards
        rows, ended = [], []
        for number in range(step, step + steps):
            given = self.key, np.int32(number), np.float32(epsilon), params, self.stack
            actions = np.asarray(self._choose(self.seat, *given))
            self.worlds.send(actions)
            answer = self.worlds.recv()
            reward = np.clip(answer.reward, -1.0, 1.0) if clip else answer.reward
            rows.append(
                History(self.stack[:, -1], actions, reward, answer.terminated, answer.truncated, self.first)._asdict()
            )
            self.stack = history_host.push(self.stack, np.asarray(answer.frame), answer.first)
            self.first = np.asarray(answer.first)
            ended += self.score.add(answer)
        chunk = History(**{name: np.stack([row[name] for row in rows], axis=1) for name in History._fields})
        totals, lengths = np.array(ended, np.float32).reshape(-1, 2).T
        played = Played(steps * self.seat.count, totals, lengths.astype(np.int32))
        return chunk._replace(actions=chunk.actions.astype(np.int8)), played

    def state(self) -> dict[str, Any]:
        """What its games go on from; nothing where they cannot be carried over."""
        if not hasattr(self.worlds, "take_state"):
            return {}
        return {"worlds": self.worlds, "score": self.score, "stack": self.stack, "first": self.first}

    def save(self) -> Arrays:
        """The same as named arrays."""
        return capture(self.state())

    def load(self, arrays: Arrays) -> None:
        """Go on from there."""
        for name, value in restore(self.state(), arrays).items():
            setattr(self, name, value)


def ladder(epsilon: float, player: int, players: int) -> float:
    """ε of one of several players: a power of the usual one, from it down.

    As in Horgan et al. 2018 the ladder starts at 0.4 or above: down from a small ε, all players would do the same.
    Whoever does not explore by ε at all keeps to that.
    """
    if players == 1 or not epsilon:
        return float(epsilon)
    return float(max(epsilon, LADDER_TOP) ** (1 + 7 * player / (players - 1)))


def _choose(
    seat: Seat, key: jax.Array, step: jax.Array, epsilon: jax.Array, params: Params, stack: jax.Array
) -> jax.Array:
    mine = slice(seat.first, seat.first + seat.count)
    draws = jax.tree.map(lambda x: x[mine], seat.program.draw_act(key, step))
    return jnp.where(draws.explore < epsilon, draws.action, seat.program.greedy(params, stack, draws))
