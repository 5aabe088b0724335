"""Run a command on `actors` in a child process, and watch over Ray's own processes, without which it cannot go on."""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from xladder.cli.signals import SHOW_CURSOR
from xladder.distributed import processes
from xladder.distributed.membership import split_address
from xladder.distributed.supervised import VARIABLE
from xladder.errors import PeerLost
from xladder.runs.reading import Unreadable, read_json

GLANCE = 0.25  # seconds between two looks at what cannot be waited for
REACH_SECONDS = 2.0  # between two looks at the port of a cluster
LAST_SECONDS = 20.0  # for the command to end once it has said that it is done
KILLED_WITHIN = 5.0
ENDING = 0.5  # for a killed process with much memory to be gone
PR_SET_CHILD_SUBREAPER = 36
AGENTS = {
    "dashboard agent": ("DashboardAgent", "dashboard/agent"),
    "runtime environment agent": ("RuntimeEnvAgent", "runtime_env"),
}
"""Processes that the raylet starts and does not survive, and what their command lines contain."""


def is_needed(words: Sequence[str]) -> bool:
    """Whether a command trains on `actors`."""
    if words[:1] not in (["train"], ["resume"]):
        return False
    flags = {}
    for word, after in pairwise([*words, ""]):
        flag, equals, value = word.partition("=")
        flags[flag] = value if equals else after
    if "--rung" in flags:
        return flags["--rung"] == "actors"
    files = [Path(flags.get("--config", ""))] if words[0] == "train" else [Path(w) / "config.json" for w in words[1:]]
    for file in files:
        with suppress(Unreadable):
            if read_json(file).get("rung") == "actors":
                return True
    return False


def run(words: Sequence[str], complain: Callable[[str, int], int]) -> int:
    """Run a command in a child process.

    Args:
        words: the command line.
        complain: prints a sentence and returns the exit code that it is given; for what was lost, if anything was.

    Returns:
        The exit code.
    """
    mine, theirs = socket.socketpair()
    adopt_orphans()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "xladder.cli.main", *words],
        env=os.environ | {VARIABLE: f"{theirs.fileno()} {sys.argv[0]}"},
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    watch = Watch(process, mine)
    with signals_passed_on(process):
        try:
            lost = watch.wait()
        finally:
            watch.remove_the_rest()
    if not lost:
        code = int(watch.facts.get("ended", process.wait()))
        return code if code >= 0 else 128 - code
    for stream in (1, 2):
        if os.isatty(stream):
            os.write(stream, b"\n" * (stream == 1) + SHOW_CURSOR)
    watch.log(lost)
    way_on = watch.facts.get("resume")
    return complain(f"{lost} Resume with: {way_on}" if way_on else lost, PeerLost.exit_code)


class Watch:
    """A child process, what it has said, and the processes of Ray that it needs."""

    def __init__(self, process: subprocess.Popen, channel: socket.socket):
        self.process, self.channel = process, channel
        channel.setblocking(False)
        self.facts: dict[str, Any] = {}
        self.unread, self.open = b"", True
        self.selector = selectors.DefaultSelector()
        self.selector.register(channel, selectors.EVENT_READ)
        self.handles: dict[int, tuple[int, str]] = {}  # file descriptor → process, name
        self.reached = time.monotonic()

    def wait(self) -> str:
        """Wait until the command has ended, or cannot go on. Returns what was lost; empty if nothing was."""
        until = float("inf")
        while self.process.poll() is None and time.monotonic() < until:
            if lost := self.look(GLANCE):
                return lost
            self.find_agents()
            if "ended" in self.facts:
                until = min(until, time.monotonic() + LAST_SECONDS)
        if (lost := self.look(0.0)) or "ended" in self.facts or "ray" not in self.facts:
            return lost
        code = self.process.returncode
        if code in (128 + signal.SIGINT, 128 + signal.SIGTERM):
            return ""
        return f"The learner was killed by signal {-code}." if code < 0 else "Ray was lost, and ended the learner."

    def look(self, seconds: float) -> str:
        """Wait for news for so long. Returns which process of Ray was lost, in a sentence; empty if none was."""
        ready = [key.fd for key, _ in self.selector.select(seconds)]
        self.listen()  # first: it may have ended Ray itself
        for fd in ready:
            if fd in self.handles and not self.is_killed():
                return f"{self.facts['whose']} {self.handles[fd][1]} was lost."
        return self.look_at_cluster()

    def is_killed(self) -> bool:
        """Whether the learner itself was killed. Ray's processes notice that, and may have ended before it has."""
        with suppress(subprocess.TimeoutExpired):
            return self.process.wait(ENDING) == -signal.SIGKILL
        return False

    def listen(self) -> None:
        """Read what the child has said."""
        with suppress(BlockingIOError, ConnectionError):
            while data := self.channel.recv(65536):
                self.unread += data
            if self.open:
                self.selector.unregister(self.channel)
                self.open = False
        *lines, self.unread = self.unread.split(b"\n")
        for line in lines:
            said = json.loads(line)
            self.facts |= said
            if "ray" in said:
                self.forget()
                for name, number in said["ray"].items():
                    self.watch(number, name)

    def watch(self, number: int, name: str) -> None:
        """Notice when a process ends. Where the system cannot tell, the end of the learner is noticed later."""
        with suppress(AttributeError, OSError):
            fd = os.pidfd_open(number)
            self.handles[fd] = number, name
            self.selector.register(fd, selectors.EVENT_READ)

    def forget(self) -> None:
        """Watch no process any more: the run has ended Ray, or begins another one."""
        for fd in self.handles:
            self.selector.unregister(fd)
            os.close(fd)
        self.handles = {}

    def find_agents(self) -> None:
        """Watch the raylet's agents as well, which start after it."""
        watched = {name: number for number, name in self.handles.values()}
        missing = AGENTS.keys() - watched.keys()
        if "raylet" not in watched or not missing:
            return
        for number in processes.children({watched["raylet"]}):
            command = processes.command_line(number)
            for name in missing:
                if any(part in command for part in AGENTS[name]):
                    self.watch(number, name)

    def look_at_cluster(self) -> str:
        """Whether the GCS server of a cluster still listens; a sentence if not."""
        address, place = self.facts.get("cluster"), split_address(self.facts.get("cluster") or "")
        if place is None or time.monotonic() - self.reached < REACH_SECONDS:
            return ""
        self.reached = time.monotonic()
        try:
            socket.create_connection(place, REACH_SECONDS).close()
        except ConnectionRefusedError:
            return f"The GCS server of the Ray cluster at {address} was lost."
        except OSError:  # busy, perhaps
            return ""
        return ""

    def log(self, sentence: str) -> None:
        """Append a sentence to the log of the run."""
        with suppress(OSError, KeyError), open(self.facts["log"], "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}\n")

    def remove_the_rest(self) -> None:
        """Kill all processes that were started for the command, and remove Ray's folder."""
        self.process.kill()
        until = time.monotonic() + KILLED_WITHIN
        while (left := processes.descendants(os.getpid())) and time.monotonic() < until:
            processes.kill(left)
            time.sleep(0.02)
        self.process.wait()
        if folder := self.facts.get("folder"):
            shutil.rmtree(folder, ignore_errors=True)


def adopt_orphans() -> None:
    """Become the parent of processes whose parents have ended, where the system allows it, so that none is missed."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


@contextmanager
def signals_passed_on(process: subprocess.Popen) -> Iterator[None]:
    """Send signals on to a process. In a terminal it gets Ctrl-C twice, which counts as once (`Debounce`)."""

    def pass_on(number: int, _: Any) -> None:
        process.send_signal(number)

    before = {
        number: signal.signal(number, pass_on)
        for number in (signal.SIGINT, signal.SIGTERM)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
