"""Envs of a world and a network that acts in them: the base of every value learner's program.

Shapes: S seeds, N envs, T steps per tick, F frames per state, A actions, Q fractions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys, schedules
from xladder.core.data_parallel import SINGLE, DataParallel
from xladder.core.keys import Stream
from xladder.core.mapping import over_seeds
from xladder.core.state import Portable
from xladder.core.types import Array, Params
from xladder.families.value import own_torsos
from xladder.families.value.config import ValueConfig
from xladder.families.value.learner_config import LearnerConfig
from xladder.families.value.torsos import BYTE, PICTURE_AXES, is_own
from xladder.learners.recurrent import RecurrentLearner
from xladder.learners.value import ValueLearner
from xladder.losses.heads import make_head
from xladder.nets.fields import unflatten
from xladder.nets.heads import Head
from xladder.nets.normaliser import Normaliser, Scaling, merge
from xladder.nets.recurrent import Gru, RecurrentNet
from xladder.nets.team import TeamNet
from xladder.nets.torsos import MinAtarCnn, Mlp, NatureCnn
from xladder.nets.value import ValueNet
from xladder.replay import history
from xladder.worlds.envs import Envs, EnvSpec, Step, available


class Seen(NamedTuple):
    """The observations of N envs."""

    stack: jax.Array  # [N, F, *frame]: the state to act in
    is_first: jax.Array  # bool [N]: whether its newest frame begins an episode
    hidden: Any = ()  # float32 [N, H]: the network's state before that frame; () for a network without memory


class Choice(NamedTuple):
    """What N envs are to do."""

    actions: Array  # int32 [N], or [N, team]
    hidden: Any = ()  # float32 [N, H]: the network's state after the choice; () for a network without memory


class EpisodeTotals(NamedTuple):
    """Return and length so far of the episodes of N envs."""

    total: jax.Array  # float32 [N]: the return so far
    steps: jax.Array  # int32 [N]: its length


class Metrics(NamedTuple):
    """The metrics of one tick."""

    returns: jax.Array  # float32 [S]: mean over the episodes that ended; nan where none did
    length: jax.Array  # float32 [S]: their mean length
    episodes: jax.Array  # int32 [S]: how many ended
    loss: jax.Array  # float32 [S]: mean over the updates; nan where nothing was learned
    epsilon: jax.Array  # float32 [S]
    updates: jax.Array  # int32 [S]


class AgentMetrics(NamedTuple):
    """The metrics of one tick with several agents in one world."""

    returns: jax.Array  # float32 [S]: the sum over agents of each one's mean return; nan where no episode ended
    agent_returns: jax.Array  # float32 [S, A]
    length: jax.Array  # float32 [S]: mean over agents
    episodes: jax.Array  # int32 [S]
    loss: jax.Array  # float32 [S]: mean over agents and updates
    epsilon: jax.Array  # float32 [S]
    updates: jax.Array  # int32 [S], of each agent


class ActDraws(NamedTuple):
    """The random numbers of one action selection in every env."""

    explore: Array  # float32 [N], or [N, team], like `action`; compared with ε
    action: Array  # int32 [N], taken when exploring; where some are not available, a uniform number instead
    taus: Array  # float32 [N, Q]; Q = 0 where the head needs none
    noise: Array  # float32 [N, noise_size]; empty where nothing is noisy


@dataclass(frozen=True)
class ActingProgram(Portable):
    """Base class: a network that acts in envs of a world.

    The rung chooses the layout: `mapped`, whether seeds are vectorised; `patches`, how convolutions are computed;
    `envs` are the worlds, if they are inside the program.
    """

    config: ValueConfig
    mapped: bool = True
    patches: bool = True
    envs: Envs | None = None
    data_parallel: DataParallel = SINGLE
    """How envs, replay memories and batches are sharded over devices."""
    norm: ClassVar[bool] = False
    """Whether hidden layers are normalised."""

    @classmethod
    def for_platform(cls, config: ValueConfig, platform: str, seeds: Sequence[int] = (0,)) -> Self:
        """The program laid out for a kind of device, with the worlds inside.

        On a CPU seeds learn one after another; on a GPU all at once. Convolutions are matrix products over patches on
        both: XLA has no fast convolution inside a loop on a CPU, and on a GPU products, unlike convolutions, are
        captured in one graph that is launched at once.
        """
        envs = config.world.inside(seeds[0])
        return cls.for_device(config, platform, envs)

    @classmethod
    def for_device(cls, config: ValueConfig, platform: str, envs: Envs | None = None) -> Self:
        """The program laid out for a kind of device, with the given worlds inside, or none."""
        if platform == "cpu":
            return cls(config, mapped=False, envs=envs)
        return cls(config, mapped=True, envs=envs)

    def carried(self, runs: Any) -> Any:
        """The part of a population that a checkpoint holds: all but env states that only an emulator has."""
        if runs.worlds and not hasattr(runs.worlds, "handle"):
            return runs
        return runs._replace(worlds=(), seen=(), score=())

    def put_back(self, fresh: Any, kept: Any) -> Any:
        """A population resumed from a checkpoint; envs without a saved state start new episodes."""
        return kept if kept.worlds else kept._replace(worlds=fresh.worlds, seen=fresh.seen, score=fresh.score)

    @property
    def spec(self) -> EnvSpec:
        """The shape and dtype of the world's frames, and the number of actions."""
        return self.config.world.spec()

    @property
    def learner(self) -> ValueLearner:
        """The learner, sized for the world's frames."""
        c = self.config
        learner = build(c.learner, self.spec, c.world.stack, self.patches, self.norm, c.world.scaling)
        return replace(learner, data_parallel=self.data_parallel)

    @property
    def num_agents(self) -> int:
        """Number of agents that learn independently in one world."""
        return max(1, len(self.spec.agents))

    def as_rows(self, runs: Any) -> Any:
        """A population [S, A, …] with seeds and agents on one axis, [S·A, …]; the worlds stay [S, …]."""
        if not self.spec.agents:
            return runs
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), runs._replace(worlds=()))._replace(
            worlds=runs.worlds
        )

    def from_rows(self, rows: Any) -> Any:
        """The inverse of `as_rows`."""
        if not self.spec.agents:
            return rows
        split = jax.tree.map(lambda x: x.reshape(-1, self.num_agents, *x.shape[1:]), rows._replace(worlds=()))
        return split._replace(worlds=rows.worlds)

    def step_worlds(self, key: jax.Array, worlds: Any, actions: jax.Array, step: jax.Array) -> tuple[Any, Step]:
        """Step every world [S, …], with keys [S·A] and actions [S·A, N]. The results have leaves [S·A, N, …]."""
        assert self.envs is not None
        envs = self.envs

        def one(given: tuple[jax.Array, Any, jax.Array]) -> tuple[Any, Step]:
            key, world, actions = given
            return envs.step(self.data_parallel.local(self.step_keys(key, step)), world, actions)

        if not self.spec.agents:
            return over_seeds(one, (key, worlds, actions))
        agents = self.num_agents
        by_seed = actions.reshape(-1, agents, *actions.shape[1:])
        worlds, answers = over_seeds(one, (key[::agents], worlds, by_seed))
        return worlds, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), answers)

    def force_actions(self, worlds: Any, actions: jax.Array) -> jax.Array:
        """int32 [S·A, N]: the actions that will be taken, where worlds [S, …] may force some."""
        force = getattr(self.envs, "force", None)
        return actions if force is None else over_seeds(lambda one: force(*one), (worlds, actions))

    def fresh_params(self, seed: jax.Array) -> Params:
        """The parameters of one fresh run, leaves […], or [A, …]."""
        key = keys.root(seed)
        if not self.spec.agents:
            return self.init_params(key)
        return jax.vmap(self.init_params)(keys.of_agents(key, self.num_agents))

    def init_params(self, key: jax.Array) -> Params:
        """Freshly initialised parameters, for the run with this root key."""
        state = jnp.zeros((self.config.world.stack, *self.spec.seen), self.spec.dtype)
        learner = self.learner
        taus = jnp.zeros((max(1, learner.fractions),), jnp.float32) if learner.fractions else None
        noise = learner.split_noise(jnp.zeros((learner.noise_size,), jnp.float32))
        return learner.net.init(keys.address(key, 0, 0, Stream.INIT), state, taus, noise)["params"]

    def open_games(self, frames: jax.Array) -> tuple[Seen, EpisodeTotals]:
        """Observations and totals at the start of an episode in every env, with these frames [N, *frame]."""
        n, spec = frames.shape[0], self.spec
        is_first = jnp.ones((n,), bool)
        stack = jnp.zeros((n, self.config.world.stack, *spec.shape), spec.dtype)
        score = EpisodeTotals(jnp.zeros((n,), jnp.float32), jnp.zeros((n,), jnp.int32))
        return Seen(history.push(stack, frames, is_first), is_first, self.no_memories(n)), score

    def no_memories(self, rows: int) -> Any:
        """float32 [N, H]: the network's state where an episode begins; () for a network without memory."""
        width = self.config.hidden_width
        return jnp.zeros((rows, width), jnp.float32) if width else ()

    def reset_keys(self, key: jax.Array) -> jax.Array:
        """Keys [N] of the envs' first episodes."""
        return keys.reset_keys(key, self.config.world.rows)

    def step_keys(self, key: jax.Array, step: jax.Array | int) -> jax.Array:
        """Keys [N] of one step of the envs."""
        return keys.step_keys(key, step, self.config.world.rows)

    def draw_act(self, key: jax.Array, step: jax.Array | int) -> ActDraws:
        """The random numbers for one action selection in every env.

        With `explore_repeat`, whether to explore and how is drawn once for so many steps, as in Dabney et al. 2021
        (Temporally-extended ε-greedy exploration), whose durations are random where these are fixed.
        """
        c, n, learner = self.config.learner, self.config.world.rows, self.learner
        fractions = c.act_quantiles if learner.fractions else 0
        shape = n, *self.spec.choices
        uniforms = jax.random.uniform(keys.address(key, step, 0, Stream.ACT), (*shape, 2 + fractions))
        if c.explore_repeat > 1:
            held = jax.random.uniform(keys.address(key, step // c.explore_repeat, 2, Stream.ACT), (*shape, 2))
            uniforms = jnp.concatenate([held, uniforms[..., 2:]], axis=-1)
        noise = jnp.zeros((n, 0), jnp.float32)
        if learner.noise_size:
            noise = jax.random.normal(keys.address(key, step, 1, Stream.NOISE), (n, learner.noise_size))
        return self.act_draws(uniforms, noise)

    def act_draws(self, uniforms: jax.Array, noise: jax.Array) -> ActDraws:
        """The random numbers of an action selection, from uniform ones [N, 2 + Q]."""
        explore, action, taus = uniforms[..., 0], uniforms[..., 1], uniforms[..., 2:]
        if not self.spec.masked:
            action = jnp.minimum((action * self.spec.actions).astype(jnp.int32), self.spec.actions - 1)
        return ActDraws(explore, action, taus, noise)

    def epsilon(self, tick: Array, hyperparams: Any = None) -> Array:
        """float32 […]: ε in a tick, for hyperparameters […]; those of the settings if not given."""
        c = self.config.learner
        step = tick * self.config.per_tick - c.explore_from
        schedule = schedules.linear if c.epsilon_schedule == "linear" else schedules.exponential
        if hyperparams is None:
            return schedule(c.epsilon, c.epsilon_end, self.config.explore_steps, step)
        return schedule(hyperparams.epsilon, hyperparams.epsilon_end, hyperparams.explore_steps, step)

    def with_params(self, runs: Any, params: Params) -> Any:
        """A fresh population with these parameters, leaves [S, …], in online and target networks."""
        agent = runs.agent._replace(params=params)
        if hasattr(agent, "target"):
            agent = agent._replace(target=jax.tree.map(jnp.copy, params))
        return runs._replace(agent=agent)

    def with_hyperparams(self, runs: Any, hyperparams: Any) -> Any:
        """A fresh population whose seeds have different hyperparameters, leaves [S]."""
        if self.spec.agents:
            hyperparams = jax.tree.map(lambda x: jnp.repeat(x[:, None], self.num_agents, axis=1), hyperparams)
        return runs._replace(agent=runs.agent._replace(hyperparams=hyperparams))

    def with_frames(self, agent: Any, frames: jax.Array, data_parallel: DataParallel = SINGLE) -> Any:
        """The agent after frames [N, *frame] of training; unchanged unless running statistics normalise them.

        Online and target networks have the same statistics.
        """
        if self.config.world.scaling is None:
            return agent
        seen, _ = self.learner.split_mask(frames[:, None])
        found = merge(agent.params["normaliser"], seen[:, 0], data_parallel)
        agent = agent._replace(params=agent.params | {"normaliser": found})
        if not hasattr(agent, "target"):
            return agent
        # A copy, not an alias: a donated state must not hold one buffer twice.
        return agent._replace(target=agent.target | {"normaliser": jax.tree.map(jnp.copy, found)})

    def explore(self, greedy: jax.Array, stack: jax.Array, draws: ActDraws, epsilon: jax.Array) -> jax.Array:
        """int32 [N]: the greedy actions in states [N, F, …], or with probability ε random ones.

        Random actions are uniform over those that are available.
        """
        random = draws.action
        if self.spec.masked:
            random = random_available(available(self.spec, stack[:, -1]), random)
        return jnp.where(draws.explore < epsilon, random, greedy)

    def is_idle(self, step: Step) -> jax.Array:
        """bool [N]: whether an action had no effect, because the episode was over, or for an absent agent."""
        return step.is_first | (step.terminated & step.truncated)

    def greedy(self, params: Params, stack: jax.Array, hidden: Any, draws: ActDraws) -> Choice:
        """The greedy actions in states [N, F, …], after hidden states [N, H]; () for a network without memory."""
        noise = self.learner.split_noise(draws.noise) if self.learner.noise_size else None
        values, hidden = self.learner.act(params, stack, hidden, draws.taus, noise)
        return Choice(jnp.argmax(values, axis=-1).astype(jnp.int32), hidden)

    def watch(
        self, seen: Seen, score: EpisodeTotals, step: Step, hidden: Any = ()
    ) -> tuple[Seen, EpisodeTotals, jax.Array, jax.Array]:
        """Observations and totals after a step, and the return and length of each episode that ended, or nan.

        `hidden` is the network's state after the choice, which is forgotten where an episode begins.
        """
        totals = jnp.where(step.is_first, score.total, jnp.nan)
        lengths = jnp.where(step.is_first, score.steps.astype(jnp.float32), jnp.nan)
        longer = score.steps + 1
        if self.spec.absences:
            longer = jnp.where(step.terminated & step.truncated, score.steps, longer)
        score = EpisodeTotals(
            jnp.where(step.is_first, 0.0, score.total + step.reward), jnp.where(step.is_first, 0, longer)
        )
        kept = jax.tree.map(lambda x: jnp.where(step.is_first[:, None], 0.0, x), hidden)
        return Seen(history.push(seen.stack, step.frame, step.is_first), step.is_first, kept), score, totals, lengths

    def reward(self, step: Step) -> Array:
        """float32 [N]: the rewards to learn from, clipped and scaled if so configured."""
        c = self.config.learner
        reward = step.reward.clip(-1.0, 1.0) if c.clip_rewards else step.reward
        return reward if c.reward_scale == 1.0 else reward * np.float32(c.reward_scale)

    def report(
        self, tick: jax.Array, hyperparams: Any, totals: jax.Array, lengths: jax.Array, loss: Any, updates: Any
    ) -> Metrics | AgentMetrics:
        """The metrics of a tick, from returns and lengths of episodes [S·A, T·N], nan where none ended."""
        rows = totals.shape[0]
        ended = jnp.isfinite(totals)
        count = self.data_parallel.add(ended.sum(1))

        def mean(values: jax.Array) -> jax.Array:
            # Nothing is computed from nan, so that `--debug nans` finds only real faults.
            total = self.data_parallel.add(jnp.where(ended, values, 0.0).sum(1))
            return jnp.where(count > 0, total / jnp.maximum(count, 1), jnp.nan)

        epsilon, updates = self.epsilon(tick, hyperparams), jnp.broadcast_to(updates, (rows,))
        if not self.spec.agents:
            return Metrics(mean(totals), mean(lengths), count, loss, epsilon, updates)
        by_agent = partial(jnp.reshape, shape=(-1, self.num_agents))
        returns, each = by_agent(mean(totals)), by_agent(count)
        return AgentMetrics(
            returns=returns.sum(1),
            agent_returns=returns,
            length=by_agent(mean(lengths)).mean(1),
            episodes=each[:, 0],  # an episode ends for all agents together
            loss=by_agent(loss).mean(1),
            epsilon=by_agent(epsilon)[:, 0],
            updates=by_agent(updates)[:, 0],
        )


def random_available(available: jax.Array, uniforms: jax.Array) -> jax.Array:
    """int32 [N, …]: uniformly random actions among those available, bool [N, …, K]."""
    ranks = jnp.cumsum(available, axis=-1, dtype=jnp.int32)
    rank = jnp.minimum((uniforms * ranks[..., -1]).astype(jnp.int32), ranks[..., -1] - 1)
    return jnp.argmax(available & (ranks == rank[..., None] + 1), axis=-1).astype(jnp.int32)


@cache
def build(
    config: LearnerConfig,
    spec: EnvSpec,
    stack: int,
    patches: bool = True,
    norm: bool = False,
    scaling: tuple[float, float] | None = None,
) -> ValueLearner:
    """Build the learner for a world's frames; with `norm`, hidden layers are normalised, with `scaling`, its inputs."""
    team, shared, spec = spec.team, spec.shared, spec.of_one
    dtype = jnp.bfloat16 if config.precision == "bfloat16" else jnp.float32
    torso: Any
    if is_own(config.torso):
        torso = own_torsos.make(config.torso)
    elif config.torso in ("nature", "nature_same"):
        padded, colour = config.torso == "nature_same", len(spec.shape) == PICTURE_AXES
        bright = spec.max_value if colour else BYTE
        torso = NatureCnn(norm, patches=patches, dtype=dtype, padded=padded, colour=colour, max_value=bright)
    elif config.torso == "minatar":
        torso = MinAtarCnn(norm, patches=patches, dtype=dtype, max_value=spec.max_value)
    else:
        torso = Mlp(config.hidden, norm, dtype=dtype, max_value=spec.max_value)
    fields = spec.fields if getattr(torso, "by_key", False) else ()
    example = jax.ShapeDtypeStruct((stack, *spec.seen), spec.dtype)

    def features(state: jax.Array) -> Any:
        return torso.init_with_output(jax.random.key(0), unflatten(state, fields) if fields else state)[0]

    kind, width = make_head(config), config.recurrent
    head = Head(
        actions=spec.actions,
        features=width or jax.eval_shape(features, example).shape[-1],
        width=config.width,
        atoms=kind.outputs,
        cosines=kind.cosines,
        dueling=config.dueling,
        apart=config.streams == "apart",
        sigma=config.sigma if config.noisy else None,
        norm=norm,
        dtype=dtype,
    )
    axes = len(spec.shape)
    given = fields, Normaliser(spec.seen, Scaling(*scaling)) if scaling else None
    net: Any = RecurrentNet(torso, Gru(width, dtype), head, *given) if width else ValueNet(torso, head, *given)
    if team:
        net = TeamNet(net, team, shared, axes)
    learner = RecurrentLearner if width else ValueLearner
    return learner(config, net, masked=spec.masked * axes, team=team)
