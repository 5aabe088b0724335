"""Which process of a run this is, and where all of them meet."""

from __future__ import annotations

from dataclasses import dataclass

from xladder.errors import UsageError

LOOPBACK = ("127.0.0.1", "localhost", "::1")
LAST_PORT = 2**16 - 1
MOST_HOSTS = 10_000


def split_address(text: str) -> tuple[str, int] | None:
    """Host and port of HOST:PORT or [HOST]:PORT; None if it is neither."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) <= LAST_PORT:
        return None
    return host.removeprefix("[").removesuffix("]"), int(port)


@dataclass(frozen=True)
class Membership:
    """Which of how many processes this one is, and where they meet."""

    coordinator: str
    num_hosts: int
    host_id: int
    init_timeout: float = 60.0
    stall_timeout: float = 600.0

    def __post_init__(self) -> None:
        found = split_address(self.coordinator)
        if found and found[1] == LAST_PORT:
            raise UsageError(f"`--coordinator` has port {LAST_PORT}, but the next one is needed, too: use a lower one.")
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
        """Where the rendezvous is held."""
        found = split_address(self.coordinator)
        assert found is not None
        return found

    @property
    def address_of_jax(self) -> str:
        """Where JAX meets: the next port."""
        host, port = self.address
        return f"[{host}]:{port + 1}" if ":" in host else f"{host}:{port + 1}"

    @property
    def is_local(self) -> bool:
        """Whether nobody outside this machine can come."""
        return self.address[0] in LOOPBACK

    @property
    def leads(self) -> bool:
        """Whether this process is the one that writes."""
        return self.host_id == 0
