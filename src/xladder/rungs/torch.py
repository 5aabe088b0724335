"""`torch`: everything in PyTorch and NumPy. The reference, given the number of threads it runs best with."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.core.tick import PlayDraws
from xladder.core.tick_host import HostExperiment
from xladder.devices import cores
from xladder.errors import UsageError, missing_extra
from xladder.learners.iqn import ActDraws
from xladder.replay.frames_host import HostRing
from xladder.rungs.running import HostRun, stack_seeds
from xladder.worlds import treasurehunt_host
from xladder.worlds.treasurehunt import NUM_ACTIONS, num_codes, window

try:
    import torch
except ImportError as error:  # pragma: no cover - depends on the installation
    raise missing_extra("torch", "torch") from error

from xladder import bridge
from xladder.learners.iqn_torch import TorchAgent

if TYPE_CHECKING:
    from xladder.workloads.treasurehunt import Config

POPULATION = False
STARTING = "choosing threads"


class TorchVerbs:
    """N PyTorch agents. Draws come from NumPy's and PyTorch's generators."""

    def __init__(self, config: Config, seed: int, device: str):
        self.config = config
        self.rng = np.random.default_rng(seed)
        torch.manual_seed(seed)
        w = config.world
        self.agents = [
            TorchAgent(config.learner, NUM_ACTIONS, num_codes(w), window(w).size, device) for _ in range(w.num_agents)
        ]

    def draw(self, tick: int) -> PlayDraws:
        """The draws of an epoch's play."""
        w, shape = self.config.world, (self.config.world.num_agents, self.config.world.max_turns)
        acts = ActDraws(
            explore=self.rng.random(shape, dtype=np.float32),
            action=self.rng.integers(0, NUM_ACTIONS, shape, dtype=np.int8),
            taus=self.rng.random((*shape, self.config.learner.act_quantiles), dtype=np.float32),
        )
        return PlayDraws(
            starts=treasurehunt_host.draw_reset(w, self.rng),
            spawns=treasurehunt_host.draw_spawns(w, self.rng, w.max_turns),
            acts=acts,
        )

    def greedy(self, agent: int, codes: np.ndarray, taus: np.ndarray) -> int:
        """The best action in a state."""
        return self.agents[agent].greedy(codes, taus)

    def learn(self, tick: int, agent: int, ring: HostRing) -> float:
        """One update from a memory."""
        c = self.config.learner
        starts = self.rng.choice(ring.limit(), c.batch_size, replace=False)
        return self.agents[agent].update(ring.cut(starts, c.gamma))

    def sync(self) -> None:
        """The hard update of every target network."""
        for agent in self.agents:
            agent.sync()

    def params(self) -> Any:
        """Parameters as the JAX pytree, leaves [N, …]."""
        return stack_seeds([bridge.to_jax("iqn", agent.net.state_dict()) for agent in self.agents])


def best_threads(config: Config) -> dict[int, float]:
    """Milliseconds per update and ten actions at 1, 2, 4 … threads, quickest first. Leaves the best one set.

    PyTorch's own default can be several times slower on a small or busy machine.
    """
    limit = cores()
    verbs = TorchVerbs(config, seed=0, device="cpu")
    agent, c = verbs.agents[0], config.learner
    ring = HostRing(c.memory, window(config.world).size, c.n_frames, c.n_step)
    batch = ring.cut(np.arange(c.batch_size), c.gamma)
    taus = np.zeros(c.act_quantiles, np.float32)
    times: dict[int, float] = {}
    threads = 1
    while threads <= limit:
        torch.set_num_threads(threads)
        trials = []
        for _ in range(6):
            begun = time.perf_counter()
            agent.update(batch)
            for _ in range(10):
                agent.greedy(batch.states[0], taus)
            trials.append(time.perf_counter() - begun)
        times[threads] = 1000 * float(np.median(trials[1:]))
        threads *= 2
    times = dict(sorted(times.items(), key=lambda item: item[1]))
    torch.set_num_threads(next(iter(times)))
    return times


def start(config: Config, seeds: Sequence[int], device: Any = None) -> HostRun:
    """Begin one experiment, after measuring how many threads serve PyTorch best."""
    (seed,) = seeds
    if device is not None and device.platform != "cpu":
        if not torch.cuda.is_available():
            raise UsageError("This PyTorch cannot use the GPU: install one built for it, or add `--device cpu`.")
        torch.set_float32_matmul_precision("high")  # TensorFloat-32, as JAX does by default
        return HostRun(HostExperiment(config, TorchVerbs(config, seed, "cuda")), nullcontext())
    times = best_threads(config)
    tried = ", ".join(f"{threads}: {ms:.1f} ms" for threads, ms in sorted(times.items()))
    note = f"PyTorch uses {torch.get_num_threads()} threads (an update by threads: {tried})."
    return HostRun(HostExperiment(config, TorchVerbs(config, seed, "cpu")), nullcontext(), note)
