"""Value networks in PyTorch: the twins of `heads.py` and `value.py`, on batches.

Shapes: B batch, E features, Q fractions, H width, Z numbers per action, A actions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from xladder.nets.fields_torch import unflatten
from xladder.nets.noisy_torch import NoisyLinear, Shapes, noise_size, split_noise


class Head(nn.Module):
    """A head with the layers and names of the one in `heads.py`; the arguments are its fields."""

    i_pi: Tensor

    def __init__(
        self,
        actions: int,
        features: int,
        width: int,
        atoms: int = 1,
        cosines: int = 0,
        dueling: bool = False,
        apart: bool = True,
        sigma: float | None = None,
        factorised: bool = True,
    ):
        super().__init__()
        self.actions, self.features, self.width, self.atoms, self.cosines = actions, features, width, atoms, cosines
        self.dueling, self.apart, self.sigma, self.factorised = dueling, apart, sigma, factorised
        if cosines:
            self.embedding = nn.Linear(cosines, features)
            self.register_buffer("i_pi", math.pi * torch.arange(1, cosines + 1), persistent=False)
        self.hidden = self._linear(features, width)
        self.advantage = self._linear(width, actions * atoms)
        if dueling:
            self.value = self._linear(width, atoms)
            if apart:
                self.value_hidden = self._linear(features, width)
        # The noisy layers, in order of creation.
        self.noise_shapes: Shapes = tuple(
            (name, layer.in_features, layer.out_features)
            for name, layer in self.named_children()
            if isinstance(layer, NoisyLinear)
        )

    def _linear(self, inputs: int, outputs: int) -> nn.Module:
        if self.sigma is None:
            return nn.Linear(inputs, outputs)
        return NoisyLinear(inputs, outputs, self.sigma, self.factorised)

    @property
    def noise_size(self) -> int:
        """Standard normal numbers per draw of noise."""
        return noise_size(self.noise_shapes, self.factorised)

    def split_noise(self, normals: Tensor) -> Any:
        """Split normals […, noise_size] into the layers' noise; None for a network without noise."""
        return split_noise(normals, self.noise_shapes, self.factorised) if self.sigma is not None else None

    def forward(self, features: Tensor, taus: Tensor | None = None, noise: Any = None) -> Tensor:
        """float32 [B, Z, A] from features [B, E]; with implicit quantiles, Z = Q and fractions [B, Q] are needed."""
        if self.cosines:
            assert taus is not None
            cosines = torch.cos(taus[..., None] * self.i_pi)  # [B, Q, cosines]
            features = features[:, None] * functional.relu(self.embedding(cosines))  # [B, Q, E]
        hidden = functional.relu(self._layer("hidden", features, noise))
        outputs = self._layer("advantage", hidden, noise)
        outputs = outputs.unflatten(-1, (self.atoms, self.actions))
        if self.dueling:
            if self.apart:
                hidden = functional.relu(self._layer("value_hidden", features, noise))
            value = self._layer("value", hidden, noise)[..., None]
            outputs = value + outputs - outputs.mean(-1, keepdim=True)
        return outputs[..., 0, :] if self.cosines else outputs

    def _layer(self, name: str, x: Tensor, noise: Any) -> Tensor:
        layer = getattr(self, name)
        return layer(x) if self.sigma is None else layer(x, noise and noise[name])


class ValueNet(nn.Module):
    """A torso and a head: from a batch of states to outputs that describe the return of every action."""

    def __init__(
        self,
        torso: nn.Module,
        head: Head,
        fields: Sequence[tuple[str, tuple[int, ...], Any]] = (),
        normaliser: nn.Module | None = None,
    ):
        super().__init__()
        self.torso, self.head, self.fields, self.normaliser = torso, head, tuple(fields), normaliser

    def forward(self, states: Tensor, taus: Tensor | None = None, noise: Any = None) -> Tensor:
        """float32 [B, Z, A] from states [B, F, …]."""
        seen = states if self.normaliser is None else self.normaliser(states)
        return self.head(self.torso(unflatten(seen, self.fields) if self.fields else seen), taus, noise)
