"""The network of a GFlowNet in PyTorch: the twin of `flow.py`.

Shapes: R states, F features, or K inputs that are on; W width, A forward actions.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from xladder.nets.flow_transformer_torch import TokenTrunk

HEADS = ("forward", "backward", "flow")


class Tokens(NamedTuple):
    """How a transformer reads a state, and where its actions come from."""

    places: int  # K
    actions: int  # actions of each token; 0 if all actions are those of the whole state
    heads: int  # of attention


class FlowOutputs(NamedTuple):
    """The network's outputs for R states; None for heads that are missing or not requested."""

    forward: Tensor | None  # float32 [R, A]: logits, not masked
    backward: Tensor | None  # float32 [R, A − 1]: logits, not masked
    log_flow: Tensor | None  # float32 [R]


def hats(places: Tensor, knots: Tensor) -> Tensor:
    """float32 [R, N]: weights of knots [N, P] on a lattice from which places [R, P] are interpolated linearly."""
    away = places[:, None, :] - knots[None]
    return (1.0 - away.amax(-1).clamp(min=0.0) + away.amin(-1).clamp(max=0.0)).clamp(min=0.0)


class Trunk(nn.Module):
    """Hidden layers with ReLU; the first is dense on the encoding of a state."""

    def __init__(self, inputs: int, width: int, layers: int, knots: int = 0):
        super().__init__()
        bound = inputs**-0.5
        self.rows = nn.Parameter(torch.empty(inputs, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(width).uniform_(-bound, bound))
        self.condition = nn.Parameter(torch.empty(knots, width).uniform_(-bound, bound)) if knots else None
        for layer in range(1, layers):
            self.add_module(f"hidden_{layer}", nn.Linear(width, width))

    def forward(self, encoded: Tensor, condition: Tensor | None = None) -> Tensor:
        """float32 [R, W] from features float32 [R, F], or from active inputs int64 [R, K]; and `hats` [R, knots]."""
        if encoded.is_floating_point():
            x = encoded @ self.rows + self.bias
        elif encoded.is_cuda and torch.compiler.is_compiling():  # fused; and a graph has no bags
            x = functional.embedding(encoded, self.rows).sum(1) + self.bias
        else:
            x = functional.embedding_bag(encoded, self.rows, mode="sum") + self.bias
        if self.condition is not None:
            assert condition is not None
            x = x + condition @ self.condition
        x = functional.relu(x)
        for layer in self.children():
            x = functional.relu(layer(x))
        return x


class FlowNet(nn.Module):
    """Policies and flow of a GFlowNet, and log Z."""

    def __init__(
        self,
        inputs: int,
        actions: int,
        width: int,
        layers: int,
        heads: tuple[str, ...],
        shared: bool,
        has_log_z: bool,
        knots: int = 0,
        conditioning: str = "both",
        tokens: Tokens | None = None,
    ):
        super().__init__()
        self.heads, self.shared, self.tokens = heads, shared, tokens
        sizes = {"forward": actions, "backward": actions - 1, "flow": 1}
        if tokens is not None and tokens.actions:
            sizes = {"forward": tokens.actions, "backward": tokens.actions, "flow": 1}
            self.stop_head = nn.Linear(width, 1)
        for trunk in dict.fromkeys(self._trunk(head) for head in heads):
            seen = knots if conditioning != "logits" else 0
            if tokens is None:
                self.add_module(trunk, Trunk(inputs, width, layers, seen))
            else:
                self.add_module(trunk, TokenTrunk(inputs, width, layers, tokens.heads, tokens.places, seen))
        for head in heads:
            self.add_module(f"{head}_head", nn.Linear(width, sizes[head]))
        if has_log_z:
            self.log_z = nn.Parameter(torch.zeros(knots) if knots else torch.zeros(()))
        scaled = knots and conditioning != "input"
        self.logit_scale = nn.Parameter(torch.zeros(knots)) if scaled else None

    def forward(self, encoded: Tensor, heads: tuple[str, ...] = HEADS, condition: Tensor | None = None) -> FlowOutputs:
        """The outputs of the requested heads for encoded states: float32 [R, F], or int64 [R, K]; `hats` [R, knots]."""
        asked = [head for head in self.heads if head in heads]
        hidden = {name: self.get_submodule(name)(encoded, condition) for name in dict.fromkeys(map(self._trunk, asked))}
        outputs = {head: self._output(head, hidden[self._trunk(head)]) for head in asked}
        flow = outputs.get("flow")
        if self.logit_scale is not None and "forward" in outputs:
            assert condition is not None
            outputs["forward"] = outputs["forward"] * (condition @ self.logit_scale).exp()[:, None]
        return FlowOutputs(outputs.get("forward"), outputs.get("backward"), None if flow is None else flow[:, 0])

    def _output(self, head: str, hidden: Tensor) -> Tensor:
        layer = self.get_submodule(f"{head}_head")
        if self.tokens is None:
            return layer(hidden)
        if head == "flow" or not self.tokens.actions:
            return layer(hidden[:, 0])
        each = layer(hidden[:, 1:]).flatten(1)
        return torch.cat([each, self.stop_head(hidden[:, 0])], dim=1) if head == "forward" else each

    def _trunk(self, head: str) -> str:
        return "trunk" if self.shared else f"{head}_trunk"
