"""A GFlowNet learner: sampling, and updates from a batch of trajectories. Pure JAX.

Trajectories may be sampled with exploration (ε, temperature) or backward from a replayed object; the loss always uses
the policy's own probabilities. The network runs on real steps only: trajectories of a batch differ in length, so their
steps are packed into rows. The caller chooses how many rows (a *bucket*).

Shapes: B trajectories, T steps of the longest, D numbers in a state, A forward actions, the last of which is stop, R
rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.lax import dynamic_index_in_dim, dynamic_update_index_in_dim

from xladder.core.types import Array, Params
from xladder.learners.choosing import MASKED_LOGIT, Explore, act, choose, mixture, take
from xladder.learners.flow_losses import LOSSES, Terms
from xladder.learners.packing import PackedSteps
from xladder.nets.flow import FlowNet, Tokens, hats
from xladder.worlds.flow import BoundWorld
from xladder.worlds.flow_under import log_reward_under

if TYPE_CHECKING:
    from xladder.families.gflownet.config import GFlowNetConfig

BackwardPolicy = Callable[[Params, jax.Array], jax.Array]
"""float32 [B, A − 1]: the probability with which each action is undone, from parameters and states [B, D]."""


class Hyperparams(NamedTuple):
    """Hyperparameters that may be swept: traced, so that a sweep is a `vmap`. float32 [] each."""

    lr: jax.Array
    log_z_lr: jax.Array
    subtb_lambda: jax.Array
    epsilon: jax.Array
    epsilon_end: jax.Array
    temperature: jax.Array
    temperature_end: jax.Array


class Agent(NamedTuple):
    """Parameters, optimiser state and hyperparameters."""

    params: Params
    opt_state: optax.OptState
    hyperparams: Hyperparams


class Trajectories(NamedTuple):
    """A batch of trajectories, time first. Entries beyond a trajectory's length are arbitrary."""

    states: Array  # int32 [T, B, D]: where each step begins
    actions: Array  # int32 [T, B]
    length: Array  # int32 [B]: steps, including stop
    condition: Array | None = None  # float32 [B], or [B, K] for K weights, where the sampler has one


class Walk(NamedTuple):
    """The state of the sampling loop. It runs on M of the B trajectories, including all unfinished ones."""

    t: jax.Array  # int32 []
    trajectory: jax.Array  # int32 [M]
    state: jax.Array  # int32 [M, D]
    active: jax.Array  # bool [M]
    length: jax.Array  # int32 [B]: steps so far
    record: jax.Array  # int32 [T + unroll − 1, B, D + 1]: states and actions of all trajectories so far, in one array


class Learned(NamedTuple):
    """The metrics of an update. float32 []."""

    loss: Array
    log_z: Array  # the estimate that belongs to the loss


@dataclass(frozen=True)
class GFlowNetLearner:
    """A GFlowNet learner as pure functions, bound to its settings.

    `unroll` steps are taken between checks whether all trajectories have ended, because the check is what takes time on
    a GPU. Steps after the end change nothing. With `compact`, the network runs on half of the batch once half of the
    trajectories have ended, and then on a quarter, which saves arithmetic if that is the bottleneck.
    """

    config: GFlowNetConfig
    unroll: int = 1
    compact: bool = False
    axis: str | None = None
    """Name of the axis of seeds, if they are vectorised."""
    dense: bool = False
    """Whether the gradient of looked-up rows is dense, which is faster on a GPU."""

    @property
    def world(self) -> BoundWorld:
        """The world, as pure functions of one state."""
        return self.config.world.build()

    @property
    def stop(self) -> int:
        """The action that ends a trajectory."""
        return self.world.num_actions - 1

    @property
    def net(self) -> FlowNet:
        """The network, with the heads that the loss needs."""
        c, w = self.config.learner, self.world
        wanted = {"forward": True, "backward": self.config.learns_backward, "flow": self.config.learns_flow}
        heads = tuple(head for head, needed in wanted.items() if needed)
        sizes = w.num_inputs, w.num_actions, c.width, c.layers
        tokens = None if self.config.tokens is None else Tokens(*self.config.tokens)
        rest = self.config.learns_log_z, self.config.knots, c.conditioning, tokens
        return FlowNet(*sizes, heads, c.trunk == "shared", *rest, dense=self.dense)

    def init(self, key: jax.Array) -> Agent:
        """A freshly initialised agent."""
        condition = jnp.asarray(self.config.conditions[:1], jnp.float32) if self.config.conditional else None
        encoded = self.encode(self.world.initial()[None])
        params = self.net.init(key, encoded, condition=self.hats(condition))["params"]
        return Agent(params, self.optimiser().init(params), self.hyperparams())

    def hyperparams(self) -> Hyperparams:
        """The hyperparameters in the settings."""
        return Hyperparams(*(jnp.float32(getattr(self.config.learner, name)) for name in Hyperparams._fields))

    def explore(self, hyperparams: Hyperparams, tick: jax.Array) -> Explore:
        """ε and temperature at a tick: linear from start to end."""
        ticks = self.config.learner.explore_until * self.config.ticks
        done = jnp.minimum(tick / ticks, 1.0) if ticks else jnp.float32(1.0)
        return Explore(
            hyperparams.epsilon + done * (hyperparams.epsilon_end - hyperparams.epsilon),
            hyperparams.temperature + done * (hyperparams.temperature_end - hyperparams.temperature),
        )

    def encode(self, states: jax.Array) -> jax.Array:
        """The network's inputs for states [R, D]: float32 [R, F] or int32 [R, K]."""
        return jax.vmap(self.world.encode)(states)

    def condition(self, draws: jax.Array) -> jax.Array:
        """float32 [B] or [B, K]: conditions from draws, places in [0, 1] of their range or weights themselves."""
        if self.config.preferential:
            return draws
        low, high = self.config.learner.condition_low, self.config.learner.condition_high
        return low + (high - low) * draws

    def hats(self, condition: jax.Array | None) -> jax.Array | None:
        """float32 [R, N]: conditions [R] or [R, K] as the network is given them, interpolated between N knots."""
        if condition is None:
            return None
        knots = self.config.lattice
        if self.config.preferential:
            share = jnp.cumsum(condition, axis=-1)[:, :-1]
        else:
            low, high = self.config.learner.condition_low, self.config.learner.condition_high
            share = ((condition - low) / (high - low))[:, None]
        return hats(share * knots.max(), knots)

    def log_z(self, params: Params, condition: jax.Array | None) -> jax.Array:
        """float32 [B] or []: the learned log Z of each condition."""
        at = self.hats(condition)
        return params["log_z"] if at is None else at @ params["log_z"]

    def forward_mask(self, states: jax.Array) -> jax.Array:
        """bool [R, A]: which forward actions states [R, D] allow."""
        return jax.vmap(self.world.forward_mask)(states)

    def backward_mask(self, states: jax.Array) -> jax.Array:
        """bool [R, A − 1]: which actions may have led to states [R, D]."""
        return jax.vmap(self.world.backward_mask)(states)

    def forward_policy(
        self, params: Params, states: jax.Array, explore: Explore, condition: jax.Array | None = None
    ) -> jax.Array:
        """float32 [B, A]: the probability with which sampling takes each action."""
        logits = self.apply(params, states, "forward", condition=condition).forward
        return mixture(logits, self.forward_mask(states), explore)

    def backward_policy(self, params: Params, states: jax.Array, condition: jax.Array | None = None) -> jax.Array:
        """float32 [B, A − 1]: the probability with which each action is undone; zeros in the initial state."""
        mask = self.backward_mask(states)
        if not self.config.learns_backward:
            return mask / jnp.maximum(mask.sum(-1, keepdims=True), 1)
        logits = self.apply(params, states, "backward", condition=condition).backward
        return jax.nn.softmax(jnp.where(mask, logits, MASKED_LOGIT)) * mask

    def sample(
        self,
        params: Params,
        explore: Explore,
        draws: jax.Array,
        start: jax.Array | None = None,
        condition: jax.Array | None = None,
    ) -> Trajectories:
        """Sample a batch until all have stopped; `draws` are uniform, float32 [T, B].

        Trajectories begin in the initial state, or in states `start`, int32 [B, D]. `condition` is float32 [B].
        """
        w, stop, (steps, count) = self.world, self.stop, draws.shape

        def step(carry: Walk) -> Walk:
            t, trajectory, state, active, length, record = carry
            # As long as all trajectories are in the loop, whole rows are read and written.
            whole = trajectory.size == count
            draw = dynamic_index_in_dim(draws, t, keepdims=False) if whole else draws[t, trajectory]
            given = condition if whole or condition is None else condition[trajectory]
            logits = self.apply(params, state, "forward", condition=given).forward
            action = act(logits, self.forward_mask(state), explore, draw)
            length = length + active if whole else length.at[trajectory].add(active)
            taken = jnp.concatenate([state, action[:, None]], axis=1)
            record = dynamic_update_index_in_dim(record, taken, t, 0) if whole else record.at[t, trajectory].set(taken)
            moved = jax.vmap(w.forward)(state, jnp.where(active, action, stop))
            return Walk(t + 1, trajectory, moved, active & (action != stop), length, record)

        def set_aside(carry: Walk, size: int) -> Walk:
            first = jnp.argsort(~carry.active, stable=True)[:size]
            return carry._replace(
                trajectory=carry.trajectory[first], state=carry.state[first], active=carry.active[first]
            )

        begin = jnp.broadcast_to(w.initial()[None], (count, w.state_size)) if start is None else start
        carry = Walk(
            jnp.int32(0),
            jnp.arange(count),
            begin,
            jnp.ones(count, bool),
            jnp.zeros(count, jnp.int32),
            self._empty(steps, count),
        )
        if start is None and w.min_steps == w.max_steps:  # all end together: nothing to check, nothing to set aside
            carry = jax.lax.fori_loop(0, steps, lambda _, walk: step(walk), carry)
            return self._walked(carry, steps, condition)
        sizes = [count, *(size for size in (count // 2, count // 4) if self.compact and size)]
        for size, fewer in zip(sizes, [*sizes[1:], 0], strict=True):
            carry = carry if size == count else set_aside(carry, size)
            carry = jax.lax.while_loop(partial(self._goes_on, steps, fewer), self._several(step), carry)
        return self._walked(carry, steps, condition)

    @staticmethod
    def _walked(walk: Walk, steps: int, condition: jax.Array | None) -> Trajectories:
        """The trajectories of a batch that has ended."""
        return Trajectories(walk.record[:steps, :, :-1], walk.record[:steps, :, -1], walk.length, condition)

    def sample_backward(
        self,
        params: Params,
        objects: jax.Array,
        draws: jax.Array,
        policy: BackwardPolicy | None = None,
        condition: jax.Array | None = None,
    ) -> Trajectories:
        """Sample trajectories that end in given objects, int32 [B, D]; `draws` are uniform, float32 [T, B].

        `policy` is used instead of `backward_policy`, if given. `condition` is float32 [B].
        """
        w, stop, (steps, count) = self.world, self.stop, draws.shape
        policy = policy or partial(self.backward_policy, condition=condition)

        def step(carry: Any) -> Any:
            k, state, record, moves = carry
            active = self.backward_mask(state).any(-1)
            draw = dynamic_index_in_dim(draws, k, keepdims=False)
            action = choose(policy(params, state), draw)
            before = jax.vmap(w.backward)(state, jnp.where(active, action, stop))
            taken = jnp.concatenate([before, action[:, None]], axis=1)
            return k + 1, before, dynamic_update_index_in_dim(record, taken, k, 0), moves + active

        def more(carry: Any) -> jax.Array:
            return self.any_seed(self.backward_mask(carry[1]).any()) & (carry[0] < steps - 1)

        # Stored in reverse, in the order of sampling; a trajectory's length is known only at the end.
        first = jnp.int32(0), objects, self._empty(steps, count), jnp.zeros(count, jnp.int32)
        _, _, record, moves = jax.lax.while_loop(more, self._several(step), first)
        # Step t of a trajectory with n moves was sampled as number n − 1 − t; step n is stop, in the object itself.
        when = jnp.arange(steps)[:, None]
        found = record[jnp.maximum(moves[None] - 1 - when, 0), jnp.arange(count)[None]]
        moving = when < moves[None]
        return Trajectories(
            jnp.where(moving[..., None], found[..., :-1], objects[None]),
            jnp.where(moving, found[..., -1], stop),
            moves + 1,
            condition,
        )

    def objects(self, batch: Trajectories) -> jax.Array:
        """int32 [B, D]: the final states of trajectories."""
        return batch.states[batch.length - 1, jnp.arange(batch.length.size)]

    def log_rewards(self, states: jax.Array, condition: jax.Array | None = None) -> jax.Array:
        """float32 […]: the log-rewards of states int32 […, D], or of [B, D] under conditions [B] or [B, K]."""
        if condition is not None:
            under = partial(log_reward_under, self.world, self.config.learner.scalarisation)
            return jax.vmap(under)(states, condition)
        flat = jax.vmap(self.world.log_reward)(states.reshape(-1, states.shape[-1]))
        return flat.reshape(states.shape[:-1])

    def loss(
        self,
        params: Params,
        hyperparams: Hyperparams,
        batch: Trajectories,
        bucket: int,
        transitions: jax.Array | None = None,
    ) -> tuple[jax.Array, jax.Array]:
        """float32 [] each: the mean loss over a batch with at most `bucket` steps, and the estimate of log Z.

        `transitions` is the number of steps over which a mean over transitions is taken, if not those of this batch.
        """
        terms = Terms(self, params, batch, bucket, transitions)
        return LOSSES[self.config.loss](terms, hyperparams.subtb_lambda)

    def gradient(
        self, agent: Agent, batch: Trajectories, bucket: int, transitions: jax.Array | None = None
    ) -> tuple[Params, Learned]:
        """The gradient of the loss on a batch with at most `bucket` steps, and the metrics."""
        function = jax.value_and_grad(self.loss, has_aux=True)
        (loss, log_z), gradient = function(agent.params, agent.hyperparams, batch, bucket, transitions)
        return gradient, Learned(loss, log_z)

    def update(self, agent: Agent, gradient: Params) -> Agent:
        """One optimiser step."""
        direction, opt_state = self.optimiser().update(gradient, agent.opt_state)
        rates = dict.fromkeys(agent.params, agent.hyperparams.lr) | {"log_z": agent.hyperparams.log_z_lr}
        decay = self.config.learner.weight_decay
        if decay:
            decayed = {name: branch for name, branch in agent.params.items() if name != "log_z"}
            direction |= jax.tree.map(lambda d, p: d + decay * p, {n: direction[n] for n in decayed}, decayed)
        params = {
            name: jax.tree.map(lambda p, d, rate=rates[name]: p - rate * d, branch, direction[name])
            for name, branch in agent.params.items()
        }
        return Agent(params, opt_state, agent.hyperparams)

    def optimiser(self) -> optax.GradientTransformation:
        """Adam, without the learning rates, which are hyperparameters of the agent."""
        return optax.scale_by_adam()

    def log_policies(
        self, params: Params, states: jax.Array, condition: jax.Array | None = None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """log P_F [R, A], log P_B [R, A − 1] and log F [R] of states [R, D]; MASKED_LOGIT for forbidden actions."""
        outputs = self.apply(params, states, "forward", "backward", "flow", condition=condition)
        mask = self.forward_mask(states)
        log_pf = jnp.where(mask, jax.nn.log_softmax(jnp.where(mask, outputs.forward, MASKED_LOGIT)), MASKED_LOGIT)
        mask = self.backward_mask(states)
        logits = jnp.zeros(mask.shape, jnp.float32) if outputs.backward is None else outputs.backward
        log_pb = jnp.where(mask, jax.nn.log_softmax(jnp.where(mask, logits, MASKED_LOGIT)), MASKED_LOGIT)
        log_flow = jnp.zeros(states.shape[0]) if outputs.log_flow is None else outputs.log_flow
        if self.config.loss == "mdb":  # the stop edge says what flows through a state
            log_flow = self.log_rewards(states, condition) - log_pf[:, -1]
        return log_pf, log_pb, log_flow

    def _empty(self, steps: int, count: int) -> jax.Array:
        """int32: room for states and actions; unrolled steps may go beyond the last."""
        return jnp.zeros((steps + self.unroll - 1, count, self.world.state_size + 1), jnp.int32)

    def _goes_on(self, steps: int, fewer: int, walk: Walk) -> jax.Array:
        # Bounded, because a policy of NaNs never stops.
        return self.any_seed(walk.active.sum() > fewer) & (walk.t < steps)

    def any_seed(self, going: jax.Array) -> jax.Array:
        """Whether any seed goes on. If each decided for itself, `vmap` would copy all trajectories to keep some."""
        return going if self.axis is None else jax.lax.pmax(going.astype(jnp.int32), self.axis) > 0

    def _several(self, step: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def steps(carry: Any) -> Any:
            for _ in range(self.unroll):
                carry = step(carry)
            return carry

        return steps

    def apply(self, params: Params, states: jax.Array, *heads: str, condition: jax.Array | None = None) -> Any:
        """What heads of the network say of states [R, D]."""
        return self.net.apply({"params": params}, self.encode(states), heads, self.hats(condition))

    def log_backward(self, logits: jax.Array | None, rows: PackedSteps) -> jax.Array:
        """float32 [R]: log P_B of the step that led to each row; arbitrary in the initial state."""
        mask = self.backward_mask(rows.states)
        if logits is None:
            return -jnp.log(jnp.maximum(mask.sum(-1), 1).astype(jnp.float32))
        return take(jax.nn.log_softmax(jnp.where(mask, logits, MASKED_LOGIT)), rows.previous_action)

    def flow_backward_policy(self, params: Params, states: jax.Array) -> jax.Array:
        """float32 [B, A − 1]: P_B of the flow F·P_F, which flow matching has no other for: each parent's share of it.

        Zeros in the initial state.
        """
        return jax.nn.softmax(self._log_edges(params, states)) * self.backward_mask(states)

    def log_inflow(self, params: Params, states: jax.Array, condition: jax.Array | None = None) -> jax.Array:
        """float32 [R]: the log-flow into each state from all its parents; arbitrary in the initial state."""
        return jax.nn.logsumexp(self._log_edges(params, states, condition), axis=-1)

    def _log_edges(self, params: Params, states: jax.Array, condition: jax.Array | None = None) -> jax.Array:
        """float32 [R, A − 1]: the log-flow into each state by every action; MASKED_LOGIT where there is no edge."""
        mask, moves = self.backward_mask(states), self.stop
        before = jax.vmap(jax.vmap(self.world.backward, (None, 0)), (0, None))(states, jnp.arange(moves))
        parents = jnp.where(mask[..., None], before, states[:, None])  # [R, A − 1, D]; the state if there is none
        each = None if condition is None else jnp.repeat(condition, moves, axis=0)
        log_pf, _, log_flow = self.log_policies(params, parents.reshape(-1, states.shape[-1]), each)
        edges = log_flow.reshape(-1, moves) + jnp.diagonal(log_pf.reshape(-1, moves, moves + 1), axis1=1, axis2=2)
        return jnp.where(mask, edges, MASKED_LOGIT)
