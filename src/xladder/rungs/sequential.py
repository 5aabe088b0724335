"""`sequential`: JAX one call at a time. The world is on the host; `jit` sits round each verb; nothing is mapped.

What a first port from PyTorch gives. Draws have the same addresses as on the rungs above, so all see the same
streams.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import jax

from xladder.registry import part
from xladder.rungs.running import USUAL, Compiler, HostRun

POPULATION = False
ON_DEVICE = False  # where what is remembered lies
STARTING = "compiling"


class SequentialRun(HostRun):
    """A host loop of JAX verbs, whose state is that of `parallel` and `fused`: a run may go on there."""

    def state(self) -> Any:
        """All that the run would go on from."""
        clock, runs = part(self.experiment.config, "jax").to_program(self.experiment)
        return {"clock": clock, "runs": part(self.experiment.config).Program(self.experiment.config).carried(runs)}

    def take_state(self, state: Any) -> None:
        """Go on from there."""
        with self.context:
            part(self.experiment.config, "jax").from_program(self.experiment, state["clock"], state["runs"])


def start(config: Any, seeds: Sequence[int], device: Any = None, compiler: Compiler = USUAL) -> SequentialRun:
    """Begin one experiment."""
    (seed,) = seeds
    with jax.default_device(device):
        begun = time.perf_counter()
        verbs = part(config, "jax").Verbs(config, seed, compiler.verb)
        verbs.warm_up()
        seconds = time.perf_counter() - begun
    experiment = part(config, "host").HostExperiment(config, verbs, verbs)
    return SequentialRun(experiment, jax.default_device(device), compile_seconds=seconds)
