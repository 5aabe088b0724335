"""The value learner in PyTorch: the twin of `value.py`, one agent with its networks and optimiser.

Random numbers are passed in as `Draws` by tests, and come from PyTorch's generator otherwise. All sizes follow from the
settings and the network: nothing comes from the JAX side, which this checks.

Shapes: B batch, F frames, Q fractions, Z outputs per action, A actions. Those of a team have an axis G of agents.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import numpy as np
import torch
from torch import Tensor

from xladder import parameters
from xladder.core.types import Params
from xladder.learners.compiled_torch import Graph, compile_function, make_capturable
from xladder.learners.masks_torch import mask_values, split_mask
from xladder.learners.state_torch import TorchState
from xladder.losses.heads_torch import ReturnHead, make_head
from xladder.losses.value_torch import munchausen_bonus, soft_values
from xladder.replay.batch import Batch


class Draws(NamedTuple):
    """The random numbers of one update, with the fields of `value.Draws`."""

    taus: Tensor  # [3, B, Q]
    noise: Tensor  # [3, noise_size]


class Transitions(NamedTuple):
    """What the loss takes of a batch besides the network's outputs, with the fields of `value.Transitions`."""

    actions: Tensor  # int64 [B]
    returns: Tensor  # [B]
    discounts: Tensor  # [B]
    mask: Tensor | None  # bool [B, A]
    next_mask: Tensor | None  # bool [B, A]


class Passes(NamedTuple):
    """A network's outputs [B, Z, A], as functions of fractions [B, Q] and noise."""

    now: Callable[..., Tensor]
    next: Callable[..., Tensor]


class TorchLearner(TorchState):
    """One agent: `values` returns Q-values, `update` learns.

    Args:
        config: The settings of the learner.
        net: Its network, a `ValueNet`.
        device: The PyTorch device.
        masked: How many axes a frame has, if it says which actions are available; 0 if it does not.
        torso_names: The JAX layer names of a user's own torso; None for a built-in one.
        team: How many agents share the value that is learned, with a `TeamNet`; 0 for a single agent.
    """

    NETS = ("net", "target")
    BATCH: ClassVar[Any] = Batch

    def __init__(
        self,
        config: Any,
        net: Any,
        device: str = "cpu",
        masked: int = 0,
        torso_names: parameters.TorsoNames | None = None,
        team: int = 0,
    ):
        self.config, self.device, self.masked, self.torso_names = config, device, masked, torso_names
        self.team = team
        self.net = net.to(device)
        self.target = copy.deepcopy(self.net).requires_grad_(False)
        if getattr(self.net, "normaliser", None) is not None:
            self.target.normaliser = self.net.normaliser  # the same statistics for both
        self.optimiser = make_optimiser(config, self.net.parameters(), config.lr)
        self._targets: list[Tensor] = list(self.target.parameters())
        self._params: list[Tensor] = list(self.net.parameters())
        self.head: ReturnHead = make_head(config)
        # Functions of tensors alone, which `compile` replaces.
        self._act: Callable[..., Tensor] = self.act
        self._loss: Callable[..., tuple[Tensor, Tensor]] = self.loss
        self._step: Callable[..., tuple[Tensor, Tensor]] = self.step
        self._home = device  # where their inputs lie: graphs copy them to the GPU

    def compile(self) -> None:
        """Compile acting and the loss; on a GPU, capture acting and the whole update as graphs at their first calls."""
        self._act, self._loss = compile_function(self.act), compile_function(self.loss)
        if self.device != "cpu":
            make_capturable(self.optimiser)
            self._act, self._step, self._home = Graph(self._act), Graph(self.step), "cpu"

    def to_jax(self, state: Mapping[str, Tensor]) -> Params:
        """A state_dict of this network, or gradients by the same names, as the JAX pytree."""
        arrays = {name: values.detach().cpu().numpy() for name, values in state.items()}
        if not self.team:
            return parameters.to_tree("value", arrays, self.torso_names)
        trees = []
        for i in range(len(self.net.members)):
            own = {
                name.removeprefix(f"members.{i}."): x for name, x in arrays.items() if name.startswith(f"members.{i}.")
            }
            trees.append(parameters.to_tree("value", own, self.torso_names))
        return trees[0] if self.net.shared else jax.tree.map(lambda *leaves: np.stack(leaves), *trees)

    def load(self, params: Params, target: bool = False) -> None:
        """Load the parameters of the JAX network into the online or the target network."""
        net = self.target if target else self.net
        if not self.team:
            self._load_into(net, params)
            return
        for i, member in enumerate(net.members):
            self._load_into(member, params if net.shared else jax.tree.map(lambda leaf, i=i: leaf[i], params))

    def _load_into(self, net: Any, params: Params) -> None:
        found = parameters.to_state("value", params, self.torso_names)
        state = {name: torch.from_numpy(values) for name, values in found.items()}
        if self.torso_names is not None:  # it may have buffers, or parameters under two names
            by_id = {id(param): state[name] for name, param in net.named_parameters()}
            whole = net.state_dict(keep_vars=True).items()
            state = {name: by_id.get(id(x), state.get(name, x.detach())) for name, x in whole}
        net.load_state_dict(state)

    def tensor(self, values: np.ndarray | Tensor) -> Tensor:
        """An array on this learner's device."""
        return values if isinstance(values, Tensor) else self._input(values).to(self.device)

    def _input(self, values: np.ndarray) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(self._home)

    @torch.inference_mode()
    def values(self, states: np.ndarray, taus: np.ndarray | None = None, noise: np.ndarray | None = None) -> np.ndarray:
        """float32 [B, A]: the expected returns of all actions in states [B, F, …], masked if unavailable."""
        return self._act(*self._inputs(states, taus, noise)).cpu().numpy()

    def _inputs(self, states: np.ndarray, *numbers: np.ndarray | None) -> list[Tensor]:
        nothing = np.zeros((len(states), 0), np.float32)
        return [self._input(x) for x in (states, *(nothing if x is None else x for x in numbers))]

    def act(self, states: Tensor, taus: Tensor, normals: Tensor) -> Tensor:
        """As `values`, of tensors; fractions and noise of width 0 are none."""
        layers = self.net.head.split_noise(normals) if normals.shape[-1] else None
        seen, mask = self.split_mask(states)
        return mask_values(self.head.expected(self.net(seen, taus if taus.shape[-1] else None, layers)), mask)

    def step_values(
        self, states: np.ndarray, hidden: Any, taus: np.ndarray | None = None, noise: np.ndarray | None = None
    ) -> tuple[np.ndarray, Any]:
        """`values`, and the hidden states after this step; without memory, `hidden` is empty."""
        return self.values(states, taus, noise), hidden

    def see(self, frames: np.ndarray) -> None:
        """Add frames [N, *frame] of training to the statistics that normalise observations."""
        seen, _ = self.split_mask(torch.from_numpy(np.array(frames)).to(self.device)[:, None])
        self.net.normaliser.merge(seen[:, 0])

    def split_mask(self, states: Tensor) -> tuple[Tensor, Tensor | None]:
        """The network's input states, and which actions are available, bool [B, A]; None if all are."""
        return split_mask(states, self.net.head.actions, self.masked, self.team > 0) if self.masked else (states, None)

    def expected(self, outputs: Tensor) -> Tensor:
        """float32 [B, A]: the expected returns from outputs [B, Z, A]."""
        return self.head.expected(outputs)

    def draw_update(self) -> Draws:
        """The random numbers for one update, from PyTorch's generator."""
        taus = torch.rand(3, self.config.batch_size, self.head.fractions, device=self.device)
        return Draws(taus, torch.randn(3, self.net.head.noise_size, device=self.device))

    def losses(self, batch: Any, draws: Draws) -> tuple[Tensor, Tensor]:
        """float32 [B] each: the losses of the transitions, and their errors."""
        c, head, steps = self.config, self.head, self.transitions(batch)
        noise = [self.net.head.split_noise(normals) for normals in draws.noise]
        online = self.passes(self.net, batch)
        chosen = of_action(online.now(draws.taus[2], noise[2]), steps.actions)  # [B, Z]
        returns = steps.returns
        with torch.no_grad():
            old = self.passes(self.target, batch)
            next_target = old.next(draws.taus[1], noise[1])
            if c.munchausen:
                next_q = mask_values(head.expected(next_target), steps.next_mask)
                policy, log_policy = soft_values(next_q, c.temperature)
                next_outputs = (policy[:, None] * (next_target - log_policy[:, None])).sum(-1)
                now_q = mask_values(head.expected(old.now(draws.taus[1], noise[1])), steps.mask)
                bonus = munchausen_bonus(now_q, steps.actions, c.temperature, c.munchausen_floor, c.munchausen_scale)
                returns = returns + bonus
            else:
                next_choice = next_target
                if c.double:
                    next_choice = online.next(draws.taus[0], noise[0])
                elif head.fractions:
                    next_choice = old.next(draws.taus[0], noise[1])
                best = mask_values(head.expected(next_choice), steps.next_mask).argmax(-1)
                next_outputs = of_action(next_target, best)
            target_outputs = head.target(returns, steps.discounts, next_outputs)
        return head.loss(chosen, target_outputs, draws.taus[2])

    def transitions(self, batch: Any) -> Transitions:
        """The transitions of a batch, [B, …]."""
        masks = (self.split_mask(self.tensor(states))[1] for states in (batch.states, batch.next_states))
        numbers = (self.tensor(x) for x in (batch.returns, batch.discounts))
        return Transitions(self.tensor(batch.actions).long(), *numbers, *masks)

    def passes(self, net: Any, batch: Any) -> Passes:
        """A network's passes over the states and the next states of a batch."""
        states, next_states = (self.split_mask(self.tensor(x))[0] for x in (batch.states, batch.next_states))
        return Passes(partial(net, states), partial(net, next_states))

    def loss(self, batch: Any, draws: Draws) -> tuple[Tensor, Tensor]:
        """The mean loss over the batch, weighted by `valid`, float32 [], and the errors, float32 [B]."""
        losses, errors = self.losses(batch, draws)
        return (losses * self.tensor(batch.valid)).mean(), errors

    def update(self, batch: Any, draws: Draws | None = None) -> tuple[float, np.ndarray]:
        """One gradient step on a batch, then the soft target update. Returns the loss and the errors [B]."""
        loss, errors = self.start_update(batch, draws)
        return float(loss), errors.cpu().numpy()

    def start_update(self, batch: Any, draws: Draws | None = None) -> tuple[Tensor, Tensor]:
        """As `update`, without waiting for a GPU."""
        loss, errors = self._step(*map(self._input, batch), *(draws or self.draw_update()))
        return (loss.clone(), errors.clone()) if isinstance(self._step, Graph) else (loss, errors)

    def step(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        """As `update`, of the tensors of a batch and its draws."""
        size = len(self.BATCH._fields)
        loss, errors = self._loss(self.BATCH(*tensors[:size]), Draws(*tensors[size:]))
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        if self.config.clip != float("inf"):
            torch.nn.utils.clip_grad_norm_(self.net.parameters(), self.config.clip)
        self.optimiser.step()
        if self.config.tau:
            with torch.no_grad():
                torch._foreach_lerp_(self._targets, self._params, self.config.tau)
        return loss.detach(), errors.detach()

    def sync(self) -> None:
        """Copy the online network into the target network."""
        self.target.load_state_dict(self.net.state_dict())


def of_action(outputs: Tensor, actions: Tensor) -> Tensor:
    """[B, Z]: the outputs [B, Z, A] of actions [B]; of a team's, [B, G, Z, A] and [B, G], the sum over agents."""
    if actions.ndim == 1:
        return outputs[torch.arange(len(actions), device=actions.device), :, actions]
    places = actions[..., None, None].expand(*outputs.shape[:-1], 1)
    return outputs.gather(-1, places)[..., 0].sum(1)


class CentredRmsProp(torch.optim.Optimizer):
    """RMSProp as in Mnih et al. 2015: centred, with ε inside the root, or outside as in PyTorch's own."""

    def __init__(self, params: Iterable[Tensor], lr: float, eps: float, decay: float = 0.95, inside: bool = True):
        super().__init__(params, {"lr": lr, "eps": eps, "decay": decay, "inside": inside})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """One step along every parameter's gradient."""
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                if not state:
                    state["mean"], state["square"] = torch.zeros_like(param), torch.zeros_like(param)
                state["mean"].lerp_(param.grad, 1 - group["decay"])
                state["square"].lerp_(param.grad**2, 1 - group["decay"])
                variance = state["square"] - state["mean"] ** 2
                inside = group["inside"]
                spread = (variance + group["eps"]).sqrt() if inside else variance.clamp(min=0).sqrt() + group["eps"]
                param.addcdiv_(param.grad, spread, value=-group["lr"])


def make_optimiser(config: Any, params: Iterable[Tensor], lr: float) -> torch.optim.Optimizer:
    """The optimiser that the settings name."""
    if config.optimiser in ("rmsprop", "rmsprop_torch"):
        return CentredRmsProp(params, lr, config.optimiser_eps, inside=config.optimiser == "rmsprop")
    if config.optimiser == "radam":
        return torch.optim.RAdam(params, lr=lr, eps=config.optimiser_eps)
    # One fused kernel per step instead of a dozen passes over the parameters.
    return torch.optim.Adam(params, lr=lr, eps=config.optimiser_eps, fused=True)
