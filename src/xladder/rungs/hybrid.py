"""`hybrid`: PyTorch acts, JAX computes the gradient step. The smallest first move away from PyTorch.

World and acting stay as they were. JAX begins with PyTorch's parameters, and after every update PyTorch is given the
new ones, so it keeps acting with what was learned. Only the update gets quicker, which bounds what this rung can gain.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax
import torch

from xladder.core.state import Stateful
from xladder.rungs.running import USUAL, Compiler, HostRun
from xladder.rungs.torch import choose_threads, find_device


class ParamMirror(Stateful):
    """A learner in JAX that hands every change on to an actor in PyTorch."""

    STATE = ("learner",)

    def __init__(self, learner: Any, actor: Any, agents: int):
        self.learner, self.actor = learner, actor
        for agent in range(agents):
            learner.take(agent, actor.give(agent))

    def learn(self, number: int, agent: int, given: Any) -> Any:
        """One update from what the workload's learners are given, and the actor follows."""
        outputs = self.learner.learn(number, agent, given)
        self.actor.take(agent, self.learner.give(agent))
        return outputs

    def sync(self) -> None:
        """The hard update of every target network; the actor has none."""
        self.learner.sync()

    def params(self) -> Any:
        """Parameters as the JAX pytree."""
        return self.learner.params()


def start(
    config: Any,
    seeds: Sequence[int],
    device: Any = None,
    compiler: Compiler = USUAL,
    threads: int | None = None,
) -> HostRun:
    """Begin one experiment."""
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
