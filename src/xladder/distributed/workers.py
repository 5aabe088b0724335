"""Who takes part in a run on `actors`: actors that have some envs of the world each, shards that remember theirs.

Shapes: N envs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from xladder.distributed.remote import Engine, Lost, Remote, RemoteFuture
from xladder.errors import PeerLost, UsageError
from xladder.families.value.program import Program
from xladder.replay.shard import Shard

STALL_SECONDS = 180.0  # that a lost process may take to come back, some of which starting takes
SILENT_SECONDS = 60.0  # that somebody who is there may take to answer; what is asked for takes milliseconds


@dataclass(frozen=True)
class ActorLayout:
    """Whose envs are whose: neighbours have neighbouring ones, so that a shard's are neighbours too."""

    num_envs: int
    envs: tuple[tuple[int, ...], ...]
    """Of every actor."""
    actors: tuple[tuple[int, ...], ...]
    """Of every shard: those whose rows it remembers."""

    @classmethod
    def of(cls, num_envs: int, actors: int, shards: int) -> ActorLayout:
        """As even as possible."""
        if actors > num_envs:
            raise UsageError(
                f"`--actors` is {actors}, but there are {num_envs} envs to play: give {num_envs} at "
                f"most, or more envs (`--world.num-envs`)."
            )
        if shards > actors:
            raise UsageError(
                f"`--shards` is {shards}, but every shard remembers the rows of an actor or more, and there "
                f"{'is 1' if actors == 1 else f'are {actors}'}: give {actors} at most, or more `--actors`."
            )
        return cls(num_envs, _parts(num_envs, actors), _parts(actors, shards))

    def shard_of(self, actor: int) -> tuple[int, int]:
        """Which shard remembers an actor's rows, and which of that shard's actors it is."""
        shard = next(i for i, theirs in enumerate(self.actors) if actor in theirs)
        return shard, self.actors[shard].index(actor)

    def envs_of_shard(self, shard: int) -> tuple[int, ...]:
        """All envs whose rows a shard remembers."""
        return tuple(env for actor in self.actors[shard] for env in self.envs[actor])


def _parts(count: int, parts: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(part.tolist()) for part in np.array_split(np.arange(count), parts))


@dataclass
class WorkerGroup:
    """Everybody but the learner."""

    engine: Engine
    layout: ActorLayout
    actors: list[Remote]
    shards: list[Remote]
    notify: Callable[[str], None]
    """Takes a line for whoever looks after the run."""

    @classmethod
    def spawn(
        cls,
        config: Any,
        seed: int,
        layout: ActorLayout,
        engine: Engine,
        make_actor: Callable[..., Any],
        together: bool,
        notify: Callable[[str], None],
    ) -> WorkerGroup:
        """Have all of them made; `together`, whether the actors of a shard step in time and share a ring."""
        program, c = Program(config), config.learner
        actors = [
            engine.spawn(f"Actor {i}", make_actor, config, seed, envs[0], len(envs))
            for i, envs in enumerate(layout.envs)
        ]
        shards = []
        for j, theirs in enumerate(layout.actors):
            groups = [len(layout.envs[actor]) for actor in theirs]
            spec = program.spec
            given = program.window, spec.shape, spec.dtype, c.prioritised, c.alpha, spec.actions
            shards.append(engine.spawn(f"Shard {j}", Shard, [sum(groups)] if together else groups, *given))
        for remote, future in [(remote, remote.admit()) for remote in (*actors, *shards)]:
            try:
                engine.get(future)
            except Lost as error:
                raise UsageError(
                    f"{remote.name} could not be started ({error}). Where it runs, this version of xladder has to be "
                    "installed, with the extras of the world."
                ) from None
        return cls(engine, layout, actors, shards, notify)

    def answer(self, remote: Remote, future: RemoteFuture) -> Any:
        """What somebody answers; raises `Lost` if they cannot, and `PeerLost` if they do not."""
        if not self.engine.ready([future], SILENT_SECONDS):
            raise silent(remote)
        return self.engine.get(future)

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
