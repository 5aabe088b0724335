"""The pages on sorrel, block by block, with the real package."""

import shutil

import pytest

from tests.docs_blocks import ROOT, blocks
from tests.docs_run import run_in

MOVED = "tests/sorrel/moved_hunt.py"


@pytest.mark.slow
@pytest.mark.parametrize("page", ["docs/how-to/sorrel.md", "docs/how-to/sorrel-wrap.md"])
def test_the_blocks_of_a_page_run(page, tmp_path):
    assert any("sorrel" in block.controls and block.is_run for block in blocks(page))
    (tmp_path / MOVED).parent.mkdir(parents=True)
    shutil.copy(ROOT / MOVED, tmp_path / MOVED)
    run_in(tmp_path, page)
