"""Several processes are one run: they agree before it begins, and when one is lost the others say so and end."""

import contextlib
import csv
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.test_resume import slow, what_came_of
from xladder.cli import hosts, launch
from xladder.cli.main import main
from xladder.cli.signals import note_signals
from xladder.distributed import cluster
from xladder.distributed.cluster import Cluster, Membership
from xladder.errors import PeerLost, UsageError

WANTED = {"plan": {"rung": "hosts", "config": {"lr": 0.1, "hidden": (128, 64)}}}


@pytest.fixture
def address():
    return f"127.0.0.1:{launch.free_ports()}"


def meet(address, wanted, number=None, timeout=20.0, meanwhile=lambda: None):
    """A rendezvous of as many hosts as there are wishes, in threads; what each has heard, or the error it got.

    What is to happen meanwhile does before others than host 0 come.
    """
    number = number or len(wanted)
    teams = {i: Cluster(Membership(address, number, i, init_timeout=timeout)) for i in wanted}
    heard = {}

    def one(i):
        try:
            heard[i] = teams[i].meet(wanted[i])
            if i == 0:
                teams[0].go({"path": "somewhere"})
        except (UsageError, PeerLost) as error:
            heard[i] = error

    threads = [threading.Thread(target=one, args=(i,)) for i in wanted]
    threads[0].start()
    meanwhile()
    for thread in threads[1:]:
        thread.start()
    for thread in threads:
        thread.join(30)
    for team in teams.values():  # all of them before the first closes its connections, which the others would miss
        team.ended.set()
    for team in teams.values():
        team.close()
    return heard


def test_hosts_that_want_the_same_begin_together(address):
    heard = meet(address, {0: WANTED, 1: WANTED, 2: None})
    assert heard == {0: {}, 1: {"path": "somewhere"}, 2: {"path": "somewhere"}}


def test_hosts_that_want_different_things_are_told_which(address):
    other = {"plan": {"rung": "hosts", "config": {"lr": 0.2, "hidden": (128, 64)}}}
    heard = meet(address, {0: WANTED, 1: other})
    sentence = "Host 1 has `plan.config.lr` 0.2, and host 0 has 0.1: start both with the same settings."
    assert [type(error) for error in heard.values()] == [UsageError] * 2
    assert [str(error) for error in heard.values()] == [sentence] * 2


def test_two_hosts_with_one_number_are_told(address):
    said = []

    def come():
        first = Cluster(Membership(address, 3, 1, init_timeout=10))
        with pytest.raises(UsageError) as error:
            first.meet(WANTED)
        said.append(str(error.value))

    thread = threading.Thread(target=come)
    heard = meet(address, {0: WANTED, 1: WANTED}, number=3, timeout=10, meanwhile=thread.start)
    thread.join(10)
    for sentence in (said[0], str(heard[0]), str(heard[1])):
        assert "There are two processes with `--host-id 1`" in sentence


def test_two_hosts_with_number_0_are_both_told(address):
    said = []

    def come():
        until = time.monotonic() + 10
        while time.monotonic() < until:  # the other one listens by then
            try:
                socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))).close()
                break
            except OSError:
                time.sleep(0.01)
        with pytest.raises(UsageError) as error:
            Cluster(Membership(address, 2, 0)).meet(WANTED)
        said.append(str(error.value))

    thread = threading.Thread(target=come)
    heard = meet(address, {0: WANTED}, number=2, timeout=10, meanwhile=thread.start)
    thread.join(10)
    assert said == [str(heard[0])] == ["There are two processes with `--host-id 0`: each needs its own, 0 … 1."]


def test_another_number_of_hosts_is_told(address):
    other = Cluster(Membership(address, 3, 1, init_timeout=10))

    def come():
        with pytest.raises(UsageError):
            other.meet(WANTED)

    thread = threading.Thread(target=come)
    heard = meet(address, {0: WANTED}, number=2, timeout=10, meanwhile=thread.start)
    thread.join(10)
    assert str(heard[0]) == "Host 1 was told `--num-hosts 3`, and host 0 2."


def test_a_host_that_does_not_come_is_named(address):
    begun = time.monotonic()
    heard = meet(address, {0: WANTED, 2: WANTED}, number=3, timeout=1.5)
    assert time.monotonic() - begun < 10
    assert "Host 1 did not appear at" in str(heard[0]) and "Hosts 0, 2 are there" in str(heard[0])
    assert isinstance(heard[0], PeerLost) and heard[0].exit_code == 75
    assert "Host 1 did not appear" in str(heard[2])


def test_who_finds_nobody_says_where_it_looked(address, monkeypatch):
    monkeypatch.setenv("XLADDER_SECRET", "a secret of the test")
    with pytest.raises(PeerLost, match=f"Host 1 could not reach host 0 at {address} within 0.5 s .*refused"):
        Cluster(Membership(address, 2, 1, init_timeout=0.5)).meet(WANTED)
    with pytest.raises(UsageError, match="cannot be resolved"):
        Cluster(Membership("no.such.host.invalid:7000", 2, 1, init_timeout=5)).meet(WANTED)


def test_a_port_in_use_is_said(address):
    port = int(address.rpartition(":")[2])
    for taken in (port, port + 1):
        with socket.create_server(("127.0.0.1", taken)), pytest.raises(UsageError, match="cannot listen at"):
            Cluster(Membership(address, 2, 0)).meet(WANTED)


def test_strangers_at_the_door_do_no_harm(address):
    """The silent ones stay, and nobody may wait for them."""
    host, port = address.split(":")
    words = [b"GET / HTTP/1.0\r\n\r\n", b'{"host": "one"}\n', b"[]\n", b"\xff" * 100 + b"\n", b"[" * 10_000 + b"\n"]
    silent = []

    def come():
        for said in words:
            with until_there(host, int(port)) as stranger:
                stranger.sendall(said)
                with stranger.makefile("rb") as answers:
                    assert b"challenge" in answers.readline() and answers.read() == b""  # and it was shown the door
        silent.extend(until_there(host, int(port)) for _ in range(12))
        begun.append(time.monotonic())

    begun: list[float] = []
    heard = meet(address, {0: WANTED, 1: WANTED}, meanwhile=come)
    assert time.monotonic() - begun[0] < 4  # less than one of the silent has to say who it is
    for stranger in silent:
        stranger.close()
    assert heard == {0: {}, 1: {"path": "somewhere"}}


def until_there(host, port):
    """A connection, as soon as somebody listens."""
    until = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection((host, port), timeout=10)
        except ConnectionRefusedError:
            assert time.monotonic() < until
            time.sleep(0.02)


def test_what_others_say_does_not_reach_the_terminal_as_commands(address):
    heard = meet(address, {0: WANTED, 1: {"plan": {"rung": "\x1b[2Jhosts", "config": WANTED["plan"]["config"]}}})
    assert "\x1b" not in str(heard[0]) and "?[2Jhosts" in str(heard[0])


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
def test_hosts_meet_at_an_address_of_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as one:
            port = one.getsockname()[1]
    except OSError:
        pytest.skip("this machine has no IPv6")
    assert Membership(f"[::1]:{port}", 2, 0).address_of_jax == f"[::1]:{port + 1}"
    heard = meet(f"[::1]:{port}", {0: WANTED, 1: WANTED})
    assert heard == {0: {}, 1: {"path": "somewhere"}}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("nowhere", 2, 0), "HOST:PORT"),
        (("node:99999", 2, 0), "HOST:PORT"),
        (("node:²", 2, 0), "HOST:PORT"),
        (("node:7000", 0, 0), "num-hosts"),
        (("node:7000", 2, 2), "the 2 hosts are 0 … 1"),
        (("node:7000", 2, 0, -1.0), "init-timeout"),
    ],
)
def test_senseless_memberships_are_refused(given, said):
    with pytest.raises(UsageError, match=said):
        Membership(*given)


def test_who_is_silent_or_stuck_is_named():
    team = Cluster(Membership("node:7000", 3, 0, stall_timeout=100.0))
    now = time.monotonic()
    for host, steps in enumerate((7, 5, 7)):
        status = team.statuses[host]
        status.name, status.steps, status.doing, status.heard, status.changed = f"n{host}", steps, "saving", now, now
    assert team.verdict(now + 1) == ""
    assert team.verdict(now + 50) == "Hosts 1 (n1), 2 (n2) have not been heard from for 12 s."
    for host in (1, 2):
        team.statuses[host].heard = now + 101
    assert team.verdict(now + 101) == "Host 1 (n1) has been stuck for 100 s (`--stall-timeout`): saving."
    team.statuses[1].steps = 0  # it compiles, which may take longer
    assert team.verdict(now + 101) == ""


def test_which_process_it_is_may_come_from_the_environment(monkeypatch):
    for name, value in zip(hosts.VARIABLES.values(), ("node:7000", "4", "3"), strict=True):
        monkeypatch.setenv(name, value)
    assert hosts.membership(hosts.HostOptions()) == Membership("node:7000", 4, 3)
    assert hosts.membership(hosts.HostOptions(host_id=1)).host_id == 1
    monkeypatch.setenv("JAX_PROCESS_ID", "first")
    with pytest.raises(UsageError, match="`JAX_PROCESS_ID` is first"):
        hosts.membership(hosts.HostOptions())


def test_slurms_variables_are_understood(monkeypatch):
    for name in hosts.VARIABLES.values():
        monkeypatch.delenv(name, raising=False)
    told = {"SLURM_JOB_ID": "12", "SLURM_STEP_NODELIST": "node[3-4]", "SLURM_NTASKS": "2", "SLURM_PROCID": "1",
            "SLURM_LOCALID": "0", "SLURM_STEP_NUM_NODES": "2"}  # fmt: skip
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    found = hosts.membership(hosts.HostOptions())
    assert found.coordinator.startswith("node3:") and (found.num_hosts, found.host_id) == (2, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("train hypergrid --rung hosts", "`hosts` needs --coordinator, --num-hosts, --host-id"),
        ("launch", "needs a command"),
        ("launch --hosts 0 train hypergrid", "`--hosts` is 0"),
        ("launch --hosts 2 tarin hypergrid", "starts `train` or `resume`, not `tarin`"),
        ("launch --hosts 2 train hypergrid --rung fused", "is for `--rung hosts`, not for `fused`"),
        ("launch --hosts 2 train hypergrid --host-id 0", "`--host-id` is set by `xladder launch`"),
        ("train hypergrid --rung fused --coordinator a:1", "`--coordinator` is for `--rung hosts`, not for `fused`"),
        ("train hypergrid --stall-timeout nan", "`--stall-timeout` is for `--rung hosts`"),
        ("train hypergrid --coordinator a:65535 --num-hosts 2 --host-id 0", "needs the next port as well"),
        ("train hypergrid --coordinator a:1 --num-hosts 100000000 --host-id 0", "1 … 10,000"),
        (
            "train atari/pong --preset rainbow --rung hosts --coordinator a:1 --num-hosts 2 --host-id 0",
            "Prioritised replay",
        ),
    ],
)
def test_bad_input_is_said(words, said, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in hosts.VARIABLES.values():
        monkeypatch.delenv(name, raising=False)
    try:
        code = main(words.split())
    except SystemExit as stop:
        code = stop.code
    assert code == 2 and said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rung", [[], ["--rung", "hosts"], ["--rung=hosts"]])
def test_launch_names_the_rung_once(rung, monkeypatch):
    started = []
    monkeypatch.setattr(launch.subprocess, "Popen", lambda words, **_: started.append(words))
    monkeypatch.setattr(launch, "wait_for", lambda start, hosts: [start(number) for number in range(hosts)] and 0)
    assert main(["launch", "--hosts", "2", "train", "hypergrid", *rung]) == 0
    assert [sum(word.startswith("--rung") for word in words) for words in started] == [1, 1]


def test_every_process_gets_its_own_gpu(monkeypatch):
    command = ["train", "atari/pong", "--device", "gpu"]
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert [launch.device_of(number, command)["CUDA_VISIBLE_DEVICES"] for number in (0, 1)] == ["0", "1"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5,3")
    assert launch.device_of(1, command) == {"CUDA_VISIBLE_DEVICES": "5"}
    with pytest.raises(UsageError, match="needs its own GPU, but CUDA_VISIBLE_DEVICES names 3 twice"):
        launch.device_of(2, command)
    with pytest.raises(UsageError, match="names only 3"):
        launch.device_of(3, command)
    assert launch.device_of(3, ["train", "atari/pong"]) == {"JAX_PLATFORMS": "cpu"}


@pytest.mark.parametrize(("codes", "held"), [((2, 2), 0), ((0, 2), 1), ((75, 2), 1), ((1, 1), 1), ((75, 75), 0)])
def test_launch_says_once_what_all_hosts_say(codes, held, capfd):
    """An error of another host than 0 is repeated only if host 0 ended in another way."""
    script = "import sys; print('note'); print('xladder: No.', file=sys.stderr, flush=True); sys.exit({})"

    def start(number):
        command = [sys.executable, "-S", "-c", script.format(codes[number])]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT} if number else {}
        return subprocess.Popen(command, **pipes)

    assert launch.wait_for(start, 2) == max(codes)
    said = capfd.readouterr().err.splitlines()
    assert said.count("xladder: No.") == 1 and said.count("[host 1] xladder: No.") == held
    assert said.count("[host 1] note") == 1


def test_a_folder_that_is_not_used_is_said(capsys):
    hosts.say_where(Path("runs/a"), None)
    hosts.say_where(Path("runs/a"), Path("runs/a"))
    assert capsys.readouterr().err == ""
    hosts.say_where(Path("runs/a"), Path("runs/b"))
    assert capsys.readouterr().err == "Host 0 writes this run to runs/a; `--out runs/b` is not used.\n"


@pytest.mark.parametrize(("steps", "code"), [(0, 130), (3, 75)])
def test_who_was_told_to_end_while_starting_speaks_of_no_loss(steps, code, address, monkeypatch, capsys):
    """The main thread may be inside the compiler, and another host quicker to end."""
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda *_: None)
    try:
        team = Cluster(Membership(address, 2, 1), note_signals())
        assert team.signalled() == 0
        signal.raise_signal(signal.SIGINT)
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGINT, before)
    team.statuses[1].steps = steps
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as end:
        team.lose("Host 0 has ended without notice.")
    assert end.value.code == code
    assert ("Host 0" in capsys.readouterr().err) == (code == 75)


# Real processes.

GRID = ["--iterations", "500", "--checkpoint-every", "100", "--world.dim", "2", "--world.side", "6",
        "--learner.width", "16", "--evaluate-every", "250", "--eval-episodes", "0"]  # fmt: skip


class Launched:
    """`xladder launch` and the processes that it has started."""

    def __init__(self, number, *words):
        command = [sys.executable, "-m", "xladder.cli.main", "launch", "--hosts", str(number), *map(str, words)]
        # One device for each, whatever other tests have, and their programs are compiled alike.
        environment = os.environ | {"JAX_NUM_CPU_DEVICES": "1"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for host in self.children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(host, signal.SIGKILL)
        self.process.kill()
        self.process.wait()

    def children(self):
        try:
            return [
                int(pid)
                for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            ]
        except OSError:
            return []

    def host(self, number):
        """The process id of a host."""
        for pid in self.children():
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            if words[words.index("--host-id") + 1] == str(number):
                return pid
        raise AssertionError(f"host {number} is not there")

    def until_saved(self, folder):
        until = time.monotonic() + 120
        while not list((folder / "checkpoints").glob("tick-?????????")):
            assert self.process.poll() is None, self.process.stdout.read()
            assert time.monotonic() < until, "nothing was saved"
            time.sleep(0.05)

    def wait(self):
        said, _ = self.process.communicate(timeout=120)
        return self.process.returncode, said


def losses_of(folder):
    with (folder / "metrics.csv").open(newline="") as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


def is_alive(pid):
    """Whether a process runs; one that has ended may wait for its parent to see it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def launched(number, *words):
    with Launched(number, *words) as run:
        return run.wait()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What comes of the run if nobody disturbs it; two devices of one process end where two processes do."""
    folder = tmp_path_factory.mktemp("hosts") / "run"
    assert main(["train", "hypergrid", *GRID, "--mesh", "data=2", "--out", str(folder)]) == 0
    return what_came_of(folder)


LOSSES = {
    "killed": (1, signal.SIGKILL, 75, "Host 1 ("),
    "host 0 killed": (0, signal.SIGKILL, 75, "Host 0 ("),
    "stopped": (1, signal.SIGSTOP, 75, "has not been heard from for 12 s"),
    "told to end": (1, signal.SIGTERM, 143, "Another host was told to stop"),
}


@pytest.mark.parametrize("loss", [slow(loss) for loss in LOSSES])
def test_when_one_is_lost_the_others_end_and_the_run_goes_on_as_if_nothing_had_been(loss, undisturbed, tmp_path):
    number, sent, code, said = LOSSES[loss]
    folder = tmp_path / "run"
    with Launched(2, "train", "hypergrid", *GRID, "--out", folder) as run:
        run.until_saved(folder)
        victim, other, begun = run.host(number), run.host(1 - number), time.monotonic()
        os.kill(victim, sent)
        while is_alive(other):
            assert time.monotonic() - begun < 15
            time.sleep(0.05)
        if sent == signal.SIGSTOP:
            os.kill(victim, signal.SIGKILL)  # the launcher waits for it
        ended, heard = run.wait()
    assert ended == code
    assert said in heard and f"Resume with: xladder launch --hosts 2 resume {folder}" in heard, heard
    again, heard = launched(2, "resume", folder)
    assert again == 0, heard
    assert what_came_of(folder) == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 3])
def test_another_number_of_hosts_goes_on(number, tmp_path):
    """With three, a batch of 12 is shared; the numbers are those of one device but for rounding, which grows."""
    folder, alone, words = tmp_path / "run", tmp_path / "alone", [*GRID, "--learner.batch-size", "12"]
    with Launched(2, "train", "hypergrid", *words, "--out", folder) as run:
        run.until_saved(folder)
        os.kill(run.host(1), signal.SIGTERM)
        assert run.wait()[0] == 143
    resumed = int(max(path.name for path in (folder / "checkpoints").glob("tick-?????????")).removeprefix("tick-"))
    code, said = launched(number, "resume", folder)
    assert code == 0, said
    assert json.loads((folder / "finished.json").read_text())["ticks"] == 500
    assert main(["train", "hypergrid", *words, "--rung", "fused", "--out", str(alone)]) == 0
    ours, theirs = losses_of(folder), losses_of(alone)
    assert 0 < resumed < 480 and len(ours) == len(theirs) == 500
    np.testing.assert_allclose(ours[: resumed + 20], theirs[: resumed + 20], rtol=1e-3)


@pytest.mark.slow
def test_seeds_lie_over_hosts_and_stay_so_on_another_number(tmp_path):
    folder, alone, words = tmp_path / "run", tmp_path / "alone", [*GRID, "--seeds", "4"]
    with Launched(4, "train", "hypergrid", *words, "--mesh", "seeds=4", "--out", folder) as run:
        run.until_saved(folder)
        os.kill(run.host(2), signal.SIGTERM)
        assert run.wait()[0] == 143
    code, said = launched(2, "resume", folder)
    assert code == 0 and "2 along `seeds`, 1 along `data`" in said, said
    assert main(["train", "hypergrid", *words, "--mesh", "seeds=2", "--out", str(alone)]) == 0
    (digest, rows), (expected, others) = what_came_of(folder), what_came_of(alone)
    assert digest == expected and sorted(rows) == sorted(others)


@pytest.mark.slow
def test_ctrl_c_while_all_are_starting_ends_all(tmp_path):
    with Launched(2, "train", "hypergrid", *GRID, "--out", tmp_path / "run") as run:
        until = time.monotonic() + 30
        while len(run.children()) < 2:
            assert time.monotonic() < until
            time.sleep(0.02)
        time.sleep(2.0)
        children = run.children()
        run.process.send_signal(signal.SIGINT)
        code, said = run.wait()
    assert code == 130, said
    assert "Traceback" not in said and not any(map(is_alive, children))


MEMBER = """
import os, sys, time
from xladder.cli.main import main
{patch}
sys.exit(main(sys.argv[1:]))
"""
STUCK = """
from xladder.rungs.hosts import HostsRun
advance = HostsRun.advance
def stuck(self, ticks):
    if self.done > 100:
        time.sleep(1000)
    return advance(self, ticks)
HostsRun.advance = stuck
"""
NO_ROOM = """
from xladder.runs.checkpoints import Checkpoints
def full(self, *_, **__):
    raise OSError(28, "No space left on device")
Checkpoints.save = full
"""
MORE_DEVICES = """
os.environ["JAX_NUM_CPU_DEVICES"] = "2"
"""
TRIALS = {
    # what is wrong with each host, words of each; exit codes, and what each says
    "stuck": (("", STUCK), (["--stall-timeout", "4"], ["--stall-timeout", "4"]), (75, 75),
              ("Host 1 (",) * 2),
    "no room": ((NO_ROOM, ""), ([], []), (5, 5), ("No space left", "Host 0:")),
    "diverged": (("", ""), (["--learner.lr", "1e30"],) * 2, (4, 4),
                 ("stopped being a number at iteration",) * 2),
    "disagree": (("", ""), (["--learner.lr", "1e-3"], ["--learner.lr", "2e-3"]), (2, 2),
                 ("Host 1 has `plan.config.learner.lr` 0.002, and host 0 has 0.001",) * 2),
    "other devices": (("", MORE_DEVICES), ([], []), (2, 2), ("host 0 has 1, host 1 has 2",) * 2),
    "too many devices": (("", ""), (["--mesh", "data=4"],) * 2, (2, 2), ("needs 2 devices on each of 2 hosts",) * 2),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("trial", TRIALS)
def test_what_goes_wrong_on_one_host_ends_all_with_its_reason(trial, address, tmp_path):
    patches, words, codes, said = TRIALS[trial]
    processes = []
    try:
        for number in (0, 1):
            where = ["--rung", "hosts", "--coordinator", address, "--num-hosts", "2", "--host-id", str(number)]
            command = ["train", "hypergrid", *GRID, *words[number], *where, "--out", str(tmp_path / "run")]
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-c", MEMBER.format(patch=patches[number]), *command],
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
    assert tuple(process.returncode for process in processes) == codes, heard
    for sentence, text in zip(said, heard, strict=True):
        if trial == "stuck":
            assert "has been stuck for 4 s (`--stall-timeout`): between chunks, after tick" in text
        assert sentence in text and "Traceback" not in text, text


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["treasurehunt", "cartpole"])
def test_the_other_families_train_on_hosts_as_on_a_mesh(workload, tmp_path, monkeypatch):
    words = {
        "treasurehunt": ["--epochs", "40", "--world.num-agents", "2", "--world.height", "7", "--world.width", "7",
                         "--world.max-turns", "10", "--learner.width", "16", "--learner.batch-size", "8"],
        "cartpole": ["--steps", "4000", "--learner.memory", "2000", "--learner.learning-starts", "400",
                     "--evaluate-every", "0"],
    }[workload]  # fmt: skip
    words = ["train", workload, *words, "--eval-episodes", "0"]
    code, said = launched(2, *words, "--out", tmp_path / "hosts")
    assert code == 0, said
    assert main([*words, "--mesh", "data=2", "--out", str(tmp_path / "mesh")]) == 0
    assert what_came_of(tmp_path / "hosts") == what_came_of(tmp_path / "mesh")


@pytest.mark.slow
def test_large_arrays_are_gathered_in_pieces(monkeypatch):

    from tests.conftest import TINY_CART, assert_trees_equal
    from xladder.rungs import gathering, layout
    from xladder.rungs import hosts as rung

    mesh = rung.make_mesh(layout.parse("data=2"))
    config = replace(TINY_CART, learner=replace(TINY_CART.learner, strata=2))
    run = rung.HostsRun(config, [0], mesh)
    run.advance(3)
    at_once = run.state()
    asked = []
    monkeypatch.setattr(gathering, "PIECE_BYTES", 200)
    monkeypatch.setattr(
        gathering, "pieces", lambda leaf, pieces=gathering.pieces: asked.append(pieces(leaf)) or asked[-1]
    )
    assert_trees_equal(at_once, run.state())
    assert max(size for axis, size in asked if axis is not None) > 1 and (None, 0) in asked
    run.advance(2)
    run.take_state(at_once)
    assert_trees_equal(at_once, run.state())


@pytest.mark.slow
def test_parameters_that_come_apart_stop_the_run(monkeypatch):
    """One process is made to see what two would, of which the other has learned something else."""
    import jax

    from tests.conftest import TINY_GRID
    from xladder.errors import Diverged
    from xladder.rungs import hosts as rung

    run = rung.start(TINY_GRID, [0], jax.devices()[0])
    run.advance(2)
    run.compare()
    gather = rung.multihost_utils.process_allgather
    monkeypatch.setattr(
        rung.multihost_utils, "process_allgather", lambda x: np.stack([np.asarray(gather(x)).reshape(x.shape), x + 1])
    )
    with pytest.raises(Diverged, match="hosts 0 and 1 hold different parameters"):
        run.compare()
    assert cluster.current() is None
