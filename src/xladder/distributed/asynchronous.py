"""Asynchronous actors, replay shards and learner (Nair et al. 2015, Horgan et al. 2018).

Each actor always has rollouts in flight, with the parameters that were published last, and sends its rows directly to
a shard. The learner prefetches batches while it learns from others. A `Limiter` keeps the ratio of samples to steps. A
tick has the same number of steps and updates as on every rung, but which rows are sampled depends on timing: the same
seed does not give the same run.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import jax
import numpy as np

from xladder.core.state import Stateful
from xladder.distributed.actor import RolloutStats, actor_epsilon
from xladder.distributed.health import HealthMonitor
from xladder.distributed.learner import Learner
from xladder.distributed.prefetch import Prefetcher, TickBatch, ticks_per_order
from xladder.distributed.remote import Lost, Remote, RemoteFuture
from xladder.distributed.workers import WorkerGroup
from xladder.errors import PeerLost
from xladder.families.value.config import ValueConfig
from xladder.families.value.stepping import Ended, Report
from xladder.replay.limiter import Limiter
from xladder.replay.shard import Held

CHUNK_STEPS = 8  # per env and message; a smaller number costs more messages, a larger one means older parameters
AHEAD = 2  # chunks in flight per actor: one running, one queued
PUBLISH_SECONDS = 0.05  # least time between two publications of the parameters, which take time to copy
WAIT = 0.05  # seconds to wait for a result before checking everything again


class Chunk(NamedTuple):
    """A rollout that is in flight."""

    actor: int
    rows: RemoteFuture
    steps: int
    version: int
    excused: bool  # whether the limiter does not count its steps
    generation: int  # of the actor that runs it, later of the shard that stores it


class Asynchronous(Stateful):
    """The training loop of one asynchronous run."""

    STATE = ("tick", "steps", "learner", "limiter")

    def __init__(self, config: ValueConfig, workers: WorkerGroup, learner: Learner):
        self.config, self.workers, self.learner, self.engine = config, workers, learner, workers.engine
        self.program = learner.program
        self.chunk = max(1, min(CHUNK_STEPS, self.program.window.length // 4))
        ahead = AHEAD * self.chunk * config.world.num_envs + ticks_per_order(config, learner) * config.per_tick
        self.limiter = Limiter(
            ratio=learner.rows_per_tick / config.per_tick,
            begins=-(-config.learning_begins // config.per_tick) * config.per_tick,
            slack=ahead,
        )
        self.health = HealthMonitor(workers, self.on_loss, self.on_return)
        self.prefetcher = Prefetcher(config, workers, learner, self.limiter, self.health)
        self.tick = 0
        self.steps = np.zeros(len(workers.actors), np.int64)  # per actor: where its next chunk begins
        self.turn = 0  # the actor to consider first for the next chunk
        self.playing: dict[RemoteFuture, Chunk] = {}
        self.sending: dict[RemoteFuture, Chunk] = {}
        self.waiting: list[Chunk] = []  # chunks whose shard is lost
        self.published: RemoteFuture = None
        self.version, self.published_at = -1, 0.0
        self.pending_errors: tuple[TickBatch, jax.Array] | None = None
        self.ended: list[Ended] = []
        self.lags: list[int] = []
        self.seconds: dict[str, list[float]] = {"sampling": [], "update": []}

    # ---- a tick ----------------------------------------------------------------------------------------------------

    def advance(self) -> dict[str, Any]:
        """Run one tick and return its metrics. The loss is a device array that is not waited for."""
        begun, tick, c = time.perf_counter(), self.tick, self.config
        loss: Any = np.float32(np.nan)
        staleness, learned, learning = np.nan, 0.0, bool(self.program.is_learning(tick))
        while self.limiter.inserted < (tick + 1) * c.per_tick:
            self.attend(WAIT)
        if learning:
            tick_batch = self.next_tick_batch()
            begun_learning = time.perf_counter()
            loss = self.learn(tick_batch)
            learned = time.perf_counter() - begun_learning
            staleness = float(np.mean(tick_batch.age)) / c.steps_per_tick
        self.tick += 1
        self.attend(0.0)
        self.seconds["sampling"].append(time.perf_counter() - begun - learned)
        self.seconds["update"].append(learned)
        ended, lags = self.ended, self.lags
        self.ended, self.lags = [], []
        epsilon = float(self.program.epsilon(tick))
        row = Report(ended, (), epsilon, c.updates_per_tick * learning, agents=0).columns()
        apart = {
            "lag": np.mean(lags) if lags else np.nan,
            "staleness": staleness,
            "ratio": self.limiter.measured(),
            "queue_chunks": len(self.playing) + len(self.sending) + len(self.waiting),
            "queue_batches": self.prefetcher.waiting(),
        }
        return row | {"loss": loss} | {name: np.float32(value) for name, value in apart.items()}

    def next_tick_batch(self) -> TickBatch:
        """Wait for this tick's batch and return it; the following ones are requested meanwhile."""
        while True:
            self.prefetcher.order()
            futures = self.prefetcher.futures()
            while futures:
                ready = self.engine.ready(futures, WAIT)
                futures = [future for future in futures if future not in ready]
                self.attend(0.0)
            tick_batch = self.prefetcher.take()
            if tick_batch is not None:
                self.prefetcher.order()
                self.prefetcher.unpack()
                return tick_batch
            self.attend(WAIT)

    def learn(self, tick_batch: TickBatch) -> jax.Array:
        """Run the updates of one tick; returns the loss without waiting for it."""
        batch = self.prefetcher.weighted(tick_batch, float(self.program.beta(self.tick)))
        self.update_priorities()
        loss, errors = self.learner.learn(self.tick, batch)
        if self.config.learner.prioritised:
            self.pending_errors = tick_batch, errors
        return loss

    def update_priorities(self) -> None:
        """Send the TD errors of the previous tick to the shards; a tick late, so that they are there already."""
        if self.pending_errors is not None:
            (tick_batch, errors), self.pending_errors = self.pending_errors, None
            self.prefetcher.update_priorities(tick_batch, np.asarray(errors))

    # ---- steps -----------------------------------------------------------------------------------------------------

    def attend(self, seconds: float, granting: bool = True) -> None:
        """Handle all results that have arrived and give actors new chunks.

        Args:
            seconds: how long to wait if nothing has arrived.
            granting: whether actors may begin new chunks.
        """
        if granting:
            self.grant()
        futures = [*self.playing, *self.sending, *self.health.futures()]
        ready = self.engine.ready(futures, seconds) if futures else []
        if not futures:
            time.sleep(seconds)
        for future in ready:
            if future in self.playing:
                self.take_rows(future, self.playing.pop(future))
            elif future in self.sending:
                self.take_note(future, self.sending.pop(future))
        self.health.check()
        if granting and ready:
            self.grant()

    def grant(self) -> None:
        """Give idle actors their next chunks, as far as the limiter allows.

        Round robin: if the first idle actor were always chosen, a tight limiter would starve the others.
        """
        busy = np.array([0.0 if self.may_be_asked(actor) else np.inf for actor in range(len(self.workers.actors))])
        for chunk in self.playing.values():
            busy[chunk.actor] += 1
        while busy.min() < AHEAD:
            free = np.flatnonzero(busy < AHEAD)
            actor = int(free[np.argmin((free - self.turn) % len(busy))])
            steps = self.chunk * len(self.workers.layout.envs[actor])
            # After the loss of a shard there may be too little to sample from; steps that refill it are not counted.
            excused = self.prefetcher.is_starved()
            if not excused and not self.limiter.may_act(steps):
                return
            self.begin_chunk(actor, steps, excused)
            busy[actor] += 1
            self.turn = (actor + 1) % len(busy)

    def begin_chunk(self, actor: int, steps: int, excused: bool) -> None:
        """Start the next rollout of an actor."""
        self.publish()
        # ε at the number of steps granted so far: the learner will be about there when these steps are done.
        now = float(self.program.epsilon(self.limiter.granted // self.config.per_tick))
        epsilon = actor_epsilon(now, actor, len(self.workers.actors))
        given = self.published, epsilon, int(self.steps[actor]), self.chunk
        remote = self.workers.actors[actor]
        rows, played = remote.call("rollout", *given, answers=2)
        self.health.expect(remote, played)
        self.playing[played] = Chunk(actor, rows, steps, self.version, excused, remote.generation)
        self.steps[actor] += self.chunk
        self.limiter.granted += 0 if excused else steps

    def may_be_asked(self, actor: int) -> bool:
        """Whether an actor and the shard that stores its rows are both alive."""
        shard, _ = self.workers.layout.shard_of(actor)
        return not any(self.health.is_lost(one) for one in (self.workers.actors[actor], self.workers.shards[shard]))

    def publish(self) -> None:
        """Publish the learner's parameters, if they have changed and the last publication is old enough."""
        now = time.monotonic()
        if self.version == self.tick or (self.version >= 0 and now - self.published_at < PUBLISH_SECONDS):
            return
        self.published, self.version, self.published_at = self.engine.put(self.learner.params()), self.tick, now

    def take_rows(self, future: RemoteFuture, chunk: Chunk) -> None:
        """Handle a finished or lost rollout: send its rows to the shard of the actor."""
        played: RolloutStats | None = self.health.answer(self.workers.actors[chunk.actor], future, chunk.generation)
        if played is None:
            self.limiter.granted -= 0 if chunk.excused else chunk.steps
            return
        self.ended.append(Ended(played.totals, played.lengths))
        self.lags.append(self.tick - chunk.version)
        self.send(chunk)

    def send(self, chunk: Chunk) -> None:
        """Send a chunk's rows to their shard, or queue them until the shard is back."""
        shard, group = self.workers.layout.shard_of(chunk.actor)
        remote = self.workers.shards[shard]
        if self.health.is_lost(remote):
            self.waiting.append(chunk)
            return
        future = self.health.call(remote, "add", group, 0, self.chunk, chunk.rows)
        self.sending[future] = chunk._replace(generation=remote.generation)

    def take_note(self, future: RemoteFuture, chunk: Chunk) -> None:
        """Handle a shard's confirmation that it has stored rows, or its loss."""
        shard, _ = self.workers.layout.shard_of(chunk.actor)
        held: Held | None = self.health.answer(self.workers.shards[shard], future, chunk.generation)
        if held is not None:
            self.prefetcher.held[shard] = held
        # The steps were made in either case, and the limiter keeps the ratio of samples to steps.
        self.limiter.inserted += 0 if chunk.excused else chunk.steps

    # ---- losses ----------------------------------------------------------------------------------------------------

    def on_loss(self, remote: Remote) -> None:
        """Report the loss of a worker."""
        if remote in self.workers.actors:
            self.workers.notify(
                f"{remote.name} was lost in tick {self.tick:,}: its episodes are lost and new ones will begin."
            )
            return
        shard = self.workers.shards.index(remote)
        rows, self.prefetcher.held[shard] = self.prefetcher.held[shard].starts, Held(0, 0.0)
        self.workers.notify(
            f"{remote.name} was lost in tick {self.tick:,}: about {rows:,} rows are lost; it will refill. The "
            "learner is not affected."
        )

    def on_return(self, remote: Remote) -> None:
        """Let a restarted worker go on."""
        if remote in self.workers.actors:
            remote.call("begin", remote.generation)
            return
        waiting, self.waiting = self.waiting, []
        for chunk in waiting:
            self.send(chunk)

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until no rollout or message is in flight. Batches may be: they can be drawn again."""
        self.update_priorities()
        while self.playing or self.sending or self.waiting or self.health.absent:
            self.attend(WAIT, granting=False)

    def save_others(self) -> tuple[list[Any], list[Any]]:
        """The states of all actors and of all shards; call `settle` first."""
        remotes = [*self.workers.actors, *self.workers.shards]
        while True:
            asked = [(remote, remote.call("save"), remote.generation) for remote in remotes]
            answers = [self.health.answer(*one) for one in asked]
            if not any(answer is None for answer in answers):
                return answers[: len(self.workers.actors)], answers[len(self.workers.actors) :]
            self.settle()  # a worker was lost meanwhile: wait until it is back

    def close(self) -> None:
        """Stop prefetching."""
        self.prefetcher.close()

    def load_others(self, actors: list[Any], shards: list[Any]) -> None:
        """Restore the states of all actors and shards, and drop whatever was in flight."""
        remotes = [*self.workers.actors, *self.workers.shards]
        asked = [(r, r.call("load", arrays)) for r, arrays in zip(remotes, [*actors, *shards], strict=True)]
        for remote, future in asked:
            self.answer_while_resuming(remote, future)
        self.published, self.version = None, -1
        self.limiter.granted = self.limiter.inserted
        self.prefetcher.restart(self.tick)
        self.prefetcher.held = [self.answer_while_resuming(shard, shard.call("held")) for shard in self.workers.shards]

    def answer_while_resuming(self, remote: Remote, future: RemoteFuture) -> Any:
        """The result of a call while the run is being resumed, when a lost worker cannot be replaced yet."""
        try:
            return self.workers.answer(remote, future)
        except Lost:
            raise PeerLost(f"{remote.name} was lost while the run was being resumed.") from None
