"""One iteration of a GFlowNet for XLA: sample a batch of trajectories, then make one update from it.

A tick takes a population of experiments, one per seed. Rungs decide where `jit` sits. `parallel` and `fused` run this;
`host_loop.py` is the same for a world on the host.

Shapes: S seeds, B trajectories, O of them from remembered objects, T steps of the longest, D numbers in a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from xladder.core import keys
from xladder.core.data_parallel import SINGLE, DataParallel
from xladder.core.keys import Stream
from xladder.core.mapping import one_by_one, over_seeds
from xladder.core.state import Portable
from xladder.core.types import Array, Params
from xladder.learners.gflownet import Agent, Explore, GFlowNetLearner, Hyperparams, Learned, Trajectories
from xladder.learners.local_search import SearchDraws, refine
from xladder.replay import objects

if TYPE_CHECKING:
    from xladder.families.gflownet.config import GFlowNetConfig

BUCKET_GROWTH = 1.5  # ratio of successive bucket sizes
SMALLEST_BUCKET = 64
GPU_UNROLL = 8
SEEDS = "seeds"  # the axis over which a population is vectorised


class Counters(NamedTuple):
    """Counters that all seeds share; not mapped."""

    tick: jax.Array  # int32 []: iterations done


class TrainState(NamedTuple):
    """The rest of a run's state. For a population every leaf has a leading axis [S]."""

    key: jax.Array  # the run's root key []
    agent: Agent
    memory: objects.Objects | None  # None without replay
    found: jax.Array | None = None  # bool [M]: the modes found so far; None where the world counts none


class Metrics(NamedTuple):
    """The metrics of one iteration. float32 [S]."""

    reward: jax.Array  # mean over the objects that were sampled forwards
    loss: jax.Array
    log_z: jax.Array  # the estimate before the update
    length: jax.Array  # mean number of steps, stop included
    epsilon: jax.Array
    temperature: jax.Array
    modes_found: jax.Array  # nan where the world counts none


class Rollout(NamedTuple):
    """What sampling gives: the batch to learn from, and what it changes."""

    batch: Trajectories
    memory: objects.Objects | None
    found: jax.Array | None
    reward: jax.Array  # float32 []: mean over new objects
    explore: Explore


class Draws(NamedTuple):
    """The uniform random numbers of one iteration. (On the host: the same as NumPy arrays.)"""

    steps: Array  # float32 [T, B − O]: forward steps
    indices: Array  # float32 [O]: which objects are replayed
    back: Array  # float32 [T, O]: backward steps
    search: SearchDraws | None = None  # of B − O trajectories
    condition: Array | None = None  # if the sampler has one, float32 [B]: its place in the range; or [B, K]: weights


@dataclass(frozen=True)
class Program(Portable):
    """A GFlowNet in its world as pure functions.

    The rung chooses the layout: `mapped`, whether seeds are vectorised or run one after another; `unroll`, `compact`,
    `axis` and `dense`, see `GFlowNetLearner`.
    """

    config: GFlowNetConfig
    mapped: bool = True
    unroll: int = 1
    compact: bool = False
    axis: str | None = None
    dense: bool = False
    one_bucket: bool = False
    """Whether all updates have the largest bucket: more arithmetic, and less to compile and to decide."""
    data_parallel: DataParallel = SINGLE
    """How trajectories are sharded over devices; every device stores all objects."""

    @classmethod
    def for_platform(cls, config: GFlowNetConfig, platform: str, seeds: Sequence[int] = ()) -> Program:
        """The program laid out for a kind of device.

        On a CPU seeds run one after another, and each takes only the steps it needs: batched products use the cores no
        better than plain ones. On a GPU all seeds run vectorised.
        """
        if platform == "cpu":
            return cls(config, mapped=False, compact=True)
        return cls(config, unroll=GPU_UNROLL, dense=True)

    @property
    def learner(self) -> GFlowNetLearner:
        """The learner, sized for this world."""
        return GFlowNetLearner(self.config, self.unroll, self.compact, self.axis, self.dense)

    @property
    def buckets(self) -> tuple[int, ...]:
        """The possible numbers of rows of an update, ascending; the last fits the longest possible batch."""
        size = self.config.learner.batch_size // self.data_parallel.size
        buckets = [self.config.world.steps * size]
        least = max(SMALLEST_BUCKET, size * self.config.world.build().min_steps)
        while not self.one_bucket and buckets[-1] / BUCKET_GROWTH > least:
            buckets.append(-int(-buckets[-1] // BUCKET_GROWTH))
        return tuple(reversed(buckets))

    def init_counters(self) -> Counters:
        """The counters before the first iteration."""
        return Counters(jnp.int32(0))

    def init(self, seed: jax.Array) -> TrainState:
        """The initial state of one run; map it over seeds for a population."""
        key = keys.root(seed)
        memory = None
        if self.config.remembered:
            memory = objects.init(self.config.learner.memory, self.config.world.state_size)
        modes = self.config.world.modes_counted
        found = jnp.zeros(modes, bool) if modes else None
        return TrainState(key, self.learner.init(keys.address(key, 0, 0, Stream.INIT)), memory, found)

    def hyperparams(self) -> Hyperparams:
        """The hyperparameters in the settings."""
        return self.learner.hyperparams()

    def with_params(self, runs: TrainState, params: Params) -> TrainState:
        """A fresh population with these parameters, leaves [S, …]."""
        return runs._replace(agent=runs.agent._replace(params=params))

    def with_hyperparams(self, runs: TrainState, hyperparams: Hyperparams) -> TrainState:
        """A fresh population whose seeds have different hyperparameters, leaves [S]."""
        return runs._replace(agent=runs.agent._replace(hyperparams=hyperparams))

    def params(self, runs: TrainState) -> Params:
        """The parameters of a population, leaves [S, …]."""
        return runs.agent.params

    def tick(self, counters: Counters, runs: TrainState) -> tuple[Counters, TrainState, Metrics]:
        """One iteration of a population, leaves [S, …]."""
        if not self.mapped and runs.key.shape[0] > 1:
            return Counters(counters.tick + 1), *one_by_one(partial(self._tick_alone, counters))(runs)
        batch, memory, found, reward, explore = self.rollout_only(counters, runs)
        agent, learned = self.learn(runs.agent, batch)
        reward, learned, length = self.data_parallel.mean((reward, learned, batch.length.mean(1, dtype=jnp.float32)))
        modes = jnp.full_like(reward, jnp.nan) if found is None else found.sum(1, dtype=jnp.float32)
        metrics = Metrics(reward, learned.loss, learned.log_z, length, *explore, modes)
        return Counters(counters.tick + 1), TrainState(runs.key, agent, memory, found), metrics

    def _tick_alone(self, counters: Counters, run: TrainState) -> tuple[TrainState, Metrics]:
        _, *changed = self.tick(counters, jax.tree.map(lambda x: x[None], run))
        return jax.tree.map(lambda x: x[0], tuple(changed))

    def rollout_only(self, counters: Counters, runs: TrainState) -> Rollout:
        """A batch of trajectories per seed and the replay memories after it, without learning."""
        if runs.key.shape[0] == 1:
            return over_seeds(partial(self.sample, counters.tick), runs)
        if not self.mapped:
            return one_by_one(partial(self.sample, counters.tick))(runs)
        together = partial(replace(self, axis=SEEDS).sample, counters.tick)
        return jax.vmap(together, axis_name=SEEDS)(runs)

    def sample(self, tick: jax.Array, run: TrainState) -> Rollout:
        """One run's batch of trajectories, its replay memory, the mean reward of new objects, and ε and temperature."""
        draws, learner, params = self.draw(run.key, tick), self.learner, run.agent.params
        explore = learner.explore(run.agent.hyperparams, tick)
        new = self.config.learner.batch_size - self.config.remembered
        now, then = (
            None if draws.condition is None else learner.condition(self.data_parallel.local(part))
            for part in ((None, None) if draws.condition is None else (draws.condition[:new], draws.condition[new:]))
        )
        batch = learner.sample(params, explore, self.data_parallel.local(draws.steps, axis=1), condition=now)
        log_rewards = learner.log_rewards(learner.objects(batch))
        reward = jnp.exp(log_rewards).mean()
        if draws.search is not None:
            searched = jnp.arange(draws.steps.shape[1]) < self.config.searched
            numbers = self.data_parallel.local(draws.search, axis=-1)
            batch = refine(learner, params, batch, self.data_parallel.local(searched), numbers)[0]
            log_rewards = learner.log_rewards(learner.objects(batch))
        memory, modes = run.memory, run.found
        if modes is not None:
            near = jax.vmap(learner.world.near_modes)(self.data_parallel.gather(learner.objects(batch)))
            modes = modes | near.any(0)
        if memory is not None:
            add = objects.add_diverse if self.config.learner.replay == "diverse" else objects.add
            memory = add(memory, *self.data_parallel.gather((learner.objects(batch), log_rewards)))
            by_reward = self.config.learner.replay != "uniform"
            known = objects.sample(memory, self.data_parallel.local(draws.indices), by_reward)
            back = self.data_parallel.local(draws.back, axis=1)
            old = learner.sample_backward(params, known, back, condition=then)
            batch = Trajectories(
                jnp.concatenate([batch.states, old.states], axis=1),
                jnp.concatenate([batch.actions, old.actions], axis=1),
                jnp.concatenate([batch.length, old.length]),
                None if now is None or then is None else jnp.concatenate([now, then]),
            )
        return Rollout(batch, memory, modes, reward, explore)

    def draw(self, key: jax.Array, tick: jax.Array | int) -> Draws:
        """The random numbers of one iteration."""
        steps, old = self.config.world.steps, self.config.remembered
        new, rounds = self.config.learner.batch_size - old, self.config.learner.local_search
        at = partial(keys.address, key, tick, 0)
        search = None
        if rounds:
            shapes = (rounds, new), (rounds, steps, new), (rounds, steps, new), (rounds, new)
            parts = [jax.random.fold_in(at(Stream.SEARCH), part) for part in range(len(shapes))]
            search = SearchDraws(*map(jax.random.uniform, parts, shapes))
        condition = None
        if self.config.conditional:
            # VarGrad compares the trajectories of a batch, so they share one condition.
            count = 1 if self.config.loss == "vargrad" else new + old
            condition = self._draw_conditions(at(Stream.CONDITION), count)
            condition = jnp.broadcast_to(condition, (new + old, *condition.shape[1:]))
        return Draws(
            jax.random.uniform(at(Stream.ACT), (steps, new)),
            jax.random.uniform(at(Stream.SAMPLE), (old,)),
            jax.random.uniform(at(Stream.BACK), (steps, old)),
            search,
            condition,
        )

    def _draw_conditions(self, key: jax.Array, count: int) -> jax.Array:
        """float32 [count], uniform; or [count, K], weights that are uniform on the simplex: Dirichlet's with α = 1."""
        if not self.config.preferential:
            return jax.random.uniform(key, (count,))
        parts = jax.random.exponential(key, (count, self.config.world.num_terms))
        return parts / parts.sum(1, keepdims=True)

    def learn_one(self, agent: Agent, batch: Trajectories) -> tuple[Agent, Learned]:
        """One update of one run."""
        changed = self.learn(*jax.tree.map(lambda x: x[None], (agent, batch)))
        return jax.tree.map(lambda x: x[0], changed)

    def learn(self, agents: Agent, batch: Trajectories) -> tuple[Agent, Learned]:
        """One update per seed, leaves [S, …], in a bucket that fits the seed with the most steps.

        All seeds share the bucket: with a choice per seed, `vmap` would compute every branch.
        """
        buckets = self.buckets
        needed = batch.length.sum(1).max()
        fits = (needed > jnp.array(buckets[:-1], jnp.int32)).sum() if len(buckets) > 1 else jnp.int32(0)

        # Devices have different numbers of transitions; with the mean number, the mean of their means is that of all.
        transitions = None
        if self.config.learner.weighting == "transitions":
            transitions = self.data_parallel.mean(batch.length.sum(1).astype(jnp.float32))

        def gradient(bucket: int, one: tuple[Agent, Trajectories, jax.Array | None]) -> tuple[Params, Learned]:
            agent, trajectories, transitions = one
            return self.learner.gradient(agent, trajectories, bucket, transitions)

        branches = [partial(over_seeds, partial(gradient, bucket)) for bucket in buckets]
        gradients, learned = jax.lax.switch(fits, branches, (agents, batch, transitions))
        # Averaged outside the branch: other devices may need another bucket.
        gradients = self.data_parallel.mean(gradients)
        return over_seeds(lambda one: self.learner.update(*one), (agents, gradients)), learned
