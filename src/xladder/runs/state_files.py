"""Read and write state_dicts as arrays by name, in PyTorch's format or as safetensors, which needs no PyTorch."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from xladder.errors import UsageError

Declared = dict[str, tuple[str, tuple[int, ...]]]
"""A file's declared contents, before any data is read: name → dtype and shape."""

SUFFIXES = {".safetensors": "safetensors", ".pt": "torch", ".pth": "torch", ".pkl": "torch"}
ARCHIVE = b"PK\x03\x04"  # the first bytes of PyTorch's files


def declared(path: Path) -> Declared:
    """Read a file's declared contents: name → dtype and shape."""
    if kind(path) == "torch":
        from xladder import bridge

        return bridge.declared(path)
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            views = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - not a dict
            return {name: (_dtype(view.get_dtype()), tuple(view.get_shape())) for name, view in views.items()}
    except (SafetensorError, OSError, ValueError) as error:
        raise UsageError(f"`{path}` is not a safetensors file, or it is truncated: {_first_line(error)}.") from None


def read(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Read some arrays of a file. Call `declared` first to see names and sizes."""
    if kind(path) == "torch":
        from xladder import bridge

        return bridge.read(path, names)
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise UsageError(f"`{path}` cannot be read: {_first_line(error)}.") from None


def write(path: Path, form: str, state: Mapping[str, np.ndarray], metadata: Mapping[str, str] | None = None) -> None:
    """Write a new file in the format `torch` or `safetensors`, which may have metadata, and sync it to disk."""
    if form == "torch":
        from xladder import bridge

        content = bridge.write(state)
    else:
        from safetensors.numpy import save  # its `save_file` makes files that only their owner can read

        # It writes the bytes as they lie in memory, so a transposed array or every second row would be wrong.
        dense = {name: np.asarray(array, order="C") for name, array in state.items()}
        content = save(dense, dict(metadata) if metadata else None)
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def kind(path: Path) -> str:
    """The format of a file, `torch` or `safetensors`, by its suffix or else by its first bytes."""
    try:
        if path.exists() and not path.is_file():  # reading a pipe could block, and a device has no end
            raise UsageError(f"`{path}` is not a file.")
        with path.open("rb") as file:
            beginning = file.read(len(ARCHIVE))
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {error.strerror or error}.") from None
    return SUFFIXES.get(path.suffix.lower()) or ("torch" if beginning == ARCHIVE else "safetensors")


def _dtype(name: str) -> str:
    """Convert safetensors' name of a dtype to NumPy's."""
    return {"F16": "float16", "F32": "float32", "F64": "float64", "BF16": "bfloat16"}.get(name, name.lower())


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200].rstrip(".") if str(error) else type(error).__name__
