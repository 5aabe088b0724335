"""`xladder watch`: a page for this machine only, which follows runs, slows nothing and serves nothing but them."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests import chromium
from tests.test_cli import SMALL
from tests.test_report import HOSTILE, hostile_run, needs_chromium, plain_run, write_run
from xladder.cli.main import main
from xladder.report import server
from xladder.report.child import WatchedRun
from xladder.report.server import Server, Watcher, address, bind, new_token

ROW = b"%d,%d,248,5,0.1,0.5,1,2,3,4,5,9.000\r\n"


class Served:
    """A server in this process."""

    def __init__(self, *paths: Path):
        self.token = new_token()
        self.listening = bind()
        self.port = self.listening.getsockname()[1]
        self.watcher = Watcher(paths)
        self.server = Server(self.listening, self.token, self.watcher)
        self.address = address(self.listening, self.token)
        self.connections: list[socket.socket] = []
        process = self.server.process_request
        self.server.process_request = lambda request, client: (
            self.connections.append(request),
            process(request, client),
        )
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def ask(self, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()

    def events(self):
        """The names and data of server-sent events."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request("GET", f"/{self.token}/events")
        answer = connection.getresponse()
        assert answer.getheader("Content-Type") == "text/event-stream"
        name = ""
        try:
            for line in answer:
                if line.startswith(b"event: "):
                    name = line[7:].decode().strip()
                elif line.startswith(b"data: ") and name:
                    yield name, json.loads(line[6:]) if line[6:].strip() else None
        finally:
            answer.close()
            connection.close()

    def close(self) -> None:
        self.watcher.end()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def serve():
    opened = []

    def make(*paths: Path) -> Served:
        opened.append(Served(*paths))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Look often, so that nothing waits."""
    monkeypatch.setattr(server, "SHORTEST", 0.05)
    monkeypatch.setattr(server, "REST", 0.0)
    monkeypatch.setattr(server, "ALIVE", 1.0)


def append(folder: Path, tick: int) -> None:
    with (folder / "metrics.csv").open("ab") as file:
        file.write(b"".join(ROW % (seed, tick) for seed in range(2)))


# What it serves, and to whom.


def test_the_page_needs_the_token_and_this_machines_name(tmp_path, serve):
    served = serve(plain_run(tmp_path / "run"))
    status, headers, body = served.ask(f"/{served.token}/")
    assert status == 200 and b"<title>xladder</title>" in body and b"connect-src 'self'" in body
    assert headers["Cache-Control"] == "no-store" and headers["X-Frame-Options"] == "DENY"
    assert "Access-Control-Allow-Origin" not in headers
    assert served.ask(f"/{served.token}/", Host=f"localhost:{served.port}")[0] == 200
    for host in ("evil.example", f"evil.example:{served.port}", "127.0.0.1.evil.example", ""):
        assert served.ask(f"/{served.token}/", Host=host)[0] == 403
    for path in ("/", "/events", f"/{served.token}", f"/{served.token[:-1]}/", f"/{'x' * len(served.token)}/", "/%C3/"):
        assert served.ask(path)[0] == 404


@pytest.mark.parametrize(
    "path",
    [
        *("config.json", "../config.json", "metrics.csv", "..%2f..%2fetc/passwd", "/etc/passwd", "scenes/../x"),
        *("scenes/99", "scenes/-1", "scenes/" + "9" * 50, "events/x", "?x"),
    ],
)
def test_no_file_can_be_asked_for(tmp_path, serve, path):
    served = serve(plain_run(tmp_path / "run"))
    assert served.ask(f"/{served.token}/{path}")[0] == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_it_is_read_only(tmp_path, serve, method):
    served = serve(plain_run(tmp_path / "run"))
    assert served.ask(f"/{served.token}/", method)[0] == 501
    assert served.ask(f"/{served.token}/", "HEAD")[2] == b""


def test_it_listens_on_this_machine_only():
    with bind() as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
    assert len({new_token() for _ in range(10)}) == 10 and len(new_token()) >= 32


def test_too_many_connections_are_closed_and_the_server_lives_on(tmp_path, serve, monkeypatch):
    served = serve(plain_run(tmp_path / "run"))
    idle = [socket.create_connection(("127.0.0.1", served.port)) for _ in range(server.MOST_CONNECTIONS)]
    time.sleep(0.3)
    with pytest.raises((http.client.HTTPException, OSError)):
        served.ask(f"/{served.token}/")
    for one in idle:
        one.close()
    time.sleep(0.3)
    assert served.ask(f"/{served.token}/")[0] == 200


# What it sends.


def test_changes_are_pushed(tmp_path, serve):
    folder = plain_run(tmp_path / "run", finished=False)
    events = serve(folder).events()
    name, data = next(events)
    assert name == "page" and data["live"] and data["runs"][0]["done"] == 30
    append(folder, 30)
    name, data = next(events)
    assert name == "page" and data["runs"][0]["done"] == 31
    (folder / "finished.json").write_text("{}")
    assert next(events)[1]["runs"][0]["state"] == "finished"
    assert next(events)[0] == "alive"  # nothing new, but a sign of life


def test_runs_that_begin_in_a_folder_appear(tmp_path, serve):
    plain_run(tmp_path / "runs/first")
    events = serve(tmp_path / "runs").events()
    assert [run["name"] for run in next(events)[1]["runs"]] == ["first"]
    plain_run(tmp_path / "runs/second")
    seen = []
    while len(seen) < 2:
        seen = [run["name"] for run in next(events)[1]["runs"]]
    assert seen == ["first", "second"]


def test_a_run_that_is_damaged_meanwhile_is_named(tmp_path, serve):
    good, bad = plain_run(tmp_path / "good"), plain_run(tmp_path / "bad")
    events = serve(good, bad).events()
    assert len(next(events)[1]["runs"]) == 2
    (bad / "config.json").write_text("{")
    data = next(events)[1]
    assert [run["name"] for run in data["runs"]] == ["good"] and data["missing"][0]["name"] == "bad"


def test_nothing_is_read_while_nobody_looks(tmp_path, serve):
    served = serve(plain_run(tmp_path / "run"))
    served.ask(f"/{served.token}/")
    time.sleep(0.5)
    assert served.watcher.version == 0
    events = served.events()
    next(events)
    events.close()
    deadline = time.monotonic() + 10
    while served.watcher._listeners and time.monotonic() < deadline:
        time.sleep(0.1)
    assert served.watcher._listeners == 0
    seen = served.watcher.version
    (tmp_path / "run/log.txt").write_text("new\n")
    time.sleep(0.5)
    assert served.watcher.version == seen


@pytest.mark.slow
def test_scenes_are_made_when_they_are_asked_for(tmp_path, serve):
    folder = write_run(tmp_path / "run")
    (folder / "lock").write_text("nobody")
    served = serve(folder)
    run = next(served.events())[1]["runs"][0]
    assert run["scenes"] == [] and run["scenes_url"] == "scenes/0"
    status, _, body = served.ask(f"/{served.token}/scenes/0")
    assert status == 200 and [scene["kind"] for scene in json.loads(body)["scenes"]] == ["board", "board"]
    if chromium.find():
        with chromium.Browser() as browser:
            browser.open(served.address)
            browser.run("document.querySelector('.ask').click()")
            browser.wait("document.querySelector('.player[data-ready]') && !document.querySelector('.ask')")
            (folder / "log.txt").write_text("the player stays while other things change\n")
            browser.run("document.querySelector('.player').dataset.same = 'yes'")
            browser.wait("document.querySelector('pre').textContent.includes('stays')")
            assert browser.run("document.querySelector('.player').dataset.same") == "yes"
            assert browser.errors == []


def test_a_hostile_run_is_sent_as_text_without_angle_brackets(tmp_path, serve):
    folder = hostile_run(tmp_path)
    (tmp_path / "secret").write_text("hunter2")
    (folder / "log.txt").unlink()
    (folder / "log.txt").symlink_to(tmp_path / "secret")
    served = serve(folder)
    assert next(served.events())[1]["runs"][0]["workload"] == HOSTILE
    assert b"<" not in served.watcher.data and b"hunter2" not in served.watcher.data


# The command.


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["empty"], "holds no runs"),
        (["nowhere"], "There is no folder"),
        ([], "needs a run directory or a folder of runs"),
        (["run", "--port", "70000"], "ports lie in 0 … 65535"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    plain_run(tmp_path / "run")
    assert main(["watch", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_port_in_use_is_named(tmp_path, capsys):
    with bind() as listening:
        port = listening.getsockname()[1]
        assert main(["watch", str(plain_run(tmp_path / "run")), "--port", str(port)]) == 2
    assert f"Port {port} cannot be used" in capsys.readouterr().err


def test_the_command_prints_an_address_that_works(tmp_path):
    plain_run(tmp_path / "run")
    command = [sys.executable, "-m", "xladder", "watch", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        found = re.fullmatch(r"1 run: http://127\.0\.0\.1:(\d+)/([\w-]+)/\n", process.stdout.readline())
        connection = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=20)
        connection.request("GET", f"/{found[2]}/")
        assert connection.getresponse().status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130
    finally:
        process.kill()
        process.wait()


# Beside a run that trains.


def until_closed(port: int, seconds: float = 15.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=2).close()
        except OSError:
            return True
        time.sleep(0.1)
    return False


def port_in(line: str) -> int:
    return int(re.search(r"http://127\.0\.0\.1:(\d+)/[\w-]{32,}/", line)[1])


@pytest.mark.slow
def test_the_page_beside_a_run_ends_with_it(tmp_path):
    said: list[str] = []
    with WatchedRun(plain_run(tmp_path / "run"), said.append):
        port = port_in(said[0])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", said[0].partition(str(port))[2])
        assert connection.getresponse().status == 200
        connection.close()
    assert until_closed(port)


@pytest.mark.slow
def test_the_page_ends_with_a_run_that_is_killed(tmp_path):
    folder = plain_run(tmp_path / "run")
    code = (
        "import time; from pathlib import Path; from xladder.report.child import WatchedRun\n"
        f"with WatchedRun(Path({str(folder)!r}), lambda line: print(line, flush=True)): time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    port = port_in(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert until_closed(port)


def test_a_page_that_cannot_start_does_not_stop_the_run(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(24, "Too many open files")

    said: list[str] = []
    for what in ("bind", None):
        with monkeypatch.context() as patch:
            if what:
                patch.setattr(server, what, fail)
            else:
                patch.setattr(subprocess, "Popen", fail)
            with WatchedRun(plain_run(tmp_path / f"run-{what}"), said.append):
                pass
    assert len(said) == 2 and all("trains all the same" in line for line in said)


@pytest.mark.slow
def test_train_prints_the_address_and_keeps_it_to_itself(tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", "treasurehunt", "--epochs", "12", "--seeds", "2", "--out", str(out), "--watch", *SMALL]) == 0
    printed = capsys.readouterr().out
    port = port_in(printed)
    token = re.search(rf"{port}/([\w-]+)/", printed)[1]
    files = [path for path in out.rglob("*") if path.is_file()]
    assert files and not any(token.encode() in path.read_bytes() for path in files)
    assert until_closed(port)


# In a browser.


@needs_chromium
def test_the_page_follows_a_run_and_reconnects(tmp_path, serve):
    folder = plain_run(tmp_path / "run", finished=False)
    served = serve(folder)
    done = "document.querySelector('.progress + .facts')?.textContent"
    with chromium.Browser() as browser:
        browser.open(served.address)
        browser.wait(f"{done}?.startsWith('30 of')")
        append(folder, 30)
        browser.wait(f"{done}?.startsWith('31 of')")
        assert browser.run("document.querySelector('.live').textContent") == "connected"
        assert browser.run("document.title") == "xladder"
        (folder / "lock").write_text(f"process {os.getpid()} on {socket.gethostname()} since now\n")
        browser.wait("document.title.startsWith('310 % run')")  # of ten epochs
        assert browser.errors == []
        assert all(url.startswith((served.address, "data:", "blob:")) for url in browser.requests)
        for one in served.connections:  # as when a laptop sleeps
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        browser.wait("document.querySelector('.live').textContent.startsWith('Connection lost')")
        append(folder, 31)
        browser.wait(f"{done}?.startsWith('32 of')")
        assert browser.run("document.querySelector('.live').textContent") == "connected"
        served.watcher.end()
        browser.wait("document.querySelector('.live').textContent.includes('has ended')")
