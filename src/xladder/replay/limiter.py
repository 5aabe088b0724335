"""How often what is remembered is learned from, held at a target while actors and learner keep their own pace.

Without it a learner that is quicker than its actors would learn the same rows over and over, and a slower one would
see few of them: results that look like another algorithm's (Hoffman et al. 2020, Cassirer et al. 2021).
"""

from __future__ import annotations

from xladder.core.state import Stateful


class Limiter(Stateful):
    """Counts steps and samples, and says who may go on.

    Sampling never runs ahead of what the steps by then owe; steps run ahead of sampling by `slack` at most. So once
    S steps have been played since learning began, the ratio is less than slack / S below its target, and never above.
    """

    STATE = ("granted", "inserted", "sampled")

    def __init__(self, ratio: float, begins: int, slack: int):
        self.ratio, self.begins, self.slack = ratio, begins, slack
        self.granted = 0
        """Steps that were allowed, on their way or there."""
        self.inserted = 0
        """Steps that are remembered."""
        self.sampled = 0
        """Rows that were learned from."""

    def may_act(self, steps: int) -> bool:
        """Whether so many more steps may be begun."""
        return self.granted + steps <= self.begins + self.sampled / self.ratio + self.slack

    def may_sample(self, rows: int) -> bool:
        """Whether so many more rows may be learned from."""
        return self.sampled + rows <= self.ratio * (self.inserted - self.begins)

    def measured(self) -> float:
        """Samples per step since learning began; nan before."""
        since = self.inserted - self.begins
        return self.sampled / since if since > 0 else float("nan")
