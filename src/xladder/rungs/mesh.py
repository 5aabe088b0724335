"""`mesh`: the chunk of `fused`, laid over several devices of one process.

Seeds side by side need nothing of each other. One learner over several devices is *data parallel*: each device takes
its part of the envs, trajectories or batch, and gradients are averaged, so that n devices with batch B do what one
would do with B, but for rounding. What lies where is the table in `layout.py`.

`shard_map` runs the program on every device with that device's part of the arrays. It is told not to check which values
are equal everywhere (`check_vma=False`): then the gradient of a loss is that of this device's part alone, and the one
mean in the learner is the only one. (With the check on, JAX adds gradients of shared parameters up by itself, and
an average after that would be n times too large, which Adam hides.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from xladder.core.data_parallel import DataParallel
from xladder.errors import UsageError
from xladder.rungs import layout
from xladder.rungs.fused import FusedRun
from xladder.rungs.running import USUAL, Compiler


@dataclass(frozen=True)
class DeviceDataParallel(DataParallel):
    """The devices along an axis of a mesh."""

    axis: str = layout.DATA

    def local(self, tree: Any, axis: int = 0) -> Any:
        """This device's part of what is for all, cut evenly along an axis."""
        number = jax.lax.axis_index(self.axis)

        def part_of(x: jax.Array) -> jax.Array:
            size = x.shape[axis] // self.size
            return jax.lax.dynamic_slice_in_dim(x, number * size, size, axis)

        return jax.tree.map(part_of, tree)

    def mean(self, tree: Any) -> Any:
        """The mean over what each has."""
        return jax.lax.pmean(tree, self.axis)

    def add(self, tree: Any) -> Any:
        """The sum over what each has."""
        return jax.lax.psum(tree, self.axis)

    def gather(self, tree: Any) -> Any:
        """What each has, one after another along the first axis."""
        return jax.lax.all_gather(tree, self.axis, tiled=True)


class MeshRun(FusedRun):
    """A population of experiments on a mesh of devices, advanced by chunks."""

    def __init__(self, config: Any, seeds: Sequence[int], mesh: Mesh, compiler: Compiler = USUAL):
        self.mesh, self.config = mesh, config
        here = jax.process_index()  # what a program closes over has to be on a device of this process
        super().__init__(config, seeds, next(d for d in mesh.devices.flat if d.process_index == here), compiler)
        self.note = describe(mesh)

    def make_program(self, config: Any) -> Any:
        """The program of one device."""
        alone = config.family.program_for(config, self.device.platform, self.seeds)
        size = self.mesh.shape[layout.DATA]
        return replace(alone, data_parallel=DeviceDataParallel(size)) if size > 1 else alone

    def place(self, init: Callable[..., Any], seeds: np.ndarray) -> tuple[Any, Any]:
        """The clock on every device, and of the population to each what is its own."""
        counters, runs = jax.eval_shape(init, seeds)
        self.axes = PartitionSpec(), layout.axes(self.config, runs)
        shardings = jax.tree.map(self.where, (jax.tree.map(lambda _: PartitionSpec(), counters), self.axes[1]))
        placed: tuple[Any, Any] = jax.jit(init, out_shardings=shardings)(seeds)
        return placed

    def spread(self, chunk: Callable[..., Any]) -> Callable[..., Any]:
        """A function of clock, population and a number, run by every device on its part. Rows come out as [T, S, …]."""
        rows = PartitionSpec(None, layout.SEEDS)
        given, made = (*self.axes, PartitionSpec()), (*self.axes, rows)
        return jax.shard_map(chunk, mesh=self.mesh, in_specs=given, out_specs=made, check_vma=False)

    def everywhere(self, value: np.generic) -> jax.Array:
        """A number that every device is to know."""
        return jax.device_put(value, self.where(PartitionSpec()))

    def where(self, axes: PartitionSpec) -> NamedSharding:
        """Axes on the devices of this run."""
        return NamedSharding(self.mesh, axes)

    def spread_sampling(self, sample: Callable[..., Any]) -> Callable[..., Any]:
        """Sampling alone, on every device."""
        return jax.shard_map(sample, mesh=self.mesh, in_specs=self.axes, out_specs=PartitionSpec(), check_vma=False)

    def params(self) -> Any:
        """Parameters, leaves [S, …]."""
        whole = jax.jit(self.program.params, out_shardings=self.where(PartitionSpec()))(self.runs)
        return jax.tree.map(np.asarray, whole)


def describe(mesh: Mesh) -> str:
    """What lies over how many devices, in words."""
    seeds, data = mesh.shape[layout.SEEDS], mesh.shape[layout.DATA]
    kind = mesh.devices.flat[0].platform
    return f"A mesh of {seeds * data} {kind} devices: {seeds} for seeds, {data} for the work of each."


def make_mesh(shape: layout.MeshShape, devices: Sequence[Any]) -> Mesh:
    """The first devices, in rows of those that share the work of a seed."""
    if shape.devices > len(devices):
        kind = devices[0].platform
        way_out = (
            f"`JAX_NUM_CPU_DEVICES={shape.devices}` before the command makes as many of the processor's cores"
            if kind == "cpu"
            else f"use at most {len(devices)}"
        )
        raise UsageError(
            f"`--mesh {shape}` needs {shape.devices} devices, and JAX finds {len(devices)} ({kind}): {way_out}."
        )
    grid = np.array(devices[: shape.devices]).reshape(shape.seeds, shape.data)
    return Mesh(grid, (layout.SEEDS, layout.DATA))


def start(
    config: Any, seeds: Sequence[int], device: Any = None, compiler: Compiler = USUAL, mesh: str | None = None
) -> MeshRun:
    """Begin a population of experiments, one per seed, on the devices of the kind that `device` is."""
    platform = device.platform if device is not None else None
    return MeshRun(config, seeds, make_mesh(layout.parse(mesh or "data=1"), jax.devices(platform)), compiler)
