"""Rows of a benchmark as processes side by side on one device, and their file of results.

A benchmark that uses this measures one row and prints it as JSON when it is started with `--row NAME`. Several such
processes run at once, on one GPU, too: compiling takes most of a short row. The file is written after every row, and
rows that are in it already are kept and not measured again.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from rounds import command, measured_on, peer_row

from xladder import devices
from xladder.runs.disk import write_json

RESULTS = Path(__file__).parent / "results"
MARKS = ("<!-- measured -->", "<!-- end -->")
Row = dict[str, Any]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Those of every benchmark whose rows run side by side."""
    parser.add_argument("--device", choices=["cpu", "gpu"], default="cpu")
    parser.add_argument("--seconds", type=float, default=3600, help="no row begins after this time")
    parser.add_argument("--row-seconds", type=float, default=3600, help="a row that takes longer is stopped")
    parser.add_argument("--workers", type=int, default=1, help="rows at once, each a process")
    parser.add_argument("--row", help=argparse.SUPPRESS)  # the name of the row that this process measures
    parser.add_argument("--out", type=Path, help="where the JSON goes (a file in benchmarks/results)")


def print_row(row: Row, device: str) -> None:
    """Print a measured row, with what measured it, as a line of JSON."""
    print(json.dumps({"row": row, "facts": measured_on(devices.find(device))}))


def measured_before(out: Path) -> dict[str, Any]:
    """What the file of results holds."""
    return json.loads(out.read_text()) if out.exists() else {"rows": []}


def measure_rows(
    jobs: Mapping[str, tuple[str, ...]],
    out: Path,
    options: argparse.Namespace,
    *,
    key: Callable[[Row], Hashable],
    order: Callable[[Row], Any],
    show: Callable[[Row], str],
    facts: Mapping[str, Any] | None = None,
) -> None:
    """Measure rows, each in a process of its own, and write the file of results after each.

    Args:
        jobs: Name of a row → the words that measure it, without those of `add_options`. Rows begin in this order.
        out: The file. Its rows stay, unless one with the same key is measured now.
        options: Of the command line.
        key: What tells rows of the file apart.
        order: Sorts the rows of the file.
        show: A row as a line.
        facts: Goes into the file besides.
    """
    before = measured_before(out)
    rows: list[Row] = before["rows"]
    begun = [line for line in before.get("command", "").split(" && ") if line and line != command()]
    failed: list[str] = []
    if not jobs:
        print(f"{out} has every row already")
    until = time.perf_counter() + options.seconds
    with ThreadPoolExecutor(options.workers) as pool:
        running = {pool.submit(_measured, name, jobs[name], options, until): name for name in jobs}
        for future in as_completed(running):
            name, found = running[future], future.result()
            if "error" in found:
                failed.append(f"{name}: {found['error']}")
                print(failed[-1], flush=True)
            else:
                row = found["row"] | {"process_seconds": found["process_seconds"]}
                rows = [one for one in rows if key(one) != key(row)] + [row]
                print(show(row), flush=True)
                if before.get("device", found["facts"]["device"]) != found["facts"]["device"]:
                    sys.exit(f"{out} has rows from {before['device']}, and these are from {found['facts']['device']}")
                before |= found["facts"]
            about = before | {"command": " && ".join([*begun, command()]), **(facts or {})}
            write_json(out, about | {"rows": sorted(rows, key=order), "left_out": failed})


def _measured(name: str, words: Sequence[str], options: argparse.Namespace, until: float) -> Row:
    """A row, or why there is none, as `error`."""
    if time.perf_counter() > until:
        return {"error": "no time was left"}
    begin = [sys.executable, sys.argv[0], *words, "--device", options.device, "--row", name]
    # Each process would reserve three quarters of a GPU's memory.
    return peer_row(name, begin, options.row_seconds, XLA_PYTHON_CLIENT_PREALLOCATE="false")


def best_rows(pattern: str, key: Callable[[Row], Hashable], length: str = "steps") -> tuple[list[Row], list[str]]:
    """The rows of all files of a kind, of two alike the longer one, and what measured them."""
    found: dict[Hashable, Row] = {}
    about = []
    for file in sorted(RESULTS.glob(pattern)):
        content = json.loads(file.read_text())
        about += [f"`{line}`, {content['device']}" for line in content["command"].split(" && ")]
        for row in content["rows"]:
            found[key(row)] = max(row, found.get(key(row), row), key=lambda r: r[length])
    return list(found.values()), about


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table in Markdown; numbers have a true minus sign."""
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    return lines + [re.sub(r"-(?=\d)", "−", f"| {' | '.join(row)} |") for row in rows]


def write_between(page: Path, marks: tuple[str, str], text: str) -> None:
    """Put text between two marks of a page."""
    before, rest = page.read_text().split(marks[0])
    page.write_text(f"{before}{marks[0]}\n{text}{marks[1]}{rest.split(marks[1])[1]}")
