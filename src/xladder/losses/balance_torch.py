"""GFlowNet losses in PyTorch: the twin of `balance.py`, on a batch.

`balance.py` lists the papers and explains the arguments. Here `log_pf`, `log_pb`, `log_flow`, `log_inflow` and
`log_rewards` are [B, T], `log_reward` is [B] and `lengths` int64 [B].
Shapes: B trajectories, T steps, S = T + 1 states, including the one after stop.
"""

import torch
from torch import Tensor
from torch.nn import functional


def trajectory_balance(log_z: Tensor, log_pf: Tensor, log_pb: Tensor, log_reward: Tensor, lengths: Tensor) -> Tensor:
    """float32 [B]: (log Z + Σ log P_F − Σ log P_B − log R(x))², with one log Z [] for all."""
    return (log_z - log_weight(log_pf, log_pb, log_reward, lengths)).square()


def detailed_balance(log_flow: Tensor, log_pf: Tensor, log_pb: Tensor, log_reward: Tensor, lengths: Tensor) -> Tensor:
    """float32 [B]: mean over the steps of (log F(s) + log P_F − log F(s′) − log P_B)², where stop leads to R(x)."""
    return _residuals(log_flow, log_pf, log_pb, log_reward, lengths).square().sum(1) / lengths


def sub_trajectory_balance(
    log_flow: Tensor, log_pf: Tensor, log_pb: Tensor, log_reward: Tensor, lengths: Tensor, lam: float
) -> Tensor:
    """float32 [B]: the squared imbalance of every sub-trajectory i → j, averaged with weights λ^(j − i)."""
    # All pairs of states: at the usual lengths eager PyTorch is faster with them than with the running sums of the JAX
    # loss, and parity then compares two ways to compute it.
    running = functional.pad(_residuals(log_flow, log_pf, log_pb, log_reward, lengths).cumsum(1), (1, 0))  # [B, S]
    parts = running[:, None, :] - running[:, :, None]  # [B, S, S], from i (row) to j (column)
    state = torch.arange(running.shape[1], device=running.device)
    span = (state[None, :] - state[:, None]).abs().to(running.dtype)
    weight = (lam**span).triu(1)  # [S, S]
    outside = state > lengths[:, None]  # [B, S]
    total = (weight * parts.square()).sum(1).masked_fill(outside, 0.0).sum(1)
    return total / weight.sum(0).cumsum(0)[lengths]


def flow_matching(log_inflow: Tensor, log_flow: Tensor, log_pf: Tensor, log_reward: Tensor, lengths: Tensor) -> Tensor:
    """float32 [B]: mean over `length` squares, one for each state after s_0 and one for the stop edge."""
    states, stop = flow_matching_squares(log_inflow, log_flow, log_pf, log_reward, lengths)
    return (states + stop) / lengths


def flow_matching_squares(
    log_inflow: Tensor, log_flow: Tensor, log_pf: Tensor, log_reward: Tensor, lengths: Tensor
) -> tuple[Tensor, Tensor]:
    """float32 [B] each: the squares, summed over the states after s_0, and those of the stop edges."""
    step = torch.arange(log_flow.shape[1], device=log_flow.device)
    unread = (step < 1) | (step >= lengths[:, None])  # [B, T]
    matching = (log_inflow - log_flow).masked_fill(unread, 0.0)
    stopping = _last(log_flow + log_pf, lengths) - log_reward
    return matching.square().sum(1), stopping.square()


def forward_looking_balance(
    log_flow: Tensor, log_pf: Tensor, log_pb: Tensor, log_rewards: Tensor, lengths: Tensor
) -> Tensor:
    """float32 [B]: detailed balance with log F(s) = log F̃(s) + log R(s), so that rewards count before the end."""
    return detailed_balance(log_flow + log_rewards, log_pf, log_pb, _last(log_rewards, lengths), lengths)


def forward_looking_sub_trajectory_balance(
    log_flow: Tensor, log_pf: Tensor, log_pb: Tensor, log_rewards: Tensor, lengths: Tensor, lam: float
) -> Tensor:
    """float32 [B]: sub-trajectory balance with log F(s) = log F̃(s) + log R(s)."""
    return sub_trajectory_balance(log_flow + log_rewards, log_pf, log_pb, _last(log_rewards, lengths), lengths, lam)


def relative_trajectory_balance(
    log_z: Tensor, log_pf: Tensor, log_prior: Tensor, log_reward: Tensor, lengths: Tensor
) -> Tensor:
    """float32 [B]: (log Z + Σ log P_F − Σ log P_prior − log R(x))², with one log Z [] for all."""
    beyond = torch.arange(log_pf.shape[1], device=log_pf.device) >= lengths[:, None]
    ratios = log_pf.masked_fill(beyond, 0.0) - log_prior.masked_fill(beyond, 0.0)
    return (log_z + ratios.sum(1) - log_reward).square()


def mean_over_transitions(losses: Tensor, lengths: Tensor) -> Tensor:
    """float32 []: mean over the transitions of all trajectories, from each trajectory's mean [B] and length [B]."""
    return (losses * lengths).sum() / lengths.sum().clamp(min=1)


def modified_detailed_balance(
    log_stop: Tensor,
    log_pf: Tensor,
    log_pb: Tensor,
    log_rewards: Tensor,
    lengths: Tensor,
    delta: float = float("inf"),
) -> Tensor:
    """float32 [B]: detailed balance with the flow R(s) / P_F(stop|s); 0 for trajectories that stop at once."""
    log_flow = log_rewards - log_stop
    residuals = _residuals(log_flow, log_pf, log_pb, _last(log_rewards, lengths), lengths)
    beyond = torch.arange(log_pf.shape[1], device=log_pf.device) >= lengths[:, None] - 1
    away = residuals.masked_fill(beyond, 0.0).abs()
    near = away.clamp(max=delta)
    return (near * (2 * away - near)).sum(1) / (lengths - 1).clamp(min=1)


def log_weight(log_pf: Tensor, log_pb: Tensor, log_reward: Tensor, lengths: Tensor) -> Tensor:
    """float32 [B]: log R(x) + Σ log P_B − Σ log P_F, each trajectory's own estimate of log Z."""
    return log_reward - _log_ratios(log_pf, log_pb, lengths).sum(1)


def log_partition_variance(log_weights: Tensor) -> Tensor:
    """float32 []: mean of (ζ − mean ζ)² over the `log_weight` ζ of trajectories [B]."""
    return log_weights.var(correction=0)


def _log_ratios(log_pf: Tensor, log_pb: Tensor, lengths: Tensor) -> Tensor:
    """float32 [B, T]: log P_F − log P_B of each step, zero in the padding."""
    step = torch.arange(log_pf.shape[1], device=log_pf.device)
    end = lengths[:, None]
    return log_pf.masked_fill(step >= end, 0.0) - log_pb.masked_fill(step >= end - 1, 0.0)


def _residuals(log_flow: Tensor, log_pf: Tensor, log_pb: Tensor, log_reward: Tensor, lengths: Tensor) -> Tensor:
    """float32 [B, T]: log F(s_t) + log P_F − log F(s_{t+1}) − log P_B of each step, zero in the padding."""
    state = torch.arange(log_flow.shape[1] + 1, device=log_flow.device)
    flow = torch.where(state < lengths[:, None], functional.pad(log_flow, (0, 1)), log_reward[:, None])  # [B, S]
    return (flow[:, :-1] - flow[:, 1:]) + _log_ratios(log_pf, log_pb, lengths)


def _last(values: Tensor, lengths: Tensor) -> Tensor:
    """float32 [B]: the entries [B, T] of the last steps."""
    return values.gather(1, lengths[:, None] - 1)[:, 0]
