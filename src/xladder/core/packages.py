"""Which packages there are."""

from importlib.util import find_spec


def is_installed(package: str) -> bool:
    """Whether a package could be imported, without doing so."""
    try:
        return find_spec(package) is not None
    except ValueError:  # what Python says of a name that is blocked in `sys.modules`
        return False
