"""Which worlds agents were published in, and under which protocols: for `xladder presets`, and for the help."""

from __future__ import annotations

from collections.abc import Mapping

from xladder.families.value import published_atari100k, published_marl, published_small
from xladder.families.value.published import PublishedAgent, protocols

# The worlds that agents were published in → those agents.
PUBLISHED: Mapping[str, tuple[PublishedAgent, ...]] = {
    "atari/GAME": published_atari100k.AGENTS,
    "cartpole": published_small.CARTPOLE,
    "minatar/GAME": published_small.MINATAR,
    "jaxmarl/MPE_NAME": published_marl.MPE,
}


def protocols_for(workload: str) -> list[str]:
    """The protocols under which something is published for a workload."""
    return [name for world, agents in PUBLISHED.items() if _is_in(workload, world) for name in protocols(agents)]


def _is_in(workload: str, world: str) -> bool:
    prefix = world.removesuffix("GAME").removesuffix("NAME")
    return workload == world or (prefix != world and workload.startswith(prefix))
