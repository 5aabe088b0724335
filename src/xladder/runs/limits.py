"""Measure a machine's peak rates with one large matrix product and one large copy, taking the best of several."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from xladder.core.compiling import compiled

SIDES = {"cpu": 2048}  # of the product's matrices
GPU_SIDE = 8192
LENGTHS = {"cpu": 2**25}  # of the copied array, far larger than any cache
GPU_LENGTH = 2**29
REPEATS = 7


def measure(device: Any) -> dict[str, float]:
    """Peak FLOP/s of a float32 matrix product with JAX's default precision, and peak bytes/s read plus written."""
    side, length = SIDES.get(device.platform, GPU_SIDE), LENGTHS.get(device.platform, GPU_LENGTH)
    with jax.default_device(device):
        square, line = jnp.ones((side, side), jnp.float32), jnp.ones(length, jnp.float32)
        # In place, because allocating new memory would cost a CPU more than the copy itself.
        product, copy = compiled(_product), compiled(_copy, (1,))
        return {
            "flops_per_second": 2 * side**3 / _best(lambda last: product(None, square), square),
            "bytes_per_second": 2 * line.nbytes / _best(lambda last: copy(None, last), line),
        }


def _product(_: None, square: jax.Array) -> jax.Array:
    return square @ square


def _copy(_: None, line: jax.Array) -> jax.Array:
    return line + 1.0


def _best(call: Callable[[jax.Array], jax.Array], value: jax.Array) -> float:
    value, times = call(value).block_until_ready(), []
    for _ in range(REPEATS):
        begun = time.perf_counter()
        value = call(value).block_until_ready()
        times.append(time.perf_counter() - begun)
    return min(times)
