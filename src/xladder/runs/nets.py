"""Split the parameters of a run into single networks by seed and agent, and combine them again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import numpy as np

from xladder import devices
from xladder.core.compiling import compiled
from xladder.core.types import Params
from xladder.errors import UsageError
from xladder.plans import Plan
from xladder.policy import Policy
from xladder.results import Result
from xladder.rungs.running import stack_seeds

Place = tuple[int, int]
"""A seed and the index of an agent."""


def acting(plan: Plan) -> Any:
    """The settings under which the agents of a run act: parameters have an agent axis where each has its own."""
    return plan.config.family.acting_config(plan.config)


def places(result: Result, seed: int | None = None, agent: int | None = None) -> list[Place]:
    """List the networks of a run by seed and agent: all, or those of one seed or one agent."""
    plan = result.plan
    trained = plan.seeds[: jax.tree.leaves(result.params)[0].shape[0]]  # a stopped run may not have trained all
    config = acting(plan)
    agents = range(config.num_learners if config.agent_axis else 1)
    if seed is not None and seed not in trained:
        raise UsageError(f"There is no seed {seed} in this run: it has {format_numbers(trained)}.")
    if agent is not None and agent not in agents:
        raise UsageError(f"There is no agent {agent} in this run: it has {format_numbers(agents)}.")
    return [(s, a) for s in trained for a in agents if seed in (None, s) and agent in (None, a)]


def take(result: Result, place: Place) -> Params:
    """The parameters of one network."""
    seed, agent = result.plan.seeds.index(place[0]), place[1]
    several = acting(result.plan).agent_axis
    return jax.tree.map(lambda leaf: np.asarray(leaf[seed, agent] if several else leaf[seed]), result.params)


def policy(result: Result, seed: int | None = None, agent: int = 0) -> Policy:
    """Return one agent as a function from observations to actions; of the run's first seed if none is given."""
    place = places(result, result.plan.seeds[0] if seed is None else seed, agent)[0]
    params = jax.device_put(take(result, place), devices.find(result.plan.device))
    return result.config.family.policy(result.config, params, compiled)


def put_together(plan: Plan, nets: Mapping[Place, Params]) -> Params:
    """Combine the networks of all seeds and agents into one pytree, leaves [seed, …] or [seed, agent, …]."""
    config = acting(plan)
    if not config.agent_axis:
        return stack_seeds([nets[seed, 0] for seed in plan.seeds])
    agents = range(config.num_learners)
    return stack_seeds([stack_seeds([nets[seed, agent] for agent in agents]) for seed in plan.seeds])


def shapes(plan: Plan) -> Params:
    """The shapes of one network's parameters, without initialising them."""
    lead = 2 if acting(plan).agent_axis else 1
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[lead:], leaf.dtype), shapes_of_one_seed(plan))


def shapes_of_one_seed(plan: Plan) -> Params:
    """The shapes of all parameters of one seed, leaves [1, …] or [1, agent, …]."""
    program = plan.config.family.program(plan.config)

    found: Params = jax.eval_shape(jax.vmap(program.fresh_params), np.zeros(1, np.int32))
    return found


def check_twin(plan: Plan) -> None:
    """Raise a `UsageError` if no PyTorch network corresponds to the plan's."""
    why = plan.config.family.why_no_torch(plan.config)
    if why:
        raise UsageError(f"Its networks have no PyTorch twin: {why}.")


def format_numbers(numbers: Iterable[int]) -> str:
    """`0`, `0 … 7`, or `1, 5, 9` where there are gaps."""
    ordered = sorted(numbers)
    if len(ordered) == 1:
        return f"{ordered[0]}"
    gaps = ordered[-1] - ordered[0] >= len(ordered)
    return ", ".join(map(str, ordered)) if gaps else f"{ordered[0]} … {ordered[-1]}"
