"""What runs have in common whose whole tick is a program: counters and a population of training states on devices.

Shapes: S seeds.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from xladder.protocols import Program
from xladder.rungs.running import placed_like


class ProgramRun:
    """A population of runs of a program, one per seed; subclasses advance it."""

    note = ""
    program: Program
    counters: Any
    """Shared by all seeds."""
    runs: Any
    """The training states, leaves [S, …]."""

    def params(self) -> Any:
        """Parameters, leaves [S, …]."""
        return jax.tree.map(np.asarray, self.program.params(self.runs))

    def take_params(self, params: Any) -> None:
        """Start from these parameters, leaves [S, …], instead of fresh ones."""
        self.runs = placed_like(self.program.with_params(self.runs, params), self.runs)

    def state(self) -> Any:
        """The state to resume from."""
        return {"counters": self.counters, "runs": self.program.carried(self.runs)}

    def take_state(self, state: Any) -> None:
        """Restore a state."""
        self.counters, self.runs = state["counters"], self.program.put_back(self.runs, state["runs"])

    def close(self) -> None:
        """Nothing to do: the world is a part of the program."""
