"""Build a report: the data of several runs, and the page that shows them in one file."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from html import escape
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from xladder.errors import UsageError, XladderError, brief
from xladder.report.source import Source, names_of, text

NUMBERS = 200_000  # in the curves of all runs: about 1.3 MB
SCENE_BYTES = 1_600_000  # of all scenes
GENERATOR = '<meta name="generator" content="xladder'
TOO_LARGE = "It was left out to keep the report small: make a report of fewer runs."
STYLES, SCRIPTS = ("uPlot.min.css", "page.css"), ("uPlot.iife.min.js", "page.js")
LICENCE = "uPlot.LICENSE"  # has to go with every copy of uPlot, and a report is one


def make_report(folders: Sequence[Path], replay: bool = True, say: Callable[[str], None] = lambda line: None) -> str:
    """Make a report of run directories. Returns the page.

    Args:
        folders: The run directories.
        replay: Whether to let the trained agents act, to be replayed; needs JAX.
        say: Told what is being done.

    Raises:
        UsageError: None of the runs can be shown.
    """
    sources = [Source(folder, name) for folder, name in zip(folders, names_of(list(folders)), strict=True)]
    shown: list[tuple[Source, dict[str, Any]]] = []
    missing: list[dict[str, str]] = []
    for source in sources:
        try:
            shown.append((source, source.describe(NUMBERS // len(sources))))
        except XladderError as error:
            missing.append({"name": source.name, "why": text(error)})
        except Exception as error:  # a damaged run must not hide the others
            missing.append({"name": source.name, "why": f"It cannot be read ({text(brief(error))})."})
    if not shown:
        raise UsageError("None of these runs can be shown. " + " ".join(f"{m['name']}: {m['why']}" for m in missing))
    if replay:
        add_scenes(shown, say)
    runs = [run | {"id": i} for i, (_, run) in enumerate(shown)]
    return make_page(page_data(runs, missing))


def add_scenes(shown: Sequence[tuple[Source, dict[str, Any]]], say: Callable[[str], None]) -> None:
    """Add the scenes of all runs as far as there is room, the first of each run first."""
    found = []
    for source, run in shown:
        say(f"replaying {source.name}")
        scenes, run["scenes_note"] = source.scenes()
        found.append(scenes)
    left = SCENE_BYTES
    for place in range(max(map(len, found), default=0)):
        for (_, run), scenes in zip(shown, found, strict=True):
            if place < len(scenes):
                size = len(json.dumps(scenes[place]))
                if size <= left:
                    run["scenes"].append(scenes[place])
                    left -= size
                elif not run["scenes"]:
                    run["scenes_note"] = TOO_LARGE


def page_data(runs: Sequence[dict[str, Any]], missing: Sequence[dict[str, str]], live: bool = False) -> dict[str, Any]:
    """The data of a page: runs in sections by workload, and where their configs and environments differ."""
    sections: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        sections.setdefault(run["workload"], []).append(run)
    from xladder import __version__

    return {
        "version": __version__,
        "made": time.strftime("%Y-%m-%d %H:%M"),
        "live": live,
        "runs": list(runs),
        "missing": list(missing),
        "sections": [
            {
                "workload": workload,
                "runs": [run["id"] for run in inside],
                "differences": {name: differences(inside, name) for name in ("config", "environment")},
            }
            for workload, inside in sections.items()
        ],
    }


def differences(runs: Sequence[dict[str, Any]], name: str) -> list[list[Any]]:
    """Settings that are not the same in all runs: name and the value of each run."""
    if len(runs) < 2:
        return []
    tables = [dict(map(tuple, run[name])) for run in runs]
    every = dict.fromkeys(key for table in tables for key in table)
    rows = [[key, [table.get(key, "") for table in tables]] for key in every]
    return [[key, values] for key, values in rows if len(set(values)) > 1]


def make_page(data: dict[str, Any] | None, connect: str = "'none'") -> str:
    """The page as one HTML file; without data it asks the server it comes from.

    Args:
        data: What to show.
        connect: Where the page may connect to, as a source of its content security policy.
    """
    static = resources("xladder.report") / "static"
    style, *scripts = (
        "\n".join(_harmless((static / name).read_text("utf-8")) for name in names)
        for names in (STYLES, *([name] for name in SCRIPTS))
    )
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; style-src {_hash(style)}; "
        f"img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    title = "xladder"
    if data:
        title = f"{', '.join(section['workload'] for section in data['sections'])} · xladder report"
    from xladder import __version__

    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            f'{GENERATOR} {__version__}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">',
            f'<title>{escape(title[:120])}</title><link rel="icon" href="data:,">',
            f"<style>{style}</style></head>",
            '<body><div id="page"></div><noscript>This page needs JavaScript.</noscript>',
            f'<script type="application/json" id="data">{to_json(data)}</script>',
            f"<!-- uPlot, which draws the curves:\n\n{(static / LICENCE).read_text('utf-8')}-->",
            *(f"<script>{script}</script>" for script in scripts),
            "</body></html>\n",
        ]
    )


def to_json(data: Any) -> str:
    """JSON that is safe inside a script element: no `<`, so nothing in it ends the element or begins another."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def write_report(path: Path, page: str) -> None:
    """Write a report atomically. Replaces an earlier report, and nothing else."""
    check_replaceable(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            draft.write_text(page, encoding="utf-8")
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise UsageError(f"`{path}` cannot be written: {error.strerror or error}.") from None


def check_replaceable(path: Path) -> None:
    """Raise a `UsageError` if there is a file that is not an earlier report."""
    try:
        if not path.exists():
            return
        if path.is_file():
            with path.open("rb") as file:
                if GENERATOR.encode() in file.read(4096):
                    return
    except OSError as error:
        raise UsageError(f"`{path}` cannot be read: {error.strerror or error}.") from None
    raise UsageError(f"`{path}` exists and is not a report: choose another `--out`, nothing is overwritten.")


def _hash(source: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


def _harmless(source: str) -> str:
    """A file of ours that is put between tags must not contain them."""
    assert "</script" not in source and "</style" not in source and "\r" not in source
    return source
