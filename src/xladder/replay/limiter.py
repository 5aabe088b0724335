"""A rate limiter: keeps samples per environment step at a target while actors and learner run asynchronously.

Without it a learner that is faster than its actors would sample the same rows over and over, and a slower one would
miss many: the results would look like another algorithm's (Hoffman et al. 2020, Cassirer et al. 2021).
"""

from __future__ import annotations

from xladder.core.state import Stateful


class Limiter(Stateful):
    """Counts steps and samples, and decides whether actors and learner may continue.

    Sampling never gets ahead of the target ratio; steps get ahead by at most `slack`. So after S steps since learning
    began, the ratio is less than slack / S below its target, and never above.
    """

    STATE = ("granted", "inserted", "sampled")

    def __init__(self, ratio: float, begins: int, slack: int):
        self.ratio, self.begins, self.slack = ratio, begins, slack
        self.granted = 0
        """Steps that were allowed, including those still in flight."""
        self.inserted = 0
        """Steps that are in the replay memory."""
        self.sampled = 0
        """Rows that were sampled."""

    def may_act(self, steps: int) -> bool:
        """Whether the actors may start this many more steps."""
        return self.granted + steps <= self.begins + self.sampled / self.ratio + self.slack

    def may_sample(self, rows: int) -> bool:
        """Whether the learner may sample this many more rows."""
        return self.sampled + rows <= self.ratio * (self.inserted - self.begins)

    def measured(self) -> float:
        """Samples per step since learning began; nan before."""
        since = self.inserted - self.begins
        return self.sampled / since if since > 0 else float("nan")
