"""IQN as the treasure hunt uses it, in PyTorch: the twin of `iqn.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xladder.learners.iqn import IQNLearner
from xladder.learners.value_torch import TorchLearner
from xladder.nets.codes_torch import CodesTorso

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import LearnerConfig


class TorchAgent(TorchLearner):
    """One agent: `greedy` chooses, `update` learns."""

    def __init__(self, config: LearnerConfig, actions: int, num_codes: int, cells: int, device: str = "cpu"):
        torso = CodesTorso(config.n_frames, num_codes, cells, config.width)
        super().__init__(IQNLearner(config, actions, num_codes, cells).plain, torso, config.lr, device)

    def greedy(self, codes: np.ndarray, taus: np.ndarray) -> int:
        """The best action in one state, int8 [F, V], given fractions [Q]; no noise on the weights."""
        return int(self.values(codes[None], taus[None])[0].argmax())
