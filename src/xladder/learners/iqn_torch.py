"""IQN in PyTorch: the twin of `iqn.py`, one agent with its own networks, optimiser and memory.

What is random comes in as `UpdateDraws` when a test supplies it, and from PyTorch's generator otherwise.

Shapes: B batch, F frames, V cells, Q quantiles.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from xladder.losses.quantile_torch import quantile_huber
from xladder.nets.iqn_torch import IQN, Noise, one_hot
from xladder.replay.frames_host import HostBatch

if TYPE_CHECKING:
    from xladder.workloads.treasurehunt import LearnerConfig


class UpdateDraws(NamedTuple):
    """What one update draws: for next state online, next state target, state online."""

    taus: Tensor  # [3, B, Q]
    noise: tuple[Noise, Noise, Noise]


class TorchAgent:
    """One agent: `greedy` chooses, `update` learns."""

    def __init__(self, config: LearnerConfig, actions: int, num_codes: int, cells: int, device: str = "cpu"):
        self.config, self.num_codes, self.device = config, num_codes, device
        inputs = config.n_frames * num_codes * cells
        self.net = IQN(inputs, actions, config.width, config.cosines, config.sigma).to(device)
        self.target = copy.deepcopy(self.net).requires_grad_(False)
        # One fused kernel per step instead of a dozen passes over the parameters.
        self.optimiser = torch.optim.Adam(self.net.parameters(), lr=config.lr, eps=1e-8, fused=True)
        self._targets: list[Tensor] = list(self.target.parameters())
        self._params: list[Tensor] = list(self.net.parameters())

    def encode(self, codes: np.ndarray) -> Tensor:
        """float32 [B, F·E·V] from int8 [B, F, V]."""
        return one_hot(torch.from_numpy(codes).to(self.device), self.num_codes)

    @torch.inference_mode()
    def greedy(self, codes: np.ndarray, taus: np.ndarray) -> int:
        """The best action in one state, int8 [F, V], given fractions [Q]; no noise on the weights."""
        fractions = torch.from_numpy(taus[None]).to(self.device)
        return int(self.net(self.encode(codes[None]), fractions).mean(1).argmax())

    def draw_update(self) -> UpdateDraws:
        """Fresh draws from PyTorch's generator."""
        taus = torch.rand(3, self.config.batch_size, self.config.quantiles, device=self.device)
        return UpdateDraws(taus, (self.net.draw_noise(), self.target.draw_noise(), self.net.draw_noise()))

    def loss(self, batch: HostBatch, draws: UpdateDraws) -> Tensor:
        """float32 []: mean over the batch of the quantile loss against the double-Q target."""
        states, next_states = self.encode(batch.states), self.encode(batch.next_states)
        actions = torch.from_numpy(batch.actions).to(self.device).long()
        returns, discounts, valid = (
            torch.from_numpy(x).to(self.device) for x in (batch.returns, batch.discounts, batch.valid)
        )
        rows = torch.arange(len(actions), device=self.device)
        with torch.no_grad():
            best = self.net(next_states, draws.taus[0], draws.noise[0]).mean(1).argmax(1)
            quantiles = self.target(next_states, draws.taus[1], draws.noise[1])[rows, :, best]
            aim = returns[:, None] + discounts[:, None] * quantiles
        prediction = self.net(states, draws.taus[2], draws.noise[2])[rows, :, actions]
        return (quantile_huber(prediction, draws.taus[2], aim, self.config.kappa) * valid).mean()

    def update(self, batch: HostBatch, draws: UpdateDraws | None = None) -> float:
        """One gradient step on a batch, then the soft update of the target. Returns the loss."""
        loss = self.loss(batch, draws or self.draw_update())
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.config.clip)
        self.optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(self._targets, self._params, self.config.soft)
        return float(loss.detach())

    def sync(self) -> None:
        """The hard update: the target becomes the online network."""
        self.target.load_state_dict(self.net.state_dict())
