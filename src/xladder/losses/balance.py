"""GFlowNet losses: the distance of a trajectory from a flow that samples objects in proportion to their reward.

- flow matching: Bengio et al. 2021
- detailed balance: Bengio et al. 2023, "GFlowNet foundations"
- modified detailed balance: Deleu et al. 2022, "Bayesian structure learning with generative flow networks"
- trajectory balance: Malkin et al. 2022
- sub-trajectory balance: Madan et al. 2023
- forward-looking balance: Pan et al. 2023, "Better training of GFlowNets with local credit and incomplete trajectories"
- relative trajectory balance: Venkatraman et al. 2024, "Amortizing intractable inference in diffusion models"
- log-partition variance ("VarGrad"): Richter et al. 2020; for GFlowNets Zhang et al. 2023, "Robust scheduling"

A trajectory s_0 → s_1 → … → s_n = x and then *stop* has `length` = n + 1 steps. Step t is taken in s_t, and the last is
stop. Arrays are padded to T ≥ length ≥ 1; the contents of the padding do not matter:

- `log_pf` [T]: log P_F of step t, for t < length
- `log_pb` [T]: log P_B of undoing step t, for t < length − 1. Undoing stop has probability one and is not read.
- `log_flow` [T]: log F(s_t), for t < length
- `log_reward` []: log R(x), finite. It is also the flow through the stop edge.

Functions take one trajectory unless they say otherwise; use `vmap` for a batch. Shapes: T steps, S = T + 1 states,
including the one after stop; B trajectories.
"""

import jax
import jax.numpy as jnp


def trajectory_balance(
    log_z: jax.Array, log_pf: jax.Array, log_pb: jax.Array, log_reward: jax.Array, length: jax.Array | int
) -> jax.Array:
    """float32 []: (log Z + Σ log P_F − Σ log P_B − log R(x))²."""
    return (log_z - log_weight(log_pf, log_pb, log_reward, length)) ** 2


def detailed_balance(
    log_flow: jax.Array, log_pf: jax.Array, log_pb: jax.Array, log_reward: jax.Array, length: jax.Array | int
) -> jax.Array:
    """float32 []: mean over the steps of (log F(s) + log P_F − log F(s′) − log P_B)², where stop leads to R(x)."""
    residuals = _residuals(log_flow, log_pf, log_pb, log_reward, length)
    return jnp.sum(residuals**2) / jnp.asarray(length, residuals.dtype)


def sub_trajectory_balance(
    log_flow: jax.Array,
    log_pf: jax.Array,
    log_pb: jax.Array,
    log_reward: jax.Array,
    length: jax.Array | int,
    lam: jax.Array | float,
) -> jax.Array:
    """float32 []: the squared imbalance of every sub-trajectory i → j, averaged with weights λ^(j − i).

    Small λ is detailed balance, λ = 1 weights all sub-trajectories equally, and larger λ prefers long ones.
    """
    # A part's residual d is the sum of its steps' residuals r. The parts that end with a step are those that ended with
    # the step before, and the empty one, each with r added. So the sums over them of λ^span, λ^span·d and λ^span·d²
    # follow from those of the step before: 400 steps take a twentieth of the time of all pairs of states.
    # Residuals are small even if the log-flows are not, so their sums keep digits that differences of flows would lose.
    step = _residuals(log_flow, log_pf, log_pb, log_reward, length)  # [T]
    weight = jnp.cumsum(lam ** jnp.arange(1, step.shape[0] + 1).astype(step.dtype))
    before = jnp.pad(weight, (1, 0))[:-1] + 1  # with the empty part
    first = _decayed_sums(lam * step * before, lam)
    second = _decayed_sums(lam * step * (2 * jnp.pad(first, (1, 0))[:-1] + step * before), lam)
    inside = jnp.arange(step.shape[0]) < length  # parts that end in the padding do not count
    return jnp.sum(jnp.where(inside, second, 0.0)) / jnp.sum(jnp.where(inside, weight, 0.0))


def flow_matching(
    log_inflow: jax.Array, log_flow: jax.Array, log_pf: jax.Array, log_reward: jax.Array, length: jax.Array | int
) -> jax.Array:
    """float32 []: mean over `length` squares, one for each state after s_0 and one for the stop edge.

    `log_inflow` [T] is log Σ F(p)·P_F(s_t|p) over the parents p of s_t, for 1 ≤ t < length, and has to match
    log F(s_t). The stop edge F(x)·P_F(stop|x) has to match R(x). Of `log_pf`, only the stop is read.
    """
    states, stop = flow_matching_squares(log_inflow, log_flow, log_pf, log_reward, length)
    return (states + stop) / jnp.asarray(length, states.dtype)


def flow_matching_squares(
    log_inflow: jax.Array, log_flow: jax.Array, log_pf: jax.Array, log_reward: jax.Array, length: jax.Array | int
) -> tuple[jax.Array, jax.Array]:
    """float32 [] each: the squares of `flow_matching`, summed over the states after s_0, and that of the stop edge."""
    step = jnp.arange(log_flow.shape[0])
    reached = (step >= 1) & (step < length)
    matching = jnp.where(reached, log_inflow, 0.0) - jnp.where(reached, log_flow, 0.0)  # [T]
    stopping = _last(log_flow, length) + _last(log_pf, length) - log_reward
    return jnp.sum(matching**2), stopping**2


def forward_looking_balance(
    log_flow: jax.Array, log_pf: jax.Array, log_pb: jax.Array, log_rewards: jax.Array, length: jax.Array | int
) -> jax.Array:
    """float32 []: detailed balance with log F(s) = log F̃(s) + log R(s), so that rewards count before the end.

    `log_flow` [T] is log F̃(s_t) and `log_rewards` [T] is log R(s_t), for t < length.
    """
    return detailed_balance(*_looking_forward(log_flow, log_pf, log_pb, log_rewards, length))


def forward_looking_sub_trajectory_balance(
    log_flow: jax.Array,
    log_pf: jax.Array,
    log_pb: jax.Array,
    log_rewards: jax.Array,
    length: jax.Array | int,
    lam: jax.Array | float,
) -> jax.Array:
    """float32 []: sub-trajectory balance with log F(s) = log F̃(s) + log R(s); see `forward_looking_balance`."""
    return sub_trajectory_balance(*_looking_forward(log_flow, log_pf, log_pb, log_rewards, length), lam)


def relative_trajectory_balance(
    log_z: jax.Array, log_pf: jax.Array, log_prior: jax.Array, log_reward: jax.Array, length: jax.Array | int
) -> jax.Array:
    """float32 []: (log Z + Σ log P_F − Σ log P_prior − log R(x))², for a sampler of P_prior(x)·R(x) / Z.

    `log_prior` [T] is the log-probability of every step, including stop, under a fixed forward policy, the prior.
    """
    steps = jnp.arange(log_pf.shape[0]) < length
    ratios = jnp.where(steps, log_pf, 0.0) - jnp.where(steps, log_prior, 0.0)
    return (log_z + jnp.sum(ratios) - log_reward) ** 2


def mean_over_transitions(
    losses: jax.Array, length: jax.Array, transitions: jax.Array | float | None = None
) -> jax.Array:
    """float32 []: mean over the transitions of all trajectories, from each trajectory's mean [B] and length [B].

    So long trajectories count more, as in torchgfn and gfnx. `transitions` is their number if it is not that of this
    batch: the mean over several devices.
    """
    weights = length.astype(losses.dtype)
    return jnp.sum(losses * weights) / jnp.maximum(weights.sum() if transitions is None else transitions, 1)


def modified_detailed_balance(
    log_stop: jax.Array,
    log_pf: jax.Array,
    log_pb: jax.Array,
    log_rewards: jax.Array,
    length: jax.Array | int,
    delta: float = float("inf"),
) -> jax.Array:
    """float32 []: detailed balance with the flow R(s) / P_F(stop|s), if every state is an object; none is learned.

    The mean over the steps before stop, which is balanced by itself; 0 for a trajectory that stops at once. `log_stop`
    [T] is log P_F(stop|s_t) and `log_rewards` [T] is log R(s_t), for t < length. Residuals beyond ±δ count linearly, as
    in twice Huber's loss.
    """
    step = jnp.arange(log_stop.shape[0])
    log_flow = jnp.where(step < length, log_rewards, 0.0) - jnp.where(step < length, log_stop, 0.0)
    residuals = _residuals(log_flow, log_pf, log_pb, _last(log_rewards, length), length)
    away = jnp.abs(jnp.where(step < length - 1, residuals, 0.0))
    near = jnp.minimum(away, delta)
    steps = jnp.maximum(jnp.asarray(length, away.dtype) - 1, 1)
    return jnp.sum(near * (2 * away - near)) / steps


def log_weight(log_pf: jax.Array, log_pb: jax.Array, log_reward: jax.Array, length: jax.Array | int) -> jax.Array:
    """float32 []: log R(x) + Σ log P_B − Σ log P_F, this trajectory's own estimate of log Z."""
    return log_reward - jnp.sum(_log_ratios(log_pf, log_pb, length))


def log_partition_variance(log_weights: jax.Array) -> jax.Array:
    """float32 []: mean of (ζ − mean ζ)² over the `log_weight` ζ of trajectories [B]; in a perfect flow all equal log Z.

    Gradients through the mean cancel, because deviations from a mean add up to zero.
    """
    return jnp.var(log_weights)


def _decayed_sums(values: jax.Array, decay: jax.Array | float) -> jax.Array:
    """float32 [T]: Σ_i decay^(t − i) · values[i] over i ≤ t."""

    def joined(left: tuple[jax.Array, jax.Array], right: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        return left[0] * right[0], left[1] * right[0] + right[1]

    return jax.lax.associative_scan(joined, (jnp.full_like(values, decay), values))[1]


def _log_ratios(log_pf: jax.Array, log_pb: jax.Array, length: jax.Array | int) -> jax.Array:
    """float32 [T]: log P_F − log P_B of each step, zero in the padding."""
    step = jnp.arange(log_pf.shape[0])
    return jnp.where(step < length, log_pf, 0.0) - jnp.where(step < length - 1, log_pb, 0.0)


def _residuals(
    log_flow: jax.Array, log_pf: jax.Array, log_pb: jax.Array, log_reward: jax.Array, length: jax.Array | int
) -> jax.Array:
    """float32 [T]: log F(s_t) + log P_F − log F(s_{t+1}) − log P_B of each step, zero in the padding."""
    # The flow stays R(x) after stop, so the residuals in the padding are zero.
    flow = jnp.where(jnp.arange(log_flow.shape[0] + 1) < length, jnp.pad(log_flow, (0, 1)), log_reward)  # [S]
    # Flows of neighbouring states are close: subtracting them first loses no digits.
    return (flow[:-1] - flow[1:]) + _log_ratios(log_pf, log_pb, length)


def _looking_forward(
    log_flow: jax.Array, log_pf: jax.Array, log_pb: jax.Array, log_rewards: jax.Array, length: jax.Array | int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array, jax.Array | int]:
    """The arguments of a loss with forward-looking flows: log F̃(s) + log R(s) as the flow."""
    rewards = jnp.where(jnp.arange(log_rewards.shape[0]) < length, log_rewards, 0.0)
    return log_flow + rewards, log_pf, log_pb, _last(log_rewards, length), length


def _last(values: jax.Array, length: jax.Array | int) -> jax.Array:
    """float32 []: the entry of [T] at the last step, as a masked sum: under `vmap`, an index would be a gather."""
    return jnp.sum(jnp.where(jnp.arange(values.shape[0]) == length - 1, values, 0.0))
