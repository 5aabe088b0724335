"""The network of a GFlowNet in PyTorch: the twin of `flow.py`.

Shapes: R states, D coordinates, W width, A = D + 1 forward actions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from xladder.nets.flow import HEADS


class Said(NamedTuple):
    """What the network says of R states; None for a head it does not have or was not asked for."""

    forward: Tensor | None  # float32 [R, A]: logits, not masked
    backward: Tensor | None  # float32 [R, D]: logits, not masked
    log_flow: Tensor | None  # float32 [R]


class Trunk(nn.Module):
    """Hidden layers with ReLU; the first is dense on the one-hot encoding of a state."""

    def __init__(self, inputs: int, width: int, layers: int):
        super().__init__()
        bound = inputs**-0.5
        self.rows = nn.Parameter(torch.empty(inputs, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(width).uniform_(-bound, bound))
        for layer in range(1, layers):
            self.add_module(f"hidden_{layer}", nn.Linear(width, width))

    def forward(self, rows: Tensor) -> Tensor:
        """float32 [R, W] from the encoding's rows that are on, int64 [R, D]."""
        x = functional.relu(functional.embedding_bag(rows, self.rows, mode="sum") + self.bias)
        for layer in self.children():
            x = functional.relu(layer(x))
        return x


class FlowNet(nn.Module):
    """What a GFlowNet knows of a state, and log Z."""

    def __init__(
        self, dim: int, side: int, width: int, layers: int, heads: tuple[str, ...], shared: bool, has_log_z: bool
    ):
        super().__init__()
        self.heads, self.shared = heads, shared
        sizes = {"forward": dim + 1, "backward": dim, "flow": 1}
        for trunk in dict.fromkeys(self._trunk(head) for head in heads):
            self.add_module(trunk, Trunk(dim * side, width, layers))
        for head in heads:
            self.add_module(f"{head}_head", nn.Linear(width, sizes[head]))
        if has_log_z:
            self.log_z = nn.Parameter(torch.zeros(()))

    def forward(self, rows: Tensor, heads: tuple[str, ...] = HEADS) -> Said:
        """What the chosen heads say of states whose encoding has these rows on, int64 [R, D]."""
        asked = [head for head in self.heads if head in heads]
        hidden = {name: self.get_submodule(name)(rows) for name in dict.fromkeys(map(self._trunk, asked))}
        said = {head: self.get_submodule(f"{head}_head")(hidden[self._trunk(head)]) for head in asked}
        flow = said.get("flow")
        return Said(said.get("forward"), said.get("backward"), None if flow is None else flow[:, 0])

    def _trunk(self, head: str) -> str:
        return "trunk" if self.shared else f"{head}_trunk"
