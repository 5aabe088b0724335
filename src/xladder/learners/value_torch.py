"""The value learner in PyTorch: the twin of `value.py`, one agent with its networks and optimiser.

What is random comes in as `Draws` when a test supplies it, and from PyTorch's generator otherwise.

Shapes: B batch, F frames, Q fractions, Z numbers per action, A actions.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from xladder.learners import value
from xladder.learners.state_torch import TorchState
from xladder.learners.value import midpoints
from xladder.losses.quantile_torch import quantile_huber
from xladder.losses.value_torch import cross_entropy, huber, munchausen_bonus, project, soft_values, squared
from xladder.nets.value_torch import Head, ValueNet
from xladder.replay.batch import Batch


class Draws(NamedTuple):
    """What one update draws; the fields of `value.Draws`."""

    taus: Tensor  # [3, B, Q]
    noise: Tensor  # [3, noise_size]


class TorchLearner(TorchState):
    """One agent: `values` judges, `update` learns. `like` is the learner in JAX whose twin it is."""

    NETS = ("net", "target")

    def __init__(self, like: value.ValueLearner, torso: torch.nn.Module, lr: float, device: str = "cpu"):
        self.like, self.config, self.device = like, like.config, device
        self.net = ValueNet(torso, Head(like.net.head)).to(device)
        self.target = copy.deepcopy(self.net).requires_grad_(False)
        self.optimiser = make_optimiser(self.config, self.net.parameters(), lr)
        self._targets: list[Tensor] = list(self.target.parameters())
        self._params: list[Tensor] = list(self.net.parameters())

    def tensor(self, values: np.ndarray) -> Tensor:
        """An array on this learner's device."""
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)

    @torch.inference_mode()
    def values(self, states: np.ndarray, taus: np.ndarray | None = None, noise: np.ndarray | None = None) -> np.ndarray:
        """float32 [B, A]: the expected return of every action in states [B, F, …]."""
        fractions = None if taus is None else self.tensor(taus)
        layers = None if noise is None else self.net.head.split_noise(self.tensor(noise))
        return self.expected(self.net(self.tensor(states), fractions, layers)).cpu().numpy()

    def expected(self, said: Tensor) -> Tensor:
        """float32 [B, A]: the means of what was said, [B, Z, A]."""
        if self.config.head == "scalar":
            return said[:, 0]
        if self.config.head == "categorical":
            return (functional.softmax(said, 1) * self.support[:, None]).sum(1)
        return said.mean(1)

    @property
    def support(self) -> Tensor:
        """float32 [Z]: the returns that a categorical head's numbers stand for."""
        return torch.linspace(self.config.v_min, self.config.v_max, self.config.atoms, device=self.device)

    def draw_update(self) -> Draws:
        """Fresh draws from PyTorch's generator."""
        taus = torch.rand(3, self.config.batch_size, self.like.fractions, device=self.device)
        return Draws(taus, torch.randn(3, self.like.noise_size, device=self.device))

    def losses(self, batch: Batch, draws: Draws) -> tuple[Tensor, Tensor]:
        """The loss of each transition, float32 [B], and how far off it was."""
        c = self.config
        states, next_states = self.tensor(batch.states), self.tensor(batch.next_states)
        actions = self.tensor(batch.actions).long()
        returns, discounts = self.tensor(batch.returns), self.tensor(batch.discounts)
        noise = [self.net.head.split_noise(normals) for normals in draws.noise]
        rows = torch.arange(len(actions), device=self.device)
        taken = self.net(states, draws.taus[2], noise[2])[rows, :, actions]  # [B, Z]
        with torch.no_grad():
            following = self.target(next_states, draws.taus[1], noise[1])
            online = self.net(next_states, draws.taus[0], noise[0]) if c.double else following
            best = self.expected(online).argmax(1)
            if c.head == "categorical":
                aims = returns[:, None] + discounts[:, None] * self.support
                wanted = project(self.support, functional.softmax(following[rows, :, best], 1), aims)
            else:
                after = following[rows, :, best]
                if c.munchausen:
                    policy, log_policy = soft_values(self.expected(following), c.temperature)
                    after = (policy[:, None] * (following - log_policy[:, None])).sum(-1)
                    now = self.expected(self.target(states, draws.taus[1], noise[1]))
                    bonus = munchausen_bonus(now, actions, c.temperature, c.munchausen_floor, c.munchausen_scale)
                    returns = returns + bonus
                aim = returns[:, None] + discounts[:, None] * after
        if c.head == "categorical":
            loss = cross_entropy(taken, wanted)
            return loss, loss
        if c.head == "scalar":
            error = (aim - taken)[:, 0]
            return (huber(error, c.kappa) if c.loss == "huber" else squared(error)), error.abs()
        if c.head == "implicit":
            fractions = draws.taus[2]
        else:
            fractions = self.tensor(midpoints(c.quantiles)).expand(len(actions), -1)
        loss = quantile_huber(taken, fractions, aim, c.kappa)
        return loss, loss

    def loss(self, batch: Batch, draws: Draws) -> tuple[Tensor, Tensor]:
        """float32 []: the mean over the batch, each transition weighted by `valid`; and how far off each was, [B]."""
        losses, errors = self.losses(batch, draws)
        return (losses * self.tensor(batch.valid)).mean(), errors

    def update(self, batch: Batch, draws: Draws | None = None) -> tuple[float, np.ndarray]:
        """One gradient step on a batch, then the soft update of the target. Gives the loss and each one's error [B]."""
        loss, errors = self.loss(batch, draws or self.draw_update())
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        if self.config.clip != float("inf"):
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.config.clip)
        self.optimiser.step()
        if self.config.soft:
            with torch.no_grad():
                torch._foreach_lerp_(self._targets, self._params, self.config.soft)
        return float(loss.detach()), errors.detach().cpu().numpy()

    def sync(self) -> None:
        """The hard update: the target becomes the online network."""
        self.target.load_state_dict(self.net.state_dict())


class CentredRmsProp(torch.optim.Optimizer):
    """RMSProp as in Mnih et al. 2015: centred, with ε inside the root (PyTorch's own adds it outside)."""

    def __init__(self, params: Iterable[Tensor], lr: float, eps: float, decay: float = 0.95):
        super().__init__(params, {"lr": lr, "eps": eps, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step along every parameter's gradient."""
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                if not state:
                    state["mean"], state["square"] = torch.zeros_like(param), torch.zeros_like(param)
                state["mean"].lerp_(param.grad, 1 - group["decay"])
                state["square"].lerp_(param.grad**2, 1 - group["decay"])
                spread = (state["square"] - state["mean"] ** 2 + group["eps"]).sqrt()
                param.addcdiv_(param.grad, spread, value=-group["lr"])


def make_optimiser(config: Any, params: Iterable[Tensor], lr: float) -> torch.optim.Optimizer:
    """The optimiser that the settings name."""
    if config.optimiser == "rmsprop":
        return CentredRmsProp(params, lr, config.optimiser_eps)
    if config.optimiser == "radam":
        return torch.optim.RAdam(params, lr=lr, eps=config.optimiser_eps)
    # One fused kernel per step instead of a dozen passes over the parameters.
    return torch.optim.Adam(params, lr=lr, eps=config.optimiser_eps, fused=True)
