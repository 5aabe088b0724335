"""The value learner in JAX, one function call at a time; the caller decides how each is compiled."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys
from xladder.core.state import Stateful
from xladder.core.types import Compiled, Params
from xladder.families.value.acting import ActDraws, Choice, EpisodeTotals, Seen
from xladder.families.value.config import ValueConfig
from xladder.families.value.host_loop import HostLoop, HostMemory
from xladder.families.value.program import Counters, LearnDraws, Program, TrainState
from xladder.learners.value import ValueLearner
from xladder.replay.history import Cursor
from xladder.replay.priorities import Priorities


class Backend(Stateful):
    """JAX agents and the copies of their world, called step by step."""

    STATE = ("agents",)

    def __init__(self, config: ValueConfig, seed: int, compiled: Compiled):
        self.config = config
        self.program = Program(config)
        self.learner = self.program.learner
        self.keys = keys.of_agents(keys.root(seed), self.program.num_agents)
        self._seed, self._compiled = seed, compiled
        self._draw_act, self._draw_learn = compiled(Program.draw_act), compiled(Program.draw_learn)
        self._greedy, self._update = compiled(Program.greedy), compiled(ValueLearner.update, donate=(1,))
        self._init, self._see = compiled(Program.init_agent), compiled(Program.with_frames, donate=(1,))
        self._drawn: dict[tuple[int, int], LearnDraws] = {}  # by update and agent, until that update is done
        self.agents = [self._init(self.program, key) for key in self.keys]

    @cached_property
    def worlds(self) -> Any:
        """The envs of the world, created on first use: on `hybrid`, PyTorch has them."""
        world = self.config.world
        return world.on_host(world.num_envs, self._seed, self._compiled)

    def draw(self, step: int, agent: int) -> ActDraws:
        """The random numbers for one action selection, from the keys that `fused` uses."""
        return jax.device_get(self._draw_act(self.program, self.keys[agent], step))

    def greedy(self, agent: int, stack: np.ndarray, hidden: Any, draws: ActDraws) -> Choice:
        """The greedy actions in a batch of states."""
        return jax.device_get(self._greedy(self.program, self.agents[agent].params, stack, hidden, draws))

    def draw_indices(self, update: int, agent: int) -> np.ndarray:
        """Uniform numbers that pick where the samples of an update start, from the keys that `fused` uses."""
        self._drawn[update, agent] = self._draw_learn(self.program, self.keys[agent], update)
        return np.asarray(self._drawn[update, agent].indices)

    def learn(self, update: int, agent: int, batch: Any) -> tuple[float, np.ndarray]:
        """One update."""
        draws = self._drawn.pop((update, agent), None) or self._draw_learn(self.program, self.keys[agent], update)
        self.agents[agent], loss, errors = self._update(self.learner, self.agents[agent], batch, draws.learner)
        return float(loss), np.asarray(errors)

    def see(self, agent: int, frames: np.ndarray) -> None:
        """Add frames [N, *frame] of training to the statistics that normalise observations."""
        self.agents[agent] = self._see(self.program, self.agents[agent], frames)

    def sync(self) -> None:
        """Copy the online networks into the target networks."""
        self.agents = [agent._replace(target=jax.tree.map(jnp.copy, agent.params)) for agent in self.agents]

    def warm_up(self) -> None:
        """Compile every function, using a throwaway agent and memory."""
        agent, draws = self._init(self.program, self.keys[0]), self._draw_learn(self.program, self.keys[0], 0)
        memory = HostMemory(self.program)
        n, spec = self.config.world.rows, self.program.spec
        stack = np.zeros((n, self.config.world.stack, *spec.shape), spec.dtype)
        self.greedy(0, stack, jax.device_get(self.program.no_memories(n)), self.draw(0, 0))
        # Priorities need no values here: only their shapes matter for compilation.
        zeros = np.zeros(self.config.learner.batch_size, np.int32)
        batch = memory.gather(memory.history.sample_indices(np.zeros((len(zeros), 1, 2), np.float32)), 0.0)
        jax.block_until_ready(self._update(self.learner, agent, batch, draws.learner))

    def give(self, agent: int) -> Params:
        """The parameters of one agent."""
        return self.agents[agent].params

    def take(self, agent: int, params: Params) -> None:
        """Load these parameters into the online and the target network."""
        copies = [jax.tree.map(jnp.array, params) for _ in range(2)]
        self.agents[agent] = self.agents[agent]._replace(params=copies[0], target=copies[1])

    def params(self) -> Params:
        """The parameters as NumPy arrays; of several agents, leaves [A, …]."""
        if not self.program.spec.agents:
            return jax.tree.map(np.asarray, self.agents[0].params)
        return jax.tree.map(lambda *leaves: np.stack(leaves), *(agent.params for agent in self.agents))


def to_program(loop: HostLoop) -> tuple[Counters, TrainState]:
    """The state of a host loop in the layout of `fused`, leaves [1, …] or [1, A, …].

    `fused` writes a row into the replay memory at the start of the next step, the host loop writes it at once. Writing
    it again changes nothing.
    """
    backend, stepper = _backend(loop), loop.games
    rows = loop.tick * loop.config.steps_per_tick - 1
    length = loop.program.window.length
    cursor = Cursor(jnp.int32(max(rows, 0) % length), jnp.int32(min(max(rows, 0), length)))
    several, agents = bool(loop.program.spec.agents), len(backend.agents)

    def agent_rows(values: np.ndarray, agent: int) -> jax.Array:
        return jnp.asarray(values.reshape(agents, -1, *values.shape[1:])[agent])

    runs = []
    for i, memory in enumerate(loop.memories):
        last = (memory.history.head - 1) % length
        priority_state: Any = ()
        if memory.priorities is not None:
            priority_state = Priorities(memory.priorities.blocks, memory.priorities.sums, memory.priorities.largest)
        runs.append(
            TrainState(
                key=backend.keys[i],
                agent=backend.agents[i],
                memory=memory.history.rows,
                priorities=priority_state,
                seen=Seen(
                    agent_rows(stepper.stack, i),
                    agent_rows(stepper.is_first, i),
                    jax.tree.map(jnp.asarray, stepper.hidden_of(i)),
                ),
                score=EpisodeTotals(agent_rows(stepper.score.total, i), agent_rows(stepper.score.steps, i)),
                row=jax.tree.map(lambda column, last=last: column[:, last], memory.history.rows),
                worlds=(),
            )
        )
    one = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs) if several else runs[0]
    worlds = backend.worlds.place() if hasattr(backend.worlds, "place") else ()
    return Counters(jnp.int32(loop.tick), cursor), jax.tree.map(lambda x: x[None], one._replace(worlds=worlds))


def from_program(loop: HostLoop, counters: Counters, runs: TrainState) -> None:
    """The inverse of `to_program`: load a program's state."""
    backend, stepper = _backend(loop), loop.games
    one = jax.tree.map(lambda x: x[0], runs)
    loop.tick = int(counters.tick)
    for i, memory in enumerate(loop.memories):
        own = one._replace(worlds=(), seen=(), score=())
        own = jax.tree.map(lambda x, i=i: x[i], own) if loop.program.spec.agents else own
        backend.agents[i] = jax.tree.map(jnp.array, own.agent)
        memory.history.rows = jax.tree.map(np.array, own.memory)
        memory.history.head, memory.history.size = int(counters.cursor.head), int(counters.cursor.size)
        memory.history.add(jax.tree.map(np.asarray, own.row))
        if memory.priorities is not None:
            memory.priorities.blocks, memory.priorities.sums = (
                np.array(own.priorities.blocks),
                np.array(own.priorities.sums),
            )
            memory.priorities.largest = np.float32(own.priorities.largest)
            memory.priorities.admit(memory.history)
    if hasattr(backend.worlds, "place"):
        rows = stepper.stack.shape[0]
        stepper.stack = np.array(one.seen.stack).reshape(stepper.stack.shape)
        stepper.is_first = np.array(one.seen.is_first).reshape(rows)
        stepper.hidden = jax.tree.map(lambda x: np.array(x).reshape(rows, -1), one.seen.hidden)
        stepper.score.total = np.array(one.score.total).reshape(rows)
        stepper.score.steps = np.array(one.score.steps).reshape(rows)
        backend.worlds.go_to(one.worlds, loop.tick * loop.config.steps_per_tick)


def _backend(loop: HostLoop) -> Backend:
    assert isinstance(loop.learner, Backend)
    return loop.learner
