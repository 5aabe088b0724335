"""Players, shards and a learner that all keep their own pace (Nair et al. 2015, Horgan et al. 2018).

Players have chunks of steps under way all the time, with the parameters that were published last. Their rows go
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
from xladder.distributed.actor import Played, ladder
from xladder.distributed.health import Attendance
from xladder.distributed.learner import Student
from xladder.distributed.prefetch import Lesson, Supply, ticks_per_order
from xladder.distributed.remote import Lost, Remote, Ticket
from xladder.distributed.workers import Fleet
from xladder.errors import PeerLost
from xladder.families.value.stepping import Ended, Report
from xladder.replay.limiter import Limiter
from xladder.replay.shard import Held

CHUNK_STEPS = 8  # of every copy between two messages; fewer cost more messages, more act with older parameters
AHEAD = 2  # chunks that every player has under way: one to play, one to begin with after it
PUBLISH_SECONDS = 0.05  # between two sets of parameters, which take time to copy
WAIT = 0.05  # seconds to wait for an answer before looking round again


class Chunk(NamedTuple):
    """Steps that a player has under way."""

    player: int
    rows: Ticket
    steps: int
    version: int
    excused: bool  # whether the limiter does not count them
    life: int  # of the player that plays them, and then of the shard that takes them in


class Asynchronous(Stateful):
    """One experiment."""

    STATE = ("tick", "steps", "student", "limiter")

    def __init__(self, config: Any, fleet: Fleet, student: Student):
        self.config, self.fleet, self.student, self.engine = config, fleet, student, fleet.engine
        self.program = student.program
        self.chunk = max(1, min(CHUNK_STEPS, self.program.window.length // 4))
        ahead = AHEAD * self.chunk * config.world.num_envs + ticks_per_order(config, student) * config.per_tick
        self.limiter = Limiter(
            ratio=student.rows_per_tick / config.per_tick,
            begins=-(-config.learning_begins // config.per_tick) * config.per_tick,
            slack=ahead,
        )
        self.attendance = Attendance(fleet, self.on_loss, self.on_return)
        self.supply = Supply(config, fleet, student, self.limiter, self.attendance)
        self.tick = 0
        self.steps = np.zeros(len(fleet.players), np.int64)  # of every player: where its next chunk begins
        self.turn = 0  # whose it is to be given the next one
        self.playing: dict[Ticket, Chunk] = {}
        self.sending: dict[Ticket, Chunk] = {}
        self.waiting: list[Chunk] = []  # whose shard is gone
        self.published: Ticket = None
        self.version, self.published_at = -1, 0.0
        self.unrated: tuple[Lesson, jax.Array] | None = None
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
            lesson = self.next_lesson()
            begun_learning = time.perf_counter()
            loss = self.study(lesson)
            learned = time.perf_counter() - begun_learning
            staleness = float(np.mean(lesson.age)) / c.steps_per_tick
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
            "queue_batches": self.supply.waiting(),
        }
        return row | {"loss": loss} | {name: np.float32(value) for name, value in apart.items()}

    def next_lesson(self) -> Lesson:
        """What this tick learns from, once it is there; what the next ones do is on its way then."""
        while True:
            self.supply.order()
            tickets = self.supply.tickets()
            while tickets:
                ready = self.engine.ready(tickets, WAIT)
                tickets = [ticket for ticket in tickets if ticket not in ready]
                self.attend(0.0)
            lesson = self.supply.take()
            if lesson is not None:
                self.supply.order()
                self.supply.unpack()
                return lesson
            self.attend(WAIT)

    def study(self, lesson: Lesson) -> jax.Array:
        """The updates of a tick; the loss is not waited for."""
        batch = self.supply.weighted(lesson, float(self.program.beta(self.tick)))
        self.rate()
        loss, errors = self.student.learn(self.tick, batch)
        self.limiter.sampled += self.student.rows_per_tick
        if self.config.learner.prioritised:
            self.unrated = lesson, errors
        return loss

    def rate(self) -> None:
        """Pass on how far off the last predictions were; a tick late, so that nobody waits for the device."""
        if self.unrated is not None:
            (lesson, errors), self.unrated = self.unrated, None
            self.supply.rate(lesson, np.asarray(errors))

    # ---- steps -----------------------------------------------------------------------------------------------------

    def attend(self, seconds: float, granting: bool = True) -> None:
        """See to whatever has been answered, and keep players busy; waits so long if nothing has."""
        if granting:
            self.grant()
        tickets = [*self.playing, *self.sending, *self.attendance.tickets()]
        ready = self.engine.ready(tickets, seconds) if tickets else []
        if not tickets:
            time.sleep(seconds)
        for ticket in ready:
            if ticket in self.playing:
                self.take_rows(ticket, self.playing.pop(ticket))
            elif ticket in self.sending:
                self.take_note(ticket, self.sending.pop(ticket))
        self.attendance.look_round()
        if granting and ready:
            self.grant()

    def grant(self) -> None:
        """Give players that have less than enough to do another chunk, as far as the limiter allows.

        In turn: were the first that has time always taken, a limiter that rarely lets anybody play would let nobody
        else.
        """
        busy = np.array([0.0 if self.may_be_asked(player) else np.inf for player in range(len(self.fleet.players))])
        for chunk in self.playing.values():
            busy[chunk.player] += 1
        while busy.min() < AHEAD:
            free = np.flatnonzero(busy < AHEAD)
            player = int(free[np.argmin((free - self.turn) % len(busy))])
            steps = self.chunk * len(self.fleet.layout.copies[player])
            # After a shard was lost there may be nothing to learn from: steps that make up for it are not counted.
            excused = self.supply.is_starved()
            if not excused and not self.limiter.may_play(steps):
                return
            self.begin_chunk(player, steps, excused)
            busy[player] += 1
            self.turn = (player + 1) % len(busy)

    def begin_chunk(self, player: int, steps: int, excused: bool) -> None:
        """Have a player play on."""
        self.publish()
        # ε by how many steps have been begun: when these are played, the learner will be about there.
        now = float(self.program.epsilon(self.limiter.granted // self.config.per_tick))
        epsilon = ladder(now, player, len(self.fleet.players))
        given = self.published, epsilon, int(self.steps[player]), self.chunk
        remote = self.fleet.players[player]
        rows, played = remote.ask("play", *given, answers=2)
        self.attendance.expect(remote, played)
        self.playing[played] = Chunk(player, rows, steps, self.version, excused, remote.life)
        self.steps[player] += self.chunk
        self.limiter.granted += 0 if excused else steps

    def may_be_asked(self, player: int) -> bool:
        """Whether a player is there, and the shard that its rows would go to."""
        shard, _ = self.fleet.layout.shard_of(player)
        return not any(self.attendance.misses(one) for one in (self.fleet.players[player], self.fleet.shards[shard]))

    def publish(self) -> None:
        """Have parameters ready for players, if there are new ones and the last are old enough."""
        now = time.monotonic()
        if self.version == self.tick or (self.version >= 0 and now - self.published_at < PUBLISH_SECONDS):
            return
        self.published, self.version, self.published_at = self.engine.put(self.student.params()), self.tick, now

    def take_rows(self, ticket: Ticket, chunk: Chunk) -> None:
        """A player has played, or was lost: its rows go to its shard."""
        played: Played | None = self.attendance.answer(self.fleet.players[chunk.player], ticket, chunk.life)
        if played is None:
            self.limiter.granted -= 0 if chunk.excused else chunk.steps
            return
        self.ended.append(Ended(played.totals, played.lengths))
        self.lags.append(self.tick - chunk.version)
        self.send(chunk)

    def send(self, chunk: Chunk) -> None:
        """Rows to their shard, or to those that wait for it to come back."""
        shard, group = self.fleet.layout.shard_of(chunk.player)
        remote = self.fleet.shards[shard]
        if self.attendance.misses(remote):
            self.waiting.append(chunk)
            return
        ticket = self.attendance.ask(remote, "add", group, 0, self.chunk, chunk.rows)
        self.sending[ticket] = chunk._replace(life=remote.life)

    def take_note(self, ticket: Ticket, chunk: Chunk) -> None:
        """A shard has taken rows in, or was lost with them."""
        shard, _ = self.fleet.layout.shard_of(chunk.player)
        held: Held | None = self.attendance.answer(self.fleet.shards[shard], ticket, chunk.life)
        if held is not None:
            self.supply.held[shard] = held
        # They were played either way, and the ratio is one of samples to steps.
        self.limiter.inserted += 0 if chunk.excused else chunk.steps

    # ---- losses ----------------------------------------------------------------------------------------------------

    def on_loss(self, remote: Remote) -> None:
        """Say what is gone."""
        if remote in self.fleet.players:
            self.fleet.say(f"{remote.name} was lost in tick {self.tick:,}: its games are gone, new ones will begin.")
            return
        shard = self.fleet.shards.index(remote)
        rows, self.supply.held[shard] = self.supply.held[shard].starts, Held(0, 0.0)
        self.fleet.say(
            f"{remote.name} was lost in tick {self.tick:,}: about {rows:,} rows are gone, and it fills again. What was "
            "learned is not touched."
        )

    def on_return(self, remote: Remote) -> None:
        """Give them what they need to go on."""
        if remote in self.fleet.players:
            remote.ask("begin", remote.life)
            return
        waiting, self.waiting = self.waiting, []
        for chunk in waiting:
            self.send(chunk)

    # ---- keeping ---------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until nothing is under way any more but batches, which can be drawn again."""
        self.rate()
        while self.playing or self.sending or self.waiting or self.attendance.absent:
            self.attend(WAIT, granting=False)

    def save_others(self) -> tuple[list[Any], list[Any]]:
        """What players and shards hold; call `settle` before."""
        remotes = [*self.fleet.players, *self.fleet.shards]
        while True:
            asked = [(remote, remote.ask("save"), remote.life) for remote in remotes]
            told = [self.attendance.answer(*one) for one in asked]
            if not any(answer is None for answer in told):
                return told[: len(self.fleet.players)], told[len(self.fleet.players) :]
            self.settle()  # whoever was lost meanwhile is waited for

    def close(self) -> None:
        """Nothing more will be asked of it."""
        self.supply.close()

    def load_others(self, players: list[Any], shards: list[Any]) -> None:
        """Have them hold that again. What was on its way belongs to another run."""
        remotes = [*self.fleet.players, *self.fleet.shards]
        asked = [(r, r.ask("load", arrays)) for r, arrays in zip(remotes, [*players, *shards], strict=True)]
        for remote, ticket in asked:
            self.told_back(remote, ticket)
        self.published, self.version = None, -1
        self.limiter.granted = self.limiter.inserted
        self.supply.restart(self.tick)
        self.supply.held = [self.told_back(shard, shard.ask("held")) for shard in self.fleet.shards]

    def told_back(self, remote: Remote, ticket: Ticket) -> Any:
        """What somebody answers while the run is taken up, when nobody can be replaced yet."""
        try:
            return self.fleet.answer(remote, ticket)
        except Lost:
            raise PeerLost(f"{remote.name} was lost while the run was taken up.") from None
