"""Noisy dense layers (Fortunato et al. 2018); the noise is an argument.

Noise is either independent for every weight, w + σ·ε, or factorised, ε = f(εᵢ)·f(εⱼ) with f(x) = sgn(x)·√|x|. The
factors are never multiplied out: x·(σ∘(a bᵀ)) is ((x∘a)·σ)∘b, so every row of a batch may have its own noise.

Shapes: I inputs, O outputs of a layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import constant

from xladder.nets.affine import affine
from xladder.nets.initial import symmetric_uniform


class LayerNoise(NamedTuple):
    """Standard normal noise, independent for every weight and bias of a layer."""

    kernel: jax.Array  # [I, O]
    bias: jax.Array  # [O]


class Factors(NamedTuple):
    """The two factors of a layer's noise, f already applied; leading axes are those of the batch, or none."""

    inputs: jax.Array  # […, I]
    outputs: jax.Array  # […, O]


Noise = Mapping[str, LayerNoise] | Mapping[str, Factors]
"""One draw of noise for all noisy layers, by name."""

Shapes = tuple[tuple[str, int, int], ...]
"""Name, inputs and outputs of every noisy layer."""


def noise_size(shapes: Shapes, factorised: bool) -> int:
    """Standard normal numbers per draw of noise."""
    return sum(inputs + outputs if factorised else (inputs + 1) * outputs for _, inputs, outputs in shapes)


def split_noise(normals: jax.Array, shapes: Shapes, factorised: bool) -> Any:
    """Split float32 […, noise_size] into the noise of each layer: one draw is cheaper than many."""
    noise: dict[str, Any] = {}
    start = 0
    for name, inputs, outputs in shapes:
        if factorised:
            factors = normals[..., start : start + inputs + outputs]
            factors = jnp.sign(factors) * jnp.sqrt(jnp.abs(factors))
            noise[name] = Factors(factors[..., :inputs], factors[..., inputs:])
            start += inputs + outputs
        else:
            middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
            noise[name] = LayerNoise(normals[start:middle].reshape(inputs, outputs), normals[middle:end])
            start = end
    return noise


class NoisyDense(nn.Module):
    """A dense layer with weights w + σ·ε. Without noise, plain w.

    Both kinds are initialised as published: independent noise with U(±√(3/I)) and σ = `sigma`, factorised noise with
    U(±1/√I) and σ = `sigma`/√I.
    """

    width: int
    sigma: float
    factorised: bool = False
    dtype: Any = jnp.float32
    kept: Any = jnp.float32  # of the results

    @nn.compact
    def __call__(self, x: jax.Array, noise: Any) -> jax.Array:
        """[…, O] from […, I]."""
        shape = (x.shape[-1], self.width)
        init = symmetric_uniform(((1 if self.factorised else 3) / shape[0]) ** 0.5)
        spread = constant(self.sigma * (shape[0] ** -0.5 if self.factorised else 1))
        kernel = self.param("kernel", init, shape, jnp.float32)
        bias = self.param("bias", init, shape[1:], jnp.float32)
        sigma_kernel = self.param("sigma_kernel", spread, shape, jnp.float32)
        sigma_bias = self.param("sigma_bias", spread, shape[1:], jnp.float32)
        if isinstance(noise, Factors):
            inputs, outputs = (_fit(factor, x.ndim) for factor in noise)
            noisy = outputs * affine(x * inputs, sigma_kernel, sigma_bias, self.dtype)
            return (affine(x, kernel, bias, self.dtype) + noisy).astype(self.kept)
        if noise is not None:
            kernel = kernel + sigma_kernel * noise.kernel
            bias = bias + sigma_bias * noise.bias
        return affine(x, kernel, bias, self.dtype, self.kept)


def _fit(factor: jax.Array, axes: int) -> jax.Array:
    """Insert axes of length one before the last, up to `axes`: the quantiles of a state share its noise."""
    missing = axes - factor.ndim
    return jnp.expand_dims(factor, range(factor.ndim - 1, factor.ndim - 1 + missing))
