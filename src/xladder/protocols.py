"""The main concepts of the code base, as types. Read this file first.

A *workload* is what is learned: a world with its settings, belonging to a *family*. A *family* is a package with
everything for one kind of learning problem: the config, the *program* (one tick as pure functions, for XLA), the *host
loop* (the same tick in Python), the *backends* that the host loop calls (JAX or PyTorch), evaluation, parity and
pictures. A *rung* decides which parts are compiled together: it starts a program or a host loop, and returns something
that can be advanced by ticks (`rungs.running.Running`).

Families import what they need inside their methods, so importing them loads neither JAX nor PyTorch.

Shapes: S seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import numpy as np

from xladder.core.array_sizes import LargeArray
from xladder.core.placement import HERE, Placement
from xladder.core.types import Compiled, Params
from xladder.errors import UsageError

if TYPE_CHECKING:
    from xladder.pictures.curves import Panel
    from xladder.pictures.scenes import Scene
    from xladder.policy import Policy
    from xladder.results import Result

Missing = Mapping[str, tuple[str, str]]
"""Rungs that are not available → why not, and the closest one that is."""


C = TypeVar("C", contravariant=True)
"""The settings that a family takes."""


class World(Protocol):
    """The settings of a world."""

    jittable: ClassVar[bool]
    """Whether the world is pure JAX and can be stepped inside a compiled program."""


class Config(Protocol):
    """The config of one workload: a frozen dataclass whose fields are the flags of the command line."""

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
        """Length of training in ticks."""

    @property
    def units_per_tick(self) -> int:
        """Units of length (steps, frames, …) per tick."""

    @property
    def env_steps_per_tick(self) -> int:
        """Environment steps of a tick, over all envs; for a GFlowNet 1, an iteration."""

    @property
    def interval(self) -> int:
        """Ticks between evaluations during training; 0 for none."""

    @property
    def num_learners(self) -> int:
        """Number of agents that learn independently."""

    @property
    def agent_axis(self) -> bool:
        """Whether parameters have an agent axis, [seed, agent, …]."""


class Program(Protocol):
    """One tick of a workload as pure functions over a population of seeds."""

    def init_counters(self) -> Any:
        """The initial counters, shared by all seeds."""

    def init(self, seed: Any) -> Any:
        """The initial state of one seed; vmap it over seeds for a population."""

    def tick(self, counters: Any, runs: Any) -> tuple[Any, Any, Any]:
        """Advance a population, leaves [S, …], by one tick; returns counters, states and metrics."""

    def rollout_only(self, counters: Any, runs: Any) -> Any:
        """The rollout of one tick without learning, for timing."""

    def params(self, runs: Any) -> Params:
        """The parameters of a population, leaves [S, …]."""

    def fresh_params(self, seed: Any) -> Params:
        """The initial parameters of one seed."""

    def with_params(self, runs: Any, params: Params) -> Any:
        """A fresh population with these parameters, leaves [S, …], in online and target networks."""

    def hyperparams(self) -> Any:
        """The hyperparameters of the config that are traced, as a NamedTuple of float32 []."""

    def with_hyperparams(self, runs: Any, hyperparams: Any) -> Any:
        """A fresh population whose seeds have different hyperparameters, leaves [S]."""

    def carried(self, runs: Any) -> Any:
        """The part of a population's state that is checkpointed."""

    def put_back(self, fresh: Any, kept: Any) -> Any:
        """Restore a population from a checkpoint's state `kept`; `fresh` is a newly initialised one."""


class Backend(Protocol):
    """The functions that a host loop calls to act and to learn, in JAX or in PyTorch."""

    def learn(self, number: int, agent: int, given: Any) -> Any:
        """Update one agent on a batch."""

    def sync(self) -> None:
        """Copy the online networks into the target networks."""

    def give(self, agent: int) -> Params:
        """The parameters of one agent as a JAX pytree."""

    def take(self, agent: int, params: Params) -> None:
        """Set the parameters of one agent."""

    def params(self) -> Params:
        """The parameters of all agents as a JAX pytree."""


class HostLoop(Protocol):
    """One run as a loop in Python, with the world on the host."""

    config: Any
    learner: Any
    """The backend that learns."""
    seconds: dict[str, list[float]]
    """Seconds spent in "sampling" and in "update", per tick."""

    def advance(self) -> dict[str, Any]:
        """Run one tick and return its metrics, each an array or a number."""

    def close(self) -> None:
        """Release what the world holds; the loop cannot be advanced afterwards."""


class Measurement(Protocol):
    """The result of an evaluation during training."""

    @property
    def columns(self) -> Mapping[str, np.ndarray]:
        """Metrics by name, float [S]."""

    @property
    def pictures(self) -> np.ndarray | None:
        """[S, …]: an image of what each seed has learned; None if there is nothing to draw."""


class Family(Generic[C]):
    """Everything specific to one kind of learning problem. Subclasses override what differs.

    `config` is always one of the family's own config objects.
    """

    name: ClassVar[str]
    tick: ClassVar[str] = "tick"
    """The name of a tick in tables and files."""
    layer_names: ClassVar[str] = "value"
    """The naming scheme of the networks in PyTorch: one of `parameters.LEARNERS`."""
    samples: ClassVar[bool] = False
    """Whether it trains samplers that `xladder sample` can draw objects from."""
    shown: ClassVar[Mapping[str, str]] = {}
    """Metrics shown next to the progress bar, with their formats."""
    episodes: ClassVar[int] = 100
    """Default number of episodes, or sampled objects, of `xladder eval`."""
    train_episodes: ClassVar[int] = 20
    """Default number of episodes, or sampled objects, of the evaluation at the end of training."""
    last_measured: ClassVar[tuple[str, ...]] = ()
    """Metrics whose last value `compare` reports."""
    objectives: ClassVar[Mapping[str, int]] = {"return": 1}
    """Metrics that say how well a run went, in order of preference: 1 if larger is better, −1 if smaller is."""

    # Settings.

    def presets(self, name: str, protocol: str | None = None) -> Mapping[str, Any]:
        """The presets of the workload called `name`."""
        raise NotImplementedError

    def about_presets(self, presets: Mapping[str, Any], /) -> Mapping[str, str]:
        """What each of these presets is, as a line: algorithm, paper, size."""
        return {}

    def check(self, config: C) -> None:
        """Raise a `UsageError` for an invalid field; it names the field, its value and what is allowed."""
        raise NotImplementedError

    def bare(self, name: str) -> Any:
        """Settings of the workload called `name`, whichever; its world is not made to choose them."""
        return self.presets(name)["default"]

    def check_settings(self, config: C) -> None:
        """As `check`, as far as that is possible without making a world of another package."""
        self.check(config)

    def compared(self, config: C) -> Any:
        """The config that `compare` runs: short, with learning starting early."""
        raise NotImplementedError

    def rounded_up(self, config: C) -> Any:
        """A config whose length is a whole number of ticks: the next one, if it is none."""
        return config

    def for_mesh(self, config: C, devices: int) -> Any:
        """Adapt a config so that `devices` devices can share its work; a `UsageError` if they cannot."""
        raise NotImplementedError

    def missing(self, config: C) -> Missing:
        """Rungs that cannot run this config."""
        return {}

    def traced(self, config: C) -> tuple[str, ...]:
        """Settings that are traced, so that one compiled program serves different values of them."""
        return ()

    def lengthened(self, config: C, length: int) -> tuple[Any, list[str]]:
        """A config with another length, for a run that has been trained already, and what that means for schedules.

        What depends on the length stays where it was in the part that is trained already, as far as possible.
        """
        raise NotImplementedError

    def memory_bytes(self, config: C) -> int:
        """Size of the replay memory of one seed in bytes."""
        return 0

    def large_arrays(self, config: C) -> Sequence[LargeArray]:
        """The arrays that grow with the settings, to check that they fit before anything is compiled."""
        return ()

    # Programs and backends.

    def program(self, config: C) -> Program:
        """The program, not specialised for any platform."""
        raise NotImplementedError

    def program_for(self, config: C, platform: str, seeds: Sequence[int] = (0,)) -> Any:
        """The program specialised for a platform, including the worlds."""
        raise NotImplementedError

    def host_loop(self, config: C, actor: Any, learner: Any) -> HostLoop:
        """The same tick as a Python loop; `actor` and `learner` may be one backend or two."""
        raise NotImplementedError

    def jax_backend(self, config: C, seed: int, compiled: Compiled) -> Any:
        """The agents in JAX, each operation its own compiled call."""
        raise NotImplementedError

    def torch_backend(self, config: C, seed: int, device: str) -> Any:
        """The agents in PyTorch."""
        raise NotImplementedError

    def why_no_torch(self, config: C) -> str:
        """Why this config has no PyTorch twin, as a clause; empty if it has one."""
        return ""

    def acting_config(self, config: C) -> Any:
        """The settings under which trained agents act, are evaluated and exported; those of a team act on their own."""
        return config

    def torso_names(self, config: C) -> Any:
        """A `parameters.TorsoNames` if the network's torso is the user's own; None otherwise."""
        return None

    def overlapped(self, config: C, seed: int, platform: str, compiled: Compiled, placement: Placement = HERE) -> Any:
        """A run that steps its worlds on the host while the devices learn."""
        raise NotImplementedError

    def sharded_fields(self, config: C) -> Mapping[str, int]:
        """Fields of the training state that a mesh may shard → the axis to shard; seeds are axis 0."""
        return {}

    def to_program(self, loop: Any) -> tuple[Any, Any]:
        """Convert a JAX host loop's counters and state to the program's, leaves [1, …]."""
        raise NotImplementedError

    def from_program(self, loop: Any, counters: Any, runs: Any) -> None:
        """Restore a host loop from the program's counters and state."""
        raise NotImplementedError

    # Results.

    def columns(self, config: C, metrics: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The columns of metrics.csv, float [seeds, ticks], from the metrics of the ticks."""
        raise NotImplementedError

    def measured(self, config: C) -> Mapping[str, Any]:
        """The columns that evaluations fill, with the empty values used between evaluations."""
        return {}

    def measure(self, config: C, params: Params, tick: int, compiled: Compiled) -> Measurement:
        """Evaluate params [S, …] during training."""
        raise NotImplementedError

    def label(self, values: Mapping[str, np.ndarray], place: int = 0) -> str:
        """A short label for an evaluation, of one of its seeds."""
        return ""

    def score(self, config: C, params: Params, episodes: int, seed: int, compiled: Compiled) -> dict[str, Any]:
        """Evaluate a trained population and a random policy; returns the keys of `xladder eval --json`."""
        raise NotImplementedError

    def policy(self, config: C, params: Params, compiled: Compiled) -> Policy:
        """A trained agent as a function from observations to actions."""
        raise NotImplementedError

    def at_condition(self, config: C, params: Params, condition: Any) -> tuple[Any, Params]:
        """Settings and parameters [S, …] of a conditional sampler at one condition; a `UsageError` if it has none."""
        raise UsageError("This run has no condition.")

    def draw_objects(self, config: C, params: Params, count: int, seed: int, compiled: Compiled) -> dict[str, Any]:
        """Draw objects from a trained sampler."""
        raise NotImplementedError

    def note(self, config: C) -> str:
        """A note to print before a run starts, or an empty string."""
        return ""

    def headline(self, config: C) -> str:
        """A few words on what `compare` runs."""
        return ""

    def title(self, config: C) -> str:
        """What a run learns, for the titles of pictures, where the workload's name does not say it."""
        return ""

    def collapsed(self, config: C, metrics: Mapping[str, np.ndarray], seeds: Sequence[int]) -> list[Any]:
        """The seeds of a sampler that miss modes of their target; see `families/gflownet/summaries.py`."""
        return []

    def name_seeds(self, score: Mapping[str, Any], seeds: Sequence[int]) -> dict[str, Any]:
        """An evaluation with whatever it says about single seeds, now that their numbers are known."""
        return dict(score)

    def summary(self, config: C, metrics: Mapping[str, np.ndarray]) -> list[str]:
        """Sentences that summarise how training went."""
        raise NotImplementedError

    def describe_score(self, score: Mapping[str, Any]) -> list[str]:
        """Sentences that describe an evaluation."""
        raise NotImplementedError

    # Parity.

    def parity_levels(self, config: C, updates: int, seed: int) -> list[Any]:
        """Compare JAX with PyTorch and NumPy, level by level."""
        raise NotImplementedError

    def parity_forward(self, config: C, params: Params, state: Mapping[str, np.ndarray]) -> Any:
        """Compare the outputs of one network in JAX and in PyTorch."""
        raise NotImplementedError

    # Pictures.

    def panels(self, config: C) -> tuple[Panel, ...]:
        """The panels of the learning curves."""
        raise NotImplementedError

    def references(self, score: Mapping[str, Any] | None) -> dict[str, float]:
        """Reference lines in the learning curves."""
        return {"random play": score["random_return"]} if score else {}

    def draw(self, result: Result, score: Mapping[str, Any] | None, folder: Path, title: str) -> dict[str, Path]:
        """Write pictures, such as a replay. Returns the files by name."""
        return {}

    def scenes(self, result: Result) -> Sequence[Scene]:
        """What the trained agents do, as data for `xladder report`: boards, films or maps. Each has its own title."""
        return ()
