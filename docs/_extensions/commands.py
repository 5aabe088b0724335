"""The reference page of all commands, from their own help: `python docs/_extensions/commands.py` writes it."""

import contextlib
import io
import os
import re
from pathlib import Path

from xladder.cli.main import COMMANDS, main, overview

PAGE = Path(__file__).parents[1] / "reference" / "help.md"
WORKLOADS = {
    "train": "cartpole",
    "sweep": "cartpole",
    "compare": "cartpole",
    "inspect": "cartpole",
    "parity": "cartpole",
}
"""The workload whose settings are shown; `xladder train NAME --help` shows those of another."""
COLUMNS = "100"
SETTINGS = re.compile(r"^presets:$.*?(?=^this run:$)", re.MULTILINE | re.DOTALL)
"""Flags that all commands for a workload share."""


def shown(*words: str) -> str:
    """What a command prints."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        main([*words])
    return "\n".join(line.rstrip() for line in text.getvalue().strip("\n").split("\n"))


def page() -> str:
    """The page."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = COLUMNS
    try:
        parts = [
            "# Every command",
            "What `--help` prints. `train` is shown with CartPole's settings and its rare flags (`--help-all`); other\n"
            "workloads have other settings, which `xladder train NAME --help` shows. `python\n"
            "docs/_extensions/commands.py` writes this page.",
            f"```text\n{overview()}\n```",
        ]
        for name, summary in COMMANDS.items():
            words = [name, *([WORKLOADS[name]] if name in WORKLOADS else [])]
            text = shown(*words, "--help-all" if name == "train" else "--help")
            if name in WORKLOADS and name != "train":
                text = SETTINGS.sub("presets and settings: as for `train`\n\n", text)
            parts.append(f"## {name}\n\n{summary[0].upper()}{summary[1:]}.\n\n```text\n{text}\n```")
        return "\n\n".join(parts) + "\n"
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before


if __name__ == "__main__":
    PAGE.write_text(page())
