"""The processes of one run on several hosts: who they are, that they agree, and that all are still there.

`jax.distributed` carries the numbers. It does not say who is missing, takes minutes to notice a peer that has died, and
never notices one that is stuck. So the processes hold one more connection each, to host 0, on which lines of JSON go:
first a roll call (are all there, and do they want the same?), then, once a second, how far each has come.

Two ports of the coordinator are used: the one that is given for this, and the next one for JAX.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from xladder.core.state import flatten
from xladder.errors import PeerLost, UsageError

BEAT = 1.0  # seconds between two signs of life
SILENCE = 12.0  # seconds without one after which a host counts as lost
STARTING = 900.0  # seconds that compiling may take, whatever the stall timeout
OWN_ENDING = 2.0  # seconds that a process has to end by itself when another has failed
STOPPED = (130, 143)  # after signals, for which all save and end together
CONCLUDING = "concluding"
LONGEST_LINE = 2**20
RETRY = 0.2
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Membership:
    """Which of how many processes this one is, and where they meet."""

    coordinator: str
    num_hosts: int
    host_id: int
    init_timeout: float = 60.0
    stall_timeout: float = 600.0

    def __post_init__(self) -> None:
        host, _, port = self.coordinator.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 2**16 - 1:
            raise UsageError(f"`--coordinator` is {self.coordinator}, but it has to be HOST:PORT, such as node1:7000.")
        if self.num_hosts < 1:
            raise UsageError(f"`--num-hosts` is {self.num_hosts}, but it has to be 1 or more.")
        if not 0 <= self.host_id < self.num_hosts:
            raise UsageError(
                f"`--host-id` is {self.host_id}, but the {self.num_hosts} hosts are 0 … {self.num_hosts - 1}."
            )
        for flag, seconds in (("init-timeout", self.init_timeout), ("stall-timeout", self.stall_timeout)):
            if not 0 < seconds < float("inf"):
                raise UsageError(f"`--{flag}` is {seconds}, but it has to be a positive number of seconds.")

    @property
    def address(self) -> tuple[str, int]:
        """Where the roll call is held."""
        host, _, port = self.coordinator.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes."""
        return self.host_id == 0


class Line:
    """A connection on which lines of JSON go."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self._file = connection.makefile("rb")
        self._sending = threading.Lock()

    def send(self, message: Mapping[str, Any]) -> None:
        """One line. A peer that is gone is noticed by whoever reads."""
        with suppress(OSError), self._sending:
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, timeout: float | None = None) -> dict[str, Any] | None:
        """The next line; None if there will be none."""
        try:
            self.connection.settimeout(timeout)
            found = json.loads(self._file.readline(LONGEST_LINE))
        except (OSError, ValueError, RecursionError):
            return None
        return found if isinstance(found, dict) else None

    def close(self) -> None:
        """End it."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
            self.connection.close()


@dataclass
class Status:
    """What is known of one host."""

    name: str = ""
    steps: int = 0
    """How often it has begun something new."""
    doing: str = "starting"
    changed: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)


class Cluster:
    """This process among the others."""

    def __init__(self, membership: Membership):
        self.membership = membership
        self.on_loss: Callable[[str], str] = lambda sentence: ""
        """Told before the process ends, because a peer is lost: writes it down, and says how to go on."""
        self.lines: dict[int, Line] = {}
        """Host 0: to all others. The others: to host 0."""
        self.statuses = {i: Status() for i in range(membership.num_hosts)}
        self.left: set[int] = set()
        self.ended = threading.Event()
        self.joined = False
        """Whether JAX knows of the others."""
        self._told: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.code = 0
        self._listener: socket.socket | None = None
        self._deadline = time.monotonic() + membership.init_timeout

    # The roll call

    def meet(self, wanted: Mapping[str, Any] | None) -> dict[str, Any]:
        """Wait until all are there and see that they want the same; None wants what host 0 does.

        Returns what host 0 has to tell, once it says `go`. On host 0 that is nothing: it says `go` when it is ready.
        """
        plain = json.loads(json.dumps(wanted or {}))  # as it arrives at the others
        return self._call_roll(plain) if self.membership.leads else self._answer(wanted)

    def go(self, told: Mapping[str, Any]) -> None:
        """Host 0: all may begin."""
        if self._listener:
            self._listener.close()  # whoever comes now is too late
        for line in self.lines.values():
            line.send({"go": dict(told)})
        for host in self.lines:
            threading.Thread(target=self._listen, args=(host,), daemon=True).start()
        self._watch()

    def refuse(self, sentence: str, code: int = UsageError.exit_code) -> None:
        """Host 0: there will be no run, and why."""
        for line in self.lines.values():
            line.send({"refused": sentence, "code": code})
        self.close()

    def _call_roll(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        me, (host, port) = self.membership, self.membership.address
        for number in (port, port + 1):
            try:
                found = socket.create_server((host, number), reuse_port=False)
            except OSError as error:
                raise UsageError(
                    f"Host 0 cannot listen at {host}:{number} ({error.strerror or error}): `--coordinator` has to be "
                    "an address of this machine with two free ports, the one given and the next."
                ) from None
            if number == port:
                self._listener = found
            else:
                found.close()  # JAX's: it is free
        if host not in LOOPBACK:
            print(
                f"xladder: listening at {host}:{port} for the other hosts; anyone who reaches it can join.", flush=True
            )
        assert self._listener is not None
        self.statuses[0].name = _own_name()
        while len(self.lines) < me.num_hosts - 1:
            left = self._deadline - time.monotonic()
            if left <= 0:
                missing = [i for i in range(1, me.num_hosts) if i not in self.lines]
                sentence = (
                    f"{_hosts(missing)} did not appear at {me.coordinator} within {me.init_timeout:g} s "
                    f"(`--init-timeout`); {_hosts([0, *self.lines])} {'are' if self.lines else 'is'} there."
                )
                self.refuse(sentence, PeerLost.exit_code)
                raise PeerLost(sentence)
            self._listener.settimeout(min(left, 1.0))
            with suppress(TimeoutError):
                self._welcome(Line(self._listener.accept()[0]), wanted)
        return {}

    def _welcome(self, line: Line, wanted: Mapping[str, Any]) -> None:
        """Someone has come: a host of this run that is not here yet and wants the same, or nobody we know."""
        said = line.receive(5.0)
        host = said.get("host") if said else None
        if said is None or type(host) is not int:
            line.close()
            return
        refusal = self._disagreement(host, said, wanted)
        if refusal:
            line.send({"refused": refusal})
            self.refuse(refusal)
            raise UsageError(refusal)
        self.lines[host] = line
        self.statuses[host].name = str(said.get("name", ""))[:100]

    def _disagreement(self, host: int, said: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
        number = self.membership.num_hosts
        if said.get("num_hosts") != number:
            return f"Host {host} was told `--num-hosts {said.get('num_hosts')}`, and host 0 {number}."
        if not 0 < host < number or host in self.lines:
            return f"There are two processes with `--host-id {host}`: each needs its own, 0 … {number - 1}."
        theirs, ours = said.get("wanted"), dict(flatten(wanted))
        if not isinstance(theirs, dict):
            return ""
        theirs = dict(flatten(theirs))
        for name in sorted(ours.keys() | theirs.keys()):
            if ours.get(name) != theirs.get(name):
                return (
                    f"Host {host} has `{name}` {theirs.get(name)}, and host 0 has {ours.get(name)}: start both alike."
                )
        return ""

    def _answer(self, wanted: Mapping[str, Any] | None) -> dict[str, Any]:
        me = self.membership
        line = self._connect()
        line.send({"host": me.host_id, "num_hosts": me.num_hosts, "name": _own_name(), "wanted": wanted})
        said = line.receive(max(self._deadline - time.monotonic(), 0.0) + me.init_timeout)
        if said and "go" in said:
            self.lines[0] = line
            threading.Thread(target=self._listen, args=(0,), daemon=True).start()
            self._watch()
            told: dict[str, Any] = said["go"]
            return told
        line.close()
        if said and "refused" in said:
            kind = PeerLost if said.get("code") == PeerLost.exit_code else UsageError
            raise kind(str(said["refused"])[:2000])
        raise PeerLost(f"Host 0 at {me.coordinator} has gone before all hosts were there.")

    def _connect(self) -> Line:
        me, reason = self.membership, ""
        while True:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise PeerLost(
                    f"Host {me.host_id} found nobody at {me.coordinator} within {me.init_timeout:g} s "
                    f"(`--init-timeout`): {reason}. Host 0 has to be started with the same `--coordinator`."
                )
            try:
                return Line(socket.create_connection(me.address, timeout=min(left, 5.0)))
            except socket.gaierror as error:
                raise UsageError(
                    f"`--coordinator` is {me.coordinator}, and nobody knows that name ({error.strerror})."
                ) from None
            except OSError as error:
                reason = error.strerror or str(error) or type(error).__name__
                time.sleep(min(RETRY, left))

    def connect_jax(self) -> None:
        """Join the others in JAX, if that is not done. Before anything asks it for devices."""
        if self.joined:
            return
        import jax
        from jax.experimental import multihost_utils

        me = self.membership
        host, port = me.address
        # Its preemption service would swallow SIGTERM, which is ours to answer.
        jax.config.update("jax_enable_preemption_service", False)
        with suppress(AttributeError):  # nor is it to abort the process when host 0 is gone: the watch says who it was
            jax.config.update("jax_enable_recoverability", True)
        try:
            jax.distributed.initialize(
                coordinator_address=f"{host}:{port + 1}",
                num_processes=me.num_hosts,
                process_id=me.host_id,
                initialization_timeout=max(10, int(me.init_timeout)),
                coordinator_bind_address=f"{host}:{port + 1}" if me.leads else None,
            )
        except Exception as error:
            first = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise PeerLost(f"The hosts could not be joined in JAX at {host}:{port + 1}: {first}") from None
        with _no_output():
            multihost_utils.sync_global_devices("all hosts are there")
        self.joined = True

    # While the run goes on

    def tell(self, message: Mapping[str, Any]) -> None:
        """Host 0: something that all have to know."""
        for line in self.lines.values():
            line.send({"told": dict(message)})

    def hear(self) -> dict[str, Any] | None:
        """The others: what host 0 tells; None if it has ended instead."""
        return self._told.get()

    def begin(self, doing: str) -> None:
        """This process begins something new."""
        mine = self.statuses[self.membership.host_id]
        mine.steps, mine.doing, mine.changed = mine.steps + 1, doing, time.monotonic()

    def wait_for_blame(self, seconds: float = 5.0) -> None:
        """Called when a collective failed: whoever died is named by the watch, which then ends this process."""
        time.sleep(seconds)

    def leave(self, code: int, why: str = "") -> None:
        """Tell the others that this process ends, and how; then it may. Nobody is missed from now on."""
        self.ended.set()
        for line in self.lines.values():
            line.send({"bye": code, "why": why})

    def wait_for_leader(self) -> int:
        """The others: until host 0 is done with everything. Returns its exit code."""
        self.ended.wait()
        return self.code

    def close(self) -> None:
        """End all connections."""
        for line in self.lines.values():
            line.close()
        if self._listener:
            self._listener.close()

    def _watch(self) -> None:
        now = time.monotonic()
        for status in self.statuses.values():
            status.heard = status.changed = now
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        """Once a second: say how far this process has come, and look whether all others have been heard."""
        me = self.membership
        while not self.ended.wait(BEAT):
            told = {
                str(i): {"steps": s.steps, "doing": s.doing, "name": s.name, "silent": time.monotonic() - s.heard}
                for i, s in self.statuses.items()
                if me.leads or i == me.host_id
            }
            for line in self.lines.values():
                line.send({"statuses": told})
            lost = self.verdict(time.monotonic())
            if lost:
                self.lose(lost)

    def verdict(self, now: float) -> str:
        """Who is lost or stuck, in a sentence; nothing if all is well."""
        me = self.membership
        self.statuses[me.host_id].heard = now
        silent = [i for i, s in self.statuses.items() if i not in self.left and now - s.heard > SILENCE]
        if silent:
            return f"{self._named(silent)} {_has(silent)} not been heard of for {SILENCE:g} s."
        if self.statuses[0].doing == CONCLUDING:  # scores and pictures take as long as they take
            return ""
        least = min(s.steps for s in self.statuses.values())
        patience = me.stall_timeout if least else max(me.stall_timeout, STARTING)
        if all(now - s.changed > patience for i, s in self.statuses.items() if i not in self.left):
            stuck = [i for i, s in self.statuses.items() if s.steps == least]
            doing = self.statuses[stuck[0]].doing
            limit = f"{patience:g} s (`--stall-timeout`)"
            return f"{self._named(stuck)} {_has(stuck)} been stuck for {limit}: {doing}."
        return ""

    def _listen(self, host: int) -> None:
        """Hear what one connection has to say, until it ends."""
        line = self.lines[host]
        while True:
            said = line.receive()
            if said is None:
                if host not in self.left and not self.ended.is_set():
                    self.lose(f"{self._named([host])} has ended without a word.")
                return
            if "statuses" in said:
                self._note(said["statuses"])
            elif "told" in said:
                self._told.put(said["told"])
            elif "lost" in said:
                self.lose(str(said["lost"])[:500])
            elif "bye" in said:
                self.left.add(host)
                code = int(said["bye"])
                if host == 0:
                    self.code = code
                    self.ended.set()
                    self._told.put(None)
                    if code and code not in STOPPED:
                        # It alone has failed, and whatever this process waits for will not come.
                        print(f"xladder: Host 0: {said.get('why', '')}"[:1000], file=sys.stderr, flush=True)
                        os._exit(code)
                elif code and not self.ended.wait(OWN_ENDING):
                    # What ends all hosts alike (a loss that is no number) ends this one, too, in its own words.
                    self.lose(f"{self._named([host])} ended with code {code}. {str(said.get('why', ''))[:500]}")

    def _note(self, told: Mapping[str, Any]) -> None:
        now = time.monotonic()
        for name, one in told.items():
            i = int(name)
            if i == self.membership.host_id or i not in self.statuses:
                continue
            status = self.statuses[i]
            if int(one["steps"]) != status.steps:
                status.steps, status.changed = int(one["steps"]), now
            status.doing = str(one["doing"])[:100]
            status.name = str(one["name"])[:100] or status.name
            status.heard = now - (float(one["silent"]) if i else 0.0)

    def lose(self, sentence: str) -> None:
        """A peer is lost, so the run is: say who it was and end at once. Nothing half is saved.

        To leave Python as usual would wait for the lost one for minutes and end in an abort.
        """
        self.ended.set()
        for host, line in self.lines.items():
            if host not in self.left:
                line.send({"lost": sentence})
        print(f"xladder: {sentence} {self.on_loss(sentence)}".rstrip(), file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(PeerLost.exit_code)

    def _named(self, hosts: list[int]) -> str:
        names = [f"{i} ({self.statuses[i].name})" if self.statuses[i].name else str(i) for i in hosts]
        return f"Host{'s' * (len(hosts) > 1)} {', '.join(names)}"


@contextmanager
def _no_output() -> Iterator[None]:
    """The library that carries numbers between processors announces itself on standard output."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _own_name() -> str:
    return f"{socket.gethostname()}, process {os.getpid()}"


def _hosts(numbers: list[int]) -> str:
    return f"Host{'s' * (len(numbers) > 1)} {', '.join(str(number) for number in numbers)}"


def _has(numbers: list[int]) -> str:
    return "have" if len(numbers) > 1 else "has"


_current: Cluster | None = None


def current() -> Cluster | None:
    """The cluster that this process belongs to, as it belongs to one in JAX."""
    return _current


def enter(cluster: Cluster) -> None:
    """This process belongs to that cluster from now on."""
    global _current
    _current = cluster
