"""`train` and `resume` for runs with several processes: connect, let host 0 write, and end together."""

from __future__ import annotations

import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from xladder.cli.main import complain, format_error
from xladder.cli.signals import Debounce, note_signals
from xladder.cli.tools import ToolOptions
from xladder.core.packages import program
from xladder.core.state import Arrays
from xladder.distributed import cluster
from xladder.distributed.cluster import Cluster, Membership
from xladder.errors import DamagedRun, UsageError, XladderError
from xladder.execution import execute
from xladder.plans import Plan
from xladder.registry import RungOptions
from xladder.rungs import layout
from xladder.runs.checkpoints import Checkpoints, Damaged
from xladder.runs.directory import Keeping, RunDirectory
from xladder.runs.environment import versions
from xladder.runs.folders import typed
from xladder.runs.plan_files import describe_plan, parse_plan, run_metadata
from xladder.trainer import Checkpointer, Observer, ResumeState

LAUNCHER = "XLADDER_LAUNCHER"  # how `xladder launch` was called, for messages to the user
VARIABLES = {"coordinator": "JAX_COORDINATOR_ADDRESS", "num_hosts": "JAX_NUM_PROCESSES", "host_id": "JAX_PROCESS_ID"}
COMPARED = ("xladder", "jax", "jaxlib")


@dataclass(frozen=True)
class HostOptions:
    """How the processes of a run connect (`--rung hosts`)."""

    coordinator: str | None = None
    """HOST:PORT of host 0; the next port is used as well. Default: JAX_COORDINATOR_ADDRESS, or detected from SLURM."""
    num_hosts: int | None = None
    """Number of processes. Default: JAX_NUM_PROCESSES, or detected from SLURM."""
    host_id: int | None = None
    """Index of this process, from 0. Default: JAX_PROCESS_ID, or detected from SLURM."""
    init_timeout: float = 60.0
    """Seconds that every host waits for all others, from its own start."""
    stall_timeout: float = 600.0
    """Seconds without progress after which a host is considered stuck."""


def membership(options: HostOptions) -> Membership:
    """Find out which process this is: from flags, else environment variables, else JAX's cluster detection."""
    found: dict[str, Any] = {name: getattr(options, name) for name in VARIABLES}
    for name, variable in VARIABLES.items():
        text = os.environ.get(variable)
        if found[name] is None and text:
            if name != "coordinator" and not (text.isascii() and text.isdecimal()):
                raise UsageError(f"`{variable}` is {text}, but it has to be a number.")
            found[name] = text if name == "coordinator" else int(text)
    if any(value is None for value in found.values()):
        found |= {name: value for name, value in _detected().items() if found[name] is None}
    missing = [f"--{name.replace('_', '-')}" for name, value in found.items() if value is None]
    if missing:
        raise UsageError(
            f"`hosts` needs {', '.join(missing)} (no cluster was detected). To try it on this machine: "
            "xladder launch --hosts 2 train …, or resume …"
        )
    return Membership(**found, init_timeout=options.init_timeout, stall_timeout=options.stall_timeout)


def _detected() -> dict[str, Any]:
    """What JAX detects about a SLURM or similar cluster."""
    try:
        from jax._src.clusters import ClusterEnv

        for kind in ClusterEnv._cluster_types:
            if kind.is_env_present():
                address = kind.get_coordinator_address(60, None)
                return {
                    "coordinator": address,
                    "num_hosts": kind.get_process_count(),
                    "host_id": kind.get_process_id(),
                }
    except Exception:  # JAX has no public function for this, so a change there must not become the user's problem
        return {}
    return {}


def train(
    plan: Plan, keeping: Keeping, out: Path | None, among: Membership, train_run: Callable[[RunDirectory], int]
) -> int:
    """Train a run on several hosts.

    Args:
        plan: The run; the same on all hosts.
        keeping: What to save of it.
        out: The run directory.
        among: Which of the processes this is.
        train_run: Trains into a run directory, on host 0, and returns the exit code.
    """
    team = Cluster(among, note_signals())
    message = team.meet({"plan": describe_plan(plan), "keeping": asdict(keeping), "versions": _versions()})
    cluster.enter(team)
    if not among.leads:
        say_where(Path(message["path"]), out)
        say_how_to_go_on(team, Path(message["path"]))
        return _to_the_end(team, lambda: run_worker(team, plan, keeping, None))
    with refusing(team):
        directory = RunDirectory.create(out, plan, keeping)
    directory.resumed_by = resume_command(directory.path)
    say_how_to_go_on(team, directory.path, directory.log)
    team.go({"path": str(directory.path)})
    return _to_the_end(team, lambda: train_run(directory))


def resume(
    run: Path, among: Membership, resume_run: Callable[[RunDirectory, Callable[[int | None, bool], None]], int]
) -> int:
    """Resume a run on several hosts.

    Args:
        run: The run directory.
        among: Which of the processes this is.
        resume_run: Finds the checkpoint, passes it to its second argument, and trains the rest, on host 0.
    """
    from xladder.cli import startup

    team = Cluster(among, note_signals())
    message = team.meet({"versions": _versions()})
    cluster.enter(team)
    if not among.leads:
        say_how_to_go_on(team, run)
        return _to_the_end(team, lambda: resume_worker(team, run, message["device"]))
    with refusing(team):
        directory = RunDirectory.open(run)
    directory.resumed_by = resume_command(directory.path)
    say_how_to_go_on(team, directory.path, directory.log)
    team.go({"device": directory.plan.device})

    def ready(step: int | None, learning: bool) -> None:
        plan, keeping = describe_plan(directory.plan), asdict(directory.keeping)
        earlier = directory.earlier
        team.tell({"plan": plan, "keeping": keeping, "step": step, "learning": learning, "earlier": earlier})

    def go_on() -> int:
        startup.prepare(directory.plan.device)
        team.connect_jax()  # before reading checkpoints, which needs JAX to know all processes
        return resume_run(directory, ready)

    return _to_the_end(team, go_on)


@contextmanager
def refusing(team: Cluster) -> Iterator[None]:
    """If host 0 cannot start, tell the others why."""
    try:
        yield
    except XladderError as error:
        team.refuse(f"Host 0: {error}", error.exit_code)
        raise


def say_where(path: Path, out: Path | None) -> None:
    """On a host other than 0: say where the run is written if that is not the folder it was given."""
    if out is not None and out != path:
        print(f"Host 0 writes this run to {path}; `--out {out}` is not used.", file=sys.stderr, flush=True)


def say_how_to_go_on(team: Cluster, path: Path, log: Callable[[str], None] = lambda line: None) -> None:
    """If a peer is lost, log it and tell the user how to resume."""

    def note(sentence: str) -> str:
        log(sentence)
        return f"Resume with: {resume_command(path)}"

    team.on_loss = note


def resume_worker(team: Cluster, run: Path, device: str | None) -> int:
    """Resume a run on a host other than 0, with host 0's plan and checkpoint."""
    from xladder.cli import startup

    startup.prepare(device)
    team.connect_jax()
    message = team.hear()
    if message is None:
        return team.code
    plan, keeping, resume_state = (
        parse_plan(message["plan"], "the plan from host 0"),
        Keeping(**message["keeping"]),
        None,
    )
    if message["step"] is not None:
        folder = run / "checkpoints"
        if not folder.is_dir():
            raise UsageError(
                f"`{run}` does not exist on this host: every host needs access to the run directory to resume it."
            )
        try:
            known = run_metadata(plan)
            earlier = [known | config for config in message["earlier"]]
            found = Checkpoints(folder, known, keeping.keep, earlier).load(message["step"])
        except (Damaged, OSError) as error:
            raise DamagedRun(f"The checkpoint that host 0 resumes from cannot be read in `{folder}`: {error}") from None
        nothing = np.full((len(plan.seeds), found.facts["done"]), np.nan)
        loss = np.zeros_like(nothing) if message["learning"] else nothing
        resume_state = ResumeState(found.arrays, found.facts, {"loss": loss, "return": nothing})
    return run_worker(team, plan, keeping, resume_state)


def run_worker(team: Cluster, plan: Plan, keeping: Keeping, resume_state: ResumeState | None) -> int:
    """Run a host other than 0: it computes its share and writes nothing."""
    from xladder.cli import startup

    startup.prepare(plan.device)
    team.connect_jax()
    with Follower() as follower:
        execute(plan, follower, FollowingCheckpointer(keeping), resume_state, keeping.on_nan)
        return team.wait_for_leader()


class Follower(Observer):
    """Handles signals on a host other than 0, and shows nothing."""

    leads = False

    def __init__(self) -> None:
        self.signal, self.busy_starting, self.twice = 0, True, Debounce()

    def started(self, seeds: Sequence[int], running: Any) -> None:
        """Note that training has started, so there is something to save."""
        self.busy_starting = False

    def __enter__(self) -> Follower:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def stop(self) -> int:
        """The signal received, or 0."""
        return self.signal

    def stop_too(self, signal: int) -> None:
        """Stop because another process of the run has received a signal."""
        self.signal = signal

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        if self.twice.is_repeat():
            return
        if self.signal or self.busy_starting:
            os._exit(128 + number)
        self.signal = number


class FollowingCheckpointer(Checkpointer):
    """Takes part in gathering the state from all hosts; host 0 writes it."""

    def __init__(self, keeping: Keeping):
        self.keeps, self.every = keeping.checkpoint_every != 0, keeping.checkpoint_every or 0

    def save(self, step: int, arrays: Arrays, facts: Any, score: float) -> None:
        """Do nothing, because host 0 writes."""


def resume_command(path: Path) -> str:
    """The command that resumes a run of several processes."""
    launched, team = os.environ.get(LAUNCHER), cluster.current()
    if launched or team is None:
        return f"{launched or program()} resume {typed(path)}"
    among = team.membership
    where = f"--coordinator {among.coordinator} --num-hosts {among.num_hosts} --host-id {among.host_id}"
    return f"{program()} resume {typed(path)} --rung hosts {where} (on each host, with its own id)"


def _to_the_end(team: Cluster, call: Callable[[], int]) -> NoReturn:
    """Call a function, tell the other hosts how it ended, and exit at once; a normal exit would wait for all hosts."""
    why = ""
    try:
        code = call()
    except BaseException as error:
        if type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError"):
            team.wait_for_blame()
        why, code = format_error(error)
        complain(why, code)
    team.leave(code, why)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


def refuse_tools(tools: ToolOptions) -> None:
    """Raise a `UsageError` for tools that would make one host run a different program than the others."""
    if tools.debug or tools.profile:
        raise UsageError("`--debug` and `--profile` work in a single process: use `--rung mesh`, or `--rung fused`.")


def _versions() -> dict[str, str]:
    found = versions()
    python = ".".join(platform.python_version_tuple()[:2])
    return {name: found[name] for name in COMPARED if name in found} | {"python": python}


def over_all(before: RungOptions, seeds: int, among: Membership, mesh: str | None) -> RungOptions:
    """The options of a rung that spans all hosts.

    The mesh is the requested one, else the previous one, else `data` parallelism over all hosts. A previous mesh over
    seeds stays one over seeds on another number of hosts, if that divides the number of seeds.
    """
    hosts = among.num_hosts
    found = mesh or (before.mesh if before.hosts == hosts else None)
    if not found and before.mesh and layout.parse(before.mesh).data == 1 and seeds % hosts == 0:
        found = f"{layout.SEEDS}={hosts}"
    return replace(before, hosts=hosts, mesh=found or f"{layout.DATA}={hosts}")


def asked_for(options: HostOptions, rung: str | None) -> bool:
    """Whether a command line asks for several processes; a `UsageError` if its flags contradict each other."""
    given = next((name for name, default in asdict(HostOptions()).items() if getattr(options, name) != default), None)
    if rung not in (None, "hosts") and given:
        raise UsageError(f"`--{given.replace('_', '-')}` is for `--rung hosts`, not for `{rung}`.")
    if rung == "hosts" or options.coordinator is not None:
        return True
    if given:
        raise UsageError(f"`--{given.replace('_', '-')}` is for `--rung hosts`.")
    return False
