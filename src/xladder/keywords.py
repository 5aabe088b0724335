"""Errors as Python callers read them: with the keywords of `xladder.train` in place of the flags of the command line.

Both call the same code, whose sentences name flags. Names of settings (`--learner.lr`) are left as they are: they are
found by them in the documentation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any, TypeVar

from xladder.errors import XladderError

F = TypeVar("F", bound=Callable[..., Any])

OTHERWISE = {"from": "start_from", "tag": "tags", "import": "imports"}
"""Flags that have another name in Python."""
SAME = {
    *("rung", "rungs", "seed", "seeds", "preset", "protocol", "device", "out", "name", "keep", "track", "threads"),
    *("mesh", "actors", "shards", "ray", "lock_step", "ticks_per_row", "on_nan", "eval_episodes", "record_every"),
    *("checkpoint_every", "changed_code", "steps", "epochs", "iterations", "frames", "trials", "halve", "pbt"),
    *("test_seeds", "metric"),
}
"""Flags that have the same name in Python, but for `-`."""
_FLAG = re.compile(r"`--([a-z][a-z-]*)(?: ([^`\s]+))?`")  # with its value, if there is one


def as_keywords(text: str, names: Mapping[str, str]) -> str:
    """A sentence with keywords in place of flags: `--tag` is `tags`, and `--rung fused` is `rung='fused'`.

    Args:
        text: The sentence.
        names: Flags that are called otherwise in this function.
    """

    def keyword(found: re.Match[str]) -> str:
        name, value = found[1].replace("-", "_"), found[2]
        if name not in SAME and name not in OTHERWISE:
            return found[0]
        shown = names.get(name, OTHERWISE.get(name, name))
        if value is None:
            return f"`{shown}`"
        return f"`{shown}={value if value.isdecimal() else repr(value)}`"

    return _FLAG.sub(keyword, text)


@contextmanager
def in_python(**names: str) -> Iterator[None]:
    """Word errors for Python callers; arguments as `names` of `as_keywords`."""
    try:
        yield
    except XladderError as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (as_keywords(error.args[0], names), *error.args[1:])
        raise


@cache
def worded(function: F) -> F:
    """The function, with errors worded for Python callers."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with in_python():
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]
