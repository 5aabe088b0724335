"""A trained agent as a function from observations (NumPy or JAX, one or a batch) to actions.

    policy = xladder.load("runs/NAME").policy(seed=0, agent=0)
    policy(observation)  # an action
    policy(observations)  # int32 [B]: one action each

If an observation is a single frame (`stack` = 1), its stack axis may be omitted; [1, …] is then one observation.

A policy does not explore and uses no random numbers: the same observation always gives the same action. It needs only
the network, nothing else of the training. Every new batch size is compiled once. The policy of a network with memory
takes the observations of an episode in order; `policy.reset()` begins the next one.

Shapes: B batch, A actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from xladder.errors import UsageError

ScoreFn = Callable[[np.ndarray], Any]
"""Observations [B, …] → float32 [B, A]: a score for each action, larger is better."""
StepFn = Callable[[np.ndarray, Any], tuple[Any, Any]]
"""Observations [B, …] and hidden states [B, H] → scores, and the hidden states after them."""


class Observation(NamedTuple):
    """The observations that a policy accepts."""

    shape: tuple[int, ...]
    dtype: np.dtype
    below: int | None
    """Integers have to lie in [0, below); None if observations need not be integers."""
    what: str
    """What the observations are, for error messages."""


class Policy:
    """A trained agent as a function from observations, one or a batch, to the actions with the highest scores."""

    whose = ""
    """The workload, seed and agent, for people."""

    def __init__(self, observation: Observation, score: ScoreFn):
        self.observation, self._score = observation, score

    def __call__(self, observation: Any) -> Any:
        """The best action as an int, or int32 [B] for a batch; ties go to the first."""
        best = self._scores(observation).argmax(-1).astype(np.int32)
        return best if best.ndim else int(best)

    def __repr__(self) -> str:
        return f"{type(self).__name__} of {self.whose or 'an agent'}"

    def _scores(self, observation: Any) -> np.ndarray:
        """float32 [A], or [B, A] for a batch."""
        shape, dtype, below, what = self.observation
        given = _stacked(np.asarray(observation), shape)
        single = given.ndim == len(shape)
        if given.shape[not single :] != shape:
            raise UsageError(
                f"The observation has shape {list(given.shape)}, but {what} have to be {list(shape)}, or "
                f"[B, {', '.join(map(str, shape))}] for a batch."
            )
        if given.dtype.kind not in ("biu" if below else "biuf"):
            raise UsageError(f"The observation is {given.dtype}, but {what} have to be {dtype}.")
        if below and given.size and not 0 <= given.min() <= given.max() < below:
            raise UsageError(f"{what} have to lie in [0, {below}), but these lie in {given.min()} … {given.max()}.")
        batch = (given[None] if single else given).astype(dtype)
        if not len(batch):
            raise UsageError("The batch of observations is empty.")
        scores = np.asarray(self._score(batch))
        return scores[0] if single else scores


def _stacked(given: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Add the axis of a stack of one frame if it was omitted: [B, …] as [B, 1, …]."""
    frame = shape[1:]
    if not frame or shape[0] != 1 or given.shape == shape:
        return given
    if given.shape == frame:
        return given[None]
    return given[:, None] if given.shape[1:] == frame else given


class ValuePolicy(Policy):
    """The action with the highest value."""

    def values(self, observation: Any) -> np.ndarray:
        """float32 [A], or [B, A] for a batch: the expected return of each action."""
        return self._scores(observation)


class RecurrentPolicy(ValuePolicy):
    """The action with the highest value, for a network with memory: every call is the next step of an episode.

    `reset` begins a new one. Of a batch, every row is an episode of its own.
    """

    def __init__(self, observation: Observation, step: StepFn, width: int):
        super().__init__(observation, self._step)
        self._advance, self._width = step, width
        self.reset()

    def reset(self) -> None:
        """Forget everything: the next observation begins an episode."""
        self._hidden: Any = None

    def _step(self, batch: np.ndarray) -> Any:
        if self._hidden is None:
            self._hidden = np.zeros((len(batch), self._width), np.float32)
        if len(batch) != len(self._hidden):
            raise UsageError(
                f"The policy remembers {len(self._hidden)} episodes, but was given {len(batch)} observations: call its "
                "`reset` before other episodes begin."
            )
        scores, self._hidden = self._advance(batch, self._hidden)
        return scores


class SamplerPolicy(Policy):
    """The most probable action of a sampler."""

    def probabilities(self, observation: Any) -> np.ndarray:
        """float32 [A], or [B, A] for a batch: the probability of each action."""
        return self._scores(observation)
