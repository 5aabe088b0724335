"""One tick of PQN for XLA: a rollout in many envs, then several passes over it.

Only the agent and the worlds carry over between ticks, and learning begins with the first rollout. The learning rate
decays linearly to zero. Without that decay, agents that have solved their world now and then get worse again: a
learner without replay is prone to forgetting.

Shapes: S seeds, N envs, T steps of a rollout, K updates per tick, F frames per state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys, schedules
from xladder.core.keys import Stream
from xladder.core.mapping import one_by_one, over_seeds
from xladder.core.types import Array, Params
from xladder.families.value.acting import ActDraws, ActingProgram, AgentMetrics, EpisodeTotals, Metrics, Seen
from xladder.learners.pqn import Agent, Hyperparams, PQNLearner, Rollout
from xladder.worlds.envs import Step


class Counters(NamedTuple):
    """Counters that all seeds share."""

    tick: jax.Array  # int32 []: ticks done


class TrainState(NamedTuple):
    """The rest of a run's state. For a population every leaf has a leading axis [S]."""

    key: jax.Array  # the run's root key []
    agent: Agent
    seen: Seen
    score: EpisodeTotals
    worlds: Any  # the state of the envs


class Ended(NamedTuple):
    """Returns and lengths of the episodes that ended in a tick; nan elsewhere."""

    totals: jax.Array  # float32 [T, N]
    lengths: jax.Array  # float32 [T, N]


@dataclass(frozen=True)
class Program(ActingProgram):
    """PQN and its world as pure functions."""

    norm: ClassVar[bool] = True

    @property
    def pqn(self) -> PQNLearner:
        """PQN's learner around the value network."""
        return PQNLearner(self.learner)

    def init_counters(self) -> Counters:
        """The counters before the first tick."""
        return Counters(jnp.int32(0))

    def init(self, seed: jax.Array) -> TrainState:
        """The initial state of one run; map it over seeds for a population."""
        assert self.envs is not None
        key = keys.root(seed)
        worlds, frames = self.envs.reset(self.reset_keys(key))
        if not self.spec.agents:
            return self.begin(key, frames, worlds)
        return jax.vmap(self.begin)(keys.of_agents(key, self.num_agents), frames)._replace(worlds=worlds)

    def begin(self, key: jax.Array, frames: jax.Array, worlds: Any = ()) -> TrainState:
        """The initial state of a run whose envs start with these frames [N, *frame]."""
        agent = self.with_frames(self.pqn.init(self.init_params(key), self.hyperparams()), frames)
        return TrainState(key, agent, *self.open_games(frames), worlds)

    def hyperparams(self) -> Hyperparams:
        """The hyperparameters in the settings."""
        c, more = self.config.learner, {"lambda_": self.config.pqn.lambda_, "explore_steps": self.config.explore_steps}
        values = {name: getattr(c, name, None) for name in Hyperparams._fields} | more
        return Hyperparams(**{name: jnp.float32(value) for name, value in values.items()})

    def params(self, runs: TrainState) -> Params:
        """The parameters of a population, leaves [S, …]."""
        return runs.agent.params

    def draw_orders(self, key: jax.Array, tick: jax.Array | int) -> jax.Array:
        """int32 [K, T·N/minibatches]: the rollout steps in each update's minibatch; every pass is shuffled anew."""
        c, size = self.config.pqn, self.config.per_tick
        passes = tick * c.passes + jnp.arange(c.passes)
        shuffled = jax.vmap(lambda one: shuffle(keys.address(key, one, 0, Stream.SAMPLE), size))(passes)
        return shuffled.reshape(c.passes * c.minibatches, size // c.minibatches)

    def left(self, tick: Array) -> Array:
        """float32 []: the factor on the learning rate in a tick; as published, it decays linearly to zero."""
        return schedules.linear(1.0, 0.0, self.config.agent_steps, tick * self.config.per_tick)

    def tick(self, counters: Counters, runs: TrainState) -> tuple[Counters, TrainState, Metrics | AgentMetrics]:
        """One tick of a population, leaves [S, …]."""

        def learn(run: TrainState, rollout: Rollout) -> tuple[TrainState, jax.Array]:
            batch = self.pqn.prepare(run.agent.hyperparams, rollout)
            orders = self.draw_orders(run.key, counters.tick)
            agent, loss = self.pqn.learn(run.agent, batch, orders, self.left(counters.tick))
            return run._replace(agent=self.with_rollout(agent, rollout, run.seen)), loss

        def one(run: TrainState) -> tuple[TrainState, Ended, jax.Array]:
            run, rollout, ended = self.rollout(counters.tick, run)
            run, loss = learn(run, rollout)
            return run, ended, loss

        if self.spec.agents:
            rows, rollouts, ended = self.play_together(counters.tick, self.as_rows(runs))
            worlds, rows = rows.worlds, rows._replace(worlds=())
            rows, loss = self._each(lambda given: learn(*given), (rows, rollouts))
            runs = self.from_rows(rows._replace(worlds=worlds))
        else:
            runs, ended, loss = self._each(one, runs)
        totals, lengths = (x.reshape(x.shape[0], -1) for x in ended)
        hyperparams = self.as_rows(runs).agent.hyperparams
        metrics = self.report(
            counters.tick, hyperparams, totals, lengths, loss, jnp.int32(self.config.updates_per_tick)
        )
        return Counters(counters.tick + 1), runs, metrics

    def with_rollout(self, agent: Agent, rollout: Rollout, seen: Seen) -> Agent:
        """The agent after the frames of a rollout's steps, if running statistics normalise them.

        They are added after the updates, so all that a tick computes has the same statistics.
        """
        frames = jnp.concatenate([rollout.states[1:, :, -1], seen.stack[None, :, -1]])  # [T, N, *frame]
        return self.with_frames(agent, frames.reshape(-1, *frames.shape[2:]))

    def _each(self, function: Any, runs: Any) -> Any:
        """Apply a function of one seed to all seeds, vectorised or one after another."""
        mapped = self.mapped or jax.tree.leaves(runs)[0].shape[0] == 1
        return over_seeds(function, runs) if mapped else one_by_one(function)(runs)

    def rollout(self, tick: jax.Array, run: TrainState) -> tuple[TrainState, Rollout, Ended]:
        """T steps of the N envs of one seed."""
        assert self.envs is not None
        envs, params, epsilon = self.envs, run.agent.params, self.epsilon(tick, run.agent.hyperparams)
        steps = tick * self.config.steps_per_tick + jnp.arange(self.config.steps_per_tick)
        # Drawn ahead for the whole rollout: a few large draws are cheaper than many small ones.
        draws, step_keys = jax.vmap(lambda step: (self.draw_act(run.key, step), self.step_keys(run.key, step)))(steps)

        def advance(carry: tuple, drawn: tuple[ActDraws, jax.Array]) -> tuple[tuple, tuple[Rollout, Ended]]:
            (seen, score, worlds), (draws, step_keys) = carry, drawn
            actions, values = self.choose(params, seen.stack, draws, epsilon)
            worlds, step = envs.step(step_keys, worlds, actions)
            row = self.row(seen.stack, actions, step, values)
            seen, score, *ended = self.watch(seen, score, step)
            return (seen, score, worlds), (row, Ended(*ended))

        carry, (rows, ended) = jax.lax.scan(advance, (run.seen, run.score, run.worlds), (draws, step_keys))
        seen, score, worlds = carry
        last = self.learner.values(params, seen.stack, None, None).max(-1)
        rollout = rows._replace(values=jnp.concatenate([rows.values, last[None]]))
        return run._replace(seen=seen, score=score, worlds=worlds), rollout, ended

    def play_together(self, tick: jax.Array, runs: TrainState) -> tuple[TrainState, Rollout, Ended]:
        """A rollout of agents that share worlds, rows [S·A, …]: all choose their actions before the worlds step."""

        def choose(run: TrainState, step: jax.Array) -> tuple[jax.Array, jax.Array]:
            epsilon = self.epsilon(tick, run.agent.hyperparams)
            return self.choose(run.agent.params, run.seen.stack, self.draw_act(run.key, step), epsilon)

        def advance(runs: TrainState, step: jax.Array) -> tuple[TrainState, tuple[Rollout, Ended]]:
            acting, stack = runs._replace(worlds=()), runs.seen.stack
            actions, values = over_seeds(lambda run: choose(run, step), acting)
            worlds, answers = self.step_worlds(runs.key, runs.worlds, actions, step)
            row = self.row(stack, actions, answers, values)
            seen, score, *ended = over_seeds(lambda given: self.watch(*given), (runs.seen, runs.score, answers))
            return runs._replace(seen=seen, score=score, worlds=worlds), (row, Ended(*ended))

        steps = tick * self.config.steps_per_tick + jnp.arange(self.config.steps_per_tick)
        runs, (rows, ended) = jax.lax.scan(advance, runs, steps)
        rows, ended = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), (rows, ended))  # [S·A, T, N, …]
        last = over_seeds(
            lambda run: self.learner.values(run.agent.params, run.seen.stack, None, None).max(-1),
            runs._replace(worlds=()),
        )
        return runs, rows._replace(values=jnp.concatenate([rows.values, last[:, None]], axis=1)), ended

    def choose(
        self, params: Params, stack: jax.Array, draws: ActDraws, epsilon: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """An action for every env, random with probability ε, and the value of the greedy one; [N] each."""
        values = self.learner.values(params, stack, None, None)  # [N, A]
        greedy = jnp.argmax(values, axis=-1).astype(jnp.int32)
        return self.explore(greedy, stack, draws, epsilon), values.max(-1)

    def row(self, stack: jax.Array, actions: jax.Array, step: Step, values: jax.Array) -> Rollout:
        """One step of a rollout, leaves [N, …]: actions in states `stack` and what came of them."""
        rewards, idle = self.reward(step), self.is_idle(step)
        return Rollout(stack, actions, rewards, step.terminated, step.truncated, idle, values)

    def rollout_only(self, counters: Counters, runs: TrainState) -> Any:
        """The rollout of a tick without learning."""
        if self.spec.agents:
            return self.play_together(counters.tick, self.as_rows(runs))[1]
        return self._each(lambda run: self.rollout(counters.tick, run)[1], runs)


def shuffle(key: jax.Array, count: int) -> jax.Array:
    """int32 [count]: 0 … count − 1 in random order.

    Each number is stored in the low bits of a random number, and these are sorted. One sort of one array takes a CPU a
    fifth of the time of `jax.random.permutation`, which was a fifth of a tick for small networks.
    """
    low = np.uint32((1 << (count - 1).bit_length()) - 1)
    numbers = jax.random.bits(key, (count,)) & ~low | jnp.arange(count, dtype=jnp.uint32)
    return (jnp.sort(numbers, stable=False) & low).astype(jnp.int32)
