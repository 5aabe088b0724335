"""The presets of every built-in world in which objects are built step by step, and of users' own."""

from __future__ import annotations

from collections.abc import Mapping

from xladder.families.gflownet import (
    bits_presets,
    dags_presets,
    hypergrid_presets,
    ising_presets,
    own_presets,
    sequences_presets,
    sets_presets,
)
from xladder.families.gflownet.config import GFlowNetConfig
from xladder.settings import need_no_protocol

WORLDS: dict[str, Mapping[str, GFlowNetConfig]] = {
    "hypergrid": hypergrid_presets.PRESETS,
    "bits": bits_presets.PRESETS,
    "dags": dags_presets.PRESETS,
    "ising": ising_presets.PRESETS,
    "sets": sets_presets.PRESETS,
    "sequences": sequences_presets.PRESETS,
}
ABOUT = {
    "hypergrid": hypergrid_presets.ABOUT,
    "bits": bits_presets.ABOUT,
    "dags": dags_presets.ABOUT,
    "ising": ising_presets.ABOUT,
    "sets": sets_presets.ABOUT,
    "sequences": sequences_presets.ABOUT,
}


def presets(name: str, protocol: str | None = None) -> Mapping[str, GFlowNetConfig]:
    """The presets of a built-in world, or of a user's own."""
    need_no_protocol(name, protocol)
    return WORLDS[name] if name in WORLDS else own_presets.presets(name)


def about_presets(found: Mapping[str, GFlowNetConfig]) -> Mapping[str, str]:
    """What each of a world's presets is."""
    return ABOUT.get(found["default"].name, own_presets.ABOUT)
