"""IQN as agents that take turns use it, in PyTorch: the twin of `iqn.py`.

Its shapes come from the settings and from this file, not from the learner in JAX: a layer of another size on one side
fails parity.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from xladder.learners.value_torch import TorchLearner
from xladder.nets.codes_torch import CodesTorso

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import LearnerConfig


class HeadShape(NamedTuple):
    """The layers of the head: sorrel's `cos_embedding`, `ff_1`, `advantage` and `value`."""

    actions: int
    features: int
    width: int
    cosines: int
    sigma: float
    atoms: int = 1
    dueling: bool = True
    apart: bool = False  # both branches look at one hidden layer
    factorised: bool = False  # every weight has noise of its own

    def noise_shapes(self) -> tuple[tuple[str, int, int], ...]:
        """Name, inputs and outputs of every noisy layer, in the order that noise is handed out in."""
        return ("hidden", self.features, self.width), ("advantage", self.width, self.actions), ("value", self.width, 1)


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
        head = HeadShape(actions, config.width, config.width, config.cosines, config.sigma)
        normals = sum(inputs * outputs + outputs for _, inputs, outputs in head.noise_shapes())
        shape: Any = SimpleNamespace(
            config=config, net=SimpleNamespace(head=head), fractions=config.quantiles, noise_size=normals
        )
        torso = CodesTorso(config.n_frames, num_codes, cells, config.width)
        super().__init__(shape, torso, config.lr, device)

    def greedy(self, codes: np.ndarray, taus: np.ndarray) -> int:
        """The best action in one state, int8 [F, V], given fractions [Q]; no noise on the weights."""
        return int(self.values(codes[None], taus[None])[0].argmax())
