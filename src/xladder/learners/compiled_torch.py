"""PyTorch at its best: functions compiled by `torch.compile`, and on a GPU captured as CUDA graphs.

A graph replays all kernels of a function with one launch. It reads and writes the same memory every time, so inputs are
copied to where they were at its capture, and everything that it changes (parameters, the optimiser's state) has to stay
where it is. Nothing in it may wait for the GPU.
"""

from __future__ import annotations

import logging
import platform
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from xladder.core.compilers import why_no_compiler
from xladder.core.packages import pip_line
from xladder.errors import UsageError

Captured = tuple[torch.cuda.CUDAGraph, tuple[Tensor | None, ...], Any]
"""A graph, where it reads its inputs, and where it writes its outputs."""
MOST_COMPILED = 1024
WARM_UPS = 3  # calls before a capture, in which kernels are compiled and memory is allocated


def require_compiler(device: str) -> None:
    """Raise a `UsageError` if `torch.compile` does not work here, or has nothing to compile with."""
    from torch._dynamo.eval_frame import is_dynamo_supported  # slow to import, and only needed here

    if not is_dynamo_supported():
        where = f"PyTorch {torch.__version__} with Python {platform.python_version()}"
        raise UsageError(f"The rung `compiled` needs `torch.compile`, which {where} does not have: use `torch`.")
    if why := why_no_compiler(device):
        raise UsageError(f"The rung `compiled` {why}.")
    if device != "cpu" and find_spec("triton") is None:
        raise UsageError(f"The rung `compiled` needs triton on a GPU: {pip_line('triton')}, or use `torch`.")


class CaptureFailed(RuntimeError):
    """A function that runs on the GPU could not be captured as a CUDA graph."""


@contextmanager
def refused_in_a_sentence() -> Iterator[None]:
    """Turn a failure to compile or to capture into a `UsageError` that says what failed."""
    from torch._dynamo.exc import TorchDynamoException

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UsageError(f"The GPU has no memory left for this: {_first_line(error)}. Use a smaller batch.") from error
    except CaptureFailed as error:
        raise UsageError(
            f"PyTorch could not capture this as a CUDA graph: {_first_line(error)}. Nothing in it may wait for the "
            "GPU, as `.item()`, `.cpu()` and conditions on tensors do. Use `torch`."
        ) from error
    except TorchDynamoException as error:
        raise UsageError(f"PyTorch could not compile this: {_first_line(error)}. Use `torch`.") from error


def _first_line(error: BaseException) -> str:
    """The first line of what an error says, without a full stop at its end."""
    line = next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return line.strip()[:200].rstrip(".")


def compile_function(function: Callable[..., Any], dynamic: bool = False) -> Callable[..., Any]:
    """`torch.compile`, for inputs of fixed shapes or, if `dynamic`, for any."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\._inductor")  # of PyTorch about itself
    for name in ("torch._dynamo", "torch._inductor"):
        logging.getLogger(name).setLevel(logging.ERROR)
    import torch._dynamo.config as limits

    # Agents share their code, and each compiles it; past the limit PyTorch would go on without compiling.
    limits.recompile_limit = limits.accumulated_recompile_limit = MOST_COMPILED
    return torch.compile(function, dynamic=dynamic)


def make_capturable(optimiser: torch.optim.Optimizer) -> None:
    """Let an optimiser be captured: its step count stays on the GPU."""
    for group in optimiser.param_groups:
        group["capturable"] = True
    optimiser._warned_capturable_if_run_uncaptured = True  # of the warm-up


class Graph:
    """A function of tensors that is captured at its first call with inputs of given shapes, and replayed afterwards.

    Inputs may be on the host. What it returns is overwritten by the next call.
    """

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self._captured: dict[Any, Captured] = {}

    def __call__(self, *inputs: Tensor | None) -> Any:
        """Call the function; an input that is None stays so."""
        shapes = tuple(one if one is None else (tuple(one.shape), one.dtype) for one in inputs)
        if shapes not in self._captured:
            self._captured[shapes] = self._capture(inputs)
        graph, places, outputs = self._captured[shapes]
        for place, given in zip(places, inputs, strict=True):
            if place is not None and given is not None:
                place.copy_(given, non_blocking=True)
        graph.replay()
        return outputs

    def _capture(self, inputs: tuple[Tensor | None, ...]) -> Captured:
        places = tuple(one if one is None else one.to("cuda", copy=True) for one in inputs)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                self.function(*places)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads, such as JAX's, may use the GPU meanwhile.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                outputs = self.function(*places)
        except RuntimeError as error:  # the same calls succeeded before
            first: BaseException = error
            while first.__context__:  # ending a capture that has failed fails again
                first = first.__context__
            kind = torch.OutOfMemoryError if isinstance(first, torch.OutOfMemoryError) else CaptureFailed
            raise kind(_first_line(first)) from error
        return graph, places, outputs
