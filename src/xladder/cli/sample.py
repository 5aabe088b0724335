"""`xladder sample`: draw objects from a trained sampler, as CSV."""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated

import numpy as np
import tyro
from rich.console import Console

from xladder.cli.options import check_count, check_writable, parse, parse_condition, print_line
from xladder.devices import DeviceName
from xladder.errors import UsageError


@dataclass(frozen=True)
class SampleOptions:
    """What to draw."""

    run_dir: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run directory."""
    n: Annotated[int, tyro.conf.arg(aliases=["-n"])] = 1000
    """Number of objects."""
    out: Path = Path("samples.csv")
    """The CSV file (- for standard output)."""
    seed: int = 0
    """Random seed of the sampling; independent of the training seeds."""
    condition: str | None = None
    """For a conditional sampler: the condition to sample under, as 1.6 or 0.3,0.7."""
    of_seed: int | None = None
    """The training seed whose sampler to use; the first if not given."""
    force: bool = False
    """Overwrite the file if it exists."""
    device: DeviceName | None = None
    """The device to use; the best one JAX finds if not given."""


def run(words: Sequence[str]) -> int:
    """Draw objects and write them to a file."""
    options = parse(SampleOptions, words, "xladder sample", "Draw objects from a trained sampler.")
    check_count("-n", options.n)
    if not 0 <= options.seed < 2**31:
        raise UsageError(f"`--seed` is {options.seed}, but seeds lie in [0, 2³¹).")
    if options.out.is_dir():
        raise UsageError(f"`--out` is {options.out}, which is a folder: name a file.")
    if not options.force and options.out.is_file():
        raise UsageError(f"`{options.out}` exists: name another file with `--out`, or add `--force` to overwrite it.")
    check_writable(options.out)
    from xladder.runs.loading import load
    from xladder.runs.plan_files import read_run_plan

    plan = read_run_plan(options.run_dir)
    if not plan.workload.family.samples:
        raise UsageError(f"`{plan.workload.name}` has no objects to sample: use `xladder eval` to evaluate its agents.")
    of_seed = plan.seeds[0] if options.of_seed is None else options.of_seed
    if of_seed not in plan.seeds:
        allowed = ", ".join(map(str, plan.seeds))
        raise UsageError(f"`--of-seed` is {of_seed}, but this run has seeds {allowed}.")
    from xladder import devices
    from xladder.cli import startup

    startup.prepare(options.device)
    device = devices.find(options.device)

    import jax

    from xladder.core.compiling import compiled
    from xladder.core.mapping import pick

    console = Console(stderr=str(options.out) == "-")
    with console.status("sampling"), jax.default_device(device):
        result = load(options.run_dir)
        trained = plan.seeds[: jax.tree.leaves(result.params)[0].shape[0]]
        if of_seed not in trained:
            raise UsageError(
                f"This run was stopped before seed {of_seed} was trained: it has {', '.join(map(str, trained))}."
            )
        if options.condition is not None:
            result = result.at(parse_condition(options.condition))
        draw = plan.config.family.draw_objects
        table = draw(result.config, pick(result.params, plan.seeds.index(of_seed)), options.n, options.seed, compiled)
    if str(options.out) == "-":
        write_table(sys.stdout, table)
    else:
        try:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            with options.out.open("w", newline="", encoding="utf-8") as file:
                write_table(file, table)
        except OSError as error:
            raise UsageError(f"`{options.out}` cannot be written: {error.strerror or error}.") from None
    print_line(console, f"{options.n:,} objects, mean reward {table['reward'].mean():.3f}: {options.out}")
    return 0


def write_table(file: IO[str], table: Mapping[str, np.ndarray]) -> None:
    """Write columns as CSV."""
    writer = csv.writer(file)
    writer.writerow(table)
    writer.writerows(zip(*(column.tolist() for column in table.values()), strict=True))
