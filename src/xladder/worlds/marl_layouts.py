"""Layouts of a multi-agent world for one learner: agents that share a network, and agents that are one team.

Both are made from envs with an agent axis, such as `MarlEnvs`, whose state says where an episode is `over`.

Shapes: N envs, A agents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from xladder.worlds.envs import EnvSpec, Step


@dataclass(frozen=True)
class SharedEnvs:
    """The A agents of N envs as N·A single-agent envs, whose frames say which agent it is.

    The agents of an env are adjacent: row n·A + a is agent a of env n.
    """

    several: Any

    @property
    def num_envs(self) -> int:
        """Number of rows, N·A: every agent of every env."""
        return self.several.num_envs * len(self.several.spec.agents)

    @property
    def spec(self) -> EnvSpec:
        """The spec; an agent's one-hot number precedes its observation."""
        return named_spec(self.several.spec)._replace(agents=())

    def reset(self, keys: jax.Array) -> tuple[Any, jax.Array]:
        """Reset all envs, from keys [N·A], of which each env uses one. Returns the state and frames [N·A, *shape]."""
        state, frames = self.several.reset(keys[:: len(self.several.spec.agents)])
        return state, self._rows(with_names(frames))

    def step(self, keys: jax.Array, state: Any, actions: jax.Array) -> tuple[Any, Step]:
        """Step every env; actions int32 [N·A]."""
        agents = len(self.several.spec.agents)
        state, step = self.several.step(keys[::agents], state, actions.reshape(-1, agents).T)
        step = step._replace(frame=with_names(step.frame))
        return state, Step(*(self._rows(leaf) for leaf in step))

    def _rows(self, leaf: jax.Array) -> jax.Array:
        """[N·A, …] from [A, N, …]."""
        return jnp.moveaxis(leaf, 0, 1).reshape(-1, *leaf.shape[2:])


@dataclass(frozen=True)
class TeamEnvs:
    """The A agents of every env as one team: one row per env, frames [N, A, *shape] and actions [N, A].

    The team's reward is the sum of its agents' rewards. An episode goes on until it is over for all agents; one whose
    episode ended before still has a place in the team, but no reward. A time limit that cuts the episode for any agent
    cuts it for the team.
    """

    several: Any
    shared: bool
    """Whether one network serves all agents; frames then say which agent it is."""

    @property
    def num_envs(self) -> int:
        """Number of envs."""
        return self.several.num_envs

    @property
    def spec(self) -> EnvSpec:
        """The spec, with an axis of agents before the shape of one agent's frame."""
        spec = named_spec(self.several.spec) if self.shared else self.several.spec
        agents = len(spec.agents)
        return spec._replace(shape=(agents, *spec.shape), agents=(), absences=False, team=agents, shared=self.shared)

    def reset(self, keys: jax.Array) -> tuple[Any, jax.Array]:
        """Reset all envs, from keys [N]. Returns the state and frames [N, A, *shape]."""
        state, frames = self.several.reset(keys)
        return state, self._rows(frames)

    def step(self, keys: jax.Array, state: Any, actions: jax.Array) -> tuple[Any, Step]:
        """Step every env; actions int32 [N, A]."""
        state, step = self.several.step(keys, state, actions.T)
        cut = (step.truncated & ~step.terminated).any(0)
        return state, Step(
            frame=self._rows(step.frame),
            reward=step.reward.sum(0),
            terminated=state.over & ~cut,
            truncated=state.over & cut,
            is_first=step.is_first[0],
        )

    def _rows(self, frames: jax.Array) -> jax.Array:
        """[N, A, …] from [A, N, …]."""
        return jnp.moveaxis(with_names(frames) if self.shared else frames, 0, 1)


def named_spec(spec: EnvSpec) -> EnvSpec:
    """The spec of frames in which an agent's one-hot number precedes its observation; images have none."""
    if len(spec.shape) > 1:
        return spec
    named, fields = len(spec.agents), spec.fields
    if fields:
        name, taken = "agent", {part for part, _, _ in fields}
        while name in taken:
            name += "_"
        fields = ((name, (named,), "float32"), *fields)
    return spec._replace(shape=(spec.shape[0] + named,), fields=fields)


def with_names(frames: jax.Array) -> jax.Array:
    """Frames [A, N, D] with the agents' one-hot numbers before them; images are unchanged."""
    if frames.ndim > 3:
        return frames
    names = jnp.eye(frames.shape[0], dtype=frames.dtype)[:, None]  # [A, 1, A]
    return jnp.concatenate([jnp.broadcast_to(names, (*frames.shape[:2], frames.shape[0])), frames], axis=-1)
