"""The user's own code: worlds, networks and rewards, named `module:Name` or passed as objects.

Nothing is imported just because a file names it. A module may be imported only if the user named it: on the command
line (as `jax/my_worlds:Maze`, `--learner.torso my_nets:Torso` or `--import my_worlds`), in a call of the library, or
by installing a package with an entry point. A run directory only records the names; whoever opens it has to name the
module again. The working directory is on the path while such a module is imported.

Objects passed from Python are registered here as `module:Name`, so that the config of a run remains plain data.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

from xladder.errors import UsageError, brief

NAME = re.compile(
    r"(?:(?P<source>[A-Za-z]+)/)?(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<attribute>[A-Za-z_][\w.-]*)"
)
GROUPS = {"world": "xladder.worlds", "torso": "xladder.torsos", "workload": "xladder.workloads"}

_named: dict[str, None] = {}
"""Modules that the user has named, in order."""
_given: dict[str, Any] = {}
"""Objects passed from Python, by `module:Name`."""
_changes_accepted = False


def allow(module: str) -> None:
    """Allow names in a module to be resolved; it is imported on first use."""
    _named[module] = None


def allow_typed(words: Iterable[str]) -> None:
    """Allow the modules of all names `module:Name` on a command line."""
    for module in modules_in([word.rpartition("=")[2] if word.startswith("--") else word for word in words]):
        allow(module)


def allowed() -> list[str]:
    """The allowed modules; child processes have to be allowed the same."""
    return list(_named)


def accept_changes() -> None:
    """Accept code that has changed since a run was made."""
    global _changes_accepted
    _changes_accepted = True


@contextmanager
def accepting_changes(accepted: bool = True) -> Iterator[None]:
    """Accept changed code within a context, if `accepted`."""
    global _changes_accepted
    before = _changes_accepted
    _changes_accepted = before or accepted
    try:
        yield
    finally:
        _changes_accepted = before


def import_module(module: str) -> Any:
    """Import a module that the user has named, with the working directory on the path."""
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if module.endswith(".py"):
            raise UsageError(f"`{module}` is a file: name the module, `{module.removesuffix('.py')}`.") from None
        if module == missing or module.startswith(f"{missing}."):
            raise UsageError(
                f"There is no module `{module}`: neither in this folder nor installed. Run the command in the folder "
                f"that contains `{module.split('.')[0]}.py`, or install it."
            ) from None
        raise UsageError(f"`{module}` cannot be imported: it needs `{missing}`, which is not installed.") from None
    except (Exception, SystemExit) as error:
        raise UsageError(f"`{module}` cannot be imported: {brief(error)}.") from error


def require(module: str, what: str, shown: str) -> Any:
    """Import a module if the user has named it; otherwise raise a `UsageError` that says how to."""
    if module not in _named:
        raise UsageError(
            f"The {what} `{shown}` is user code, and xladder does not import code just because a file names it. If "
            f"you trust it, add `--import {module}` (in Python: `imports=[{module!r}]`)."
        )
    return import_module(module)


def find(name: str, what: str, where: str = "") -> Any:
    """Find the object called `module:Name`.

    Args:
        name: The name, without the prefix for its source.
        what: What it should be, for error messages: "world", "torso" or "reward".
        where: The name as the user typed it, if longer.
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
            classes = sorted(k for k, v in vars(thing).items() if inspect.isclass(v) and v.__module__ == module)
            hint = f" It has {', '.join(f'`{k}`' for k in classes)}." if classes else ""
            raise UsageError(f"`{module}` has no `{found['attribute']}`, so there is no {what} `{shown}`.{hint}")
        thing = getattr(thing, part)
    return thing


def find_world(name: str, shown: str) -> Any:
    """Find a user's world by `module:Name` or by the name of an installed entry point."""
    if ":" not in name and name in entry_points("world"):
        return load_entry_point("world", name)
    return find(name, "world", shown)


def instantiate(thing: Any, shown: str) -> Any:
    """Return an instance as it is; call a class or function without arguments to make one."""
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return thing
    try:
        return thing()
    except (Exception, SystemExit) as error:
        hint = " It is called without arguments." if isinstance(error, TypeError) else ""
        raise UsageError(f"`{shown}` cannot be created: {brief(error)}.{hint}") from error


def shown(thing: Any) -> str:
    """The name of an object in a message."""
    return str(getattr(thing, "__name__", type(thing).__name__))


def give(thing: Any) -> str:
    """Register an object under the name of its class or function. Returns that name, `module:Name`."""
    owner = thing if inspect.isclass(thing) or inspect.isfunction(thing) else type(thing)
    name = f"{owner.__module__}:{owner.__qualname__.replace('<locals>.', '').replace('<lambda>', 'function')}"
    known = _given.get(name)
    if known is not None and known is not thing:
        suffix = 2
        while f"{name}.{suffix}" in _given and _given[f"{name}.{suffix}"] is not thing:
            suffix += 1
        name = f"{name}.{suffix}"
    _given[name] = thing
    return name


def as_names(settings: Any) -> Any:
    """Replace classes, functions and other callables in settings by names.

    The objects are registered under these names, and their modules are allowed to be imported.
    """
    if isinstance(settings, Mapping):
        return {key: as_names(value) for key, value in settings.items()}
    if not callable(settings):
        return settings
    name = give(settings)
    module = name.partition(":")[0]
    if module != "__main__":  # a different module in other processes
        allow(module)
    return name


def is_given(name: str) -> bool:
    """Whether an object was passed from Python under this name; child processes do not have it."""
    return name in _given


def for_children(settings: Any) -> list[str]:
    """Modules that a child process has to be allowed to import for these settings.

    Args:
        settings: Settings as plain data.

    Returns:
        Names of modules; a `UsageError` if an object was passed to this process that no other can import.
    """
    for text in _texts(settings):
        found = NAME.fullmatch(text)
        name = f"{found['module']}:{found['attribute']}" if found else ""
        if name not in _given:
            continue
        owner = sys.modules.get(name.partition(":")[0])
        if found and (found["module"] == "__main__" or not hasattr(owner, found["attribute"])):
            raise UsageError(
                f"`{name}` exists only in this process, and this starts others: put it into a module of its own, and "
                "name it as `module:Name`."
            )
    return list(dict.fromkeys([*allowed(), *modules_in(settings)]))


def entry_points(kind: str) -> dict[str, metadata.EntryPoint]:
    """The installed worlds, torsos or workloads by name; a `UsageError` if two packages use the same name."""
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
    """Load the object of an installed entry point."""
    point = entry_points(kind)[name]
    try:
        return point.load()
    except Exception as error:
        raise UsageError(f"The installed {kind} `{name}` ({point.value}) cannot be loaded: {brief(error)}.") from error


def modules_in(settings: Any) -> list[str]:
    """The modules of all names `module:Name` in plain-data settings."""
    found: dict[str, None] = {}
    for value in _texts(settings):
        name = NAME.fullmatch(value)
        if name:
            found[name["module"]] = None
    return list(found)


def digests(settings: Any) -> dict[str, str]:
    """SHA-256 of the files of the modules named in settings."""
    return {module: found for module in modules_in(settings) if (found := digest(module))}


def digest(module: str) -> str | None:
    """SHA-256 of a module's file; None if it has none. The module has to be imported already."""
    file = getattr(sys.modules.get(module), "__file__", None)
    try:
        return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else None
    except OSError:
        return None


def check_unchanged(recorded: Mapping[str, str], where: str) -> None:
    """Raise a `UsageError` if the code a run was made with has changed.

    Args:
        recorded: Digests by module, from the run's config.
        where: The run, for error messages.
    """
    for module, before in recorded.items():
        now = digest(module)
        if now and now != before and not _changes_accepted:
            raise UsageError(
                f"`{module}` has changed since `{where}` was made: its file has the digest {now[:12]} now and had "
                f"{before[:12]} then. To use it anyway, add `--changed-code` (in Python: `changed_code=True`)."
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
