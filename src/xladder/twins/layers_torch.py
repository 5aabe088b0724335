"""The PyTorch side of a pair of twins: finds its layers in call order, calls it, reads and writes its parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from xladder.core.packages import missing_extra
from xladder.errors import UsageError
from xladder.twins.calls import Call, array, first_line
from xladder.twins.layers import (
    BATCH_NORM,
    CONVOLUTION,
    EMBEDDING,
    GRU,
    LINEAR,
    LSTM,
    NOISY,
    NORM,
    PARAMETER,
    Kind,
    Layer,
)

try:
    import torch
except ImportError as error:  # pragma: no cover - depends on the installation
    raise missing_extra("torch", "torch") from error

from torch import Tensor, nn
from torch.nn.utils import parametrize

Calls = list[tuple[str, Any, Any]]
"""Name, input and output of each module call, in the order in which the calls began."""

_PLAIN: tuple[tuple[tuple[type[nn.Module], ...], Kind], ...] = (
    ((nn.Linear,), LINEAR),
    ((nn.Conv1d, nn.Conv2d, nn.Conv3d), CONVOLUTION),
    ((nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d), BATCH_NORM),
    ((nn.LayerNorm, nn.GroupNorm, nn.RMSNorm), NORM),
    ((nn.Embedding,), EMBEDDING),
)
_ROLES = {
    LINEAR: {"weight", "bias"},
    CONVOLUTION: {"weight", "bias"},
    BATCH_NORM: {"weight", "bias", "running_mean", "running_var"},
    NORM: {"weight", "bias"},
    EMBEDDING: {"weight"},
}
_NOISY = {"weight", "sigma_weight", "bias", "sigma_bias"}
_KNOWN = "Linear, Conv1d to 3d, LayerNorm, GroupNorm, RMSNorm, BatchNorm, Embedding, GRU, LSTM and their cells"


def check_module(module: Any) -> None:
    """Raise a `UsageError` unless it is a PyTorch module with float32 parameters that can be converted."""
    if isinstance(module, type) and issubclass(module, nn.Module):
        raise UsageError(f"`{module.__name__}` is a class: give a PyTorch module made from it, `{module.__name__}(…)`.")
    if not isinstance(module, nn.Module):
        raise UsageError(
            f"The first module is a {type(module).__module__}.{type(module).__name__}, but it has to be a PyTorch "
            "module (torch.nn.Module). The Flax module comes second."
        )
    for name, part in module.named_modules():
        if parametrize.is_parametrized(part):
            raise UsageError(
                f"`{name}` computes its weights from others (a parametrisation), which Flax has no counterpart for: "
                "remove it first, with torch.nn.utils.parametrize.remove_parametrizations."
            )
    found = False
    for name, param in module.named_parameters():
        found = True
        if isinstance(param, nn.parameter.UninitializedParameter):
            raise UsageError(f"`{name}` has no shape yet: call the PyTorch module once, so that it is initialised.")
        if param.dtype != torch.float32:
            raise UsageError(f"`{name}` is {param.dtype}, but twins are compared in float32: use `.float()` first.")
    if not found:
        raise UsageError("The PyTorch module has no parameters.")


def call(module: nn.Module, values: Mapping[str, Any] | None, given: Call) -> Any:
    """The output of the module in eval mode, without a gradient; with other parameters, if given."""
    where = _device(module)
    args, kwargs = tensors(given.args, where), tensors(dict(given.kwargs), where)
    numbers = {name: torch.from_numpy(np.array(x)).to(where) for name, x in (values or {}).items()}
    try:
        with evaluating(module), torch.no_grad():
            outputs = torch.func.functional_call(module, numbers, args, kwargs) if numbers else module(*args, **kwargs)
    except Exception as error:
        hint = " Integers stay integers here: give float32 if the module takes that." if "dtype" in str(error) else ""
        raise UsageError(
            f"The PyTorch module `{type(module).__name__}` cannot be called with {given}: {first_line(error)}{hint}"
        ) from error
    return jax.tree.map(_host, outputs)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Eval mode while this is open: dropout off, statistics fixed."""
    before = {part: part.training for part in module.modules()}
    module.eval()
    try:
        yield
    finally:
        for part, training in before.items():
            part.training = training


@contextmanager
def capture(module: nn.Module, calls: Calls) -> Iterator[None]:
    """While this is open, record inputs and outputs of every module."""
    handles, open_calls = [], []

    def begun(name: str) -> Any:
        def note(_: nn.Module, args: Any) -> None:
            open_calls.append(len(calls))
            calls.append((name, jax.tree.map(_host, args), None))

        return note

    def done(_: nn.Module, args: Any, outputs: Any) -> None:
        index = open_calls.pop()
        calls[index] = (*calls[index][:2], jax.tree.map(_host, outputs))

    try:
        for name, part in module.named_modules():
            handles.append(part.register_forward_pre_hook(begun(name)))
            handles.append(part.register_forward_hook(done))
        yield
    finally:
        for handle in handles:
            handle.remove()


def find_layers(module: nn.Module, given: Call | None) -> list[Layer]:
    """All layers with parameters, in the order of their first call, or of declaration if no call is given."""
    seen: set[int] = set()
    layers: list[tuple[str, Layer]] = []
    for name, part in module.named_modules():
        # A shared parameter belongs to the first layer that has it.
        arrays = {short: x for short, x in part.named_parameters(recurse=False) if id(x) not in seen}
        seen.update(map(id, arrays.values()))
        if isinstance(part, nn.modules.batchnorm._BatchNorm):
            arrays.update((short, x) for short, x in part.named_buffers(recurse=False) if short.startswith("running"))
        if arrays:
            layers += [(name, layer) for layer in _layers_at(name, part, arrays)]
    calls: Calls = []
    if given is not None:
        with capture(module, calls):
            call(module, None, given)
    order: dict[str, int] = {}
    for name, _, _ in calls:
        order.setdefault(name, len(order))
    return [layer for _, layer in sorted(layers, key=lambda pair: order.get(pair[0], len(order)))]


def _layers_at(name: str, part: nn.Module, arrays: Mapping[str, Tensor]) -> list[Layer]:
    """The layers of one module: several for a stack; its parameters one by one for a custom module."""
    title = type(part).__name__
    if isinstance(part, nn.GRU | nn.LSTM | nn.GRUCell | nn.LSTMCell):
        return _recurrent(name, part, arrays)
    if set(arrays) == _NOISY:
        return [_layer(name, title, NOISY, name, {short: short for short in arrays}, arrays)]
    for types, kind in _PLAIN:
        if isinstance(part, types) and set(arrays) <= _ROLES[kind]:
            return [_layer(name, title, kind, name, {short: short for short in arrays}, arrays)]
    if type(part).__module__.startswith("torch.nn"):
        raise UsageError(
            f"`{name or title}` is a {title}, which cannot be converted yet. Supported are {_KNOWN}; and parameters of "
            "custom modules, which are copied as they are."
        )
    prefix = f"{name}." if name else ""
    return [_layer(prefix + short, "parameter", PARAMETER, name, {"value": short}, arrays) for short in arrays]


def _recurrent(name: str, part: Any, arrays: Mapping[str, Tensor]) -> list[Layer]:
    """One layer for each cell of a stack."""
    if getattr(part, "proj_size", 0):
        raise UsageError(f"`{name}` is an LSTM with `proj_size`, which Flax has no counterpart for.")
    kind = GRU if isinstance(part, nn.GRU | nn.GRUCell) else LSTM
    title, endings = type(part).__name__, [""]
    if isinstance(part, nn.RNNBase):
        ways = ("", "_reverse") if part.bidirectional else ("",)
        endings = [f"_l{layer}{way}" for layer in range(part.num_layers) for way in ways]
    layers = []
    for ending in endings:
        short = {role: role + ending for role in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
        held = {role: full for role, full in short.items() if full in arrays}
        full = name if len(endings) == 1 else f"{name}.{ending.removeprefix('_')}".removeprefix(".")
        layers.append(_layer(full, title, kind, name, held, arrays))
    return layers


def freeze_second_biases(module: nn.Module) -> None:
    """Train only the first of two biases that a GRU or LSTM adds, because Flax has one in their place.

    If both were trained, their sum would move twice as far as Flax's bias. The second keeps its values; in the gates
    where Flax has both, both are trained.
    """
    params = dict(module.named_parameters())
    for name, part in module.named_modules():
        if not isinstance(part, nn.GRU | nn.LSTM | nn.GRUCell | nn.LSTMCell):
            continue
        for layer in _recurrent(name, part, dict(part.named_parameters(recurse=False))):
            if "bias_hh" in layer.places:
                bias = params[layer.places["bias_hh"]]
                trained = ~torch.tensor(layer.kind.summed).repeat_interleave(len(bias) // len(layer.kind.summed))
                bias.register_hook(lambda grad, trained=trained: grad * trained.to(grad))


def _layer(
    name: str, title: str, kind: Kind, home: str, short: Mapping[str, str], arrays: Mapping[str, Tensor]
) -> Layer:
    prefix = f"{home}." if home else ""
    places = {role: prefix + given for role, given in short.items()}
    return Layer(name, title, kind, places, {role: tuple(arrays[given].shape) for role, given in short.items()}, True)


def numbers(module: nn.Module, trained: bool | None = None) -> dict[str, np.ndarray]:
    """Float32 parameters and buffers by name, as copies; only trainable ones, or only others, if asked."""
    found: dict[str, Tensor] = dict(module.named_parameters())
    if not trained:
        found.update((name, x) for name, x in module.named_buffers() if x.dtype == torch.float32)
    return {
        name: array(x).copy()
        for name, x in found.items()
        if trained is None or (isinstance(x, nn.Parameter) and x.requires_grad) == trained
    }


def write(module: nn.Module, values: Mapping[str, Any]) -> None:
    """Write numbers to parameters of a module, in place."""
    params = dict(module.named_parameters())
    with torch.no_grad():
        for name, x in values.items():
            params[name].copy_(torch.from_numpy(np.array(x)))


def state_dict(module: nn.Module, values: Mapping[str, Any]) -> dict[str, Tensor]:
    """The module's state_dict with these numbers, also under the other names of shared parameters."""
    params = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    by_id = {id(params[name]): torch.from_numpy(np.array(x)) for name, x in values.items()}
    live = module.state_dict(keep_vars=True)
    return {name: by_id.get(id(x), x.detach().clone()) for name, x in live.items()}


def tensors(tree: Any, where: Any = "cpu") -> Any:
    """A pytree of arrays as tensors; integers become int64, which PyTorch needs for indexing."""

    def tensor(x: Any) -> Tensor:
        made = torch.from_numpy(np.array(x))
        return (made.long() if made.dtype in (torch.int32, torch.int16) else made).to(where)

    return jax.tree.map(tensor, tree)


def input_shape(module: nn.Module, layers: list[Layer]) -> tuple[tuple[int, ...], bool] | None:
    """The input shape that the first layer implies, and whether it takes integers; None if unknown."""
    parts, first = dict(module.named_modules()), layers[0]
    part = parts.get(first.name) or parts.get(first.name.rpartition(".")[0])
    if first.kind in (LINEAR, NOISY):
        return (8, first.shapes["weight"][1]), False
    if isinstance(part, nn.LayerNorm):
        return (8, *part.normalized_shape), False
    if isinstance(part, nn.GRU | nn.LSTM):
        return (3, 4, part.input_size), False
    if isinstance(part, nn.Embedding):
        return (8, 3), True
    return None


def _device(module: nn.Module) -> Any:
    return next(module.parameters()).device


def _host(x: Any) -> Any:
    return array(x).copy() if isinstance(x, Tensor) else x  # a copy, because a layer may change it in place
