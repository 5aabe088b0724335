"""What sorrel's value models compute, on xladder's learner: one update of one agent, or of several at once.

Shapes: B batch, I inputs (all frames of a state), Q quantiles, A actions, N agents.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from xladder import devices
from xladder.core import keys
from xladder.core.compiling import compiled
from xladder.core.keys import Stream
from xladder.core.types import Array, Params
from xladder.families.multi_agent.config import LearnerConfig as IQNConfig
from xladder.families.value.learner_config import LearnerConfig as ValueConfig
from xladder.learners.iqn import iqn_head
from xladder.learners.value import Draws, ValueLearner
from xladder.nets.affine import DenseTorso
from xladder.nets.heads import Head
from xladder.nets.torsos import Mlp
from xladder.nets.value import ValueNet
from xladder.replay.batch import Batch

CLIP = 1.0  # sorrel clips every gradient to this norm


class Rates(NamedTuple):
    """Hyperparameters of an update: traced, so agents may differ in them, and they may change."""

    lr: Array  # float32 []
    tau: Array  # float32 []
    clip: Array  # float32 []


class Learned(NamedTuple):
    """What an agent has learned."""

    params: Params
    target: Params
    opt_state: optax.ScaleByAdamState


@dataclass(frozen=True)
class Network:
    """Sizes of a model; those with the same sizes share compiled programs and can learn in one call."""

    kind: Literal["iqn", "dqn"]
    inputs: int
    actions: int
    width: int
    batch_size: int
    quantiles: int = 0
    """Quantiles per state; 0 for a DQN, which has none."""

    @cached_property
    def learner(self) -> ValueLearner:
        """The learner as pure functions."""
        if self.kind == "iqn":
            iqn = IQNConfig(width=self.width, batch_size=self.batch_size, quantiles=self.quantiles, clip=CLIP)
            return ValueLearner(iqn, ValueNet(DenseTorso(self.width), iqn_head(iqn, self.actions, self.width)))
        dqn = ValueConfig(width=self.width, batch_size=self.batch_size, clip=CLIP)
        head = Head(actions=self.actions, features=self.width, width=self.width)
        return ValueLearner(dqn, ValueNet(Mlp((self.width,), axes=1), head))

    def fresh(self, params: Params) -> Learned:
        """An agent with these parameters in both networks, and an optimiser that has not stepped."""
        return Learned(*self.learner.init(jax.tree.map(jnp.asarray, params), None)[:3])


def draw(network: Network, key: jax.Array, number: jax.Array | int) -> Draws:
    """The random numbers of an agent's update, counted from 0."""
    sample, noise = (keys.address(key, number, 0, stream) for stream in (Stream.SAMPLE, Stream.NOISE))
    return network.learner.draw_update(sample, noise)


def update(network: Network, learned: Learned, rates: Rates, batch: Batch, draws: Draws) -> tuple[Learned, jax.Array]:
    """One gradient step of one agent, and the loss."""
    agent, loss, _ = network.learner.update(_Agent(*learned, rates), batch, draws)
    return Learned(*agent[:3]), loss


class _Agent(NamedTuple):
    """An agent as the learner takes it."""

    params: Params
    target: Params
    opt_state: optax.ScaleByAdamState
    hyperparams: Rates


def learn(
    network: Network, learned: Learned, rates: Rates, batch: Batch, key: jax.Array, number: jax.Array | int
) -> tuple[Learned, jax.Array]:
    """`update` with random numbers by their address."""
    return update(network, learned, rates, batch, draw(network, key, number))


def learn_all(
    network: Network, learned: Learned, rates: Rates, batches: Batch, run_keys: jax.Array, numbers: jax.Array
) -> tuple[Learned, jax.Array]:
    """`learn` for N agents at once, leaves [N, …]."""

    def one(*given: Any) -> tuple[Learned, jax.Array]:
        return learn(network, *given)

    return jax.vmap(one)(learned, rates, batches, run_keys, numbers)


class Stack:
    """Several agents, leaves [N, …]."""

    def __init__(self, learned: Learned):
        self.learned = learned

    @cached_property
    def host_params(self) -> Params:
        """The parameters of all agents in NumPy, copied at once: slices of every leaf would take far longer."""
        return jax.device_get(self.learned.params)


class Row(NamedTuple):
    """One agent among several that are stacked."""

    stack: Stack
    row: int

    def take(self) -> Learned:
        """The agent by itself."""
        return jax.tree.map(lambda leaf: leaf[self.row], self.stack.learned)


class Task(NamedTuple):
    """One agent's update."""

    learned: Learned | Row
    rates: Rates
    batch: Batch
    key: jax.Array
    number: int


class Done(NamedTuple):
    """A computed update."""

    learned: Learned | Row
    loss: jax.Array | np.ndarray  # float32 []


def run_tasks(network: Network, device: Any, tasks: list[Task]) -> list[Done]:
    """Compute the updates of several agents.

    On a GPU they are one program, and its agents stay stacked from call to call. On a CPU they are as many calls of
    the program of one agent, on as many cores as there are: stacking would gain nothing there, and cost copies.
    """
    if device.platform == "cpu" or len(tasks) == 1:

        def run(task: Task) -> Done:
            with jax.default_device(device):
                done = compiled(learn)(network, alone(task.learned), task.rates, task.batch, task.key, task.number)
                return Done(*jax.block_until_ready(done))

        return list(_threads().map(run, tasks)) if len(tasks) > 1 else [run(tasks[0])]
    rates, batches = (
        jax.tree.map(lambda *leaves: np.stack(leaves), *column)
        for column in ([task.rates for task in tasks], [task.batch for task in tasks])
    )
    numbers = np.array([task.number for task in tasks], np.int32)
    given = jax.device_put((rates, batches, numbers), device)
    run_keys = jnp.stack([task.key for task in tasks])
    new, losses = compiled(learn_all)(network, stack([task.learned for task in tasks]), *given[:2], run_keys, given[2])
    losses, together = np.asarray(losses), Stack(new)
    return [Done(Row(together, i), losses[i]) for i in range(len(tasks))]


@cache
def _threads() -> ThreadPoolExecutor:
    """A thread per core; a program releases Python's lock while it runs."""
    return ThreadPoolExecutor(devices.cores(), "xladder")


def alone(learned: Learned | Row) -> Learned:
    """An agent by itself."""
    return learned.take() if isinstance(learned, Row) else learned


def host_params(learned: Learned | Row) -> Params:
    """An agent's parameters in NumPy."""
    if isinstance(learned, Row):
        return jax.tree.map(lambda leaf: leaf[learned.row], learned.stack.host_params)
    return jax.device_get(learned.params)


def stack(agents: list[Learned | Row]) -> Learned:
    """Agents stacked, leaves [N, …]; if they are all the rows of one stack in this order, that stack."""
    first = agents[0]
    if isinstance(first, Row) and len(jax.tree.leaves(first.stack.learned)[0]) == len(agents):
        rows = [agent.row for agent in agents if isinstance(agent, Row) and agent.stack is first.stack]
        if rows == list(range(len(agents))):
            return first.stack.learned
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(alone, agents))
