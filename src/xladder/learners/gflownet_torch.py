"""A GFlowNet in PyTorch: the twin of `gflownet.py`.

Shapes: B trajectories, T steps of the longest in the batch, D numbers in a state, A forward actions, R rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from xladder.learners.gflownet import Learned, Trajectories
from xladder.learners.state_torch import TorchState
from xladder.losses import balance_torch as balance
from xladder.nets.flow_torch import FlowNet, FlowOutputs, Tokens, hats
from xladder.worlds.flow import host_terms

if TYPE_CHECKING:
    from xladder.families.gflownet.config import GFlowNetConfig

MASKED_LOGIT = -1e9  # means "not allowed"
SMALLEST = 1e-30  # weight of a reward whose logarithm is taken


class TorchGFlowNet(TorchState):
    """A GFlowNet in PyTorch: `forward_policy` and `backward_policy` for sampling, `update` for learning."""

    def __init__(self, config: GFlowNetConfig, device: str = "cpu"):
        self.config, self.device, self.world = config, device, config.world.host()
        c, w = config.learner, self.world
        wanted = {"forward": True, "backward": config.learns_backward, "flow": config.learns_flow}
        heads = tuple(head for head, needed in wanted.items() if needed)
        shared, has_log_z = c.trunk == "shared", config.learns_log_z
        tokens = None if config.tokens is None else Tokens(*config.tokens)
        sizes = w.num_inputs, w.num_actions, c.width, c.layers
        self.net = FlowNet(*sizes, heads, shared, has_log_z, config.knots, c.conditioning, tokens).to(device)
        # Every parameter once: otherwise the heads of a shared trunk would update it several times per step.
        others = [param for name, param in self.net.named_parameters() if name != "log_z"]
        groups = [{"params": others, "lr": c.lr, "weight_decay": c.weight_decay}]
        if config.learns_log_z:
            groups.append({"params": [self.net.log_z], "lr": c.log_z_lr, "weight_decay": 0.0})
        kind = torch.optim.AdamW if c.weight_decay else torch.optim.Adam
        self.optimiser = kind(groups, eps=1e-8, fused=True)

    @torch.inference_mode()
    def forward_policy(
        self, states: np.ndarray, epsilon: float, temperature: float, condition: np.ndarray | None = None
    ) -> np.ndarray:
        """float32 [B, A]: the probability with which sampling takes each action."""
        mask = self._tensor(self.world.forward_mask(states))
        logits = self._apply(states, "forward", condition=condition).forward
        masked = torch.where(mask, logits, MASKED_LOGIT)
        policy = ((masked - masked.amax(-1, keepdim=True)) / temperature).softmax(-1)
        if epsilon:
            policy = (1 - epsilon) * policy + epsilon * mask / mask.sum(-1, keepdim=True)
        return policy.cpu().numpy()

    @torch.inference_mode()
    def backward_policy(self, states: np.ndarray, condition: np.ndarray | None = None) -> np.ndarray:
        """float32 [B, A − 1]: the probability with which each action is undone; zeros in the initial state."""
        mask = self.world.backward_mask(states)
        if not self.config.learns_backward:
            return (mask / np.maximum(mask.sum(-1, keepdims=True), 1)).astype(np.float32)
        allowed = self._tensor(mask)
        logits = self._apply(states, "backward", condition=condition).backward
        return (torch.where(allowed, logits, MASKED_LOGIT).softmax(-1) * allowed).cpu().numpy()

    @torch.inference_mode()
    def log_flow(self, states: np.ndarray, condition: np.ndarray | None = None) -> np.ndarray | None:
        """float32 [B]: the log-flow of states, or None if it is not known."""
        if self.config.loss == "mdb":  # the stop edge says what flows through a state
            allowed = self._tensor(self.world.forward_mask(states))
            logits = self._apply(states, "forward", condition=condition).forward
            log_stop = torch.where(allowed, logits, MASKED_LOGIT).log_softmax(-1)[:, -1]
            return (self._log_rewards(states, condition) - log_stop).cpu().numpy()
        outputs = self._apply(states, "flow", condition=condition).log_flow
        return None if outputs is None else outputs.cpu().numpy()

    def loss(self, batch: Trajectories) -> tuple[Tensor, Tensor]:
        """float32 [] each: the mean loss over a batch, and the estimate of log Z."""
        longest = int(batch.length.max())
        real = np.arange(longest)[None, :] < batch.length[:, None]  # [B, T]
        states = batch.states[:longest].transpose(1, 0, 2)[real]  # [R, D]
        actions = batch.actions[:longest].T
        previous_action = np.concatenate([actions[:, :1], actions[:, :-1]], axis=1)[real]
        where = self._tensor(real)
        lengths = self._tensor(np.asarray(batch.length, np.int64))
        last = np.asarray(batch.length) - 1
        condition = None if batch.condition is None else np.array(batch.condition, np.float32)
        each = None if condition is None else np.repeat(condition, batch.length, axis=0)  # [R] or [R, K]
        log_reward = self._log_rewards(batch.states[last, np.arange(len(last))], condition)

        def spread(values: Tensor) -> Tensor:
            return values.new_zeros(real.shape).masked_scatter(where, values)

        outputs = self._apply(states, "forward", "backward", "flow", condition=each)
        allowed = self._tensor(self.world.forward_mask(states))
        forward = torch.where(allowed, outputs.forward, MASKED_LOGIT).log_softmax(-1)
        log_pf = spread(_pick(forward, self._tensor(actions[real])))
        kind = self.config.loss
        if self.config.learns_log_z:
            log_z = self.net.log_z if condition is None else self._hats(condition) @ self.net.log_z
        if kind == "rtb":
            log_prior = spread(-allowed.sum(-1).float().log())
            losses = balance.relative_trajectory_balance(log_z, log_pf, log_prior, log_reward, lengths)
            return losses.mean(), log_z.detach().mean()
        log_pb = spread(self._log_backward(outputs, states, previous_action)).roll(-1, 1)
        if kind == "tb":
            losses = balance.trajectory_balance(log_z, log_pf, log_pb, log_reward, lengths)
            return losses.mean(), log_z.detach().mean()
        if kind == "vargrad":
            weights = balance.log_weight(log_pf, log_pb, log_reward, lengths)
            return balance.log_partition_variance(weights), weights.detach().mean()
        by_transitions, lam = self.config.learner.weighting == "transitions", self.config.learner.subtb_lambda

        def mean(losses: Tensor, left_out: int = 0) -> Tensor:
            return balance.mean_over_transitions(losses, lengths - left_out) if by_transitions else losses.mean()

        if kind == "mdb":
            log_stop, log_rewards = spread(forward[:, -1]), spread(self._log_rewards(states, each))
            delta = self.config.learner.mdb_delta
            losses = balance.modified_detailed_balance(log_stop, log_pf, log_pb, log_rewards, lengths, delta)
            log_z = (log_rewards[:, 0] - log_stop[:, 0]).detach()
            return mean(losses, 1), log_z[0] if condition is None else log_z.mean()
        log_flow = spread(outputs.log_flow)
        log_z = (log_flow[0, 0] if condition is None else log_flow[:, 0].mean()).detach()
        if kind == "db":
            return mean(balance.detailed_balance(log_flow, log_pf, log_pb, log_reward, lengths)), log_z
        if kind == "subtb":
            losses = balance.sub_trajectory_balance(log_flow, log_pf, log_pb, log_reward, lengths, lam)
            return losses.mean(), log_z
        if kind == "fm":
            inflow = spread(self._log_inflow(states, each))
            if not by_transitions:
                return balance.flow_matching(inflow, log_flow, log_pf, log_reward, lengths).mean(), log_z
            inside, stops = balance.flow_matching_squares(inflow, log_flow, log_pf, log_reward, lengths)
            return inside.sum() / (lengths - 1).sum().clamp(min=1) + stops.mean(), log_z
        log_rewards = spread(self._log_rewards(states, each))
        log_z = log_z + (log_rewards[0, 0] if condition is None else log_rewards[:, 0].mean())
        if kind == "flsubtb":
            losses = balance.forward_looking_sub_trajectory_balance(log_flow, log_pf, log_pb, log_rewards, lengths, lam)
            return losses.mean(), log_z
        return mean(balance.forward_looking_balance(log_flow, log_pf, log_pb, log_rewards, lengths)), log_z

    def update(self, batch: Trajectories) -> Learned:
        """One step of Adam."""
        loss, log_z = self.loss(batch)
        learned = Learned(float(loss.detach()), float(log_z))
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        return learned

    def _apply(self, states: np.ndarray, *heads: str, condition: np.ndarray | None = None) -> Any:
        given = None if condition is None else self._hats(condition)
        return self.net(self._tensor(self.world.encode(states)), heads, given)

    def _hats(self, condition: np.ndarray) -> Tensor:
        given, knots = self._tensor(condition.astype(np.float32)), self._tensor(np.array(self.config.lattice))
        if self.config.preferential:
            return hats(given.cumsum(-1)[:, :-1] * knots.max(), knots)
        low, high = self.config.learner.condition_low, self.config.learner.condition_high
        return hats(((given - low) / (high - low))[:, None] * knots.max(), knots)

    def _log_rewards(self, states: np.ndarray, condition: np.ndarray | None) -> Tensor:
        if condition is None or not self.config.preferential:
            plain = self._tensor(self.world.log_reward(states))
            return plain if condition is None else self._tensor(condition) * plain
        terms, weights = self._tensor(host_terms(self.world, states)), self._tensor(condition)
        if self.config.learner.scalarisation == "product":
            return (weights * terms).sum(-1)
        return (terms + weights.clamp(min=SMALLEST).log()).logsumexp(-1)

    def _log_backward(self, outputs: FlowOutputs, states: np.ndarray, previous_action: np.ndarray) -> Tensor:
        mask = self.world.backward_mask(states)
        if outputs.backward is None:
            return self._tensor(-np.log(np.maximum(mask.sum(-1), 1)).astype(np.float32))
        return _pick(
            torch.where(self._tensor(mask), outputs.backward, MASKED_LOGIT).log_softmax(-1),
            self._tensor(previous_action),
        )

    def _log_inflow(self, states: np.ndarray, condition: np.ndarray | None = None) -> Tensor:
        mask, moves = self.world.backward_mask(states), self.world.num_actions - 1
        each = np.repeat(states, moves, axis=0)  # [R · (A − 1), D]
        before = self.world.backward(each, np.tile(np.arange(moves), len(states)))
        parents = np.where(mask.reshape(-1, 1), before, each)  # the state itself where there is no such edge
        given = None if condition is None else np.repeat(condition, moves, axis=0)
        outputs = self._apply(parents, "forward", "flow", condition=given)
        allowed = self._tensor(self.world.forward_mask(parents))
        log_pf = torch.where(allowed, outputs.forward, MASKED_LOGIT).log_softmax(-1).reshape(-1, moves, moves + 1)
        edges = outputs.log_flow.reshape(-1, moves) + log_pf.diagonal(dim1=1, dim2=2)
        return torch.where(self._tensor(mask), edges, MASKED_LOGIT).logsumexp(-1)

    def _tensor(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self.device)


def _pick(values: Tensor, index: Tensor) -> Tensor:
    """float32 [R]: one entry of each row [R, A]; arbitrary if the index is stop and there is no such column."""
    return values.gather(1, index.clamp(max=values.shape[1] - 1)[:, None])[:, 0]
