"""Torsos that users bring: a Flax module from a state to its features, and its twin in PyTorch.

    class Torso(flax.linen.Module):  # my_nets.py
        width: int = 64

        @nn.compact
        def __call__(self, state):  # […, F, *frame]: F frames, with any axes of a batch before
            ...  # float32 […, E]

    class TorsoTorch(torch.nn.Module):  # its twin
        def __init__(self, shape, width): ...  # shape: (F, *frame)

        def forward(self, states): ...  # [B, E] from [B, F, *frame]

`--learner.torso my_nets:Torso` names a class, a function without arguments that makes a module, or a module; in Python
each of them may also be given itself, as `learner={"torso": Torso}`.

- *The twin* of `Torso` is `TorsoTorch` in the same module. `torch_twin` on `Torso` names another: a class, a
  `staticmethod` or, as a string, `module:Name`. It is called with those arguments that its signature names: `shape` is
  the shape of a state, every other name a field of the Flax module. Without a twin all rungs run but `torch` and
  `hybrid`, and there is nothing for `parity` to compare with.
- *Which layers belong together* is found by `xladder.bridge`: by name, shape, the order of calls and, where that leaves
  a choice, by trying. `torch_names = {"layers.0": "Dense_0"}` on `Torso` says it where it cannot be found.
- `by_key = True` on `Torso` asks for the parts of an observation that is a tree: {name: [F, …]}.

Nothing here imports JAX, Flax, PyTorch or the user's module before it is called. Nothing that is done while a run is
planned computes on a device: shapes are enough.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder import user_code
from xladder.errors import UsageError, brief, unknown
from xladder.families.value.torsos import TORSOS

if TYPE_CHECKING:
    from xladder.worlds.copies import View

SUFFIX = "Torch"
EXAMPLES = 4  # made-up states that layers are told apart with


def load(name: str) -> Any:
    """What the user calls by this name: a class, a function or a module."""
    if ":" in name:
        return user_code.find(name, "torso")
    installed = user_code.entry_points("torso")
    if name not in installed:
        raise unknown("torso", name, [*TORSOS, *installed, "module:Name"])
    return user_code.load_entry_point("torso", name)


def make(name: str) -> Any:
    """The Flax module of that name."""
    import flax.linen as nn

    thing = load(name)
    torso = thing
    if not isinstance(thing, nn.Module) and callable(thing) and not _is_torch(thing):
        try:
            torso = thing()
        except Exception as error:
            raise UsageError(
                f"The torso `{name}` cannot be made without arguments: {brief(error)}. Give its fields defaults, or "
                "name a function that makes it."
            ) from error
    if _is_torch(torso):
        raise UsageError(
            f"`{name}` is a module of PyTorch's, and a torso is named by its Flax module: call this one its twin."
        )
    if not isinstance(torso, nn.Module):
        raise UsageError(
            f"`{name}` makes a {type(torso).__name__}, and a torso has to be a Flax Linen module (flax.linen.Module)."
        )
    try:
        hash(torso)
    except TypeError as error:
        raise UsageError(
            f"The fields of the torso `{name}` have to be constants that can be hashed, such as tuples in place of "
            f"lists: {brief(error)}."
        ) from error
    return torso.clone(name=None)


def is_by_key(name: str) -> bool:
    """Whether a torso takes the parts of an observation by name."""
    return bool(getattr(make(name), "by_key", False))


def check(name: str, view: Callable[[], View], stack: int, world: str) -> None:
    """Raise a `UsageError` if a torso does not exist, cannot take a world's states, or has a twin of other shapes."""
    torso = make(name)
    seen = view()
    features = _check_features(name, torso, seen, stack, world)
    if find_twin(name) is not None and find_spec("torch") is not None:
        _check_twin(name, torso, seen, stack, features)


def _check_features(name: str, torso: Any, view: View, stack: int, world: str) -> int:
    """How many features a state has."""
    import jax

    if getattr(torso, "by_key", False) and not view.fields:
        raise UsageError(
            f"The torso `{name}` asks for parts by name (`by_key = True`), and the frames of `{world}` are one array."
        )
    state = _example(torso, view, stack)
    shown = ", ".join(f"{x.dtype} {list(x.shape)}" for x in jax.tree.leaves(state))

    def init(state: Any) -> Any:
        return torso.init_with_output(jax.random.key(0), state)

    shapes: list[int] = []
    for given in (state, jax.tree.map(lambda x: jax.ShapeDtypeStruct((2, *x.shape), x.dtype), state)):
        try:
            found, variables = jax.eval_shape(init, given)
        except Exception as error:
            batch = " with an axis of a batch before it" if shapes else ""
            raise UsageError(
                f"The torso `{name}` cannot take a state of `{world}`, {shown}{batch}: {brief(error)}."
            ) from error
        shapes.append(_features_of(name, found, len(shapes)))
    others = sorted(collection for collection in variables if collection != "params")
    if others:
        raise UsageError(
            f"The torso `{name}` keeps `{others[0]}` besides its parameters, which a value network cannot: use layers "
            "without a state, such as LayerNorm in place of BatchNorm."
        )
    if shapes[0] != shapes[1]:
        raise UsageError(
            f"The torso `{name}` makes {shapes[0]} features of one state and {shapes[1]} of each of two: it has to "
            "leave axes before the state's own alone."
        )
    return shapes[0]


def _features_of(name: str, found: Any, batch_axes: int) -> int:
    if not hasattr(found, "shape"):
        raise UsageError(f"The torso `{name}` returns a {type(found).__name__}, and it has to be an array of features.")
    if len(found.shape) != 1 + batch_axes or (batch_axes and found.shape[0] != 2):
        lead = ["B"] * batch_axes
        raise UsageError(
            f"The torso `{name}` returns {list(found.shape)} for {'two states' if batch_axes else 'one state'}, and it "
            f"has to be {[*lead, 'E']}: one axis of features{' behind that of the batch' * batch_axes}."
        )
    if not np.issubdtype(found.dtype, np.floating):
        raise UsageError(f"The torso `{name}` returns {found.dtype}, and features have to be float32.")
    return int(found.shape[-1])


def _check_twin(name: str, torso: Any, view: View, stack: int, features: int) -> None:
    """Raise unless the twin makes as many features, and its layers have the shapes of the Flax module's."""
    import torch

    from xladder.twins import layers_flax, layers_torch, pairing
    from xladder.twins.calls import as_call

    with torch.random.fork_rng(devices=[]):
        twin = make_twin(name, view, stack)
    call = as_call((_states(torso, view, stack),))
    said = _call_twin(name, twin, call.args[0])
    if tuple(said.shape) != (EXAMPLES, features):
        raise UsageError(
            f"The PyTorch twin of `{name}` returns {list(said.shape)} for a batch of {EXAMPLES}, and the Flax module "
            f"{[EXAMPLES, features]}."
        )
    if any(True for _ in twin.parameters()) or _has_params(torso, call.args[0]):
        try:
            layers_torch.check_module(twin)
            ours, theirs = layers_torch.find_layers(twin, call), layers_flax.find_layers(torso, call)
            pairing.propose(ours, theirs, _names(name, torso))
        except UsageError as error:
            raise UsageError(f"The torso `{name}` and its PyTorch twin are not the same: {error}") from error


def find_twin(name: str) -> Any:
    """What makes the PyTorch twin of a torso, or None."""
    torso, thing = make(name), load(name)
    home = sys.modules.get(type(torso).__module__)
    declared = getattr(torso, "torch_twin", None) or getattr(thing, "torch_twin", None)
    if declared is None:
        return getattr(home, type(torso).__name__ + SUFFIX, None)
    if not isinstance(declared, str):
        return declared
    module, _, attribute = declared.rpartition(":")
    owner = user_code.import_module(module) if module else home  # its own module could have imported it, too
    if not hasattr(owner, attribute):
        raise UsageError(f"`{name}` calls `{declared}` its PyTorch twin, and there is no such thing.")
    return getattr(owner, attribute)


def why_no_twin(name: str) -> str:
    """A clause if a torso has no twin in PyTorch; nothing if it has."""
    if find_twin(name) is not None:
        return ""
    wanted = type(make(name)).__name__ + SUFFIX
    return f"the torso `{name}` has no twin in PyTorch (`{wanted}` in its module, or `torch_twin`)"


def make_twin(name: str, view: View, stack: int) -> Any:
    """The PyTorch module that is the twin of a torso. It may draw from PyTorch's generator."""
    import torch

    maker = find_twin(name)
    if maker is None:
        raise UsageError(f"There is no PyTorch side: {why_no_twin(name)}.")
    if isinstance(maker, torch.nn.Module):
        raise UsageError(f"The PyTorch twin of `{name}` is a module that is made already: give its class.")
    torso = make(name)
    known = {field.name: getattr(torso, field.name) for field in fields(torso) if field.name not in ("parent", "name")}
    known["shape"] = _shape(torso, view, stack)
    arguments = {}
    for parameter in inspect.signature(maker).parameters.values():
        if parameter.name in known:
            arguments[parameter.name] = known[parameter.name]
        elif parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            raise UsageError(
                f"The PyTorch twin of `{name}` wants `{parameter.name}`, and may ask for `shape`, the shape of a "
                f"state, and for the fields of the Flax module{_listed([k for k in known if k != 'shape'])}."
            )
    try:
        twin = maker(**arguments)
    except Exception as error:
        raise UsageError(f"The PyTorch twin of `{name}` cannot be made: {brief(error)}.") from error
    if not isinstance(twin, torch.nn.Module):
        raise UsageError(f"The PyTorch twin of `{name}` is a {type(twin).__name__}, and has to be a torch.nn.Module.")
    _call_twin(name, twin, _states(torso, view, stack))  # lazy layers get their shapes
    return twin


def torso_names(name: str, view: View, stack: int) -> OwnTorsoNames:
    """Which layers of a torso and of its twin belong together."""
    return _matched(name, make(name), view, stack)


@dataclass(frozen=True)
class OwnTorsoNames:
    """The pairs of a torso's layers as `parameters.TorsoNames`."""

    match: Any
    """`xladder.twins.matching.Match`, or None where the torso has no parameters."""

    def to_flax(self, state: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """PyTorch's numbers by name → the torso's parameters."""
        found = self.match.to_flax(state)["params"] if self.match else {}
        return _copied(found)

    def to_torch(self, params: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The inverse."""
        found = self.match.to_torch({"params": params}) if self.match else {}
        return {name: np.array(x, np.float32, order="C") for name, x in found.items()}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of PyTorch's parameters by name."""
        pairs = self.match.pairs if self.match else ()
        return {pair.torch.places[role]: tuple(shape) for pair in pairs for role, shape in pair.torch.shapes.items()}


@cache
def _matched(name: str, torso: Any, view: View, stack: int) -> OwnTorsoNames:
    import torch

    from xladder import bridge

    states = _states(torso, view, stack)
    with torch.random.fork_rng(devices=[]):
        twin = make_twin(name, view, stack)
    if not any(True for _ in twin.parameters()) and not _has_params(torso, states):
        return OwnTorsoNames(None)
    try:
        return OwnTorsoNames(bridge.match(twin, torso, (states,), names=_names(name, torso)))
    except UsageError as error:
        raise UsageError(f"The torso `{name}` and its PyTorch twin are not the same: {error}") from error


def _names(name: str, torso: Any) -> Mapping[str, str] | None:
    """What the user says of the layers' names."""
    found = getattr(torso, "torch_names", None) or getattr(load(name), "torch_names", None)
    return dict(found) if found else None


def _has_params(torso: Any, states: Any) -> bool:
    import jax

    shapes = jax.eval_shape(lambda given: torso.init(jax.random.key(0), given), states)
    return bool(jax.tree.leaves(shapes))


def _call_twin(name: str, twin: Any, states: Any) -> Any:
    import jax
    import torch

    try:
        with torch.no_grad():
            said = twin(jax.tree.map(lambda x: torch.from_numpy(np.array(x)), states))
    except Exception as error:
        shown = ", ".join(f"{x.dtype} {list(x.shape)}" for x in jax.tree.leaves(states))
        raise UsageError(f"The PyTorch twin of `{name}` cannot be called with {shown}: {brief(error)}.") from error
    if not isinstance(said, torch.Tensor):
        raise UsageError(f"The PyTorch twin of `{name}` returns a {type(said).__name__}, and has to return a tensor.")
    return said


def _shape(torso: Any, view: View, stack: int) -> Any:
    """The shape of a state, or of its parts by name."""
    if getattr(torso, "by_key", False):
        return {name: (stack, *shape) for name, shape, _ in view.fields}
    return (stack, *view.seen)


def _example(torso: Any, view: View, stack: int) -> Any:
    """A state without numbers."""
    import jax

    if getattr(torso, "by_key", False):
        return {name: jax.ShapeDtypeStruct((stack, *shape), np.dtype(dtype)) for name, shape, dtype in view.fields}
    return jax.ShapeDtypeStruct((stack, *view.seen), view.dtype)


def _states(torso: Any, view: View, stack: int) -> Any:
    """A batch of states that are made up."""
    import jax

    rng = np.random.default_rng(0)

    def made(like: Any) -> np.ndarray:
        shape, kind = (EXAMPLES, *like.shape), np.dtype(like.dtype).kind
        most = {"u": 256, "b": 2, "i": 2}.get(kind)
        return (rng.integers(0, most, shape) if most else rng.standard_normal(shape)).astype(like.dtype)

    return jax.tree.map(made, _example(torso, view, stack))


def _is_torch(thing: Any) -> bool:
    """Whether it is a PyTorch module or a class of them, without importing PyTorch."""
    module = sys.modules.get("torch.nn")
    base = getattr(module, "Module", None)
    return base is not None and (isinstance(thing, base) or (inspect.isclass(thing) and issubclass(thing, base)))


def _listed(names: list[str]) -> str:
    return f" ({', '.join(f'`{name}`' for name in names)})" if names else ""


def _copied(tree: Any) -> Any:
    """The same in float32, without a share in PyTorch's memory."""
    if isinstance(tree, dict):
        return {name: _copied(part) for name, part in tree.items()}
    return np.array(tree, np.float32, order="C")
