"""Actors, shards and learner in lock step: the synchronous algorithm, distributed over processes.

Every actor acts with the parameters of the current tick and draws the random numbers that its envs draw on every rung;
the shards together return the rows that a single replay memory would. So transitions, parameters and metrics equal
those of `sequential` and `parallel`, which shows that `actors` runs the same algorithm. This holds even when a process
is lost, because its calls are replayed on the replacement.

Shapes: T steps per tick, K updates per tick, B batch, R candidates.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from xladder.core.state import Stateful
from xladder.distributed.action_log import Call, LoggedRemote
from xladder.distributed.learner import Learner
from xladder.distributed.remote import Remote
from xladder.distributed.workers import SILENT_SECONDS, WorkerGroup, silent
from xladder.families.value.config import ValueConfig
from xladder.families.value.stepping import Ended, Report
from xladder.replay.packed import PackedTrajectories, placed, weighted
from xladder.replay.shard import Offer, Sample

ROLLOUTS_KEPT = 16  # ticks that a restarted actor has to replay, at most


class LockStep(Stateful):
    """The training loop of one run in lock step."""

    STATE = ("tick", "learner")

    def __init__(self, config: ValueConfig, workers: WorkerGroup, learner: Learner):
        self.config, self.workers, self.learner, self.program = config, workers, learner, learner.program
        self.tick, engine = 0, workers.engine
        carried = bool(engine.get(workers.actors[0].call("save")))
        adds = max(16, 2 * self.program.window.length // config.steps_per_tick)  # calls until a shard is saved again
        ways = engine, self.restart, silent, SILENT_SECONDS
        self.actors = [LoggedRemote(actor, *ways, ROLLOUTS_KEPT, carried) for actor in workers.actors]
        self.shards = [LoggedRemote(shard, *ways, adds, True) for shard in workers.shards]
        self.carried = carried
        self.unread: list[tuple[LoggedRemote, Call]] = []
        self.seconds: dict[str, list[float]] = {"sampling": [], "update": []}

    def advance(self) -> dict[str, Any]:
        """Run one tick: a rollout, the updates, and its metrics. The updates do not see the rollout's last step."""
        begun, tick, c = time.perf_counter(), self.tick, self.config
        self.settle()
        epsilon, steps = float(self.program.epsilon(tick)), c.steps_per_tick
        params = self.workers.engine.put(self.learner.params())
        given = params, epsilon, tick * steps, steps
        rollouts = [actor.call_logged("rollout", *given, answers=2) for actor in self.actors]
        played = [actor.read(call, which=1) for actor, call in zip(self.actors, rollouts, strict=True)]
        rows = [call.future[0] for call in rollouts]
        self.add(rows, 0, steps - 1)
        loss, staleness, learned = np.nan, np.nan, 0.0
        learning = bool(self.program.is_learning(tick))
        if learning:
            begun_learning = time.perf_counter()
            loss, staleness = self.learn()
            learned = time.perf_counter() - begun_learning
        self.add(rows, steps - 1, steps)
        self.tick += 1
        self.seconds["sampling"].append(time.perf_counter() - begun - learned)
        self.seconds["update"].append(learned)
        ended = [Ended(one.totals, one.lengths) for one in played]
        row = Report(ended, [loss], epsilon, c.updates_per_tick * learning, agents=0).columns()
        ratio = self.learner.rows_per_tick / c.per_tick if learning else np.nan
        apart = {"lag": 0.0, "staleness": staleness, "ratio": ratio, "queue_chunks": 0.0, "queue_batches": 0.0}
        return row | {name: np.float32(value) for name, value in apart.items()}

    def add(self, rows: list[Any], begin: int, end: int) -> None:
        """Store steps `begin` … `end` − 1 of a rollout in the shards."""
        if begin == end:
            return
        for shard, actors in zip(self.shards, self.workers.layout.actors, strict=True):
            self.unread.append((shard, shard.call_logged("add", 0, begin, end, *(rows[actor] for actor in actors))))

    def learn(self) -> tuple[float, float]:
        """Run the updates of one tick. Returns the mean loss and the mean age of the samples in ticks."""
        uniforms, gamma = self.learner.draw(self.tick), self.config.learner.gamma
        if len(self.shards) > 1:
            batch, age = self.gather(uniforms, gamma)
            loss, _ = self.learner.learn(self.tick, batch)
        else:
            (shard,) = self.shards
            sample: Sample = shard.read(shard.call("sample", uniforms, gamma))
            batch, age = sample.batch, sample.age
            if self.config.learner.prioritised:
                beta = float(self.program.beta(self.tick))
                batch = weighted(batch, sample.probability, self.config.updates_per_tick, beta)
            loss, errors = self.learner.learn(self.tick, batch)
            if self.config.learner.prioritised:
                self.unread.append((shard, shard.call_logged("update_priorities", sample.rows, np.asarray(errors))))
        return float(loss), float(np.mean(age)) / self.config.steps_per_tick

    def gather(self, uniforms: np.ndarray, gamma: float) -> tuple[PackedTrajectories, np.ndarray]:
        """Combine the shards' offers into the sample of a single memory. Returns the rows and their ages."""
        layout, calls = self.workers.layout, []
        for j, shard in enumerate(self.shards):
            calls.append(shard.call("offer", uniforms, layout.envs_of_shard(j)[0], layout.num_envs, gamma))
        offers: list[Offer] = [shard.read(call) for shard, call in zip(self.shards, calls, strict=True)]
        ranks = np.stack([offer.rank for offer in offers])  # [J, M]
        chosen, none = np.argmin(ranks, axis=0), uniforms.shape[1]
        parts, age = [], np.zeros(len(uniforms), int)
        for j, offer in enumerate(offers):
            has = offer.rank < none
            mine = has & (chosen == j)
            parts.append((np.flatnonzero(mine), PackedTrajectories(*(column[mine[has]] for column in offer.batch))))
            age[mine] = offer.age[mine[has]]
        return placed(parts, len(uniforms)), age

    def restart(self, remote: Remote) -> None:
        """Wait until a lost worker has been restarted, and report it."""
        self.workers.restart(remote)
        playing = remote in self.workers.actors
        again = "begins new episodes" if playing and not self.carried else "its state has been replayed"
        self.workers.notify(f"{remote.name} was lost in tick {self.tick:,}; it was restarted and {again}.")

    def settle(self) -> None:
        """Wait until all calls have been carried out; afterwards nothing is in flight."""
        unread, self.unread = self.unread, []
        for shard, call in unread:
            shard.read(call)

    def save_others(self) -> tuple[list[Any], list[Any]]:
        """The states of all actors and of all shards."""
        asked = [[(one, one.call("save")) for one in group] for group in (self.actors, self.shards)]
        actors, shards = ([one.read(call) for one, call in pairs] for pairs in asked)
        return actors, shards

    def close(self) -> None:
        """Nothing to do: nothing is in flight between ticks."""

    def load_others(self, actors: list[Any], shards: list[Any]) -> None:
        """Restore the states of all actors and shards."""
        for one, arrays in zip([*self.actors, *self.shards], [*actors, *shards], strict=True):
            one.load(arrays)
