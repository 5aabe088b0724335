"""Walks from a clone to the end of a tutorial, in an environment that is made as the install page says."""

import pytest

from tests.walks import from_pytorch, own_gridworld, walk


@pytest.mark.slow
@pytest.mark.parametrize("module", [own_gridworld, from_pytorch], ids=lambda module: module.__name__.split(".")[-1])
def test_a_reader_gets_there_from_a_clone(module):
    walk(module)
