"""Links out of docs/: on the site they lead to copies of the repository's files, or to pages that include them."""

import html
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import TextLexer, get_lexer_for_filename
from pygments.util import ClassNotFound
from sphinx.application import Sphinx

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(#[^)\s]*)?(?=\))")
PAGES = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "README.md": "index.md",
}
LARGEST = 200_000
"""Bytes of a file that is shown; of a larger one only its size is."""


def rewrite(app: Sphinx, text: str, folder: str) -> str:
    """Turn the links of a text in a folder of the repository into links that work on the site."""

    def one(match: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join(folder, match[1]))
        anchor = match[2] or ""
        if target in PAGES:
            target = f"docs/{PAGES[target]}"
        if target.split("/")[0] == "docs":
            return f"/{os.path.relpath(target, 'docs')}{anchor}"
        if not (ROOT / target).exists():
            return match[0]  # the builder says that it leads nowhere
        copied(app).add(target)
        return f"repository:{target}"

    return LINK.sub(one, text)


def copied(app: Sphinx) -> set[str]:
    """The files and folders that pages name."""
    return app.env.__dict__.setdefault("repository_files", set())


def read_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Rewrite the links of a page."""
    if app.env.doc2path(docname, base=False).suffix == ".md":
        source[0] = rewrite(app, source[0], os.path.dirname(f"docs/{docname}"))


def read_included(app: Sphinx, path: Path, docname: str, content: list[str]) -> None:
    """Rewrite the links of a file that a page includes."""
    folder = os.path.dirname(os.path.relpath(os.path.join(app.srcdir, path), ROOT))
    content[0] = rewrite(app, content[0], folder)


def place(name: str) -> str:
    """Where the copy of a file or folder is on the site."""
    return f"repository/{name}"


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Make links to copies relative."""
    for node in doctree.findall(nodes.reference):
        uri = node.get("refuri", "")
        if uri.startswith("repository:"):
            node["refuri"] = app.builder.get_relative_uri(docname, place(uri.removeprefix("repository:")))


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """A page for every file and folder that is named, and for the files in those folders."""
    named = copied(app)
    for folder in [name for name in named if (ROOT / name).is_dir()]:
        named |= {str(path.relative_to(ROOT)) for path in (ROOT / folder).iterdir() if path.is_file()}
    for name in sorted(named):
        path = ROOT / name
        if path.is_dir():
            inside = sorted(other for other in named if os.path.dirname(other) == name)
            links = (f'<li><a href="{path.name}/{os.path.basename(other)}.html">{other}</a></li>' for other in inside)
            body = f"<ul>{''.join(links)}</ul>"
        else:
            body = show(path)
        yield place(name), {"title": name, "body": f"<h1>{html.escape(name)}</h1>\n{body}"}, "page.html"


def show(path: Path) -> str:
    """A file as HTML."""
    if path.stat().st_size > LARGEST:
        return f"<p>{path.stat().st_size:,} bytes, too many to show here.</p>"
    text = path.read_text()
    if path.suffix == ".json":
        text = json.dumps(json.loads(text), indent=1, ensure_ascii=False)
    try:
        lexer = get_lexer_for_filename(path.name)
    except ClassNotFound:
        lexer = TextLexer()
    return f'<div class="highlight-default notranslate">{highlight(text, lexer, HtmlFormatter())}</div>'


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what happens to links."""
    app.connect("source-read", read_source)
    app.connect("include-read", read_included)
    app.connect("doctree-resolved", resolve)
    app.connect("html-collect-pages", pages)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
