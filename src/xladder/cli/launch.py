"""`xladder launch`: start all processes of a multi-host run on this machine, to try it out."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from xladder import user_code
from xladder.cli.hosts import LAUNCHER
from xladder.cli.options import parse
from xladder.core.packages import program
from xladder.distributed.secret import VARIABLE, new_secret, read_secret
from xladder.errors import PeerLost, UsageError
from xladder.runs.reading import Unreadable, read_json

COMMANDS = ("train", "resume")
FOLLOWS = ("train|resume …", "The command for each process, with its workload or run and its own flags.")
LAST_PORT = 65_000
MOST_HOSTS = 64
PASSED_ON_AS: dict[int, int] = {signal.SIGHUP: signal.SIGTERM}  # losing the terminal also saves
PR_SET_PDEATHSIG = 1
LAST_SECONDS = 30.0  # given to the others to end, once one has failed


@dataclass(frozen=True)
class LaunchOptions:
    """How many processes to start; the command for each of them follows."""

    hosts: int = 2
    """Number of processes to start."""


def run(words: Sequence[str]) -> int:
    """Start the processes, pass signals on, and wait for them."""
    place = next((i for i, word in enumerate(words) if word in COMMANDS), len(words))
    about = "Start all processes of a multi-host run on this machine: xladder launch --hosts 2 train hypergrid"
    other = next((word for word in words[:place] if not word.startswith("-") and not word.isdecimal()), None)
    if other is not None and not words[words.index(other) - 1].startswith("--"):
        raise UsageError(f"`xladder launch` starts `train` or `resume`, not `{other}`.")
    options = parse(LaunchOptions, words[:place], "xladder launch", about, FOLLOWS)
    command = list(words[place:])
    if not command:
        raise UsageError("`xladder launch` needs a command: xladder launch --hosts 2 train hypergrid …")
    if {"-h", "--help"} & {*command}:
        return import_module(f"xladder.cli.{command[0]}").run(command[1:])
    refuse_places(command)
    if not any(word.partition("=")[0] == "--rung" for word in command):
        command += ["--rung", "hosts"]
    if not 1 <= options.hosts <= MOST_HOSTS:
        raise UsageError(f"`--hosts` is {options.hosts}, but it has to be 1 … {MOST_HOSTS}: all run on this machine.")
    address = f"127.0.0.1:{free_ports()}"
    trusted = user_code.as_flags()
    secret = {} if read_secret() else {VARIABLE: new_secret()}
    launcher = f"{program()} launch --hosts {options.hosts}"

    def start(number: int) -> subprocess.Popen:
        where = ["--coordinator", address, "--num-hosts", str(options.hosts), "--host-id", str(number)]
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "xladder.cli.main", *command, *where, *trusted],
            env=os.environ | device_of(number, command) | {LAUNCHER: launcher} | secret,
            stdout=None if number == 0 else subprocess.PIPE,
            stderr=None if number == 0 else subprocess.STDOUT,
            # Its own process group, so that Ctrl-C reaches only the launcher, which passes it on once.
            start_new_session=True,
            preexec_fn=end_with_launcher,
        )

    return wait_for(start, options.hosts)


def refuse_places(command: Sequence[str]) -> None:
    """Raise a `UsageError` for flags that the launcher sets for each process."""
    for word, after in pairwise([*command, ""]):
        flag, _, value = word.partition("=")
        if flag in ("--coordinator", "--num-hosts", "--host-id"):
            raise UsageError(f"`{flag}` is set by `xladder launch` for each process: leave it out.")
        if flag == "--rung" and (value or after) != "hosts":
            raise UsageError(f"`xladder launch` is for `--rung hosts`, not for `{value or after}`: leave it out.")


def end_with_launcher() -> None:
    """In a new process: ask the system, where possible, to send it SIGTERM if the launcher is killed, so it saves."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM))


def wait_for(start: Callable[[int], subprocess.Popen], hosts: int) -> int:
    """Start the processes and wait until all have ended. Returns the exit code of the launcher."""
    processes: list[subprocess.Popen] = []
    signals: list[int] = []

    def pass_on(number: int, _: Any) -> None:
        signals.append(number)
        for process in processes:
            if process.poll() is None:
                process.send_signal(PASSED_ON_AS.get(number, number))

    before = {
        number: signal.signal(number, pass_on)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN  # as after `nohup`
    }
    printers: list[threading.Thread] = []
    try:
        for number in range(hosts):
            if signals:
                break
            processes.append(start(number))
            if number:
                given = (processes[number], number, processes[0])
                printers.append(threading.Thread(target=repeat, args=given, daemon=True))
                printers[-1].start()
        codes = wait_for_all(processes)
        for printer in printers:
            printer.join(5.0)
    finally:
        for process in processes:
            process.kill()
        for number, handler in before.items():
            signal.signal(number, handler)
    if signals:
        sent = PASSED_ON_AS.get(signals[0], signals[0])
        if len(processes) < hosts or (any(codes) and set(codes) <= {0, PeerLost.exit_code, 128 + sent, -sent}):
            return 128 + signals[0]
    if PeerLost.exit_code in codes:
        return PeerLost.exit_code
    worst = next((code for code in codes if code), 0)
    return worst if worst >= 0 else 128 - worst


def wait_for_all(processes: Sequence[subprocess.Popen]) -> list[int]:
    """Wait for all processes and return their exit codes. Once one has failed, the rest are killed after a while."""
    until = None
    while any(process.poll() is None for process in processes):
        time.sleep(0.05)
        if until is None and any(process.poll() for process in processes):
            until = time.monotonic() + LAST_SECONDS
        if until is not None and time.monotonic() > until:
            for process in processes:
                process.kill()
    return [process.wait() for process in processes]


def repeat(process: subprocess.Popen, number: int, leader: subprocess.Popen) -> None:
    """Print the output of a host other than 0, prefixed with its number.

    An error is held back until host 0 has ended as well: if both end for the same reason, host 0 has said it.
    """
    assert process.stdout is not None
    held: list[str] = []
    for line in process.stdout:
        text = f"[host {number}] {line.decode(errors='replace').rstrip()}"
        if held or line.startswith(b"xladder: "):
            held.append(text)
        else:
            print(text, file=sys.stderr, flush=True)
    code = process.wait()
    with contextlib.suppress(subprocess.TimeoutExpired):
        if held and code > 1 and leader.wait(LAST_SECONDS) == code:
            return
    for text in held:
        print(text, file=sys.stderr, flush=True)


def free_ports() -> int:
    """Find a free port such that the next one is free as well."""
    for _ in range(100):
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = one.getsockname()[1]
            if port < LAST_PORT:
                try:
                    with socket.create_server(("127.0.0.1", port + 1)):
                        return int(port)
                except OSError:
                    continue
    raise UsageError("No two neighbouring ports of 127.0.0.1 are free.")


def device_of(number: int, command: Sequence[str]) -> dict[str, str]:
    """Environment variables that give each process its own GPU if requested, and otherwise the shared CPU."""
    if requested_device(command) != "gpu":
        return {"JAX_PLATFORMS": "cpu"}
    visible_devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    visible = visible_devices.split(",") if visible_devices else [str(number) for number in range(MOST_HOSTS)]
    if number >= len(visible):
        raise UsageError(f"Every host needs its own GPU, but CUDA_VISIBLE_DEVICES names only {len(visible)}.")
    if visible[number] in visible[:number]:  # NCCL, which carries JAX's collectives, refuses two processes on one
        raise UsageError(f"Every host needs its own GPU, but CUDA_VISIBLE_DEVICES names {visible[number]} twice.")
    return {"CUDA_VISIBLE_DEVICES": visible[number]}


def requested_device(command: Sequence[str]) -> str | None:
    """The device that a command names, or that of the run it resumes."""
    for word, after in pairwise([*command, ""]):
        if word == "--device":
            return after
        if word.startswith("--device="):
            return word.removeprefix("--device=")
    if command[0] == "resume" and len(command) > 1:
        with contextlib.suppress(Unreadable):
            device = read_json(Path(command[1]) / "config.json").get("device")
            return device if isinstance(device, str) else None
    return None
