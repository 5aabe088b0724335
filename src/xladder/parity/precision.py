"""What lower precision of matrix products means for PyTorch's side, which computes in float32."""

from __future__ import annotations

from xladder.errors import UsageError

TORCH_RUNGS = ("torch", "compiled", "hybrid")


def missing_rungs(precision: str) -> dict[str, tuple[str, str]]:
    """The rungs that need the PyTorch twin, if it cannot compute in this precision: name → (reason, another rung)."""
    if precision == "float32":
        return {}
    return dict.fromkeys(TORCH_RUNGS, ("the PyTorch twin computes in float32", "sequential"))


def check_comparable(precision: str) -> None:
    """Raise a `UsageError` if PyTorch would not compute the same numbers."""
    if precision != "float32":
        raise UsageError(
            f"`--learner.precision` is {precision}, but the PyTorch twin computes in float32: "
            "compare with `--learner.precision float32`."
        )
