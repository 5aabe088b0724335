"""Settings of the documentation's site: `make docs` builds it, offline, into build/site."""

import logging
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_extensions"), str(HERE.parent / "src")]

import xladder

project = "xladder"
version = release = xladder.__version__
author = "the authors of xladder"
project_copyright = author

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "mathml",
    "repository",
    "notebooks",
    "messages",
]
exclude_patterns = ["_*"]
html_theme = "furo"
html_title = f"xladder {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
pygments_style, pygments_dark_style = "friendly", "github-dark"

myst_enable_extensions = ["dollarmath", "html_image", "deflist"]
myst_heading_anchors = 4
myst_url_schemes = {"http": None, "https": None, "repository": None}
html_math_renderer = "mathml"

default_role = "code"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
maximum_signature_line_length = 90
autodoc_preserve_defaults = True
# A section lists its pages in order and then all others (`*`), of which there may be none.
logging.getLogger("sphinx.sphinx.directives.other").addFilter(lambda record: "didn't match any" not in str(record.msg))


def keep_letters(app, what, name, obj, options, lines) -> None:
    """In docstrings, stars and bars outside of `code` are meant: `[E, *frame]`, |e|."""
    for number, line in enumerate(lines):
        pieces = re.split(r"(`[^`]*`)", line)
        lines[number] = "".join(x if x.startswith("`") else re.sub(r"(?<!\\)([*|])", r"\\\1", x) for x in pieces)


def setup(app) -> None:
    """Connect what is above; before napoleon adds markup of its own."""
    app.connect("autodoc-process-docstring", keep_letters, priority=100)
