"""Which packages are installed, and how missing ones are."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlparse

from xladder.errors import UsageError

TORCH_FOR_CPU = "https://download.pytorch.org/whl/cpu"
CONSTRAINTS = "constraints.txt"
"""In a clone: the versions that the tests passed with."""


def is_installed(package: str) -> bool:
    """Whether a package can be imported, without importing it."""
    try:
        return find_spec(package) is not None
    except ValueError:  # raised for a name that is blocked in `sys.modules`
        return False


def missing_extra(package: str, extra: str) -> UsageError:
    """The error for a missing package that an optional extra installs."""
    smaller = ""
    if extra == "torch" and sys.platform == "linux":  # PyTorch from PyPI brings CUDA along
        line = pip_line(f"torch --index-url {TORCH_FOR_CPU}")
        smaller = f" (about 3 GB with CUDA; for the CPU alone: {line})"
    return UsageError(f"`{package}` is not installed. Install it with: {install_line(extra)}{smaller}")


def install_line(extra: str) -> str:
    """The command that installs an extra into this installation: its own interpreter, and its folder if it has one."""
    folder, editable = _source()
    if folder is None:
        return pip_line(f"'xladder[{extra}]'")
    near = _near(folder)
    near = near if near == "." or os.path.isabs(near) else f"./{near}"  # or it would be the name of a package
    tested = os.path.join(folder, CONSTRAINTS)
    constraints = f"-c {shlex.quote(_near(tested))} " if os.path.isfile(tested) else ""
    return pip_line(f"{constraints}{'-e ' if editable else ''}'{near}[{extra}]'")


def pip_line(what: str) -> str:
    """The command that installs something into this installation; `what` is quoted for a shell where it has to be."""
    own = shutil.which("pip") == str(Path(sys.executable).with_name("pip"))
    pip = "pip" if own else f"{shlex.quote(_near(sys.executable))} -m pip"
    return f"{pip} install {what}"


def program() -> str:
    """How `xladder` is called from a shell: by its name if that is this installation, else by a path that works."""
    own, found = Path(sys.executable).with_name("xladder"), shutil.which("xladder")
    if found and (not own.is_file() or os.path.realpath(found) == os.path.realpath(own)):
        return "xladder"  # without a script beside the interpreter it was installed elsewhere, as by `pip --user`
    return shlex.quote(_near(str(own))) if own.is_file() else f"{shlex.quote(_near(sys.executable))} -m xladder"


def _source() -> tuple[str | None, bool]:
    """The folder that xladder was installed from, if it was one, and whether changes there take effect at once."""
    try:
        text = metadata.distribution("xladder").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        return None, False
    told = json.loads(text) if text else {}
    address = urlparse(told.get("url", ""))
    if address.scheme != "file" or not os.path.isdir(unquote(address.path)):
        return None, False
    return unquote(address.path), bool(told.get("dir_info", {}).get("editable"))


def _near(path: str) -> str:
    """A path as it is written from the working directory, if it is below it."""
    try:
        return str(Path(path).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return path
