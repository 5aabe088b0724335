"""The rows of the table, how many times each is tried, and the table as JSON and Markdown."""

import json
import random
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.torture.damage import cut_short, damaged, fuzzed
from tests.torture.distributed import host_worlds_lost, hosts_lost, ray_lost
from tests.torture.hostile import malicious, nonsense, shown, surroundings
from tests.torture.kills import ANSWERED, CASES, OTHERS, killed, killed_sweeps

COUNTS = {
    "kills": 100,
    "others": 50,
    "signals": 20,
    "sweeps": 20,
    "steps": 1,
    "damages": 500,
    "nonsense": 1000,
    "fuzzed": 100,
    "shown": 100,
    "malicious": 1,
    "surroundings": 1,
    "ray": 12,
    "hosts": 8,
    "host-worlds": 6,
}
"""Group of rows → how often each of its rows is tried; at scale 1."""
LEAST = {"ray": 4, "host-worlds": 2}  # one of each kind
Trial = Callable[[int, random.Random, Path], str]


@dataclass(frozen=True)
class Row:
    """A fault that is tried."""

    group: str
    fault: str
    trial: Trial
    at_once: bool = False
    """Whether it waits for its turn life by life, so that rows can be tried at the same time."""


@dataclass(frozen=True)
class Outcome:
    """What came of a row."""

    fault: str
    result: str
    seconds: int
    passed: bool


def all_rows() -> list[Row]:
    """All rows, in the order of the table."""
    killing = (signal.SIGKILL,)
    return [
        *(
            Row("kills", f"SIGKILL, {name} on `{rung}`", partial(killed, case, rung, killing), True)
            for name, case in CASES.items()
            for rung in case.lengths
        ),
        *(
            Row("others", f"SIGKILL, {name} on `{rung}`", partial(killed, case, rung, killing), True)
            for name, case in OTHERS.items()
            for rung in case.lengths
        ),
        *(
            Row("signals", f"SIGTERM or SIGINT, {name} on `fused`", partial(killed, case, "fused", ANSWERED), True)
            for name, case in (CASES | OTHERS).items()
        ),
        Row("sweeps", "SIGKILL, a sweep with halving", killed_sweeps, True),
        Row("steps", "gone at each step of a save", cut_short),
        Row("damages", "damaged checkpoints", damaged),
        Row("nonsense", "malformed commands and configs", nonsense),
        Row("fuzzed", "run directories with other bytes: `resume`, `eval`, `diff`", fuzzed),
        Row("shown", "hostile runs with other bytes: `report`, `watch`", shown),
        Row("malicious", "malicious files", malicious),
        Row("surroundings", "surroundings", surroundings),
        Row("ray", "Ray's own processes killed, CartPole on `actors`", ray_lost),
        Row("hosts", "a host killed, hypergrid on `hosts`", hosts_lost),
        Row("host-worlds", "a host killed, Atari and Gymnasium on `hosts`", host_worlds_lost),
    ]


def scaled(counts: Mapping[str, int], scale: float) -> dict[str, int]:
    """Counts at a scale: at least one, or one of each kind."""
    return {group: max(LEAST.get(group, 1), round(count * scale)) for group, count in counts.items()}


def attempt(row: Row, count: int, seed: int, report: Callable[[str], None]) -> Outcome:
    """Try a row in a folder of its own."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            result, passed = row.trial(count, random.Random(f"{seed} {row.fault}"), Path(folder)), True
        except Exception as error:  # the other rows are tried all the same
            result, passed = f"FAILED: {type(error).__name__}: {str(error)[:2000]}", False
    outcome = Outcome(row.fault, result, round(time.monotonic() - begun), passed)
    report(f"{outcome.fault} · {outcome.seconds} s · {outcome.result}")
    return outcome


def attempt_all(
    rows: Iterable[Row], counts: Mapping[str, int], seed: int, report: Callable[[list[Outcome], str], None]
) -> list[Outcome]:
    """Try rows; those that wait for their turns at the same time, then the others one after another."""
    rows, done = list(rows), dict[str, Outcome]()

    def one(row: Row) -> None:
        done[row.fault] = attempt(row, counts[row.group], seed, lambda line: None)
        found = done[row.fault]
        ordered = [done[r.fault] for r in rows if r.fault in done]
        report(ordered, f"{found.fault} · {found.seconds} s · {found.result}")

    together = [row for row in rows if row.at_once]
    with ThreadPoolExecutor(len(together) or 1) as pool:
        list(pool.map(one, together))
    for row in rows:
        if not row.at_once:
            one(row)
    return [done[row.fault] for row in rows]


def to_json(outcomes: Iterable[Outcome], facts: Mapping[str, Any]) -> str:
    """The table as JSON, with what it depends on."""
    return json.dumps({**facts, "rows": [asdict(one) for one in outcomes]}, indent=1) + "\n"


def to_markdown(found: Mapping[str, Any]) -> str:
    """The table of a JSON file, as a page shows it."""
    facts = found["environment"]
    lines = [
        f"Seed {found['seed']}, scale {found['scale']:g}, commit `{facts['git_commit'][:10]}`, {facts['cores']} cores "
        f"that were {found['slowness']:.0f} times as slow as free ones, Python {facts['python']}, "
        f"JAX {facts['versions']['jax']}; {found['seconds'] / 60:.0f} minutes (`{found['command']}`):",
        "",
        "| fault | result |",
        "|---|---|",
        *(f"| {row['fault']} | {row['result']} |" for row in found["rows"]),
    ]
    return "\n".join(lines) + "\n"
