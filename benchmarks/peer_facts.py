"""What every process of a comparison says of itself; imported in the peers' environments, so it needs only Python."""

import resource
import sys


def peak_memory_mb() -> float:
    """Peak memory in MiB: of the GPU if this process computed on one, otherwise of the process."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**20
    if jax is not None and jax.default_backend() != "cpu":
        return jax.devices()[0].memory_stats()["peak_bytes_in_use"] / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
