"""`xladder watch`: show runs in a browser while they train."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from xladder.cli.options import parse
from xladder.errors import UsageError
from xladder.report.source import find_runs


@dataclass(frozen=True)
class WatchOptions:
    """What to watch."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN…")]
    """Run directories, or folders of them, in which new runs may appear."""
    port: int = 0
    """The port on this machine; a free one if not given."""


def run(words: Sequence[str]) -> int:
    """Serve the page until Ctrl-C."""
    options = parse(
        WatchOptions, words, "xladder watch", "Show runs in a browser while they train; for this machine only."
    )
    if not options.runs:
        raise UsageError("`xladder watch` needs a run directory or a folder of runs. For example: xladder watch runs")
    found = find_runs(list(options.runs))
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # a replay needs no GPU, which the run may need
    from xladder.report import server

    listening, token = server.bind(options.port), server.new_token()
    watcher = server.Watcher(options.runs)
    print(f"{len(found)} run{'s' * (len(found) > 1)}: {server.address(listening, token)}")
    print("The address is for this machine and holds a secret. Ctrl-C ends.", flush=True)
    server.Server(listening, token, watcher).serve_forever()
    return 0
