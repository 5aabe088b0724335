"""`compiled`: PyTorch at its best. The same loop as `torch`, with what acts and learns compiled.

`torch.compile` fuses the kernels of acting and of the loss; on a GPU all kernels of an update are captured as one CUDA
graph, and nothing waits for the GPU between updates. Random numbers are drawn as on `torch`, outside of what is
compiled, so both make the same run up to rounding.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch

from xladder.learners.compiled_torch import refused_in_a_sentence, require_compiler
from xladder.protocols import Config
from xladder.rungs.running import HostRun
from xladder.rungs.torch import choose_threads, find_device


def start(config: Config, seeds: Sequence[int], device: Any = None, threads: int | None = None) -> HostRun:
    """Start a run of one seed; `threads` is the number of PyTorch's threads, by default the fastest in a trial."""
    (seed,) = seeds
    where = find_device(device)
    require_compiler(where)
    note = choose_threads(config, threads) if where == "cpu" else ""
    backend = config.family.torch_backend(config, seed, where)
    begun = time.perf_counter()
    with refused_in_a_sentence():
        backend.compile()
    seconds = time.perf_counter() - begun
    loop = config.family.host_loop(config, backend, backend)
    return HostRun(loop, nullcontext(), note, seconds, torch.get_num_threads())
