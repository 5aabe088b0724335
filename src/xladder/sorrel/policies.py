"""Greedy actions in NumPy: for one state of a small network this is faster than a call of PyTorch or JAX.

A policy holds weights that nothing changes: an update makes new ones. So it is its own snapshot.

Shapes: I inputs, H width, Q quantiles, A actions, R states.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from xladder.errors import UsageError

SPARSE = 3  # inputs per nonzero one from which on summing rows of the first kernel is faster than multiplying with it


class Policy(Protocol):
    """A network as a function of states."""

    def greedy(self, state: np.ndarray) -> int:
        """The action with the highest value in one state, [1, I]."""

    def q_values(self, states: np.ndarray) -> np.ndarray:
        """float32 [R, A] from states [R, I]."""


class QuantilePolicy:
    """An IQN without noise: the mean of quantiles at fractions that are drawn anew for every state.

    Args:
        params: the parameters as NumPy arrays.
        quantiles: how many quantiles the mean is taken over.
        generator: draws the fractions.
    """

    def __init__(self, params: Mapping[str, Any], quantiles: int, generator: np.random.Generator):
        head = params["head"]
        self.torso, self.embedding = _layer(params["torso"]), _layer(head["embedding"])
        self.hidden, self.advantage, self.value = (_layer(head[name]) for name in ("hidden", "advantage", "value"))
        self.quantiles, self.generator = quantiles, generator
        self.frequencies = np.pi * np.arange(1, 1 + len(self.embedding[0]), dtype=np.float32)

    def greedy(self, state: np.ndarray) -> int:
        """The action with the highest value in one state, [1, I]; the value stream adds the same to all."""
        kernel, bias = self.advantage
        return int((self._mean_hidden(np.asarray(state, np.float32).reshape(-1)) @ kernel + bias).argmax())

    def q_values(self, states: np.ndarray) -> np.ndarray:
        """float32 [R, A] from states [R, I]."""
        rows = np.asarray(states, np.float32)
        hidden = np.stack([self._mean_hidden(row.reshape(-1)) for row in rows])
        advantage, value = (hidden @ kernel + bias for kernel, bias in (self.advantage, self.value))
        return value + advantage - advantage.mean(1, keepdims=True)

    def _mean_hidden(self, state: np.ndarray) -> np.ndarray:
        """float32 [H]: the mean over quantiles of the last hidden layer; the layers after it are linear."""
        features = _relu(_first(state, *self.torso))
        fractions = self.generator.random((self.quantiles, 1), dtype=np.float32)
        embedded = _relu(_affine(np.cos(fractions * self.frequencies), *self.embedding))
        embedded *= features
        return _relu(_affine(embedded, *self.hidden)).sum(0) * np.float32(1 / self.quantiles)


class ValuePolicy:
    """A DQN.

    Args:
        params: the parameters as NumPy arrays.
    """

    def __init__(self, params: Mapping[str, Any]):
        head = params["head"]
        self.torso, self.hidden = _layer(params["torso"]["hidden_0"]), _layer(head["hidden"])
        self.outputs = _layer(head["advantage"])

    def greedy(self, state: np.ndarray) -> int:
        """The action with the highest value in one state, [1, I]."""
        return int(self._values(np.asarray(state, np.float32).reshape(-1)).argmax())

    def q_values(self, states: np.ndarray) -> np.ndarray:
        """float32 [R, A] from states [R, I]."""
        return np.stack([self._values(row.reshape(-1)) for row in np.asarray(states, np.float32)])

    def _values(self, state: np.ndarray) -> np.ndarray:
        hidden = _relu(_affine(_relu(_first(state, *self.torso)), *self.hidden))
        return _affine(hidden, *self.outputs)


def _layer(params: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.asarray(params["kernel"]), np.asarray(params["bias"])


def _first(state: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """float32 [H]: the first layer of a state [I]. Views are often one-hot, so most inputs are zero."""
    if state.size != len(kernel):
        raise UsageError(
            f"A state has {state.size} numbers, but this model takes {len(kernel)}: `n_frames` observations of "
            "`input_size`, flattened."
        )
    (rows,) = state.nonzero()
    if SPARSE * rows.size < state.size:
        return _affine(state[rows], kernel.take(rows, 0), bias)
    return _affine(state, kernel, bias)


def _affine(x: np.ndarray, kernel: np.ndarray, bias: np.ndarray) -> np.ndarray:
    out = x @ kernel
    out += bias
    return out


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0, out=x)
