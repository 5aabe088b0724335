"""`hosts`: `mesh` over several processes. Each owns its devices, and with them its part of the envs and of the replay
memory; little more than gradients is exchanged.

Every process runs the same program at the same time. So whatever a process decides by its own clock or signals (the
length of a chunk, whether to save, whether to stop) is agreed on after each chunk. Every now and then the processes
compare their parameters, which have to be bitwise equal.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, PartitionSpec

from xladder.distributed import cluster
from xladder.errors import Diverged, UsageError
from xladder.protocols import Config
from xladder.rungs import layout
from xladder.rungs.mesh import MeshRun, describe
from xladder.rungs.running import USUAL, Compiler, Metrics

COMPARED_EVERY = 100  # ticks
PIECE_BYTES = 256 * 2**20  # size above which an array is gathered in pieces


class HostsRun(MeshRun):
    """A population of runs on the devices of several processes."""

    def __init__(self, config: Config, seeds: Sequence[int], mesh: Mesh, compiler: Compiler = USUAL):
        self.done, self.compared = 0, 0
        super().__init__(config, seeds, mesh, compiler)
        self.note = f"{describe(mesh)} They belong to {jax.process_count()} processes."

    def advance(self, ticks: int) -> Metrics:
        """Train for exactly this many ticks, together with all other processes."""
        self._begin(f"training after tick {self.done}")
        metrics = super().advance(ticks)
        self.done += ticks
        if self.done - self.compared >= COMPARED_EVERY:
            self.compare()
        self._begin(f"between chunks, after tick {self.done}")
        return metrics

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
        for leaf in jax.tree.leaves(self.program.params(self.runs)):
            seen = set()
            for shard in leaf.addressable_shards:
                place = (shard.index[0].start or 0) // block
                if place not in seen:
                    seen.add(place)
                    hashes[place].update(np.asarray(shard.data).tobytes())
        return {place: found.digest() for place, found in hashes.items()}

    def everywhere(self, value: np.generic) -> jax.Array:
        """Copy a scalar, which has to be equal on all hosts, to all devices."""
        return jax.make_array_from_callback((), self.where(PartitionSpec()), lambda index: np.asarray(value))

    def fetch(self, tree: Any) -> Any:
        """Gather sharded arrays on this host."""
        return jax.tree.map(self._whole, tree)

    def _whole(self, leaf: jax.Array) -> np.ndarray:
        """Gather one array; a large one in pieces, as a device may not have room for all of it."""
        gather = jax.jit(_bare, out_shardings=self.where(PartitionSpec()), static_argnums=(2, 3))
        axis, size = _pieces(leaf)
        if axis is None:
            return np.asarray(gather(leaf, 0, 0, None))
        whole = np.empty(leaf.shape, leaf.dtype)
        for start in range(0, leaf.shape[axis], size):
            start = min(start, leaf.shape[axis] - size)
            where = (slice(None),) * axis + (slice(start, start + size),)
            whole[where] = np.asarray(gather(leaf, self.everywhere(np.int32(start)), axis, size))
        return whole

    def state(self) -> Any:
        """The state to resume from, complete on every host."""
        return {"counters": self.fetch(self.counters), "runs": self.fetch(self.program.carried(self.runs))}

    def take_state(self, state: Any) -> None:
        """Restore a state: every process takes its part."""

        def put(leaf: np.ndarray, like: jax.Array) -> jax.Array:
            # PRNG keys are saved as their data, which has one more axis.
            placed = jax.make_array_from_callback(leaf.shape, like.sharding, lambda index: leaf[index])
            if leaf.shape == like.shape:
                return placed
            wrap = jax.jit(lambda x: jax.random.wrap_key_data(x), out_shardings=like.sharding)
            return wrap(placed)

        self.counters = jax.tree.map(put, state["counters"], self.counters)
        self.runs = jax.tree.map(put, state["runs"], self.runs)
        self.done = int(np.asarray(state["counters"].tick))
        self.compare()  # every process has read the checkpoint itself


def _pieces(leaf: Any) -> tuple[int | None, int]:
    """The unsharded axis along which to gather an array, and the length of a piece; None if the array is small."""
    free = [axis for axis in range(len(leaf.sharding.spec), leaf.ndim) if leaf.shape[axis] > 1]
    if leaf.nbytes <= PIECE_BYTES or not free:
        return None, 0
    length = leaf.shape[free[0]]
    return free[0], max(1, length * PIECE_BYTES // leaf.nbytes)


def _bare(leaf: jax.Array, start: jax.Array, axis: int, size: int | None) -> jax.Array:
    """An array or a slice of it; PRNG keys as their data."""
    if size is not None:
        return jax.lax.dynamic_slice_in_dim(leaf, start, size, axis)
    return jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf


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
) -> HostsRun:
    """Start a population of runs, one per seed, on the devices of all processes.

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
    return HostsRun(config, seeds, make_mesh(layout.parse(mesh or f"data={jax.process_count()}")), compiler)
