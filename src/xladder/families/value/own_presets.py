"""Further worlds with gymnax's API as workloads: users' own, `jax/module:Name`, and `gymnax/ID`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from xladder.errors import UsageError
from xladder.families.value import gymnax_presets, published
from xladder.families.value.config import StepsConfig, ValueWorld
from xladder.worlds import names

if TYPE_CHECKING:
    from xladder.core.types import Compiled
    from xladder.worlds.envs import Envs, EnvSpec
    from xladder.worlds.hosted import HostedEnvs


@dataclass(frozen=True)
class WorldConfig(ValueWorld):
    """Envs of a world with gymnax's API."""

    jittable: ClassVar[bool] = True
    name: str = "jax/my_worlds:Maze"
    """Which world; set by the workload's name."""
    num_envs: int = 8
    """Number of envs that are stepped in parallel."""
    stack: int = 1
    """Frames stacked into a state."""
    kwargs: tuple[str, ...] = ()
    """Arguments of the world's class or function, as name=value: size=9. Of gymnax's, fields of its params too."""
    normalise: Literal["none", "running"] = "none"
    """running: scale numbers by the mean and variance of all observations in training so far."""
    normalise_eps: float = 1e-8
    """Added to the running variance before its root is taken."""
    normalise_clip: float = 10.0
    """The largest size of a number normalised by running statistics; inf for no limit."""

    def spec(self) -> EnvSpec:
        """Frame shape, dtype and number of actions, known without starting the world."""
        from xladder.worlds.gymnax_world import spec

        return spec(self)

    def inside(self, seed: int) -> Envs:
        """The envs, for a compiled program."""
        from xladder.worlds.gymnax_world import inside

        return inside(self, seed)

    def on_host(self, num_envs: int, seed: int, compiled: Compiled, first: int = 0) -> HostedEnvs:
        """Envs stepped from the host; `first` is the first one's index, if other processes step the earlier ones."""
        from xladder.worlds.gymnax_world import on_host

        return on_host(self, num_envs, seed, compiled, first)


@dataclass(frozen=True)
class Config(StepsConfig):
    """A value learner in envs of a jittable world."""

    world: WorldConfig = field(default_factory=WorldConfig)


def presets(place: names.Place, protocol: str | None = None) -> dict[str, Any]:
    """The presets of a world, chosen by the shape of its frames."""
    if protocol is not None:
        published.check_protocol(place.name, (), protocol)
    return from_gymnax(Config(WorldConfig(place.name)))


def from_gymnax(config: StepsConfig) -> dict[str, Any]:
    """The presets of the gymnax world with the same kind of frames."""
    try:
        spec = config.world.spec()
        start = gymnax_presets.for_frames(spec.shape, spec.dtype.itemsize, spec.fields)
    except UsageError as error:
        if not isinstance(error.__cause__, TypeError):
            raise
        # A world that needs arguments, which the settings may have; their check reports it otherwise.
        start = gymnax_presets.VECTORS
    found = gymnax_presets.with_pqn(start)
    return {
        name: replace(
            config,
            learner=preset.learner,
            pqn=preset.pqn,
            algorithm=preset.algorithm,
            steps=preset.steps,
            world=replace(config.world, num_envs=preset.world.num_envs),
        )
        for name, preset in found.items()
    }
