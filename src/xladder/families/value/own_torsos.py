"""Users' own torsos: a Flax module that maps a state to features, and its PyTorch twin.

    class Torso(flax.linen.Module):  # my_nets.py
        width: int = 64

        @nn.compact
        def __call__(self, state):  # […, F, *frame]: F frames, after any batch axes
            ...  # float32 […, E]

    class TorsoTorch(torch.nn.Module):  # its twin
        def __init__(self, shape, width): ...  # shape: (F, *frame)

        def forward(self, states): ...  # [B, E] from [B, F, *frame]

`--learner.torso my_nets:Torso` names a class, a function without arguments that returns a module, or a module. In
Python the object itself can be passed, too: `learner={"torso": Torso}`.

- *The twin* of `Torso` is `TorsoTorch` in the same module. `torch_twin` on `Torso` names another: a class, a
  `staticmethod` or, as a string, `module:Name`. It is called with the arguments in its signature: `shape` is the
  shape of a state, any other name is a field of the Flax module. Without a twin, all rungs but `torch`, `compiled` and
  `hybrid` run, and `parity` has nothing to compare with.
- *Matching layers* are found by `xladder.bridge`: by name, shape, call order and, if that is ambiguous, by trial.
  `torch_names = {"layers.0": "Dense_0"}` on `Torso` states the pairs where they cannot be found.
- With `by_key = True` on `Torso`, an observation that is a tree is passed as its parts: {name: [F, …]}. The built-in
  torso `by_key` is one of these (`by_key.py`).

Importing this file imports neither JAX, Flax, PyTorch nor the user's module. Planning a run computes nothing on a
device: shapes are enough.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from xladder import user_code
from xladder.errors import UsageError, located, unknown
from xladder.families.value.torsos import BY_KEY, TORSOS

if TYPE_CHECKING:
    from xladder.worlds.envs import EnvSpec

SUFFIX = "Torch"
EXAMPLES = 4  # made-up states for matching layers by their outputs


def load(name: str) -> Any:
    """Import what the name refers to: a class, a function or a module."""
    if name == BY_KEY:
        from xladder.families.value.by_key import ByKey  # loads JAX

        return ByKey
    if ":" in name:
        return user_code.find(name, "torso")
    installed = user_code.entry_points("torso")
    if name not in installed:
        raise unknown("torso", name, [*TORSOS, BY_KEY, *installed, "module:Name"])
    return user_code.load_entry_point("torso", name)


def make(name: str) -> Any:
    """Build the Flax module of that name."""
    import flax.linen as nn

    thing = load(name)
    torso = thing
    if not isinstance(thing, nn.Module) and callable(thing) and not _is_torch(thing):
        try:
            torso = thing()
        except Exception as error:
            raise UsageError(
                f"The torso `{name}` cannot be built without arguments: {located(error)}. Give its fields defaults, or "
                "name a function that returns it."
            ) from error
    if _is_torch(torso):
        raise UsageError(
            f"`{name}` is a PyTorch module, but a torso is named by its Flax module: declare this one as its twin."
        )
    if not isinstance(torso, nn.Module):
        raise UsageError(
            f"`{name}` returns a {type(torso).__name__}, but a torso has to be a Flax Linen module (flax.linen.Module)."
        )
    try:
        hash(torso)
    except TypeError as error:
        raise UsageError(
            f"The fields of the torso `{name}` have to be constants that can be hashed, such as tuples in place of "
            f"lists: {located(error)}."
        ) from error
    return torso.clone(name=None)


def is_by_key(name: str) -> bool:
    """Whether a torso takes an observation as named parts."""
    return bool(getattr(make(name), "by_key", False))


def check(name: str, spec: EnvSpec, stack: int, world: str) -> int:
    """The number of features of a torso; a `UsageError` if it does not exist or cannot take a world's states."""
    return _check_features(name, make(name), spec, stack, world)


def _check_features(name: str, torso: Any, spec: EnvSpec, stack: int, world: str) -> int:
    """The number of features per state."""
    import jax

    if getattr(torso, "by_key", False) and not spec.fields:
        raise UsageError(
            f"The torso `{name}` takes named parts (`by_key = True`), but the frames of `{world}` are single arrays."
        )
    state = _example(torso, spec, stack)
    shown = ", ".join(f"{x.dtype} {list(x.shape)}" for x in jax.tree.leaves(state))

    def init(state: Any) -> Any:
        return torso.init_with_output(jax.random.key(0), state)

    shapes: list[int] = []
    for given in (state, jax.tree.map(lambda x: jax.ShapeDtypeStruct((2, *x.shape), x.dtype), state)):
        try:
            found, variables = jax.eval_shape(init, given)
        except Exception as error:
            batch = " with a batch axis in front" if shapes else ""
            raise UsageError(
                f"The torso `{name}` cannot take a state of `{world}`, {shown}{batch}: {located(error)}."
            ) from error
        shapes.append(_features_of(name, found, len(shapes)))
    others = sorted(collection for collection in variables if collection != "params")
    if others:
        raise UsageError(
            f"The torso `{name}` has a `{others[0]}` collection besides its parameters, which a value network cannot "
            "keep: use stateless layers, such as LayerNorm instead of BatchNorm."
        )
    try:
        jax.eval_shape(torso.apply, variables, state)
    except Exception as error:
        raise UsageError(
            f"The torso `{name}` cannot be applied with its parameters alone, as a value network does (nothing "
            f"in it may be random): {located(error)}."
        ) from error
    if shapes[0] != shapes[1]:
        raise UsageError(
            f"The torso `{name}` returns {shapes[0]} features for one state, but {shapes[1]} for each of two: it must "
            "not mix batch axes with those of the state."
        )
    return shapes[0]


def _features_of(name: str, found: Any, batch_axes: int) -> int:
    if not hasattr(found, "shape"):
        raise UsageError(f"The torso `{name}` returns a {type(found).__name__}, but it has to be an array of features.")
    if len(found.shape) != 1 + batch_axes or (batch_axes and found.shape[0] != 2):
        raise UsageError(
            f"The torso `{name}` returns {list(found.shape)} for {'two states' if batch_axes else 'one state'}, but it "
            f"has to be {'[B, E]' if batch_axes else '[E]'}: one feature axis{' after the batch axis' * batch_axes}."
        )
    if not np.issubdtype(found.dtype, np.floating):
        raise UsageError(f"The torso `{name}` returns {found.dtype}, but features have to be float32.")
    return int(found.shape[-1])


def find_twin(name: str) -> Any:
    """The class or function that builds the PyTorch twin of a torso, or None."""
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
        raise UsageError(f"`{name}` names `{declared}` as its PyTorch twin, but there is no such name.")
    return getattr(owner, attribute)


def why_no_twin(name: str) -> str:
    """Why a torso has no PyTorch twin, as a clause; an empty string if it has one."""
    if find_twin(name) is not None:
        return ""
    expected = type(make(name)).__name__ + SUFFIX
    return f"the torso `{name}` has no PyTorch twin (`{expected}` in its module, or `torch_twin`)"


def names_of(name: str, torso: Any) -> Mapping[str, str] | None:
    """The layer names that the user has declared, or None."""
    found = getattr(torso, "torch_names", None) or getattr(load(name), "torch_names", None)
    return dict(found) if found else None


def has_params(torso: Any, states: Any) -> bool:
    """Whether a torso has parameters."""
    import jax

    shapes = jax.eval_shape(lambda given: torso.init(jax.random.key(0), given), states)
    return bool(jax.tree.leaves(shapes))


def shape_of(torso: Any, spec: EnvSpec, stack: int) -> Any:
    """The shape of a state, or of its parts by name."""
    if getattr(torso, "by_key", False):
        return {name: (stack, *shape) for name, shape, _ in spec.fields}
    return (stack, *spec.seen)


def _example(torso: Any, spec: EnvSpec, stack: int) -> Any:
    """A state as shape and dtype only."""
    import jax

    from xladder.nets.fields import unflatten

    state = jax.ShapeDtypeStruct((stack, *spec.seen), spec.dtype)
    by_key = getattr(torso, "by_key", False)
    return jax.eval_shape(lambda state: unflatten(state, spec.fields), state) if by_key else state


def states_of(torso: Any, spec: EnvSpec, stack: int) -> Any:
    """A batch of made-up states."""
    import jax

    rng = np.random.default_rng(0)

    def made(like: Any) -> np.ndarray:
        shape, kind = (EXAMPLES, *like.shape), np.dtype(like.dtype).kind
        most = {"u": 256, "b": 2, "i": 2}.get(kind)
        return (rng.integers(0, most, shape) if most else rng.standard_normal(shape)).astype(like.dtype)

    return jax.tree.map(made, _example(torso, spec, stack))


def _is_torch(thing: Any) -> bool:
    """Whether `thing` is a PyTorch module or module class, without importing PyTorch."""
    module = sys.modules.get("torch.nn")
    base = getattr(module, "Module", None)
    return base is not None and (isinstance(thing, base) or (inspect.isclass(thing) and issubclass(thing, base)))
