"""Runs of several processes of which some are lost: Ray's own on `actors`, hosts on `hosts`."""

import os
import random
import shutil
import signal
import time
from pathlib import Path

from tests.test_hosts import GRID, Launched, is_alive
from tests.test_resume import what_came_of
from tests.test_supervisor import Running
from tests.torture.lives import patience, quietly, wait_until

WITHIN = 15.0  # seconds until everything has ended
RAYS = {
    "raylet/raylet": "raylet",
    "gcs_server": "GCS server",
    "DashboardAgent": "dashboard agent",
    "RuntimeEnvAgent": "runtime environment agent",
}
"""What a command line contains → the name of the process."""
GYM = ["gym/CartPole-v1", "--steps", "6000", "--checkpoint-every", "50", "--world.num-envs", "8",
       "--learner.memory", "2000", "--learner.learning-starts", "400", "--learner.batch-size", "16",
       "--learner.width", "16", "--evaluate-episodes", "0", "--eval-episodes", "0"]  # fmt: skip
ATARI = ["atari/pong", "--frames", "12800", "--checkpoint-every", "20", "--world.num-envs", "4",
         "--learner.memory", "2000", "--learner.learning-starts", "200", "--learner.batch-size", "8",
         "--learner.width", "16", "--evaluate-episodes", "0", "--eval-episodes", "0"]  # fmt: skip


def ray_lost(count: int, rng: random.Random, folder: Path) -> str:
    """Ray's own processes killed while `actors` trains: a sentence, exit 75, no process or folder left."""
    slowest, titles = 0.0, list(RAYS)
    for number in range(count):
        title = titles[number % len(titles)]
        running = Running(folder / str(number))
        try:
            time.sleep(rng.uniform(0, 2))
            os.kill(running.find(title), signal.SIGKILL)
            begun = time.monotonic()
            code, said = running.ends(patience(WITHIN))
            slowest = max(slowest, time.monotonic() - begun)
            sentence = f"xladder: Ray's {RAYS[title]} was lost. Resume with: xladder resume {running.run}\n"
            assert code == 75 and sentence in said and "Traceback" not in said, (title, code, said[-2000:])
        finally:
            running.clear()
        shutil.rmtree(folder / str(number))
    kinds = ", ".join(list(RAYS.values())[:count])
    return f"{count} lost ({kinds}): named, exit 75, nothing left, after {slowest:.1f} s at most"


def hosts_lost(count: int, rng: random.Random, folder: Path) -> str:
    """A host of two killed at a random instant, and the run resumed: hypergrid ends as if nothing had been."""
    whole = folder / "whole"
    code, said = quietly(["train", "hypergrid", *GRID, "--mesh", "data=2", "--out", str(whole)])
    assert code == 0, said
    expected = what_came_of(whole)
    for _ in range(count):
        run = folder / "run"
        lose_a_host(["hypergrid", *GRID], rng, run)
        assert what_came_of(run) == expected, "another run than the one left alone"
        shutil.rmtree(run)
    return f"{count} killed: exit 75, resumed, all equal to the one left alone"


def host_worlds_lost(count: int, rng: random.Random, folder: Path) -> str:
    """The same with worlds that live on the hosts, Atari and Gymnasium by turns: the run is resumed to its end."""
    for number in range(count):
        run = folder / "run"
        lose_a_host((ATARI, GYM)[number % 2], rng, run)
        assert (run / "finished.json").exists()
        shutil.rmtree(run)
    return f"{count} killed: exit 75, resumed to the end"


def lose_a_host(words: list[str], rng: random.Random, run: Path) -> None:
    """Train on two hosts, kill one after the first checkpoint, and resume."""
    victim = rng.randrange(2)
    with Launched(2, "train", *words, "--out", run) as launched:
        saved = wait_until(
            lambda: launched.process.poll() is not None or bool(list((run / "checkpoints").glob("tick-?????????"))), 120
        )
        assert saved and launched.process.poll() is None, "it ended before its first checkpoint, or never saved one"
        killed, other = launched.host(victim), launched.host(1 - victim)
        os.kill(killed, signal.SIGKILL)
        assert wait_until(lambda: not is_alive(other), WITHIN), f"host {1 - victim} went on after the other was lost"
        said, _ = launched.process.communicate(timeout=patience(60))
        code = launched.process.returncode
        assert code == 75 and f"Host {victim} (" in said and "Traceback" not in said, (code, said[-2000:])
        assert f"xladder launch --hosts 2 resume {run}" in said, said[-2000:]
    with Launched(2, "resume", run) as again:
        said, _ = again.process.communicate(timeout=patience(300))
        assert again.process.returncode == 0, said[-2000:]
