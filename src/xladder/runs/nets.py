"""The single networks of a run, by seed and agent: taken out of what was learned, and put together again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from xladder.core import keys
from xladder.core.types import Params
from xladder.errors import UsageError
from xladder.plans import Plan
from xladder.results import Result
from xladder.rungs.running import stack_seeds

Place = tuple[int, int]
"""A seed and the number of an agent."""


def places(result: Result, seed: int | None = None, agent: int | None = None) -> list[Place]:
    """Where there are networks: all of them, or those of one seed or one agent."""
    plan = result.plan
    kept = plan.seeds[: jax.tree.leaves(result.params)[0].shape[0]]  # a stopped run may not have come to all
    agents = range(plan.config.num_learners if plan.workload.agents else 1)
    if seed is not None and seed not in kept:
        raise UsageError(f"There is no seed {seed} in this run: it has {in_words(kept)}.")
    if agent is not None and agent not in agents:
        raise UsageError(f"There is no agent {agent} in this run: it has {in_words(agents)}.")
    return [(s, a) for s in kept for a in agents if seed in (None, s) and agent in (None, a)]


def take(result: Result, place: Place) -> Params:
    """The parameters of one network."""
    seed, agent = result.plan.seeds.index(place[0]), place[1]
    several = result.plan.workload.agents
    return jax.tree.map(lambda leaf: np.asarray(leaf[seed, agent] if several else leaf[seed]), result.params)


def put_together(plan: Plan, nets: Mapping[Place, Params]) -> Params:
    """Networks of all seeds and agents of a plan as one pytree, leaves [seed, …] or [seed, agent, …]."""
    if not plan.workload.agents:
        return stack_seeds([nets[seed, 0] for seed in plan.seeds])
    agents = range(plan.config.num_learners)
    return stack_seeds([stack_seeds([nets[seed, agent] for agent in agents]) for seed in plan.seeds])


def shapes(plan: Plan) -> Params:
    """The shapes of one network's parameters, without making any."""
    lead = 2 if plan.workload.agents else 1
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[lead:], leaf.dtype), shapes_of_one_seed(plan))


def shapes_of_one_seed(plan: Plan) -> Params:
    """The shapes of all that one seed learns, leaves [1, …] or [1, agent, …]."""
    program = plan.config.family.program(plan.config)

    def begin(seed: Any) -> Params:
        if hasattr(program, "init_params"):  # agents that begin without a world, which may be outside the program
            return program.init_params(keys.root(seed))
        return program.params(program.init(seed))

    found: Params = jax.eval_shape(jax.vmap(begin), np.zeros(1, np.int32))
    return found


def check_twin(plan: Plan) -> None:
    """Raise a `UsageError` if no PyTorch network corresponds to the plan's."""
    if not plan.config.family.has_torch(plan.config):
        raise UsageError(f"`{plan.config.algorithm}` has no twin in PyTorch, so its networks have no names there.")


def in_words(numbers: Iterable[int]) -> str:
    """`0`, `0 … 7`, or `1, 5, 9` where there are gaps."""
    ordered = sorted(numbers)
    if len(ordered) == 1:
        return f"{ordered[0]}"
    gaps = ordered[-1] - ordered[0] >= len(ordered)
    return ", ".join(map(str, ordered)) if gaps else f"{ordered[0]} … {ordered[-1]}"
