"""Notebooks as pages: Markdown cells as they are, code cells with the outputs that are stored in the file."""

import json
from typing import Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx


def fence(language: str, text: str) -> str:
    """A fenced block."""
    return f"````{language}\n{text.rstrip()}\n````"


def output(data: dict[str, Any]) -> str:
    """One output of a cell, as Markdown."""
    shown = data.get("data", {})
    if "image/png" in shown:
        return f'<img alt="what the cell draws" src="data:image/png;base64,{"".join(shown["image/png"]).strip()}">'
    text = "".join(data.get("text", shown.get("text/plain", "")))
    return fence("text", text) if text.strip() else ""


def as_markdown(text: str) -> str:
    """A notebook as one page of Markdown."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "code":
            parts += [fence("python", source), *map(output, cell.get("outputs", []))]
        elif cell["cell_type"] == "markdown":
            parts.append(source)
    return "\n\n".join(part for part in parts if part)


class NotebookParser(MystParser):
    """Reads .ipynb files."""

    supported = ("notebook",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Parse the notebook as Markdown."""
        super().parse(as_markdown(inputstring), document)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the kind of file."""
    app.add_source_suffix(".ipynb", "notebook")
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
