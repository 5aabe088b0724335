"""Equations as MathML, which browsers draw themselves: no script, no fonts, nothing to download."""

from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

LOG = logging.getLogger(__name__)


def convert(node: nodes.Element, block: bool) -> str:
    """The MathML of a node; a warning if its LaTeX is not understood."""
    try:
        return str(tex2mathml(node.astext(), as_block=block))
    except MathError as error:
        LOG.warning("The equation %r is not understood: %s", node.astext(), error, location=node)
        return f"<code>{node.astext()}</code>"


def visit_inline(writer: Any, node: nodes.math) -> None:
    """Write an equation in a line of text."""
    writer.body.append(f'<span class="math">{convert(node, False)}</span>')
    raise nodes.SkipNode


def visit_block(writer: Any, node: nodes.math_block) -> None:
    """Write an equation of its own."""
    writer.body.append(f'<div class="math">{convert(node, True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
