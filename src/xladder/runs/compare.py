"""The same experiment on several rungs, one after another, each in a process of its own.

A process of its own, because peak memory only ever grows, and because PyTorch's and XLA's threads would otherwise
share one process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from xladder import user_code
from xladder.errors import UsageError, XladderError
from xladder.registry import find_rung, find_workload, options_of
from xladder.results import Plan
from xladder.runs.directory import describe_plan, versions
from xladder.settings import to_dict
from xladder.training import plan


def compare(
    workload: str,
    rungs: Sequence[str] = ("torch", "hybrid", "sequential", "parallel", "fused"),
    told: Callable[[dict[str, Any]], None] | None = None,
    mesh: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Measure each rung; `options` are those of `train`, and `mesh` is for the rung of that name.

    `told` hears of every row as it is measured.

    `seconds_per_TICK` is the median after learning has started, `sampling_seconds` and `update_seconds` are its two
    parts, timed on the jitted rungs after the last tick, when trajectories may be longer than they were on the way;
    with several seeds they are per seed. `speedup` is over the `torch` row, and missing where that was not
    asked for.
    """
    rungs = list(dict.fromkeys(rungs))
    for rung in rungs:
        find_rung(rung, find_workload(workload))
    plans = [plan(workload, rung, options=options_of(rung, mesh), **options) for rung in rungs]
    if not plans:
        raise UsageError("`--rungs` names none: give some, separated by commas.")
    time_key = f"seconds_per_{plans[0].workload.tick}"
    rows: list[dict[str, Any]] = []
    for one in plans:
        rows.append(measure_apart(one))
        if told:
            told(rows[-1])
    reference = next((row[time_key] for row in rows if row["rung"] == "torch"), None)
    for row in rows:
        row["speedup"] = reference / row[time_key] if reference else None
    return {
        "workload": plans[0].workload.name,
        "rows": rows,
        "device": rows[0]["device"],
        "versions": versions(),
        "seeds": len(plans[0].seeds),
        "config": to_dict(plans[0].config),
    }


def measure_apart(plan: Plan) -> dict[str, Any]:
    """`measure` in a fresh process."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "xladder.runs.measure"],
        input=json.dumps(describe_plan(plan) | {"imports": user_code.allowed()}),
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.strip().splitlines()[-1:] or [""]
    try:
        answer = json.loads(last[0])
    except ValueError:
        lines = done.stderr.strip().splitlines()[-1:] or [f"it ended with code {done.returncode} and said nothing"]
        raise XladderError(f"The `{plan.rung}` rung could not be measured: {lines[0]}") from None
    if "error" in answer:
        failed = XladderError(f"On the `{plan.rung}` rung: {answer['error']}")
        failed.exit_code = answer["exit_code"]
        raise failed
    return answer
