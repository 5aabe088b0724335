"""Names that other libraries use: an error gives ours, in one sentence."""

import re

import pytest

from xladder.cli import compare, help_page, inspect, parity, sweep, train
from xladder.cli.main import COMMANDS, main
from xladder.cli.options import _flags_of, check_flags
from xladder.errors import UsageError
from xladder.families.value import presets as named
from xladder.foreign_names import COMMANDS_ELSEWHERE, NAMES, field_names
from xladder.registry import find_workload
from xladder.settings import updated


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "ALE/Pong-v5",
            "There is no world `ALE/Pong-v5`: it is called `atari/pong` here. Frame skip and",
        ),
        ("SpaceInvadersNoFrameskip-v4", "it is called `atari/space_invaders` here."),
        ("BreakoutDeterministic-v4", "it is called `atari/breakout` here."),
        ("MsPacman-v5", "it is called `atari/ms_pacman` here."),
        ("ALE/Pongg-v5", "There is no Atari game `Pongg`. Did you mean `pong`?"),
        ("Taxi-v3", "There is no world `Taxi-v3`: if it is one of Gymnasium's, it is called `gym/Taxi-v3` here."),
        ("FrozenLake-v1", "gymnax's is called `frozenlake` here, and Gymnasium's `gym/FrozenLake-v1`."),
        ("MPE_simple_spread_v3", "it is called `jaxmarl/MPE_simple_spread_v3` here."),
        ("simple_spread_v3", "it is called `jaxmarl/MPE_simple_spread_v3` here."),
        ("mpe/simple_tag_v2", "it is called `jaxmarl/MPE_simple_tag_v3` here."),
        ("overcooked", "There is no world `overcooked`: it is called `jaxmarl/overcooked` here."),
        ("overcooked_v2", "it is called `jaxmarl/overcooked_v2` here."),
        ("pursuit_v5", "it is called `zoo/pettingzoo.sisl.pursuit_v5:parallel_env` here."),
        ("pettingzoo.sisl.pursuit_v4", "it is called `zoo/pettingzoo.sisl.pursuit_v5:parallel_env` here."),
        ("pistonball_v6", "it is called `zoo/pettingzoo.butterfly.pistonball_v6:parallel_env` here."),
        ("cartpole --preset iqm", "There is no preset `iqm`. Did you mean `iqn`?"),
        ("cartpole --config nowhere.json", "`nowhere.json` does not exist: give the config.json of a run."),
        ("--config nowhere.json", "`nowhere.json` does not exist: give the config.json of a run."),
        ("LunarLander-v3", "it is called `gym/LunarLander-v3` here."),
        ("cartpole --learning-rate 1e-3", "There is no `--learning-rate`: it is called `--learner.lr` here."),
        ("cartpole --learning_rate=1e-3", "There is no `--learning_rate`: it is called `--learner.lr` here."),
        ("cartpole --learner.learning-rate 1e-3", "it is called `--learner.lr` here."),
        ("cartpole --lr 1e-3", "There is no `--lr`: it is called `--learner.lr` here."),
        ("cartpole --frames 1000", "`--frames` here: training length is `--steps`, which counts environment steps"),
        ("cartpole --epochs 5", "There is no `--epochs` here: training length is `--steps`, which counts environment"),
        ("hypergrid --epochs 5", "training length is `--iterations`, which counts iterations, each a batch"),
        ("cartpole --total-timesteps 1000", "it is called `--steps` here."),
        ("cartpole --num-envs 4", "it is called `--world.num-envs` here."),
        ("cartpole --buffer-size 1000", "it is called `--learner.memory` here."),
        ("atari/pong --steps 1000", "`--steps` here: training length is `--frames`, which counts frames of all envs"),
        ("treasurehunt --steps 10", "training length is `--epochs`, which counts epochs, each an episode"),
        ("cartpole --batchsize 3", "There is no `--batchsize`: it is called `--learner.batch-size` here."),
        ("cartpole --learningrate 3", "it is called `--learner.lr` here."),
        ("cartpole --gama 0.9", "There is no `--gama` here: did you mean `--learner.gamma`?"),
        ("cartpole --btach-size=3", "did you mean `--learner.batch-size`?"),
        ("cartpole --no-double", "did you mean `--learner.no-double`?"),
        ("cartpole --presett dqn", "There is no `--presett` here: did you mean `--preset`?"),
        ("cartpole --xyzzy 1", "There is no `--xyzzy` here: `xladder train cartpole --help` lists all flags."),
        ("minatar/pong", "There is no world `minatar/pong`. Did you mean `atari/pong` or `pong`?"),
        ("gymnasium/acrobot", "Did you mean `acrobot`?"),
        ("MinAtar/Breakout-v1", "There is no world `MinAtar/Breakout-v1`: it is called `minatar/breakout` here."),
        ("MinAtar/SpaceInvaders-v0", "it is called `minatar/spaceinvaders` here."),
        ("treasurehunt --learning-rate 1e-3", "it is called `--learner.lr` here."),
    ],
)
def test_the_command_line_gives_the_right_name(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", *words.split()]) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "options",
    [train.TrainOptions, compare.CompareOptions, sweep.SweepOptions, inspect.InspectOptions, parity.ParityOptions],
)
def test_no_flag_there_is_is_taken_for_a_typing_error(options):
    config = named.presets("cartpole")["default"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "10000")
        shown = help_page.page("xladder train", "", find_workload("cartpole"), {}, options, config, ["--help-all"])
    words = re.findall(r"^  (?:-\w, )?(--[a-z][\w.-]*)", shown, re.MULTILINE)
    assert len(words) > 50
    check_flags(
        [*words, *(word.replace("--", "--no-", 1) for word in words if "." not in word)],
        set(_flags_of(options)),
        config,
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"learner": {"learning_rate": 1e-3}}, "no field `learner.learning_rate`: it is called `learner.lr` here."),
        ({"learning_rate": 1e-3}, "no field `learning_rate`: it is called `learner.lr` here."),
        ({"gamma": 0.9}, "no field `gamma`: it is called `learner.gamma` here."),
        ({"gama": 0.9}, "There is no field `gama`. Did you mean `learner.gamma`?"),
        ({"batchsize": 9}, "no field `batchsize`: it is called `learner.batch_size` here."),
        ({"total_timesteps": 10}, "it is called `steps` here."),
        ({"world": {"n_envs": 10}}, "no field `world.n_envs`: it is called `world.num_envs` here."),
        ({"learner": {"learning_rat": 1e-3}}, "There is no field `learner.learning_rat`."),
    ],
)
def test_python_gives_the_right_name(changes, said):
    with pytest.raises(UsageError) as error:
        updated(named.presets("cartpole")["default"], changes)
    assert said in str(error.value)


def test_our_own_flags_are_not_taken_for_others():
    from xladder.cli.options import _flags_of, check_flags
    from xladder.cli.train import TrainOptions

    config = named.presets("atari/pong")["default"]
    flags = set(_flags_of(TrainOptions))
    assert {"threads", "seeds", "rung", "out"} <= flags  # `threads` is a setting of the world, too
    words = ["--threads", "2", "--learner.no-double", "--world.threads=3", "--frames", "128", "--seeds", "2"]
    check_flags(words, flags, config)
    with pytest.raises(UsageError):
        check_flags(["--world.frame-stack", "2"], flags, config)


def test_every_name_that_is_given_exists():
    known = {field for world in ("cartpole", "atari/pong") for field in field_names(named.presets(world)["default"])}
    ours = {field for fields in NAMES.values() for field in fields}
    assert ours - known == {"epochs", "iterations"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("list", "There is no command `list`. `xladder runs` lists runs, `xladder worlds` what can be trained."),
        ("fit", "There is no command `fit`. It is called `train` here."),
        ("tune", "It is called `sweep` here."),
        ("sample runs/x --count 5", "There is no `--count`: it is called `--n` here."),
        ("eval runs/x --n-eval-episodes=5", "There is no `--n-eval-episodes`: it is called `--episodes` here."),
        ("plot runs --metric loss", "it is called `--y` here."),
        ("presets iqm", "There is no algorithm or workload `iqm`. Did you mean `iqn`?"),
        ("presets cartpol", "Did you mean `cartpole`?"),
        ("presets zzz", "Algorithms are dqn,"),
        ("version", "`xladder --version` prints it."),
        ("trian", "Did you mean `train`?"),
        ("train cart", "Did you mean `cartpole`?"),
        ("train treasure", "Did you mean `treasurehunt`?"),
    ],
)
def test_commands_and_worlds_that_are_called_otherwise_here(words, said, capsys):
    assert main(words.split()) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["frobnicate", "foo", "doom", "train doom", "train atari/doom", "train cartpole --preset x"]
)
def test_what_resembles_nothing_gets_no_guess(words, capsys):
    assert main(words.split()) == 2
    assert "Did you mean" not in capsys.readouterr().err


def test_every_hint_about_a_command_names_commands_that_exist():
    for hint in COMMANDS_ELSEWHERE:
        named = [word for text in re.findall("`(.*?)`", hint) for word in text.removeprefix("xladder ").split()[:1]]
        assert {word for word in named if word != "--version"} <= {*COMMANDS, "media"}
    assert not {word for others in COMMANDS_ELSEWHERE.values() for word in others.split()} & {*COMMANDS}
