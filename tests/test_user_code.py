"""Names of objects that are passed from Python, and whose code may be imported: only what the user has named."""

import json
import re
import shutil
import subprocess
import sys
from collections import deque

import gymnasium
import jax
import numpy as np
import pytest

import tests.own_nets as nets
import tests.own_worlds as worlds
import xladder
from xladder import user_code
from xladder.cli.main import COMMANDS, main, typed_names
from xladder.errors import DamagedRun, UsageError
from xladder.fingerprints import fingerprint
from xladder.plans import plan
from xladder.runs.directory import RunDirectory
from xladder.runs.folders import command
from xladder.runs.plan_files import read_run_plan
from xladder.worlds import gymnax_world, own_rewards
from xladder.worlds.names import locate, name_of


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """As in a process to which nothing was passed and no module named."""
    monkeypatch.setattr(user_code, "_given", {})
    monkeypatch.setattr(user_code, "_named", {})


# ---- names of installed packages -------------------------------------------------------------------------------------


def test_packages_that_share_a_name_disable_that_name_alone(tmp_path, monkeypatch):
    for package in ("halls", "yards"):
        about = tmp_path / f"{package}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        worlds_of = f"[xladder.worlds]\nmaze = {package}:Maze\n{package} = tests.own_worlds:Corridor\n"
        (about / "entry_points.txt").write_text(worlds_of)
    monkeypatch.syspath_prepend(tmp_path)
    assert locate("cartpole").name == "cartpole"
    assert locate("yards").name == "jax/yards"
    with pytest.raises(UsageError, match=r"call different worlds `maze`: .*(halls|yards):Maze and .*`module:Name`"):
        locate("maze")


def test_a_reward_that_is_no_function_is_named_with_its_type():
    user_code.allow("tests.own_nets")
    with pytest.raises(UsageError, match="NOT_A_TORSO, which is of type int and not a function"):
        own_rewards.find_reward("tests.own_nets:NOT_A_TORSO")


# ---- names of objects ------------------------------------------------------------------------------------------------


def test_what_can_be_found_again_has_the_name_it_is_found_by():
    for thing, name in (
        (worlds.Corridor, "Corridor"),
        (worlds.Corridor(), "Corridor"),
        (worlds.Unhashable(), "Unhashable"),
        (worlds.nine_cells, "nine_cells"),
    ):
        assert user_code.give(thing) == f"tests.own_worlds:{name}"
    assert user_code.give(nets.Torso()) == user_code.give(nets.Torso(width=12)) == "tests.own_nets:Torso"
    assert user_code.give(nets.make_wide) == "tests.own_nets:make_wide"


def test_any_other_object_is_named_by_its_contents_in_whatever_order():
    one, other = worlds.NeedsArguments(7), worlds.NeedsArguments(8)
    names = [user_code.give(thing) for thing in (one, other, worlds.NeedsArguments(7))]
    assert names[0] == names[2] != names[1]
    user_code._given.clear()
    assert [user_code.give(thing) for thing in (other, one)] == [names[1], names[0]]
    assert user_code.find(names[0], "world") is one
    one.cells = 8
    assert user_code.give(one) == names[1], "it is another world now"
    assert user_code.give(worlds.NeedsArguments(7)) != names[0], "under which the changed one is known"
    assert user_code.give(nets.Torso(width=7)).startswith("tests.own_nets:Torso@")
    assert user_code.give(lambda cell: 0.0).startswith("tests.test_user_code:")


def test_contents_are_read_at_any_depth():
    def made(number, array):
        class Local:
            def __init__(self):
                self.parts = {"near": [array, {number}], "itself": self, "f": lambda x: x + number}

        return Local()

    same = [fingerprint(made(3, np.ones(2))) for _ in range(2)]
    assert same[0] == same[1] is not None
    others = [made(4, np.ones(2)), *(made(3, x) for x in (np.zeros(2), np.ones(2, np.float32), deque("a"), deque("b")))]
    others += [made(3, np.random.default_rng(seed)) for seed in (1, 2)] + [made(3, jax.random.key(1))]
    assert len({same[0], *map(fingerprint, others)}) == 9
    unknown = made(3, sys.stdout)  # an open file has no contents that could be compared
    assert fingerprint(unknown) is None and user_code.give(unknown) == user_code.give(unknown)
    assert user_code.give(unknown) != user_code.give(made(3, sys.stdout))


def test_names_are_the_same_in_every_process(tmp_path):
    (tmp_path / "pays.py").write_text("class Pay:\n    def __init__(self, pay=1, to=()): self.pay, self.to = pay, to\n")
    code = "import pays; from xladder.user_code import give; print(give(pays.Pay(5, {'a', 'b'})), give(pays.Pay()))"
    told = [
        subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path[:0] = {[str(tmp_path), *sys.path]}; {code}"],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in "12"
    ]
    assert told[0] == told[1] and told[0].startswith("pays:Pay@") and told[0].endswith(" pays:Pay\n")


def test_a_run_of_an_object_opens_where_the_object_is_and_nowhere_else(tmp_path, capsys):
    world, torso = worlds.NeedsArguments(7), nets.Torso(width=7)
    made = plan(world, learner={"torso": torso, "width": 8}, steps=160)
    RunDirectory.create(tmp_path / "run", made).lock.release()
    assert read_run_plan(tmp_path / "run") == made  # in the same process
    assert "objects=[…]" in command("eval", tmp_path / "run", made)
    with pytest.raises(UsageError, match="exists only in this process"):
        user_code.for_children(made.config.world.name)
    user_code._given.clear()  # as in another process
    gymnax_world.load.cache_clear()
    assert main(["eval", str(tmp_path / "run"), "--import", "tests.own_worlds"]) == 2
    said = capsys.readouterr().err
    assert "a `NeedsArguments` with arguments of its own" in said and "jax/tests.own_worlds:my_world" in said
    user_code.give(worlds.NeedsArguments(7))
    with pytest.raises(UsageError, match=r"The torso `tests\.own_nets:Torso@"):
        read_run_plan(tmp_path / "run")
    with pytest.raises(DamagedRun, match="no trained agents"):  # it was not trained
        xladder.load(tmp_path / "run", objects=[worlds.NeedsArguments(7), nets.Torso(width=7)])
    with pytest.raises(UsageError, match=r"`objects=\[…\]`"):
        xladder.load(tmp_path / "run", objects=world)
    assert plan(worlds.NeedsArguments(7), learner={"torso": nets.Torso(width=7), "width": 8}, steps=160) == made


def test_digests_do_not_depend_on_where_objects_lie_in_memory():
    """Some of what is read is made for that, and the next such object may lie in its place."""
    assert len({fingerprint(gymnasium.make("CartPole-v1", max_episode_steps=9)) for _ in range(5)}) == 1


def test_a_gymnasium_environment_is_what_its_id_stands_for():
    assert name_of(gymnasium.make("CartPole-v1", render_mode="rgb_array")) == "gym/CartPole-v1"
    for made in ({"sutton_barto_reward": True}, {"max_episode_steps": 9}):  # known by what it holds
        env = gymnasium.make("CartPole-v1", **made)
        assert re.fullmatch(r"gym/gymnasium.wrappers.common:\w+@[0-9a-f]{8}", name_of(env)) and name_of(env) == name_of(
            env
        )
        assert name_of(env.spec) == name_of(gymnasium.make("CartPole-v1", **made).spec) != name_of(env)


@pytest.mark.parametrize("kind", [worlds.Unhashable, worlds.UnhashableRace])
def test_worlds_need_not_be_hashable(kind):
    for world in (kind(), kind(bonus=np.ones(2, np.float32))):
        made = plan(world)
        assert made.config.world.spec().actions >= 2 and hash(made.config)


# ---- what may be imported --------------------------------------------------------------------------------------------


@pytest.fixture
def planted(tmp_path, monkeypatch):
    """A folder with a module that must not be imported, and runs which are called like names in it."""
    (tmp_path / "evil.py").write_text("open('imported', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    RunDirectory.create("run", plan(worlds.Corridor, learner={"width": 8}, steps=160)).lock.release()
    RunDirectory.create("cartpole", plan("cartpole", learner={"width": 8}, steps=160)).lock.release()
    user_code._given.clear()
    user_code._named.clear()
    text = (tmp_path / "run" / "config.json").read_text().replace("tests.own_worlds:Corridor", "evil:X")
    torso = json.loads((tmp_path / "cartpole" / "config.json").read_text())
    torso["config"]["learner"]["torso"] = "evil:X"
    for name in ("evil:x", "jax/evil:x", "runs/evil:x"):
        shutil.copytree("run", name)
        (tmp_path / name / "config.json").write_text(text)
    (tmp_path / "evil:torso").write_text(json.dumps(torso))
    yield tmp_path
    sys.modules.pop("evil", None)


READS = [
    "eval {}",
    "resume {}",
    "export {} --to torch --out x.pt",
    "sample {} --out -",
    "plot {} --out p.png",
    "report {} --out r.html",
    "runs {}",
    "diff {} {}",
    "rm {} --yes",
    "train cartpole --from {} --out evil:out --steps 160",
    "train cartpole --config {}/config.json --out evil:out",
    "train cartpole --config evil:torso --name evil:x --out evil:out",
    "parity cartpole --config evil:torso",
    "inspect cartpole --config evil:torso --json evil:x",
    "compare cartpole --config evil:torso",
    "sweep cartpole --config evil:torso --learner.lr 0.1,0.2 --out evil:x",
    "import evil:torso --workload cartpole --config evil:torso --out evil:out",
]


@pytest.mark.parametrize("words", READS)
def test_nothing_that_is_read_names_code_whatever_it_is_called(words, planted, capsys):
    for name in ("evil:x", "jax/evil:x", "runs/evil:x") if "{}" in words else ("",):
        assert typed_names(words.format(name, name).split())[1:] == []
        code = main(words.format(name, name).split())
        said = capsys.readouterr()
        assert "This is a bug" not in said.err
        assert code == 0 or code == 2, said.err
        assert "evil" not in user_code.allowed()
        assert not (planted / "imported").exists() and "evil" not in sys.modules


# Every kind of name that a run can hold, spelled in every way that could slip through.
NAMES = [
    *(f"{source}/evil:CartPole-v1" for source in ("gym", "GYM", "jax", "marl", "zoo", "flow", "gymnax", "jaxmarl")),
    *("evil:X", "gym/os.path:CartPole-v1", "gym/evil:space/CartPole-v1", "gym/evil:1-v1", "gym/evil:CartPole-v1 "),
    *("jax/evil:X@12345678", "gym/evil:evil:X-v0", "evil", "zoo/evil", "atari/evil:x", "atari/../evil"),
]


@pytest.mark.parametrize("place", ["workload", "world", "both", "torso", "reward", "track", "rung"])
def test_no_name_in_a_run_directory_is_imported(place, planted, capsys):
    hypergrid = RunDirectory.create("hypergrid", plan("hypergrid", iterations=2))
    hypergrid.lock.release()
    for name in NAMES[:1] if place in ("track", "rung") else NAMES:
        config = json.loads((planted / ("hypergrid" if place == "reward" else "cartpole") / "config.json").read_text())
        config["rung"] = "parallel" if place in ("workload", "both") else config["rung"]  # which all worlds have
        if place in ("workload", "both"):
            config["workload"] = name
        if place in ("world", "both"):
            config["config"]["world"]["name"] = name
        if place in ("torso", "reward"):
            config["config"]["learner" if place == "torso" else "world"][place] = name
        if place == "track":
            config["run"]["track"] = [name]
        if place == "rung":
            config["rung"] = name
        shutil.rmtree("case", ignore_errors=True)
        shutil.copytree("cartpole", "case")
        (planted / "case" / "config.json").write_text(json.dumps(config))
        commands = ["eval case", "resume case", "runs .", "diff case case", "train cartpole --config case/config.json"]
        for words in commands if name == NAMES[0] else commands[:1]:  # all of them read the config alike
            code = main([*words.split(), *(["--out", "out"] * words.startswith("train"))])
            said = capsys.readouterr().err
            assert code in (0, 2, 3) and "This is a bug" not in said, (name, words, said)
            assert not (planted / "imported").exists() and "evil" not in sys.modules, (name, words)
        assert not (planted / "out").exists()


def test_the_module_xladder_does_not_import_from_the_working_directory(planted):
    """Nor finds packages there, which could name any module as an installed world."""
    about = planted / "evil-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[xladder.worlds]\nmaze = evil:Maze\n")
    (planted / "tyro.py").write_text("import evil")
    text = (planted / "run" / "config.json").read_text().replace("tests.own_worlds:Corridor", "maze")
    (planted / "run" / "config.json").write_text(text)
    done = subprocess.run([sys.executable, "-m", "xladder", "eval", "run"], capture_output=True, text=True)
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert not (planted / "imported").exists()


def test_what_is_typed_as_a_world_torso_or_reward_is_named():
    for words, named in {
        "train jax/a:B --learner.torso c:D --out e:F": ["jax/a:B", "c:D"],
        "sweep a:B --learner.torso=c:D,e:F": ["a:B", "c:D", "e:F"],
        "train hypergrid --world.reward a:b": ["hypergrid", "a:b"],
        "check --json x a:B": ["a:B"],
        "import a:b --workload jax/c:D --out e:F": ["jax/c:D"],
        "launch --hosts 2 train a:B": ["a:B"],
        "launch --hosts 2 resume a:B": [],
        "watch a:B": [],
        "": [],
    }.items():
        assert typed_names(words.split()) == named
    readers = {"eval", "resume", "export", "sample", "plot", "report", "watch", "runs", "rm", "diff"}
    assert not any(typed_names([name, "a:B", "--learner.torso", "a:B"]) for name in readers & {*COMMANDS})


def test_all_modules_that_a_run_needs_are_named_at_once(tmp_path):
    made = plan(worlds.Corridor, learner={"torso": "tests.own_nets:Torso", "width": 8}, steps=160)
    RunDirectory.create(tmp_path / "run", made).lock.release()
    user_code._given.clear()
    user_code._named.clear()
    with pytest.raises(UsageError, match=r"`--import tests.own_worlds --import tests.own_nets` \(in Python: `imports="):
        read_run_plan(tmp_path / "run")
    user_code.allow("tests.own_worlds")
    with pytest.raises(UsageError, match=r"^`tests.own_nets:Torso` is user code.*add `--import tests.own_nets` \("):
        read_run_plan(tmp_path / "run")
    assert user_code.as_flags() == ["--import=tests.own_worlds"]


def test_runs_of_worlds_that_are_not_here_are_compared(planted, capsys):
    shutil.copytree("runs/evil:x", "other")
    text = (planted / "other" / "config.json").read_text()
    (planted / "other" / "config.json").write_text(text.replace('"width": 8', '"width": 9'))
    assert main(["diff", "runs/evil:x", "other"]) == 0
    assert "config.learner.width  8 | 9" in capsys.readouterr().out
