"""Parity of the IQN agents: JAX and its NumPy and PyTorch twins, compared level by level on the same draws.

World → memory → forward → loss → gradients → one update → many updates: the first level that fails names the
culprit, because everything below it agreed. From `forward` on (see `learner.py`), both sides are given the same
recorded batches, so that a bug in the replay memory cannot look like one in the learner.

Shapes: N agents, T turns, V cells in a view, U updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder import bridge, parameters
from xladder.core import keys
from xladder.core.compiling import compiled
from xladder.core.keys import Stream
from xladder.core.mapping import pick
from xladder.core.types import Array, Params
from xladder.families.multi_agent.program import Program
from xladder.learners.iqn import IQNLearner, UpdateDraws
from xladder.learners.value import Agent, Draws
from xladder.parity import learner as learner_levels
from xladder.parity.levels import Level, compare
from xladder.parity.precision import check_comparable
from xladder.replay import frames
from xladder.replay.batch import Batch
from xladder.replay.frames_host import HostFrameRing
from xladder.worlds.turns import State

from xladder.learners.iqn_torch import TorchAgent  # isort: skip - after the sentence about a missing PyTorch

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import Config, LearnerConfig, WorldSettings

# Tolerances, relative to the largest number in the compared array; those of the other levels are in `learner.py`.
WORLD = 0.0  # codes, and rewards that both sides look up
MEMORY = 1e-6  # XLA may contract a·b + c in an n-step return: one rounding less
STATES = 16  # random states on which one network is compared


class Walk(NamedTuple):
    """One world's record of an epoch with given actions."""

    states: State  # at the end of each turn, leaves [T, …]
    views: Array  # int8 [T, N, V]: what each agent saw before it moved
    events: Array  # int8 [T, N]: the event of its action
    rewards: Array  # float32 [T, N]
    counts: Array  # int32 [K]: how often each counted event happened


class WalkDraws(NamedTuple):
    """The inputs of a walk: the world's random numbers and the agents' actions."""

    reset: Any
    turns: Any  # leaves [T, …]
    actions: Array  # int8 [T, N]


def levels(config: Config, updates: int = 100, seed: int = 0) -> list[Level]:
    """All levels in order, with the settings of `config`. Later levels are measured even if one fails."""
    check_comparable(config.learner.precision)
    # Highest precision: a GPU's default adds rounding errors, and this compares algorithms.
    with jax.default_matmul_precision("highest"):
        return list(_levels(config, updates, seed))


def forward(config: Config, params: Params, state: Mapping[str, np.ndarray]) -> Level:
    """Compare one network's outputs on both sides for random views; PyTorch's is loaded from sorrel's state_dict."""
    config = replace(config, learner=replace(config.learner, precision="float32"))
    learner, other = Program(config).learner, twin(config)
    other.net.load_state_dict(bridge.to_torch("value", parameters.to_tree("iqn", state)))
    shape = (STATES, config.learner.n_frames, learner.cells)
    codes = np.random.default_rng(0).integers(0, learner.encoding.limits(), shape).astype(np.int8)
    with jax.default_matmul_precision("highest"):
        return learner_levels.forward(learner.plain, params, other, codes)


def _levels(config: Config, updates: int, seed: int) -> Iterator[Level]:
    learner, key = Program(config).learner, keys.root(seed)
    walks = [draw_walk(config.world, jax.random.fold_in(key, i)) for i in range(_epochs(config))]
    seen = [walk_host(config.world, draws) for draws in walks]
    yield compare("world twins", WORLD, [walk(config.world, draws) for draws in walks], seen)

    cursor, ring, host = remember(config, walks, seen)
    scores = np.asarray(jax.random.uniform(key, (config.learner.memory,)))
    yield compare("memory twins", MEMORY, *_recall(config, cursor, ring, host, scores))

    agent, draws = draw_agent(learner, key), [draw_update(learner, key, i) for i in range(updates)]
    batches = [record(config, host, one) for one in draws]
    yield from learner_levels.levels(
        learner.plain, agent, lambda: twin(config), batches, [Draws(one.taus, one.noise) for one in draws]
    )


def draw_walk(settings: WorldSettings, key: jax.Array) -> WalkDraws:
    """An epoch's random numbers and uniform actions, as NumPy arrays."""
    world = settings.build()
    reset, turns, acts = (jax.random.fold_in(key, i) for i in (Stream.RESET, Stream.SPAWN, Stream.ACT))
    actions = jax.random.randint(acts, (settings.max_turns, world.num_agents), 0, world.num_actions, jnp.int8)
    draws = WalkDraws(world.draw_reset(reset), world.draw_turns(turns, settings.max_turns), actions)
    return jax.tree.map(np.asarray, draws)


def walk(settings: WorldSettings, draws: WalkDraws) -> Walk:
    """Run a walk in the JAX world."""
    return compiled(_walk)(settings, draws)


def _walk(settings: WorldSettings, draws: WalkDraws) -> Walk:
    world = settings.build()

    def turn(state: State, drawn: Any) -> tuple[State, Any]:
        begin, actions = drawn
        state = world.begin_turn(state, begin)
        views = [world.view(state, i) for i in range(world.num_agents)]
        if settings.observe == "together":
            state, events = world.move_all(state, actions)
            return state, (state, jnp.stack(views), events)
        in_turn = []
        for i in range(world.num_agents):
            views[i] = world.view(state, i)
            state, event = world.move(state, i, actions[i])
            in_turn.append(event)
        return state, (state, jnp.stack(views), jnp.stack(in_turn))

    first = world.reset(jax.tree.map(jnp.asarray, draws.reset))
    _, (states, views, events) = jax.lax.scan(turn, first, (draws.turns, draws.actions))
    return Walk(states, views, events, world.reward(events), world.count(events))


def walk_host(settings: WorldSettings, draws: WalkDraws) -> Walk:
    """Run a walk in the host world."""
    world, rows = settings.on_host(), []
    world.reset(draws.reset)
    for turn, actions in enumerate(draws.actions):
        world.begin_turn(pick(draws.turns, turn))
        together = [world.view(i) for i in range(world.num_agents)]
        views, events = [], []
        for i, action in enumerate(actions):
            views.append(together[i] if settings.observe == "together" else world.view(i))
            events.append(world.move(i, int(action)))
        rows.append((world.state(), np.stack(views), np.array(events)))
    states, views, events = jax.tree.map(lambda *leaves: np.stack(leaves), *rows)
    return Walk(states, views, events, world.reward(events), world.count(events))


def remember(
    config: Config, walks: list[WalkDraws], seen: list[Walk]
) -> tuple[frames.Cursor, frames.FrameRing, HostFrameRing]:
    """Write agent 0's transitions on its walks into both replay memories."""
    c = config.learner
    cursor, ring = frames.init_cursor(), frames.init(c.memory, seen[0].views.shape[-1])
    host = HostFrameRing(c.memory, seen[0].views.shape[-1], c.n_frames, c.n_step)
    turns: Any = np.arange(config.world.max_turns)
    for draws, saw in zip(walks, seen, strict=True):
        rows = frames.FrameRing(
            frames=saw.views[:, 0],
            actions=draws.actions[:, 0],
            rewards=saw.rewards[:, 0],
            dones=turns < 0,
            breaks=turns == 0,
        )
        cursor, ring = compiled(_remember_epoch)(c.n_frames, cursor, ring, rows)
        host.add_empty()
        for row in zip(*rows, strict=True):
            host.add(*row)
    return cursor, ring, host


def _remember_epoch(
    n_frames: int, cursor: frames.Cursor, ring: frames.FrameRing, rows: frames.FrameRing
) -> tuple[frames.Cursor, frames.FrameRing]:
    ring = frames.mark_break(cursor, ring)
    cursor = frames.skip(cursor, ring.dones.size, n_frames)
    ring = frames.add(cursor, ring, rows)
    return frames.advance(cursor, ring.dones.size, rows.dones.size), ring


def _recall(
    config: Config, cursor: frames.Cursor, ring: frames.FrameRing, host: HostFrameRing, scores: np.ndarray
) -> tuple[Any, Any]:
    """The contents of both replay memories, and their samples."""
    c = config.learner
    contents = host.frames, host.actions, host.rewards, host.dones, host.breaks
    starts = host.sample_indices(scores, c.batch_size)
    theirs = (host.index, host.size), contents, host.recent(), starts, tuple(host.gather(starts, c.gamma))
    return compiled(_sample_and_gather)(c, cursor, ring, scores), theirs


def _sample_and_gather(c: LearnerConfig, cursor: frames.Cursor, ring: frames.FrameRing, scores: jax.Array) -> Any:
    starts = frames.sample_indices(cursor, scores, c.batch_size, c.n_frames, c.n_step)
    batch = frames.gather(cursor, ring, starts, jnp.float32(c.gamma), c.n_frames, c.n_step)
    return tuple(cursor), tuple(ring), frames.recent(cursor, ring, c.n_frames), starts, tuple(batch)


def draw_agent(learner: IQNLearner, key: jax.Array) -> Agent:
    """A fresh agent whose target network differs from its online network, so that mixing them up shows."""
    agent, another = (compiled(IQNLearner.init)(learner, keys.address(key, 0, i, Stream.INIT)) for i in range(2))
    return learner_levels.fresh_agent(learner.plain, agent.params, another.params)


def draw_update(learner: IQNLearner, key: jax.Array, update: int) -> UpdateDraws:
    """The random numbers of one update, as NumPy arrays."""
    address = (keys.address(key, update, 0, stream) for stream in (Stream.SAMPLE, Stream.NOISE))
    return jax.tree.map(np.asarray, compiled(IQNLearner.draw_update)(learner, *address))


def record(config: Config, host: HostFrameRing, draws: UpdateDraws) -> Batch:
    """The batch that both sides learn from."""
    return host.gather(host.sample_indices(np.asarray(draws.scores), config.learner.batch_size), config.learner.gamma)


def twin(config: Config) -> TorchAgent:
    """The PyTorch agent, sized for the world on the host."""
    world = config.world.on_host()
    return TorchAgent(config.learner, world.num_actions, world.encoding)


def _epochs(config: Config) -> int:
    """Enough epochs to fill the replay memory and wrap around."""
    return 2 + config.learner.memory // config.world.max_turns
