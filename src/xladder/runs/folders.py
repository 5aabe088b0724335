"""Where runs are written, and the commands that go on with them."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import time
from pathlib import Path

from xladder import user_code
from xladder.core.packages import program
from xladder.errors import UsageError, printable
from xladder.plans import Plan
from xladder.settings import to_dict

RUNS = Path("runs")  # for runs that are given no folder
WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")  # a name or tag of a run


def new_folder(name: str) -> Path:
    """Make a folder in `runs`, called after the time; numbered if another run has begun in the same second."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in itertools.count(1):
        folder = RUNS / f"{name}-{stamp}{f'-{number}' * (number > 1)}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError as error:
            if not folder.is_dir():  # a file is called `runs`
                raise UsageError(f"`{folder}` cannot be written: {error.strerror}.") from None
        except OSError as error:
            raise UsageError(f"`{folder}` cannot be written: {error.strerror or error}.") from None
        else:
            return folder
    raise AssertionError("unreachable")


def new_file(path: Path) -> Path:
    """Make an empty file of this name; numbered if there is one already."""
    for number in itertools.count(1):
        file = path.with_name(f"{path.stem}{f'-{number}' * (number > 1)}{path.suffix}")
        try:
            file.touch(exist_ok=False)
        except FileExistsError:
            continue
        except OSError as error:
            raise UsageError(f"`{file}` cannot be written: {error.strerror or error}.") from None
        return file
    raise AssertionError("unreachable")


def as_path(value: object, name: str) -> Path:
    """A path that was given to a function from Python, as its argument `name`."""
    if not isinstance(value, str | os.PathLike):
        raise UsageError(f"`{name}` is {value!r}, but it has to be the path of a folder.")
    return Path(value)


def folder_for(name: str | None, out: str | Path | None, existing: bool = False) -> Path | None:
    """The folder of a run with a name of its own, which is `runs/NAME`, else `out`; None to make one up.

    A folder that exists already is refused, unless `existing`.
    """
    if name is None:
        return None if out is None else as_path(out, "out")
    if out is not None:
        raise UsageError("`--name` and `--out` both say where the run is written: give one of them.")
    if not isinstance(name, str) or not WORD.fullmatch(name):
        raise UsageError(
            f"`--name` is {printable(name)}, but a name has up to 100 of the characters a–z, A–Z, 0–9, `.`, `_` and "
            "`-`, and starts with a letter or digit."
        )
    folder = RUNS / name
    if folder.exists() and not existing:
        raise UsageError(f"`{folder}` is there already: choose another `--name`, nothing is overwritten.")
    return folder


def file_name(workload: str) -> str:
    """The name of a workload as part of a file name."""
    return re.sub(r"[^\w.-]+", "-", workload)


def command(name: str, folder: Path, plan: Plan | None = None) -> str:
    """The line that runs a command on a run directory; code of the user's own has to be named or passed again."""
    settings = to_dict(plan.config) if plan else {}
    if user_code.objects_in(settings):  # no command line can name them
        return f"xladder.{ {'eval': 'evaluate'}.get(name, name) }({str(folder)!r}, objects=[…])"
    modules = user_code.modules_in(settings)
    return f"{program()} {name} {typed(folder)}" + "".join(f" --import {module}" for module in modules)


def typed(folder: Path) -> str:
    """Quote a folder for a command line; one that starts with a dash would be taken for an option."""
    return shlex.quote(f"./{folder}" if str(folder).startswith("-") else str(folder))
