"""Parity levels of a value learner: JAX and PyTorch on the same batches and draws, from forward to many updates.

Shapes: B batch, Z numbers per action, A actions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xladder.core.compiling import compiled
from xladder.core.packages import missing_extra
from xladder.core.types import Params
from xladder.learners.value import Agent, Draws, Hyperparams, ValueLearner
from xladder.parity.levels import Level, as_vector, compare
from xladder.replay.batch import Batch, Sequences

try:
    import torch
except ImportError as error:  # pragma: no cover - depends on the installation
    raise missing_extra("torch", "torch") from error

from xladder.learners import value_torch
from xladder.learners.masks_torch import MASKED_VALUE, mask_values

# Tolerances, relative to the largest number in the array compared. Integers have to be equal.
FORWARD = 2e-5  # sums of up to 3136 float32 products, in a different order; the cosines differ by 2e-7
TRAINED = 1e-4  # the same for a trained network, in which large numbers may cancel
LOSS = 2e-5  # a mean of such numbers
GRADIENTS = 3e-4  # the same; and a ReLU that is active on one side only changes it by one sample's share
# Adam divides a gradient by its own size, so a weight whose gradient is pure rounding error moves by the whole learning
# rate in an arbitrary direction. So after an update we compare network outputs and Adam's moments, not weights; such
# weights change the outputs by 1e-4 of their size.
ONE_UPDATE = 3e-4
# After a hundred updates this grows to 1 % of the outputs of a network of the default size (1e-6 for a small one), as
# it does between two runs of the same code from weights one rounding apart. A missing target update or a learning rate
# 5 % too high makes 10 % and more.
MANY_UPDATES = 3e-2
# Where agents differ by more after rounding alone, as they do in sorrel's iowa, whose prices are random, fewer updates
# are compared: as many as change JAX's outputs by at most half the tolerance when its initial weights change by a few
# rounding errors. The tolerance is then three times that.
ROUNDING, DRIFTS, FEWEST_UPDATES = 1e-6, 3.0, 6

MakeTwin = Callable[[], value_torch.TorchLearner]


def levels(
    learner: ValueLearner, agent: Agent, twin: MakeTwin, batches: Sequence[Batch], draws: Sequence[Draws]
) -> Iterator[Level]:
    """Yield all levels in rising order.

    Args:
        learner: the JAX learner.
        agent: a fresh agent whose target network differs from its online network.
        twin: makes the PyTorch twin.
        batches: recorded batches.
        draws: the random numbers of each update.
    """
    other = to_torch(agent, twin)
    yield compare("forward", FORWARD, *apply_both(learner, agent, other, batches[0], draws[0]))

    (loss, errors), gradient = compiled(_differentiate)(learner, agent, batches[0], draws[0])
    other_loss, other_errors = other.loss(batches[0], torch_draws(draws[0]))
    yield compare("loss", LOSS, (loss, errors), (other_loss.detach().numpy(), other_errors.detach().numpy()))
    other_loss.backward()
    # A parameter that the loss does not depend on has no gradient: compare it as zeros.
    grads = {
        name: torch.zeros_like(param) if param.grad is None else param.grad
        for name, param in other.net.named_parameters()
    }
    yield compare("gradients", GRADIENTS, as_vector(learned(gradient)), as_vector(other.to_jax(grads)))

    other = to_torch(agent, twin)
    updated = learn(learner, agent, batches[:1], draws[:1], other)
    ours, theirs = apply_both(learner, updated, other, batches[0], draws[0])
    yield compare("one update", ONE_UPDATE, (ours, _opt_state(updated)), (theirs, _opt_state_torch(other)))

    yield _many_updates(learner, agent, twin, batches, draws)


def _many_updates(
    learner: ValueLearner, agent: Agent, twin: MakeTwin, batches: Sequence[Batch], draws: Sequence[Draws]
) -> Level:
    """Compare both sides after updates on all batches, or as many as rounding errors allow."""
    count, tolerance = len(batches), MANY_UPDATES
    while True:
        other = to_torch(agent, twin)
        updated = learn(learner, agent, batches[:count], draws[:count], other)
        ours, theirs = apply_both(learner, updated, other, batches[0], draws[0])
        level = compare(f"{count} updates", tolerance, ours, theirs)
        if level.passed or count < len(batches):
            return level
        whole = level
        while 2 * (drift := _drift(learner, agent, batches[:count], draws[:count])) > MANY_UPDATES:
            count //= 2
            if count < FEWEST_UPDATES:
                return whole
        if count == len(batches):
            return whole
        tolerance = max(ONE_UPDATE, DRIFTS * drift)


def _drift(learner: ValueLearner, agent: Agent, batches: Sequence[Batch], draws: Sequence[Draws]) -> float:
    """By what share of the largest number JAX's outputs change if its initial weights change by rounding errors."""
    rng = np.random.default_rng(0)

    def nudged(array: jax.Array) -> jax.Array:
        return array * jnp.asarray(1 + ROUNDING * rng.choice([-1.0, 1.0], array.shape), array.dtype)

    given = batches[0], draws[0].taus[0], draws[0].noise[0]
    outputs = []
    for start in (agent.params, jax.tree.map(nudged, agent.params)):
        after = learn(learner, agent._replace(params=start), batches, draws)
        outputs.append([compiled(_apply)(learner, params, *given) for params in (after.params, after.target)])
    level = compare("drift", 1.0, *outputs)
    return level.max_abs_diff / level.tolerance if level.tolerance else 0.0


def forward(learner: ValueLearner, params: Params, other: value_torch.TorchLearner, states: np.ndarray) -> Level:
    """Compare the outputs of a network and its twin `other`, for states [B, F, …], with noise and without."""
    rng = np.random.default_rng(0)
    taus = rng.random((len(states), learner.fractions), np.float32)
    normals = rng.standard_normal(learner.noise_size, np.float32)
    width = getattr(learner.config, "recurrent", 0)
    hidden = rng.uniform(-1, 1, (len(states), width)).astype(np.float32) if width else ()
    ours = compiled(_apply_once)(learner, params, states, hidden, taus, normals)
    with torch.no_grad():
        noise = other.net.head.split_noise(torch.from_numpy(normals))
        theirs = [_step_torch(other, other.net, states, hidden, torch.from_numpy(taus), one) for one in (noise, None)]
    return compare("forward", TRAINED, ours, tuple(outputs.numpy() for outputs in theirs))


def learned(params: Params) -> Params:
    """The parameters that have a gradient: all but the statistics of observations."""
    return {name: part for name, part in params.items() if name != "normaliser"}


def fresh_agent(learner: ValueLearner, params: Params, target: Params) -> Agent:
    """A fresh agent with different online and target networks, so that confusing the two would show."""
    return learner.init(params, Hyperparams.of(learner.config))._replace(target=target)


def to_torch(agent: Agent, twin: MakeTwin) -> value_torch.TorchLearner:
    """The PyTorch twin of a fresh JAX agent."""
    other = twin()
    other.load(agent.params)
    other.load(agent.target, target=True)
    return other


def torch_draws(draws: Draws) -> value_torch.Draws:
    """The same draws as PyTorch tensors."""
    return value_torch.Draws(*(torch.from_numpy(np.array(x)) for x in draws))


def learn(
    learner: ValueLearner,
    agent: Agent,
    batches: Sequence[Batch],
    draws: Sequence[Draws],
    other: value_torch.TorchLearner | None = None,
) -> Agent:
    """Run the updates in JAX, and on the other side if there is one, with a hard target update half-way.

    Returns:
        The updated JAX agent.
    """
    for i, (batch, drawn) in enumerate(zip(batches, draws, strict=True)):
        if i > 0 and i == len(batches) // 2:
            agent = compiled(_sync)(learner, agent)
            if other:
                other.sync()
        agent, *_ = compiled(ValueLearner.update)(learner, agent, batch, drawn)
        if other:
            other.update(batch, torch_draws(drawn))
    return agent


def apply_both(
    learner: ValueLearner, agent: Agent, other: value_torch.TorchLearner, batch: Any, draws: Draws
) -> tuple[Any, Any]:
    """Outputs of online and target networks on both sides: with and without noise, and the values used for acting."""
    drawn, theirs, seen = torch_draws(draws), [], _seen(batch)
    with torch.no_grad():
        noise = other.net.head.split_noise(drawn.noise[0])
        mask = other.split_mask(other.tensor(seen[0]))[1]
        for net in (other.net, other.target):
            outputs = other.passes(net, batch).now
            noisy, plain = outputs(drawn.taus[0], noise), outputs(drawn.taus[0])
            acting = _step_torch(other, net, *seen, drawn.taus[0, : len(seen[0])])
            values = mask_values(other.expected(acting), mask).numpy()
            shut = values == np.float32(MASKED_VALUE)
            theirs.append((noisy.numpy(), plain.numpy(), np.where(shut, 0.0, values), shut))
    given = batch, draws.taus[0], draws.noise[0]
    return [compiled(_apply)(learner, params, *given) for params in (agent.params, agent.target)], theirs


def _seen(batch: Any) -> tuple[Any, Any]:
    """The states in which a batch's network acts first, and its hidden states before them; () without memory."""
    return (batch.states[:, 0], batch.hidden) if isinstance(batch, Sequences) else (batch.states, ())


def _step_torch(other: Any, net: Any, states: Any, hidden: Any, taus: Any, noise: Any = None) -> Any:
    """A PyTorch network's outputs for states, after hidden states if it has memory."""
    seen, _ = other.split_mask(other.tensor(states))
    if isinstance(hidden, tuple):
        return net(seen, taus, noise)
    return net.outputs(net.step(seen, other.tensor(hidden)), taus, noise)


def _apply_once(
    learner: Any, params: Params, states: jax.Array, hidden: Any, taus: jax.Array, normals: jax.Array
) -> tuple[jax.Array, ...]:
    noise = learner.split_noise(normals), None
    if isinstance(hidden, tuple):
        return tuple(learner.apply(params, states, taus, one) for one in noise)
    after = learner.net.apply({"params": params}, learner.split_mask(states)[0], hidden, method="step")
    return tuple(learner.outputs(params, after, taus, one) for one in noise)


def _apply(learner: ValueLearner, params: Params, batch: Any, taus: jax.Array, normals: jax.Array) -> Any:
    outputs = learner.passes(params, batch).now
    noisy, plain = (outputs(taus, one) for one in (learner.split_noise(normals), None))
    # Acting may use a separate code path. Unavailable actions are compared separately: their values are so large that
    # any difference would pass beside them.
    states, hidden = _seen(batch)
    values, _ = learner.act(params, states, hidden, taus[: len(states)], None)
    shut = values == jnp.float32(MASKED_VALUE)
    return noisy, plain, jnp.where(shut, 0.0, values), shut


def _differentiate(learner: ValueLearner, agent: Agent, batch: Batch, draws: Draws) -> Any:
    noise = tuple(learner.split_noise(draws.noise[i]) for i in range(3))
    differentiate = jax.value_and_grad(learner.loss, has_aux=True)
    return differentiate(agent.params, agent.target, batch, draws.taus, noise, agent.hyperparams)


def _sync(learner: ValueLearner, agent: Agent) -> Agent:
    return learner.sync(agent, jnp.bool_(True))


def _opt_state(agent: Agent) -> Any:
    """Adam's moments: mean gradient and root mean square gradient."""
    opt_state: Any = agent.opt_state
    return as_vector(learned(opt_state.mu)), np.sqrt(as_vector(learned(opt_state.nu)))


def _opt_state_torch(other: value_torch.TorchLearner) -> Any:
    """The same for the PyTorch twin, in the order of the JAX pytree."""
    params = dict(other.net.named_parameters())
    states = {name: other.optimiser.state[param] for name, param in params.items()}
    own = any("mean" in state for state in states.values())

    def collected(which: str) -> np.ndarray:
        found = {name: state.get(which, torch.zeros_like(params[name])) for name, state in states.items()}
        return as_vector(other.to_jax(found))

    return collected("mean" if own else "exp_avg"), np.sqrt(collected("square" if own else "exp_avg_sq"))
