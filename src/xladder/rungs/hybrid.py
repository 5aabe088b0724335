"""`hybrid`: PyTorch acts, JAX computes the gradient step. The smallest first step away from PyTorch.

Environment and acting stay as they were. JAX starts from PyTorch's parameters, and after every update PyTorch gets the
new ones, so it acts with the latest policy. Only the update gets faster, which limits the speedup of this rung.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import torch

from xladder.core.state import Stateful
from xladder.protocols import Config
from xladder.rungs.running import USUAL, Compiler, HostRun
from xladder.rungs.torch import choose_threads, find_device


class ParamMirror(Stateful):
    """A JAX learner that copies its parameters to a PyTorch actor after every update."""

    STATE = ("learner",)

    def __init__(self, learner: Any, actor: Any, agents: int):
        self.learner, self.actor = learner, actor
        for agent in range(agents):
            learner.take(agent, actor.give(agent))

    def learn(self, number: int, agent: int, given: Any) -> Any:
        """Run one update and copy the new parameters to the actor; arguments and result are the learner's."""
        outputs = self.learner.learn(number, agent, given)
        self.actor.take(agent, self.learner.give(agent))
        return outputs

    def see(self, agent: int, frames: Any) -> None:
        """Add frames to the statistics that normalise observations; the actor adds them to its own."""
        self.learner.see(agent, frames)

    def take(self, agent: int, params: Any) -> None:
        """Set the parameters of one agent, on both sides."""
        self.learner.take(agent, params)
        self.actor.take(agent, params)

    def sync(self) -> None:
        """Update all target networks; the actor has none."""
        self.learner.sync()

    def params(self) -> Any:
        """The parameters as a JAX pytree."""
        return self.learner.params()


def start(
    config: Config,
    seeds: Sequence[int],
    device: Any = None,
    compiler: Compiler = USUAL,
    threads: int | None = None,
) -> HostRun:
    """Start a run of one seed; `threads` is the number of PyTorch's threads, by default the fastest in a trial."""
    (seed,) = seeds
    where = find_device(device)
    note = choose_threads(config, threads) if where == "cpu" else ""
    actor = config.family.torch_backend(config, seed, where)
    with jax.default_device(device):
        begun = time.perf_counter()
        learner = config.family.jax_backend(config, seed, compiler.function)
        learner.warm_up()
        seconds = time.perf_counter() - begun
        mirror = ParamMirror(learner, actor, config.num_learners)
    loop = config.family.host_loop(config, actor, mirror)
    return HostRun(loop, jax.default_device(device), note, seconds, torch.get_num_threads())
