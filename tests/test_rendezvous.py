"""The secret of a multi-host run: who does not know it takes no place, stalls nobody and speaks for nobody."""

import json
import socket
import subprocess
import threading
import time

import pytest

from tests.test_hosts import WANTED, meet, until_there
from xladder.cli import launch
from xladder.cli.main import main
from xladder.distributed import rendezvous, secret
from xladder.distributed.cluster import Cluster, Membership
from xladder.distributed.connection import JsonConnection
from xladder.errors import PeerLost, UsageError

SECRET = "correct horse battery"
TOGETHER = {0: {}, 1: {"path": "somewhere"}}


@pytest.fixture
def address(monkeypatch):
    monkeypatch.setenv(secret.VARIABLE, SECRET)
    return f"127.0.0.1:{launch.free_ports()}"


def ask(connection, key, host=1, challenge=None):
    """Ask for a place as a host would that knows `key`; returns what was sent."""
    heard = connection.receive(10)
    asks = {"host": host, "num_hosts": 2, "name": "stranger", "wanted": {"plan": "another"}}
    proof = secret.prove(key, "join", challenge or heard["challenge"], "nonce", asks)
    message = {"asks": asks, "nonce": "nonce", "proof": proof}
    connection.send(message)
    return message


def test_a_stranger_takes_no_place_and_does_not_end_the_run(address, capsys):
    """Its settings differ and its number is that of a host: either would end the run if it were one."""
    host, port = address.split(":")
    answers = []

    def come():
        for key in (b"", b"wrong" * 9, SECRET[:-1].encode()):
            stranger = JsonConnection(until_there(host, int(port)))
            ask(stranger, key)
            answers.append(stranger.receive(10))
            stranger.close()

    assert meet(address, {0: WANTED, 1: WANTED}, meanwhile=come) == TOGETHER
    assert answers == [None] * 3
    assert "a process at 127.0.0.1 asked to join, but does not know the secret" in capsys.readouterr().out


def test_what_a_host_said_once_opens_nothing_later(address):
    host, port = address.split(":")
    answers = []

    def come():
        earlier = JsonConnection(until_there(host, int(port)))
        heard = ask(earlier, b"not the secret", challenge="of another run")
        heard["proof"] = secret.prove(SECRET.encode(), "join", "of another run", "nonce", heard["asks"])
        again = JsonConnection(until_there(host, int(port)))
        again.receive(10)
        again.send(heard)
        answers.append(again.receive(10))

    assert meet(address, {0: WANTED, 1: WANTED}, meanwhile=come) == TOGETHER and answers == [None]


def test_a_crowd_that_says_nothing_keeps_nobody_out(address, monkeypatch):
    monkeypatch.setattr(rendezvous, "MOST_UNPROVED", 20)
    host, port = address.split(":")
    crowd = []

    def come():
        crowd.extend(until_there(host, int(port)) for _ in range(60))

    assert meet(address, {0: WANTED, 1: WANTED}, meanwhile=come) == TOGETHER
    for one in crowd:
        one.close()


def test_who_is_shut_out_by_a_crowd_comes_again(address, monkeypatch):
    """Whoever asks first is taken for one of a crowd, as if others had come while it proved what it knows."""
    heard, shut = rendezvous.Rendezvous._hear, []

    def shut_out_the_first(self, connection):
        if not shut:
            shut.append(connection)
            connection.send({"challenge": "of the first"})
            assert connection.receive(10)
            connection.close()
            return
        heard(self, connection)

    monkeypatch.setattr(rendezvous.Rendezvous, "_hear", shut_out_the_first)
    assert meet(address, {0: WANTED, 1: WANTED}) == TOGETHER and shut


def test_who_waits_for_others_than_host_0_waits_once(address, monkeypatch):
    monkeypatch.setattr(rendezvous, "LAST_WORD", 0.2)
    first = Cluster(Membership(address, 3, 0, init_timeout=5.0))
    thread = threading.Thread(target=wait_in_vain, args=(first,))
    thread.start()
    begun = time.monotonic()
    with pytest.raises(PeerLost, match=r"reached host 0 at .*, but not all hosts were there within 1 s"):
        Cluster(Membership(address, 3, 1, init_timeout=1.0)).meet(WANTED)
    assert time.monotonic() - begun < 1.9
    thread.join()


@pytest.mark.parametrize("depth", [400, 960, 980, 990, 1000, 5000])
def test_what_is_nested_too_deeply_to_be_signed_takes_no_place(depth, address, monkeypatch):
    host, port = address.split(":")
    failed, answers = [], []
    monkeypatch.setattr(threading, "excepthook", failed.append)

    def come():
        stranger = JsonConnection(until_there(host, int(port)))
        stranger.receive(10)
        asked = '{"a":' * depth + "1" + "}" * depth
        stranger.connection.sendall(f'{{"asks": {asked}, "nonce": "n", "proof": "p"}}\n'.encode())
        answers.append(stranger.receive(10))

    assert meet(address, {0: WANTED, 1: WANTED}, meanwhile=come) == TOGETHER and answers == [None] and not failed


def test_settings_that_are_nested_too_deeply_are_refused(address):
    leader = rendezvous.Rendezvous(Membership(address, 2, 0))
    message = {"host": 1, "num_hosts": 2, "wanted": nest(5000)}
    assert "nested too deeply" in leader._disagreement(1, message, WANTED)
    leader.close()


def nest(depth):
    found: dict = {"a": 1}
    for _ in range(depth):
        found = {"a": found}
    return found


def wait_in_vain(host):
    with pytest.raises(PeerLost):
        host.meet(WANTED)


def test_a_host_with_another_secret_is_told_what_to_look_at(address, monkeypatch):
    first = Cluster(Membership(address, 2, 0, init_timeout=3.0))
    thread = threading.Thread(target=wait_in_vain, args=(first,))
    thread.start()
    until_there("127.0.0.1", int(address.split(":")[1])).close()
    monkeypatch.setenv(secret.VARIABLE, "another secret of mine")
    with pytest.raises(PeerLost, match=r"has another secret: .* is XLADDER_SECRET the same on all hosts"):
        Cluster(Membership(address, 2, 1, init_timeout=3.0)).meet(WANTED)
    thread.join()


def test_a_message_counts_once_in_order_from_the_other_side_and_unchanged():
    key = secret.key_of(SECRET.encode(), "challenge", "nonce")
    leader, follower = secret.Seal(key, leads=True), secret.Seal(key, leads=False)
    first, second = leader.wrap({"bye": 0, "why": {2: 1, 10: (1,)}}), leader.wrap({"beat": 1})
    assert follower.unwrap(first) == {"bye": 0, "why": {"2": 1, "10": [1]}} and follower.unwrap(second) == {"beat": 1}
    for forged in (first, second, {"bye": 0}, {}, first | {"says": {"bye": 75}}, first | {"proof": 7}, {"says": 1}):
        assert secret.Seal(key, leads=False).unwrap(forged) is None or forged is first
        assert follower.unwrap(forged) is None, "it was said before, or never"
    assert leader.unwrap(leader.wrap({"beat": 2})) is None, "its own words come back"
    assert secret.key_of(SECRET.encode(), "challenge", "other") != key


def test_a_farewell_that_nobody_signed_is_not_one():
    ours, theirs = socket.socketpair()
    connection, stranger = JsonConnection(ours), JsonConnection(theirs)
    connection.seal = secret.Seal(b"key", leads=True)
    stranger.send({"bye": 0})
    assert connection.receive(5) is None
    for one in (connection, stranger):
        one.close()


def test_without_a_secret_hosts_listen_on_loopback_only(monkeypatch, capsys):
    monkeypatch.delenv(secret.VARIABLE, raising=False)
    for host in (0, 1):
        with pytest.raises(UsageError, match=r"without a secret.*set XLADDER_SECRET.*XLADDER_SECRET_FILE"):
            Cluster(Membership("0.0.0.0:7000", 2, host, init_timeout=1.0)).meet(WANTED)
    assert Membership("127.0.0.9:7000", 2, 0).is_local and Membership("[::1]:7000", 2, 0).is_local
    assert not Membership("localhost.example:7000", 2, 0).is_local


def test_a_secret_comes_from_the_environment_or_a_file_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.delenv(secret.VARIABLE, raising=False)
    assert secret.read_secret() == b""
    file = tmp_path / "secret"
    file.write_text(SECRET + "\n")
    monkeypatch.setenv(secret.FILE_VARIABLE, str(file))
    with pytest.raises(UsageError, match="others can read: chmod 600"):
        secret.read_secret()
    file.chmod(0o600)
    assert secret.read_secret() == SECRET.encode()
    monkeypatch.setenv(secret.VARIABLE, SECRET)
    with pytest.raises(UsageError, match="are both set"):
        secret.read_secret()
    monkeypatch.delenv(secret.VARIABLE)
    file.write_text("short")
    with pytest.raises(UsageError, match="fewer than 16 characters"):
        secret.read_secret()
    monkeypatch.setenv(secret.FILE_VARIABLE, str(tmp_path / "missing"))
    with pytest.raises(UsageError, match="cannot be read"):
        secret.read_secret()


def test_launch_makes_a_secret_and_passes_on_a_given_one(monkeypatch):
    seen = []

    class Ended:
        def __init__(self, words, env, **more):
            assert SECRET not in json.dumps(words), "command lines can be read by everybody"
            seen.append(env[secret.VARIABLE])
            self.stdout = ()

        def poll(self):
            return 0

        wait = kill = poll

    monkeypatch.setattr(subprocess, "Popen", Ended)
    monkeypatch.delenv(secret.VARIABLE, raising=False)
    for _ in range(2):
        assert main(["launch", "--hosts", "2", "train", "hypergrid"]) == 0
    assert seen[0] == seen[1] != seen[2] == seen[3] and len(seen[0]) == 64
    monkeypatch.setenv(secret.VARIABLE, SECRET)
    assert main(["launch", "--hosts", "2", "train", "hypergrid"]) == 0
    assert seen[4:] == [SECRET] * 2


class Trickle:
    """A listener that sends its callers a first line, perhaps, and then a blank several times a second."""

    def __init__(self, address, first=b""):
        host, port = address.split(":")
        self.listener, self.first = socket.create_server((host, int(port))), first
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                caller = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.send, args=(caller,), daemon=True).start()

    def send(self, caller):
        try:
            caller.sendall(self.first)
            while True:
                caller.sendall(b" ")
                time.sleep(0.05)
        except OSError:
            caller.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


@pytest.mark.parametrize("first", [b"", b'{"challenge": "aaa"}\n'], ids=["blanks", "a challenge, then blanks"])
def test_who_sends_a_byte_now_and_then_holds_nobody_longer_than_silence(first, address, monkeypatch):
    monkeypatch.setattr(rendezvous, "LAST_WORD", 0.2)
    begun = time.monotonic()
    with Trickle(address, first), pytest.raises(PeerLost):
        Cluster(Membership(address, 2, 1, init_timeout=1.0)).meet(WANTED)
    assert time.monotonic() - begun < 2.5


def test_a_port_of_somebody_who_sends_a_byte_now_and_then_is_in_use(address):
    begun = time.monotonic()
    with Trickle(address), pytest.raises(UsageError, match="cannot listen at"):
        Cluster(Membership(address, 2, 0, init_timeout=60.0)).meet(WANTED)
    assert time.monotonic() - begun < 3


def test_lines_that_arrive_in_pieces_or_together_are_messages():
    one, other = socket.socketpair()
    connection = JsonConnection(other)
    one.sendall(b'{"a": 1}\n{"b"')
    assert connection.receive(1) == {"a": 1} and connection.receive(0.05) is None
    one.close()
    assert connection.receive(1) is None
    connection.close()
