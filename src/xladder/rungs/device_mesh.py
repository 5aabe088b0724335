"""A mesh of devices, and data parallelism over one of its axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from xladder.core.data_parallel import DataParallel
from xladder.errors import UsageError
from xladder.rungs import layout


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


def own_device(mesh: Mesh) -> Any:
    """A device of this process: constants of a program have to be on one."""
    return next(d for d in mesh.devices.flat if d.process_index == jax.process_index())
