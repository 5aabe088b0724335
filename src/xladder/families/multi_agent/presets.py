"""The presets of every world in which agents take turns."""

from __future__ import annotations

from collections.abc import Mapping

from xladder.families.multi_agent import cleanup_presets, iowa_presets, tag_presets, treasurehunt_presets
from xladder.families.multi_agent.config import Config
from xladder.settings import need_no_protocol

WORLDS: dict[str, Mapping[str, Config]] = {
    "treasurehunt": treasurehunt_presets.PRESETS,
    "cleanup": cleanup_presets.PRESETS,
    "tag": tag_presets.PRESETS,
    "iowa": iowa_presets.PRESETS,
}
ABOUT = {
    "treasurehunt": treasurehunt_presets.ABOUT,
    "cleanup": cleanup_presets.ABOUT,
    "tag": tag_presets.ABOUT,
    "iowa": iowa_presets.ABOUT,
}


def presets(name: str, protocol: str | None = None) -> Mapping[str, Config]:
    """The presets of a world."""
    need_no_protocol(name, protocol)
    return WORLDS[name]


def about_presets(found: Mapping[str, Config]) -> Mapping[str, str]:
    """What each of a world's presets is."""
    return ABOUT[found["default"].name]
