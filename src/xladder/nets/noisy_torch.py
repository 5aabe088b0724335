"""Noisy layers in PyTorch: the twin of `noisy.py`."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

Shapes = tuple[tuple[str, int, int], ...]
"""Name, inputs and outputs of every noisy layer, in the order in which a draw is split."""


class LayerNoise(NamedTuple):
    """Standard normal noise, independent for every weight and bias of a layer."""

    weight: Tensor  # [out, in]
    bias: Tensor  # [out]


class Factors(NamedTuple):
    """The two factors of a layer's noise; leading axes are those of the batch, or none."""

    inputs: Tensor  # […, in]
    outputs: Tensor  # […, out]


def noise_size(shapes: Shapes, factorised: bool) -> int:
    """Standard normal numbers per draw of noise."""
    return sum(inputs + outputs if factorised else (inputs + 1) * outputs for _, inputs, outputs in shapes)


def split_noise(normals: Tensor, shapes: Shapes, factorised: bool) -> Any:
    """Split float32 […, noise_size] into the noise of each layer, in the order of the JAX side."""
    noise: dict[str, Any] = {}
    start = 0
    for name, inputs, outputs in shapes:
        if factorised:
            factors = normals[..., start : start + inputs + outputs]
            factors = torch.sign(factors) * factors.abs().sqrt()
            noise[name] = Factors(factors[..., :inputs], factors[..., inputs:])
            start += inputs + outputs
        else:
            middle, end = start + inputs * outputs, start + (inputs + 1) * outputs
            noise[name] = LayerNoise(normals[start:middle].view(inputs, outputs).T, normals[middle:end])
            start = end
    return noise


class NoisyLinear(nn.Linear):
    """A linear layer with weights w + σ·ε. Without noise, plain w."""

    def __init__(self, inputs: int, outputs: int, sigma: float, factorised: bool):
        super().__init__(inputs, outputs)
        spread = sigma / math.sqrt(inputs) if factorised else sigma
        self.sigma_weight = nn.Parameter(torch.full((outputs, inputs), spread))
        self.sigma_bias = nn.Parameter(torch.full((outputs,), spread))
        bound = math.sqrt((1 if factorised else 3) / inputs)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor, noise: LayerNoise | Factors | None = None) -> Tensor:
        """[…, out] from […, in]."""
        if noise is None:
            return functional.linear(x, self.weight, self.bias)
        if isinstance(noise, Factors):
            inputs, outputs = (_fit(factor, x.ndim) for factor in noise)
            moved = functional.linear(x * inputs, self.sigma_weight, self.sigma_bias)
            return functional.linear(x, self.weight, self.bias) + outputs * moved
        weight = torch.addcmul(self.weight, self.sigma_weight, noise.weight)
        bias = torch.addcmul(self.bias, self.sigma_bias, noise.bias)
        return functional.linear(x, weight, bias)


def _fit(factor: Tensor, axes: int) -> Tensor:
    """Insert axes of length one before the last, up to `axes`."""
    return factor.reshape(*factor.shape[:-1], *([1] * (axes - factor.ndim)), factor.shape[-1])
