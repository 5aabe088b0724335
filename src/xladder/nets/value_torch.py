"""Value networks in PyTorch: the twins of `heads.py` and `value.py`, on batches.

Shapes: B batch, E features, Q fractions, H width, Z numbers per action, A actions.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from xladder.nets import heads
from xladder.nets.noisy_torch import NoisyLinear, split_noise


class Head(nn.Module):
    """The layers that a head of `heads.py` has, under the same names."""

    i_pi: Tensor

    def __init__(self, like: heads.Head):
        super().__init__()
        self.like = like
        if like.cosines:
            self.embedding = nn.Linear(like.cosines, like.features)
            self.register_buffer("i_pi", math.pi * torch.arange(1, like.cosines + 1), persistent=False)
        self.hidden = self._linear(like.features, like.width)
        self.advantage = self._linear(like.width, like.actions * like.atoms)
        if like.dueling:
            self.value = self._linear(like.width, like.atoms)
            if like.apart:
                self.value_hidden = self._linear(like.features, like.width)

    def _linear(self, inputs: int, outputs: int) -> nn.Module:
        if self.like.sigma is None:
            return nn.Linear(inputs, outputs)
        return NoisyLinear(inputs, outputs, self.like.sigma, self.like.factorised)

    def split_noise(self, normals: Tensor) -> Any:
        """Normals […, noise_size] as the noise of the layers; None where there is none."""
        shapes = self.like.noise_shapes()
        return split_noise(normals, shapes, self.like.factorised) if shapes else None

    def forward(self, features: Tensor, taus: Tensor | None = None, noise: Any = None) -> Tensor:
        """float32 [B, Z, A] from features [B, E]; with implicit quantiles, Z = Q and fractions [B, Q] are needed."""
        if self.like.cosines:
            assert taus is not None
            cosines = torch.cos(taus[..., None] * self.i_pi)  # [B, Q, cosines]
            features = features[:, None] * functional.relu(self.embedding(cosines))  # [B, Q, E]
        hidden = functional.relu(self._layer("hidden", features, noise))
        said = self._layer("advantage", hidden, noise)
        said = said.unflatten(-1, (self.like.atoms, self.like.actions))
        if self.like.dueling:
            if self.like.apart:
                hidden = functional.relu(self._layer("value_hidden", features, noise))
            value = self._layer("value", hidden, noise)[..., None]
            said = value + said - said.mean(-1, keepdim=True)
        return said[..., 0, :] if self.like.cosines else said

    def _layer(self, name: str, x: Tensor, noise: Any) -> Tensor:
        layer = getattr(self, name)
        return layer(x) if self.like.sigma is None else layer(x, noise and noise[name])


class ValueNet(nn.Module):
    """What the return of every action is like, for a batch of states."""

    def __init__(self, torso: nn.Module, head: Head):
        super().__init__()
        self.torso, self.head = torso, head

    def forward(self, states: Tensor, taus: Tensor | None = None, noise: Any = None) -> Tensor:
        """float32 [B, Z, A] from states [B, F, …]."""
        return self.head(self.torso(states), taus, noise)
