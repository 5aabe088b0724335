"""The site builds without warnings, and no page is wider than the window it is read in."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests import chromium

ROOT = Path(__file__).parents[1]
WIDTHS = (400, 1400)


@pytest.mark.slow
@pytest.mark.skipif(not chromium.find(), reason="needs Chromium")
def test_no_page_of_the_site_is_wider_than_the_window(tmp_path):
    words = [
        sys.executable,
        "-m",
        "sphinx",
        "-b",
        "html",
        "-E",
        "-W",
        "--keep-going",
        "-q",
        "docs",
        str(tmp_path / "site"),
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    wide = []
    with chromium.Browser() as browser:
        for page in sorted((tmp_path / "site").rglob("*.html")):
            browser.open(page, ready="document.readyState == 'complete'")
            for width in WIDTHS:
                browser.resize(width, 900)
                needed = browser.run("document.documentElement.scrollWidth")
                if needed > width:
                    wide.append(f"{page.name}: {needed} of {width} pixels")
    assert not wide
