"""`mesh`: the chunk of `fused`, sharded over several devices of one process.

Different seeds are independent. One learner on several devices is *data parallel*: each device takes its part of the
envs, trajectories or batch, and gradients are averaged, so n devices with a total batch of B compute the same as one
device with B, up to rounding. The table in `layout.py` says what is sharded.

`shard_map` runs the program on every device with that device's part of the arrays. It is called with `check_vma=False`:
then the gradient of a loss is that of the device's own part, and the mean in the learner is the only reduction. (With
the check on, JAX already sums the gradients of replicated parameters, and their mean would be n times too large, which
Adam hides.)

Worlds on the host are stepped there, and each device has its part of their memory: `overlapped_mesh.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xladder.protocols import Config
from xladder.rungs import layout
from xladder.rungs.device_mesh import DeviceDataParallel, describe, make_mesh, own_device
from xladder.rungs.fused import FusedRun
from xladder.rungs.overlapped_mesh import OverlappedMeshRun
from xladder.rungs.running import USUAL, Compiler


class MeshRun(FusedRun):
    """A population of runs on a mesh of devices, advanced in chunks."""

    ahead = False  # several programs that wait for each other's devices could block the threads of a CPU

    def __init__(
        self,
        config: Config,
        seeds: Sequence[int],
        mesh: Mesh,
        compiler: Compiler = USUAL,
        hyperparams: Any = None,
    ):
        self.mesh, self.config = mesh, config
        super().__init__(config, seeds, own_device(mesh), compiler, hyperparams)
        self.note = describe(mesh)

    def make_program(self, config: Config) -> Any:
        """The program that each device runs."""
        alone = config.family.program_for(config, self.device.platform, self.seeds)
        size = self.mesh.shape[layout.DATA]
        return replace(alone, data_parallel=DeviceDataParallel(size)) if size > 1 else alone

    def shardings(self, init: Callable[..., Any], seeds: np.ndarray, hyperparams: Any) -> tuple[Any, Any]:
        """Where the counters, replicated, and the population, sharded, lie."""
        counters, runs = jax.eval_shape(init, seeds, hyperparams)
        self.axes = PartitionSpec(), layout.axes(self.config, runs)
        axes = jax.tree.map(lambda _: PartitionSpec(), counters), self.axes[1]
        found: tuple[Any, Any] = jax.tree.map(self.where, axes)
        return found

    def spread(self, chunk: Callable[..., Any]) -> Callable[..., Any]:
        """Shard a function of counters, population and number of ticks. Its metrics come out as [T, S, …]."""
        rows = PartitionSpec(None, layout.SEEDS)
        given, made = (*self.axes, PartitionSpec()), (*self.axes, rows)
        return jax.shard_map(chunk, mesh=self.mesh, in_specs=given, out_specs=made, check_vma=False)

    def everywhere(self, value: np.generic) -> jax.Array:
        """Copy a scalar to all devices."""
        return jax.device_put(value, self.where(PartitionSpec()))

    def where(self, axes: PartitionSpec) -> NamedSharding:
        """The sharding for these axes on this run's mesh."""
        return NamedSharding(self.mesh, axes)

    def spread_sampling(self, sample: Callable[..., Any]) -> Callable[..., Any]:
        """Shard the sampling alone."""
        return jax.shard_map(sample, mesh=self.mesh, in_specs=self.axes, out_specs=PartitionSpec(), check_vma=False)

    def params(self) -> Any:
        """Parameters, leaves [S, …]."""
        whole = jax.jit(self.program.params, out_shardings=self.where(PartitionSpec()))(self.runs)
        return jax.tree.map(np.asarray, whole)


def start(
    config: Config,
    seeds: Sequence[int],
    device: Any = None,
    compiler: Compiler = USUAL,
    mesh: str | None = None,
    hyperparams: Any = None,
) -> MeshRun | OverlappedMeshRun:
    """Start a population of runs, one per seed, on a mesh of devices; of worlds on the host, one run.

    Args:
        config: the configuration of the run.
        seeds: the seeds.
        device: a device of the platform to use.
        compiler: compiles the chunk.
        mesh: the mesh, such as `seeds=4`, `data=2` or `seeds=2,data=2`.
        hyperparams: the hyperparameters of each seed, leaves [S], if they differ.
    """
    platform = device.platform if device is not None else None
    over = make_mesh(layout.parse(mesh or "data=1"), jax.devices(platform))
    if not config.world.jittable:
        return OverlappedMeshRun(config, seeds, over, compiler)
    return MeshRun(config, seeds, over, compiler, hyperparams)
