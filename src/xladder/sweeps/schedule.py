"""When trials are compared, and what happens then: successive halving and population-based training.

Shapes: N trials, S seeds of each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

EARLIEST = 20  # no trial is dropped before a twentieth of its training
EXPLOITED = 4  # the worst quarter copies the best quarter


class Stage(NamedTuple):
    """A part of training after which trials are compared."""

    until: int
    """The tick at which it ends."""
    trials: int
    """How many trials take part."""


def halving_stages(ticks: int, trials: int, factor: int, interval: int = 0) -> list[Stage]:
    """Stages of successive halving: each keeps one in `factor` trials, and is `factor` times as long.

    Args:
        ticks: Length of the whole training.
        trials: Number of trials at the start.
        factor: The reduction factor η; 0 or 1 for a single stage.
        interval: Ticks between evaluations; stages end at a multiple of it, if it is positive.
    """
    if factor < 2:
        return [Stage(ticks, trials)]
    cuts = min(math.floor(math.log(trials, factor) + 1e-9), math.floor(math.log(EARLIEST, factor)))
    stages: list[Stage] = []
    for cut in range(cuts + 1):
        until = ticks / factor ** (cuts - cut)
        until = round(until / interval) * interval if interval and cut < cuts else round(until)
        stages.append(Stage(min(max(until, interval, 1), ticks), max(1, math.ceil(trials / factor**cut))))
    return [stage for stage, after in zip(stages, [*stages[1:], None], strict=True) if not after or stage.until < ticks]


def generations(ticks: int, trials: int, count: int, interval: int = 0) -> list[Stage]:
    """Stages of population-based training: `count` of equal length."""
    ends = [round(ticks * (i + 1) / count) for i in range(count)]
    if interval:
        ends = sorted({min(ticks, max(interval, round(end / interval) * interval)) for end in ends[:-1]} | {ticks})
    return [Stage(end, trials) for end in ends]


@dataclass(frozen=True)
class Scores:
    """The scores of N trials, float [N, S]; larger is better, nan is worst."""

    by_seed: np.ndarray

    @property
    def means(self) -> np.ndarray:
        """float [N]: the mean over seeds; −inf if a seed has none, because it diverged."""
        values = np.where(np.isfinite(self.by_seed), self.by_seed, -np.inf)
        return values.mean(1)

    def order(self) -> list[int]:
        """The trials, best first; ties in the order of their numbers."""
        return sorted(range(len(self.by_seed)), key=lambda i: (-self.means[i], i))


def exploit(scores: Scores) -> list[int]:
    """For each trial the one that it continues from: itself, or for the worst quarter one of the best."""
    order = scores.order()
    count = len(order) // EXPLOITED
    source = list(range(len(order)))
    for bad, good in zip(reversed(order[len(order) - count :]), order[:count], strict=True):
        source[bad] = good
    return source
