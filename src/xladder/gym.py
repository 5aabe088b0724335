"""Ids for Gymnasium: `import xladder.gym` registers one for every world of ours that one agent can act in.

    import gymnasium
    import xladder

    gymnasium.register_envs(xladder.gym)
    env = gymnasium.make("xladder/CartPole-v0", render_mode="rgb_array")

or, in one line, `gymnasium.make("xladder.gym:xladder/CartPole-v0")`. Further arguments of `gymnasium.make` are those of
`xladder.make`: `gymnasium.make("xladder/Treasurehunt-v0", world={"width": 12})`.

Since version 1.0 Gymnasium does not look for installed packages by itself, so this import is needed.
"""

from __future__ import annotations

from typing import Any

from xladder.core.packages import is_installed, missing_extra
from xladder.errors import UsageError
from xladder.families.multi_agent.config import check
from xladder.families.multi_agent.presets import WORLDS
from xladder.settings import updated
from xladder.worlds.names import GYMNAX, GymnaxWorld

NAMESPACE, VERSION = "xladder", 0


def make_env(workload: str, world: dict[str, Any] | None = None, **settings: Any) -> Any:
    """Make the environment of an id. Worlds with turns have one agent.

    Args:
        workload: The name of the world.
        world: Settings of the world.
        **settings: Other arguments of `xladder.make`.
    """
    from xladder.apis.making import make

    alone = {"num_agents": 1} if workload in WORLDS else {}
    return make(workload, "gymnasium", world={**alone, **(world or {})}, **settings)


def ids() -> dict[str, str]:
    """The registered ids, and the names of their worlds here."""
    found = {_id(_title(world)): name for name, world in GYMNAX.items()}
    return found | {_id(name.capitalize()): name for name in WORLDS if _is_for_one(name)}


def _is_for_one(name: str) -> bool:
    """Whether one agent can be alone in a world with turns."""
    config = WORLDS[name]["default"]
    try:
        check(updated(config, {"world": {"num_agents": 1}}))
    except UsageError:
        return False
    return True


def register() -> None:
    """Register all ids; those that are registered already are left as they are."""
    if not is_installed("gymnasium"):
        raise missing_extra("gymnasium", "gym")
    import gymnasium

    for name, workload in ids().items():
        if name not in gymnasium.registry:
            gymnasium.register(name, entry_point="xladder.gym:make_env", kwargs={"workload": workload})


def _title(world: GymnaxWorld) -> str:
    """`CartPole`, or `MinAtar-Breakout`: MinAtar's names are those of other games, too."""
    title, _, kind = world.id.partition("-")
    return f"{kind}-{title}" if kind == "MinAtar" else title


def _id(title: str) -> str:
    return f"{NAMESPACE}/{title}-v{VERSION}"


register()
