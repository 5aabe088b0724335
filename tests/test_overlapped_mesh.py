"""Worlds on the host over several devices and processes: what one device does with as many envs, but for rounding."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import cache

import jax
import numpy as np
import optax
import pytest

from tests.conftest import TINY_ATARI, TINY_GYM, TINY_VALUES
from tests.test_hosts import MEMBER, Launched, is_alive, launched
from tests.test_laws import OWN
from tests.test_mesh import far_apart
from tests.test_resume import saved, slow, what_came_of
from xladder.cli import launch
from xladder.cli.main import main
from xladder.core.state import restore
from xladder.errors import UsageError
from xladder.families.value import zoo_presets as zoo
from xladder.learners.value import ValueLearner
from xladder.plans import plan, seed_groups
from xladder.registry import RungOptions
from xladder.rungs import hosts, mesh, parallel
from xladder.rungs.device_mesh import DeviceDataParallel

# About half of the gradients are cut, and an update follows two steps.
SHARED = {"strata": 4, "batch_size": 16, "memory": 400, "clip": 0.95}
GYM = replace(
    TINY_GYM,
    world=replace(TINY_GYM.world, num_envs=4),
    learner=replace(TINY_GYM.learner, **SHARED, steps_per_update=8),
)
# Games are cut after 60 frames, so that some end, and the fire button is forced after a lost life.
ATARI = replace(
    TINY_ATARI,
    world=replace(TINY_ATARI.world, num_envs=4, cap_frames=60, fire_after_life=True),
    learner=replace(TINY_ATARI.learner, **SHARED, steps_per_update=8),
)
ZOO = zoo.Config(zoo.WorldConfig(OWN["zoo"], num_envs=4), replace(TINY_VALUES, **SHARED, steps_per_update=4), steps=80)
RUNS = {"gym": (GYM, 12), "atari": (ATARI, 12), "zoo": (ZOO, 12)}


@pytest.fixture
def sgd(monkeypatch):
    """SGD shows a gradient that is too long or too short; Adam does not."""
    monkeypatch.setattr(ValueLearner, "optimiser", lambda self: optax.sgd(1.0))


@cache
def on_one_device(world):
    """A run on `parallel`, whose learner sees all envs; it is advanced no further."""
    config, ticks = RUNS[world]
    running = parallel.start(config, [3])
    return running, running.advance(ticks)


@cache
def on_devices(world, devices):
    config, ticks = RUNS[world]
    running = mesh.start(config, [3], mesh=f"data={devices}")
    return running, running.advance(ticks)


@pytest.mark.slow
@pytest.mark.parametrize("world", ["gym", slow("atari"), slow("zoo")])
@pytest.mark.parametrize("devices", [slow(1), 2, slow(4)])
def test_devices_together_do_what_one_does_with_as_many_envs(world, devices, sgd):
    (ours, metrics), (alone, expected) = on_devices(world, devices), on_one_device(world)
    assert far_apart(metrics, expected) < 2e-5
    assert far_apart(saved(ours), saved(alone)) < 1e-6
    assert metrics["updates"].sum() > 5 and metrics["episodes"].sum() > 1
    held = {shard.data.shape[1] for shard in ours.loop.run.memory.rewards.addressable_shards}
    assert held == {4 // devices}  # each device has the memory of its envs, and no other


@pytest.mark.slow
def test_a_gradient_of_the_wrong_scale_is_noticed(monkeypatch, sgd):
    monkeypatch.setattr(DeviceDataParallel, "mean", DeviceDataParallel.add)
    on_devices.cache_clear()
    jax.clear_caches()
    ours, _ = on_devices("gym", 2)
    on_devices.cache_clear()
    jax.clear_caches()
    assert far_apart(saved(ours), saved(on_one_device("gym")[0])) > 1e-5  # ten times what may be rounding


@pytest.mark.slow
@pytest.mark.parametrize("world", ["atari", "zoo", "gym"])
def test_more_devices_take_over_from_one_and_one_from_them(world, sgd):
    """Atari goes on as if nothing had happened; of the others the envs cannot be saved, and start again everywhere."""
    config, ticks = RUNS[world]
    state = saved(on_one_device(world)[0])
    whole = parallel.start(config, [3])
    if world == "atari":
        whole.advance(ticks)
    else:
        whole.take_state(restore(whole.state(), state))
    whole.advance(ticks)
    wide = mesh.start(config, [3], mesh="data=4")
    wide.take_state(restore(wide.state(), state))
    wide.advance(ticks // 2)
    if world == "atari":
        narrow = parallel.start(config, [3])
        narrow.take_state(restore(narrow.state(), saved(wide)))
    else:
        narrow = wide
    narrow.advance(ticks - ticks // 2)
    assert far_apart(saved(narrow), saved(whole)) < 1e-5


@pytest.mark.parametrize(
    ("mesh", "changes", "said"),
    [
        ("data=3", {}, "`--world.num-envs` is 8, which 3 devices cannot share evenly: use 6 or 9."),
        ("seeds=2", {}, "a world on the host is stepped for one seed at a time: shard its envs with `--mesh data=2`"),
        ("seeds=2,data=2", {}, "shard its envs with `--mesh data=4`"),
        ("data=2", {"prioritised": True}, "Prioritised replay needs one memory"),
    ],
)
def test_what_cannot_be_shared_is_said_before_anything_starts(mesh, changes, said):
    learner = {"batch_size": 48, **changes}
    with pytest.raises(UsageError) as error:
        plan("gym/CartPole-v1", options=RungOptions(mesh=mesh), world={"num_envs": 8}, learner=learner, seeds=2)
    assert said in str(error.value)


def test_more_devices_than_there_are_is_said(capsys, tmp_path):
    words = ["train", "gym/CartPole-v1", "--mesh", "data=16", "--world.num-envs", "16", "--steps", "16"]
    assert main([*words, "--learner.batch-size", "16", "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert "`--mesh seeds=1,data=16` needs 16 devices, but JAX finds 8 (cpu)" in said


def test_seeds_are_trained_one_after_another():
    found = plan("gym/CartPole-v1", options=RungOptions(mesh="data=2"), seeds=2)
    assert seed_groups(found) == [(0,), (1,)]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version of gymnasium": "0.1"}, "`version of gymnasium` is 0.1 on host 1, and "),
        ({"actions": "3"}, "`actions` is 3 on host 1, and 2 on host 0. Install the same versions on all hosts."),
        ({"frames": "uint8 [84, 84]"}, "`frames` is uint8 [84, 84] on host 1, and float32 [4] on host 0"),
        ({"world": "gym/\x1b[2J"}, "`world` is gym/?[2J on host 1"),
        ({}, ""),
    ],
)
def test_worlds_that_differ_between_hosts_are_told(changed, said, monkeypatch):
    """One process is made to see what two would, of which the other has another world."""
    ours = hosts.identity(GYM.world)
    assert ours["version of gymnasium"] and ours["world"] == "gym/CartPole-v1"
    theirs = np.frombuffer(json.dumps(ours | changed).encode(), np.uint8)

    def gathered(mine):
        if mine.ndim == 0:
            return np.stack([mine, np.int32(len(theirs))])
        found = np.zeros((2, max(len(mine), len(theirs))), np.uint8)
        found[0, : len(mine)], found[1, : len(theirs)] = mine, theirs
        return found

    monkeypatch.setattr(hosts.multihost_utils, "process_allgather", gathered)
    if not said:
        hosts.agree_on(ours)
        return
    with pytest.raises(UsageError) as error:
        hosts.agree_on(ours)
    assert said in str(error.value) and "\x1b" not in str(error.value)


# Real processes.

CART = ["--steps", "2400", "--checkpoint-every", "50", "--learner.hidden", "16", "--learner.memory", "800",
        "--learner.batch-size", "16", "--learner.learning-starts", "64", "--evaluate-episodes", "2",
        "--eval-episodes", "0"]  # fmt: skip
PONG = ["--frames", "8000", "--checkpoint-every", "50", "--world.num-envs", "4", "--world.cap-frames", "400",
        "--world.threads", "1", "--learner.width", "16", "--learner.batch-size", "4", "--learner.memory", "400",
        "--learner.learning-starts", "64", "--learner.steps-per-update", "8", "--evaluate-episodes", "0",
        "--eval-episodes", "0"]  # fmt: skip
LENGTHS = {"gym/CartPole-v1": (CART, 300), "atari/pong": (PONG, 250)}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What comes of each world's run on two devices of one process; with eight, convolutions round differently."""

    @cache
    def of(world):
        folder = tmp_path_factory.mktemp("overlapped") / "run"
        words = ["train", world, *LENGTHS[world][0], "--mesh", "data=2", "--out", str(folder)]
        environment = os.environ | {"JAX_NUM_CPU_DEVICES": "2"}
        subprocess.run([sys.executable, "-m", "xladder.cli.main", *words], env=environment, check=True)
        return what_came_of(folder)

    return of


@pytest.mark.slow
@pytest.mark.parametrize("world", LENGTHS)
def test_two_processes_end_where_two_devices_do(world, undisturbed, tmp_path):
    code, said = launched(2, "train", world, *LENGTHS[world][0], "--out", tmp_path / "run")
    assert code == 0 and "They belong to 2 processes." in said, said
    assert what_came_of(tmp_path / "run") == undisturbed(world)


LOSSES = {
    "killed": (1, signal.SIGKILL, 75, "Host 1 ("),
    "host 0 killed": (0, signal.SIGKILL, 75, "Host 0 ("),
    "stopped": (1, signal.SIGSTOP, 75, "has not been heard from for 12 s"),
    "told to end": (1, signal.SIGTERM, 143, "Another host was told to stop"),
}


@pytest.mark.slow
@pytest.mark.parametrize("world", LENGTHS)
@pytest.mark.parametrize("loss", LOSSES)
def test_when_a_process_is_lost_the_others_end_and_the_run_goes_on(loss, world, undisturbed, tmp_path):
    """Atari goes on as if nothing had been. Gymnasium's envs cannot be saved: the run says so, and is finished."""
    number, sent, code, said = LOSSES[loss]
    folder = tmp_path / "run"
    with Launched(2, "train", world, *LENGTHS[world][0], "--out", folder) as run:
        run.until_saved(folder)
        victim, other, begun = run.host(number), run.host(1 - number), time.monotonic()
        os.kill(victim, sent)
        while is_alive(other):
            assert time.monotonic() - begun < 20
            time.sleep(0.05)
        if sent == signal.SIGSTOP:
            os.kill(victim, signal.SIGKILL)  # the launcher waits for it
        ended, heard = run.wait()
    assert ended == code and said in heard, heard
    assert f"Resume with: xladder launch --hosts 2 resume {folder}" in heard, heard
    again, heard = launched(2, "resume", folder)
    assert again == 0, heard
    if world.startswith("atari"):
        assert what_came_of(folder) == undisturbed(world)
    else:
        assert "The state of its envs could not be saved" in heard
        with (folder / "metrics.csv").open(newline="") as file:
            assert len(list(csv.DictReader(file))) == LENGTHS[world][1]


@pytest.mark.slow
def test_another_number_of_processes_goes_on(tmp_path):
    folder = tmp_path / "run"
    with Launched(2, "train", "atari/pong", *PONG, "--out", folder) as run:
        run.until_saved(folder)
        os.kill(run.host(1), signal.SIGTERM)
        assert run.wait()[0] == 143
    code, said = launched(1, "resume", folder)
    assert code == 0 and "1 along `data`. They belong to 1 processes." in said, said
    assert json.loads((folder / "finished.json").read_text())["ticks"] == LENGTHS["atari/pong"][1]


STUCK = """
from xladder.rungs.hosts import OverlappedHostsRun
advance = OverlappedHostsRun.advance
def stuck(self, ticks):
    if self.done > 100:
        time.sleep(1000)
    return advance(self, ticks)
OverlappedHostsRun.advance = stuck
"""
OTHER_VERSION = """
from xladder.worlds import identity
identity._version = lambda package: "0.0.1"
"""
TRIALS = {
    # what is wrong with host 1, words of both, exit code, and what both say
    "stuck": (STUCK, ["--stall-timeout", "4"], 75, "has been stuck for 4 s (`--stall-timeout`): between chunks"),
    "other emulators": (OTHER_VERSION, [], 2, "`version of gymnasium` is 0.0.1 on host 1, and "),
    "diverged": ("", ["--learner.lr", "1e30", "--learner.clip", "inf"], 4, "stopped being a number at tick"),
    "uneven": ("", ["--world.num-envs", "3", "--learner.steps-per-update", "3"], 2,
               "`--world.num-envs` is 3, which 2 devices cannot share evenly"),
    "too many devices": ("", ["--mesh", "data=4"], 2, "needs 2 devices on each of 2 hosts"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("trial", TRIALS)
def test_what_goes_wrong_on_one_host_ends_both_with_its_reason(trial, tmp_path):
    patch, words, code, said = TRIALS[trial]
    processes, address = [], f"127.0.0.1:{launch.free_ports()}"
    try:
        for number in (0, 1):
            where = ["--rung", "hosts", "--coordinator", address, "--num-hosts", "2", "--host-id", str(number)]
            command = ["train", "gym/CartPole-v1", *CART, *words, *where, "--out", str(tmp_path / "run")]
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", MEMBER.format(patch=patch if number else ""), *command],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    env=os.environ | {"JAX_NUM_CPU_DEVICES": "1", "TF_CPP_MIN_LOG_LEVEL": "2"},
                )
            )
        heard = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [code] * 2, heard
    for text in heard:
        assert said in text and "Traceback" not in text, text
