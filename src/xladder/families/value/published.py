"""Agents as they were published: every setting beside the words of its source. Imports nothing heavy.

An agent is an algorithm under a protocol: the rules of a paper, or of a library that others compare with. Presets are
made from these tables, `xladder presets` prints them, and a test compares them with the numbers in the sources' own
units.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xladder.errors import unknown
from xladder.settings import need_no_protocol

Table = Mapping[str, tuple[Any, str]]
"""A field of the settings, such as `learner.lr` → its value, and what it is called in the source."""


@dataclass(frozen=True)
class PublishedAgent:
    """An algorithm under a protocol."""

    algorithm: str
    protocol: str
    source: str
    """Where the numbers are from: repository and file, or the paper."""
    table: Table
    differences: tuple[str, ...] = ()
    """What is deliberately different here, as sentences."""

    def applied_to(self, config: Any) -> Any:
        """A config with the published settings."""
        parts: dict[str, dict[str, Any]] = {}
        for field, (value, _) in self.table.items():
            part, _, name = field.rpartition(".")
            parts.setdefault(part, {})[name] = value
        own = parts.pop("", {})
        return replace(config, **own, **{part: replace(getattr(config, part), **v) for part, v in parts.items()})


def derived(
    base: PublishedAgent, algorithm: str, source: str, table: Table, differences: tuple[str, ...] = ()
) -> PublishedAgent:
    """Another agent of the same protocol: the base's table with some rows changed or added."""
    return replace(
        base,
        algorithm=algorithm,
        source=source,
        table={**base.table, **table},
        differences=(*base.differences, *differences),
    )


def presets(agents: Sequence[PublishedAgent], protocol: str, config: Any) -> dict[str, Any]:
    """The agents of a protocol as settings, by algorithm."""
    return {agent.algorithm: agent.applied_to(config) for agent in agents if agent.protocol == protocol}


def protocols(agents: Iterable[PublishedAgent]) -> list[str]:
    """The protocols, each once, in order."""
    return list(dict.fromkeys(agent.protocol for agent in agents))


def find(agents: Sequence[PublishedAgent], algorithm: str, protocol: str) -> PublishedAgent | None:
    """An agent, if it was published."""
    return next((a for a in agents if (a.algorithm, a.protocol) == (algorithm, protocol)), None)


class Presets(dict[str, Any]):
    """Settings by name, and why some names that others have are missing."""

    def __init__(self, found: Mapping[str, Any], absent: Mapping[str, str] | None = None):
        super().__init__(found)
        self.absent = dict(absent or {})


def under(agents: Sequence[PublishedAgent], protocol: str, found: Mapping[str, Any], members: Iterable[str]) -> Presets:
    """The presets of a protocol, with a sentence for each algorithm that it does not have."""
    return Presets(found, {name: _why_absent(agents, name, protocol) for name in members if name not in found})


def check_protocol(world: str, agents: Sequence[PublishedAgent], protocol: str) -> None:
    """Raise a `UsageError` if nothing is published for a world under a protocol."""
    known = protocols(agents)
    if not known:
        need_no_protocol(world, protocol)
    if protocol not in known:
        raise unknown("protocol", protocol, known)


def _why_absent(agents: Sequence[PublishedAgent], algorithm: str, protocol: str) -> str:
    own = [agent.algorithm for agent in agents if agent.protocol == protocol]
    others = [agent.protocol for agent in agents if agent.algorithm == algorithm]
    elsewhere = f" `{algorithm}` is published under {_listed(others)}." if others else ""
    return f"The protocol `{protocol}` has no `{algorithm}`: it has {_listed(own)}.{elsewhere}"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
