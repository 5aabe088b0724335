"""Users' own worlds as workloads, `flow/module:Name`: their settings and presets. Imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from xladder.errors import UsageError, brief
from xladder.families.gflownet.config import GFlowNetConfig
from xladder.worlds.flow_settings import FlowSettings

if TYPE_CHECKING:
    from xladder.worlds.flow import HostWorld
    from xladder.worlds.flow_own import OwnWorld


@dataclass(frozen=True)
class WorldConfig(FlowSettings):
    """A user's own world: a `FlowWorld` of `xladder.worlds.flow`."""

    name: str = "flow/bits"
    """Which world; set by the workload's name."""

    @property
    def workload(self) -> str:
        """The workload's name."""
        return self.name

    @property
    def steps(self) -> int:
        """Steps of the longest trajectory, including stop."""
        return self.build().max_steps

    @property
    def state_size(self) -> int:
        """Numbers in a state."""
        return self.build().state_size

    @property
    def enumerable(self) -> bool:
        """Whether there are few enough states for exact evaluation."""
        return self.build().enumeration() is not None

    @property
    def charted(self) -> bool:
        """Whether samples can be compared with the target by marginals: not in users' own worlds."""
        return False

    @property
    def knows_log_z(self) -> bool:
        """Whether log Z is known: to the world, or by enumeration."""
        return self.build().world.known_log_z() is not None or self.enumerable

    def check(self) -> None:
        """Raise a `UsageError` with the faults of the world."""
        from xladder.families.gflownet.check import faults_of
        from xladder.worlds.flow_names import find

        find(self.name)  # the cached facts may be from when it could still be imported
        for fault in faults_of(self.name):
            raise UsageError(fault)

    def size_in_words(self) -> str:
        """How many states there are."""
        found = self.build().enumeration()
        return f"{len(found.states):,} states" if found else "too many states to list"

    def headline(self) -> str:
        """A short description of the world."""
        return self.size_in_words()

    def build(self) -> OwnWorld:
        """The world in JAX."""
        return _own_world(self.name)

    def host(self) -> HostWorld:
        """Its twin in NumPy, or the JAX world stepped from the host."""
        return _own_host(self.name)


@dataclass(frozen=True)
class Config(GFlowNetConfig):
    """A GFlowNet in a user's own world learns to sample its objects in proportion to their reward."""

    world: WorldConfig = field(default_factory=WorldConfig)


ABOUT = {
    "default": "trajectory balance for 5,000 iterations",
    "quick": "1,000 iterations of a smaller network, for a first look",
}
"""What each preset is."""


def presets(name: str) -> dict[str, Config]:
    """The named settings of a world; `quick` is for a first look."""
    default = Config(WorldConfig(name), iterations=5000)
    quick = replace(default, iterations=1000, learner=replace(default.learner, width=64))
    return {"default": default, "quick": quick}


@lru_cache(maxsize=16)
def _own_world(name: str) -> OwnWorld:
    from xladder.worlds.flow_names import load_once
    from xladder.worlds.flow_own import bind

    world = load_once(name)
    try:
        return bind(world)
    except (Exception, SystemExit) as error:
        raise UsageError(f"`{name}` cannot be used: {brief(error)}. Its methods have to be pure JAX.") from error


@lru_cache(maxsize=16)
def _own_host(name: str) -> HostWorld:
    from xladder.worlds.flow_own import host_of

    world = _own_world(name)
    return host_of(world)
