"""Arguments of worlds, as they are given on a command line: name=value."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

from xladder.errors import UsageError

WORDS = {"true": True, "false": False, "none": None, "null": None}


def arguments(pairs: Sequence[str]) -> dict[str, Any]:
    """Arguments by name from texts such as `continuous=False`; what is no Python literal is a text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"`--world.kwargs` has `{pair}`, but it has to be name=value, such as continuous=False.")
        try:
            found[name] = WORDS[text.lower()] if text.lower() in WORDS else ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            found[name] = text
    return found


def numbers_in(value: Any) -> Iterator[float]:
    """All numbers in an argument, also in lists and dicts."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list | tuple | set):
            left += one
        elif isinstance(one, int | float):
            yield one
