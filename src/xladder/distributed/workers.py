"""The workers of a run on `actors`: actors, which step the envs, and shards, which store their transitions.

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
from xladder.families.value.config import ValueConfig
from xladder.families.value.program import Program
from xladder.replay.shard import Shard

STALL_SECONDS = 180.0  # time for a lost worker to come back, including its start
SILENT_SECONDS = 60.0  # time for a worker to answer a call, which takes milliseconds


@dataclass(frozen=True)
class ActorLayout:
    """Which actor steps which envs, and which shard stores whose rows; both are contiguous ranges."""

    num_envs: int
    envs: tuple[tuple[int, ...], ...]
    """The envs of every actor."""
    actors: tuple[tuple[int, ...], ...]
    """The actors of every shard."""

    @classmethod
    def of(cls, num_envs: int, actors: int, shards: int) -> ActorLayout:
        """Distribute envs over actors, and actors over shards, as evenly as possible."""
        if actors > num_envs:
            raise UsageError(
                f"`--actors` is {actors}, but there are {num_envs} envs to step: use at most "
                f"{num_envs}, or more envs (`--world.num-envs`)."
            )
        if shards > actors:
            raise UsageError(
                f"`--shards` is {shards}, but every shard stores the rows of at least one actor, and there "
                f"{'is 1' if actors == 1 else f'are {actors}'}: use at most {actors}, or more `--actors`."
            )
        return cls(num_envs, _parts(num_envs, actors), _parts(actors, shards))

    def shard_of(self, actor: int) -> tuple[int, int]:
        """The shard that stores an actor's rows, and the actor's index within that shard."""
        shard = next(i for i, theirs in enumerate(self.actors) if actor in theirs)
        return shard, self.actors[shard].index(actor)

    def envs_of_shard(self, shard: int) -> tuple[int, ...]:
        """All envs whose rows a shard stores."""
        return tuple(env for actor in self.actors[shard] for env in self.envs[actor])


def _parts(count: int, parts: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(part.tolist()) for part in np.array_split(np.arange(count), parts))


@dataclass
class WorkerGroup:
    """All processes of a run but the learner's."""

    engine: Engine
    layout: ActorLayout
    actors: list[Remote]
    shards: list[Remote]
    notify: Callable[[str], None]
    """Takes a message for the user."""

    @classmethod
    def spawn(
        cls,
        config: ValueConfig,
        seed: int,
        layout: ActorLayout,
        engine: Engine,
        make_actor: Callable[..., Any],
        together: bool,
        notify: Callable[[str], None],
    ) -> WorkerGroup:
        """Start all actors and shards.

        Args:
            config: the configuration of the run.
            seed: its seed.
            layout: how envs, actors and shards are distributed.
            engine: runs the workers.
            make_actor: makes an actor, in its own process.
            together: whether the actors of a shard step in lock step and share a ring buffer.
            notify: takes a message for the user.
        """
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
        for remote, future in [(remote, remote.start()) for remote in (*actors, *shards)]:
            try:
                engine.get(future)
            except Lost as error:
                raise UsageError(
                    f"{remote.name} could not be started ({error}). This version of xladder has to be installed "
                    "where it runs, with the extras of the world."
                ) from None
        return cls(engine, layout, actors, shards, notify)

    def answer(self, remote: Remote, future: RemoteFuture) -> Any:
        """The result of a call; raises `Lost` if the worker was lost, and `PeerLost` if it hangs."""
        if not self.engine.ready([future], SILENT_SECONDS):
            raise silent(remote)
        return self.engine.get(future)

    def restart(self, remote: Remote) -> None:
        """Wait until a lost worker has been started again, without its state."""
        begun = time.monotonic()
        while True:
            try:
                self.engine.get(remote.start())
                return
            except Lost:
                if time.monotonic() - begun > STALL_SECONDS:
                    raise gone(remote) from None
                time.sleep(0.1)


def gone(remote: Remote) -> PeerLost:
    """The error for a worker that does not come back."""
    return PeerLost(f"{remote.name} was lost and did not come back within {STALL_SECONDS:.0f} s.")


def silent(remote: Remote) -> PeerLost:
    """The error for a worker that does not answer."""
    return PeerLost(f"{remote.name} has not answered for {SILENT_SECONDS:.0f} s.")
