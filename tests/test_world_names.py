"""Names of worlds: the tables say what the packages say, spellings are understood, and errors show a way out."""

import ast
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import gymnax
import jax
import numpy as np
import pytest
from ale_py import ALEInterface, roms

from xladder import user_code
from xladder.cli.main import split_workload
from xladder.errors import UsageError
from xladder.worlds import names


def test_reading_the_names_imports_nothing_heavy():
    code = (
        "import sys, xladder.worlds.names;"
        "print([m for m in ('jax', 'gymnax', 'ale_py', 'gymnasium', 'numpy') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_every_world_of_gymnax_is_named_or_left_out_for_a_reason():
    named = [world.id for world in names.GYMNAX.values()]
    assert len(set(named)) == len(named)
    assert sorted([*named, *names.GYMNAX_LEFT_OUT]) == sorted(gymnax.registered_envs)


@pytest.mark.parametrize("world", names.GYMNAX.values(), ids=lambda world: world.name)
def test_gymnax_agrees_on_what_is_said_of_a_world(world):
    environment, params = gymnax.make(world.id)
    observation, _ = jax.eval_shape(lambda key: environment.reset_env(key, params), jax.random.key(0))
    # An index is shown as one-hot, and boards are laid flat; pictures stay.
    size = environment.observation_space(params).n if observation.ndim == 0 else observation.size
    assert world.shape == (observation.shape if world.dtype == "uint8" else (size,))
    assert world.actions == environment.action_space(params).n
    assert len(world.summary) <= 60


@pytest.mark.parametrize("left_out", [name for name, why in names.GYMNAX_LEFT_OUT.items() if "continuous" in why])
def test_what_is_left_out_for_continuous_actions_has_them(left_out):
    environment, params = gymnax.make(left_out)
    assert np.issubdtype(environment.action_space(params).dtype, np.floating)


def test_games_are_those_in_the_wheel_that_the_emulator_plays():
    assert list(names.ATARI_GAMES) == sorted(set(names.ATARI_GAMES))
    assert {*names.ATARI_GAMES, *names.ATARI_LEFT_OUT} == set(roms.get_all_rom_ids())
    playable = [game for game in roms.get_all_rom_ids() if ALEInterface.isSupportedROM(roms.get_rom_path(game))]
    assert set(playable) == set(names.ATARI_GAMES)


@pytest.mark.parametrize(
    ("typed", "family", "there", "here"),
    [
        ("cartpole", "gymnax", "CartPole-v1", "cartpole"),
        ("CartPole-v1", "gymnax", "CartPole-v1", "cartpole"),
        ("mountain_car", "gymnax", "MountainCar-v0", "mountaincar"),
        ("minatar/Space-Invaders", "gymnax", "SpaceInvaders-MinAtar", "minatar/spaceinvaders"),
        ("Breakout-MinAtar", "gymnax", "Breakout-MinAtar", "minatar/breakout"),
        ("pong", "gymnax", "Pong-misc", "pong"),
        ("atari/pong", "atari", "pong", "atari/pong"),
        ("atari/SpaceInvaders", "atari", "space_invaders", "atari/space_invaders"),
        ("atari/space-invaders", "atari", "space_invaders", "atari/space_invaders"),
        ("Atari/TicTacToe3D", "atari", "tic_tac_toe_3d", "atari/tic_tac_toe_3d"),
        ("gym/LunarLander-v3", "gym", "LunarLander-v3", "gym/LunarLander-v3"),
        ("Gym/LunarLander-v3", "gym", "LunarLander-v3", "gym/LunarLander-v3"),
        ("JAX/my_worlds:Maze", "jax", "my_worlds:Maze", "jax/my_worlds:Maze"),
        ("Marl/my_worlds:Maze", "marl", "my_worlds:Maze", "marl/my_worlds:Maze"),
        ("JaxMARL/switch_riddle", "marl", "switch_riddle", "jaxmarl/switch_riddle"),
        ("Zoo/my_worlds:Maze", "zoo", "my_worlds:Maze", "zoo/my_worlds:Maze"),
        ("Flow/bits", "flow", "bits", "flow/bits"),
        ("Gymnax/CartPole-v1", "gymnax", "CartPole-v1", "cartpole"),
        ("Gymnax/Other-v0", "jax", "Other-v0", "gymnax/Other-v0"),
        ("gym/phys2d/CartPole-v1", "gym", "phys2d/CartPole-v1", "gym/phys2d/CartPole-v1"),
    ],
)
def test_spellings_lead_to_one_place(typed, family, there, here):
    assert names.locate(typed) == (family, there, here)
    assert names.locate(here) == (family, there, here)


def test_a_module_behind_a_prefix_in_capitals_was_named_by_the_user():
    assert user_code.modules_in(["JAX/my_worlds:Maze"]) == ["my_worlds"]


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (
            "cartpol",
            "no world `cartpol`. Did you mean `cartpole`? There are treasurehunt, cleanup, tag, iowa, hypergrid",
        ),
        ("breakout", "There are `atari/breakout` and `minatar/breakout`."),
        ("MsPacman", "There is `atari/ms_pacman`."),
        ("atari/brekout", "no Atari game `brekout`. Did you mean `breakout`?"),
        ("atari/combat", "needs two players"),
        ("pendulum", "`Pendulum-v1` is not supported: continuous actions"),
        ("MountainCarContinuous", "The nearest supported one is `mountaincar`."),
        ("MNISTBandit-bsuite", "needs the network"),
    ],
)
def test_wrong_names_are_answered_with_a_way_out(typed, said):
    with pytest.raises(UsageError, match=re.escape(said)):
        names.locate(typed)


def package_of(name):
    """The folder of a package that is not imported, which would take seconds."""
    return Path(find_spec(name).submodule_search_locations[0])


def test_jaxmarls_worlds_are_those_it_registers():
    tree = ast.parse((package_of("jaxmarl") / "registration.py").read_text())
    [registered] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "registered_envs"
    ]
    assert set(names.JAXMARL) == set(ast.literal_eval(registered))


def test_pettingzoos_worlds_are_those_that_have_its_parallel_api():
    found = {
        (file.parent.name, file.stem)
        for file in package_of("pettingzoo").glob("*/*_v*.py")
        if "parallel_env" in file.read_text()
    }
    assert found == {(place, name) for place, modules in names.PETTINGZOO.items() for name in modules.split()}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("CartPole-v1", "`CartPole-v1` is gymnax's, `cartpole`; Gymnasium's is `gym/CartPole-v1`.\n"),
        ("mountaincar-v0", "`mountaincar-v0` is gymnax's, `mountaincar`; Gymnasium's is `gym/MountainCar-v0`.\n"),
        ("cartpole", ""),
        ("CartPole-v1 --host-id 1", ""),
        ("gym/CartPole-v1", ""),
        ("Catch-bsuite", ""),
    ],
)
def test_an_id_that_is_gymnasiums_too_is_said_to_be_gymnaxs(typed, said, capsys):
    split_workload(typed.split(), "train")
    assert capsys.readouterr().err == said
