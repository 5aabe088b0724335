"""Code that users bring: worlds, networks and rewards, named `module:Name` or given as objects.

Nothing is imported because a file says so. A module may be imported if the user named it: on the command line (as
`jax/my_worlds:Maze`, `--learner.torso my_nets:Torso` or `--import my_worlds`), in a call of the library, or by
installing a package with an entry point. A run directory only records the names; whoever opens it names the module
again. The folder a command is started in is on the path while such a module is imported.

Objects that are given in Python are kept here under the name that `module:Name` would have, so that the settings of a
run remain plain data.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from xladder.errors import UsageError, brief

NAME = re.compile(
    r"(?:(?P<source>[a-z]+)/)?(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<attribute>[A-Za-z_][\w.-]*)"
)
GROUPS = {"world": "xladder.worlds", "torso": "xladder.torsos", "workload": "xladder.workloads"}

_named: dict[str, None] = {}
"""Modules that the user has named, in order."""
_given: dict[str, Any] = {}
"""Objects given in Python, by `module:Name`."""
_changes_accepted = False


def allow(module: str) -> None:
    """Let names of a module be resolved; it is imported when one is."""
    _named[module] = None


def allow_typed(words: Iterable[str]) -> None:
    """Allow the modules of all names `module:Name` that a user has typed."""
    for module in modules_in([word.rpartition("=")[2] if word.startswith("--") else word for word in words]):
        allow(module)


def allowed() -> list[str]:
    """The modules that a child process has to be allowed as well."""
    return list(_named)


def accept_changes() -> None:
    """Use the code of a run's world though it is not what it was."""
    global _changes_accepted
    _changes_accepted = True


@contextmanager
def accepting_changes(accepted: bool = True) -> Iterator[None]:
    """The same for a while."""
    global _changes_accepted
    before = _changes_accepted
    _changes_accepted = before or accepted
    try:
        yield
    finally:
        _changes_accepted = before


def import_module(module: str) -> Any:
    """Import a module that the user has named, with the current folder on the path."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if module == missing or module.startswith(f"{missing}."):
            raise UsageError(
                f"There is no module `{module}`: neither in this folder nor installed. Start the command in the folder "
                f"that has `{module.split('.')[0]}.py`, or install it."
            ) from None
        raise UsageError(f"`{module}` cannot be imported: it needs `{missing}`, which is not installed.") from None
    except Exception as error:
        raise UsageError(f"`{module}` cannot be imported: {brief(error)}.") from error


def require(module: str, what: str, shown: str) -> Any:
    """Import a module if the user has named it; else a `UsageError` that says how to."""
    if module not in _named:
        raise UsageError(
            f"The {what} `{shown}` is code of your own, and a file that names it does not make xladder import it. If "
            f"you trust it, add `--import {module}` (in Python: `imports=[{module!r}]`)."
        )
    return import_module(module)


def find(name: str, what: str, where: str = "") -> Any:
    """The object called `module:Name`.

    Args:
        name: The name, without the prefix that says where it comes from.
        what: What it should be, for complaints: "world", "torso" or "reward".
        where: The name as the user typed it, where that is longer.
    """
    if name in _given:
        return _given[name]
    shown = where or name
    found = NAME.fullmatch(name)
    if not found:
        raise UsageError(f"`{shown}` does not name a {what}: it has to be `module:Name`, such as `my_{what}s:Maze`.")
    module = found["module"]
    thing = require(module, what, shown)
    for part in found["attribute"].split("."):
        if not hasattr(thing, part):
            there = sorted(k for k, v in vars(thing).items() if inspect.isclass(v) and v.__module__ == module)
            hint = f" It has {', '.join(f'`{k}`' for k in there)}." if there else ""
            raise UsageError(f"`{module}` has no `{found['attribute']}`, so there is no {what} `{shown}`.{hint}")
        thing = getattr(thing, part)
    return thing


def find_world(name: str, shown: str) -> Any:
    """A world of the user's: `module:Name`, or the name of an installed entry point."""
    if ":" not in name and name in entry_points("world"):
        return load_entry_point("world", name)
    return find(name, "world", shown)


def instantiate(thing: Any, shown: str) -> Any:
    """What a name stands for: an instance as it is, or what a class or function without arguments makes."""
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return thing
    try:
        return thing()
    except Exception as error:
        raise UsageError(f"`{shown}` cannot be made without arguments: {brief(error)}.") from error


def shown(thing: Any) -> str:
    """What to call an object in a sentence."""
    return str(getattr(thing, "__name__", type(thing).__name__))


def give(thing: Any) -> str:
    """Keep an object under the name that its class or function has. Returns that name, `module:Name`."""
    owner = thing if inspect.isclass(thing) or inspect.isfunction(thing) else type(thing)
    name = f"{owner.__module__}:{owner.__qualname__.replace('<locals>.', '').replace('<lambda>', 'function')}"
    known = _given.get(name)
    if known is not None and known is not thing:
        taken = 2
        while f"{name}.{taken}" in _given and _given[f"{name}.{taken}"] is not thing:
            taken += 1
        name = f"{name}.{taken}"
    _given[name] = thing
    return name


def as_names(settings: Any) -> Any:
    """Settings in which classes, functions and other objects that can be called are replaced by names.

    They are kept under these names, and what is in their modules may be imported.
    """
    if isinstance(settings, Mapping):
        return {key: as_names(value) for key, value in settings.items()}
    if not callable(settings):
        return settings
    name = give(settings)
    module = name.partition(":")[0]
    if module != "__main__":  # which is another one in other processes
        allow(module)
    return name


def is_given(name: str) -> bool:
    """Whether an object was given in Python under this name; child processes cannot have it."""
    return name in _given


def check_children_can_find(names: Sequence[str]) -> None:
    """Raise a `UsageError` if a child process could not import what was given in this one."""
    for name in names:
        module, _, attribute = name.partition(":")
        if not is_given(name):
            continue
        owner = sys.modules.get(module)
        if module == "__main__" or getattr(owner, attribute, None) is None:
            raise UsageError(
                f"`{name}` exists in this process only, and this starts others: put it into a module of its own, and "
                f"name it as `module:Name`."
            )


def entry_points(kind: str) -> dict[str, metadata.EntryPoint]:
    """The installed worlds, torsos or workloads by name; a `UsageError` if two packages use the same one."""
    found: dict[str, metadata.EntryPoint] = {}
    for point in metadata.entry_points(group=GROUPS[kind]):
        if point.name in found and found[point.name].value != point.value:
            raise UsageError(
                f"Two installed packages call a {kind} `{point.name}`: {found[point.name].value} and {point.value}. "
                "Name the one you mean as `module:Name`."
            )
        found[point.name] = point
    return found


def load_entry_point(kind: str, name: str) -> Any:
    """The object of an installed entry point."""
    point = entry_points(kind)[name]
    try:
        return point.load()
    except Exception as error:
        raise UsageError(f"The installed {kind} `{name}` ({point.value}) cannot be loaded: {brief(error)}.") from error


def modules_in(settings: Any) -> list[str]:
    """The modules of all names `module:Name` in settings that are plain data."""
    found: dict[str, None] = {}
    for value in _texts(settings):
        name = NAME.fullmatch(value)
        if name:
            found[name["module"]] = None
    return list(found)


def digests(settings: Any) -> dict[str, str]:
    """SHA-256 of the files of the modules that settings name."""
    return {module: found for module in modules_in(settings) if (found := digest(module))}


def digest(module: str) -> str | None:
    """SHA-256 of a module's file; None where it has none. The module has to be imported by now."""
    file = getattr(sys.modules.get(module), "__file__", None)
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None
    except OSError:
        return None


def check_unchanged(recorded: Mapping[str, str], where: str) -> None:
    """Raise a `UsageError` if code that a run was made with is not what it was.

    Args:
        recorded: Digests by module, from the run's config.
        where: The run, for complaints.
    """
    for module, before in recorded.items():
        now = digest(module)
        if now and now != before and not _changes_accepted:
            raise UsageError(
                f"`{module}` is not what it was when `{where}` was made: its file has the digest {now[:12]} now and "
                f"had {before[:12]} then. To use it all the same, add `--changed-code` (in Python: "
                "`changed_code=True`)."
            )


def _texts(settings: Any) -> Iterator[str]:
    if isinstance(settings, str):
        yield settings
    elif isinstance(settings, Mapping):
        for value in settings.values():
            yield from _texts(value)
    elif isinstance(settings, list | tuple):
        for value in settings:
            yield from _texts(value)
