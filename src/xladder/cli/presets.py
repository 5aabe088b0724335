"""`xladder presets`: list the presets of workloads, and the published agents with the sources of their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from xladder.cli.help_page import as_words, changes, preset_lines
from xladder.cli.options import parse, write_json_file
from xladder.cli.published import PUBLISHED, protocols_for
from xladder.errors import UsageError, nearest
from xladder.families.value import published_atari
from xladder.families.value.learner_config import MEMBERS
from xladder.families.value.published import PublishedAgent, protocols
from xladder.registry import find_workload
from xladder.settings import as_text
from xladder.worlds.names import UnknownWorld

LEFT_OUT: Mapping[str, Mapping[str, str]] = {"atari/GAME": published_atari.LEFT_OUT}
"""The worlds of `PUBLISHED` → algorithms that are missing there, and why."""
ALGORITHMS = (*MEMBERS, "pqn", "der", "vdn")
LABEL = "protocol"  # a row that only names the table it is in


@dataclass(frozen=True)
class PresetsOptions:
    """What to list."""

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]")] = None
    """An algorithm, such as iqn, for every setting and its source; or a workload, for its presets."""
    protocol: str | None = None
    """Only the agents of this protocol."""
    markdown: bool = False
    """Print the published agents as tables in Markdown."""
    json: Path | None = None
    """Write the list as JSON to this file (- for standard output)."""


def run(words: Sequence[str]) -> int:
    """List presets."""
    options = parse(
        PresetsOptions,
        words,
        "xladder presets",
        "List which algorithm is published under which protocol, or the presets of a workload. With the name of an "
        "algorithm, show its settings with their sources.",
    )
    if options.protocol is not None:
        check_known(options.protocol)
    console = Console(stderr=str(options.json) == "-" or options.markdown, highlight=False, markup=False)
    chosen = select(options.protocol, options.name if options.name in ALGORITHMS else None)
    if options.markdown:
        print(as_markdown(chosen), end="")
    elif options.name is None:
        show_matrix(console, chosen)
    elif options.name in ALGORITHMS:
        if not any(chosen.values()):
            raise UsageError(why_not(options.name, options.protocol))
        show_agents(console, chosen)
    else:
        write_json_file(options.json, show_workload(console, options.name, options.protocol))
        return 0
    write_json_file(options.json, {"agents": [to_json(world, agent) for world in chosen for agent in chosen[world]]})
    return 0


def check_known(protocol: str) -> None:
    """Raise a `UsageError` for an unknown protocol."""
    known = list(dict.fromkeys(name for agents in PUBLISHED.values() for name in protocols(agents)))
    if protocol not in known:
        raise UsageError(f"There is no protocol `{protocol}`: there are {', '.join(known)}.")


def select(protocol: str | None, algorithm: str | None) -> dict[str, list[PublishedAgent]]:
    """The published agents by world, of one protocol and algorithm if given."""
    return {
        world: [a for a in agents if protocol in (None, a.protocol) and algorithm in (None, a.algorithm)]
        for world, agents in PUBLISHED.items()
    }


def why_not(algorithm: str, protocol: str | None) -> str:
    """Why an algorithm cannot be shown, as a sentence that names those that can."""
    own = list(dict.fromkeys(a.algorithm for agents in select(protocol, None).values() for a in agents))
    return f"The protocol `{protocol}` has no `{algorithm}`: it has {', '.join(own)}."


def show_matrix(console: Console, chosen: Mapping[str, Sequence[PublishedAgent]]) -> None:
    """Print which algorithm is published under which protocol, and where the numbers are from."""
    for world, agents in chosen.items():
        if not agents:
            continue
        columns = protocols(agents)
        matrix = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
        for head in (world, *columns):
            matrix.add_column(head, no_wrap=True)
        for algorithm in dict.fromkeys(agent.algorithm for agent in agents):
            has = [any((a.algorithm, a.protocol) == (algorithm, name) for a in agents) for name in columns]
            matrix.add_row(algorithm, *("yes" if one else "–" for one in has))
        console.print(matrix)
        for agent in agents:
            console.print(f"  {agent.protocol:<10}{agent.algorithm:<11}{agent.source}", soft_wrap=True)
        for why in LEFT_OUT.get(world, {}).values():
            console.print(f"  {why}", soft_wrap=True)
        console.print()
    console.print(
        "`xladder presets ALGORITHM` shows every setting and its source, `xladder presets WORKLOAD` the presets of a "
        "workload.\nxladder train atari/pong --preset iqn --protocol dopamine",
        soft_wrap=True,
    )


def show_agents(console: Console, chosen: Mapping[str, Sequence[PublishedAgent]]) -> None:
    """Print every setting of some agents beside its source."""
    for world, agents in chosen.items():
        for agent in agents:
            console.print(f"{agent.algorithm} in {world}, protocol {agent.protocol}: {agent.source}", soft_wrap=True)
            shown = Table.grid(padding=(0, 2))
            for field, (value, source) in agent.table.items():
                if field != LABEL:
                    shown.add_row(f"  {field}", as_text(value), source)
            console.print(shown)
            for difference in agent.differences:
                console.print(f"  Deliberately different: {difference}", soft_wrap=True)
            console.print()


def show_workload(console: Console, name: str, protocol: str | None) -> dict[str, Any]:
    """Print the presets of a workload by what distinguishes them from the first. Returns them JSON-ready."""
    try:
        workload = find_workload(name)
    except UnknownWorld as error:
        if near := nearest(name, ALGORITHMS):
            hint = f"Did you mean `{near}`? `xladder presets` lists all algorithms, `xladder worlds` all workloads."
            raise UsageError(f"There is no algorithm or workload `{name}`. {hint}") from None
        raise UsageError(f"{error} Algorithms are {', '.join(ALGORITHMS)}.") from None
    found = workload.family.presets(workload.name, protocol)
    console.print(f"{workload.name}: `--preset NAME`, with what differs from `default`", soft_wrap=True)
    changed, about = {}, preset_lines(found, workload.family.about_presets(found))
    for preset in found:
        changed[preset] = changes(found, preset)
        some = ", ".join(as_words(changed[preset]))
        console.print(f"  {preset:<12} {about[preset]}" + (f"\n  {'':<12} {some}" if some else ""), soft_wrap=True)
    known = protocols_for(workload.name)
    if known and protocol is None:
        console.print(f"Published settings: `--protocol {'`, `--protocol '.join(known)}`.", soft_wrap=True)
    return {"workload": workload.name, "protocol": protocol, "presets": changed, "about": about}


def to_json(world: str, agent: PublishedAgent) -> dict[str, Any]:
    """A published agent as plain data."""
    return {
        "world": world,
        "algorithm": agent.algorithm,
        "protocol": agent.protocol,
        "source": agent.source,
        "settings": {
            field: {"value": value, "source": source}
            for field, (value, source) in agent.table.items()
            if field != LABEL
        },
        "differences": list(agent.differences),
    }


def as_markdown(chosen: Mapping[str, Sequence[PublishedAgent]]) -> str:
    """One table per world and protocol: a row per setting, a column per algorithm, and the sources below."""
    lines: list[str] = []
    for world, agents in chosen.items():
        for protocol in protocols(agents):
            columns = [agent for agent in agents if agent.protocol == protocol]
            rows = [row for row in dict.fromkeys(field for a in columns for field in a.table) if row != LABEL]
            lines += [f"## {world}, `{protocol}`", ""]
            lines += [
                f"| setting | {' | '.join(agent.algorithm for agent in columns)} |",
                "|---|" + "---|" * len(columns),
            ]
            for row in rows:
                cells = [_cell(agent, row) for agent in columns]
                lines.append(f"| `{row}` | {' | '.join(cells)} |")
            lines.append("")
            for agent in columns:
                lines.append(
                    f"- {agent.algorithm}: {agent.source}. Deliberately different: {' '.join(agent.differences)}"
                )
            lines.append("")
    return "\n".join(lines)


def _cell(agent: PublishedAgent, row: str) -> str:
    if row not in agent.table:
        return ""
    value, source = agent.table[row]
    return f"{as_text(value)} ({source})"
