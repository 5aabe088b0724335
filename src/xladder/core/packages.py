"""Which packages are installed."""

from importlib.util import find_spec


def is_installed(package: str) -> bool:
    """Whether a package can be imported, without importing it."""
    try:
        return find_spec(package) is not None
    except ValueError:  # raised for a name that is blocked in `sys.modules`
        return False
