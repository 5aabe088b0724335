"""The presets of every value world, and the check of its settings."""

from __future__ import annotations

from typing import Any

from xladder.families.value import (
    atari_presets,
    gym_presets,
    gymnax_presets,
    marl_presets,
    own_presets,
    published,
    zoo_presets,
)
from xladder.families.value.checks import check_learner, check_scaling, check_unused
from xladder.families.value.config import ValueConfig
from xladder.settings import check_counts
from xladder.worlds import names

SOURCES = {
    "gymnax": gymnax_presets,
    "atari": atari_presets,
    "gym": gym_presets,
    "jax": own_presets,
    "marl": marl_presets,
    "zoo": zoo_presets,
}


def presets(name: str, protocol: str | None = None) -> dict[str, Any]:
    """The presets of a world, under a protocol if it has several."""
    place = names.locate(name)
    found = SOURCES[place.source].presets(place, protocol)
    if "vdn" in found:
        return found
    why = (
        "The preset `vdn` sums the values of several agents in worlds with JaxMARL's API, such as "
        f"`jaxmarl/MPE_simple_spread_v3` or `marl/module:Name`; `{name}` is none of them."
    )
    return published.Presets(found, {"vdn": why} | getattr(found, "absent", {}))


def bare(name: str) -> Any:
    """The settings of a world before any preset: its own settings have nothing to do with them, so it is not made."""
    place = names.locate(name)
    module = SOURCES[place.source]
    return module.Config(world=module.WorldConfig(place.name))


def check_settings(config: ValueConfig) -> None:
    """Raise a `UsageError` that names the field, its value and what is allowed, without making the world."""
    check_counts(config)
    check_learner(config)
    config.check_settings()


def check(config: ValueConfig) -> None:
    """Raise a `UsageError` that names the field, its value and what is allowed."""
    check_settings(config)
    check_unused(config, presets)
    config.check_world()
    check_scaling(config)
