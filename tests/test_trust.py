"""What may happen with a directory or file of a stranger's: the table in SECURITY.md, cell by cell.

Opening (`runs`, `report`, `watch`, `plot`, `eval`, `diff`) only reads. Importing, exporting and training read what they
are given and write elsewhere. Resuming writes to the directory itself. None of them imports what it finds, writes or
reads through a link, takes memory or time as a file claims, or shows text as anything but text.
"""

import hashlib
import json
import os
import re
import resource
import shutil
import struct
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from tests import fresh_runs
from tests.conftest import TINY_GRID
from xladder import user_code
from xladder.cli import resume, train
from xladder.cli.main import main
from xladder.errors import UsageError
from xladder.plans import plan
from xladder.registry import RungOptions
from xladder.report.server import Watcher
from xladder.runs.checkpoints import Checkpoint, Checkpoints, Damaged
from xladder.runs.directory import RunDirectory
from xladder.runs.plan_files import describe_plan, parse_plan, run_metadata
from xladder.worlds import gym_making, table_files

MARKER = "whispered-secret"
HOSTILE = "\x1b]0;owned\x07\x1b[2J</script><img src=x onerror=alert(1)>"
CONTROLS = re.compile(rb"\x1b|\x07")  # of a terminal
MARKUP = re.compile(rb"</script><img|<img src=x", re.IGNORECASE)  # of a page
METRICS = "seed,iteration,steps,return,loss,seconds\r\n" + "".join(
    f"0,{i},{i + 1},{i / 20},{1 / (i + 1)},{i / 10:.3f}\r\n" for i in range(20)
)
SECRETS = {
    "config.json": json.dumps({"workload": MARKER, "rung": "fused", "seed": 0, "seeds": 1, "config": {}}),
    "environment.json": json.dumps({"note": MARKER, "device": MARKER, "versions": {"jax": MARKER}}),
    "timings.json": json.dumps({"evaluation": {"mean_return": 7, MARKER: MARKER}, "compile_seconds": MARKER}),
    "metrics.csv": METRICS.replace("loss", MARKER.replace("-", "_")),
    "log.txt": f"2026-01-01 00:00:00 {MARKER}\n",
}
OPENING = {
    "runs": "runs {parent} --json {out}/runs.json",
    "report": "report {run} --out {out}/report.html",
    "watch": "",
    "plot": "plot {run} --out {out}/plot.png --json {out}/plot.json",
    "eval": "eval {run} --episodes 4 --json {out}/eval.json",
    "diff": "diff {run} {other} --json {out}/diff.json",
}
READING = {
    "import": "import {run}/exported.safetensors --workload hypergrid --config {run}/config.json --out {out}/new",
    "config": "train hypergrid --config {run}/config.json --out {out}/new",
    "from": "train hypergrid --config {other}/config.json --from {run} --out {out}/new",
    "export": "export {run} --to safetensors --out {out}/new.safetensors",
}
WRITING = {
    "resume": "resume {run}",
    "restart": "resume {run}",  # as if it was killed before its first checkpoint
}
COMMANDS = OPENING | READING | WRITING
LONG = ("eval", "plot", "import", "from", "export")  # these import JAX or draw, again and again
ROWS = [pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in COMMANDS]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A run of agents that have not learned, with metrics."""
    folder = tmp_path_factory.mktemp("sound") / "run"
    fresh_runs.make(folder, "hypergrid", TINY_GRID)
    (folder / "metrics.csv").write_text(METRICS, newline="")
    (folder / "timings.json").write_text('{"compile_seconds": 1.0, "seconds_per_iteration": 0.1}')
    (folder / "environment.json").write_text("{}")
    (folder / "log.txt").write_text("2026-01-01 00:00:00 begun\n")
    facts = fresh_runs.facts("".join(METRICS.splitlines(True)[:11]).encode(), 10)
    checkpoints_of(folder).save(Checkpoint(10, {"state.weights": np.ones(3, np.float32)}, facts))
    return folder


def checkpoints_of(folder: Path) -> Checkpoints:
    plan = json.loads((folder / "config.json").read_text())
    return Checkpoints(folder / "checkpoints", run_metadata(parse_plan(plan, "config.json")))


@pytest.fixture(scope="module")
def exported(sound):
    """Its agents as a file."""
    file = sound.parent / "exported.safetensors"
    assert main(["export", str(sound), "--to", "safetensors", "--out", str(file)]) == 0
    return file


@pytest.fixture
def room(sound, tmp_path, monkeypatch, request):
    """A folder with a copy of the run, a sound one beside it, and something outside that nobody may touch."""
    for name in ("stranger/run", "sound"):
        shutil.copytree(sound, tmp_path / name)
    if "import" in request.node.name:
        shutil.copy(request.getfixturevalue("exported"), tmp_path / "stranger" / "run")
    (tmp_path / "outside" / "folder").mkdir(parents=True)
    (tmp_path / "outside" / "victim").write_text(MARKER)
    for name, text in SECRETS.items():
        (tmp_path / "outside" / name).write_text(text, newline="")
    (tmp_path / "out").mkdir()
    (tmp_path / "stranger" / "evil.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'w').close()\n")
    monkeypatch.chdir(tmp_path / "stranger")
    monkeypatch.setattr(user_code, "_named", {})
    monkeypatch.setattr(user_code, "_given", {})
    for command in (resume, train):  # from there on it is a run of the user's own
        monkeypatch.setattr(command, "run_in_terminal", lambda run, *given, **named: run.writer.close() or 0)
    return tmp_path


def change(folder: Path, **changes) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))


# ---- what strangers do -----------------------------------------------------------------------------------------------


def names_code(run: Path, outside: Path):
    config = json.loads((run / "config.json").read_text())["config"]
    yield change(run, config=config | {"world": config["world"] | {"reward": "evil:reward"}})
    yield change(run, workload="gym/evil:CartPole-v1", rung="parallel")


def links_files_out(run: Path, outside: Path):
    for name in SECRETS:
        (run / name).unlink()
        (run / name).symlink_to(outside / name)
        yield
        (run / name).unlink()
        shutil.copy(outside.parent / "sound" / name, run / name)


def links_folders_out(run: Path, outside: Path):
    for name in ("media", "events", "checkpoints"):
        shutil.rmtree(run / name, ignore_errors=True)
        (run / name).symlink_to(outside / "folder")
        yield
        (run / name).unlink()
        shutil.copytree(outside.parent / "sound" / "checkpoints", run / "checkpoints", dirs_exist_ok=True)
    (run / "media").mkdir()
    for name in ("curves.png", "distribution.png", "distribution.gif"):
        (run / "media" / name).symlink_to(outside / "victim")
    yield
    (run / "checkpoints" / "agents.safetensors").unlink(missing_ok=True)
    (run / "checkpoints" / "agents.safetensors").symlink_to(outside / "victim")
    yield


def claims_too_much(run: Path, outside: Path):
    header = json.dumps({"x": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
    for name in ("checkpoints/agents.safetensors", "checkpoints/snapshots.safetensors", "exported.safetensors"):
        whole = (run / name).read_bytes() if (run / name).exists() else b""
        (run / name).write_bytes(struct.pack("<Q", len(header)) + header)
        yield
        with (run / name).open("ab") as file:
            file.truncate(2**42)  # a sparse file, which takes no space
        yield
        (run / name).write_bytes(whole)
    with (run / "metrics.csv").open("ab") as file:
        file.truncate(2**42)
    yield
    (run / "metrics.csv").write_text(METRICS + "0,999999999999,1,1,1,1\r\n", newline="")
    yield
    (run / "metrics.csv").write_text(METRICS, newline="")
    for name in ("environment.json", "timings.json", "config.json"):
        before = (run / name).read_text()
        (run / name).write_text("[" * 200_000 + "]" * 200_000)
        yield
        (run / name).write_text('{"a":' * 200_000 + "1" + "}" * 200_000)
        yield
        os.truncate(run / name, 2**42)
        yield
        (run / name).write_text(before)
    config = json.loads((run / "config.json").read_text())["config"]
    yield change(run, config=config | {"learner": config["learner"] | {"batch_size": 10**30}})


def writes_text(run: Path, outside: Path):
    saved = json.loads((run / "config.json").read_text())
    change(run, run={"tags": [HOSTILE], "track": []}, options={}, code={HOSTILE: HOSTILE})
    for name in ("environment.json", "timings.json"):
        (run / name).write_text(
            json.dumps({"note": HOSTILE, "device": HOSTILE, HOSTILE: HOSTILE, "evaluation": {HOSTILE: 1}})
        )
    (run / "log.txt").write_text(f"{HOSTILE}\n" * 20)
    (run / "metrics.csv").write_text(METRICS.replace("loss", HOSTILE.replace(",", "")), newline="")
    yield
    for place in ("workload", "rung"):
        (run / "config.json").write_text(json.dumps(saved | {place: HOSTILE}))
        yield
    (run / "config.json").write_text(json.dumps(saved | {"config": {HOSTILE: HOSTILE}}))
    yield


def plants_names(run: Path, outside: Path):
    """Names of modules where settings, or files that only some commands read, may have them."""
    saved = json.loads((run / "config.json").read_text())
    named = saved["config"] | {"world": saved["config"]["world"] | {"reward": "evil:reward"}}
    yield change(run, earlier=[{"config": named}])
    change(run, **saved, earlier=[])
    step = next(run.glob("checkpoints/tick-*"), None)
    if step:
        forge_manifest(step, plan=saved | {"config": named})
        yield
    begun = {"space": {"evil:reward": "1,2"}, "trials": [{"evil:reward": 1}], "metric": "evil:reward"}
    sweep = {"plan": saved | {"config": named}, **begun, "test_seeds": [0], "seed": 0, "halve": 0, "pbt": False}
    (run / "sweep.json").write_text(json.dumps(sweep))
    yield
    (run / "sweep.json").unlink()
    gym = json.loads(json.dumps(describe_plan(plan("gym/CartPole-v1"))))
    for world in {"wrappers": ["evil:Wrapper"]}, {"kwargs": ["env_id=evil:Name"]}, {"wrappers": ["evil:Wrapper(1)"]}:
        config = gym["config"] | {"world": gym["config"]["world"] | world}
        yield (run / "config.json").write_text(json.dumps(gym | {"config": config}))


def forges_checkpoints(run: Path, outside: Path):
    """Checkpoints, and what a run starts from, with digests that are right."""
    start, agents = (run / "checkpoints" / f"{name}.safetensors" for name in ("start", "agents"))
    for forged in (lambda path: path.symlink_to(outside / "victim"), make_sparse, pipe):
        forged(start)
        yield
        start.unlink(missing_ok=True)
    step = next(run.glob("checkpoints/tick-*"), None)
    if step is None:  # it begins again
        return
    saved = {path: path.read_bytes() for path in step.rglob("*") if path.is_file()}
    for changes in {"facts": {}}, {"leaves": {"x": 1}}, {"files": {"../../../../outside/victim": "0"}}, {"plan": {}}:
        forge_manifest(step, **changes)
        yield
    for path, content in saved.items():
        path.write_bytes(content)
    for name in ("manifest.json", "manifest.sha256", "state/arrays.safetensors"):
        for forged in (lambda path: path.symlink_to("/dev/zero"), make_sparse, pipe):
            (step / name).unlink()
            forged(step / name)
            yield
            (step / name).unlink()
            (step / name).write_bytes(saved[step / name])
    agents.write_bytes(b"")
    yield


def forge_manifest(step: Path, **changes) -> None:
    text = json.dumps(json.loads((step / "manifest.json").read_text()) | changes)
    (step / "manifest.json").write_text(text)
    (step / "manifest.sha256").write_text(hashlib.sha256(text.encode()).hexdigest())


def make_sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 2**42)


def pipe(path):
    """A pipe that nobody writes to: whoever opens it waits for ever."""
    os.mkfifo(path)
    return path


ATTACKS = [
    names_code,
    plants_names,
    links_files_out,
    links_folders_out,
    claims_too_much,
    forges_checkpoints,
    writes_text,
]


# ---- what happens ----------------------------------------------------------------------------------------------------


def digest(folder: Path) -> str:
    """Of names and contents; sparse files by their size."""
    found = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        found.update(f"{path.relative_to(folder)} {path.is_symlink()} ".encode())
        if path.is_file() and not path.is_symlink():
            size = path.stat().st_size
            found.update(path.read_bytes() if size < 2**24 else str(size).encode())
    return found.hexdigest()


def carry_out(command: str, room: Path) -> tuple[int, bytes]:
    """Run a command on the stranger's run; its exit code and what it has written beside standard output."""
    run, out = room / "stranger" / "run", room / "out"
    if command == "watch":
        watcher = Watcher([run])
        watcher.look()
        shown = watcher.listen(0)[1] + (watcher.scenes(0) or b"")
        watcher.end()
        return 0, shown
    if command == "restart" and not (run / "checkpoints").is_symlink():
        for folder in run.glob("checkpoints/tick-*"):
            shutil.rmtree(folder)
        if not (agents := run / "checkpoints" / "agents.safetensors").is_symlink():
            agents.unlink(missing_ok=True)
    places = {"run": run, "parent": run.parent, "other": room / "sound", "out": out}
    code = main([word.format(**places) for word in COMMANDS[command].split()])
    shown = b"".join(path.read_bytes() for path in out.rglob("*") if path.is_file() and path.suffix != ".safetensors")
    for path in out.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return code, shown


@pytest.mark.parametrize("command", ROWS)
def test_every_command_takes_a_run_that_is_sound(command, room, capsys):
    """Otherwise the cells below would prove nothing."""
    code, shown = carry_out(command, room)
    assert code == 0, capsys.readouterr().err
    assert shown or command in WRITING or command == "export"


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
@pytest.mark.parametrize("command", ROWS)
def test_a_cell_of_the_table(command, attack, room, capsys):
    run, outside = room / "stranger" / "run", room / "outside"
    for number, _ in enumerate(attack(run, outside)):
        before, around = digest(run), digest(outside)
        memory, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        code, shown = carry_out(command, room)
        said = capsys.readouterr()
        where = f"{command}, {attack.__name__} {number}: {said.out}{said.err}"
        assert code in (0, 1, 2, 3) and "This is a bug" not in said.err and "Traceback" not in said.err, where
        assert not (room / "imported").exists() and "evil" not in sys.modules, where
        assert digest(outside) == around, f"it wrote outside: {where}"
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 2**20, f"more than a GiB: {where}"
        assert time.monotonic() - begun < 60, where
        printed = (said.out + said.err).encode()
        assert MARKER.encode() not in printed + shown and MARKER.replace("-", "_").encode() not in printed + shown, (
            where
        )
        assert not CONTROLS.search(printed) and (command == "plot" or not CONTROLS.search(shown)), where
        assert command not in ("report", "watch") or not MARKUP.search(shown), where
        if command in WRITING and attack in (links_files_out, links_folders_out):
            assert code == 2, f"it would write through a link: {where}"
        if command not in WRITING:
            assert digest(run) == before, f"it wrote into what it read: {where}"


def test_a_config_names_no_ray_cluster(tmp_path):
    """Whoever answers at that address may send objects that execute code when they are unpickled."""
    made = describe_plan(plan("cartpole", "actors", options=RungOptions(ray="127.0.0.1:6379", actors=1)))
    assert made["options"]["ray"] == "127.0.0.1:6379"
    found = parse_plan(made, "`config.json`")
    assert found.options.ray is None and found.options.actors == 1


def test_digests_are_of_files_only_and_follow_no_link(tmp_path):
    (tmp_path / "real.csv").write_text("x")
    (tmp_path / "link.csv").symlink_to(tmp_path / "real.csv")
    (tmp_path / "large.csv").touch()
    os.truncate(tmp_path / "large.csv", 2**33)
    assert user_code.digest(str(tmp_path / "real.csv"))
    for name in ("link.csv", "large.csv", pipe(tmp_path / "pipe.csv").name, "nowhere.csv"):
        assert user_code.digest(str(tmp_path / name)) is None, name


def test_tables_are_files_of_bounded_size(tmp_path):
    bomb = zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with bomb, bomb.open("value.npy", "w", force_zip64=True) as member:
        for _ in range(1100):
            member.write(bytes(2**20))
    assert (tmp_path / "bomb.npz").stat().st_size < 2**23
    for name in (tmp_path / "bomb.npz", pipe(tmp_path / "pipe.csv"), Path("/dev/zero")):
        for config in ("sequences", "world.table"), ("dags", "world.data"):
            with pytest.raises(UsageError):
                table_files.find_table(str(name), config[1])
    with pytest.raises(UsageError, match="not a file"):
        plan("dags", world={"data": str(tmp_path / "pipe.csv")})


@pytest.mark.parametrize("name", ["log.txt", "checkpoints/agents.safetensors.tmp", "events"])
def test_a_run_with_a_pipe_in_it_is_not_resumed(name, tmp_path):
    fresh_runs.make(tmp_path / "run", "hypergrid", TINY_GRID)
    place = tmp_path / "run" / name
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    pipe(place)
    with pytest.raises(UsageError, match="neither a file nor a folder"):
        RunDirectory.open(tmp_path / "run")


def test_a_run_that_lost_its_empty_folders_is_resumed(tmp_path):
    fresh_runs.make(tmp_path / "run", "hypergrid", TINY_GRID)
    shutil.copytree(tmp_path / "run", tmp_path / "copy", ignore=shutil.ignore_patterns("media"))
    RunDirectory.open(tmp_path / "copy")
    assert (tmp_path / "copy/media").is_dir()


def test_control_characters_in_the_name_of_a_run_are_not_printed(tmp_path, capsys):
    run = tmp_path / "a\x1b]0;owned\x07\u202eb"
    fresh_runs.make(tmp_path / "run", "hypergrid", TINY_GRID)
    (tmp_path / "run").rename(run)
    assert main(["eval", str(run)]) == 2
    said = "".join(capsys.readouterr())
    assert "control characters" in said and "\x1b" not in said and "\u202e" not in said


def test_wrappers_that_write_files_are_refused():
    with pytest.raises(UsageError, match="RecordVideo"):
        gym_making._wrapper('RecordVideo(video_folder="/tmp/x")', gymnasium.spaces.Discrete(2))


def test_processes_of_a_command_do_not_import_from_the_working_directory(tmp_path):
    (tmp_path / "multiprocessing.py").write_text("print('PWNED')\n")
    code = (
        "import os, subprocess, sys; from xladder.cli import main; sys.argv = ['xladder', '--version']; main.main();"
        "print(subprocess.run([sys.executable, '-c', 'import multiprocessing'], capture_output=True, text=True).stdout)"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "xladder" in done.stdout and "PWNED" not in done.stdout


def test_a_checkpoint_that_claims_too_much_is_damaged(tmp_path):
    kept = Checkpoints(tmp_path, {"workload": "x"})
    kept.save(Checkpoint(1, {"weights": np.ones(3, np.float32)}, {}))
    manifest = kept.path(1) / "manifest.json"
    forged = json.loads(manifest.read_text())
    forged["leaves"]["weights"]["shape"] = [3, 2**40]
    text = json.dumps(forged)
    manifest.write_text(text)
    (kept.path(1) / "manifest.sha256").write_text(hashlib.sha256(text.encode()).hexdigest())
    with pytest.raises(Damaged, match="more than this machine has"):
        kept.load(1)


@pytest.mark.slow
def test_a_bomb_of_pytorchs_format_is_not_unpacked(room, capsys):
    file = room / "stranger" / "bomb.pt"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb/data.pkl", b"\x80\x02}.")
        archive.writestr("bomb/data/0", bytes(2**28))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    words = f"import {file} --workload hypergrid --config {room}/sound/config.json --out {room}/out/new"
    assert main(words.split()) == 2 and "bomb.pt" in capsys.readouterr().err
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 2**17 and not (room / "out" / "new").exists()


@pytest.mark.parametrize("year", [-(10**11), 10**17])
def test_a_file_from_a_time_that_no_calendar_has_is_listed(year, room, capsys):
    run = room / "stranger" / "run"
    (run / "log.txt").unlink()
    try:
        os.utime(run / "config.json", ns=(year, year))
        os.utime(run / "config.json", (year, year))
    except (OSError, OverflowError):
        pass  # the file system has no such time, either
    assert main(["runs", str(run.parent), "--json", "-"]) == 0
