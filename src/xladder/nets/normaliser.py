"""Observations normalised by their running mean and variance. Leading axes are batch axes.

The statistics lie beside the weights, under `normaliser`: so they are saved, exported and given to whoever acts. No
gradient changes them; only `merge` does, with the frames of training steps. They begin as those of Gymnasium's
`NormalizeObservation` do: as if 10⁻⁴ frames with mean 0 and variance 1 had been seen.

Shapes: N envs, F frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from xladder.core.data_parallel import SINGLE, DataParallel

FIRST_COUNT = 1e-4
"""Frames that the initial mean and variance count as."""


class Scaling(NamedTuple):
    """How observations are normalised: (x − mean) / √(variance + eps), clipped to ± clip."""

    eps: float
    clip: float


class Normaliser(nn.Module):
    """Normalise every number of a frame by its statistics, which are constants here."""

    shape: tuple[int, ...]
    """Of one frame."""
    scaling: Scaling

    def setup(self) -> None:
        """The statistics: mean, variance and the number of frames they come from."""
        self.mean = self.param("mean", nn.initializers.zeros, self.shape, jnp.float32)
        self.variance = self.param("variance", nn.initializers.ones, self.shape, jnp.float32)
        self.count = self.param("count", nn.initializers.constant(FIRST_COUNT), (), jnp.float32)

    def __call__(self, states: jax.Array) -> jax.Array:
        """float32 […, F, *frame] from states […, F, *frame]."""
        mean, variance = (
            jax.lax.stop_gradient(x).reshape((1,) * (states.ndim - len(self.shape)) + self.shape)
            for x in (self.mean, self.variance)
        )
        eps, clip = self.scaling
        return jnp.clip((states - mean) / jnp.sqrt(variance + eps), -clip, clip)


def merge(
    statistics: Mapping[str, jax.Array], frames: jax.Array, data_parallel: DataParallel = SINGLE
) -> dict[str, jax.Array]:
    """The statistics after further frames [N, *frame], of which every device has an equal part.

    Means and variances are combined as in Chan, Golub and LeVeque 1979: no large sums that would cancel.
    """
    mean = data_parallel.mean(frames.mean(0))
    variance = data_parallel.mean(jnp.square(frames - mean[None]).mean(0))
    before, more = statistics["count"], frames.shape[0] * data_parallel.size
    total = before + more
    apart = mean - statistics["mean"]
    squares = statistics["variance"] * before + variance * more + jnp.square(apart) * (before * more / total)
    return {"mean": statistics["mean"] + apart * (more / total), "variance": squares / total, "count": total}
