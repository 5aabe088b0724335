"""The networks of a team of agents in PyTorch: the twin of `team.py`.

Shapes: B batch, G agents, F frames, H numbers of one agent's state, Z numbers per action, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn


class TeamNet(nn.Module):
    """The networks of a team: one `member` that all agents share, or one for each."""

    def __init__(self, members: Sequence[nn.Module], agents: int, axes: int):
        super().__init__()
        self.members, self.agents, self.axes = nn.ModuleList(members), agents, axes

    @property
    def shared(self) -> bool:
        """Whether one network serves all agents."""
        return len(self.members) < self.agents

    @property
    def head(self) -> Any:
        """The head of one agent's network."""
        return self.members[0].head

    @property
    def width(self) -> int:
        """Numbers of all agents' hidden states."""
        member: Any = self.members[0]
        return self.agents * member.width

    def forward(self, states: Tensor, taus: Tensor | None = None, noise: Any = None) -> Tensor:
        """[B, G, Z, A] from states [B, F, G, …]."""
        parts = states.unbind(-1 - self.axes)
        return torch.stack([net(part, taus, noise) for net, part in zip(self._each(), parts, strict=True)], -3)

    def step(self, states: Tensor, hidden: Tensor) -> Tensor:
        """[B, G·H]: the hidden states after one more step."""
        return self._advance(lambda net: net.step, states, hidden)

    def unroll(self, states: Tensor, hidden: Tensor, is_first: Tensor, burn_in: int) -> Tensor:
        """[B, T, G·H]: the hidden states after every step, from states [B, T, F, G, …]."""
        return self._advance(lambda net: net.unroll, states, hidden, is_first, burn_in)

    def outputs(self, hidden: Tensor, taus: Tensor | None = None, noise: Any = None) -> Tensor:
        """[B, G, Z, A] from hidden states [B, G·H]."""
        parts = hidden.chunk(self.agents, -1)
        return torch.stack([net.outputs(part, taus, noise) for net, part in zip(self._each(), parts, strict=True)], -3)

    def _advance(self, method: Callable[..., Any], states: Tensor, hidden: Tensor, *given: Any) -> Tensor:
        parts = zip(self._each(), states.unbind(-1 - self.axes), hidden.chunk(self.agents, -1), strict=True)
        return torch.cat([method(net)(state, own, *given) for net, state, own in parts], -1)

    def _each(self) -> list[Any]:
        return [self.members[0]] * self.agents if self.shared else list(self.members)
