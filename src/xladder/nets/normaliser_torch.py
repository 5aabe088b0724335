"""Observations normalised by their running mean and variance in PyTorch: the twin of `normaliser.py`.

The statistics are buffers, as those of PyTorch's `BatchNorm` are: in the state_dict, and not among the parameters.

Shapes: N envs, B batch, F frames.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Normaliser(nn.Module):
    """Normalise every number of a frame, of the given shape, by its statistics."""

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, shape: tuple[int, ...], eps: float, clip: float):
        super().__init__()
        self.eps, self.clip = eps, clip
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("variance", torch.ones(shape))
        self.register_buffer("count", torch.tensor(1e-4))

    def forward(self, states: Tensor) -> Tensor:
        """[B, F, *frame] from states [B, F, *frame]."""
        return ((states - self.mean) * torch.rsqrt(self.variance + self.eps)).clamp(-self.clip, self.clip)

    @torch.no_grad()
    def merge(self, frames: Tensor) -> None:
        """Add frames [N, *frame] to the statistics, in place: a captured graph reads this memory."""
        variance, mean = torch.var_mean(frames, 0, correction=0)
        total = self.count + len(frames)
        apart = mean - self.mean
        squares = self.variance * self.count + variance * len(frames) + apart**2 * (self.count * len(frames) / total)
        self.mean.add_(apart * (len(frames) / total))
        self.variance.copy_(squares / total)
        self.count.copy_(total)
