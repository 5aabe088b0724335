"""Actors, shards and a learner that all keep their own pace (Nair et al. 2015, Horgan et al. 2018).

Actors have chunks of steps under way all the time, with the parameters that were published last. Their rows go
straight from them to the shards. The learner has batches on their way while it learns from others. A `Limiter` holds
the number of samples per step. A tick is as many steps and updates as everywhere, but which rows are learned from
depends on who is quicker: the same seed does not give the same run.
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
from xladder.families.value.stepping import Ended, Report
from xladder.replay.limiter import Limiter
from xladder.replay.shard import Held

CHUNK_STEPS = 8  # of every env between two messages; fewer cost more messages, more act with older parameters
AHEAD = 2  # chunks that every actor has under way: one to play, one to begin with after it
PUBLISH_SECONDS = 0.05  # between two sets of parameters, which take time to copy
WAIT = 0.05  # seconds to wait for an answer before looking round again


class Chunk(NamedTuple):
    """Steps that an actor has under way."""

    actor: int
    rows: RemoteFuture
    steps: int
    version: int
    excused: bool  # whether the limiter does not count them
    generation: int  # of the actor that plays them, and then of the shard that takes them in


class Asynchronous(Stateful):
    """One experiment."""

    STATE = ("tick", "steps", "learner", "limiter")

    def __init__(self, config: Any, workers: WorkerGroup, learner: Learner):
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
        self.steps = np.zeros(len(workers.actors), np.int64)  # of every actor: where its next chunk begins
        self.turn = 0  # whose it is to be given the next one
        self.playing: dict[RemoteFuture, Chunk] = {}
        self.sending: dict[RemoteFuture, Chunk] = {}
        self.waiting: list[Chunk] = []  # whose shard is gone
        self.published: RemoteFuture = None
        self.version, self.published_at = -1, 0.0
        self.pending_errors: tuple[TickBatch, jax.Array] | None = None
        self.ended: list[Ended] = []
        self.lags: list[int] = []
        self.seconds: dict[str, list[float]] = {"sampling": [], "update": []}

    # ---- a tick ----------------------------------------------------------------------------------------------------

    def advance(self) -> dict[str, Any]:
        """As many steps and updates as a tick has. What it gives may still be computed: the loss is not waited for."""
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
        """What this tick learns from, once it is there; what the next ones do is on its way then."""
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
        """The updates of a tick; the loss is not waited for."""
        batch = self.prefetcher.weighted(tick_batch, float(self.program.beta(self.tick)))
        self.update_priorities()
        loss, errors = self.learner.learn(self.tick, batch)
        self.limiter.sampled += self.learner.rows_per_tick
        if self.config.learner.prioritised:
            self.pending_errors = tick_batch, errors
        return loss

    def update_priorities(self) -> None:
        """Pass on how far off the last predictions were; a tick late, so that nobody waits for the device."""
        if self.pending_errors is not None:
            (tick_batch, errors), self.pending_errors = self.pending_errors, None
            self.prefetcher.update_priorities(tick_batch, np.asarray(errors))

    # ---- steps -----------------------------------------------------------------------------------------------------

    def attend(self, seconds: float, granting: bool = True) -> None:
        """See to whatever has been answered, and keep actors busy; waits so long if nothing has."""
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
        self.health.look_round()
        if granting and ready:
            self.grant()

    def grant(self) -> None:
        """Give actors that have less than enough to do another chunk, as far as the limiter allows.

        In turn: were the first that has time always taken, a limiter that rarely lets anybody play would let nobody
        else.
        """
        busy = np.array([0.0 if self.may_be_asked(actor) else np.inf for actor in range(len(self.workers.actors))])
        for chunk in self.playing.values():
            busy[chunk.actor] += 1
        while busy.min() < AHEAD:
            free = np.flatnonzero(busy < AHEAD)
            actor = int(free[np.argmin((free - self.turn) % len(busy))])
            steps = self.chunk * len(self.workers.layout.envs[actor])
            # After a shard was lost there may be nothing to learn from: steps that make up for it are not counted.
            excused = self.prefetcher.is_starved()
            if not excused and not self.limiter.may_act(steps):
                return
            self.begin_chunk(actor, steps, excused)
            busy[actor] += 1
            self.turn = (actor + 1) % len(busy)

    def begin_chunk(self, actor: int, steps: int, excused: bool) -> None:
        """Have an actor go on."""
        self.publish()
        # ε by how many steps have been begun: when these are played, the learner will be about there.
        now = float(self.program.epsilon(self.limiter.granted // self.config.per_tick))
        epsilon = actor_epsilon(now, actor, len(self.workers.actors))
        given = self.published, epsilon, int(self.steps[actor]), self.chunk
        remote = self.workers.actors[actor]
        rows, played = remote.ask("rollout", *given, answers=2)
        self.health.expect(remote, played)
        self.playing[played] = Chunk(actor, rows, steps, self.version, excused, remote.generation)
        self.steps[actor] += self.chunk
        self.limiter.granted += 0 if excused else steps

    def may_be_asked(self, actor: int) -> bool:
        """Whether an actor is there, and the shard that its rows would go to."""
        shard, _ = self.workers.layout.shard_of(actor)
        return not any(self.health.misses(one) for one in (self.workers.actors[actor], self.workers.shards[shard]))

    def publish(self) -> None:
        """Have parameters ready for actors, if there are new ones and the last are old enough."""
        now = time.monotonic()
        if self.version == self.tick or (self.version >= 0 and now - self.published_at < PUBLISH_SECONDS):
            return
        self.published, self.version, self.published_at = self.engine.put(self.learner.params()), self.tick, now

    def take_rows(self, future: RemoteFuture, chunk: Chunk) -> None:
        """An actor has finished a chunk, or was lost: its rows go to its shard."""
        played: RolloutStats | None = self.health.answer(self.workers.actors[chunk.actor], future, chunk.generation)
        if played is None:
            self.limiter.granted -= 0 if chunk.excused else chunk.steps
            return
        self.ended.append(Ended(played.totals, played.lengths))
        self.lags.append(self.tick - chunk.version)
        self.send(chunk)

    def send(self, chunk: Chunk) -> None:
        """Rows to their shard, or to those that wait for it to come back."""
        shard, group = self.workers.layout.shard_of(chunk.actor)
        remote = self.workers.shards[shard]
        if self.health.misses(remote):
            self.waiting.append(chunk)
            return
        future = self.health.ask(remote, "add", group, 0, self.chunk, chunk.rows)
        self.sending[future] = chunk._replace(generation=remote.generation)

    def take_note(self, future: RemoteFuture, chunk: Chunk) -> None:
        """A shard has taken rows in, or was lost with them."""
        shard, _ = self.workers.layout.shard_of(chunk.actor)
        held: Held | None = self.health.answer(self.workers.shards[shard], future, chunk.generation)
        if held is not None:
            self.prefetcher.held[shard] = held
        # They were played either way, and the ratio is one of samples to steps.
        self.limiter.inserted += 0 if chunk.excused else chunk.steps

    # ---- losses ----------------------------------------------------------------------------------------------------

    def on_loss(self, remote: Remote) -> None:
        """Say what is gone."""
        if remote in self.workers.actors:
            self.workers.notify(
                f"{remote.name} was lost in tick {self.tick:,}: its games are gone, new ones will begin."
            )
            return
        shard = self.workers.shards.index(remote)
        rows, self.prefetcher.held[shard] = self.prefetcher.held[shard].starts, Held(0, 0.0)
        self.workers.notify(
            f"{remote.name} was lost in tick {self.tick:,}: about {rows:,} rows are gone, and it fills again. What was "
            "learned is not touched."
        )

    def on_return(self, remote: Remote) -> None:
        """Give them what they need to go on."""
        if remote in self.workers.actors:
            remote.ask("begin", remote.generation)
            return
        waiting, self.waiting = self.waiting, []
        for chunk in waiting:
            self.send(chunk)

    # ---- keeping ---------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until nothing is under way any more but batches, which can be drawn again."""
        self.update_priorities()
        while self.playing or self.sending or self.waiting or self.health.absent:
            self.attend(WAIT, granting=False)

    def save_others(self) -> tuple[list[Any], list[Any]]:
        """What actors and shards hold; call `settle` before."""
        remotes = [*self.workers.actors, *self.workers.shards]
        while True:
            asked = [(remote, remote.ask("save"), remote.generation) for remote in remotes]
            answers = [self.health.answer(*one) for one in asked]
            if not any(answer is None for answer in answers):
                return answers[: len(self.workers.actors)], answers[len(self.workers.actors) :]
            self.settle()  # whoever was lost meanwhile is waited for

    def close(self) -> None:
        """Nothing more will be asked of it."""
        self.prefetcher.close()

    def load_others(self, actors: list[Any], shards: list[Any]) -> None:
        """Have them hold that again. What was on its way belongs to another run."""
        remotes = [*self.workers.actors, *self.workers.shards]
        asked = [(r, r.ask("load", arrays)) for r, arrays in zip(remotes, [*actors, *shards], strict=True)]
        for remote, future in asked:
            self.answer_while_resuming(remote, future)
        self.published, self.version = None, -1
        self.limiter.granted = self.limiter.inserted
        self.prefetcher.restart(self.tick)
        self.prefetcher.held = [self.answer_while_resuming(shard, shard.ask("held")) for shard in self.workers.shards]

    def answer_while_resuming(self, remote: Remote, future: RemoteFuture) -> Any:
        """What somebody answers while the run is resumed, when nobody can be replaced yet."""
        try:
            return self.workers.answer(remote, future)
        except Lost:
            raise PeerLost(f"{remote.name} was lost while the run was being resumed.") from None
