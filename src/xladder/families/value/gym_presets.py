"""Gymnasium environments as workloads: `gym/LunarLander-v3`. They run on the host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from xladder.errors import UsageError, need
from xladder.families.value import gymnax_presets as gymnax
from xladder.families.value import published
from xladder.families.value.config import StepsConfig, ValueWorld
from xladder.worlds import names

if TYPE_CHECKING:
    from xladder.core.types import Compiled
    from xladder.nets.fields import Fields
    from xladder.worlds.envs import EnvSpec
    from xladder.worlds.gym_host import GymEnvs


MOST_PROCESSES, MOST_ENVS = 1024, 2**16
"""Envs of a run, in processes of their own or in one process."""


@dataclass(frozen=True)
class WorldConfig(ValueWorld):
    """Envs of a Gymnasium environment."""

    jittable: ClassVar[bool] = False
    name: str = "gym/CartPole-v1"
    """Which environment; set by the workload's name."""
    num_envs: int = 8
    """Number of envs that are stepped in parallel."""
    stack: int = 1
    """Frames stacked into a state."""
    kwargs: tuple[str, ...] = ()
    """Arguments of the environment, as name=value: continuous=False."""
    wrappers: tuple[str, ...] = ()
    """Wrappers, the innermost first: Gymnasium's, such as FlattenObservation or "TimeLimit(max_episode_steps=200)", or
    module:Name."""
    vectorisation: Literal["sync", "async"] = "sync"
    """Whether envs are stepped one after another in this process, or each in its own (for slow ones)."""
    normalise: Literal["none", "bounds", "running"] = "none"
    """bounds: scale numbers to [−1, 1] by the bounds of the observation space, where it has any. running: by the mean
    and variance of all observations in training so far."""
    normalise_eps: float = 1e-8
    """Added to the running variance before its root is taken."""
    normalise_clip: float = 10.0
    """The largest size of a number normalised by running statistics; inf for no limit."""
    masks: bool = True
    """Take only actions that info["action_mask"] allows, where an environment has one."""

    def spec(self) -> EnvSpec:
        """Frame shape, dtype and number of actions, known without starting the world."""
        from xladder.worlds.gym_host import spec

        return spec(self)

    def on_host(self, num_envs: int, seed: int, compiled: Compiled, first: int = 0) -> GymEnvs:
        """Envs stepped from the host; `first` is the first one's index, if other processes step the earlier ones."""
        from xladder.worlds.gym_host import on_host

        return on_host(self, num_envs, seed, compiled, first)


@dataclass(frozen=True)
class Config(StepsConfig):
    """A value learner in a Gymnasium environment."""

    world: WorldConfig = field(default_factory=WorldConfig)
    algorithm: Literal["replay"] = "replay"
    """The value learner with a replay memory."""

    def check_settings(self) -> None:
        """Raise a `UsageError` for more envs than this machine could have."""
        envs, separate = self.world.num_envs, self.world.vectorisation == "async"
        most, what = (MOST_PROCESSES, "each has a process of its own") if separate else (MOST_ENVS, "each is an object")
        need(envs <= most, "world.num-envs", envs, f"{what}, and {most:,} are possible")


def presets(place: names.Place, protocol: str | None = None) -> dict[str, Any]:
    """The presets of an environment, chosen by the shape of its frames."""
    if protocol is not None:
        published.check_protocol(place.name, (), protocol)
    world = WorldConfig(place.name)
    shape, dtype, fields = _frames(world)
    default = Config(world, gymnax.for_frames(shape, dtype.itemsize, fields).learner)
    return {"default": default, **gymnax.family(default)}


def _frames(world: WorldConfig) -> tuple[tuple[int, ...], np.dtype, Fields]:
    """Shape, dtype and parts of the frames; of a vector, if the environment cannot be made without arguments."""
    from xladder.worlds.gym_host import require, seen_frames

    require(world.name.removeprefix("gym/"))
    try:
        return seen_frames(world)
    except UsageError:  # which settings may prevent; the check of the settings reports it otherwise
        return (1,), np.dtype(np.float32), ()
