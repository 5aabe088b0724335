"""IQN for agents that take turns, in PyTorch: the twin of `iqn.py`.

Its shapes come from the settings and from this file, not from the JAX learner, so a layer of a different size on one
side fails parity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from xladder.core.encoding import Encoding
from xladder.learners.value_torch import TorchLearner
from xladder.nets.codes_torch import CodesTorso
from xladder.nets.value_torch import Head, ValueNet

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import LearnerConfig


class TorchAgent(TorchLearner):
    """One agent: `greedy` chooses actions, `update` learns.

    Args:
        config: the settings of the learner.
        actions: number of actions.
        encoding: how views become the network's inputs.
        device: where PyTorch computes.
    """

    def __init__(self, config: LearnerConfig, actions: int, encoding: Encoding, device: str = "cpu"):
        torso = CodesTorso(config.n_frames, encoding, config.width)
        head = Head(
            actions,
            features=config.width,
            width=config.width,
            cosines=config.cosines,
            dueling=True,
            apart=False,  # both streams share one hidden layer
            sigma=config.sigma,
            factorised=False,  # independent noise for every weight
        )
        super().__init__(config, ValueNet(torso, head), device)

    def greedy(self, codes: np.ndarray, taus: np.ndarray) -> int:
        """The greedy action in one state, int8 [F, V], given fractions [Q]; no noise on the weights."""
        return int(self.values(codes[None], taus[None])[0].argmax())
