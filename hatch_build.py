"""The package's long description: README.md, without what leads nowhere outside of the repository."""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

NOTE = "*This is the README of the repository. The pages, scripts and pictures it mentions are there.*"
COMMENT = re.compile(r"<!--.*?-->\n?", re.DOTALL)
PICTURE = re.compile(r"!\[[^\]]*\]\((?!http)[^)]*\)\n*|<img src=\"(?!http)[^>]*>\n*")
LINK = re.compile(r"\[([^\]]*)\]\((?!http)[^)]*\)")


class LongDescription(MetadataHookInterface):
    """Makes the field `readme` of the project."""

    def update(self, metadata: dict) -> None:
        """Set the field."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": described(text)}


def described(text: str) -> str:
    """Markdown with the words of links to files in place of the links, and without pictures and comments."""
    title, rest = LINK.sub(r"\1", PICTURE.sub("", COMMENT.sub("", text))).split("\n", 1)
    return f"{title}\n\n{NOTE}\n{rest}"
