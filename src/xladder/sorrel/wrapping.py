"""Sorrel worlds on our ladder: `wrap` makes a world for `xladder.train` of any sorrel environment."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from typing import Any

from xladder import user_code
from xladder.core.packages import is_installed, missing_extra
from xladder.errors import UsageError
from xladder.sorrel.installation import require_sorrel

_wrapped: dict[Callable[[], Any], Callable[[], Any]] = {}
"""Functions that were wrapped, so that each has one name."""


def wrap(environment: Any, world: Any = None, config: Any = None, *, max_turns: int | None = None) -> Callable[[], Any]:
    """A sorrel environment as a world that `xladder.train` takes, on the rungs of host worlds::

        xladder.train(xladder.sorrel.wrap(make_env), rung="parallel")
        xladder.train(xladder.sorrel.wrap(TreasurehuntEnv, world, config), rung="parallel")

    Our learners take the place of the agents' models. Everything else is the environment's own: what agents see
    (`pov`), do (`action_spec`, `act`) and get, in which order they act, and how entities change. Agents observe
    together: all of them when the first would act.

    Args:
        environment: A function without arguments that makes a sorrel environment; or an `Environment` class, with
            `world` and `config`; or an environment, which is copied.
        world: The first argument of the class: a world, which is copied, or a function that makes one.
        config: The second argument of the class.
        max_turns: Turns of an epoch; `config.experiment.max_turns` if not given.

    Returns:
        A function that makes the world with PettingZoo's parallel API.

    Raises:
        UsageError: sorrel is missing or of another version, or the environment lacks a method that is needed.
    """
    if not is_installed("pettingzoo"):
        raise missing_extra("pettingzoo", "zoo")
    from xladder.worlds import sorrel_host

    require_sorrel()
    # Other processes find a function by its module and name, and there it makes the same world, but only if nothing
    # else was given here.
    plain = inspect.isroutine(environment) and world is None and config is None and max_turns is None
    if plain and environment in _wrapped:
        return _wrapped[environment]
    name = user_code.shown(environment)
    construct = _constructor(environment, world, config, name)

    def wrapped() -> Any:
        return sorrel_host.SorrelEnv(sorrel_host.checked(construct, name), name, max_turns)

    wrapped().close()  # so that whatever is wrong with it is said here
    owner = environment if inspect.isroutine(environment) or inspect.isclass(environment) else type(environment)
    wrapped.__module__ = owner.__module__
    wrapped.__qualname__ = owner.__qualname__ if plain else f"wrap.<locals>.{owner.__qualname__}"
    wrapped.__name__ = name
    if plain:
        wrapped.stands_for = environment  # type: ignore[attr-defined]  # under its name, it is wrapped when it is loaded
        _wrapped[environment] = wrapped
    return wrapped


def _constructor(environment: Any, world: Any, config: Any, name: str) -> Callable[[], Any]:
    """A function that makes a new environment."""
    if inspect.isclass(environment):
        if world is None or config is None:
            raise UsageError(
                f"`{name}` is a class: give its world and config, too, as in `wrap({name}, world, config)`, or a "
                "function that makes the environment."
            )
        make_world = world if inspect.isroutine(world) or inspect.isclass(world) else (lambda: copy.deepcopy(world))
        build: Callable[..., Any] = environment
        return lambda: build(make_world(), copy.deepcopy(config))
    if world is not None or config is not None:
        raise UsageError(f"`world` and `config` belong to an `Environment` class, but `{name}` is none.")
    if callable(environment):
        return environment
    return lambda: copy.deepcopy(environment)
