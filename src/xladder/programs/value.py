"""One tick of a value learner in copies of its world, for XLA: *play* some steps, then *study* what is remembered.

A tick is the least play that owes a whole number of updates: a few steps of every copy and one update, or one step and
several updates. Within its last step the order is choose → study → step → remember: what is studied does not depend
on what the worlds answer, so a rung may let both happen at once, and all rungs still compute the same.

The parts of a tick are functions of their own (`choose`, `study`, `observe`, `store`): worlds on the host are stepped
between them (`value_overlapped.py`, `value_host.py`), worlds inside the program by `tick`.

Shapes: S seeds, N copies, T steps per tick, K updates per tick, F frames per state, B batch, A actions, Q fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp

from xladder.core import keys, schedules
from xladder.core.crew import ALONE, Crew
from xladder.core.keys import Stream
from xladder.core.mapping import one_by_one, over_seeds
from xladder.core.state import Portable
from xladder.core.types import Array, Params
from xladder.learners.value import Agent, Draws, Knobs, ValueLearner
from xladder.nets.heads import Head
from xladder.nets.torsos import MinAtarCnn, Mlp, NatureCnn
from xladder.nets.value import ValueNet
from xladder.replay import history, priorities
from xladder.replay.batch import Batch
from xladder.worlds.copies import Copies, Step, View

MOST_UNROLLED = 5  # updates that stand side by side on a GPU, where every turn of a loop waits for the host


class Clock(NamedTuple):
    """What all seeds share; kept off the mapped axes, so that a branch on it stays a branch."""

    tick: jax.Array  # int32 []: ticks done
    cursor: history.Cursor


class Seen(NamedTuple):
    """What N copies show."""

    stack: jax.Array  # [N, F, *frame]: the state to act in
    first: jax.Array  # bool [N]: whether its newest frame begins a game


class Score(NamedTuple):
    """What the games of N copies have come to."""

    total: jax.Array  # float32 [N]: reward of the game under way
    steps: jax.Array  # int32 [N]: its length


class Experiment(NamedTuple):
    """Everything else that a run changes. For a population every leaf has a leading axis [S]."""

    key: jax.Array  # the run's root key []
    agent: Agent
    memory: history.History
    chances: Any  # priorities.Priorities, or () where replay is uniform
    seen: Seen
    score: Score
    row: history.History  # what came of the last step, leaves [N, …]; the next step writes it into the memory
    worlds: Any  # where the copies stand

    def without_memory(self) -> Any:
        """All the rest: what plays need not carry the memory along, which XLA might then copy."""
        return self._replace(memory=(), chances=())  # type: ignore[arg-type]


class Metrics(NamedTuple):
    """What one tick reports."""

    returns: jax.Array  # float32 [S]: mean over the games that ended; nan where none did
    length: jax.Array  # float32 [S]: their mean length
    episodes: jax.Array  # int32 [S]: how many ended
    loss: jax.Array  # float32 [S]: mean over the updates; nan where nothing was learned
    epsilon: jax.Array  # float32 [S]
    updates: jax.Array  # int32 [S]


class ActDraws(NamedTuple):
    """What one choice of action of every copy draws."""

    explore: Array  # float32 [N], compared with ε
    action: Array  # int32 [N], taken when exploring
    taus: Array  # float32 [N, Q]; Q = 0 where the head needs none
    noise: Array  # float32 [N, noise_size]; empty where nothing is noisy


class StudyDraws(NamedTuple):
    """What one update draws."""

    picks: Array  # float32 [B, R, 2]: where samples start; with priorities [B, 2]
    learner: Draws


class Samples(NamedTuple):
    """What the updates of a tick learn from."""

    picks: history.Picks
    batch: Batch
    draws: Draws


@dataclass(frozen=True)
class Player(Portable):
    """Copies of a world and a network that plays in them: what every program of a value learner begins with.

    How it is laid out is the rung's choice: `mapped`, whether the seeds learn all at once; `patches`, how convolutions
    are computed; `unroll`, how many updates stand side by side in the program. `copies` are the worlds, where they are
    inside the program.
    """

    config: Any
    mapped: bool = True
    patches: bool = True
    unroll: int = 1
    copies: Copies | None = None
    crew: Crew = ALONE
    """Who the copies, their memories and the batches are shared with."""
    norm: ClassVar[bool] = False
    """Whether hidden layers are normalised."""

    @classmethod
    def laid_out(cls, config: Any, platform: str, seeds: Sequence[int] = (0,)) -> Self:
        """The program as it suits a kind of device, with the worlds inside.

        On a CPU seeds learn one after another, on a GPU all at once, with several updates between two steps of the
        loop. Convolutions are products with patches on both: XLA has no fast convolution inside a loop on a CPU, and
        on a GPU products, unlike convolutions, become one graph that is launched at once.
        """
        copies = import_module(config.world.maker).inside(config.world, seeds[0])
        return cls.for_device(config, platform, copies)

    @classmethod
    def for_device(cls, config: Any, platform: str, copies: Copies | None = None) -> Self:
        """The same with other worlds inside, or none."""
        if platform == "cpu":
            return cls(config, mapped=False, copies=copies)
        return cls(config, mapped=True, unroll=MOST_UNROLLED, copies=copies)

    def carried(self, runs: Any) -> Any:
        """What of a population is kept: all of it, but for games that only their emulators know."""
        if runs.worlds and not hasattr(runs.worlds, "handle"):
            return runs
        return runs._replace(worlds=(), seen=(), score=())

    def put_back(self, fresh: Any, kept: Any) -> Any:
        """A population that goes on from what was kept; games that were not begin anew."""
        return kept if kept.worlds else kept._replace(worlds=fresh.worlds, seen=fresh.seen, score=fresh.score)

    @property
    def view(self) -> View:
        """What the world's frames look like, and how many actions there are."""
        return import_module(self.config.world.maker).view(self.config.world)

    @property
    def learner(self) -> ValueLearner:
        """The learner, fitted to the world's frames."""
        learner = build(self.config.learner, self.view, self.config.world.stack, self.patches, self.norm)
        return replace(learner, crew=self.crew)

    def init_params(self, key: jax.Array) -> Params:
        """Parameters that know nothing, of the run with this root key."""
        state = jnp.zeros((self.config.world.stack, *self.view.shape), self.view.dtype)
        learner = self.learner
        taus = jnp.zeros((max(1, learner.fractions),), jnp.float32) if learner.fractions else None
        noise = learner.split_noise(jnp.zeros((learner.noise_size,), jnp.float32))
        return learner.net.init(keys.address(key, 0, 0, Stream.INIT), state, taus, noise)["params"]

    def open_games(self, frames: jax.Array) -> tuple[Seen, Score]:
        """What is seen and counted where every copy begins a game with these frames [N, *frame]."""
        n, view = self.config.world.num_envs, self.view
        first = jnp.ones((n,), bool)
        stack = jnp.zeros((n, self.config.world.stack, *view.shape), view.dtype)
        score = Score(jnp.zeros((n,), jnp.float32), jnp.zeros((n,), jnp.int32))
        return Seen(history.push(stack, frames, first), first), score

    def reset_keys(self, key: jax.Array) -> jax.Array:
        """Keys [N] of the copies' first games."""
        return keys.reset_keys(key, self.config.world.num_envs)

    def step_keys(self, key: jax.Array, step: jax.Array | int) -> jax.Array:
        """Keys [N] of one step of the copies."""
        return keys.step_keys(key, step, self.config.world.num_envs)

    def draw_act(self, key: jax.Array, step: jax.Array | int) -> ActDraws:
        """The draws for one choice of action of every copy."""
        c, n, learner = self.config.learner, self.config.world.num_envs, self.learner
        fractions = c.act_quantiles if learner.fractions else 0
        uniforms = jax.random.uniform(keys.address(key, step, 0, Stream.ACT), (n, 2 + fractions))
        noise = jnp.zeros((n, 0), jnp.float32)
        if learner.noise_size:
            noise = jax.random.normal(keys.address(key, step, 1, Stream.NOISE), (n, learner.noise_size))
        action = (uniforms[:, 1] * self.view.actions).astype(jnp.int32)
        return ActDraws(uniforms[:, 0], jnp.minimum(action, self.view.actions - 1), uniforms[:, 2:], noise)

    def epsilon(self, tick: Array) -> Array:
        """float32 []: how often actions are random in a tick."""
        c = self.config.learner
        step = tick * self.config.per_tick - c.explore_from
        schedule = schedules.linear if c.epsilon_schedule == "linear" else schedules.exponential
        return schedule(c.epsilon, c.epsilon_end, self.config.explore_steps, step)

    def greedy(self, params: Params, stack: jax.Array, draws: ActDraws) -> jax.Array:
        """int32 [N]: the best actions in states [N, F, …]."""
        noise = self.learner.split_noise(draws.noise) if self.learner.noise_size else None
        return jnp.argmax(self.learner.values(params, stack, draws.taus, noise), axis=-1).astype(jnp.int32)

    def watch(self, seen: Seen, score: Score, step: Step) -> tuple[Seen, Score, jax.Array, jax.Array]:
        """What is seen and counted after a step; and the total and length of each game that ended, or nan."""
        totals = jnp.where(step.first, score.total, jnp.nan)
        lengths = jnp.where(step.first, score.steps.astype(jnp.float32), jnp.nan)
        score = Score(jnp.where(step.first, 0.0, score.total + step.reward), jnp.where(step.first, 0, score.steps + 1))
        return Seen(history.push(seen.stack, step.frame, step.first), step.first), score, totals, lengths

    def reward(self, step: Step) -> jax.Array:
        """float32 [N]: what is learned from."""
        return jnp.clip(step.reward, -1.0, 1.0) if self.config.learner.clip_rewards else step.reward

    def report(self, tick: jax.Array, totals: jax.Array, lengths: jax.Array, loss: Any, updates: Any) -> Metrics:
        """The metrics of a tick, from the totals and lengths of games [S, T·N], nan where none ended."""
        seeds = totals.shape[0]
        ended = jnp.isfinite(totals)
        count = self.crew.add(ended.sum(1))

        def mean(values: jax.Array) -> jax.Array:
            # Nothing is computed with nan, so that `--debug nans` finds only those that are a fault.
            total = self.crew.add(jnp.where(ended, values, 0.0).sum(1))
            return jnp.where(count > 0, total / jnp.maximum(count, 1), jnp.nan)

        return Metrics(
            returns=mean(totals),
            length=mean(lengths),
            episodes=count,
            loss=loss,
            epsilon=jnp.broadcast_to(self.epsilon(tick), (seeds,)),
            updates=jnp.broadcast_to(updates, (seeds,)),
        )


@dataclass(frozen=True)
class Program(Player):
    """A value learner with its memory, and its world, as pure functions."""

    @property
    def window(self) -> history.Window:
        """What a sample spans."""
        c = self.config
        return history.Window(c.world.stack, c.learner.n_step, c.learner.memory // c.world.num_envs)

    def init_clock(self) -> Clock:
        """Before the first tick."""
        return Clock(jnp.int32(0), history.init_cursor())

    def init(self, seed: jax.Array) -> Experiment:
        """One fresh experiment; map it over seeds for a population."""
        assert self.copies is not None
        key = keys.root(seed)
        state, frames = self.copies.reset(self.reset_keys(key))
        return self.begin(key, frames, state)

    def init_agent(self, key: jax.Array) -> Agent:
        """An agent that knows nothing, of the run with this root key."""
        c = self.config.learner
        return self.learner.init(self.init_params(key), Knobs(jnp.float32(c.lr), jnp.float32(c.gamma)))

    def begin(self, key: jax.Array, frames: jax.Array, worlds: Any = ()) -> Experiment:
        """A fresh experiment whose worlds show these frames [N, *frame]."""
        n, view = self.config.world.num_envs, self.view
        seen, score = self.open_games(frames)
        return Experiment(
            key=key,
            agent=self.init_agent(key),
            memory=history.init(n, self.window.length, view.shape, view.dtype),
            chances=priorities.init(n, self.window.length) if self.config.learner.prioritised else (),
            seen=seen,
            score=score,
            row=jax.tree.map(lambda x: x[:, 0], history.init(n, 1, view.shape, view.dtype)),
            worlds=worlds,
        )

    def params(self, runs: Experiment) -> Params:
        """What a population has learned, leaves [S, …]."""
        return runs.agent.params

    def draw_study(self, key: jax.Array, update: jax.Array | int) -> StudyDraws:
        """The draws for one update."""
        c = self.config.learner
        sample, noise = (keys.address(key, update, 0, stream) for stream in (Stream.SAMPLE, Stream.NOISE))
        picks = (c.batch_size, 2) if c.prioritised else (c.batch_size, history.CANDIDATES, 2)
        uniforms = jax.random.uniform(jax.random.fold_in(sample, 1), picks)
        return StudyDraws(uniforms, self.learner.draw_update(sample, noise))

    def beta(self, tick: Array) -> Array:
        """float32 []: how far the bias of priorities is taken back."""
        c = self.config
        return schedules.linear(c.learner.beta, 1.0, c.agent_steps, tick * c.per_tick)

    def is_learning(self, tick: Array) -> Array:
        """bool []: whether a tick has updates."""
        return tick * self.config.per_tick >= self.config.learning_begins

    def is_syncing(self, tick: Array) -> Array:
        """bool []: whether the target network becomes the online one before a tick."""
        c = self.config
        return tick % max(1, round(c.learner.sync_every / c.per_tick)) == 0

    def choose(self, agent: Agent, seen: Seen, draws: ActDraws, epsilon: jax.Array) -> jax.Array:
        """int32 [N]: an action for every copy, random with probability ε."""
        return jnp.where(draws.explore < epsilon, draws.action, self.greedy(agent.params, seen.stack, draws))

    def observe(self, run: Experiment, actions: jax.Array, step: Step) -> tuple[Experiment, jax.Array, jax.Array]:
        """Take note of what has come of the actions. Also the total and length of each game that ended, or nan."""
        row = history.History(
            frames=run.seen.stack[:, -1],
            actions=actions.astype(jnp.int8),
            rewards=self.reward(step),
            terminated=step.terminated,
            truncated=step.truncated,
            first=run.seen.first,
        )
        seen, score, totals, lengths = self.watch(run.seen, run.score, step)
        return run._replace(row=row, seen=seen, score=score), totals, lengths

    def store(
        self, cursor: history.Cursor, memory: history.History, chances: Any, row: history.History
    ) -> tuple[history.History, Any]:
        """Write what was noted of a step into the memory."""
        memory = history.add(cursor, memory, row)
        if self.config.learner.prioritised:
            chances = priorities.admit(self.window, cursor, chances, memory.first)
        return memory, chances

    def study(self, clock: Clock, runs: Experiment) -> tuple[Experiment, jax.Array]:
        """The updates of a tick, leaves [S, …], if learning has started; and the mean loss [S]."""
        nothing = jnp.full(runs.key.shape, jnp.nan, jnp.float32)
        # Outside the branch: whatever goes into one is copied by XLA if it is changed later, and the memory is large.
        samples = self.sample(clock, runs)
        agents, chances, loss = jax.lax.cond(
            self.is_learning(clock.tick),
            lambda a, c: self.learn(clock, a, c, samples),
            lambda a, c: (a, c, nothing),
            runs.agent,
            runs.chances,
        )
        return runs._replace(agent=agents, chances=chances), loss

    def sample(self, clock: Clock, runs: Experiment) -> Samples:
        """What the updates of a tick learn from, leaves [K, S, B, …]: all batches are drawn before the first update."""
        updates, size = self.config.updates_per_tick, self.config.learner.batch_size // self.crew.size
        numbers = clock.tick * updates + jnp.arange(updates)

        def one(run: Experiment) -> Samples:
            draws = jax.vmap(lambda number: self.share(self.draw_study(run.key, number)))(numbers)
            picks = jax.vmap(lambda uniforms: self.pick(clock, run.memory, run.chances, uniforms))(draws.picks)
            flat = jax.tree.map(lambda x: x.reshape(updates * size), picks)
            batch = history.cut(self.window, run.memory, flat, run.agent.knobs.gamma)
            batches = jax.tree.map(lambda x: x.reshape(updates, size, *x.shape[1:]), batch)
            return Samples(picks, batches, draws.learner)

        # Mapped even for one seed: to take the memory out of its axis and put it back, XLA would copy it.
        return jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), jax.vmap(one)(runs._replace(worlds=())))

    def share(self, draws: StudyDraws) -> StudyDraws:
        """This one's part of the draws of an update; noise is that of the network, which all have."""
        learner = draws.learner._replace(taus=self.crew.mine(draws.learner.taus, axis=1))
        return StudyDraws(self.crew.mine(draws.picks), learner)

    def sync(self, agents: Agent, tick: jax.Array) -> Agent:
        """The hard update of the target networks, leaves [S, …], if it is due before a tick."""
        due = self.is_syncing(tick)
        if not self.mapped:
            return self.learner.sync(agents, due)
        # On a GPU a branch would wait for the host; writing all of it costs less.
        target = jax.tree.map(lambda p, t: jnp.where(due, p, t), agents.params, agents.target)
        return agents._replace(target=target)

    def learn(self, clock: Clock, agents: Agent, chances: Any, samples: Samples) -> tuple[Agent, Any, jax.Array]:
        """All updates of a tick in which learning has started, leaves [S, …], and what is then known of the rows."""
        agents, losses, errors = self.improve(clock.tick, agents, samples)
        if self.config.learner.prioritised:
            rated = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), (samples.picks, errors))  # [S, K, B]
            flat = jax.tree.map(lambda x: x.reshape(x.shape[0], -1), rated)
            chances = over_seeds(lambda one: self.rate(*one), (chances, *flat))
        return agents, chances, losses.mean(0)

    def improve(self, tick: jax.Array, agents: Agent, samples: Samples) -> tuple[Agent, jax.Array, jax.Array]:
        """The updates themselves, and the hard update before them. Also the losses [K, S] and errors [K, S, B]."""
        if self.config.learner.sync_every:
            agents = self.sync(agents, tick)
        map_over = jax.vmap if self.mapped else one_by_one

        def one(agents: Agent, given: tuple[Batch, Draws]) -> tuple[Agent, tuple[jax.Array, jax.Array]]:
            if agents.knobs.lr.shape[0] == 1:
                alone = self.learner.update(*jax.tree.map(lambda x: x[0], (agents, *given)))
                agents, *said = jax.tree.map(lambda x: x[None], alone)
            else:
                agents, *said = map_over(lambda one: self.learner.update(*one))((agents, *given))
            return agents, tuple(said)

        if self.config.updates_per_tick == 1:
            agents, said = one(agents, jax.tree.map(lambda x: x[0], samples[1:]))
            losses, errors = jax.tree.map(lambda x: x[None], said)
        else:
            agents, (losses, errors) = jax.lax.scan(one, agents, samples[1:], unroll=self.unroll)
        return agents, losses, errors

    def pick(self, clock: Clock, memory: history.History, chances: Any, uniforms: jax.Array) -> history.Picks:
        """Where the samples of an update start."""
        if not self.config.learner.prioritised:
            strata = self.config.learner.strata // self.crew.size
            return history.choose(self.window, clock.cursor, memory, uniforms, strata)
        even = jnp.stack([priorities.stratified(uniforms[:, 0]), uniforms[:, 1]], axis=1)
        return priorities.choose(chances, even, self.beta(clock.tick))

    def rate(self, chances: Any, picks: history.Picks, errors: jax.Array) -> Any:
        """Priorities by how far off the predictions were."""
        alpha = jnp.float32(self.config.learner.alpha)
        return priorities.assign(chances, picks, priorities.from_errors(errors, alpha))

    def tick(self, clock: Clock, runs: Experiment) -> tuple[Clock, Experiment, Metrics]:
        """One tick of a population, leaves [S, …].

        A step begins by writing down what came of the one before: then the memory is read after it is written, and
        never the other way round, which would make XLA copy all of it.
        """
        first, before = clock.tick * self.config.steps_per_tick, self.config.steps_per_tick - 1

        def play(carry: tuple[history.Cursor, Experiment], step: jax.Array) -> tuple:
            cursor, runs = self._store(carry[0], carry[1], step)
            runs, ended = self._step(runs, self._choose(clock.tick, step, runs), step)
            return (cursor, runs), ended

        carry: Any = clock.cursor, runs
        earlier: Any = None
        if before:
            carry, earlier = jax.lax.scan(play, carry, first + jnp.arange(before))  # [T − 1, S, N]
        cursor, runs = self._store(carry[0], carry[1], first + before)
        actions = self._choose(clock.tick, first + before, runs)
        runs, loss = self.study(Clock(clock.tick, cursor), runs)
        runs, ended = self._step(runs, actions, first + before)
        if before:
            ended = jax.tree.map(lambda x, y: jnp.concatenate([*jnp.unstack(x), y], axis=1), earlier, ended)
        updates = jnp.where(self.is_learning(clock.tick), self.config.updates_per_tick, 0)
        return Clock(clock.tick + 1, cursor), runs, self.report(clock.tick, *ended, loss, updates)

    def store_all(self, cursor: history.Cursor, runs: Experiment) -> Experiment:
        """The row of every seed's last step, into its memory."""
        memory, chances = jax.vmap(lambda *run: self.store(cursor, *run))(runs.memory, runs.chances, runs.row)
        return runs._replace(memory=memory, chances=chances)

    def _store(self, cursor: history.Cursor, runs: Experiment, step: jax.Array) -> tuple[history.Cursor, Experiment]:
        """The same, and the cursor after it. Before the first step there is no row to keep."""
        after = history.advance(cursor, self.window.length)
        moved = jax.tree.map(lambda new, old: jnp.where(step > 0, new, old), after, cursor)
        if self.mapped:
            return moved, self.store_all(cursor, runs)
        # As a loop, of one turn or none: nothing is fused across its border. Where it can, XLA on a CPU fuses writing a
        # row with reading the memory, does it twice, and copies all of it for that.
        rest = runs.without_memory()

        def write(_: jax.Array, held: tuple[history.History, Any]) -> tuple[history.History, Any]:
            stored = self.store_all(cursor, rest._replace(memory=held[0], chances=held[1]))
            return stored.memory, stored.chances

        times = (step > 0).astype(jnp.int32)
        memory, chances = jax.lax.fori_loop(0, times, write, (runs.memory, runs.chances))
        return moved, runs._replace(memory=memory, chances=chances)

    def _choose(self, tick: jax.Array, step: jax.Array, runs: Experiment) -> jax.Array:
        """int32 [S, N]: what every seed does in a step."""
        epsilon, playing = self.epsilon(tick), runs.without_memory()

        def one(run: Experiment) -> jax.Array:
            return self.choose(run.agent, run.seen, self.crew.mine(self.draw_act(run.key, step)), epsilon)

        return over_seeds(one, playing)

    def _step(
        self, runs: Experiment, actions: jax.Array, step: jax.Array
    ) -> tuple[Experiment, tuple[jax.Array, jax.Array]]:
        """One step of every copy of every seed; and what the games that ended came to, [S, N] each."""

        def one(given: tuple[Experiment, jax.Array]) -> tuple[Experiment, jax.Array, jax.Array]:
            assert self.copies is not None
            run, actions = given
            worlds, answer = self.copies.step(self.crew.mine(self.step_keys(run.key, step)), run.worlds, actions)
            return self.observe(run._replace(worlds=worlds), actions, answer)

        memory, chances = runs.memory, runs.chances
        runs, *ended = over_seeds(one, (runs.without_memory(), actions))
        return runs._replace(memory=memory, chances=chances), (ended[0], ended[1])

    def rehearse(self, clock: Clock, runs: Experiment) -> Any:
        """The play of a tick without learning from it: what is seen then."""
        first = clock.tick * self.config.steps_per_tick
        for t in range(self.config.steps_per_tick):
            runs, _ = self._step(runs, self._choose(clock.tick, first + t, runs), first + t)
        return runs.seen, runs.score, runs.row


@cache
def build(config: Any, view: View, stack: int, patches: bool = True, norm: bool = False) -> ValueLearner:
    """The learner that the settings describe, for a world's frames; with `norm`, hidden layers are normalised."""
    dtype = jnp.bfloat16 if config.precision == "bfloat16" else jnp.float32
    torso: Any
    if config.torso == "nature":
        torso = NatureCnn(norm, patches=patches, dtype=dtype)
    elif config.torso == "minatar":
        torso = MinAtarCnn(norm, patches=patches, dtype=dtype, brightest=view.brightest)
    else:
        torso = Mlp(config.hidden, norm, dtype=dtype, brightest=view.brightest)
    example = jax.ShapeDtypeStruct((stack, *view.shape), view.dtype)
    features = jax.eval_shape(lambda x: torso.init_with_output(jax.random.key(0), x)[0], example).shape[-1]
    head = Head(
        actions=view.actions,
        features=features,
        width=config.width,
        atoms={"categorical": config.atoms, "quantile": config.quantiles}.get(config.head, 1),
        cosines=config.cosines if config.head == "implicit" else 0,
        dueling=config.dueling,
        sigma=config.sigma if config.noisy else None,
        norm=norm,
        dtype=dtype,
    )
    return ValueLearner(config, ValueNet(torso, head))
