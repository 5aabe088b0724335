"""The README is short, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)|src=\"([^\"]+)\"")


def anchors(text: str) -> set[str]:
    """Of the headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_the_readme_can_be_read_in_ten_minutes():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", ["README.md", *PAGES])
def test_links_lead_somewhere(page):
    here = ROOT / page
    for file, anchor, picture in LINK.findall(here.read_text()):
        if (file or picture).startswith("http"):
            continue
        there = here.parent / (file or picture) if file or picture else here
        assert there.exists(), f"{page} names {file or picture}"
        assert not anchor or anchor in anchors(there.read_text()), f"{page} names {file}{anchor}"


def listed(page: Path) -> set[Path]:
    """The page itself and those that its toctrees lead to."""
    lines = [line for tree in TOCTREE.findall(page.read_text()) for line in tree.splitlines()]
    entries = [line for line in lines if line.strip() and not line.startswith(":")]
    below = {file for entry in entries for file in page.parent.glob(f"{entry}.md") if file != page}
    return {page}.union(*(listed(file) for file in below))


def test_every_page_of_the_docs_is_in_the_contents():
    assert {ROOT / page for page in PAGES} == listed(ROOT / "docs/index.md")
