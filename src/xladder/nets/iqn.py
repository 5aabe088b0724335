"""Implicit quantile network with a dueling, noisy head (Dabney et al. 2018; Fortunato et al. 2018; Wang et al. 2016).

Written for one state; any leading axes are states of a batch. Nothing is drawn here: quantile fractions and weight
noise come in as arguments.

Shapes: F frames, V cells, Q quantile fractions, H width, A actions.
"""

import math
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.nn.initializers import constant

from xladder.nets.affine import PlainDense, affine
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


def cos_pi(x: jax.Array) -> jax.Array:
    """cos(π·x), to 2e-7 of what float32 `x` says: a polynomial, which vectorises where XLA's cosine does not.

    cos(π·x) = sin(π·s) with s = ½ − |x − 2·round(x/2)| in [−½, ½]; the coefficients are Taylor's.
    """
    s = 0.5 - jnp.abs(x - 2.0 * jnp.round(0.5 * x))
    terms = [(-1) ** k * math.pi ** (2 * k + 1) / math.factorial(2 * k + 1) for k in range(6)]
    return s * jnp.polyval(jnp.array(terms[::-1], jnp.float32), s * s)


@jax.custom_vjp
def modulate(features: jax.Array, embedding: jax.Array) -> jax.Array:
    """float32 […, Q, H]: a state's features […, H] times each of its embedded fractions […, Q, H].

    The gradient is the plain one with its sum over Q written out: as a reduction of a mapped axis it takes XLA on a
    CPU twenty times longer, which was a fifth of an epoch.
    """
    return features[..., None, :] * embedding


def _modulate_forward(features: jax.Array, embedding: jax.Array) -> tuple[jax.Array, Any]:
    return modulate(features, embedding), (features, embedding)


def _modulate_backward(saved: Any, gradient: jax.Array) -> tuple[jax.Array, jax.Array]:
    features, embedding = saved
    summed = sum(gradient[..., q, :] * embedding[..., q, :] for q in range(embedding.shape[-2]))
    return jnp.asarray(summed), gradient * features[..., None, :]


modulate.defvjp(_modulate_forward, _modulate_backward)


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
        return affine(x, kernel, bias)


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
        """float32 […, Q, A] from int8 […, F, V] and fractions […, Q]."""
        return self._heads(self._hidden(codes, self.embed(taus), noise, lookup=False), noise)

    def embed(self, taus: jax.Array) -> jax.Array:
        """float32 […, Q, H]: fractions as cosines, then a layer. It does not look at the state."""
        i = np.arange(1, self.cosines + 1, dtype=np.float32)
        return nn.relu(self.cos_embedding(cos_pi(taus[..., None] * jnp.expand_dims(i, range(taus.ndim)))))

    def embedded_mean(self, codes: jax.Array, embedding: jax.Array) -> jax.Array:
        """float32 […, A]: the mean quantiles, without noise, for embedded fractions, float32 […, Q, H].

        For acting. The heads are linear, so the mean is taken before them.
        """
        return self._heads(self._hidden(codes, embedding, None, lookup=True).mean(-2), None)

    def _hidden(self, codes: jax.Array, embedding: jax.Array, noise: Noise | None, lookup: bool) -> jax.Array:
        features = nn.relu(self.head1(codes, lookup))  # […, H]
        return nn.relu(self.ff_1(modulate(features, embedding), noise and noise.ff_1))  # […, Q, H]

    def _heads(self, hidden: jax.Array, noise: Noise | None) -> jax.Array:
        advantage = self.advantage(hidden, noise and noise.advantage)
        value = self.value(hidden, noise and noise.value)
        return value + advantage - advantage.mean(-1, keepdims=True)
