"""One run over several devices, with worlds on the host that are stepped while the devices learn.

Every process steps its part of the envs, in its own threads; every device has the replay memory of some of them, and
samples its part of each batch from it. Little more than gradients is exchanged. As on `parallel`, batches are drawn
before the envs return, so n devices compute what one does with as many envs, up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xladder.core.data_parallel import SINGLE
from xladder.core.placement import SAME, Placement
from xladder.protocols import Config
from xladder.rungs import gathering, layout
from xladder.rungs.device_mesh import DeviceDataParallel, describe, own_device
from xladder.rungs.parallel import OverlappedRun
from xladder.rungs.running import USUAL, Compiler


@dataclass(frozen=True, kw_only=True)
class MeshPlacement(Placement):
    """Envs shared by the processes of a mesh, and by the devices of each."""

    mesh: Mesh

    @property
    def processes(self) -> int:
        """Number of processes that share the envs."""
        return len({device.process_index for device in self.mesh.devices.flat})

    def own_envs(self, num_envs: int) -> slice:
        """Which of the envs belong to this process: it has as many as every other."""
        each = num_envs // self.processes
        return slice(jax.process_index() * each, (jax.process_index() + 1) * each)

    def spread(self, function: Callable[..., Any], given: tuple[Any, ...], made: Any) -> Callable[..., Any]:
        """Run a function of a program and arrays on every device, with that device's part of the arrays."""
        return _spread(self.mesh, function, given, made)

    def by_env(self, array: np.ndarray, axis: int) -> jax.Array:
        """Send arrays with an entry for each of this process's envs to the devices that have them."""
        return jax.make_array_from_process_local_data(self._where(axis), array)

    def everywhere(self, array: np.ndarray) -> jax.Array:
        """Copy an array to all devices."""
        return gathering.everywhere(array, self.mesh)

    def own(self, array: jax.Array, axis: int) -> np.ndarray:
        """This process's part, by envs, of an array on the devices."""
        shards = sorted(array.addressable_shards, key=lambda shard: shard.index[axis].start or 0)
        for shard in shards:
            shard.data.copy_to_host_async()
        return np.concatenate([np.asarray(shard.data) for shard in shards], axis)

    def gather(self, array: np.ndarray, axis: int) -> np.ndarray:
        """All processes' parts of an array on the host, concatenated along an axis.

        Its first axis is padded to a power of two: a collective is compiled for each length.
        """
        if self.processes == 1:
            return array
        length = 1 << (len(array) - 1).bit_length()
        padded = np.zeros((length, *array.shape[1:]), array.dtype)
        padded[: len(array)] = array
        # Bytes, because JAX would turn numbers of 64 bits into 32.
        gathered = np.asarray(multihost_utils.process_allgather(padded.view(np.uint8).reshape(-1)))
        parts = gathered.view(array.dtype).reshape(-1, *padded.shape)[:, : len(array)]
        return np.concatenate(list(parts), axis)

    def whole(self, tree: Any) -> Any:
        """Arrays on the devices, complete on every host."""
        return jax.tree.map(lambda leaf: gathering.whole(leaf, self.mesh), tree)

    def place(self, tree: Any, like: Any) -> Any:
        """The inverse of `whole`: every process takes its part."""
        return jax.tree.map(gathering.put, tree, like)

    def _where(self, axis: int) -> NamedSharding:
        return NamedSharding(self.mesh, _spec(axis))


def _spec(axis: int) -> PartitionSpec:
    """The sharding of an array with this env axis."""
    return PartitionSpec() if axis == SAME else PartitionSpec(*[None] * axis, layout.DATA)


@cache  # so that a second run with the same settings reuses the compiled functions
def _spread(mesh: Mesh, function: Callable[..., Any], given: tuple[Any, ...], made: Any) -> Callable[..., Any]:
    of, to = jax.tree.map(_spec, given), jax.tree.map(_spec, made)

    def spread(program: Any, *arrays: Any) -> Any:
        # `check_vma=False`: see `mesh.py`.
        return jax.shard_map(partial(function, program), mesh=mesh, in_specs=of, out_specs=to, check_vma=False)(*arrays)

    return spread


class OverlappedMeshRun(OverlappedRun):
    """A run on a mesh of devices whose envs are stepped on the host while the devices learn, one seed."""

    def __init__(self, config: Config, seeds: Sequence[int], mesh: Mesh, compiler: Compiler = USUAL):
        (seed,) = self.seeds = tuple(seeds)
        self.mesh, size = mesh, mesh.shape[layout.DATA]
        self.placement = MeshPlacement(data_parallel=DeviceDataParallel(size) if size > 1 else SINGLE, mesh=mesh)
        super().__init__(config, seed, own_device(mesh), compiler, self.placement)
        self.note = describe(mesh)
