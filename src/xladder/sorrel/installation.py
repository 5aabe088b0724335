"""Whether sorrel is installed, in a version whose interface is known."""

from __future__ import annotations

from importlib import metadata, util

from xladder.core.packages import pip_line
from xladder.errors import UsageError

VERSION = "1.6"


def require_sorrel() -> None:
    """Raise a `UsageError` unless sorrel 1.6 can be imported."""
    advice = "install it, on Python 3.12 or newer, with: " + pip_line(f"'sorrel=={VERSION}.*'")
    if util.find_spec("sorrel") is None:
        raise UsageError(f"`sorrel` is not installed: {advice}")
    try:
        found = metadata.version("sorrel")
    except metadata.PackageNotFoundError:  # a copy of its source without metadata
        return
    if found.split(".")[:2] != VERSION.split("."):
        raise UsageError(f"sorrel {found} is installed, but `xladder.sorrel` works with sorrel {VERSION}: {advice}")
