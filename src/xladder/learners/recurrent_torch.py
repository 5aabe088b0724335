"""The value learner with memory in PyTorch: the twin of `recurrent.py`.

Shapes: B batch, S transitions of a sequence, T steps of its states, F frames, H hidden numbers, Q fractions,
Z outputs per action, A actions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from xladder.learners.compiled_torch import Graph
from xladder.learners.masks_torch import mask_values
from xladder.learners.value_torch import Draws, Passes, TorchLearner, Transitions
from xladder.replay.batch import Sequences


class RecurrentTorchLearner(TorchLearner):
    """A value learner whose network is a `RecurrentNet`, and whose batches are `Sequences`."""

    BATCH: ClassVar[Any] = Sequences

    def draw_update(self) -> Draws:
        """The random numbers for one update, from PyTorch's generator: fractions for every transition."""
        rows = self.config.batch_size * self.config.sequence
        taus = torch.rand(3, rows, self.head.fractions, device=self.device)
        return Draws(taus, torch.randn(3, self.net.head.noise_size, device=self.device))

    def values(self, states: np.ndarray, taus: np.ndarray | None = None, noise: np.ndarray | None = None) -> np.ndarray:
        """[B, A]: the expected returns of all actions in states [B, F, …] that begin an episode."""
        return self.step_values(states, np.zeros((len(states), self.net.width), np.float32), taus, noise)[0]

    @torch.inference_mode()
    def step_values(
        self, states: np.ndarray, hidden: Any, taus: np.ndarray | None = None, noise: np.ndarray | None = None
    ) -> tuple[np.ndarray, Any]:
        """The expected returns of all actions, [B, A], and the hidden states after this step, [B, H]."""
        found = self._act(*self._inputs(states, taus, noise, hidden)).cpu().numpy()
        values, hidden = np.split(found, [-self.net.width], axis=1)
        values = values.reshape(len(values), *(self.team,) * (self.team > 0), -1)
        # A graph's outputs are overwritten by its next call.
        return values, hidden.copy() if isinstance(self._act, Graph) else hidden

    def act(self, states: Tensor, taus: Tensor, normals: Tensor, *hidden: Tensor) -> Tensor:
        """As `step_values`, of tensors: values, of all agents of a team, and hidden states side by side, [B, A + H]."""
        layers = self.net.head.split_noise(normals) if normals.shape[-1] else None
        seen, mask = self.split_mask(states)
        after = self.net.step(seen, *hidden)
        outputs = self.net.outputs(after, taus if taus.shape[-1] else None, layers)
        return torch.cat([mask_values(self.head.expected(outputs), mask).flatten(1), after], 1)

    def passes(self, net: Any, batch: Any) -> Passes:
        """A network's passes over the states and the next states of all transitions, [B·S, …]."""
        seen, _ = self.split_mask(self.tensor(batch.states))
        given = self.tensor(batch.hidden), self.tensor(batch.is_first), self.config.burn_in
        hidden = net.unroll(seen, *given)  # [B, T, H]

        def at(places: Tensor) -> Callable[..., Tensor]:
            return partial(net.outputs, _pick(hidden, places))

        now, later = self._places(batch)
        return Passes(at(now), at(later))

    def transitions(self, batch: Any) -> Transitions:
        """The transitions of all sequences, [B·S, …]."""
        _, masks = self.split_mask(self.tensor(batch.states))  # [B, T, A]
        columns = [self.tensor(x).flatten(0, 1) for x in (batch.actions, batch.returns, batch.discounts)]
        at = (None if masks is None else _pick(masks, places) for places in self._places(batch))
        return Transitions(columns[0].long(), *columns[1:], *at)

    def loss(self, batch: Any, draws: Draws) -> tuple[Tensor, Tensor]:
        """The mean loss over all transitions, weighted by `valid`, [], and the sequences' errors, [B]."""
        losses, errors = self.losses(batch, draws)
        weights = self.tensor(batch.valid)
        sizes = errors.abs().view_as(weights) * (weights > 0)
        mean = sizes.sum(1) / (weights > 0).sum(1).clamp(min=1)
        eta = self.config.eta
        return (losses * weights.flatten()).mean(), eta * sizes.amax(1) + (1 - eta) * mean

    def _places(self, batch: Any) -> tuple[Tensor, Tensor]:
        """int64 [B, S] each: where the transitions' states and next states are among the steps of their sequences."""
        later = self.tensor(batch.steps).long()
        now = self.config.burn_in + torch.arange(later.shape[1], device=self.device).expand_as(later)
        return now, now + later


def _pick(values: Tensor, places: Tensor) -> Tensor:
    """[B·S, …] from [B, T, …], at places [B, S]."""
    beside = places.reshape(*places.shape, *(1,) * (values.ndim - places.ndim))
    return values.gather(1, beside.expand(-1, -1, *values.shape[2:])).flatten(0, 1)
