"""Makes Gymnasium environments: by id, or from a class, function or object of the user's, with arguments and wrappers.

Imported only where Gymnasium is installed.
"""

from __future__ import annotations

import ast
import copy
import math
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import gymnasium
from gymnasium import error, wrappers
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from xladder import user_code
from xladder.errors import UsageError, XladderError, brief, located, unknown
from xladder.worlds.arguments import arguments, numbers_in
from xladder.worlds.host_calls import call

OUTSIDE = {
    "RecordVideo": "writes files anywhere; every run leaves a replay in `media`",
    "HumanRendering": "opens a window for each env",
}
"""Wrappers of Gymnasium that do more than change what is seen or done, and what."""
WITHOUT_SIZES = (
    *("TimeLimit", "RecordEpisodeStatistics", "RepeatAction", "StickyAction", "MaxAndSkipObservation", "ClipReward"),
    *("RescaleAction", "RescaleObservation", "NormalizeObservation", "NormalizeReward"),
)
"""Wrappers whose numbers count steps or are bounds; those of others may be sizes of observations."""
MOST_NUMBERS = 2**26  # in an observation: 256 MiB as floats
CALL = re.compile(r"(?P<name>[\w.:]+)(?:\((?P<arguments>.*)\))?", re.DOTALL)


class Recipe(NamedTuple):
    """How an environment is made."""

    name: str
    """An id, `module:ID`, or `module:Name` of a class, function or object."""
    kwargs: tuple[str, ...] = ()
    """Arguments, as `name=value`."""
    wrappers: tuple[str, ...] = ()
    """Wrappers, the innermost first: Gymnasium's by name, or `module:Name`."""

    @property
    def shown(self) -> str:
        """The name as users type it."""
        return f"gym/{self.name}"


def found_object(name: str) -> Any:
    """The class, function or object that a name stands for; None if it stands for an id."""
    module, _, attribute = name.rpartition(":")
    if not module or attribute in gymnasium.registry:
        return None
    try:
        return user_code.find(name, "world", f"gym/{name}")
    except XladderError:
        if "@" in name:  # an object of another process
            raise
        return None


def make_vector(recipe: Recipe, num_envs: int, asynchronous: bool) -> Any:
    """N envs that are stepped together: one after another in this process, or each in a process of its own."""
    thing = found_object(recipe.name)
    make = partial(make_one, recipe, thing)
    if not asynchronous:
        return SyncVectorEnv([make] * num_envs, autoreset_mode=AutoresetMode.NEXT_STEP)
    elsewhere = partial(_make_elsewhere, recipe, thing, user_code.allowed())
    with _without_main():
        return AsyncVectorEnv([elsewhere] * num_envs, context="spawn", autoreset_mode=AutoresetMode.NEXT_STEP)


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the user's script: a process would run it again when it starts, and what it defines is pickled anyway."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _make_elsewhere(recipe: Recipe, thing: Any, modules: Sequence[str]) -> Any:
    """Make one env in a process that knows nothing yet; its errors name the world, and where in it they are."""
    for module in modules:
        user_code.allow(module)
    return _Named(make_one(recipe, thing), recipe.shown)


class _Named(gymnasium.Wrapper):
    """An env in another process, whose errors are reported as its own: a traceback would not arrive."""

    def __init__(self, env: Any, shown: str):
        super().__init__(env)
        self._shown = shown

    def reset(self, **given: Any) -> Any:
        """Begin an episode."""
        return call(self._shown, "reset", self.env.reset, **given)

    def step(self, action: Any) -> Any:
        """Take an action."""
        return call(self._shown, "step", self.env.step, action)


def make_one(recipe: Recipe, thing: Any = None) -> Any:
    """Make one env; a `UsageError` says why it cannot be made."""
    given = arguments(recipe.kwargs)
    if "human" in str(given.get("render_mode")):
        raise UsageError(
            f"`--world.kwargs` has render_mode={given['render_mode']}, which {OUTSIDE['HumanRendering']}: leave it out."
        )
    user_code.check_named(given)  # Gymnasium's adapters of other libraries import what an argument names
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that another version is newer
            env = gymnasium.make(recipe.name, **given) if thing is None else _from_object(recipe, thing, given)
    except (XladderError, error.Error, ImportError):
        raise
    except (Exception, SystemExit) as reason:
        hint = " Its arguments are `--world.kwargs`." if isinstance(reason, TypeError) else " Fix that in the world."
        raise UsageError(f"`{recipe.shown}` fails when it is made: {located(reason)}.{hint}") from reason
    for text in recipe.wrappers:
        wrap = _wrapper(text, env.observation_space)
        try:
            env = wrap(env)
        except XladderError:
            raise
        except (Exception, SystemExit) as reason:
            raise UsageError(f"The wrapper `{text}` cannot wrap `{recipe.shown}`: {located(reason)}.") from reason
    return env


def _from_object(recipe: Recipe, thing: Any, given: dict[str, Any]) -> Any:
    """An env from a class or function, which is called, a spec, or an env, which is copied."""
    if isinstance(thing, gymnasium.envs.registration.EnvSpec):
        return gymnasium.make(thing, **given)
    if not isinstance(thing, gymnasium.Env):
        made = thing(**given)
        if not isinstance(made, gymnasium.Env):
            raise UsageError(f"`{recipe.shown}` makes {type(made).__name__}, which is not an environment of Gymnasium.")
        return made
    if given:
        raise user_code.made_already(recipe.shown)
    try:
        return copy.deepcopy(thing)
    except (Exception, SystemExit) as reason:
        raise UsageError(
            f"`{recipe.shown}` is one environment, and every env has to be its own, but it cannot be copied: "
            f"{brief(reason)}. Pass a function that makes one: `xladder.train(make_env)`."
        ) from reason


def _wrapper(text: str, seen: gymnasium.Space) -> Callable[[Any], Any]:
    """The wrapper `Name`, `module:Name` or `Name(key=value)`, as a function of an env with these observations."""
    parts = CALL.fullmatch(text)
    try:
        tree: Any = ast.parse(f"f({parts['arguments'] or ''})" if parts else "", mode="eval").body
        values = [ast.literal_eval(value) for value in tree.args]
        named = {word.arg: ast.literal_eval(word.value) for word in tree.keywords}
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise UsageError(
            f"`--world.wrappers` has `{text}`, but it has to be `Name`, `Name(key=value)` or `module:Name`, such as "
            "`FlattenObservation` or `my_wrappers:Grey`."
        ) from None
    name = parts["name"] if parts else ""
    if ":" in name:
        return partial(_call_after, user_code.find(name, "wrapper"), values, named)
    if name in OUTSIDE:
        raise UsageError(f"`--world.wrappers` has `{name}`, which {OUTSIDE[name]}: leave it out.")
    if name not in wrappers.__all__:
        raise unknown("wrapper of Gymnasium", name, wrappers.__all__)
    user_code.check_named([values, named])
    sizes = [abs(number) for number in numbers_in([values, named]) if abs(number) > 1]
    # An observation grows at most with the product of its wrapper's numbers, and is allocated when that is made.
    if name not in WITHOUT_SIZES and math.prod(sizes, start=_count(seen)) > MOST_NUMBERS:
        raise UsageError(
            f"`--world.wrappers` has `{text}`, whose observations could have more than {MOST_NUMBERS:,} numbers: make "
            "its arguments smaller."
        )
    return partial(_call_after, getattr(wrappers, name), values, named)


def _count(space: gymnasium.Space) -> int:
    """How many numbers an observation has; 1 if it has none of a known number."""
    if isinstance(space, gymnasium.spaces.Dict):
        return sum(map(_count, space.values()))
    if isinstance(space, gymnasium.spaces.Tuple):
        return sum(map(_count, space))
    return math.prod(space.shape or ())


def _call_after(wrap: Callable[..., Any], values: list[Any], named: dict[str, Any], env: Any) -> Any:
    return wrap(env, *values, **named)
