"""Value learners (DQN and its successors, PQN) in envs of a world."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.core.placement import HERE, Placement
from xladder.core.types import Compiled, Params
from xladder.families.value import arrays, summaries
from xladder.families.value import config as settings
from xladder.families.value import presets as named
from xladder.families.value.config import ValueConfig
from xladder.families.value.preset_words import about_presets
from xladder.families.value.torsos import is_own
from xladder.protocols import Family, Measurement

if TYPE_CHECKING:
    from xladder.families.value.acting import ActingProgram
    from xladder.families.value.host_loop import HostLoop
    from xladder.families.value.jax_backend import Backend
    from xladder.families.value.overlapped import Overlapped
    from xladder.families.value.torch_backend import Backend as TorchBackend
    from xladder.parity.levels import Level
    from xladder.pictures.curves import Panel
    from xladder.pictures.scenes import Scene
    from xladder.policy import Policy
    from xladder.results import Result


class ValueFamily(Family):
    """One tick is the smallest number of environment steps that triggers a whole number of updates."""

    name = "value"
    shown = summaries.SHOWN

    presets = staticmethod(named.presets)
    about_presets = staticmethod(about_presets)
    bare = staticmethod(named.bare)
    check = staticmethod(named.check)
    check_settings = staticmethod(named.check_settings)
    rounded_up = staticmethod(settings.rounded_up)
    compared = staticmethod(settings.compared)
    for_mesh = staticmethod(settings.for_mesh)
    missing = staticmethod(settings.lacking)
    memory_bytes = staticmethod(settings.memory_bytes)
    large_arrays = staticmethod(arrays.large_arrays)
    columns = staticmethod(summaries.columns)
    measured = staticmethod(summaries.measured)
    label = staticmethod(summaries.label)
    note = staticmethod(settings.note)
    headline = staticmethod(summaries.headline)
    lengthened = staticmethod(settings.lengthened)
    summary = staticmethod(summaries.summary)
    describe_score = staticmethod(summaries.describe_score)

    def traced(self, config: ValueConfig) -> tuple[str, ...]:
        """Settings that are traced."""
        return settings.TRACED_PQN if config.algorithm == "pqn" else settings.TRACED

    def program(self, config: ValueConfig) -> Any:
        """The training tick as pure functions."""
        return self._program(config)(config)

    def program_for(self, config: ValueConfig, platform: str, seeds: Sequence[int] = (0,)) -> Any:
        """The training tick laid out for a platform, with the worlds inside the program."""
        return self._program(config).for_platform(config, platform, seeds)

    def _program(self, config: ValueConfig) -> type[ActingProgram]:
        if config.algorithm == "pqn":
            from xladder.families.value import pqn

            return pqn.Program
        from xladder.families.value.program import Program

        return Program

    def why_no_torch(self, config: ValueConfig) -> str:
        """Why there is no PyTorch twin, or an empty string: PQN has none, and a user's torso may have none."""
        if config.algorithm == "pqn":
            return "PQN has no twin in PyTorch"
        return settings.why_no_twin(config)

    def acting_config(self, config: ValueConfig) -> Any:
        """The settings under which trained agents act; those of a team act each on its own."""
        return config.acting

    def torso_names(self, config: ValueConfig) -> Any:
        """The layer names of a user's torso in JAX and in PyTorch; None for built-in torsos."""
        if not is_own(config.learner.torso):
            return None
        from xladder.families.value import torso_twins_torch

        return torso_twins_torch.torso_names(config.learner.torso, config.world.spec().of_one, config.world.stack)

    def overlapped(
        self, config: ValueConfig, seed: int, platform: str, compiled: Compiled, placement: Placement = HERE
    ) -> Overlapped:
        """A runner that steps worlds on the host while the devices learn."""
        from xladder.families.value.overlapped import Overlapped

        return Overlapped(config, seed, platform, compiled, placement)

    def sharded_fields(self, config: ValueConfig) -> Mapping[str, int]:
        """Fields that are sharded over envs → their env axis, which follows the agent axis if there is one."""
        if config.algorithm == "pqn":
            return {}
        by_agent = {name: 1 + config.agent_axis for name in ("memory", "seen", "score", "row")}
        return {**by_agent, "worlds": 1}

    def host_loop(self, config: ValueConfig, actor: Any, learner: Any) -> HostLoop:
        """The training tick as a Python loop."""
        from xladder.families.value.host_loop import HostLoop

        return HostLoop(config, actor, learner)

    def jax_backend(self, config: ValueConfig, seed: int, compiled: Compiled) -> Backend:
        """JAX agents for a host loop, one call at a time."""
        from xladder.families.value.jax_backend import Backend

        return Backend(config, seed, compiled)

    def torch_backend(self, config: ValueConfig, seed: int, device: str) -> TorchBackend:
        """PyTorch agents for a host loop."""
        from xladder.families.value.torch_backend import Backend

        return Backend(config, seed, device)

    def to_program(self, loop: HostLoop) -> tuple[Any, Any]:
        """A host loop's state in the program's layout."""
        from xladder.families.value.jax_backend import to_program

        return to_program(loop)

    def from_program(self, loop: HostLoop, counters: Any, runs: Any) -> None:
        """The inverse of `to_program`: load a program's state into a host loop."""
        from xladder.families.value.jax_backend import from_program

        from_program(loop, counters, runs)

    def score(
        self, config: ValueConfig, params: Params, episodes: int, seed: int, compiled: Compiled
    ) -> dict[str, Any]:
        """Evaluate the trained agents, and random actions for comparison."""
        from xladder.families.value.evaluation import score

        return score(self.acting_config(config), params, episodes, seed, compiled)

    def measure(self, config: ValueConfig, params: Params, tick: int, compiled: Compiled) -> Measurement:
        """Evaluate every seed's agent in a few episodes during training."""
        from xladder.families.value.evaluation import measure

        return measure(self.acting_config(config), params, tick, compiled)

    def policy(self, config: ValueConfig, params: Params, compiled: Compiled) -> Policy:
        """A trained agent as a function from states to actions."""
        from xladder.families.value.evaluation import policy

        return policy(self.acting_config(config), params, compiled)

    def parity_levels(self, config: ValueConfig, updates: int, seed: int) -> list[Level]:
        """The parity levels: JAX against PyTorch and NumPy."""
        from xladder.families.value.parity import levels

        return levels(config, updates, seed)

    def parity_forward(self, config: ValueConfig, params: Params, state: Mapping[str, np.ndarray]) -> Level:
        """Compare one network in JAX with the same in PyTorch."""
        from xladder.families.value.parity import forward

        return forward(self.acting_config(config), params, state)

    def panels(self, config: ValueConfig) -> tuple[Panel, ...]:
        """The panels of the learning curves."""
        from xladder.pictures.curves import value_panels

        return value_panels(bool(config.interval))

    def draw(self, result: Result, score: Mapping[str, Any] | None, folder: Path, title: str) -> dict[str, Path]:
        """A replay of one episode."""
        from xladder.families.value.pictures import draw

        return draw(result, score, folder, title)

    def scenes(self, result: Result) -> list[Scene]:
        """One episode as a film."""
        from xladder.families.value.pictures import scenes

        return scenes(result)


FAMILY = ValueFamily()
ValueConfig.family = FAMILY
