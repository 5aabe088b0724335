"""IQN as agents that take turns use it, in PyTorch: the twin of `iqn.py`.

Its shapes come from the settings and from this file, not from the learner in JAX: a layer of another size on one side
fails parity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xladder.learners.value_torch import TorchLearner
from xladder.nets.codes_torch import CodesTorso
from xladder.nets.value_torch import Head, ValueNet

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import LearnerConfig


class TorchAgent(TorchLearner):
    """One agent: `greedy` chooses, `update` learns.

    Args:
        config: the settings of the learner.
        actions: how many actions it has.
        num_codes: how many kinds of cell it sees.
        cells: how many cells it sees.
        device: where PyTorch computes.
    """

    def __init__(self, config: LearnerConfig, actions: int, num_codes: int, cells: int, device: str = "cpu"):
        torso = CodesTorso(config.n_frames, num_codes, cells, config.width)
        head = Head(
            actions,
            features=config.width,
            width=config.width,
            cosines=config.cosines,
            dueling=True,
            apart=False,  # both branches look at one hidden layer
            sigma=config.sigma,
            factorised=False,  # every weight has noise of its own
        )
        super().__init__(config, ValueNet(torso, head), device)

    def greedy(self, codes: np.ndarray, taus: np.ndarray) -> int:
        """The best action in one state, int8 [F, V], given fractions [Q]; no noise on the weights."""
        return int(self.values(codes[None], taus[None])[0].argmax())
