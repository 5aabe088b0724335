"""What benchmarks share: measuring again and again, and timing a call."""

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from rich.console import Console


def repeated(rows: list[partial], rounds: int, key: str, console: Console, facts: Callable[[dict], str]) -> list[dict]:
    """All rows again and again, and of each the round with the median time: a busy moment hits one round only."""
    found: list[list[dict]] = [[] for _ in rows]
    for _ in range(rounds):
        for row, results in zip(rows, found, strict=True):
            results.append(row())
            last = results[-1]
            said = last.get("error") or f"{last[key] * 1000:.3f} ms {key.removeprefix('seconds_').replace('_', ' ')}"
            console.print(f"{last['name']}{facts(last)}: {said}", highlight=False)
    chosen = []
    for results in found:
        ordered = sorted(results, key=lambda r: r.get(key, 0.0))
        chosen.append(ordered[len(ordered) // 2] | {"all_rounds": [r.get(key) for r in results]})
    return chosen


def peer_row(name: str, command: list[str]) -> dict:
    """The line of JSON that a peer's script prints, or why there is none."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {"name": name, "error": (done.stderr.strip().splitlines() or ["it said nothing"])[-1]}
    return {"name": name, **json.loads(done.stdout.strip().splitlines()[-1])}


def command() -> str:
    """What was typed, with the names of files in place of where they lie on this machine."""
    return shlex.join(["python", *(Path(word).name if word.startswith("/") else word for word in sys.argv)])


def times(call: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of each call, after one that warms up."""
    call()
    found = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        found.append(time.perf_counter() - begun)
    return found
