"""Players, shards and a learner that wait for each other: the synchronous algorithm, spread over processes.

Every player acts with the parameters of this very tick and draws what the copies it has draw on every rung; the shards
answer with the rows that one memory would have given. So transitions, parameters and metrics are those of `sequential`
and `parallel`: the proof that what `actors` runs is the same algorithm. It stays so when a process is lost, because
what it knew is told again to the one that follows.

Shapes: T steps per tick, K updates per tick, B batch, R candidates.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from xladder.core.state import Stateful
from xladder.distributed.action_log import Call, Journalled
from xladder.distributed.learner import Student
from xladder.distributed.remote import Remote
from xladder.distributed.workers import SILENT_SECONDS, Fleet, silent
from xladder.families.value.stepping import Ended, Report
from xladder.replay.packed import Strips, placed, weighted
from xladder.replay.shard import Offer, Sample

PLAYS_KEPT = 16  # ticks that a player who comes back has to play again, at most


class LockStep(Stateful):
    """One experiment."""

    STATE = ("tick", "student")

    def __init__(self, config: Any, fleet: Fleet, student: Student):
        self.config, self.fleet, self.student, self.program = config, fleet, student, student.program
        self.tick, engine = 0, fleet.engine
        carried = bool(engine.get(fleet.players[0].ask("save")))
        adds = max(16, 2 * self.program.window.length // config.steps_per_tick)  # until a shard is written anew
        ways = engine, self.readmit, silent, SILENT_SECONDS
        self.players = [Journalled(player, *ways, PLAYS_KEPT, carried) for player in fleet.players]
        self.shards = [Journalled(shard, *ways, adds, True) for shard in fleet.shards]
        self.carried = carried
        self.unread: list[tuple[Journalled, Call]] = []
        self.seconds: dict[str, list[float]] = {"sampling": [], "update": []}

    def advance(self) -> dict[str, Any]:
        """One tick: play, learn from what was remembered before its last step, remember that."""
        begun, tick, c = time.perf_counter(), self.tick, self.config
        self.settle()
        epsilon, steps = float(self.program.epsilon(tick)), c.steps_per_tick
        params = self.fleet.engine.put(self.student.params())
        given = params, epsilon, tick * steps, steps
        plays = [player.tell("play", *given, answers=2) for player in self.players]
        played = [player.read(call, which=1) for player, call in zip(self.players, plays, strict=True)]
        rows = [call.ticket[0] for call in plays]
        self.add(rows, 0, steps - 1)
        loss, staleness, learned = np.nan, np.nan, 0.0
        learning = bool(self.program.is_learning(tick))
        if learning:
            begun_learning = time.perf_counter()
            loss, staleness = self.study()
            learned = time.perf_counter() - begun_learning
        self.add(rows, steps - 1, steps)
        self.tick += 1
        self.seconds["sampling"].append(time.perf_counter() - begun - learned)
        self.seconds["update"].append(learned)
        ended = [Ended(one.totals, one.lengths) for one in played]
        row = Report(ended, [loss], epsilon, c.updates_per_tick * learning, agents=0).columns()
        ratio = self.student.rows_per_tick / c.per_tick if learning else np.nan
        apart = {"lag": 0.0, "staleness": staleness, "ratio": ratio, "queue_chunks": 0.0, "queue_batches": 0.0}
        return row | {name: np.float32(value) for name, value in apart.items()}

    def add(self, rows: list[Any], begin: int, end: int) -> None:
        """Steps `begin` … `end` − 1 of what was played, into the shards."""
        if begin == end:
            return
        for shard, players in zip(self.shards, self.fleet.layout.players, strict=True):
            self.unread.append((shard, shard.tell("add", 0, begin, end, *(rows[player] for player in players))))

    def study(self) -> tuple[float, float]:
        """The updates of a tick. Returns the mean loss, and how many ticks ago what they learn from was played."""
        uniforms, gamma = self.student.draw(self.tick), self.config.learner.gamma
        if len(self.shards) > 1:
            batch, age = self.gather(uniforms, gamma)
            loss, _ = self.student.learn(self.tick, batch)
        else:
            (shard,) = self.shards
            sample: Sample = shard.read(shard.ask("sample", uniforms, gamma))
            batch, age = sample.batch, sample.age
            if self.config.learner.prioritised:
                beta = float(self.program.beta(self.tick))
                batch = weighted(batch, sample.chance, self.config.updates_per_tick, beta)
            loss, errors = self.student.learn(self.tick, batch)
            if self.config.learner.prioritised:
                self.unread.append((shard, shard.tell("rate", sample.rows, np.asarray(errors))))
        return float(loss), float(np.mean(age)) / self.config.steps_per_tick

    def gather(self, uniforms: np.ndarray, gamma: float) -> tuple[Strips, np.ndarray]:
        """What a memory in one piece would have answered, and how old each row is."""
        layout, calls = self.fleet.layout, []
        for j, shard in enumerate(self.shards):
            calls.append(shard.ask("offer", uniforms, layout.copies_of_shard(j)[0], layout.num_envs, gamma))
        offers: list[Offer] = [shard.read(call) for shard, call in zip(self.shards, calls, strict=True)]
        ranks = np.stack([offer.rank for offer in offers])  # [J, M]
        chosen, none = np.argmin(ranks, axis=0), uniforms.shape[1]
        parts, age = [], np.zeros(len(uniforms), int)
        for j, offer in enumerate(offers):
            has = offer.rank < none
            mine = has & (chosen == j)
            parts.append((np.flatnonzero(mine), Strips(*(column[mine[has]] for column in offer.batch))))
            age[mine] = offer.age[mine[has]]
        return placed(parts, len(uniforms)), age

    def readmit(self, remote: Remote) -> None:
        """Somebody was lost: wait until they are back, and say so."""
        self.fleet.readmit(remote)
        playing = remote in self.fleet.players
        again = "begins new games" if playing and not self.carried else "is told again what it knew"
        self.fleet.say(f"{remote.name} was lost in tick {self.tick:,}; it is back and {again}.")

    def settle(self) -> None:
        """See that all that was told has been done; nothing else is under way between two ticks."""
        unread, self.unread = self.unread, []
        for shard, call in unread:
            shard.read(call)

    def save_others(self) -> tuple[list[Any], list[Any]]:
        """What players and shards hold."""
        asked = [[(one, one.ask("save")) for one in group] for group in (self.players, self.shards)]
        players, shards = ([one.read(call) for one, call in pairs] for pairs in asked)
        return players, shards

    def close(self) -> None:
        """Nothing is under way."""

    def load_others(self, players: list[Any], shards: list[Any]) -> None:
        """Have them hold that again."""
        for one, arrays in zip([*self.players, *self.shards], [*players, *shards], strict=True):
            one.load(arrays)
