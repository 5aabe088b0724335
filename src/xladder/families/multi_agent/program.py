"""One tick of several agents on one board, for XLA: a rollout of an epoch, then one update per agent.

A tick takes a population of experiments, one per seed. Rungs decide where `jit` sits. `parallel` and `fused` run this;
`host_loop.py` is the same for a world on the host.

Shapes: S seeds, N agents, T turns, F frames, V cells, K kinds of event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from xladder.core import keys
from xladder.core.data_parallel import SINGLE, DataParallel
from xladder.core.keys import Stream
from xladder.core.mapping import one_by_one, over_seeds
from xladder.core.state import Portable
from xladder.core.types import Params
from xladder.learners.iqn import ActDraws, Agent, Hyperparams, IQNLearner, UpdateDraws
from xladder.replay import frames
from xladder.worlds.turns import State, TurnWorld

if TYPE_CHECKING:
    from xladder.families.multi_agent.config import Config

MOST_UNROLLED = 8  # agents that are unrolled, so that no agent's weights are copied out of the stack
UNROLLED_ACTIONS = 25  # of all agents, in the body of the loop over turns: with more, XLA takes minutes to compile


class Counters(NamedTuple):
    """Counters that all agents and seeds share. They are not mapped, so a branch on them stays a branch."""

    tick: jax.Array  # int32 []: epochs done
    cursor: frames.Cursor


class TrainState(NamedTuple):
    """The rest of a run's state. For a population every leaf has a leading axis [S]."""

    key: jax.Array  # the run's root key []
    agents: Agent  # every leaf [N, …]
    rings: frames.FrameRing  # every leaf [N, …]


class Metrics(NamedTuple):
    """The metrics of one epoch."""

    returns: jax.Array  # float32 [S, N]: reward per agent
    loss: jax.Array  # float32 [S]: mean over agents; nan where nothing was learned
    epsilon: jax.Array  # float32 [S]: mean over agents, as it was while playing
    events: jax.Array  # int32 [S, K]: how often each counted event happened, all agents together


class RolloutDraws(NamedTuple):
    """The random numbers of one epoch's world and actions. (On the host: the same as NumPy arrays.)"""

    reset: Any  # what the world's `draw_reset` gives
    turns: Any  # and its `draw_turns`, leaves [T, …]
    acts: ActDraws  # leaves [N, T, …]


class EpochRollout(NamedTuple):
    """The result of one epoch's rollout."""

    rows: frames.FrameRing  # leaves [T, N, …], to be stored in the replay memories
    events: jax.Array  # int8 [T, N]: the event of each agent's action
    states: State  # the world at the end of each turn, leaves [T, …]


@dataclass(frozen=True)
class Program(Portable):
    """The epoch as pure functions.

    The rung chooses the layout: `mapped`, whether agents learn all at once or one after another; `align`,
    see `IQNLearner`; `unroll`, how many turns are unrolled.
    """

    config: Config
    mapped: bool = True
    align: int = 1
    unroll: int = 1
    data_parallel: DataParallel = SINGLE
    """How batches are sharded over devices; all devices run the same rollout."""

    @classmethod
    def for_platform(cls, config: Config, platform: str, seeds: Sequence[int] = ()) -> Program:
        """The program laid out for a kind of device.

        On a CPU the agents of all seeds learn one after another, inside the program: a batched product uses the cores
        no better than a plain one and overflows the cache. On a GPU all learn at once, with matrix widths that are
        multiples of the tensor cores' size, and several turns are unrolled, because the loop itself is the bottleneck.
        """
        if platform == "cpu":
            return cls(config, mapped=False)
        return cls(config, mapped=True, align=32, unroll=turns_at_once(config.world.num_agents, config.world.max_turns))

    @property
    def world(self) -> TurnWorld:
        """The world that the agents share."""
        return self.config.world.build()

    @property
    def learner(self) -> IQNLearner:
        """The agents' learner, sized for this world's views."""
        w = self.world
        return IQNLearner(self.config.learner, w.num_actions, w.encoding, self.align, self.data_parallel)

    def init_counters(self) -> Counters:
        """The counters before the first epoch."""
        return Counters(jnp.int32(0), frames.init_cursor())

    def init(self, seed: jax.Array) -> TrainState:
        """The initial state of one run; map it over seeds for a population."""
        n, key = self.config.world.num_agents, keys.root(seed)
        agents = jax.vmap(self.learner.init)(keys.addresses(key, 0, n, Stream.INIT))
        ring = frames.init(self.config.learner.memory, self.learner.cells)
        rings = jax.tree.map(lambda x: jnp.zeros((n, *x.shape), x.dtype), ring)
        return TrainState(key, agents, rings)

    def hyperparams(self) -> Hyperparams:
        """The hyperparameters in the settings."""
        return self.learner.hyperparams()

    def with_params(self, runs: TrainState, params: Params) -> TrainState:
        """A fresh population with these parameters, leaves [S, N, …], in online and target networks."""
        wide = self.learner.widen(params)
        return runs._replace(agents=runs.agents._replace(params=wide, target=jax.tree.map(jnp.copy, wide)))

    def with_hyperparams(self, runs: TrainState, hyperparams: Hyperparams) -> TrainState:
        """A fresh population whose seeds have their own hyperparameters, leaves [S]; its agents share them."""
        agents = self.config.world.num_agents
        each = jax.tree.map(lambda x: jnp.repeat(x[:, None], agents, axis=1), hyperparams)
        return runs._replace(agents=runs.agents._replace(hyperparams=each, epsilon=each.epsilon))

    def params(self, runs: TrainState) -> Params:
        """The parameters of a population, leaves [S, N, …]."""
        return self.learner.narrow(runs.agents.params)

    def tick(self, counters: Counters, runs: TrainState) -> tuple[Counters, TrainState, Metrics]:
        """One epoch of a population, leaves [S, …]: every run rolls out and stores, then all agents learn."""
        c = self.config.learner
        runs = runs._replace(agents=self.learner.sync(runs.agents, counters.tick % c.target_update_period == 0))
        cursor, rings, played = self.rollout_only(counters, runs)
        ready = frames.can_sample(cursor, c.batch_size, c.n_frames, c.n_step)
        agents, losses = self.learn_if_ready(runs.key, counters.tick, ready, cursor, runs.agents, rings)
        metrics = Metrics(
            returns=played.rows.rewards.sum(1),
            loss=jnp.where(ready, losses.mean(1), jnp.nan),
            epsilon=runs.agents.epsilon.mean(1),
            events=jax.vmap(self.world.count)(played.events),
        )
        return Counters(counters.tick + 1, cursor), TrainState(runs.key, self.learner.decay(agents), rings), metrics

    def rollout_only(
        self, counters: Counters, runs: TrainState
    ) -> tuple[frames.Cursor, frames.FrameRing, EpochRollout]:
        """The rollout of an epoch without learning. Returns cursor, replay memories [S, N, …] and rollout."""
        c = self.config.learner
        cursor = frames.skip(counters.cursor, c.memory, c.n_frames)

        def rollout(run: TrainState) -> tuple[frames.FrameRing, EpochRollout]:
            rings = jax.vmap(frames.mark_break, in_axes=(None, 0))(counters.cursor, run.rings)
            before = jax.vmap(frames.recent, in_axes=(None, 0, None))(cursor, rings, c.n_frames)
            played = self.rollout(self.draw_rollout(run.key, counters.tick), run.agents, before)
            return jax.vmap(frames.add, in_axes=(None, 0, 1))(cursor, rings, played.rows), played

        rings, played = over_seeds(rollout, runs)
        return frames.advance(cursor, c.memory, self.config.world.max_turns), rings, played

    def draw_rollout(self, key: jax.Array, tick: jax.Array | int) -> RolloutDraws:
        """The random numbers for the rollout of one epoch."""
        world, turns = self.world, self.config.world.max_turns
        reset = world.draw_reset(keys.address(key, tick, keys.WORLD, Stream.RESET))
        drawn = world.draw_turns(keys.address(key, tick, keys.WORLD, Stream.SPAWN), turns)
        agents = keys.addresses(key, tick, world.num_agents, Stream.ACT)
        return RolloutDraws(reset, drawn, jax.vmap(lambda k: self.learner.draw_act(k, turns))(agents))

    def draw_learn(self, key: jax.Array, tick: jax.Array | int, agent: jax.Array | int) -> UpdateDraws:
        """The random numbers for one agent's update."""
        return self.learner.draw_update(
            keys.address(key, tick, agent, Stream.SAMPLE), keys.address(key, tick, agent, Stream.NOISE)
        )

    def rollout(self, draws: RolloutDraws, agents: Agent, before: jax.Array) -> EpochRollout:
        """Roll out one epoch after a reset. `before`, int8 [N, F − 1, V], are the agents' previous frames."""
        world = self.world
        map_over = jax.vmap if self.mapped else one_by_one
        embeddings = map_over(lambda one: self.learner.embed(*one))((agents.params, draws.acts.taus))  # [N, T, Q, H]
        turn_first = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), (draws.acts, embeddings))
        turn = self._turn_together if self.config.world.observe == "together" else self._turn_in_turn

        def step(carry: tuple[State, jax.Array], drawn: Any) -> tuple[Any, Any]:
            (state, stack), (begin, draw, embedding) = carry, drawn
            state = world.begin_turn(state, begin)
            recalled = jax.vmap(self.learner.recall)(agents.params, stack)
            state, views, actions, events = turn(state, recalled, agents, draw, embedding)
            stack = jnp.concatenate([stack, views[:, None]], axis=1)[:, 1:]
            return (state, stack), (views, actions, events, state)

        first = (world.reset(draws.reset), before)
        _, (views, actions, events, states) = jax.lax.scan(step, first, (draws.turns, *turn_first), unroll=self.unroll)
        rows = frames.FrameRing(
            frames=views,
            actions=actions,
            rewards=world.reward(events),
            dones=jnp.zeros(events.shape, bool),
            breaks=jnp.zeros(events.shape, bool).at[0].set(True),
        )
        return EpochRollout(rows, events, states)

    def learn_if_ready(
        self,
        key: jax.Array,
        tick: jax.Array,
        ready: jax.Array,
        cursor: frames.Cursor,
        agents: Agent,
        rings: frames.FrameRing,
    ) -> tuple[Agent, jax.Array]:
        """One update for each agent of each seed, leaves [S, N, …], if the replay memories are full enough.

        Returns the agents and their losses [S, N], or 0.
        """
        shape = agents.epsilon.shape
        keys_and_agents = jnp.repeat(key, shape[1]), jnp.tile(jnp.arange(shape[1]), shape[0])
        draws = jax.vmap(lambda k, i: self.draw_learn(k, tick, i))(*keys_and_agents)  # [S·N, …]

        def learn(agents: Agent) -> tuple[Agent, jax.Array]:
            flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (agents, rings))  # [S·N, …]
            map_over = jax.vmap if self.mapped else one_by_one
            changed = map_over(lambda one: self.learner.learn(cursor, *one))((*flat, draws))
            return jax.tree.map(lambda x: x.reshape(*shape, *x.shape[1:]), changed)

        nothing = jnp.zeros(shape, jnp.float32)
        return jax.lax.cond(ready, learn, lambda agents: (agents, nothing), agents)

    def _turn_together(
        self, state: State, recalled: jax.Array, agents: Agent, draw: ActDraws, embedding: jax.Array
    ) -> tuple[State, jax.Array, jax.Array, jax.Array]:
        """One turn: all agents observe and choose, then all move in order."""
        world = self.world
        views = jax.vmap(lambda i: world.view(state, i))(jnp.arange(world.num_agents))
        actions = jax.vmap(self.learner.act)(agents, recalled, views, draw.explore, draw.action, embedding)
        state, events = world.move_all(state, actions)
        return state, views, actions, events

    def _turn_in_turn(
        self, state: State, recalled: jax.Array, agents: Agent, draw: ActDraws, embedding: jax.Array
    ) -> tuple[State, jax.Array, jax.Array, jax.Array]:
        """One turn in which each agent sees the moves of those before it."""
        world = self.world

        def one(state: State, item: Any) -> tuple[State, Any]:
            i, agent, recalled, draw, embedding = item
            view = world.view(state, i)
            action = self.learner.act(agent, recalled, view, draw.explore, draw.action, embedding)
            state, event = world.move(state, i, action)
            # Without a barrier XLA computes a cell anew from all moves before, wherever it is read.
            return jax.lax.optimization_barrier(state), (view, action, event)

        order = jnp.arange(world.num_agents)
        state, (views, actions, events) = jax.lax.scan(
            one, state, (order, agents, recalled, draw, embedding), unroll=min(world.num_agents, MOST_UNROLLED)
        )
        return state, views, actions, events


def turns_at_once(agents: int, turns: int) -> int:
    """How many turns of an epoch to unroll: the most that divide it and are not too many actions."""
    return max(n for n in range(1, turns + 1) if turns % n == 0 and (n == 1 or n * agents <= UNROLLED_ACTIONS))
