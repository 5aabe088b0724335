"""The implicit quantile network in PyTorch: the twin of `iqn.py`, on batches. Its state_dict has sorrel's names.

Shapes: B batch, F frames, V cells, Q quantile fractions, H width, A actions.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional


class LayerNoise(NamedTuple):
    """Standard normal noise for one noisy layer."""

    weight: Tensor  # [out, in]
    bias: Tensor  # [out]


class Noise(NamedTuple):
    """One draw of noise for the whole network."""

    ff_1: LayerNoise
    advantage: LayerNoise
    value: LayerNoise


class NoisyLinear(nn.Linear):
    """A linear layer whose weights are perturbed: w + σ·ε. Without noise, plain w."""

    def __init__(self, inputs: int, outputs: int, sigma: float):
        super().__init__(inputs, outputs)
        self.sigma_weight = nn.Parameter(torch.full((outputs, inputs), sigma))
        self.sigma_bias = nn.Parameter(torch.full((outputs,), sigma))
        bound = math.sqrt(3 / inputs)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.uniform_(self.bias, -bound, bound)

    def draw(self) -> LayerNoise:
        """Fresh noise from PyTorch's generator."""
        return LayerNoise(torch.randn_like(self.weight), torch.randn_like(self.bias))

    def forward(self, x: Tensor, noise: LayerNoise | None = None) -> Tensor:
        """[…, out] from […, in]."""
        if noise is None:
            return functional.linear(x, self.weight, self.bias)
        weight = torch.addcmul(self.weight, self.sigma_weight, noise.weight)
        bias = torch.addcmul(self.bias, self.sigma_bias, noise.bias)
        return functional.linear(x, weight, bias)


class IQN(nn.Module):
    """Quantiles of the return of every action, for a batch of states."""

    i_pi: Tensor

    def __init__(self, inputs: int, actions: int, width: int, cosines: int, sigma: float):
        super().__init__()
        self.head1 = nn.Linear(inputs, width)
        self.cos_embedding = nn.Linear(cosines, width)
        self.ff_1 = NoisyLinear(width, width, sigma)
        self.advantage = NoisyLinear(width, actions, sigma)
        self.value = NoisyLinear(width, 1, sigma)
        self.register_buffer("i_pi", math.pi * torch.arange(1, cosines + 1), persistent=False)

    def draw_noise(self) -> Noise:
        """Noise for one forward call, shared by the whole batch."""
        return Noise(self.ff_1.draw(), self.advantage.draw(), self.value.draw())

    def forward(self, x: Tensor, taus: Tensor, noise: Noise | None = None) -> Tensor:
        """float32 [B, Q, A] from encoded states [B, F·E·V] and fractions [B, Q]."""
        features = functional.relu(self.head1(x))  # [B, H]
        cosines = torch.cos(taus[..., None] * self.i_pi)  # [B, Q, cosines]
        embedding = functional.relu(self.cos_embedding(cosines))  # [B, Q, H]
        hidden = functional.relu(self.ff_1(features[:, None] * embedding, noise and noise.ff_1))
        advantage = self.advantage(hidden, noise and noise.advantage)
        value = self.value(hidden, noise and noise.value)
        return value + advantage - advantage.mean(-1, keepdim=True)


def one_hot(codes: Tensor, num_codes: int) -> Tensor:
    """float32 [B, F·E·V] from int8 [B, F, V]: channel first, code 0 as zeros."""
    channels = torch.arange(num_codes, dtype=codes.dtype, device=codes.device)[:, None]
    channels[0] = -1  # no code: empty cells show nothing
    return (codes[:, :, None] == channels).flatten(1).float()
