"""The network of a GFlowNet in PyTorch: the twin of `flow.py`.

Shapes: R states, F features, or K inputs that are on; W width, A forward actions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

HEADS = ("forward", "backward", "flow")


class FlowOutputs(NamedTuple):
    """The network's outputs for R states; None for heads that are missing or not requested."""

    forward: Tensor | None  # float32 [R, A]: logits, not masked
    backward: Tensor | None  # float32 [R, A − 1]: logits, not masked
    log_flow: Tensor | None  # float32 [R]


class Trunk(nn.Module):
    """Hidden layers with ReLU; the first is dense on the encoding of a state."""

    def __init__(self, inputs: int, width: int, layers: int):
        super().__init__()
        bound = inputs**-0.5
        self.rows = nn.Parameter(torch.empty(inputs, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(width).uniform_(-bound, bound))
        for layer in range(1, layers):
            self.add_module(f"hidden_{layer}", nn.Linear(width, width))

    def forward(self, encoded: Tensor) -> Tensor:
        """float32 [R, W] from features float32 [R, F], or from active inputs int64 [R, K]."""
        if encoded.is_floating_point():
            x = functional.relu(encoded @ self.rows + self.bias)
        else:
            x = functional.relu(functional.embedding_bag(encoded, self.rows, mode="sum") + self.bias)
        for layer in self.children():
            x = functional.relu(layer(x))
        return x


class FlowNet(nn.Module):
    """Policies and flow of a GFlowNet, and log Z."""

    def __init__(
        self, inputs: int, actions: int, width: int, layers: int, heads: tuple[str, ...], shared: bool, has_log_z: bool
    ):
        super().__init__()
        self.heads, self.shared = heads, shared
        sizes = {"forward": actions, "backward": actions - 1, "flow": 1}
        for trunk in dict.fromkeys(self._trunk(head) for head in heads):
            self.add_module(trunk, Trunk(inputs, width, layers))
        for head in heads:
            self.add_module(f"{head}_head", nn.Linear(width, sizes[head]))
        if has_log_z:
            self.log_z = nn.Parameter(torch.zeros(()))

    def forward(self, encoded: Tensor, heads: tuple[str, ...] = HEADS) -> FlowOutputs:
        """The outputs of the requested heads for encoded states: float32 [R, F], or int64 [R, K]."""
        asked = [head for head in self.heads if head in heads]
        hidden = {name: self.get_submodule(name)(encoded) for name in dict.fromkeys(map(self._trunk, asked))}
        outputs = {head: self.get_submodule(f"{head}_head")(hidden[self._trunk(head)]) for head in asked}
        flow = outputs.get("flow")
        return FlowOutputs(outputs.get("forward"), outputs.get("backward"), None if flow is None else flow[:, 0])

    def _trunk(self, head: str) -> str:
        return "trunk" if self.shared else f"{head}_trunk"
