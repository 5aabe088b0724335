"""The agents in PyTorch; their random numbers come from NumPy's and PyTorch's generators."""

from __future__ import annotations

from typing import TYPE_CHECKING

import jax
import numpy as np
import torch
from torch import Tensor

from xladder import bridge
from xladder.core.types import Params
from xladder.families.multi_agent.program import RolloutDraws
from xladder.learners.iqn import ActDraws
from xladder.learners.iqn_torch import TorchAgent
from xladder.learners.state_torch import TorchBackend
from xladder.replay.frames_host import HostFrameRing

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import Config


class Backend(TorchBackend):
    """N PyTorch agents. Random numbers come from NumPy's and PyTorch's generators."""

    STATE = ("rng", "agents")

    def __init__(self, config: Config, seed: int, device: str):
        self.config = config
        self.rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        self.world = w = config.world.on_host()
        self.agents = [TorchAgent(config.learner, w.num_actions, w.encoding, device) for _ in range(w.num_agents)]

    def draw(self, tick: int) -> RolloutDraws:
        """The random numbers of one epoch's rollout."""
        turns = self.config.world.max_turns
        shape = self.world.num_agents, turns
        acts = ActDraws(
            explore=self.rng.random(shape, dtype=np.float32),
            action=self.rng.integers(0, self.world.num_actions, shape, dtype=np.int8),
            taus=self.rng.random((*shape, self.config.learner.act_quantiles), dtype=np.float32),
        )
        return RolloutDraws(self.world.draw_reset(self.rng), self.world.draw_turns(self.rng, turns), acts)

    def greedy(self, agent: int, codes: np.ndarray, taus: np.ndarray) -> int:
        """The greedy action in a state."""
        return self.agents[agent].greedy(codes, taus)

    def learn(self, tick: int, agent: int, ring: HostFrameRing) -> Tensor:
        """One update from a replay memory."""
        c = self.config.learner
        starts = self.rng.choice(ring.limit(), c.batch_size, replace=False)
        return self.agents[agent].start_update(ring.gather(starts, c.gamma))[0]

    def sync(self) -> None:
        """Copy the online networks into the target networks."""
        for agent in self.agents:
            agent.sync()

    def give(self, agent: int) -> Params:
        """The parameters of one agent as the JAX pytree."""
        return bridge.to_jax("value", self.agents[agent].net.state_dict())

    def take(self, agent: int, params: Params) -> None:
        """Load these parameters."""
        self.agents[agent].net.load_state_dict(bridge.to_torch("value", params))

    def params(self) -> Params:
        """Parameters as the JAX pytree, leaves [N, …]."""
        return jax.tree.map(lambda *leaves: np.stack(leaves), *(self.give(i) for i in range(len(self.agents))))

    def learners(self) -> list[TorchAgent]:
        """The learners, one per agent."""
        return self.agents

    def dry_run(self, agent: int = 0) -> None:
        """Run an update and ten actions on made-up data; used to choose the number of threads."""
        c = self.config.learner
        ring = HostFrameRing(c.memory, self.world.encoding.num_cells, c.n_frames, c.n_step)
        batch = ring.gather(np.arange(c.batch_size), c.gamma)
        self.agents[agent].update(batch)
        for _ in range(10):
            self.agents[agent].greedy(batch.states[0], np.zeros(c.act_quantiles, np.float32))
