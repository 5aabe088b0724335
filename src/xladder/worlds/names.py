"""The names of worlds as users type them: `cartpole`, `minatar/breakout`, `atari/pong`, `gym/ID`, `flow/module:Name`.

Names are compared without regard to case, `-`, `_` and spaces, so `atari/SpaceInvaders` is `atari/space_invaders`, and
gymnax's own ids are understood, too. The table here is written by hand: importing this module imports neither JAX nor
any package of worlds, and a test compares the table with them.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from xladder import user_code
from xladder.errors import CONTINUOUS, UsageError, nearest
from xladder.fingerprints import fingerprint


@dataclass(frozen=True)
class GymnaxWorld:
    """A gymnax world that the value learners support."""

    name: str
    id: str
    """gymnax's id."""
    shape: tuple[int, ...]
    """Of one frame, as it is stored: a vector, or an image [height, width, channels]."""
    actions: int
    summary: str
    dtype: Literal["float32", "uint8"] = "float32"


Source = Literal["gymnax", "atari", "gym", "jax", "marl", "zoo", "flow"]


class Place(NamedTuple):
    """Where a world comes from."""

    source: Source
    id: str
    """Its name there."""
    name: str
    """Its name here, spelled as in `xladder worlds`."""


GYMNAX = {
    world.name: world
    for world in [
        GymnaxWorld("cartpole", "CartPole-v1", (4,), 2, "balance a pole on a cart, 500 steps"),
        GymnaxWorld("acrobot", "Acrobot-v1", (6,), 3, "swing two links up by their joint"),
        GymnaxWorld("mountaincar", "MountainCar-v0", (2,), 3, "rock a weak car out of a valley"),
        GymnaxWorld("catch", "Catch-bsuite", (50,), 3, "move a paddle under a falling ball"),
        GymnaxWorld("deepsea", "DeepSea-bsuite", (64,), 2, "dive 8 steps: only one path pays"),
        GymnaxWorld("memorychain", "MemoryChain-bsuite", (3,), 2, "recall a bit shown at the start"),
        GymnaxWorld("umbrellachain", "UmbrellaChain-bsuite", (3,), 2, "one early choice pays 10 steps later"),
        GymnaxWorld("discountingchain", "DiscountingChain-bsuite", (2,), 5, "choose once between delayed rewards"),
        GymnaxWorld("simplebandit", "SimpleBandit-bsuite", (1,), 11, "11 arms, shuffled before every pull"),
        GymnaxWorld("fourrooms", "FourRooms-misc", (4,), 4, "walk to a goal through four rooms"),
        GymnaxWorld("metamaze", "MetaMaze-misc", (15,), 4, "find a maze's hidden goal repeatedly"),
        GymnaxWorld("bernoullibandit", "BernoulliBandit-misc", (4,), 2, "2 arms with new odds in every game"),
        GymnaxWorld("gaussianbandit", "GaussianBandit-misc", (4,), 2, "a safe arm and one of unknown mean"),
        GymnaxWorld("pong", "Pong-misc", (30, 40, 3), 3, "a rally against a computed opponent", "uint8"),
        GymnaxWorld("frozenlake", "FrozenLake-misc", (16,), 4, "cross slippery ice between holes"),
        GymnaxWorld("minatar/asterix", "Asterix-MinAtar", (10, 10, 4), 5, "gather gold and dodge enemies", "uint8"),
        GymnaxWorld("minatar/breakout", "Breakout-MinAtar", (10, 10, 4), 3, "break bricks with a ball", "uint8"),
        GymnaxWorld("minatar/freeway", "Freeway-MinAtar", (10, 10, 7), 3, "cross a road among cars", "uint8"),
        GymnaxWorld("minatar/seaquest", "Seaquest-MinAtar", (10, 10, 10), 6, "rescue divers by submarine", "uint8"),
        GymnaxWorld(
            "minatar/spaceinvaders", "SpaceInvaders-MinAtar", (10, 10, 6), 4, "shoot aliens before they land", "uint8"
        ),
    ]
}

# What custom worlds have to define, by source; the first that fits.
APIS = {
    "jax": ("reset_env", "step_env"),
    "marl": ("reset", "step_env"),
    "flow": ("forward_mask", "backward_mask", "log_reward"),
    "zoo": ("possible_agents", "reset", "step"),
}
GYMNASIUM = ("reset", "step", "unwrapped", "metadata", "render")
"""What Gymnasium's environments have."""
SORREL = ("take_turn", "setup_agents", "populate_environment")
"""What sorrel's environments have."""
FLOW_WORLDS = {
    "hypergrid": "a GFlowNet learns to sample the cells of a grid in proportion to their reward",
    "dags": "a GFlowNet learns the posterior over the structure of a Bayesian network, edge by edge",
    "bits": "a GFlowNet learns to sample sequences of bits near hidden ones, word by word",
    "ising": "a GFlowNet learns to sample lattices of spins by their Boltzmann weight, spin by spin",
    "sets": "a GFlowNet learns to sample sets in proportion to their reward, item by item",
    "sequences": "a GFlowNet learns to sample sequences in proportion to their values in a table of yours",
}
"""The built-in worlds in which objects are built step by step → what is learned there."""
WORLDS_OF_OUR_OWN = ("treasurehunt", "cleanup", "tag", "iowa", *FLOW_WORLDS)
_CONTINUOUS = "continuous actions, but value learners need discrete ones. " + CONTINUOUS.removesuffix(".")
# gymnax ids that are not supported, and why.
GYMNAX_LEFT_OUT = {
    "MNISTBandit-bsuite": "it downloads its images when it is made, and needs the network",
    "Pendulum-v1": _CONTINUOUS,
    "MountainCarContinuous-v0": _CONTINUOUS,
    "PointRobot-misc": _CONTINUOUS,
    "Reacher-misc": _CONTINUOUS,
    "Swimmer-misc": _CONTINUOUS,
}

ATARI_GAMES = tuple(
    """
    adventure air_raid alien amidar assault asterix asteroids atlantis atlantis2 backgammon bank_heist basic_math
    battle_zone beam_rider berzerk blackjack bowling boxing breakout carnival casino centipede chopper_command
    crazy_climber crossbow darkchambers defender demon_attack donkey_kong double_dunk earthworld elevator_action enduro
    entombed et fishing_derby flag_capture freeway frogger frostbite galaxian gopher gravitar hangman haunted_house
    hero human_cannonball ice_hockey jamesbond journey_escape kaboom kangaroo keystone_kapers king_kong klax koolaid
    krull kung_fu_master laser_gates lost_luggage mario_bros miniature_golf montezuma_revenge mr_do ms_pacman
    name_this_game othello pacman phoenix pitfall pitfall2 pong pooyan private_eye qbert riverraid road_runner robotank
    seaquest sir_lancelot skiing solaris space_invaders space_war star_gunner superman surround tennis tetris
    tic_tac_toe_3d time_pilot trondead turmoil tutankham up_n_down venture video_checkers video_chess video_cube
    video_pinball wizard_of_wor word_zapper yars_revenge zaxxon
    """.split()  # noqa: SIM905 - a hundred quoted names would hide each other
)

JAXMARL = tuple(
    """
    MPE_simple_v3 MPE_simple_tag_v3 MPE_simple_world_comm_v3 MPE_simple_spread_v3 MPE_simple_crypto_v3
    MPE_simple_speaker_listener_v4 MPE_simple_push_v3 MPE_simple_adversary_v3 MPE_simple_reference_v3
    MPE_simple_facmac_v1 MPE_simple_facmac_3a_v1 MPE_simple_facmac_6a_v1 MPE_simple_facmac_9a_v1 switch_riddle SMAX
    HeuristicEnemySMAX LearnedPolicyEnemySMAX ant_4x2 halfcheetah_6x1 hopper_3x1 humanoid_9|8 walker2d_2x3 storm
    storm_2p storm_np hanabi overcooked overcooked_v2 coin_game jaxnav JaxRobotarium_navigation
    JaxRobotarium_discovery JaxRobotarium_material_transport JaxRobotarium_warehouse JaxRobotarium_arctic_transport
    JaxRobotarium_foraging JaxRobotarium_rware JaxRobotarium_predator_prey
    """.split()  # noqa: SIM905
)
"""JaxMARL's worlds."""
PETTINGZOO = {
    "sisl": "multiwalker_v9 pursuit_v5",
    "butterfly": "cooperative_pong_v6 knights_archers_zombies_v11 pistonball_v6",
    "atari": "basketball_pong_v3 boxing_v2 combat_plane_v2 combat_tank_v2 double_dunk_v3 entombed_competitive_v3 "
    "entombed_cooperative_v3 flag_capture_v2 foozpong_v3 ice_hockey_v2 joust_v3 mario_bros_v3 maze_craze_v3 othello_v3 "
    "pong_v3 quadrapong_v4 space_invaders_v2 space_war_v2 surround_v2 tennis_v3 video_checkers_v4 volleyball_pong_v3 "
    "warlords_v3 wizard_of_wor_v3",
    "classic": "rps_v2",
}
"""PettingZoo's modules with its parallel API, by the package they are in."""
IN_GYMNASIUM = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0", "FrozenLake-v1")
"""Gymnasium's ids of worlds that gymnax has as well."""

# Games that ale-py has files for but cannot play alone. Trying to ends the whole process.
ATARI_LEFT_OUT = ("combat", "joust", "maze_craze", "warlords")
ATARI_LEFT_OUT_WHY = "needs two players; the emulator has no single-player version"


def name_of(thing: Any) -> str:
    """The name under which an object can be trained; a custom world is registered.

    Args:
        thing: a name; a world with gymnax's, JaxMARL's, PettingZoo's or sorrel's API, or a class or function that makes
            one; a Gymnasium environment or spec.

    Returns:
        A name such as `jax/my_worlds:Maze`, or `jax/my_worlds:Maze@3fa9c2d1` for an object with arguments of its own.
    """
    if isinstance(thing, str):
        return thing
    spec = getattr(thing, "spec", thing)
    if isinstance(getattr(spec, "id", None), str) and hasattr(spec, "entry_point") and not hasattr(thing, "num_envs"):
        return f"gym/{spec.id if _is_registered(spec) else user_code.give(thing, changes=True)}"  # Gymnasium's
    source = source_of(thing)
    return f"{source}/{user_code.give(thing, changes=source == 'gym')}"


def _is_registered(spec: Any) -> bool:
    """Whether a Gymnasium environment is the one that its id stands for: no arguments or wrappers of its own."""
    known = getattr(sys.modules.get("gymnasium"), "registry", {}).get(spec.id)
    if known is None:
        return False
    for name in ("kwargs", "max_episode_steps", "additional_wrappers"):
        given, registered = (getattr(one, name, None) for one in (spec, known))
        if name == "kwargs":
            given = {key: value for key, value in spec.kwargs.items() if key != "render_mode"}
        if fingerprint(given) != fingerprint(registered):
            return False
    return True


def source_of(thing: Any) -> str:
    """The source of a custom world, by its API."""
    made = user_code.instantiate(thing, user_code.shown(thing)) if inspect.isroutine(thing) else thing

    def has(*functions: str) -> bool:
        return all(hasattr(made, function) for function in functions)

    for source, functions in APIS.items():
        if has(*functions):
            return source
    if has(*SORREL):
        return "zoo"  # which gives it PettingZoo's API
    if has(*GYMNASIUM) and has("single_action_space"):
        raise UsageError(
            f"`{user_code.shown(thing)}` is vectorised already: pass one environment, or a function that makes one; "
            "`--world.num-envs` says how many there are."
        )
    if has(*GYMNASIUM):
        return "gym"
    raise UsageError(
        f"`{user_code.shown(thing)}` has none of the APIs xladder supports: gymnax's is `reset_env` and `step_env`, "
        "JaxMARL's `reset` and `step_env`, PettingZoo's `possible_agents`, `reset` and `step`, sorrel's `take_turn`, "
        "Gymnasium's `reset`, `step` and `unwrapped`, and a GFlowNet's `forward_mask`, `backward_mask` and "
        "`log_reward`."
    )


def locate(name: str) -> Place:
    """Where the world of this name comes from. Does not check whether `gym/ID` or `flow/module:Name` exists."""
    family, slash, rest = name.partition("/")
    if not slash and ":" in name:
        name = f"{source_of(user_code.find(name, 'world'))}/{name}"
        family, slash, rest = name.partition("/")
    elif not slash and name in user_code.entry_points("world"):
        _check_not_ours(name)
        name = f"{source_of(user_code.load_entry_point('world', name))}/{name}"
        family, slash, rest = name.partition("/")
    family = family.lower()
    if slash and family == "atari":
        game = find_atari(rest)
        return Place("atari", game, f"atari/{game}")
    if slash and family == "gymnax":
        check_supported(rest)
        known = _GYMNAX.get(_squash(rest))
        return Place("gymnax", known.id, known.name) if known else Place("jax", rest, f"gymnax/{rest}")
    if slash and family == "jaxmarl":
        return Place("marl", rest, f"jaxmarl/{rest}")
    if slash and family in ("gym", "jax", "marl", "zoo", "flow"):
        return Place(cast(Source, family), rest, f"{family}/{rest}")
    _check_other_libraries(name)
    if _squash(name) not in _GYMNAX and _squash(name) in _ATARI:
        game = _ATARI[_squash(name)]
        also = [world for world in GYMNAX if _squash(world) == f"minatar/{_squash(game)}"]
        raise UsageError(
            f"There is no world `{name}`. There {'are' if also else 'is'} "
            + " and ".join(f"`{world}`" for world in [f"atari/{game}", *also])
            + "."
        )
    world = find_gymnax(name)
    return Place("gymnax", world.id, world.name)


def _check_other_libraries(name: str) -> None:
    """Raise a `UsageError` if a name is one of another library's, such as Gymnasium's; the error gives ours."""
    shared = re.sub(r"^((pettingzoo|mpe2?|jaxmarl|sisl|butterfly|classic)[./])+", "", name)
    ours = _SHARED.get(_squash(shared)) or _SHARED.get(_bare(shared))
    if ours and not re.search(r"-v\d+$", name):  # as Gymnasium's names end
        raise UsageError(f"There is no world `{name}`: it is called `{ours}` here.")
    id = re.fullmatch(r"((?:[A-Za-z0-9_]+/)?)([A-Za-z0-9-]+?)(?:NoFrameskip|Deterministic)?(?:-ram)?-v\d+", name)
    if id is None or _squash(name) in _GYMNAX or any(_squash(name) == _squash(left) for left in GYMNAX_LEFT_OUT):
        return
    if known := _GYMNAX.get(_squash(id[1] + id[2])):  # `MinAtar/Breakout-v1`
        if any(_squash(name) == _squash(other) for other in IN_GYMNASIUM):
            raise UsageError(
                f"There is no world `{name}`: gymnax's is called `{known.name}` here, and Gymnasium's `gym/{name}`."
            )
        raise UsageError(f"There is no world `{name}`: it is called `{known.name}` here.")
    if id[1].lower() == "ale/" or (not id[1] and _squash(id[2]) in _ATARI):
        raise UsageError(
            f"There is no world `{name}`: it is called `atari/{find_atari(id[2])}` here. Frame skip and sticky actions "
            "are those of a protocol (`--protocol`), or `--world` settings."
        )
    raise UsageError(f"There is no world `{name}`: if it is one of Gymnasium's, it is called `gym/{name}` here.")


def also_in_gymnasium(name: str) -> str:
    """What to say where a name is Gymnasium's id as much as gymnax's, as a sentence; else an empty string."""
    id = next((id for id in IN_GYMNASIUM if _squash(id) == _squash(name)), None)
    if id is None or _squash(name) not in _GYMNAX:
        return ""
    return f"`{name}` is gymnax's, `{_GYMNAX[_squash(name)].name}`; Gymnasium's is `gym/{id}`."


def find_gymnax(name: str) -> GymnaxWorld:
    """A gymnax world, by its name here or its id there."""
    check_supported(name)
    if _squash(name) not in _GYMNAX:
        raise _unknown_world(name)
    return _GYMNAX[_squash(name)]


def check_supported(name: str) -> None:
    """Raise a `UsageError` if a name is that of a gymnax world which is left out, with or without its version."""
    squashed = _squash(name)
    for left_out, reason in GYMNAX_LEFT_OUT.items():
        if squashed in (_squash(left_out), _squash(left_out.split("-")[0])):
            near = difflib.get_close_matches(squashed, _GYMNAX, n=1, cutoff=0.5)
            hint = f" The nearest supported one is `{_GYMNAX[near[0]].name}`." if near else f" {_LISTED}"
            raise UsageError(f"gymnax's `{left_out}` is not supported: {reason}.{hint}")


def find_atari(game: str) -> str:
    """The name of an Atari game as the emulator spells it; the prefix `atari/` is optional."""
    bare = game.partition("/")[2] if game.lower().startswith("atari/") else game
    squashed = _squash(bare)
    for left_out in ATARI_LEFT_OUT:
        if squashed == _squash(left_out):
            raise UsageError(f"`atari/{left_out}` {ATARI_LEFT_OUT_WHY}. Choose another game, such as `atari/breakout`.")
    if squashed not in _ATARI:
        near = nearest(squashed, _ATARI, 0.65)
        hint = f" Did you mean `{_ATARI[near]}`?" if near else ""
        raise UsageError(f"There is no Atari game `{bare}`.{hint} `xladder worlds atari` lists all {len(_ATARI)}.")
    return _ATARI[squashed]


def _check_not_ours(name: str) -> None:
    """Raise a `UsageError` if an installed package has a world of the same name as ours."""
    if name in WORLDS_OF_OUR_OWN or _squash(name) in _GYMNAX:
        point = user_code.entry_points("world")[name]
        raise UsageError(
            f"`{name}` is both a world of xladder and one of an installed package: name the latter as `{point.value}`."
        )


class UnknownWorld(UsageError):
    """No world has this name."""


def _unknown_world(name: str) -> UnknownWorld:
    """The error for an unknown name: the nearest match and where to look, but not a hundred names."""
    spellings = {_squash(known): known for known in WORLDS_OF_OUR_OWN}
    spellings |= {spelling: f"atari/{game}" for spelling, game in _ATARI.items()}
    spellings |= {spelling: world.name for spelling, world in _GYMNAX.items()}
    group = sorted(world.name for world in _GYMNAX.values() if world.name.startswith(f"{name.rstrip('/')}/"))
    near = nearest(_squash(name), spellings, 0.65)
    hint = f" Did you mean `{spellings[near]}`?" if near else ""
    hint = f" Did you mean one of {', '.join(dict.fromkeys(group))}?" if group else hint
    worlds = [*WORLDS_OF_OUR_OWN, *(f"atari/{game}" for game in ATARI_GAMES), *GYMNAX]
    same = [world for world in worlds if _same_game(world, name)]
    hint = f" Did you mean {' or '.join(f'`{world}`' for world in same)}?" if same and not group else hint
    kinds = ", ".join([*WORLDS_OF_OUR_OWN, "gymnax's worlds such as cartpole", "atari/GAME", "gym/ID", "jaxmarl/NAME"])
    return UnknownWorld(f"There is no world `{name}`.{hint} There are {kinds} and module:Name of your own. {_LISTED}")


def _same_game(world: str, name: str) -> bool:
    """Whether a name is that of a world but for its group: `minatar/pong`."""
    return "/" in name and _squash(world.rpartition("/")[2]) == _squash(name.rpartition("/")[2])


def _squash(name: str) -> str:
    return re.sub(r"[-_\s]", "", name.lower())


def _bare(name: str) -> str:
    """A squashed name without its version and without `MPE_`."""
    return _squash(re.sub(r"(?i)^mpe_|_v\d+$", "", name))


_LISTED = "`xladder worlds` lists all."
_GYMNAX = {_squash(spelling): world for world in GYMNAX.values() for spelling in (world.id, world.name)}
_ATARI = {_squash(game): game for game in ATARI_GAMES}
_ZOO = {name: place for place, modules in PETTINGZOO.items() for name in modules.split()}
_SHARED = (
    # Without versions first, so that a whole name wins. PettingZoo's Atari games are named only with theirs.
    {_bare(name): f"zoo/pettingzoo.{place}.{name}:parallel_env" for name, place in _ZOO.items() if place != "atari"}
    | {_bare(name): f"jaxmarl/{name}" for name in reversed(JAXMARL)}
    | {_squash(name): f"zoo/pettingzoo.{place}.{name}:parallel_env" for name, place in _ZOO.items()}
    | {_squash(name): f"jaxmarl/{name}" for name in JAXMARL}
)
