"""Value networks with memory in PyTorch: the twin of `recurrent.py`, on batches.

Shapes: B batch, T steps, F frames, H numbers of the state, Z numbers per action, A actions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from xladder.nets.fields_torch import unflatten
from xladder.nets.value_torch import Head


class Gru(nn.Module):
    """A gated recurrent unit with the layers and names of the one in `recurrent.py`.

    PyTorch's own runs over whole sequences, and cannot forget its state where an episode begins within one.
    """

    def __init__(self, features: int, width: int):
        super().__init__()
        self.width = width
        self.input, self.state = nn.Linear(features, 3 * width), nn.Linear(width, 3 * width)
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(width**-0.5), width**-0.5)

    def advance(self, gates: Tensor, hidden: Tensor) -> Tensor:
        """[B, H]: the next state, from what the input adds to the gates, [B, 3H]."""
        given, kept = gates.chunk(3, -1), self.state(hidden).chunk(3, -1)
        reset, update = torch.sigmoid(given[0] + kept[0]), torch.sigmoid(given[1] + kept[1])
        new = torch.tanh(given[2] + reset * kept[2])
        return torch.lerp(new, hidden, update)


class RecurrentNet(nn.Module):
    """A torso, a GRU and a head: the head sees the GRU's state."""

    def __init__(
        self,
        torso: nn.Module,
        memory: Gru,
        head: Head,
        fields: Sequence[tuple[str, tuple[int, ...], Any]] = (),
        normaliser: nn.Module | None = None,
    ):
        super().__init__()
        self.torso, self.memory, self.head, self.fields = torso, memory, head, tuple(fields)
        self.normaliser = normaliser

    @property
    def width(self) -> int:
        """Numbers of the hidden state."""
        return self.memory.width

    def forward(self, states: Tensor, taus: Tensor | None = None, noise: Any = None) -> Tensor:
        """[B, Z, A] from states [B, F, …] that begin an episode."""
        nothing = torch.zeros(len(states), self.width, device=states.device)
        return self.outputs(self.step(states, nothing), taus, noise)

    def outputs(self, hidden: Tensor, taus: Tensor | None = None, noise: Any = None) -> Tensor:
        """[B, Z, A] from hidden states [B, H]."""
        return self.head(hidden, taus, noise)

    def step(self, states: Tensor, hidden: Tensor) -> Tensor:
        """[B, H]: the state after one more step, from states [B, F, …] and hidden states [B, H]."""
        return self.memory.advance(self._gates(states), hidden)

    def unroll(self, states: Tensor, hidden: Tensor, is_first: Tensor, burn_in: int) -> Tensor:
        """[B, T, H]: the state after every step, from states [B, T, F, …] and the state before them [B, H].

        Where an episode begins, bool [B, T], the state is forgotten. No gradient flows through the first `burn_in`
        steps.
        """
        gates = self._gates(states.flatten(0, 1)).unflatten(0, states.shape[:2])
        goes_on, found = (~is_first).to(hidden.dtype), []
        for step in range(states.shape[1]):
            hidden = self.memory.advance(gates[:, step], hidden * goes_on[:, step, None])
            if step < burn_in:
                hidden = hidden.detach()
            found.append(hidden)
        return torch.stack(found, 1)

    def _gates(self, states: Tensor) -> Tensor:
        seen = states if self.normaliser is None else self.normaliser(states)
        return self.memory.input(self.torso(unflatten(seen, self.fields) if self.fields else seen))
