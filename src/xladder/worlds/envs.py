"""The interface of single-agent environments: N envs of a world, stepped together.

After the end of an episode, one extra step ignores its action, has no reward and returns the first frame of the next
episode, marked `is_first`. So the last frame of a truncated episode is a row of the replay memory like any other, and
only single frames have to be stored.

Jittable worlds are `Envs`; worlds on the host, or called from there, are `HostEnvs`.

Shapes: N envs.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from xladder.core.types import Array


class Step(NamedTuple):
    """The result of stepping N envs. A step that terminates and reaches the time limit is `terminated` only."""

    frame: Array  # [N, *shape]: the next observation
    reward: Array  # float32 [N], unscaled
    terminated: Array  # bool [N]: the episode has ended; no bootstrapping
    truncated: Array  # bool [N]: the episode was cut by a time limit; bootstrap from `frame`
    is_first: Array  # bool [N]: `frame` is the first of an episode; the action was ignored


class EnvSpec(NamedTuple):
    """What is known of a world before it starts."""

    shape: tuple[int, ...]  # of one frame
    dtype: Any  # of one frame, as it is stored
    actions: int  # the largest number of actions among the agents
    max_value: int = 1  # the value that stands for 1 in a uint8 frame
    agents: tuple[str, ...] = ()  # names of agents that learn independently; empty for a single agent
    masked: bool = False  # whether the last `actions` entries of a frame's last axis are the mask of available actions
    absences: bool = False  # whether an agent's episode may end before those of the others
    fields: tuple[tuple[str, tuple[int, ...], str], ...] = ()  # name, shape and dtype of the parts of a flat frame
    team: int = 0  # agents that act together in every env: frames are [team, …], actions [team], and rewards the team's
    shared: bool = False  # whether one network serves all agents of a team

    @property
    def seen(self) -> tuple[int, ...]:
        """The shape of a frame without the action mask: the network's input."""
        return (*self.shape[:-1], self.shape[-1] - self.actions) if self.masked else self.shape

    @property
    def of_one(self) -> EnvSpec:
        """The spec of one agent: without the axis of a team's agents."""
        return self._replace(shape=self.shape[1:], team=0, shared=False) if self.team else self

    @property
    def choices(self) -> tuple[int, ...]:
        """The shape of what is chosen in one env: [team], or [] for a single agent."""
        return (self.team,) if self.team else ()


def available(spec: EnvSpec, frames: Array) -> Array:
    """bool […, A], or […, team, A]: which actions are available, from masked frames […, *shape].

    An image has the mask in further columns, or channels, of every row; the first row is read.
    """
    corner = (slice(None),) * len(spec.choices) + (0,) * (len(spec.of_one.shape) - 1)
    return frames[(..., *corner, slice(-spec.actions, None))] > 0


class Envs(Protocol):
    """N envs as pure functions; hashable, so that it can be a static argument.

    With several independent agents (`spec.agents`), frames, actions and everything in a `Step` have an agent axis
    before the env axis, [A, N, …]. An agent whose episode ends before the others' is *absent* until the next one
    begins: its steps have no reward and are marked both `terminated` and `truncated`, which no other step is.

    Envs may have `force(state, actions)`, the actions that will be taken instead of those chosen.
    """

    @property
    def num_envs(self) -> int:
        """Number of envs."""

    @property
    def spec(self) -> EnvSpec:
        """Shape of the frames and number of actions."""

    def reset(self, keys: Any) -> tuple[Any, Any]:
        """Reset all envs, from keys [N]. Returns the state and the first frames [N, *shape]."""

    def step(self, keys: Any, state: Any, actions: Any) -> tuple[Any, Step]:
        """Step every env; actions int32 [N]. Returns the new state and the result."""


class HostEnvs(Protocol):
    """N envs on the host.

    They may have `forced`, int [N] or None: actions that have to be taken next, −1 where an env is free.
    """

    num_envs: int
    spec: EnvSpec

    def reset(self) -> np.ndarray:
        """Reset all envs; returns the first frames [N, *shape]."""

    def send(self, actions: np.ndarray) -> None:
        """Start a step of every env; actions int [N]."""

    def recv(self) -> Step:
        """Wait for the step that `send` started, and return its result."""

    def close(self) -> None:
        """Release threads and other resources; may be called twice."""


def with_forced(envs: Any, actions: np.ndarray) -> np.ndarray:
    """int [N]: the actions that envs on the host will take, where they may force some."""
    forced = getattr(envs, "forced", None)
    return actions if forced is None else np.where(forced < 0, actions, forced).astype(actions.dtype)


def env_seeds(seed: int, num_envs: int, renewals: np.ndarray | None = None, first: int = 0) -> np.ndarray:
    """int64 [N]: a seed below 2³¹ for each env that has its own generator.

    Unlike seed, seed + 1, …, runs with neighbouring seeds share no env, and an env keeps its seed when more are added.

    Args:
        seed: seed of the run.
        num_envs: N.
        renewals: int [N]: how many new seeds each env has had since.
        first: number of the first env, where other processes have those before it.
    """
    times = np.zeros(num_envs, int) if renewals is None else renewals
    addresses = [(seed, env, int(time)) if time else (seed, env) for env, time in enumerate(times, first)]
    drawn = [np.random.SeedSequence(address).generate_state(1)[0] for address in addresses]
    return np.array(drawn, np.int64) >> 1
