"""`xladder eval`: evaluate the greedy agents of a run, and a random policy for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from xladder.cli.options import check_count, check_writable, parse, parse_condition, print_line, write_json_file
from xladder.devices import DeviceName
from xladder.errors import UsageError


@dataclass(frozen=True)
class EvalOptions:
    """What to evaluate."""

    run_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run directory."""
    episodes: int | None = None
    """Episodes per seed, or number of sampled objects; 100 or 10,000 if not given."""
    seed: int = 0
    """Random seed of the evaluation; independent of the training seeds."""
    condition: str | None = None
    """For a conditional sampler: the condition, as 1.6 or 0.3,0.7; several in its range if not given."""
    json: Path | None = None
    """Write the result as JSON to this file (- for standard output)."""
    device: DeviceName | None = None
    """The device to use; the best one JAX finds if not given."""


def run(words: Sequence[str]) -> int:
    """Evaluate a run and print its score."""
    options = parse(
        EvalOptions, words, "xladder eval", "Evaluate the agents of a run, and compare them with a random policy."
    )
    if options.episodes is not None:
        check_count("--episodes", options.episodes)
    if not 0 <= options.seed < 2**31:
        raise UsageError(f"`--seed` is {options.seed}, but seeds lie in [0, 2³¹).")
    check_writable(options.json)
    from xladder.runs.loading import load
    from xladder.runs.plan_files import read_run_plan

    family = read_run_plan(options.run_dir).workload.family
    from xladder import devices
    from xladder.cli import startup

    startup.prepare(options.device)
    device = devices.find(options.device)

    import jax

    console = Console(stderr=str(options.json) == "-")
    print_line(console, f"{options.run_dir} on {devices.describe(device)}")
    with console.status("evaluating"), jax.default_device(device):
        result = load(options.run_dir)
        if options.condition is not None:
            result = result.at(parse_condition(options.condition))
        score = result.evaluate(options.episodes or family.episodes, options.seed)
    for line in family.describe_score(score):
        print_line(console, line)
    write_json_file(options.json, score)
    return 0
