"""Arguments of worlds, as they are given on a command line: name=value."""

from __future__ import annotations

import ast
from collections.abc import Sequence
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
