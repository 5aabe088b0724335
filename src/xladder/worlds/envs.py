"""N envs of a world with one agent each, stepped together: what the value learners play in.

A game that is over goes on showing its last frame for one step: that step ignores its action, brings no reward and
returns the first frame of the next game, marked `first`. So the last frame of a game that was cut is a row of the
memory like any other, and nothing but single frames has to be stored.

Worlds that are jittable are `Envs`; worlds that live on the host, or are to be called from there, are `HostEnvs`.

Shapes: N envs.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from xladder.core.types import Array


class Step(NamedTuple):
    """What N envs answer. A step that ends a game for good and reaches its limit too is `terminated` alone."""

    frame: Array  # [N, *shape]: what is seen next
    reward: Array  # float32 [N], as the game gives it
    terminated: Array  # bool [N]: what follows has no value
    truncated: Array  # bool [N]: the game was cut short; what follows would have had a value
    is_first: Array  # bool [N]: `frame` begins a game; the action was ignored


class EnvSpec(NamedTuple):
    """What is known of a world before it starts."""

    shape: tuple[int, ...]  # of one frame
    dtype: Any  # of one frame, as it is remembered
    actions: int  # of the agent that has most of them
    max_value: int = 1  # what stands for 1 in a frame of bytes
    agents: tuple[str, ...] = ()  # names of agents that learn independently; empty where one agent is alone
    masked: bool = False  # whether the last `actions` numbers of a frame say which actions are available
    absences: bool = False  # whether an agent's episode may be over before those of the others
    fields: tuple[tuple[str, tuple[int, ...], str], ...] = ()  # name, shape and dtype of the parts of a flat frame

    @property
    def seen(self) -> tuple[int, ...]:
        """The shape of a frame as a network sees it: without the mask of actions."""
        return (*self.shape[:-1], self.shape[-1] - self.actions) if self.masked else self.shape


class Envs(Protocol):
    """N envs as pure functions; may be hashed, so that it can be a static argument.

    Where several agents learn independently (`spec.agents`), frames, actions and everything in a `Step` have an axis of
    agents before that of copies, [A, N, …]. An agent whose episode is over before the others' is *absent* until the
    next one begins: its steps bring no reward and are marked `terminated` and `truncated` at once, as nothing else is.
    """

    @property
    def num_envs(self) -> int:
        """How many envs there are."""

    @property
    def spec(self) -> EnvSpec:
        """What its frames look like, and how many actions there are."""

    def reset(self, keys: Any) -> tuple[Any, Any]:
        """State and first frames [N, *shape], from keys [N]."""

    def step(self, keys: Any, state: Any, actions: Any) -> tuple[Any, Step]:
        """One step of every env; actions int32 [N]."""


class HostEnvs(Protocol):
    """N envs on the host."""

    num_envs: int
    spec: EnvSpec

    def reset(self) -> np.ndarray:
        """Begin anew: first frames [N, *shape]."""

    def send(self, actions: np.ndarray) -> None:
        """Begin a step of every env; actions int [N]."""

    def recv(self) -> Step:
        """Wait for what `send` began."""

    def close(self) -> None:
        """End threads and the like; may be called twice."""


def env_seeds(seed: int, num_envs: int, renewals: np.ndarray | None = None, first: int = 0) -> np.ndarray:
    """int64 [N]: a seed below 2³¹ for each env that has its own generator.

    Unlike seed, seed + 1, …, runs with neighbouring seeds share no env; and an env keeps its seed when more are added.
    `renewals` [N] count the new seeds that an env has been given since. Envs are counted from `first`, where others
    play those before.
    """
    times = np.zeros(num_envs, int) if renewals is None else renewals
    addresses = [(seed, env, int(time)) if time else (seed, env) for env, time in enumerate(times, first)]
    drawn = [np.random.SeedSequence(address).generate_state(1)[0] for address in addresses]
    return np.array(drawn, np.int64) >> 1
