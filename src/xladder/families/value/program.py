"""One tick of a value learner for XLA: some environment steps, and updates from the replay memory.

A tick is the smallest number of environment steps that triggers a whole number of updates: a few steps of every env
and one update, or one step and several updates. Its batches are drawn before the new observations arrive, so
simulation and learning can overlap, and all rungs still compute the same.

The parts of a tick are separate functions (`choose`, `learn_if_ready`, `observe`, `store`): worlds on the host are
stepped between them (`overlapped.py`, `host_loop.py`), worlds inside the program are stepped by `tick`.

Shapes: S seeds, N envs, T steps per tick, K updates per tick, F frames per state, B batch, A actions, Q fractions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xladder.core import keys, schedules
from xladder.core.data_parallel import SINGLE, DataParallel
from xladder.core.keys import Stream
from xladder.core.mapping import one_by_one, over_seeds
from xladder.core.types import Array, Params
from xladder.families.value.acting import ActDraws, ActingProgram, AgentMetrics, Choice, EpisodeTotals, Metrics, Seen
from xladder.learners.value import Agent, Draws, Hyperparams
from xladder.replay import history, priorities, sequences
from xladder.replay.batch import Batch
from xladder.worlds.envs import Step


class Counters(NamedTuple):
    """Counters that all seeds share. They are not mapped, so a branch on them stays a branch."""

    tick: jax.Array  # int32 []: ticks done
    cursor: history.Cursor


class TrainState(NamedTuple):
    """The rest of a run's state. For a population every leaf has a leading axis [S]."""

    key: jax.Array  # the run's root key []
    agent: Agent
    memory: history.History
    priorities: Any  # priorities.Priorities, or () where replay is uniform
    seen: Seen
    score: EpisodeTotals
    row: history.History  # the last step's row, leaves [N, …]; the next step writes it into the memory
    worlds: Any  # the state of the envs

    def acting(self) -> Any:
        """The part that acting needs: without the replay memory, which XLA might copy, and without the worlds."""
        return self._replace(memory=(), priorities=(), worlds=())  # type: ignore[arg-type]


class LearnDraws(NamedTuple):
    """The random numbers of one update."""

    indices: Array  # float32 [B, R, 2]: where samples start; with priorities [B, 2]
    learner: Draws


class Samples(NamedTuple):
    """The batches of a tick's updates."""

    indices: history.SampleIndices
    batch: Any  # Batch, or Sequences for a network with memory
    draws: Draws


@dataclass(frozen=True)
class Program(ActingProgram):
    """A value learner with its replay memory and world, as pure functions."""

    @property
    def window(self) -> history.Window:
        """The span of a sample and the length of the ring."""
        c = self.config
        length = c.learner.memory // c.world.rows
        sequence = {"burn_in": c.learner.burn_in, "sequence": c.learner.sequence} if c.learner.recurrent else {}
        return history.Window(c.world.stack, c.learner.n_step, length, absences=self.spec.absences, **sequence)

    def init_counters(self) -> Counters:
        """The counters before the first tick."""
        return Counters(jnp.int32(0), history.init_cursor())

    def init(self, seed: jax.Array) -> TrainState:
        """The initial state of one run; map it over seeds for a population."""
        assert self.envs is not None
        key = keys.root(seed)
        state, frames = self.envs.reset(self.reset_keys(key))
        if not self.spec.agents:
            return self.begin(key, frames, state)
        return jax.vmap(self.begin)(keys.of_agents(key, self.num_agents), frames)._replace(worlds=state)

    def init_agent(self, key: jax.Array) -> Agent:
        """A freshly initialised agent, for the run with this root key."""
        return self.learner.init(self.init_params(key), self.hyperparams())

    def hyperparams(self) -> Hyperparams:
        """The hyperparameters in the settings."""
        return Hyperparams.of(self.config.learner, self.config.explore_steps)

    def begin(
        self, key: jax.Array, frames: jax.Array, worlds: Any = (), data_parallel: DataParallel = SINGLE
    ) -> TrainState:
        """The initial state of a run whose envs start with these frames [N, *frame], sharded as `data_parallel` says.

        A program with the worlds inside is initialised before anything is sharded.
        """
        n, c = frames.shape[0], self.config.learner
        seen, score = self.open_games(frames)
        return TrainState(
            key=key,
            agent=self.with_frames(self.init_agent(key), frames, data_parallel),
            memory=self.empty_rows(n, self.window.length),
            priorities=priorities.init(n, self.window.length) if c.prioritised else (),
            seen=seen,
            score=score,
            row=jax.tree.map(lambda x: x[:, 0], self.empty_rows(n, 1)),
            worlds=worlds,
        )

    def empty_rows(self, num_envs: int, length: int) -> Any:
        """An empty replay memory with this many rows per env."""
        spec, hidden = self.spec, self.config.hidden_width
        return history.init(num_envs, length, spec.shape, spec.dtype, spec.actions, hidden, spec.choices)

    def params(self, runs: TrainState) -> Params:
        """The parameters of a population, leaves [S, …]."""
        return runs.agent.params

    def draw_learn(self, key: jax.Array, update: jax.Array | int) -> LearnDraws:
        """The random numbers for one update."""
        c = self.config.learner
        sample, noise = (keys.address(key, update, 0, stream) for stream in (Stream.SAMPLE, Stream.NOISE))
        indices = (c.batch_size, 2) if c.prioritised else (c.batch_size, history.CANDIDATES, 2)
        uniforms = jax.random.uniform(jax.random.fold_in(sample, 1), indices)
        return LearnDraws(uniforms, self.learner.draw_update(sample, noise))

    def beta(self, tick: Array, start: Array | None = None) -> Array:
        """float32 []: the importance-sampling exponent β in a tick; it starts with that of the settings, or `start`."""
        c = self.config
        begin, end = c.learner.beta if start is None else start, c.learner.beta_end
        return schedules.linear(begin, end, c.agent_steps, tick * c.per_tick)

    def is_learning(self, tick: Array) -> Array:
        """bool []: whether a tick has updates."""
        return tick * self.config.per_tick >= self.config.learning_begins

    def is_syncing(self, tick: Array) -> Array:
        """bool []: whether a hard update of the target network is due before a tick."""
        c = self.config
        return tick % max(1, round(c.learner.target_update_period / c.per_tick)) == 0

    def choose(self, agent: Agent, seen: Seen, draws: ActDraws, epsilon: jax.Array) -> Choice:
        """An action for every env, random with probability ε."""
        greedy = self.greedy(agent.params, seen.stack, seen.hidden, draws)
        return greedy._replace(actions=self.explore(greedy.actions, seen.stack, draws, epsilon))

    def observe(self, run: TrainState, choice: Choice, step: Step) -> tuple[TrainState, jax.Array, jax.Array]:
        """Record the outcome of the actions. Also returns the return and length of each episode that ended, or nan."""
        columns = history.History(
            frames=run.seen.stack[:, -1],
            actions=choice.actions.astype(history.action_dtype(self.spec.actions)),
            rewards=self.reward(step),
            terminated=step.terminated,
            truncated=step.truncated,
            is_first=run.seen.is_first,
        )
        row = history.rows_of(columns, run.seen.hidden)
        seen, score, totals, lengths = self.watch(run.seen, run.score, step, choice.hidden)
        agent = self.with_frames(run.agent, step.frame, self.data_parallel)
        return run._replace(agent=agent, row=row, seen=seen, score=score), totals, lengths

    def store(
        self, cursor: history.Cursor, memory: history.History, priority_state: Any, row: history.History
    ) -> tuple[history.History, Any]:
        """Write a step's row into the replay memories of all seeds, leaves [S, …]."""
        memory = history.add(cursor, memory, row)
        if self.config.learner.prioritised:
            priority_state = jax.vmap(lambda *one: priorities.admit(self.window, cursor, *one))(priority_state, memory)
        return memory, priority_state

    def learn_if_ready(self, counters: Counters, runs: TrainState) -> tuple[TrainState, jax.Array]:
        """The updates of a tick, leaves [S, …], if learning has started. Also returns the mean loss [S]."""
        before = runs.agent, runs.priorities, jnp.full(runs.key.shape, jnp.nan, jnp.float32)
        # Outside the branch: XLA copies a branch's inputs if they are changed later, and the replay memory is large.
        samples, ready = self.sample(counters, runs), self.is_learning(counters.tick)
        if self.mapped and not self.config.learner.prioritised:
            # On a GPU a branch costs more kernels, copies of all that it returns, than a choice while Adam writes.
            after = self.learn(counters, runs.agent, runs.priorities, samples)
            chosen = jax.tree.map(lambda new, old: jnp.where(ready, new, old), after, before)
        else:
            chosen = jax.lax.cond(
                ready, lambda a, p, _: self.learn(counters, a, p, samples), lambda *given: given, *before
            )
        agents, priority_state, loss = chosen
        return runs._replace(agent=agents, priorities=priority_state), loss

    def sample(self, counters: Counters, runs: TrainState) -> Samples:
        """The batches of a tick's updates, leaves [K, S, B, …]; all are drawn before the first update."""
        updates, size = self.config.updates_per_tick, self.config.learner.batch_size // self.data_parallel.size
        numbers = counters.tick * updates + jnp.arange(updates)

        def one(run: TrainState) -> Samples:
            draws = jax.vmap(lambda number: self.share(self.draw_learn(run.key, number)))(numbers)
            beta = run.agent.hyperparams.beta
            indices = jax.vmap(
                lambda uniforms: self.sample_indices(counters, run.memory, run.priorities, uniforms, beta)
            )(draws.indices)
            flat = jax.tree.map(lambda x: x.reshape(updates * size), indices)
            batch = self.gather(run.memory, flat, run.agent.hyperparams.gamma)
            batches = jax.tree.map(lambda x: x.reshape(updates, size, *x.shape[1:]), batch)
            return Samples(indices, batches, draws.learner)

        # Mapped even for one seed: XLA would copy the replay memory to remove its axis and add it again.
        return jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), jax.vmap(one)(runs._replace(worlds=())))

    def gather(self, memory: Any, indices: history.SampleIndices, gamma: jax.Array) -> Any:
        """The transitions that start at `indices`, or the sequences of them for a network with memory."""
        gather: Any = sequences.gather if self.config.learner.recurrent else history.gather
        return gather(self.window, memory, indices, gamma)

    def share(self, draws: LearnDraws) -> LearnDraws:
        """This device's part of an update's random numbers; all devices share the network, and so its noise."""
        learner = draws.learner._replace(taus=self.data_parallel.local(draws.learner.taus, axis=1))
        return LearnDraws(self.data_parallel.local(draws.indices), learner)

    def sync(self, agents: Agent, tick: jax.Array) -> Agent:
        """The hard update of the target networks, leaves [S, …], if one is due before a tick."""
        due = self.is_syncing(tick)
        if not self.mapped:
            return self.learner.sync(agents, due)
        # On a GPU a branch would wait for the host; a `where` over all parameters costs less.
        target = jax.tree.map(lambda p, t: jnp.where(due, p, t), agents.params, agents.target)
        return agents._replace(target=target)

    def learn(
        self, counters: Counters, agents: Agent, priority_state: Any, samples: Samples
    ) -> tuple[Agent, Any, jax.Array]:
        """All updates of a tick, leaves [S, …]. Returns agents, new priorities and losses."""
        agents, losses, errors = self.improve(counters.tick, agents, samples)
        if self.config.learner.prioritised:
            rated = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), (samples.indices, errors))  # [S, K, B]
            flat = jax.tree.map(lambda x: x.reshape(x.shape[0], -1), rated)
            given = priority_state, *flat, agents.hyperparams.alpha
            priority_state = over_seeds(lambda one: self.update_priorities(*one), given)
        return agents, priority_state, losses.mean(0)

    def improve(self, tick: jax.Array, agents: Agent, samples: Samples) -> tuple[Agent, jax.Array, jax.Array]:
        """The hard update, if due, then the gradient updates. Also returns losses [K, S] and errors [K, S, B]."""
        if self.config.learner.target_update_period:
            agents = self.sync(agents, tick)
        map_over = jax.vmap if self.mapped else one_by_one

        def one(agents: Agent, given: tuple[Batch, Draws]) -> tuple[Agent, tuple[jax.Array, jax.Array]]:
            if agents.hyperparams.lr.shape[0] == 1:
                alone = self.learner.update(*jax.tree.map(lambda x: x[0], (agents, *given)))
                agents, *outputs = jax.tree.map(lambda x: x[None], alone)
            else:
                agents, *outputs = map_over(lambda one: self.learner.update(*one))((agents, *given))
            return agents, tuple(outputs)

        if self.config.updates_per_tick == 1:
            agents, outputs = one(agents, jax.tree.map(lambda x: x[0], samples[1:]))
            losses, errors = jax.tree.map(lambda x: x[None], outputs)
        else:
            agents, (losses, errors) = jax.lax.scan(one, agents, samples[1:])
        return agents, losses, errors

    def sample_indices(
        self,
        counters: Counters,
        memory: history.History,
        priority_state: Any,
        uniforms: jax.Array,
        beta: Array | None = None,
    ) -> history.SampleIndices:
        """Where the samples of an update start; `beta` is β at the start of the run."""
        if not self.config.learner.prioritised:
            strata = self.config.learner.strata // self.data_parallel.size
            return history.sample_indices(self.window, counters.cursor, memory, uniforms, strata)
        even = jnp.stack([priorities.stratified(uniforms[:, 0]), uniforms[:, 1]], axis=1)
        return priorities.sample_indices(priority_state, even, self.beta(counters.tick, beta))

    def update_priorities(
        self, priority_state: Any, indices: history.SampleIndices, errors: jax.Array, alpha: jax.Array
    ) -> Any:
        """Set priorities from the errors of an update."""
        return priorities.assign(priority_state, indices, priorities.from_errors(errors, alpha))

    def tick(self, counters: Counters, runs: TrainState) -> tuple[Counters, TrainState, Metrics | AgentMetrics]:
        """One tick of a population, leaves [S, …], or [S, A, …] if agents learn independently in one world."""
        counters, rows, metrics = self.tick_rows(counters, self.as_rows(runs))
        return counters, self.from_rows(rows), metrics

    def tick_rows(self, counters: Counters, runs: TrainState) -> tuple[Counters, TrainState, Metrics | AgentMetrics]:
        """One tick with the agents of all seeds on one axis, leaves [S·A, …], except for the worlds, leaves [S, …].

        A step begins by storing the row of the one before. So the memory is always read after it is written; the
        other way round, XLA would copy all of it.
        """
        first, before = counters.tick * self.config.steps_per_tick, self.config.steps_per_tick - 1

        def rollout_step(carry: tuple[history.Cursor, TrainState], step: jax.Array) -> tuple:
            cursor, runs = self._store(carry[0], carry[1], step)
            runs, ended = self._step(runs, self._choose(counters.tick, step, runs), step)
            return (cursor, runs), ended

        carry: Any = counters.cursor, runs
        earlier: Any = None
        if before:
            carry, earlier = jax.lax.scan(rollout_step, carry, first + jnp.arange(before))  # [T − 1, S, N]
        cursor, runs = self._store(carry[0], carry[1], first + before)
        choice = self._choose(counters.tick, first + before, runs)
        runs, loss = self.learn_if_ready(Counters(counters.tick, cursor), runs)
        runs, ended = self._step(runs, choice, first + before)
        if before:
            earlier = jax.tree.map(lambda x: jnp.moveaxis(x, 0, 1).reshape(x.shape[1], -1), earlier)
            ended = jax.tree.map(lambda x, y: jnp.concatenate([x, y], axis=1), earlier, ended)
        updates = jnp.where(self.is_learning(counters.tick), self.config.updates_per_tick, 0)
        metrics = self.report(counters.tick, runs.agent.hyperparams, *ended, loss, updates)
        return Counters(counters.tick + 1, cursor), runs, metrics

    def store_all(self, cursor: history.Cursor, runs: TrainState) -> TrainState:
        """Write the row of every seed's last step into its replay memory."""
        memory, priority_state = self.store(cursor, runs.memory, runs.priorities, runs.row)
        return runs._replace(memory=memory, priorities=priority_state)

    def _store(self, cursor: history.Cursor, runs: TrainState, step: jax.Array) -> tuple[history.Cursor, TrainState]:
        """`store_all`, and the cursor after it. Before the first step there is no row to store."""
        after = history.advance(cursor, self.window.length)
        moved = jax.tree.map(lambda new, old: jnp.where(step > 0, new, old), after, cursor)
        if self.mapped:
            return moved, self.store_all(cursor, runs)
        # A loop of zero or one iterations, because nothing is fused across its border. Otherwise XLA on a CPU fuses
        # writing a row with reading the memory, does it twice, and copies the whole memory for that.
        rest = runs.acting()

        def write(_: jax.Array, buffers: tuple[history.History, Any]) -> tuple[history.History, Any]:
            stored = self.store_all(cursor, rest._replace(memory=buffers[0], priorities=buffers[1]))
            return stored.memory, stored.priorities

        times = (step > 0).astype(jnp.int32)
        memory, priority_state = jax.lax.fori_loop(0, times, write, (runs.memory, runs.priorities))
        return moved, runs._replace(memory=memory, priorities=priority_state)

    def _choose(self, tick: jax.Array, step: jax.Array, runs: TrainState) -> Choice:
        """The actions of every seed in a step, leaves [S, N, …]."""

        def one(run: TrainState) -> Choice:
            epsilon = self.epsilon(tick, run.agent.hyperparams)
            return self.choose(run.agent, run.seen, self.data_parallel.local(self.draw_act(run.key, step)), epsilon)

        return over_seeds(one, runs.acting())

    def _step(
        self, runs: TrainState, choice: Choice, step: jax.Array
    ) -> tuple[TrainState, tuple[jax.Array, jax.Array]]:
        """Step every env of every seed. Also returns returns and lengths of the episodes that ended, [S, N] each."""

        memory, priority_state = runs.memory, runs.priorities
        choice = choice._replace(actions=self.force_actions(runs.worlds, choice.actions))
        worlds, answers = self.step_worlds(runs.key, runs.worlds, choice.actions, step)
        runs, *ended = over_seeds(lambda one: self.observe(*one), (runs.acting(), choice, answers))
        return runs._replace(memory=memory, priorities=priority_state, worlds=worlds), (ended[0], ended[1])

    def rollout_only(self, counters: Counters, runs: TrainState) -> Any:
        """The environment steps of a tick without learning. Returns the states after them."""
        runs, first = self.as_rows(runs), counters.tick * self.config.steps_per_tick
        for t in range(self.config.steps_per_tick):
            runs, _ = self._step(runs, self._choose(counters.tick, first + t, runs), first + t)
        return runs.seen, runs.score, runs.row
