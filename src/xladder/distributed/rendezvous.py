"""The rendezvous of a multi-host run: all hosts have to connect, with the same secret and the same settings."""

from __future__ import annotations

import errno
import json
import os
import queue
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from xladder.core.state import flatten
from xladder.distributed.connection import JsonConnection
from xladder.distributed.membership import Membership
from xladder.distributed.secret import HOW, VARIABLE, Seal, key_of, new_secret, prove, proves, read_secret
from xladder.errors import PeerLost, UsageError, printable

INTRODUCTION = 5.0  # seconds that a new connection has to identify itself
RETRY = 0.2
LAST_WORD = 10.0  # seconds beyond the others' patience in which host 0 may still say what has become of the run
MOST_UNPROVED = 256  # connections that have not proved anything yet; the oldest is closed for a new one
MOST_REPORTED = 5


class Rendezvous:
    """Host 0's side of the rendezvous: accepts the connections of the other hosts."""

    def __init__(self, me: Membership):
        self.me, self._secret = me, read_secret()
        if not (self._secret or me.is_local):
            raise UsageError(
                f"`--coordinator` is {me.coordinator}, and without a secret anyone who can reach it could join: {HOW}. "
                "Without one, hosts on the same machine connect at 127.0.0.1."
            )
        self.here: dict[int, JsonConnection] = {}
        self.names = {0: own_name()}
        self._arrivals: queue.Queue[tuple[JsonConnection, dict[str, Any] | None]] = queue.Queue()
        self._closed = threading.Event()
        self._unproved: deque[JsonConnection] = deque()
        self._strangers = 0
        self._listener = _listen(me)
        threading.Thread(target=self._accept, daemon=True).start()

    def wait_for_all(self, wanted: Mapping[str, Any], until: float) -> None:
        """Wait until every host has connected; raise on all hosts if one is missing or has other settings.

        Args:
            wanted: host 0's settings.
            until: deadline on the monotonic clock.
        """
        while len(self.here) < self.me.num_hosts - 1:
            left = until - time.monotonic()
            if left <= 0:
                missing = [i for i in range(1, self.me.num_hosts) if i not in self.here]
                sentence = (
                    f"{hosts(missing)} did not appear at {self.me.coordinator} within {self.me.init_timeout:g} s "
                    f"(`--init-timeout`); {hosts([0, *self.here])} {'are' if self.here else 'is'} there."
                )
                self.refuse(sentence, PeerLost.exit_code)
                raise PeerLost(sentence)
            with suppress(queue.Empty):
                self._register(*self._arrivals.get(timeout=min(left, 1.0)), wanted)

    def refuse(self, sentence: str, code: int = UsageError.exit_code) -> None:
        """Tell all connected hosts that the run will not start, and why."""
        for connection in self.here.values():
            connection.send({"refused": sentence, "code": code})
            connection.close()
        self.close()

    def close(self) -> None:
        """Stop listening; later connections are refused."""
        self._closed.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes up `accept`
        self._listener.close()
        while not self._arrivals.empty():
            self._arrivals.get()[0].close()

    def _accept(self) -> None:
        """Accept connections, each read in its own thread, so that a silent one does not block the others."""
        while True:
            try:
                connection = JsonConnection(self._listener.accept()[0])
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ECONNABORTED):
                    return  # closed
                if self._unproved:  # no descriptor is left: those who say nothing make room
                    self._unproved.popleft().close()
                time.sleep(RETRY)
                continue
            self._unproved.append(connection)
            if len(self._unproved) > MOST_UNPROVED:  # somebody opens connections and says nothing
                self._unproved.popleft().close()
            threading.Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _hear(self, connection: JsonConnection) -> None:
        """Let a new connection prove that it knows the secret; it has a few seconds."""
        challenge = new_secret()
        connection.send({"challenge": challenge})
        message = connection.receive(INTRODUCTION)
        with suppress(ValueError):  # it was closed to make room
            self._unproved.remove(connection)
        asked = message.get("asks") if message else None
        if message is None or not isinstance(asked, dict) or self._closed.is_set():
            connection.close()
            return
        nonce = str(message.get("nonce"))
        if not proves(message.get("proof"), self._secret, "join", challenge, nonce, asked):
            self._report(connection)
            connection.close()
            return
        connection.seal = Seal(key_of(self._secret, challenge, nonce), leads=True)
        self._arrivals.put((connection, asked))

    def _report(self, connection: JsonConnection) -> None:
        """Say that somebody does not know the secret; a few times, because it may be an attack."""
        self._strangers += 1
        if self._strangers <= MOST_REPORTED:
            with suppress(OSError):
                where = connection.connection.getpeername()[0]
                print(f"xladder: a process at {where} asked to join, but does not know the secret.", flush=True)

    def _register(self, connection: JsonConnection, message: dict[str, Any] | None, wanted: Mapping[str, Any]) -> None:
        """Handle a new connection: register a missing host with the same settings, or disconnect a stranger."""
        host = message.get("host") if message else None
        if message is None or type(host) is not int:
            connection.close()
            return
        refusal = self._disagreement(host, message, wanted)
        if refusal:
            connection.send({"refused": refusal})
            self.refuse(refusal)
            raise UsageError(refusal)
        self.here[host] = connection
        self.names[host] = printable(message.get("name", ""), 100)

    def _disagreement(self, host: int, message: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
        number = self.me.num_hosts
        if message.get("num_hosts") != number:
            return f"Host {host} was told `--num-hosts {printable(message.get('num_hosts'))}`, and host 0 {number}."
        if not 0 < host < number or host in self.here:
            return f"There are two processes with `--host-id {host}`: each needs its own, 0 … {number - 1}."
        theirs, ours = message.get("wanted"), dict(flatten(wanted))
        if not isinstance(theirs, dict):
            return ""
        try:
            theirs = dict(flatten(theirs))
        except RecursionError:
            return f"Host {host} has settings that are nested too deeply: start both with the same settings."
        for name in sorted(ours.keys() | theirs.keys()):
            if ours.get(name) != theirs.get(name):
                has = f"Host {host} has `{printable(name)}` {printable(theirs.get(name))}"
                return f"{has}, and host 0 has {printable(ours.get(name))}: start both with the same settings."
        return ""


def join(me: Membership, wanted: Mapping[str, Any] | None, until: float) -> tuple[JsonConnection, dict[str, Any]]:
    """The other hosts' side: connect to host 0 and wait until it says `go`.

    Returns:
        The connection, and the message that came with `go`.
    """
    secret = read_secret()
    if not (secret or me.is_local):
        raise UsageError(f"`--coordinator` is {me.coordinator}, which is not reached without a secret: {HOW}.")
    asks = {"host": me.host_id, "num_hosts": me.num_hosts, "name": own_name(), "wanted": wanted}
    while True:
        connection = _introduce(me, secret, json.loads(json.dumps(asks)), until)
        message = connection.receive(max(until - time.monotonic(), 0.0) + LAST_WORD)
        if message and "go" in message:
            return connection, message["go"]
        connection.close()
        now = time.monotonic()
        if message and "refused" in message:
            kind = PeerLost if message.get("code") == PeerLost.exit_code else UsageError
            raise kind(printable(message["refused"], 2000))
        if now >= until + LAST_WORD:
            raise PeerLost(
                f"Host {me.host_id} reached host 0 at {me.coordinator}, but not all hosts were there within "
                f"{me.init_timeout:g} s (`--init-timeout`)."
            )
        if message or now >= until - RETRY:
            raise PeerLost(
                f"The process at {me.coordinator} has ended, is not host 0 of a run, or has another secret: are "
                f"address and port right, and is {VARIABLE} the same on all hosts?"
            )
        time.sleep(RETRY)  # it may have closed the connection only to make room for others


def _introduce(me: Membership, secret: bytes, asks: dict[str, Any], until: float) -> JsonConnection:
    """Connect to host 0 and answer its challenge; again if it has no room for another connection."""
    while True:
        connection = _connect(me, until)
        message = connection.receive(max(min(INTRODUCTION, until - time.monotonic()), RETRY))
        if message and isinstance(message.get("challenge"), str):
            challenge, nonce = message["challenge"], new_secret()
            proof = prove(secret, "join", challenge, nonce, asks)
            connection.send({"asks": asks, "nonce": nonce, "proof": proof})
            connection.seal = Seal(key_of(secret, challenge, nonce), leads=False)
            return connection
        connection.close()
        if message or time.monotonic() > until:
            raise PeerLost(f"The process at {me.coordinator} is not host 0 of a run: are address and port right?")
        time.sleep(RETRY)


def _connect(me: Membership, until: float) -> JsonConnection:
    reason = "nobody answered"
    while True:
        left = until - time.monotonic()
        if left <= 0:
            raise PeerLost(
                f"Host {me.host_id} could not reach host 0 at {me.coordinator} within {me.init_timeout:g} s "
                f"(`--init-timeout`): {reason}. Start host 0 with the same `--coordinator`."
            )
        try:
            return JsonConnection(socket.create_connection(me.address, timeout=min(left, 5.0)))
        except (socket.gaierror, UnicodeError) as error:
            raise _unknown_name(me, error) from None
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            time.sleep(min(RETRY, left))


def _listen(me: Membership) -> socket.socket:
    """A listening socket at the coordinator's address; also checks that the next port, JAX's, is free."""
    host, port = me.address
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except (socket.gaierror, UnicodeError) as error:
        raise _unknown_name(me, error) from None
    found: list[socket.socket] = []
    for number in (port, port + 1):
        try:
            found.append(socket.create_server((host, number), family=family, reuse_port=False))
        except OSError as error:
            for one in found:
                one.close()
            if not found:
                _tell_other_leader(me)
            raise UsageError(
                f"Host 0 cannot listen at {host}:{number} ({error.strerror or error}): `--coordinator` has to be "
                "an address of this machine with two free ports, the one given and the next. Is there a host 0 already?"
            ) from None
    found.pop().close()
    return found[0]


def _tell_other_leader(me: Membership) -> None:
    """If another process with `--host-id 0` waits at the address, tell it; both then raise the same `UsageError`."""
    secret, until = read_secret(), time.monotonic() + 1.0  # it is on this machine
    if not (secret or me.is_local):
        return
    with suppress(PeerLost):
        connection = _introduce(me, secret, {"host": 0, "num_hosts": me.num_hosts, "name": own_name()}, until)
        message = connection.receive(INTRODUCTION)
        connection.close()
        if message and "refused" in message:
            raise UsageError(printable(message["refused"], 2000))


def _unknown_name(me: Membership, error: Exception) -> UsageError:
    reason = getattr(error, "strerror", None) or error
    return UsageError(f"`--coordinator` is {me.coordinator}, but that name cannot be resolved ({reason}).")


def own_name() -> str:
    """The name of this process in messages to the others."""
    return f"{socket.gethostname()}, process {os.getpid()}"


def hosts(numbers: list[int]) -> str:
    """Format host numbers, such as "Hosts 0, 2"."""
    return f"Host{'s' * (len(numbers) > 1)} {', '.join(str(number) for number in numbers)}"
