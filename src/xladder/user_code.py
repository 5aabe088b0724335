"""The user's own code: worlds, networks and rewards, named `module:Name` or passed as objects.

Nothing is imported just because a file names it. A module may be imported only if the user named it: on the command
line (as `jax/my_worlds:Maze`, `--learner.torso my_nets:Torso` or `--import my_worlds`), in a call of the library, or
by installing a package with an entry point. A run directory only records the names; whoever opens it has to name the
module again. The working directory is on the path while such a module is imported.

Objects passed from Python are registered here, so that the config of a run remains plain data. One that every process
finds again has the name it is found by: a class, a function, an object at the top level of its class's module, or one
that its class makes without arguments. Any other has a digest of its contents behind the name of its class, such as
`my_worlds:Maze@3fa9c2d1`. Such a name is the same in every process too, but stands only for an object that was passed
to it.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import re
import stat
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

from xladder.errors import UsageError, brief, located
from xladder.fingerprints import DIGITS, MAIN, fingerprint, has_name, is_same

TABLES = (".csv", ".npz")  # files of data that settings may name
MOST_BYTES = 2**30  # of a file whose digest is taken
NAME = re.compile(
    r"(?:(?P<source>[A-Za-z]+)/)?(?P<module>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<attribute>[A-Za-z_][\w.-]*)"
    rf"(?:@(?P<digest>[0-9a-f]{{{DIGITS}}}))?"
)
DIGEST = re.compile("[0-9a-f]{64}")
GROUPS = {"world": "xladder.worlds", "torso": "xladder.torsos", "workload": "xladder.workloads"}

_named: dict[str, None] = {}
"""Modules that the user has named, in order."""
_given: dict[str, Any] = {}
"""Objects passed from Python, by name."""
_changes_accepted = False


def allow(module: str) -> None:
    """Allow names in a module to be resolved; it is imported on first use."""
    _named[module] = None


def allow_named(names: Any) -> None:
    """Allow the modules of all names `module:Name` in plain data that the user has typed or passed."""
    for module in modules_in(names):
        allow(module)


def allowed() -> list[str]:
    """The allowed modules; child processes have to be allowed the same."""
    return list(_named)


def as_flags() -> list[str]:
    """The flags that allow another command the same."""
    changed = ["--changed-code"] if _changes_accepted else []
    return [*(f"--import={module}" for module in _named), *changed]


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
        raise UsageError(f"`{module}` cannot be imported: {located(error)}.") from error


def require(module: str, shown: str) -> Any:
    """Import a module if the user has named it; otherwise raise a `UsageError` that says how to."""
    if module not in _named:
        raise _not_named([shown], [module])
    return import_module(module)


def check_named(settings: Any) -> None:
    """Raise a `UsageError` that lists all modules which plain-data settings need and the user has not named."""
    missing: dict[str, str] = {}
    for text in _texts(settings):
        found = NAME.fullmatch(text)
        if found and not (found["digest"] or found["module"] in _named or text.rpartition("/")[2] in _given):
            missing[text] = found["module"]
    if missing:
        raise _not_named(list(missing), list(dict.fromkeys(missing.values())))


def _not_named(shown: list[str], modules: list[str]) -> UsageError:
    return UsageError(
        f"{' and '.join(f'`{name}`' for name in shown)} {'is' if len(shown) == 1 else 'are'} user code, and xladder "
        "does not import code just because a file names it. If you trust it, add "
        f"`{' '.join(f'--import {module}' for module in modules)}` (in Python: `imports={modules}`)."
    )


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
    if found["digest"]:
        raise _not_found(found, what, shown)
    thing = require(module, shown)
    for part in found["attribute"].split("."):
        if not hasattr(thing, part):
            own = [(k, v) for k, v in vars(thing).items() if getattr(v, "__module__", None) == module]
            names = sorted(k for k, v in own if inspect.isclass(v) or inspect.isfunction(v))
            hint = f" It has {', '.join(f'`{k}`' for k in names)}." if names else ""
            raise UsageError(f"`{module}` has no `{found['attribute']}`, so there is no {what} `{shown}`.{hint}")
        thing = getattr(thing, part)
    return thing


def find_world(name: str, shown: str) -> Any:
    """Find a user's world by `module:Name` or by the name of an installed entry point."""
    if ":" not in name and name in entry_points("world"):
        return load_entry_point("world", name)
    return find(name, "world", shown)


def instantiate(thing: Any, shown: str, given: Mapping[str, Any] | None = None) -> Any:
    """Return an instance as it is; call a class or function to make one.

    Args:
        thing: An instance, a class or a function.
        shown: Its name in messages.
        given: Arguments by name, from `--world.kwargs`; None where nothing can give it any.
    """
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        if given:
            raise made_already(shown)
        return thing
    check_named(given)  # a world may import what an argument names
    try:
        return thing(**(given or {}))
    except (Exception, SystemExit) as error:
        hint = " It is called without arguments." if given is None else " Its arguments are `--world.kwargs`."
        hint = hint if isinstance(error, TypeError) else ""
        raise UsageError(f"`{shown}` cannot be created: {located(error)}.{hint}") from error


def made_already(shown: str) -> UsageError:
    """The error for arguments that are given to an instance."""
    return UsageError(f"`{shown}` is made already: `--world.kwargs` are for a class, a function or an id.")


def shown(thing: Any) -> str:
    """The name of an object in a message."""
    return str(getattr(thing, "__name__", type(thing).__name__))


def give(thing: Any, changes: bool = False) -> str:
    """Register an object. Returns its name, `module:Name`, or `module:Name@digest` if only its contents identify it.

    An object that `changes` by being used, such as an environment with its generator, keeps its first name.
    """
    known = next((name for name, other in _given.items() if other is thing), "") if changes else ""
    if known:
        return known
    name, found = _name_elsewhere(thing)
    if name and is_same(_given.setdefault(name, found), found):
        return name
    digest = None if name else fingerprint(thing)  # otherwise its module was loaded again
    name = name or _name_of_kind(thing)
    if digest:
        known = _given.setdefault(f"{name}@{digest}", thing)
        if known is thing or (type(known) is type(thing) and fingerprint(known) == digest):
            return f"{name}@{digest}"
    for other, known in _given.items():
        if known is thing and other.startswith(f"{name}@"):
            return other
    name = f"{name}@{uuid.uuid4().hex[:DIGITS]}"
    _given[name] = thing
    return name


def _name_elsewhere(thing: Any) -> tuple[str, Any]:
    """The name under which every process finds an object or one like it, and what has that name; or an empty string."""
    if has_name(thing):
        return f"{thing.__module__}:{thing.__qualname__}", thing
    kind = type(thing)
    home = {} if kind.__module__ == MAIN else getattr(sys.modules.get(kind.__module__), "__dict__", {})
    for name, value in list(home.items()):
        if value is thing and not name.startswith("_"):
            return f"{kind.__module__}:{name}", thing
    if hasattr(thing, "__qualname__") or not has_name(kind):
        return "", None
    try:
        digest = fingerprint(kind())
    except (Exception, SystemExit):  # it needs arguments
        digest = None
    if digest is None or digest != fingerprint(thing):
        return "", None
    return f"{kind.__module__}:{kind.__qualname__}", kind


def _name_of_kind(thing: Any) -> str:
    """The name of an object's class, or the name that a function would have at the top level of its module."""
    while isinstance(thing, partial):
        thing = thing.func
    owner = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{owner.__module__}:{owner.__qualname__.replace('<locals>.', '').replace('<lambda>', 'function')}"


def _not_found(name: re.Match[str], what: str, shown: str) -> UsageError:
    """The error for the name of an object that was passed to another process."""
    kind = name["attribute"].rpartition(".")[2]
    module = "my_module" if name["module"] == MAIN else name["module"]
    source = f"{shown.partition('/')[0]}/" if "/" in shown else ""
    example = f", such as `my_{what} = {kind}(…)`," if kind != "function" else ""
    return UsageError(
        f"The {what} `{shown}` is "
        + ("a function without a name" if kind == "function" else f"a `{kind}` with arguments of its own")
        + f" that was passed from Python, and no other process finds it. Give it a name at the top level of `{module}`"
        f"{example} and train with `{source}{module}:my_{what}`. To open this run, pass the object again in Python: "
        "`xladder.load(path, objects=[…])`."
    )


def as_names(settings: Any) -> Any:
    """Replace classes, functions and other callables in settings by names.

    The objects are registered under these names, and their modules are allowed to be imported.
    """
    if isinstance(settings, Mapping):
        return {key: as_names(value) for key, value in settings.items()}
    if not callable(settings):
        return settings
    return give(settings)


def for_children(settings: Any) -> list[str]:
    """Modules that a child process has to be allowed to import for these settings.

    Args:
        settings: Settings as plain data.

    Returns:
        Names of modules; a `UsageError` if an object was passed to this process that no other can import.
    """
    for name in objects_in(settings):
        raise UsageError(
            f"`{name}` exists only in this process, and this starts others: give it a name at the top level of a "
            "module, and pass that as `module:name`."
        )
    return list(dict.fromkeys([*allowed(), *modules_in(settings)]))


def entry_points(kind: str) -> dict[str, metadata.EntryPoint]:
    """The installed worlds, torsos or workloads by name; where packages share one, the first that was found."""
    found: dict[str, metadata.EntryPoint] = {}
    for point in metadata.entry_points(group=GROUPS[kind]):
        found.setdefault(point.name, point)
    return found


def load_entry_point(kind: str, name: str) -> Any:
    """Load the object of an installed entry point; a `UsageError` if packages use its name for different objects."""
    values = list(dict.fromkeys(point.value for point in metadata.entry_points(group=GROUPS[kind], name=name)))
    if len(values) > 1:
        raise UsageError(
            f"Installed packages call different {kind}s `{name}`: {' and '.join(values)}. "
            "Name the one you mean as `module:Name`."
        )
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


def objects_in(settings: Any) -> list[str]:
    """The names in plain-data settings that stand for objects which only this process has."""
    return [text for text in _texts(settings) if (name := NAME.fullmatch(text)) and name["digest"]]


def digests(settings: Any) -> dict[str, str]:
    """SHA-256 of the files of the modules named in settings, and of the tables that they name."""
    return {name: found for name in _files_in(settings) if (found := digest(name))}


def _files_in(settings: Any) -> list[str]:
    """The modules and tables that are named in settings."""
    return [*modules_in(settings), *(text for text in _texts(settings) if is_table(text))]


def is_table(name: str) -> bool:
    """Whether a name is that of a file of data which settings may name."""
    return name.lower().endswith(TABLES)


def digest(module: str) -> str | None:
    """SHA-256 of a module's file, or of a table; None if there is none. The module has to be imported already."""
    file = module if is_table(module) else getattr(sys.modules.get(module), "__file__", None)
    if not file:
        return None
    try:
        # What a run's config names may be anything: a pipe would block, a link lead anywhere.
        opened = os.open(Path(file).expanduser(), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(opened, "rb") as stream:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
            return None
        return hashlib.file_digest(stream, "sha256").hexdigest()


def check_unchanged(recorded: Mapping[str, str], where: str, settings: Any) -> None:
    """Raise a `UsageError` if the code or the tables that a run was made with have changed.

    Args:
        recorded: Digests by name, from the run's config.
        where: The run, for error messages, which may be shown to others: they say nothing of what is in a table.
        settings: Its settings as plain data; only what they name is looked at.
    """
    for name in dict.fromkeys(_files_in(settings)):
        now = digest(name) if name in recorded else None
        if now and now != recorded[name] and not _changes_accepted:
            before = f"{recorded[name][:DIGITS]}…" if DIGEST.fullmatch(recorded[name]) else "not known"
            which = "" if is_table(name) else f" (SHA-256 then {before}, now {now[:DIGITS]}…)"
            raise UsageError(
                f"`{name}` has changed since `{where}` was made{which}. To use it anyway, add `--changed-code` "
                "(in Python: `changed_code=True`)."
            )


def _texts(settings: Any) -> Iterator[str]:
    """All strings in plain data, which may be nested to any depth."""
    left = [settings]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            left += reversed(list(value.values()))
        elif isinstance(value, list | tuple):
            left += reversed(value)
