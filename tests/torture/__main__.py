"""`python -m tests.torture`. The trials are in modules of their own, since forked processes import those."""

import argparse
import random
import shlex
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

import tests.torture
from tests.torture.lives import AT_ONCE, FORKED, IMPORTED, slowness
from tests.torture.table import COUNTS, Outcome, all_rows, attempt_all, scaled, to_json, to_markdown


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.torture", description=tests.torture.__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument(
        "--scale", type=float, default=1.0, help="times all counts: 0.1 takes about a tenth of the time"
    )
    parser.add_argument("--only", nargs="+", choices=COUNTS, default=list(COUNTS), help="groups of rows")
    parser.add_argument("--rows", default="", help="only rows whose names contain this")
    parser.add_argument("--at-once", type=int, default=2, help="processes at the same time")
    parser.add_argument("--json", type=Path, help="a file for the table and what it depends on")
    parser.add_argument("--markdown", help="a file for the table as it is shown on a page; - for the screen")
    for group, count in COUNTS.items():
        parser.add_argument(f"--{group}", type=int, metavar="N", help=f"tries of each row of this group, else {count}")
    return parser.parse_args()


def main() -> int:
    """Try everything and print a table; 1 if anything was not as promised."""
    import jax

    from xladder.runs.environment import environment

    options = parse()
    AT_ONCE.release(options.at_once)
    seed = random.SystemRandom().randrange(10**6) if options.seed is None else options.seed
    given = {group: getattr(options, group.replace("-", "_")) for group in COUNTS}
    counts = scaled(COUNTS, options.scale) | {group: count for group, count in given.items() if count is not None}
    console = Console(width=120)
    FORKED.set_forkserver_preload(list(IMPORTED))
    begun, slow = time.monotonic(), [slowness()]
    facts = {
        "command": "python -m tests.torture " + shlex.join(sys.argv[1:]),
        "seed": seed,
        "scale": options.scale,
        "environment": environment(jax.devices()[0]),
    }
    console.print(f"seed {seed}, {slow[0]:.1f} times as slow as a free machine", highlight=False)

    def report(outcomes: list[Outcome], line: str) -> None:
        """Print a line; the file is written after each row, so that nothing is lost if this ends early."""
        slow.append(slowness())
        console.print(line, markup=False, highlight=False)
        if options.json:
            more = {"seconds": round(time.monotonic() - begun), "slowness": sorted(slow)[len(slow) // 2]}
            options.json.write_text(to_json(outcomes, facts | more))

    rows = [row for row in all_rows() if row.group in options.only and options.rows in row.fault]
    outcomes = attempt_all(rows, counts, seed, report)
    table = Table("fault", "seconds", "result")
    for one in outcomes:
        table.add_row(one.fault, str(one.seconds), one.result)
    console.print(table)
    if options.markdown:
        more = {"seconds": round(time.monotonic() - begun), "slowness": sorted(slow)[len(slow) // 2]}
        text = to_markdown(facts | more | {"rows": [vars(one) for one in outcomes]})
        if options.markdown == "-":
            print(text)
        else:
            Path(options.markdown).write_text(text)
    return int(not all(one.passed for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
