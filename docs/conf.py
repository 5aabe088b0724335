"""Settings of the documentation's site: `make docs` builds it, offline, into build/site."""

import inspect
import logging
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_extensions"), str(HERE.parent / "src")]

from sphinx.ext.autodoc.mock import _MockObject
from sphinx.util.logging import getLogger

import xladder

LOG = getLogger(__name__)
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
autodoc_mock_imports = ["sorrel", "omegaconf"]  # which need another Python than the site is built with
_MockObject.__signature__ = inspect.signature(lambda *args, **kwargs: None)  # our models copy that of sorrel's
# A section lists its pages in order and then all others (`*`), of which there may be none.
logging.getLogger("sphinx.sphinx.directives.other").addFilter(lambda record: "didn't match any" not in str(record.msg))


def keep_letters(app, what, name, obj, options, lines) -> None:
    """In docstrings, stars and bars outside of `code` are meant: `[E, *frame]`, |e|."""
    for number, line in enumerate(lines):
        pieces = re.split(r"(`[^`]*`)", line)
        lines[number] = "".join(x if x.startswith("`") else re.sub(r"(?<!\\)([*|])", r"\\\1", x) for x in pieces)


def refuse_types(app, what, name, obj, options, lines) -> None:
    """Types stand in signatures; one in a docstring is a sentence with a colon that napoleon has misread."""
    for line in lines:
        if line.startswith((":type:", ":rtype:")):
            found = line.split(":")[2].strip()
            LOG.warning("The docstring of %s reads as the type %r: take the colon out.", name, found)


def shorten_signature(app, what, name, obj, options, signature, returned):
    """Leave out what nobody passes: all of a record that xladder itself makes, and Flax's own fields of a module."""
    if what != "class" or not signature:
        return None
    if "<factory>" in signature or "<function" in signature:
        return "", None
    signature = re.sub(r", parent: .*(?=\)$)", "", signature).replace("~typing.", "")
    return signature.replace("<class 'jax.numpy.float32'>", "float32"), returned


def skip_aliases(app, what, name, obj, skip, options):
    """Fields of a NamedTuple are in its signature; Python's own text on each says nothing."""
    return True if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") else None


def break_names(app, pagename, templatename, context, doctree) -> None:
    """In the tables of presets, long names may break after an underscore; copied text stays as it is."""
    if pagename == "reference/presets":
        cell = re.compile(r"(?<=<td><p>)[^<]+(?=</p></td>)")
        context["body"] = cell.sub(lambda found: found[0].replace("_", "_<wbr>"), context["body"])


def setup(app) -> None:
    """Connect what is above: letters before napoleon adds markup of its own, the others after it."""
    app.connect("html-page-context", break_names)
    app.connect("autodoc-process-docstring", keep_letters, priority=100)
    app.connect("autodoc-process-docstring", refuse_types, priority=900)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-skip-member", skip_aliases)
