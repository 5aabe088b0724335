"""The nouns of the house, as types. Read this file first.

A *workload* says what is learned: a world with settings, of some *family*. A *family* is a package that has everything
for one kind of learning problem: the settings, the *program* (one tick as pure functions, for XLA), the *host loop*
(the same tick in Python), the *backends* that the host loop calls (JAX or PyTorch), evaluation, parity and pictures. A
*rung* says where `jit` sits: it starts a program or a host loop, and gives back something that can be advanced by ticks
(`rungs.running.Running`).

Families import what they need inside their methods, so that knowing them loads neither JAX nor PyTorch.

Shapes: S seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from xladder.core.types import Compiled, Params

if TYPE_CHECKING:
    from xladder.pictures.curves import Panel
    from xladder.policy import Policy
    from xladder.results import Result

Missing = Mapping[str, tuple[str, str]]
"""Rungs that cannot run something: why, and the nearest one that can."""


class World(Protocol):
    """The settings of a world."""

    jittable: ClassVar[bool]
    """Whether the world is pure JAX and can be stepped inside a compiled program."""


class Config(Protocol):
    """The settings of one workload: a frozen dataclass, whose fields are the flags of the command line."""

    family: ClassVar[Family]

    @property
    def world(self) -> Any:
        """The settings of the world."""

    @property
    def learner(self) -> Any:
        """The settings of the learner."""

    @property
    def name(self) -> str:
        """The name of the workload."""

    @property
    def ticks(self) -> int:
        """How long to train, in ticks."""

    @property
    def units_per_tick(self) -> int:
        """How many units of the length (steps, frames, …) one tick is."""

    @property
    def interval(self) -> int:
        """Ticks between two evaluations while it trains; 0 for none."""

    @property
    def num_learners(self) -> int:
        """How many agents learn independently of each other."""

    @property
    def agent_axis(self) -> bool:
        """Whether parameters have an axis of agents, [seed, agent, …]."""


class Program(Protocol):
    """One tick of a workload as pure functions over a population of seeds."""

    def init_counters(self) -> Any:
        """The counters that all seeds share, before the first tick."""

    def init(self, seed: Any) -> Any:
        """The state of one fresh run; map it over seeds for a population."""

    def tick(self, counters: Any, runs: Any) -> tuple[Any, Any, Any]:
        """One tick of a population, leaves [S, …]: counters, states and metrics."""

    def rollout_only(self, counters: Any, runs: Any) -> Any:
        """The rollout of a tick without learning from it, to be timed."""

    def params(self, runs: Any) -> Params:
        """The parameters of a population, leaves [S, …]."""

    def fresh_params(self, seed: Any) -> Params:
        """The parameters of one fresh run."""

    def carried(self, runs: Any) -> Any:
        """What of a population goes into a checkpoint."""

    def put_back(self, fresh: Any, kept: Any) -> Any:
        """A population that continues from a checkpoint; `fresh` is one that has just begun."""


class Backend(Protocol):
    """What a host loop calls to act and to learn: in JAX or in PyTorch."""

    def learn(self, number: int, agent: int, given: Any) -> Any:
        """One update of one agent from a batch."""

    def sync(self) -> None:
        """Copy the online networks into the target networks."""

    def give(self, agent: int) -> Params:
        """The parameters of one agent as the JAX pytree."""

    def take(self, agent: int, params: Params) -> None:
        """Continue with these parameters."""

    def params(self) -> Params:
        """The parameters of all agents as the JAX pytree."""


class HostLoop(Protocol):
    """One run as a loop in Python, with the world on the host."""

    config: Any
    learner: Any
    """The backend that learns."""
    seconds: dict[str, list[float]]
    """Seconds of "sampling" and of "update", per tick."""

    def advance(self) -> dict[str, Any]:
        """One tick; the metrics that it reports."""


class Measurement(Protocol):
    """What an evaluation in the middle of training finds."""

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """Metrics by name, float [S]."""

    @property
    def picture(self) -> np.ndarray | None:
        """What the first seed has learned, as an image; None where there is nothing to draw."""


class Family:
    """Everything that is particular to one kind of learning problem. Families override what differs.

    `config` is always one of the family's own settings.
    """

    name: ClassVar[str]
    tick: ClassVar[str] = "tick"
    """What a tick is called in tables and files."""
    layer_names: ClassVar[str] = "value"
    """Whose names the networks have in PyTorch: a key of `parameters.LEARNERS`."""
    samples: ClassVar[bool] = False
    """Whether it builds objects that `xladder sample` can draw."""
    shown: ClassVar[Mapping[str, str]] = {}
    """Metrics beside the progress bar, with their formats."""
    episodes: ClassVar[int] = 100
    """Episodes, or sampled objects, of an evaluation."""
    train_episodes: ClassVar[int] = 20
    """The same for the evaluation at the end of training."""
    last_measured: ClassVar[tuple[str, ...]] = ()
    """Metrics whose last entry `compare` reports."""

    # Settings.

    def presets(self, name: str, protocol: str | None = None) -> Mapping[str, Any]:
        """The named settings of the workload called `name`."""
        raise NotImplementedError

    def check(self, config: Any) -> None:
        """Raise a `UsageError` that names the field, its value and what is allowed."""
        raise NotImplementedError

    def compared(self, config: Any) -> Any:
        """The settings that `compare` runs: short, and soon learning."""
        raise NotImplementedError

    def for_mesh(self, config: Any, devices: int) -> Any:
        """Settings whose work so many devices can share; a `UsageError` if these cannot be shared."""
        raise NotImplementedError

    def missing(self, config: Any) -> Missing:
        """Rungs that cannot run these settings."""
        return {}

    def memory_bytes(self, config: Any) -> int:
        """Bytes that the replay memory of one seed takes."""
        return 0

    # Programs and backends.

    def program(self, config: Any) -> Program:
        """The program, as it suits no device in particular."""
        raise NotImplementedError

    def program_for(self, config: Any, platform: str, seeds: Sequence[int] = (0,)) -> Any:
        """The program as it suits a platform, with the worlds inside."""
        raise NotImplementedError

    def host_loop(self, config: Any, actor: Any, learner: Any) -> HostLoop:
        """The same tick in Python; `actor` and `learner` may be one backend or two."""
        raise NotImplementedError

    def jax_backend(self, config: Any, seed: int, compiled: Compiled) -> Any:
        """The agents in JAX, one compiled call at a time."""
        raise NotImplementedError

    def torch_backend(self, config: Any, seed: int, device: str) -> Any:
        """The agents in PyTorch."""
        raise NotImplementedError

    def why_no_torch(self, config: Any) -> str:
        """Why these settings have no twin in PyTorch, as a clause; nothing if they have one."""
        return ""

    def torso_names(self, config: Any) -> Any:
        """A `parameters.TorsoNames` for a network whose torso is the user's own; None otherwise."""
        return None

    def overlapped(self, config: Any, seed: int, platform: str, compiled: Compiled) -> Any:
        """A run whose worlds are stepped on the host while the device learns."""
        raise NotImplementedError

    def sharded_fields(self, config: Any) -> Mapping[str, int]:
        """Fields of the training state of which a mesh may share out an axis, and which: seeds are axis 0."""
        return {}

    def to_program(self, loop: Any) -> tuple[Any, Any]:
        """Counters and state of a JAX host loop as the program holds them, leaves [1, …]."""
        raise NotImplementedError

    def from_program(self, loop: Any, counters: Any, runs: Any) -> None:
        """The inverse: the host loop continues from there."""
        raise NotImplementedError

    # What came of it.

    def columns(self, config: Any, metrics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The columns of metrics.csv, float [seeds, ticks], from what the ticks report."""
        raise NotImplementedError

    def measured(self, config: Any) -> Mapping[str, Any]:
        """The columns that evaluations fill, empty as between two of them."""
        return {}

    def measure(self, config: Any, params: Params, tick: int, compiled: Compiled) -> Measurement:
        """Evaluate in the middle of training, params [S, …]."""
        raise NotImplementedError

    def label(self, values: Mapping[str, np.ndarray]) -> str:
        """An evaluation of the first seed in two words."""
        return ""

    def score(self, config: Any, params: Params, episodes: int, seed: int, compiled: Compiled) -> dict[str, Any]:
        """Evaluate a trained population, and chance beside it; the keys of `xladder eval --json`."""
        raise NotImplementedError

    def policy(self, config: Any, params: Params, compiled: Compiled) -> Policy:
        """A trained agent as a function from observations to actions."""
        raise NotImplementedError

    def draw_objects(self, config: Any, params: Params, count: int, seed: int, compiled: Compiled) -> dict[str, Any]:
        """Objects of a trained sampler."""
        raise NotImplementedError

    def note(self, config: Any) -> str:
        """What the user should know before it starts, or nothing."""
        return ""

    def headline(self, config: Any) -> str:
        """What `compare` runs, in a few words."""
        return ""

    def summary(self, config: Any, metrics: Mapping[str, np.ndarray]) -> list[str]:
        """How training went, in sentences."""
        raise NotImplementedError

    def describe_score(self, score: Mapping[str, Any]) -> list[str]:
        """An evaluation, in sentences."""
        raise NotImplementedError

    # Parity.

    def parity_levels(self, config: Any, updates: int, seed: int) -> list[Any]:
        """JAX against PyTorch and NumPy, level by level."""
        raise NotImplementedError

    def parity_forward(self, config: Any, params: Params, state: Mapping[str, np.ndarray]) -> Any:
        """One network in JAX against the same in PyTorch."""
        raise NotImplementedError

    # Pictures.

    def panels(self, config: Any) -> tuple[Panel, ...]:
        """What the curves show."""
        raise NotImplementedError

    def references(self, score: Mapping[str, Any] | None) -> dict[str, float]:
        """Lines across the curves."""
        return {"random play": score["random_return"]} if score else {}

    def draw(self, result: Result, score: Mapping[str, Any] | None, folder: Path, title: str) -> dict[str, Path]:
        """Write a replay or the like. Returns the files by name."""
        return {}
