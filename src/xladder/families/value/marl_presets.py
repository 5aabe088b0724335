"""Multi-agent worlds with JaxMARL's API as workloads: `jaxmarl/NAME` and `marl/module:Name`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from xladder.errors import need
from xladder.families.value import published
from xladder.families.value.config import StepsConfig, ValueWorld
from xladder.families.value.learner_config import MEMBERS
from xladder.families.value.own_presets import from_gymnax
from xladder.families.value.published_marl import MPE
from xladder.worlds import names

if TYPE_CHECKING:
    from xladder.core.types import Compiled
    from xladder.worlds.envs import Envs, EnvSpec
    from xladder.worlds.hosted import HostedEnvs


@dataclass(frozen=True)
class WorldConfig(ValueWorld):
    """Envs of a multi-agent world."""

    jittable: ClassVar[bool] = True
    name: str = "jaxmarl/MPE_simple_spread_v3"
    """Which world; set by the workload's name."""
    num_envs: int = 8
    """Number of envs that are stepped in parallel."""
    stack: int = 1
    """Frames stacked into a state."""
    kwargs: tuple[str, ...] = ()
    """Arguments of the world's class or function, as name=value: num_agents=5."""
    shared: bool = False
    """One network and replay memory for all agents, with an agent ID in the observation; steps then count per agent."""

    team: bool = False
    """One team: its value is the sum of the agents' values, and is learned from the sum of their rewards (VDN)."""

    @property
    def rows(self) -> int:
        """Rows that one learner sees: one per env, or with a network that independent agents share one per agent."""
        return self.num_envs * len(self.all_agents) if self.shared and not self.team else self.num_envs

    @property
    def agents(self) -> tuple[str, ...]:
        """Names of the agents that learn independently."""
        return () if self.shared or self.team else self.all_agents

    @property
    def all_agents(self) -> tuple[str, ...]:
        """Names of all agents."""
        from xladder.worlds.marl_world import load

        return load(self.name, self.kwargs).agents

    def spec(self) -> EnvSpec:
        """Frame shape, dtype and number of actions, known without starting the world."""
        from xladder.worlds.marl_world import spec

        return spec(self)

    def inside(self, seed: int) -> Envs:
        """The envs, for a compiled program."""
        from xladder.worlds.marl_world import inside

        return inside(self, seed)

    def on_host(self, num_envs: int, seed: int, compiled: Compiled, first: int = 0) -> HostedEnvs:
        """Envs stepped from the host; `first` is the first one's index, if other processes step the earlier ones."""
        from xladder.worlds.marl_world import on_host

        return on_host(self, num_envs, seed, compiled, first)


@dataclass(frozen=True)
class Config(StepsConfig):
    """Independent value learners, one per agent, in envs of a multi-agent world."""

    world: WorldConfig = field(default_factory=WorldConfig)

    @property
    def acting(self) -> Any:
        """The settings under which trained agents act: those of a team act each on its own."""
        return replace(self, world=replace(self.world, team=False))

    def check_world(self) -> None:
        """Raise a `UsageError` if agents cannot be a team with these settings, or the torso cannot take frames."""
        if self.world.team:
            check_team(self)
        super().check_world()


def check_team(config: Config) -> None:
    """Raise a `UsageError` if the settings are not those of a team."""
    c, agents, name = config.learner, config.world.all_agents, config.world.name
    alone = f"`{name}` has one agent, {agents[0]}: leave it out"
    need(len(agents) > 1, "world.team", True, alone)
    need(config.algorithm != "pqn", "world.team", True, "PQN learns for one agent: leave it out, or `--preset pqn`")
    need(c.head == "scalar", "learner.head", c.head, "a team sums values, not distributions: use scalar")
    need(
        not c.munchausen,
        "learner.munchausen",
        True,
        "a team learns the best sum of values: use `--learner.no-munchausen`",
    )
    need(not c.noisy, "learner.noisy", True, "a team's agents explore by ε each: use `--learner.no-noisy`")


def presets(place: names.Place, protocol: str | None = None) -> dict[str, Any]:
    """The presets of a world, chosen by the shape of its frames."""
    agents = MPE if place.name.startswith("jaxmarl/MPE_") else ()
    if protocol is not None:
        published.check_protocol(place.name, agents, protocol)
        theirs = published.presets(agents, protocol, Config(WorldConfig(place.name)))
        return published.under(agents, protocol, {"default": theirs["vdn"]} | theirs, MEMBERS)
    found = {name: suited_to_others(config) for name, config in from_gymnax(Config(WorldConfig(place.name))).items()}
    team = replace(found["dqn"], world=replace(found["dqn"].world, team=True, shared=True))
    return found | {"vdn": replace(team, learner=replace(team.learner, double=True))}


def suited_to_others(config: StepsConfig) -> Any:
    """Settings for agents that learn next to other learning agents, whose past behaviour is misleading.

    One-step targets and a shorter horizon: `xladder train jaxmarl/MPE_simple_spread_v3 --rung fused --seeds 4` reached
    −49.8 ± 4.0 after 400,000 steps. With five-step targets and γ = 0.99 it was −71.7 ± 8.9; random actions have
    −79.9 ± 11.0.
    """
    if config.algorithm == "pqn":
        return config
    learner = replace(config.learner, n_step=1, gamma=0.95, memory=min(config.learner.memory, 50_000))
    return replace(config, learner=learner, steps=max(config.steps, 400_000))
