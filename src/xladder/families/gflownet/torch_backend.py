"""A GFlowNet's backend in PyTorch; sampling uses NumPy's generator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from xladder import bridge
from xladder.core.types import Params
from xladder.families.gflownet.host_loop import HostLoop
from xladder.families.gflownet.program import Draws
from xladder.learners.gflownet import Explore, Learned, Trajectories
from xladder.learners.gflownet_torch import TorchGFlowNet
from xladder.learners.local_search import SearchDraws
from xladder.learners.state_torch import TorchBackend

if TYPE_CHECKING:
    from xladder.families.gflownet.config import GFlowNetConfig


class Backend(TorchBackend):
    """One GFlowNet in PyTorch."""

    STATE = ("rng", "learner")

    def __init__(self, config: GFlowNetConfig, seed: int, device: str):
        self.config = config
        self.rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        self.learner = TorchGFlowNet(config, device)

    def draw(self, tick: int) -> Draws:
        """The random numbers of an iteration."""
        steps, old = self.learner.world.max_steps, self.config.remembered
        new, rounds = self.config.learner.batch_size - old, self.config.learner.local_search

        def drawn(*shape: int) -> np.ndarray:
            return self.rng.random(shape, dtype=np.float32)

        draws = Draws(drawn(steps, new), drawn(old), drawn(steps, old))
        if rounds:
            ways = drawn(rounds, steps, new), drawn(rounds, steps, new)
            draws = draws._replace(search=SearchDraws(drawn(rounds, new), *ways, drawn(rounds, new)))
        if self.config.conditional:
            # VarGrad compares the trajectories of a batch, so they share one condition.
            count = 1 if self.config.loss == "vargrad" else new + old
            if self.config.preferential:
                given = self.rng.dirichlet([1.0] * self.config.world.num_terms, count).astype(np.float32)
            else:
                given = drawn(count)
            draws = draws._replace(condition=np.repeat(given, (new + old) // count, axis=0))
        return draws

    def forward_policy(self, states: np.ndarray, explore: Explore, condition: np.ndarray | None = None) -> np.ndarray:
        """float32 [B, A]: the probability with which sampling takes each action."""
        return self.learner.forward_policy(states, float(explore.epsilon), float(explore.temperature), condition)

    def backward_policy(self, states: np.ndarray, condition: np.ndarray | None = None) -> np.ndarray:
        """float32 [B, A − 1]: the probability with which each action is undone."""
        return self.learner.backward_policy(states, condition)

    def learn(self, tick: int, agent: int, batch: Trajectories) -> Learned:
        """One update from a batch."""
        return self.learner.update(batch)

    def give(self, agent: int) -> Params:
        """The parameters as the JAX pytree."""
        return bridge.to_jax("gflownet", self.learner.net.state_dict())

    def sync(self) -> None:
        """Nothing to do: there is no target network."""

    def take(self, agent: int, params: Params) -> None:
        """Load these parameters."""
        self.learner.net.load_state_dict(bridge.to_torch("gflownet", params))

    def learners(self) -> list[TorchGFlowNet]:
        """The one learner."""
        return [self.learner]

    def dry_run(self, agent: int = 0) -> None:
        """Run a few iterations; used to choose the number of threads."""
        loop = HostLoop(self.config, self, self)
        for _ in range(3):
            loop.advance()

    def params(self) -> Params:
        """The parameters as the JAX pytree."""
        return self.give(0)
