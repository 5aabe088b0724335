"""Forged content of a stranger's run directory: what it cannot do, besides the cells of `test_trust.py`."""

import dataclasses
import hashlib
import json
import os
import resource
import shutil
import struct
import urllib.request

import numpy as np
import pytest

from tests import fresh_runs
from tests.conftest import TINY_GRID
from xladder import user_code
from xladder.cli.main import main
from xladder.errors import DamagedRun, UsageError
from xladder.families.value.gym_presets import MOST_PROCESSES
from xladder.plans import plan
from xladder.registry import RungOptions
from xladder.report.source import Source
from xladder.runs import metrics, reading, resuming, start_files
from xladder.runs.checkpoints import ARRAYS, Checkpoint, Checkpoints, Damaged
from xladder.runs.directory import RunDirectory
from xladder.runs.loading import load, load_agents
from xladder.runs.plan_files import describe_plan, parse_plan, parse_plan_to_show, read_plan, run_metadata
from xladder.worlds import gymnax_world
from xladder.worlds.sequence_table import read_table

CELL = "whispered-cell"
TB = 2**40


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run of agents that have not learned, with two checkpoints of some state."""
    folder = tmp_path_factory.mktemp("made") / "run"
    found = fresh_runs.make(folder, "hypergrid", TINY_GRID)
    (folder / "metrics.csv").write_bytes(b"seed,iteration,steps,return,loss,seconds\r\n0,0,1,1,1,1\r\n")
    kept = Checkpoints(folder / "checkpoints", run_metadata(found.plan))
    for step in (1, 2):
        kept.save(Checkpoint(step, {"state.weights": np.ones(3, np.float32)}, facts_of(folder) | {"done": step}))
    return folder


def facts_of(folder):
    return fresh_runs.facts((folder / "metrics.csv").read_bytes(), 1)


@pytest.fixture
def run(made, tmp_path):
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


def checkpoints(run):
    return Checkpoints(run / "checkpoints", run_metadata(parse_plan(json.loads((run / "config.json").read_text()), "")))


def forge(run, step=2, **changes):
    """Change a manifest and its digest."""
    folder = checkpoints(run).path(step)
    text = json.dumps(json.loads((folder / "manifest.json").read_text()) | changes)
    (folder / "manifest.json").write_text(text)
    (folder / "manifest.sha256").write_text(hashlib.sha256(text.encode()).hexdigest())


def names_and_bytes(folder):
    return {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}


def described(workload, **world):
    """A config as data, with settings of its world that need not be possible."""
    made = describe_plan(plan(workload))
    return made | {"config": made["config"] | {"world": made["config"]["world"] | world}}


def show(folder, config):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    source = Source(folder, "a run")
    return source, json.dumps(source.describe(1000))


# ---- worlds ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def no_network(monkeypatch):
    def fail(*given, **named):
        raise AssertionError("it asked the network")

    monkeypatch.setattr(urllib.request, "urlretrieve", fail)
    monkeypatch.setattr(urllib.request, "urlopen", fail)


def test_a_world_that_downloads_is_not_made(tmp_path, no_network, capsys):
    name = "gymnax/MNISTBandit-bsuite"
    for call in (plan, gymnax_world.find, gymnax_world.load):
        with pytest.raises(UsageError, match="needs the network"):
            call(name)
    forged = described("cartpole", name=name)
    for workload in ("cartpole", name):
        for parse in (parse_plan, parse_plan_to_show):
            with pytest.raises(UsageError):
                parse(forged | {"workload": workload}, "it")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps(forged | {"workload": name}))
    with pytest.raises(UsageError, match="needs the network"):
        read_plan(tmp_path / "run" / "config.json")
    assert main(["report", str(tmp_path / "run"), "--no-replay", "--out", str(tmp_path / "out.html")]) == 0
    assert main(["resume", str(tmp_path / "run")]) == 2
    assert "needs the network" in capsys.readouterr().err


@pytest.mark.parametrize(
    "workload, world",
    [
        ("deepsea", {"kwargs": ["size=40000"]}),
        ("gym/CartPole-v1", {"wrappers": ["FrameStackObservation(1000000000)"]}),
        ("gym/CartPole-v1", {"wrappers": ["FrameStackObservation(9000)", "FrameStackObservation(9000)"]}),
        ("gym/CartPole-v1", {"wrappers": ["ResizeObservation((90000, 90000))"]}),
        ("gym/CartPole-v1", {"vectorisation": "async", "num_envs": MOST_PROCESSES + 1}),
        ("gym/CartPole-v1", {"num_envs": 2**20}),
        ("gym/CartPole-v1", {"kwargs": ["render_mode=human"]}),
        ("gym/CartPole-v1", {"kwargs": ["env_id=evil_module:Name"]}),
    ],
)
def test_arguments_of_worlds_are_bounded(workload, world):
    config = described(workload, **world)
    count = config["config"]["world"]["num_envs"]
    config["config"]["learner"] |= {"memory": 100 * count, "steps_per_update": count}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UsageError, match=r"world\.|user code"):
        parse_plan(config, "it")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 2**19


def test_ordinary_arguments_of_worlds_are_possible():
    assert plan("deepsea", world={"kwargs": ["size=10"]})
    given = ["TimeLimit(max_episode_steps=1000000)", "RescaleObservation(-100000, 100000)", "FrameStackObservation(4)"]
    assert plan("gym/MountainCar-v0", world={"wrappers": given, "kwargs": ["render_mode=rgb_array"]})


def test_a_page_makes_no_world_of_another_package(tmp_path, monkeypatch):
    from xladder.worlds import gym_making

    runs = {
        "gymnax": described("deepsea", kwargs=["size=12"]),
        "gym": described("gym/CartPole-v1", kwargs=["sutton_barto_reward=True"]),
    }

    def fail(*given):
        raise AssertionError("it was made")

    monkeypatch.setattr(gymnax_world, "load", fail)
    monkeypatch.setattr(gym_making, "make_one", fail)
    for name, config in runs.items():
        source, page = show(tmp_path / name, config)
        assert json.dumps(describe_plan(source.plan)["config"]) == json.dumps(config["config"]), page


def test_processes_of_actors_are_bounded():
    with pytest.raises(UsageError, match="--actors"):
        plan("cartpole", "actors", options=RungOptions(actors=10**6))


# ---- files that settings name ----------------------------------------------------------------------------------------


def test_a_page_shows_nothing_of_a_table_elsewhere(tmp_path):
    table = tmp_path / "secret.csv"
    table.write_text(f"a,b\n1,{CELL}\n")
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    for i, code in enumerate([{}, {str(table): "0"}, {str(table): "0" * 64}]):
        source, page = show(tmp_path / str(i), described("dags", data=str(table)) | {"code": code})
        assert CELL not in page and digest[:12] not in page and source.plan is None
    source, page = show(tmp_path / "other", described("dags") | {"code": {str(table): "0"}})
    assert digest[:12] not in page and source.plan is not None


def test_a_page_reads_the_table_that_a_run_was_made_with(tmp_path):
    table = tmp_path / "own.csv"
    table.write_text("a,b,c\n" + "\n".join(f"{i},{i * i % 7},{i % 3}" for i in range(20)))
    config = describe_plan(plan("dags", world={"data": str(table)}))
    assert set(config["code"]) == {str(table)}
    assert show(tmp_path / "run", config)[0].plan is not None
    table.write_text(f"a,b\n1,{CELL}\n")
    source, page = show(tmp_path / "later", config)
    assert source.plan is None and CELL not in page


def test_other_files_are_no_tables(tmp_path):
    (tmp_path / "passwords").write_text(f"a,b\n1,{CELL}\n")
    with pytest.raises(UsageError, match=r"\*\.csv") as error:
        plan("dags", world={"data": str(tmp_path / "passwords")})
    assert CELL not in str(error.value)


def test_tables_have_a_bounded_number_of_entries(tmp_path):
    zeros = np.zeros(2**23, "S1")
    np.savez_compressed(tmp_path / "bomb.npz", sequence=zeros, value=np.zeros(2**23, np.uint8))
    with pytest.raises(UsageError, match="entries"):
        read_table(str(tmp_path / "bomb.npz"))
    (tmp_path / "wide.csv").write_text("a,b\n" + "," * 2**20)
    for workload, flag in (("dags", "data"), ("sequences", "table")):
        with pytest.raises(UsageError, match=r"characters|column `sequence`"):
            plan(workload, world={flag: str(tmp_path / "wide.csv")})


@pytest.mark.slow
def test_tables_have_a_bounded_number_of_rows(tmp_path):
    (tmp_path / "long.csv").write_bytes(b"sequence,value\n" + b"\n" * 2**23)
    with pytest.raises(UsageError, match="rows"):
        read_table(str(tmp_path / "long.csv"))


# ---- checkpoints that are only read ----------------------------------------------------------------------------------


def damage(run, step=2):
    with (checkpoints(run).path(step) / "state" / ARRAYS).open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"x")


def test_starting_from_a_run_writes_nothing_into_it(run):
    damage(run)
    before = names_and_bytes(run)
    assert start_files.last_state(load(run)) and names_and_bytes(run) == before
    assert checkpoints(run).read_latest().step == 1 and names_and_bytes(run) == before
    damage(run, 1)
    assert start_files.last_state(load(run)) == {}


def replace_by(path, how):
    path.unlink(missing_ok=True)
    os.mkfifo(path) if how == "pipe" else path.symlink_to(how)


@pytest.mark.parametrize("name", ["manifest.json", "manifest.sha256", f"state/{ARRAYS}"])
@pytest.mark.parametrize("how", ["pipe", "/dev/zero"])
def test_links_and_pipes_in_a_checkpoint_are_damage(name, how, run):
    replace_by(checkpoints(run).path(2) / name, how)
    assert checkpoints(run).read_latest().step == 1
    with pytest.raises(Damaged):
        checkpoints(run).load(2)


def test_a_link_to_checkpoints_elsewhere_is_not_followed(run, tmp_path):
    shutil.move(run / "checkpoints", tmp_path / "outside")
    (run / "checkpoints").symlink_to(tmp_path / "outside")
    assert checkpoints(run).read_latest() is None


@pytest.mark.parametrize("name, size", [(f"state/{ARRAYS}", 4 * TB), ("manifest.sha256", 12 * 2**30)])
def test_sizes_are_checked_before_anything_is_read(name, size, run):
    os.truncate(checkpoints(run).path(2) / name, size)
    assert checkpoints(run).read_latest().step == 1


def test_the_segments_of_an_array_have_its_size(run, monkeypatch):
    monkeypatch.setattr("xladder.runs.checkpoints.SEGMENT_BYTES", 64)
    kept = checkpoints(run)
    kept.save(Checkpoint(3, {"a": np.arange(100.0)}, {}))
    leaves = json.loads((kept.path(3) / "manifest.json").read_text())["leaves"]
    leaves["a"]["segments"][0]["shape"] = [10**12]
    forge(run, 3, leaves=leaves)
    with pytest.raises(Damaged, match="another size"):
        kept.load(3)


@pytest.mark.parametrize(
    "changes",
    [
        {"facts": {}},
        {"facts": []},
        {"leaves": {}, "facts": None},
        {"turn": "x"},
        {"files": 3},
        {"leaves": [[[]]]},
        {"facts": {"rung": "fused"}},
        {"done": 10**9},
        {"done": -1},
        {"group": 7},
        {"rung": "no such rung"},
        {"snapshots": [[1, "label", None]]},
        {"snapshots": [7]},
        {"metrics_bytes": -1},
        {"tick_seconds": "x"},
    ],
    ids=str,
)
def test_forged_manifests_are_refused_in_a_sentence(changes, run, capsys):
    inside = {"facts", "leaves", "turn", "files"} & changes.keys()
    forge(run, **(changes if inside else {"facts": facts_of(run) | changes}))
    shutil.rmtree(checkpoints(run).path(1))
    assert main(["resume", str(run)]) in (1, 2, 3)
    said = capsys.readouterr().err
    assert "bug" not in said and "Traceback" not in said and ("checkpoint" in said or "tick-" in said), said


def test_a_checkpoint_of_more_ticks_than_its_table_is_refused(run):
    forge(run, facts=facts_of(run) | {"done": 7})
    with pytest.raises(DamagedRun, match="rows of 7 ticks"):
        directory = RunDirectory.open(run)
        try:
            resuming.rewind(directory, resuming.find_latest(directory, pytest.fail), lambda line: None)
        finally:
            directory.lock.release()


# ---- other arrays and tables -----------------------------------------------------------------------------------------


def write_sparse(file, shapes):
    """A safetensors file of zeros that takes no space."""
    header, end = {}, 0
    for name, shape in shapes.items():
        size = 4 * int(np.prod(shape, dtype=object))
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text)
    os.truncate(file, 8 + len(text) + end)


def test_the_start_of_a_run_is_bounded_by_its_agents(run):
    found, file = load(run).plan, run / start_files.START
    write_sparse(file, {"optimiser.state.runs.agents.opt_state.count": (2**30,)})
    with pytest.raises(DamagedRun, match="numbers"):
        start_files.read_start(run, found)
    for how in ("pipe", "/dev/zero"):
        replace_by(file, how)
        with pytest.raises(DamagedRun, match=r"is a link|not a file"):
            start_files.read_start(run, found)
    file.unlink()
    assert start_files.read_start(run, found) == ({}, {})


@pytest.mark.parametrize("how", ["shape", "name", "seeds", "scalar"])
def test_a_run_starts_only_from_agents_that_fit_it(how, run):
    from xladder.core.state import flatten

    found = load(run)
    arrays = {f"params.{name}": np.asarray(leaf) for name, leaf in flatten(found.params)}
    arrays["optimiser.state.runs.agents.opt_state.count"] = np.zeros(1, np.float32)
    first = next(iter(arrays))
    changes = {
        "shape": {first: np.zeros((1, 9), np.float32)},
        "name": {"params.more": np.zeros((1, 9), np.float32)},
        "seeds": {"optimiser.more": np.zeros((2, 9), np.float32)},
        "scalar": {"optimiser.more": np.zeros((), np.float32)},
    }
    directory = RunDirectory.open(run)
    directory.save_arrays(start_files.START, arrays)
    assert start_files.read_start(run, found.plan)[1]
    directory.save_arrays(start_files.START, arrays | changes[how])
    directory.lock.release()
    with pytest.raises(DamagedRun, match="does not hold the agents"):
        start_files.read_start(run, found.plan)


def test_agents_of_many_seeds_are_checked_against_the_machine(run, monkeypatch):
    found = load(run)
    from xladder.core.state import flatten

    many = dataclasses.replace(found.plan, seeds=tuple(range(100_000)))
    shapes = {name: (len(many.seeds), *leaf.shape[1:]) for name, leaf in flatten(found.params)}
    (run / "checkpoints" / "agents.safetensors").unlink()
    write_sparse(run / "checkpoints" / "agents.safetensors", shapes)
    monkeypatch.setattr("xladder.runs.loading.memory_of_machine", lambda: 2**28)
    with pytest.raises(DamagedRun, match="of this machine's memory"):
        load_agents(run, many)


@pytest.mark.parametrize("text", [b"", b"seed,tick,steps,seconds\n"])
def test_a_table_without_ends_of_rows_is_not_read_to_its_end(text, tmp_path):
    (tmp_path / "metrics.csv").write_bytes(text)
    os.truncate(tmp_path / "metrics.csv", reading.MOST_TABLE_BYTES)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(DamagedRun, match="row has more than"):
        metrics.read_table(tmp_path / "metrics.csv", "tick")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 2**19


def test_a_table_is_checked_against_the_machine(tmp_path, monkeypatch):
    (tmp_path / "metrics.csv").write_bytes(b"seed,tick,steps,seconds\n" + b"0,0,0,0\n" * 1000)
    monkeypatch.setattr(metrics, "memory_of_machine", lambda: 10_000)
    with pytest.raises(DamagedRun, match="memory"):
        metrics.read_table(tmp_path / "metrics.csv", "tick")


# ---- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [100, 600, 900])
def test_deep_settings_are_refused_in_a_sentence(depth, run, capsys):
    config = json.loads((run / "config.json").read_text())
    inner = "1"
    for _ in range(depth):
        inner = f'{{"world": {inner}}}'
    (run / "config.json").write_text(
        json.dumps(config | {"config": 0})[:-1].replace('"config": 0', f'"config": {inner}') + "}"
    )
    for command in (
        ["resume", str(run)],
        ["eval", str(run)],
        ["train", "hypergrid", "--config", str(run / "config.json")],
    ):
        assert main(command) == 2
        assert "not valid JSON" in capsys.readouterr().err
    with pytest.raises(DamagedRun, match="not valid JSON"):
        Source(run, "run").describe(10)


def test_a_changed_module_is_told_by_both_digests_and_a_forged_one_is_not_shown(tmp_path, monkeypatch):
    (tmp_path / "own_maze.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(user_code, "_named", {"own_maze": None})
    user_code.import_module("own_maze")
    now = user_code.digest("own_maze")
    for recorded, shown in ("0" * 64, "00000000…"), ("\x1b[2J" * 20, "not known"):
        with pytest.raises(UsageError, match="has changed") as error:
            user_code.check_unchanged({"own_maze": recorded}, "a run", {"world": "jax/own_maze:Maze"})
        assert f"(SHA-256 then {shown}, now {now[:8]}…)" in str(error.value) and "\x1b" not in str(error.value)


def test_a_changed_table_is_named_without_its_digest(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("x")
    digest = user_code.digest(str(file))
    with pytest.raises(UsageError, match="has changed") as error:
        user_code.check_unchanged({str(file): "0"}, "a run", {"data": str(file)})
    assert digest[:12] not in str(error.value)
    user_code.check_unchanged({str(file): "0"}, "a run", {"data": ""})
