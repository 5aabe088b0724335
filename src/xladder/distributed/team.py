"""This process among those of its run: what it tells them, what it hears, and who is lost."""

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

BEAT = 1.0  # seconds between two signs of life
SILENCE = 12.0  # seconds without one after which a host counts as lost
STARTING = 900.0  # seconds that compiling may take, whatever the stall timeout
OWN_ENDING = 2.0  # seconds that a process has to end by itself when another has failed
STOPPED = (130, 143)  # after signals, for which all save and end together
CONCLUDING = "concluding"


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
        self.connections: dict[int, JsonConnection] = {}
        """Host 0: to all others. The others: to host 0."""
        self.statuses = {i: Status() for i in range(membership.num_hosts)}
        self.left: set[int] = set()
        self.ended = threading.Event()
        self.joined = False
        """Whether JAX knows of the others."""
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue()
        self.code = 0
        self._rendezvous: rendezvous.Rendezvous | None = None
        self._losing = threading.Lock()

    # The rendezvous

    def meet(self, wanted: Mapping[str, Any] | None) -> dict[str, Any]:
        """Wait until all are there and see that they want the same; None wants what host 0 does.

        Returns what host 0 has to tell, once it says `go`. On host 0 that is nothing: it says `go` when it is ready.
        """
        me, until = self.membership, time.monotonic() + self.membership.init_timeout
        if not me.leads:
            self.connections[0], message = rendezvous.join(me, wanted, until)
            self._watch()
            return message
        self._rendezvous = rendezvous.Rendezvous(me)
        if not me.is_local:
            print(
                f"xladder: listening at {me.coordinator} for the other hosts; anyone who reaches it can join.",
                flush=True,
            )
        plain = json.loads(json.dumps(wanted or {}))  # as it arrives at the others
        self._rendezvous.wait_for_all(plain, until)
        self.connections = self._rendezvous.here
        for host, name in self._rendezvous.names.items():
            self.statuses[host].name = name
        return {}

    def go(self, message: Mapping[str, Any]) -> None:
        """Host 0: all may begin."""
        if self._rendezvous:
            self._rendezvous.close()
        for connection in self.connections.values():
            connection.send({"go": dict(message)})
        self._watch()

    def refuse(self, sentence: str, code: int = UsageError.exit_code) -> None:
        """Host 0: there will be no run, and why."""
        if self._rendezvous:
            self._rendezvous.refuse(sentence, code)

    def connect_jax(self) -> None:
        """Join the others in JAX, if that is not done. Before anything asks it for devices."""
        if self.joined:
            return
        import jax
        from jax.experimental import multihost_utils

        me = self.membership
        # Its preemption service would swallow SIGTERM, which is ours to answer.
        jax.config.update("jax_enable_preemption_service", False)
        with suppress(AttributeError):  # nor is it to abort the process when host 0 is gone: the watch says who it was
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
            raise PeerLost(f"The hosts could not be joined in JAX at {me.address_of_jax}: {first}") from None
        counts = [sum(d.process_index == i for d in jax.devices()) for i in range(me.num_hosts)]
        if len(set(counts)) > 1:
            each = ", ".join(f"host {i} has {count}" for i, count in enumerate(counts))
            raise UsageError(f"All hosts need equally many devices, and {each}: CUDA_VISIBLE_DEVICES says which count.")
        with _no_output():
            multihost_utils.sync_global_devices("all hosts are there")
        self.joined = True

    # While the run goes on

    def tell(self, message: Mapping[str, Any]) -> None:
        """Host 0: something that all have to know."""
        for connection in self.connections.values():
            connection.send({"message": dict(message)})

    def hear(self) -> dict[str, Any] | None:
        """The others: what host 0 tells; None if it has ended instead."""
        return self._messages.get()

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
        for connection in self.connections.values():
            connection.send({"bye": code, "why": why})

    def wait_for_leader(self) -> int:
        """The others: until host 0 is done with everything. Returns its exit code."""
        self.ended.wait()
        return self.code

    def close(self) -> None:
        """End all connections."""
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
        """Once a second: say how far this process has come, and look whether all others have been heard."""
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
        connection = self.connections[host]
        while True:
            message = connection.receive()
            if message is None:
                if host not in self.left and not self.ended.is_set():
                    self.lose(f"{self._named([host])} has ended without a word.")
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
                        # It alone has failed, and whatever this process waits for will not come.
                        print(
                            f"xladder: Host 0: {printable(message.get('why', ''), 1000)}", file=sys.stderr, flush=True
                        )
                        os._exit(code)
                elif code and not self.ended.wait(OWN_ENDING):
                    # What ends all hosts alike (a loss that is no number) ends this one, too, in its own words.
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
        """A peer is lost, so the run is: say who it was and end at once. Nothing half is saved.

        To leave Python as usual would wait for the lost one for minutes and end in an abort.
        """
        self._losing.acquire()  # for good: whoever comes second has nothing to add
        self.ended.set()
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


def _has(numbers: list[int]) -> str:
    return "have" if len(numbers) > 1 else "has"
