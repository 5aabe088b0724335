"""Ray as the engine of the `actors` rung: every actor and every shard is a Ray actor, which Ray restarts if it dies.

A Ray that is started here listens on this machine only, has no dashboard and sends no usage statistics.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import secrets
import signal
import socket
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

from xladder import temporary_folders
from xladder.core.packages import missing_extra
from xladder.distributed import membership, processes, supervised
from xladder.distributed.membership import split_address
from xladder.distributed.remote import Lost, RemoteFuture
from xladder.errors import PeerLost, UsageError

ACTION_BYTES = 512  # more than a `struct sigaction` takes on any system
REACH_SECONDS = 5.0  # time for a cluster to answer
GLANCE = 0.25  # seconds between two looks at Ray's own processes
# Misleading name: on every system, "0" keeps Ray's ports on 127.0.0.1.
ON_ALL_ADDRESSES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
# Ray reads these when it is imported.
QUIET = {
    ON_ALL_ADDRESSES: "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".*",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
CLUSTER_HINT = (
    "Check its address and version, and that RAY_AUTH_MODE=token and RAY_AUTH_TOKEN are set as on the cluster; or "
    "leave `--ray` out."
)
# For actors and shards: they share the machine's cores, and leave its GPU to the learner.
ONE_THREAD = {
    "JAX_PLATFORMS": "cpu",
    "JAX_NUM_CPU_DEVICES": "1",
    "OMP_NUM_THREADS": "1",
    "NPROC": "1",  # read by XLA
    "TF_CPP_MIN_LOG_LEVEL": "2",
}


class WorkerRestarted(Exception):
    """A call was meant for an earlier generation of a worker that Ray has restarted since."""


class RayWorker:
    """Runs in a Ray process and holds one object, which is made by `start`."""

    def __init__(self, make: Callable[..., Any], given: Sequence[Any]):
        self.make, self.given = make, given
        self.thing: Any = None
        self.generation = 0

    def start(self, generation: int) -> int:
        """Make the object, and return the process id. `generation` counts how often it was made."""
        self.thing, self.generation = self.make(*self.given), generation
        return os.getpid()

    def perform(self, generation: int, method: str, *given: Any) -> Any:
        """Call a method of the object, if it is still that of this generation."""
        if generation != self.generation:
            raise WorkerRestarted
        return getattr(self.thing, method)(*given)


class RayRemote:
    """See `distributed.remote.Remote`."""

    def __init__(self, name: str, handle: Any):
        self.name, self.handle, self.generation = name, handle, 0

    def call(self, method: str, *given: Any, answers: int = 1) -> Any:
        """Call a method; returns a future, or several."""
        return self.handle.perform.options(num_returns=answers).remote(self.generation, method, *given)

    def start(self) -> RemoteFuture:
        """Start the object; returns a future of the process id."""
        self.generation += 1
        return self.handle.start.remote(self.generation)


class RayEngine:
    """Runs objects as Ray actors; see `distributed.remote.Engine`.

    Args:
        address: HOST:PORT of a Ray cluster; None starts Ray on this machine.
    """

    def __init__(self, address: str | None = None):
        self.ray, self.folder = connect(address)
        self.local = address is None
        self.handles: list[Any] = []
        self.own = OwnProcesses(self.ray) if self.local and self.folder else None
        ids = self.own.ids() if self.own else processes_here(self.ray, address) if address else {}
        supervised.tell(ray=ids, whose="The Ray cluster's" if address else "Ray's", cluster=address)

    def check_room(self, processes: int) -> None:
        """Raise a `UsageError` if a cluster has too few free CPUs: Ray would wait for them forever."""
        there = int(self.ray.available_resources().get("CPU", 0))
        if not self.local and there < processes:
            self.close()
            raise UsageError(
                f"The Ray cluster has {there} free CPUs, but {processes} processes need one each: use fewer "
                "`--actors` or `--shards`, or add nodes."
            )

    def spawn(self, name: str, make: Callable[..., Any], *given: Any) -> RayRemote:
        """Create a Ray actor for an object that `make` makes."""
        worker = self.ray.remote(RayWorker).options(
            # A local Ray is given no CPUs, so that it starts no idle processes; on a cluster each worker reserves one.
            num_cpus=0 if self.local else 1,
            max_restarts=-1,
            max_task_retries=0,
            runtime_env={"env_vars": environment(self.local)},
        )
        self.handles.append(worker.remote(make, given))
        return RayRemote(name, self.handles[-1])

    def put(self, value: Any) -> RemoteFuture:
        """Put a value in shared memory; returns a future."""
        return self.ray.put(value)

    def get(self, future: RemoteFuture) -> Any:
        """Wait for a result."""
        self.check()
        errors = self.ray.exceptions
        try:
            return self.ray.get(future)
        except errors.RayTaskError as error:
            if isinstance(error.cause, WorkerRestarted):
                raise Lost from None
            raise (error.cause or error) from None
        except errors.RayError as error:
            raise Lost((str(error).splitlines() or [""])[0][:200]) from None

    def ready(self, futures: Sequence[RemoteFuture], seconds: float) -> list[RemoteFuture]:
        """The futures that have a result or were lost."""
        self.check()
        found, left = self.ray.wait(list(futures), timeout=seconds)
        if left:
            found += self.ray.wait(left, num_returns=len(left), timeout=0)[0]
        return list(found)

    def check(self) -> None:
        """Raise `PeerLost` if a process of the Ray that was started here is lost."""
        if self.own and not supervised.is_supervised() and (lost := self.own.find_lost()):
            raise PeerLost(f"Ray's {lost} was lost.")

    def close(self) -> None:
        """End the workers, and Ray itself if it was started here; a cluster keeps running."""
        supervised.tell(ray={}, cluster=None)
        if self.own and self.own.lost:  # what is left of Ray would not answer
            self.handles = []
        for handle in self.handles:
            with contextlib.suppress(Exception):
                self.ray.kill(handle)
        self.handles = []
        if self.folder is not None:
            self.ray.shutdown()
            temporary_folders.remove(self.folder)
            self.folder = None


class OwnProcesses:
    """The processes of a Ray that was started here, without which it does not work."""

    NAMES: ClassVar = {"GCS server": "gcs_server", "raylet": "raylet"}

    def __init__(self, ray: Any):
        started = ray._private.worker._global_node.all_processes
        self.processes = {name: started[kind][0].process for name, kind in self.NAMES.items()}
        self.lost = ""
        self.looked = time.monotonic()

    def ids(self) -> dict[str, int]:
        """Name → process id."""
        return {name: process.pid for name, process in self.processes.items()}

    def find_lost(self) -> str:
        """The name of a process that has ended; empty if none has."""
        now = time.monotonic()
        if not self.lost and now - self.looked > GLANCE:
            self.looked = now
            self.lost = next((name for name, one in self.processes.items() if one.poll() is not None), "")
        return self.lost


def processes_here(ray: Any, address: str) -> dict[str, int]:
    """The processes of a cluster on this machine that a run needs: name → id."""
    node = ray._private.worker._global_node
    marks = {
        "GCS server": f"--gcs_server_port={address.rpartition(':')[2]}",
        "raylet": f"--raylet_socket_name={getattr(node, 'raylet_socket_name', None)}",
    }
    commands = {each: processes.command_line(each).split() for each in processes.all_ids()}
    return {name: each for name, mark in marks.items() for each, command in commands.items() if mark in command}


def environment(local: bool) -> dict[str, str]:
    """Environment variables of the workers.

    Local workers import this very code (they would otherwise import the installed package) and share the compilation
    cache.
    """
    import jax

    found, package = dict(ONE_THREAD), Path(__file__).parents[2]
    if local and package.name != "site-packages":
        found["PYTHONPATH"] = os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH")]))
    if local and (folder := getattr(jax.config, "jax_compilation_cache_dir", None)):
        found["JAX_COMPILATION_CACHE_DIR"] = folder
    return found


def connect(address: str | None) -> tuple[Any, str | None]:
    """Import Ray and connect to a cluster, or start Ray.

    Returns:
        Ray's module and the folder with its files, or None if Ray was already running.
    """
    if address is not None:
        check_reachable(address)
    for name, value in QUIET.items():
        if address is None or name != ON_ALL_ADDRESSES:
            os.environ.setdefault(name, value)
    if {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & os.environ.keys():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # without the mode, a token would be ignored
    elif address is None:
        # Only processes that inherit this token may use this Ray. Ray's own token would lie in the home folder.
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    logger = logging.getLogger("ray")
    logger.setLevel(logging.ERROR)  # Ray warns if it is imported outside the main thread
    try:
        import ray
    except ImportError as error:
        raise missing_extra("ray", "ray") from error
    if ray.is_initialized():
        return ray, None
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    # A private folder for logs and sockets, deleted later. Ray makes its own folder readable to all: it goes inside.
    folder = temporary_folders.make("xladder-ray-")
    supervised.tell(ray={}, folder=folder)
    try:
        # JAX warns about every fork. Ray's are harmless, as they call exec at once.
        warnings.filterwarnings("ignore", message=r"os\.fork\(\) was called", category=RuntimeWarning)
        # Ray's workers import from the directory in which it is started before anything else, so not from the user's.
        with signals_as_they_are(), contextlib.chdir(folder):
            if address is None:
                ray.init("local", include_dashboard=False, num_cpus=0, num_gpus=0, _temp_dir=f"{folder}/r", **quiet)
            else:
                ray.init(address=address, **quiet)
    except Exception as error:
        temporary_folders.remove(folder)
        message = (str(error).splitlines() or [""])[0]
        what = f"the Ray cluster at `{address}` cannot be used" if address else "Ray could not be started"
        raise UsageError(
            f"{what[0].upper()}{what[1:]}: {type(error).__name__}: {message[:200]} "
            + (CLUSTER_HINT if address else "`--rung parallel` does not need Ray.")
        ) from error
    return ray, folder


@contextlib.contextmanager
def signals_as_they_are() -> Iterator[None]:
    """Restore the signal handlers afterwards: Ray's would end the process with a stack trace.

    This calls `sigaction` because Python's `signal.signal` works in the main thread only.
    """
    system = ctypes.CDLL(None)
    actions = {number: ctypes.create_string_buffer(ACTION_BYTES) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, action in actions.items():
        system.sigaction(int(number), None, action)
    try:
        yield
    finally:
        for number, action in actions.items():
            system.sigaction(int(number), action, None)


def check_reachable(address: str) -> None:
    """Raise a `UsageError` unless something listens at `address`: Ray itself would retry for a minute."""
    found = split_address(address)
    if found is None or "/" in found[0]:
        raise UsageError(f"`--ray` is {address}, but it has to be HOST:PORT, as `ray start --head` prints it.")
    try:
        socket.create_connection(found, REACH_SECONDS).close()
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"No Ray answers at `{address}` ({getattr(error, 'strerror', None) or error}): start one there with "
            "`ray start --head`, or leave `--ray` out to have one on this machine."
        ) from None


def is_loopback(address: str) -> bool:
    """Whether an address belongs to this machine only."""
    found = split_address(address)
    return found is not None and membership.is_loopback(found[0])
