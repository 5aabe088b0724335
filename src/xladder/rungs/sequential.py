"""`sequential`: JAX one call at a time. The world is on the host; `jit` sits round each verb; nothing is mapped.

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
    """A host loop of JAX verbs, whose state is that of `parallel` and `fused`: a run may go on there."""

    def state(self) -> Any:
        """All that the run would go on from."""
        clock, runs = self.experiment.config.family.to_program(self.experiment)
        return {"clock": clock, "runs": self.experiment.config.family.program(self.experiment.config).carried(runs)}

    def take_state(self, state: Any) -> None:
        """Go on from there."""
        with self.context:
            self.experiment.config.family.from_program(self.experiment, state["clock"], state["runs"])


def start(config: Any, seeds: Sequence[int], device: Any = None, compiler: Compiler = USUAL) -> SequentialRun:
    """Begin one experiment."""
    (seed,) = seeds
    with jax.default_device(device):
        begun = time.perf_counter()
        verbs = config.family.jax_backend(config, seed, compiler.verb)
        verbs.warm_up()
        seconds = time.perf_counter() - begun
    experiment = config.family.host_loop(config, verbs, verbs)
    return SequentialRun(experiment, jax.default_device(device), compile_seconds=seconds)
