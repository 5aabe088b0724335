"""`actors`: asynchronous actors, replay shards and learner, on Ray, each at its own pace.

In lock step they wait for each other, which gives the synchronous algorithm: the same transitions and parameters as on
`sequential` and `parallel`. The learner runs in this process and has the device; the workers compute on CPUs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from xladder import user_code
from xladder.core.compiling import compiled
from xladder.devices import beside, cores
from xladder.distributed.actor import Actor
from xladder.distributed.asynchronous import Asynchronous
from xladder.distributed.learner import Learner
from xladder.distributed.lock_step import LockStep
from xladder.distributed.ray_engine import RayEngine, is_loopback
from xladder.distributed.remote import Engine
from xladder.distributed.workers import ActorLayout, WorkerGroup
from xladder.errors import UsageError
from xladder.rungs.running import USUAL, Compiler, Metrics, stack_seeds
from xladder.settings import to_dict

if TYPE_CHECKING:
    from xladder.families.value.config import ValueConfig

MOST_ACTORS = 8  # by default


class ActorsRun:
    """A run distributed over processes, one seed."""

    def __init__(
        self,
        config: ValueConfig,
        seed: int,
        device: Any,
        compiler: Compiler,
        engine: Engine,
        layout: ActorLayout,
        lock_step: bool,
    ):
        self.device, self.engine, self.lines = device, engine, list[str]()
        with jax.default_device(device):
            begun = time.perf_counter()
            learner = Learner(config, seed, device.platform, compiler.function, *cpu_and_device(device))
            self.compile_seconds = time.perf_counter() - begun
            make = partial(make_actor, user_code.for_children(to_dict(config)), os.getcwd())
            self.workers = WorkerGroup.spawn(config, seed, layout, engine, make, lock_step, self.lines.append)
            kind = LockStep if lock_step else Asynchronous
            self.loop: Any = kind(config, self.workers, learner)
        self.note = format_layout(layout, lock_step)

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly this many ticks."""
        with jax.default_device(self.device):
            rows = [self.loop.advance() for _ in range(ticks)]
            rows = jax.device_get(rows)
        return {name: np.stack([row[name] for row in rows])[None] for name in rows[0]}

    def news(self) -> list[str]:
        """Messages about workers since the last call."""
        lines, self.lines[:] = list(self.lines), []
        return lines

    def phases(self) -> dict[str, float]:
        """Median seconds per tick of updates and of everything else, without the first quarter, which warms up."""
        seconds = self.loop.seconds
        return {name: float(np.median(values[len(values) // 4 :])) for name, values in seconds.items()}

    def params(self) -> Any:
        """Parameters, leaves [1, …]."""
        return stack_seeds([self.loop.learner.params()])

    def state(self) -> Any:
        """The state to resume from: the learner, the contents of the shards and the envs of the actors."""
        with jax.default_device(self.device):
            self.loop.settle()
            actors, shards = self.loop.save_others()
        return {"loop": self.loop, "actors": actors, "shards": shards}

    def take_state(self, state: Any) -> None:
        """Restore the states of actors and shards; the loop has restored its own."""
        with jax.default_device(self.device):
            self.loop.load_others(state["actors"], state["shards"])

    def close(self) -> None:
        """End all processes that were started for the run."""
        self.loop.close()
        self.engine.close()


def cpu_and_device(device: Any) -> tuple[Callable[..., Any], Callable[[Any], Any]]:
    """Two functions: one calls a function on the CPU that drives a device, one copies arrays to the device."""
    processor = beside(device)

    def on_cpu(function: Callable[..., Any], *given: Any) -> Any:
        with jax.default_device(processor):
            return function(*given)

    return on_cpu, lambda tree: jax.device_put(tree, device)


def make_actor(imports: Sequence[str], folder: str, config: ValueConfig, seed: int, first: int, count: int) -> Actor:
    """Make an actor; runs in the actor's process and allows there the same imports of user code as here."""
    if imports and folder not in sys.path:
        sys.path.insert(0, folder)
    for module in imports:
        user_code.allow(module)
    return Actor(config, seed, first, count, compiled)


def format_layout(layout: ActorLayout, lock_step: bool) -> str:
    """Describe the layout for the user."""
    actors, shards = len(layout.envs), len(layout.actors)
    who = f"{actors} actor{'s' * (actors > 1)} and {shards} shard{'s' * (shards > 1)}"
    if lock_step:
        return f"{who} in lock step: the same run as on `sequential`"
    return f"{who}, each at its own pace: the same seed does not give the same run"


def start(
    config: ValueConfig,
    seeds: Sequence[int],
    device: Any = None,
    compiler: Compiler = USUAL,
    actors: int | None = None,
    shards: int | None = None,
    ray: str | None = None,
    lock_step: bool | None = None,
    engine: Engine | None = None,
) -> ActorsRun:
    """Start a run.

    Args:
        config: the configuration of the run.
        seeds: one seed.
        device: the learner's device.
        compiler: compiles the learner.
        actors: number of actors; by default one per free core, up to 8.
        shards: number of replay shards.
        ray: HOST:PORT of a Ray cluster; by default Ray is started on this machine.
        lock_step: whether actors and learner wait for each other.
        engine: runs the workers in place of Ray.
    """
    (seed,) = seeds
    num_envs = config.world.num_envs
    num_actors = actors or max(1, min(num_envs, cores() - 1, MOST_ACTORS))
    layout = ActorLayout.of(num_envs, num_actors, shards or 1)
    if lock_step and config.learner.prioritised and len(layout.actors) > 1:
        raise UsageError(
            f"`--shards` is {shards}, but prioritised replay in lock step needs a single shard: leave it at 1, or "
            "leave `--lock-step` out."
        )
    if engine is None:
        engine = RayEngine(ray)
        engine.check_room(num_actors + len(layout.actors))
    try:
        run = ActorsRun(config, seed, device or jax.devices()[0], compiler, engine, layout, bool(lock_step))
    except BaseException:
        engine.close()
        raise
    if ray and not is_loopback(ray):
        run.note += "; anyone who can reach the ports of that Ray cluster can run code on it: restrict access"
    return run
