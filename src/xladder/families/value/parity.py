"""Parity of the value learner: replay memories and learners of both sides, compared level by level on the same draws.

Memory → forward → loss → gradients → one update → many updates; where running statistics normalise observations, these
come before forward. Transitions of random actions are recorded and used as
the input of every level. The world has no twin here, because both sides step the same one.

Shapes: N envs, T steps, F frames per state, B batch, U updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder import parameters
from xladder.core import keys
from xladder.core.compiling import compiled
from xladder.core.keys import Stream
from xladder.core.types import Params
from xladder.errors import UsageError
from xladder.families.value.config import ValueConfig
from xladder.families.value.host_loop import HostMemory
from xladder.families.value.program import Counters, LearnDraws, Program
from xladder.families.value.stepping import Stepper, Transition, of_agent
from xladder.families.value.torch_backend import make_learner
from xladder.learners.value import Agent, ValueLearner
from xladder.parity import learner as learner_levels
from xladder.parity.levels import Level, compare
from xladder.parity.precision import check_comparable
from xladder.replay import history, history_host, priorities
from xladder.replay.history import SampleIndices

MEMORY = 1e-5  # XLA may contract a·b + c in an n-step return, and sums priorities in another order
STATISTICS = 1e-5  # means over the recorded steps, added up in another order
RECORDED = 2000  # steps of all envs together
STATES = 16  # random states on which one network is compared


def levels(config: ValueConfig, updates: int = 100, seed: int = 0) -> list[Level]:
    """All levels in order, with the settings of `config`. Later levels are measured even if one fails."""
    if config.algorithm == "pqn":
        raise UsageError("PQN has no PyTorch twin to compare with: leave out `--preset pqn`.")
    why = config.family.why_no_torch(config)
    if why:
        raise UsageError(f"There is nothing to compare with: {why}.")
    check_comparable(config.learner.precision)
    # Highest precision: a GPU's default adds rounding errors, and this compares algorithms.
    with jax.default_matmul_precision("highest"):
        return list(_levels(_small(config), updates, seed))


def forward(config: ValueConfig, params: Params, state: Mapping[str, np.ndarray]) -> Level:
    """Compare one network's outputs on both sides for random states; PyTorch's is loaded from a state_dict."""
    config = replace(config, learner=replace(config.learner, precision="float32"))
    program, other = Program(config), make_learner(config)
    other.load(parameters.to_tree("value", state, other.torso_names))
    spec, rng = program.spec, np.random.default_rng(0)
    shape = (STATES, config.world.stack, *spec.shape)
    most = {"u": 256, "b": 2}.get(np.dtype(spec.dtype).kind)
    states = rng.integers(0, most, shape) if most else rng.standard_normal(shape)
    with jax.default_matmul_precision("highest"):
        return learner_levels.forward(program.learner, params, other, states.astype(spec.dtype))


def _small(config: ValueConfig) -> Any:
    """The same settings with a replay memory so small that the recorded steps wrap around."""
    n, c = config.world.rows, config.learner
    rows = max(RECORDED // n * 3 // 4, config.world.stack + c.span + 1)
    learner = replace(c, memory=min(c.memory, rows * n))
    return replace(config, learner=learner)


def _levels(config: ValueConfig, updates: int, seed: int) -> Iterator[Level]:
    program, key = Program(config), keys.root(seed)
    learner = program.learner
    steps = record(config, seed)
    cursor, memory, priority_state, host = remember(program, steps)
    draws = [jax.tree.map(np.asarray, compiled(Program.draw_learn)(program, key, i)) for i in range(updates)]
    yield compare("memory twins", MEMORY, *recall(program, cursor, memory, priority_state, host, draws[0]))

    agent = draw_agent(program, learner, key)
    if config.world.scaling is not None:
        agent, ours, theirs = count_frames(program, agent, steps)
        yield compare("statistics", STATISTICS, ours, theirs)
    batches = [host.sample(one.indices, config.learner.gamma)[1] for one in draws]
    yield from learner_levels.levels(
        learner, agent, lambda: make_learner(config), batches, [one.learner for one in draws]
    )


def record(config: ValueConfig, seed: int) -> list[Transition]:
    """Record transitions of random actions, as the first agent sees them; a network's memory is random, too."""
    world, n, width = config.world, config.world.rows, config.hidden_width
    rng, rows = np.random.default_rng(seed), []
    stepper = Stepper(world.on_host(world.num_envs, seed, compiled), world.stack, width)
    try:
        for _ in range(max(RECORDED // n, world.stack + config.learner.span + 2)):
            count = len(stepper.is_first)
            shape = count, *stepper.worlds.spec.choices
            actions = rng.integers(0, stepper.worlds.spec.actions, shape, dtype=np.int32)
            hidden = rng.uniform(-1, 1, (count, width)).astype(np.float32) if width else ()
            stepper.send([actions], [hidden])
            rows.append(jax.tree.map(np.array, of_agent(stepper.recv(), 0, stepper.agents)))
    finally:
        stepper.close()
    return rows


def remember(program: Program, steps: list[Transition]) -> tuple[history.Cursor, history.History, Any, HostMemory]:
    """Write the recording into both replay memories, and on the way update priorities, if there are any."""
    config = program.config
    n, length = config.world.rows, program.window.length
    cursor, memory = history.init_cursor(), program.empty_rows(n, length)
    priority_state = priorities.init(n, length) if config.learner.prioritised else ()
    host = HostMemory(program)
    for i, made in enumerate(steps):
        if config.learner.prioritised and i == len(steps) * 7 // 8:
            priority_state = update_priorities(program, priority_state, host)
        row = made.columns(program.reward(made.step))
        cursor, memory, priority_state = compiled(_add, donate=(2,))(program, cursor, memory, priority_state, row)
        host.add(made)
    return cursor, memory, priority_state, host


def count_frames(program: Program, agent: Agent, steps: list[Transition]) -> tuple[Agent, Any, Any]:
    """Add the recorded frames to the statistics of both sides. Returns the JAX agent, and both sides' statistics."""
    other = make_learner(program.config)
    for made in steps:
        agent = compiled(Program.with_frames)(program, agent, made.frames)
        other.see(made.frames)
    return agent, agent.params["normaliser"], other.to_jax(other.net.state_dict())["normaliser"]


def _add(program: Program, cursor: history.Cursor, memory: history.History, priority_state: Any, row: Any) -> Any:
    memory = history.add(cursor, memory, row)
    if program.config.learner.prioritised:
        priority_state = priorities.admit(program.window, cursor, priority_state, memory)
    return history.advance(cursor, program.window.length), memory, priority_state


def update_priorities(program: Program, priority_state: Any, host: HostMemory) -> Any:
    """Assign random errors to rows of both memories, some rows twice, so that the importance weights differ."""
    n, length, rng = program.config.world.rows, program.window.length, np.random.default_rng(0)
    count = 2 * n * length
    env, slot = (rng.integers(0, most, count, dtype=np.int32) for most in (n, length))
    indices, errors = (
        SampleIndices(env, slot, np.ones(count, np.float32)),
        rng.exponential(size=count).astype(np.float32),
    )
    host.update_priorities(indices, errors)
    alpha = jnp.float32(program.config.learner.alpha)
    return compiled(Program.update_priorities)(program, priority_state, indices, errors, alpha)


def recall(
    program: Program,
    cursor: history.Cursor,
    memory: history.History,
    priority_state: Any,
    host: HostMemory,
    draws: LearnDraws,
) -> tuple[Any, Any]:
    """The samples of both memories for the same draws, and the state that acting would see."""
    indices, batch = compiled(_sample)(program, cursor, memory, priority_state, draws.indices)
    host.beta = program.beta(np.int32(0))
    other_indices, other = host.sample(draws.indices, program.config.learner.gamma)
    stack = np.zeros((len(memory.is_first), program.config.world.stack, *program.spec.shape), program.spec.dtype)
    newest, is_first = np.asarray(memory.frames[:, 0]), np.ones(len(memory.is_first), bool)
    pushed = history.push(jnp.asarray(stack), jnp.asarray(newest), jnp.asarray(is_first))
    twin = host.priorities
    rated = (twin.blocks, twin.sums, twin.largest) if twin else ()
    ours = tuple(indices), tuple(batch), pushed, tuple(priority_state)
    return ours, (tuple(other_indices), tuple(other), history_host.push(stack, newest, is_first), rated)


def _sample(program: Program, cursor: history.Cursor, memory: Any, priority_state: Any, uniforms: jax.Array) -> Any:
    indices = program.sample_indices(Counters(jnp.int32(0), cursor), memory, priority_state, uniforms)
    return indices, program.gather(memory, indices, jnp.float32(program.config.learner.gamma))


def draw_agent(program: Program, learner: ValueLearner, key: jax.Array) -> Agent:
    """A fresh agent whose target network differs from its online network, so that mixing them up shows."""
    first, second = (compiled(Program.init_params)(program, keys.address(key, i, 0, Stream.INIT)) for i in range(2))
    return learner_levels.fresh_agent(learner, first, second)
