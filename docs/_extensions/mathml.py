"""Equations as MathML, which browsers draw themselves: no script, no fonts, nothing to download."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

LOG = logging.getLogger(__name__)
FRACTION = re.compile(r"(\\[td]?frac)\s*(\w)\s*(\w)")
"""A fraction without braces, such as `\\tfrac12`: docutils would read the number twelve."""
PRIME = "<mo>'</mo>", '<mo lspace="0" rspace="0">′</mo>'
THIN = '<mspace width="0.17em"></mspace>'
NAME = re.compile(r"(</m(?:[in]|su[bp])>)(\s*<mi>\w\w+</mi>\s*<mo>&ApplyFunction;)")
"""The name of a function after a factor: TeX leaves a thin space between them, and browsers none."""
ARGUMENT = re.compile(r"(<mo>&ApplyFunction;</mo>)(?!\s*(?:<mrow>\s*)?<mo[^>]*>\()")
"""The place between a function's name and an argument without brackets: the same."""


def mathml(text: str, block: bool) -> str:
    """MathML for some LaTeX; a `MathError` if it is not understood."""
    found = str(tex2mathml(FRACTION.sub(r"\1{\2}{\3}", text), as_block=block)).replace(*PRIME)
    return ARGUMENT.sub(rf"\1{THIN}", NAME.sub(rf"\1{THIN}\2", found))


def convert(node: nodes.Element, block: bool) -> str:
    """The MathML of a node; a warning if its LaTeX is not understood."""
    try:
        return mathml(node.astext(), block)
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
