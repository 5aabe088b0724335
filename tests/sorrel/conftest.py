"""Tests against the real sorrel, on Python 3.12 or newer (`make test-sorrel`); without it they are skipped."""

from importlib.util import find_spec
from pathlib import Path

import pytest


def pytest_collection_modifyitems(items):
    if find_spec("sorrel") is None:
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(pytest.mark.skip(reason="sorrel is not installed here: make test-sorrel"))
