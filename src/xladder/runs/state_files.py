"""Files that hold a state_dict: PyTorch's, and safetensors, which needs no PyTorch. Names to arrays, both ways."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from xladder.errors import UsageError

Declared = dict[str, tuple[str, tuple[int, ...]]]
"""What a file says it holds, before any of it is read: name → dtype and shape."""

SUFFIXES = {".safetensors": "safetensors", ".pt": "torch", ".pth": "torch", ".pkl": "torch"}
ARCHIVE = b"PK\x03\x04"  # how PyTorch's files begin


def declared(path: Path) -> Declared:
    """What a file says it holds."""
    if kind(path) == "torch":
        from xladder import bridge

        return bridge.declared(path)
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            views = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
            return {name: (_dtype(view.get_dtype()), tuple(view.get_shape())) for name, view in views.items()}
    except (SafetensorError, OSError, ValueError) as error:
        raise UsageError(f"`{path}` is not a safetensors file, or only a part of one: {_first_line(error)}.") from None


def read(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Some arrays of a file. Ask `declared` first what they are."""
    if kind(path) == "torch":
        from xladder import bridge

        return bridge.read(path, names)
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            return {name: file.get_tensor(name) for name in names}
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise UsageError(f"`{path}` cannot be read: {_first_line(error)}.") from None


def write(path: Path, form: str, state: Mapping[str, np.ndarray]) -> None:
    """Write a file, in the form `torch` or `safetensors`. It has to reach the disk before this returns."""
    if form == "torch":
        from xladder import bridge

        content = bridge.write(state)
    else:
        from safetensors.numpy import save

        content = save(dict(state))
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def kind(path: Path) -> str:
    """`torch` or `safetensors`: what a file's name says, or if it says nothing, how the file begins."""
    try:
        if path.exists() and not path.is_file():  # a pipe would be waited for, and a device has no end
            raise UsageError(f"`{path}` is not a file.")
        with path.open("rb") as file:
            beginning = file.read(len(ARCHIVE))
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {error.strerror or error}.") from None
    return SUFFIXES.get(path.suffix.lower()) or ("torch" if beginning == ARCHIVE else "safetensors")


def _dtype(name: str) -> str:
    """safetensors' name of a dtype as NumPy and PyTorch have it."""
    return {"F16": "float16", "F32": "float32", "F64": "float64", "BF16": "bfloat16"}.get(name, name.lower())


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200].rstrip(".") if str(error) else type(error).__name__
