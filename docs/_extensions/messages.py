"""The sentences that a user can meet, read from the code: they stand where a page says `<!-- messages -->`."""

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

SOURCE = Path(__file__).parents[2] / "src" / "xladder"
MARK = "<!-- messages -->"
CODES = {
    "UsageError": 2,
    "UserCodeFailed": 1,
    "Mismatch": 1,
    "FaultFound": 1,
    "DamagedRun": 3,
    "Diverged": 4,
    "ResourceError": 5,
    "PeerLost": 75,
}
TOPICS = {
    "cli": "Commands and their flags",
    "families": "Settings of learners and workloads",
    "worlds": "Worlds",
    "apis": "Worlds in other APIs",
    "runs": "Run directories, checkpoints and files",
    "sweeps": "Sweeps",
    "report": "Reports",
    "rungs": "Rungs and devices",
    "distributed": "Hosts and actors",
    "sorrel": "sorrel",
    "parity": "Parity",
}
OTHERS = "Plans, settings and code of your own"
COMMON = re.compile("an|and|are|as|be|but|for|from|has|have|in|is|it|its|no|not|of|or|so|that|the|there|this|to|which")


def sentence(node: ast.AST) -> str:
    """The text of an expression, with `…` for what is filled in."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(sentence(part) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return sentence(node.left) + sentence(node.right)
    return "…"


def found() -> dict[str, set[tuple[str, int]]]:
    """By topic: sentences and the exit codes that come with them."""
    topics: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for path in sorted(SOURCE.rglob("*.py")):
        topic = TOPICS.get(path.relative_to(SOURCE).parts[0], OTHERS)
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            if node.func.id in CODES and node.args:
                text, code = sentence(node.args[0]), CODES[node.func.id]
            elif node.func.id == "need" and len(node.args) == 4:
                text, code = f"`--{sentence(node.args[1])}` is …, but {sentence(node.args[3])}.", 2
            else:
                continue
            text = re.sub(r"…[\s….]*…", "…", " ".join(text.split()))
            words = re.findall(r"[A-Za-z]{2,}", text)
            if len(words) >= 3 and not all(map(COMMON.fullmatch, words)):  # others cannot be searched for
                topics[topic].add((text, code))
    return topics


def tables() -> str:
    """A table for each topic."""
    parts = []
    topics = found()
    for topic in [OTHERS, *TOPICS.values()]:
        if topics[topic]:
            rows = sorted(topics[topic], key=lambda row: row[0].lstrip("`-… ").lower())
            cells = (f"| {escape(text)} | {code} |" for text, code in rows)
            parts.append("\n".join([f"## {topic}", "", "| message | exit code |", "|---|---|", *cells]))
    return "\n\n".join(parts)


def escape(text: str) -> str:
    """A text for a cell of a table: what looks like markup outside of `code` stays as it is."""
    pieces = re.split(r"(`[^`]*`)", text.replace("|", "\\|"))
    return "".join(piece if piece.startswith("`") else re.sub(r"([*_<\[\]$])", r"\\\1", piece) for piece in pieces)


def read_source(app: Sphinx, docname: str, source: list[str]) -> None:
    """Put the tables into the page."""
    source[0] = source[0].replace(MARK, tables()) if MARK in source[0] else source[0]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the page's content."""
    app.connect("source-read", read_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
