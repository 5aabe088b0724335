"""Worlds on the host and what is seen in them: stack frames, send actions, receive what came of them, keep score.

Everybody who plays outside a compiled program uses this: the host loop, the actors of `actors`, evaluations, parity and
replays. Where several agents share a world, their rows lie one after another: row a·N + n is agent a in copy n.

Shapes: N envs, A agents, R = A·N rows, F frames per state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from xladder.core.state import Stateful
from xladder.replay import history_host
from xladder.worlds.envs import HostEnvs, Step


class Transition(NamedTuple):
    """One step of every row."""

    frames: np.ndarray  # [R, *frame]: what was seen before
    is_first: np.ndarray  # bool [R]: whether that began an episode
    actions: np.ndarray  # int [R]
    step: Step  # leaves [R, …]
    ended: Ended


class Ended(NamedTuple):
    """Episodes that ended with a step."""

    totals: np.ndarray  # float32 [R]: their reward; nan where none ended
    lengths: np.ndarray  # float32 [R]


class HostEpisodeTotals(Stateful):
    """Reward and length of the episodes under way."""

    STATE = ("total", "steps")

    def __init__(self, rows: int):
        self.total, self.steps = np.zeros(rows, np.float32), np.zeros(rows, np.int32)

    def add(self, step: Step) -> Ended:
        """Count a step. Returns what the episodes that ended have come to; an end shows when the next one begins."""
        first, reward = np.ravel(step.is_first), np.ravel(step.reward)
        absent = np.ravel(step.terminated) & np.ravel(step.truncated)
        ended = Ended(np.where(first, self.total, np.float32(np.nan)), np.where(first, self.steps, np.float32(np.nan)))
        self.total = np.where(first, np.float32(0), self.total + reward).astype(np.float32)
        self.steps = np.where(first, 0, self.steps + ~absent).astype(np.int32)
        return ended


class Stepper(Stateful):
    """Envs of a world, stepped from the host."""

    def __init__(self, worlds: HostEnvs, depth: int):
        self.worlds, self.depth = worlds, depth
        self.agents = max(1, len(worlds.spec.agents))
        self.reset()

    def reset(self) -> np.ndarray:
        """Begin anew: first frames [R, *frame]."""
        frames = self._rows(np.asarray(self.worlds.reset()))
        self.is_first = np.ones(len(frames), bool)
        self.score = HostEpisodeTotals(len(frames))
        stack = np.zeros((len(frames), self.depth, *frames.shape[1:]), frames.dtype)
        self.stack = history_host.push(stack, frames, self.is_first)
        return frames

    def state(self) -> dict[str, Any]:
        """What it continues from; nothing where the games cannot be carried over."""
        if not hasattr(self.worlds, "take_state"):
            return {}
        return {"worlds": self.worlds, "score": self.score, "stack": self.stack, "is_first": self.is_first}

    def seen_by(self, agent: int) -> np.ndarray:
        """[N, F, *frame]: the states that one agent is in."""
        return self.stack.reshape(self.agents, -1, *self.stack.shape[1:])[agent]

    def send(self, actions: Sequence[np.ndarray] | np.ndarray) -> None:
        """Begin a step; actions int [R], or [N] of every agent."""
        self._actions = np.concatenate([np.ravel(each) for each in actions]) if self.agents > 1 else np.ravel(actions)
        several = bool(self.worlds.spec.agents)
        self.worlds.send(self._actions.reshape(self.agents, -1) if several else self._actions)

    def recv(self) -> Transition:
        """Wait for what `send` began."""
        answer = self.worlds.recv()
        step = Step(*(self._rows(np.asarray(leaf)) for leaf in answer))
        before, first = self.stack[:, -1], self.is_first
        self.stack = history_host.push(self.stack, step.frame, step.is_first)
        self.is_first = step.is_first
        return Transition(before, first, self._actions, step, self.score.add(step))

    def close(self) -> None:
        """End threads and the like."""
        self.worlds.close()

    def _rows(self, leaf: np.ndarray) -> np.ndarray:
        return leaf.reshape(-1, *leaf.shape[2:]) if self.worlds.spec.agents else leaf


def of_agent(transition: Transition, agent: int, agents: int) -> Transition:
    """One agent's rows of a transition."""
    count = len(transition.is_first) // agents
    mine = slice(agent * count, (agent + 1) * count)
    step = Step(*(leaf[mine] for leaf in transition.step))
    return Transition(
        transition.frames[mine],
        transition.is_first[mine],
        transition.actions[mine],
        step,
        Ended(*(x[mine] for x in transition.ended)),
    )


def random_available(available: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """int [N]: one of the actions that are available, bool [N, K]; the twin of `acting.random_available`."""
    ranks = np.cumsum(available, axis=1)
    wanted = np.minimum((uniforms * ranks[:, -1].astype(np.float32)).astype(int), ranks[:, -1] - 1)
    return np.argmax(available & (ranks == wanted[:, None] + 1), axis=1)


class Report(NamedTuple):
    """What one tick on the host reports."""

    ended: Sequence[Ended]
    """Of every step."""
    losses: Sequence[float]
    """Of every update of every agent."""
    epsilon: float
    updates: int
    """Of each agent."""
    agents: int
    """How many learn independently; 0 where one agent is alone."""

    def columns(self) -> dict[str, Any]:
        """Under the names of `acting.Metrics`, or of `acting.AgentMetrics`."""
        several = max(1, self.agents)
        nothing = np.zeros((several, 0), np.float32)
        totals = np.concatenate([nothing, *(e.totals.reshape(several, -1) for e in self.ended)], axis=1)  # [A, T·N]
        lengths = np.concatenate([nothing, *(e.lengths.reshape(several, -1) for e in self.ended)], axis=1)
        over = np.isfinite(totals)
        count = int(over[0].sum())
        returns = np.array([row[o].mean() if o.any() else np.nan for row, o in zip(totals, over, strict=True)])
        found: dict[str, Any] = {
            "returns": np.float32(returns.sum()),
            "length": np.float32(lengths[over].mean() if count else np.nan),
            "episodes": np.int32(count),
            "loss": np.float32(np.mean(self.losses) if len(self.losses) else np.nan),
            "epsilon": np.float32(self.epsilon),
            "updates": np.int32(self.updates),
        }
        return found | ({"agent_returns": returns.astype(np.float32)} if self.agents else {})
