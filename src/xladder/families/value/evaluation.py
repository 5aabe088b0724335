"""Evaluation of value learners: whole episodes without learning, in separate envs with separate random keys.

Every env plays the same number of episodes, because short ones would be over-represented otherwise. ε is the
protocol's; an episode begins with an empty frame stack.

Shapes: S seeds, E episodes, N envs, F frames per state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys
from xladder.core.mapping import over_seeds, pick
from xladder.core.statistics import mean_and_interval
from xladder.core.types import Compiled, Params
from xladder.families.value.acting import Choice
from xladder.families.value.advice import advise
from xladder.families.value.config import ValueConfig
from xladder.families.value.stepping import Stepper, Transition
from xladder.learners.value import midpoints
from xladder.policy import Observation, RecurrentPolicy, ValuePolicy
from xladder.worlds.envs import Envs

AT_ONCE = 32  # parallel episodes


class Measurement(NamedTuple):
    """The result of an evaluation during training."""

    columns: Mapping[str, np.ndarray]
    pictures: None = None


class EvaluatedEpisodes(NamedTuple):
    """Returns of the evaluated episodes."""

    returns: np.ndarray  # float [E, A]: per agent; A = 1 for a single agent
    left: int  # how many episodes were abandoned because they did not end

    def mean(self) -> float:
        """The mean over episodes of the return, summed over agents."""
        return float(self.returns.sum(1).mean())


def measure(config: ValueConfig, params: Params, tick: int, compiled: Compiled) -> Measurement:
    """The mean return of every seed's agents, leaves [S, …], over a few episodes with the same seeds every time."""
    results = run_all_seeds(config, params, config.evaluate_episodes, 0, compiled, config.evaluate_epsilon)
    return Measurement({"eval_return": np.array([one.mean() for one in results], np.float32)})


def score(config: ValueConfig, params: Params, episodes: int, seed: int, compiled: Compiled) -> dict[str, Any]:
    """Run `episodes` with every seed's agents, and with random actions for comparison.

    There are fewer episodes if some do not end: in the result, `episodes` is their actual number and `unfinished` how
    many were abandoned. With one seed the interval is over episodes, with several over the seeds' means. Returns are
    summed over agents. With several agents, `against_random` has the return of each while all others act at random: if
    agents compete, the sum says little about what they have learned.
    """
    seeds = jax.tree.leaves(params)[0].shape[0]
    epsilon = config.evaluate_epsilon
    results = run_all_seeds(config, params, episodes, seed, compiled, epsilon)
    totals = [one.returns.sum(1) for one in results]
    mean, interval = mean_and_interval(np.array([total.mean() for total in totals]) if seeds > 1 else totals[0])
    first = jax.tree.map(lambda leaf: leaf[:1], params)
    by_chance = run_all_seeds(config, first, episodes, seed, compiled, 1.0)[0]
    chance, chance_interval = mean_and_interval(by_chance.returns.sum(1))
    found = {
        "mean_return": float(mean),
        "ci95": float(interval),
        "per_seed": [float(total.mean()) for total in totals],
        "median_return": float(np.median(np.concatenate(totals))),
        "per_agent": [float(x) for x in np.mean([one.returns.mean(0) for one in results], axis=0)],
        "episodes": min(len(total) for total in totals),
        "unfinished": sum(one.left for one in results),
        "seeds": seeds,
        "epsilon": epsilon,
        "random_return": float(chance),
        "random_ci95": float(chance_interval),
    }
    if advice := advise(config, float(mean), float(interval), float(chance), float(chance_interval)):
        found["advice"] = advice
    if config.world.agents:
        found["agents"] = list(config.world.agents)
        found["random_per_agent"] = [float(x) for x in by_chance.returns.mean(0)]
        found["against_random"] = against_random(config, params, episodes, seed, compiled)
    return found


def against_random(config: ValueConfig, params: Params, episodes: int, seed: int, compiled: Compiled) -> list[float]:
    """The mean return, over all seeds, of every agent while all others act at random."""
    seeds, agents = jax.tree.leaves(params)[0].shape[0], len(config.world.agents)
    found = np.zeros((seeds, agents))
    for s in range(seeds):
        for agent in range(agents):
            epsilons = np.where(np.arange(agents) == agent, config.evaluate_epsilon, 1.0)
            found[s, agent] = (
                run_episodes(config, pick(params, s), episodes, seed, compiled, epsilons).returns[:, agent].mean()
            )
    return [float(x) for x in found.mean(0)]


def run_all_seeds(
    config: ValueConfig, params: Params, episodes: int, seed: int, compiled: Compiled, epsilon: float
) -> list[EvaluatedEpisodes]:
    """Run the same episodes with the agents of every seed, leaves [S, …].

    A world that is pure JAX is stepped inside one program for all seeds, unless agents share it.
    """
    if not config.world.jittable or config.world.agents or config.world.rows != config.world.num_envs:
        seeds = range(jax.tree.leaves(params)[0].shape[0])
        return [run_episodes(config, pick(params, s), episodes, seed, compiled, epsilon) for s in seeds]
    num_envs = min(episodes, AT_ONCE)
    worlds = config.world.on_host(num_envs, _apart(seed), compiled)
    task = EvaluationTask(config.family.program(config), worlds.envs, -(-episodes // num_envs), config.longest_game)
    key = keys.evaluation(seed)
    found = compiled(_run_program)(task, params, worlds.root, key, np.float32(epsilon))
    every = zip(*(np.asarray(leaf) for leaf in found), strict=True)
    return [_kept(returns, finished, under_way, episodes) for returns, finished, under_way in every]


class EvaluationTask(NamedTuple):
    """What an evaluation inside a program is compiled for."""

    program: Any
    envs: Envs
    quota: int
    """Episodes of each env."""
    longest: int
    """Steps after which an episode is abandoned."""


class EpisodesOfSeeds(NamedTuple):
    """The episodes of every seed."""

    returns: jax.Array  # float32 [S, N, Q]: of each env's episodes, in their order
    finished: jax.Array  # int32 [S, N]: how many ended
    under_way: jax.Array  # float32 [S, N]: the return so far of the episode that has not ended


def _run_program(
    task: EvaluationTask, params: Params, world: jax.Array, key: jax.Array, epsilon: jax.Array
) -> EpisodesOfSeeds:
    """Step the envs of all seeds until each env has its episodes, or its current one is too long."""
    program, envs, n = task.program, task.envs, task.envs.num_envs
    seeds = jax.tree.leaves(params)[0].shape[0]
    state, frames = envs.reset(keys.reset_keys(world, n))
    begun = state, *program.open_games(frames)

    def step_all(step: jax.Array, playing: Any) -> tuple[Any, jax.Array]:
        """One step of every env. Returns the returns [S, N] of episodes that ended, nan where none did."""
        step_keys = keys.step_keys(world, step, n)

        def one(given: Any) -> tuple[Any, jax.Array]:
            params, (state, seen, score) = given
            choice = _choose(program, params, seen.stack, seen.hidden, key, step, epsilon)
            state, answer = envs.step(step_keys, state, choice.actions)
            seen, score, totals, _ = program.watch(seen, score, answer, choice.hidden)
            return (state, seen, score), totals

        return over_seeds(one, (params, playing))

    def body(carry: Any) -> Any:
        step, playing, found, since, active = carry
        playing, totals = step_all(step, playing)
        ended = jnp.isfinite(totals)
        place = jax.nn.one_hot(found.finished, task.quota, dtype=bool) & (ended & active[:, None])[..., None]
        since = jnp.where(ended, 0, since + 1)
        count = found.finished + (ended & active[:, None])
        found = EpisodesOfSeeds(
            returns=jnp.where(place, jnp.where(ended, totals, 0.0)[..., None], found.returns),
            finished=count,
            under_way=jnp.where(active[:, None], playing[2].total, found.under_way),
        )
        return step + 1, playing, found, since, active & ((count < task.quota) & (since < task.longest)).any(1)

    nothing = jnp.zeros((seeds, n), jnp.float32)
    carry = (
        jnp.int32(0),
        jax.tree.map(lambda x: jnp.broadcast_to(x[None], (seeds, *x.shape)), begun),
        EpisodesOfSeeds(jnp.zeros((seeds, n, task.quota), jnp.float32), jnp.zeros((seeds, n), jnp.int32), nothing),
        jnp.zeros((seeds, n), jnp.int32),
        jnp.ones((seeds,), bool),
    )
    return jax.lax.while_loop(lambda carry: carry[4].any(), body, carry)[2]


def _kept(returns: np.ndarray, finished: np.ndarray, under_way: np.ndarray, episodes: int) -> EvaluatedEpisodes:
    """The episodes of one seed that count: as many of each env as the env with the fewest has."""
    quota = returns.shape[1]
    found = [[(total, False) for total in of_env[: min(c, quota)]] for of_env, c in zip(returns, finished, strict=True)]
    for of_env, total in zip(found, under_way, strict=True):
        if len(of_env) < quota:
            of_env.append((total, True))
    return _evaluated(found, quota, episodes, 1)


def _evaluated(
    found: Sequence[Sequence[tuple[Any, bool]]], quota: int, episodes: int, agents: int
) -> EvaluatedEpisodes:
    """Keep as many episodes of each env as the env with the fewest has."""
    rounds = zip(*(of_env[:quota] for of_env in found), strict=False)
    kept = [episode for each in rounds for episode in each][:episodes]
    return EvaluatedEpisodes(np.array([total for total, _ in kept]).reshape(-1, agents), sum(left for _, left in kept))


def run_episodes(
    config: ValueConfig, params: Params, episodes: int, seed: int, compiled: Compiled, epsilon: float | np.ndarray
) -> EvaluatedEpisodes:
    """Run episodes with one seed's agents; ε is a number, or one per agent, [A].

    Episodes that have not ended after `config.longest_game` steps are abandoned, and the evaluation ends.
    """
    num_envs = min(episodes, AT_ONCE)
    quota = -(-episodes // num_envs)
    actor = EvaluationActor(config, params, num_envs, seed, compiled)
    try:
        agents = actor.agents
        # Of each env, its episodes' returns and whether each was abandoned.
        found: list[list[tuple[np.ndarray, bool]]] = [[] for _ in range(num_envs)]
        steps, owing = np.zeros(num_envs, int), np.ones(num_envs, bool)
        for step in count():
            made = actor.advance(step, epsilon)
            totals = actor.by_copy(made.ended.totals)  # [N, A]
            steps += 1
            for i in np.flatnonzero(np.isfinite(totals[:, 0])):
                found[i].append((totals[i], False))
                steps[i] = 0
                owing[i] = len(found[i]) < quota
            if not np.any(owing & (steps < config.longest_game)):
                break
        under_way = actor.by_copy(actor.games.score.total)
    finally:
        actor.close()
    for i in np.flatnonzero(owing):
        found[i].append((under_way[i], True))  # the return so far of an episode that did not end
    return _evaluated(found, quota, episodes, agents)


def _apart(seed: int) -> int:
    """A seed for envs that is distinct from all training seeds: these lie below 2³¹ as well, so it is hashed."""
    return int(np.random.SeedSequence((seed, 7)).generate_state(1)[0] >> 1)


class EvaluationActor:
    """The agents of one seed, acting in envs on the host."""

    def __init__(self, config: ValueConfig, params: Params, num_envs: int, seed: int, compiled: Compiled):
        self.program: Any = config.family.program(config)
        self.params = params if config.agent_axis else jax.tree.map(lambda x: x[None], params)
        worlds = config.world.on_host(num_envs, _apart(seed), compiled)
        self.games = Stepper(worlds, config.world.stack, config.learner.recurrent)
        self.num_envs, self.agents = num_envs, len(self.games.is_first) // num_envs
        self.learners = config.num_learners
        self.key = keys.evaluation(seed)
        self._choose = compiled(_choose)

    def reset(self) -> np.ndarray:
        """First frames [R, …]."""
        return self.games.reset()

    def advance(self, step: int, epsilon: float | np.ndarray) -> Transition:
        """Step every env once."""
        epsilons = np.broadcast_to(np.asarray(epsilon, np.float32), (self.learners,))
        chosen = []
        for i in range(self.learners):
            seen = self.games.seen_by(i), self.games.hidden_of(i)
            given = pick(self.params, i), *seen, self.key, np.int32(step), epsilons[i], i
            chosen.append(self._choose(self.program, *given))
        self.games.send([np.asarray(one.actions) for one in chosen], [one.hidden for one in chosen])
        return self.games.recv()

    def by_copy(self, values: np.ndarray) -> np.ndarray:
        """[N, A] from values [R] of all rows, which are ordered by agent, or by env if agents share a network."""
        return values.reshape(self.learners, -1).T if self.learners > 1 else values.reshape(self.num_envs, -1)

    def close(self) -> None:
        """Close the envs."""
        self.games.close()


def policy(config: ValueConfig, params: Params, compiled: Compiled) -> ValuePolicy:
    """A trained agent as a function from the last frames (zeros before an episode's first frame) to actions.

    With memory, it takes the frames of an episode in order.
    """
    program: Any = config.family.program(config)
    spec, dtype = program.spec, np.dtype(program.spec.dtype)
    most = {"u": 256, "b": 2}.get(dtype.kind)
    seen = Observation((config.world.stack, *spec.shape), dtype, most, "frames")
    if width := config.learner.recurrent:
        return RecurrentPolicy(seen, lambda *given: compiled(_values)(program, params, *given), width)
    return ValuePolicy(seen, lambda states: compiled(_values)(program, params, states, ())[0])


def _values(program: Any, params: Params, states: jax.Array, hidden: Any) -> tuple[jax.Array, Any]:
    """float32 [B, A]: Q-values without noise and at fixed fractions, so that they depend on the state alone.

    Also returns the hidden states after these; () for a network without memory.
    """
    learner = program.learner
    fractions = program.config.learner.act_quantiles if learner.fractions else 0
    taus = jnp.broadcast_to(jnp.asarray(midpoints(fractions))[None], (states.shape[0], fractions))
    return learner.act(params, states, hidden, taus, None)


def _choose(
    program: Any,
    params: Params,
    stack: jax.Array,
    hidden: Any,
    key: jax.Array,
    step: jax.Array,
    epsilon: jax.Array,
    agent: jax.Array | int = 0,
) -> Choice:
    """Greedy actions without noise on the weights, or random ones with probability ε."""
    num_envs, learner = stack.shape[0], program.learner
    fractions = program.config.learner.act_quantiles if learner.fractions else 0
    uniforms = jax.random.uniform(keys.address(key, step, agent, keys.Stream.ACT), (num_envs, 2 + fractions))
    draws = program.act_draws(uniforms, jnp.zeros((num_envs, 0), jnp.float32))
    values, hidden = learner.act(params, stack, hidden, draws.taus, None)
    best = jnp.argmax(values, axis=-1).astype(jnp.int32)
    return Choice(program.explore(best, stack, draws, epsilon), hidden)


def choose_one(config: ValueConfig, params: Params, seed: int, compiled: Compiled) -> Callable[[np.ndarray], int]:
    """The policy as a function from the states [F, …] of one episode to actions.

    It counts its own steps for the random keys, and keeps the network's memory.
    """
    program: Any = config.family.program(config)
    key, choose = keys.evaluation(seed), compiled(_choose)
    steps, hidden = count(), program.no_memories(1)

    def policy(state: np.ndarray) -> int:
        nonlocal hidden
        given = params, state[None], hidden, key, np.int32(next(steps)), np.float32(config.evaluate_epsilon)
        choice = choose(program, *given)
        hidden = choice.hidden
        return int(choice.actions[0])

    return policy
