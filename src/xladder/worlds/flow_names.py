"""The worlds called `flow/NAME`: built in, installed, given in Python, or named `module:Name`."""

from __future__ import annotations

import inspect
from functools import lru_cache
from typing import Any

from xladder import user_code
from xladder.errors import UsageError, XladderError, brief
from xladder.worlds.bit_strings import BitStrings
from xladder.worlds.flow import FlowWorld

BUILT_IN = {"bits": BitStrings}


def find(name: str) -> Any:
    """The class, function or object called `flow/NAME`."""
    bare = name.removeprefix("flow/")
    if bare in BUILT_IN:
        return BUILT_IN[bare]
    if ":" not in bare and bare in user_code.entry_points("world"):
        return user_code.load_entry_point("world", bare)
    if ":" not in bare:
        raise UsageError(f"There is no world `{name}`. There is `flow/bits`; custom ones are named `flow/module:Name`.")
    return user_code.find(bare, "world", name)


# A name stands for one object for the lifetime of the process.
@lru_cache(maxsize=16)
def load_once(name: str) -> FlowWorld:
    """The world called `flow/NAME`; the same object every time."""
    return load(name)


def load(name: str) -> FlowWorld:
    """Make the world called `flow/NAME`: built in, installed, given in Python, or named `module:Name`."""
    found = find(name)
    if inspect.isclass(found) or inspect.isfunction(found):
        try:
            found = found()
        except XladderError:
            raise
        except (Exception, SystemExit) as error:
            raise UsageError(f"`{name}` cannot be made: {brief(error)}.") from error
    if not isinstance(found, FlowWorld):
        raise UsageError(
            f"`{name}` is of type {type(found).__name__}, but it has to be a `FlowWorld` (of `xladder.worlds.flow`), a "
            "class of them, or a function without arguments that makes one."
        )
    return found
