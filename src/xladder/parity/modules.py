"""Is it the same network? Compares any PyTorch module with its Flax twin, level by level, on the same inputs.

Forward → loss → gradients → one update → many updates. The Flax module is given PyTorch's parameters. Gradients and
updates are taken with respect to PyTorch's arrays on both sides, so that they can be compared one by one, even where
Flax lays out a layer differently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from xladder.core.packages import missing_extra
from xladder.errors import UsageError, unknown
from xladder.parity.levels import Level
from xladder.parity.parting import find_parting
from xladder.parity.report import Report
from xladder.twins import layers_flax, layers_torch, matching
from xladder.twins.calls import arrays, describe, first_line
from xladder.twins.matching import Twins
from xladder.twins.optimisers import in_jax
from xladder.twins.optimisers_torch import in_torch

try:
    import torch
except ImportError as error:  # pragma: no cover - depends on the installation
    raise missing_extra("torch", "torch") from error

# Tolerances, relative to the largest number in the array compared. Integers have to be equal. `learner.py`, which has
# the same levels, gives the reasons.
TOLERANCES = {"forward": 2e-5, "loss": 2e-5, "gradients": 3e-4, "one update": 1e-3, "many updates": 3e-2}
# Next to large gradients a small one may be pure rounding error, such as that of a bias before a norm.
FAINT = 0.03
# An optimiser that divides a gradient by its size moves a weight by the whole learning rate even if the gradient is
# rounding error; so moves are compared only where the gradient is at least this share of the largest.
CLEAR = 1e-3
ROUNDING = 2.0**-22  # of a parameter: four times what float32 loses when a small move is added to it

Loss = Callable[[Any, Any], Any]
Named = dict[str, np.ndarray]


def check(
    torch_module: Any,
    flax_module: Any,
    inputs: Any = None,
    loss: tuple[Loss, Loss] | None = None,
    optimiser: Any = ("adam", 1e-3),
    *,
    batch: Any = None,
    updates: int = 100,
    names: Mapping[str, str] | None = None,
    flax_inputs: Any = None,
    tolerances: Mapping[str, float] | None = None,
) -> Report:
    """Compare a PyTorch module with its Flax twin: forward, loss, gradients, one update, many updates.

    Both run in eval mode: dropout is off (Flax gets `train=False` or `deterministic=True` where it takes these), and
    the statistics of a BatchNorm are not updated. The modules are not changed. Later levels are measured even if one
    fails, unless the outputs have different shapes.

    Args:
        torch_module: a PyTorch module with float32 parameters.
        flax_module: a Flax Linen module of the same structure.
        inputs: what both are called with: an array, a tuple of arguments, or a dict of arguments by name. Optional if
            the network takes one array and its first layer implies the shape, such as a linear layer.
        loss: PyTorch's and JAX's, each a function `loss(net, batch)` that calls `net` like the module and returns a
            number, or a tuple that begins with it. By default, the mean squared distance of all outputs from fixed
            random numbers, without the level "loss".
        optimiser: ("adam", 1e-3); also "sgd", "adamw" and "rmsprop", with PyTorch's defaults. Or a pair: a function of
            a list of parameters that makes PyTorch's, and optax's. None skips the updates.
        batch: the second argument of the losses, any pytree of arrays; by default the inputs.
        updates: number of updates of the last level, all on the same batch.
        names: names of layers, or of modules that contain them, where they cannot be matched automatically:
            {"encoder": "Encoder_0", "head.0": "Dense_2"}.
        flax_inputs: the inputs of the Flax module if they differ, such as images with channels last.
        tolerances: relative to the largest number, by level: {"forward": 1e-4}. The levels are forward, loss,
            gradients, one update and many updates.

    Returns:
        A `Report`, which has `passed`, `levels`, `where` and `raise_if_failed()`; print it to see everything.
    """
    if isinstance(updates, bool) or not isinstance(updates, int) or updates < 1:
        raise UsageError(f"`updates` is {updates!r}, but it has to be an integer of at least 1.")
    allowed = {**TOLERANCES, **(tolerances or {})}
    for name, share in (tolerances or {}).items():
        if name not in TOLERANCES:
            raise unknown("level", name, TOLERANCES)
        if not isinstance(share, int | float) or not share >= 0:
            raise UsageError(f"The tolerance of `{name}` is {share!r}, but it has to be a number of at least 0.")
    if optimiser is not None:
        in_jax(optimiser)  # fail early
    if loss is not None and not (isinstance(loss, tuple | list) and len(loss) == 2 and all(map(callable, loss))):
        raise UsageError("`loss` has to be a pair of functions of (net, batch): PyTorch's and JAX's.")
    twins = matching.meet(torch_module, flax_module, inputs, names, flax_inputs)
    # Low default precision on a GPU would show as a difference; this compares algorithms.
    with jax.default_matmul_precision("highest"):
        return _Check(twins, loss, optimiser, inputs if batch is None else batch, flax_inputs, batch, allowed).run(
            updates
        )


def where_outputs_part(twins: Twins) -> str:
    """Empty if the outputs of two modules agree; otherwise a sentence that names the first layers that differ."""
    with jax.default_matmul_precision("highest"):
        begun = _Check(twins, None, None, None, None, None, dict(TOLERANCES))
        begun.check_forward()
    level, where = begun.found[0]
    return "" if level.passed else where


class _Check:
    """Both sides, ready to be called, and the results so far."""

    def __init__(
        self,
        twins: Twins,
        loss: Any,
        optimiser: Any,
        given: Any,
        flax_given: Any,
        batch: Any,
        allowed: dict[str, float],
    ):
        self.twins, self.allowed, self.given_loss, self.optimiser = twins, allowed, loss, optimiser
        self.found: list[tuple[Level, str]] = []
        self.copy = _copied(twins.torch)
        self.state = layers_torch.numbers(twins.torch, trained=True)
        self.fixed = layers_torch.numbers(twins.torch, trained=False)
        if not self.state:
            raise UsageError("All parameters of the PyTorch module are frozen (requires_grad is False).")
        self.apply = jax.jit(lambda state: layers_flax.apply(twins.flax, self.variables(state), twins.flax_call))
        self.torch_outputs = self.apply_torch()
        if loss is None:
            rng = np.random.default_rng(0)
            goals = [rng.standard_normal(np.shape(x)).astype(np.float32) for x in _floats(self.torch_outputs)]
            if not goals:
                raise UsageError("The modules have no floating-point outputs, so there is no gradient: give a `loss`.")
            self.losses = _away_from_torch(twins, goals), _away_from(twins, goals)
            self.batch = self.flax_batch = ()
        else:
            self.losses = loss
            self.batch = arrays(given) if given is not None else twins.call.args[0]
            self.flax_batch = self.batch if batch is not None or flax_given is None else arrays(flax_given)
        self.differentiate = jax.jit(jax.value_and_grad(self.loss))

    def variables(self, state: Mapping[str, Any]) -> Any:
        """Flax's variables, with PyTorch's numbers."""
        return self.twins.match.to_flax({**self.fixed, **state})

    def loss(self, state: Mapping[str, Any]) -> Any:
        """JAX's loss as a function of PyTorch's parameters."""
        net = layers_flax.network(self.twins.flax, self.variables(state))
        return scalar(self.losses[1], net, self.flax_batch)

    def apply_torch(self) -> Any:
        """The current outputs of PyTorch's copy."""
        return layers_torch.call(self.copy, None, self.twins.call)

    def loss_torch(self) -> Any:
        """PyTorch's loss, with its graph."""
        where = next(self.copy.parameters()).device
        try:
            value = self.losses[0](self.copy, layers_torch.tensors(self.batch, where))
        except Exception as error:
            raise _cannot("PyTorch", self.batch, error) from error
        value = value[0] if isinstance(value, tuple) else value
        if not isinstance(value, torch.Tensor) or value.numel() != 1:
            raise UsageError(f"PyTorch's loss returns {_called(value)}, but it has to return one number.")
        if not value.requires_grad:
            raise UsageError(
                "PyTorch's loss does not depend on its `net`: it has to call that one, not another module."
            )
        return value.reshape(())

    def run(self, updates: int) -> Report:
        """Run all levels, and locate the difference at the first that fails."""
        if self.check_forward():
            gradient = self.check_gradients()
            if self.optimiser is not None:
                self.check_updates(updates, gradient)
        where = next((text for level, text in self.found if not level.passed), "")
        return Report(tuple(level for level, _ in self.found), where, tuple(self.notes()), self.twins.match)

    def check_forward(self) -> bool:
        """Compare the outputs. Returns whether their shapes agree, without which nothing else can be compared."""
        again = self.apply_torch()
        if any(
            not np.array_equal(a, b, equal_nan=True)
            for a, b in zip(*map(_leaves, (self.torch_outputs, again)), strict=True)
        ):
            raise UsageError(
                "The PyTorch module is not deterministic, even in eval mode. Take random numbers as inputs "
                "instead of drawing them inside; then both sides can be given the same."
            )
        ours, theirs = self.outputs(self.state, self.torch_outputs)
        level, _ = _compare("forward", self.allowed["forward"], ours, theirs)
        where = "" if level.passed else find_parting(self.twins, self.variables(self.state))
        shaped = all(ours[name].shape == x.shape for name, x in theirs.items())
        if not shaped:
            where += f" The PyTorch module returns {describe(theirs)} and the Flax module {describe(ours)}."
        if not all(np.all(np.isfinite(x)) for x in theirs.values()):
            where = f"The PyTorch module's output for {self.twins.call} is not finite and cannot be compared."
        self.found.append((level, where))
        return shaped

    def outputs(self, state: Mapping[str, Any], torch_outputs: Any) -> tuple[Named, Named]:
        """The outputs of both sides, array by array."""
        ours, theirs = self.apply(state), jax.tree_util.tree_leaves_with_path(torch_outputs)
        if len(jax.tree.leaves(ours)) != len(theirs):
            raise UsageError(
                f"The PyTorch module returns {describe(torch_outputs)} and the Flax module {describe(ours)}: both "
                "have to return the same number of arrays, in the same order."
            )
        names = [f"output{jax.tree_util.keystr(path)}" for path, _ in theirs]
        mine = dict(zip(names, map(np.asarray, jax.tree.leaves(ours)), strict=True))
        return mine, {name: np.asarray(x) for name, (_, x) in zip(names, theirs, strict=True)}

    def check_gradients(self) -> Named:
        """Compare loss and gradients. Returns PyTorch's gradients."""
        value, gradient = self.in_jax(self.differentiate, self.state)
        theirs, wanted = self.gradients_torch()
        if self.given_loss is not None:
            level, _ = _compare("loss", self.allowed["loss"], {"loss": np.asarray(value)}, {"loss": theirs})
            text = f"PyTorch's loss is {float(theirs):.6g} and JAX's {float(value):.6g}."
            self.found.append((level, text + self.blame("forward", " The outputs agree: look at the losses.")))
        ours = {name: np.asarray(x) for name, x in gradient.items()}
        level, name = _compare("gradients", self.allowed["gradients"], ours, wanted, FAINT)
        hint = " The losses agree: look for something that stops or clips a gradient (detach, stop_gradient)."
        last = "loss" if self.given_loss is not None else "forward"
        self.found.append((level, f"The gradient of {self.both(name)} differs most.{self.blame(last, hint)}"))
        return wanted

    def in_jax(self, function: Any, *given: Any) -> Any:
        """Call a function that evaluates the user's loss."""
        try:
            return function(*given)
        except UsageError:
            raise
        except Exception as error:
            raise _cannot("JAX", self.flax_batch, error) from error

    def gradients_torch(self) -> tuple[np.ndarray, Named]:
        """PyTorch's loss and gradients, which also stay in its parameters."""
        self.copy.zero_grad(set_to_none=True)
        value = self.loss_torch()
        value.backward()
        for param in self.copy.parameters():
            if param.requires_grad and param.grad is None:  # the loss does not depend on it
                param.grad = torch.zeros_like(param)
        grads = {name: param.grad for name, param in self.copy.named_parameters() if param.grad is not None}
        return value.detach().cpu().numpy(), {name: x.cpu().numpy().copy() for name, x in grads.items()}

    def check_updates(self, updates: int, gradient: Named) -> None:
        """Compare after one update, and after all of them."""
        ours, theirs = in_jax(self.optimiser), in_torch(self.optimiser, self.copy)

        @jax.jit
        def change(grads: Any, memory: Any, state: Any) -> Any:
            moves, memory = ours.update(grads, memory, state)
            return optax.apply_updates(state, moves), memory

        state: dict[str, Any] = dict(self.state)
        memory = jax.jit(ours.init)(state)
        for i in range(updates):
            _, grads = self.differentiate(state)
            state, memory = change(grads, memory, state)
            self.gradients_torch()
            try:
                theirs.step()
            except Exception as error:
                raise UsageError(f"PyTorch's optimiser failed in `step`: {first_line(error)}") from error
            if i == 0:
                self.check_first(state, gradient)
        if updates > 1:
            outputs = self.outputs(state, self.apply_torch())
            level, name = _compare(f"{updates} updates", self.allowed["many updates"], *outputs)
            hint = " One update agrees: look for something that changes over time, such as a schedule."
            self.found.append((level, f"The {name} differs most.{self.blame('one update', hint)}"))

    def check_first(self, state: Mapping[str, Any], gradient: Named) -> None:
        """After one update: compare the changes of the parameters, and the outputs."""
        after = layers_torch.numbers(self.copy, trained=True)
        clear = max((float(np.max(np.abs(x), initial=0.0)) for x in gradient.values()), default=0.0) * CLEAR
        counted = {name: np.abs(x) >= clear for name, x in gradient.items()}
        before = self.state
        ours = {name: (np.asarray(state[name]) - before[name]) * counted[name] for name in before}
        theirs = {name: (after[name] - before[name]) * counted[name] for name in before}
        slack = {name: float(np.max(np.abs(x), initial=0.0)) * ROUNDING for name, x in before.items()}
        share = self.allowed["one update"]
        moves, name = _compare("one update", share, ours, theirs, 1.0, slack)
        level, output = _compare("one update", share, *self.outputs(state, self.apply_torch()))
        hint = " The gradients agree: look at the optimisers (position of ε, weight decay, clipping)."
        if not moves.passed or level.passed:
            text = f"The change of {self.both(name)} differs most.{self.blame('gradients', hint)}"
            self.found.append((moves, text))
        else:
            self.found.append((level, f"The {output} differs most.{self.blame('gradients', hint)}"))

    def blame(self, before: str, hint: str) -> str:
        """The hint, if the level before has passed; otherwise nothing."""
        return hint if any(level.level == before and level.passed for level, _ in self.found) else ""

    def both(self, name: str) -> str:
        """A parameter's names on both sides."""
        return f"`{name}` ↔ `{self.twins.match.counterpart(name)}`"

    def notes(self) -> list[str]:
        """Caveats for the report."""
        match = self.twins.match
        summed = [str(pair) for pair in match.pairs if pair.torch.kind.recurrent and "bias_ih" in pair.torch.places]
        notes = [match.doubt] if match.doubt else []
        if summed:
            notes.append(
                f"PyTorch has two biases in the gates of {summed[0]} where Flax has their sum. The updates here "
                "train both, as PyTorch does; an optimiser on Flax's own parameters moves the sum half as far."
            )
        if any(pair.torch.kind.statistics for pair in match.pairs):
            notes.append("BatchNorm was compared in eval mode; the update of its statistics was not compared.")
        return notes


def scalar(loss: Loss, net: Any, batch: Any) -> Any:
    """The value of a JAX loss: its result, or the first item of a tuple."""
    value = loss(net, batch)
    value = value[0] if isinstance(value, tuple) else value
    if not hasattr(value, "dtype") or np.prod(np.shape(value)) != 1 or not jnp.issubdtype(value.dtype, jnp.floating):
        raise UsageError(f"JAX's loss returns {_called(value)}, but it has to return one number.")
    return jnp.reshape(value, ())


def _compare(
    level: str, share: float, ours: Named, theirs: Named, floor: float = 0.0, slack: Mapping[str, float] | None = None
) -> tuple[Level, str]:
    """Compare arrays by name. Returns the level, and the name of the array that is furthest from passing.

    Args:
        level: its name.
        share: tolerance relative to the largest number in PyTorch's array …
        ours: JAX's arrays.
        theirs: PyTorch's.
        floor: … or to this share of the largest number in all arrays.
        slack: absolute tolerance added per array.
    """
    largest = max((float(np.max(np.abs(x), initial=0.0)) for x in theirs.values() if x.dtype.kind == "f"), default=0.0)
    worst, excess, name = (0.0, 0.0), -1.0, ""
    for key, theirs_here in theirs.items():
        a, b = ours[key].astype(np.float64), theirs_here.astype(np.float64)
        difference = float(np.max(np.abs(a - b), initial=0.0)) if a.shape == b.shape else np.inf
        finite = bool(np.all(np.isfinite(b))) and not np.isnan(difference)
        size = max(float(np.max(np.abs(b), initial=0.0)), floor * largest) if finite else 0.0
        permitted = share * size + (slack or {}).get(key, 0.0) if theirs_here.dtype.kind == "f" and finite else 0.0
        difference = difference if finite else np.inf  # NaN is never equal, even if both sides have it
        ratio = difference / permitted if permitted else np.inf if difference else 0.0
        if ratio > excess:
            worst, excess, name = (difference, permitted), ratio, key
    return Level(level, *worst, passed=excess <= 1.0), name


def _away_from(twins: Twins, goals: list[np.ndarray]) -> Loss:
    """The default loss: the mean squared distance from fixed numbers."""

    def loss(net: Any, batch: Any) -> Any:
        outputs = _floats(net(*twins.flax_call.args, **twins.flax_call.kwargs))
        return sum(jnp.mean((x - goal) ** 2) for x, goal in zip(outputs, goals, strict=True))

    return loss


def _away_from_torch(twins: Twins, goals: list[np.ndarray]) -> Loss:
    """The same in PyTorch."""

    def loss(net: Any, batch: Any) -> Any:
        where = next(net.parameters()).device
        args, kwargs = layers_torch.tensors((twins.call.args, dict(twins.call.kwargs)), where)
        outputs = [x for x in jax.tree.leaves(net(*args, **kwargs)) if x.is_floating_point()]
        made = layers_torch.tensors(goals, where)
        return sum(((x - goal) ** 2).mean() for x, goal in zip(outputs, made, strict=True))

    return loss


def _copied(module: Any) -> Any:
    """A copy of a PyTorch module in eval mode, so that the user's stays unchanged."""
    try:
        return deepcopy(module).eval()
    except Exception as error:
        raise UsageError(
            f"The PyTorch module cannot be copied for the updates: {first_line(error)} "
            "Does it keep a tensor that was computed from its parameters?"
        ) from error


def _cannot(side: str, batch: Any, error: Exception) -> UsageError:
    return UsageError(f"{side}'s loss cannot be called as loss(net, batch) with {describe(batch)}: {first_line(error)}")


def _called(value: Any) -> str:
    return f"an array {list(np.shape(value))}" if hasattr(value, "shape") else f"a {type(value).__name__}"


def _leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(x) for x in jax.tree.leaves(tree)]


def _floats(tree: Any) -> list[Any]:
    """The floating-point arrays of a tree."""
    return [x for x in jax.tree.leaves(tree) if jnp.issubdtype(jnp.result_type(x), jnp.floating)]
