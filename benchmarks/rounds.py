"""Shared by the benchmarks: repeated measurements, timing of a call, and what goes with every result."""

from __future__ import annotations

import gzip
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xladder.runs.environment import environment

if TYPE_CHECKING:  # interpreters of peers may lack it
    from rich.console import Console


def repeated(rows: list[partial], rounds: int, key: str, console: Console, facts: Callable[[dict], str]) -> list[dict]:
    """Measure all rows in several rounds; keep each row's round with the median time: a busy moment hits one round."""
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


def peer_row(name: str, command: list[str], limit: float | None = None, **variables: str) -> dict:
    """The line of JSON that another library's script prints, with the seconds of its process, or its error.

    Args:
        name: Of the row.
        command: Starts the script.
        limit: Seconds after which it is stopped.
        **variables: Of its environment, besides ours.
    """
    begun = time.perf_counter()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, env=os.environ | variables)
    except subprocess.TimeoutExpired:
        return {"name": name, "error": f"stopped after {limit:.0f} s"}
    if done.returncode:
        return {"name": name, "error": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    row = json.loads(done.stdout.strip().splitlines()[-1])
    return {"name": name, "process_seconds": time.perf_counter() - begun, **row}


def command() -> str:
    """The command line, with file names in place of absolute paths."""
    return shlex.join(["python", *(Path(word).name if word.startswith("/") else word for word in sys.argv)])


def measured_on(device: Any) -> dict[str, Any]:
    """What every file of results says besides the rows: device, versions, commit and command line."""
    return environment(device) | {"command": command()}


def times(call: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of each call, after one call to warm up."""
    call()
    found = []
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        found.append(time.perf_counter() - begun)
    return found


def traced_kernels(call: Callable[[], object]) -> dict[str, tuple[int, float]]:
    """Name → number and microseconds of the kernels that a GPU runs during a call."""
    import jax

    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, create_perfetto_trace=True):
            call()
        (file,) = Path(folder).rglob("perfetto_trace.json.gz")
        with gzip.open(file, "rt") as text:
            events = json.load(text)["traceEvents"]
    threads = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e.get("name") == "thread_name"}
    found: dict[str, tuple[int, float]] = {}
    for event in events:
        where = threads.get((event.get("pid"), event.get("tid")), "")
        if event.get("ph") == "X" and where.startswith("Stream"):
            count, spent = found.get(event["name"], (0, 0.0))
            found[event["name"]] = count + 1, spent + event["dur"]
    return found
