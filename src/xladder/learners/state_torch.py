"""The state of PyTorch learners and random generators as NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from xladder.core.state import Stateful, capture, restore

# The optimiser's state per parameter, which exists from its first step on.
OPT_STATE = {
    "Adam": ("step", "exp_avg", "exp_avg_sq"),
    "AdamW": ("step", "exp_avg", "exp_avg_sq"),
    "RAdam": ("step", "exp_avg", "exp_avg_sq"),
    "CentredRmsProp": ("mean", "square"),
}


class TorchState:
    """Mixin for a class with networks and an `optimiser`."""

    NETS: ClassVar[tuple[str, ...]] = ("net",)
    optimiser: torch.optim.Optimizer

    def state(self) -> dict[str, Any]:
        """Parameters and optimiser state as arrays."""
        nets = {name: {k: _array(v) for k, v in getattr(self, name).state_dict().items()} for name in self.NETS}
        return {"nets": nets, "begun": bool(self.optimiser.state), "opt_state": self._opt_state()}

    def take_state(self, state: Mapping[str, Any]) -> None:
        """Resume from a state."""
        for name in self.NETS:
            getattr(self, name).load_state_dict({k: torch.from_numpy(v) for k, v in state["nets"][name].items()})
        if not state["begun"] and not self.optimiser.state:
            return
        for param, opt_state in zip(self._params_of_optimiser(), state["opt_state"], strict=True):
            held = self.optimiser.state[param]
            for name, values in opt_state.items():
                if name in held:
                    held[name].copy_(torch.from_numpy(values))  # in place: a captured graph updates this memory
                else:
                    held[name] = torch.from_numpy(values).to(param.device)

    def _params_of_optimiser(self) -> list[Tensor]:
        return [param for group in self.optimiser.param_groups for param in group["params"]]

    def _opt_state(self) -> list[dict[str, np.ndarray]]:
        names = OPT_STATE[type(self.optimiser).__name__]
        rows = []
        for param in self._params_of_optimiser():
            held = self.optimiser.state.get(param, {})
            empty = {name: torch.zeros(()) if name == "step" else torch.zeros_like(param) for name in names}
            rows.append({name: _array(held.get(name, empty[name])) for name in names})
        return rows


class TorchBackend(Stateful):
    """Base class for backends that also use PyTorch's global generator."""

    def learners(self) -> Sequence[Any]:
        """The learners, one per agent."""
        raise NotImplementedError

    def dry_run(self, agent: int = 0) -> None:
        """Run an update and some actions of one agent on made-up data."""
        raise NotImplementedError

    def compile(self) -> None:
        """Compile the learners, and change nothing of their state."""
        before = {name: array.copy() for name, array in capture(self).items()}
        for agent, learner in enumerate(self.learners()):
            learner.compile()
            self.dry_run(agent)
        restore(self, before)

    def state(self) -> dict[str, Any]:
        """Its attributes, the generators, and the number of threads, because that affects the rounding of sums."""
        generators = [torch.get_rng_state().numpy()]
        if torch.cuda.is_available():
            generators.append(torch.cuda.get_rng_state().numpy())
        return {**super().state(), "generators": generators, "threads": torch.get_num_threads()}

    def take_state(self, state: Mapping[str, Any]) -> None:
        """Resume from a state."""
        own = dict(state)
        cpu, *gpu = own.pop("generators")
        torch.set_rng_state(torch.from_numpy(cpu))
        for generator in gpu:
            torch.cuda.set_rng_state(torch.from_numpy(generator))
        torch.set_num_threads(own.pop("threads"))
        super().take_state(own)


def _array(tensor: Tensor) -> np.ndarray:
    return tensor.detach().cpu().numpy()
