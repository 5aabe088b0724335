"""Is it the same learner? JAX and its NumPy and PyTorch twins, compared in rising order on the same draws.

World → memory → forward → loss → gradients → one update → many updates: the first level that fails names the
culprit, because everything below it agreed. From `forward` on (see `learner.py`), both sides are given the same
recorded batches, so that a fault of the memory cannot show as a fault of the learner.

Shapes: N agents, T turns, C cells of the board with its margin, V cells in a view, U updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder import bridge, parameters
from xladder.core import keys
from xladder.core.keys import Stream
from xladder.core.types import Array, Params
from xladder.families.multi_agent.program import Program
from xladder.learners.iqn import IQNLearner, UpdateDraws
from xladder.learners.value import Agent, Draws
from xladder.parity import learner as learner_levels
from xladder.parity.levels import Level, compare
from xladder.replay import frames
from xladder.replay.batch import Batch
from xladder.replay.frames_host import HostRing
from xladder.rungs.running import compiled
from xladder.worlds import treasurehunt as world
from xladder.worlds.treasurehunt_host import HostWorld

from xladder.learners.iqn_torch import TorchAgent  # isort: skip - after the sentence about a missing PyTorch

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import Config, LearnerConfig, WorldConfig

# What a difference may be, as a share of the largest number in the array compared; `learner.py` has the other levels'.
WORLD = 0.0  # all are whole numbers
MEMORY = 1e-6  # XLA may contract a·b + c in an n-step return: one rounding less
STATES = 16  # made up, to compare one network on


class Walk(NamedTuple):
    """Epochs of given actions on a board, as one of the worlds saw them."""

    boards: Array  # int8 [T, C]: at the end of each turn
    positions: Array  # int32 [T, N]
    views: Array  # int8 [T, N, V]: what each agent saw before it moved
    found: Array  # int8 [T, N]: the code of the cell it moved towards


class WalkDraws(NamedTuple):
    """What a walk needs: where agents start, what appears, what they do."""

    starts: Array  # int32 [N]
    spawns: Array  # int8 [T, C]
    actions: Array  # int8 [T, N]


def levels(config: Config, updates: int = 100, seed: int = 0) -> list[Level]:
    """Every level, in rising order, with the settings of `config`. Later levels are measured even if one fails."""
    # A GPU's default precision would be a fault of its own; this compares algorithms.
    with jax.default_matmul_precision("highest"):
        return list(_levels(config, updates, seed))


def forward(config: Config, params: Params, state: Mapping[str, np.ndarray]) -> Level:
    """What one network says on both sides of views that are made up; PyTorch's is loaded from sorrel's state_dict."""
    learner, other = Program(config).learner, twin(config)
    other.net.load_state_dict(bridge.to_torch("value", parameters.to_tree("iqn", state)))
    shape = (STATES, config.learner.n_frames, learner.cells)
    codes = np.random.default_rng(0).integers(0, learner.num_codes, shape).astype(np.int8)
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


def draw_walk(config: WorldConfig, key: jax.Array) -> WalkDraws:
    """An epoch's draws with uniform actions, as NumPy arrays."""
    starts, spawns, acts = (jax.random.fold_in(key, i) for i in (Stream.RESET, Stream.SPAWN, Stream.ACT))
    actions = jax.random.randint(acts, (config.max_turns, config.num_agents), 0, world.NUM_ACTIONS, jnp.int8)
    draws = world.draw_reset(config, starts), world.draw_spawns(config, spawns, config.max_turns), actions
    return WalkDraws(*(np.asarray(x) for x in draws))


def walk(config: WorldConfig, draws: WalkDraws) -> Walk:
    """The pure world's account of a walk."""
    return compiled(_walk)(config, draws)


def _walk(config: WorldConfig, draws: WalkDraws) -> Walk:
    def turn(state: world.State, drawn: Any) -> tuple[world.State, Walk]:
        spawns, actions = drawn
        state = world.begin_turn(state, spawns)
        views = [world.view(config, state, i) for i in range(config.num_agents)]
        if config.observe == "together":
            state, found = world.move_all(config, state, actions)
            return state, Walk(*state, jnp.stack(views), found)
        codes = []
        for i in range(config.num_agents):
            views[i] = world.view(config, state, i)
            state, code = world.move(config, state, i, actions[i])
            codes.append(code)
        return state, Walk(*state, jnp.stack(views), jnp.stack(codes))

    return jax.lax.scan(turn, world.reset(config, jnp.asarray(draws.starts)), (draws.spawns, draws.actions))[1]


def walk_host(config: WorldConfig, draws: WalkDraws) -> Walk:
    """The host world's account of a walk."""
    board, rows = HostWorld(config), []
    board.reset(draws.starts)
    for spawns, actions in zip(draws.spawns, draws.actions, strict=True):
        board.begin_turn(spawns)
        together = [board.view(i) for i in range(config.num_agents)]
        views, found = [], []
        for i, action in enumerate(actions):
            views.append(together[i] if config.observe == "together" else board.view(i))
            found.append(board.move(i, int(action)))
        rows.append((board.board.copy(), np.array(board.positions), np.stack(views), np.array(found)))
    return Walk(*(np.stack(column) for column in zip(*rows, strict=True)))


def remember(config: Config, walks: list[WalkDraws], seen: list[Walk]) -> tuple[frames.Cursor, frames.Ring, HostRing]:
    """What agent 0 saw on its walks, in both memories."""
    c = config.learner
    cursor, ring = frames.init_cursor(), frames.init(c.memory, seen[0].views.shape[-1])
    host = HostRing(c.memory, seen[0].views.shape[-1], c.n_frames, c.n_step)
    turns: Any = np.arange(config.world.max_turns)
    for draws, saw in zip(walks, seen, strict=True):
        rows = frames.Ring(
            frames=saw.views[:, 0],
            actions=draws.actions[:, 0],
            rewards=world.cell_values(config.world)[saw.found[:, 0]],
            dones=turns < 0,
            breaks=turns == 0,
        )
        cursor, ring = compiled(_remember_epoch)(c.n_frames, cursor, ring, rows)
        host.add_empty()
        for row in zip(*rows, strict=True):
            host.add(*row)
    return cursor, ring, host


def _remember_epoch(
    n_frames: int, cursor: frames.Cursor, ring: frames.Ring, rows: frames.Ring
) -> tuple[frames.Cursor, frames.Ring]:
    ring = frames.mark_break(cursor, ring)
    cursor = frames.skip(cursor, ring.dones.size, n_frames)
    ring = frames.add(cursor, ring, rows)
    return frames.advance(cursor, ring.dones.size, rows.dones.size), ring


def _recall(
    config: Config, cursor: frames.Cursor, ring: frames.Ring, host: HostRing, scores: np.ndarray
) -> tuple[Any, Any]:
    """All that the two memories hold, and what they hand out."""
    c = config.learner
    held = host.frames, host.actions, host.rewards, host.dones, host.breaks
    starts = host.choose(scores, c.batch_size)
    theirs = (host.index, host.size), held, host.recent(), starts, tuple(host.cut(starts, c.gamma))
    return compiled(_choose_and_cut)(c, cursor, ring, scores), theirs


def _choose_and_cut(c: LearnerConfig, cursor: frames.Cursor, ring: frames.Ring, scores: jax.Array) -> Any:
    starts = frames.choose(cursor, scores, c.batch_size, c.n_frames, c.n_step)
    batch = frames.cut(cursor, ring, starts, jnp.float32(c.gamma), c.n_frames, c.n_step)
    return tuple(cursor), tuple(ring), frames.recent(cursor, ring, c.n_frames), starts, tuple(batch)


def draw_agent(learner: IQNLearner, key: jax.Array) -> Agent:
    """A fresh agent whose target is another network than its own: else confusing the two would not show."""
    agent, another = (compiled(IQNLearner.init)(learner, keys.address(key, 0, i, Stream.INIT)) for i in range(2))
    c = learner.config
    return learner_levels.fresh_agent(learner.plain, agent.params, another.params, c.lr, c.gamma)


def draw_update(learner: IQNLearner, key: jax.Array, update: int) -> UpdateDraws:
    """The draws of one update, as NumPy arrays."""
    address = (keys.address(key, update, 0, stream) for stream in (Stream.SAMPLE, Stream.NOISE))
    return jax.tree.map(np.asarray, compiled(IQNLearner.draw_update)(learner, *address))


def record(config: Config, host: HostRing, draws: UpdateDraws) -> Batch:
    """The batch that both sides learn from."""
    return host.cut(host.choose(np.asarray(draws.scores), config.learner.batch_size), config.learner.gamma)


def twin(config: Config) -> TorchAgent:
    """The PyTorch side."""
    learner = Program(config).learner
    return TorchAgent(config.learner, learner.actions, learner.num_codes, learner.cells)


def _epochs(config: Config) -> int:
    """Enough to go round the memory and over its beginning."""
    return 2 + config.learner.memory // config.world.max_turns
