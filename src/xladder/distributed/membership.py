"""Which process of a multi-host run this is, and where the rendezvous takes place."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address

from xladder.errors import UsageError

LAST_PORT = 2**16 - 1
MOST_HOSTS = 10_000


def split_address(text: str) -> tuple[str, int] | None:
    """Split HOST:PORT or [HOST]:PORT into host and port; None if the text is neither."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) <= LAST_PORT:
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether a host name or address belongs to this machine only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Membership:
    """The identity of this process in a multi-host run.

    Args:
        coordinator: HOST:PORT of the rendezvous, on host 0.
        num_hosts: number of processes.
        host_id: number of this process.
        init_timeout: seconds to wait for all hosts at the start.
        stall_timeout: seconds without progress after which the run is given up.
    """

    coordinator: str
    num_hosts: int
    host_id: int
    init_timeout: float = 60.0
    stall_timeout: float = 600.0

    def __post_init__(self) -> None:
        found = split_address(self.coordinator)
        if found and found[1] == LAST_PORT:
            raise UsageError(f"`--coordinator` has port {LAST_PORT}, but needs the next port as well: use a lower one.")
        if found is None:
            raise UsageError(f"`--coordinator` is {self.coordinator}, but it has to be HOST:PORT, such as node1:7000.")
        if not 1 <= self.num_hosts <= MOST_HOSTS:
            raise UsageError(f"`--num-hosts` is {self.num_hosts}, but it has to be 1 … {MOST_HOSTS:,}.")
        if not 0 <= self.host_id < self.num_hosts:
            raise UsageError(
                f"`--host-id` is {self.host_id}, but the {self.num_hosts} hosts are 0 … {self.num_hosts - 1}."
            )
        for flag, seconds in (("init-timeout", self.init_timeout), ("stall-timeout", self.stall_timeout)):
            if not 0 < seconds < float("inf"):
                raise UsageError(f"`--{flag}` is {seconds}, but it has to be a positive number of seconds.")

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the rendezvous."""
        found = split_address(self.coordinator)
        assert found is not None
        return found

    @property
    def address_of_jax(self) -> str:
        """HOST:PORT of JAX's coordinator: the port after the given one."""
        host, port = self.address
        return f"[{host}]:{port + 1}" if ":" in host else f"{host}:{port + 1}"

    @property
    def is_local(self) -> bool:
        """Whether the coordinator is reachable from this machine only."""
        return is_loopback(self.address[0])

    @property
    def leads(self) -> bool:
        """Whether this is host 0, which writes the results."""
        return self.host_id == 0
