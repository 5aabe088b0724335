"""What an environment shows and takes, whatever its API. Imports nothing heavy.

Shapes: A agents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np

from xladder.errors import UsageError

if TYPE_CHECKING:
    from xladder.worlds.envs import EnvSpec
    from xladder.worlds.turns import Sizes

Observations = Literal["encoded", "codes"]


class Interface(NamedTuple):
    """Agents, observations and actions; the same for all agents of a world."""

    agents: tuple[str, ...]
    shape: tuple[int, ...]  # of one agent's observation
    dtype: np.dtype
    low: float
    high: float
    actions: int
    masked: bool = False
    """Whether the last `actions` entries of an observation's last axis say which actions are available."""

    @property
    def seen(self) -> tuple[int, ...]:
        """The shape of an observation without the mask."""
        return (*self.shape[:-1], self.shape[-1] - self.actions) if self.masked else self.shape

    def without_mask(self, observations: Any) -> Any:
        """Observations […, *seen] from [… , *shape]."""
        return observations[..., : -self.actions] if self.masked else observations

    def available(self, observations: Any) -> Any:
        """bool […, actions]: which actions are available, from masked observations […, *shape].

        An image has the mask in every row; the first row is read.
        """
        return observations[(..., *(0,) * (len(self.shape) - 1), slice(-self.actions, None))] > 0


class Outcome(NamedTuple):
    """The result of one step, for all agents."""

    observations: Any  # [A, *shape]
    rewards: Any  # float32 [A]
    terminated: Any  # bool [A]
    truncated: Any  # bool [A]


class HostGame(Protocol):
    """One episode at a time, on the host."""

    interface: Interface

    def begin(self, rng: np.random.Generator) -> np.ndarray:
        """Begin an episode; returns the first observations [A, *shape]."""

    def step(self, actions: list[int]) -> Outcome:
        """Let all agents act."""

    def picture(self) -> np.ndarray:
        """uint8 [height, width, 3]: what it looks like now."""


def of_turns(sizes: Sizes, observations: Observations) -> Interface:
    """The interface of a world in which agents take turns."""
    agents = tuple(f"agent_{i}" for i in range(sizes.num_agents))
    encoding = sizes.encoding
    if observations == "codes":
        most = encoding.num_codes - 1
        return Interface(agents, (encoding.num_cells,), np.dtype(np.int8), 0, most, sizes.num_actions)
    looks = np.concatenate([block.table().ravel() for block in encoding.blocks])
    low, high = float(looks.min()), float(looks.max())
    return Interface(agents, (encoding.num_inputs,), np.dtype(np.float32), low, high, sizes.num_actions)


def of_envs(spec: EnvSpec) -> Interface:
    """The interface of a world of the value family."""
    dtype = np.dtype(spec.dtype)
    low, high = (0, spec.max_value) if dtype == np.uint8 else (-np.inf, np.inf)
    return Interface(spec.agents or ("agent_0",), spec.shape, dtype, low, high, spec.actions, spec.masked)


def check_action(interface: Interface, action: Any) -> int:
    """An action as an int; a `UsageError` if there is no such action."""
    number = int(action)
    if not 0 <= number < interface.actions:
        raise UsageError(f"The action is {action}, but actions lie in 0 … {interface.actions - 1}.")
    return number
