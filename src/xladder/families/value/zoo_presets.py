"""Multi-agent worlds with PettingZoo's parallel API as workloads: `zoo/module:parallel_env`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from xladder.families.value import published
from xladder.families.value.config import StepsConfig, ValueWorld
from xladder.families.value.marl_presets import suited_to_others
from xladder.families.value.own_presets import from_gymnax
from xladder.worlds import names

if TYPE_CHECKING:
    from xladder.core.types import Compiled
    from xladder.worlds.envs import EnvSpec
    from xladder.worlds.zoo_host import ZooEnvs


@dataclass(frozen=True)
class WorldConfig(ValueWorld):
    """Envs of a multi-agent world."""

    jittable: ClassVar[bool] = False
    name: str = "zoo/pettingzoo.sisl.pursuit_v5:parallel_env"
    """Which world; set by the workload's name."""
    num_envs: int = 8
    """Number of envs that are stepped in parallel."""
    stack: int = 1
    """Frames stacked into a state."""
    kwargs: tuple[str, ...] = ()
    """Arguments of the world's class or function, as name=value: max_cycles=100."""

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of the agents that learn independently."""
        from xladder.worlds.zoo_host import layout

        return layout(self.name, self.kwargs).agents

    def spec(self) -> EnvSpec:
        """Frame shape, dtype and number of actions, known without starting the world."""
        from xladder.worlds.zoo_host import spec

        return spec(self)

    def on_host(self, num_envs: int, seed: int, compiled: Compiled, first: int = 0) -> ZooEnvs:
        """Envs stepped from the host; `first` is the first one's index, if other processes step the earlier ones."""
        from xladder.worlds.zoo_host import on_host

        return on_host(self, num_envs, seed, compiled, first)


@dataclass(frozen=True)
class Config(StepsConfig):
    """Independent value learners, one per agent, in envs of a multi-agent world."""

    world: WorldConfig = field(default_factory=WorldConfig)
    algorithm: Literal["replay"] = "replay"
    """The value learner with a replay memory."""


def presets(place: names.Place, protocol: str | None = None) -> dict[str, Any]:
    """The presets of a world, chosen by the shape of its frames."""
    if protocol is not None:
        published.check_protocol(place.name, (), protocol)
    found = from_gymnax(Config(WorldConfig(place.name)))
    return {name: suited_to_others(config) for name, config in found.items() if config.algorithm == "replay"}
