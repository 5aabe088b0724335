"""The code blocks of the documentation, and what a comment before a block says of it.

Blocks of one page run in order, in one folder. ```python blocks share a namespace; in ```console blocks the lines that
begin with `$ ` are commands. A comment on the line before a fence says more:

    <!-- test: slow -->           runs in `make test-docs` and `make test-all`, not in `make test`
    <!-- test: short REASON -->   runs as `slow` does, but trains a moment only; what it prints is not compared
    <!-- test: skip REASON -->    is not run; `xladder` commands are parsed and planned all the same
    <!-- test: file NAME -->      is written to a file of this name
    <!-- test: fails N -->        ends with exit code N
    <!-- test: sorrel -->         runs where sorrel is installed (`make test-sorrel`); elsewhere as with `skip`

Every line that is shown after a command, or in a ```text block after a ```python block, must be printed, in this order.
`…` stands for anything, a time of day or a version for any other, and a decimal number with a unit of time, size or
speed, or in a table of the terminal, too, since it is measured. Other decimal numbers, such as returns, differ with
the rounding of processors and versions: they have to be close to what is shown.
"""

import re
import shlex
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from markdown_it import MarkdownIt

from xladder.registry import find_workload

ROOT = Path(__file__).parent.parent
COMMENT = re.compile(r"<!-- test: (slow|short|skip|sorrel|file|fails)(?: (.*?))? -->")
SPEED = r" (?:steps|ticks|iterations|updates)(?:/s| per second)"
MEASURED = re.compile(rf"(?:[-−]?[\d,]*\d(?:\.\d+)+(?:e[+-]\d+)?|\b\d\d:\d\d\b|\b\d[\d,]*(?={SPEED}))")
TIMED = re.compile(rf"\)? *(?:[mµn]?s|min|[KMGT]i?B(?:/s)?|GFLOP/s|h|×|it/s|% of it)(?!\w)|{SPEED}")
"""What follows a number that depends on the machine."""
RUN = ("python", "console")
SHOWN = ("text", "json", "toml", "html", "diff")
"""Languages of blocks that are only shown. Directives of the site (`{toctree}`) are, too."""
STOPS = ("|", "||", "&&", ";", "&", ">", ">>", "<", "2>", "2>&1", "2>/dev/null")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int  # of its first line of code, from 1
    language: str
    text: str
    controls: dict[str, str]  # what the comments before it say

    @property
    def where(self) -> str:
        """Page and line."""
        return f"{self.page}:{self.line}"

    @property
    def is_slow(self) -> bool:
        """Whether `make test` leaves it out."""
        return bool({"slow", "short"} & set(self.controls))

    @property
    def is_run(self) -> bool:
        """Whether it is executed, not only shown, written or checked."""
        missing = {"sorrel"} if find_spec("sorrel") is None else set()
        return self.language in RUN and not ({"skip", "file"} | missing) & set(self.controls)


def pages() -> list[str]:
    """Every page with blocks that a reader may type."""
    found = (ROOT / "docs").rglob("*.md")
    return ["README.md", "CONTRIBUTING.md", "SECURITY.md", *sorted(str(path.relative_to(ROOT)) for path in found)]


def blocks(page: str) -> list[Block]:
    """The blocks of a page; a `ValueError` for one that nobody would run or check."""
    found: list[Block] = []
    controls: dict[str, str] = {}
    for token in MarkdownIt().parse((ROOT / page).read_text()):
        line = token.map[0] + 2 if token.map else 0
        if token.type == "html_block":
            for comment in token.content.split("\n"):
                if match := COMMENT.fullmatch(comment.strip()):
                    controls[match[1]] = match[2] or ""
                elif "test:" in comment:
                    raise ValueError(f"{page}:{line - 1}: {comment.strip()!r} is no comment that the tests know.")
            continue
        if token.type == "code_block":
            raise ValueError(
                f"{page}:{line - 1}: an indented block is not tested: use ```python, ```console or ```text."
            )
        if token.type == "fence":
            found.append(checked(Block(page, line, token.info.strip(), token.content, controls)))
        elif controls:
            raise ValueError(f"{page}:{line - 1}: a test comment has to stand directly before a fence.")
        controls = {}
    return found


def checked(block: Block) -> Block:
    """The same block; a `ValueError` if its language or its comments make no sense."""
    if block.language not in (*RUN, *SHOWN) and not block.language.startswith("{") and "file" not in block.controls:
        raise ValueError(f"{block.where}: ```{block.language} is not tested: use ```python, ```console or ```text.")
    for name in ("short", "skip", "file", "fails"):
        if block.controls.get(name) == "":
            raise ValueError(f"{block.where}: `test: {name}` needs a word after it.")
    if block.language == "console" and "file" not in block.controls and not commands(block):
        raise ValueError(f"{block.where}: no line begins with `$ `.")
    return block


def commands(block: Block) -> list[str]:
    """The commands of a console block, lines that end in a backslash joined with the next."""
    lines = iter(block.text.splitlines())
    found = []
    for line in lines:
        if line.startswith("$ "):
            command = line[2:]
            while command.endswith("\\"):
                command = command[:-1] + next(lines, "").removeprefix("> ").strip()
            found.append(command)
    return found


def shown(block: Block) -> list[str]:
    """The lines of a console block that are output."""
    lines, after = [], False
    for line in block.text.splitlines():
        if not line.startswith("$ ") and not after and line.strip():
            lines.append(line)
        after = line.endswith("\\") and (after or line.startswith("$ "))
    return lines


def missing_line(lines: list[str], printed: str) -> str | None:
    """The first of some lines that was not printed after those before it."""
    rest = iter(printed.splitlines())
    for line in lines:
        parts = (re.sub(r"(?:\\\s)+", r"\\s+", re.escape(part)) for part in MEASURED.split(line.strip()))
        pattern = re.compile(r"(?<!\S)" + f"({MEASURED.pattern})".join(parts).replace("…", ".*") + r"(?!\S)")
        if not any((found := pattern.search(candidate)) and are_close(line, found) for candidate in rest):
            return line
    return None


def are_close(line: str, printed: re.Match[str]) -> bool:
    """Whether the numbers of a line are about those that were printed; those that are timed may be any."""
    for shown, found in zip(MEASURED.finditer(line), printed.groups(), strict=True):
        is_number = ":" not in shown[0] and shown[0].count(".") < 2  # else a time of day, a version or an address
        if not is_number or "e" in shown[0] or "│" in line or TIMED.match(line[shown.end() :]):
            continue
        one, other = (float(number.replace(",", "").replace("−", "-")) for number in (shown[0], found))
        if abs(one - other) > max(0.5 * max(abs(one), abs(other)), 0.05):
            return False
    return True


MOMENT = {
    "epochs": "--epochs 3 --eval-episodes 2",
    "iterations": "--iterations 4 --evaluate-every 4 --eval-samples 64",
    "frames": "--frames 4000 --evaluate-episodes 0 --eval-episodes 2",
    "steps": "--steps 1000 --evaluate-episodes 0 --eval-episodes 2",
}
"""How long a shortened run trains, and how little it evaluates."""
LEFT_OUT = (*(f"--{unit}" for unit in MOMENT), "--evaluate-episodes", "--eval-episodes", "--seeds", "--device")
"""Flags that a shortened run goes without."""
COMPARED = {unit: flags.split(" --e")[0] for unit, flags in MOMENT.items()}
"""The same for `compare`, which does not evaluate."""


def shortened(command: str) -> str:
    """A line of shell in which `xladder train` and `xladder compare` take a moment only."""
    words = shlex.split(command, comments=True)
    if words[:2] not in (["xladder", "train"], ["xladder", "compare"]):
        return command
    kept = [w for before, w in zip(["", *words], words, strict=False) if not {before, w} & set(LEFT_OUT)]
    moment = MOMENT if words[1] == "train" else COMPARED
    return f"{shlex.join(kept)} {moment[find_workload(words[2]).length]}"


def words_of(command: str) -> list[list[str]]:
    """The words of every `xladder` command in a line of shell."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.commenters, lexer.whitespace_split = "#", True
    found: list[list[str]] = []
    begun, inside = True, False
    for word in lexer:
        if word in STOPS:
            begun, inside = word not in (">", ">>", "<"), False
        elif begun and word == "xladder":
            found.append([])
            begun, inside = False, True
        elif inside:
            found[-1].append(word)
        elif begun and not re.fullmatch(r"\w+=.*", word):
            begun = False
    return found
