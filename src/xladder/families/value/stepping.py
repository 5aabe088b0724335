"""Envs stepped from the host: stack frames, send actions, receive transitions, and sum up returns.

Used wherever envs are stepped outside a compiled program: the host loop, the actors of `actors`, evaluations, parity
and replays. If several agents share a world, rows are ordered by agent: row a·N + n is agent a in env n.

Shapes: N envs, A agents, R = A·N rows, F frames per state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from xladder.core.state import Stateful
from xladder.replay import history_host
from xladder.replay.history import rows_of
from xladder.worlds.envs import HostEnvs, Step, with_forced


class Transition(NamedTuple):
    """One step of every row."""

    frames: np.ndarray  # [R, *frame]: the frames before the step
    is_first: np.ndarray  # bool [R]: whether those frames began an episode
    actions: np.ndarray  # int [R], or [R, team]
    step: Step  # leaves [R, …]
    ended: Ended
    hidden: Any = ()  # float32 [R, H]: the network's state before the frames; () for a network without memory

    def columns(self, reward: np.ndarray) -> Any:
        """The row of every env for the replay memory, with these rewards to learn from."""
        came = self.step
        columns = self.frames, self.actions, reward, came.terminated, came.truncated, self.is_first
        return rows_of(columns, self.hidden)


class Ended(NamedTuple):
    """Episodes that ended with a step."""

    totals: np.ndarray  # float32 [R]: their returns; nan where none ended
    lengths: np.ndarray  # float32 [R]


class HostEpisodeTotals(Stateful):
    """Return and length so far of the running episodes."""

    STATE = ("total", "steps")

    def __init__(self, rows: int):
        self.total, self.steps = np.zeros(rows, np.float32), np.zeros(rows, np.int32)

    def add(self, step: Step) -> Ended:
        """Add a step. Returns the totals of episodes that ended; an end shows when the next episode begins."""
        first, reward = np.ravel(step.is_first), np.ravel(step.reward)
        absent = np.ravel(step.terminated) & np.ravel(step.truncated)
        ended = Ended(np.where(first, self.total, np.float32(np.nan)), np.where(first, self.steps, np.float32(np.nan)))
        self.total = np.where(first, np.float32(0), self.total + reward).astype(np.float32)
        self.steps = np.where(first, 0, self.steps + ~absent).astype(np.int32)
        return ended


class Stepper(Stateful):
    """Envs of a world, stepped from the host, for a network with `hidden` numbers of memory."""

    def __init__(self, worlds: HostEnvs, depth: int, hidden: int = 0):
        self.worlds, self.depth, self.width = worlds, depth, hidden
        self.agents = max(1, len(worlds.spec.agents))
        try:
            self.reset()
        except BaseException:
            self.close()
            raise

    def reset(self) -> np.ndarray:
        """Start new episodes. Returns their first frames [R, *frame]."""
        frames = self._rows(np.asarray(self.worlds.reset()))
        self.is_first = np.ones(len(frames), bool)
        self.score = HostEpisodeTotals(len(frames))
        stack = np.zeros((len(frames), self.depth, *frames.shape[1:]), frames.dtype)
        self.stack = history_host.push(stack, frames, self.is_first)
        self.hidden: Any = np.zeros((len(frames), self.width), np.float32) if self.width else ()
        return frames

    def state(self) -> dict[str, Any]:
        """The state to resume from; empty if the envs cannot be saved."""
        if not hasattr(self.worlds, "take_state"):
            return {}
        found = {"worlds": self.worlds, "score": self.score, "stack": self.stack, "is_first": self.is_first}
        return found | ({"hidden": self.hidden} if self.width else {})

    def seen_by(self, agent: int) -> np.ndarray:
        """[N, F, *frame]: the states of one agent."""
        return self.stack.reshape(self.agents, -1, *self.stack.shape[1:])[agent]

    def hidden_of(self, agent: int) -> Any:
        """float32 [N, H]: the hidden states of one agent's network; () for a network without memory."""
        return self.hidden.reshape(self.agents, -1, self.width)[agent] if self.width else ()

    def send(self, actions: Sequence[np.ndarray] | np.ndarray, hidden: Sequence[Any] = ()) -> None:
        """Start a step with actions int [R], or [N] for every agent, and every network's hidden states after them.

        A team's actions are a list of one array, [N, team].
        """
        self._hidden = np.concatenate([np.asarray(each) for each in hidden]) if self.width else ()
        chosen = np.concatenate([np.atleast_1d(each) for each in actions])
        self._actions = with_forced(self.worlds, chosen)
        several = bool(self.worlds.spec.agents)
        self.worlds.send(self._actions.reshape(self.agents, -1) if several else self._actions)

    def recv(self) -> Transition:
        """Wait for the step that `send` started. Returns its transition."""
        answer = self.worlds.recv()
        step = Step(*(self._rows(np.asarray(leaf)) for leaf in answer))
        before, first, hidden = self.stack[:, -1], self.is_first, self.hidden
        self.stack = history_host.push(self.stack, step.frame, step.is_first)
        self.is_first = step.is_first
        if self.width:
            self.hidden = np.where(step.is_first[:, None], np.float32(0), self._hidden)
        return Transition(before, first, self._actions, step, self.score.add(step), hidden)

    def close(self) -> None:
        """Close the envs."""
        self.worlds.close()

    def _rows(self, leaf: np.ndarray) -> np.ndarray:
        return leaf.reshape(-1, *leaf.shape[2:]) if self.worlds.spec.agents else leaf


def of_agent(transition: Transition, agent: int, agents: int) -> Transition:
    """One agent's rows of a transition."""
    count = len(transition.is_first) // agents
    rows = slice(agent * count, (agent + 1) * count)
    step = Step(*(leaf[rows] for leaf in transition.step))
    return Transition(
        transition.frames[rows],
        transition.is_first[rows],
        transition.actions[rows],
        step,
        Ended(*(x[rows] for x in transition.ended)),
        () if isinstance(transition.hidden, tuple) else transition.hidden[rows],
    )


def random_available(available: np.ndarray, uniforms: np.ndarray) -> np.ndarray:
    """int [N, …]: random actions among those available, bool [N, …, K]; the twin of `acting.random_available`."""
    ranks = np.cumsum(available, axis=-1)
    rank = np.minimum((uniforms * ranks[..., -1].astype(np.float32)).astype(int), ranks[..., -1] - 1)
    return np.argmax(available & (ranks == rank[..., None] + 1), axis=-1)


class Report(NamedTuple):
    """The metrics of one tick on the host."""

    ended: Sequence[Ended]
    """Episodes that ended, for every step."""
    losses: Sequence[float]
    """Losses of all updates of all agents."""
    epsilon: float
    updates: int
    """Updates per agent."""
    agents: int
    """Number of agents that learn independently; 0 for a single agent."""

    def columns(self) -> dict[str, Any]:
        """The metrics by name, with the fields of `acting.Metrics` or `acting.AgentMetrics`."""
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
