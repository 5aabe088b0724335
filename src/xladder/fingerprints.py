"""A digest of what an object holds: equal for equal objects, in every process.

An object passed from Python is known by what it was made of: `Maze(size=9)` has the same digest today and tomorrow, and
another one than `Maze(size=8)`. Nothing is executed but what pickling would execute, and nothing is read back.
"""

from __future__ import annotations

import copyreg
import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

DIGITS = 8  # of a digest
MAIN = "__main__"  # another module in every process, and a notebook may define a name in it again
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, type(Ellipsis))
_OF_CLASSES = ("__init__", "__call__", "__post_init__")  # special methods that are the author's own


class _Unknown(Exception):
    """Something whose contents cannot be read."""


def fingerprint(thing: Any) -> str | None:
    """Some hexadecimal digits for the contents of an object; None if they cannot be read."""
    digest = hashlib.sha256()
    try:
        for part in _parts(thing, {}):
            digest.update(f"{len(part)}:".encode())
            digest.update(part)
    except (_Unknown, RecursionError):
        return None
    return digest.hexdigest()[:DIGITS]


def has_name(thing: Any) -> bool:
    """Whether a class or function is found under its own name, in this process and in others."""
    module, qualname = (getattr(thing, name, None) for name in ("__module__", "__qualname__"))
    if module == MAIN or not isinstance(module, str) or not isinstance(qualname, str):
        return False
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    # A function may say that whoever looks up its name gets the same world from what is found there.
    return is_same(found, thing) or (found is not None and found is getattr(thing, "stands_for", None))


def is_same(one: Any, other: Any) -> bool:
    """Whether two objects are one; a bound method is made anew whenever it is read."""
    return one is other or (inspect.ismethod(one) and inspect.ismethod(other) and one == other)


def _parts(thing: Any, seen: dict[int, tuple[int, Any]]) -> Iterator[bytes]:
    """The contents of an object as a sequence of bytes. `seen` numbers the objects, which may contain each other.

    It keeps them, too: some are made only to be read, and the next one would have the same id.
    """
    if isinstance(thing, _PLAIN) and type(thing).__module__ == "builtins":
        yield f"{type(thing).__name__} {thing!r}".encode()
        return
    if id(thing) in seen:
        yield f"again {seen[id(thing)][0]}".encode()
        return
    seen[id(thing)] = len(seen), thing
    if isinstance(thing, types.ModuleType):
        yield f"module {thing.__name__}".encode()
    elif has_name(thing):
        yield f"name {thing.__module__}:{thing.__qualname__}".encode()
    elif hasattr(thing, "__array__") and hasattr(thing, "dtype") and not inspect.isclass(thing):
        yield from _array(thing)
    else:
        kind, contents = _contents(thing)
        yield f"{kind} {len(contents)}".encode()
        for part in contents:
            yield from _parts(part, seen)


def _contents(thing: Any) -> tuple[str, list[Any]]:
    """The kind of an object, and the objects that it is made of."""
    if isinstance(thing, list | tuple) and type(thing).__module__ == "builtins":
        return type(thing).__name__, list(thing)
    if isinstance(thing, set | frozenset):
        return "set", sorted(fingerprint(part) or _raise() for part in thing)
    if isinstance(thing, Mapping) and type(thing).__module__ in ("builtins", "collections"):
        return "mapping", [part for item in thing.items() for part in item]
    if isinstance(thing, functools.partial):
        return "partial", [thing.func, thing.args, thing.keywords]
    if isinstance(thing, types.CodeType):
        return "code", [thing.co_code, thing.co_names, thing.co_varnames, thing.co_consts]
    if isinstance(thing, types.CellType):
        try:
            return "cell", [thing.cell_contents]
        except ValueError:
            return "empty cell", []
    if isinstance(thing, types.FunctionType):
        used = [thing.__globals__.get(name) for name in thing.__code__.co_names] if thing.__module__ == MAIN else []
        return "function", [thing.__code__, thing.__defaults__, thing.__kwdefaults__, thing.__closure__, used]
    if inspect.ismethod(thing):
        return "method", [thing.__func__, thing.__self__]
    if isinstance(thing, property):
        return "property", [thing.fget]
    if isinstance(thing, functools.cached_property):
        return "cached property", [thing.func]
    if isinstance(thing, staticmethod | classmethod):
        return type(thing).__name__, [thing.__func__]
    if inspect.isclass(thing):
        own = {name: part for name, part in vars(thing).items() if name in _OF_CLASSES or not _is_special(name)}
        return f"class {thing.__qualname__}", [list(thing.__bases__), own]
    wrapped = getattr(thing, "__wrapped__", None)  # by `jax.jit` or `functools.lru_cache`
    if wrapped is not None and callable(thing):
        return "wrapped", [wrapped]
    if _is_flax(thing):
        # It keeps its own state beside the fields.
        return "module", [
            type(thing),
            [(f.name, getattr(thing, f.name, None)) for f in fields(thing) if f.name != "parent"],
        ]
    return "object", [type(thing), _attributes(thing), *_beside_attributes(thing)]


def _is_flax(thing: Any) -> bool:
    """Whether it is a module of Flax, which keeps state of its own beside its fields."""
    bases: tuple[type, ...] = type(thing).__mro__
    return is_dataclass(thing) and any(base.__module__.partition(".")[0] == "flax" for base in bases)


def _attributes(thing: Any) -> list[tuple[str, Any]]:
    """The attributes of an object by name, without those that are computed from others when asked for."""
    bases: tuple[type, ...] = type(thing).__mro__
    slots = [slot for base in bases for slot in _slots(base) if slot not in ("__dict__", "__weakref__")]
    found = {slot: getattr(thing, slot) for slot in slots if hasattr(thing, slot)} | getattr(thing, "__dict__", {})
    cached = {name for base in bases for name, x in vars(base).items() if isinstance(x, functools.cached_property)}
    return [(name, found[name]) for name in sorted(found) if name not in cached]


def _slots(kind: type) -> tuple[str, ...]:
    slots: Any = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _beside_attributes(thing: Any) -> list[Any]:
    """What an object holds outside Python's attributes, such as the items of a list or the state of a generator."""
    try:
        made = thing.__reduce_ex__(2)
    except Exception:  # an open file, a lock
        raise _Unknown from None
    if isinstance(made, str):
        return [made]
    function, given, state, items, pairs = (*made, None, None, None)[:5]
    if function is not copyreg.__newobj__:  # type: ignore[attr-defined]
        return [function, *given, state, list(items or ()), list(pairs or ())]
    return [*given[1:], list(items or ()), list(pairs or ())]


def _array(thing: Any) -> Iterator[bytes]:
    import numpy as np

    try:
        jax = sys.modules.get("jax")
        keys = jax is not None and jax.dtypes.issubdtype(thing.dtype, jax.dtypes.prng_key)
        values = np.asarray(jax.random.key_data(thing) if jax and keys else thing)
    except Exception:
        raise _Unknown from None
    if values.dtype.hasobject:
        raise _Unknown
    yield f"array {values.dtype.str} {values.shape}".encode()
    yield np.ascontiguousarray(values).tobytes()


def _is_special(name: str) -> bool:
    return (name.startswith("__") and name.endswith("__")) or name == "_abc_impl"


def _raise() -> Any:
    raise _Unknown
