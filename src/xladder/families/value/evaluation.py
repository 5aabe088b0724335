"""Evaluation of value learners: whole episodes without learning, in separate envs with separate random keys.

Every env plays the same number of episodes, because short ones would be over-represented otherwise. ε is the
protocol's; an episode begins with an empty frame stack.

Shapes: S seeds, E episodes, N envs, F frames per state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core import keys
from xladder.core.mapping import pick
from xladder.core.statistics import mean_and_interval
from xladder.core.types import Compiled, Params
from xladder.families.value.acting import random_available
from xladder.families.value.config import ValueConfig
from xladder.families.value.stepping import Stepper, Transition
from xladder.learners.value import midpoints
from xladder.policy import Observation, ValuePolicy

AT_ONCE = 32  # parallel episodes


class Measurement(NamedTuple):
    """The result of an evaluation during training."""

    columns: Mapping[str, np.ndarray]
    picture: None = None


class EvaluatedEpisodes(NamedTuple):
    """Returns of the evaluated episodes."""

    returns: np.ndarray  # float [E, A]: per agent; A = 1 for a single agent
    left: int  # how many episodes were abandoned because they did not end

    def mean(self) -> float:
        """The mean over episodes of the return, summed over agents."""
        return float(self.returns.sum(1).mean())


def measure(config: ValueConfig, params: Params, tick: int, compiled: Compiled) -> Measurement:
    """The mean return of every seed's agents, leaves [S, …], over a few episodes with the same seeds every time."""
    seeds = jax.tree.leaves(params)[0].shape[0]
    results = [
        run_episodes(config, pick(params, s), config.evaluate_episodes, 0, compiled, config.evaluate_epsilon)
        for s in range(seeds)
    ]
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
    results = [run_episodes(config, pick(params, s), episodes, seed, compiled, epsilon) for s in range(seeds)]
    totals = [one.returns.sum(1) for one in results]
    mean, interval = mean_and_interval(np.array([total.mean() for total in totals]) if seeds > 1 else totals[0])
    by_chance = run_episodes(config, pick(params, 0), episodes, seed, compiled, 1.0)
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
    # Keep as many episodes of each env as the env with the fewest has.
    rounds = zip(*(of_env[:quota] for of_env in found), strict=False)
    kept = [episode for each in rounds for episode in each][:episodes]
    return EvaluatedEpisodes(np.array([total for total, _ in kept]).reshape(-1, agents), sum(left for _, left in kept))


class EvaluationActor:
    """The agents of one seed, acting in envs on the host."""

    def __init__(self, config: ValueConfig, params: Params, num_envs: int, seed: int, compiled: Compiled):
        self.program: Any = config.family.program(config)
        self.params = params if config.agent_axis else jax.tree.map(lambda x: x[None], params)
        # Distinct from all training seeds: these lie below 2³¹ as well, so the seed is hashed.
        apart = int(np.random.SeedSequence((seed, 7)).generate_state(1)[0] >> 1)
        self.games = Stepper(config.world.on_host(num_envs, apart, compiled), config.world.stack)
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
        chosen = [
            self._choose(
                self.program, pick(self.params, i), self.games.seen_by(i), self.key, np.int32(step), epsilons[i], i
            )
            for i in range(self.learners)
        ]
        self.games.send([np.asarray(actions) for actions in chosen])
        return self.games.recv()

    def by_copy(self, values: np.ndarray) -> np.ndarray:
        """[N, A] from values [R] of all rows, which are ordered by agent, or by env if agents share a network."""
        return values.reshape(self.learners, -1).T if self.learners > 1 else values.reshape(self.num_envs, -1)

    def close(self) -> None:
        """Close the envs."""
        self.games.close()


def policy(config: ValueConfig, params: Params, compiled: Compiled) -> ValuePolicy:
    """A trained agent as a function from the last frames (zeros before an episode's first frame) to actions."""
    program: Any = config.family.program(config)
    spec, dtype = program.spec, np.dtype(program.spec.dtype)
    most = {"u": 256, "b": 2}.get(dtype.kind)
    seen = Observation((config.world.stack, *spec.shape), dtype, most, "frames")
    return ValuePolicy(seen, lambda states: compiled(_values)(program, params, states))


def _values(program: Any, params: Params, states: jax.Array) -> jax.Array:
    """float32 [B, A]: Q-values without noise and at fixed fractions, so that they depend on the state alone."""
    learner = program.learner
    fractions = program.config.learner.act_quantiles if learner.fractions else 0
    taus = jnp.asarray(midpoints(fractions))
    return learner.values(params, states, jnp.broadcast_to(taus[None], (states.shape[0], fractions)), None)


def _choose(
    program: Any,
    params: Params,
    stack: jax.Array,
    key: jax.Array,
    step: jax.Array,
    epsilon: jax.Array,
    agent: jax.Array | int = 0,
) -> jax.Array:
    """int32 [N]: greedy actions without noise on the weights, or random ones with probability ε."""
    num_envs, learner = stack.shape[0], program.learner
    fractions = program.config.learner.act_quantiles if learner.fractions else 0
    uniforms = jax.random.uniform(keys.address(key, step, agent, keys.Stream.ACT), (num_envs, 2 + fractions))
    values = learner.values(params, stack, uniforms[:, 2:], None)
    action = jnp.minimum((uniforms[:, 1] * program.spec.actions).astype(jnp.int32), program.spec.actions - 1)
    if program.spec.masked:
        action = random_available(stack[:, -1, -program.spec.actions :] > 0, uniforms[:, 1])
    return jnp.where(uniforms[:, 0] < epsilon, action, jnp.argmax(values, axis=-1).astype(jnp.int32))


def choose_one(config: ValueConfig, params: Params, seed: int, compiled: Compiled) -> Callable[[np.ndarray], int]:
    """The policy as a function from one state [F, …] to an action; it counts its own steps for the random keys."""
    program, key, choose = config.family.program(config), keys.evaluation(seed), compiled(_choose)
    steps = count()

    def policy(state: np.ndarray) -> int:
        given = params, state[None], key, np.int32(next(steps)), np.float32(config.evaluate_epsilon)
        return int(choose(program, *given)[0])

    return policy
