"""The transformer trunk of a GFlowNet's network in PyTorch: the twin of `flow_transformer.py`.

Shapes: R states, K tokens, V values of a token, W width, H attention heads.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional


def place_codes(places: int, width: int) -> Tensor:
    """float32 [places, W]: sines and cosines of each place, alternating."""
    codes = torch.zeros(places, width, dtype=torch.float64)
    place = torch.arange(places, dtype=torch.float64)
    for column in range(width):
        angle = place / 10_000.0 ** ((column - column % 2) / width)
        codes[:, column] = (angle + column % 2 * math.pi / 2).sin()
    return codes.float()


class Block(nn.Module):
    """Attention between all tokens of a state, then two dense layers for each."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.hidden, self.output = nn.Linear(width, width), nn.Linear(width, width)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        """float32 [R, K, W] from the same."""
        split = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)  # [3, R, H, K, W / H]
        seen = functional.scaled_dot_product_attention(*split.unbind(0)).transpose(1, 2).flatten(2)
        x = self.norm_1(x + self.out(seen))
        return self.norm_2(x + self.output(functional.relu(self.hidden(x))))


class TokenTrunk(nn.Module):
    """A transformer on the one-hot encoding of a state, whose inputs come in groups of V, one for each token."""

    places: Tensor

    def __init__(self, inputs: int, width: int, layers: int, heads: int, tokens: int, knots: int = 0):
        super().__init__()
        self.values = inputs // tokens
        self.rows = nn.Parameter(torch.randn(self.values, width))
        self.first = nn.Parameter(torch.randn(width))
        self.condition = nn.Parameter(torch.randn(knots, width)) if knots else None
        self.register_buffer("places", place_codes(tokens + 1, width), persistent=False)
        for layer in range(layers):
            self.add_module(f"layer_{layer}", Block(width, heads))

    def forward(self, encoded: Tensor, condition: Tensor | None = None) -> Tensor:
        """float32 [R, 1 + K, W] from active inputs int64 [R, K]; the first stands for the whole state."""
        values = functional.embedding(encoded % self.values, self.rows)
        whole = self.first.expand(len(encoded), 1, -1)
        if self.condition is not None:
            assert condition is not None
            whole = whole + (condition @ self.condition)[:, None]
        x = torch.cat([whole, values], dim=1) + self.places
        for block in self.children():
            x = block(x)
        return x
