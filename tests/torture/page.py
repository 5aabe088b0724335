"""`python -m tests.torture.page` puts the table of benchmarks/results/torture.json into docs/how-to/runs.md."""

import json
from pathlib import Path

from tests.torture.table import to_markdown

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "torture.json"
PAGE = ROOT / "docs" / "how-to" / "runs.md"
BEGIN, END = "<!-- torture -->\n", "<!-- end of torture -->\n"


def expected(results: Path = RESULTS) -> str:
    """What the page has to show: the table of the file, nothing if there is none."""
    return to_markdown(json.loads(results.read_text())) if results.exists() else ""


def shown(text: str) -> str:
    """What a page shows."""
    return text.partition(BEGIN)[2].partition(END)[0]


def replaced(text: str, table: str) -> str:
    """The text of a page with another table."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text(), expected()))
