"""`sequential`: JAX one call at a time. The world is on the host; `jit` sits round each function; nothing is mapped.

What a first port from PyTorch gives. Draws have the same addresses as on the rungs above, so all see the same
streams.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax

from xladder.rungs.running import USUAL, Compiler, HostRun


class SequentialRun(HostRun):
    """A host loop of JAX functions, whose state is that of `parallel` and `fused`: a run may go on there."""

    def state(self) -> Any:
        """All that the run would go on from."""
        counters, runs = self.loop.config.family.to_program(self.loop)
        return {"counters": counters, "runs": self.loop.config.family.program(self.loop.config).carried(runs)}

    def take_state(self, state: Any) -> None:
        """Go on from there."""
        with self.context:
            self.loop.config.family.from_program(self.loop, state["counters"], state["runs"])


def start(config: Any, seeds: Sequence[int], device: Any = None, compiler: Compiler = USUAL) -> SequentialRun:
    """Begin one experiment."""
    (seed,) = seeds
    with jax.default_device(device):
        begun = time.perf_counter()
        backend = config.family.jax_backend(config, seed, compiler.function)
        backend.warm_up()
        seconds = time.perf_counter() - begun
    loop = config.family.host_loop(config, backend, backend)
    return SequentialRun(loop, jax.default_device(device), compile_seconds=seconds)
