"""`sequential`: JAX one call at a time. The environment is on the host, each function is jitted, nothing is vmapped.

This is what a first port from PyTorch looks like. Random numbers are the same as on the other JAX rungs.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax

from xladder.protocols import Config
from xladder.rungs.running import USUAL, Compiler, HostRun


class SequentialRun(HostRun):
    """A host loop of JAX functions. Its state is that of `parallel` and `fused`, so a run can be resumed there."""

    def state(self) -> Any:
        """The state to resume from."""
        counters, runs = self.loop.config.family.to_program(self.loop)
        return {"counters": counters, "runs": self.loop.config.family.program(self.loop.config).carried(runs)}

    def take_state(self, state: Any) -> None:
        """Restore a state."""
        with self.context:
            self.loop.config.family.from_program(self.loop, state["counters"], state["runs"])


def start(config: Config, seeds: Sequence[int], device: Any = None, compiler: Compiler = USUAL) -> SequentialRun:
    """Start a run of one seed."""
    (seed,) = seeds
    with jax.default_device(device):
        begun = time.perf_counter()
        backend = config.family.jax_backend(config, seed, compiler.function)
        backend.warm_up()
        seconds = time.perf_counter() - begun
        loop = config.family.host_loop(config, backend, backend)
    return SequentialRun(loop, jax.default_device(device), compile_seconds=seconds)
