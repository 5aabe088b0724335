"""Parity of the GFlowNet: JAX and its NumPy and PyTorch twins, compared level by level on the same draws.

World → memory → forward → loss → gradients → one update → many updates: the first level that fails names the
culprit, because everything below it agreed. From `loss` on, both sides are given the same recorded trajectories.

Shapes: B states or trajectories, D numbers in a state, U updates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder import bridge, parameters
from xladder.core.compiling import compiled
from xladder.core.packages import missing_extra
from xladder.core.types import Params
from xladder.families.gflownet.program import Program
from xladder.learners.gflownet import Agent, Explore, GFlowNetLearner, Trajectories
from xladder.parity.levels import Level, as_vector, compare
from xladder.replay import objects
from xladder.replay.objects_host import HostObjects
from xladder.worlds.flow import HostWorld
from xladder.worlds.flow_jitted import JittedHost

try:
    import torch
except ImportError as error:  # pragma: no cover - depends on the installation
    raise missing_extra("torch", "torch") from error

from xladder.learners.gflownet_torch import TorchGFlowNet

if TYPE_CHECKING:
    from xladder.families.gflownet.config import GFlowNetConfig

# Tolerances, relative to the largest number in the compared array. Whole numbers have to be equal.
WORLD = 1e-6  # masks and steps are whole numbers; a reward is the logarithm of one sum
SAMPLING = 2e-6  # softmax of sums of a few hundred products, added in another order
TRAINED = 5e-5  # the same for trained networks, whose larger logits have larger rounding errors
LOSS = 2e-6  # the square of a sum of up to hundreds of log-probabilities
GRADIENTS = 1e-5  # sums over all steps of a batch
# Adam divides a gradient by its own size, so a weight whose gradient is nothing but rounding moves by the whole
# learning rate in a direction that rounding decides. So we compare network outputs, not weights.
ONE_UPDATE = 1e-4
MANY_UPDATES = 5e-3  # the same after a hundred updates: 1e-4 is observed at the published settings
# Where log-rewards span hundreds, as those of graphs do, updates multiply rounding errors. Then the tolerance is twice
# how far JAX comes from itself if its initial weights are changed by a few rounding errors, up to a limit.
ROUNDING, MOST_DRIFT = 1e-6, 5e-2

BATCHES = 8  # recorded batches, used in turn
STATES = 256
MOST_STEPS = 1000  # of the trajectories from which states are taken
EXPLORES = (Explore(np.float32(0.0), np.float32(1.0)), Explore(np.float32(0.2), np.float32(2.0)))
UNMAPPED = 8  # states that are evaluated one by one in a world without a twin


def levels(config: GFlowNetConfig, updates: int = 100, seed: int = 0) -> list[Level]:
    """All levels in order, with the settings of `config`. Later levels are measured even if one fails."""
    # Highest precision: a GPU's default adds rounding errors, and this compares algorithms.
    with jax.default_matmul_precision("highest"):
        return list(_levels(config, updates, seed))


def forward(config: GFlowNetConfig, params: Params, state: Mapping[str, np.ndarray]) -> Level:
    """Compare one network's outputs on both sides for random states; PyTorch's is loaded from a state_dict."""
    other = to_torch(config, parameters.to_tree("gflownet", state))
    states = random_states(config.world.host(), np.random.default_rng(0))
    with jax.default_matmul_precision("highest"):
        return compare("forward", TRAINED, *apply_both(Program(config).learner, params, other, states))


def random_states(world: HostWorld, rng: np.random.Generator) -> np.ndarray:
    """int32 [B, D]: states of random trajectories, including the initial state and final states."""
    count = 8
    state, found = world.initial(count), []
    for _ in range(min(world.max_steps, MOST_STEPS)):
        found.append(state)
        moves = world.forward_mask(state)[:, :-1]
        going = moves.any(1)
        if not going.any():
            break
        # One random number per action; the allowed action with the largest is taken.
        action = np.where(going, np.where(moves, rng.random(moves.shape), -1.0).argmax(1), world.num_actions - 1)
        state = world.forward(state, action)
    states = np.concatenate([found[0][:1], found[-1], np.concatenate(found)[rng.permutation(len(found) * count)]])
    return np.resize(states, (STATES, world.state_size)).astype(np.int32)


def _levels(config: GFlowNetConfig, updates: int, seed: int) -> Iterator[Level]:
    program, rng = Program(config), np.random.default_rng(seed)
    states = random_states(config.world.host(), rng)
    yield compare("world twins", WORLD, *_worlds(config, states, rng))
    yield compare("memory twins", WORLD, *_memories(config, states, rng))

    run = compiled(Program.init)(program, np.int32(seed))
    other = to_torch(config, run.agent.params)
    yield compare("forward", SAMPLING, *apply_both(program.learner, run.agent.params, other, states))

    batches = record(program, run)
    # One batch sampled forward, and one sampled backward.
    (first, one), (second, two) = (_value_and_grad(program, run.agent, batch) for batch in batches[:2])
    losses = [other.loss(batch) for batch in batches[:2]]
    yield compare("loss", LOSS, [*first, *second], [value.detach().numpy() for pair in losses for value in pair])
    (losses[0][0] + losses[1][0]).backward()
    gradient = jax.tree.map(jnp.add, one, two)
    # VarGrad has no gradient in directions that shift all log-probabilities equally.
    grads = {name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in other.net.named_parameters()}
    yield compare("gradients", GRADIENTS, as_vector(gradient), as_vector(bridge.to_jax("gflownet", grads)))

    for count, share in ((1, ONE_UPDATE), (updates, MANY_UPDATES)):
        other = to_torch(config, run.agent.params)
        updated = learn_both(program, run.agent, other, batches, count)
        name = "one update" if count == 1 and share == ONE_UPDATE else f"{count} updates"
        outputs = apply_both(program.learner, updated.params, other, states)
        level = compare(name, share, *outputs)
        if share == MANY_UPDATES and not level.passed:
            drift = _drift(program, run.agent, batches, count, states, outputs[0])
            level = compare(name, max(share, min(2 * drift, MOST_DRIFT)), *outputs)
        yield level


def record(program: Program, run: Any) -> list[Trajectories]:
    """The batches that both sides learn from, sampled in JAX: forward, or backward from the target if it is known."""
    learner, steps, size = program.learner, program.config.world.steps, program.config.learner.batch_size
    known, world = program.config.world.charted or program.config.world.enumerable, program.learner.world
    found: list[Trajectories] = []
    for number in range(BATCHES):
        draws = program.draw(run.key, number)
        condition = None if draws.condition is None else learner.condition(draws.condition)
        if number % 2:
            if known:
                ends = world.draw_target(jax.random.fold_in(run.key, number), size)
            else:
                who = np.arange(size) % found[-1].length.size
                ends = found[-1].states[found[-1].length[who] - 1, who]
            back = jax.random.uniform(jax.random.fold_in(run.key, BATCHES + number), (steps, size))
            batch = compiled(_sample_backward)(learner, run.agent.params, ends, back, condition)
        else:
            explore = learner.explore(run.agent.hyperparams, jnp.int32(0))
            given = None if condition is None else condition[: draws.steps.shape[1]]
            batch = compiled(GFlowNetLearner.sample)(learner, run.agent.params, explore, draws.steps, None, given)
        found.append(jax.tree.map(np.asarray, batch))
    return found


def _sample_backward(learner: GFlowNetLearner, params: Params, ends: Any, draws: Any, condition: Any) -> Trajectories:
    return learner.sample_backward(params, ends, draws, condition=condition)


def to_torch(config: GFlowNetConfig, params: Params) -> TorchGFlowNet:
    """The PyTorch twin of an untrained network."""
    other = TorchGFlowNet(config)
    other.net.load_state_dict(bridge.to_torch("gflownet", params))
    return other


def apply_both(learner: GFlowNetLearner, params: Params, other: TorchGFlowNet, states: np.ndarray) -> tuple[Any, Any]:
    """Outputs of both networks: forward policy with and without exploration, backward policy, flow and log Z."""
    condition = _spread_conditions(learner.config, len(states))
    theirs: list[Any] = [
        other.forward_policy(states, float(each.epsilon), float(each.temperature), condition) for each in EXPLORES
    ]
    flow = other.log_flow(states, condition)
    theirs += [other.backward_policy(states, condition), np.zeros(len(states), np.float32) if flow is None else flow]
    if "log_z" in params:
        theirs.append(other.net.log_z.detach().numpy())
    return apply_jax(learner, params, states), theirs


def apply_jax(learner: GFlowNetLearner, params: Params, states: np.ndarray) -> list[Any]:
    """JAX's side of `apply_both`."""
    condition = _spread_conditions(learner.config, len(states))
    forward, backward = compiled(GFlowNetLearner.forward_policy), compiled(GFlowNetLearner.backward_policy)
    ours: list[Any] = [forward(learner, params, states, each, condition) for each in EXPLORES]
    flows = compiled(GFlowNetLearner.log_policies)(learner, params, states, condition)[2]
    ours += [backward(learner, params, states, condition), flows]
    return [*ours, params["log_z"]] if "log_z" in params else ours


def _spread_conditions(config: GFlowNetConfig, count: int) -> np.ndarray | None:
    """float32 [count] or [count, K]: conditions spread over their range; None where there is none."""
    if not config.conditional:
        return None
    if config.preferential:
        return np.random.default_rng(0).dirichlet([1.0] * config.world.num_terms, count).astype(np.float32)
    return np.linspace(config.learner.condition_low, config.learner.condition_high, count, dtype=np.float32)


def _drift(
    program: Program, agent: Agent, batches: list[Trajectories], updates: int, states: np.ndarray, outputs: Any
) -> float:
    """How far outputs of JAX are from `outputs` if its initial weights are changed by a few rounding errors."""
    rng, update = np.random.default_rng(0), compiled(Program.learn_one)

    def nudged(array: jax.Array) -> jax.Array:
        return array * jnp.asarray(1 + ROUNDING * rng.choice([-1.0, 1.0], array.shape), array.dtype)

    agent = agent._replace(params=jax.tree.map(nudged, agent.params))
    for i in range(updates):
        agent, _ = update(program, agent, batches[i % len(batches)])
    found = apply_jax(program.learner, agent.params, states)
    level = compare("drift", 1.0, found, [np.asarray(array) for array in outputs])
    return level.max_abs_diff / level.tolerance if level.tolerance else 0.0


def learn_both(
    program: Program, agent: Agent, other: TorchGFlowNet, batches: list[Trajectories], updates: int
) -> Agent:
    """Both sides learn from the batches in turn. Returns the updated JAX agent."""
    update = compiled(Program.learn_one)
    for i in range(updates):
        batch = batches[i % len(batches)]
        agent, _ = update(program, agent, batch)
        other.update(batch)
    return agent


def _worlds(config: GFlowNetConfig, states: np.ndarray, rng: np.random.Generator) -> tuple[Any, Any]:
    """Masks, forward and backward steps, encoding and reward in the JAX world and in its host twin.

    A world without a twin is compared with itself: vectorised over states, and one state at a time.
    """
    world, host = config.world.build(), config.world.host()
    stop = world.num_actions - 1
    masks = host.forward_mask(states), host.backward_mask(states)
    ways = [np.array([rng.choice(np.flatnonzero(row)) if row.any() else stop for row in mask]) for mask in masks]
    terminal = masks[0][:, -1]

    def one(state: jax.Array, onward: jax.Array, undone: jax.Array) -> Any:
        steps = world.forward(state, onward), world.backward(state, undone)
        return world.forward_mask(state), world.backward_mask(state), *steps, world.encode(state)

    def pure(settings: Any, states: jax.Array, onwards: jax.Array, back: jax.Array, objects: jax.Array) -> Any:
        return *jax.vmap(one)(states, onwards, back), jax.vmap(world.log_reward)(objects)

    objects = states[terminal] if terminal.any() else states[:0]
    if isinstance(host, JittedHost):
        few, objects = slice(UNMAPPED), objects[:UNMAPPED]
        alone, reward = jax.jit(one), jax.jit(world.log_reward)
        plain = [alone(*given) for given in zip(states[few], ways[0][few], ways[1][few], strict=True)]
        theirs = *map(np.stack, zip(*plain, strict=True)), np.array([reward(each) for each in objects])
        return compiled(pure)(config.world, states[few], ways[0][few], ways[1][few], objects), theirs
    theirs = *masks, host.forward(states, ways[0]), host.backward(states, ways[1]), host.encode(states)
    return compiled(pure)(config.world, states, *ways, objects), (*theirs, host.log_reward(objects))


def _memories(config: GFlowNetConfig, states: np.ndarray, rng: np.random.Generator) -> tuple[Any, Any]:
    """Samples of both replay memories, uniform and by reward, after more objects than they can hold."""
    capacity, size = 100, config.world.state_size
    log_rewards = rng.normal(size=len(states)).astype(np.float32)
    host, ring = HostObjects(capacity, size), objects.init(capacity, size)
    for begin in range(0, STATES, 32):
        part = slice(begin, begin + 32)
        host.add(states[part], log_rewards[part])
        ring = objects.add(ring, jnp.asarray(states[part]), jnp.asarray(log_rewards[part]))
    draws = rng.random(64, dtype=np.float32)
    ours = [objects.sample(ring, jnp.asarray(draws), prioritised) for prioritised in (False, True)]
    return ours, [host.sample(draws, prioritised) for prioritised in (False, True)]


def _value_and_grad(program: Program, agent: Agent, batch: Trajectories) -> Any:
    def value_and_grad(program: Program, agent: Agent, batch: Trajectories) -> Any:
        bucket = program.config.world.steps * program.config.learner.batch_size
        function = jax.value_and_grad(program.learner.loss, has_aux=True)
        return function(agent.params, agent.hyperparams, batch, bucket)

    (loss, log_z), gradient = compiled(value_and_grad)(program, agent, batch)
    return [loss, log_z], gradient
