"""`xladder.make`: a world of ours as an environment with the API of your choice. Imports nothing heavy by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

from xladder.apis.interface import Observations
from xladder.core.packages import is_installed, missing_extra
from xladder.errors import UsageError, unknown
from xladder.families.multi_agent.config import Config as MultiAgentConfig
from xladder.families.value.config import ValueConfig
from xladder.plans import Plan, plan
from xladder.protocols import Config
from xladder.worlds import names

Api = Literal["pettingzoo", "pettingzoo-aec", "gymnasium", "jaxmarl", "gymnax"]
EXTRAS = {"pettingzoo": "zoo", "gymnasium": "gym", "jaxmarl": "jaxmarl", "gymnax": "gymnax"}
ELSEWHERE = {"gym": "gymnasium", "zoo": "pettingzoo", "parallel": "pettingzoo", "aec": "pettingzoo-aec"}
FOR_ONE = {"gymnasium": "pettingzoo", "gymnax": "jaxmarl"}
"""APIs for one agent → the one for several."""
IN_JAX = ("jaxmarl", "gymnax")
OF_OTHERS = {
    "gym": "it is one of Gymnasium's already: use `gymnasium.make`",
    "zoo": "it has PettingZoo's API already: call it yourself",
    "atari": "its emulator has Gymnasium's API already: `import ale_py` and use `gymnasium.make`",
}
"""Sources of worlds that live on the host and have an API of their own."""


class Request(NamedTuple):
    """What an environment is made of."""

    name: str
    world: Any
    """The settings of the world."""
    turns: bool
    """Whether its agents take turns."""
    observations: Observations
    render_mode: str | None


def make(
    workload: str | object,
    api: Api,
    *,
    preset: str = "default",
    config: Config | None = None,
    observations: Observations = "encoded",
    render_mode: str | None = None,
    imports: Sequence[str] = (),
    **settings: Any,
) -> Any:
    """Make a world as an environment that other people's code can step.

    Where agents take turns, `pettingzoo-aec` lets them act one after another, and a setting of the world,
    `observe`, says whether they see each other's moves. In the other APIs all observe, then all move in order.

    Args:
        workload: The name of a world, such as `"treasurehunt"`, `"cartpole"` or `"jaxmarl/MPE_simple_spread_v3"`, or a
            world of your own, as for `xladder.train`.
        api: `"pettingzoo"` (parallel), `"pettingzoo-aec"`, `"gymnasium"`, `"jaxmarl"` or `"gymnax"`.
        preset: The named settings to start from.
        config: Settings to start from instead: a config object of the workload, such as `xladder.load(run).config`.
        observations: Of worlds with turns: `"encoded"`, the vector that our networks are given for a view, or
            `"codes"`, a small integer per visible cell, as a trained policy of ours takes them.
        render_mode: `"rgb_array"`, for the APIs on the host; those in JAX have `render(state)`.
        imports: Modules of your own to import first.
        **settings: Fields of the config as in `xladder.train`, nested ones as dicts: `world={"num_agents": 3}`. Only
            those of the world matter here.

    Returns:
        A PettingZoo `ParallelEnv` or `AECEnv`, a Gymnasium `Env`, a JaxMARL `MultiAgentEnv` or a gymnax `Environment`.

    Raises:
        UsageError: An invalid name or value, an API that does not suit the world, or a missing package.
    """
    if right := ELSEWHERE.get(str(api)):
        raise UsageError(f"There is no API `{api}`: it is called `{right}` here.")
    if api not in get_args(Api):
        raise unknown("API", str(api), get_args(Api))
    if observations not in get_args(Observations):
        raise UsageError(f"`observations` is {observations!r}, but it has to be encoded or codes.")
    if render_mode not in (None, "rgb_array"):
        raise UsageError(f"`render_mode` is {render_mode!r}, but it has to be rgb_array or None.")
    if render_mode and api in IN_JAX:
        raise UsageError(f"`render_mode` is not for `{api}`, whose states are arrays: call `render(state)` instead.")
    package = api.partition("-")[0]
    if not is_installed(package):
        raise missing_extra(package, EXTRAS[package])
    planned = partial(plan, workload, preset=preset, config=config, imports=imports)
    found = planned(**settings).config
    request = Request(found.name, *_world_of(found, api, settings), observations, render_mode)
    agents = request.world.num_agents if request.turns else max(1, len(request.world.agents))
    if api in FOR_ONE and agents > 1:
        alone = request.turns and _takes_one(planned, settings)
        only = ": set `world={'num_agents': 1}`, or use" if alone else ": use"
        raise UsageError(f"`{found.name}` has {agents} agents, and `{api}` is for one{only} `{FOR_ONE[api]}`.")
    return MAKERS[api](request)


def _takes_one(planned: Callable[..., Plan], settings: Mapping[str, Any]) -> bool:
    """Whether a world with turns can have a single agent."""
    try:
        planned(**{**settings, "world": {**(settings.get("world") or {}), "num_agents": 1}})
    except UsageError:
        return False
    return True


def _world_of(config: Config, api: str, settings: Any) -> tuple[Any, bool]:
    """The settings of a world, suited to an API, and whether its agents take turns."""
    if isinstance(config, MultiAgentConfig):
        if api != "pettingzoo-aec":
            given = settings.get("world", {})
            if isinstance(given, dict) and given.get("observe") == "in_turn":
                raise UsageError(
                    f"`world.observe` is in_turn, but in `{api}` all agents act at once, and so observe together: use "
                    "`pettingzoo-aec`."
                )
            return replace(config.world, observe="together"), True  # type: ignore[type-var]
        return config.world, True
    if not isinstance(config, ValueConfig):
        raise UsageError(
            f"`{config.name}` is not an environment in which rewards are collected: a GFlowNet samples its objects in "
            "proportion to their reward. Its API is `xladder.worlds.flow.FlowWorld`."
        )
    source = names.locate(config.name).source
    if not config.world.jittable:
        raise UsageError(f"`{config.name}` is not a world of xladder: {OF_OTHERS[source]}.")
    changes = {"num_envs": 1, "shared": False}
    known = {field.name for field in fields(config.world)}
    return replace(config.world, **{name: value for name, value in changes.items() if name in known}), False


def _host_game(request: Request) -> Any:
    from xladder.apis.host_games import HostTurnGame, HostValueGame

    if request.turns:
        return HostTurnGame(request.world, request.observations)
    return HostValueGame(request.name, request.world)


def _jax_game(request: Request) -> Any:
    from xladder.apis.jax_games import TurnGame, ValueGame

    if request.turns:
        return TurnGame(request.world, request.observations)
    return ValueGame(request.name, request.world.inside(0))


def _parallel(request: Request) -> Any:
    from xladder.apis.pettingzoo_parallel import ParallelGame

    return ParallelGame(_host_game(request), request.name, request.render_mode)


def _aec(request: Request) -> Any:
    if not request.turns:
        from pettingzoo.utils.conversions import parallel_to_aec

        return parallel_to_aec(_parallel(request))
    from xladder.apis.pettingzoo_aec import TurnGame

    return TurnGame(_host_game(request), request.name, request.render_mode)


def _gymnasium(request: Request) -> Any:
    from xladder.apis.gymnasium_env import GymnasiumEnv

    return GymnasiumEnv(_host_game(request), request.render_mode)


def _jaxmarl(request: Request) -> Any:
    from xladder.apis.jaxmarl_env import JaxMARLEnv

    return JaxMARLEnv(_jax_game(request), request.name)


def _gymnax(request: Request) -> Any:
    from xladder.apis.gymnax_env import GymnaxEnv, MaskedGymnaxEnv

    game = _jax_game(request)
    return (MaskedGymnaxEnv if game.interface.masked else GymnaxEnv)(game, request.name)


MAKERS: dict[str, Callable[[Request], Any]] = {
    "pettingzoo": _parallel,
    "pettingzoo-aec": _aec,
    "gymnasium": _gymnasium,
    "jaxmarl": _jaxmarl,
    "gymnax": _gymnax,
}
