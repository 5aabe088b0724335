"""Gymnax worlds as workloads: `cartpole`, `minatar/breakout` and the others in `names.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from xladder.families.value import published
from xladder.families.value.config import StepsConfig, ValueWorld, check_torso, members
from xladder.families.value.learner_config import MEMBERS, R2D2, LearnerConfig, PQNConfig
from xladder.families.value.published import PublishedAgent
from xladder.families.value.published_small import CARTPOLE, MINATAR
from xladder.families.value.torsos import BY_KEY, is_picture, suited
from xladder.worlds import names

if TYPE_CHECKING:
    from xladder.core.types import Compiled
    from xladder.nets.fields import Fields
    from xladder.worlds.envs import EnvSpec
    from xladder.worlds.gymnax_world import GymnaxEnvs
    from xladder.worlds.hosted import HostedEnvs


@dataclass(frozen=True)
class WorldConfig(ValueWorld):
    """Envs of a gymnax world."""

    jittable: ClassVar[bool] = True
    name: str = "cartpole"
    """Which world; set by the workload's name."""
    num_envs: int = 8
    """Number of envs that are stepped in parallel."""
    stack: int = 1
    """Frames stacked into a state."""
    kwargs: tuple[str, ...] = ()
    """Arguments of gymnax's world, or fields of its params, as name=value: max_steps_in_episode=50."""
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

    def inside(self, seed: int) -> GymnaxEnvs:
        """The envs, for a compiled program."""
        from xladder.worlds.gymnax_world import inside

        return inside(self, seed)

    def on_host(self, num_envs: int, seed: int, compiled: Compiled, first: int = 0) -> HostedEnvs:
        """Envs stepped from the host; `first` is the first one's index, if other processes step the earlier ones."""
        from xladder.worlds.gymnax_world import on_host

        return on_host(self, num_envs, seed, compiled, first)


@dataclass(frozen=True)
class Config(StepsConfig):
    """A value learner in a gymnax world."""

    world: WorldConfig = field(default_factory=WorldConfig)

    def check_world(self) -> None:
        """Raise a `UsageError` if the torso cannot take the world's frames."""
        shape = self.world.spec().shape if self.world.kwargs else names.find_gymnax(self.world.name).shape
        check_torso(self, shape)


# For CartPole and other worlds with small observations: double Q-learning with five-step targets and a soft target
# update. With it 54 of 64 seeds ended above 475, with the squared loss 1 of 32 (docs/benchmarks/defaults.md).
# With three steps and a hard update every 200 steps, 14 of 32 ended above 400, and six diverged.
VECTORS = Config(
    learner=LearnerConfig(
        lr=1e-3,
        batch_size=128,
        memory=100_000,
        steps_per_update=8,
        target_update_period=0,
        tau=0.01,
        double=True,
        n_step=5,
        epsilon_share=0.3,
        v_min=-100.0,
        v_max=100.0,
    ),
    steps=100_000,
)
# After Young and Tian (2019): their network, batch, memory and exploration; Adam where they had RMSProp.
PICTURES = Config(
    world=WorldConfig(num_envs=16),
    learner=LearnerConfig(
        torso="minatar",
        width=128,
        lr=2.5e-4,
        batch_size=32,
        memory=100_000,
        learning_starts=5000,
        steps_per_update=4,
        target_update_period=4000,
        epsilon_steps=100_000,
        epsilon_end=0.1,
        optimiser_eps=1e-5,
        v_max=50.0,
    ),
    steps=2_000_000,
)
# Categorical and quantile heads do not diverge, and learn faster with hard updates of the target network.
COPIED_TARGET = {"target_update_period": 200, "tau": 0.0}
MEMORY_BYTES, LEAST_MEMORY = 2**30, 10_000
"""Of the memory of large images, which may be many, and the steps that it has at least."""
REPEAT = 16
"""Steps of one random action in the preset `explore`, which reaches the goal of MountainCar: −103.7 ± 4.0 over 8 seeds
(`--seed 100`), where no other preset leaves −200."""
PQN_ENVS = {"mlp": 32, "minatar": 128}


def for_frames(shape: tuple[int, ...], byte: int, fields: Fields = ()) -> Any:
    """The settings to start from for frames of a shape, of which a number has so many bytes.

    `fields` are the parts of a frame, if it has several: with a picture among them, they go through `by_key`.
    """
    pictures = [part for _, part, _ in fields if is_picture(part)]
    torso: Any = BY_KEY if pictures else suited(shape) or "mlp"
    if torso == "mlp":
        return VECTORS
    start = replace(PICTURES, learner=replace(PICTURES.learner, torso=torso))
    if all(suited(part) == "minatar" for part in pictures or [shape]):
        return start
    memory = min(start.learner.memory, max(LEAST_MEMORY, MEMORY_BYTES // (byte * math.prod(shape))))
    return replace(start, learner=replace(start.learner, width=512, memory=memory))


def family(start: Any) -> dict[str, Any]:
    """The members of the family and R2D2, derived from a world's settings."""
    found = members(start)
    if start.learner.torso == "mlp":
        found["explore"] = replace(start, learner=replace(start.learner, explore_repeat=REPEAT), steps=2 * start.steps)
        for name, config in found.items():
            if config.learner.head != "scalar":
                found[name] = replace(config, learner=replace(config.learner, **COPIED_TARGET))
    return found | {"r2d2": replace(start, learner=replace(start.learner, **R2D2))}


def presets(place: names.Place, protocol: str | None = None) -> dict[str, Any]:
    """The presets of a world."""
    if protocol is not None:
        published.check_protocol(place.name, agents(place.name), protocol)
    world = names.GYMNAX[place.name]
    start = PICTURES if len(world.shape) == 3 else VECTORS
    start = replace(start, world=replace(start.world, name=place.name))
    start.check_world()
    own = with_pqn(start)
    return own if protocol is None else _under(place.name, protocol, own)


def agents(world: str) -> tuple[PublishedAgent, ...]:
    """The agents that were published in a world."""
    return CARTPOLE if world == "cartpole" else MINATAR if world.startswith("minatar/") else ()


def _under(world: str, protocol: str, own: Mapping[str, Any]) -> published.Presets:
    """The published agents of a protocol; `own` are our presets."""
    found = {
        agent.algorithm: agent.applied_to(own["pqn" if agent.algorithm == "pqn" else "default"])
        for agent in agents(world)
        if agent.protocol == protocol
    }
    first = next(iter(found.values()))
    return published.under(agents(world), protocol, {"default": first, **found}, [*MEMBERS, "pqn"])


def with_pqn(start: Any) -> dict[str, Any]:
    """The members of the family and PQN, derived from a world's settings."""
    found = family(start)
    # Gallici et al. (2024) for images; for vectors a smaller network and a larger learning rate, tuned on CartPole.
    pqn = replace(
        start,
        algorithm="pqn",
        world=replace(start.world, num_envs=PQN_ENVS.get(start.learner.torso, PQN_ENVS["minatar"])),
        learner=replace(
            start.learner,
            double=False,
            n_step=1,
            optimiser="radam",
            optimiser_eps=1e-5,
            epsilon_end=0.05,
            epsilon_steps=0,
        ),
    )
    if start.learner.torso == "mlp":
        pqn = replace(
            pqn,
            pqn=PQNConfig(rollout=64, minibatches=16, passes=4, lambda_=0.9),
            learner=replace(pqn.learner, hidden=(64,), width=64, lr=2e-3, epsilon_share=0.2),
            steps=409_600,
        )
    else:
        pqn = replace(
            pqn,
            pqn=PQNConfig(rollout=32, minibatches=32, passes=2, lambda_=0.65),
            learner=replace(pqn.learner, lr=5e-4, epsilon_share=0.1),
            steps=10_002_432,
        )
    return {"default": start, **found, "pqn": pqn}
