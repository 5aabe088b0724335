"""Who takes part in a run on `actors`: players that have some copies of the world each, shards that remember theirs.

Shapes: N copies.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from xladder.distributed.remote import Engine, Lost, Remote, Ticket
from xladder.errors import PeerLost, UsageError
from xladder.families.value.program import Program
from xladder.replay.shard import Shard

STALL_SECONDS = 180.0  # that a lost process may take to come back, some of which starting takes
SILENT_SECONDS = 60.0  # that somebody who is there may take to answer; what is asked for takes milliseconds


@dataclass(frozen=True)
class Layout:
    """Whose copies are whose: neighbours have neighbouring ones, so that a shard's are neighbours too."""

    num_envs: int
    copies: tuple[tuple[int, ...], ...]
    """Of every player."""
    players: tuple[tuple[int, ...], ...]
    """Of every shard: those whose rows it remembers."""

    @classmethod
    def of(cls, num_envs: int, players: int, shards: int) -> Layout:
        """As even as possible."""
        if players > num_envs:
            raise UsageError(
                f"`--actors` is {players}, but there are {num_envs} copies of the world to play: give {num_envs} at "
                f"most, or more copies (`--world.num-envs`)."
            )
        if shards > players:
            raise UsageError(
                f"`--shards` is {shards}, but every shard remembers the rows of an actor or more, and there "
                f"{'is 1' if players == 1 else f'are {players}'}: give {players} at most, or more `--actors`."
            )
        return cls(num_envs, _parts(num_envs, players), _parts(players, shards))

    def shard_of(self, player: int) -> tuple[int, int]:
        """Which shard remembers a player's rows, and which of that shard's players it is."""
        shard = next(i for i, theirs in enumerate(self.players) if player in theirs)
        return shard, self.players[shard].index(player)

    def copies_of_shard(self, shard: int) -> tuple[int, ...]:
        """All copies whose rows a shard remembers."""
        return tuple(copy for player in self.players[shard] for copy in self.copies[player])


def _parts(count: int, parts: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(part.tolist()) for part in np.array_split(np.arange(count), parts))


@dataclass
class Fleet:
    """Everybody but the learner."""

    engine: Engine
    layout: Layout
    players: list[Remote]
    shards: list[Remote]
    say: Callable[[str], None]
    """Takes a line for whoever looks after the run."""

    @classmethod
    def hire(
        cls,
        config: Any,
        seed: int,
        layout: Layout,
        engine: Engine,
        make_player: Callable[..., Any],
        together: bool,
        say: Callable[[str], None],
    ) -> Fleet:
        """Have all of them made; `together`, whether the players of a shard step in time and share a ring."""
        program, c = Program(config), config.learner
        players = [
            engine.hire(f"Actor {i}", make_player, config, seed, copies[0], len(copies))
            for i, copies in enumerate(layout.copies)
        ]
        shards = []
        for j, theirs in enumerate(layout.players):
            groups = [len(layout.copies[player]) for player in theirs]
            view = program.view
            given = program.window, view.shape, view.dtype, view.actions, c.prioritised, c.alpha
            shards.append(engine.hire(f"Shard {j}", Shard, [sum(groups)] if together else groups, *given))
        for remote, ticket in [(remote, remote.admit()) for remote in (*players, *shards)]:
            try:
                engine.get(ticket)
            except Lost as error:
                raise UsageError(
                    f"{remote.name} could not be started ({error}). Where it runs, this version of xladder has to be "
                    "installed, with the extras of the world."
                ) from None
        return cls(engine, layout, players, shards, say)

    def answer(self, remote: Remote, ticket: Ticket) -> Any:
        """What somebody answers; raises `Lost` if they cannot, and `PeerLost` if they do not."""
        if not self.engine.ready([ticket], SILENT_SECONDS):
            raise silent(remote)
        return self.engine.get(ticket)

    def readmit(self, remote: Remote) -> None:
        """Wait for one that was lost to be there again, knowing nothing."""
        begun = time.monotonic()
        while True:
            try:
                self.engine.get(remote.admit())
                return
            except Lost:
                if time.monotonic() - begun > STALL_SECONDS:
                    raise gone(remote) from None
                time.sleep(0.1)


def gone(remote: Remote) -> PeerLost:
    """The error for one that does not come back."""
    return PeerLost(f"{remote.name} was lost and did not come back within {STALL_SECONDS:.0f} s.")


def silent(remote: Remote) -> PeerLost:
    """The error for one that is there and does not answer."""
    return PeerLost(f"{remote.name} has not answered for {SILENT_SECONDS:.0f} s.")
