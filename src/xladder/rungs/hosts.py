"""`hosts`: `mesh` over several processes. Each owns its devices, and with them its part of the envs and of the replay
memory; little more than gradients is exchanged.

Every process runs the same program at the same time. So whatever a process decides by its own clock or signals (the
length of a chunk, whether to save, whether to stop) is agreed on after each chunk. Every now and then the processes
compare their parameters, which have to be bitwise equal.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh

from xladder.distributed import cluster
from xladder.errors import Diverged, UsageError, printable
from xladder.protocols import Config
from xladder.rungs import gathering, layout
from xladder.rungs.device_mesh import describe
from xladder.rungs.mesh import MeshRun
from xladder.rungs.overlapped_mesh import OverlappedMeshRun
from xladder.rungs.running import USUAL, Compiler, Metrics
from xladder.worlds.identity import identity

COMPARED_EVERY = 100  # ticks


class Together:
    """What the processes of a run do besides training: say what they do, agree, and compare their parameters."""

    mesh: Mesh
    seeds: tuple[int, ...]
    done: int = 0
    """Ticks done."""
    compared: int = 0
    """The tick at which parameters were compared last."""

    def held(self) -> Any:
        """The parameters on the devices, leaves [S, …], or [A, …] where one seed's agents are."""
        raise NotImplementedError

    def in_step(self, advance: Callable[[int], Metrics], ticks: int) -> Metrics:
        """Train for exactly this many ticks, together with all other processes."""
        self._begin(f"training after tick {self.done}")
        metrics = advance(ticks)
        self.done += ticks
        if self.done - self.compared >= COMPARED_EVERY:
            self.compare()
        self._begin(f"between chunks, after tick {self.done}")
        return metrics

    def resumed(self, counters: Any) -> None:
        """Compare the parameters after a resume: every process has read the checkpoint itself."""
        self.done = int(np.asarray(counters.tick))
        self.compare()

    def _begin(self, doing: str) -> None:
        among = cluster.current()
        if among:
            among.begin(doing)

    def agree(self, numbers: Sequence[float]) -> list[float]:
        """Elementwise maximum over all processes."""
        gathered = multihost_utils.process_allgather(np.asarray(numbers, np.float32))
        return [float(number) for number in np.asarray(gathered).reshape(-1, len(numbers)).max(0)]

    def compare(self) -> None:
        """Raise an error if processes that hold the same seeds have different parameters."""
        self.compared = self.done
        mine = np.zeros((self.mesh.shape[layout.SEEDS], 2), np.uint32)
        for place, found in self.digests().items():
            mine[place] = np.frombuffer(found[:8], np.uint32)
        gathered = np.asarray(multihost_utils.process_allgather(mine)).reshape(-1, *mine.shape)
        for row in range(mine.shape[0]):
            held = [(host, tuple(one[row])) for host, one in enumerate(gathered) if one[row].any()]
            others = [host for host, found in held if found != held[0][1]]
            if others:
                raise Diverged(
                    f"After tick {self.done} hosts {held[0][0]} and {others[0]} hold different parameters, which "
                    "should be bitwise equal: are their CPUs, GPUs, drivers and versions the same?"
                )

    def digests(self) -> dict[int, bytes]:
        """Hashes of the parameters, for each block of seeds that this process holds."""
        block = len(self.seeds) // self.mesh.shape[layout.SEEDS]
        hashes: dict[int, Any] = defaultdict(hashlib.sha256)
        for leaf in jax.tree.leaves(self.held()):
            seen = set()
            for shard in leaf.addressable_shards:
                place = (shard.index[0].start or 0) // block
                if place not in seen:
                    seen.add(place)
                    hashes[place].update(np.asarray(shard.data).tobytes())
        return {place: found.digest() for place, found in hashes.items()}


class HostsRun(Together, MeshRun):
    """A population of runs on the devices of several processes."""

    def __init__(self, config: Config, seeds: Sequence[int], mesh: Mesh, compiler: Compiler = USUAL):
        super().__init__(config, seeds, mesh, compiler)
        self.note = describe_all(mesh)

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly this many ticks, together with all other processes."""
        return self.in_step(super().advance, ticks)

    def held(self) -> Any:
        """The parameters on the devices, leaves [S, …]."""
        return self.program.params(self.runs)

    def everywhere(self, value: np.generic) -> jax.Array:
        """Copy a scalar, which has to be equal on all hosts, to all devices."""
        return gathering.everywhere(value, self.mesh)

    def fetch(self, tree: Any) -> Any:
        """Gather sharded arrays on this host."""
        return jax.tree.map(lambda leaf: gathering.whole(leaf, self.mesh), tree)

    def state(self) -> Any:
        """The state to resume from, complete on every host."""
        return {"counters": self.fetch(self.counters), "runs": self.fetch(self.program.carried(self.runs))}

    def take_state(self, state: Any) -> None:
        """Restore a state: every process takes its part."""
        self.counters = jax.tree.map(gathering.put, state["counters"], self.counters)
        self.runs = jax.tree.map(gathering.put, state["runs"], self.runs)
        self.resumed(state["counters"])


class OverlappedHostsRun(Together, OverlappedMeshRun):
    """A run on the devices of several processes, each of which steps its part of the envs; one seed."""

    def __init__(self, config: Config, seeds: Sequence[int], mesh: Mesh, compiler: Compiler = USUAL):
        agree_on(identity(config.world))
        super().__init__(config, seeds, mesh, compiler)
        self.note = describe_all(mesh)

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly this many ticks, together with all other processes."""
        return self.in_step(super().advance, ticks)

    def held(self) -> Any:
        """The parameters on the devices."""
        return self.loop.run.agent.params

    def take_state(self, state: Any) -> None:
        """Restore a state: every process takes its part."""
        super().take_state(state)
        self.resumed(state["counters"])


def agree_on(world: Mapping[str, str]) -> None:
    """Raise a `UsageError`, on all hosts, if their worlds differ; the arguments describe this host's."""
    words = np.frombuffer(json.dumps(world).encode(), np.uint8)
    sizes = np.asarray(multihost_utils.process_allgather(np.int32(len(words)))).reshape(-1)
    padded = np.zeros(sizes.max(), np.uint8)
    padded[: len(words)] = words
    gathered = np.asarray(multihost_utils.process_allgather(padded)).reshape(len(sizes), -1)
    first, *others = (json.loads(row[:size].tobytes()) for row, size in zip(gathered, sizes, strict=True))
    for host, other in enumerate(others, 1):
        for name in first | other:
            if first.get(name) != other.get(name):
                raise UsageError(
                    f"The worlds of the hosts differ: `{name}` is {printable(other.get(name))} on host {host}, and "
                    f"{printable(first.get(name))} on host 0. Install the same versions on all hosts."
                )


def describe_all(mesh: Mesh) -> str:
    """Describe a mesh of several processes for the user."""
    return f"{describe(mesh)} They belong to {jax.process_count()} processes."


def make_mesh(shape: layout.MeshShape) -> Mesh:
    """A mesh with the same number of devices of each process, in the order of the processes."""
    processes = jax.process_count()
    if shape.devices % processes:
        raise UsageError(
            f"`--mesh {shape}` needs {shape.devices} devices, which cannot be divided evenly among {processes} hosts."
        )
    each = shape.devices // processes
    devices = [[d for d in jax.devices() if d.process_index == i][:each] for i in range(processes)]
    if min(map(len, devices)) < each:
        raise UsageError(
            f"`--mesh {shape}` needs {each} devices on each of {processes} hosts, but one has {min(map(len, devices))}."
        )
    return Mesh(np.array(devices).reshape(shape.seeds, shape.data), (layout.SEEDS, layout.DATA))


def start(
    config: Config,
    seeds: Sequence[int],
    device: Any = None,
    compiler: Compiler = USUAL,
    mesh: str | None = None,
    hosts: int | None = None,
) -> HostsRun | OverlappedHostsRun:
    """Start a population of runs, one per seed, on the devices of all processes; of worlds on the host, one run.

    Args:
        config: the configuration of the run.
        seeds: the seeds.
        device: ignored: the mesh says which devices are used.
        compiler: compiles the chunk.
        mesh: the mesh, such as `seeds=2,data=2`; by default one device of each process, data parallel.
        hosts: the number of processes the run was planned for.
    """
    if hosts and hosts != jax.process_count():
        raise UsageError(
            f"The run is for {hosts} processes, but there are {jax.process_count()}: start them with "
            f"`xladder launch --hosts {hosts} …`; `--mesh data={hosts}` or `--rung fused` needs one."
        )
    kind = HostsRun if config.world.jittable else OverlappedHostsRun
    return kind(config, seeds, make_mesh(layout.parse(mesh or f"data={jax.process_count()}")), compiler)
