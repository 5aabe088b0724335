"""GFlowNets: build objects step by step and sample them in proportion to their reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder.core.types import Compiled, Params
from xladder.errors import UsageError
from xladder.families.gflownet import arrays, conditions, settings_check, summaries
from xladder.families.gflownet import config as settings
from xladder.families.gflownet.config import GFlowNetConfig
from xladder.families.gflownet.presets import about_presets, presets
from xladder.protocols import Family, Measurement

if TYPE_CHECKING:
    from xladder.families.gflownet.host_loop import HostLoop
    from xladder.families.gflownet.jax_backend import Backend
    from xladder.families.gflownet.program import Program
    from xladder.families.gflownet.torch_backend import Backend as TorchBackend
    from xladder.parity.levels import Level
    from xladder.pictures.curves import Panel
    from xladder.pictures.scenes import Scene
    from xladder.policy import Policy
    from xladder.results import Result


class GFlowNetFamily(Family):
    """One tick is one iteration: a batch of trajectories, then one update."""

    name = "gflownet"
    objectives = settings.OBJECTIVES
    tick = "iteration"
    layer_names = "gflownet"
    samples = True
    shown = settings.SHOWN
    episodes = train_episodes = settings.EPISODES
    last_measured = settings.LAST_MEASURED

    check = staticmethod(settings_check.check)
    compared = staticmethod(settings.compared)
    for_mesh = staticmethod(settings_check.for_mesh)
    columns = staticmethod(settings.columns)
    measured = staticmethod(settings.measured)
    large_arrays = staticmethod(arrays.large_arrays)
    label = staticmethod(summaries.label)
    note = staticmethod(settings.note)
    headline = staticmethod(settings.headline)
    title = staticmethod(settings.title)
    collapsed = staticmethod(summaries.collapsed_in)
    name_seeds = staticmethod(summaries.name_seeds)
    summary = staticmethod(summaries.summary)
    describe_score = staticmethod(summaries.describe_score)

    presets = staticmethod(presets)
    about_presets = staticmethod(about_presets)
    lengthened = staticmethod(settings.lengthened)

    def traced(self, config: Any) -> tuple[str, ...]:
        """Settings that are traced."""
        return settings.TRACED

    def program(self, config: GFlowNetConfig) -> Program:
        """The training iteration as pure functions."""
        from xladder.families.gflownet.program import Program

        return Program(config)

    def program_for(self, config: GFlowNetConfig, platform: str, seeds: Sequence[int] = (0,)) -> Program:
        """The training iteration laid out for a platform."""
        from xladder.families.gflownet.program import Program

        return Program.for_platform(config, platform, seeds)

    def host_loop(self, config: GFlowNetConfig, actor: Any, learner: Any) -> HostLoop:
        """The training iteration as a Python loop."""
        from xladder.families.gflownet.host_loop import HostLoop

        return HostLoop(config, actor, learner)

    def jax_backend(self, config: GFlowNetConfig, seed: int, compiled: Compiled) -> Backend:
        """A JAX sampler for a host loop, one call at a time."""
        from xladder.families.gflownet.jax_backend import Backend

        return Backend(config, seed, compiled)

    def torch_backend(self, config: GFlowNetConfig, seed: int, device: str) -> TorchBackend:
        """A PyTorch sampler for a host loop."""
        from xladder.families.gflownet.torch_backend import Backend

        return Backend(config, seed, device)

    def to_program(self, loop: HostLoop) -> tuple[Any, Any]:
        """A host loop's state in the program's layout."""
        from xladder.families.gflownet.jax_backend import to_program

        return to_program(loop)

    def from_program(self, loop: HostLoop, counters: Any, runs: Any) -> None:
        """The inverse of `to_program`: load a program's state into a host loop."""
        from xladder.families.gflownet.jax_backend import from_program

        from_program(loop, counters, runs)

    def score(
        self, config: GFlowNetConfig, params: Params, episodes: int, seed: int, compiled: Compiled
    ) -> dict[str, Any]:
        """Evaluate how far the sampler is from its target distribution."""
        from xladder.families.gflownet.evaluation import score

        return score(config, params, episodes, seed, compiled)

    def measure(self, config: GFlowNetConfig, params: Params, tick: int, compiled: Compiled) -> Measurement:
        """Exact or sampled distances to the target, during training."""
        from xladder.families.gflownet.evaluation import measure

        return measure(config, params, tick, compiled)

    def draw_objects(
        self, config: GFlowNetConfig, params: Params, count: int, seed: int, compiled: Compiled
    ) -> dict[str, Any]:
        """Sample objects, with their rewards and log-probabilities."""
        from xladder.families.gflownet.evaluation import draw_objects

        if config.conditional:
            raise UsageError(f"This sampler has a condition: add `--condition` and {conditions.needed(config)}.")
        return draw_objects(config, params, count, seed, compiled)

    def at_condition(
        self, config: GFlowNetConfig, params: Params, condition: float | Sequence[float]
    ) -> tuple[Any, Params]:
        """Settings and parameters of the sampler at one condition."""
        numbers = np.asarray(condition, float)
        return conditions.fix(config, params, tuple(numbers.tolist()) if numbers.ndim else float(numbers))

    def references(self, score: Mapping[str, Any] | None) -> dict[str, float]:
        """Reference lines for the curves: the noise floor of sampled distances."""
        return {"noise floor": score["tv_floor"]} if score and "tv_floor" in score else {}

    def policy(self, config: GFlowNetConfig, params: Params, compiled: Compiled) -> Policy:
        """The sampler's most probable action as a function."""
        from xladder.families.gflownet.evaluation import policy

        if config.conditional:
            middle = config.conditions[len(config.conditions) // 2]
            raise UsageError(f"This sampler has a condition: name one, as in `result.at({middle}).policy()`.")
        return policy(config, params, compiled)

    def parity_levels(self, config: GFlowNetConfig, updates: int, seed: int) -> list[Level]:
        """The parity levels: JAX against PyTorch and NumPy."""
        from xladder.families.gflownet.parity import levels

        return levels(config, updates, seed)

    def parity_forward(self, config: GFlowNetConfig, params: Params, state: Mapping[str, np.ndarray]) -> Level:
        """Compare one network in JAX with the same in PyTorch."""
        from xladder.families.gflownet.parity import forward

        return forward(config, params, state)

    def panels(self, config: GFlowNetConfig) -> tuple[Panel, ...]:
        """The panels of the learning curves."""
        from xladder.pictures.curves import flow_panels

        return flow_panels(config.exact, config.charted, config.metric_texts, config.world.modes_counted)

    def draw(self, result: Result, score: Mapping[str, Any] | None, folder: Path, title: str) -> dict[str, Path]:
        """Draw the learned distribution next to the target."""
        from xladder.families.gflownet.pictures import draw

        at = _pictured(result)
        return draw(at, score, folder, f"{title} · {at.config.world.words}" if result.config.conditional else title)

    def scenes(self, result: Result) -> list[Scene]:
        """The learned distribution over time, beside the target."""
        from xladder.families.gflownet.pictures import scenes

        return scenes(_pictured(result))


def _pictured(result: Result) -> Result:
    """The result whose pictures are shown: with a condition, that in the middle of its range."""
    if not result.config.conditional:
        return result
    among = result.config.conditions
    return replace(result.at(among[len(among) // 2]), metrics=conditions.at_the_middle(result.metrics))


FAMILY = GFlowNetFamily()
GFlowNetConfig.family = FAMILY
