"""The view that one process of a multi-host run has of the others: messages, heartbeats and losses."""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from xladder.distributed import rendezvous
from xladder.distributed.connection import JsonConnection
from xladder.distributed.membership import Membership
from xladder.errors import PeerLost, UsageError, printable

BEAT = 1.0  # seconds between two heartbeats
SILENCE = 12.0  # seconds without a heartbeat after which a host counts as lost
STARTING = 900.0  # seconds allowed for compiling, whatever the stall timeout
OWN_ENDING = 2.0  # seconds for a process to end by itself when another one has failed
STOPPED = (130, 143)  # exit codes after signals, on which all hosts save and end together
CONCLUDING = "concluding"


@dataclass
class Status:
    """The last known status of one host."""

    name: str = ""
    steps: int = 0
    """How many activities it has begun."""
    doing: str = "starting"
    changed: float = field(default_factory=time.monotonic)
    heard: float = field(default_factory=time.monotonic)


class Cluster:
    """This process's connection to the other hosts of a run."""

    def __init__(self, membership: Membership, signalled: Callable[[], int] = lambda: 0):
        self.membership, self.signalled = membership, signalled
        self.on_loss: Callable[[str], str] = lambda sentence: ""
        """Called when a peer is lost, just before this process exits: records it, and returns how to continue."""
        self.connections: dict[int, JsonConnection] = {}
        """On host 0: to all others. On the others: to host 0."""
        self.statuses = {i: Status() for i in range(membership.num_hosts)}
        self.statuses[membership.host_id].name = rendezvous.own_name()
        self.left: set[int] = set()
        self.ended = threading.Event()
        self.joined = False
        """Whether `jax.distributed` is initialised."""
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.code = 0
        self._rendezvous: rendezvous.Rendezvous | None = None
        self._losing = threading.Lock()

    # The rendezvous

    def meet(self, wanted: Mapping[str, Any] | None) -> dict[str, Any]:
        """Wait until all hosts are connected and check that their settings agree.

        Args:
            wanted: this host's settings; None accepts those of host 0.

        Returns:
            The message that host 0 sends with `go`; on host 0, which calls `go` itself later, an empty one.
        """
        me, until = self.membership, time.monotonic() + self.membership.init_timeout
        if not me.leads:
            self.connections[0], message = rendezvous.join(me, wanted, until)
            self._watch()
            return message
        self._rendezvous = rendezvous.Rendezvous(me)
        if not me.is_local:
            print(
                f"xladder: listening at {me.coordinator} for hosts that know the secret. JAX's own port, "
                f"{me.address_of_jax}, asks for none: use a network that you trust.",
                flush=True,
            )
        plain = json.loads(json.dumps(wanted or {}))  # as the others receive it
        self._rendezvous.wait_for_all(plain, until)
        self.connections = self._rendezvous.here
        for host, name in self._rendezvous.names.items():
            self.statuses[host].name = name
        return {}

    def go(self, message: Mapping[str, Any]) -> None:
        """Host 0: let all hosts start."""
        if self._rendezvous:
            self._rendezvous.close()
        for connection in self.connections.values():
            connection.send({"go": dict(message)})
        self._watch()

    def refuse(self, sentence: str, code: int = UsageError.exit_code) -> None:
        """Host 0: tell all hosts that the run will not start, and why."""
        if self._rendezvous:
            self._rendezvous.refuse(sentence, code)

    def connect_jax(self) -> None:
        """Initialise `jax.distributed`, once. Call this before anything asks JAX for devices."""
        if self.joined:
            return
        import jax
        from jax.experimental import multihost_utils

        me = self.membership
        # JAX's preemption service would swallow SIGTERM, which we handle.
        jax.config.update("jax_enable_preemption_service", False)
        with suppress(AttributeError):  # JAX must not abort when host 0 is lost, either: `_beat` reports it
            jax.config.update("jax_enable_recoverability", True)
        try:
            jax.distributed.initialize(
                coordinator_address=me.address_of_jax,
                num_processes=me.num_hosts,
                process_id=me.host_id,
                initialization_timeout=max(10, int(me.init_timeout)),
                coordinator_bind_address=me.address_of_jax if me.leads else None,
            )
        except Exception as error:
            first = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise PeerLost(f"JAX could not connect the hosts at {me.address_of_jax}: {first}") from None
        counts = [sum(d.process_index == i for d in jax.devices()) for i in range(me.num_hosts)]
        if len(set(counts)) > 1:
            each = ", ".join(f"host {i} has {count}" for i, count in enumerate(counts))
            raise UsageError(
                f"All hosts need the same number of devices, but {each}; CUDA_VISIBLE_DEVICES selects which are used."
            )
        with _no_output():
            multihost_utils.sync_global_devices("all hosts are there")
        self.joined = True

    # While the run goes on

    def tell(self, message: Mapping[str, Any]) -> None:
        """Host 0: send a message to all others."""
        for connection in self.connections.values():
            connection.send({"message": dict(message)})

    def hear(self) -> dict[str, Any] | None:
        """The others: wait for a message of host 0; None if it has ended."""
        return self._messages.get()

    def begin(self, doing: str) -> None:
        """Record that this process begins a new activity."""
        mine = self.statuses[self.membership.host_id]
        mine.steps, mine.doing, mine.changed = mine.steps + 1, doing, time.monotonic()

    def wait_for_blame(self, seconds: float = 5.0) -> None:
        """After a failed collective: give the health check time to name the dead host and to end this process."""
        time.sleep(seconds)

    def leave(self, code: int, why: str = "") -> None:
        """Tell the others that this process ends, and stop watching them.

        Args:
            code: its exit code.
            why: the error, if there was one.
        """
        self.ended.set()
        for connection in self.connections.values():
            connection.send({"bye": code, "why": why})

    def wait_for_leader(self) -> int:
        """The others: wait until host 0 has finished everything, and return its exit code."""
        self.ended.wait()
        return self.code

    def close(self) -> None:
        """Close all connections."""
        for connection in self.connections.values():
            connection.close()
        if self._rendezvous:
            self._rendezvous.close()

    def _watch(self) -> None:
        now = time.monotonic()
        for status in self.statuses.values():
            status.heard = status.changed = now
        for host in self.connections:
            threading.Thread(target=self._listen, args=(host,), daemon=True).start()
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        """Every second: send this process's status, and check that the others were heard from."""
        me = self.membership
        while not self.ended.wait(BEAT):
            message = {
                str(i): {"steps": s.steps, "doing": s.doing, "name": s.name, "silent": time.monotonic() - s.heard}
                for i, s in self.statuses.items()
                if me.leads or i == me.host_id
            }
            for connection in self.connections.values():
                connection.send({"statuses": message})
            lost = self.verdict(time.monotonic())
            if lost:
                self.lose(lost)

    def verdict(self, now: float) -> str:
        """A sentence that says which hosts are lost or stuck; empty if all is well."""
        me = self.membership
        self.statuses[me.host_id].heard = now
        silent = [i for i, s in self.statuses.items() if i not in self.left and now - s.heard > SILENCE]
        if silent:
            return f"{self._named(silent)} {_has(silent)} not been heard from for {SILENCE:g} s."
        if self.statuses[0].doing == CONCLUDING:  # evaluation and figures have no time limit
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
        """Read the messages of one host until its connection ends."""
        connection = self.connections[host]
        while True:
            message = connection.receive()
            if message is None:
                if host not in self.left and not self.ended.is_set():
                    self.lose(f"{self._named([host])} has ended without notice.")
                return
            if "statuses" in message:
                self._note(message["statuses"])
            elif "message" in message:
                self._messages.put(message["message"])
            elif "lost" in message:
                self.lose(printable(message["lost"], 500))
            elif "bye" in message:
                self.left.add(host)
                code = int(message["bye"])
                if host == 0:
                    self.code = code
                    self.ended.set()
                    self._messages.put(None)
                    if code and code not in STOPPED:
                        # Only host 0 has failed; what this process waits for will not come.
                        print(
                            f"xladder: Host 0: {printable(message.get('why', ''), 1000)}", file=sys.stderr, flush=True
                        )
                        os._exit(code)
                elif code and not self.ended.wait(OWN_ENDING):
                    # An error that all hosts share, such as a loss of NaN, is reported by this process itself.
                    self.lose(f"{self._named([host])} ended with code {code}. {printable(message.get('why', ''), 500)}")

    def _note(self, message: Mapping[str, Any]) -> None:
        now = time.monotonic()
        for name, one in message.items():
            i = int(name)
            if i == self.membership.host_id or i not in self.statuses:
                continue
            status = self.statuses[i]
            if int(one["steps"]) != status.steps:
                status.steps, status.changed = int(one["steps"]), now
            status.doing = printable(one["doing"], 100)
            status.name = printable(one["name"], 100) or status.name
            status.heard = now - (float(one["silent"]) if i else 0.0)

    def lose(self, sentence: str) -> None:
        """Report a lost peer and exit at once, without saving.

        A regular exit would wait minutes for the lost peer, and then abort.
        """
        self._losing.acquire()  # never released: only the first loss is reported
        self.ended.set()
        starting = not self.statuses[self.membership.host_id].steps
        if starting and (number := self.signalled()):
            # All were told to end, and the other one only was quicker: this process may be inside the compiler.
            os._exit(128 + number)
        for host, connection in self.connections.items():
            if host not in self.left:
                connection.send({"lost": sentence})
        print(f"xladder: {sentence} {self.on_loss(sentence)}".rstrip(), file=sys.stderr, flush=True)
        sys.stdout.flush()
        os._exit(PeerLost.exit_code)

    def _named(self, hosts: list[int]) -> str:
        names = [f"{i} ({self.statuses[i].name})" if self.statuses[i].name else str(i) for i in hosts]
        return f"Host{'s' * (len(hosts) > 1)} {', '.join(names)}"


@contextmanager
def _no_output() -> Iterator[None]:
    """Silence standard output, where the library behind JAX's CPU collectives (Gloo) announces itself."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


def _has(numbers: list[int]) -> str:
    return "have" if len(numbers) > 1 else "has"
