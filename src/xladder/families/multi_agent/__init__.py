"""Several agents take turns on one board, each with its own network and memory: sorrel's worlds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.core.types import Compiled, Params
from xladder.families.multi_agent import arrays
from xladder.families.multi_agent import config as settings
from xladder.families.multi_agent.config import Config
from xladder.families.multi_agent.presets import about_presets, presets
from xladder.protocols import Family

if TYPE_CHECKING:
    from xladder.families.multi_agent.host_loop import HostLoop
    from xladder.families.multi_agent.jax_backend import Backend
    from xladder.families.multi_agent.program import Program
    from xladder.families.multi_agent.torch_backend import Backend as TorchBackend
    from xladder.parity.levels import Level
    from xladder.pictures.curves import Panel
    from xladder.pictures.scenes import Scene
    from xladder.policy import Policy
    from xladder.results import Result


class MultiAgentFamily(Family):
    """One tick is one epoch: a rollout on a fresh board, then one update per agent."""

    name = "multi_agent"
    tick = "epoch"
    layer_names = "iqn"
    shown = settings.SHOWN

    presets = staticmethod(presets)
    about_presets = staticmethod(about_presets)
    check = staticmethod(settings.check)
    compared = staticmethod(settings.compared)
    missing = staticmethod(settings.lacking)
    for_mesh = staticmethod(settings.for_mesh)
    columns = staticmethod(settings.columns)
    large_arrays = staticmethod(arrays.large_arrays)
    note = staticmethod(settings.note)
    headline = staticmethod(settings.headline)
    summary = staticmethod(settings.summary)
    describe_score = staticmethod(settings.describe_score)

    def lengthened(self, config: Any, length: int) -> tuple[Any, list[str]]:
        """A longer run; nothing depends on its length."""
        return replace(config, epochs=length), []

    def traced(self, config: Any) -> tuple[str, ...]:
        """Settings that are traced."""
        return settings.TRACED

    def program(self, config: Config) -> Program:
        """The training epoch as pure functions."""
        from xladder.families.multi_agent.program import Program

        return Program(config)

    def program_for(self, config: Config, platform: str, seeds: Sequence[int] = (0,)) -> Program:
        """The training epoch laid out for a platform."""
        from xladder.families.multi_agent.program import Program

        return Program.for_platform(config, platform, seeds)

    def host_loop(self, config: Config, actor: Any, learner: Any) -> HostLoop:
        """The training epoch as a Python loop."""
        from xladder.families.multi_agent.host_loop import HostLoop

        return HostLoop(config, actor, learner)

    def jax_backend(self, config: Config, seed: int, compiled: Compiled) -> Backend:
        """JAX agents for a host loop, one call at a time."""
        from xladder.families.multi_agent.jax_backend import Backend

        return Backend(config, seed, compiled)

    def torch_backend(self, config: Config, seed: int, device: str) -> TorchBackend:
        """PyTorch agents for a host loop."""
        from xladder.families.multi_agent.torch_backend import Backend

        return Backend(config, seed, device)

    def to_program(self, loop: HostLoop) -> tuple[Any, Any]:
        """A host loop's state in the program's layout."""
        from xladder.families.multi_agent.jax_backend import to_program

        return to_program(loop)

    def from_program(self, loop: HostLoop, counters: Any, runs: Any) -> None:
        """The inverse of `to_program`: load a program's state into a host loop."""
        from xladder.families.multi_agent.jax_backend import from_program

        from_program(loop, counters, runs)

    def score(self, config: Config, params: Params, episodes: int, seed: int, compiled: Compiled) -> dict[str, Any]:
        """Evaluate the trained agents greedily, and random actions for comparison."""
        from xladder.families.multi_agent.evaluation import score

        return score(config, params, episodes, seed, compiled)

    def policy(self, config: Config, params: Params, compiled: Compiled) -> Policy:
        """A trained agent as a function from views to actions."""
        from xladder.families.multi_agent.evaluation import policy

        return policy(config, params, compiled)

    def parity_levels(self, config: Config, updates: int, seed: int) -> list[Level]:
        """The parity levels: JAX against PyTorch and NumPy."""
        from xladder.families.multi_agent.parity import levels

        return levels(config, updates, seed)

    def parity_forward(self, config: Config, params: Params, state: Mapping[str, np.ndarray]) -> Level:
        """Compare one network in JAX with the same in PyTorch."""
        from xladder.families.multi_agent.parity import forward

        return forward(config, params, state)

    def panels(self, config: Config) -> tuple[Panel, ...]:
        """The panels of the learning curves."""
        return config.world.panels()

    def draw(self, result: Result, score: Mapping[str, Any] | None, folder: Path, title: str) -> dict[str, Path]:
        """A replay of one epoch."""
        from xladder.families.multi_agent.pictures import draw

        return draw(result, score, folder, title)

    def scenes(self, result: Result) -> list[Scene]:
        """One greedy epoch on a board that can be replayed."""
        from xladder.families.multi_agent.pictures import scenes

        return scenes(result)


FAMILY = MultiAgentFamily()
Config.family = FAMILY
