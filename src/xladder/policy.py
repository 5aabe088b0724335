"""A trained agent as a function: what it sees goes in, NumPy or JAX, one or a batch, and what it does comes out.

    policy = xladder.load("runs/NAME").policy(seed=0, agent=0)
    policy(observation)  # an action
    policy(observations)  # int32 [B]: as many actions

Where a state is one frame (`stack` = 1), the axis of the stack may be left out; [1, …] is then one observation.

It never explores and draws nothing: the same observation gives the same action. Nothing of the training is needed for
it but the network; a program is compiled for every size of batch that is new.

Shapes: B batch, A actions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from xladder.errors import UsageError

Judge = Callable[[np.ndarray], Any]
"""float32 [B, A] from observations [B, …]: a number for each action, the larger the better."""


class Observation(NamedTuple):
    """What a policy is to be given."""

    shape: tuple[int, ...]
    dtype: np.dtype
    below: int | None
    """Whole numbers lie in [0, below); None if it need not be whole numbers."""
    what: str
    """What they are, in words."""


class Policy:
    """The best action by some judgement."""

    def __init__(self, observation: Observation, judge: Judge):
        self.observation, self._judge = observation, judge

    def __call__(self, observation: Any) -> Any:
        """The best action as an int, or int32 [B] of a batch; ties go to the first."""
        best = self._judged(observation).argmax(-1).astype(np.int32)
        return best if best.ndim else int(best)

    def _judged(self, observation: Any) -> np.ndarray:
        """float32 [A], or [B, A] of a batch."""
        shape, dtype, below, what = self.observation
        given = _stacked(np.asarray(observation), shape)
        single = given.ndim == len(shape)
        if given.shape[not single :] != shape:
            raise UsageError(
                f"An observation of shape {list(given.shape)} was given, and {what} have to be {list(shape)}, or "
                f"{['B', *shape]} for a batch."
            )
        if given.dtype.kind not in ("biu" if below else "biuf"):
            raise UsageError(f"{given.dtype} was given, and {what} have to be {dtype}.")
        if below and given.size and not 0 <= given.min() <= given.max() < below:
            raise UsageError(f"{what} have to lie in [0, {below}), and {given.min()} … {given.max()} was given.")
        batch = (given[None] if single else given).astype(dtype)
        if not len(batch):
            raise UsageError("A batch of no observations was given.")
        judged = np.asarray(self._judge(batch))
        return judged[0] if single else judged


def _stacked(given: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Observations with the axis of a stack of one, which they may be given without: [B, …] as [B, 1, …]."""
    frame = shape[1:]
    if not frame or shape[0] != 1 or given.shape == shape:
        return given
    if given.shape == frame:
        return given[None]
    return given[:, None] if given.shape[1:] == frame else given


class ValuePolicy(Policy):
    """The action with the highest value."""

    def values(self, observation: Any) -> np.ndarray:
        """float32 [A], or [B, A] of a batch: the expected return of every action."""
        return self._judged(observation)


class SamplerPolicy(Policy):
    """The most probable action of a sampler."""

    def probabilities(self, observation: Any) -> np.ndarray:
        """float32 [A], or [B, A] of a batch: with what probability it takes each action."""
        return self._judged(observation)
