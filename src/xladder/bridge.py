"""Convert parameters between PyTorch tensors or files and the JAX pytree of the same network, by name and exactly.

The names and layouts are those of `parameters.py`. A file is only ever read as data. First its pickle instructions are
inspected; then PyTorch opens it with `weights_only=True` twice: on the meta device, to see how large the tensors claim
to be, and then for real.

For any other pair of modules, `convert`, `convert_back` and `match` work out which layers correspond (`twins/`).
"""

from __future__ import annotations

import io
import pickletools  # disassembles a pickle without executing it
import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xladder import parameters
from xladder.core.packages import install_line, missing_extra
from xladder.errors import UsageError
from xladder.parameters import LEARNERS as LEARNERS
from xladder.parameters import TorsoNames

try:
    import torch
except ImportError as error:  # pragma: no cover - depends on the installation
    raise missing_extra("torch", "torch") from error

SAFE_SINCE = (2, 10)  # before 2.10, `weights_only=True` could be bypassed
# Everything a file of tensors needs to name. PyTorch allows more, such as buffers of any size a file asks for.
_BUILDERS = re.compile(
    r"collections OrderedDict|torch [A-Z][A-Za-z0-9]*Storage"
    r"|torch\._utils (_rebuild_tensor_v2|_rebuild_parameter)"
)
_NAMERS = {"STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4", "NEWOBJ_EX"}  # other ways to name an object to build
_PLAIN = (str, bytes, bool, int, float, complex, type(None))


def convert(
    torch_module: Any,
    flax_module: Any,
    inputs: Any = None,
    *,
    names: Mapping[str, str] | None = None,
    flax_inputs: Any = None,
) -> dict[str, Any]:
    """Convert the parameters of any PyTorch module to those of its Flax twin.

    Layers are paired by name, kind, shape and call order. Where that leaves a choice, both modules are called and
    their outputs have to agree. A `UsageError` names the first pair that does not fit.

    Args:
        torch_module: the PyTorch module; it is not modified.
        flax_module: a Flax Linen module of the same structure.
        inputs: example inputs for both modules: an array, a tuple of positional arguments or a dict of keyword
            arguments. They determine the shapes of the Flax module. Optional if the network starts with a linear or
            similar layer.
        names: names of layers, or of the modules around them, that cannot be matched automatically:
            {"encoder": "Encoder_0", "head.0": "Dense_2"}.
        flax_inputs: inputs for the Flax module if they differ, such as images with channels last.

    Returns:
        A pytree of NumPy arrays, which `flax_module.apply` is given as `params`. (BatchNorm statistics are not
        parameters; `match(…).to_flax(torch_module.state_dict())` includes them.)
    """
    twins = _meet(torch_module, flax_module, inputs, names, flax_inputs)
    return _copied(twins.match.to_flax(_numbers(torch_module))["params"])


def convert_back(
    params: Mapping[str, Any],
    torch_module: Any,
    flax_module: Any = None,
    inputs: Any = None,
    *,
    names: Mapping[str, str] | None = None,
    flax_inputs: Any = None,
) -> dict[str, torch.Tensor]:
    """Convert the parameters of any Flax module to a state_dict of its PyTorch twin.

    Args:
        params: parameters as returned by `flax_module.init`, with or without the enclosing {"params": …} and
            "batch_stats".
        torch_module: the PyTorch module that the state_dict is for; it is not modified.
        flax_module: the Flax module that the parameters belong to. Without it, names and shapes alone have to
            identify every layer.
        inputs: as for `convert`.
        names: as for `convert`: PyTorch's name → Flax's.
        flax_inputs: as for `convert`.

    Returns:
        A complete state_dict for `torch_module.load_state_dict`; entries that Flax does not have keep the module's
        current values. (In a GRU or LSTM, PyTorch adds two biases and Flax stores their sum: the first gets the sum,
        the second 0.)
    """
    from xladder.twins import layers_torch, matching

    if not isinstance(params, Mapping):
        raise UsageError(f"The parameters are a {type(params).__name__}, but they have to be a dict as in Flax.")
    variables = params if isinstance(params.get("params"), Mapping) else {"params": params}
    if flax_module is None:
        found = matching.match_parameters(variables, torch_module, names)
    else:
        found = _meet(torch_module, flax_module, inputs, names, flax_inputs).match
        if "batch_stats" not in variables:  # keep the module's current statistics
            variables = {**found.to_flax(_numbers(torch_module)), **variables}
    return layers_torch.state_dict(torch_module, found.to_torch(variables))


def match(
    torch_module: Any,
    flax_module: Any,
    inputs: Any = None,
    *,
    names: Mapping[str, str] | None = None,
    flax_inputs: Any = None,
) -> Any:
    """Find which layers of two modules correspond. Print the result to see the pairs and how each was found.

    Args:
        torch_module: a PyTorch module.
        flax_module: a Flax Linen module.
        inputs: as for `convert`.
        names: as for `convert`.
        flax_inputs: as for `convert`.

    Returns:
        A `Match` with `.pairs`, and with `.to_flax(state_dict)` and `.to_torch(variables)` for repeated conversions.
    """
    return _meet(torch_module, flax_module, inputs, names, flax_inputs).match


def _meet(torch_module: Any, flax_module: Any, inputs: Any, names: Mapping[str, str] | None, flax_inputs: Any) -> Any:
    """Match two modules; raise a `UsageError` if the pairing is ambiguous."""
    from xladder.twins import matching  # imports JAX

    twins = matching.meet(torch_module, flax_module, inputs, names, flax_inputs)
    if twins.match.doubt:
        raise UsageError(twins.match.doubt)
    return twins


def _numbers(torch_module: torch.nn.Module) -> dict[str, np.ndarray]:
    return {name: _array(x) for name, x in torch_module.state_dict().items()}


def _copied(tree: Any) -> Any:
    """Copy a tree so that it shares no memory with PyTorch."""
    return {name: _copied(x) for name, x in tree.items()} if isinstance(tree, dict) else np.array(tree, order="C")


def to_jax(learner: str, state_dict: Mapping[str, Any], torso: TorsoNames | None = None) -> dict[str, Any]:
    """Convert a PyTorch state_dict to the parameters that `net.apply` takes (NumPy arrays, float32)."""
    if not isinstance(state_dict, Mapping):
        raise UsageError(f"The state_dict is a {type(state_dict).__name__}, but it has to map names to tensors.")
    state = {name: _array(values) for name, values in state_dict.items()}
    if torso is None:  # layers of one's own may have any shape
        parameters.check_names(learner, [name for name in state if not parameters.is_noise(name)])
        _check_arrays(state)
    return parameters.to_tree(learner, state, torso)


def to_torch(learner: str, params: Mapping[str, Any], torso: TorsoNames | None = None) -> dict[str, torch.Tensor]:
    """Convert the JAX parameters of one agent to a PyTorch state_dict."""
    if not isinstance(params, Mapping):
        raise UsageError(f"The parameters are a {type(params).__name__}, but they have to be a dict as in Flax.")
    state = parameters.to_state(learner, params, torso)
    if torso is None:
        _check_arrays(state)
    return {name: torch.from_numpy(values) for name, values in state.items()}


def _check_arrays(state: Mapping[str, np.ndarray]) -> None:
    """Raise a `UsageError` unless arrays by PyTorch's names are numbers and have as many axes as one network's."""
    for name, values in state.items():
        if values.dtype.kind not in "biuf":
            raise UsageError(f"`{str(name)[:80]}` is an array of {values.dtype}, but it has to hold real numbers.")
        leaf = str(name).rpartition(".")[2]
        wanted = (1,) if leaf.endswith("bias") else (1, 2, 4) if leaf.endswith("weight") else range(3)
        if values.ndim not in wanted:
            raise UsageError(
                f"`{str(name)[:80]}` has shape {list(values.shape)}, which no layer of one network has. Of several "
                "seeds or agents, convert one at a time: jax.tree.map(lambda x: x[0], params)."
            )


def load_file(learner: str, path: str | Path) -> dict[str, Any]:
    """Read a `.pt` file: a state_dict, or sorrel's dict of `local`, `target` and `optim`.

    Returns `{"params": …}`, plus `"target"` if the file has one. Only tensors and plain containers are accepted, so a
    file cannot run code.
    """
    content = read_content(Path(path))
    parts = {"params": "local", "target": "target"} if "local" in content else {}
    found = {name: content[part] for name, part in parts.items() if part in content} or {"params": content}
    return {name: to_jax(learner, state_of(part, path)) for name, part in found.items()}


def declared(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The declared contents of the state_dict in a file (sorrel's `local` if present): name → dtype and shape."""
    found = state_of(read_content(path, device="meta"), path, local=True)
    return {name: (str(x.dtype).removeprefix("torch."), tuple(x.shape)) for name, x in found.items()}


def read(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Read some tensors of the state_dict in a file. Call `declared` first to see names and sizes."""
    found = state_of(read_content(path), path, local=True)
    return {name: _array(found[name]) for name in names}


def write(state: Mapping[str, np.ndarray]) -> bytes:
    """Serialise a state_dict as `torch.save` does."""
    file = io.BytesIO()
    torch.save({name: torch.from_numpy(np.array(values)) for name, values in state.items()}, file)
    return file.getvalue()


def read_content(path: Path, device: str = "cpu") -> dict[Any, Any]:
    """Load a file's content, a dict of tensors and plain values; its tensors have no data if `device` is "meta"."""
    version = tuple(int(number) for number in re.findall(r"\d+", torch.__version__)[:2])
    if version < SAFE_SINCE:
        raise UsageError(
            f"PyTorch {torch.__version__} cannot open untrusted files safely: 2.10 or newer can. "
            f"Install it with: {install_line('torch').replace(' install ', ' install -U ', 1)}"
        )
    try:
        _inspect(path)
        content = torch.load(path, map_location="meta", weights_only=True)
        _check_content(content, path)
        if device != "meta":
            content = torch.load(path, map_location=device, weights_only=True)
    except UsageError:
        raise
    except (OSError, zipfile.BadZipFile) as error:
        if isinstance(error, OSError) and error.strerror:
            raise UsageError(f"`{path}` cannot be read: {error.strerror}") from None
        raise _refused(path, "it is not an archive written by torch.save, or it is truncated.") from None
    except Exception as error:  # a damaged or hostile file can make the reader raise anything
        raise _refused(path, str(error).splitlines()[0][:200] if str(error) else type(error).__name__) from None
    return content


def _inspect(path: Path) -> None:
    """Raise unless a file is a PyTorch archive, unpacks to no more than its size, and builds nothing but tensors."""
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        # Compressed or overlapping parts could unpack to any size.
        if any(part.compress_type != zipfile.ZIP_STORED for part in parts):
            raise _refused(path, "parts of it are compressed, and torch.save never does that.")
        if sum(part.file_size for part in parts) > path.stat().st_size:
            raise _refused(path, "its parts claim to be larger than the file.")
        plans = [part for part in parts if part.filename.endswith("data.pkl")]
        if len(plans) != 1:
            raise _refused(path, "it is an archive, but not one written by torch.save.")
        instructions = archive.read(plans[0])
    for opcode, argument, _ in pickletools.genops(instructions):
        if opcode.name in _NAMERS or (opcode.name == "GLOBAL" and not _BUILDERS.fullmatch(str(argument))):
            raise _refused(path, f"it asks for {str(argument or opcode.name)[:80]!r}, which is not a tensor.")


def _check_content(content: Any, path: Path) -> None:
    """Raise unless the content is a dict whose tensors are no larger than the file."""
    if not isinstance(content, dict):
        raise UsageError(f"`{path}` holds a {type(content).__name__}, not a state_dict.")
    if sum(x.numel() * x.element_size() for x in _tensors(content, path)) > path.stat().st_size:
        raise _refused(path, "its tensors claim to be larger than the file.")


def _tensors(content: Any, path: Path) -> Iterator[torch.Tensor]:
    """All tensors in nested plain containers, each once, however often it is referenced."""
    waiting, seen = [content], set()
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if isinstance(part, torch.Tensor):
            yield part
        elif isinstance(part, Mapping):
            waiting += [*part.keys(), *part.values()]
        elif isinstance(part, list | tuple | set):
            waiting += part
        elif not isinstance(part, _PLAIN):
            raise _refused(path, f"it holds a {type(part).__name__}.")


def state_of(content: Any, path: str | Path, local: bool = False) -> dict[str, torch.Tensor]:
    """Check that the content is a state_dict and return it; with `local`, sorrel's online network if it has one."""
    if local and isinstance(content, dict) and "local" in content:
        content = content["local"]
    if not isinstance(content, dict) or not all(
        isinstance(name, str) and isinstance(x, torch.Tensor) and x.layout is torch.strided
        for name, x in content.items()
    ):
        raise UsageError(f"`{path}` is not a state_dict: it has to map names to plain tensors.")
    return content


def _array(values: Any) -> np.ndarray:
    return values.detach().cpu().numpy() if isinstance(values, torch.Tensor) else np.asarray(values)


def _refused(path: Path, why: str) -> UsageError:
    return UsageError(f"`{path}` is not a PyTorch file of plain tensors: {why}")
