"""`xladder report`: one HTML file with everything about some runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.markup import escape

from xladder.cli.options import check_writable, parse
from xladder.devices import DeviceName
from xladder.errors import UsageError
from xladder.report.source import find_runs


@dataclass(frozen=True)
class ReportOptions:
    """Which runs to show."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN…")]
    """Run directories, or folders of them."""
    out: Path = Path("report.html")
    """The file to write; an earlier report is replaced."""
    replay: bool = True
    """Whether to let the trained agents act once more, for the replay; takes some seconds per run."""
    device: DeviceName | None = None
    """The device for the replay; the best one JAX finds if not given."""


def run(words: Sequence[str]) -> int:
    """Write a report and print where it is."""
    options = parse(
        ReportOptions,
        words,
        "xladder report",
        "Write one HTML file that opens offline: settings, curves, evaluation, timings and a replay.",
    )
    if not options.runs:
        raise UsageError("`xladder report` needs one run directory or more. For example: xladder report runs/NAME")
    if options.out.is_dir():
        raise UsageError(f"`--out` is `{options.out}`, which is a folder: name a file, such as report.html.")
    folders = find_runs(list(options.runs))
    from xladder.report.build import check_replaceable, make_report, write_report

    check_writable(options.out)
    check_replaceable(options.out)
    console = Console()
    if options.replay:
        from xladder import devices
        from xladder.cli import startup

        startup.prepare(options.device)
        device = devices.find(options.device)

        import jax

        with console.status("reading") as status, jax.default_device(device):
            page = make_report(folders, True, lambda line: status.update(escape(line)))
    else:
        page = make_report(folders, False)
    write_report(options.out, page)
    size = len(page.encode()) / 1e6
    named = f"{len(folders)} run{'s' * (len(folders) > 1)}"
    console.print(f"{options.out} ({named}, {size:.1f} MB)", highlight=False, markup=False, soft_wrap=True)
    return 0
