"""Whatever is lost of Ray, or of the command itself: a sentence, exit 75, the way on, and nothing is left."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import pytest

from tests.test_actors import WORDS, lives
from xladder import temporary_folders
from xladder.cli import supervisor
from xladder.distributed import processes

COMMAND = [sys.executable, "-P", "-m", "xladder.cli.main"]
WITHIN = 15.0  # seconds


def descendants(parent):
    """Id → command line of all processes that a process has begun, and that those have."""
    return {number: processes.command_line(number) for number in processes.descendants(parent)}


class Running:
    """A command on `actors` in a process of its own, once it has saved a checkpoint."""

    def __init__(self, folder, *more, steps=400_000):
        self.run = folder / "run"
        self.temporary = tempfile.mkdtemp()  # short: Ray's sockets are in it
        words = [*WORDS, "--steps", str(steps), "--checkpoint-every", "100", "--out", str(self.run), *more]
        self.process = subprocess.Popen(
            [*COMMAND, *words],
            env=os.environ | {"TMPDIR": self.temporary},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        while not list((self.run / "checkpoints").glob("tick-?????????")):
            assert self.process.poll() is None, self.process.communicate()[0]
            time.sleep(0.05)
        self.begun = descendants(self.process.pid)

    def find(self, title):
        """The id of the only process whose command line contains a title."""
        (found,) = [number for number, command in self.begun.items() if title in command]
        return found

    def ends(self, within):
        """Wait until it has ended and everything that it began: exit code and what was said."""
        begun = time.monotonic()
        said, _ = self.process.communicate(timeout=within)
        while any(map(lives, self.begun)) and time.monotonic() - begun < within:
            time.sleep(0.05)
        left = [command for number, command in self.begun.items() if lives(number)]
        assert not left and not os.listdir(self.temporary)
        return self.process.returncode, said

    def clear(self):
        """After a test, whatever came of it: no process is left to disturb others."""
        self.process.kill()
        self.process.wait()
        for number in filter(lives, self.begun):
            os.kill(number, signal.SIGKILL)
        shutil.rmtree(self.temporary)


@pytest.fixture
def command(tmp_path):
    begun = []

    def begin(*more, **options):
        begun.append(Running(tmp_path, *more, **options))
        return begun[-1]

    yield begin
    for one in begun:
        one.clear()


def assert_lost(running, sentence):
    code, said = running.ends(WITHIN)
    assert code == 75, said
    assert f"xladder: {sentence} Resume with: xladder resume {running.run}\n" in said
    assert said.count("xladder: ") == 1 and "Traceback" not in said and "ray::" not in said
    assert sentence in (running.run / "log.txt").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("raylet/raylet", "raylet"),
        ("gcs_server", "GCS server"),
        ("DashboardAgent", "dashboard agent"),
        ("RuntimeEnvAgent", "runtime environment agent"),
    ],
)
def test_a_process_of_rays_own_that_was_killed_is_named(title, name, command):
    running = command()
    os.kill(running.find(title), signal.SIGKILL)
    assert_lost(running, f"Ray's {name} was lost.")


@pytest.mark.slow
def test_a_run_goes_on_without_processes_of_rays_that_it_does_not_need(command):
    running = command(steps=8000)
    for title in ("log_monitor.py", "autoscaler/_private/monitor.py", "dashboard/dashboard.py"):
        os.kill(running.find(title), signal.SIGKILL)
    code, said = running.ends(120)
    assert code == 0 and "lost" not in said, said


@pytest.mark.slow
def test_a_learner_that_was_killed_leaves_nothing(command):
    running = command()
    os.kill(running.find("xladder.cli.main"), signal.SIGKILL)
    assert_lost(running, "The learner was killed by signal 9.")


@pytest.mark.slow
def test_a_command_that_was_killed_leaves_nothing(command):
    running = command()
    running.process.kill()
    code, _ = running.ends(WITHIN)
    assert code == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.parametrize(
    ("title", "sentence"),
    [
        ("raylet/raylet", "The Ray cluster's raylet was lost."),
        ("gcs_server", "The Ray cluster's GCS server was lost."),
    ],
)
def test_a_process_of_a_cluster_that_was_killed_is_named(title, sentence, command, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "0" * 64)
    folder = tempfile.mkdtemp(prefix="ray-of-a-test-")
    ray = os.path.join(os.path.dirname(sys.executable), "ray")
    begin = ["start", "--head", "--port", "6402", "--num-cpus", "3", "--include-dashboard", "false", "--block"]
    cluster = subprocess.Popen(
        [ray, *begin, "--temp-dir", folder, "--node-ip-address", "127.0.0.1"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while subprocess.run([ray, "health-check", "--address", "127.0.0.1:6402"], capture_output=True).returncode:
            assert cluster.poll() is None
        theirs = descendants(cluster.pid)
        running = command("--ray", "127.0.0.1:6402")
        os.kill(next(number for number, line in theirs.items() if title in line), signal.SIGKILL)
        assert_lost(running, sentence)
    finally:
        theirs = descendants(cluster.pid)
        cluster.kill()
        for number in filter(lives, theirs):
            os.kill(number, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_in_python_the_loss_of_the_gcs_server_is_an_error(tmp_path):
    script = """
import os, signal
import jax
from tests.test_actors import PACED
from xladder.errors import PeerLost
from xladder.rungs import actors
run = actors.start(PACED, [0], jax.devices("cpu")[0], actors=2)
run.advance(20)
os.kill(run.engine.own.ids()["GCS server"], signal.SIGKILL)
try:
    run.advance(100_000)
except PeerLost as error:
    print(error)
run.close()
"""
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "Ray's GCS server was lost." in done.stdout, done.stderr
    assert time.monotonic() - begun < 60


# ---- the parts -----------------------------------------------------------------------------------------------------


def test_only_training_on_actors_is_supervised(tmp_path):
    for folder, rung in (("a", "actors"), ("b", "fused")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "config.json").write_text(json.dumps({"rung": rung}))
    needed = [
        ["train", "cartpole", "--rung", "actors"],
        ["train", "--rung=actors", "cartpole"],
        ["train", "cartpole", "--config", str(tmp_path / "a" / "config.json")],
        ["resume", "--import", "my_worlds", str(tmp_path / "a")],
    ]
    not_needed = [
        [],
        ["train"],
        ["train", "cartpole", "--rung", "fused"],
        ["train", "cartpole", "--config", str(tmp_path / "b" / "config.json")],
        ["resume", str(tmp_path / "b")],
        ["resume", str(tmp_path / "nowhere")],
        ["eval", str(tmp_path / "a")],
    ]
    assert all(map(supervisor.is_needed, needed)) and not any(map(supervisor.is_needed, not_needed))


def test_folders_of_killed_processes_are_removed_at_the_next_start(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    make = "import sys, os, signal; from xladder import temporary_folders as t; print(t.make('of-test-'), flush=True); "
    environment = os.environ | {"TMPDIR": str(tmp_path)}

    def begin(then):
        process = subprocess.Popen(
            [sys.executable, "-c", make + then],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return process, process.stdout.readline().strip()

    living, kept = begin("sys.stdin.read()")
    killed, abandoned = begin("os.kill(os.getpid(), signal.SIGKILL)")
    killed.wait()
    assert os.path.isdir(abandoned)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "owner").touch()
    (tmp_path / "of-test-link").symlink_to(tmp_path / "outside")
    mine = temporary_folders.make("of-test-")
    assert os.path.isdir(kept) and not os.path.exists(abandoned) and (tmp_path / "outside").exists()
    assert os.stat(mine).st_mode & 0o077 == 0
    temporary_folders.remove(mine)
    assert not os.path.exists(mine)
    living.stdin.close()
    living.wait()
    temporary_folders.remove_abandoned("of-test-")
    assert not os.path.exists(kept)
