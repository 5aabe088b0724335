"""IQN as the treasure hunt uses it, in PyTorch: the twin of `iqn.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xladder.learners.value_torch import TorchLearner
from xladder.nets.codes_torch import CodesTorso
from xladder.nets.value_torch import Head, ValueNet

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import LearnerConfig


class TorchAgent(TorchLearner):
    """One agent: `greedy` chooses, `update` learns."""

    def __init__(self, config: LearnerConfig, actions: int, num_codes: int, cells: int, device: str = "cpu"):
        torso = CodesTorso(config.n_frames, num_codes, cells, config.width)
        head = Head(
            actions,
            features=config.width,
            width=config.width,
            cosines=config.cosines,
            dueling=True,
            apart=False,
            sigma=config.sigma,
            factorised=False,
        )
        super().__init__(config, ValueNet(torso, head), device)

    def greedy(self, codes: np.ndarray, taus: np.ndarray) -> int:
        """The best action in one state, int8 [F, V], given fractions [Q]; no noise on the weights."""
        return int(self.values(codes[None], taus[None])[0].argmax())
