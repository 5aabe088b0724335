"""`mesh`: the chunk of `fused`, sharded over several devices of one process.

Different seeds are independent. One learner on several devices is *data parallel*: each device takes its part of the
envs, trajectories or batch, and gradients are averaged, so n devices with a total batch of B compute the same as one
device with B, up to rounding. The table in `layout.py` says what is sharded.

`shard_map` runs the program on every device with that device's part of the arrays. It is called with `check_vma=False`:
then the gradient of a loss is that of the device's own part, and the mean in the learner is the only reduction. (With
the check on, JAX already sums the gradients of replicated parameters, and their mean would be n times too large, which
Adam hides.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xladder.core.compiling import options_for
from xladder.core.data_parallel import DataParallel
from xladder.errors import UsageError
from xladder.protocols import Config
from xladder.rungs import layout
from xladder.rungs.fused import FusedRun
from xladder.rungs.running import USUAL, Compiler


@dataclass(frozen=True)
class DeviceDataParallel(DataParallel):
    """Data parallelism over an axis of a device mesh."""

    axis: str = layout.DATA

    def local(self, tree: Any, axis: int = 0) -> Any:
        """This device's equal part of arrays that all devices have, sliced along `axis`."""
        number = jax.lax.axis_index(self.axis)

        def part_of(x: jax.Array) -> jax.Array:
            size = x.shape[axis] // self.size
            return jax.lax.dynamic_slice_in_dim(x, number * size, size, axis)

        return jax.tree.map(part_of, tree)

    def mean(self, tree: Any) -> Any:
        """The mean over all devices."""
        return jax.lax.pmean(tree, self.axis)

    def add(self, tree: Any) -> Any:
        """The sum over all devices."""
        return jax.lax.psum(tree, self.axis)

    def gather(self, tree: Any) -> Any:
        """The parts of all devices, concatenated along the first axis."""
        return jax.lax.all_gather(tree, self.axis, tiled=True)


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
        here = jax.process_index()  # constants of a program have to be on a device of this process
        device = next(d for d in mesh.devices.flat if d.process_index == here)
        super().__init__(config, seeds, device, compiler, hyperparams)
        self.note = describe(mesh)

    def make_program(self, config: Config) -> Any:
        """The program that each device runs."""
        alone = config.family.program_for(config, self.device.platform, self.seeds)
        size = self.mesh.shape[layout.DATA]
        return replace(alone, data_parallel=DeviceDataParallel(size)) if size > 1 else alone

    def place(self, init: Callable[..., Any], seeds: np.ndarray, hyperparams: Any) -> tuple[Any, Any]:
        """Initialise the counters, replicated, and the population, sharded."""
        counters, runs = jax.eval_shape(init, seeds, hyperparams)
        self.axes = PartitionSpec(), layout.axes(self.config, runs)
        shardings = jax.tree.map(self.where, (jax.tree.map(lambda _: PartitionSpec(), counters), self.axes[1]))
        jitted = jax.jit(init, out_shardings=shardings, compiler_options=options_for(self.device.platform))
        placed: tuple[Any, Any] = jitted(seeds, hyperparams)
        return placed

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


def describe(mesh: Mesh) -> str:
    """Describe the mesh for the user."""
    seeds, data = mesh.shape[layout.SEEDS], mesh.shape[layout.DATA]
    kind = mesh.devices.flat[0].platform
    return f"A mesh of {seeds * data} {kind} devices: {seeds} along `seeds`, {data} along `data`."


def make_mesh(shape: layout.MeshShape, devices: Sequence[Any]) -> Mesh:
    """A mesh of the first devices; those of a row share the work of a seed."""
    if shape.devices > len(devices):
        kind = devices[0].platform
        way_out = (
            f"set `JAX_NUM_CPU_DEVICES={shape.devices}` to split the CPU into as many devices"
            if kind == "cpu"
            else f"use at most {len(devices)}"
        )
        raise UsageError(
            f"`--mesh {shape}` needs {shape.devices} devices, but JAX finds {len(devices)} ({kind}): {way_out}."
        )
    grid = np.array(devices[: shape.devices]).reshape(shape.seeds, shape.data)
    return Mesh(grid, (layout.SEEDS, layout.DATA))


def start(
    config: Config,
    seeds: Sequence[int],
    device: Any = None,
    compiler: Compiler = USUAL,
    mesh: str | None = None,
    hyperparams: Any = None,
) -> MeshRun:
    """Start a population of runs, one per seed, on a mesh of devices.

    Args:
        config: the configuration of the run.
        seeds: the seeds.
        device: a device of the platform to use.
        compiler: compiles the chunk.
        mesh: the mesh, such as `seeds=4`, `data=2` or `seeds=2,data=2`.
        hyperparams: the hyperparameters of each seed, leaves [S], if they differ.
    """
    platform = device.platform if device is not None else None
    return MeshRun(
        config, seeds, make_mesh(layout.parse(mesh or "data=1"), jax.devices(platform)), compiler, hyperparams
    )
