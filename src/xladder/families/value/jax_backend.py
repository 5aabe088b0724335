"""The value learner in JAX, each verb called by itself; the caller says how a verb is compiled."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys
from xladder.core.state import Stateful
from xladder.core.types import Compiled, Params
from xladder.families.value.acting import ActDraws, Score, Seen
from xladder.families.value.host_loop import HostExperiment, HostMemory
from xladder.families.value.program import Clock, Experiment, Program, StudyDraws
from xladder.learners.value import ValueLearner
from xladder.replay.batch import Batch
from xladder.replay.history import Cursor, History
from xladder.replay.priorities import Priorities


class Verbs(Stateful):
    """One JAX agent and the copies of its world, called step by step."""

    STATE = ("agent",)

    def __init__(self, config: Any, seed: int, compiled: Compiled):
        self.config = config
        self.program = Program(config)
        self.learner = self.program.learner
        self.key = keys.root(seed)
        self.worlds = config.world.on_host(config.world.num_envs, seed, compiled)
        self._draw_act, self._draw_study = compiled(Program.draw_act), compiled(Program.draw_study)
        self._greedy, self._update = compiled(Program.greedy), compiled(ValueLearner.update, donate=(1,))
        self._init = compiled(Program.init_agent)
        self._drawn: dict[int, StudyDraws] = {}  # by update, until it is made
        self.agent = self._init(self.program, self.key)

    def draw(self, step: int) -> ActDraws:
        """The draws for one choice of action, from the keys that `fused` uses."""
        return jax.device_get(self._draw_act(self.program, self.key, step))

    def greedy(self, stack: np.ndarray, draws: ActDraws) -> np.ndarray:
        """The best actions in states."""
        return np.asarray(self._greedy(self.program, self.agent.params, stack, draws))

    def draw_picks(self, update: int) -> np.ndarray:
        """What says where the samples of an update start, from the keys that `fused` uses."""
        self._drawn[update] = self._draw_study(self.program, self.key, update)
        return np.asarray(self._drawn[update].picks)

    def learn(self, update: int, agent: int, batch: Batch) -> tuple[float, np.ndarray]:
        """One update."""
        draws = self._drawn.pop(update, None) or self._draw_study(self.program, self.key, update)
        self.agent, loss, errors = self._update(self.learner, self.agent, batch, draws.learner)
        return float(loss), np.asarray(errors)

    def sync(self) -> None:
        """The hard update of the target network."""
        self.agent = self.agent._replace(target=jax.tree.map(jnp.copy, self.agent.params))

    def warm_up(self) -> None:
        """Compile every verb, on an agent and a memory that are thrown away."""
        agent, draws = self._init(self.program, self.key), self._draw_study(self.program, self.key, 0)
        memory = HostMemory(self.program)
        n, view = self.config.world.num_envs, self.program.view
        self.greedy(np.zeros((n, self.config.world.stack, *view.shape), view.dtype), self.draw(0))
        # With importance weights that need no priorities: their shapes are what is compiled for.
        zeros = np.zeros(self.config.learner.batch_size, np.int32)
        batch = memory.history.cut(memory.history.choose(np.zeros((len(zeros), 1, 2), np.float32)), 0.0)
        jax.block_until_ready(self._update(self.learner, agent, batch, draws.learner))

    def give(self, agent: int) -> Params:
        """The parameters of the agent."""
        return self.agent.params

    def take(self, agent: int, params: Params) -> None:
        """Go on with these parameters, in the target network too."""
        copies = [jax.tree.map(jnp.array, params) for _ in range(2)]
        self.agent = self.agent._replace(params=copies[0], target=copies[1])

    def params(self) -> Params:
        """The parameters as NumPy arrays."""
        return jax.tree.map(np.asarray, self.agent.params)


def to_program(experiment: HostExperiment) -> tuple[Clock, Experiment]:
    """An experiment of this agent on the host as `fused` would hold it, leaves [1, …].

    There a row waits until the next step to be written into the memory, here it has been written at once; to write it
    again changes nothing.
    """
    verbs, memory = _verbs(experiment), experiment.memory
    rows = experiment.tick * experiment.config.steps_per_tick - 1
    length = memory.history.window.length
    cursor = Cursor(jnp.int32(max(rows, 0) % length), jnp.int32(min(max(rows, 0), length)))
    last = (memory.history.head - 1) % length
    chances: Any = ()
    if memory.chances is not None:
        chances = Priorities(memory.chances.blocks, memory.chances.sums, memory.chances.largest)
    one = Experiment(
        key=verbs.key,
        agent=verbs.agent,
        memory=memory.history.rows,
        chances=chances,
        seen=Seen(jnp.asarray(experiment.stack), jnp.asarray(experiment.first)),
        score=Score(jnp.asarray(experiment.score.total), jnp.asarray(experiment.score.steps)),
        row=History(*(column[:, last] for column in memory.history.rows)),
        worlds=verbs.worlds.place() if hasattr(verbs.worlds, "place") else (),
    )
    return Clock(jnp.int32(experiment.tick), cursor), jax.tree.map(lambda x: x[None], one)


def from_program(experiment: HostExperiment, clock: Clock, runs: Experiment) -> None:
    """The inverse: the experiment goes on from there."""
    verbs, memory = _verbs(experiment), experiment.memory
    one = jax.tree.map(lambda x: x[0], runs)
    experiment.tick = int(clock.tick)
    verbs.agent = jax.tree.map(jnp.array, one.agent)
    memory.history.rows = History(*(np.array(column) for column in one.memory))
    memory.history.head, memory.history.size = int(clock.cursor.head), int(clock.cursor.size)
    memory.history.add(History(*(np.asarray(column) for column in one.row)))
    if memory.chances is not None:
        memory.chances.blocks, memory.chances.sums = np.array(one.chances.blocks), np.array(one.chances.sums)
        memory.chances.largest = np.float32(one.chances.largest)
        memory.chances.admit(memory.history)
    if hasattr(verbs.worlds, "place"):
        experiment.stack, experiment.first = np.array(one.seen.stack), np.array(one.seen.first)
        experiment.score.total, experiment.score.steps = np.array(one.score.total), np.array(one.score.steps)
        verbs.worlds.go_to(one.worlds, experiment.tick * experiment.config.steps_per_tick)


def _verbs(experiment: HostExperiment) -> Verbs:
    assert isinstance(experiment.learner, Verbs)
    return experiment.learner
