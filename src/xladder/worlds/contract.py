"""Checks that a world keeps its contract: `xladder check`.

Each finding is a sentence that names the world's function and field. Several envs are stepped with random actions, and
what they return is compared with what they promise: shapes, dtypes, spaces, ends of episodes, and that the same keys
give the same episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from xladder import user_code
from xladder.errors import XladderError, located, untraceable
from xladder.worlds import flow_names, gym_host, gymnax_world, marl_world, zoo_host
from xladder.worlds.contract_host import check_gym, check_zoo
from xladder.worlds.contract_jax import check_jittable
from xladder.worlds.findings import Finding, broken
from xladder.worlds.twin_check import TwinFault


def require_world(source: str, name: str, twin: str | None = None) -> None:
    """Raise a `UsageError` if there is no such world, or twin: no module, nothing of this name, or none registered."""
    if twin is not None:
        user_code.find(twin, "world")
    if source == "gym":
        gym_host.require(name.removeprefix("gym/"))
    elif source != "gymnax":  # of which there is a table, and `name` is from there
        {"jax": gymnax_world, "marl": marl_world, "zoo": zoo_host, "flow": flow_names}[source].find(name)


def check_world(source: str, name: str, twin: str | None = None, kwargs: tuple[str, ...] = ()) -> Iterator[Finding]:
    """Check a world and yield the findings one by one.

    Args:
        source: where the world comes from, a key of `registry.SOURCES` (`gymnax`, `jax`, `marl`, `gym`, `zoo`).
        name: its name, as users type it.
        twin: `module:Name` of a world to compare it with, if it is in JAX; its own `twin` if not given. One that
            cannot be compared is a `UsageError`, not a finding.
        kwargs: arguments of the world, as `name=value`; a twin that is made gets the same.
    """
    jittable = partial(check_jittable, twin=twin)
    checks: dict[str, Callable[..., Iterator[Finding]]] = {
        "gymnax": jittable,
        "jax": jittable,
        "marl": jittable,
        "gym": check_gym,
        "zoo": check_zoo,
    }
    try:
        yield from checks[source](name, kwargs=kwargs)
    except TwinFault:
        raise
    except XladderError as error:
        yield broken(str(error))
    except (Exception, SystemExit) as error:
        fault = untraceable(error) or f"fails while it is stepped: {located(error)}"
        yield broken(f"`{name}` {fault}.")
