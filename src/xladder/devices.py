"""Find and describe the device of a run. JAX is imported only when a function needs it."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any, Literal

from xladder.core.packages import pip_line
from xladder.core.statistics import counted
from xladder.errors import UsageError

DeviceName = Literal["cpu", "gpu", "tpu"]


def find(name: str | None = None) -> Any:
    """Find the JAX device called `cpu`, `gpu` or `tpu`; JAX's default if no name is given."""
    import jax

    try:
        return jax.local_devices(backend=name)[0]
    except RuntimeError:
        have = ", ".join(sorted({device.platform for device in jax.devices()}))
        hint = _unused_gpu() or "Omit `--device` to run on what is available."
        raise UsageError(f"JAX finds no `{name}` here, only: {have}. {hint}") from None


def beside(device: Any) -> Any:
    """The JAX CPU device of a device's host; the device itself if JAX may not use the CPU."""
    import jax

    if device.platform == "cpu":
        return device
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:  # excluded by `JAX_PLATFORMS`
        return device


def describe(device: Any) -> str:
    """Describe a device in one line, with a hint if a GPU is present but unused."""
    import jax

    if device.platform == "cpu":
        text = f"cpu ({processor()}, {counted(cores(), 'core')}), JAX {jax.__version__}"
        unused = _unused_gpu() if jax.default_backend() == "cpu" else ""
        return f"{text}. {unused}" if unused else text
    allocation = "allocated as needed" if os.environ.get("XLA_PYTHON_CLIENT_PREALLOCATE") == "false" else "preallocated"
    memory = f", GPU memory {allocation}" if device.platform == "gpu" else ""
    return f"{device.platform} ({device.device_kind}), JAX {jax.__version__}{memory}"


def memory_bytes(device: Any) -> int:
    """Memory available for arrays in bytes: the device's own, or the machine's."""
    if device.platform != "cpu":
        return int((device.memory_stats() or {}).get("bytes_limit", 0)) or 2**63
    return memory_of_machine()


def memory_of_machine() -> int:
    """Memory in bytes that this process may use: the machine's, or the limit of its container or batch job."""
    try:
        physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):  # the system does not report it
        physical = 2**63
    return min([physical, *cgroup_limits()])


def cgroup_limits(groups: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> list[int]:
    """The memory limits in bytes of the control groups (Linux) that this process is in; each of them counts.

    Args:
        groups: the file that names them: `0::/PATH` in version 2, `4:memory:/PATH` in version 1.
        mount: where they are mounted.
    """
    limits = []
    try:
        lines = groups.read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        _, kinds, path = line.split(":", 2) if line.count(":") >= 2 else ("", "none", "")
        if kinds and "memory" not in kinds.split(","):
            continue
        top, file = (mount / "memory", "memory.limit_in_bytes") if kinds else (mount, "memory.max")
        folder = top / path.lstrip("/")
        # In a container, the path may be that of the host, and the limit is at the top.
        for each in [folder, *folder.parents][: len(folder.relative_to(top).parts) + 1]:
            try:
                text = (each / file).read_text().strip()
            except OSError:
                continue
            limits += [int(text)] if text.isdecimal() else []  # `max` where there is none
    return limits


def cores() -> int:
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor() -> str:
    """The processor's name."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _unused_gpu() -> str:
    if Path("/dev/nvidia0").exists():
        return "A GPU is present, but this JAX cannot use it: " + pip_line("-U 'jax[cuda13]'")
    return ""
