"""Implicit quantile network with a dueling, noisy head (Dabney et al. 2018; Fortunato et al. 2018; Wang et al. 2016).

Written for one state. Nothing is drawn here: quantile fractions and weight noise come in as arguments.

Shapes: F frames, V cells, Q quantile fractions, H width, A actions.
"""

from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn.initializers import constant

from xladder.nets.codes import CodesDense
from xladder.nets.initial import symmetric_uniform


class LayerNoise(NamedTuple):
    """Standard normal noise for one noisy layer, independent for every weight and bias."""

    kernel: jax.Array  # [in, out]
    bias: jax.Array  # [out]


class Noise(NamedTuple):
    """One draw of noise for the whole network."""

    ff_1: LayerNoise  # [H, H], [H]
    advantage: LayerNoise  # [H, A], [A]
    value: LayerNoise  # [H, 1], [1]


def noise_size(width: int, actions: int) -> int:
    """How many normals a `Noise` takes."""
    return sum((width + 1) * out for out in (width, actions, 1))


def split_noise(normals: jax.Array, width: int, actions: int) -> Noise:
    """Cut float32 [noise_size] into the pieces of a `Noise`: one draw is cheaper than six."""
    layers, start = [], 0
    for out in (width, actions, 1):
        middle, end = start + width * out, start + (width + 1) * out
        layers.append(LayerNoise(normals[start:middle].reshape(width, out), normals[middle:end]))
        start = end
    return Noise(*layers)


class PlainDense(nn.Module):
    """A dense layer with PyTorch's default initial distribution."""

    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """[…, H] from […, in]."""
        init = symmetric_uniform(x.shape[-1] ** -0.5)
        kernel = self.param("kernel", init, (x.shape[-1], self.width), jnp.float32)
        return x @ kernel + self.param("bias", init, (self.width,), jnp.float32)


class NoisyDense(nn.Module):
    """A dense layer whose weights are perturbed: w + σ·ε. Without noise, plain w."""

    width: int
    sigma: float

    @nn.compact
    def __call__(self, x: jax.Array, noise: LayerNoise | None) -> jax.Array:
        """[…, width] from […, in]."""
        init = symmetric_uniform((3 / x.shape[-1]) ** 0.5)
        spread = constant(self.sigma)
        shape = (x.shape[-1], self.width)
        kernel = self.param("kernel", init, shape, jnp.float32)
        bias = self.param("bias", init, shape[1:], jnp.float32)
        sigma_kernel = self.param("sigma_kernel", spread, shape, jnp.float32)
        sigma_bias = self.param("sigma_bias", spread, shape[1:], jnp.float32)
        if noise is not None:
            kernel = kernel + sigma_kernel * noise.kernel
            bias = bias + sigma_bias * noise.bias
        return x @ kernel + bias


class IQN(nn.Module):
    """Quantiles of the return of every action in one state."""

    actions: int
    num_codes: int
    width: int
    cosines: int
    sigma: float

    def setup(self) -> None:
        """Layers bear the names they have in PyTorch, so that the bridge is a table."""
        self.head1 = CodesDense(self.width, self.num_codes)
        self.cos_embedding = PlainDense(self.width)
        self.ff_1 = NoisyDense(self.width, self.sigma)
        self.advantage = NoisyDense(self.actions, self.sigma)
        self.value = NoisyDense(1, self.sigma)

    def __call__(self, codes: jax.Array, taus: jax.Array, noise: Noise | None = None) -> jax.Array:
        """float32 [Q, A] from int8 [F, V] and fractions [Q]."""
        return self._heads(self._hidden(codes, self.embed(taus), noise, lookup=False), noise)

    def mean(self, codes: jax.Array, taus: jax.Array, noise: Noise | None = None) -> jax.Array:
        """float32 [A]: the quantiles averaged. The heads are linear, so the average is taken before them."""
        return self._heads(self._hidden(codes, self.embed(taus), noise, lookup=False).mean(0), noise)

    def embed(self, taus: jax.Array) -> jax.Array:
        """float32 [Q, H]: fractions as cosines, then a layer. It does not look at the state."""
        i = np.arange(1, self.cosines + 1, dtype=np.float32)
        return nn.relu(self.cos_embedding(jnp.cos(taus[:, None] * (np.float32(np.pi) * i))))

    def embedded_mean(self, codes: jax.Array, embedding: jax.Array) -> jax.Array:
        """`mean` without noise for fractions that are embedded already, float32 [Q, H]: for acting."""
        return self._heads(self._hidden(codes, embedding, None, lookup=True).mean(0), None)

    def _hidden(self, codes: jax.Array, embedding: jax.Array, noise: Noise | None, lookup: bool) -> jax.Array:
        features = nn.relu(self.head1(codes, lookup))  # [H]
        return nn.relu(self.ff_1(features * embedding, noise and noise.ff_1))  # [Q, H]

    def _heads(self, hidden: jax.Array, noise: Noise | None) -> jax.Array:
        advantage = self.advantage(hidden, noise and noise.advantage)
        value = self.value(hidden, noise and noise.value)
        return value + advantage - advantage.mean(-1, keepdims=True)
