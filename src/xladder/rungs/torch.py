"""`torch`: everything in PyTorch and NumPy. The reference, with the number of threads that is fastest for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from xladder.core.packages import missing_extra
from xladder.core.statistics import counted
from xladder.devices import cores
from xladder.errors import UsageError
from xladder.protocols import Config
from xladder.rungs.running import HostRun

try:
    import torch
except ImportError as error:  # pragma: no cover - depends on the installation
    raise missing_extra("torch", "torch") from error


def start(config: Config, seeds: Sequence[int], device: Any = None, threads: int | None = None) -> HostRun:
    """Start a run of one seed; `threads` is the number of PyTorch's threads, by default the fastest in a trial."""
    (seed,) = seeds
    where = find_device(device)
    note = choose_threads(config, threads) if where == "cpu" else ""
    backend = config.family.torch_backend(config, seed, where)
    loop = config.family.host_loop(config, backend, backend)
    return HostRun(loop, nullcontext(), note, threads=torch.get_num_threads())


def find_device(device: Any) -> str:
    """PyTorch's name for a JAX device."""
    if device is None or device.platform == "cpu":
        return "cpu"
    if not torch.cuda.is_available():
        raise UsageError("This PyTorch cannot use the GPU: install one built for it, or add `--device cpu`.")
    torch.set_float32_matmul_precision("high")  # TensorFloat-32, as JAX does by default
    return "cuda"


def peak_memory() -> int:
    """Peak bytes that PyTorch has allocated on the GPU."""
    return torch.cuda.max_memory_allocated()


def choose_threads(config: Config, given: int | None = None) -> str:
    """Set the number of threads, to `given` or to the fastest in a trial; returns a sentence that says which."""
    if given:
        torch.set_num_threads(given)
        return f"PyTorch uses {given} of {counted(cores(), 'thread')}, as requested."
    times = best_threads(config)
    tried = ", ".join(f"{threads}: {ms:.1f} ms" for threads, ms in sorted(times.items()))
    return f"PyTorch uses {torch.get_num_threads()} of {counted(cores(), 'thread')} (the fastest of a trial: {tried})."


def best_threads(config: Config) -> dict[int, float]:
    """Time a trial at 1, 2, 4 … threads and set the fastest. Returns milliseconds by threads, fastest first.

    PyTorch's own default can be several times slower on a small or busy machine.
    """
    limit, threads = cores(), 1
    backend = config.family.torch_backend(config, 0, "cpu")
    times: dict[int, float] = {}
    while threads <= limit:
        torch.set_num_threads(threads)
        trials = []
        for _ in range(6):
            begun = time.perf_counter()
            backend.dry_run()
            trials.append(time.perf_counter() - begun)
        times[threads] = 1000 * float(np.median(trials[1:]))
        threads *= 2
    times = dict(sorted(times.items(), key=lambda item: item[1]))
    torch.set_num_threads(next(iter(times)))
    return times


def trace(file: Path) -> Callable[[], None]:
    """Start profiling; the returned function stops it and writes `file` for a browser's trace viewer."""
    tracer = torch.profiler.profile()
    tracer.start()

    def stop() -> None:
        tracer.stop()
        tracer.export_chrome_trace(str(file))

    return stop
