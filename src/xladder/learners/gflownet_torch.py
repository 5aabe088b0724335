"""A GFlowNet in PyTorch: the twin of `gflownet.py`.

Shapes: B trajectories, T steps of the longest in the batch, D numbers in a state, A forward actions, R rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from xladder.learners.compiled_torch import Graph, compile_function, make_capturable
from xladder.learners.gflownet import Learned, Trajectories
from xladder.learners.state_torch import TorchState
from xladder.losses import balance_torch as balance
from xladder.nets.flow_torch import FlowNet, FlowOutputs, Tokens, hats
from xladder.worlds.flow import host_terms

if TYPE_CHECKING:
    from xladder.families.gflownet.config import GFlowNetConfig

MASKED_LOGIT = -1e9  # means "not allowed"
SMALLEST = 1e-30  # weight of a reward whose logarithm is taken


class Rows(NamedTuple):
    """All steps of a batch one after another, as the loss needs them; None where it does not."""

    encoded: Tensor  # [R, …]: the states, encoded
    allowed: Tensor  # bool [R, A]
    removable: Tensor  # bool [R, A − 1]: which actions may have led to a state
    actions: Tensor  # [R]
    previous_action: Tensor  # [R]: the action that led to the state
    condition: Tensor | None  # float32 [R] or [R, K]
    log_rewards: Tensor | None  # float32 [R]: of the states
    where: Tensor  # bool [B, T]: whether there is such a step
    place: Tensor  # int64 [B, T]: its row
    lengths: Tensor  # int64 [B]
    log_reward: Tensor  # float32 [B]: of the objects
    conditions: Tensor | None  # float32 [B] or [B, K]
    parents: Tensor | None = None  # [R, A − 1, …]: the states before each action, encoded
    parents_allowed: Tensor | None = None  # bool [R, A − 1, A]


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
        # Functions of tensors alone, which `compile` replaces.
        self._policy: Callable[..., Tensor] = self.policy
        self._undo: Callable[..., Tensor] = self.undo
        self._loss: Callable[..., tuple[Tensor, Tensor]] = self.loss_of
        self._step: Callable[..., tuple[Tensor, Tensor]] = self.step
        self._home = device  # where their inputs lie: graphs copy them to the GPU
        self._buckets: list[int] | None = None
        self._knots = self._tensor(np.array(config.lattice))

    @torch.inference_mode()
    def forward_policy(
        self, states: np.ndarray, epsilon: float, temperature: float, condition: np.ndarray | None = None
    ) -> np.ndarray:
        """float32 [B, A]: the probability with which sampling takes each action."""
        mask, explore = self.world.forward_mask(states), np.array([epsilon, temperature], np.float32)
        given = self._input(self.world.encode(states)), self._input(mask), self._given(condition), self._input(explore)
        return self._policy(*given).cpu().numpy()

    @torch.inference_mode()
    def backward_policy(self, states: np.ndarray, condition: np.ndarray | None = None) -> np.ndarray:
        """float32 [B, A − 1]: the probability with which each action is undone; zeros in the initial state."""
        mask = self.world.backward_mask(states)
        if not self.config.learns_backward:
            return (mask / np.maximum(mask.sum(-1, keepdims=True), 1)).astype(np.float32)
        given = self._input(self.world.encode(states)), self._input(mask), self._given(condition)
        return self._undo(*given).cpu().numpy()

    @torch.inference_mode()
    def log_flow(self, states: np.ndarray, condition: np.ndarray | None = None) -> np.ndarray | None:
        """float32 [B]: the log-flow of states, or None if it is not known."""
        if self.config.loss == "mdb":  # the stop edge says what flows through a state
            allowed = self._tensor(self.world.forward_mask(states))
            logits = self._apply(states, "forward", condition=condition).forward
            log_stop = torch.where(allowed, logits, MASKED_LOGIT).log_softmax(-1)[:, -1]
            return self._log_rewards(states, condition) - log_stop.cpu().numpy()
        outputs = self._apply(states, "flow", condition=condition).log_flow
        return None if outputs is None else outputs.cpu().numpy()

    def loss(self, batch: Trajectories) -> tuple[Tensor, Tensor]:
        """float32 [] each: the mean loss over a batch, and the estimate of log Z."""
        return self._loss(self.prepare(batch))

    def prepare(self, batch: Trajectories, rows: int | None = None, steps: int | None = None) -> Rows:
        """What the loss needs of a batch, as tensors; padded to so many rows and steps, if given."""
        longest = steps or int(batch.length.max())
        real = np.arange(longest)[None, :] < batch.length[:, None]  # [B, T]
        states = batch.states[:longest].transpose(1, 0, 2)[real]  # [R, D]
        actions = batch.actions[:longest].T
        last, kind = np.asarray(batch.length) - 1, self.config.loss
        condition = None if batch.condition is None else np.array(batch.condition, np.float32)
        each = None if condition is None else np.repeat(condition, batch.length, axis=0)  # [R] or [R, K]
        removable = self.world.backward_mask(states)
        found: dict[str, np.ndarray | None] = {
            "encoded": self.world.encode(states),
            "allowed": self.world.forward_mask(states),
            "removable": removable,
            "actions": actions[real],
            "previous_action": np.concatenate([actions[:, :1], actions[:, :-1]], axis=1)[real],
            "condition": each,
            "log_rewards": self._log_rewards(states, each) if kind in ("mdb", "fldb", "flsubtb") else None,
        }
        if kind == "fm":
            parents = self._parents(states, removable)
            encoded, allowed = self.world.encode(parents), self.world.forward_mask(parents)
            found["parents"] = encoded.reshape(len(states), -1, *encoded.shape[1:])
            found["parents_allowed"] = allowed.reshape(len(states), -1, self.world.num_actions)
        tensors: dict[str, Any] = {
            name: None if values is None else self._input(_padded(values, rows)) for name, values in found.items()
        }
        log_reward = self._log_rewards(batch.states[last, np.arange(len(last))], condition)
        return Rows(
            where=self._input(real),
            place=self._input(np.where(real, real.cumsum().reshape(real.shape) - 1, 0)),
            lengths=self._input(np.asarray(batch.length, np.int64)),
            log_reward=self._input(log_reward),
            conditions=self._given(condition),
            **tensors,
        )

    def loss_of(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """As `loss`, of tensors."""
        lengths, log_reward, conditions = rows.lengths, rows.log_reward, rows.conditions

        def spread(values: Tensor | None) -> Tensor:
            assert values is not None
            return torch.where(rows.where, values[rows.place], 0.0)  # a masked scatter would wait for a GPU

        outputs = self._outputs(rows.encoded, rows.condition, "forward", "backward", "flow")
        forward = torch.where(rows.allowed, outputs.forward, MASKED_LOGIT).log_softmax(-1)
        log_pf = spread(_pick(forward, rows.actions))
        kind = self.config.loss
        if self.config.learns_log_z:
            log_z = self.net.log_z if conditions is None else self._hats(conditions) @ self.net.log_z
        if kind == "rtb":
            log_prior = spread(-rows.allowed.sum(-1).float().log())
            losses = balance.relative_trajectory_balance(log_z, log_pf, log_prior, log_reward, lengths)
            return losses.mean(), log_z.detach().mean()
        log_pb = spread(_log_backward(outputs, rows)).roll(-1, 1)
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
            log_stop, log_rewards = spread(forward[:, -1]), spread(rows.log_rewards)
            delta = self.config.learner.mdb_delta
            losses = balance.modified_detailed_balance(log_stop, log_pf, log_pb, log_rewards, lengths, delta)
            log_z = (log_rewards[:, 0] - log_stop[:, 0]).detach()
            return mean(losses, 1), log_z[0] if conditions is None else log_z.mean()
        log_flow = spread(outputs.log_flow)
        log_z = (log_flow[0, 0] if conditions is None else log_flow[:, 0].mean()).detach()
        if kind == "db":
            return mean(balance.detailed_balance(log_flow, log_pf, log_pb, log_reward, lengths)), log_z
        if kind == "subtb":
            losses = balance.sub_trajectory_balance(log_flow, log_pf, log_pb, log_reward, lengths, lam)
            return losses.mean(), log_z
        if kind == "fm":
            inflow = spread(self._log_inflow(rows))
            if not by_transitions:
                return balance.flow_matching(inflow, log_flow, log_pf, log_reward, lengths).mean(), log_z
            inside, stops = balance.flow_matching_squares(inflow, log_flow, log_pf, log_reward, lengths)
            return inside.sum() / (lengths - 1).sum().clamp(min=1) + stops.mean(), log_z
        log_rewards = spread(rows.log_rewards)
        log_z = log_z + (log_rewards[0, 0] if conditions is None else log_rewards[:, 0].mean())
        if kind == "flsubtb":
            losses = balance.forward_looking_sub_trajectory_balance(log_flow, log_pf, log_pb, log_rewards, lengths, lam)
            return losses.mean(), log_z
        return mean(balance.forward_looking_balance(log_flow, log_pf, log_pb, log_rewards, lengths)), log_z

    def update(self, batch: Trajectories) -> Learned:
        """One step of Adam."""
        loss, log_z = self._step(*self.prepare(batch, *self._bucket(int(batch.length.sum()))))
        return Learned(float(loss), float(log_z))

    def step(self, *tensors: Any) -> tuple[Tensor, Tensor]:
        """As `update`, of the fields of `Rows`."""
        loss, log_z = self._loss(Rows(*tensors))
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        return loss.detach(), log_z

    def compile(self) -> None:
        """Compile both policies and the loss; on a GPU, capture the update as one graph for each number of rows."""
        self._policy, self._undo = compile_function(self.policy), compile_function(self.undo)
        self._loss = compile_function(self.loss_of, dynamic=True)
        if self.device == "cpu":
            return
        make_capturable(self.optimiser)
        self._policy, self._undo, self._step = Graph(self._policy), Graph(self._undo), Graph(self.step)
        self._home = "cpu"
        most, size = self.world.max_steps, self.config.learner.batch_size
        self._buckets = [rows for rows in (size * 2**k for k in range(most.bit_length())) if rows < size * most]
        self._buckets.append(size * most)
        # All are captured now, because a capture updates the parameters; see `TorchBackend.compile`.
        states = np.tile(self.world.initial(size), (most, 1, 1))
        given = np.array(self.config.conditions[:1], np.float32) if self.config.conditional else None
        condition = None if given is None else np.repeat(given, size, axis=0)
        blank = Trajectories(states, np.full((most, size), self.world.num_actions - 1), np.ones(size, int), condition)
        for rows in reversed(self._buckets):  # the largest first: there, no two sizes are equal by chance
            self._step(*self.prepare(blank, rows, most))

    def _bucket(self, rows: int) -> tuple[int | None, int | None]:
        """The number of rows and steps that a batch is padded to."""
        if self._buckets is None:
            return None, None
        return next(bucket for bucket in self._buckets if bucket >= rows), self.world.max_steps

    def policy(self, encoded: Tensor, allowed: Tensor, condition: Tensor | None, explore: Tensor) -> Tensor:
        """float32 [B, A]: as `forward_policy`, of tensors; `explore` is ε and the temperature."""
        logits = self._outputs(encoded, condition, "forward").forward
        masked = torch.where(allowed, logits, MASKED_LOGIT)
        chosen = ((masked - masked.amax(-1, keepdim=True)) / explore[1]).softmax(-1)
        return (1 - explore[0]) * chosen + explore[0] * allowed / allowed.sum(-1, keepdim=True)

    def undo(self, encoded: Tensor, removable: Tensor, condition: Tensor | None) -> Tensor:
        """float32 [B, A − 1]: as `backward_policy`, of tensors."""
        logits = self._outputs(encoded, condition, "backward").backward
        return torch.where(removable, logits, MASKED_LOGIT).softmax(-1) * removable

    def _apply(self, states: np.ndarray, *heads: str, condition: np.ndarray | None = None) -> Any:
        given = None if condition is None else self._tensor(np.asarray(condition, np.float32))
        return self._outputs(self._tensor(self.world.encode(states)), given, *heads)

    def _outputs(self, encoded: Tensor, condition: Tensor | None, *heads: str) -> Any:
        return self.net(encoded, heads, None if condition is None else self._hats(condition))

    def _hats(self, condition: Tensor) -> Tensor:
        knots = self._knots
        if self.config.preferential:
            return hats(condition.cumsum(-1)[:, :-1] * knots.max(), knots)
        low, high = self.config.learner.condition_low, self.config.learner.condition_high
        return hats(((condition - low) / (high - low))[:, None] * knots.max(), knots)

    def _log_rewards(self, states: np.ndarray, condition: np.ndarray | None) -> np.ndarray:
        if condition is None or not self.config.preferential:
            plain = self.world.log_reward(states)
            return plain if condition is None else condition * plain
        terms, weights = map(torch.from_numpy, (np.ascontiguousarray(host_terms(self.world, states)), condition))
        if self.config.learner.scalarisation == "product":
            return (weights * terms).sum(-1).numpy()
        return (terms + weights.clamp(min=SMALLEST).log()).logsumexp(-1).numpy()

    def _parents(self, states: np.ndarray, removable: np.ndarray) -> np.ndarray:
        """int32 [R · (A − 1), D]: the states before each action; the state itself where there is no such edge."""
        moves = self.world.num_actions - 1
        each = np.repeat(states, moves, axis=0)
        before = self.world.backward(each, np.tile(np.arange(moves), len(states)))
        return np.where(removable.reshape(-1, 1), before, each)

    def _log_inflow(self, rows: Rows) -> Tensor:
        assert rows.parents is not None and rows.parents_allowed is not None
        moves = self.world.num_actions - 1
        given = None if rows.condition is None else rows.condition.repeat_interleave(moves, 0)
        outputs = self._outputs(rows.parents.flatten(0, 1), given, "forward", "flow")
        allowed = rows.parents_allowed.flatten(0, 1)
        log_pf = torch.where(allowed, outputs.forward, MASKED_LOGIT).log_softmax(-1).reshape(-1, moves, moves + 1)
        edges = outputs.log_flow.reshape(-1, moves) + log_pf.diagonal(dim1=1, dim2=2)
        return torch.where(rows.removable, edges, MASKED_LOGIT).logsumexp(-1)

    def _tensor(self, values: np.ndarray) -> Tensor:
        return self._input(values).to(self.device)

    def _input(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._home)

    def _given(self, condition: np.ndarray | None) -> Tensor | None:
        return None if condition is None else self._input(np.asarray(condition, np.float32))


def _log_backward(outputs: FlowOutputs, rows: Rows) -> Tensor:
    if outputs.backward is None:
        return -rows.removable.sum(-1).clamp(min=1).double().log().float()
    masked = torch.where(rows.removable, outputs.backward, MASKED_LOGIT)
    return _pick(masked.log_softmax(-1), rows.previous_action)


def _padded(values: np.ndarray, rows: int | None) -> np.ndarray:
    """An array [R, …] with zeros behind, up to so many rows."""
    if rows is None:
        return values
    return np.concatenate([values, np.zeros((rows - len(values), *values.shape[1:]), values.dtype)])


def _pick(values: Tensor, index: Tensor) -> Tensor:
    """float32 [R]: one entry of each row [R, A]; arbitrary if the index is stop and there is no such column."""
    return values.gather(1, index.clamp(max=values.shape[1] - 1)[:, None])[:, 0]
