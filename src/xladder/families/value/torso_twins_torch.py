"""PyTorch twins of users' own torsos: built, checked, and matched with the Flax module layer by layer.

`own_torsos.py` says what the user has to provide.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from xladder import bridge
from xladder.errors import UsageError, brief
from xladder.families.value import own_torsos
from xladder.twins import layers_flax, layers_torch, pairing
from xladder.twins.calls import as_call

import torch  # isort: skip - after the sentence about a missing PyTorch

if TYPE_CHECKING:
    from xladder.worlds.envs import EnvSpec


def make_twin(name: str, spec: EnvSpec, stack: int) -> Any:
    """Build the PyTorch twin of a torso, to be trained like it. It may use PyTorch's random generator."""
    factory = own_torsos.find_twin(name)
    if factory is None:
        raise UsageError(f"There is no PyTorch side: {own_torsos.why_no_twin(name)}.")
    if isinstance(factory, torch.nn.Module):
        raise UsageError(f"The PyTorch twin of `{name}` is a module instance: name its class instead.")
    torso = own_torsos.make(name)
    known = {field.name: getattr(torso, field.name) for field in fields(torso) if field.name not in ("parent", "name")}
    known["shape"] = own_torsos.shape_of(torso, spec, stack)
    arguments = {}
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.name in known:
            arguments[parameter.name] = known[parameter.name]
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise UsageError(
                f"The PyTorch twin of `{name}` takes `{parameter.name}`, but it may only take `shape`, the shape of a "
                f"state, and fields of the Flax module{_listed([k for k in known if k != 'shape'])}."
            )
    try:
        twin = factory(**arguments)
    except Exception as error:
        raise UsageError(f"The PyTorch twin of `{name}` cannot be built: {brief(error)}.") from error
    if not isinstance(twin, torch.nn.Module):
        raise UsageError(
            f"The PyTorch twin of `{name}` is a {type(twin).__name__}, but it has to be a torch.nn.Module."
        )
    _call_twin(name, twin, own_torsos.states_of(torso, spec, stack))  # lazy layers get their shapes
    layers_torch.freeze_second_biases(twin)
    return twin


def check_twin(name: str, spec: EnvSpec, stack: int, features: int) -> None:
    """Raise unless the twin has the same number of features and layers of the same shapes."""
    torso = own_torsos.make(name)
    with torch.random.fork_rng(devices=[]):
        twin = make_twin(name, spec, stack)
    call = as_call((own_torsos.states_of(torso, spec, stack),))
    outputs = _call_twin(name, twin, call.args[0])
    if tuple(outputs.shape) != (own_torsos.EXAMPLES, features):
        raise UsageError(
            f"The PyTorch twin of `{name}` returns {list(outputs.shape)} for a batch of {own_torsos.EXAMPLES}, but the "
            f"Flax module returns {[own_torsos.EXAMPLES, features]}."
        )
    if any(True for _ in twin.parameters()) or own_torsos.has_params(torso, call.args[0]):
        try:
            layers_torch.check_module(twin)
            ours, theirs = layers_torch.find_layers(twin, call), layers_flax.find_layers(torso, call)
            pairing.propose(ours, theirs, own_torsos.names_of(name, torso))
        except UsageError as error:
            raise _not_matched(name, error) from error


def fault(name: str, spec: EnvSpec, stack: int, world: str) -> str:
    """What is wrong with the twin of a torso, as a clause; an empty string if nothing is."""
    return _fault(name, own_torsos.make(name), own_torsos.find_twin(name), spec, stack, world)


@cache
def _fault(name: str, torso: Any, factory: Any, spec: EnvSpec, stack: int, world: str) -> str:
    try:
        check_twin(name, spec, stack, own_torsos.check(name, spec, stack, world))
    except UsageError as error:
        text = str(error).removesuffix(".")
        return text[0].lower() + text[1:]
    return ""


def _not_matched(name: str, error: UsageError) -> UsageError:
    return UsageError(f"The PyTorch twin of `{name}` cannot be matched with it: {error}")


def torso_names(name: str, spec: EnvSpec, stack: int) -> OwnTorsoNames:
    """The matching layers of a torso and its twin."""
    return _matched(name, own_torsos.make(name), spec, stack)


@dataclass(frozen=True)
class OwnTorsoNames:
    """The matching layers of a torso and its twin, as `parameters.TorsoNames`."""

    match: Any
    """`xladder.twins.matching.Match`, or None where the torso has no parameters."""

    def to_flax(self, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The Flax parameters from PyTorch's arrays by name."""
        found = self.match.to_flax(state)["params"] if self.match else {}
        return _copied(found)

    def to_torch(self, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """PyTorch's arrays by name from the Flax parameters."""
        found = self.match.to_torch({"params": params}) if self.match else {}
        return {name: np.array(x, np.float32, order="C") for name, x in found.items()}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of PyTorch's parameters by name."""
        pairs = self.match.pairs if self.match else ()
        return {pair.torch.places[role]: tuple(shape) for pair in pairs for role, shape in pair.torch.shapes.items()}


@cache
def _matched(name: str, torso: Any, spec: EnvSpec, stack: int) -> OwnTorsoNames:
    states = own_torsos.states_of(torso, spec, stack)
    with torch.random.fork_rng(devices=[]):
        twin = make_twin(name, spec, stack)
    if not any(True for _ in twin.parameters()) and not own_torsos.has_params(torso, states):
        return OwnTorsoNames(None)
    try:
        return OwnTorsoNames(bridge.match(twin, torso, (states,), names=own_torsos.names_of(name, torso)))
    except UsageError as error:
        raise _not_matched(name, error) from error


def _call_twin(name: str, twin: Any, states: Any) -> Any:
    try:
        with torch.no_grad():
            outputs = twin(jax.tree.map(lambda x: torch.from_numpy(np.array(x)), states))
    except Exception as error:
        shown = ", ".join(f"{x.dtype} {list(x.shape)}" for x in jax.tree.leaves(states))
        raise UsageError(f"The PyTorch twin of `{name}` cannot be called with {shown}: {brief(error)}.") from error
    if not isinstance(outputs, torch.Tensor):
        raise UsageError(
            f"The PyTorch twin of `{name}` returns a {type(outputs).__name__}, but it has to return a tensor."
        )
    return outputs


def _listed(names: list[str]) -> str:
    return f" ({', '.join(f'`{name}`' for name in names)})" if names else ""


def _copied(tree: Any) -> Any:
    """A float32 copy that does not share PyTorch's memory."""
    if isinstance(tree, dict):
        return {name: _copied(part) for name, part in tree.items()}
    return np.array(tree, np.float32, order="C")
